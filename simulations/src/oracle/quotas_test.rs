//! The ledger of quotas, on catalogues that are applied entry by entry, and on replies that are wrong.

use umbel_engine::{Generation, NodeId};
use umbel_filter::CellCount;

use super::*;
use crate::oracle::fixture::settings;
use crate::plan::FilterKind;

const S: u64 = 1_000_000;

/// A catalogue and its ledger. Entry 1 forms a cluster of three nodes, each later one is applied a second after
/// the one before it.
struct Story {
    state: MetaState,
    quotas: Quotas,
    index: u64,
}

impl Story {
    fn new() -> Self {
        let mut story = Self { state: MetaState::new(), quotas: Quotas::default(), index: 0 };
        let nodes = (1..=3).map(|n| (NodeId(n), format!("n{n}:7300"))).collect();
        let form = MetaCommand::Form { cluster: 9, nodes, shard_count: 1, replica_count: 2 };
        assert_eq!(story.apply(&form), Ok(()));
        story
    }

    fn apply(&mut self, command: &MetaCommand) -> Result<(), &'static str> {
        let reply = self.state.apply(self.index + 1, command);
        self.apply_with_reply(command, &reply)
    }

    /// Has the ledger apply a command with a given reply, which may be wrong.
    fn apply_with_reply(
        &mut self,
        command: &MetaCommand,
        reply: &MetaReply,
    ) -> Result<(), &'static str> {
        self.index += 1;
        let result = self.quotas.applied(self.index * S, self.index, (command, reply), &self.state);
        result.map_err(|(invariant, _)| invariant)
    }

    /// Reports to the ledger that a filter was created, whatever the catalogue would have replied.
    fn made(&mut self, name: &str) -> Result<(), &'static str> {
        let filter = FilterId(self.index + 1);
        self.apply_with_reply(&create(name, Distribution::Partitioned), &MetaReply::Filter(filter))
    }

    fn limit(&mut self, filter_count: Option<u64>, memory_bytes: Option<u64>) {
        let change = Quota { filter_count, memory_bytes, ..Quota::default() };
        let of = PrincipalName::new("h0");
        let set = MetaCommand::SetQuota { of, change, from_none: true };
        assert_eq!(self.apply_with_reply(&set, &MetaReply::Done), Ok(()));
    }
}

/// A filter of `h0` that takes 64 bytes a copy.
fn create(name: &str, distribution: Distribution) -> MetaCommand {
    let shards = CellCount::new(1).unwrap();
    let settings = FilterSettings { distribution, ..settings(FilterKind::Blocked, 10, shards) };
    let (name, owner) = (FilterName::new(name).unwrap(), PrincipalName::new("h0"));
    MetaCommand::CreateFilter { name, settings, importing: false, owner }
}

fn full() -> MetaReply {
    MetaReply::Refused(MetaError::Quota { what: "full".to_owned() })
}

#[test]
fn usage_is_that_of_the_catalogue() {
    let mut story = Story::new();
    assert_eq!(story.apply(&create("a", Distribution::Partitioned)), Ok(()));
    assert_eq!(story.apply(&create("b", Distribution::Replicated)), Ok(()));
    // 64 bytes on two of three nodes, and on all three.
    assert_eq!(story.quotas.now().usage("h0"), (2, 5 * 64));
    let usage = story.state.usage(Some("h0"));
    assert_eq!((usage.filter_count, usage.memory_bytes), (2, 5 * 64));
    assert_eq!(story.apply(&MetaCommand::DropFilter { filter: FilterId(3) }), Ok(()));
    assert_eq!(story.apply(&MetaCommand::DropFilter { filter: FilterId(2) }), Ok(()));
    assert_eq!(story.quotas.now().usage_of_all(), (1, 2 * 64), "its slices are still there");
    assert_eq!(story.apply(&MetaCommand::FilterDropped { filter: FilterId(2) }), Ok(()));
    assert_eq!(story.quotas.now().usage_of_all(), (0, 0));
}

#[test]
fn one_filter_too_many_is_seen_and_so_is_one_byte() {
    let mut story = Story::new();
    story.limit(Some(1), None);
    assert_eq!(story.made("a"), Ok(()));
    assert_eq!(story.made("b"), Err(NAME));
    story.limit(None, Some(6 * 64));
    assert_eq!(story.made("c"), Ok(()));
    story.limit(None, Some(8 * 64 - 1));
    assert_eq!(story.made("d"), Err(NAME));
}

#[test]
fn a_refusal_with_room_is_seen() {
    let mut story = Story::new();
    story.limit(Some(1), None);
    assert_eq!(
        story.apply_with_reply(&create("a", Distribution::Partitioned), &full()),
        Err(SERVED)
    );
    assert_eq!(story.made("a"), Ok(()));
    let made = FilterId(story.index);
    assert_eq!(story.apply_with_reply(&create("b", Distribution::Partitioned), &full()), Ok(()));
    // A filter that was dropped and is gone frees its room.
    let gone = MetaCommand::FilterDropped { filter: made };
    assert_eq!(story.apply_with_reply(&gone, &MetaReply::Done), Ok(()));
    assert_eq!(
        story.apply_with_reply(&create("b", Distribution::Partitioned), &full()),
        Err(SERVED)
    );
}

#[test]
fn a_caller_may_have_been_refused_if_it_was_full_at_any_moment_of_its_call() {
    let mut story = Story::new();
    // The limit is one filter from 2 s on; the filter exists from 3 s on and is gone from 4 s on.
    story.limit(Some(1), None);
    assert_eq!(story.made("a"), Ok(()));
    let one = MetaCommand::FilterDropped { filter: FilterId(story.index) };
    assert!(story.quotas.may_be_full((3 * S + S / 2, 4 * S), "h0", "a"));
    assert_eq!(story.apply_with_reply(&one, &MetaReply::Done), Ok(()));
    assert_eq!(story.made("a"), Ok(()), "the sample");
    story.limit(Some(2), None);
    let full = |from: u64, to: u64| story.quotas.may_be_full((from, to), "h0", "a");
    assert!(full(3 * S + S / 2, 7 * S), "it was full when the call began");
    assert!(full(5 * S + S / 2, 5 * S + S / 2), "one of one");
    assert!(!full(6 * S + S / 2, 7 * S), "one of two");
    assert!(!full(4 * S + S / 2, 4 * S + S / 2), "none of one");
}

/// The command that a slice of the filter of entry 2 grows.
fn grow(shard: u32, growth_bytes: u64) -> MetaCommand {
    let (filter, generation) = (FilterId(2), Generation(1));
    MetaCommand::GrowFilter { filter, generation, shard: ShardId(shard), growth_bytes }
}

#[test]
fn growth_counts_until_the_filter_is_cleared_and_what_has_no_room_is_refused() {
    let mut story = Story::new();
    assert_eq!(story.made("a"), Ok(()));
    story.limit(None, Some(1000));
    assert_eq!(story.apply_with_reply(&grow(0, 100), &MetaReply::Done), Ok(()));
    assert_eq!(story.apply_with_reply(&grow(0, 80), &MetaReply::Done), Ok(()), "it has more");
    let (_, before) = story.quotas.now().usage("h0");
    assert_eq!(story.apply_with_reply(&grow(1, 50), &MetaReply::Done), Ok(()));
    assert_eq!(story.quotas.now().usage("h0").1, before + 100, "two replicas");
    let full = MetaReply::Refused(MetaError::Quota { what: "full".into() });
    assert_eq!(story.apply_with_reply(&grow(1, 60), &full), Err(SERVED), "there is room");
    assert_eq!(story.apply_with_reply(&grow(1, 1000), &full), Ok(()));
    let (filter, generation) = (FilterId(2), Generation(2));
    let cleared = MetaCommand::FilterCleared { filter, generation };
    for _ in 0..2 {
        assert_eq!(story.apply_with_reply(&cleared, &MetaReply::Done), Ok(()));
        assert_eq!(story.quotas.now().usage("h0").1, before - 200);
    }
    assert_eq!(
        story.apply_with_reply(&grow(1, 1000), &MetaReply::Done),
        Err(NAME),
        "above the quota"
    );
}
