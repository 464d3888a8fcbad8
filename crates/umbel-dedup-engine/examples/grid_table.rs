//! Hundreds of workers, all cells at once: bytes, messages, connections and memory, directly and over the
//! grid.
//!
//! `grid_table RECORDS WORKERS...` prints a Markdown table with two rows for each number of workers; 0.6 % of
//! the records are at two workers. It runs in rounds: each worker processes all received messages, then sends
//! all its frames, with those for one next hop in one bundle. No bundling can do better.

#[allow(dead_code, reason = "the tables share the drawn job, and this one needs a part of it")]
mod drawn_job;

use drawn_job::{Job, print_table};
use std::collections::BTreeMap;
use std::process::ExitCode;
use umbel_dedup_engine::{
    ExchangeInput, ExchangeOutput, ExchangeReport, Grid, Passage, Route, Worker, WorkerId,
};
use umbel_step::Outbox;

/// Share of records that two workers each have.
const DELTA: f64 = 0.006;

/// A message is sent when it has grown to this.
const MESSAGE_BYTES_CUT: usize = 64 << 10;

/// Frames for one next hop.
#[derive(Clone, Default)]
struct Message {
    passages: Vec<Vec<u8>>,
    bytes: usize,
}

impl Message {
    /// Appends a frame, with its length in front.
    fn push(&mut self, passage: Vec<u8>) {
        let length_bytes = if passage.len() < 1 << 7 { 1 } else { 1 + passage.len().ilog2() / 7 };
        self.bytes += length_bytes as usize + passage.len();
        self.passages.push(passage);
    }
}

/// A job whose cells are all exchanged at once.
struct Rounds {
    grid: Grid,
    workers: Vec<Worker>,
    /// For each sender, the growing messages by next hop.
    pending: Vec<BTreeMap<WorkerId, Message>>,
    /// For each receiver, neighbour and message, in the order of sending.
    inboxes: Vec<Vec<(WorkerId, Message)>>,
    messages: u64,
    wire_bytes: u64,
    relayed_bytes: u64,
    held_bytes_max: u64,
    rounds: u32,
}

impl Rounds {
    fn new(job: &Job, workers: Vec<Worker>, route: Route) -> Self {
        let count = job.shape.workers;
        Self {
            grid: Grid::new(count, route),
            workers,
            pending: vec![BTreeMap::new(); count as usize],
            inboxes: vec![Vec::new(); count as usize],
            messages: 0,
            wire_bytes: 0,
            relayed_bytes: 0,
            held_bytes_max: 0,
            rounds: 0,
        }
    }

    /// Gives a worker an input, and sends its outputs.
    fn step(&mut self, me: WorkerId, input: ExchangeInput) {
        let mut orders = Outbox::new();
        self.workers[me.index()].step(input, &mut orders).expect("our own input");
        for order in orders.take() {
            match order {
                ExchangeOutput::Send { to, frame } if to == me => {
                    self.step(me, ExchangeInput::Frame { from: me, bytes: frame });
                }
                ExchangeOutput::Send { to, frame } => {
                    let passage = Passage { from: me, to, frame: &frame };
                    self.enqueue(me, to, passage.to_bytes());
                }
                _ => {}
            }
        }
    }

    fn enqueue(&mut self, me: WorkerId, to: WorkerId, passage: Vec<u8>) {
        let hop = self.grid.next_hop(me, to);
        let message = self.pending[me.index()].entry(hop).or_default();
        message.push(passage);
        if message.bytes >= MESSAGE_BYTES_CUT {
            let message = std::mem::take(message);
            self.send(me, hop, message);
        }
    }

    fn send(&mut self, me: WorkerId, hop: WorkerId, message: Message) {
        if !message.passages.is_empty() {
            self.messages += 1;
            self.wire_bytes += message.bytes as u64;
            self.inboxes[hop.index()].push((me, message));
        }
    }

    /// Processes a neighbour's message: passes the worker its frames, and forwards the others.
    fn take(&mut self, me: WorkerId, neighbour: WorkerId, message: Message) {
        for bytes in message.passages {
            let passage = Passage::read(&bytes, self.grid, me, neighbour).expect("our message");
            let Passage { from, to, frame } = passage;
            if to == me {
                self.step(me, ExchangeInput::Frame { from, bytes: frame.to_vec() });
            } else {
                self.relayed_bytes += frame.len() as u64;
                self.enqueue(me, to, bytes);
            }
        }
    }

    /// Measures the worker's memory, then sends all bundled frames.
    fn flush(&mut self, me: WorkerId) {
        let pending = std::mem::take(&mut self.pending[me.index()]);
        let waiting: usize = pending.values().map(|message| message.bytes).sum();
        let held = self.workers[me.index()].held_bytes() + waiting as u64;
        self.held_bytes_max = self.held_bytes_max.max(held);
        for (hop, message) in pending {
            self.send(me, hop, message);
        }
    }

    fn run(&mut self, job: &Job) {
        let ids: Vec<WorkerId> = (0..self.workers.len())
            .map(|id| WorkerId(u16::try_from(id).expect("few workers")))
            .collect();
        for cell in 0..job.shape.cells().get() {
            for (&me, entries) in ids.iter().zip(job.cell(cell)) {
                self.step(me, ExchangeInput::Cell { cell, entries, ranks: Vec::new() });
            }
        }
        ids.iter().for_each(|&me| self.flush(me));
        while self.inboxes.iter().any(|inbox| !inbox.is_empty()) {
            self.rounds += 1;
            let inboxes = vec![Vec::new(); self.workers.len()];
            let came = std::mem::replace(&mut self.inboxes, inboxes);
            for (&me, inbox) in ids.iter().zip(came) {
                for (neighbour, message) in inbox {
                    self.take(me, neighbour, message);
                }
                self.flush(me);
            }
        }
        assert!(self.workers.iter().all(Worker::is_idle), "every cell is decided");
    }
}

/// Share of the ordered pairs of different workers whose frames take two hops: if all streams are equally
/// long, the wire carries this share more than in a direct exchange.
fn relayed_share(grid: Grid, workers: u32) -> f64 {
    let ids = (0..workers).map(|id| WorkerId(u16::try_from(id).expect("few workers")));
    let neighbours: usize = ids.map(|me| grid.neighbours(me).count()).sum();
    let pairs = f64::from(workers) * f64::from(workers - 1);
    (pairs - neighbours as f64) / pairs.max(1.0)
}

fn row(workers: u32, records: u64, route: Route) -> String {
    let job = Job::new(workers, records, DELTA);
    let plan = job.plan(&mut ExchangeReport::default());
    let mut rounds = Rounds::new(&job, job.workers(Some(plan)), route);
    rounds.run(&job);
    let mut report = ExchangeReport::default();
    rounds.workers.iter().for_each(|worker| report += worker.report());
    let n = report.entries as f64;
    let connections = rounds.grid.neighbours(WorkerId(0)).count();
    let others = 1.0 - 1.0 / f64::from(workers);
    let model =
        job.model_bits(&plan, &report) / 8.0 * others * (1.0 + relayed_share(rounds.grid, workers));
    format!(
        "| {workers} | {n:.0e} | {route:?} | {connections} | {} | {:.1} | {:.0} | {:.2} | {:.2} | {model:.2} | {:.2} | {:.2} | {} |",
        report.network_frames,
        rounds.messages as f64 / f64::from(workers),
        rounds.wire_bytes as f64 / rounds.messages as f64,
        rounds.wire_bytes as f64 / n,
        rounds.relayed_bytes as f64 / n,
        8.0 * report.header_bytes as f64 / n,
        rounds.held_bytes_max as f64 / f64::from(1 << 20),
        rounds.rounds,
    )
}

fn main() -> ExitCode {
    let heading = [
        "| workers | records | route | connections | frames | messages a worker | bytes a message | wire bytes a record | of them relayed | model | header bits | MiB held | rounds |",
        "|--:|--:|---|--:|--:|--:|--:|--:|--:|--:|--:|--:|--:|",
    ];
    print_table("grid_table RECORDS WORKERS...", heading, |workers, records| {
        [Route::Direct, Route::Grid].map(|route| row(workers, records, route))
    })
}
