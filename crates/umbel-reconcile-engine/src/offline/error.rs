//! What can go wrong with sketch files, and what the caller should do.

use thiserror::Error;

/// Why bytes are no sketch file. Build the sketch again, or fetch it again.
#[derive(Clone, PartialEq, Eq, Debug, Error)]
pub enum SketchFormatError {
    /// Not a sketch at all.
    #[error("not a sketch: starts with {got:02x?}, expected `UMSK`")]
    Magic {
        /// The first bytes.
        got: [u8; 4],
    },
    /// A sketch of another version. Use the release that has made it, or build it again.
    #[error("sketch of version {got}, this release reads {expected}")]
    Version {
        /// Ours.
        expected: u8,
        /// The file's.
        got: u8,
    },
    /// A checksum differs: the file is damaged.
    #[error("{what} is damaged: checksum {got:#010x}, computed {computed:#010x}")]
    Checksum {
        /// What it covers.
        what: &'static str,
        /// In the file.
        got: u32,
        /// Over what came.
        computed: u32,
    },
    /// A number that no sketch has.
    #[error("`{field}` of the sketch is {got}")]
    Field {
        /// Its name.
        field: &'static str,
        /// What it is.
        got: u64,
    },
    /// The bytes end too early.
    #[error("the sketch ends early: {got} coded symbols, expected {expected}")]
    Truncated {
        /// That came whole.
        got: u64,
        /// That the header announces; 1 if it is not whole itself.
        expected: u64,
    },
    /// Bytes follow the last coded symbol.
    #[error("{extra} bytes follow the sketch")]
    Trailing {
        /// How many.
        extra: usize,
    },
}

/// Why a sketch could not be made, changed or decoded. Nothing was changed.
#[derive(Clone, PartialEq, Eq, Debug, Error)]
pub enum SketchError {
    /// The file is no sketch.
    #[error(transparent)]
    Format(#[from] SketchFormatError),
    /// The sketches have other salts, or their items are other ones. Build one of them again with the other's salt.
    #[error(
        "the sketches have other salts, or other items: build both with the same --salt and in the same way"
    )]
    OtherSpec,
    /// An item was not of the sketch's kind. A bug of the caller.
    #[error("an item of another kind than the sketch's")]
    Mixed,
    /// What shall change a sketch is shorter than it. A bug of the caller.
    #[error("{got} coded symbols cannot change {min}")]
    Shorter {
        /// Of the change.
        got: usize,
        /// Of the sketch.
        min: usize,
    },
    /// More items than a set may have.
    #[error("{got} items, at most {max} are allowed")]
    TooManyItems {
        /// With those to be added.
        got: u64,
        /// The limit.
        max: u64,
    },
    /// What shall be removed was never in the set, at least in part. Find out what the set has.
    #[error("the sketch's set never had all of these items")]
    NotPresent,
    /// The difference is larger than so few coded symbols can decode. Extend the sketch to at least so many.
    #[error(
        "{have} coded symbols do not tell a difference of about {estimated}: at least {need_at_least} are needed"
    )]
    InsufficientSymbols {
        /// Coded symbols that there were.
        have: u64,
        /// About 1.5 for each difference by the estimate, and an eighth more than there were.
        need_at_least: u64,
        /// The estimated difference, ± 18 %.
        estimated: u64,
    },
    /// The coded symbols contradict each other. Build the sketch again, under another salt.
    #[error("the coded symbols contradict each other: build the sketch again, with another salt")]
    Inconsistent,
    /// The difference decodes, but to something that the sketch's header denies. An item was added that was there
    /// already, or removed that was not, or two items collide. Build the sketch again, under another salt.
    #[error(
        "the difference does not agree with the sketch's {what}: an item was added to it twice, or removed that was \
         not there, or two items collide: build the sketch again, with another salt"
    )]
    Unverified {
        /// What disagrees.
        what: &'static str,
    },
    /// More differences than the caller allows. Raise the limit.
    #[error(
        "{coded_count} coded symbols were not enough, and no more than {max} differences are allowed"
    )]
    LimitExceeded {
        /// That were tried.
        coded_count: usize,
        /// The limit.
        max: u64,
    },
}
