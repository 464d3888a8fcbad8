//! How far answers reach.

/// Which replica may answer a question.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum ReadLevel {
    /// The leader, after a majority confirmed it.
    Linearizable,
    /// Any replica may say "present".
    AnyReplica,
    /// The copy of the node that was asked. Of replicated filters only.
    Local,
    /// Whatever a majority of all nodes says. Of replicated filters only.
    Majority,
}

/// On how many nodes an insert is durable when it is acknowledged.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum AckLevel {
    /// On this one. Of replicated filters only.
    Local,
    /// On this one and one more. Of replicated filters only.
    OnePartner,
    /// On a majority of a shard's replicas, or of all nodes.
    Majority,
}
