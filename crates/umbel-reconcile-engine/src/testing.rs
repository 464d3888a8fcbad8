//! A driver for tests: two sessions over sets in memory; a loop carries bytes between them.

use std::collections::{BTreeSet, VecDeque};

use super::event::{SessionInput, SessionOutput};
use super::item::{Item, ItemIndex, RemoteItem};
use super::offline::{SketchSpec, StoredSketch};
use super::options::{Direction, Options, SessionRole, SymbolKind};
use super::outcome::SessionOutcome;
use super::session::Session;
use crate::error::Result;
use umbel_step::Outbox;

/// The stored sketch of a set, always with the same salt.
pub(crate) fn sketch_of(
    kind: SymbolKind,
    items: &BTreeSet<Item>,
    coded_count: u64,
) -> StoredSketch {
    let spec = SketchSpec::new(kind, 0, [7; 16], 64).expect("64 bits");
    let mut pass = spec.pass(coded_count).expect("a sketch of this length");
    items.iter().for_each(|item| pass.add(ItemIndex(0), item.as_item_ref()));
    StoredSketch::of_pass(spec, pass).expect("items of this kind")
}

/// One side and its set.
pub(crate) struct Side {
    pub(crate) session: Session,
    pub(crate) items: Vec<Item>,
    pub(crate) applied: Vec<Item>,
    pub(crate) only_here: Option<Vec<ItemIndex>>,
    pub(crate) only_there: Vec<RemoteItem>,
    pub(crate) result: Option<Result<SessionOutcome>>,
    /// Passes over the whole set.
    pub(crate) scan_count: usize,
    changes: bool,
    inputs: VecDeque<SessionInput>,
    sent: VecDeque<Vec<u8>>,
    out: Outbox<SessionOutput>,
}

impl Side {
    pub(crate) fn new(options: Options, changes: bool, items: &BTreeSet<Item>) -> Self {
        Self {
            session: Session::new(options),
            items: items.iter().cloned().collect(),
            applied: Vec::new(),
            only_here: None,
            only_there: Vec::new(),
            result: None,
            scan_count: 0,
            changes,
            inputs: VecDeque::from([SessionInput::Start]),
            sent: VecDeque::new(),
            out: Outbox::new(),
        }
    }

    /// Gives the session a stored sketch.
    pub(crate) fn begin_with(&mut self, sketch: StoredSketch) {
        let other = Session::new(Options::responder(SymbolKind::Hashed, 0));
        let session = std::mem::replace(&mut self.session, other);
        self.session = session.with_sketch(sketch).expect("a sketch of these items");
    }

    /// Processes all pending inputs; true if there were any.
    pub(crate) fn work(&mut self) -> bool {
        let mut did = false;
        while let Some(input) = self.inputs.pop_front() {
            did = true;
            self.session.step(input, &mut self.out);
            for output in self.out.take() {
                self.follow(output);
            }
        }
        did
    }

    fn follow(&mut self, output: SessionOutput) {
        assert!(self.result.is_none(), "nothing follows the end, but {output:?}");
        match output {
            SessionOutput::Send(bytes) => self.sent.push_back(bytes),
            SessionOutput::RunPass(mut pass) => {
                self.scan_count += 1;
                let mut fork = pass.fork();
                for (item, number) in self.items.iter().zip(0..) {
                    let part = if number % 3 == 0 { &mut fork } else { &mut pass };
                    part.add(ItemIndex(number), item.as_item_ref());
                }
                if pass.includes_applied() {
                    self.applied.iter().for_each(|item| pass.add_applied(item.as_item_ref()));
                }
                pass.merge(fork);
                self.inputs.push_back(SessionInput::PassDone(pass));
            }
            SessionOutput::Fetch(indexes) => {
                let items = indexes.iter().map(|index| self.items[index.0 as usize].clone());
                self.inputs.push_back(SessionInput::Items(items.collect()));
            }
            SessionOutput::Pause => self.inputs.push_back(SessionInput::Resume),
            SessionOutput::OnlyHere(indexes) => {
                assert!(self.only_here.replace(indexes).is_none(), "once");
            }
            SessionOutput::OnlyThere(items) => {
                assert!(!items.is_empty());
                if self.changes {
                    let contents = items.iter().map(|item| item.item.clone().expect("contents"));
                    self.applied.extend(contents);
                }
                self.only_there.extend(items);
                self.inputs.push_back(SessionInput::Applied);
            }
            SessionOutput::Phase(_) => {}
            SessionOutput::Finish(result) => self.result = Some(result),
        }
    }

    /// Bytes to be sent.
    pub(crate) fn take_sent(&mut self) -> Option<Vec<u8>> {
        self.sent.pop_front()
    }

    /// Delivers received bytes.
    pub(crate) fn receive(&mut self, bytes: Vec<u8>) {
        self.inputs.push_back(SessionInput::Received(bytes));
    }

    /// The items that only the other side has.
    pub(crate) fn items_there(&self) -> BTreeSet<Item> {
        self.only_there.iter().filter_map(|remote| remote.item.clone()).collect()
    }

    pub(crate) fn items_here(&self) -> Option<BTreeSet<Item>> {
        let indexes = self.only_here.as_ref()?;
        Some(indexes.iter().map(|index| self.items[index.0 as usize].clone()).collect())
    }
}

/// What happens to bytes in transit; the flag says whether they go to the initiator.
pub(crate) type Damage = Box<dyn FnMut(bool, Vec<u8>) -> Vec<Vec<u8>>>;

/// Two sides and the connection between them.
pub(crate) struct Shuttle {
    pub(crate) ours: Side,
    pub(crate) theirs: Side,
    /// Bytes per delivery; 0 delivers what was sent at once.
    pub(crate) chunk_bytes: usize,
    /// What happens to bytes in transit.
    pub(crate) damage: Damage,
}

impl Shuttle {
    pub(crate) fn new(
        initiator: Options,
        responder: Options,
        ours: &BTreeSet<Item>,
        theirs: &BTreeSet<Item>,
    ) -> Self {
        let SessionRole::Initiator(aim) = initiator.role else { panic!("an initiator") };
        Self {
            ours: Side::new(initiator, aim.direction.to_initiator(), ours),
            theirs: Side::new(responder, aim.direction.to_responder(), theirs),
            chunk_bytes: 0,
            damage: Box::new(|_, bytes| vec![bytes]),
        }
    }

    pub(crate) fn of(
        kind: SymbolKind,
        direction: Direction,
        ours: &BTreeSet<Item>,
        theirs: &BTreeSet<Item>,
    ) -> Self {
        let initiator = Options::initiator(kind, direction, 0x1111);
        Self::new(initiator, Options::responder(kind, 0x2222), ours, theirs)
    }

    /// Carries bytes until both sides are done. If both sides wait, it closes the connection.
    pub(crate) fn run(&mut self) {
        let mut step_count = 0;
        loop {
            step_count += 1;
            assert!(step_count < 1_000_000, "hangs");
            let did = self.ours.work() | self.theirs.work();
            let moved = self.carry(true) | self.carry(false);
            if did || moved {
                continue;
            }
            if self.ours.result.is_some() && self.theirs.result.is_some() {
                return;
            }
            self.ours.inputs.push_back(SessionInput::Closed);
            self.theirs.inputs.push_back(SessionInput::Closed);
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
            to.inputs.extend(
                bytes.chunks(chunk_bytes).map(|chunk| SessionInput::Received(chunk.to_vec())),
            );
        }
        true
    }

    /// Checks both outcomes against plain sets.
    pub(crate) fn check(&self, direction: Direction) {
        let ours: BTreeSet<Item> = self.ours.items.iter().cloned().collect();
        let theirs: BTreeSet<Item> = self.theirs.items.iter().cloned().collect();
        for (side, here, there) in [(&self.ours, &ours, &theirs), (&self.theirs, &theirs, &ours)] {
            let outcome = side.result.as_ref().expect("done").as_ref().expect("verified");
            let only_here: BTreeSet<Item> = here.difference(there).cloned().collect();
            let only_there: BTreeSet<Item> = there.difference(here).cloned().collect();
            assert!(outcome.verified);
            assert_eq!(outcome.here_count, here.len() as u64);
            assert_eq!(outcome.there_count, there.len() as u64);
            assert_eq!(outcome.only_here_count, only_here.len() as u64);
            assert_eq!(outcome.only_there_count, only_there.len() as u64);
            assert_eq!(outcome.bytes.total(), outcome.sent_bytes + outcome.received_bytes);
            if let Some(found) = side.items_here() {
                assert_eq!(found, only_here);
            }
            if side.changes {
                assert_eq!(side.items_there(), only_there);
                assert_eq!(side.only_there.len(), only_there.len());
            }
        }
        let outcome = self.ours.result.clone().unwrap().unwrap();
        assert!(self.ours.only_here.is_some() || outcome.attempt_count > 1, "it is told");
        assert_eq!(
            self.ours.applied.is_empty(),
            !direction.to_initiator() || theirs.is_subset(&ours)
        );
        let outcomes = [&self.ours, &self.theirs].map(|side| side.result.clone().unwrap().unwrap());
        assert_eq!(outcomes[0].bytes, outcomes[1].bytes);
        assert_eq!(outcomes[0].sent_bytes, outcomes[1].received_bytes);
    }
}
