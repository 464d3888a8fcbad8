//! Scratch disk: an unnamed file to which many threads append, and groups of bytes that overflow into it.

use super::segments::SegmentFile;
use crate::error::{Context, Result};
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock};

/// An unnamed scratch file, created when it is first used. The system removes it when the process ends, for whatever
/// reason.
pub(crate) struct ScratchFile {
    directory: PathBuf,
    file: OnceLock<File>,
    creation: Mutex<()>,
    length: AtomicU64,
}

impl ScratchFile {
    /// A scratch file in this directory.
    pub(crate) fn new(directory: &Path) -> Self {
        let (file, creation) = (OnceLock::new(), Mutex::new(()));
        Self { directory: directory.to_owned(), file, creation, length: AtomicU64::new(0) }
    }

    fn file(&self) -> Result<&File> {
        if let Some(file) = self.file.get() {
            return Ok(file);
        }
        let _guard = self.creation.lock().expect("no thread panics while it holds the lock");
        if self.file.get().is_none() {
            let file = tempfile::tempfile_in(&self.directory).with_context(|| {
                format!("cannot create a scratch file in {}", self.directory.display())
            })?;
            let _ = self.file.set(file);
        }
        Ok(self.file.get().expect("just set"))
    }

    /// Bytes written so far.
    pub(crate) fn bytes(&self) -> u64 {
        self.length.load(Ordering::Relaxed)
    }
}

impl SegmentFile for ScratchFile {
    fn append(&self, bytes: &[u8]) -> Result<u64> {
        let offset = self.length.fetch_add(bytes.len() as u64, Ordering::Relaxed);
        self.file()?.write_all_at(bytes, offset).with_context(|| {
            let (path, length) = (self.directory.display(), bytes.len());
            format!("scratch file in {path}: cannot write {length} bytes at {offset}; --scratch names another directory")
        })?;
        Ok(offset)
    }

    fn read(&self, offset: u64, buffer: &mut [u8]) -> Result<()> {
        let length = buffer.len();
        self.file()?.read_exact_at(buffer, offset).with_context(|| {
            format!(
                "scratch file in {}: cannot read {length} bytes at {offset}",
                self.directory.display()
            )
        })
    }

    fn name(&self) -> String {
        format!("scratch file in {}", self.directory.display())
    }
}

/// Bytes of a group that a writer buffers.
const GROUP_BUFFER_BYTES: usize = 32 << 10;

/// The least size of such a buffer, if there are so many groups that the buffers would take too much memory.
const GROUP_BUFFER_BYTES_MIN: u64 = 512;

/// The size of a writer's buffer for one group, so that the buffers of all writers fit into the given memory.
pub(crate) fn buffer_bytes(gathered_bytes: u64, writers: usize, groups: usize) -> usize {
    let each = gathered_bytes / (writers as u64 * groups as u64).max(1);
    let most = GROUP_BUFFER_BYTES as u64;
    usize::try_from(each.clamp(GROUP_BUFFER_BYTES_MIN, most)).expect("at most 32 KiB")
}

/// Numbered groups of bytes. Many threads append; groups are read one by one.
pub(crate) struct GroupedBytes {
    groups: Vec<Mutex<Group>>,
    resident_bytes_max: u64,
    resident_bytes: AtomicU64,
    buffer_bytes: usize,
    scratch: Arc<ScratchFile>,
}

#[derive(Default)]
struct Group {
    memory: Vec<Vec<u8>>,
    disk: Vec<(u64, usize)>,
}

impl GroupedBytes {
    /// Empty groups, which may take this much memory before they go to disk.
    pub(crate) fn new(groups: usize, resident_bytes_max: u64, scratch: Arc<ScratchFile>) -> Self {
        let groups = (0..groups).map(|_| Mutex::default()).collect();
        let (resident_bytes, buffer_bytes) = (AtomicU64::new(0), GROUP_BUFFER_BYTES);
        Self { groups, resident_bytes_max, resident_bytes, buffer_bytes, scratch }
    }

    /// Sets the size of each writer's buffer for each group.
    pub(crate) fn with_buffers(self, buffer_bytes: usize) -> Self {
        Self { buffer_bytes, ..self }
    }

    /// How many groups there are.
    pub(crate) fn group_count(&self) -> usize {
        self.groups.len()
    }

    fn push(&self, group: usize, bytes: Vec<u8>) -> Result<()> {
        let length = bytes.len() as u64;
        let resident = self.resident_bytes.fetch_add(length, Ordering::Relaxed) + length;
        let lock = || self.groups[group].lock().expect("no thread panics while it holds the lock");
        if resident <= self.resident_bytes_max {
            lock().memory.push(bytes);
        } else {
            self.resident_bytes.fetch_sub(length, Ordering::Relaxed);
            let offset = self.scratch.append(&bytes)?;
            lock().disk.push((offset, bytes.len()));
        }
        Ok(())
    }

    /// Takes a group's bytes: the appended pieces, in no particular order.
    pub(crate) fn take(&self, group: usize) -> Result<Vec<u8>> {
        let mut group =
            self.groups[group].lock().expect("no thread panics while it holds the lock");
        let taken = std::mem::take(&mut *group);
        drop(group);
        let in_memory: usize = taken.memory.iter().map(Vec::len).sum();
        self.resident_bytes.fetch_sub(in_memory as u64, Ordering::Relaxed);
        self.gather(&taken)
    }

    /// As [`GroupedBytes::take`], but leaves the group to be read again.
    pub(crate) fn read(&self, group: usize) -> Result<Vec<u8>> {
        let group = self.groups[group].lock().expect("no thread panics while it holds the lock");
        self.gather(&group)
    }

    fn gather(&self, Group { memory, disk }: &Group) -> Result<Vec<u8>> {
        let in_memory: usize = memory.iter().map(Vec::len).sum();
        let on_disk: usize = disk.iter().map(|(_, length)| length).sum();
        let mut bytes = Vec::with_capacity(in_memory + on_disk);
        memory.iter().for_each(|piece| bytes.extend_from_slice(piece));
        for (offset, length) in disk {
            let start = bytes.len();
            bytes.resize(start + length, 0);
            self.scratch.read(*offset, &mut bytes[start..])?;
        }
        Ok(bytes)
    }
}

/// Appends to the groups for one thread, with a buffer per group.
pub(crate) struct GroupWriter<'a> {
    store: &'a GroupedBytes,
    buffers: Vec<Vec<u8>>,
}

impl<'a> GroupWriter<'a> {
    /// A writer with empty buffers.
    pub(crate) fn new(store: &'a GroupedBytes) -> Self {
        Self { store, buffers: vec![Vec::new(); store.groups.len()] }
    }

    /// Appends one piece, which `write` writes, to a group.
    pub(crate) fn append(&mut self, group: usize, write: impl FnOnce(&mut Vec<u8>)) -> Result<()> {
        let buffer = &mut self.buffers[group];
        write(buffer);
        if buffer.len() >= self.store.buffer_bytes {
            self.store.push(group, std::mem::take(buffer))?;
        }
        Ok(())
    }

    /// Writes the buffered pieces.
    pub(crate) fn finish(self) -> Result<()> {
        let left = self.buffers.into_iter().enumerate().filter(|(_, buffer)| !buffer.is_empty());
        left.into_iter().try_for_each(|(group, buffer)| self.store.push(group, buffer))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buffers_of_all_groups_take_what_they_may() {
        for (gathered, writers, groups, bytes) in [
            (8 << 20, 2, 16, 32 << 10),
            (8 << 20, 2, 128, 32 << 10),
            (8 << 20, 2, 4_096, 1_024),
            (8 << 20, 2, 1 << 20, 512),
            (8 << 20, 1, 0, 32 << 10),
        ] {
            assert_eq!(buffer_bytes(gathered, writers, groups), bytes, "{writers} × {groups}");
        }
    }

    #[test]
    fn groups_come_back_whole_from_memory_and_disk() {
        for resident_bytes_max in [0, 40_000, u64::MAX] {
            let scratch = Arc::new(ScratchFile::new(&std::env::temp_dir()));
            let store = GroupedBytes::new(3, resident_bytes_max, Arc::clone(&scratch));
            let mut writer = GroupWriter::new(&store);
            for number in 0..60_000u32 {
                let piece = number.to_le_bytes();
                writer.append(number as usize % 3, |buffer| buffer.extend(piece)).unwrap();
            }
            writer.finish().unwrap();
            for group in 0..3 {
                let bytes = store.take(group).unwrap();
                let mut numbers: Vec<u32> =
                    bytes.as_chunks::<4>().0.iter().map(|b| u32::from_le_bytes(*b)).collect();
                numbers.sort_unstable();
                let expected: Vec<u32> = (0..60_000).filter(|n| *n as usize % 3 == group).collect();
                assert_eq!(numbers, expected);
            }
            assert_eq!(scratch.bytes() > 0, resident_bytes_max < u64::MAX);
        }
    }
}
