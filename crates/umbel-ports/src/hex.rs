//! Bytes from hexadecimal digits, as files of keys and recorded messages have them.

/// The bytes of pairs of digits; None if there is anything else.
pub(crate) fn from_hex(digits: &[u8]) -> Option<Vec<u8>> {
    let (pairs, []) = digits.as_chunks::<2>() else { return None };
    let digit = |digit: u8| char::from(digit).to_digit(16);
    let byte = |&[high, low]: &[u8; 2]| u8::try_from(digit(high)? << 4 | digit(low)?).ok();
    pairs.iter().map(byte).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_pairs_of_digits_are_bytes() {
        assert_eq!(from_hex(b""), Some(vec![]));
        assert_eq!(from_hex(b"000aFf"), Some(vec![0, 10, 255]));
        for other in [&b"0"[..], b"000", b"0g", b"+1", b" 1", "é".as_bytes()] {
            assert_eq!(from_hex(other), None);
        }
    }
}
