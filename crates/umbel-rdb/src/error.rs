//! Why bytes are no file or payload of Redis.

use std::io;

use thiserror::Error;

use crate::limits::{STRING_BYTES_MAX, VERSION_MAX, VERSION_MIN};

/// Reading stopped: nothing behind this place was read, and nothing more can be. The caller knows which file and
/// which key it is.
#[derive(Debug, Error)]
#[error("byte {offset}: {cause}")]
pub struct RdbError {
    /// Where, in bytes from the first one.
    pub offset: u64,
    /// Why.
    pub cause: RdbCause,
}

/// Why reading stopped.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum RdbCause {
    /// The bytes cannot be read. Try again, or look after the disk.
    #[error("cannot read it: {0}")]
    Io(io::Error),
    /// The file does not begin as one of Redis. Another file is meant.
    #[error("not a Redis database file, which begins with REDIS and a version of four digits")]
    Magic,
    /// The version is too new. Have an older server write it.
    #[error("version {0}, expected {VERSION_MIN} to {VERSION_MAX}")]
    Version(u32),
    /// The bytes end here. The file was cut.
    #[error("it ends early")]
    EndsEarly,
    /// A byte stands where a type or an opcode does, and is none that is known.
    #[error("{0} is no type of a value and no opcode that is known")]
    Opcode(u8),
    /// A length has none of its forms.
    #[error("byte {0} begins no length")]
    Length(u8),
    /// A string is longer than what is held in memory.
    #[error("a string of {0} bytes, where {STRING_BYTES_MAX} are the most")]
    TooLong(u64),
    /// A string that is packed with LZF does not unpack to what it says.
    #[error("packed text: {0}")]
    Packed(&'static str),
    /// A container within a string is not what it says to be.
    #[error("{container}: {what}")]
    Container {
        /// Which container.
        container: &'static str,
        /// What is wrong.
        what: &'static str,
    },
    /// A module's value goes on in another way than expected.
    #[error("the value of a module has part {got}, expected {expected}")]
    Module {
        /// What is there.
        got: u64,
        /// What should be.
        expected: u64,
    },
    /// The checksum at the end is not that of the bytes. The file is damaged.
    #[error("checksum {stored:016x}, expected {computed:016x}: it is damaged")]
    Checksum {
        /// What the file says.
        stored: u64,
        /// What its bytes give.
        computed: u64,
    },
    /// The value that was asked for is not there: another type, or it was read before. A mistake of the caller.
    #[error("no such value here")]
    NoValue,
}

impl RdbCause {
    pub(crate) const fn at(self, offset: u64) -> RdbError {
        RdbError { offset, cause: self }
    }
}
