//! The kinds of filters: numbers, names, and what can be said of a kind without a filter.

use std::fmt;
use std::str::FromStr;

use thiserror::Error;

/// The kinds of filters, by the number that stands for them in frames.
///
/// ```
/// use umbel_filter::Kind;
///
/// assert_eq!(Kind::from_id(2), Some(Kind::Blocked));
/// assert_eq!(Kind::Counting.to_string(), "counting");
/// assert_eq!("single-shot".parse(), Ok(Kind::SingleShot));
/// ```
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
#[repr(u8)]
pub enum Kind {
    /// One probe an item, stored as Golomb-coded gaps.
    SingleShot = 1,
    /// Up to 16 probes in one block of 512 bits.
    Blocked = 2,
    /// k probes anywhere in a block of up to 64 KiB.
    Classic = 3,
    /// One probe in each of k parts of a block of up to 64 KiB.
    Partitioned = 4,
    /// As blocked, with a 4-bit counter in place of each bit.
    Counting = 5,
    /// A chain of blocked filters that grows.
    Scalable = 6,
    /// A table of fingerprints, each with the slice of time that it belongs to.
    Window = 7,
    /// Two blocked filters, of which the older is dropped when the newer is full.
    Aging = 8,
    /// Counters that every insert lowers somewhere.
    Stable = 9,
    /// A table of fingerprints, from which items can be taken out.
    Cuckoo = 10,
    /// A sorted table of remainders with counts: items can be taken out, and filters merge.
    Quotient = 11,
    /// RedisBloom's chain of filters that grows, bit by bit as RedisBloom lays it out.
    RedisBloom = 12,
}

impl Kind {
    /// Every kind, by ascending number.
    pub const ALL: [Self; 12] = [
        Self::SingleShot,
        Self::Blocked,
        Self::Classic,
        Self::Partitioned,
        Self::Counting,
        Self::Scalable,
        Self::Window,
        Self::Aging,
        Self::Stable,
        Self::Cuckoo,
        Self::Quotient,
        Self::RedisBloom,
    ];

    /// The kind with this stored number, or None if no release knows it.
    #[must_use]
    pub fn from_id(id: u8) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.id() == id)
    }

    /// The number stored for it, never reused.
    #[must_use]
    pub const fn id(self) -> u8 {
        self as u8
    }

    /// Its name: what it is called in commands, settings and messages.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::SingleShot => "single-shot",
            Self::Blocked => "blocked",
            Self::Classic => "classic",
            Self::Partitioned => "partitioned",
            Self::Counting => "counting",
            Self::Scalable => "scalable",
            Self::Window => "window",
            Self::Aging => "aging",
            Self::Stable => "stable",
            Self::Cuckoo => "cuckoo",
            Self::Quotient => "quotient",
            Self::RedisBloom => "redisbloom",
        }
    }

    /// Whether what is present stays present until the filter is emptied: nothing is removed, and
    /// nothing is forgotten.
    #[must_use]
    pub const fn is_monotone(self) -> bool {
        !matches!(self, Self::Window | Self::Aging | Self::Stable) && !self.removes()
    }

    /// Whether every insert changes it, also one of what is present.
    #[must_use]
    pub const fn counts_every_insert(self) -> bool {
        matches!(self, Self::Counting | Self::Stable | Self::Cuckoo | Self::Quotient)
    }

    /// Whether items can be taken out one by one.
    #[must_use]
    pub const fn removes(self) -> bool {
        matches!(self, Self::Counting | Self::Cuckoo | Self::Quotient)
    }

    /// Whether a filter tells how many copies of an item are in it.
    #[must_use]
    pub const fn tells_copies(self) -> bool {
        matches!(self, Self::Cuckoo | Self::Quotient)
    }

    /// Whether its positions are counters of four bits.
    #[must_use]
    pub const fn has_counters(self) -> bool {
        matches!(self, Self::Counting | Self::Stable)
    }

    /// Whether it is a table of fingerprints or remainders: what is set in its words is no position of an item, and at some
    /// point it is full.
    #[must_use]
    pub const fn has_fingerprints(self) -> bool {
        matches!(self, Self::Window | Self::Cuckoo | Self::Quotient)
    }

    /// Whether it makes room for more items than it was made for, in steps: a scalable filter opens a level,
    /// RedisBloom's a link unless it is fixed, a quotient filter [doubles its quotients](crate::Quotient::grow).
    #[must_use]
    pub const fn grows(self) -> bool {
        matches!(self, Self::Scalable | Self::Quotient | Self::RedisBloom)
    }

    /// Whether a filter holds all items wherever their hashes lie, because its layout cannot be cut by hash range: in a
    /// service it lives in one shard, whole.
    #[must_use]
    pub const fn is_whole(self) -> bool {
        matches!(self, Self::RedisBloom)
    }

    /// Whether it forgets by what comes, at a [pace](crate::BlockShape::with_pace).
    #[must_use]
    pub const fn has_pace(self) -> bool {
        matches!(self, Self::Aging | Self::Stable)
    }

    /// Whether it is an array of bits and nothing beside them: what several have in common is the AND of their
    /// words, and an item sets a known number of them.
    #[must_use]
    pub const fn is_bit_array(self) -> bool {
        matches!(self, Self::Blocked | Self::Classic | Self::Partitioned)
    }

    /// Whether two filters of one shape merge, by OR or by the sum of what they count.
    #[must_use]
    pub const fn merges(self) -> bool {
        self.merges_by_or() || self.merges_by_sum()
    }

    /// Whether two filters of one shape merge by the sum of what they count, so that a merge that is
    /// done twice counts twice.
    #[must_use]
    pub const fn merges_by_sum(self) -> bool {
        matches!(self, Self::Counting | Self::Quotient)
    }

    /// Whether two filters of one shape merge by the OR of their positions, so that a merge that is
    /// done twice is done once.
    #[must_use]
    pub const fn merges_by_or(self) -> bool {
        matches!(self, Self::SingleShot | Self::Blocked | Self::Classic | Self::Partitioned)
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// By the name, in letters of either case.
impl FromStr for Kind {
    type Err = UnknownKind;

    fn from_str(name: &str) -> Result<Self, UnknownKind> {
        let is_it = |kind: &Self| kind.name().eq_ignore_ascii_case(name);
        Self::ALL
            .into_iter()
            .find(is_it)
            .ok_or_else(|| UnknownKind { name: name.chars().take(NAME_CHARS_SHOWN_MAX).collect() })
    }
}

/// No kind has this name. Name one that there is.
#[derive(Clone, PartialEq, Eq, Debug, Error)]
#[error("`{name}` is no kind of filter, expected {}", names_to_choose())]
pub struct UnknownKind {
    /// The beginning of the name that was given.
    pub name: String,
}

/// The names of all kinds but windows: a window is created by its slices, not by the name of its kind.
fn names_to_choose() -> String {
    let kinds = Kind::ALL.into_iter().filter(|kind| *kind != Kind::Window);
    kinds.map(Kind::name).collect::<Vec<_>>().join(", ")
}

/// Longest part of an unknown name that a message repeats: whoever sent it may have sent megabytes.
const NAME_CHARS_SHOWN_MAX: usize = 40;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_read_back_and_others_refused_with_all_that_there_are() {
        for kind in Kind::ALL {
            assert_eq!(kind.name().parse(), Ok(kind));
            assert_eq!(kind.name().to_uppercase().parse(), Ok(kind));
        }
        for name in ["", "ribbon", "single_shot", " blocked"] {
            assert_eq!(name.parse::<Kind>(), Err(UnknownKind { name: name.to_owned() }));
        }
        let text = "ä".repeat(1 << 20).parse::<Kind>().unwrap_err().to_string();
        assert!(text.contains("ä` is no kind") && text.contains("blocked, classic"), "{text}");
        assert!(text.len() < 300);
        for kind in Kind::ALL {
            assert_eq!(text.contains(kind.name()), kind != Kind::Window, "{text}");
        }
    }
}
