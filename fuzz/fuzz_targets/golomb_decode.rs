//! Decodes any bits as Golomb codes of any modulus. What is accepted must encode to the same bits.
//!
//! Input: modulus u64 (0 counts as 1), then the codes.

#![no_main]

use std::num::NonZeroU64;

use libfuzzer_sys::fuzz_target;
use umbel_bits::{BitReader, BitWriter, GolombCode};
use umbel_fuzz::assert_same_bits;

fuzz_target!(|input: &[u8]| {
    let Some((&modulus, bytes)) = input.split_first_chunk() else { return };
    let modulus = NonZeroU64::new(u64::from_le_bytes(modulus)).unwrap_or(NonZeroU64::MIN);
    let code = GolombCode::new(modulus);
    let mut reader = BitReader::new(bytes);
    let mut writer = BitWriter::new();
    let mut read_bits = 0;
    while let Ok(value) = code.read(&mut reader) {
        code.write(&mut writer, value);
        read_bits += code.length_bits(value);
        assert_eq!(reader.bits_left(), 8 * bytes.len() as u64 - read_bits);
    }
    assert_eq!(writer.bit_len(), read_bits);
    assert_same_bits(&writer.finish(), bytes, read_bits);
});
