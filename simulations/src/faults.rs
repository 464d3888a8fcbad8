//! The faults of a plan: each begins at its time, takes effect, and is undone at its end.

use std::collections::BTreeMap;
use std::rc::Rc;
use std::time::Duration;

use crate::counters;
use crate::disk::DiskImage;
use crate::host::{Condition, Failure, Order};
use crate::links::closed::{self, Closing};
use crate::links::{CLIENTS, Claim, Direction};
use crate::now::now_us;
use crate::operator::{Operation, Task};
use crate::plan::{Fault, FaultPlan, Plan, Who};
use crate::trace;
use crate::watch;
use crate::world::World;

mod closed_links;
mod cluster;
mod disks;

pub(crate) use disks::count_effects;

/// Interval at which operations that take their own time are polled.
const POLL_US: u64 = 50_000;

/// An action that is due at a time.
enum Due {
    /// A fault of the plan begins.
    Begin(FaultPlan),
    /// A node starts, if it does not run.
    Start(u32),
    /// A node is told to stop.
    Stop(u32),
    /// A node is told to stop, and runs this release from its next start on.
    Upgrade(u32),
    /// A node is killed.
    Kill(u32),
    /// Claims on links are withdrawn.
    Unclaim { directions: Vec<Direction>, claim: Claim, class: &'static str },
    /// Links can be opened again.
    OpenLinks { directions: Vec<Direction>, closing: Closing, class: &'static str },
    /// A node's messages have their usual latency again.
    EndLatency(u32),
    /// A node's connections are no longer reset at random.
    EndLoss(u32),
    /// A node's wall clock is right again.
    EndWallClock(u32),
    /// A node's clock jumps by a millisecond, repeatedly.
    Drift { number: u32, every_us: u64, until_us: u64 },
    /// Checks whether an operation is done.
    Await { operation: Operation, class: &'static str },
    /// Checks whether a node can be replaced.
    Replace { number: u32, class: &'static str },
    /// A fault of a node's disk ends.
    EndDisk { number: u32, switch: disks::Switch },
    /// Checks that a node with a wiped or swapped disk was refused.
    Refused { number: u32, before: Option<u64>, class: &'static str },
    /// A node starts with an old image of its disk.
    OldImage { number: u32, image: Box<DiskImage>, class: &'static str },
    /// Two swapped disks are exchanged back.
    SwapBack { one: u32, other: u32, class: &'static str },
}

/// Executes the faults of a plan.
pub(crate) struct Nemesis {
    due: BTreeMap<(u64, u64), Due>,
    count: u64,
    /// A node whose disk lost data and that must ask all others: no fault begins before it runs.
    asking: Option<u32>,
}

impl Nemesis {
    /// The faults of a plan; their times are relative to `began_us`.
    pub(crate) fn new(plan: &Plan, began_us: u64) -> Self {
        let mut nemesis = Self { due: BTreeMap::new(), count: 0, asking: None };
        for fault in &plan.faults {
            counters::planned(fault.fault.class());
            nemesis.at(began_us + fault.at_ms * 1000, Due::Begin(fault.clone()));
        }
        nemesis
    }

    fn at(&mut self, due_us: u64, due: Due) {
        self.count += 1;
        self.due.insert((due_us, self.count), due);
    }

    /// Executes what is due.
    pub(crate) fn step(&mut self, world: &mut World) {
        while let Some(first) = self.due.first_entry()
            && first.key().0 <= now_us()
        {
            let due = first.remove();
            self.carry_out(world, due);
        }
    }

    /// Ends all active faults and drops those that have not begun.
    pub(crate) fn end_all(&mut self, world: &mut World) {
        while let Some((_, due)) = self.due.pop_first() {
            match due {
                Due::Begin(_) | Due::Drift { .. } | Due::Kill(_) => {}
                Due::Stop(_) | Due::Upgrade(_) => {}
                Due::Await { .. } | Due::OldImage { .. } => {}
                // The supervisor continues from here.
                Due::Replace { number, .. } => release(world, number),
                due => self.carry_out(world, due),
            }
        }
        for host in world.hosts.clone() {
            host.disk.heal();
        }
    }

    fn carry_out(&mut self, world: &mut World, due: Due) {
        match due {
            Due::Begin(plan) if self.is_asking(world) => {
                self.at(now_us() + POLL_US, Due::Begin(plan));
            }
            Due::Begin(plan) => self.begin(world, &plan),
            Due::Start(number) => world.start(number),
            Due::Stop(number) => world.order(number, Order::Stop),
            Due::Upgrade(number) => {
                world.host(number).upgrade();
                world.order(number, Order::Stop);
            }
            Due::Kill(number) => world.kill(number),
            Due::Unclaim { directions, claim, class } => world.unclaim(&directions, claim, class),
            Due::OpenLinks { directions, closing, class } => {
                closed::open(&directions, closing, class);
            }
            Due::EndLatency(number) => world.set_latency(number, None),
            Due::EndLoss(number) => world.host(number).net.set_loss_per_mille(0),
            Due::EndWallClock(number) => world.host(number).set_wall_offset_ms(0),
            Due::Drift { number, every_us, until_us } => {
                if world.host(number).is_up() {
                    counters::effect("clock_drift", 1);
                    world.order(number, Order::Leap(Duration::from_millis(1)));
                }
                if now_us() + every_us < until_us {
                    self.at(now_us() + every_us, Due::Drift { number, every_us, until_us });
                }
            }
            Due::Await { operation, class } => match operation.outcome() {
                None => self.at(now_us() + POLL_US, Due::Await { operation, class }),
                Some(Ok(())) => counters::effect(class, 1),
                Some(Err(_)) => {}
            },
            Due::Replace { number, class } => {
                if world.replace(number, true) {
                    counters::effect(class, 1);
                    release(world, number);
                } else {
                    self.at(now_us() + POLL_US, Due::Replace { number, class });
                }
            }
            Due::EndDisk { number, switch } => disks::switch(world, number, switch, false),
            Due::Refused { number, before, class } => refused(world, number, before, class),
            Due::OldImage { number, image, class } => {
                self.damage(world, number, class, |disk| disk.restore(*image));
            }
            Due::SwapBack { one, other, class } => disks::swap_back(world, one, other, class),
        }
    }

    /// Whether a node whose disk lost data has not asked all others yet, or has not started.
    fn is_asking(&mut self, world: &World) -> bool {
        let starts = |number: &u32| {
            let host = world.host(*number);
            !host.is_up() && host.failure().is_none()
        };
        self.asking = self.asking.filter(starts);
        self.asking.is_some()
    }

    fn begin(&mut self, world: &mut World, plan: &FaultPlan) {
        let class = plan.fault.class();
        trace::line(
            now_us(),
            "world",
            "fault",
            format_args!("{} ms {:?}", plan.for_ms, plan.fault),
        );
        counters::fired(class);
        let end_us = now_us() + plan.for_ms * 1000;
        match &plan.fault {
            Fault::Isolate { .. }
            | Fault::Split { .. }
            | Fault::OneWay { .. }
            | Fault::Bridge { .. }
            | Fault::Ring
            | Fault::Hold { .. }
            | Fault::Freeze { .. } => self.begin_links(world, &plan.fault, class, end_us),
            Fault::CloseLinks { .. } => self.close_links(world, &plan.fault, class, end_us),
            Fault::Latency { who, ms } => {
                for number in world.resolve(*who) {
                    counters::effect(class, 1);
                    world.set_latency(number, Some(Duration::from_millis(u64::from(*ms))));
                    self.at(end_us, Due::EndLatency(number));
                }
            }
            Fault::Loss { who, per_mille } => {
                for number in world.resolve(*who) {
                    world.host(number).net.set_loss_per_mille(*per_mille);
                    self.at(end_us, Due::EndLoss(number));
                }
            }
            Fault::Reset { who } => {
                for number in world.resolve(*who) {
                    counters::effect(class, world.host(number).net.reset_all());
                }
            }
            Fault::Crash { .. }
            | Fault::PowerLoss { .. }
            | Fault::Stop { .. }
            | Fault::RollingRestart
            | Fault::Upgrade
            | Fault::CrashStorm { .. } => self.begin_process(world, plan, class, end_us),
            Fault::ClockJump { .. } | Fault::ClockDrift { .. } | Fault::WallClock { .. } => {
                self.begin_clock(world, &plan.fault, class, end_us);
            }
            Fault::Join { .. }
            | Fault::Replace { .. }
            | Fault::MoveReplica { .. }
            | Fault::SplitShard
            | Fault::MergeShard
            | Fault::HandOver { .. }
            | Fault::Snapshot { .. } => self.begin_cluster(world, &plan.fault, class),
            _ => self.begin_disk(world, &plan.fault, class, end_us),
        }
    }

    fn begin_links(&mut self, world: &mut World, fault: &Fault, class: &'static str, end_us: u64) {
        let directions = directions(world, fault);
        let claim = match fault {
            Fault::Hold { .. } | Fault::Freeze { .. } => Claim::Held,
            _ => Claim::Cut,
        };
        if let Fault::Freeze { who } = fault {
            for number in world.resolve(*who) {
                let switch = disks::Switch::Stalled;
                disks::switch(world, number, switch, true);
                self.at(end_us, Due::EndDisk { number, switch });
            }
        }
        world.claim(&directions, claim, class);
        self.at(end_us, Due::Unclaim { directions, claim, class });
    }

    fn begin_process(
        &mut self,
        world: &mut World,
        plan: &FaultPlan,
        class: &'static str,
        end_us: u64,
    ) {
        match &plan.fault {
            Fault::Crash { who } => {
                for number in world.resolve(*who) {
                    counters::effect(class, u64::from(world.host(number).is_up()));
                    world.kill(number);
                    self.at(end_us, Due::Start(number));
                }
            }
            Fault::PowerLoss { who, mode } => {
                for number in world.resolve(*who) {
                    counters::effect(class, u64::from(world.power_loss(number, *mode)));
                    self.at(end_us, Due::Start(number));
                }
            }
            Fault::Stop { who } => {
                for number in world.resolve(*who) {
                    counters::effect(class, u64::from(world.host(number).is_up()));
                    world.order(number, Order::Stop);
                    self.at(end_us, Due::Start(number));
                }
            }
            Fault::RollingRestart => {
                for number in world.resolve(Who::All) {
                    counters::effect(class, u64::from(world.host(number).is_up()));
                }
                self.restart_all(world, plan.for_ms * 1000, Due::Stop);
            }
            Fault::Upgrade => {
                self.restart_all(world, plan.for_ms * 1000, Due::Upgrade);
                let operation = world.operator.send(Task::Upgrade);
                self.at(now_us() + POLL_US, Due::Await { operation, class });
            }
            Fault::CrashStorm { who, count } => {
                let gap_us = plan.for_ms * 1000 / u64::from((*count).max(1));
                for number in world.resolve(*who) {
                    counters::effect(class, u64::from(world.host(number).is_up()));
                    for turn in 0..u64::from(*count) {
                        self.at(now_us() + turn * gap_us, Due::Kill(number));
                        self.at(now_us() + turn * gap_us + gap_us / 4, Due::Start(number));
                    }
                }
            }
            other => unreachable!("{other:?} is no fault of a process"),
        }
    }

    /// Stops and restarts all nodes, one after another.
    fn restart_all(&mut self, world: &World, gap_us: u64, stop: fn(u32) -> Due) {
        for (turn, number) in (0..).zip(world.resolve(Who::All)) {
            let stop_us = now_us() + turn * gap_us;
            self.at(stop_us, stop(number));
            self.at(stop_us + gap_us / 2, Due::Start(number));
        }
    }

    fn begin_clock(&mut self, world: &mut World, fault: &Fault, class: &'static str, end_us: u64) {
        match fault {
            Fault::ClockJump { who, ms } => {
                for number in world.resolve(*who) {
                    counters::effect(class, u64::from(world.host(number).is_up()));
                    world.order(number, Order::Leap(Duration::from_millis(u64::from(*ms))));
                }
            }
            Fault::ClockDrift { who, per_mille } => {
                for number in world.resolve(*who) {
                    let every_us = 1_000_000 / u64::from((*per_mille).max(1));
                    self.at(now_us() + every_us, Due::Drift { number, every_us, until_us: end_us });
                }
            }
            Fault::WallClock { who, ms } => {
                for number in world.resolve(*who) {
                    // Windows move by the wall clock, unless it jumped ahead by more than ten minutes while
                    // the node ran: then they move without the jump, since no run lasts for the hour after
                    // which it is believed. A node that starts during the fault believes it.
                    counters::effect(class, u64::from(world.host(number).is_up()));
                    world.host(number).set_wall_offset_ms(*ms);
                    self.at(end_us, Due::EndWallClock(number));
                }
            }
            other => unreachable!("{other:?} is no fault of a clock"),
        }
    }
}

/// The directions of links that a fault claims.
fn directions(world: &World, fault: &Fault) -> Vec<Direction> {
    let everybody = world.everybody();
    let nodes: Vec<u32> = everybody.iter().copied().filter(|host| *host != CLIENTS).collect();
    let around = |who: Who| -> Vec<Direction> {
        let met = world.resolve(who);
        let pairs = met.iter().flat_map(|&node| {
            let others = everybody.iter().filter(move |other| **other != node);
            others.map(move |&other| (node, other))
        });
        pairs.collect()
    };
    let both = |pairs: Vec<Direction>| -> Vec<Direction> {
        pairs.iter().flat_map(|&(one, other)| [(one, other), (other, one)]).collect()
    };
    let across = |is_cut: &dyn Fn(usize, usize) -> bool, nodes: &[u32]| -> Vec<Direction> {
        let mut pairs = Vec::new();
        for one in 0..nodes.len() {
            for other in one + 1..nodes.len() {
                if is_cut(one, other) {
                    pairs.push((nodes[one], nodes[other]));
                }
            }
        }
        both(pairs)
    };
    match fault {
        Fault::Isolate { who } | Fault::Hold { who } | Fault::Freeze { who } => both(around(*who)),
        Fault::OneWay { who, outbound: true } => around(*who),
        Fault::OneWay { who, outbound: false } => {
            around(*who).into_iter().map(|(one, other)| (other, one)).collect()
        }
        Fault::Split { left } => {
            let is_left = |at: usize| left.contains(&nodes[at]);
            across(&|one, other| is_left(one) != is_left(other), &nodes)
        }
        Fault::Bridge { middle } => {
            let halves: Vec<u32> = nodes.iter().copied().filter(|node| node != middle).collect();
            let half = halves.len() / 2;
            across(&|one, other| (one < half) != (other < half), &halves)
        }
        Fault::Ring => {
            let count = nodes.len();
            across(&|one, other| other - one != 1 && other - one != count - 1, &nodes)
        }
        other => unreachable!("{other:?} is no fault of links"),
    }
}

/// Returns a node to the supervisor and the operator.
fn release(world: &mut World, number: u32) {
    if let Some(count) = world.reserved.get_mut(&number) {
        *count -= 1;
        if *count == 0 {
            world.reserved.remove(&number);
        }
    }
}

/// Checks that a node with an empty or foreign disk does not run under its old identity.
fn refused(world: &mut World, number: u32, before: Option<u64>, class: &'static str) {
    let host = Rc::clone(world.host(number));
    counters::checked("identity_holds", 1);
    let what = match &*host.condition.borrow() {
        Condition::Up(node) if Some(node.id().0) == before => {
            Some(format!("{} runs as {} with a disk that is not its own", host.name, node.id()))
        }
        _ => None,
    };
    if matches!(host.failure(), Some(Failure::Data(_) | Failure::Membership(_))) {
        counters::effect(class, 1);
    }
    if let Some(what) = what {
        watch::violated("identity_holds", what);
    }
    release(world, number);
}
