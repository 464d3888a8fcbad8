//! Parses the arguments of `BF.*` like RedisBloom.

use super::{AnswerForm, Command, InfoField, InsertItems, Items, NewBloom, Parsed};
use crate::arguments::{Arguments, is_word};
use crate::number::{float, integer};
use crate::refusal::Refusal;

/// Largest error rate; RedisBloom silently reduces larger ones to it.
const ERROR_RATE_MAX: f64 = 0.25;

/// Largest capacity: 2^30, as in RedisBloom.
const CAPACITY_MAX: i64 = 1 << 30;

/// Largest expansion, as in RedisBloom.
const EXPANSION_MAX: i64 = 32_768;

/// Index of the first option of `BF.RESERVE`.
const RESERVE_OPTIONS_AT: usize = 4;

/// Most arguments of `BF.RESERVE`, with its name.
const RESERVE_ARGUMENTS_MAX: usize = 7;

pub(crate) fn reserve(arguments: Arguments<'_>) -> Parsed<'_> {
    if arguments.len() > RESERVE_ARGUMENTS_MAX {
        return Err(Refusal::Arity { command: "bf.reserve" });
    }
    let error_rate = float(arguments.at(2)).ok_or(Refusal::BadErrorRate)?;
    let error_rate = rate_in_range(error_rate).ok_or(Refusal::ErrorRateRange)?;
    let capacity = integer(arguments.at(3)).ok_or(Refusal::BadCapacity)?;
    let capacity = capacity_in_range(capacity).ok_or(Refusal::CapacityRange)?;
    let options = arguments.from(RESERVE_OPTIONS_AT);
    let is_fixed = options.iter().any(|option| is_word(option, "NONSCALING"));
    let mut expansion = if is_fixed { 0 } else { NewBloom::default().expansion };
    if let Some(at) = options.iter().position(|option| is_word(option, "EXPANSION")) {
        let value = options.get(at + 1).ok_or(Refusal::NoExpansion)?;
        let value = integer(value).ok_or(Refusal::BadExpansion)?;
        if is_fixed && value != 0 {
            return Err(Refusal::NonScalingExpands);
        }
        expansion = expansion_in_range(value).ok_or(Refusal::ExpansionRange)?;
    }
    let new = NewBloom { error_rate, capacity, expansion };
    Ok(Command::Reserve { key: arguments.at(1), new })
}

fn rate_in_range(rate: f64) -> Option<f64> {
    (rate > 0.0 && rate < 1.0).then(|| rate.min(ERROR_RATE_MAX))
}

fn capacity_in_range(capacity: i64) -> Option<u64> {
    let is_in = (1..=CAPACITY_MAX).contains(&capacity);
    u64::try_from(capacity).ok().filter(|_| is_in)
}

pub(super) fn expansion_in_range(expansion: i64) -> Option<u32> {
    let is_in = (0..=EXPANSION_MAX).contains(&expansion);
    u32::try_from(expansion).ok().filter(|_| is_in)
}

fn inserted(items: Items<'_>) -> Command<'_> {
    Command::Insert(InsertItems { items, new: Some(NewBloom::default()), request: None })
}

pub(crate) fn add(arguments: Arguments<'_>) -> Parsed<'_> {
    Ok(inserted(Items::of(arguments, AnswerForm::One)))
}

pub(crate) fn add_many(arguments: Arguments<'_>) -> Parsed<'_> {
    Ok(inserted(Items::of(arguments, AnswerForm::List)))
}

pub(crate) fn exists(arguments: Arguments<'_>) -> Parsed<'_> {
    Ok(Command::Contains(Items::of(arguments, AnswerForm::One)))
}

pub(crate) fn exist_many(arguments: Arguments<'_>) -> Parsed<'_> {
    Ok(Command::Contains(Items::of(arguments, AnswerForm::List)))
}

/// An option of `BF.INSERT`. RedisBloom distinguishes them by a few of their letters.
enum InsertOption {
    Items,
    ErrorRate,
    Expansion,
    Capacity,
    NoCreate,
    NonScaling,
}

impl InsertOption {
    fn of(word: &[u8]) -> Option<Self> {
        let letter = |at: usize| word.get(at).map(u8::to_ascii_lowercase);
        Some(match (letter(0)?, letter(1), letter(2)) {
            (b'i', ..) => Self::Items,
            (b'e', Some(b'r'), _) => Self::ErrorRate,
            (b'e', ..) => Self::Expansion,
            (b'c', ..) => Self::Capacity,
            (b'n', _, Some(b'c')) => Self::NoCreate,
            (b'n', ..) => Self::NonScaling,
            _ => return None,
        })
    }
}

pub(crate) fn insert(arguments: Arguments<'_>) -> Parsed<'_> {
    let arity = || Refusal::Arity { command: "bf.insert" };
    let (mut new, mut is_fixed, mut is_made) = (NewBloom::default(), false, true);
    let mut at = 2;
    loop {
        let word = arguments.get(at).ok_or_else(arity)?;
        let option = InsertOption::of(word).ok_or(Refusal::InsertOption)?;
        let value = || arguments.get(at + 1).ok_or_else(arity);
        at += match option {
            InsertOption::Items => break,
            InsertOption::ErrorRate => {
                let rate = float(value()?).and_then(rate_in_range);
                new.error_rate = rate.ok_or(Refusal::InsertErrorRate)?;
                2
            }
            InsertOption::Expansion => {
                let expansion = integer(value()?).and_then(expansion_in_range);
                new.expansion = expansion.ok_or(Refusal::InsertExpansion)?;
                2
            }
            InsertOption::Capacity => {
                let capacity = integer(value()?).and_then(capacity_in_range);
                new.capacity = capacity.ok_or(Refusal::InsertCapacity)?;
                2
            }
            InsertOption::NoCreate => {
                is_made = false;
                1
            }
            InsertOption::NonScaling => {
                is_fixed = true;
                1
            }
        };
    }
    let items = arguments.from(at + 1);
    if items.is_empty() {
        return Err(arity());
    }
    if is_fixed {
        new.expansion = 0;
    }
    let items = Items { key: arguments.at(1), items, form: AnswerForm::List };
    Ok(Command::Insert(InsertItems { items, new: is_made.then_some(new), request: None }))
}

pub(crate) fn cardinality(arguments: Arguments<'_>) -> Parsed<'_> {
    Ok(Command::Cardinality { key: arguments.at(1) })
}

pub(crate) fn info(arguments: Arguments<'_>) -> Parsed<'_> {
    if arguments.len() > 3 {
        return Err(Refusal::Arity { command: "bf.info" });
    }
    let field = match arguments.get(2) {
        None => None,
        Some(word) => Some(info_field(word).ok_or(Refusal::InfoField)?),
    };
    Ok(Command::BloomInfo { key: arguments.at(1), field })
}

pub(crate) fn debug(arguments: Arguments<'_>) -> Parsed<'_> {
    Ok(Command::BloomDebug { key: arguments.at(1) })
}

fn info_field(word: &[u8]) -> Option<InfoField> {
    let names = [
        ("CAPACITY", InfoField::Capacity),
        ("SIZE", InfoField::Size),
        ("FILTERS", InfoField::Filters),
        ("ITEMS", InfoField::Items),
        ("EXPANSION", InfoField::Expansion),
    ];
    names.into_iter().find(|(name, _)| is_word(word, name)).map(|(_, field)| field)
}
