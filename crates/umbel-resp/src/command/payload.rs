//! Parses the arguments of `DUMP` and `RESTORE`, which copy a key as one value.

use super::{Command, Expiry, Parsed};
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
        /// When it expires.
        time: RestoreTime<'a>,
        /// Whether a key of that name is replaced.
        replaces: bool,
        /// The payload that `DUMP` returned.
        payload: &'a [u8],
    },
}

/// The time of `RESTORE`, which is read last: as in Redis, a key that exists is refused before a wrong time.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RestoreTime<'a> {
    text: &'a [u8],
    is_moment: bool,
}

impl RestoreTime<'_> {
    /// The expiry of the key; None if it does not expire.
    ///
    /// # Errors
    /// If the time is no number, or below 0.
    pub fn expiry(self) -> Result<Option<Expiry>, Refusal> {
        match integer(self.text).ok_or(Refusal::NotInteger)? {
            ..0 => Err(Refusal::RestoreTime),
            0 => Ok(None),
            at_ms if self.is_moment => Ok(Some(Expiry::AtMs(at_ms))),
            ms => Ok(Some(Expiry::InMs(ms))),
        }
    }
}

/// Largest value of `FREQ`, as in Redis.
const FREQUENCY_MAX: i64 = 255;

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
    let time = RestoreTime { text: arguments.at(2), is_moment };
    let (key, payload) = (arguments.at(1), arguments.at(3));
    Ok(Command::Payload(PayloadCommand::Restore { key, time, replaces, payload }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_of_restore_are_none_relative_or_moments() {
        let expiry = |text: &str, is_moment| {
            let expiry = RestoreTime { text: text.as_bytes(), is_moment }.expiry();
            expiry.map_err(|refusal| refusal.to_string())
        };
        assert_eq!((expiry("0", false), expiry("0", true)), (Ok(None), Ok(None)));
        assert_eq!(expiry("5", false), Ok(Some(Expiry::InMs(5))));
        assert_eq!(expiry("5", true), Ok(Some(Expiry::AtMs(5))));
        for is_moment in [false, true] {
            let below = "ERR Invalid TTL value, must be >= 0".to_owned();
            assert_eq!(expiry("-1", is_moment), Err(below));
            let none = "ERR value is not an integer or out of range".to_owned();
            assert_eq!(expiry("x", is_moment), Err(none));
        }
    }
}
