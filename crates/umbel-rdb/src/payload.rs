//! Payloads of `DUMP` and `RESTORE`: one value with a footer.
//!
//! ```text
//! type, value │ version │ CRC-64 of all before │     2 and 8 bytes, little-endian
//! ```
//!
//! Source: `src/cluster.c` (`createDumpPayload`, `verifyDumpPayload`) of Redis 7.

use std::io::Read;

use crc_fast::{CrcAlgorithm, checksum};
use thiserror::Error;

use crate::error::{RdbCause, RdbError};
use crate::input::Input;
use crate::limits::VERSION_MAX;
use crate::module::{ModuleId, ModuleReader, PART_DOUBLE, PART_END, PART_STRING, PART_UNSIGNED};

/// Length of the version in bytes.
const VERSION_BYTES: usize = 2;

/// Length of the checksum in bytes.
const CHECKSUM_BYTES: usize = 8;

/// The type of a module's value.
const TYPE_MODULE: u8 = 7;

/// The version of payloads that are written; Redis 5 and newer accept it.
const WRITTEN_VERSION: u16 = 9;

/// Length of the longest encoded length, in bytes.
const LENGTH_BYTES_MAX: usize = 9;

/// The payload is truncated, damaged, or from a server that is too new. Nothing of it was read.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Error)]
#[error("payload version or checksum are wrong")]
pub struct NoPayload;

/// Checks a payload's version and checksum, and returns its value.
///
/// # Errors
/// If either is wrong.
pub fn checked_payload(payload: &[u8]) -> Result<&[u8], NoPayload> {
    let (summed, stored) = payload.split_last_chunk::<CHECKSUM_BYTES>().ok_or(NoPayload)?;
    let (value, version) = summed.split_last_chunk::<VERSION_BYTES>().ok_or(NoPayload)?;
    let is_known = u32::from(u16::from_le_bytes(*version)) <= VERSION_MAX;
    let is_whole = checksum(CrcAlgorithm::Crc64Redis, summed) == u64::from_le_bytes(*stored);
    if is_known && is_whole { Ok(value) } else { Err(NoPayload) }
}

/// Reads a module's value that [`checked_payload`] returned. `read` must read all parts.
///
/// # Errors
/// If `read` fails; if the value is of another type, damaged, or not read to its end.
pub fn read_module_value<'v, T, E: From<RdbError>>(
    value: &'v [u8],
    read: impl FnOnce(ModuleId, &mut ModuleReader<'_, &'v [u8]>) -> Result<T, E>,
) -> Result<T, E> {
    let mut input = Input::new(value);
    let type_byte = input.byte()?;
    if type_byte != TYPE_MODULE {
        return Err(RdbCause::Opcode(type_byte).at(0).into());
    }
    let id = ModuleId(input.length()?);
    let mut module = ModuleReader::new(&mut input);
    let read = read(id, &mut module)?;
    module.end()?;
    if input.offset() < value.len() as u64 {
        return Err(input.error(RdbCause::NoValue).into());
    }
    Ok(read)
}

/// Writes a module's value as a payload.
///
/// ```
/// use umbel_rdb::{ModuleId, PayloadWriter, checked_payload, read_module_value};
///
/// let mut writer = PayloadWriter::new(ModuleId::new(b"MBbloom--", 4));
/// writer.unsigned(7);
/// let payload = writer.finish();
/// let value = checked_payload(&payload)?;
/// let number = read_module_value(value, |_, module| module.unsigned())?;
/// assert_eq!(number, 7);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug)]
pub struct PayloadWriter {
    bytes: Vec<u8>,
}

impl PayloadWriter {
    /// Begins the value.
    #[must_use]
    pub fn new(id: ModuleId) -> Self {
        let mut writer = Self { bytes: vec![TYPE_MODULE] };
        writer.length(id.0);
        writer
    }

    /// Adds an unsigned number.
    pub fn unsigned(&mut self, number: u64) {
        self.length(PART_UNSIGNED);
        self.length(number);
    }

    /// Adds a double.
    pub fn double(&mut self, number: f64) {
        self.length(PART_DOUBLE);
        self.bytes.extend(number.to_le_bytes());
    }

    /// Begins a string of this many bytes, which [`bytes`](Self::bytes) adds.
    pub fn string(&mut self, byte_count: u64) {
        self.length(PART_STRING);
        self.length(byte_count);
    }

    /// Adds bytes of the current string.
    pub fn bytes(&mut self, bytes: &[u8]) {
        self.bytes.extend_from_slice(bytes);
    }

    /// Ends the value, and adds the version and the checksum.
    #[must_use]
    pub fn finish(mut self) -> Vec<u8> {
        self.length(PART_END);
        self.bytes.extend(WRITTEN_VERSION.to_le_bytes());
        let sum = checksum(CrcAlgorithm::Crc64Redis, &self.bytes);
        self.bytes.extend(sum.to_le_bytes());
        self.bytes
    }

    /// Adds a length in its shortest form, as Redis does.
    fn length(&mut self, length: u64) {
        let big_endian = length.to_be_bytes();
        let [.., third, second, first] = big_endian;
        self.bytes.reserve(LENGTH_BYTES_MAX);
        match length {
            0..=0x3f => self.bytes.push(first),
            0x40..=0x3fff => self.bytes.extend([second | 0x40, first]),
            0x4000..=0xffff_ffff => {
                let [_, _, _, _, fourth, ..] = big_endian;
                self.bytes.extend([0x80, fourth, third, second, first]);
            }
            _ => {
                self.bytes.push(0x81);
                self.bytes.extend(big_endian);
            }
        }
    }
}

impl<R: Read> std::fmt::Debug for ModuleReader<'_, R> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "ModuleReader at byte {}", self.offset())
    }
}
