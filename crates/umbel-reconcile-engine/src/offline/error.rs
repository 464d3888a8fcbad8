//! Errors of sketch files, and what the caller should do.

use thiserror::Error;
use umbel_codec::FirstBytes;

/// Why bytes are not a sketch file. Build or fetch the sketch again.
#[derive(Clone, PartialEq, Eq, Debug, Error)]
pub enum SketchFormatError {
    /// Not a sketch at all.
    #[error("not a sketch: starts with {}, expected `UMSK`", FirstBytes(*got))]
    Magic {
        /// The first bytes.
        got: [u8; 4],
    },
    /// A sketch of another version. Use the release that made it, or build it again.
    #[error("sketch of version {got}, this release reads {expected}")]
    Version {
        /// The version of this release.
        expected: u8,
        /// The version of the file.
        got: u8,
    },
    /// A checksum differs: the file is damaged.
    #[error("{what} is damaged: checksum {got:#010x}, computed {computed:#010x}")]
    Checksum {
        /// The part that the checksum covers.
        what: &'static str,
        /// The checksum in the file.
        got: u32,
        /// The checksum computed over the bytes.
        computed: u32,
    },
    /// A field has a value that no sketch has.
    #[error("`{field}` of the sketch is {got}")]
    Field {
        /// The field's name.
        field: &'static str,
        /// The field's value.
        got: u64,
    },
    /// The bytes end too early.
    #[error("the sketch ends early: {got} coded symbols, expected {expected}")]
    Truncated {
        /// Complete coded symbols.
        got: u64,
        /// Coded symbols that the header announces; 1 if the header itself is incomplete.
        expected: u64,
    },
    /// Bytes follow the last coded symbol.
    #[error("{extra} bytes follow the sketch")]
    Trailing {
        /// How many.
        extra: usize,
    },
}

/// Why a sketch could not be built, changed or decoded. Nothing was changed.
#[derive(Clone, PartialEq, Eq, Debug, Error)]
pub enum SketchError {
    /// The file is not a sketch.
    #[error(transparent)]
    Format(#[from] SketchFormatError),
    /// The sketches have different salts, or items of different forms. Build one of them again with the
    /// other's salt.
    #[error(
        "the sketches have other salts, or other items: build both with the same --salt and in the same way"
    )]
    OtherSpec,
    /// An item was not of the sketch's kind. A bug of the caller.
    #[error("an item of another kind than the sketch's")]
    Mixed,
    /// The sketch that is to be added or removed has fewer coded symbols than the sketch. A bug of the
    /// caller.
    #[error("{got} coded symbols cannot change {min}")]
    Shorter {
        /// Coded symbols of the sketch to be added or removed.
        got: usize,
        /// Coded symbols of the sketch.
        min: usize,
    },
    /// More items than a set may have.
    #[error("{got} items, at most {max} are allowed")]
    TooManyItems {
        /// Items, including those to be added.
        got: u64,
        /// The limit.
        max: u64,
    },
    /// At least some of the items to be removed were never in the set. Find out what the set contains.
    #[error("the sketch's set never had all of these items")]
    NotPresent,
    /// The coded symbols are too few for the difference. Extend the sketch to at least `need_at_least`.
    #[error(
        "{have} coded symbols do not tell a difference of about {estimated}: at least {need_at_least} are needed"
    )]
    InsufficientSymbols {
        /// Coded symbols that were available.
        have: u64,
        /// About 1.5 for each estimated difference, and at least an eighth more than were available.
        need_at_least: u64,
        /// The estimated difference, ± 18 %.
        estimated: u64,
    },
    /// The coded symbols contradict each other. Build the sketch again with another salt.
    #[error("the coded symbols contradict each other: build the sketch again, with another salt")]
    Inconsistent,
    /// The difference decodes, but contradicts the sketch's header: an item was added twice, or removed
    /// while absent, or two items collide. Build the sketch again with another salt.
    #[error(
        "the difference does not agree with the sketch's {what}: an item was added to it twice, or removed that was \
         not there, or two items collide: build the sketch again, with another salt"
    )]
    Unverified {
        /// What differs.
        what: &'static str,
    },
    /// More differences than the caller allows. Raise the limit.
    #[error(
        "{coded_count} coded symbols were not enough, and no more than {max} differences are allowed"
    )]
    LimitExceeded {
        /// Coded symbols that were tried.
        coded_count: usize,
        /// The limit.
        max: u64,
    },
}
