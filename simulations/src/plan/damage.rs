//! The damage budget: how much permanent loss a cluster must tolerate.
//!
//! A run with more damage may be unrecoverable, so that a violation in it proves nothing.
//! The rules:
//! - Lasting damage names its node and affects a minority of the replicas of every shard, wherever those
//!   are placed: at most ⌊(r − 1)/2⌋ nodes in the whole run, where r is the number of replicas of a shard.
//! - A node is damaged again after [`DAMAGE_GAP_MS`] at the earliest, and not before its last damage has
//!   ended.
//! - While two disks are swapped, no other fault damages or swaps disks.
//! - At most [`JOINS_MAX`] nodes join.
//! - A node is replaced only if its shards can do without it for a while: the cluster has more nodes than
//!   replicas, or at least [`REPLACE_NODES_MIN`], or another node has joined before.

use std::collections::BTreeMap;

use super::{Fault, FaultPlan, Plan, Who, WorldShape};

/// Fewest simulated milliseconds from one damage of a node to its next.
pub(crate) const DAMAGE_GAP_MS: u64 = 10_000;

/// Simulated milliseconds after the end of a disk swap in which the nodes, which have refused to start,
/// get their own disks back.
pub(crate) const SWAP_TAIL_MS: u64 = 2_000;

/// Nodes that may join in a run.
pub(crate) const JOINS_MAX: u32 = 2;

/// Number of nodes from which on a cluster may replace one in any case.
pub(crate) const REPLACE_NODES_MIN: u32 = 4;

impl Fault {
    /// Whether a node permanently loses durable data.
    pub(crate) const fn is_lasting(&self) -> bool {
        matches!(
            self,
            Self::BitRot { .. }
                | Self::Misdirect { .. }
                | Self::WipeDisk { .. }
                | Self::SyncFails { .. }
                | Self::Replace { .. }
                | Self::LoseTail { .. }
                | Self::OldImage { .. }
        )
    }
}

impl WorldShape {
    /// Nodes that may suffer lasting damage in a run.
    pub(crate) fn victim_count_max(&self) -> u32 {
        self.replicas.min(self.nodes).saturating_sub(1) / 2
    }

    /// Whether a node may be replaced after `join_count` joins.
    pub(crate) const fn can_replace(&self, join_count: u32) -> bool {
        self.nodes > self.replicas || self.nodes >= REPLACE_NODES_MIN || join_count > 0
    }
}

impl Plan {
    /// Describes what exceeds the damage budget; None if nothing does.
    pub(crate) fn excess_damage(&self) -> Option<String> {
        let mut last: BTreeMap<u32, &FaultPlan> = BTreeMap::new();
        let mut join_count = 0;
        for (index, plan) in self.faults.iter().enumerate() {
            let class = plan.fault.class();
            if matches!(plan.fault, Fault::Join { .. }) {
                join_count += 1;
            }
            if matches!(plan.fault, Fault::Replace { .. }) && !self.world.can_replace(join_count) {
                return Some(format!("faults[{index}]: no node to spare for {class:?}"));
            }
            if !plan.fault.is_lasting() {
                continue;
            }
            let Some(Who::Node(node)) = plan.fault.who() else {
                return Some(format!("faults[{index}]: {class:?} does not name its node"));
            };
            if let Some(before) = last.insert(node, plan)
                && plan.at_ms < before.at_ms + before.for_ms.max(DAMAGE_GAP_MS)
            {
                return Some(format!("faults[{index}]: node {node} is damaged again too soon"));
            }
        }
        if join_count > JOINS_MAX {
            return Some(format!("{join_count} nodes join, at most {JOINS_MAX} may"));
        }
        let (victim_count, most) = (last.len(), self.world.victim_count_max());
        if u32::try_from(victim_count).is_ok_and(|count| count > most) {
            return Some(format!("{victim_count} nodes are damaged, at most {most} may be"));
        }
        self.swap_amid_damage()
    }

    /// Describes a disk swap that overlaps with other damage or another swap; None if there is none.
    fn swap_amid_damage(&self) -> Option<String> {
        let touches =
            |fault: &Fault| fault.is_lasting() || matches!(fault, Fault::SwapDisks { .. });
        let mut open: Vec<&FaultPlan> = Vec::new();
        for (index, plan) in self.faults.iter().enumerate() {
            if !touches(&plan.fault) {
                continue;
            }
            open.retain(|other| other.end_ms(self.world.nodes) > plan.at_ms);
            let is_swap = |fault: &Fault| matches!(fault, Fault::SwapDisks { .. });
            let amid = open.iter().find(|other| is_swap(&other.fault) || is_swap(&plan.fault));
            if let Some(other) = amid {
                let (class, other) = (plan.fault.class(), other.fault.class());
                return Some(format!("faults[{index}]: {class:?} while {other:?} lasts"));
            }
            open.push(plan);
        }
        None
    }
}

impl FaultPlan {
    /// The simulated millisecond at which the fault has ended, in a world of so many nodes.
    pub(crate) fn end_ms(&self, node_count: u32) -> u64 {
        let (times, tail_ms) = match self.fault {
            Fault::RollingRestart => (u64::from(node_count), 0),
            Fault::SwapDisks { .. } => (1, SWAP_TAIL_MS),
            _ => (1, 0),
        };
        self.at_ms + self.for_ms * times + tail_ms
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::plan_test::plan_of;

    const ONE: Who = Who::Node(1);

    fn excess(nodes: u32, replicas: u32, faults: &[(u64, u64, Fault)]) -> Option<String> {
        let mut plan = plan_of(nodes, replicas);
        plan.faults = faults
            .iter()
            .map(|(at_ms, for_ms, fault)| FaultPlan {
                at_ms: *at_ms,
                for_ms: *for_ms,
                fault: fault.clone(),
            })
            .collect();
        plan.check().unwrap();
        plan.excess_damage()
    }

    #[test]
    fn damage_stays_with_a_minority() {
        let wipe = |node| Fault::WipeDisk { who: Who::Node(node) };
        let rot = |node| Fault::Misdirect { who: Who::Node(node) };
        assert_eq!(excess(3, 3, &[(0, 0, wipe(2)), (10_000, 0, rot(2))]), None);
        assert_eq!(excess(5, 5, &[(0, 0, wipe(2)), (1, 0, rot(4))]), None);
        for (nodes, replicas) in [(3, 3), (4, 3), (9, 3), (4, 5), (3, 9)] {
            let found = excess(nodes, replicas, &[(0, 0, wipe(2)), (1, 0, rot(3))]).unwrap();
            assert_eq!(found, "2 nodes are damaged, at most 1 may be");
        }
        for (nodes, replicas) in [(3, 1), (3, 2), (2, 3), (1, 5)] {
            let found = excess(nodes, replicas, &[(0, 0, wipe(1))]).unwrap();
            assert_eq!(found, "1 nodes are damaged, at most 0 may be");
        }
        let leader = Fault::SyncFails { who: Who::Leader(0) };
        assert_eq!(
            excess(3, 3, &[(0, 0, leader)]).unwrap(),
            "faults[0]: \"sync_fails\" does not name its node"
        );
    }

    #[test]
    fn damage_takes_its_time() {
        let wipe = || Fault::WipeDisk { who: ONE };
        let again = "faults[1]: node 1 is damaged again too soon";
        assert_eq!(excess(3, 3, &[(0, 0, wipe()), (9_999, 0, wipe())]).unwrap(), again);
        assert_eq!(excess(3, 3, &[(0, 12_000, wipe()), (11_999, 0, wipe())]).unwrap(), again);
        assert_eq!(excess(3, 3, &[(0, 12_000, wipe()), (12_000, 0, wipe())]), None);
    }

    #[test]
    fn exchanges_of_disks_stand_alone() {
        let wipe = || Fault::WipeDisk { who: ONE };
        let swap = || Fault::SwapDisks { one: 2, other: 3 };
        assert_eq!(excess(3, 3, &[(0, 1000, swap()), (3_000, 0, wipe())]), None);
        assert_eq!(excess(3, 3, &[(0, 1000, wipe()), (1_000, 0, swap())]), None);
        assert_eq!(excess(3, 1, &[(0, 1000, swap()), (3_000, 1000, swap())]), None);
        for (first, second, found) in [
            (swap(), wipe(), "faults[1]: \"wipe_disk\" while \"swap_disks\" lasts"),
            (swap(), swap(), "faults[1]: \"swap_disks\" while \"swap_disks\" lasts"),
        ] {
            assert_eq!(excess(3, 3, &[(0, 1000, first), (2_999, 0, second)]).unwrap(), found);
        }
        assert_eq!(
            excess(3, 3, &[(0, 1000, wipe()), (999, 0, swap())]).unwrap(),
            "faults[1]: \"swap_disks\" while \"wipe_disk\" lasts"
        );
    }

    #[test]
    fn members_change_within_reason() {
        let join = || Fault::Join { via: ONE };
        let replace = || Fault::Replace { who: ONE };
        assert_eq!(excess(3, 3, &[(0, 0, join()), (1, 0, join()), (2, 0, replace())]), None);
        assert_eq!(excess(4, 4, &[(0, 0, replace())]), None);
        assert_eq!(
            excess(3, 3, &[(0, 0, replace()), (1, 0, join())]).unwrap(),
            "faults[0]: no node to spare for \"replace\""
        );
        assert_eq!(
            excess(3, 3, &[(0, 0, join()), (1, 0, join()), (2, 0, join())]).unwrap(),
            "3 nodes join, at most 2 may"
        );
    }
}
