//! Reads of the shard map and the catalogue that may be answered from an old copy.
//!
//! A node's copy of the meta group's state may lag at any time, so callers must treat what they read here
//! as a guess, which the shards refuse if it is wrong. Simulations provoke old copies.

use std::sync::Mutex;
use std::time::Duration;

use tokio::time::Instant;
use umbel_engine::meta::MetaState;
use umbel_ports::{Rare, locked};

use super::LeaderCalls;
use crate::failure::CallFailure;

/// Maximum age of a copy where old ones are provoked.
const OLD_MAP_AGE_MAX: Duration = Duration::from_secs(2);

/// A copy of the meta group's state that is kept for a while; empty unless old ones are provoked.
#[derive(Default)]
pub(super) struct OldMap(Mutex<Option<(Instant, MetaState)>>);

impl OldMap {
    /// After a refresh the newest state is read.
    pub(super) fn forget(&self) {
        *locked(&self.0) = None;
    }
}

impl LeaderCalls {
    /// Like [`read_meta`](Self::read_meta), for guesses that the called nodes check.
    pub fn guess_meta<T>(&self, read: impl FnOnce(&MetaState) -> T) -> Result<T, CallFailure> {
        if !self.seed().provokes(Rare::OldMap) {
            return self.read_meta(read);
        }
        let mut kept = locked(&self.old_map.0);
        let (_, state) = match kept.take().filter(|(since, _)| since.elapsed() < OLD_MAP_AGE_MAX) {
            Some(old) => kept.insert(old),
            None => kept.insert((Instant::now(), self.read_meta(Clone::clone)?)),
        };
        Ok(read(state))
    }
}
