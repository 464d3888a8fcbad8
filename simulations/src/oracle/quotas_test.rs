//! The ledger of quotas, on catalogues that are applied entry by entry, and on replies that are wrong.

use umbel_engine::meta::ClusterVersion;
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

    /// Has catalogue and ledger apply a command, after which they count the same.
    fn agree(&mut self, command: &MetaCommand) {
        assert_eq!(self.apply(command), Ok(()), "{command:?}");
        assert_eq!(self.quotas.add_up(self.index, &self.state), Ok(()), "{command:?}");
    }

    /// A cluster that can merge shards, with a live filter of `h0` that grows, of which its slice has this much more.
    fn with_growth(growth_bytes: u64) -> (Self, FilterId) {
        let mut story = Self::new();
        story.agree(&MetaCommand::ShardFormed { shard: ShardId(0) });
        for to in 2..=3 {
            let asked = (1..=3).map(NodeId).collect();
            story.agree(&MetaCommand::RaiseVersion { to: ClusterVersion(to), asked });
        }
        let shards = CellCount::new(1).unwrap();
        let settings = settings(FilterKind::Scalable, 100, shards);
        let (name, owner) = (FilterName::new("grows").unwrap(), PrincipalName::new("h0"));
        story.agree(&MetaCommand::CreateFilter { name, settings, importing: false, owner });
        let filter = FilterId(story.index);
        story.agree(&MetaCommand::FilterCreated { filter });
        story.agree(&grown(filter, 0, growth_bytes));
        (story, filter)
    }

    /// What `h0` uses beyond the plan of its only filter, on both of the nodes that have a replica of each shard.
    fn growth(&self) -> u64 {
        self.quotas.now().usage("h0").1 - 2 * 64
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

/// The command that a slice of a filter in its first generation grows.
fn grown(filter: FilterId, shard: u32, growth_bytes: u64) -> MetaCommand {
    let (generation, shard) = (Generation(1), ShardId(shard));
    MetaCommand::GrowFilter { filter, generation, shard, growth_bytes }
}

#[test]
fn growth_is_halved_by_a_split_and_added_up_by_a_merge() {
    let (mut story, filter) = Story::with_growth(101);
    assert_eq!(story.growth(), 2 * 101);
    story.agree(&MetaCommand::SplitShard { shard_count: 2 });
    assert_eq!(story.growth(), 2 * (51 + 51), "both halves are rounded up");
    story.agree(&MetaCommand::SplitShard { shard_count: 2 });
    assert_eq!(story.growth(), 2 * (51 + 51), "a repetition changes nothing");
    story.agree(&MetaCommand::ShardFormed { shard: ShardId(1) });
    story.agree(&grown(filter, 1, 60));
    assert_eq!(story.growth(), 2 * (51 + 60));
    story.agree(&MetaCommand::MergeShard { shard_count: 1 });
    for _ in 0..2 {
        story.agree(&MetaCommand::ShardMerged { shard: ShardId(1), era: 0 });
        assert_eq!((story.growth(), story.state.shard_count()), (2 * (51 + 60), 1));
    }
    story.agree(&grown(filter, 0, 111));
    assert_eq!(story.growth(), 2 * 111, "it has as much");
    story.agree(&grown(filter, 0, 120));
    assert_eq!(story.growth(), 2 * 120);
}

#[test]
fn a_quota_has_room_across_a_split_for_what_is_left_alone() {
    let (mut story, filter) = Story::with_growth(100);
    story.agree(&MetaCommand::SplitShard { shard_count: 2 });
    story.agree(&MetaCommand::ShardFormed { shard: ShardId(1) });
    story.limit(None, Some(2 * (64 + 50 + 60)));
    // The shard that was split off has half of the growth already: it may have ten bytes more.
    let refused =
        |story: &mut Story, bytes| story.apply_with_reply(&grown(filter, 1, bytes), &full());
    assert_eq!(refused(&mut story, 61), Ok(()));
    assert_eq!(refused(&mut story, 60), Err(SERVED));
    let done = &MetaReply::Done;
    assert_eq!(story.apply_with_reply(&grown(filter, 0, 61), done), Err(NAME));
    assert_eq!(story.apply_with_reply(&grown(filter, 0, 60), done), Ok(()));
}

#[test]
fn growth_that_is_asked_for_again_needs_no_room() {
    let (mut story, filter) = Story::with_growth(100);
    story.limit(None, Some(1));
    let answered =
        |story: &mut Story, bytes, reply| story.apply_with_reply(&grown(filter, 0, bytes), reply);
    assert_eq!(answered(&mut story, 100, &MetaReply::Done), Ok(()));
    let refused = full();
    assert_eq!(answered(&mut story, 100, &refused), Err(SERVED));
    assert_eq!(answered(&mut story, 101, &refused), Ok(()));
    assert_eq!(answered(&mut story, 101, &MetaReply::Done), Err(NAME));
}

#[test]
fn a_rename_changes_no_slice_and_a_clear_afterwards_does() {
    let (mut story, filter) = Story::with_growth(100);
    let name = FilterName::new("renamed").unwrap();
    let generation = Generation(1);
    let rename = MetaCommand::RenameFilter { filter, generation, name, replaced: None };
    for _ in 0..2 {
        story.agree(&rename);
    }
    for (generation, growth) in [(2, 2 * 100), (3, 0)] {
        let generation = Generation(generation);
        if growth == 0 {
            story.agree(&MetaCommand::ClearFilter { filter, generation: Generation(2) });
        }
        story.agree(&MetaCommand::FilterCleared { filter, generation });
        assert_eq!(story.growth(), growth, "{generation:?}");
    }
}

#[test]
fn a_count_that_entries_do_not_add_up_to_is_seen() {
    let (mut story, filter) = Story::with_growth(100);
    // The catalogue does not apply it.
    assert_eq!(story.apply_with_reply(&grown(filter, 0, 101), &MetaReply::Done), Ok(()));
    let compared = story.quotas.add_up(story.index, &story.state);
    assert_eq!(compared.map_err(|(invariant, _)| invariant), Err(SUM));
    assert_eq!(story.quotas.add_up(story.index, &story.state), Ok(()), "it is told once");
}
