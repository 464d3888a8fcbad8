//! What nodes ask each other about their replicas, and the answers.

use serde::{Deserialize, Serialize};
use umbel_engine::{FilterId, Generation, GroupId, NodeId};
use umbel_storage::types::{LogId, Vote};

/// Requests between nodes about their replicas.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub(crate) enum RecallRequest {
    /// From a node that starts: asks what is known of it.
    Standings,
    /// From the leader of the call's group: the callee's replica has confirmed this entry, but lacks
    /// entries.
    Lost { confirmed: LogId },
    /// Asks for the commit indexes of the groups that the callee leads.
    Committed,
}

/// The responses.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub(crate) enum RecallAnswer {
    /// What is known of the caller.
    Standings(Standings),
    /// The information is on the disk.
    Noted,
    /// Index of the last committed entry of each group that this node leads.
    Committed(Vec<(GroupId, u64)>),
}

/// What a node knows of another one.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
pub(crate) struct Standings {
    pub(crate) groups: Vec<ReplicaStanding>,
    /// How many of the other node's inserts into replicated filters this node has.
    pub(crate) copies: Vec<(FilterId, Generation, u64)>,
    /// Nodes that may know more.
    pub(crate) nodes: Vec<(NodeId, String)>,
}

/// What a node knows of another node's replica of a group. There may be two of a group.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub(crate) struct ReplicaStanding {
    pub(crate) group: GroupId,
    /// This node's own vote in the group: the other node may have voted the same. None also in the second
    /// standing of a group.
    pub(crate) vote: Option<Vote>,
    /// The last entry that the other node has confirmed to this node. In a standing without a vote, and in all
    /// those of builds that send one for each group, also what the other node must have although it may
    /// never have confirmed it: what is committed, or what it proposed.
    pub(crate) last: Option<LogId>,
}

impl ReplicaStanding {
    /// The standings that tell what the other node has confirmed, and what it must have besides. They are
    /// two because a build that knows only one merges any number of them, but reads no other field.
    pub(crate) fn of(
        group: GroupId,
        vote: Option<Vote>,
        confirmed: Option<LogId>,
        had: Option<LogId>,
    ) -> impl Iterator<Item = Self> {
        let rest = had.filter(|&had| confirmed < Some(had));
        let rest = rest.map(|had| Self { group, vote: None, last: Some(had) });
        // Without both it says no more than no standing does, and there may be many such groups.
        let says_something = vote.is_some() || confirmed.is_some();
        let first = says_something.then_some(Self { group, vote, last: confirmed });
        first.into_iter().chain(rest)
    }
}

#[cfg(test)]
mod tests {
    use umbel_engine::limits::SHARD_COUNT_MAX;
    use umbel_ports::encoding::{decode, encode};
    use umbel_storage::testing::id;

    use super::*;

    /// Of the catalogue and of all shards of the largest cluster.
    fn answer(of: impl Fn(GroupId) -> Vec<ReplicaStanding>) -> RecallAnswer {
        let groups = (0..=SHARD_COUNT_MAX).map(GroupId::from_number).flat_map(of).collect();
        RecallAnswer::Standings(Standings { groups, ..Standings::default() })
    }

    #[test]
    fn standings_of_all_groups_are_decoded() {
        let vote = Some(Vote::new(1, NodeId(2)));
        let [confirmed, had] = [4, 9].map(|index| Some(id(1, index)));
        let answers = [
            // Earlier builds send those that say nothing, too.
            answer(|group| vec![ReplicaStanding { group, vote: None, last: None }]),
            answer(|group| ReplicaStanding::of(group, vote, None, None).collect()),
            answer(|group| ReplicaStanding::of(group, vote, confirmed, had).collect()),
        ];
        for sent in answers {
            assert!(decode::<RecallAnswer>(&encode(&sent)).unwrap() == sent);
        }
    }

    #[test]
    fn a_group_without_vote_and_entry_has_no_standing() {
        let standings = |vote, confirmed, had| -> Vec<_> {
            let standings = ReplicaStanding::of(GroupId::META, vote, confirmed, had);
            standings.map(|standing| (standing.vote, standing.last)).collect()
        };
        let (vote, entry) = (Some(Vote::new(1, NodeId(2))), Some(id(1, 4)));
        assert_eq!(standings(None, None, None), []);
        assert_eq!(standings(vote, None, None), [(vote, None)]);
        assert_eq!(standings(None, entry, None), [(None, entry)]);
        assert_eq!(standings(None, None, entry), [(None, entry)]);
        assert_eq!(standings(vote, entry, entry), [(vote, entry)]);
        assert_eq!(standings(vote, None, entry), [(vote, None), (None, entry)]);
    }
}
