//! Sessions of set reconciliation in plans.

use serde::{Deserialize, Serialize};

/// Hosts that have one set each, numbered from 1. Item `n` is the same on all of them.
#[derive(Clone, PartialEq, Eq, Hash, Default, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct SetsPlan {
    /// The kind of the items.
    pub(crate) items: ItemKind,
    /// Number of items that all hosts have.
    pub(crate) shared: u32,
    /// For each host, the number of items that it alone has; its length is the number of hosts.
    pub(crate) own: Vec<u32>,
    /// Longest latency of a message, in simulated milliseconds.
    pub(crate) latency_ms: u32,
    /// Items that are added while sessions run.
    pub(crate) growth: Vec<Growth>,
}

/// A kind of items.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum ItemKind {
    /// 64-bit numbers.
    #[default]
    Ids,
    /// Strings of 32 bytes.
    Hashes,
    /// Texts of different lengths.
    Lines,
    /// Records with a key; some records share a key.
    Records,
}

/// A host's set grows.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Growth {
    /// When, in simulated milliseconds.
    pub(crate) at_ms: u64,
    /// The host.
    pub(crate) host: u32,
    /// The number of new items.
    pub(crate) count: u32,
}

/// A session.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Scenario {
    /// When it begins, in simulated milliseconds.
    pub(crate) at_ms: u64,
    /// The host that begins it.
    pub(crate) initiator: u32,
    /// The host that responds.
    pub(crate) responder: u32,
    /// What is done with the difference.
    pub(crate) way: Way,
    /// Whether it minimizes round trips instead of bytes.
    pub(crate) fast: bool,
    /// Whether a comparison transfers the items' contents.
    pub(crate) contents: bool,
    /// Whether a comparison notifies the responder too.
    pub(crate) told: bool,
    /// The difference that the initiator expects.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) expected: Option<u64>,
    /// Most bytes that each side may spend.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) bytes_max: Option<u64>,
    /// Whether symbols are so short that some collide.
    pub(crate) short: bool,
    /// Whether it is resumed after a cut.
    #[serde(default)]
    pub(crate) resume: bool,
    /// Which sides begin with a stored sketch.
    #[serde(default, skip_serializing_if = "Kept::is_neither")]
    pub(crate) kept: Kept,
    /// Bytes that a side writes in a simulated millisecond.
    pub(crate) chunk_bytes: u32,
    /// What goes wrong.
    pub(crate) trouble: Trouble,
}

/// Which sides of a session begin with a stored sketch.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Kept {
    /// Neither side.
    #[default]
    Neither,
    /// The initiator only.
    First,
    /// Both sides.
    Both,
}

impl Kept {
    fn is_neither(&self) -> bool {
        *self == Self::Neither
    }
}

/// What is done with the difference.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Way {
    /// It is reported only.
    Compare,
    /// The initiator adds the items that it lacks.
    Pull,
    /// The responder adds the items that it lacks.
    Push,
    /// Both sides add the items that they lack.
    Both,
}

/// When something happens to a side of a session.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum After {
    /// Once it has written so many bytes.
    Bytes(u64),
    /// Before it handles its input of this number, counted from 0.
    Inputs(u32),
}

/// A fault of a session. It affects the initiator if `first`, and otherwise the responder.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
#[serde(tag = "do", rename_all = "snake_case", deny_unknown_fields)]
pub(crate) enum Trouble {
    /// Nothing.
    Nothing,
    /// A side drops the connection.
    Reset { first: bool, after: After },
    /// Messages between the hosts are lost for `for_ms`, in one direction or both.
    Cut { first: bool, after: After, one_way: bool, for_ms: u64 },
    /// Messages between the hosts are held for `for_ms`.
    Hold { first: bool, after: After, for_ms: u64 },
    /// The side's host crashes. Its set survives.
    Crash { first: bool, after: After, for_ms: u64 },
    /// Each write of the side resets the connection with this probability, in thousandths.
    Loss { first: bool, per_mille: u32 },
    /// The side's frame of this number, counted from 0, is changed.
    Lie { first: bool, frame: u32, how: Lie },
    /// The responder is incompatible with the initiator.
    Stranger { what: Stranger },
}

/// A change of a frame.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Lie {
    /// A bit is flipped.
    Flip,
    /// It is truncated.
    Cut,
    /// It is dropped.
    Drop,
    /// It is sent twice.
    Repeat,
    /// It is sent after the next one.
    Swap,
    /// A bit of its body is flipped, with a valid checksum.
    Body,
    /// One of its body's first bytes, where counts are, is changed, with a valid checksum.
    Count,
    /// One of its body's last bytes is changed, with a valid checksum.
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

    /// Lies that cannot be distinguished from the frames of an honest side.
    pub(crate) const PLAUSIBLE: [Self; 3] = [Self::Body, Self::Count, Self::End];

    /// Whether it is one of these.
    pub(crate) const fn is_plausible(self) -> bool {
        matches!(self, Self::Body | Self::Count | Self::End)
    }
}

/// How a responder is incompatible with the initiator.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Stranger {
    /// It has another domain.
    Domain,
    /// It has another dataset.
    Dataset,
    /// Its items are of another kind.
    Kind,
}

impl Trouble {
    /// Its name in counters; None for `Nothing`.
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

    /// Whether one side sends false claims in valid frames.
    pub(crate) const fn is_plausible_lie(self) -> bool {
        matches!(self, Self::Lie { how, .. } if how.is_plausible())
    }
}
