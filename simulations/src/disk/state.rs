//! Effects of calls on the simulated disk, with the faults that are enabled.

use std::io;

use bytes::Bytes;
use rand::rngs::ChaCha8Rng;
use rand::{RngExt, SeedableRng};

use super::rot;
use super::tree::{Inode, Loss, Tree};
use crate::plan::{DiskPart, LossMode};

/// Free bytes that a disk without limit reports.
const FREE_BYTES: u64 = 64 << 30;

/// Faults that are active, or wait for a matching call.
#[derive(Clone, Copy, Debug)]
pub(super) struct Switches {
    /// How many times as long calls take.
    pub(super) slow_factor: u32,
    /// Whether calls stand still.
    pub(super) is_stalled: bool,
    /// Whether reads fail.
    pub(super) reads_fail: bool,
    /// Whether writes fail.
    pub(super) writes_fail: bool,
    /// Whether the next sync of a file fails.
    pub(super) next_sync_fails: bool,
    /// Whether the next write lands elsewhere.
    pub(super) next_write_strays: bool,
    /// Bytes that files may still grow; None without a bound.
    pub(super) free_bytes: Option<u64>,
}

impl Default for Switches {
    fn default() -> Self {
        Self {
            slow_factor: 1,
            is_stalled: false,
            reads_fail: false,
            writes_fail: false,
            next_sync_fails: false,
            next_write_strays: false,
            free_bytes: None,
        }
    }
}

/// The effects of the disk's faults that a node could observe, and the number of operations. All
/// counted from the disk's creation.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub(crate) struct DiskEffects {
    /// Bytes that read otherwise after power losses.
    pub(crate) lost_bytes: u64,
    /// Files of which power losses left some changes and took others.
    pub(crate) torn_files: u64,
    /// Creations, renames and removals that power losses undid.
    pub(crate) lost_names: u64,
    /// Syncs that failed.
    pub(crate) sync_errors: u64,
    /// Reads that failed.
    pub(crate) read_errors: u64,
    /// Writes and changes of lengths that failed.
    pub(crate) write_errors: u64,
    /// Calls that found no room.
    pub(crate) full_errors: u64,
    /// Calls that took longer than usual.
    pub(crate) slow_calls: u64,
    /// Calls that stood still.
    pub(crate) stalled_calls: u64,
    /// Rotten bytes that were read, each as often as it was.
    pub(crate) rotten_bytes_read: u64,
    /// Writes that landed elsewhere for good.
    pub(crate) misdirected_writes: u64,
    /// Calls that were done, with and without success.
    pub(crate) calls: u64,
    /// Syncs of files and folders that succeeded.
    pub(crate) syncs: u64,
    /// Bytes that were read.
    pub(crate) read_bytes: u64,
    /// Bytes that were written.
    pub(crate) written_bytes: u64,
}

/// How long a call takes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Pace {
    /// 20 to 100 µs.
    Read,
    /// 20 to 200 µs.
    Write,
    /// 200 to 3000 µs.
    Sync,
}

/// The disk's contents, its faults, and the process that uses it.
pub(super) struct State {
    pub(super) tree: Tree,
    pub(super) switches: Switches,
    pub(super) effects: DiskEffects,
    /// Number of the process that has the disk, or had it last.
    incarnation: u64,
    is_mounted: bool,
    is_locked: bool,
    /// Accumulated latency of calls that has not been waited for yet.
    owed_us: u64,
    /// A separate generator, so that latencies do not change what is lost.
    latency_rng: ChaCha8Rng,
    damage_rng: ChaCha8Rng,
}

fn input_output_error() -> io::Error {
    rustix::io::Errno::IO.into()
}

/// An offset or length as a place in memory.
fn in_memory(offset: u64) -> io::Result<usize> {
    usize::try_from(offset).map_err(|_| io::ErrorKind::FileTooLarge.into())
}

impl State {
    pub(super) fn new(seed: u64) -> Self {
        let mut latency_rng = ChaCha8Rng::seed_from_u64(seed);
        latency_rng.set_stream(1);
        let damage_rng = ChaCha8Rng::seed_from_u64(seed);
        Self {
            tree: Tree::default(),
            switches: Switches::default(),
            effects: DiskEffects::default(),
            incarnation: 0,
            is_mounted: false,
            is_locked: false,
            owed_us: 0,
            latency_rng,
            damage_rng,
        }
    }

    /// Begins a new incarnation and says its number.
    pub(super) fn mount(&mut self) -> u64 {
        self.is_mounted = true;
        self.incarnation += 1;
        self.incarnation
    }

    /// Ends the incarnation that there is.
    pub(super) fn unmount(&mut self) {
        if std::mem::take(&mut self.is_mounted) {
            self.is_locked = false;
            self.owed_us = 0;
            self.tree.close_all();
        }
    }

    /// Whether this incarnation has the disk.
    pub(super) fn is_alive(&self, incarnation: u64) -> bool {
        self.is_mounted && self.incarnation == incarnation
    }

    /// Rejects calls of dead incarnations.
    pub(super) fn check_alive(&self, incarnation: u64) -> io::Result<()> {
        if self.is_alive(incarnation) {
            Ok(())
        } else {
            Err(io::Error::other("the process that had the disk is dead"))
        }
    }

    /// Draws how long a call takes, and says how many milliseconds to wait now. Time is saved up until
    /// a sync, because timers know whole milliseconds only and each of them costs time for real.
    pub(super) fn owe(&mut self, pace: Pace) -> u64 {
        let usual_us = match pace {
            Pace::Read => 20..=100,
            Pace::Write => 20..=200,
            Pace::Sync => 200..=3000_u64,
        };
        let factor = u64::from(self.switches.slow_factor);
        self.owed_us += self.latency_rng.random_range(usual_us) * factor;
        let is_slow = factor > 1;
        self.effects.slow_calls += u64::from(is_slow);
        if !is_slow && pace != Pace::Sync {
            return 0;
        }
        let wait_ms = self.owed_us / 1000;
        self.owed_us %= 1000;
        wait_ms
    }

    pub(super) fn lock(&mut self) -> io::Result<()> {
        if std::mem::replace(&mut self.is_locked, true) {
            Err(io::ErrorKind::WouldBlock.into())
        } else {
            Ok(())
        }
    }

    pub(super) fn unlock(&mut self) {
        self.is_locked = false;
    }

    pub(super) fn free_bytes(&self) -> u64 {
        self.switches.free_bytes.unwrap_or(FREE_BYTES)
    }

    fn full(&mut self) -> io::Error {
        self.effects.full_errors += 1;
        io::ErrorKind::StorageFull.into()
    }

    /// Rejects new names if there is no room.
    fn check_room_for(&mut self, path: &str) -> io::Result<()> {
        if self.switches.free_bytes == Some(0) && !self.tree.exists(path) {
            return Err(self.full());
        }
        Ok(())
    }

    fn give_room(&mut self, byte_count: usize) {
        if let Some(free_bytes) = &mut self.switches.free_bytes {
            *free_bytes = free_bytes.saturating_add(byte_count as u64);
        }
    }

    /// How many of so many bytes there is room for, which is taken.
    fn take_room(&mut self, byte_count: usize) -> usize {
        let Some(free_bytes) = &mut self.switches.free_bytes else { return byte_count };
        let taken = byte_count.min(usize::try_from(*free_bytes).unwrap_or(usize::MAX));
        *free_bytes -= taken as u64;
        taken
    }

    pub(super) fn open(&mut self, path: &str, create: bool) -> io::Result<Inode> {
        if create {
            self.check_room_for(path)?;
        }
        let opening = self.tree.open(path, create)?;
        self.give_room(opening.emptied_bytes);
        Ok(opening.inode)
    }

    pub(super) fn make_folder(&mut self, path: &str) -> io::Result<()> {
        self.check_room_for(path)?;
        self.tree.make_folder(path)
    }

    pub(super) fn rename(&mut self, from: &str, to: &str) -> io::Result<()> {
        self.check_room_for(to)?;
        let freed = self.tree.rename(from, to)?;
        self.give_room(freed);
        Ok(())
    }

    pub(super) fn remove(&mut self, path: &str) -> io::Result<()> {
        let freed = self.tree.remove(path)?;
        self.give_room(freed);
        Ok(())
    }

    pub(super) fn sync_folder(&mut self, path: &str) -> io::Result<()> {
        self.tree.sync_folder(path)?;
        self.effects.syncs += 1;
        Ok(())
    }

    pub(super) fn read(&mut self, file: Inode, offset: u64, count: usize) -> io::Result<Bytes> {
        if self.switches.reads_fail {
            self.effects.read_errors += 1;
            return Err(input_output_error());
        }
        // Behind the largest place in memory there is nothing to be read.
        let offset = usize::try_from(offset).unwrap_or(usize::MAX);
        let (bytes, rotten_count) = self.tree.file(file)?.read(offset, count);
        self.effects.rotten_bytes_read += rotten_count as u64;
        self.effects.read_bytes += bytes.len() as u64;
        Ok(bytes)
    }

    pub(super) fn write(&mut self, inode: Inode, offset: u64, bytes: &Bytes) -> io::Result<()> {
        let offset = in_memory(offset)?;
        let end = offset.checked_add(bytes.len()).ok_or(io::ErrorKind::FileTooLarge)?;
        if bytes.is_empty() {
            return Ok(());
        }
        let growth = end.saturating_sub(self.tree.file(inode)?.len());
        let fitting = self.take_room(growth);
        let is_full = fitting < growth;
        if !is_full && !self.switches.writes_fail {
            self.effects.written_bytes += bytes.len() as u64;
            let strays = std::mem::take(&mut self.switches.next_write_strays);
            let file = self.tree.file(inode)?;
            if strays {
                file.misdirect(offset, bytes.clone(), &mut self.damage_rng);
            } else {
                file.write(offset, bytes.clone());
            }
            return Ok(());
        }
        let possible = bytes.len().saturating_sub(growth - fitting);
        let part = self.damage_rng.random_range(0..=possible);
        let file = self.tree.file(inode)?;
        let byte_count = file.len();
        file.write(offset, bytes.slice(..part));
        let grown = file.len() - byte_count;
        self.give_room(fitting - grown);
        self.effects.written_bytes += part as u64;
        if self.switches.writes_fail {
            self.effects.write_errors += 1;
            return Err(input_output_error());
        }
        Err(self.full())
    }

    pub(super) fn set_len(&mut self, inode: Inode, byte_count: u64) -> io::Result<()> {
        let byte_count = in_memory(byte_count)?;
        if self.switches.writes_fail {
            self.effects.write_errors += 1;
            return Err(input_output_error());
        }
        let before = self.tree.file(inode)?.len();
        let growth = byte_count.saturating_sub(before);
        let fitting = self.take_room(growth);
        if fitting < growth {
            self.give_room(fitting);
            return Err(self.full());
        }
        self.give_room(before.saturating_sub(byte_count));
        self.tree.file(inode)?.set_len(byte_count);
        Ok(())
    }

    pub(super) fn sync(&mut self, inode: Inode) -> io::Result<()> {
        let file = self.tree.file(inode)?;
        if std::mem::take(&mut self.switches.next_sync_fails) {
            file.fail_sync();
            self.effects.sync_errors += 1;
            return Err(input_output_error());
        }
        self.effects.misdirected_writes += file.sync();
        self.effects.syncs += 1;
        Ok(())
    }

    pub(super) fn power_loss(&mut self, mode: LossMode) -> Loss {
        let loss = self.tree.lose(mode, &mut self.damage_rng);
        self.effects.lost_bytes += loss.lost_bytes;
        self.effects.torn_files += loss.torn_files;
        self.effects.lost_names += loss.lost_names;
        loss
    }

    pub(super) fn rot(&mut self, part: DiskPart, bit_count: u32) -> Vec<String> {
        rot::flip_bits(&mut self.tree, part, bit_count, &mut self.damage_rng)
    }

    pub(super) fn replace(&mut self, mut tree: Tree) {
        tree.close_all();
        tree.number_above(&self.tree);
        self.tree = tree;
    }
}
