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
    const ALL: [Self; 3] = [Self::Single, Self::Spread, Self::Off];

    /// The name in settings.
    const fn name(self) -> &'static str {
        match self {
            Self::Single => "single",
            Self::Spread => "spread",
            Self::Off => "off",
        }
    }

    /// The answers with this name.
    pub(super) fn of(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|answers| answers.name() == name)
    }
}
