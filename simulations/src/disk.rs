//! The simulated disk of a node: it keeps what was synced, and loses, damages or rejects the rest as
//! configured.
//!
//! | what happens | what it does |
//! |---|---|
//! | write, new length | seen by reads at once, durable after the file's sync |
//! | creation, rename, removal | seen at once, durable after the folder's sync |
//! | [`SimDisk::crash`] | open files and the lock are gone; all that was written stays |
//! | [`SimDisk::power_loss`] | of what is not durable, the first names stay, and contents as the mode says |
//! | a sync that fails | its bytes stay readable, but no later sync makes them durable |
//!
//! Model of the failed sync: Rebello et al., "Can Applications Recover from fsync Failures?",
//! USENIX ATC 2020.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::Notify;
use umbel_ports::Disk;

mod content;
mod mount;
mod rot;
mod state;
mod tree;

#[cfg(test)]
mod damage_test;
#[cfg(test)]
mod fault_test;
#[cfg(test)]
mod loss_test;
#[cfg(test)]
mod real_test;

pub(crate) use state::DiskEffects;
use state::{State, Switches};
pub(crate) use tree::Loss;
use tree::Tree;

use crate::plan::{DiskPart, LossMode};

/// Free bytes required for a job's data, of which only marks and numbers are modelled.
const ROOM_BYTES: u64 = 64 << 10;

/// The disk of one node. It outlives the node's crashes; clones share it.
#[derive(Clone)]
pub(crate) struct SimDisk {
    shared: Arc<Shared>,
}

struct Shared {
    state: Mutex<State>,
    /// Notified when stalled calls may continue, or must fail because their process is dead.
    resumed: Notify,
}

/// Everything on a disk, durable or not.
#[derive(Clone)]
pub(crate) struct DiskImage {
    tree: Tree,
}

impl SimDisk {
    /// An empty disk. Latencies, the effects of power losses, and rotten bits are determined by the
    /// seed and by the calls.
    pub(crate) fn new(seed: u64) -> Self {
        let state = Mutex::new(State::new(seed));
        Self { shared: Arc::new(Shared { state, resumed: Notify::new() }) }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        // Whoever panicked has failed the run already.
        self.shared.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Changes the disk while no process uses it; a process that still has it loses it.
    fn unmounted<T>(&self, change: impl FnOnce(&mut State) -> T) -> T {
        let result = {
            let mut state = self.state();
            state.unmount();
            change(&mut state)
        };
        self.shared.resumed.notify_waiters();
        result
    }

    /// Gives the disk to a new process of the node. Handles of an earlier process are dead: their calls
    /// fail, or stall as long as the disk does.
    pub(crate) fn mount(&self) -> Arc<dyn Disk> {
        let incarnation = self.unmounted(State::mount);
        Arc::new(mount::Mount::new(self.clone(), incarnation))
    }

    /// The process is killed: its open files and its lock are gone, and everything it wrote stays.
    pub(crate) fn crash(&self) {
        self.unmounted(|_| ());
    }

    /// The power fails, which also kills the process. `mode` determines which unsynced contents
    /// survive; of the unsynced changes of names the first few survive.
    pub(crate) fn power_loss(&self, mode: LossMode) -> Loss {
        self.unmounted(|state| state.power_loss(mode))
    }

    /// Sets the factor by which calls are slower than usual; 1 is normal.
    pub(crate) fn set_slow(&self, factor: u32) {
        self.state().switches.slow_factor = factor.max(1);
    }

    /// Sets whether calls stall. They continue when this is false again.
    pub(crate) fn set_stalled(&self, is_stalled: bool) {
        self.state().switches.is_stalled = is_stalled;
        self.shared.resumed.notify_waiters();
    }

    /// Sets whether reads of files fail.
    pub(crate) fn set_reads_fail(&self, fail: bool) {
        self.state().switches.reads_fail = fail;
    }

    /// Sets whether writes and changes of lengths fail. A part of a failing write may have been done.
    pub(crate) fn set_writes_fail(&self, fail: bool) {
        self.state().switches.writes_fail = fail;
    }

    /// Makes the next sync of a file fail. What it should have made durable is lost at the next power
    /// loss, even if later syncs succeed.
    pub(crate) fn fail_next_sync(&self) {
        self.state().switches.next_sync_fails = true;
    }

    /// Limits the bytes by which files may still grow; `None` for no limit. At 0 there is no room for
    /// new names either. Truncating or removing files makes room.
    pub(crate) fn set_full(&self, free_bytes: Option<u64>) {
        self.state().switches.free_bytes = free_bytes;
    }

    /// How many times as long calls take as usual.
    pub(crate) fn slow_factor(&self) -> u32 {
        self.state().switches.slow_factor
    }

    /// Whether there is room and writes do not fail.
    pub(crate) fn takes_writes(&self) -> bool {
        let state = self.state();
        !state.switches.writes_fail
            && state.switches.free_bytes.is_none_or(|free| free >= ROOM_BYTES)
    }

    /// Makes the next write land at another place of its file. This is undone if the process ends
    /// before a later write to that file is durable, because a log could not distinguish it from a torn
    /// end.
    pub(crate) fn misdirect_next_write(&self) {
        self.state().switches.next_write_strays = true;
    }

    /// Flips so many bits for good, while no process has the disk, and says which: `path: offset N,
    /// bit B`. Fewer, or none, if there is not as much to damage. Only durable bytes rot, and in the
    /// newest segment of the log none from the last durable write on: a log could not tell that from a
    /// torn end.
    pub(crate) fn rot(&self, part: DiskPart, bits: u32) -> Vec<String> {
        self.unmounted(|state| state.rot(part, bits))
    }

    /// Everything on the disk, while no process uses it.
    pub(crate) fn image(&self) -> DiskImage {
        self.unmounted(|state| DiskImage { tree: state.tree.clone() })
    }

    /// Everything on the disk, while its process continues.
    pub(crate) fn image_now(&self) -> DiskImage {
        DiskImage { tree: self.state().tree.clone() }
    }

    /// Permanently truncates the log by up to so many bytes, synced or not, while no process uses the
    /// disk; returns how many bytes were lost.
    pub(crate) fn lose_tail(&self, byte_count: u32) -> usize {
        self.unmounted(|state| rot::cut_log(&mut state.tree, byte_count))
    }

    /// Replaces everything on the disk, while no process uses it.
    pub(crate) fn restore(&self, image: DiskImage) {
        self.unmounted(|state| state.replace(image.tree));
    }

    /// Empties the disk, while no process has it.
    pub(crate) fn wipe(&self) {
        self.unmounted(|state| state.replace(Tree::default()));
    }

    /// Ends all active faults. Existing damage stays.
    pub(crate) fn heal(&self) {
        self.state().switches = Switches::default();
        self.shared.resumed.notify_waiters();
    }

    /// The effects of faults that the node could observe so far, and the number of operations.
    pub(crate) fn effects(&self) -> DiskEffects {
        self.state().effects
    }
}
