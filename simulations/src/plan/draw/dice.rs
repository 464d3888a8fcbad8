//! Random numbers for plans. They use integer arithmetic only, so that they are equal on every machine.

use rand::rngs::ChaCha8Rng;
use rand::seq::IndexedRandom;
use rand::{RngExt, SeedableRng};

/// What numbers are drawn for. Each purpose has its own stream, so that an additional draw shifts no
/// other.
#[derive(Clone, Copy, Debug)]
pub(super) enum Stream {
    /// Nodes, shards, replicas, clients.
    World = 1,
    /// Filters.
    Filters = 2,
    /// Operations of clients.
    Ops = 3,
    /// Faults.
    Faults = 4,
    /// Rare choices that are provoked.
    Provoked = 5,
    /// Replicated filters and the operations on them.
    Copies = 6,
    /// Jobs.
    Jobs = 7,
    /// Sessions of set reconciliation.
    Scenarios = 8,
    /// Principals and their calls.
    Access = 9,
    /// Quotas and the calls that use them up.
    Quotas = 10,
    /// Certificates, and callers with wrong ones.
    Identities = 11,
    /// Snapshots and renames of filters.
    Snapshots = 12,
    /// Splits of shards.
    Splits = 13,
    /// Requests during splits.
    AcrossSplits = 14,
    /// Upgrades to the next release.
    Upgrades = 15,
    /// Merges of shards.
    Merges = 16,
    /// Zones of machines.
    Zones = 17,
    /// Clients of the Redis protocol and their calls.
    Resp = 18,
    /// Links that are closed one way.
    ClosedLinks = 19,
    /// Calls of clients of the Redis protocol of which one wins.
    Races = 20,
    /// Deletions of a filter over the Redis protocol.
    Taken = 21,
    /// Additions and deletions of copies of items over the Redis protocol.
    Counted = 22,
    /// A filter whose time passes, and the calls about it over the Redis protocol.
    Expiring = 23,
}

/// Random numbers of one stream.
pub(super) struct Dice(ChaCha8Rng);

impl Dice {
    /// The stream of a seed.
    pub(super) fn new(seed: u64, stream: Stream) -> Self {
        let mut key = [0; 32];
        key[..8].copy_from_slice(&seed.to_le_bytes());
        let mut random = ChaCha8Rng::from_seed(key);
        random.set_stream(stream as u64);
        Self(random)
    }

    /// True with a chance of 1 in `draws`.
    pub(super) fn one_in(&mut self, draws: u32) -> bool {
        self.0.random_ratio(1, draws)
    }

    /// A number of these, both ends included.
    pub(super) fn count(&mut self, least: u32, most: u32) -> u32 {
        self.0.random_range(least..=most)
    }

    /// A number of these, both ends included.
    pub(super) fn between(&mut self, least: u64, most: u64) -> u64 {
        self.0.random_range(least..=most)
    }

    /// A number between these, both included, which may be negative.
    pub(super) fn signed(&mut self, least: i64, most: i64) -> i64 {
        self.0.random_range(least..=most)
    }

    /// A number between these, both included, in which every order of magnitude is equally likely:
    /// uniform over the doublings of `least`, which is at least 1, and uniform within each.
    pub(super) fn spread(&mut self, least: u64, most: u64) -> u64 {
        let doublings = (most / least).ilog2();
        let low = least << self.count(0, doublings);
        self.between(low, most.min(2 * low - 1))
    }

    /// As [`Self::spread`].
    pub(super) fn spread_count(&mut self, least: u32, most: u32) -> u32 {
        let drawn = self.spread(u64::from(least), u64::from(most));
        u32::try_from(drawn).expect("at most `most`")
    }

    /// A gap of a Poisson process: exponential, of this mean.
    ///
    /// By von Neumann's comparisons (Various techniques used in connection with random digits, 1951),
    /// which need no logarithm: the first of a falling run of uniform numbers is the fraction if the
    /// run's length is odd, else the whole part grows by 1 and a new run begins.
    pub(super) fn gap(&mut self, mean: u64) -> u64 {
        for whole in 0.. {
            let first: u32 = self.0.random();
            let (mut last, mut is_odd) = (first, true);
            loop {
                let next: u32 = self.0.random();
                if next >= last {
                    break;
                }
                (last, is_odd) = (next, !is_odd);
            }
            if is_odd {
                return mean * whole + ((mean * u64::from(first)) >> u32::BITS);
            }
        }
        unreachable!("the range above has no end")
    }

    /// One of the values.
    pub(super) fn pick<'a, T>(&mut self, values: &'a [T]) -> &'a T {
        values.choose(&mut self.0).expect("callers have values to pick from")
    }

    /// So many distinct values, or all if there are fewer, sorted.
    pub(super) fn pick_distinct<T: Copy + Ord>(&mut self, values: &[T], count: u32) -> Vec<T> {
        let count = usize::try_from(count).expect("u32 fits");
        let mut picked: Vec<T> = values.sample(&mut self.0, count).copied().collect();
        picked.sort_unstable();
        picked
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn streams_differ_and_repeat() {
        let first = |stream| Dice::new(7, stream).between(0, u64::MAX);
        let streams =
            [Stream::World, Stream::Filters, Stream::Ops, Stream::Faults, Stream::Provoked];
        let mut numbers = streams.map(first).to_vec();
        assert_eq!(numbers, streams.map(first));
        numbers.push(Dice::new(8, Stream::World).between(0, u64::MAX));
        numbers.sort_unstable();
        numbers.dedup();
        assert_eq!(numbers.len(), 6);
    }

    #[test]
    fn gaps_are_exponential() {
        let mut dice = Dice::new(1, Stream::Ops);
        let draws = 100_000_u32;
        let mut counts = [0_u32; 3];
        let mut sum = 0;
        for _ in 0..draws {
            let gap = dice.gap(1000);
            sum += gap;
            for (count, least) in counts.iter_mut().zip([500, 1000, 3000]) {
                *count += u32::from(gap >= least);
            }
        }
        // In units of the mean, a share of e^-x of the gaps reaches x. The bounds are five standard
        // deviations wide.
        let mean = sum / u64::from(draws);
        assert!((984..=1016).contains(&mean), "{mean}");
        for (count, (least, most)) in
            counts.into_iter().zip([(59_880, 61_430), (36_020, 37_560), (4_630, 5_330)])
        {
            assert!((least..=most).contains(&count), "{counts:?}");
        }
    }

    #[test]
    fn spreads_reach_both_ends_and_favour_neither() {
        let mut dice = Dice::new(2, Stream::Ops);
        let drawn: Vec<u64> = (0..50_000).map(|_| dice.spread(100, 3000)).collect();
        assert_eq!((drawn.iter().min(), drawn.iter().max()), (Some(&100), Some(&3000)));
        let small = drawn.iter().filter(|number| **number < 400).count();
        // Two of the five doublings from 100 on are below 400.
        assert!((19_450..=20_550).contains(&small), "{small}");
        assert_eq!(dice.spread(5, 5), 5);
    }

    #[test]
    fn picks_are_distinct() {
        let mut dice = Dice::new(3, Stream::Ops);
        for count in 0..=6 {
            let mut picked = dice.pick_distinct(&[1, 2, 3, 4, 5], count);
            assert_eq!(picked.len(), usize::try_from(count.min(5)).unwrap());
            picked.dedup();
            assert_eq!(picked.len(), usize::try_from(count.min(5)).unwrap());
        }
    }
}
