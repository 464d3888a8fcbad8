//! Commands on cuckoo filters, and on quotient filters, which grow: `CF.*`, with arguments parsed like RedisBloom.

use super::{AnswerForm, Command, Items, Parsed};
use crate::arguments::{Arguments, is_word};
use crate::number::integer;
use crate::refusal::Refusal;

/// Largest capacity: 2^30, as in RedisBloom.
const CAPACITY_MAX: i64 = 1 << 30;

/// Planned number of items of a filter that its first item creates: RedisBloom's `cf-initial-size`.
const CAPACITY_DEFAULT: u64 = 1024;

/// Default number of slots per bucket: RedisBloom's `cf-bucket-size`.
const BUCKET_SIZE_DEFAULT: i64 = 2;

/// Index of the first option of `CF.RESERVE`.
const RESERVE_OPTIONS_AT: usize = 3;

/// A command on a filter that tells copies.
#[derive(Clone, Copy, Debug)]
pub enum CuckooCommand<'a> {
    /// `CF.RESERVE`: creates a filter, which must not exist.
    Reserve {
        /// Its name.
        key: &'a [u8],
        /// Planned number of items, from 2 to 2^30.
        capacity: u64,
        /// Whether it makes room for more items: unless `EXPANSION` is 0.
        grows: bool,
    },
    /// `CF.ADD`, `CF.ADDNX`, `CF.INSERT`, `CF.INSERTNX`: inserts items.
    Insert(CuckooInsert<'a>),
    /// `CF.EXISTS`, `CF.MEXISTS`: queries items.
    Contains(Items<'a>),
    /// `CF.COUNT`: how many copies of an item are present.
    Count(Items<'a>),
    /// `CF.DEL`: removes one copy of an item.
    Remove(Items<'a>),
    /// `CF.COMPACT`: has no effect, because a filter has one part.
    Compact {
        /// The filter.
        key: &'a [u8],
    },
    /// `CF.INFO`: describes a filter.
    Info {
        /// The filter.
        key: &'a [u8],
    },
    /// `CF.DEBUG`: describes a filter in one line.
    Debug {
        /// The filter.
        key: &'a [u8],
    },
}

/// Items to insert into a filter that tells copies.
#[derive(Clone, Copy, Debug)]
pub struct CuckooInsert<'a> {
    /// The items and their filter.
    pub items: Items<'a>,
    /// The planned number of items with which a filter that grows is created if it does not exist; None if it
    /// must not be created.
    pub capacity: Option<u64>,
    /// Whether items that are present are not inserted again.
    pub is_new_only: bool,
}

pub(crate) fn reserve(arguments: Arguments<'_>) -> Parsed<'_> {
    // Each option has a value, so an even number of arguments is wrong.
    if arguments.len().is_multiple_of(2) {
        return Err(Refusal::Arity { command: "cf.reserve" });
    }
    let capacity = integer(arguments.at(2)).ok_or(Refusal::InsertCapacity)?;
    let options = arguments.from(RESERVE_OPTIONS_AT);
    let option = |option: &'static str, least: i64, most: i64| {
        let Some(at) = options.iter().position(|word| is_word(word, option)) else {
            return Ok(None);
        };
        let value = options.get(at + 1).and_then(integer);
        let value = value.ok_or(Refusal::CuckooOption { option })?;
        if (least..=most).contains(&value) {
            Ok(Some(value))
        } else {
            Err(Refusal::CuckooOptionRange { option, least, most })
        }
    };
    option("MAXITERATIONS", 1, 65_535)?;
    let bucket_size = option("BUCKETSIZE", 1, 255)?.unwrap_or(BUCKET_SIZE_DEFAULT);
    let grows = option("EXPANSION", 0, 32_768)? != Some(0);
    let capacity = capacity_in_range(capacity, bucket_size);
    let capacity = capacity.ok_or(Refusal::CuckooCapacity { least: "2 * BUCKETSIZE" })?;
    Ok(Command::Cuckoo(CuckooCommand::Reserve { key: arguments.at(1), capacity, grows }))
}

fn capacity_in_range(capacity: i64, bucket_size: i64) -> Option<u64> {
    let is_in = (2 * bucket_size..=CAPACITY_MAX).contains(&capacity);
    u64::try_from(capacity).ok().filter(|_| is_in)
}

fn inserted(items: Items<'_>, capacity: Option<u64>, is_new_only: bool) -> Command<'_> {
    Command::Cuckoo(CuckooCommand::Insert(CuckooInsert { items, capacity, is_new_only }))
}

pub(crate) fn add(arguments: Arguments<'_>) -> Parsed<'_> {
    Ok(inserted(Items::of(arguments, AnswerForm::One), Some(CAPACITY_DEFAULT), false))
}

pub(crate) fn add_new(arguments: Arguments<'_>) -> Parsed<'_> {
    Ok(inserted(Items::of(arguments, AnswerForm::One), Some(CAPACITY_DEFAULT), true))
}

pub(crate) fn insert(arguments: Arguments<'_>) -> Parsed<'_> {
    inserted_list(arguments, "cf.insert", false)
}

pub(crate) fn insert_new(arguments: Arguments<'_>) -> Parsed<'_> {
    inserted_list(arguments, "cf.insertnx", true)
}

/// RedisBloom distinguishes options by their first letter only.
fn inserted_list<'a>(
    arguments: Arguments<'a>,
    command: &'static str,
    is_new_only: bool,
) -> Parsed<'a> {
    let arity = || Refusal::Arity { command };
    let (mut capacity, mut is_made, mut at) = (CAPACITY_DEFAULT, true, 2);
    loop {
        let word = arguments.get(at).ok_or_else(arity)?;
        at += 1;
        match word.first().map(u8::to_ascii_lowercase) {
            Some(b'i') => break,
            Some(b'c') => {
                let value = arguments.get(at).ok_or_else(arity)?;
                let value = integer(value).ok_or(Refusal::InsertCapacity)?;
                let value = capacity_in_range(value, BUCKET_SIZE_DEFAULT);
                capacity = value.ok_or(Refusal::CuckooCapacity { least: "cf-bucket-size * 2" })?;
                at += 1;
            }
            Some(b'n') => is_made = false,
            _ => return Err(Refusal::InsertOption),
        }
    }
    let items = Items { key: arguments.at(1), items: arguments.from(at), form: AnswerForm::List };
    if items.items.is_empty() {
        return Err(arity());
    }
    Ok(inserted(items, is_made.then_some(capacity), is_new_only))
}

pub(crate) fn exists(arguments: Arguments<'_>) -> Parsed<'_> {
    Ok(Command::Cuckoo(CuckooCommand::Contains(Items::of(arguments, AnswerForm::One))))
}

pub(crate) fn exist_many(arguments: Arguments<'_>) -> Parsed<'_> {
    Ok(Command::Cuckoo(CuckooCommand::Contains(Items::of(arguments, AnswerForm::List))))
}

pub(crate) fn count(arguments: Arguments<'_>) -> Parsed<'_> {
    Ok(Command::Cuckoo(CuckooCommand::Count(Items::of(arguments, AnswerForm::One))))
}

pub(crate) fn remove(arguments: Arguments<'_>) -> Parsed<'_> {
    Ok(Command::Cuckoo(CuckooCommand::Remove(Items::of(arguments, AnswerForm::One))))
}

pub(crate) fn compact(arguments: Arguments<'_>) -> Parsed<'_> {
    Ok(Command::Cuckoo(CuckooCommand::Compact { key: arguments.at(1) }))
}

pub(crate) fn info(arguments: Arguments<'_>) -> Parsed<'_> {
    Ok(Command::Cuckoo(CuckooCommand::Info { key: arguments.at(1) }))
}

pub(crate) fn debug(arguments: Arguments<'_>) -> Parsed<'_> {
    Ok(Command::Cuckoo(CuckooCommand::Debug { key: arguments.at(1) }))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::request::Request;
    use crate::table;

    fn parsed(line: &str) -> Result<(Option<u64>, bool, usize), Refusal> {
        let request: Request = line.split(' ').collect();
        let arguments = Arguments::new(&request);
        match table::find(arguments)?.parse(arguments)? {
            Command::Cuckoo(CuckooCommand::Insert(insert)) => {
                Ok((insert.capacity, insert.is_new_only, insert.items.items.len()))
            }
            Command::Cuckoo(CuckooCommand::Reserve { capacity, .. }) => {
                Ok((Some(capacity), false, 0))
            }
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn filters_are_made_for_so_many_items() {
        assert_eq!(parsed("CF.RESERVE k 4"), Ok((Some(4), false, 0)));
        let all = "cf.reserve k 1000 expansion 0 BucketSize 4 MAXITERATIONS 65535";
        assert_eq!(parsed(all), Ok((Some(1_000), false, 0)));
        assert_eq!(parsed("CF.ADD k x"), Ok((Some(1_024), false, 1)));
        assert_eq!(parsed("CF.ADDNX k x"), Ok((Some(1_024), true, 1)));
        assert_eq!(parsed("CF.INSERT k CAPACITY 7 ITEMS a b"), Ok((Some(7), false, 2)));
        assert_eq!(parsed("CF.INSERTNX k NOCREATE c 7 i items"), Ok((None, true, 1)));
    }

    #[test]
    fn a_filter_is_fixed_only_without_expansion() {
        let grows = |line: &str| {
            let request: Request = line.split(' ').collect();
            let arguments = Arguments::new(&request);
            match table::find(arguments).unwrap().parse(arguments) {
                Ok(Command::Cuckoo(CuckooCommand::Reserve { grows, .. })) => grows,
                other => panic!("{other:?}"),
            }
        };
        assert!(grows("CF.RESERVE k 4") && grows("CF.RESERVE k 4 BUCKETSIZE 2"));
        assert!(grows("CF.RESERVE k 4 EXPANSION 1") && grows("CF.RESERVE k 4 expansion 32768"));
        assert!(!grows("CF.RESERVE k 4 EXPANSION 0") && !grows("cf.reserve k 4 Expansion 0"));
    }
}
