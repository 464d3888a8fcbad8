//! How many syndromes of a block go out, and how many more if it does not decode.
//!
//! The blocks of a window climb one ladder of counts t_1 < t_2 < ..: all get t_1 syndromes, those that fail
//! t_2 − t_1 more, and so on. What a block needs is known of the windows before, as a histogram; dynamic programming finds
//! the ladder that would have cost least there. The first window is short, and its counts double.

/// Most syndromes of a block; one that needs more is sent as it is.
pub(crate) const SYNDROMES_MAX: usize = 128;

/// Flips from which on no syndrome is spared: one overfull block in 2^4 · 4! passes for another then, and is found by its
/// hash, which costs 300 bytes. Two bytes more for each block would cost more.
const UNSPARED_FLIPS: usize = 4;

/// What one more round costs beside its syndromes, in bits: two frames, and a round trip, in which some KiB could be
/// sent.
const ROUND_BITS: f64 = 8.0 * 2000.0;

/// Largest first count, and how far a count may be above the one before: else a window of sparse blocks that follows
/// a dense one would pay for what it does not need.
const FIRST_MAX: usize = 8;
const GROWTH_MAX: usize = 4;

/// A step is an eighth at least: each decodes anew what did not decode before, in time that grows with the square of the
/// count, and saves little more.
const STEP_SHARE: usize = 8;

/// Bits of a block that is sent as it is.
const RAW_BITS: f64 = 32_768.0;

/// Most flips that so many syndromes correct.
pub(crate) const fn flips_max(syndrome_count: usize) -> usize {
    if syndrome_count < UNSPARED_FLIPS { syndrome_count.saturating_sub(1) } else { syndrome_count }
}

/// Fewest syndromes that correct so many flips.
const fn needed(flips: usize) -> usize {
    if flips < UNSPARED_FLIPS { flips + 1 } else { flips }
}

/// What blocks needed, and the ladder that follows from it.
#[derive(Clone, Debug)]
pub(crate) struct Ladder {
    /// Blocks by the syndromes that they needed; the last one counts those that needed more than there are.
    counts: Vec<f64>,
    rungs: Vec<usize>,
}

impl Ladder {
    /// Of blocks of which nothing is known.
    pub(crate) fn new() -> Self {
        let rungs = std::iter::successors(Some(2), |&t| Some(2 * t));
        let rungs = rungs.take_while(|&t| t <= SYNDROMES_MAX).collect();
        Self { counts: vec![0.0; SYNDROMES_MAX + 2], rungs }
    }

    /// How many syndromes a block should have that `from` did not correct; none if it is to be sent as it is.
    pub(crate) fn next(&self, from: usize) -> Option<usize> {
        let planned = self.rungs.iter().copied().find(|&t| t > from);
        let unplanned = (from + from.div_ceil(2).max(2)).min(SYNDROMES_MAX);
        planned.or((from < SYNDROMES_MAX).then_some(unplanned))
    }

    /// Learns from a window, by the flips of its blocks; what was before counts half. So many blocks are still to be
    /// settled, side by side: a round is one for all of them.
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
        // above[t]: blocks that need more than t.
        let mut above = vec![0.0; SYNDROMES_MAX + 1];
        let mut sum = 0.0;
        for (slot, count) in above.iter_mut().rev().zip(self.counts.iter().rev()) {
            sum += count;
            *slot = sum;
        }
        let total = above.first().copied().unwrap_or(0.0);
        // A round's share of the blocks that were counted.
        let round_bits = ROUND_BITS * total / total.max(ahead as f64).max(1.0);
        // least[t]: what follows after t, and where to go. After the last there are only raw blocks.
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

/// Bits that mark which of all blocks failed.
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
        // Poisson of mean 3.81.
        let poisson = [363, 1383, 2634, 3345, 3186, 2428, 1542, 839, 400, 169, 64, 22, 7, 2];
        let rungs = ladder(&Vec::from_iter(poisson.into_iter().enumerate())).rungs;
        assert!((3..=7).contains(&rungs.len()), "{rungs:?}");
        assert!(rungs.first().is_some_and(|t| (2..=5).contains(t)), "{rungs:?}");
        assert_eq!(rungs.last(), Some(&13), "{rungs:?}");
    }

    /// A thousandth of what is ahead: a round costs next to nothing, and every count is asked for by itself.
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
