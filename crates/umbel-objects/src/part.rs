//! The part of an output that is being filled: short ones in memory, longer ones in an unnamed scratch file.
//!
//! A part can be sent only when it is complete, because its hash is signed and it may have to be sent again.
//! It waits here, and the memory used does not grow with its length.

use crate::error::ObjectError;
use ring::digest;
use std::fs::File;
use std::io::{self, Seek, Write};
use std::path::{Path, PathBuf};
use umbel_filter::Hex;

/// Bytes of a part in memory before they go to the scratch file: as many as a reader holds, and enough for
/// one write.
const MEMORY_BYTES: usize = 256 << 10;

/// Length of the first parts: 16 MiB, because a store takes some 50 ms a request besides the transfer, a
/// fifth of the time at 80 MB/s. Parts of this length alone suffice for 80 GB on stores that require equal
/// lengths.
const FIRST_PART_BYTES: u64 = 16 << 20;

/// Number of parts that have the first length.
const FIRST_PARTS: u64 = 5000;

/// After them, the length doubles every so many parts.
const DOUBLING_PARTS: u64 = 500;

/// The longest part: 4 GiB, a power of two below the 5 GiB that S3 allows.
const LAST_PART_BYTES: u64 = 4 << 30;

/// Most parts of an object, by the limits of S3.
pub(crate) const PARTS_MAX: u64 = 10_000;

/// Length of a part by its number, from 0: all parts together hold the longest object, 5 TiB.
pub(crate) fn part_bytes(number: u64) -> u64 {
    let doublings = (number.saturating_sub(FIRST_PARTS - DOUBLING_PARTS)) / DOUBLING_PARTS;
    FIRST_PART_BYTES.checked_shl(u32::try_from(doublings).unwrap_or(u32::MAX)).map_or(
        LAST_PART_BYTES,
        // If bits were shifted out, the length is smaller than the first one.
        |bytes| if bytes < FIRST_PART_BYTES { LAST_PART_BYTES } else { bytes.min(LAST_PART_BYTES) },
    )
}

/// The bytes of the part that is being filled.
pub(crate) struct PartBuffer {
    directory: PathBuf,
    /// The bytes that are not in the file.
    memory: Vec<u8>,
    /// Created when it is first needed, then used for each part.
    file: Option<File>,
    file_bytes: u64,
    hash: digest::Context,
}

impl PartBuffer {
    /// An empty part; its scratch file, if needed, is created in this directory.
    pub(crate) fn new(directory: &Path) -> Self {
        let hash = digest::Context::new(&digest::SHA256);
        let directory = directory.to_owned();
        Self { directory, memory: Vec::new(), file: None, file_bytes: 0, hash }
    }

    /// Bytes so far.
    pub(crate) fn bytes(&self) -> u64 {
        self.file_bytes + self.memory.len() as u64
    }

    /// Appends bytes.
    pub(crate) fn add(&mut self, bytes: &[u8]) -> Result<(), ObjectError> {
        if self.memory.len() + bytes.len() > MEMORY_BYTES {
            self.spill()?;
            if bytes.len() >= MEMORY_BYTES {
                return self.spill_bytes(bytes);
            }
        }
        self.memory.extend_from_slice(bytes);
        Ok(())
    }

    fn spill(&mut self) -> Result<(), ObjectError> {
        let memory = std::mem::take(&mut self.memory);
        self.spill_bytes(&memory)?;
        self.memory = memory;
        self.memory.clear();
        Ok(())
    }

    fn spill_bytes(&mut self, bytes: &[u8]) -> Result<(), ObjectError> {
        let written = self.file().and_then(|file| file.write_all(bytes));
        written.map_err(|error| self.explain(error))?;
        self.hash.update(bytes);
        self.file_bytes += bytes.len() as u64;
        Ok(())
    }

    fn file(&mut self) -> io::Result<&mut File> {
        if self.file.is_none() {
            self.file = Some(tempfile::tempfile_in(&self.directory)?);
        }
        Ok(self.file.as_mut().expect("just made"))
    }

    fn explain(&self, error: io::Error) -> ObjectError {
        ObjectError::Scratch { directory: self.directory.display().to_string(), error }
    }

    /// The bytes, if all of them are in memory.
    pub(crate) fn in_memory(&self) -> Option<&[u8]> {
        (self.file_bytes == 0).then_some(&self.memory[..])
    }

    /// Completes the part: from now on it is only read. Returns its SHA-256 in hexadecimal digits.
    pub(crate) fn seal(&mut self) -> Result<String, ObjectError> {
        if self.file_bytes > 0 {
            self.spill()?;
        } else {
            self.hash.update(&self.memory);
        }
        let hash = std::mem::replace(&mut self.hash, digest::Context::new(&digest::SHA256));
        Ok(Hex(hash.finish().as_ref()).to_string())
    }

    /// The file of a sealed part, rewound to its start; `None` if the part is in memory.
    pub(crate) fn rewound(&mut self) -> Result<Option<&File>, ObjectError> {
        if self.file_bytes == 0 {
            return Ok(None);
        }
        let rewound = self.file().and_then(Seek::rewind);
        rewound.map_err(|error| self.explain(error))?;
        Ok(self.file.as_ref())
    }

    /// Empties the buffer for the next part.
    pub(crate) fn clear(&mut self) -> Result<(), ObjectError> {
        self.memory.clear();
        self.file_bytes = 0;
        if let Some(file) = &mut self.file {
            let emptied = file.set_len(0).and_then(|()| file.rewind());
            emptied.map_err(|error| self.explain(error))?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Read;

    #[test]
    fn parts_hold_the_longest_object() {
        let lengths: Vec<u64> = (0..PARTS_MAX).map(part_bytes).collect();
        assert!(lengths.iter().sum::<u64>() >= 5 << 40);
        assert!(lengths.is_sorted());
        assert_eq!((lengths[0], lengths[4999], lengths[5000]), (16 << 20, 16 << 20, 32 << 20));
        assert_eq!((lengths[5499], lengths[5500]), (32 << 20, 64 << 20));
        assert_eq!(lengths[9999], 4 << 30);
        assert_eq!(part_bytes(u64::MAX), 4 << 30);
    }

    #[test]
    fn parts_of_any_length_come_back_with_their_hash() {
        let directory = tempfile::tempdir().unwrap();
        let mut part = PartBuffer::new(directory.path());
        for length in [0, 1, MEMORY_BYTES - 1, MEMORY_BYTES, MEMORY_BYTES + 1, 3 * MEMORY_BYTES, 5]
        {
            let bytes: Vec<u8> = (0..=250).cycle().take(length).collect();
            bytes.chunks(100_000).for_each(|piece| part.add(piece).unwrap());
            assert_eq!(part.bytes(), length as u64);
            let hash = part.seal().unwrap();
            assert_eq!(hash, Hex(digest::digest(&digest::SHA256, &bytes).as_ref()).to_string());
            for _ in 0..2 {
                let mut read = Vec::new();
                match part.rewound().unwrap() {
                    Some(mut file) => drop(file.read_to_end(&mut read).unwrap()),
                    None => read.extend_from_slice(part.in_memory().unwrap()),
                }
                assert!(read == bytes, "{length}");
            }
            part.clear().unwrap();
        }
        assert_eq!(std::fs::read_dir(&directory).unwrap().count(), 0);
    }
}
