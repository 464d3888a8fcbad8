//! The head and the checksum of a frame, around what its payload says.

use umbel_bits::RiceCode;

use super::content::{Content, cheapest};
use super::encoding::Encoding;
use super::gap_code::GapCode;
use super::header::{Body, Header, check_payload_bytes};
use super::{CHECKED_HEADER_BYTES, FRAME_HEADER_BYTES, FrameKey};
use crate::checksum::crc32c;
use crate::error::FrameError;
use crate::limits::FRAME_PAYLOAD_BYTES_MAX;

/// What is the same for all frames.
#[derive(Clone, Copy, Debug)]
pub(super) struct Budget {
    pub(super) key: FrameKey,
    pub(super) payload_bytes_max: u64,
    /// Whether arrays are written as words, whatever is shorter.
    pub(super) is_raw: bool,
}

/// A frame, and whether it is the last.
pub(super) type Next = Result<(Vec<u8>, bool), FrameError>;

/// The frame of an array, written in the cheapest way: as words, if the ones are so far from random
/// that their codes turn out longer.
pub(super) fn seal_array(
    budget: Budget,
    body: Body,
    prefix: &[u8],
    words: &[u64],
) -> Result<Vec<u8>, FrameError> {
    let key = budget.key;
    let content = Content::array(body.kind(), words);
    let (ones, coded) = cheapest(body.kind(), words);
    if let Some((encoding, code, count)) = coded.filter(|_| !budget.is_raw) {
        let header = Header::new(key, body, encoding, code, count);
        let raw_bytes = (prefix.len() + size_of_val(words)) as u64;
        match seal(header, code, prefix, content, raw_bytes - 1) {
            Err(FrameError::PayloadTooLarge { .. }) => (),
            outcome => return outcome,
        }
    }
    let header = Header::new(key, body, Encoding::Raw, no_code(), ones);
    seal(header, no_code(), prefix, content, FRAME_PAYLOAD_BYTES_MAX as u64)
}

/// The frame of words that no code makes shorter, with so many items in them.
pub(super) fn seal_words(
    key: FrameKey,
    body: Body,
    prefix: &[u8],
    (words, count): (&[u64], u64),
) -> Result<Vec<u8>, FrameError> {
    let header = Header::new(key, body, Encoding::Raw, no_code(), count);
    let content = Content::array(body.kind(), words);
    seal(header, no_code(), prefix, content, FRAME_PAYLOAD_BYTES_MAX as u64)
}

/// What stands in the header of a payload without codes.
fn no_code() -> GapCode {
    GapCode::Rice(RiceCode::new(0).expect("0 low bits are a code"))
}

/// The frame of a header whose length and checksum are not yet known, unless the payload has more
/// than so many bytes.
///
/// A code's length is known once it is written. What is written in vain is never long: a code that
/// was made for the mean of the gaps takes at most a few bits more for each, however they are
/// spread.
pub(super) fn seal(
    mut header: Header,
    code: GapCode,
    prefix: &[u8],
    content: Content<'_>,
    payload_bytes_max: u64,
) -> Result<Vec<u8>, FrameError> {
    let mut bytes = vec![0; FRAME_HEADER_BYTES];
    bytes.extend(prefix);
    content.write(header.encoding, code, &mut bytes);
    let payload_bytes = (bytes.len() - FRAME_HEADER_BYTES) as u64;
    header.payload_bytes = check_payload_bytes(payload_bytes)?;
    if payload_bytes > payload_bytes_max {
        return Err(FrameError::PayloadTooLarge { payload_bytes });
    }
    bytes.shrink_to_fit();
    if let Some((head, payload)) = bytes.split_first_chunk_mut::<FRAME_HEADER_BYTES>()
        && let Some((checked, checksum)) = head.split_first_chunk_mut::<CHECKED_HEADER_BYTES>()
    {
        *checked = header.to_checked_bytes();
        checksum.copy_from_slice(&crc32c(&[checked, payload]).to_le_bytes());
    }
    Ok(bytes)
}
