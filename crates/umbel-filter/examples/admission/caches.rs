//! The caches: they keep names of objects, since no body is needed to count.

use std::collections::BTreeMap;
use std::hash::{BuildHasherDefault, Hasher};

use moka::sync;
use umbel_filter::{Aging, CreateError, Describe, HashRange, Insert, Insertion, Sighting, Window};

use super::{Request, hash};

/// A cache with what decides about its content.
pub(crate) trait Cache {
    fn request(&mut self, object: u64) -> Request;
}

/// Keeps every object, and throws out the one that was not asked for longest.
pub(crate) struct Lru {
    room: u64,
    clock: u64,
    used_at: BTreeMap<u64, u64>,
    by_use: BTreeMap<u64, u64>,
}

impl Lru {
    /// With room for so many objects.
    pub(crate) fn new(room: u64) -> Self {
        Self { room, clock: 0, used_at: BTreeMap::new(), by_use: BTreeMap::new() }
    }

    /// Whether an object is there; it is the newest then.
    fn touch(&mut self, object: u64) -> bool {
        let found = self.used_at.get(&object).copied();
        if let Some(at) = found {
            self.by_use.remove(&at);
            self.keep(object);
        }
        found.is_some()
    }

    fn keep(&mut self, object: u64) {
        self.clock += 1;
        self.used_at.insert(object, self.clock);
        self.by_use.insert(self.clock, object);
        if self.by_use.len() as u64 > self.room
            && let Some((_, oldest)) = self.by_use.pop_first()
        {
            self.used_at.remove(&oldest);
        }
    }
}

impl Cache for Lru {
    fn request(&mut self, object: u64) -> Request {
        if self.touch(object) {
            return Request::Hit;
        }
        self.keep(object);
        Request::Written
    }
}

/// What remembers the objects that were asked for lately.
pub(crate) trait Memory {
    /// Whether the object came lately; it has come now. `request` is the number of the request.
    fn came_lately(&mut self, object: u64, request: u64) -> bool;
}

/// An aging filter: the last so many objects that the cache lacked.
pub(crate) struct Aged(Aging);

impl Aged {
    pub(crate) fn new(object_count: u64, rate: f64) -> Result<Self, CreateError> {
        Aging::for_rate(HashRange::WHOLE, object_count, rate).map(Self)
    }

    pub(crate) fn memory_bytes(&self) -> u64 {
        self.0.describe().memory_bytes
    }
}

impl Memory for Aged {
    fn came_lately(&mut self, object: u64, _request: u64) -> bool {
        // It is never full.
        self.0.insert(hash(object)) == Ok(Insertion::Present)
    }
}

/// A window: the objects that the cache lacked during the last so many requests, which stand for time.
pub(crate) struct InWindow {
    window: Window,
    slice_requests: u64,
}

impl InWindow {
    const SLICES: u64 = 8;

    pub(crate) fn new(request_count: u64, rate: f64) -> Result<Self, CreateError> {
        let slice_requests = request_count / Self::SLICES;
        // The slice that ends stands beside those of the window.
        let held = slice_requests * (Self::SLICES + 1);
        let window = Window::for_rate(HashRange::WHOLE, held, rate)?;
        Ok(Self { window, slice_requests })
    }

    pub(crate) fn memory_bytes(&self) -> u64 {
        self.window.describe().memory_bytes
    }
}

impl Memory for InWindow {
    fn came_lately(&mut self, object: u64, request: u64) -> bool {
        let newest = request / self.slice_requests;
        if newest != self.window.newest() {
            self.window.advance(newest.saturating_sub(Self::SLICES), newest);
        }
        let came = self.window.insert_at(hash(object), newest, Sighting::Last);
        // A window that is full does not know what comes: nothing is kept then.
        came == Ok(Insertion::Present)
    }
}

/// LRU that keeps what the memory says came before.
pub(crate) struct SecondRequest<M> {
    memory: M,
    kept: Lru,
    request_count: u64,
}

impl<M: Memory> SecondRequest<M> {
    pub(crate) fn new(memory: M, room: u64) -> Self {
        Self { memory, kept: Lru::new(room), request_count: 0 }
    }
}

impl<M: Memory> Cache for SecondRequest<M> {
    fn request(&mut self, object: u64) -> Request {
        self.request_count += 1;
        if self.kept.touch(object) {
            return Request::Hit;
        }
        if !self.memory.came_lately(object, self.request_count) {
            return Request::Passed;
        }
        self.kept.keep(object);
        Request::Written
    }
}

/// An object replaces another one if it was asked for more often (Einziger, Friedman & Manes 2017,
/// doi:10.1145/3149371): a sketch counts up to 15, and halves all counts now and then.
pub(crate) struct TinyLfu(sync::Cache<u64, (), BuildHasherDefault<ObjectHasher>>);

impl TinyLfu {
    pub(crate) fn new(room: u64) -> Self {
        let cache = sync::Cache::builder().max_capacity(room);
        Self(cache.build_with_hasher(BuildHasherDefault::default()))
    }

    /// A word of 16 counters an object, rounded up to a power of two.
    pub(crate) fn sketch_bytes(room: u64) -> u64 {
        8 * room.next_power_of_two()
    }
}

impl Cache for TinyLfu {
    fn request(&mut self, object: u64) -> Request {
        if self.0.get(&object).is_some() {
            self.0.run_pending_tasks();
            return Request::Hit;
        }
        self.0.insert(object, ());
        // It decides when it tidies up, in batches if nobody asks for that.
        self.0.run_pending_tasks();
        if self.0.contains_key(&object) { Request::Written } else { Request::Passed }
    }
}

/// The same numbers in every run.
#[derive(Default)]
pub(crate) struct ObjectHasher(u64);

impl Hasher for ObjectHasher {
    fn write(&mut self, bytes: &[u8]) {
        for &byte in bytes {
            self.write_u64(u64::from(byte));
        }
    }

    fn write_u64(&mut self, number: u64) {
        self.0 = hash(self.0 ^ number).lo();
    }

    fn finish(&self) -> u64 {
        self.0
    }
}
