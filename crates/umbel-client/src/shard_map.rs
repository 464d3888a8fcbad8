//! A cache of the shard map: which node leads which range of hashes.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use tokio::time::Instant;
use umbel_proto::v1::{ShardMapRequest, ShardMapResponse};

use crate::caller::Caller;
use crate::limits::{LEARNED_NODES_MAX, MAP_ATTEMPTS_MAX, MAP_PAUSE, MAP_TIMEOUT, SHARD_COUNT_MAX};

/// Ranges of hashes and the addresses of their leaders.
#[derive(Debug)]
pub(crate) struct ShardMap {
    epoch: u64,
    /// The last hash of each range, in ascending order up to the end of the hash space.
    range_lasts: Vec<u64>,
    /// Addresses of the leaders, as far as they are known.
    leaders: Vec<Option<Arc<str>>>,
    nodes: Vec<Arc<str>>,
    fetched: Instant,
}

impl ShardMap {
    /// None if the ranges do not cover the hash space, or are too many.
    fn from_answer(answer: ShardMapResponse, fetched: Instant) -> Option<Self> {
        if answer.shards.len() > SHARD_COUNT_MAX || answer.nodes.len() > LEARNED_NODES_MAX {
            return None;
        }
        let range_lasts: Vec<u64> = answer.shards.iter().map(|shard| shard.range_last).collect();
        if range_lasts.last() != Some(&u64::MAX) || !range_lasts.is_sorted_by(|a, b| a < b) {
            return None;
        }
        let nodes: BTreeMap<u64, Arc<str>> =
            answer.nodes.into_iter().map(|node| (node.node, node.address.into())).collect();
        let leaders = answer.shards.iter().map(|shard| nodes.get(&shard.leader).cloned()).collect();
        let nodes = nodes.into_values().collect();
        Some(Self { epoch: answer.epoch, range_lasts, leaders, nodes, fetched })
    }

    pub(crate) const fn shard_count(&self) -> usize {
        self.range_lasts.len()
    }

    /// Index of the range that contains the upper half of a hash.
    #[inline]
    pub(crate) fn shard_of(&self, hi: u64) -> usize {
        self.range_lasts.partition_point(|&last| last < hi)
    }

    pub(crate) fn leader_of(&self, hi: u64) -> Option<Arc<str>> {
        self.leaders[self.shard_of(hi)].clone()
    }
}

/// The last known map, and whether it is stale.
#[derive(Default)]
pub(crate) struct ShardMapCache {
    current: Mutex<Option<Arc<ShardMap>>>,
    is_stale: AtomicBool,
    /// The time of the last attempt to fetch a map.
    tried: Mutex<Option<Instant>>,
    /// Held while a map is fetched.
    fetching: tokio::sync::Mutex<()>,
}

impl ShardMapCache {
    fn current(&self) -> Option<Arc<ShardMap>> {
        self.current.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Marks the map as stale after a failed call, so that the next call fetches a new one.
    pub(crate) fn distrust(&self) {
        self.is_stale.store(true, Ordering::Relaxed);
    }

    /// Whether a fetch was attempted too recently to try again.
    fn was_just_tried(&self) -> bool {
        let tried = *self.tried.lock().unwrap_or_else(PoisonError::into_inner);
        tried.is_some_and(|tried| tried.elapsed() < MAP_PAUSE)
    }

    /// Keeps a map unless its epoch is older than the known one's.
    fn keep(&self, map: Arc<ShardMap>) {
        let mut current = self.current.lock().unwrap_or_else(PoisonError::into_inner);
        if current.as_ref().is_none_or(|known| known.epoch <= map.epoch) {
            *current = Some(map);
        }
    }
}

impl Caller {
    /// The map, if it is neither too old nor stale.
    fn fresh_map(&self) -> Option<Arc<ShardMap>> {
        let is_fresh = |map: &Arc<ShardMap>| map.fetched.elapsed() < self.options.map_age_max;
        let is_stale = self.map.is_stale.load(Ordering::Relaxed);
        self.map.current().filter(is_fresh).filter(|_| !is_stale)
    }

    /// A fresh map if a node provides one; else the last known map, if any.
    pub(crate) async fn shard_map(&self) -> Option<Arc<ShardMap>> {
        if !self.options.learns_nodes {
            return None;
        }
        if let Some(map) = self.fresh_map() {
            return Some(map);
        }
        let _fetching = self.map.fetching.lock().await;
        if let Some(map) = self.fresh_map() {
            return Some(map);
        }
        if !self.map.was_just_tried() {
            self.fetch_map().await;
            *self.map.tried.lock().unwrap_or_else(PoisonError::into_inner) = Some(Instant::now());
        }
        self.map.current()
    }

    /// Whether the next call whose answer can bring a map is to request one.
    pub(crate) fn wants_map(&self) -> bool {
        self.options.learns_nodes && self.fresh_map().is_none()
    }

    /// Keeps the map of an answer, and returns whether it is valid and of use.
    pub(crate) fn take_map(&self, answer: ShardMapResponse) -> bool {
        if !self.options.learns_nodes {
            return false;
        }
        let Some(map) = ShardMap::from_answer(answer, Instant::now()) else { return false };
        self.nodes.learn(&map.nodes);
        self.map.keep(Arc::new(map));
        self.map.is_stale.store(false, Ordering::Relaxed);
        true
    }

    /// Fetches a map in the background if there is none or it is not fresh.
    pub(crate) fn keep_map_fresh(self: &Arc<Self>) {
        if !self.options.learns_nodes
            || self.fresh_map().is_some()
            || self.map.was_just_tried()
            || self.map.fetching.try_lock().is_err()
        {
            return;
        }
        let caller = Arc::clone(self);
        tokio::spawn(async move { caller.shard_map().await });
    }

    async fn fetch_map(&self) {
        let mut last: Option<Arc<str>> = None;
        for _ in 0..MAP_ATTEMPTS_MAX {
            let node = self.nodes.pick(None, last.as_deref());
            let mut admin = node.admin();
            match tokio::time::timeout(MAP_TIMEOUT, admin.shard_map(ShardMapRequest {})).await {
                Ok(Ok(answer)) => {
                    if self.take_map(answer.into_inner()) {
                        return;
                    }
                }
                Ok(Err(status)) if std::error::Error::source(&status).is_none() => {}
                Ok(Err(_)) | Err(_) => self.nodes.failed(&node.address),
            }
            last = Some(node.address);
        }
    }
}

#[cfg(test)]
mod tests {
    use umbel_proto::v1::{NodeRoute, ShardRoute};

    use super::*;

    fn answer(lasts: &[u64]) -> ShardMapResponse {
        let route = |(shard, &range_last): (u32, &u64)| ShardRoute {
            shard,
            range_last,
            leader: u64::from(shard),
        };
        ShardMapResponse {
            epoch: 1,
            shards: (0..).zip(lasts).map(route).collect(),
            nodes: vec![NodeRoute { node: 1, address: "b:1".into() }],
        }
    }

    #[tokio::test]
    async fn ranges_hold_their_last_hash() {
        let map = ShardMap::from_answer(answer(&[9, 99, u64::MAX]), Instant::now()).unwrap();
        let found = [0, 9, 10, 99, 100, u64::MAX].map(|hi| map.shard_of(hi));
        assert_eq!(found, [0, 0, 1, 1, 2, 2]);
        assert_eq!(map.leader_of(10).as_deref(), Some("b:1"));
        assert_eq!(map.leader_of(0), None, "no leader is known");
    }

    #[tokio::test]
    async fn maps_with_holes_are_refused() {
        for lasts in [&[][..], &[9], &[9, 9, u64::MAX], &[u64::MAX, 9], &[u64::MAX, u64::MAX]] {
            assert!(ShardMap::from_answer(answer(lasts), Instant::now()).is_none(), "{lasts:?}");
        }
    }
}
