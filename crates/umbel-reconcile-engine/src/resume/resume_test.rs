//! Sessions that are cut at any byte, any number of times, have the same result as uncut ones, and send
//! little twice.

use std::collections::BTreeSet;

use proptest::collection::vec;
use proptest::prelude::*;

use super::*;
use crate::item::Item;
use crate::limits::RESUME_WINDOW_BYTES;
use crate::options::{Direction, Options, SessionRole, SymbolKind};
use crate::session_test::sets;
use crate::testing::{Shuttle, Side};

/// Most bytes of handshakes and framing for one resumption.
const AROUND_BYTES_MAX: u64 = 1_000;

/// The state of a side that survives its process.
#[derive(Clone, Default)]
struct Journal {
    bytes: Vec<u8>,
    sent: u64,
    /// Whether the session is in the journal.
    is_begun: bool,
}

impl Journal {
    fn known(&self) -> Option<(StreamMark, u64)> {
        let mut hash = StreamHash::default();
        hash.update(&self.bytes);
        self.is_begun.then_some((hash.mark(), self.sent))
    }
}

/// A side while its process runs.
struct Running {
    side: Side,
    regenerated: Regenerated,
    window: SendWindow,
    reader: ResumeReader,
    /// Bytes of the journal that were fed to the session.
    fed: usize,
    wire: Vec<u8>,
    has_sent_verdict: bool,
    received: Option<ResumeVerdict>,
}

impl Running {
    fn new(side: Side, theirs: StreamMark) -> Self {
        Self {
            side,
            regenerated: Regenerated::new(theirs),
            window: SendWindow::new(theirs.bytes),
            reader: ResumeReader::default(),
            fed: 0,
            wire: Vec::new(),
            has_sent_verdict: false,
            received: None,
        }
    }

    fn goes_on(&self) -> bool {
        self.has_sent_verdict && self.received == Some(ResumeVerdict::Same)
    }

    /// Processes everything that is pending.
    fn work(&mut self, journal: &mut Journal) {
        loop {
            let did = self.side.work();
            while let Some(bytes) = self.side.take_sent() {
                let known = self.regenerated.skip(&bytes);
                self.window.push(&bytes[known..]);
            }
            let left = &journal.bytes[self.fed..];
            if !left.is_empty() && self.side.session.wants_bytes() && self.side.result.is_none() {
                let piece = left[..left.len().min(5_000)].to_vec();
                self.fed += piece.len();
                self.side.receive(piece);
            } else if !did {
                break;
            }
        }
        self.regenerated.journal_ended();
        if !self.has_sent_verdict {
            self.has_sent_verdict = true;
            let verdict = self.regenerated.verdict().unwrap();
            self.wire.extend(ResumeFrame::Verdict(verdict).to_bytes());
        }
        if self.goes_on() && self.regenerated.verdict() == Some(ResumeVerdict::Same) {
            while let Some(frame) = self.window.next_frame() {
                journal.sent = journal.sent.max(self.window.sent());
                self.wire.extend(frame);
            }
        }
    }

    fn receive(&mut self, bytes: &[u8], journal: &mut Journal) {
        self.reader.push(bytes);
        while let Some(frame) = self.reader.next_frame().unwrap() {
            match frame {
                ResumeFrame::Verdict(verdict) => self.received = Some(verdict),
                ResumeFrame::Data(bytes) => {
                    journal.bytes.extend(bytes);
                    self.wire.extend(ResumeFrame::Ack(journal.bytes.len() as u64).to_bytes());
                }
                ResumeFrame::Ack(bytes) => self.window.acknowledge(bytes).unwrap(),
                ResumeFrame::Offer(_) => panic!("one a connection"),
            }
        }
    }
}

/// Two sides that are restarted again and again.
struct Pair {
    options: [Options; 2],
    sets: [BTreeSet<Item>; 2],
    journals: [Journal; 2],
    fresh: u128,
    wire_bytes: u64,
    again: u64,
}

impl Pair {
    fn new(direction: Direction, kind: SymbolKind, sets: (BTreeSet<Item>, BTreeSet<Item>)) -> Self {
        Self {
            options: [Options::initiator(kind, direction, 5), Options::responder(kind, 6)],
            sets: sets.into(),
            journals: Default::default(),
            fresh: 1,
            wire_bytes: 0,
            again: 0,
        }
    }

    /// Exchanges both offers, and begins a new session if they lead to one.
    fn greet(&mut self) -> [Resumption; 2] {
        self.fresh += 1;
        let first = match self.journals[0].known() {
            Some((received, sent)) => ResumeOffer { session: 1, fresh: self.fresh, received, sent },
            None => ResumeOffer::first(self.fresh),
        };
        let known = if first.session == first.fresh { None } else { self.journals[1].known() };
        let second = first.answer(known);
        let resumptions = [first.with(&second).unwrap(), second.with(&first).unwrap()];
        for (journal, resumption) in self.journals.iter_mut().zip(resumptions) {
            if resumption == Resumption::Anew {
                *journal = Journal { is_begun: true, ..Journal::default() };
            }
        }
        self.wire_bytes += 2 * ResumeFrame::Offer(first).to_bytes().len() as u64;
        resumptions
    }

    /// Runs both sides until they are done, or until `cut_after` bytes were transferred.
    fn run(&mut self, cut_after: Option<u64>, loses: [usize; 2]) -> [Running; 2] {
        let resumptions = self.greet();
        let SessionRole::Initiator(aim) = self.options[0].role else { panic!() };
        let changes = [aim.direction.to_initiator(), aim.direction.to_responder()];
        let mut running = [0, 1].map(|at| {
            let side = Side::new(self.options[at], changes[at], &self.sets[at]);
            let theirs = match resumptions[at] {
                Resumption::Anew => StreamMark::START,
                Resumption::Rejoin { theirs, again } => {
                    self.again += if at == 0 { again } else { 0 };
                    theirs
                }
            };
            let mut running = Running::new(side, theirs);
            if resumptions[at] == Resumption::Anew {
                (running.has_sent_verdict, running.received) = (true, Some(ResumeVerdict::Same));
            }
            running
        });
        let mut left = cut_after.unwrap_or(u64::MAX);
        loop {
            let mut moved = false;
            for at in [0, 1] {
                running[at].work(&mut self.journals[at]);
                let bytes = std::mem::take(&mut running[at].wire);
                let passes = (bytes.len() as u64).min(left);
                left -= passes;
                self.wire_bytes += passes;
                moved |= passes > 0;
                let passed = &bytes[..passes as usize];
                running[1 - at].receive(passed, &mut self.journals[1 - at]);
            }
            if left == 0 || !moved {
                break;
            }
        }
        for (journal, loses) in self.journals.iter_mut().zip(loses) {
            let kept = journal.bytes.len().saturating_sub(loses);
            journal.bytes.truncate(kept);
        }
        running
    }
}

fn shuttle_of([ours, theirs]: [Running; 2]) -> Shuttle {
    Shuttle {
        ours: ours.side,
        theirs: theirs.side,
        chunk_bytes: 0,
        damage: Box::new(|_, b| vec![b]),
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    #[test]
    fn a_session_that_is_cut_goes_on_where_it_was(
        kind in prop::sample::select(&SymbolKind::ALL),
        direction in prop::sample::select(&Direction::ALL),
        sizes in prop_oneof![(0..300u64, 0..12u64, 0..12u64), (0..900u64, 0..3_000u64, 0..3_000u64)],
        cuts in vec(0..60_000u64, 0..6),
    ) {
        let sets = sets(kind, true, sizes.0, sizes.1, sizes.2);
        let mut uncut = Pair::new(direction, kind, sets.clone());
        let uncut_ended = uncut.run(None, [0, 0]);
        let mut pair = Pair::new(direction, kind, sets);
        for cut in &cuts {
            pair.run(Some(*cut), [0, 0]);
        }
        let ended = pair.run(None, [0, 0]);
        for (one, other) in ended.iter().zip(&uncut_ended) {
            prop_assert!(one.window.is_acknowledged());
            prop_assert_eq!(one.side.result.as_ref().unwrap(), other.side.result.as_ref().unwrap());
            prop_assert_eq!(one.side.only_here.as_ref(), other.side.only_here.as_ref());
            prop_assert_eq!(one.side.items_there(), other.side.items_there());
        }
        shuttle_of(ended).check(direction);
        let cut_count = cuts.len() as u64;
        prop_assert!(pair.again <= 2 * RESUME_WINDOW_BYTES * cut_count);
        let most = uncut.wire_bytes + pair.again + pair.again / 8 + AROUND_BYTES_MAX * cut_count;
        prop_assert!(pair.wire_bytes <= most, "{} > {most}", pair.wire_bytes);
    }

    #[test]
    fn a_set_that_has_changed_is_found_before_anything_goes_on(
        direction in prop::sample::select(&Direction::ALL),
        cut in 300..30_000u64,
        whose in 0..2usize,
    ) {
        let (ours, theirs) = sets(SymbolKind::Hashed, true, 500, 700, 700);
        let mut pair = Pair::new(direction, SymbolKind::Hashed, (ours, theirs));
        pair.run(Some(cut), [0, 0]);
        pair.sets[whose].insert(Item::Bytes(b"new".to_vec()));
        let has = pair.journals[1 - whose].bytes.len();
        let ended = pair.run(None, [0, 0]);
        let verdict = ended[whose].regenerated.verdict();
        if has > 0 {
            // A session that fails over the changed set ends before it has regenerated enough bytes.
            prop_assert!(matches!(verdict, Some(ResumeVerdict::Changed | ResumeVerdict::Lost)));
            prop_assert!(!ended[1 - whose].goes_on());
        } else {
            // The other side has received nothing yet that depends on the old set.
            prop_assert_eq!(verdict, Some(ResumeVerdict::Same));
        }
    }

    #[test]
    fn a_journal_that_lost_its_end_goes_on_or_says_so(
        cut in 300..60_000u64, whose in 0..2usize, loses in 1..3_000usize,
    ) {
        let (ours, theirs) = sets(SymbolKind::Hashed, true, 100, 900, 900);
        let mut pair = Pair::new(Direction::TwoWay, SymbolKind::Hashed, (ours, theirs));
        let mut lost = [0, 0];
        lost[whose] = loses;
        pair.run(Some(cut), lost);
        let ended = pair.run(None, [0, 0]);
        match ended[whose].regenerated.verdict() {
            Some(ResumeVerdict::Same) => shuttle_of(ended).check(Direction::TwoWay),
            verdict => {
                prop_assert_eq!(verdict, Some(ResumeVerdict::Lost));
                prop_assert!(!ended[1 - whose].goes_on());
            }
        }
    }
}

#[test]
fn liars_about_the_other_sides_bytes_are_found() {
    let mut hash = StreamHash::default();
    hash.update(b"session");
    let honest = hash.mark();
    for (theirs, expected) in [
        (honest, ResumeVerdict::Same),
        (StreamMark { hash: honest.hash ^ 1, ..honest }, ResumeVerdict::Changed),
        (StreamMark { bytes: 3, ..honest }, ResumeVerdict::Changed),
        (StreamMark { bytes: 0, ..honest }, ResumeVerdict::Changed),
        (StreamMark { bytes: 8, ..honest }, ResumeVerdict::Lost),
        (StreamMark { bytes: u64::MAX, ..honest }, ResumeVerdict::Lost),
    ] {
        let mut regenerated = Regenerated::new(theirs);
        regenerated.skip(b"sess");
        regenerated.skip(b"ion");
        regenerated.journal_ended();
        assert_eq!(regenerated.verdict(), Some(expected), "{theirs:?}");
    }
}

#[test]
fn offers_about_other_sessions_are_errors() {
    let known = StreamMark { bytes: 9, hash: 4 };
    let ours = ResumeOffer { session: 1, fresh: 2, received: known, sent: 20 };
    assert_eq!(ours.with(&ours.answer(None)), Ok(Resumption::Anew));
    assert_eq!(ours.answer(None).with(&ours), Ok(Resumption::Anew));
    let theirs = ours.answer(Some((StreamMark { bytes: 13, hash: 5 }, 10)));
    let again = (20 - 13) + (10 - 9);
    assert_eq!(ours.with(&theirs), Ok(Resumption::Rejoin { theirs: theirs.received, again }));
    assert_eq!(theirs.with(&ours), Ok(Resumption::Rejoin { theirs: known, again }));
    for foreign in [
        ResumeOffer { session: 3, ..theirs },
        ResumeOffer { fresh: 3, ..theirs },
        ResumeOffer::first(1),
    ] {
        assert!(matches!(ours.with(&foreign), Err(ResumeError::ForeignSession { .. })));
    }
    // Offsets that nobody can have sent do not overflow.
    let huge = ResumeOffer { sent: u64::MAX, ..theirs };
    assert!(matches!(ours.with(&huge), Ok(Resumption::Rejoin { again: 7.., .. })));
}

#[test]
fn a_plain_session_says_that_the_peer_wants_to_resume() {
    let (ours, theirs) = sets(SymbolKind::Id64, true, 1, 1, 1);
    let mut shuttle = Shuttle::of(SymbolKind::Id64, Direction::Compare, &ours, &theirs);
    shuttle.damage = Box::new(|to_ours, bytes| {
        if to_ours {
            vec![bytes]
        } else {
            vec![ResumeFrame::Offer(ResumeOffer::first(1)).to_bytes()]
        }
    });
    shuttle.run();
    let error = shuttle.theirs.result.unwrap().unwrap_err();
    assert_eq!(error, crate::SessionError::Resumable);
}
