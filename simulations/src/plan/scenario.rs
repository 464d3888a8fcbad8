//! Sessions of set reconciliation, as plans have them.

use serde::{Deserialize, Serialize};

/// Hosts with a set each, numbered from 1. Item `n` is the same on all of them.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct SetsPlan {
    /// What the items are.
    pub(crate) items: ItemKind,
    /// Items that all hosts have.
    pub(crate) shared: u32,
    /// Items that each host alone has; as many hosts there are.
    pub(crate) own: Vec<u32>,
    /// Longest time that a message takes, in simulated milliseconds.
    pub(crate) latency_ms: u32,
    /// Items that are added while sessions run.
    pub(crate) growth: Vec<Growth>,
}

/// What items are.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum ItemKind {
    /// Numbers of 64 bits.
    Ids,
    /// 32 bytes each.
    Hashes,
    /// Texts of different lengths.
    Lines,
    /// Records with a key, of which some share theirs.
    Records,
}

/// A host's set grows.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Growth {
    /// When, in simulated milliseconds.
    pub(crate) at_ms: u64,
    /// Whose.
    pub(crate) host: u32,
    /// By how many new items.
    pub(crate) count: u32,
}

/// A session.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Scenario {
    /// When it begins, in simulated milliseconds.
    pub(crate) at_ms: u64,
    /// Who begins it.
    pub(crate) initiator: u32,
    /// Who answers.
    pub(crate) responder: u32,
    /// What becomes of the difference.
    pub(crate) way: Way,
    /// Whether it saves round trips instead of bytes.
    pub(crate) fast: bool,
    /// Whether a comparison brings contents.
    pub(crate) contents: bool,
    /// Whether a comparison notifies the responder too.
    pub(crate) told: bool,
    /// The difference that the initiator expects.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) expected: Option<u64>,
    /// Bytes that it may cost each side.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) bytes_max: Option<u64>,
    /// Whether symbols are so short that they collide now and then.
    pub(crate) short: bool,
    /// Whether it goes on where it was cut.
    #[serde(default)]
    pub(crate) resume: bool,
    /// Who begins with a stored sketch.
    #[serde(default, skip_serializing_if = "Kept::is_neither")]
    pub(crate) kept: Kept,
    /// Bytes that a side writes in a simulated millisecond.
    pub(crate) chunk_bytes: u32,
    /// What goes wrong.
    pub(crate) trouble: Trouble,
}

/// Whose stored sketches a session begins with.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Kept {
    /// Nobody's.
    #[default]
    Neither,
    /// The initiator's alone.
    First,
    /// Both sides'.
    Both,
}

impl Kept {
    fn is_neither(&self) -> bool {
        *self == Self::Neither
    }
}

/// What becomes of the difference.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Way {
    /// It is told.
    Compare,
    /// The initiator takes what it lacks.
    Pull,
    /// The responder does.
    Push,
    /// Both do.
    Both,
}

/// When something happens to a side of a session.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum After {
    /// When it has written so many bytes.
    Bytes(u64),
    /// Before it takes its input of this number, from 0.
    Inputs(u32),
}

/// What goes wrong with a session. Of two sides it is the initiator's if `first`.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
#[serde(tag = "do", rename_all = "snake_case", deny_unknown_fields)]
pub(crate) enum Trouble {
    /// Nothing.
    Nothing,
    /// A side drops the connection.
    Reset { first: bool, after: After },
    /// What is sent between the hosts is lost from then on; in one direction only, or both.
    Cut { first: bool, after: After, one_way: bool, for_ms: u64 },
    /// What is sent between the hosts waits.
    Hold { first: bool, after: After, for_ms: u64 },
    /// The side's host crashes. Its set survives.
    Crash { first: bool, after: After, for_ms: u64 },
    /// Each write of the side resets the connection with this chance, in thousandths.
    Loss { first: bool, per_mille: u32 },
    /// Something happens to the side's frame of this number, from 0.
    Lie { first: bool, frame: u32, how: Lie },
    /// The responder is one that the initiator cannot agree with.
    Stranger { what: Stranger },
}

/// What happens to a frame.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Lie {
    /// A bit is flipped.
    Flip,
    /// Its end is missing.
    Cut,
    /// It is missing.
    Drop,
    /// It comes twice.
    Repeat,
    /// It comes behind the next one.
    Swap,
    /// A bit of its body is flipped, and the checksum is right.
    Body,
    /// One of its first bytes, where counts are, becomes another, and the checksum is right.
    Count,
    /// One of its last bytes becomes another, and the checksum is right.
    End,
}

impl Lie {
    /// All of them.
    pub(crate) const ALL: [Self; 8] = [
        Self::Flip,
        Self::Cut,
        Self::Drop,
        Self::Repeat,
        Self::Swap,
        Self::Body,
        Self::Count,
        Self::End,
    ];

    /// Those that cannot be told from what an honest side may say.
    pub(crate) const PLAUSIBLE: [Self; 3] = [Self::Body, Self::Count, Self::End];

    /// Whether it is one of these.
    pub(crate) const fn is_plausible(self) -> bool {
        matches!(self, Self::Body | Self::Count | Self::End)
    }
}

/// Whom an initiator cannot agree with.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Stranger {
    /// It has another secret.
    Secret,
    /// It has another dataset.
    Dataset,
    /// Its items are of another kind.
    Kind,
}

impl Trouble {
    /// Its name in counters; none for nothing.
    pub(crate) const fn class(self) -> Option<&'static str> {
        Some(match self {
            Self::Nothing => return None,
            Self::Reset { .. } => "session_reset",
            Self::Cut { .. } => "session_cut",
            Self::Hold { .. } => "session_hold",
            Self::Crash { .. } => "session_crash",
            Self::Loss { .. } => "session_loss",
            Self::Lie { .. } => "session_lie",
            Self::Stranger { .. } => "session_stranger",
        })
    }

    /// Whether it lets one side say what is not so.
    pub(crate) const fn is_plausible_lie(self) -> bool {
        matches!(self, Self::Lie { how, .. } if how.is_plausible())
    }
}
