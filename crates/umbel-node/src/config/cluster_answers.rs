//! Answers to `CLUSTER` of the Redis protocol.

/// How a node answers `CLUSTER`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ClusterAnswers {
    /// As one node that has all slots.
    Single,
    /// As a cluster in which each node has a part of the slots.
    Spread,
    /// As a server without cluster support, by an error.
    Off,
}

impl ClusterAnswers {
    /// The answers with this name in settings.
    pub(super) fn of(name: &str) -> Option<Self> {
        match name {
            "single" => Some(Self::Single),
            "spread" => Some(Self::Spread),
            "off" => Some(Self::Off),
            _ => None,
        }
    }
}
