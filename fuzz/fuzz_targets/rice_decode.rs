//! Decodes any bits as Rice codes, as positions and as indexes. What is accepted must encode to
//! the same bits.
//!
//! Input: low bits u8, count u16, end u64, then the codes.

#![no_main]

use libfuzzer_sys::fuzz_target;
use umbel_bits::{
    BitReader, BitWriter, CodeError, RiceCode, decode_indexes, decode_positions, encode_indexes,
    encode_positions, indexes_bits, positions_bits,
};
use umbel_fuzz::assert_same_bits;

type Decode = fn(&mut BitReader<'_>, RiceCode, u64, u64, &mut Vec<u64>) -> Result<(), CodeError>;

fuzz_target!(|input: &[u8]| {
    let Some((&low_bits, rest)) = input.split_first() else { return };
    let Some((&count, rest)) = rest.split_first_chunk() else { return };
    let Some((&end, bytes)) = rest.split_first_chunk() else { return };
    let (count, end) = (u64::from(u16::from_le_bytes(count)), u64::from_le_bytes(end));
    let Ok(code) = RiceCode::new(low_bits.into()) else { return };

    code_by_code(code, bytes);
    if let Some((list, read_bits)) = accepted(decode_positions, code, bytes, count, end) {
        assert!(list.is_sorted());
        assert_eq!(positions_bits(code, list.iter().copied()), read_bits);
        let mut writer = BitWriter::new();
        encode_positions(code, list.into_iter(), &mut writer);
        assert_same_bits(&writer.finish(), bytes, read_bits);
    }
    if let Some((list, read_bits)) = accepted(decode_indexes, code, bytes, count, end) {
        assert!(list.is_sorted_by(|a, b| a < b));
        assert_eq!(indexes_bits(code, list.iter().copied()), read_bits);
        let mut writer = BitWriter::new();
        encode_indexes(code, list.into_iter(), &mut writer);
        assert_same_bits(&writer.finish(), bytes, read_bits);
    }
});

fn code_by_code(code: RiceCode, bytes: &[u8]) {
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
}

/// The decoded list and the number of bits that it took, if it was accepted.
fn accepted(
    decode: Decode,
    code: RiceCode,
    bytes: &[u8],
    count: u64,
    end: u64,
) -> Option<(Vec<u64>, u64)> {
    let mut reader = BitReader::new(bytes);
    let mut list = Vec::new();
    decode(&mut reader, code, count, end, &mut list).ok()?;
    assert_eq!(list.len() as u64, count);
    assert!(list.iter().all(|&value| value < end));
    let read_bits = 8 * bytes.len() as u64 - reader.bits_left();
    assert!(code.bits_min(count) <= read_bits);
    Some((list, read_bits))
}
