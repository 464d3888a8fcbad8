//! How many syndromes of a block are sent first, and how many more if it does not decode.
//!
//! All blocks of a window use the same ladder of counts t_1 < t_2 < ..: every block gets t_1 syndromes,
//! those that fail to decode get t_2 − t_1 more, and so on. A histogram records how many syndromes the
//! blocks of earlier windows needed, and dynamic programming finds the ladder that would have cost least
//! for them. In the first window, which is short, counts double.

/// Most syndromes of a block; a block that needs more is sent as it is.
pub(crate) const SYNDROMES_MAX: usize = 128;

/// Number of flips from which on no check syndrome is added: one overfull block in 2^4 · 4! then decodes to
/// wrong flips, and is found by its hash, which costs 300 bytes. Two more bytes for each block would cost
/// more.
const UNSPARED_FLIPS: usize = 4;

/// The cost of one more round besides its syndromes, in bits: two frames, and a round trip during which
/// some KiB could be sent.
const ROUND_BITS: f64 = 8.0 * 2000.0;

/// Largest first count, and largest factor between consecutive counts. Without these limits, a window of
/// sparse blocks after a dense one would pay for syndromes that it does not need.
const FIRST_MAX: usize = 8;
const GROWTH_MAX: usize = 4;

/// A step is at least an eighth: each step decodes the remaining blocks again, in time quadratic in the
/// count, and a smaller one saves little.
const STEP_SHARE: usize = 8;

/// Bits of a block that is sent as it is.
const RAW_BITS: f64 = 32_768.0;

/// Most flips that this many syndromes correct.
pub(crate) const fn flips_max(syndrome_count: usize) -> usize {
    if syndrome_count < UNSPARED_FLIPS { syndrome_count.saturating_sub(1) } else { syndrome_count }
}

/// Fewest syndromes that correct this many flips.
const fn needed(flips: usize) -> usize {
    if flips < UNSPARED_FLIPS { flips + 1 } else { flips }
}

/// How many syndromes blocks needed so far, and the ladder that follows.
#[derive(Clone, Debug)]
pub(crate) struct Ladder {
    /// Number of blocks by the syndromes that they needed. The last entry counts those that needed more
    /// than the maximum.
    counts: Vec<f64>,
    rungs: Vec<usize>,
}

impl Ladder {
    /// The ladder before anything is known.
    pub(crate) fn new() -> Self {
        let rungs = std::iter::successors(Some(2), |&t| Some(2 * t));
        let rungs = rungs.take_while(|&t| t <= SYNDROMES_MAX).collect();
        Self { counts: vec![0.0; SYNDROMES_MAX + 2], rungs }
    }

    /// The syndrome count after `from` for a block that `from` did not correct. None if it must be sent as
    /// it is.
    pub(crate) fn next(&self, from: usize) -> Option<usize> {
        let planned = self.rungs.iter().copied().find(|&t| t > from);
        let unplanned = (from + from.div_ceil(2).max(2)).min(SYNDROMES_MAX);
        planned.or((from < SYNDROMES_MAX).then_some(unplanned))
    }

    /// Learns from a completed window, given the flips of its blocks; earlier windows count half. `ahead`
    /// is the number of blocks that remain: they share each round, so its cost is divided among them.
    pub(crate) fn learn(&mut self, flips: impl Iterator<Item = usize>, ahead: usize) {
        self.counts.iter_mut().for_each(|count| *count /= 2.0);
        for flips in flips {
            if let Some(count) = self.counts.get_mut(needed(flips).min(SYNDROMES_MAX + 1)) {
                *count += 1.0;
            }
        }
        self.rungs = self.best(ahead);
    }

    fn best(&self, ahead: usize) -> Vec<usize> {
        // `above[t]`: number of blocks that need more than t syndromes.
        let mut above = vec![0.0; SYNDROMES_MAX + 1];
        let mut sum = 0.0;
        for (slot, count) in above.iter_mut().rev().zip(self.counts.iter().rev()) {
            sum += count;
            *slot = sum;
        }
        let total = above.first().copied().unwrap_or(0.0);
        // The share of a round's cost that falls on the counted blocks.
        let round_bits = ROUND_BITS * total / total.max(ahead as f64).max(1.0);
        // `least[t]`: the least cost after t, and the next count. After the last count there are only raw
        // blocks.
        let raw = above.last().copied().unwrap_or(0.0) * RAW_BITS;
        let mut least = vec![(raw, SYNDROMES_MAX + 1); SYNDROMES_MAX + 1];
        for from in (0..SYNDROMES_MAX).rev() {
            let Some(&failing) = above.get(from) else { continue };
            let listed = round_bits + if from == 0 { 0.0 } else { list_bits(failing, total) };
            let next = from + (from / STEP_SHARE).max(1);
            let after = (next..=FIRST_MAX.max(GROWTH_MAX * from)).zip(least.iter().skip(next));
            let costs = after
                .map(|(to, (rest, _))| (16.0 * (to - from) as f64 * failing + listed + rest, to));
            let none = (f64::INFINITY, SYNDROMES_MAX + 1);
            let best = costs.fold(none, |best, found| if found.0 < best.0 { found } else { best });
            if let Some(slot) = least.get_mut(from) {
                *slot = if failing < 0.5 { (0.0, SYNDROMES_MAX + 1) } else { best };
            }
        }
        let next = |&t: &usize| least.get(t).map(|&(_, to)| to).filter(|&to| to <= SYNDROMES_MAX);
        let mut rungs: Vec<usize> = std::iter::successors(next(&0), next).collect();
        if rungs.is_empty() {
            rungs.push(1);
        }
        rungs
    }
}

/// Bits that mark which blocks failed, out of all.
fn list_bits(failing: f64, total: f64) -> f64 {
    let share = failing / total;
    if share <= 0.0 || share >= 1.0 {
        return 0.0;
    }
    -total * (share * share.log2() + (1.0 - share) * (1.0 - share).log2())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ladder(blocks: &[(usize, usize)]) -> Ladder {
        let mut ladder = Ladder::new();
        let flips = blocks.iter().flat_map(|&(flips, count)| std::iter::repeat_n(flips, count));
        ladder.learn(flips, 0);
        ladder
    }

    #[test]
    fn ladders_fit_what_was_seen() {
        assert_eq!(Ladder::new().rungs, [2, 4, 8, 16, 32, 64, 128]);
        assert_eq!(ladder(&[(0, 10_000)]).rungs, [1]);
        assert_eq!(ladder(&[(1, 10_000)]).rungs, [2]);
        let rungs = ladder(&[(0, 90_000), (40, 10_000)]).rungs;
        assert_eq!((rungs.first(), rungs.last()), (Some(&1), Some(&40)));
        assert_eq!(ladder(&[(5_000, 1_000)]).rungs, [8, 32, 128]);
        // Poisson with mean 3.81.
        let poisson = [363, 1383, 2634, 3345, 3186, 2428, 1542, 839, 400, 169, 64, 22, 7, 2];
        let rungs = ladder(&Vec::from_iter(poisson.into_iter().enumerate())).rungs;
        assert!((3..=7).contains(&rungs.len()), "{rungs:?}");
        assert!(rungs.first().is_some_and(|t| (2..=5).contains(t)), "{rungs:?}");
        assert_eq!(rungs.last(), Some(&13), "{rungs:?}");
    }

    /// With a thousand times as many blocks ahead, a round costs next to nothing, so many more counts are
    /// used.
    #[test]
    fn many_blocks_ahead_are_worth_more_rounds() {
        let poisson = [18, 72, 145, 193, 193, 154, 103, 59, 30, 13, 5, 2];
        let flips =
            || poisson.iter().enumerate().flat_map(|(flips, &n)| std::iter::repeat_n(flips, n));
        let [few, many] = [0, 1_000_000].map(|ahead| {
            let mut ladder = Ladder::new();
            ladder.learn(flips(), ahead);
            ladder.rungs
        });
        assert!(few.len() < 4, "{few:?}");
        assert!(many.len() > 7 && many.last() == few.last(), "{many:?}");
    }

    #[test]
    fn every_count_has_a_next_one_or_is_the_last() {
        for ladder in [Ladder::new(), ladder(&[(0, 3)]), ladder(&[(3, 1000), (90, 10)])] {
            let mut t = 0;
            while let Some(next) = ladder.next(t) {
                assert!(next > t && next <= SYNDROMES_MAX);
                t = next;
            }
            assert_eq!(t, SYNDROMES_MAX);
        }
    }
}
