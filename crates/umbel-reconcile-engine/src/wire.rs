//! Encoding of numbers and frames.
//!
//! ```text
//! │ varint body_len │ u8 type │ body │ u32 CRC-32C(type ‖ body) │
//! ```
//!
//! Numbers are little-endian; a varint is LEB128 in its shortest form. A body has at most
//! [`FRAME_BODY_BYTES_MAX`] bytes, and a reader buffers at most one frame and what was received together
//! with its end.

pub use umbel_bits::put_leb128 as put_varint;
use umbel_bits::{LEB128_BYTES_MAX, Leb128, Leb128Error};
use umbel_codec::crc32c;

use super::error::SessionFrameError;
use crate::limits::FRAME_BODY_BYTES_MAX;

/// Bytes of the checksum.
const CRC_BYTES: usize = 4;

/// Bytes of the longest accepted length prefix.
const LENGTH_BYTES_MAX: usize = 3;

/// Bytes of a varint.
#[cfg(test)]
pub(crate) const fn varint_bytes(value: u64) -> usize {
    (70 - (value | 1).leading_zeros() as usize) / 7
}

/// Appends a frame.
///
/// # Panics
/// If the body is longer than a frame may be: callers cut bodies far below that.
pub fn put_frame(bytes: &mut Vec<u8>, frame_type: u8, body: &[u8]) {
    assert!(body.len() <= FRAME_BODY_BYTES_MAX, "a body of {} bytes", body.len());
    put_varint(bytes, body.len() as u64);
    bytes.push(frame_type);
    bytes.extend_from_slice(body);
    bytes.extend_from_slice(&crc32c(&[&[frame_type], body]).to_le_bytes());
}

/// Bytes of a frame with a body of this length.
#[cfg(test)]
pub(crate) const fn frame_bytes(body_bytes: usize) -> usize {
    varint_bytes(body_bytes as u64) + 1 + body_bytes + CRC_BYTES
}

/// Reads fields one after another; each is checked against the bytes that are left.
#[derive(Clone, Debug)]
pub struct Reader<'a> {
    left: &'a [u8],
}

impl<'a> Reader<'a> {
    /// A reader at the start of these bytes.
    #[must_use]
    pub const fn new(bytes: &'a [u8]) -> Self {
        Self { left: bytes }
    }

    /// The next `count` bytes.
    ///
    /// # Errors
    ///
    /// If fewer are left; the error names the field.
    pub fn bytes(
        &mut self,
        field: &'static str,
        count: usize,
    ) -> Result<&'a [u8], SessionFrameError> {
        let (bytes, left) =
            self.left.split_at_checked(count).ok_or(SessionFrameError::Truncated { field })?;
        self.left = left;
        Ok(bytes)
    }

    fn array<const N: usize>(&mut self, field: &'static str) -> Result<[u8; N], SessionFrameError> {
        let (bytes, left) =
            self.left.split_first_chunk::<N>().ok_or(SessionFrameError::Truncated { field })?;
        self.left = left;
        Ok(*bytes)
    }

    /// Reads a byte.
    ///
    /// # Errors
    ///
    /// If fewer bytes are left; the error names the field.
    pub fn u8(&mut self, field: &'static str) -> Result<u8, SessionFrameError> {
        self.array::<1>(field).map(|[byte]| byte)
    }

    /// Reads a number of two bytes.
    ///
    /// # Errors
    ///
    /// If fewer bytes are left; the error names the field.
    pub fn u16(&mut self, field: &'static str) -> Result<u16, SessionFrameError> {
        self.array(field).map(u16::from_le_bytes)
    }

    /// Reads a number of four bytes.
    ///
    /// # Errors
    ///
    /// If fewer bytes are left; the error names the field.
    pub fn u32(&mut self, field: &'static str) -> Result<u32, SessionFrameError> {
        self.array(field).map(u32::from_le_bytes)
    }

    /// Reads a number of eight bytes.
    ///
    /// # Errors
    ///
    /// If fewer bytes are left; the error names the field.
    pub fn u64(&mut self, field: &'static str) -> Result<u64, SessionFrameError> {
        self.array(field).map(u64::from_le_bytes)
    }

    /// Reads a number of sixteen bytes.
    ///
    /// # Errors
    ///
    /// If fewer bytes are left; the error names the field.
    pub fn u128(&mut self, field: &'static str) -> Result<u128, SessionFrameError> {
        self.array(field).map(u128::from_le_bytes)
    }

    /// Reads a varint.
    ///
    /// # Errors
    ///
    /// If it is not in its shortest form, has more than 64 bits, or its bytes end; the error names the
    /// field.
    pub fn varint(&mut self, field: &'static str) -> Result<u64, SessionFrameError> {
        let got = |error| match error {
            Leb128Error::Overflow { got } | Leb128Error::TooLong { got, .. } => got,
            _ => 0,
        };
        let value = Leb128::shortest(LEB128_BYTES_MAX).take(&mut self.left);
        value
            .map_err(|error| SessionFrameError::Field { field, got: got(error) })?
            .ok_or(SessionFrameError::Truncated { field })
    }

    /// Reads a varint of at most `max`.
    ///
    /// # Errors
    ///
    /// As [`varint`](Self::varint), and if it is above `max`.
    pub fn varint_at_most(
        &mut self,
        field: &'static str,
        max: u64,
    ) -> Result<u64, SessionFrameError> {
        let got = self.varint(field)?;
        if got > max { Err(SessionFrameError::Field { field, got }) } else { Ok(got) }
    }

    /// Whether nothing is left.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.left.is_empty()
    }

    /// All bytes that are left.
    pub const fn rest(&mut self) -> &'a [u8] {
        let rest = self.left;
        self.left = &[];
        rest
    }

    /// Checks that nothing is left.
    ///
    /// # Errors
    ///
    /// If bytes are left.
    pub const fn finish(self) -> Result<(), SessionFrameError> {
        match self.left.len() {
            0 => Ok(()),
            extra => Err(SessionFrameError::Trailing { extra }),
        }
    }
}

/// A frame with a verified checksum.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct RawFrame {
    /// The frame's type, as numbered by the protocol that uses it.
    pub frame_type: u8,
    /// The frame's body.
    pub body: Vec<u8>,
    /// Bytes on the wire, header and checksum included.
    pub wire_bytes: u64,
}

/// Splits a stream of bytes into frames.
#[derive(Default, Debug)]
pub struct FrameBuffer {
    bytes: Vec<u8>,
    taken: usize,
}

impl FrameBuffer {
    /// Appends received bytes.
    pub fn push(&mut self, bytes: &[u8]) {
        if self.taken > 0 {
            self.bytes.drain(..self.taken);
            self.taken = 0;
        }
        self.bytes.extend_from_slice(bytes);
    }

    /// Number of buffered bytes.
    #[must_use]
    pub const fn waiting_bytes(&self) -> usize {
        self.bytes.len() - self.taken
    }

    /// The next frame, once it is complete.
    ///
    /// # Errors
    ///
    /// If it is longer than frames may be, or its checksum is wrong.
    pub fn next_frame(&mut self) -> Result<Option<RawFrame>, SessionFrameError> {
        let waiting = self.bytes.get(self.taken..).unwrap_or_default();
        let Some((body_bytes, header_bytes)) = body_length(waiting)? else { return Ok(None) };
        let end = header_bytes + 1 + body_bytes;
        let (Some(content), Some(crc)) = (
            waiting.get(header_bytes..end),
            waiting.get(end..).and_then(|rest| rest.first_chunk::<CRC_BYTES>()),
        ) else {
            return Ok(None);
        };
        let (got, computed) = (u32::from_le_bytes(*crc), crc32c(&[content]));
        if got != computed {
            return Err(SessionFrameError::Checksum { got, computed });
        }
        let Some((&frame_type, body)) = content.split_first() else { return Ok(None) };
        let wire_bytes = (end + CRC_BYTES) as u64;
        let frame = RawFrame { frame_type, body: body.to_vec(), wire_bytes };
        self.taken += end + CRC_BYTES;
        Ok(Some(frame))
    }
}

/// Body length and bytes of the length; none if it is not all there.
pub(crate) fn body_length(bytes: &[u8]) -> Result<Option<(usize, usize)>, SessionFrameError> {
    let malformed = SessionFrameError::Length { max: FRAME_BODY_BYTES_MAX };
    let prefix = bytes.get(..LENGTH_BYTES_MAX).unwrap_or(bytes);
    let mut reader = Reader::new(prefix);
    match reader.varint("body length") {
        Ok(length) => {
            let body_bytes = usize::try_from(length).map_err(|_| malformed.clone())?;
            if body_bytes > FRAME_BODY_BYTES_MAX {
                return Err(malformed);
            }
            Ok(Some((body_bytes, prefix.len() - reader.left.len())))
        }
        Err(SessionFrameError::Truncated { .. }) if prefix.len() < LENGTH_BYTES_MAX => Ok(None),
        Err(_) => Err(malformed),
    }
}

#[cfg(test)]
mod tests {
    use proptest::collection::vec;
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn varints_return(value: u64, shift in 0..64u32) {
            let value = value >> shift;
            let mut bytes = Vec::new();
            put_varint(&mut bytes, value);
            prop_assert_eq!(bytes.len(), varint_bytes(value));
            let mut reader = Reader::new(&bytes);
            prop_assert_eq!(reader.varint("x"), Ok(value));
            prop_assert_eq!(reader.finish(), Ok(()));
        }

        /// Whatever is read writes to the same bytes again.
        #[test]
        fn varints_have_one_form(bytes in vec(any::<u8>(), 0..12)) {
            let mut reader = Reader::new(&bytes);
            if let Ok(value) = reader.varint("x") {
                let mut again = Vec::new();
                put_varint(&mut again, value);
                prop_assert_eq!(&again, &bytes[..again.len()]);
            }
        }

        #[test]
        fn frames_return_however_they_are_cut(
            bodies in vec(vec(any::<u8>(), 0..200), 1..6), cut in 1..50usize,
        ) {
            let mut bytes = Vec::new();
            for (body, frame_type) in bodies.iter().zip(1..) {
                put_frame(&mut bytes, frame_type, body);
            }
            let mut buffer = FrameBuffer::default();
            let mut found = Vec::new();
            for chunk in bytes.chunks(cut) {
                buffer.push(chunk);
                while let Some(frame) = buffer.next_frame().unwrap() {
                    prop_assert_eq!(frame.wire_bytes, frame_bytes(frame.body.len()) as u64);
                    found.push(frame.body);
                }
            }
            prop_assert_eq!(found, bodies);
            prop_assert_eq!(buffer.waiting_bytes(), 0);
        }

        #[test]
        fn a_flipped_bit_is_no_frame(body in vec(any::<u8>(), 0..60), at: prop::sample::Index) {
            let mut bytes = Vec::new();
            put_frame(&mut bytes, 7, &body);
            let bit = at.index(8 * bytes.len());
            bytes[bit / 8] ^= 1 << (bit % 8);
            let mut buffer = FrameBuffer::default();
            buffer.push(&bytes);
            prop_assert!(!matches!(buffer.next_frame(), Ok(Some(_))));
        }
    }

    #[test]
    fn a_long_length_is_refused_before_the_body() {
        let mut buffer = FrameBuffer::default();
        buffer.push(&[0xff, 0xff, 0xff]);
        assert!(matches!(buffer.next_frame(), Err(SessionFrameError::Length { .. })));
        let mut buffer = FrameBuffer::default();
        buffer.push(&[0xff, 0xff]);
        assert_eq!(buffer.next_frame(), Ok(None));
    }
}
