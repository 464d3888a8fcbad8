//! A filter as arrays of words, and the positions that an insert or a removal may change.

use umbel_filter::{AnyFilter, Classic, ItemHash, Kind, Partitioned, RedisBloomLink};

/// Bits of a word.
const WORD_BITS: u32 = 64;

/// A word: the number of its array, and its number there. In the order in which frames are made. A slice has at most
/// 2^25 words.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) struct WordAt {
    pub(super) array: u32,
    pub(super) word: u32,
}

impl WordAt {
    pub(super) fn new(array: usize, word: usize) -> Self {
        let number = |number: usize| u32::try_from(number).unwrap_or(u32::MAX);
        Self { array: number(array), word: number(word) }
    }
}

/// What the positions of a filter are.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum PositionKind {
    /// Bits, which items set and do not clear: one that changes was 0.
    Bit,
    /// Counters of four bits, which items raise and lower.
    Counter,
}

impl PositionKind {
    pub(super) const fn bits(self) -> u32 {
        match self {
            Self::Bit => 1,
            Self::Counter => 4,
        }
    }

    /// Positions of a word.
    pub(super) const fn of_word(self) -> u32 {
        WORD_BITS / self.bits()
    }

    /// Largest content, which has all bits set.
    pub(super) const fn content_max(self) -> u64 {
        (1 << self.bits()) - 1
    }
}

/// A position, with what it holds.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Position {
    pub(super) array: u32,
    /// Its number in the array: of position i, the bits begin at bit i mod p · 64 / p of word i / p, where a word has p.
    pub(super) number: u32,
    pub(super) content: u64,
}

impl Position {
    /// The word that it lies in.
    pub(super) const fn word(self, kind: PositionKind) -> WordAt {
        WordAt { array: self.array, word: self.number / kind.of_word() }
    }
}

/// The words, array by array. Empty for a single-shot filter.
pub(super) fn arrays(filter: &AnyFilter) -> Vec<&[u64]> {
    match filter {
        AnyFilter::SingleShot(_) => Vec::new(),
        AnyFilter::Blocked(filter) => vec![filter.words()],
        AnyFilter::Classic(filter) => vec![filter.words()],
        AnyFilter::Partitioned(filter) => vec![filter.words()],
        AnyFilter::Counting(filter) => vec![filter.words()],
        AnyFilter::Window(filter) => vec![filter.words()],
        AnyFilter::Aging(filter) => vec![filter.words()],
        AnyFilter::Stable(filter) => vec![filter.words()],
        AnyFilter::Cuckoo(filter) => vec![filter.words()],
        AnyFilter::Quotient(filter) => vec![filter.words()],
        AnyFilter::Scalable(filter) => {
            filter.levels().iter().map(|level| level.filter().words()).collect()
        }
        AnyFilter::RedisBloom(filter) => filter.links().iter().map(RedisBloomLink::words).collect(),
    }
}

/// What an insert or a removal changes, if [`for_each_changed`] knows where. None if it does not: in tables, items
/// move; an aging filter drops a generation; a stable filter forgets anywhere; and a single-shot filter is a list.
pub(super) const fn changed_kind(kind: Kind) -> Option<PositionKind> {
    match kind {
        Kind::Blocked | Kind::Classic | Kind::Partitioned | Kind::Scalable | Kind::RedisBloom => {
            Some(PositionKind::Bit)
        }
        Kind::Counting => Some(PositionKind::Counter),
        Kind::SingleShot
        | Kind::Window
        | Kind::Aging
        | Kind::Stable
        | Kind::Cuckoo
        | Kind::Quotient => None,
    }
}

/// Calls this with each position ([`changed_kind`]) that inserting or removing an item may change, as it is, among
/// those that the filter has: levels and links that the insert opens are new. One may come twice.
///
/// *Law.* No item changes anything else, and each bit that is visited is 0.
pub(super) fn for_each_changed(filter: &AnyFilter, hash: ItemHash, visit: impl FnMut(Position)) {
    match filter {
        AnyFilter::Blocked(filter) => {
            changed_bits((0, filter.words()), filter.positions(hash)).for_each(visit);
        }
        AnyFilter::Counting(filter) => {
            let counters = (0, filter.words());
            held(PositionKind::Counter, counters, filter.positions(hash)).for_each(visit);
        }
        AnyFilter::Scalable(filter) => {
            if let Some((newest, level)) = filter.levels().iter().enumerate().next_back() {
                let level = level.filter();
                changed_bits((newest, level.words()), level.positions(hash)).for_each(visit);
            }
        }
        AnyFilter::Classic(filter) => {
            let positions = Classic::positions(filter.block_shape(), hash);
            changed_bits((0, filter.words()), positions).for_each(visit);
        }
        AnyFilter::Partitioned(filter) => {
            let positions = Partitioned::positions(filter.block_shape(), hash);
            changed_bits((0, filter.words()), positions).for_each(visit);
        }
        AnyFilter::RedisBloom(filter) => {
            if let Some((newest, link)) = filter.links().iter().enumerate().next_back() {
                changed_bits((newest, link.words()), link.positions(hash)).for_each(visit);
            }
        }
        AnyFilter::SingleShot(_)
        | AnyFilter::Window(_)
        | AnyFilter::Aging(_)
        | AnyFilter::Stable(_)
        | AnyFilter::Cuckoo(_)
        | AnyFilter::Quotient(_) => {}
    }
}

/// Those of an array's bits that are not set: the others do not change.
fn changed_bits(
    array: (usize, &[u64]),
    numbers: impl Iterator<Item = u64>,
) -> impl Iterator<Item = Position> {
    held(PositionKind::Bit, array, numbers).filter(|bit| bit.content == 0)
}

/// The positions of these numbers in an array, with what they hold.
fn held(
    kind: PositionKind,
    (array, words): (usize, &[u64]),
    numbers: impl Iterator<Item = u64>,
) -> impl Iterator<Item = Position> {
    let array = u32::try_from(array).unwrap_or(u32::MAX);
    numbers.filter_map(move |number| {
        // A slice has at most 2^31 positions.
        let number = u32::try_from(number).ok()?;
        let word = words.get((number / kind.of_word()) as usize)?;
        let content = word >> (number % kind.of_word() * kind.bits()) & kind.content_max();
        Some(Position { array, number, content })
    })
}
