//! No epoch of the shard map stands for two placements: with every change of ranges, replicas or nodes it
//! rises ([`Epoch`]), and it never falls. Nodes and clients compare maps by it alone.

use std::collections::BTreeSet;

use umbel_engine::meta::MetaState;
use umbel_engine::placement::ShardRecord;
use umbel_engine::{Epoch, NodeId};
use umbel_filter::HashRange;

/// Name of the invariant.
pub(crate) const NAME: &str = "epoch_rises";

/// An epoch, and what it stands for.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct Placement {
    epoch: Epoch,
    /// By number.
    shards: Vec<(HashRange, ShardRecord)>,
    live: BTreeSet<NodeId>,
    available: BTreeSet<NodeId>,
}

impl Placement {
    /// What a state of the meta group says.
    pub(crate) fn of(state: &MetaState) -> Self {
        // That a founded group has had a leader moves nothing.
        let placed = |record: &ShardRecord| ShardRecord { is_formed: true, ..record.clone() };
        Self {
            epoch: state.epoch(),
            shards: state.shards().map(|(range, record)| (range, placed(record))).collect(),
            live: state.live_nodes(),
            available: state.available_nodes(),
        }
    }

    /// What is wrong with the placement after one more entry, if anything is.
    pub(crate) fn broken_by(&self, after: &Self) -> Option<String> {
        let (was, is) = (self.epoch, after.epoch);
        if is < was {
            return Some(format!("{was} was followed by {is}"));
        }
        let change = self.change(after)?;
        (is == was).then(|| format!("{change} within {was}, expected a later one"))
    }

    /// The first difference, if there is one.
    fn change(&self, after: &Self) -> Option<String> {
        let (was, is) = (self.shards.len(), after.shards.len());
        if was != is {
            return Some(format!("{was} shards became {is}"));
        }
        let mut shards = self.shards.iter().zip(&after.shards);
        if let Some((was, is)) = shards.find(|(was, is)| was != is) {
            return Some(format!("{was:?} became {is:?}"));
        }
        let (was, is) = ((&self.live, &self.available), (&after.live, &after.available));
        (was != is).then(|| format!("nodes {was:?} became {is:?}"))
    }
}

#[cfg(test)]
mod tests {
    use umbel_engine::ShardId;
    use umbel_engine::meta::{MetaCommand, MetaReply};

    use super::*;

    /// Two formed shards with a replica each, on three nodes.
    fn formed() -> MetaState {
        let nodes = (1..=3).map(|node| (NodeId(node), format!("n{node}:1"))).collect();
        let form = MetaCommand::Form { cluster: 9, nodes, shard_count: 2, replica_count: 1 };
        let mut state = MetaState::new();
        state.apply(1, &form);
        for shard in (0..2).map(ShardId) {
            state.apply(2, &MetaCommand::ShardFormed { shard });
        }
        state
    }

    /// The placements before and after a command that is not refused.
    fn around(command: &MetaCommand) -> [Placement; 2] {
        let mut state = formed();
        let before = Placement::of(&state);
        let reply = state.apply(3, command);
        assert!(!matches!(reply, MetaReply::Refused(_)), "{reply:?}");
        [before, Placement::of(&state)]
    }

    fn moved() -> MetaCommand {
        let state = formed();
        let shard = ShardId(0);
        let from = state.shard(shard).unwrap().replicas[0];
        let to = state.available_nodes().into_iter().find(|&node| node != from).unwrap();
        MetaCommand::MoveReplica { shard, from, to }
    }

    #[test]
    fn every_change_needs_a_later_epoch() {
        let added = MetaCommand::AddNode { address: "n4:1".to_owned(), nonce: 5 };
        let drained = MetaCommand::Drain { node: NodeId(3), drain: true };
        let split = MetaCommand::SplitShard { shard_count: 3 };
        for (command, what) in [
            (moved(), "became"),
            (split, "2 shards became 3"),
            (added, "nodes "),
            (drained, "nodes "),
        ] {
            let [before, after] = around(&command);
            assert_eq!(before.broken_by(&after), None, "{command:?}");
            let same = Placement { epoch: before.epoch, ..after };
            let broken = before.broken_by(&same).unwrap();
            assert!(broken.contains(what) && broken.ends_with("expected a later one"), "{broken}");
        }
    }

    #[test]
    fn a_range_is_part_of_a_placement() {
        let [before, mut after] = around(&moved());
        let [first, second] = &before.shards[..] else { panic!("two shards") };
        after.shards = vec![(second.0, first.1.clone()), second.clone()];
        assert_eq!(before.broken_by(&after), None);
        after.epoch = before.epoch;
        assert!(before.broken_by(&after).is_some());
    }

    #[test]
    fn an_epoch_never_falls_and_may_stay() {
        let [before, after] = around(&moved());
        assert_eq!(before.broken_by(&before), None);
        assert_eq!(after.broken_by(&before).unwrap(), "epoch 2 was followed by epoch 1");
    }
}
