//! Arguments of the commands that copy a filter out, and in.

use super::Command;
use crate::arguments::Arguments;
use crate::number::integer;
use crate::refusal::Refusal;

/// A command of a copy, which travels in pieces. The iterator that an answer has beside a piece says, too, which one
/// it is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum DumpCommand<'a> {
    /// `BF.SCANDUMP`, `CF.SCANDUMP`: the next piece.
    Next {
        /// Of which filter.
        key: &'a [u8],
        /// 0 at the start, then what came with the piece before.
        iterator: i64,
        /// Whether the filter must be a cuckoo filter.
        is_cuckoo: bool,
    },
    /// `BF.LOADCHUNK`, `CF.LOADCHUNK`: takes a piece in.
    Load {
        /// The name of the filter to be.
        key: &'a [u8],
        /// What came with the piece.
        iterator: i64,
        /// The piece.
        data: &'a [u8],
    },
}

type Parsed<'a> = Result<Command<'a>, Refusal>;

pub(crate) fn next(arguments: Arguments<'_>) -> Parsed<'_> {
    let iterator = integer(arguments.at(2)).ok_or(Refusal::DumpIterator)?;
    Ok(Command::Dump(DumpCommand::Next { key: arguments.at(1), iterator, is_cuckoo: false }))
}

pub(crate) fn next_of_cuckoo(arguments: Arguments<'_>) -> Parsed<'_> {
    let iterator = integer(arguments.at(2)).ok_or(Refusal::CuckooIterator)?;
    Ok(Command::Dump(DumpCommand::Next { key: arguments.at(1), iterator, is_cuckoo: true }))
}

pub(crate) fn load(arguments: Arguments<'_>) -> Parsed<'_> {
    load_with(arguments, Refusal::LoadIterator)
}

pub(crate) fn load_cuckoo(arguments: Arguments<'_>) -> Parsed<'_> {
    load_with(arguments, Refusal::CuckooIterator)
}

fn load_with(arguments: Arguments<'_>, wrong: Refusal) -> Parsed<'_> {
    let iterator = integer(arguments.at(2)).ok_or(wrong)?;
    let (key, data) = (arguments.at(1), arguments.at(3));
    Ok(Command::Dump(DumpCommand::Load { key, iterator, data }))
}
