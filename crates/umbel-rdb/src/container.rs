//! Containers that are stored in a single string: small sets, hashes and lists.
//!
//! | container | written by | source |
//! |---|---|---|
//! | listpack | Redis 7 and newer | `src/listpack.c` |
//! | ziplist | Redis up to 6 | `src/ziplist.c` |
//! | intset | all | `src/intset.c` |
//! | zipmap | Redis up to 2.4 | `src/zipmap.c` |
//!
//! They are read front to back and never held as a whole. The sizes and counts that they state are
//! compared with what was read.

mod intset;
mod listpack;
mod ziplist;
mod zipmap;

use std::io::Read;

use crate::error::{RdbCause, RdbError};
use crate::input::Input;
use crate::items::Items;
use crate::string::StringReader;

/// The byte after the last value of a listpack, ziplist or zipmap.
const END: u8 = 0xff;

/// The kind of a container.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Container {
    Listpack,
    Ziplist,
    Intset,
    Zipmap,
}

impl Container {
    const fn name(self) -> &'static str {
        match self {
            Self::Listpack => "listpack",
            Self::Ziplist => "ziplist",
            Self::Intset => "intset",
            Self::Zipmap => "zipmap",
        }
    }

    /// Passes all values to `items`.
    pub(crate) fn read<R: Read, E: From<RdbError>>(
        self,
        input: &mut Input<R>,
        items: &mut Items<'_, E>,
    ) -> Result<(), E> {
        let mut string = StringReader::begin(input)?;
        match self {
            Self::Listpack => listpack::read(&mut string, items)?,
            Self::Ziplist => ziplist::read(&mut string, items)?,
            Self::Intset => intset::read(&mut string, items)?,
            Self::Zipmap => zipmap::read(&mut string, items)?,
        }
        if string.left() > 0 {
            return Err(self.wrong(&string, "bytes behind its end").into());
        }
        Ok(string.end()?)
    }

    fn wrong<R: Read>(self, string: &StringReader<'_, R>, what: &'static str) -> RdbError {
        string.error(RdbCause::Container { container: self.name(), what })
    }
}

/// The signed number in up to 8 little-endian bytes.
fn signed(bytes: &[u8]) -> i64 {
    let unsigned = bytes.iter().rev().fold(0_u64, |number, &byte| number << 8 | u64::from(byte));
    let unused = 64_u32.saturating_sub(8 * u32::try_from(bytes.len()).unwrap_or(8));
    if unused == 64 { 0 } else { (unsigned << unused).cast_signed() >> unused }
}
