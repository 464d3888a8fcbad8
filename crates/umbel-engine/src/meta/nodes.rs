//! The nodes of a cluster: joining, draining and removal.

use super::node_record::NodeRecord;
use super::reply::{MetaError, MetaReply};
use super::state::{MetaState, NODE_ADDRESS_BYTES_MAX};
use crate::ids::NodeId;
use crate::limits::NODE_COUNT_MAX;
use crate::meta::Result;
use crate::placement::Zone;

/// Checks the length of a node's address. Whether it leads anywhere shows only when connecting.
pub(super) fn check_address(address: &str) -> Result<()> {
    if address.is_empty() || address.len() > NODE_ADDRESS_BYTES_MAX {
        let (got, most) = (address.len(), NODE_ADDRESS_BYTES_MAX);
        let what = format!("a node's address has 1 to {most} bytes, not {got}");
        return Err(MetaError::Quota { what });
    }
    Ok(())
}

impl MetaState {
    /// Whether a number certainly belongs to no member: the node was removed, or no node ever had the
    /// number. Numbers rise, so one above all known numbers may have been assigned since.
    ///
    /// ```
    /// use umbel_engine::NodeId;
    /// use umbel_engine::meta::{MetaCommand, MetaState};
    ///
    /// let mut state = MetaState::new();
    /// let nodes = (1..=3).map(|i| (NodeId(i), format!("node{i}:7070"))).collect();
    /// state.apply(1, &MetaCommand::Form { cluster: 9, nodes, shard_count: 1, replica_count: 1 });
    /// state.apply(9, &MetaCommand::AddNode { address: "node4:7070".into(), nonce: 5 });
    /// state.apply(10, &MetaCommand::RemoveNode { node: NodeId(2) });
    /// let gone = [2, 0].map(|node| state.is_no_member(NodeId(node)));
    /// let may_be = [1, 3, 4, 5].map(|node| !state.is_no_member(NodeId(node)));
    /// assert_eq!((gone, may_be), ([true; 2], [true; 4]));
    /// ```
    #[must_use]
    pub fn is_no_member(&self, node: NodeId) -> bool {
        match self.nodes.get(&node) {
            Some(record) => !record.is_live(),
            None => self.nodes.last_key_value().is_some_and(|(&last, _)| node < last),
        }
    }

    pub(super) fn add_node(&mut self, address: &str, nonce: u64) -> Result<MetaReply> {
        check_address(address)?;
        let mut live_count = 0;
        let mut holder = None;
        for (&node, record) in &self.nodes {
            let NodeRecord::Live { address: held, nonce: drawn, .. } = record else { continue };
            if *drawn == Some(nonce) {
                return Ok(MetaReply::Node(node));
            }
            live_count += 1;
            if held == address {
                holder = Some(node);
            }
        }
        if let Some(node) = holder {
            return Err(MetaError::AddressTaken { address: address.to_owned(), node });
        }
        if live_count >= NODE_COUNT_MAX {
            let what = format!("{live_count} nodes, at most {NODE_COUNT_MAX} are allowed");
            return Err(MetaError::Quota { what });
        }
        let node = self.next_node()?;
        let nonce = Some(nonce);
        let record = NodeRecord::Live { address: address.to_owned(), nonce, is_draining: false };
        self.nodes.insert(node, record);
        self.shard_map.raise_epoch();
        Ok(MetaReply::Node(node))
    }

    /// One above all numbers ever assigned; records of removed nodes are kept.
    fn next_node(&self) -> Result<NodeId> {
        let last = self.nodes.last_key_value().map_or(0, |(node, _)| node.0);
        match last.checked_add(1) {
            Some(next) => Ok(NodeId(next)),
            None => Err(MetaError::Quota { what: "all numbers of nodes are used up".to_owned() }),
        }
    }

    pub(super) fn drain(&mut self, node: NodeId, drain: bool) -> Result<MetaReply> {
        let others = self.available_nodes().iter().filter(|&&other| other != node).count();
        let Some(NodeRecord::Live { is_draining, .. }) = self.nodes.get_mut(&node) else {
            return Err(MetaError::UnknownNode { node });
        };
        if *is_draining == drain {
            return Ok(MetaReply::Done);
        }
        if drain && others == 0 {
            return Err(no_node_left(node));
        }
        *is_draining = drain;
        self.shard_map.raise_epoch();
        Ok(MetaReply::Done)
    }

    pub(super) fn note_zone(&mut self, node: NodeId, zone: Option<Zone>) -> Result<MetaReply> {
        if !self.is_live(node) {
            return Err(MetaError::UnknownNode { node });
        }
        self.zones.set(node, zone);
        Ok(MetaReply::Done)
    }

    pub(super) fn remove_node(&mut self, node: NodeId) -> Result<MetaReply> {
        match self.nodes.get(&node) {
            None => return Err(MetaError::UnknownNode { node }),
            Some(NodeRecord::Removed) => return Ok(MetaReply::Done),
            Some(NodeRecord::Live { .. }) => {}
        }
        if self.available_nodes().iter().all(|&other| other == node) {
            return Err(no_node_left(node));
        }
        for record in &self.shard_map.shards {
            let shard = record.shard;
            if record.abandoned.contains(&node) {
                // The group's current voters are unknown, so it is also unknown whether it can spare
                // the node.
                let what = format!("{node} may be needed until {shard} has the replicas it shall");
                return Err(MetaError::TooFewNodes { what });
            }
            // A group needs its own majority to change its members: without one it would be lost for
            // good.
            for voters in [&record.replicas[..], record.wanted()] {
                let left = voters.iter().filter(|&&voter| voter != node && self.is_live(voter));
                let (left, needed) = (left.count(), voters.len() / 2 + 1);
                if voters.contains(&node) && left < needed {
                    let number = node.0;
                    let what = format!(
                        "without {node}, {shard} would have {left} of {needed} replicas that it \
                         needs to move: run `umbel cluster drain {number} --wait` first, or start it if it is \
                         down; if its disk is lost, restore a backup into a new cluster"
                    );
                    return Err(MetaError::TooFewNodes { what });
                }
            }
        }
        self.nodes.insert(node, NodeRecord::Removed);
        self.memory_limits.remove(&node);
        self.core_counts.remove(&node);
        self.zones.set(node, None);
        self.shard_map.raise_epoch();
        Ok(MetaReply::Done)
    }
}

fn no_node_left(node: NodeId) -> MetaError {
    let what = format!("without {node}, 0 nodes could have replicas, at least 1 is needed");
    MetaError::TooFewNodes { what }
}
