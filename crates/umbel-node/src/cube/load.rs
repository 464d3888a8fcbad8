//! Size and fill of a copy, for reports.

use std::sync::atomic::Ordering;
use std::time::Duration;

use umbel_engine::shard::probe_hashes;
use umbel_filter::{HashRange, OnesCount};

use super::copy::Copy;
use crate::calls::{CopyLoad, RateProbes};
use crate::limits::{COUNTED_WORDS_MAX, RATE_PROBES, RATE_PROBES_AT_ONCE};

impl Copy {
    /// Bytes of memory for the bits.
    pub(crate) fn memory_bytes(&self) -> u64 {
        self.read().replica.memory_bytes()
    }

    /// Bytes of memory for the changes to send to other nodes.
    pub(crate) fn log_bytes(&self) -> u64 {
        self.read().replica.log_bytes() as u64
    }

    /// Describes the copy. Counts all of its bits, up to a gibibyte, in pieces; between two pieces the
    /// copy and the thread are free for others. Not for frequent use. With a seed, it also looks up
    /// random items made from the seed.
    pub async fn load(&self, probe_seed: Option<u64>) -> CopyLoad {
        let probes = match probe_seed {
            Some(seed) => self.probe(seed).await,
            None => RateProbes::default(),
        };
        let (mut count, mut counted) = (OnesCount::default(), self.generation());
        // Expired time slices are not counted.
        drop(self.read_now());
        let description = loop {
            let piece = {
                let state = self.read();
                if state.generation() != counted {
                    // The copy was cleared meanwhile.
                    (count, counted) = (OnesCount::default(), state.generation());
                }
                count.count_on(state.replica.filter(), COUNTED_WORDS_MAX)
            };
            match piece {
                Some(description) => break description,
                None => tokio::task::yield_now().await,
            }
        };
        let state = self.read();
        let replica = &state.replica;
        let ms = |time: Duration| u64::try_from(time.as_millis()).unwrap_or(u64::MAX);
        CopyLoad {
            generation: state.generation(),
            position_count: description.position_count,
            one_count: description.one_count,
            item_count: description.item_count.map(|estimate| estimate.item_count),
            false_positive_rate: self.rate_of(description.false_positive_rate),
            new_count: state.new_count,
            memory_bytes: description.memory_bytes,
            log_bytes: replica.log_bytes() as u64,
            is_in_sync: state.is_in_sync,
            lags: replica.partners().map(|node| (node, replica.lag(node))).collect(),
            sent_bytes: self.traffic.sent_bytes.load(Ordering::Relaxed),
            received_bytes: self.traffic.received_bytes.load(Ordering::Relaxed),
            refused_count: self.traffic.refused_count.load(Ordering::Relaxed),
            convergence_ms: state.convergence.map(ms),
            probes,
            new_per_second: self.arrivals.per_second((self.filter, state.generation())),
        }
    }

    /// The false-positive rate of a copy whose blocks have the rate `of_block`: a windowed copy looks
    /// into all time slices.
    fn rate_of(&self, of_block: f64) -> f64 {
        let Some(rules) = self.settings.shape.window_rules() else { return of_block };
        // 1 − (1 − p)^n, computed so that small rates stay exact.
        let asked = f64::from(rules.slice_count + 2);
        -(asked * (-of_block).ln_1p()).exp_m1()
    }

    async fn probe(&self, seed: u64) -> RateProbes {
        let mut probes = RateProbes::default();
        let mut present = Vec::with_capacity(RATE_PROBES_AT_ONCE as usize);
        for part in 0..u64::from(RATE_PROBES / RATE_PROBES_AT_ONCE) {
            let seed = seed.wrapping_add(part);
            let hashes = probe_hashes(seed, HashRange::WHOLE, RATE_PROBES_AT_ONCE);
            present.clear();
            self.read().replica.contains_batch(self.slice_now(), &hashes, &mut present);
            probes.hit_count += present.iter().filter(|&&is_present| is_present).count() as u64;
            probes.probe_count += u64::from(RATE_PROBES_AT_ONCE);
            tokio::task::yield_now().await;
        }
        probes
    }
}
