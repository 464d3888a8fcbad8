//! Bytes as hexadecimal digits, as messages, keys and tests show them.

use std::fmt::{self, Write as _};

/// Shows bytes as hexadecimal digits, two each, in lower case.
///
/// ```
/// use umbel_bits::Hex;
///
/// assert_eq!(Hex(&[0, 0x0a, 0xff]).to_string(), "000aff");
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Hex<'a>(pub &'a [u8]);

impl fmt::Display for Hex<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut digits = self.0.iter().flat_map(|byte| [byte >> 4, byte & 15]);
        digits.try_for_each(|digit| {
            f.write_char(char::from_digit(digit.into(), 16).expect("four bits"))
        })
    }
}
