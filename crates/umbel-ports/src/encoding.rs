//! The encoding of data that only nodes read: log entries, votes, calls between nodes, snapshot heads.
//! Only this module uses bincode, behind a version byte, so that another encoding can replace it.

use bytes::Bytes;
use serde::Serialize;
use serde::de::DeserializeOwned;
use thiserror::Error;

mod metered;

use metered::Memory;

/// First byte of every encoded value: bincode 2 with fixed-width little-endian numbers.
const VERSION: u8 = 1;

/// Most bytes that a decoder accepts: the size of the largest record of the log.
pub const ENCODED_BYTES_MAX: usize = 64 << 20;

/// Memory that the elements of a value's lists and maps may take for each of its bytes. Of lists that may be long, those
/// of removed nodes in the catalogue take the most, 56 bytes for 12; lists of empty lists take 24 for 8, and other records
/// two or three for each. Lists whose elements may take more have few of them: see [`MEMORY_BYTES_FREE`].
const MEMORY_BYTES_PER_BYTE: usize = 6;

/// Memory that the elements of any value may take, however short it is: four times as much as an append of 64 entries
/// takes, the most that Raft sends at once; an empty entry has 28 bytes and takes 208. What earlier builds say of a
/// replica that has neither voted nor got an entry takes 64 for 6; of 1,025 groups, that fits with the share for its bytes.
/// No more, because a link may have thousands of calls in progress.
const MEMORY_BYTES_FREE: usize = 64 << 10;

/// Why bytes could not be decoded. The sender or writer uses another version, or the bytes are damaged.
#[derive(Debug, Error)]
pub enum DecodeError {
    /// The encodings differ: bring both sides to one release.
    #[error("encoded by version {got}, expected {VERSION}")]
    Version {
        /// The first byte.
        got: u8,
    },
    /// The input is empty.
    #[error("no bytes, expected at least the version")]
    Empty,
    /// The bytes are not a valid value of the type.
    #[error("{0}")]
    Invalid(String),
    /// Bytes remain after the value.
    #[error("{left} bytes left over behind the value")]
    Trailing {
        /// How many.
        left: usize,
    },
}

/// Encodes a value.
///
/// # Panics
/// If the type cannot be serialized; the types of calls, logs and journals can.
pub fn encode<T: Serialize>(value: &T) -> Bytes {
    let mut bytes = vec![VERSION];
    bincode::serde::encode_into_std_write(value, &mut bytes, bincode::config::legacy())
        .expect("a Vec takes all bytes, and every type that is encoded here can be");
    bytes.into()
}

/// Decodes a value, which must take up all of the bytes. Its lists and maps take at most some times as much memory as
/// there are bytes.
///
/// # Errors
/// See [`DecodeError`].
pub fn decode<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, DecodeError> {
    match decode_head(bytes)? {
        (value, 0) => Ok(value),
        (_, left) => Err(DecodeError::Trailing { left }),
    }
}

/// As [`decode`], but of a value that more bytes may follow; returns how many do, too.
///
/// # Errors
/// See [`DecodeError`].
pub fn decode_head<T: DeserializeOwned>(bytes: &[u8]) -> Result<(T, usize), DecodeError> {
    let (&version, body) = bytes.split_first().ok_or(DecodeError::Empty)?;
    if version != VERSION {
        return Err(DecodeError::Version { got: version });
    }
    // This limit counts the bytes that are read; the memory that values take is counted by the seed.
    let config = bincode::config::legacy().with_limit::<ENCODED_BYTES_MAX>();
    let memory = Memory::new(MEMORY_BYTES_FREE + MEMORY_BYTES_PER_BYTE * bytes.len());
    let (value, used) = bincode::serde::seed_decode_from_slice(memory.seed::<T>(), body, config)
        .map_err(|error| DecodeError::Invalid(error.to_string()))?;
    Ok((value, body.len() - used))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_are_for_ever() {
        // Little-endian, eight bytes of length before the text.
        let bytes = encode(&(7u16, "ab"));
        assert_eq!(&bytes[..], [1, 7, 0, 2, 0, 0, 0, 0, 0, 0, 0, b'a', b'b']);
        assert_eq!(decode::<(u16, String)>(&bytes).unwrap(), (7, "ab".to_owned()));
    }

    #[test]
    fn what_is_no_value_is_refused() {
        assert!(matches!(decode::<u16>(&[]), Err(DecodeError::Empty)));
        assert!(matches!(decode::<u16>(&[2, 0, 0]), Err(DecodeError::Version { got: 2 })));
        assert!(matches!(decode::<u16>(&[1, 0]), Err(DecodeError::Invalid(_))));
        assert!(matches!(decode::<u16>(&[1, 0, 0, 9]), Err(DecodeError::Trailing { left: 1 })));
        assert!(matches!(decode_head::<u16>(&[1, 7, 0, 9]), Ok((7, 1))));
        // A length of 2^60 allocates nothing.
        let huge = [1, 0, 0, 0, 0, 0, 0, 0, 16];
        assert!(matches!(decode::<Vec<u8>>(&huge), Err(DecodeError::Invalid(_))));
    }
}
