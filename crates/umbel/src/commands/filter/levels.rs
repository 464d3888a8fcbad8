//! Levels of acknowledgement and of reading, as arguments and in output.

use clap::ValueEnum;
use umbel_client::{AckLevel, ReadLevel};

/// On how many nodes inserts are durable when they are acknowledged.
#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(super) enum AckArg {
    /// On the node that answers; replicated filters only, and their default
    Local,
    /// On that node and on one more; replicated filters only
    Partner,
    /// On a majority: of the shard's replicas, or of all nodes
    Majority,
}

/// Who must agree to an answer.
#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(super) enum LevelArg {
    /// The shard's leader, which sees all acknowledged inserts; the default of partitioned filters
    Linearizable,
    /// Any replica may say "present"; only an "absent" asks the leader
    AnyReplica,
    /// One node's own copy; replicated filters only, and their default
    Local,
    /// "absent" if a majority of all nodes say so; replicated filters only
    Majority,
}

impl AckArg {
    /// The level in the client's API.
    pub(super) const fn level(self) -> AckLevel {
        match self {
            Self::Local => AckLevel::Local,
            Self::Partner => AckLevel::OnePartner,
            Self::Majority => AckLevel::Majority,
        }
    }
}

impl LevelArg {
    /// The level in the client's API.
    pub(super) const fn level(self) -> ReadLevel {
        match self {
            Self::Linearizable => ReadLevel::Linearizable,
            Self::AnyReplica => ReadLevel::AnyReplica,
            Self::Local => ReadLevel::Local,
            Self::Majority => ReadLevel::Majority,
        }
    }
}

/// The name of an acknowledgement level; None if the answer has none.
pub(super) const fn ack_name(level: AckLevel) -> Option<&'static str> {
    match level {
        AckLevel::Unspecified => None,
        AckLevel::Local => Some("local"),
        AckLevel::OnePartner => Some("partner"),
        AckLevel::Majority => Some("majority"),
    }
}

/// The name of a read level; None if the answer has none.
pub(super) const fn read_name(level: ReadLevel) -> Option<&'static str> {
    match level {
        ReadLevel::Unspecified => None,
        ReadLevel::Linearizable => Some("linearizable"),
        ReadLevel::AnyReplica => Some("any-replica"),
        ReadLevel::Local => Some("local"),
        ReadLevel::Majority => Some("majority"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn levels_are_shown_as_they_are_written() {
        for level in AckArg::value_variants() {
            let written = level.to_possible_value().unwrap();
            assert_eq!(ack_name(level.level()), Some(written.get_name()));
        }
        for level in LevelArg::value_variants() {
            let written = level.to_possible_value().unwrap();
            assert_eq!(read_name(level.level()), Some(written.get_name()));
        }
    }
}
