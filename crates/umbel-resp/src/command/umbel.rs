//! Arguments of Umbel's own words.

use super::{Command, NewFilter, NewSize, RequestName};
use crate::arguments::{Arguments, is_word};
use crate::number::{float, integer, natural};
use crate::refusal::Refusal;
use crate::table;

type Parsed<'a> = Result<Command<'a>, Refusal>;

pub(crate) fn session(_arguments: Arguments<'_>) -> Parsed<'_> {
    Ok(Command::Session)
}

pub(crate) fn info(arguments: Arguments<'_>) -> Parsed<'_> {
    Ok(Command::FilterInfo { key: arguments.at(1) })
}

pub(crate) fn request(arguments: Arguments<'_>) -> Parsed<'_> {
    let mut name = request_name(arguments.at(1)).ok_or(Refusal::RequestName)?;
    let mut inner = arguments.from(2);
    if is_word(inner.at(0), "BELOW") {
        name.acknowledged_below = natural(inner.at(1)).ok_or(Refusal::RequestName)?;
        inner = inner.from(2);
    }
    if inner.is_empty() {
        return Err(Refusal::Arity { command: "umbel.request" });
    }
    let spec = table::find(inner)?;
    if !matches!(spec.name, "bf.add" | "bf.madd" | "bf.insert") {
        return Err(Refusal::RequestCommand { command: spec.name });
    }
    match spec.parse(inner)? {
        Command::Insert(mut insert) => {
            insert.request = Some(name);
            Ok(Command::Insert(insert))
        }
        _ => Err(Refusal::RequestCommand { command: spec.name }),
    }
}

/// `SESSION:SEQUENCE`.
fn request_name(text: &[u8]) -> Option<RequestName> {
    let colon = text.iter().position(|&byte| byte == b':')?;
    let (session, sequence) = (natural(text.get(..colon)?)?, natural(text.get(colon + 1..)?)?);
    Some(RequestName { session, sequence, acknowledged_below: 0 })
}

pub(crate) fn create(arguments: Arguments<'_>) -> Parsed<'_> {
    let key = arguments.at(1);
    let (mut kind, mut capacity, mut size, mut like) = (None, None, None, None);
    let mut is_replicated = false;
    let mut at = 2;
    while let Some(option) = arguments.get(at) {
        if is_word(option, "REPLICATED") {
            is_replicated = true;
            at += 1;
            continue;
        }
        let value = arguments.get(at + 1).ok_or(Refusal::CreateOption)?;
        let is_second = if is_word(option, "KIND") {
            kind.replace(value).is_some()
        } else if is_word(option, "CAPACITY") {
            capacity.replace(count(value)?).is_some()
        } else if is_word(option, "ERROR") {
            let rate = float(value).filter(|&rate| rate > 0.0 && rate < 1.0);
            let rate = rate.ok_or(Refusal::ErrorRateRange)?;
            size.replace(NewSize::ErrorRate(rate)).is_some()
        } else if is_word(option, "BYTES") {
            size.replace(NewSize::Bytes(count(value)?)).is_some()
        } else if is_word(option, "LIKE") {
            like.replace(value).is_some()
        } else {
            true
        };
        if is_second {
            return Err(Refusal::CreateOption);
        }
        at += 2;
    }
    let new = match (kind, capacity, size, like) {
        (Some(kind), Some(capacity), Some(size), None) => {
            NewFilter::Planned { kind, capacity, size, is_replicated }
        }
        (None, None, None, Some(like)) if !is_replicated => NewFilter::Like(like),
        _ => return Err(Refusal::CreateOption),
    };
    Ok(Command::Create { key, new })
}

/// A number from 1 on.
fn count(text: &[u8]) -> Result<u64, Refusal> {
    let number = integer(text).and_then(|number| u64::try_from(number).ok());
    number.filter(|&number| number > 0).ok_or(Refusal::NotInteger)
}
