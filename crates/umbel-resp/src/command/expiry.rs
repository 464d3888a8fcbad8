//! Parses the arguments of commands on the expiry of keys.

use super::{Command, Condition, Expiry, ExpiryCommand, Parsed, TimeUnit};
use crate::arguments::{Arguments, is_word};
use crate::number::integer;
use crate::refusal::Refusal;

fn set<'a>(
    arguments: Arguments<'a>,
    command: &'static str,
    unit: TimeUnit,
    make: fn(i64) -> Expiry,
) -> Parsed<'a> {
    let condition = condition(arguments.from(3))?;
    let number = integer(arguments.at(2)).ok_or(Refusal::NotInteger)?;
    let ms = match unit {
        TimeUnit::Milliseconds => Some(number),
        TimeUnit::Seconds => number.checked_mul(1_000),
    };
    let expiry = make(ms.ok_or(Refusal::ExpireTime { command })?);
    Ok(Command::Expiry(ExpiryCommand::Set { command, key: arguments.at(1), expiry, condition }))
}

fn condition(options: Arguments<'_>) -> Result<Condition, Refusal> {
    let (mut nx, mut xx, mut gt, mut lt) = (false, false, false, false);
    for option in options.iter() {
        if is_word(option, "NX") {
            nx = true;
        } else if is_word(option, "XX") {
            xx = true;
        } else if is_word(option, "GT") {
            gt = true;
        } else if is_word(option, "LT") {
            lt = true;
        } else {
            let option = String::from_utf8_lossy(option).into_owned();
            return Err(Refusal::UnsupportedOption { option });
        }
    }
    match (nx, xx, gt, lt) {
        (true, true, ..) | (true, _, true, _) | (true, _, _, true) => Err(Refusal::NxAndOthers),
        (_, _, true, true) => Err(Refusal::GtAndLt),
        (true, ..) => Ok(Condition::IfNone),
        (_, true, true, _) => Ok(Condition::IfSomeAndLater),
        (_, true, _, true) => Ok(Condition::IfSomeAndEarlier),
        (_, true, ..) => Ok(Condition::IfSome),
        (_, _, true, _) => Ok(Condition::IfLater),
        (_, _, _, true) => Ok(Condition::IfEarlier),
        _ => Ok(Condition::Always),
    }
}

pub(crate) fn expire(arguments: Arguments<'_>) -> Parsed<'_> {
    set(arguments, "expire", TimeUnit::Seconds, Expiry::InMs)
}

pub(crate) fn expire_ms(arguments: Arguments<'_>) -> Parsed<'_> {
    set(arguments, "pexpire", TimeUnit::Milliseconds, Expiry::InMs)
}

pub(crate) fn expire_at(arguments: Arguments<'_>) -> Parsed<'_> {
    set(arguments, "expireat", TimeUnit::Seconds, Expiry::AtMs)
}

pub(crate) fn expire_at_ms(arguments: Arguments<'_>) -> Parsed<'_> {
    set(arguments, "pexpireat", TimeUnit::Milliseconds, Expiry::AtMs)
}

fn ask(arguments: Arguments<'_>, unit: TimeUnit, is_moment: bool) -> Parsed<'_> {
    Ok(Command::Expiry(ExpiryCommand::Ask { key: arguments.at(1), unit, is_moment }))
}

pub(crate) fn left(arguments: Arguments<'_>) -> Parsed<'_> {
    ask(arguments, TimeUnit::Seconds, false)
}

pub(crate) fn left_ms(arguments: Arguments<'_>) -> Parsed<'_> {
    ask(arguments, TimeUnit::Milliseconds, false)
}

pub(crate) fn moment(arguments: Arguments<'_>) -> Parsed<'_> {
    ask(arguments, TimeUnit::Seconds, true)
}

pub(crate) fn moment_ms(arguments: Arguments<'_>) -> Parsed<'_> {
    ask(arguments, TimeUnit::Milliseconds, true)
}

pub(crate) fn persist(arguments: Arguments<'_>) -> Parsed<'_> {
    Ok(Command::Expiry(ExpiryCommand::Persist(arguments.at(1))))
}
