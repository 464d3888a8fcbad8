//! Changes of the cluster that an operator orders.

use super::{Due, Nemesis, POLL_US};
use crate::counters;
use crate::host::Order;
use crate::now::now_us;
use crate::operator::Task;
use crate::plan::Fault;
use crate::world::World;

impl Nemesis {
    pub(super) fn begin_cluster(&mut self, world: &mut World, fault: &Fault, class: &'static str) {
        match fault {
            Fault::Join { via } => {
                for via in world.resolve(*via) {
                    counters::effect(class, 1);
                    world.join(via);
                }
            }
            Fault::Replace { who } => {
                for number in world.resolve(*who) {
                    *world.reserved.entry(number).or_default() += 1;
                    self.at(now_us(), Due::Replace { number, class });
                }
            }
            Fault::MoveReplica { shard, who } => {
                for number in world.resolve(*who) {
                    if let Some((from, to)) = move_of(world, *shard, number) {
                        let operation = world.operator.send(Task::Move { shard: *shard, from, to });
                        self.at(now_us() + POLL_US, Due::Await { operation, class });
                    }
                }
            }
            Fault::SplitShard => {
                let is_by_itself = world.plan.world.cores > 0;
                let task = if is_by_itself { Task::SplitByItself } else { Task::Split };
                let operation = world.operator.send(task);
                self.at(now_us() + POLL_US, Due::Await { operation, class });
            }
            Fault::MergeShard => {
                let operation = world.operator.send(Task::Merge);
                self.at(now_us() + POLL_US, Due::Await { operation, class });
            }
            Fault::HandOver { who } | Fault::Snapshot { who } => {
                let order = match fault {
                    Fault::HandOver { .. } => Order::HandOver,
                    _ => Order::SnapshotGroups,
                };
                for number in world.resolve(*who) {
                    counters::effect(class, u64::from(world.host(number).is_up()));
                    world.order(number, order);
                }
            }
            other => unreachable!("{other:?} is no change of the cluster"),
        }
    }
}

/// Source and destination of a move of a shard's replica away from machine `number`, if it has one: the
/// destination is the first host without a replica of the shard.
fn move_of(world: &World, shard: u32, number: u32) -> Option<(u64, u64)> {
    let has = |number: u32| {
        let node = world.host(number).node()?;
        let reports = node.groups();
        Some(reports.iter().any(|report| report.group.shard().is_some_and(|own| own.0 == shard)))
    };
    if has(number) != Some(true) {
        return None;
    }
    let to = world.hosts.iter().find(|host| has(host.number) == Some(false))?;
    Some((world.host(number).node_id.get()?, to.node_id.get()?))
}
