//! Zipmaps: small hashes of Redis up to 2.4.
//!
//! ```text
//! │ count │ length, field │ length, free, value, free bytes │ … │ ff │
//!
//! count     1 byte, fe: nobody counted
//! length    1 byte up to fd, or fe and 4 bytes, little-endian
//! ```

use std::io::Read;

use super::{Container, END};
use crate::error::RdbError;
use crate::items::Items;
use crate::string::StringReader;

/// As the count: the fields were not counted. As a length: four bytes of length follow.
const LONG: u8 = 0xfe;

pub(super) fn read<R: Read, E: From<RdbError>>(
    string: &mut StringReader<'_, R>,
    items: &mut Items<'_, E>,
) -> Result<(), E> {
    let count = string.byte()?;
    let mut read = 0_u64;
    while let Some(field_bytes) = length(string)? {
        if field_bytes > string.left() {
            return Err(Container::Zipmap.wrong(string, "a field that is longer than it").into());
        }
        items.bytes(string, field_bytes)?;
        let Some(value_bytes) = length(string)? else {
            return Err(Container::Zipmap.wrong(string, "a field without a value").into());
        };
        let free_bytes = u64::from(string.byte()?);
        items.bytes(string, value_bytes)?;
        string.pass(free_bytes)?;
        read += 1;
    }
    if count < LONG && u64::from(count) != read {
        return Err(Container::Zipmap.wrong(string, "not as many fields as it says").into());
    }
    Ok(())
}

/// The next length; None at the end.
fn length<R: Read>(string: &mut StringReader<'_, R>) -> Result<Option<u64>, RdbError> {
    Ok(match string.byte()? {
        END => None,
        LONG => Some(u64::from(u32::from_le_bytes(string.array()?))),
        short => Some(u64::from(short)),
    })
}
