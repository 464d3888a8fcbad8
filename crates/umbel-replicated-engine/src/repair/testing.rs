//! A driver for tests: two sessions over arrays in memory, with bytes passed between them in a
//! loop.

use std::collections::VecDeque;

use super::error::RepairError;
use super::event::{RepairInput, RepairOutput};
use super::options::{BlockDifference, Policy, RepairLimits, RepairOptions, RepairOutcome};
use super::session::RepairSession;
use super::table::ResidueTable;
use umbel_step::Outbox;

/// One side with its array.
pub(crate) struct Side {
    pub(crate) session: RepairSession,
    pub(crate) words: Vec<u64>,
    pub(crate) differences: Vec<BlockDifference>,
    pub(crate) result: Option<Result<RepairOutcome, RepairError>>,
    inputs: VecDeque<RepairInput>,
    sent: VecDeque<Vec<u8>>,
}

impl Side {
    fn new(session: RepairSession, words: Vec<u64>) -> Self {
        Self {
            session,
            words,
            differences: Vec::new(),
            result: None,
            inputs: VecDeque::from([RepairInput::Start]),
            sent: VecDeque::new(),
        }
    }

    fn work(&mut self) -> bool {
        let mut did = false;
        let mut out = Outbox::new();
        while let Some(input) = self.inputs.pop_front() {
            did = true;
            self.session.step(input, &self.words, &mut out);
            for output in out.take() {
                assert!(self.result.is_none(), "nothing follows the end, but {output:?}");
                match output {
                    RepairOutput::Send(bytes) => self.sent.push_back(bytes),
                    RepairOutput::Differs(difference) => {
                        for &bit in &difference.flips {
                            let word = 512 * difference.block as usize + bit as usize / 64;
                            self.words[word] ^= 1 << (bit % 64);
                        }
                        self.differences.push(difference);
                    }
                    RepairOutput::Finish(result) => self.result = Some(result.map(|found| *found)),
                }
            }
        }
        did
    }
}

/// Changes bytes in transit. The first argument is whether they go to the initiator.
pub(crate) type Damage = Box<dyn FnMut(bool, Vec<u8>) -> Vec<Vec<u8>>>;

/// Two sides, and the channel between them.
pub(crate) struct Shuttle {
    pub(crate) ours: Side,
    pub(crate) theirs: Side,
    /// Bytes delivered at a time; 0 for as much as was sent at a time.
    pub(crate) chunk_bytes: usize,
    pub(crate) damage: Damage,
}

/// Options for either side.
pub(crate) fn options(table: &ResidueTable, nonce: u64) -> RepairOptions {
    RepairOptions { shape_id: 7, domain: [3; 16], nonce, limits: RepairLimits::of(table) }
}

/// The table of an array of whole words.
pub(crate) fn table(words: &[u64]) -> ResidueTable {
    ResidueTable::of_words(words, 64 * words.len() as u64).unwrap()
}

impl Shuttle {
    pub(crate) fn new(policy: Policy, ours: &[u64], theirs: &[u64]) -> Self {
        Self::with_window_blocks([1024, 1 << 14], policy, ours, theirs)
    }

    /// The same with other numbers of blocks in the first window and in the others.
    pub(crate) fn with_window_blocks(
        window_blocks: [usize; 2],
        policy: Policy,
        ours: &[u64],
        theirs: &[u64],
    ) -> Self {
        let (a, b) = (table(ours), table(theirs));
        let (ours_options, theirs_options) = (options(&a, 0x1111), options(&b, 0x2222));
        let initiator = RepairSession::initiator(ours_options, policy, a);
        Self::of(
            (initiator.with_window_blocks(window_blocks), ours),
            (RepairSession::responder(theirs_options, true, b), theirs),
        )
    }

    pub(crate) fn of(ours: (RepairSession, &[u64]), theirs: (RepairSession, &[u64])) -> Self {
        Self {
            ours: Side::new(ours.0, ours.1.to_vec()),
            theirs: Side::new(theirs.0, theirs.1.to_vec()),
            chunk_bytes: 0,
            damage: Box::new(|_, bytes| vec![bytes]),
        }
    }

    /// Runs until both sides are done. If both are waiting, the connection is closed.
    pub(crate) fn run(&mut self) {
        loop {
            let mut did = self.ours.work() | self.theirs.work();
            did |= self.carry(true) | self.carry(false);
            if did {
                continue;
            }
            if self.ours.result.is_some() && self.theirs.result.is_some() {
                return;
            }
            self.ours.inputs.push_back(RepairInput::Closed);
            self.theirs.inputs.push_back(RepairInput::Closed);
        }
    }

    fn carry(&mut self, to_ours: bool) -> bool {
        let (from, to) = if to_ours {
            (&mut self.theirs, &mut self.ours)
        } else {
            (&mut self.ours, &mut self.theirs)
        };
        let Some(bytes) = from.sent.pop_front() else { return false };
        for bytes in (self.damage)(to_ours, bytes) {
            let chunk_bytes =
                if self.chunk_bytes == 0 { bytes.len().max(1) } else { self.chunk_bytes };
            let chunks = bytes.chunks(chunk_bytes);
            to.inputs.extend(chunks.map(|chunk| RepairInput::Received(chunk.to_vec())));
        }
        true
    }

    /// The outcomes of both sides, which must have succeeded.
    pub(crate) fn outcomes(&self) -> [RepairOutcome; 2] {
        [&self.ours, &self.theirs].map(|side| side.result.clone().unwrap().unwrap())
    }
}
