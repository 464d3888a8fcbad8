//! Entropy and wall clock of a simulated node, both determined by the plan's seed.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use rand::rngs::ChaCha8Rng;
use rand::{Rng, SeedableRng};
use umbel_ports::{Purpose, Rare, Seed};

use crate::now::now_us;

/// The wall clock's start: 2026-01-01T00:00:00Z.
const EPOCH_MS: i64 = 1_767_225_600_000;

/// The current time of a correct wall clock.
pub(crate) fn true_wall_ms() -> u64 {
    EPOCH_MS.unsigned_abs() + now_us() / 1_000
}

/// The simulated microseconds at which a correct wall clock shows this time.
pub(crate) const fn true_us(wall_ms: u64) -> u64 {
    wall_ms.saturating_sub(EPOCH_MS.unsigned_abs()).saturating_mul(1_000)
}

/// An independent stream of random numbers for each name, so that an additional draw from one does not
/// change the others.
pub(crate) fn stream(seed: u64, name: &str) -> ChaCha8Rng {
    // FNV-1a, then one word of ChaCha's own seeding: names differ in a few letters only.
    let mut hash = seed ^ 0xcbf2_9ce4_8422_2325;
    for byte in name.bytes() {
        hash = (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3);
    }
    ChaCha8Rng::seed_from_u64(hash)
}

/// The entropy of one incarnation of a node.
pub(crate) struct SimSeed {
    root: u64,
    /// Host and incarnation.
    name: String,
    streams: Mutex<BTreeMap<Purpose, ChaCha8Rng>>,
    provoked: Vec<Rare>,
    wall_offset_ms: Arc<AtomicI64>,
}

impl SimSeed {
    /// The streams of a host's incarnation; the wall clock's offset is shared with the code that shifts
    /// it.
    pub(crate) fn new(
        root: u64,
        host: &str,
        incarnation: u32,
        provoked: Vec<Rare>,
        wall_offset_ms: Arc<AtomicI64>,
    ) -> Self {
        let name = format!("{host}/{incarnation}");
        Self { root, name, streams: Mutex::default(), provoked, wall_offset_ms }
    }
}

impl Seed for SimSeed {
    fn fill(&self, purpose: Purpose, bytes: &mut [u8]) {
        let mut streams = self.streams.lock().unwrap_or_else(PoisonError::into_inner);
        let name = || stream(self.root, &format!("{}/{purpose:?}", self.name));
        streams.entry(purpose).or_insert_with(name).fill_bytes(bytes);
    }

    fn wall_ms(&self) -> u64 {
        let since = i64::try_from(now_us() / 1_000).unwrap_or(i64::MAX - EPOCH_MS);
        let offset = self.wall_offset_ms.load(Ordering::Relaxed);
        u64::try_from((EPOCH_MS + since).saturating_add(offset)).unwrap_or(0)
    }

    fn provokes(&self, rare: Rare) -> bool {
        self.provoked.contains(&rare)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seed(host: &str, incarnation: u32) -> SimSeed {
        SimSeed::new(7, host, incarnation, Vec::new(), Arc::default())
    }

    #[test]
    fn every_host_incarnation_and_purpose_draws_its_own() {
        let draws = [
            seed("n1", 1).number(Purpose::Election),
            seed("n1", 1).number(Purpose::Backoff),
            seed("n1", 2).number(Purpose::Election),
            seed("n2", 1).number(Purpose::Election),
        ];
        assert_eq!(draws[0], seed("n1", 1).number(Purpose::Election));
        let mut sorted = draws;
        sorted.sort_unstable();
        assert!(sorted.windows(2).all(|pair| pair[0] < pair[1]), "{draws:?}");
    }

    #[test]
    fn the_wall_clock_follows_time_and_offset() {
        let offset = Arc::new(AtomicI64::new(0));
        let seed = SimSeed::new(7, "n1", 1, Vec::new(), Arc::clone(&offset));
        crate::now::set_now_us(2_500_000);
        assert_eq!(seed.wall_ms(), 1_767_225_602_500);
        assert_eq!(true_us(true_wall_ms()), 2_500_000);
        offset.store(-3_600_000, Ordering::Relaxed);
        assert_eq!(seed.wall_ms(), 1_767_222_002_500);
    }
}
