//! Parses the arguments of `DUMP` and `RESTORE`, which copy a key as one value.

use super::{Command, Expiry};
use crate::arguments::{Arguments, is_word};
use crate::number::integer;
use crate::refusal::Refusal;

/// A command that copies a key as one value.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum PayloadCommand<'a> {
    /// `DUMP`: returns the payload of a key.
    Dump {
        /// The key.
        key: &'a [u8],
    },
    /// `RESTORE`: creates a key from a payload.
    Restore {
        /// Its name.
        key: &'a [u8],
        /// Its expiry; None if it does not expire.
        expiry: Option<Expiry>,
        /// Whether a key of that name is replaced.
        replaces: bool,
        /// The payload that `DUMP` returned.
        payload: &'a [u8],
    },
}

/// Largest value of `FREQ`, as in Redis.
const FREQUENCY_MAX: i64 = 255;

type Parsed<'a> = Result<Command<'a>, Refusal>;

pub(crate) fn dump(arguments: Arguments<'_>) -> Parsed<'_> {
    Ok(Command::Payload(PayloadCommand::Dump { key: arguments.at(1) }))
}

/// `IDLETIME` and `FREQ` are checked but have no effect: no filter is evicted.
pub(crate) fn restore(arguments: Arguments<'_>) -> Parsed<'_> {
    let (mut replaces, mut is_moment) = (false, false);
    let (mut has_idle, mut has_frequency, mut at) = (false, false, 4);
    while let Some(option) = arguments.get(at) {
        let value = arguments.get(at + 1);
        match value {
            _ if is_word(option, "REPLACE") => replaces = true,
            _ if is_word(option, "ABSTTL") => is_moment = true,
            Some(value) if is_word(option, "IDLETIME") && !has_frequency => {
                has_idle = true;
                at += 1;
                if integer(value).ok_or(Refusal::NotInteger)? < 0 {
                    return Err(Refusal::RestoreIdle);
                }
            }
            Some(value) if is_word(option, "FREQ") && !has_idle => {
                has_frequency = true;
                at += 1;
                let frequency = integer(value).ok_or(Refusal::NotInteger)?;
                if !(0..=FREQUENCY_MAX).contains(&frequency) {
                    return Err(Refusal::RestoreFrequency);
                }
            }
            _ => return Err(Refusal::Syntax),
        }
        at += 1;
    }
    let expiry = match integer(arguments.at(2)).ok_or(Refusal::NotInteger)? {
        ..0 => return Err(Refusal::RestoreTime),
        0 => None,
        at_ms if is_moment => Some(Expiry::AtMs(at_ms)),
        ms => Some(Expiry::InMs(ms)),
    };
    let (key, payload) = (arguments.at(1), arguments.at(3));
    Ok(Command::Payload(PayloadCommand::Restore { key, expiry, replaces, payload }))
}
