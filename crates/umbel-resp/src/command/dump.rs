//! Arguments of the commands that export and import a filter in pieces.

use super::{Command, Parsed};
use crate::arguments::Arguments;
use crate::number::integer;
use crate::refusal::Refusal;

/// A command of an export or import, in pieces. The iterator that is returned with a piece also
/// identifies the piece.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum DumpCommand<'a> {
    /// `BF.SCANDUMP`, `CF.SCANDUMP`: returns the next piece.
    Next {
        /// The filter.
        key: &'a [u8],
        /// 0 at the beginning, then the iterator that was returned with the previous piece.
        iterator: i64,
        /// Whether the command is one of `CF.*`.
        is_cuckoo: bool,
    },
    /// `BF.LOADCHUNK`, `CF.LOADCHUNK`: imports a piece.
    Load {
        /// The name of the new filter.
        key: &'a [u8],
        /// The iterator that was returned with the piece.
        iterator: i64,
        /// The piece.
        data: &'a [u8],
        /// Whether the command is one of `CF.*`.
        is_cuckoo: bool,
    },
}

pub(crate) fn next(arguments: Arguments<'_>) -> Parsed<'_> {
    let iterator = integer(arguments.at(2)).ok_or(Refusal::DumpIterator)?;
    Ok(Command::Dump(DumpCommand::Next { key: arguments.at(1), iterator, is_cuckoo: false }))
}

pub(crate) fn next_of_cuckoo(arguments: Arguments<'_>) -> Parsed<'_> {
    let iterator = integer(arguments.at(2)).ok_or(Refusal::CuckooIterator)?;
    Ok(Command::Dump(DumpCommand::Next { key: arguments.at(1), iterator, is_cuckoo: true }))
}

pub(crate) fn load(arguments: Arguments<'_>) -> Parsed<'_> {
    let iterator = integer(arguments.at(2)).ok_or(Refusal::LoadIterator)?;
    Ok(loaded(arguments, iterator, false))
}

pub(crate) fn load_cuckoo(arguments: Arguments<'_>) -> Parsed<'_> {
    let iterator = integer(arguments.at(2)).filter(|&iterator| iterator != 0);
    Ok(loaded(arguments, iterator.ok_or(Refusal::CuckooIterator)?, true))
}

fn loaded(arguments: Arguments<'_>, iterator: i64, is_cuckoo: bool) -> Command<'_> {
    let (key, data) = (arguments.at(1), arguments.at(3));
    Command::Dump(DumpCommand::Load { key, iterator, data, is_cuckoo })
}
