//! Time slices of a windowed copy: the current one by the node's clock, and the one that keeps an item.

use std::collections::BTreeMap;
use std::sync::Arc;

use futures_util::future::join_all;
use umbel_engine::Generation;
use umbel_engine::meta::FilterSettings;
use umbel_engine::shard::{HashList, WindowRules};
use umbel_filter::ItemHash;
use umbel_ports::Seed;

use super::{Copy, CopyState};
use crate::cube::Result;

/// Tells the current time slice.
pub(in crate::cube) struct SliceClock {
    seed: Arc<dyn Seed>,
    pub(in crate::cube) rules: WindowRules,
}

impl SliceClock {
    /// The clock of a windowed filter; None for other filters.
    pub(in crate::cube) fn of(settings: &FilterSettings, seed: &Arc<dyn Seed>) -> Option<Self> {
        let rules = *settings.shape.window_rules()?;
        Some(Self { seed: Arc::clone(seed), rules })
    }

    /// Number of the current slice.
    pub(in crate::cube) fn slice(&self) -> u64 {
        self.rules.slice_at(self.seed.wall_ms())
    }
}

/// Items to log, by the time slice that keeps them: their positions in the call.
type BySlice = BTreeMap<u64, Vec<usize>>;

impl Copy {
    /// Number of the current time slice by this node's clock; 0 for filters without time slices.
    pub(in crate::cube) fn slice_now(&self) -> u64 {
        self.clock.as_ref().map_or(0, SliceClock::slice)
    }

    /// Inserts items into time slices, as [`insert`](Copy::insert) does: new items into the current
    /// slice. An item that is present is kept from now on if the window refreshes items; otherwise it
    /// stays in its slice.
    pub(super) async fn insert_timed(
        &self,
        generation: Generation,
        rules: &WindowRules,
        hashes: &[ItemHash],
    ) -> Result<Vec<bool>> {
        let now = self.slice_now();
        let by_slice = {
            let state = self.read();
            self.check(&state, generation)?;
            slices_of(&state, now, rules.refresh, hashes)
        };
        self.samples().insert(hashes);
        let written = by_slice.iter().map(|(&slice, places)| {
            let chosen: Vec<ItemHash> = places.iter().map(|&at| hashes[at]).collect();
            self.journal.insert(generation, Some(slice), HashList::from_hashes(&chosen))
        });
        let written = join_all(written).await;
        let mut is_new = vec![false; hashes.len()];
        for (outcomes, places) in written.into_iter().zip(by_slice.values()) {
            for (&at, outcome) in places.iter().zip(outcomes?) {
                is_new[at] = outcome;
            }
        }
        Ok(is_new)
    }
}

/// The items that must be logged, each with its time slice.
fn slices_of(state: &CopyState, now: u64, refresh: bool, hashes: &[ItemHash]) -> BySlice {
    let now = state.replica.ring().map_or(now, |ring| ring.own().max(now));
    // Merged bits that are not on disk may be lost with this process, and their source for ever.
    let is_lent = state.is_volatile() || state.replica.has_partial_bits();
    let mut by_slice = BySlice::new();
    for (at, &hash) in hashes.iter().enumerate() {
        // A slice that has begun by other nodes' clocks has not begun by this node's.
        let found = state.replica.slice_with(now, hash).map(|slice| slice.min(now));
        let slice = match found {
            None => Some(now),
            Some(slice) if refresh && slice < now => Some(now),
            Some(slice) => is_lent.then_some(slice),
        };
        if let Some(slice) = slice {
            by_slice.entry(slice).or_default().push(at);
        }
    }
    by_slice
}
