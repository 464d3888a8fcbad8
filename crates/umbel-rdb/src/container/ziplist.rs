//! Ziplists.
//!
//! ```text
//! 0       4      8       10
//! │ bytes │ last │ count │ bytes of the value before, value │ … │ ff │     little-endian; count ffff: nobody counted
//!
//! bytes of the value before    1 byte, or fe and 4 bytes
//! 00nnnnnn, bytes              n bytes
//! 01nnnnnn nnnnnnnn, bytes     n bytes, big-endian like the next
//! 80, 4 bytes of n, bytes      n bytes
//! c0, d0, e0, f0, fe           a number of 2, 4, 8, 3 or 1 bytes
//! f1 to fd                     the number 0 to 12
//! ```

use std::io::Read;

use super::{Container, END, signed};
use crate::error::RdbError;
use crate::items::Items;
use crate::string::StringReader;

/// The count of a ziplist whose values were not counted.
const UNCOUNTED: u16 = u16::MAX;

/// Precedes a length of four bytes.
const LONG: u8 = 0xfe;

pub(super) fn read<R: Read, E: From<RdbError>>(
    string: &mut StringReader<'_, R>,
    items: &mut Items<'_, E>,
) -> Result<(), E> {
    let there = string.left();
    let byte_count = u32::from_le_bytes(string.array()?);
    let _last: [u8; 4] = string.array()?;
    let count = u16::from_le_bytes(string.array()?);
    if u64::from(byte_count) != there {
        return Err(Container::Ziplist.wrong(string, "not as long as it says").into());
    }
    let mut read = 0_u64;
    loop {
        match string.byte()? {
            END => break,
            LONG => string.pass(4)?,
            _ => {}
        }
        value(string, items)?;
        read += 1;
    }
    if count != UNCOUNTED && u64::from(count) != read {
        return Err(Container::Ziplist.wrong(string, "not as many values as it says").into());
    }
    Ok(())
}

fn value<R: Read, E: From<RdbError>>(
    string: &mut StringReader<'_, R>,
    items: &mut Items<'_, E>,
) -> Result<(), E> {
    let first = string.byte()?;
    let text_bytes = match first {
        0x00..=0x3f => u64::from(first),
        0x40..=0x7f => u64::from(first & 0x3f) << 8 | u64::from(string.byte()?),
        0x80 => u64::from(u32::from_be_bytes(string.array()?)),
        _ => {
            let number = match first {
                0xc0 => signed(&string.array::<2>()?),
                0xd0 => signed(&string.array::<4>()?),
                0xe0 => signed(&string.array::<8>()?),
                0xf0 => signed(&string.array::<3>()?),
                0xfe => signed(&string.array::<1>()?),
                0xf1..=0xfd => i64::from(first & 0x0f) - 1,
                _ => {
                    let what = "a value of no known form";
                    return Err(Container::Ziplist.wrong(string, what).into());
                }
            };
            return items.number(number);
        }
    };
    if text_bytes > string.left() {
        return Err(Container::Ziplist.wrong(string, "a value that is longer than it").into());
    }
    items.bytes(string, text_bytes)
}
