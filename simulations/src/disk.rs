//! The simulated disk of a node: it keeps what was synced, and loses, damages or refuses the rest as it
//! is told.
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
use umbel_node::ports;

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

/// Bytes that must be free for a job's data to be written, of which only marks and figures are modelled.
const ROOM_BYTES: u64 = 64 << 10;

/// The disk of one node. It outlives the node's crashes; clones are the same disk.
#[derive(Clone)]
pub(crate) struct SimDisk {
    shared: Arc<Shared>,
}

struct Shared {
    state: Mutex<State>,
    /// Told when calls that stand still may go on, or learn that they are dead.
    resumed: Notify,
}

/// All that was on a disk, durable or not.
#[derive(Clone)]
pub(crate) struct DiskImage {
    tree: Tree,
}

impl SimDisk {
    /// An empty disk. Latencies, what power losses leave, and which bits rot follow from the seed and
    /// from the calls that are made.
    pub(crate) fn new(seed: u64) -> Self {
        let state = Mutex::new(State::new(seed));
        Self { shared: Arc::new(Shared { state, resumed: Notify::new() }) }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        // Whoever panicked has failed the run already.
        self.shared.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Changes the disk while no node has it; a node that still has it loses it.
    fn unmounted<T>(&self, change: impl FnOnce(&mut State) -> T) -> T {
        let result = {
            let mut state = self.state();
            state.unmount();
            change(&mut state)
        };
        self.shared.resumed.notify_waiters();
        result
    }

    /// Gives the disk to a new process of the node. All that a former one holds of it is dead: its
    /// calls fail, or stand still as long as the disk does.
    pub(crate) fn mount(&self) -> Arc<dyn ports::Disk> {
        let incarnation = self.unmounted(State::mount);
        Arc::new(mount::Mount::new(self.clone(), incarnation))
    }

    /// The process is killed: its open files and its lock are gone, and what it wrote stays.
    pub(crate) fn crash(&self) {
        self.unmounted(|_| ());
    }

    /// The power fails, which kills the process as well: what is not durable survives as `mode` says,
    /// and of the changes of names the first few.
    pub(crate) fn power_loss(&self, mode: LossMode) -> Loss {
        self.unmounted(|state| state.power_loss(mode))
    }

    /// How many times as long calls take as usual; 1 is usual.
    pub(crate) fn set_slow(&self, factor: u32) {
        self.state().switches.slow_factor = factor.max(1);
    }

    /// Whether calls stand still. They go on when this is false again.
    pub(crate) fn set_stalled(&self, is_stalled: bool) {
        self.state().switches.is_stalled = is_stalled;
        self.shared.resumed.notify_waiters();
    }

    /// Whether reads of files fail.
    pub(crate) fn set_reads_fail(&self, fail: bool) {
        self.state().switches.reads_fail = fail;
    }

    /// Whether writes and changes of lengths fail. A part of the write may have been done.
    pub(crate) fn set_writes_fail(&self, fail: bool) {
        self.state().switches.writes_fail = fail;
    }

    /// The next sync of a file fails, and what it should have made durable is lost at the next power
    /// loss, although later syncs succeed.
    pub(crate) fn fail_next_sync(&self) {
        self.state().switches.next_sync_fails = true;
    }

    /// How many bytes files may still grow; None for as much as anyone wants. With none left there is
    /// no room for new names either. What is cut or removed makes room.
    pub(crate) fn set_full(&self, free_bytes: Option<u64>) {
        self.state().switches.free_bytes = free_bytes;
    }

    /// How many times as long calls take as usual.
    pub(crate) fn slow_factor(&self) -> u32 {
        self.state().switches.slow_factor
    }

    /// Whether there is room, and writes do not fail.
    pub(crate) fn takes_writes(&self) -> bool {
        let state = self.state();
        !state.switches.writes_fail
            && state.switches.free_bytes.is_none_or(|free| free >= ROOM_BYTES)
    }

    /// The next write lands elsewhere in its file. It is put right if the process ends before a later
    /// write to that file is durable, for a log could not tell it from a torn end.
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

    /// All that is on the disk, while no process has it.
    pub(crate) fn image(&self) -> DiskImage {
        self.unmounted(|state| DiskImage { tree: state.tree.clone() })
    }

    /// All that is on the disk, of a process that goes on.
    pub(crate) fn image_now(&self) -> DiskImage {
        DiskImage { tree: self.state().tree.clone() }
    }

    /// The log loses so many bytes at its end for good, synced or not, while no process has the disk;
    /// says how many it lost.
    pub(crate) fn lose_tail(&self, byte_count: u32) -> usize {
        self.unmounted(|state| rot::cut_log(&mut state.tree, byte_count))
    }

    /// Replaces all that is on the disk, while no process has it.
    pub(crate) fn restore(&self, image: DiskImage) {
        self.unmounted(|state| state.replace(image.tree));
    }

    /// Empties the disk, while no process has it.
    pub(crate) fn wipe(&self) {
        self.unmounted(|state| state.replace(Tree::default()));
    }

    /// Ends all faults that last. Damage that was done stays.
    pub(crate) fn heal(&self) {
        self.state().switches = Switches::default();
        self.shared.resumed.notify_waiters();
    }

    /// What the node could see of faults so far, and how much it did.
    pub(crate) fn effects(&self) -> DiskEffects {
        self.state().effects
    }
}
