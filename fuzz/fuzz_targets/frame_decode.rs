//! Decodes any bytes as a filter frame. Accepted frames must encode to the same bytes.
//!
//! Input: the frame. It is decoded twice: as it is, and with payload length and checksum put right,
//! because no fuzzer guesses a checksum and the payload's decoder lies behind it.

#![no_main]

use libfuzzer_sys::fuzz_target;
use umbel_codec::{FRAME_HEADER_BYTES, Frame, FrameError, crc32c};

fuzz_target!(|bytes: &[u8]| {
    decode(bytes);
    if let Some(forged) = forged(bytes) {
        decode(&forged);
    }
});

fn decode(bytes: &[u8]) {
    let total_bytes = Frame::total_bytes(bytes);
    match Frame::decode(bytes) {
        Ok((frame, consumed_bytes)) => {
            assert_eq!(total_bytes, Ok(Some(consumed_bytes)));
            assert_eq!(frame.encode().as_deref(), Ok(&bytes[..consumed_bytes]));
        }
        // The stream's reader must come to the same end as the decoder.
        Err(FrameError::Truncated { needed, available }) => {
            assert!(available == bytes.len() && needed > available);
            assert!(total_bytes == Ok(None) || total_bytes == Ok(Some(needed)));
        }
        Err(_) => {}
    }
}

/// The frame with a payload length and a checksum that fit what is there.
fn forged(bytes: &[u8]) -> Option<Vec<u8>> {
    let mut forged = bytes.to_vec();
    let (header, payload) = forged.split_first_chunk_mut::<FRAME_HEADER_BYTES>()?;
    let (checked, checksum) = header.split_last_chunk_mut::<4>()?;
    let payload_bytes = u32::try_from(payload.len()).ok()?;
    checked.last_chunk_mut::<4>()?.copy_from_slice(&payload_bytes.to_le_bytes());
    checksum.copy_from_slice(&crc32c(&[checked, payload]).to_le_bytes());
    Some(forged)
}
