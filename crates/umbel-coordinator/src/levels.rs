//! The consistency of reads and the durability of inserts.

/// Which replicas may answer a read.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ReadLevel {
    /// The leader, after a majority has confirmed it.
    Linearizable,
    /// Any replica may answer "present"; the leader answers for the other items.
    AnyReplica,
    /// The copy of the node that received the request. Only for replicated filters.
    Local,
    /// The copies of a majority of all nodes. Only for replicated filters.
    Majority,
}

/// On how many nodes an insert is durable when it is acknowledged.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum AckLevel {
    /// On this node. Only for replicated filters.
    Local,
    /// On this node and one more. Only for replicated filters.
    OnePartner,
    /// On a majority of a shard's replicas, or of all nodes.
    Majority,
}
