//! Plans that tests in several files start from.

use super::{FilterKind, FilterPlan, Op, OpPlan, Plan, WorldShape};
use crate::profile::Profile;

/// A plan of a filter with this name.
pub(crate) fn filter(name: &str) -> FilterPlan {
    let name = name.to_owned();
    FilterPlan {
        name,
        kind: FilterKind::Classic,
        capacity: 100,
        rate_ppm: 1_000,
        public: false,
        replicated: false,
    }
}

/// An insert of one item into `f0`.
pub(crate) fn insert(at_ms: u64, client: u32, item: u32) -> OpPlan {
    let op = Op::Insert { filter: "f0".to_owned(), items: vec![item], copies: 1 };
    OpPlan { at_ms, client, via: 1, op }
}

/// A valid plan without operations and faults, with one filter `f0`, 4 shards and 8 clients.
pub(crate) fn plan_of(nodes: u32, replicas: u32) -> Plan {
    let world = WorldShape::new(nodes, 4, replicas, 8);
    Plan { filters: vec![filter("f0")], ..Plan::bare(1, Profile::Mixed, 60_000, world) }
}
