//! A short digest that shows whether two readings saw the same content.
//!
//! Job phases read their input twice; in between, a file may be appended to, truncated or replaced.
//! Length and CRC-32C (Castagnoli, as in iSCSI, RFC 3720) of the delivered bytes detect that at memory
//! speed. They do not protect against intentional changes.

use crc_fast::{CrcAlgorithm, Digest};

/// Length and CRC-32C of content. Equal for two readings of the same content, whatever the block
/// sizes.
///
/// ```
/// use umbel_records::ContentDigest;
///
/// let whole = ContentDigest::of(b"123456789");
/// assert_eq!((whole.bytes, whole.crc32c), (9, 0xe306_9283)); // the check value of CRC-32C
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct ContentDigest {
    /// Number of content bytes.
    pub bytes: u64,
    /// CRC-32C of them; 0 if there are none.
    pub crc32c: u32,
}

impl ContentDigest {
    /// The digest of `content`.
    pub fn of(content: &[u8]) -> Self {
        let mut running = RunningDigest::new();
        running.update(content);
        running.value()
    }
}

/// A digest of content that is added in pieces.
#[derive(Debug)]
pub(crate) struct RunningDigest {
    bytes: u64,
    crc: Digest,
}

impl RunningDigest {
    pub(crate) fn new() -> Self {
        Self { bytes: 0, crc: Digest::new(CrcAlgorithm::Crc32Iscsi) }
    }

    pub(crate) fn update(&mut self, piece: &[u8]) {
        self.bytes += piece.len() as u64;
        self.crc.update(piece);
    }

    pub(crate) fn value(&self) -> ContentDigest {
        let crc32c = u32::try_from(self.crc.finalize()).expect("a CRC-32 has 32 bits");
        ContentDigest { bytes: self.bytes, crc32c }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_do_not_matter() {
        let content: Vec<u8> = (0..10_000u32).map(|i| (i * 7 % 251) as u8).collect();
        let mut running = RunningDigest::new();
        for piece in content.chunks(37) {
            running.update(piece);
        }
        assert_eq!(running.value(), ContentDigest::of(&content));
        assert_eq!(ContentDigest::of(b""), ContentDigest::default());
    }
}
