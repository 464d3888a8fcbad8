//! Which nodes get a shard's replicas when it has too few, or has them on nodes that leave.

use std::collections::{BTreeMap, BTreeSet};

use super::SHARD_MOVES_MAX;
use crate::ids::{NodeId, ShardId};
use crate::meta::command::MetaCommand;
use crate::meta::state::MetaState;
use crate::meta::weights::{Load, Weights};
use crate::placement::{ShardRecord, Zones, choose_replacement};

/// The nodes that may have replicas, and how many replicas a shard should have.
pub(super) struct Places<'a> {
    available: BTreeSet<NodeId>,
    alive: &'a BTreeSet<NodeId>,
    zones: &'a Zones,
    wanted_count: usize,
}

impl<'a> Places<'a> {
    pub(super) fn new(state: &'a MetaState, alive: &'a BTreeSet<NodeId>) -> Self {
        let (available, wanted_count) = (state.available_nodes(), state.replicas_wanted());
        Self { available, alive, zones: state.zones(), wanted_count }
    }

    /// The nodes that a plan for the shard may contain. A node that has a replica may keep it while it is
    /// not alive, because it comes back with its data. A node that has none must be alive: otherwise
    /// it would not catch up, and the change would not complete.
    fn candidates(&self, record: &ShardRecord) -> BTreeSet<NodeId> {
        let may_be = |node: &NodeId| self.alive.contains(node) || record.replicas.contains(node);
        self.available.iter().copied().filter(may_be).collect()
    }

    /// Whether the shard needs a plan: it has replicas on nodes that leave, too many, or fewer than it can
    /// have now. A plan that exists stays if its nodes are not alive for a moment, so that no plans
    /// alternate.
    pub(super) fn is_misplaced(&self, record: &ShardRecord) -> bool {
        let wanted = record.wanted();
        wanted.len() > self.wanted_count
            || wanted.iter().any(|node| !self.available.contains(node))
            || (wanted.len() < self.wanted_count && wanted.len() < self.candidates(record).len())
    }

    /// Plans for misplaced shards, as long as few enough move; `moves` shards do already. New replicas go to the
    /// nodes that have the least by weight, as the balancer would move them: to a node that has few replicas
    /// because these are large, they would not stay.
    pub(super) fn plans(
        &self,
        state: &MetaState,
        misplaced: &[ShardId],
        mut moves: usize,
    ) -> Vec<MetaCommand> {
        let mut plans = Vec::new();
        let mut known = None;
        for &shard in misplaced {
            let Some(record) = state.shard(shard) else { continue };
            let is_new = record.target.is_none();
            if is_new && moves >= SHARD_MOVES_MAX {
                continue;
            }
            // They include the plans of this call, so that these do not all choose the same node.
            let (weights, loads) = known.get_or_insert_with(|| {
                let weights = Weights::of(state);
                let loads = weights.loads(state.shard_map());
                (weights, loads)
            });
            // A shard that waits for nodes is not counted: others may move meanwhile.
            let Some(target) = self.replan(loads, record) else { continue };
            // A change that can no longer complete has already been counted.
            moves += usize::from(is_new);
            weights.shift(loads, shard, (record.wanted(), &target));
            plans.push(MetaCommand::PlanReplicas { shard, target });
        }
        plans
    }

    /// New replicas for a misplaced shard. Keeps nodes where possible: first those that the shard is being
    /// moved to, then its current ones. None if so few nodes are alive that the shard would have fewer
    /// replicas than now: it waits until more are alive, or until nodes are removed and fewer are wanted.
    fn replan(&self, loads: &BTreeMap<NodeId, Load>, record: &ShardRecord) -> Option<Vec<NodeId>> {
        let candidates = self.candidates(record);
        let count = self.wanted_count.min(candidates.len());
        if count < self.wanted_count.min(record.replicas.len()) {
            return None;
        }
        let mut target = Vec::with_capacity(count);
        for &node in record.wanted().iter().chain(&record.replicas) {
            if target.len() < count && candidates.contains(&node) && !target.contains(&node) {
                target.push(node);
            }
        }
        let load = |node: NodeId| loads.get(&node).map_or(0, |load| load.weight);
        while target.len() < count {
            let chosen = choose_replacement(load, &candidates, self.zones, record.shard, &target);
            target.push(chosen?);
        }
        target.sort_unstable();
        Some(target)
    }
}
