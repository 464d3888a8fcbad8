//! A checksum for files that are too large for memory.

use bytes::{Buf, BytesMut};
use umbel_codec::crc32c;

/// Bytes of a block: the unit of checksums, writes and reads.
pub(super) const BLOCK_BYTES: usize = 1 << 20;

/// CRC-32C computed block by block: the CRC of each block also covers the CRC before it. So the result
/// covers all bytes and does not depend on how the input is divided.
#[derive(Default)]
pub(super) struct BlockChecksum {
    state: u32,
    rest: BytesMut,
}

impl BlockChecksum {
    /// Adds bytes.
    pub(super) fn update(&mut self, mut bytes: &[u8]) {
        while !bytes.is_empty() {
            if self.rest.is_empty() && bytes.len() >= BLOCK_BYTES {
                self.state = crc32c(&[&self.state.to_le_bytes(), &bytes[..BLOCK_BYTES]]);
                bytes.advance(BLOCK_BYTES);
                continue;
            }
            let count = bytes.len().min(BLOCK_BYTES - self.rest.len());
            self.rest.extend_from_slice(&bytes[..count]);
            bytes.advance(count);
            if self.rest.len() == BLOCK_BYTES {
                self.state = crc32c(&[&self.state.to_le_bytes(), &self.rest]);
                self.rest.clear();
            }
        }
    }

    /// The checksum of all bytes so far.
    pub(super) fn finish(&self) -> u32 {
        crc32c(&[&self.state.to_le_bytes(), &self.rest])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn does_not_depend_on_the_pieces() {
        let bytes: Vec<u8> =
            (0..BLOCK_BYTES * 2 + 5).map(|i| u8::try_from(i % 251).unwrap()).collect();
        let first = crc32c(&[&[0; 4], &bytes[..BLOCK_BYTES]]);
        let second = crc32c(&[&first.to_le_bytes(), &bytes[BLOCK_BYTES..2 * BLOCK_BYTES]]);
        let expected = crc32c(&[&second.to_le_bytes(), &bytes[2 * BLOCK_BYTES..]]);
        for piece in [3000, BLOCK_BYTES - 1, BLOCK_BYTES, bytes.len()] {
            let mut checksum = BlockChecksum::default();
            bytes.chunks(piece).for_each(|piece| checksum.update(piece));
            assert_eq!(checksum.finish(), expected);
        }
    }
}
