//! Intsets: sorted integers of one width.
//!
//! ```text
//! 0      4       8
//! │ size │ count │ count numbers of 2, 4 or 8 bytes, little-endian like both
//! ```

use std::io::Read;

use super::{Container, signed};
use crate::error::RdbError;
use crate::items::Items;
use crate::string::StringReader;

pub(super) fn read<R: Read, E: From<RdbError>>(
    string: &mut StringReader<'_, R>,
    items: &mut Items<'_, E>,
) -> Result<(), E> {
    let size = u32::from_le_bytes(string.array()?);
    let count = u32::from_le_bytes(string.array()?);
    if !matches!(size, 2 | 4 | 8) {
        return Err(Container::Intset
            .wrong(string, "numbers of other than 2, 4 or 8 bytes")
            .into());
    }
    if string.left() != u64::from(count) * u64::from(size) {
        return Err(Container::Intset.wrong(string, "not as long as its count says").into());
    }
    for _ in 0..count {
        let number = match size {
            2 => signed(&string.array::<2>()?),
            4 => signed(&string.array::<4>()?),
            _ => signed(&string.array::<8>()?),
        };
        items.number(number)?;
    }
    Ok(())
}
