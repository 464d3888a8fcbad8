//! How long a node that has been ready stays ready while groups elect leaders.

use std::collections::BTreeMap;
use std::time::Duration;

use tokio::time::Instant;
use umbel_engine::GroupId;

/// Groups without a leader that answers, as the checks of a node see them.
///
/// All nodes miss a node that crashed, as the leader of some groups. If none of them were ready meanwhile, a load
/// balancer would have nowhere to send calls, though each of them keeps calls until there are other leaders. A node that
/// has just started is different: it may not have heard of leaders that others know.
#[derive(Debug, Default)]
pub(super) struct Elections {
    /// Whether all groups had leaders at some check since the node started, or was cut off.
    was_ready: bool,
    /// Since when the groups that have no leader now have had none.
    since: BTreeMap<GroupId, Instant>,
}

impl Elections {
    /// Whether elections are waited for.
    pub(super) const fn was_ready(&self) -> bool {
        self.was_ready
    }

    /// Treats the node as one that has just started: it was cut off, and others may have elected leaders meanwhile.
    pub(super) fn forget(&mut self) {
        *self = Self::default();
    }

    /// Forgets the elections of all other groups: a check that ends before leaders have answered knows of these alone.
    pub(super) fn keep(&mut self, leaderless: &BTreeMap<GroupId, String>) {
        self.since.retain(|group, _| leaderless.contains_key(group));
    }

    /// Whether the node is ready although these groups have no leader that answers, for the given reasons. `patience` is
    /// the time that each of them may take to elect one.
    ///
    /// # Errors
    /// With the reason of a group that is not waited for.
    pub(super) fn judge(
        &mut self,
        leaderless: &BTreeMap<GroupId, String>,
        now: Instant,
        patience: Duration,
    ) -> Result<(), String> {
        self.keep(leaderless);
        self.was_ready |= leaderless.is_empty();
        for &group in leaderless.keys() {
            self.since.entry(group).or_insert(now);
        }
        let is_late = |group: &GroupId| {
            let since = self.since.get(group).copied().unwrap_or(now);
            now.saturating_duration_since(since) >= patience
        };
        match leaderless.iter().find(|(group, _)| !self.was_ready || is_late(group)) {
            Some((_, why)) => Err(why.clone()),
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use umbel_engine::ShardId;

    use super::*;

    const PATIENCE: Duration = Duration::from_secs(4);

    /// The checks of a node, at milliseconds since the first one.
    struct Node {
        elections: Elections,
        began: Instant,
    }

    impl Node {
        fn started() -> Self {
            Self { elections: Elections::default(), began: Instant::now() }
        }

        /// The reason for which the node is not ready while these shards have no leader.
        fn why_not(&mut self, at_ms: u64, leaderless: &[u32]) -> Option<String> {
            let group =
                |&shard: &u32| (GroupId::of_shard(ShardId(shard)), format!("shard {shard}"));
            let leaderless = leaderless.iter().map(group).collect();
            let now = self.began + Duration::from_millis(at_ms);
            self.elections.judge(&leaderless, now, PATIENCE).err()
        }
    }

    fn shard(number: u32) -> Option<String> {
        Some(format!("shard {number}"))
    }

    #[test]
    fn a_check_that_ends_early_ends_elections_too() {
        let mut node = Node::started();
        assert_eq!(node.why_not(0, &[]), None);
        assert_eq!(node.why_not(10_000, &[1]), None);
        node.elections.keep(&BTreeMap::new());
        // A new election of the same group, not the one of 10 s ago.
        assert_eq!(node.why_not(20_000, &[1]), None);
        assert_eq!(node.why_not(24_000, &[1]), shard(1));
    }

    #[test]
    fn an_election_is_waited_for_once_the_node_has_been_ready() {
        let mut node = Node::started();
        assert_eq!(node.why_not(0, &[]), None);
        assert_eq!(node.why_not(10_000, &[1, 2]), None);
        assert_eq!(node.why_not(13_999, &[1, 2]), None);
        // Each group has its time.
        assert_eq!(node.why_not(13_999, &[2, 3]), None);
        assert_eq!(node.why_not(14_000, &[3]), None);
        assert_eq!(node.why_not(17_999, &[3]), shard(3));
        assert_eq!(node.why_not(18_000, &[]), None);
        // The next one has as much.
        assert_eq!(node.why_not(19_000, &[3]), None);
        assert_eq!(node.why_not(23_000, &[3]), shard(3));
        assert_eq!(node.why_not(60_000, &[1, 3]), shard(3));
    }

    #[test]
    fn a_node_that_was_never_ready_is_not_until_all_groups_have_leaders() {
        let mut node = Node::started();
        assert_eq!(node.why_not(0, &[1, 2]), shard(1));
        assert_eq!(node.why_not(1, &[2]), shard(2));
        assert!(!node.elections.was_ready());
        assert_eq!(node.why_not(2, &[]), None);
        assert!(node.elections.was_ready());
        assert_eq!(node.why_not(3, &[2]), None);
        // It was cut off, and is back.
        node.elections.forget();
        assert_eq!(node.why_not(4, &[2]), shard(2));
    }
}
