//! Two ways to remember the last 24 slices of time: a window, and a ring of 25 Bloom filters, whose rates share the
//! window's. Items come in evenly over the slices.

use umbel_filter::{Blocked, Contains, HashRange, Insert, Insertion, ItemHash, Sighting, Window};

use crate::structure::{Case, Structure};

/// Slices of the window, and with the one that is ending of the ring.
const SLICES: u64 = 24;

const MEMORY: &str = "a filter of the benchmark has a shape and fits into memory";
const ROOM: &str = "it is made for so many items of the whole hash space";

/// A window with its own count of what came in, which turns to the next slice.
pub struct WindowOfSlices {
    window: Window,
    slice_items: u64,
    item_count: u64,
}

impl WindowOfSlices {
    const fn slice(&mut self, more: u64) -> u64 {
        let slice = self.item_count / self.slice_items;
        self.item_count += more;
        slice
    }
}

impl Structure for WindowOfSlices {
    const NAME: &'static str = "umbel-window-24";
    const HAS_BATCHES: bool = true;
    type Key = ItemHash;
    type Outcome = Insertion;

    fn create(case: Case) -> Self {
        let window = Window::for_rate(HashRange::WHOLE, case.items, case.rate);
        let mut window = window.expect(MEMORY);
        window.clear();
        window.advance(0, SLICES);
        Self { window, slice_items: case.items.div_ceil(SLICES), item_count: 0 }
    }

    fn memory_bytes(&self) -> u64 {
        self.window.block_shape().memory_bytes()
    }

    #[inline]
    fn contains(&self, key: ItemHash) -> bool {
        self.window.contains(key)
    }

    #[inline]
    fn insert(&mut self, key: ItemHash) -> bool {
        let slice = self.slice(1);
        self.window.insert_at(key, slice, Sighting::First).expect(ROOM) == Insertion::Present
    }

    fn insert_batch(&mut self, keys: &[ItemHash], outcomes: &mut Vec<Insertion>) {
        let slice = self.slice(keys.len() as u64);
        self.window.insert_batch_at(keys, slice, Sighting::First, outcomes).expect(ROOM);
    }

    fn contains_batch(&self, keys: &[ItemHash], present: &mut Vec<bool>) {
        self.window.contains_batch(keys, present);
    }
}

/// One blocked filter a slice.
pub struct RingOfFilters {
    filters: Vec<Blocked>,
    slice_items: u64,
    item_count: u64,
    present: Vec<bool>,
}

impl RingOfFilters {
    fn newest(&mut self, more: u64) -> &mut Blocked {
        let slice = self.item_count / self.slice_items;
        self.item_count += more;
        let at = usize::try_from(slice).expect("a few") % self.filters.len();
        &mut self.filters[at]
    }
}

impl Structure for RingOfFilters {
    const NAME: &'static str = "ring-of-25-blocked";
    const HAS_BATCHES: bool = true;
    type Key = ItemHash;
    type Outcome = Insertion;

    fn create(case: Case) -> Self {
        let slice_items = case.items.div_ceil(SLICES);
        let rate = case.rate / (SLICES + 1) as f64;
        let filter = || {
            let mut filter = Blocked::for_rate(HashRange::WHOLE, slice_items, rate).expect(MEMORY);
            filter.words_mut().fill(0);
            filter
        };
        let filters = (0..=SLICES).map(|_| filter()).collect();
        Self { filters, slice_items, item_count: 0, present: Vec::new() }
    }

    fn memory_bytes(&self) -> u64 {
        self.filters.iter().map(|filter| filter.block_shape().memory_bytes()).sum()
    }

    #[inline]
    fn contains(&self, key: ItemHash) -> bool {
        self.filters.iter().any(|filter| Contains::contains(filter, key))
    }

    #[inline]
    fn insert(&mut self, key: ItemHash) -> bool {
        let is_present = self.contains(key);
        if !is_present {
            Insert::insert(self.newest(1), key).expect(ROOM);
        }
        is_present
    }

    /// As a window does: what is present somewhere is not inserted again.
    fn insert_batch(&mut self, keys: &[ItemHash], outcomes: &mut Vec<Insertion>) {
        let mut present = std::mem::take(&mut self.present);
        self.contains_batch(keys, &mut present);
        let absent: Vec<ItemHash> =
            keys.iter().zip(&present).filter(|(_, is)| !**is).map(|(key, _)| *key).collect();
        let newest = self.newest(keys.len() as u64);
        Insert::insert_batch(newest, &absent, outcomes).expect(ROOM);
        outcomes.clear();
        let of = |is: &bool| if *is { Insertion::Present } else { Insertion::New };
        outcomes.extend(present.iter().map(of));
        self.present = present;
    }

    fn contains_batch(&self, keys: &[ItemHash], present: &mut Vec<bool>) {
        present.clear();
        present.resize(keys.len(), false);
        let mut of_slice = Vec::with_capacity(keys.len());
        for filter in &self.filters {
            Contains::contains_batch(filter, keys, &mut of_slice);
            present.iter_mut().zip(&of_slice).for_each(|(all, one)| *all |= one);
        }
    }
}
