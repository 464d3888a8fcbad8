//! Which removals of nodes leave the meta group a majority.
//!
//! The catalogue does not contain the voters of its own group, so that applying an entry cannot decide this:
//! the leader checks before it proposes.

use super::controller::GroupView;
use super::reply::MetaError;
use super::state::MetaState;
use crate::ids::NodeId;
use crate::meta::Result;

impl MetaState {
    /// Whether the meta group, with the voters of this view, can replace a node that is removed. Nodes that
    /// were removed before may still be voters, and stop as soon as they learn of it.
    ///
    /// # Errors
    /// [`MetaError::TooFewNodes`] if too few voters would be left to decide anything, also to replace the
    /// others; [`MetaError::ShardBusy`] while the voters are being changed.
    ///
    /// ```
    /// use umbel_engine::NodeId;
    /// use umbel_engine::meta::{GroupView, MetaCommand, MetaState};
    ///
    /// let nodes = (1..=2).map(|node| (NodeId(node), format!("node{node}:7070"))).collect();
    /// let mut state = MetaState::new();
    /// state.apply(1, &MetaCommand::Form { cluster: 9, nodes, shard_count: 1, replica_count: 1 });
    /// let view = GroupView { voters: vec![NodeId(1)], ..GroupView::default() };
    /// assert!(state.check_removal(NodeId(1), &view).is_err());
    /// assert_eq!(state.check_removal(NodeId(2), &view), Ok(()));
    /// ```
    pub fn check_removal(&self, node: NodeId, view: &GroupView) -> Result<()> {
        let voters = &view.voters;
        if !self.is_live(node) || !voters.contains(&node) {
            return Ok(());
        }
        // The view does not tell the old voters from the new ones, of which each need a majority.
        if view.is_joint {
            let what =
                format!("the voters of the meta group, of which {node} is one, are being changed");
            return Err(MetaError::ShardBusy { what });
        }
        let left = voters.iter().filter(|&&voter| voter != node && self.is_live(voter)).count();
        let needed = voters.len() / 2 + 1;
        if left >= needed {
            return Ok(());
        }
        let number = node.0;
        let what = format!(
            "without {node}, the meta group would have {left} of {needed} voters that it needs to replace the \
             others: run `umbel cluster drain {number} --wait` first, and wait until other nodes vote, or start it if it is \
             down; if its disk is lost, restore a backup into a new cluster"
        );
        Err(MetaError::TooFewNodes { what })
    }
}

#[cfg(test)]
mod tests {
    use super::super::balance::tests::formed;
    use super::*;
    use crate::ids::ShardId;
    use crate::meta::{MetaCommand, MetaReply};

    #[test]
    fn removed_voters_count_no_more_before_they_are_replaced() {
        let mut state = formed(5, 1, 1);
        // The shard, which is on one node, has a rule of its own.
        let holders = state.shard_map().members(ShardId(0));
        let view = GroupView { voters: (1..=5).map(NodeId).collect(), ..GroupView::default() };
        let mut others = view.voters.clone();
        others.retain(|node| !holders.contains(node));
        for &node in &others[..2] {
            assert_eq!(state.check_removal(node, &view), Ok(()));
            assert_eq!(state.apply(9, &MetaCommand::RemoveNode { node }), MetaReply::Done);
        }
        let third = others[2];
        let error = state.check_removal(third, &view).unwrap_err().to_string();
        let expected = format!("without {third}, the meta group would have 2 of 3 voters that");
        assert!(error.starts_with(&expected), "{error}");
        let drain = format!("run `umbel cluster drain {} --wait` first", third.0);
        assert!(error.contains(&drain), "{error}");
        // The request is a retry.
        assert_eq!(state.check_removal(others[0], &view), Ok(()));
        // The removed ones were replaced.
        let voters = [holders[0], third, others[3]].to_vec();
        let mut view = GroupView { voters, ..view };
        assert_eq!(state.check_removal(third, &view), Ok(()));
        view.is_joint = true;
        let busy = state.check_removal(third, &view);
        assert!(matches!(busy, Err(MetaError::ShardBusy { .. })), "{busy:?}");
    }
}
