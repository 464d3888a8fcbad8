//! Faults of disks.

use std::rc::Rc;

use super::{Due, Nemesis, release};
use crate::counters;
use crate::disk::SimDisk;
use crate::host::Host;
use crate::now::now_us;
use crate::plan::Fault;
use crate::trace;
use crate::watch;
use crate::world::World;

/// A disk fault that is switched on and off.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Switch {
    Slow(u32),
    Stalled,
    ReadsFail,
    WritesFail,
    Full(u64),
}

/// Turns a switch on or off.
pub(super) fn switch(world: &World, number: u32, switch: Switch, is_on: bool) {
    let disk = &world.host(number).disk;
    match switch {
        Switch::Slow(factor) => disk.set_slow(if is_on { factor } else { 1 }),
        Switch::Stalled => disk.set_stalled(is_on),
        Switch::ReadsFail => disk.set_reads_fail(is_on),
        Switch::WritesFail => disk.set_writes_fail(is_on),
        Switch::Full(free_bytes) => disk.set_full(is_on.then_some(free_bytes)),
    }
}

impl Nemesis {
    pub(super) fn begin_disk(
        &mut self,
        world: &mut World,
        fault: &Fault,
        class: &'static str,
        end_us: u64,
    ) {
        let (who, wanted) = match fault {
            Fault::SlowDisk { who, factor } => (*who, Switch::Slow(*factor)),
            Fault::StallDisk { who } => (*who, Switch::Stalled),
            Fault::ReadFails { who } => (*who, Switch::ReadsFail),
            Fault::WriteFails { who } => (*who, Switch::WritesFail),
            Fault::DiskFull { who, free_bytes } => (*who, Switch::Full(*free_bytes)),
            other => return self.begin_damage(world, other, class, end_us),
        };
        for number in world.resolve(who) {
            switch(world, number, wanted, true);
            self.at(end_us, Due::EndDisk { number, switch: wanted });
        }
    }

    fn begin_damage(&mut self, world: &mut World, fault: &Fault, class: &'static str, end_us: u64) {
        match fault {
            Fault::SyncFails { who } => {
                for number in world.resolve(*who) {
                    world.host(number).disk.fail_next_sync();
                }
            }
            Fault::Misdirect { who } => {
                for number in world.resolve(*who) {
                    world.host(number).disk.misdirect_next_write();
                }
            }
            Fault::BitRot { who, part, bits } => {
                for number in world.resolve(*who) {
                    world.kill(number);
                    let rotten = world.host(number).disk.rot(*part, *bits);
                    let name = world.host(number).name.clone();
                    trace::line(now_us(), &name, "rot", format_args!("{rotten:?}"));
                    self.at(end_us, Due::Start(number));
                }
            }
            Fault::LoseTail { who, bytes } => {
                for number in world.resolve(*who) {
                    self.damage(world, number, class, |disk| {
                        let lost = disk.lose_tail(*bytes);
                        trace::line(now_us(), "world", "tail", format_args!("{lost} bytes"));
                    });
                }
            }
            Fault::OldImage { who } => {
                for number in world.resolve(*who) {
                    let image = Box::new(world.host(number).disk.image_now());
                    self.at(end_us, Due::OldImage { number, image, class });
                }
            }
            Fault::WipeDisk { who } => {
                for number in world.resolve(*who) {
                    let before = world.host(number).node_id.get();
                    world.kill(number);
                    world.host(number).disk.wipe();
                    world.host(number).is_lost.set(true);
                    *world.reserved.entry(number).or_default() += 1;
                    // It is started halfway through the fault, and must refuse to run.
                    self.at((now_us() + end_us) / 2, Due::Start(number));
                    self.at(end_us, Due::Refused { number, before, class });
                }
            }
            Fault::SwapDisks { one, other } => self.swap(world, *one, *other, class, end_us),
            other => unreachable!("{other:?} is no fault of a disk"),
        }
    }

    /// Kills a node, damages its disk and starts it again, but only if all other nodes run and can
    /// communicate with it: only nodes that answer can detect what it lost.
    pub(super) fn damage(
        &mut self,
        world: &mut World,
        number: u32,
        class: &'static str,
        change: impl FnOnce(&SimDisk),
    ) {
        let host = Rc::clone(world.host(number));
        let is_there = |other: &Rc<Host>| {
            other.number == number || other.is_up() && world.is_healthy([number, other.number])
        };
        let is_free = host.is_up() && !world.reserved.contains_key(&number);
        if !is_free || !world.hosts.iter().all(is_there) {
            return;
        }
        world.kill(number);
        change(&host.disk);
        watch::with(|checks| {
            checks.raft.damaged_disk(&host.name);
            checks.generations.lost(now_us(), number);
        });
        counters::effect(class, 1);
        world.start(number);
        self.asking = Some(number);
    }

    fn swap(&mut self, world: &mut World, one: u32, other: u32, class: &'static str, end_us: u64) {
        // A wiped disk belongs to no node, and a fault that is still in progress needs the host's own
        // disk.
        let is_free = |number: u32| {
            !world.host(number).is_lost.get() && !world.reserved.contains_key(&number)
        };
        if ![one, other].into_iter().all(is_free) {
            return;
        }
        for number in [one, other] {
            world.kill(number);
            *world.reserved.entry(number).or_default() += 1;
            self.at((now_us() + end_us) / 2, Due::Start(number));
        }
        exchange(world, one, other);
        self.at(end_us, Due::SwapBack { one, other, class });
    }
}

fn exchange(world: &World, one: u32, other: u32) {
    let (one, other) = (Rc::clone(world.host(one)), Rc::clone(world.host(other)));
    let (image, others) = (one.disk.image(), other.disk.image());
    one.disk.restore(others);
    other.disk.restore(image);
}

/// Checks that both nodes refused to run, and starts them with their own disks again.
pub(super) fn swap_back(world: &mut World, one: u32, other: u32, class: &'static str) {
    for number in [one, other] {
        let host = Rc::clone(world.host(number));
        counters::checked("identity_holds", 1);
        // A node that runs uses the other node's disk.
        if let Some(node) = host.node() {
            let what = format!("{} runs as {} with the disk of another", host.name, node.id());
            watch::violated("identity_holds", what);
        }
        if host.failure().is_some() {
            counters::effect(class, 1);
        }
        world.kill(number);
    }
    exchange(world, one, other);
    for number in [one, other] {
        release(world, number);
        world.start(number);
    }
}

/// Adds the effects of disk faults and message losses to the counters.
pub(crate) fn count_effects(world: &World) {
    for host in &world.hosts {
        let effects = host.disk.effects();
        counters::effect("sync_fails", effects.sync_errors);
        counters::effect("read_fails", effects.read_errors);
        counters::effect("write_fails", effects.write_errors);
        counters::effect("disk_full", effects.full_errors);
        counters::effect("slow_disk", effects.slow_calls);
        counters::effect("stall_disk", effects.stalled_calls);
        counters::effect("bit_rot", effects.rotten_bytes_read);
        counters::effect("misdirect", effects.misdirected_writes);
        counters::effect("loss", host.net.loss_count());
    }
}
