//! A worker of a two-worker exchange, and frames for it as a fuzzer writes them.
//!
//! ```text
//! input:  plan u8 | frame | frame | ...
//! frame:  kind u8 (modulo 9) | flags u8 | param u8 | cell u8 | sequence u8 | from u8 | count u16 | covered u16 | bytes u16 | payload
//! ```
//!
//! Numbers are small on purpose, so that most inputs get past the checks of the header; checksums are put right.

use umbel_dedup_engine::{
    Entry, Exactness, ExchangeCoordinator, ExchangeInput, ExchangeOutput, FilterChoice, Frame,
    FrameKind, FrameLink, JobShape, Keep, Mailbox, Mode, Plan, Rank, RecordId, RecordIdBits,
    Suspect, SuspectItem, Worker, WorkerId,
};
use umbel_filter::ItemHash;
use umbel_step::Outbox;

/// Bytes of a frame before its payload.
const HEAD_BYTES: usize = 12;

/// Number of the job.
const JOB: u64 = 1;

/// Items that each worker reads; the second one starts in the middle of the first one's.
const ITEMS: u64 = 40;

/// The plan that a byte chooses: every level and mode, with and without record ids.
#[must_use]
pub fn plan(choice: u8) -> Plan {
    let exactness = match choice % 3 {
        0 => Exactness::Fingerprint,
        1 => Exactness::Bytes,
        _ => Exactness::Approximate { false_positive_rate: 1e-3 },
    };
    let report_kept = choice & 8 != 0;
    let keep = match (choice & 4 != 0, choice & 32 != 0) {
        (false, false) => Keep::First,
        (true, false) => Keep::Last,
        (_, true) => Keep::Best,
    };
    let shape = JobShape {
        workers: 2,
        cells_per_owner: 1,
        exactness,
        keep,
        report_kept,
        item_bytes_mean: 0.0,
    };
    let record_id_bits = report_kept.then_some(RecordIdBits { chunk: 1, item: 8 });
    let plan = ExchangeCoordinator::plan_without_sample(
        shape,
        2 * ITEMS,
        record_id_bits,
        FilterChoice::Auto,
    );
    if choice & 16 != 0 && plan.truncation.is_none() {
        let refine_bits = u32::from(choice >> 5);
        return Plan { mode: Mode::Filter, position_count: 100, refine_bits, ..plan };
    }
    plan
}

/// The hash of an item; every eighth shares its hash with the next one.
fn hash(number: u64) -> ItemHash {
    let number = if number % 8 == 1 { number - 1 } else { number };
    let spread = number.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    ItemHash::new(spread, spread.rotate_left(17))
}

/// How an item ranks: not in the order of record ids, and many equal.
fn rank(record_id: RecordId) -> Rank {
    Rank(record_id.to_bits() % 3)
}

/// A worker that has its plan and its cells, and what it sent.
#[must_use]
pub fn worker(id: u16, plan: Plan) -> (Worker, Vec<ExchangeOutput>) {
    let (mut worker, mut outbox) = (empty_worker(id, plan), Outbox::new());
    for input in inputs(id, plan) {
        worker.step(input, &mut outbox).expect("the plan, and each cell once");
    }
    (worker, outbox.take())
}

fn empty_worker(id: u16, plan: Plan) -> Worker {
    Worker::new(WorkerId(id), plan.shape, JOB).expect("a shape within limits")
}

/// A worker's plan and its cells.
fn inputs(id: u16, plan: Plan) -> Vec<ExchangeInput> {
    let mut inputs = vec![ExchangeInput::Plan(plan)];
    let first = u64::from(id) * ITEMS / 2;
    for cell in 0..2 {
        let own =
            (0..ITEMS).filter(|item| plan.shape.cells().cell_of(hash(first + item).hi()) == cell);
        let entry =
            |item| Entry { hash: hash(first + item), record_id: RecordId::new(id.into(), item) };
        let entries: Vec<Entry> = own.map(entry).collect();
        let mut ranks: Vec<Rank> = entries.iter().map(|entry| rank(entry.record_id)).collect();
        ranks.truncate(if plan.shape.ranks_entries() { entries.len() } else { 0 });
        inputs.push(ExchangeInput::Cell { cell, entries, ranks });
    }
    inputs
}

/// The items that a worker asks for.
#[must_use]
pub fn items(suspects: &[Suspect]) -> Vec<SuspectItem> {
    let item = |&Suspect { record_id, shared }: &Suspect| {
        let number = u64::from(record_id.chunk()) * ITEMS / 2 + record_id.item();
        let bytes = number.to_le_bytes().to_vec();
        SuspectItem { hash: hash(number), record_id, shared, rank: rank(record_id), bytes }
    };
    suspects.iter().map(item).collect()
}

/// The link from a worker to worker 0.
#[must_use]
pub fn link(sender: u16) -> FrameLink {
    FrameLink { job: JOB, sender, receiver: 0, attempt: 0 }
}

/// The next frame of an input: who sends it, and the frame; none at the input's end.
pub fn next_frame<'a>(input: &mut &'a [u8]) -> Option<(u16, Frame<'a>)> {
    let head = input.split_off(..HEAD_BYTES)?;
    let &[kind, flags, param, cell, sequence, from, c0, c1, v0, v1, b0, b1] = head else {
        return None;
    };
    let kind = FrameKind::ALL[usize::from(kind) % FrameKind::ALL.len()];
    let payload = input.split_off(..usize::from(u16::from_le_bytes([b0, b1])).min(input.len()))?;
    let covered = if kind.is_verdict() { u16::from_le_bytes([v0, v1]) } else { 0 };
    let frame = Frame {
        kind,
        flags,
        param,
        cell: u32::from(cell % 3),
        sequence: u32::from(sequence % 4),
        count: u32::from(u16::from_le_bytes([c0, c1])),
        covered: u32::from(covered),
        payload,
    };
    Some((u16::from(from % 2), frame))
}

/// An input that replays what a real exchange sends to worker 0.
///
/// # Panics
///
/// If the exchange fails, which would be a bug.
#[must_use]
pub fn recorded(choice: u8) -> Vec<u8> {
    let plan = plan(choice);
    let mut input = vec![choice];
    let mut mailbox = Mailbox::new(vec![empty_worker(0, plan), empty_worker(1, plan)]);
    for id in 0..2 {
        for input in inputs(id, plan) {
            mailbox.step(WorkerId(id), input).expect("the plan, and each cell once");
        }
    }
    while let Some((from, output)) = mailbox.pop() {
        let (to, next) = match output {
            ExchangeOutput::Send { to, frame } => {
                if to == WorkerId(0) {
                    let decoded = Frame::decode(&frame, link(from.0)).expect("our own frame");
                    record(&decoded, from.0, &mut input);
                }
                (to, ExchangeInput::Frame { from, bytes: frame })
            }
            ExchangeOutput::Compare { cell, suspects } => {
                (from, ExchangeInput::Items { cell, items: items(&suspects) })
            }
            _ => continue,
        };
        mailbox.step(to, next).expect("an undisturbed exchange");
    }
    input
}

fn record(frame: &Frame<'_>, from: u16, input: &mut Vec<u8>) {
    let narrow = |number: u32| u16::try_from(number).expect("a small exchange").to_le_bytes();
    let byte = |number: u32| u8::try_from(number).expect("a small exchange");
    let kind =
        FrameKind::ALL.into_iter().position(|kind| kind == frame.kind).expect("in the table");
    input.extend([u8::try_from(kind).expect("nine kinds"), frame.flags, frame.param]);
    input.extend([byte(frame.cell), byte(frame.sequence), u8::try_from(from).expect("0 or 1")]);
    input.extend(narrow(frame.count));
    input.extend(narrow(frame.covered));
    input.extend(narrow(u32::try_from(frame.payload.len()).expect("a small exchange")));
    input.extend_from_slice(frame.payload);
}
