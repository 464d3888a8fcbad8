//! Filters for tests of a node's parts, created without a coordinator.

use umbel_engine::FilterId;
use umbel_engine::meta::{
    Distribution, FilterName, FilterSettings, FilterState, HashKey, MetaCommand, MetaReply,
};
use umbel_engine::shard::SliceShape;
use umbel_filter::{CellCount, HashRange, Kind};

use super::deadline;
use crate::node::Node;

/// Creates a blocked filter in a cluster of one node; returns once it can be used there.
pub(crate) async fn create_filter(
    node: &Node,
    distribution: Distribution,
    size: (u64, f64),
) -> FilterId {
    create_filter_of(node, Kind::Blocked, distribution, size).await
}

/// The same of this kind.
pub(crate) async fn create_filter_of(
    node: &Node,
    kind: Kind,
    distribution: Distribution,
    (capacity, rate): (u64, f64),
) -> FilterId {
    let cells = match distribution {
        Distribution::Partitioned => 4,
        Distribution::Replicated => 1,
    };
    let cells = CellCount::new(cells).unwrap();
    let shape = SliceShape::plan(kind, capacity, rate, cells).unwrap();
    let settings = FilterSettings {
        distribution,
        kind: kind.id(),
        capacity,
        false_positive_rate: rate,
        memory_bytes: shape.memory_bytes(HashRange::WHOLE).unwrap(),
        shape,
        key: HashKey::SipHash { key_id: 7, secret: [7; 16] },
    };
    let name = FilterName::new("seen").unwrap();
    let command = MetaCommand::CreateFilter { name, settings, importing: false, owner: None };
    let calls = node.leader_calls(std::sync::Arc::new(umbel_ports::RealSeed));
    let MetaReply::Filter(id) = calls.meta_propose(command, deadline()).await.unwrap() else {
        panic!("no filter was created");
    };
    let is_live = |state: &umbel_engine::meta::MetaState| {
        state.filter(id).filter(|record| record.state == FilterState::Live).map(|_| ())
    };
    calls.wait_meta(deadline(), is_live).await.unwrap();
    if distribution == Distribution::Replicated {
        let copies = node.local().copies();
        copies.followed().wait_for(|_| copies.get(id).is_some()).await.unwrap();
    }
    id
}
