//! Listpacks.
//!
//! ```text
//! 0       4       6
//! │ bytes │ count │ value, its length backwards │ … │ ff │     little-endian; count ffff: nobody counted
//!
//! 0nnnnnnn                     the number n
//! 10nnnnnn, bytes              n bytes
//! 110nnnnn nnnnnnnn            a number of 13 bits with its sign
//! 1110nnnn nnnnnnnn, bytes     n bytes
//! f0, 4 bytes of n, bytes      n bytes
//! f1, f2, f3, f4               a number of 2, 3, 4 or 8 bytes
//! ```
//!
//! The length backwards takes one byte per 7 bits of the value's length in bytes.

use std::io::Read;

use super::{Container, END, signed};
use crate::error::RdbError;
use crate::items::Items;
use crate::string::StringReader;

/// The count of a listpack whose values were not counted.
const UNCOUNTED: u16 = u16::MAX;

pub(super) fn read<R: Read, E: From<RdbError>>(
    string: &mut StringReader<'_, R>,
    items: &mut Items<'_, E>,
) -> Result<(), E> {
    let there = string.left();
    let byte_count = u32::from_le_bytes(string.array()?);
    let count = u16::from_le_bytes(string.array()?);
    if u64::from(byte_count) != there {
        return Err(Container::Listpack.wrong(string, "not as long as it says").into());
    }
    let mut read = 0_u64;
    loop {
        let first = string.byte()?;
        if first == END {
            break;
        }
        let value_bytes = value(string, first, items)?;
        string.pass(backwards_bytes(value_bytes))?;
        read += 1;
    }
    if count != UNCOUNTED && u64::from(count) != read {
        return Err(Container::Listpack.wrong(string, "not as many values as it says").into());
    }
    Ok(())
}

/// Passes the value that begins with `first` to `items`; returns its length in bytes, with `first`.
fn value<R: Read, E: From<RdbError>>(
    string: &mut StringReader<'_, R>,
    first: u8,
    items: &mut Items<'_, E>,
) -> Result<u64, E> {
    let low = u64::from(first & 0x0f);
    let (head_bytes, text_bytes) = match first {
        0x00..=0x7f => return items.number(i64::from(first)).map(|()| 1),
        0x80..=0xbf => (1, u64::from(first & 0x3f)),
        0xc0..=0xdf => {
            let bits = u16::from(first & 0x1f) << 8 | u16::from(string.byte()?);
            items.number(i64::from((bits << 3).cast_signed() >> 3))?;
            return Ok(2);
        }
        0xe0..=0xef => (2, low << 8 | u64::from(string.byte()?)),
        0xf0 => (5, u64::from(u32::from_le_bytes(string.array()?))),
        0xf1..=0xf4 => {
            let (number, byte_count) = match first {
                0xf1 => (signed(&string.array::<2>()?), 2),
                0xf2 => (signed(&string.array::<3>()?), 3),
                0xf3 => (signed(&string.array::<4>()?), 4),
                _ => (signed(&string.array::<8>()?), 8),
            };
            items.number(number)?;
            return Ok(1 + byte_count);
        }
        _ => return Err(Container::Listpack.wrong(string, "a value of no known form").into()),
    };
    if text_bytes > string.left() {
        return Err(Container::Listpack.wrong(string, "a value that is longer than it").into());
    }
    items.bytes(string, text_bytes)?;
    Ok(head_bytes + text_bytes)
}

/// Length in bytes of the length field after a value of `value_bytes` bytes.
const fn backwards_bytes(value_bytes: u64) -> u64 {
    match value_bytes {
        0..=0x7f => 1,
        0x80..=0x3fff => 2,
        0x4000..=0x1f_ffff => 3,
        0x20_0000..=0xfff_ffff => 4,
        _ => 5,
    }
}
