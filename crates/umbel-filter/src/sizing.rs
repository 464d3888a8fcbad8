//! Sizes and rates: how large a filter must be, how often it errs, how many items it holds.
//!
//! Letters as in the literature: m bits (or positions), k probes per item, n items, p the
//! false-positive rate; X set bits, and B blocks of b bits each.
//!
//! | filter | rate p | reference |
//! |---|---|---|
//! | classic | (1 − (1 − 1/m)^(k·n))^k, and bounds and the exact rate beside it | Bloom 1970, doi:10.1145/362686.362692 |
//! | single-shot | k = 1, so 1 − (1 − 1/m)^n exactly | Sanders, Schlag & Müller 2013, doi:10.1109/BigData.2013.6691549 |
//! | partitioned | k parts of w bits: (1 − (1 − 1/w)^n)^k exactly | Broder & Mitzenmacher 2004, doi:10.1080/15427951.2004.10129096 |
//! | blocked, free probes | classic in a block, over the items of the block | Putze, Sanders & Singler 2009, doi:10.1145/1498698.1594230 |
//! | blocked, Umbel's lanes | exact, by inclusion and exclusion | here |
//! | scalable | Σ p·(1 − r)·r^i over the levels | Almeida et al. 2007, doi:10.1016/j.ipl.2006.10.007 |
//! | window | 1 − (1 − 1/(2^f − 1))^(8·α), f bits of fingerprint, load α | Fan et al. 2014, doi:10.1145/2674005.2674994 |
//! | cuckoo | the same | the same |
//! | d-left | 32 · load · 2^−r, r bits of remainder | Bonomi et al. 2006, doi:10.1007/11841036_61 |
//! | counting, variable increments | (1 − e^−a (1 + a (L−1)/L + a² (L²−1)/(12 L²)))^k, a = k·n/m | Rottenstreich et al. 2014, doi:10.1109/TNET.2013.2272604 |
//! | counting, t times and more | (1 − Σ_(l<t) C(n·k, l) m^−l (1 − 1/m)^(n·k−l))^k | Kim et al. 2019, doi:10.3390/electronics8070779 |
//! | quotient | 1 − (1 − 1/m)^n of m = Q·2^r positions | Bender et al. 2012, doi:10.14778/2350229.2350275 |
//! | aging | 1 − (1 − p₁)·(1 − p₂), the blocked rates of two generations | Yoon 2010, doi:10.1109/TKDE.2009.136 |
//! | stable | in the limit (1 − (1 + k/P)^−Max)^k, P cells lowered by an insert | Deng & Rafiei 2006, doi:10.1145/1142473.1142477 |
//!
//! [`ArrivalRate`] measures how fast a filter fills, and [`explained_one_count`] how many set bits chance explains.
//! [`item_count_estimate`] computes the number of items from the set bits (Swamidass & Baldi 2007,
//! doi:10.1021/ci600526a), and [`intersection_estimate`] the number that two filters share.
//!
//! This module and its parts are the only place of the crate with logarithms and exponentials. No
//! function here panics, and every loop is bounded, whatever the arguments.

mod arrivals;
mod blocked;
mod blocked_free;
mod cardinality;
mod classic;
mod cuckoo;
mod dleft;
mod explained;
mod halving;
mod quotient;
mod scalable;
mod spatial;
mod stream;
mod threshold;
mod variable_counting;
mod window;

use thiserror::Error;

pub use arrivals::{ARRIVAL_HALF_LIFE_MS, ARRIVAL_WATCH_MS_MIN, ArrivalRate, seconds_until};
pub use blocked::{
    BLOCKED_RATE_MIN, BlockedSize, blocked_block_count, blocked_false_positive_rate,
};
pub use blocked_free::{blocked_free_false_positive_rate, blocked_partitioned_false_positive_rate};
pub use cardinality::{
    Estimate, expected_fill, false_positive_rate_at_fill, fill, intersection_estimate,
    item_count_estimate, union_estimate,
};
pub use classic::{
    CLASSIC_EXACT_STEP_COUNT_MAX, classic_bit_count, classic_false_positive_rate,
    classic_false_positive_rate_approximate, classic_false_positive_rate_bound,
    classic_false_positive_rate_exact, classic_optimal_hash_count, information_bits,
    partitioned_false_positive_rate, single_shot_false_positive_rate,
};
pub use cuckoo::{
    CUCKOO_BUCKETS_LOOKED_AT, CUCKOO_COPIES_MAX, CUCKOO_FINGERPRINT_BITS_MAX,
    CUCKOO_PAGE_SLOTS_MAX, CuckooSize, cuckoo_false_positive_rate, cuckoo_size,
};
pub use dleft::{
    DLEFT_BUCKET_CELLS, DLEFT_PAGE_CELLS_MAX, DLEFT_PAGE_CELLS_MIN, DLEFT_REMAINDER_BITS_MAX,
    DLEFT_SUBTABLES, DLeftSize, dleft_false_positive_rate, dleft_size,
};
pub use explained::{explained_one_count, measured_rate_bounds};
pub(crate) use halving::least;
pub use quotient::{
    QUOTIENT_COUNT_BITS, QUOTIENT_COUNT_BITS_MAX, QUOTIENT_PAGE_SLOTS_MAX, QUOTIENT_PAGE_SLOTS_MIN,
    QUOTIENT_REMAINDER_BITS_MAX, QuotientSize, quotient_capacity, quotient_size,
};
pub use scalable::{SCALABLE_GROWTH, SCALABLE_TIGHTENING, ScalableLevel, scalable_level};
pub use spatial::spatial_false_positive_rates;
pub use stream::{
    StableSize, aging_generation_rate, stable_crowding, stable_missed_rate, stable_size,
    stable_zeros,
};
pub use threshold::{counting_threshold_probes, counting_threshold_rate};
pub use variable_counting::{
    VARIABLE_BASE_MAX, variable_counting_blocked_rate, variable_counting_false_positive_rate,
    variable_counting_size,
};
pub use window::{
    FINGERPRINT_BITS_MAX, SLICE_BITS, WINDOW_BLOCK_SLOTS_MAX, WINDOW_BUCKET_SLOTS, WindowSize,
    window_false_positive_rate, window_size,
};

use crate::lanes::BLOCK_PROBE_COUNT_MAX;

/// A size or rate that no filter can have, or a count that no filter can show. Fix the caller's
/// configuration.
#[derive(Clone, Copy, PartialEq, Debug, Error)]
#[non_exhaustive]
pub enum SizingError {
    /// A filter needs at least one bit (or position).
    #[error("0 bits, expected at least 1")]
    NoBits,
    /// A blocked filter needs at least one block.
    #[error("0 blocks, expected at least 1")]
    NoBlocks,
    /// An item needs at least one probe.
    #[error("0 probes per item, expected at least 1")]
    NoProbes,
    /// A block has one lane for each probe of an item: ask for fewer probes.
    #[error("{probe_count} probes per item in a block, expected at most {BLOCK_PROBE_COUNT_MAX}")]
    TooManyProbes {
        /// The count that was asked for.
        probe_count: u32,
    },
    /// The best size for nothing is not defined: plan for at least one item.
    #[error("0 items, expected at least 1")]
    NoItems,
    /// A rate of 0 needs infinite memory, a rate of 1 none: name one in between.
    #[error("false-positive rate {rate:?}, expected one above 0 and below 1")]
    Rate {
        /// The rate that was asked for.
        rate: f64,
    },
    /// So few false positives are not for a blocked filter: name a higher rate, or take the
    /// classic kind.
    #[error(
        "false-positive rate {rate:?} of a blocked filter, expected at least {BLOCKED_RATE_MIN:?}"
    )]
    BlockedRate {
        /// The rate that was asked for.
        rate: f64,
    },
    /// So few false positives need longer fingerprints than a window has: name a higher rate.
    #[error(
        "false-positive rate {rate:?} of a window, whose fingerprints have up to \
         {FINGERPRINT_BITS_MAX} bits"
    )]
    WindowRate {
        /// The rate that was asked for.
        rate: f64,
    },
    /// So few false positives need longer fingerprints than a cuckoo filter has: name a higher rate.
    #[error(
        "false-positive rate {rate:?} of a cuckoo filter, whose fingerprints have up to \
         {CUCKOO_FINGERPRINT_BITS_MAX} bits"
    )]
    CuckooRate {
        /// The rate that was asked for.
        rate: f64,
    },
    /// So few false positives need longer remainders than a quotient filter has: name a higher rate.
    #[error(
        "false-positive rate {rate:?} of a quotient filter, whose remainders have up to \
         {QUOTIENT_REMAINDER_BITS_MAX} bits"
    )]
    QuotientRate {
        /// The rate that was asked for.
        rate: f64,
    },
    /// So few false positives need longer remainders than a d-left filter has: name a higher rate.
    #[error(
        "false-positive rate {rate:?} of a d-left filter, whose remainders have up to \
         {DLEFT_REMAINDER_BITS_MAX} bits"
    )]
    DLeftRate {
        /// The rate that was asked for.
        rate: f64,
    },
    /// So few false positives are not for counters with variable increments: name a higher rate.
    #[error(
        "false-positive rate {rate:?} of a counting filter with variable increments, whose items have up to \
         {BLOCK_PROBE_COUNT_MAX} probes"
    )]
    VariableCountingRate {
        /// The rate that was asked for.
        rate: f64,
    },
    /// Name a base of increments within the limits.
    #[error("increments from a base of {base}, expected 2 to {VARIABLE_BASE_MAX}")]
    VariableBase {
        /// The base that was asked for.
        base: u8,
    },
    /// The exact rate would take too long: take the bound or the approximation, which are close
    /// for so many bits and probes.
    #[error(
        "{step_count} steps for the exact rate, expected at most {CLASSIC_EXACT_STEP_COUNT_MAX}"
    )]
    TooManySteps {
        /// Steps that the exact rate would take.
        step_count: u128,
    },
    /// No filter has more ones than bits: the counts belong to different filters.
    #[error("{one_count} ones in {bit_count} bits")]
    OnesBeyondBits {
        /// Set bits.
        one_count: u64,
        /// All bits.
        bit_count: u64,
    },
    /// All bits are set, so any number of items may be in the filter. It answers nothing any more:
    /// build a larger one.
    #[error("all {bit_count} bits are set: the number of items is not to be known")]
    Saturated {
        /// All bits.
        bit_count: u64,
    },
    /// The OR of two arrays has at least the ones of each and at most those of both together: the
    /// counts belong to different filters.
    #[error("{one_count_or} ones in the OR of arrays with {one_count_a} and {one_count_b} ones")]
    OnesOfOr {
        /// Set bits of the first array.
        one_count_a: u64,
        /// Set bits of the second array.
        one_count_b: u64,
        /// Set bits of their OR.
        one_count_or: u64,
    },
    /// The level would hold more items than 2^64: a scalable filter ends before it.
    #[error("level {level} after a first capacity of {first_capacity} exceeds 2^64 items")]
    LevelCapacity {
        /// Items of level 0.
        first_capacity: u64,
        /// The level that was asked for.
        level: u32,
    },
    /// The level would need a rate that no blocked filter has: begin with a larger capacity or a
    /// higher rate.
    #[error(
        "false-positive rate {false_positive_rate:?} of a scalable filter, whose level {level} needs {rate:.1e}: \
         the least of a level is {BLOCKED_RATE_MIN:e}"
    )]
    LevelRate {
        /// The rate of all levels together that was asked for.
        false_positive_rate: f64,
        /// The level that was asked for.
        level: u32,
        /// The rate that it would need.
        rate: f64,
    },
}

/// Refuses rates outside (0, 1), and what is no number.
pub(crate) fn check_rate(rate: f64) -> Result<(), SizingError> {
    // Written so that NaN fails too.
    if rate > 0.0 && rate < 1.0 { Ok(()) } else { Err(SizingError::Rate { rate }) }
}

/// Refuses to plan for nothing.
pub(crate) const fn check_items(item_count: u64) -> Result<(), SizingError> {
    if item_count > 0 { Ok(()) } else { Err(SizingError::NoItems) }
}

#[cfg(test)]
mod tests {
    /// The next number of `SplitMix64` (Steele, Lea & Flood 2014, doi:10.1145/2660193.2660195), for
    /// the simulations of all parts.
    pub(super) fn split_mix(state: &mut u64) -> u64 {
        *state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = *state;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// A whole number from a float that is none by its type only.
    #[expect(clippy::cast_possible_truncation, reason = "small, positive")]
    pub(super) fn whole(value: f64) -> u64 {
        value as u64
    }
}
