//! Values of modules. Their parts carry type tags, so that a reader that does not know the module can
//! skip them.
//!
//! ```text
//! id, part, part, …, 0                   id: nine letters of 6 bits, then a version of 10 bits
//!
//! part  1 or 2, length                   a number with or without a sign
//!       3, 4 bytes    4, 8 bytes         a float, a double, little-endian
//!       5, string
//! ```
//!
//! Sources: `src/module.c` (`moduleTypeEncodeId`, `moduleTypeNameByID`) and `src/rdb.c` (`rdbLoadCheckModuleValue`) of
//! Redis 7.

use std::io::Read;

use crate::error::{RdbCause, RdbError};
use crate::input::Input;
use crate::string::{StringReader, skip_string};

/// The letters that names of types consist of.
const LETTERS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";

/// Number of letters in a name.
const NAME_LETTERS: u32 = 9;

/// Number of bits in a version.
const VERSION_BITS: u32 = 10;

/// Number of bits in a letter.
const LETTER_BITS: u32 = 6;

/// Tag of the end of a value.
pub(crate) const PART_END: u64 = 0;

/// Tag of a signed number.
const PART_SIGNED: u64 = 1;

/// Tag of an unsigned number.
pub(crate) const PART_UNSIGNED: u64 = 2;

/// Tag of a float.
const PART_FLOAT: u64 = 3;

/// Tag of a double.
pub(crate) const PART_DOUBLE: u64 = 4;

/// Tag of a string.
pub(crate) const PART_STRING: u64 = 5;

/// The type of a module's values, and the version of their encoding.
///
/// ```
/// use umbel_rdb::ModuleId;
///
/// let id = ModuleId::new(b"MBbloom--", 4);
/// assert_eq!((id.name(), id.version()), ("MBbloom--".to_owned(), 4));
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct ModuleId(pub u64);

impl ModuleId {
    /// The id for a name with the letters of Base64, `-` and `_`; any other byte counts as `A`.
    #[must_use]
    pub fn new(name: &[u8; 9], version: u16) -> Self {
        let place = |byte| LETTERS.iter().position(|&letter| letter == byte).unwrap_or(0) as u64;
        let letters = name.iter().fold(0, |id, &byte| id << LETTER_BITS | place(byte));
        Self(letters << VERSION_BITS | u64::from(version) & ((1 << VERSION_BITS) - 1))
    }

    /// The name of the type.
    #[must_use]
    pub fn name(self) -> String {
        let letter = |place: u32| {
            let bits = self.0 >> (VERSION_BITS + LETTER_BITS * (NAME_LETTERS - 1 - place));
            char::from(LETTERS[usize::from(bits.to_le_bytes()[0] & 0x3f)])
        };
        (0..NAME_LETTERS).map(letter).collect()
    }

    /// The version of the encoding.
    #[must_use]
    pub const fn version(self) -> u16 {
        let [low, high, ..] = self.0.to_le_bytes();
        u16::from_le_bytes([low, high & 0x03])
    }
}

/// Reads a module's value, part by part in the order in which the parts were written.
pub struct ModuleReader<'i, R> {
    input: &'i mut Input<R>,
}

impl<'i, R: Read> ModuleReader<'i, R> {
    pub(crate) fn new(input: &'i mut Input<R>) -> Self {
        Self { input }
    }

    /// The offset of the next part in bytes, from the first byte of the input.
    #[must_use]
    pub fn offset(&self) -> u64 {
        self.input.offset()
    }

    /// Reads the next part, an unsigned number.
    ///
    /// # Errors
    /// If it is of another type, or the input is damaged.
    pub fn unsigned(&mut self) -> Result<u64, RdbError> {
        self.expect(PART_UNSIGNED)?;
        self.input.length()
    }

    /// Reads the next part, a double.
    ///
    /// # Errors
    /// If it is of another type, or the input is damaged.
    pub fn double(&mut self) -> Result<f64, RdbError> {
        self.expect(PART_DOUBLE)?;
        self.input.array().map(f64::from_le_bytes)
    }

    /// Begins to read the next part, a string; read it to its end before the next part.
    ///
    /// # Errors
    /// If it is of another type, or the input is damaged.
    pub fn string(&mut self) -> Result<StringReader<'_, R>, RdbError> {
        self.expect(PART_STRING)?;
        StringReader::begin(self.input)
    }

    /// Reads the end of the value.
    pub(crate) fn end(mut self) -> Result<(), RdbError> {
        self.expect(PART_END)
    }

    fn expect(&mut self, expected: u64) -> Result<(), RdbError> {
        let offset = self.input.offset();
        match self.input.length()? {
            part if part == expected => Ok(()),
            got => Err(RdbCause::Module { got, expected }.at(offset)),
        }
    }
}

/// Skips the parts of a value, and its end.
pub(crate) fn skip_parts<R: Read>(input: &mut Input<R>) -> Result<(), RdbError> {
    loop {
        let offset = input.offset();
        match input.length()? {
            PART_END => return Ok(()),
            PART_SIGNED | PART_UNSIGNED => input.length().map(drop)?,
            PART_FLOAT => input.skip(4)?,
            PART_DOUBLE => input.skip(8)?,
            PART_STRING => skip_string(input)?,
            got => return Err(RdbCause::Module { got, expected: PART_END }.at(offset)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The number that Redis computes for RedisBloom's type, by the arithmetic of `moduleTypeEncodeId`.
    #[test]
    fn ids_are_nine_letters_and_a_version() {
        let letters: [u64; 9] = [12, 1, 27, 37, 40, 40, 38, 62, 62];
        let id = letters.iter().fold(0, |id, letter| id << 6 | letter) << 10 | 4;
        assert_eq!(ModuleId::new(b"MBbloom--", 4), ModuleId(id));
        assert_eq!((ModuleId(id).name(), ModuleId(id).version()), ("MBbloom--".into(), 4));
        assert_eq!(
            (ModuleId(u64::MAX).name(), ModuleId(u64::MAX).version()),
            ("_________".into(), 1023)
        );
    }

    #[test]
    fn parts_are_passed_over_by_what_they_say() {
        let bytes = b"\x01\x05\x02\x41\x00\x03abcd\x04abcdefgh\x05\x02ab\x00";
        let mut input = Input::new(&bytes[..]);
        skip_parts(&mut input).unwrap();
        assert_eq!(input.offset(), bytes.len() as u64);
        let text = |bytes: &[u8]| skip_parts(&mut Input::new(bytes)).unwrap_err().to_string();
        assert_eq!(text(&[2, 0, 6]), "byte 2: the value of a module has part 6, expected 0");
    }
}
