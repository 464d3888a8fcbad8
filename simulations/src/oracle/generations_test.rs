//! To which generations calls apply.

use umbel_engine::meta::{
    Distribution, FilterName, FilterSettings, HashKey, MetaCommand, MetaReply, MetaState,
};
use umbel_engine::{FilterId, Generation, NodeId};
use umbel_filter::CellCount;

use super::*;
use crate::history::{Outcome, Verb};
use crate::invariants::{
    copies_converge, copies_hold_what_was_tried, flushed_is_everywhere, majority_finds_majority,
};
use crate::oracle::fixture::{History, settings};
use crate::plan::{Ack, FilterKind};

/// A catalogue, and which of its states hosts 1 to 3 have applied.
struct Fixture {
    meta: MetaState,
    generations: Generations,
    index: u64,
}

impl Fixture {
    /// Three nodes that have known a replicated filter `r` since 10 ms.
    fn new() -> Self {
        let nodes = vec![(NodeId(1), "a:1".to_owned())];
        let form = MetaCommand::Form { cluster: 1, nodes, shard_count: 1, replica_count: 1 };
        let mut fixture =
            Self { meta: MetaState::new(), generations: Generations::default(), index: 0 };
        fixture.apply(&form);
        (1..=3).for_each(|host| fixture.generations.started(0, &host_name(host)));
        let settings = FilterSettings {
            distribution: Distribution::Replicated,
            key: HashKey::Xxh3 { seed: 7 },
            ..settings(FilterKind::Blocked, 1_000, CellCount::new(1).unwrap())
        };
        let name = FilterName::new("r").unwrap();
        let reply = fixture.apply(&MetaCommand::CreateFilter {
            name,
            settings,
            importing: false,
            owner: None,
        });
        assert_eq!(reply, MetaReply::Filter(FilterId(fixture.index)));
        (1..=3).for_each(|host| fixture.apply_at(10_000, host));
        fixture
    }

    fn apply(&mut self, command: &MetaCommand) -> MetaReply {
        self.index += 1;
        self.meta.apply(self.index, command)
    }

    fn apply_at(&mut self, at_us: u64, host: u32) {
        self.generations.applied_on(at_us, &host_name(host), self.index, &self.meta);
    }

    /// Clears the filter; only these hosts apply the entry.
    fn clear(&mut self, at_us: u64, hosts: &[u32]) {
        let (filter, record) = self.meta.filter_by_name("r").unwrap();
        let generation = record.generation;
        self.apply(&MetaCommand::ClearFilter { filter, generation });
        hosts.iter().for_each(|&host| self.apply_at(at_us, host));
    }
}

/// A history of calls to machines, in milliseconds.
#[derive(Default)]
struct Calls(History);

impl Calls {
    fn done(&mut self, verb: Verb, machine: u32, items: &[u32], ms: (u64, u64), bits: &[bool]) {
        let call = self.0.done(verb, "r", items, ms.0 * 1_000, ms.1 * 1_000, bits);
        call.machine = Some(machine);
    }

    fn span(&self, fixture: &Fixture) -> Option<RangeInclusive<usize>> {
        fixture.generations.span(self.0.calls.last().unwrap())
    }

    fn majority(&self, fixture: &Fixture) -> usize {
        majority_finds_majority::check(&self.0.calls, &fixture.generations).violations.len()
    }

    fn flushed(&self, fixture: &Fixture) -> usize {
        flushed_is_everywhere::check(&self.0.calls, &fixture.generations).violations.len()
    }

    fn phantoms(&self, fixture: &Fixture) -> usize {
        copies_hold_what_was_tried::check(&self.0.calls, &fixture.generations).violations.len()
    }

    /// Number of items of the last generation that every copy must have.
    fn wanted(&self, fixture: &Fixture) -> usize {
        let (name, lives) = fixture.generations.all().next().unwrap();
        let place = lives.len() - 1;
        let of = NamedLife { name, place, life: &lives[place] };
        copies_converge::Wanted::new(&fixture.generations, &self.0.calls, of, 1).item_count()
    }
}

#[test]
fn a_call_is_about_what_its_node_knew_or_something_later() {
    let mut fixture = Fixture::new();
    fixture.clear(100_000, &[1]);
    let lives: Vec<(Generation, u64)> = fixture
        .generations
        .all()
        .next()
        .unwrap()
        .1
        .iter()
        .map(|life| (life.generation, life.to_us))
        .collect();
    assert_eq!(lives, [(Generation(1), 100_000), (Generation(2), NEVER_US)]);
    for (machine, ms, expected) in [
        (1, (1, 5), None),
        (1, (20, 90), Some(0..=0)),
        (1, (20, 110), Some(0..=1)),
        (1, (101, 110), Some(0..=1)),
        (1, (110, 120), Some(1..=1)),
        (2, (110, 120), Some(0..=1)),
    ] {
        let mut calls = Calls::default();
        calls.done(Verb::InsertCopy(Ack::Local), machine, &[1], ms, &[true]);
        assert_eq!(calls.span(&fixture), expected, "machine {machine} in {ms:?}");
    }
    // A call without an answer may still take effect. A node that is starting has no catalogue yet.
    let mut calls = Calls::default();
    let call = calls.0.unknown(Verb::InsertCopy(Ack::Local), "r", &[1], 20_000, 30_000);
    call.machine = Some(1);
    assert_eq!(calls.span(&fixture), Some(0..=1));
    fixture.generations.started(200_000, &host_name(1));
    calls.done(Verb::InsertCopy(Ack::Local), 1, &[1], (210, 220), &[true]);
    assert_eq!(calls.span(&fixture), Some(0..=1));
    fixture.apply_at(230_000, 1);
    calls.done(Verb::InsertCopy(Ack::Local), 1, &[1], (240, 250), &[true]);
    assert_eq!(calls.span(&fixture), Some(1..=1));
}

#[test]
fn a_majority_misses_nothing_of_a_majority() {
    let mut fixture = Fixture::new();
    let mut calls = Calls::default();
    calls.done(Verb::InsertCopy(Ack::Majority), 1, &[1], (20, 30), &[true]);
    calls.done(Verb::InsertCopy(Ack::Local), 1, &[2], (20, 30), &[true]);
    calls.done(Verb::ContainsMajority, 2, &[1, 2], (25, 35), &[false, false]);
    calls.done(Verb::ContainsCopy, 2, &[1, 2], (40, 50), &[false, false]);
    assert_eq!(calls.majority(&fixture), 0);
    calls.done(Verb::ContainsMajority, 2, &[1, 2], (40, 50), &[false, false]);
    assert_eq!(calls.majority(&fixture), 1);
    // One node may be lost; two lost nodes may have been the majority.
    fixture.generations.lost(35_000, 1);
    assert_eq!(calls.majority(&fixture), 1);
    fixture.generations.lost(36_000, 3);
    assert_eq!(calls.majority(&fixture), 0);
    // Nothing is guaranteed across generations either.
    let mut fixture = Fixture::new();
    fixture.clear(45_000, &[1, 2, 3]);
    assert_eq!(calls.majority(&fixture), 0);
}

#[test]
fn what_was_flushed_is_everywhere() {
    let mut fixture = Fixture::new();
    let mut calls = Calls::default();
    calls.done(Verb::InsertCopy(Ack::Local), 1, &[1], (20, 30), &[true]);
    calls.done(Verb::Flush, 2, &[], (25, 35), &[true]);
    calls.done(Verb::Flush, 2, &[], (40, 50), &[false]);
    calls.done(Verb::ContainsCopy, 3, &[1], (60, 70), &[false]);
    assert_eq!(calls.flushed(&fixture), 0);
    calls.done(Verb::Flush, 2, &[], (40, 50), &[true]);
    assert_eq!(calls.flushed(&fixture), 1);
    fixture.generations.started(55_000, &host_name(3));
    fixture.apply_at(56_000, 3);
    assert_eq!(calls.flushed(&fixture), 0);
}

#[test]
fn nothing_is_present_that_was_not_tried() {
    let mut fixture = Fixture::new();
    let mut calls = Calls::default();
    calls.done(Verb::InsertCopy(Ack::Local), 1, &[1], (20, 30), &[true]);
    calls.done(Verb::ContainsCopy, 3, &[1, 2], (25, 35), &[true, false]);
    assert_eq!(calls.phantoms(&fixture), 0);
    calls.done(Verb::ContainsCopy, 3, &[1], (12, 19), &[true]);
    assert_eq!(calls.phantoms(&fixture), 1);
    calls.done(Verb::ContainsMajority, 3, &[2], (25, 35), &[true]);
    assert_eq!(calls.phantoms(&fixture), 2);
    // A node that has applied the clear has no items from before.
    fixture.clear(40_000, &[1, 2]);
    calls.done(Verb::ContainsCopy, 3, &[1], (50, 60), &[true]);
    assert_eq!(calls.phantoms(&fixture), 2);
    calls.done(Verb::ContainsCopy, 2, &[1], (50, 60), &[true]);
    assert_eq!(calls.phantoms(&fixture), 3);
}

#[test]
fn copies_must_have_what_was_acknowledged_and_not_lost() {
    let mut fixture = Fixture::new();
    fixture.clear(40_000, &[1, 2]);
    let mut calls = Calls::default();
    // Inserts before the clear, on a node that may not have applied it, and one that was refused.
    calls.done(Verb::InsertCopy(Ack::Local), 1, &[1], (20, 30), &[true]);
    calls.done(Verb::InsertCopy(Ack::Local), 3, &[2], (50, 60), &[true]);
    calls.0.refused(Verb::InsertCopy(Ack::Local), "r", &[3], 50_000, 60_000).machine = Some(1);
    assert_eq!(calls.wanted(&fixture), 0);
    calls.done(Verb::InsertCopy(Ack::OnePartner), 1, &[4], (50, 60), &[true]);
    calls.done(Verb::InsertCopy(Ack::Majority), 1, &[5], (50, 60), &[true]);
    assert_eq!(calls.wanted(&fixture), 2);
    fixture.generations.lost(70_000, 1);
    assert_eq!(calls.wanted(&fixture), 1);
    assert!(matches!(calls.0.calls[0].outcome, Outcome::Done(_)));
}
