//! A copy that forgets: which slice of time its node's clock is in, and which one an item is kept in.

use std::collections::BTreeMap;
use std::sync::Arc;

use futures_util::future::join_all;
use umbel_engine::Generation;
use umbel_engine::meta::FilterSettings;
use umbel_engine::shard::{HashList, WindowRules};
use umbel_filter::ItemHash;

use super::{Copy, CopyState};
use crate::cube::CopyFailure;
use crate::ports::Seed;

/// What says which slice of time it is.
pub(in crate::cube) struct SliceClock {
    seed: Arc<dyn Seed>,
    pub(in crate::cube) rules: WindowRules,
}

impl SliceClock {
    /// The clock of a filter that forgets; None of others.
    pub(in crate::cube) fn of(settings: &FilterSettings, seed: &Arc<dyn Seed>) -> Option<Self> {
        let rules = *settings.shape.window_rules()?;
        Some(Self { seed: Arc::clone(seed), rules })
    }

    /// Number of the slice that it is in.
    pub(in crate::cube) fn slice(&self) -> u64 {
        self.rules.slice_at(self.seed.wall_ms())
    }
}

/// Items to keep, by the slice of time that each is kept in: their places among those of a call.
type BySlice = BTreeMap<u64, Vec<usize>>;

impl Copy {
    /// Number of the slice of time that it is, by this node's clock; 0 where there are none.
    pub(in crate::cube) fn slice_now(&self) -> u64 {
        self.clock.as_ref().map_or(0, SliceClock::slice)
    }

    /// Inserts items into slices of time, as [`insert`](Copy::insert) does: new ones into the slice that it is. One that is
    /// there is kept from now on if the window is refreshed, and else for as long as it is there.
    pub(super) async fn insert_timed(
        &self,
        generation: Generation,
        rules: &WindowRules,
        hashes: &[ItemHash],
    ) -> Result<Vec<bool>, CopyFailure> {
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

/// Which items are to be logged, and in which slice of time each is.
fn slices_of(state: &CopyState, now: u64, refresh: bool, hashes: &[ItemHash]) -> BySlice {
    let now = state.replica.ring().map_or(now, |ring| ring.own().max(now));
    // What was merged may be lost with this process, and its source for ever.
    let is_lent = state.is_volatile() || state.replica.has_partial_bits();
    let mut by_slice = BySlice::new();
    for (at, &hash) in hashes.iter().enumerate() {
        // A slice that begins at others' clocks has not begun at this one.
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
