//! Halves of sessions that reconcile sets or repair bits, and frames for them as a fuzzer writes them.
//!
//! ```text
//! input:  choice u8 | honest u8 | frame | frame | ...
//! frame:  type u8 | body bytes u16 | body
//! ```
//!
//! The choice names one half of a session. After as many messages as `honest` says, between it and a half that is as it
//! should be, the frames of the input come; lengths and checksums are put right.

use std::collections::VecDeque;

use umbel_codec::crc32c;
use umbel_reconcile_engine::{
    Direction, Item, ItemIndex, Limits, Optimize, Options, Session, SessionError, SessionInput,
    SessionOutput, SessionRole, SymbolKind,
};
use umbel_replicated_engine::repair::{
    Policy, RepairInput, RepairLimits, RepairOptions, RepairOutput, RepairSession, ResidueTable,
};
use umbel_step::Outbox;

/// Most messages that are exchanged before the input's own.
const HONEST_MAX: u8 = 16;

/// Items of either side's set; most of them are in both.
const ITEMS: u64 = 60;

/// Words of either array: a block and a part of one, or some more than a first window has.
const WORDS: [usize; 2] = [700, 512 * 40];

/// One half of a session.
trait Half {
    /// Takes bytes of the peer; what it sends.
    fn receive(&mut self, bytes: Vec<u8>) -> Vec<Vec<u8>>;

    /// What it sends at once.
    fn start(&mut self) -> Vec<Vec<u8>>;
}

/// Runs an input.
pub fn run(input: &[u8]) {
    let Some((&[choice, honest], mut rest)) = input.split_first_chunk() else { return };
    let mut halves = halves(choice);
    exchange(&mut halves, usize::from(honest % HONEST_MAX), |_| {});
    while let Some(frame) = next_frame(&mut rest) {
        halves[0].receive(frame);
    }
}

/// An input that replays what a real session sends to the half of a choice.
#[must_use]
pub fn recorded(choice: u8) -> Vec<u8> {
    let mut input = vec![choice, 0];
    exchange(&mut halves(choice), usize::MAX, |bytes| {
        let (head, body) = split_frame(bytes);
        input.push(head);
        input.extend(u16::try_from(body.len()).expect("small sets").to_le_bytes());
        input.extend_from_slice(body);
    });
    input
}

/// Carries messages until so many came, or none is left; tells of those to the first half.
fn exchange(halves: &mut [Box<dyn Half>; 2], message_max: usize, mut observed: impl FnMut(&[u8])) {
    let mut mail = VecDeque::new();
    for (at, half) in halves.iter_mut().enumerate() {
        mail.extend(half.start().into_iter().map(|bytes| (1 - at, bytes)));
    }
    for _ in 0..message_max {
        let Some((to, bytes)) = mail.pop_front() else { return };
        if to == 0 {
            observed(&bytes);
        }
        mail.extend(halves[to].receive(bytes).into_iter().map(|bytes| (1 - to, bytes)));
    }
}

/// The half that a choice names, and its peer.
fn halves(choice: u8) -> [Box<dyn Half>; 2] {
    let mut halves: [Box<dyn Half>; 2] = if choice & 2 == 0 {
        let [a, b] = set_halves(choice);
        [Box::new(a), Box::new(b)]
    } else {
        let [a, b] = bit_halves(choice);
        [Box::new(a), Box::new(b)]
    };
    if choice & 1 != 0 {
        halves.reverse();
    }
    halves
}

fn next_frame(rest: &mut &[u8]) -> Option<Vec<u8>> {
    let &[frame_type, b0, b1] = rest.split_off(..3)? else { return None };
    let length = usize::from(u16::from_le_bytes([b0, b1])).min(rest.len());
    let body = rest.split_off(..length)?;
    let mut bytes = Vec::new();
    let mut left = body.len();
    while left >= 0x80 {
        bytes.push(u8::try_from(left & 0x7f).expect("seven bits") | 0x80);
        left >>= 7;
    }
    bytes.push(u8::try_from(left).expect("seven bits"));
    bytes.push(frame_type);
    bytes.extend_from_slice(body);
    bytes.extend(crc32c(&[&[frame_type], body]).to_le_bytes());
    Some(bytes)
}

/// Type and body of a frame of ours.
fn split_frame(bytes: &[u8]) -> (u8, &[u8]) {
    let length_bytes = 1 + bytes.iter().take_while(|&&byte| byte >= 0x80).count();
    (bytes[length_bytes], &bytes[length_bytes + 1..bytes.len() - 4])
}

/// A half that reconciles a set.
struct SetHalf {
    session: Session,
    items: Vec<Item>,
    applied: Vec<Item>,
    is_over: bool,
}

fn set_halves(choice: u8) -> [SetHalf; 2] {
    let kind = [SymbolKind::Hashed, SymbolKind::Id64, SymbolKind::Keyed, SymbolKind::Id64]
        [usize::from(choice >> 2 & 3)];
    let direction = Direction::ALL[usize::from(choice >> 4 & 3)];
    let mut options = Options::initiator(kind, direction, 1);
    options.limits = Limits { bytes_max: 1 << 22, item_bytes_max: 1 << 10, ..Limits::default() };
    if let SessionRole::Initiator(aim) = &mut options.role {
        aim.optimize = if choice & 64 == 0 { Optimize::Bytes } else { Optimize::Time };
        aim.want_items = choice & 128 != 0;
        aim.expected_difference = (choice & 128 != 0).then_some(40);
    }
    let responder = Options { limits: options.limits, ..Options::responder(kind, 2) };
    let set = |first: u64| (first..first + ITEMS).map(|number| item(kind, number)).collect();
    let half = |options, items| {
        let session = Session::new(options);
        SetHalf { session, items, applied: Vec::new(), is_over: false }
    };
    [half(options, set(0)), half(responder, set(if choice & 64 == 0 { 5 } else { 30 }))]
}

fn item(kind: SymbolKind, number: u64) -> Item {
    let bytes = number.to_le_bytes().to_vec();
    match kind {
        SymbolKind::Hashed => Item::Bytes(bytes),
        SymbolKind::Id64 => Item::Id(number.wrapping_mul(0x9e37_79b9_7f4a_7c15)),
        SymbolKind::Keyed => Item::Keyed { key: bytes, value: vec![7; 3] },
    }
}

impl SetHalf {
    fn step(&mut self, input: SessionInput) -> Vec<Vec<u8>> {
        let (mut sent, mut out) = (Vec::new(), Outbox::new());
        let mut inputs = VecDeque::from([input]);
        while let Some(input) = inputs.pop_front() {
            self.session.step(input, &mut out);
            for output in out.take() {
                assert!(!self.is_over, "nothing follows the end, but {output:?}");
                match output {
                    SessionOutput::Send(bytes) => sent.push(bytes),
                    SessionOutput::RunPass(mut pass) => {
                        for (item, number) in self.items.iter().zip(0..) {
                            pass.add(ItemIndex(number), item.as_item_ref());
                        }
                        if pass.includes_applied() {
                            self.applied
                                .iter()
                                .for_each(|item| pass.add_applied(item.as_item_ref()));
                        }
                        inputs.push_back(SessionInput::PassDone(pass));
                    }
                    SessionOutput::Fetch(indexes) => {
                        let place = |index: &ItemIndex| usize::try_from(index.0).expect("small");
                        let items = indexes.iter().map(|index| self.items[place(index)].clone());
                        inputs.push_back(SessionInput::Items(items.collect()));
                    }
                    SessionOutput::Pause => inputs.push_back(SessionInput::Resume),
                    SessionOutput::OnlyThere(items) => {
                        self.applied.extend(items.into_iter().filter_map(|remote| remote.item));
                        inputs.push_back(SessionInput::Applied);
                    }
                    SessionOutput::OnlyHere(_) | SessionOutput::Phase(_) => {}
                    SessionOutput::Finish(result) => {
                        self.is_over = true;
                        let blames = matches!(result, Err(SessionError::Driver { .. }));
                        assert!(!blames, "a driver that keeps to the rules: {result:?}");
                    }
                }
            }
        }
        sent
    }
}

impl Half for SetHalf {
    fn receive(&mut self, bytes: Vec<u8>) -> Vec<Vec<u8>> {
        self.step(SessionInput::Received(bytes))
    }

    fn start(&mut self) -> Vec<Vec<u8>> {
        self.step(SessionInput::Start)
    }
}

/// A half that repairs an array.
struct BitHalf {
    session: RepairSession,
    words: Vec<u64>,
    is_over: bool,
}

fn bit_halves(choice: u8) -> [BitHalf; 2] {
    let policies = [Policy::Compare, Policy::Mirror, Policy::Union, Policy::Union];
    let policy = policies[usize::from(choice >> 2 & 3)];
    let word_count = WORDS[usize::from(choice >> 4 & 1)];
    let ours: Vec<u64> = (0..word_count as u64).map(|at| at.wrapping_mul(0x9e37_79b9)).collect();
    let mut theirs = ours.clone();
    // A block with a few flips, one with many, and others with one if the choice says so.
    theirs[..3].iter_mut().for_each(|word| *word ^= 5);
    theirs[520..560].iter_mut().for_each(|word| *word ^= 0xff_ffff);
    if choice & 32 != 0 {
        theirs.iter_mut().step_by(512).for_each(|word| *word ^= 1 << 40);
    }
    let half = |words: Vec<u64>, nonce, is_initiator| {
        let bit_count = 64 * words.len() as u64;
        let table = ResidueTable::of_words(&words, bit_count).expect("whole words");
        let limits = RepairLimits::of(&table);
        let options = RepairOptions { shape_id: 1, domain: [0; 16], nonce, limits };
        let session = if is_initiator {
            RepairSession::initiator(options, policy, table)
        } else {
            RepairSession::responder(options, true, table)
        };
        BitHalf { session, words, is_over: false }
    };
    [half(ours, 1, true), half(theirs, 2, false)]
}

impl BitHalf {
    fn step(&mut self, input: RepairInput) -> Vec<Vec<u8>> {
        let (mut sent, mut out) = (Vec::new(), Outbox::new());
        self.session.step(input, &self.words, &mut out);
        for output in out.take() {
            assert!(!self.is_over, "nothing follows the end, but {output:?}");
            match output {
                RepairOutput::Send(bytes) => sent.push(bytes),
                RepairOutput::Differs(difference) => {
                    let begin = 512 * difference.block as usize;
                    for bit in difference.flips {
                        self.words[begin + usize::from(bit / 64)] ^= 1 << (bit % 64);
                    }
                }
                RepairOutput::Finish(result) => {
                    self.is_over = true;
                    if let Ok(outcome) = result {
                        let bit_count = 64 * self.words.len() as u64;
                        let table = ResidueTable::of_words(&self.words, bit_count);
                        assert_eq!(Ok(outcome.table), table);
                    }
                }
            }
        }
        sent
    }
}

impl Half for BitHalf {
    fn receive(&mut self, bytes: Vec<u8>) -> Vec<Vec<u8>> {
        self.step(RepairInput::Received(bytes))
    }

    fn start(&mut self) -> Vec<Vec<u8>> {
        self.step(RepairInput::Start)
    }
}
