//! Two sessions over sets in memory, with bytes carried between them and seconds measured.

use std::collections::VecDeque;
use std::time::Instant;

use umbel_reconcile_engine::{
    Item, ItemIndex, Options, Session, SessionInput, SessionOutcome, SessionOutput, SymbolKind,
};
use umbel_step::Outbox;

/// Steele, Lea & Flood 2014, doi:10.1145/2660193.2660195.
pub(crate) fn mix(number: u64) -> u64 {
    let mixed = (number ^ (number >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    mixed ^ (mixed >> 31)
}

/// The id of a number: 64 or 256 random bits.
pub(crate) fn item(kind: SymbolKind, seed: u64, number: u64) -> Item {
    let word = |at: u64| mix((4 * number + at).wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ mix(seed));
    match kind {
        SymbolKind::Id64 => Item::Id(word(0)),
        _ => Item::Bytes((0..4).flat_map(|at| word(at).to_be_bytes()).collect()),
    }
}

/// One side: its session, its items, and the seconds spent in passes, steps and the rest of the driver.
pub(crate) struct Side<'a> {
    session: Session,
    items: &'a [Item],
    inputs: VecDeque<SessionInput>,
    sent: VecDeque<Vec<u8>>,
    pub(crate) applied: Vec<Item>,
    pub(crate) outcome: Option<SessionOutcome>,
    pub(crate) pass_seconds: f64,
    pub(crate) step_seconds: f64,
    out: Outbox<SessionOutput>,
}

impl<'a> Side<'a> {
    fn new(options: Options, items: &'a [Item]) -> Self {
        Self {
            session: Session::new(options),
            items,
            inputs: VecDeque::from([SessionInput::Start]),
            sent: VecDeque::new(),
            applied: Vec::new(),
            outcome: None,
            pass_seconds: 0.0,
            step_seconds: 0.0,
            out: Outbox::new(),
        }
    }

    #[expect(clippy::disallowed_methods, reason = "it measures")]
    fn work(&mut self) -> bool {
        let mut did = false;
        while let Some(input) = self.inputs.pop_front() {
            did = true;
            let started = Instant::now();
            self.session.step(input, &mut self.out);
            self.step_seconds += started.elapsed().as_secs_f64();
            for output in self.out.take() {
                self.follow(output);
            }
        }
        did
    }

    #[expect(clippy::disallowed_methods, reason = "it measures")]
    fn follow(&mut self, output: SessionOutput) {
        match output {
            SessionOutput::Send(bytes) => self.sent.push_back(bytes),
            SessionOutput::RunPass(mut pass) => {
                let started = Instant::now();
                if pass.includes_applied() {
                    self.applied.iter().for_each(|item| pass.add_applied(item.as_item_ref()));
                }
                for (item, number) in self.items.iter().zip(0..) {
                    pass.add(ItemIndex(number), item.as_item_ref());
                }
                self.pass_seconds += started.elapsed().as_secs_f64();
                self.inputs.push_back(SessionInput::PassDone(pass));
            }
            SessionOutput::Fetch(indexes) => {
                let number = |index: u64| usize::try_from(index).expect("an index of ours");
                let items = indexes.iter().map(|index| self.items[number(index.0)].clone());
                self.inputs.push_back(SessionInput::Items(items.collect()));
            }
            SessionOutput::Pause => self.inputs.push_back(SessionInput::Resume),
            SessionOutput::OnlyThere(items) => {
                self.applied.extend(items.into_iter().filter_map(|remote| remote.item));
                self.inputs.push_back(SessionInput::Applied);
            }
            SessionOutput::OnlyHere(_) | SessionOutput::Phase(_) => {}
            SessionOutput::Finish(result) => {
                self.outcome = Some(result.expect("an honest session"));
            }
        }
    }
}

/// Runs a whole session between two fresh sides.
pub(crate) fn run<'a>(
    (initiator, our_items): (Options, &'a [Item]),
    (responder, their_items): (Options, &'a [Item]),
) -> (Side<'a>, Side<'a>) {
    let mut ours = Side::new(initiator, our_items);
    let mut theirs = Side::new(responder, their_items);
    while ours.outcome.is_none() || theirs.outcome.is_none() {
        let mut did = ours.work() | theirs.work();
        while let Some(bytes) = ours.sent.pop_front() {
            theirs.inputs.push_back(SessionInput::Received(bytes));
            did = true;
        }
        while let Some(bytes) = theirs.sent.pop_front() {
            ours.inputs.push_back(SessionInput::Received(bytes));
            did = true;
        }
        assert!(did, "both wait");
    }
    (ours, theirs)
}
