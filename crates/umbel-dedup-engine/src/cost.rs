//! The cost model: expected bits per entry of each way to run an exchange, and the cheapest way.
//!
//! With p workers, n entries, m positions, f = m/n and g = f·p the mean gap of one worker's stream to one owner:
//!
//! ```text
//!   forward     R(g)  a Rice code of the gaps, at most 0.12 bit above their entropy h(g)
//!   candidates  d   = δ + (1−δ)·(1 − exp(−λ)),  λ = (1 − 1/p)/f + n_ref/m
//!   one pass    C1  = R(g) + H2(d) + d·K
//!   refine      C2  = R(g) + H2(d) + d·(r + H2(s) + s·K),  s = δ/d + (1 − δ/d)·2^−r
//!   full hash   C3  = 64 + R(2^64·p/n) + record id bits
//! ```
//!
//! δ is the share of entries that another worker or one of the n_ref reference entries has, too; H2 is the
//! binary entropy; K is the number of bits of a survivor's residue. The values of f that are
//! tried are those for which g is 1.5·2^B: there, a Rice code is within 0.003 bit of the best Golomb code.
//! Single-shot forward cost after Sanders, Schlag, Müller 2013, doi:10.1109/BigData.2013.6691549; refinement
//! and residue are Umbel's.

use super::plan::{Mode, ReferenceShape};
use crate::limits::REFINE_BITS_MAX;
use std::ops::RangeInclusive;
use umbel_bits::{RiceCode, binary_entropy_bits};

/// A filter is chosen if it costs at most this share of sending full hashes, because it takes two or three passes of
/// latency and full hashes take one. Schlag measured the single-shot filter as faster up to about half duplicates (KIT
/// 2013, doi:10.5445/IR/1000058832). Ours takes as much processor time as full hashes if it sends two thirds of their
/// bytes, and twice as much if it sends all of them (64 workers, 10^8 records).
const FILTER_SHARE_MAX: f64 = 0.55;

/// A refinement is chosen if it saves at least this share of the one-pass cost, because it adds two latencies.
const REFINE_SAVING_MIN: f64 = 0.03;

/// The range of mean positions per entry that are tried.
const POSITIONS_PER_ENTRY: RangeInclusive<f64> = 0.5..=65_536.0;

/// Largest B that is tried: with 1,024 workers 65,536 positions an entry have a mean gap below 2^27.
const LOW_BITS_MAX: i32 = 27;

/// The parameters of the cost model.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct CostQuestion {
    /// Workers, p.
    pub workers: u32,
    /// Locally distinct entries of all workers together, n.
    pub entries: f64,
    /// Share of them that another worker has, too, δ, in [0, 1].
    pub delta: f64,
    /// Bits that a survivor sends besides the rest of its hash: its record id, its rank, and at exactness `bytes` its item.
    pub survivor_extra_bits: f64,
    /// The hashes of earlier jobs, if there are any to compare with. They are not sent.
    pub references: Option<ReferenceShape>,
}

/// One way to run the exchange and its expected cost.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Cost {
    /// How entries are compared.
    pub mode: Mode,
    /// Positions over the whole hash space, m.
    pub position_count: u64,
    /// Refinement bits, r; 0 for one pass.
    pub refine_bits: u32,
    /// Expected bits per entry, including frames from a worker to itself, without headers.
    pub bits_per_entry: f64,
}

impl CostQuestion {
    /// Share d of entries that collide in a filter with `per_entry` positions per entry, truly or falsely.
    fn candidate_share(&self, per_entry: f64) -> f64 {
        let references = self.references.map_or(0.0, |references| references.entries as f64);
        let others = 1.0 - 1.0 / f64::from(self.workers) + references / self.entries;
        let load = others / per_entry;
        self.delta + (1.0 - self.delta) * -(-load).exp_m1()
    }

    /// Expected bits per entry of a filter exchange with m positions and r refinement bits.
    #[must_use]
    pub fn filter_bits(&self, position_count: u64, refine_bits: u32) -> f64 {
        let per_entry = position_count as f64 / self.entries;
        let gap = per_entry * f64::from(self.workers);
        let d = self.candidate_share(per_entry);
        let residue = self.residue_bits(position_count, refine_bits);
        let forward = RiceCode::for_mean_gap(gap).expected_bits(gap) + binary_entropy_bits(d);
        if refine_bits == 0 {
            return forward + d * residue;
        }
        let true_share = if d > 0.0 { self.delta / d } else { 0.0 };
        let s = true_share + (1.0 - true_share) * (-f64::from(refine_bits)).exp2();
        forward + d * (f64::from(refine_bits) + binary_entropy_bits(s) + s * residue)
    }

    /// K: bits of one survivor's residue.
    fn residue_bits(&self, position_count: u64, refine_bits: u32) -> f64 {
        f64::from(128 - position_count.ilog2() - refine_bits) + self.survivor_extra_bits
    }

    /// Expected bits per entry if every entry sends its full hash.
    #[must_use]
    pub fn full_hash_bits(&self) -> f64 {
        let gap = 2f64.powi(64) * f64::from(self.workers) / self.entries;
        64.0 + RiceCode::for_mean_gap(gap).expected_bits(gap) + self.survivor_extra_bits
    }

    fn full_hash(&self) -> Cost {
        Cost {
            mode: Mode::FullHash,
            position_count: 0,
            refine_bits: 0,
            bits_per_entry: self.full_hash_bits(),
        }
    }

    /// The position counts to try: those whose mean gap g is 1.5·2^B.
    fn position_counts(&self) -> impl Iterator<Item = u64> + '_ {
        let per_entry = |low_bits: i32| 1.5 * f64::from(low_bits).exp2() / f64::from(self.workers);
        let worth = (0..=LOW_BITS_MAX).map(per_entry).filter(|f| POSITIONS_PER_ENTRY.contains(f));
        let positions = worth.map(|per_entry| (per_entry * self.entries).ceil());
        let possible = positions.filter(|positions| (1.0..=2f64.powi(60)).contains(positions));
        #[expect(clippy::cast_possible_truncation, reason = "in 1..=2^60")]
        possible.map(|positions| positions as u64)
    }

    /// The cheapest filter exchange with these numbers of refinement bits; among equal costs the one with fewer positions,
    /// then with fewer bits. `None` if no position count is possible.
    fn cheapest_of(&self, refine_bits: RangeInclusive<u32>) -> Option<Cost> {
        let costs = self.position_counts().flat_map(|position_count| {
            refine_bits.clone().map(move |refine_bits| {
                let bits_per_entry = self.filter_bits(position_count, refine_bits);
                Cost { mode: Mode::Filter, position_count, refine_bits, bits_per_entry }
            })
        });
        costs.min_by(|a, b| a.bits_per_entry.total_cmp(&b.bits_per_entry))
    }

    /// The cheapest filter exchange: refined, unless that would save too little. `None` if no position count is possible.
    #[must_use]
    pub fn cheapest_filter(&self) -> Option<Cost> {
        let one_pass = self.cheapest_of(0..=0)?;
        let refine_bits_max =
            self.references.map_or(REFINE_BITS_MAX, ReferenceShape::refine_bits_max);
        let Some(refined) = self.cheapest_of(1..=refine_bits_max) else { return Some(one_pass) };
        let is_worth_it =
            refined.bits_per_entry <= (1.0 - REFINE_SAVING_MIN) * one_pass.bits_per_entry;
        Some(if is_worth_it { refined } else { one_pass })
    }
}

/// The cheapest way to run the exchange: a filter, or full hashes if a filter would save too little.
///
/// For a billion entries on 64 workers, 0.6 % of them shared, a filter with six positions an entry and about six
/// refinement bits wins:
///
/// ```
/// use umbel_dedup_engine::{CostQuestion, Mode, cheapest};
/// let question = CostQuestion { workers: 64, entries: 1e9, delta: 0.006, survivor_extra_bits: 0.0,
///                               references: None };
/// let plan = cheapest(&question);
/// assert_eq!(plan.mode, Mode::Filter);
/// assert_eq!(plan.position_count, 6_000_000_000); // f = 1.5·2^8/64 = 6
/// assert!((12.2..12.6).contains(&plan.bits_per_entry));
/// ```
#[must_use]
pub fn cheapest(question: &CostQuestion) -> Cost {
    let full_hash = question.full_hash();
    match question.cheapest_filter() {
        Some(filter) if filter.bits_per_entry <= FILTER_SHARE_MAX * full_hash.bits_per_entry => {
            filter
        }
        _ => full_hash,
    }
}

#[cfg(test)]
mod tests {
    use super::super::IndexBits;
    use super::*;

    fn question(workers: u32, delta: f64) -> CostQuestion {
        CostQuestion { workers, entries: 1e9, delta, survivor_extra_bits: 0.0, references: None }
    }

    /// The table of the design's cost model: bits per entry with residue coding, by workers and share of duplicates.
    #[test]
    fn the_model_gives_the_known_table() {
        for (workers, row) in [
            (2, [6.0, 6.6, 10.2, 22.8, 54.8]),
            (4, [7.5, 8.1, 11.7, 24.2, 56.0]),
            (8, [8.7, 9.3, 12.9, 25.4, 57.1]),
            (64, [11.8, 12.4, 16.0, 28.5, 60.2]),
            (512, [14.8, 15.4, 19.0, 31.5, 63.2]),
        ] {
            for (delta, expected) in [0.0, 0.006, 0.042, 0.17, 0.5].into_iter().zip(row) {
                let bits = question(workers, delta).cheapest_filter().unwrap().bits_per_entry;
                // One pass is taken where refining would save less than 3 %; the table has the minimum.
                let allowed = expected - 0.07..expected * (1.0 + REFINE_SAVING_MIN) + 0.07;
                assert!(allowed.contains(&bits), "p={workers} δ={delta}: {bits}");
            }
        }
    }

    #[test]
    fn whole_hashes_travel_where_most_entries_are_shared() {
        assert_eq!(cheapest(&question(8, 0.9)).mode, Mode::FullHash);
        assert_eq!(cheapest(&question(8, 0.1)).mode, Mode::Filter);
        assert!((question(64, 0.0).full_hash_bits() - 105.6).abs() < 0.5);
    }

    #[test]
    fn references_fill_the_filter_like_other_workers_entries() {
        let with = |entries, bits| {
            let references = Some(ReferenceShape { entries, bits });
            CostQuestion { references, ..question(2, 0.0) }
        };
        // λ = (½·n + n_ref)/m: half as many reference entries as entries are as a second other worker's.
        let three = CostQuestion { entries: 1e9, ..question(2, 0.0) };
        let half = with(500_000_000, IndexBits::Bits128);
        assert!((half.candidate_share(4.0) - (1.0 - (-0.25f64).exp())).abs() < 1e-9);
        assert!(half.filter_bits(1 << 32, 6) > three.filter_bits(1 << 32, 6));
        let short = with(500_000_000, IndexBits::Bits64).cheapest_filter().unwrap();
        assert_eq!(short.refine_bits, 0);
    }

    #[test]
    fn expensive_survivors_buy_more_positions() {
        let heavy = CostQuestion { survivor_extra_bits: 8.0 * 1024.0, ..question(8, 0.0) };
        let light = question(8, 0.0).cheapest_filter().unwrap();
        let heavy = heavy.cheapest_filter().unwrap();
        let spread = |c: Cost| c.position_count.ilog2() + c.refine_bits;
        assert!(spread(heavy) > spread(light) + 4);
    }
}
