//! Parses the arguments of commands on keys.

use super::connection::database;
use super::{Command, KeysCommand, Parsed, Scan};
use crate::arguments::{Arguments, is_word};
use crate::limits::{KEYS_MAX, PATTERN_BYTES_MAX};
use crate::number::{integer, natural};
use crate::refusal::Refusal;

/// Default number of names that a `SCAN` examines, as in Redis.
const SCAN_COUNT_DEFAULT: u64 = 10;

fn keys(arguments: Arguments<'_>) -> Result<Arguments<'_>, Refusal> {
    arguments.from(1).at_most(KEYS_MAX, "keys")
}

/// Refuses a pattern that would take long to match.
pub(super) fn check_pattern(pattern: &[u8]) -> Result<(), Refusal> {
    if pattern.len() > PATTERN_BYTES_MAX {
        Err(Refusal::TooMany { what: "bytes of a pattern", most: PATTERN_BYTES_MAX })
    } else {
        Ok(())
    }
}

pub(crate) fn drop_keys(arguments: Arguments<'_>) -> Parsed<'_> {
    Ok(Command::Keys(KeysCommand::Drop(keys(arguments)?)))
}

pub(crate) fn count_keys(arguments: Arguments<'_>) -> Parsed<'_> {
    Ok(Command::Keys(KeysCommand::Count(keys(arguments)?)))
}

pub(crate) fn type_of(arguments: Arguments<'_>) -> Parsed<'_> {
    Ok(Command::Keys(KeysCommand::Type(arguments.at(1))))
}

pub(crate) fn encoding(arguments: Arguments<'_>) -> Parsed<'_> {
    Ok(Command::Keys(KeysCommand::Encoding(arguments.at(2))))
}

pub(crate) fn list(arguments: Arguments<'_>) -> Parsed<'_> {
    check_pattern(arguments.at(1))?;
    Ok(Command::Keys(KeysCommand::List(arguments.at(1))))
}

pub(crate) fn size(_arguments: Arguments<'_>) -> Parsed<'_> {
    Ok(Command::Keys(KeysCommand::Size))
}

/// `SAMPLES` and its number are accepted and ignored: Redis samples a value with them, here its size is
/// known.
pub(crate) fn memory(arguments: Arguments<'_>) -> Parsed<'_> {
    match (arguments.get(3), arguments.get(4), arguments.len()) {
        (None, ..) => {}
        (Some(option), Some(samples), 5) if is_word(option, "SAMPLES") => {
            let samples = integer(samples).ok_or(Refusal::NotInteger)?;
            if samples < 0 {
                return Err(Refusal::Syntax);
            }
        }
        _ => return Err(Refusal::Syntax),
    }
    Ok(Command::Keys(KeysCommand::Memory(arguments.at(2))))
}

pub(crate) fn drop_database(arguments: Arguments<'_>) -> Parsed<'_> {
    drop_all(arguments, false)
}

pub(crate) fn drop_databases(arguments: Arguments<'_>) -> Parsed<'_> {
    drop_all(arguments, true)
}

/// `SYNC` and `ASYNC` are accepted and equivalent: the reply is sent once all filters are dropped.
fn drop_all(arguments: Arguments<'_>, of_all_databases: bool) -> Parsed<'_> {
    let is_mode = |word: &[u8]| is_word(word, "SYNC") || is_word(word, "ASYNC");
    match (arguments.get(1), arguments.len()) {
        (None, _) => {}
        (Some(mode), 2) if is_mode(mode) => {}
        _ => return Err(Refusal::Syntax),
    }
    Ok(Command::Keys(KeysCommand::DropAll { of_all_databases }))
}

pub(crate) fn rename(arguments: Arguments<'_>) -> Parsed<'_> {
    renamed(arguments, true)
}

pub(crate) fn rename_to_free(arguments: Arguments<'_>) -> Parsed<'_> {
    renamed(arguments, false)
}

fn renamed(arguments: Arguments<'_>, replaces: bool) -> Parsed<'_> {
    let (key, new_key) = (arguments.at(1), arguments.at(2));
    Ok(Command::Keys(KeysCommand::Rename { key, new_key, replaces }))
}

pub(crate) fn copy(arguments: Arguments<'_>) -> Parsed<'_> {
    let (key, new_key) = (arguments.at(1), arguments.at(2));
    let (mut in_database, mut replaces, mut at) = (None, false, 3);
    while let Some(option) = arguments.get(at) {
        if is_word(option, "REPLACE") {
            replaces = true;
        } else if is_word(option, "DB") {
            at += 1;
            in_database = Some(database(arguments.get(at).ok_or(Refusal::Syntax)?)?);
        } else {
            return Err(Refusal::Syntax);
        }
        at += 1;
    }
    Ok(Command::Keys(KeysCommand::Copy { key, new_key, database: in_database, replaces }))
}

pub(crate) fn scan(arguments: Arguments<'_>) -> Parsed<'_> {
    let cursor = natural(arguments.at(1)).ok_or(Refusal::Cursor)?;
    let mut scan = Scan { cursor, pattern: None, count: SCAN_COUNT_DEFAULT, of_type: None };
    let mut at = 2;
    while let Some(option) = arguments.get(at) {
        let value = arguments.get(at + 1).ok_or(Refusal::Syntax)?;
        if is_word(option, "MATCH") {
            check_pattern(value)?;
            scan.pattern = Some(value);
        } else if is_word(option, "COUNT") {
            let count = integer(value).ok_or(Refusal::NotInteger)?;
            let count = u64::try_from(count).ok().filter(|&count| count > 0);
            scan.count = count.ok_or(Refusal::Syntax)?;
        } else if is_word(option, "TYPE") {
            scan.of_type = Some(value);
        } else {
            return Err(Refusal::Syntax);
        }
        at += 2;
    }
    Ok(Command::Keys(KeysCommand::Scan(scan)))
}
