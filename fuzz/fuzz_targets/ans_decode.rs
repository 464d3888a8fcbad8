//! Decodes any bytes as a list in the ANS gap code, as positions and as indexes. What is accepted
//! must encode to the same bytes.
//!
//! Input: low bits u8, ratio u8, count u16, end u64, then the list.

#![no_main]

use libfuzzer_sys::fuzz_target;
use umbel_bits::{AnsGapCode, AnsReader, CodeError};

fuzz_target!(|input: &[u8]| {
    let Some((&[low_bits, ratio], rest)) = input.split_first_chunk() else { return };
    let Some((&count, rest)) = rest.split_first_chunk() else { return };
    let Some((&end, bytes)) = rest.split_first_chunk() else { return };
    let (count, end) = (u64::from(u16::from_le_bytes(count)), u64::from_le_bytes(end));
    let Ok(code) = AnsGapCode::new(low_bits.into(), ratio) else { return };

    let mut list = Vec::new();
    let outcome = code.decode_positions(bytes, count, end, &mut list);
    check(outcome, AnsReader::positions(bytes, code, count, end), count, end, &list);
    if outcome.is_ok() {
        assert!(list.is_sorted());
        let mut again = Vec::new();
        code.encode_positions(list.iter().copied(), &mut again);
        assert_eq!(again, bytes);
    }

    list.clear();
    let outcome = code.decode_indexes(bytes, count, end, &mut list);
    check(outcome, AnsReader::indexes(bytes, code, count, end), count, end, &list);
    if outcome.is_ok() {
        assert!(list.is_sorted_by(|a, b| a < b));
        let mut again = Vec::new();
        code.encode_indexes(list.iter().copied(), &mut again);
        assert_eq!(again, bytes);
    }
});

/// A list, or nothing; and the reader comes to the same end.
fn check(
    outcome: Result<(), CodeError>,
    reader: Result<AnsReader<'_>, CodeError>,
    count: u64,
    end: u64,
    list: &[u64],
) {
    let one_by_one: Result<Vec<u64>, CodeError> = reader.and_then(Iterator::collect);
    match outcome {
        Ok(()) => {
            assert_eq!(list.len() as u64, count);
            assert!(list.iter().all(|&value| value < end));
            assert_eq!(one_by_one.as_deref(), Ok(list));
        }
        Err(error) => {
            assert!(list.is_empty());
            assert_eq!(one_by_one, Err(error));
        }
    }
}
