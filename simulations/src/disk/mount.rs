//! The simulated disk as one process of the node sees it.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use umbel_ports::{Disk, File, PortFuture, WriteError};

use super::SimDisk;
use super::state::{Pace, State};
use super::tree::Inode;

/// A process's handle of the disk, valid while the process lives.
#[derive(Clone)]
pub(super) struct Mount {
    disk: SimDisk,
    incarnation: u64,
}

impl Mount {
    pub(super) fn new(disk: SimDisk, incarnation: u64) -> Self {
        Self { disk, incarnation }
    }

    /// Waits for the duration of a call, and then for as long as the disk is stalled.
    async fn wait(&self, pace: Pace) -> io::Result<()> {
        let wait_ms = {
            let mut state = self.disk.state();
            state.check_alive(self.incarnation)?;
            state.owe(pace)
        };
        if wait_ms > 0 {
            tokio::time::sleep(Duration::from_millis(wait_ms)).await;
        }
        let mut is_counted = false;
        loop {
            // Created before the switch is read, so that no change of it is missed.
            let resumed = self.disk.shared.resumed.notified();
            {
                let mut state = self.disk.state();
                state.check_alive(self.incarnation)?;
                if !state.switches.is_stalled {
                    return Ok(());
                }
                if !std::mem::replace(&mut is_counted, true) {
                    state.effects.stalled_calls += 1;
                }
            }
            resumed.await;
        }
    }

    /// Makes a call: waits, then does the work in one step. If the future is dropped before, nothing was
    /// done.
    async fn call<T>(
        &self,
        pace: Pace,
        work: impl FnOnce(&mut State) -> io::Result<T>,
    ) -> io::Result<T> {
        self.wait(pace).await?;
        let mut state = self.disk.state();
        state.check_alive(self.incarnation)?;
        state.effects.calls += 1;
        work(&mut state)
    }
}

impl Disk for Mount {
    fn open<'a>(
        &'a self,
        path: &'a str,
        create: bool,
    ) -> PortFuture<'a, io::Result<Arc<dyn File>>> {
        Box::pin(async move {
            let pace = if create { Pace::Write } else { Pace::Read };
            let inode = self.call(pace, |state| state.open(path, create)).await?;
            Ok(Arc::new(OpenFile { mount: self.clone(), inode }) as Arc<dyn File>)
        })
    }

    fn list<'a>(&'a self, folder: &'a str) -> PortFuture<'a, io::Result<Vec<String>>> {
        Box::pin(self.call(Pace::Read, |state| state.tree.list(folder)))
    }

    fn make_folder<'a>(&'a self, folder: &'a str) -> PortFuture<'a, io::Result<()>> {
        Box::pin(self.call(Pace::Write, |state| state.make_folder(folder)))
    }

    fn rename<'a>(&'a self, from: &'a str, to: &'a str) -> PortFuture<'a, io::Result<()>> {
        Box::pin(self.call(Pace::Write, |state| state.rename(from, to)))
    }

    fn remove<'a>(&'a self, path: &'a str) -> PortFuture<'a, io::Result<()>> {
        Box::pin(self.call(Pace::Write, |state| state.remove(path)))
    }

    fn remove_folder<'a>(&'a self, folder: &'a str) -> PortFuture<'a, io::Result<()>> {
        Box::pin(self.call(Pace::Write, |state| state.tree.remove_folder(folder)))
    }

    fn sync_folder<'a>(&'a self, folder: &'a str) -> PortFuture<'a, io::Result<()>> {
        Box::pin(self.call(Pace::Sync, |state| state.sync_folder(folder)))
    }

    fn free_bytes(&self) -> PortFuture<'_, io::Result<u64>> {
        Box::pin(self.call(Pace::Read, |state| Ok(state.free_bytes())))
    }

    fn lock(&self) -> PortFuture<'_, io::Result<Box<dyn Send + Sync>>> {
        Box::pin(async move {
            self.call(Pace::Read, State::lock).await?;
            Ok(Box::new(Guard { mount: self.clone() }) as Box<dyn Send + Sync>)
        })
    }
}

/// The lock of the disk.
struct Guard {
    mount: Mount,
}

impl Drop for Guard {
    fn drop(&mut self) {
        let mut state = self.mount.disk.state();
        if state.is_alive(self.mount.incarnation) {
            state.unlock();
        }
    }
}

/// An open file.
struct OpenFile {
    mount: Mount,
    inode: Inode,
}

impl Drop for OpenFile {
    fn drop(&mut self) {
        let mut state = self.mount.disk.state();
        if state.is_alive(self.mount.incarnation) {
            state.tree.close(self.inode);
        }
    }
}

impl File for OpenFile {
    fn read_at(&self, offset: u64, byte_count: usize) -> PortFuture<'_, io::Result<Bytes>> {
        let read = move |state: &mut State| state.read(self.inode, offset, byte_count);
        Box::pin(self.mount.call(Pace::Read, read))
    }

    fn write_at(&self, offset: u64, bytes: Bytes) -> PortFuture<'_, io::Result<()>> {
        let write = move |state: &mut State| state.write(self.inode, offset, &bytes);
        Box::pin(self.mount.call(Pace::Write, write))
    }

    fn write_and_sync(&self, offset: u64, bytes: Bytes) -> PortFuture<'_, Result<(), WriteError>> {
        Box::pin(async move {
            self.write_at(offset, bytes).await.map_err(WriteError::Write)?;
            self.sync().await.map_err(WriteError::Sync)
        })
    }

    fn sync(&self) -> PortFuture<'_, io::Result<()>> {
        Box::pin(self.mount.call(Pace::Sync, |state| state.sync(self.inode)))
    }

    fn set_len(&self, byte_count: u64) -> PortFuture<'_, io::Result<()>> {
        let set_len = move |state: &mut State| state.set_len(self.inode, byte_count);
        Box::pin(self.mount.call(Pace::Write, set_len))
    }

    fn len(&self) -> PortFuture<'_, io::Result<u64>> {
        let len = |state: &mut State| Ok(state.tree.file(self.inode)?.len() as u64);
        Box::pin(self.mount.call(Pace::Read, len))
    }
}
