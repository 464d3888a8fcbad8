//! Why bytes are no valid file or payload of Redis.

use std::io;

use thiserror::Error;

use crate::limits::{STRING_BYTES_MAX, VERSION_MAX, VERSION_MIN};

/// Reading stopped at an offset: nothing after it was read, and nothing more can be. The caller must add
/// which file and which key it is about.
#[derive(Debug, Error)]
#[error("byte {offset}: {cause}")]
pub struct RdbError {
    /// The offset of the error in bytes, from the first one.
    pub offset: u64,
    /// The cause.
    pub cause: RdbCause,
}

/// Why reading stopped.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum RdbCause {
    /// The input cannot be read: try again, or check the disk.
    #[error("cannot read it: {0}")]
    Io(io::Error),
    /// The file does not begin like one of Redis: it is another kind of file.
    #[error("not a Redis database file, which begins with REDIS and a version of four digits")]
    Magic,
    /// The version is too new: let an older server write the file.
    #[error("version {0}, expected {VERSION_MIN} to {VERSION_MAX}")]
    Version(u32),
    /// The input ends too early: the file was truncated.
    #[error("it ends early")]
    EndsEarly,
    /// A byte in the place of a type or an opcode is neither.
    #[error("{0} is no type of a value and no opcode that is known")]
    Opcode(u8),
    /// A length in no known form.
    #[error("byte {0} begins no length")]
    Length(u8),
    /// A string is longer than the reader holds in memory.
    #[error("a string of {0} bytes, where {STRING_BYTES_MAX} are the most")]
    TooLong(u64),
    /// A string compressed with LZF does not decompress to its stated length.
    #[error("packed text: {0}")]
    Packed(&'static str),
    /// A container in a string is malformed.
    #[error("{container}: {what}")]
    Container {
        /// The kind of container.
        container: &'static str,
        /// What is wrong.
        what: &'static str,
    },
    /// A module's value has a part of another type than expected.
    #[error("the value of a module has part {got}, expected {expected}")]
    Module {
        /// The type of the part.
        got: u64,
        /// The expected type.
        expected: u64,
    },
    /// The checksum at the end does not match: the file is damaged.
    #[error("checksum {stored:016x}, expected {computed:016x}: it is damaged")]
    Checksum {
        /// The checksum in the file.
        stored: u64,
        /// The checksum of its bytes.
        computed: u64,
    },
    /// The requested value is not here: it has another type, or was read already. A mistake of the
    /// caller.
    #[error("no such value here")]
    NoValue,
}

impl RdbCause {
    pub(crate) const fn at(self, offset: u64) -> RdbError {
        RdbError { offset, cause: self }
    }
}
