//! Chooses the encoding of a payload: the shortest by formula, before anything is encoded.
//!
//! With n ones on m positions at random, the gaps between ones are nearly geometric of mean
//! g = (m − n)/(n + 1), and a Rice code of the best parameter B writes one in B + 1/(1 − q^(2^B))
//! bits, q = g/(g + 1) (`umbel_bits::RiceCode`), up to 0.12 above their entropy. An ANS list
//! (`umbel_bits::AnsGapCode`) comes within 0.005 of it, and costs 48 bits and its tables once. It is
//! chosen where it saves a 512th of the bits, that is for lists of 450 to 10,000 gaps and more,
//! depending on the mean (`gap_code`). Counters and probes have Rice codes always.
//!
//! From a fill of 1 − 0.6180 = 0.3820 on, the inverse of the golden ratio, B is 0 and n Rice codes
//! take m bits: as many as the array itself. ANS saves something up to a half. But words are read and
//! written many times as fast as codes, so codes have to save a 64th at least.
//!
//! ```text
//! fill           0 ───────── 0.37 ── 0.43 ───── 0.57 ── 0.63 ───────── 1
//! short lists         gaps     │             raw          │    holes
//! long lists           ans gaps        │     raw    │      ans holes
//! ```
//!
//! | fill | encoding | bits a position, Rice | ANS | bits a one, Rice | ANS |
//! |---|---|---|---|---|---|
//! | 0.1 % | gaps | 0.0115 | 0.0114 | 11.49 | 11.41 |
//! | 1 % | gaps | 0.0811 | 0.0808 | 8.11 | 8.08 |
//! | 10 % | gaps | 0.4756 | 0.4693 | 4.76 | 4.69 |
//! | 50 % | raw | 1 | 1 | 2 | 2 |
//! | 90 % | holes | 0.4756 | 0.4693 | 0.53 | 0.52 |
//! | 99 % | holes | 0.0811 | 0.0808 | 0.08 | 0.08 |
//!
//! A batch of items for a blocked filter is a list of *probes* of 32 bits and a gap of blocks each,
//! in place of k gaps of positions. Bits an item, k = 6:
//!
//! | items a block | probes | gaps | raw |
//! |---|---|---|---|
//! | 1/1000 | 43.5 | 107.0 | 512,000 |
//! | 1/10 | 36.9 | 67.1 | 5,120 |
//! | 1 | 34.0 | 46.9 | 512 |
//! | 4 | 33.2 | 34.4 | 128 |
//! | 8 | 33.1 | 27.8 | 64 |
//! | 50 | 33.0 | 10.1 | 10.2 |
//!
//! So probes win up to some four items a block, a twelfth of the blocks' design load.

use std::fmt;

use umbel_bits::RiceCode;
use umbel_filter::Kind;

use super::gap_code::GapCode;

/// The encodings of a payload, by their numbers in frames.
///
/// ```
/// use umbel_codec::Encoding;
///
/// assert_eq!(Encoding::from_id(4), Some(Encoding::Raw));
/// assert_eq!(Encoding::Holes.to_string(), "holes");
/// ```
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
#[repr(u8)]
pub enum Encoding {
    /// Rice codes of the gaps between ones; a counter follows each in a counting filter.
    Gaps = 1,
    /// Insertions into a blocked filter: gap of blocks, probe seed.
    Probes = 2,
    /// Rice codes of the gaps between zeros.
    Holes = 3,
    /// The words.
    Raw = 4,
    /// As gaps, for a later part of a single-shot filter.
    Part = 5,
    /// As gaps, as an ANS list.
    AnsGaps = 6,
    /// As holes, as an ANS list.
    AnsHoles = 7,
    /// As a part, as an ANS list.
    AnsPart = 8,
}

impl Encoding {
    /// Every encoding, by ascending number.
    pub const ALL: [Self; 8] = [
        Self::Gaps,
        Self::Probes,
        Self::Holes,
        Self::Raw,
        Self::Part,
        Self::AnsGaps,
        Self::AnsHoles,
        Self::AnsPart,
    ];

    /// The encoding with this stored number, or None if no release knows it.
    #[must_use]
    pub fn from_id(id: u8) -> Option<Self> {
        Self::ALL.into_iter().find(|encoding| encoding.id() == id)
    }

    /// The number stored for it, never reused.
    #[must_use]
    pub const fn id(self) -> u8 {
        self as u8
    }

    /// The same encoding with Rice codes instead of an ANS list.
    pub(super) const fn base(self) -> Self {
        match self {
            Self::AnsGaps => Self::Gaps,
            Self::AnsHoles => Self::Holes,
            Self::AnsPart => Self::Part,
            _ => self,
        }
    }

    pub(super) const fn is_ans(self) -> bool {
        matches!(self, Self::AnsGaps | Self::AnsHoles | Self::AnsPart)
    }

    /// The same encoding with this code. Only lists of positions have an ANS code.
    pub(super) const fn coded_by(self, code: GapCode) -> Self {
        match (self.base(), code) {
            (Self::Gaps, GapCode::Ans(_)) => Self::AnsGaps,
            (Self::Holes, GapCode::Ans(_)) => Self::AnsHoles,
            (Self::Part, GapCode::Ans(_)) => Self::AnsPart,
            (base, _) => base,
        }
    }

    /// Whether frames of this kind may have this encoding.
    pub(super) const fn is_of(self, kind: Kind) -> bool {
        match self {
            Self::Gaps => !kind.has_fingerprints(),
            Self::AnsGaps => !kind.has_counters() && !kind.has_fingerprints(),
            Self::Probes => matches!(kind, Kind::Blocked),
            Self::Holes | Self::AnsHoles => {
                !kind.has_counters()
                    && !kind.has_fingerprints()
                    && !matches!(kind, Kind::SingleShot)
            }
            Self::Raw => !matches!(kind, Kind::SingleShot),
            Self::Part | Self::AnsPart => matches!(kind, Kind::SingleShot),
        }
    }
}

impl fmt::Display for Encoding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Gaps => "gaps",
            Self::Probes => "probes",
            Self::Holes => "holes",
            Self::Raw => "raw",
            Self::Part => "part",
            Self::AnsGaps => "ans gaps",
            Self::AnsHoles => "ans holes",
            Self::AnsPart => "ans part",
        })
    }
}

/// Expected bits of the gaps between `one_count` ones on `position_count` positions at random, in
/// the shorter code.
///
/// ```
/// use umbel_codec::gaps_bits;
///
/// // Every fourth of 400: mean gap 3, q = 3/4, B = 1: 1 + 1/(1 − 9/16) = 3.29 bits each.
/// assert!((gaps_bits(400, 100) / 100.0 - 3.29).abs() < 0.03);
/// // Of a million, an ANS list: log2(4) + 3 log2(4/3) = 3.245 bits of entropy, and 0.005 at most.
/// assert!((gaps_bits(1_000_000, 250_000) / 250_000.0 - 3.245).abs() < 0.005);
/// ```
#[must_use]
pub fn gaps_bits(position_count: u64, one_count: u64) -> f64 {
    GapCode::shortest(one_count, mean_gap(position_count, one_count)).1
}

/// Expected bits of the gaps as Rice codes.
pub(super) fn rice_bits(position_count: u64, one_count: u64) -> f64 {
    let mean_gap = mean_gap(position_count, one_count);
    one_count as f64 * RiceCode::for_mean_gap(mean_gap).expected_bits(mean_gap)
}

/// The shortest of gaps, holes (as Rice codes or as an ANS list) and [`Encoding::Raw`] for an array
/// of bits, by their expected lengths: those of the gaps between ones, of the gaps between zeros, and
/// one bit a position. Codes have to save a 64th of the words.
///
/// ```
/// use umbel_codec::{Encoding, cheapest_encoding, gaps_bits};
///
/// assert_eq!(cheapest_encoding(51_200, 512), Encoding::Gaps);
/// assert_eq!(cheapest_encoding(51_200, 25_600), Encoding::Raw);
/// assert_eq!(cheapest_encoding(51_200, 51_200 - 512), Encoding::Holes);
/// // At 1 %, and at 99 %, about 8.1 bits each: a twelfth of the raw words.
/// assert!((gaps_bits(51_200, 512) / 512.0 - 8.1).abs() < 0.1);
/// ```
#[must_use]
pub fn cheapest_encoding(position_count: u64, one_count: u64) -> Encoding {
    let coded = |count| GapCode::shortest(count, mean_gap(position_count, count));
    let (gaps_code, gaps) = coded(one_count);
    let (holes_code, holes) = coded(position_count.saturating_sub(one_count));
    if gaps.min(holes) > position_count as f64 * RAW_SHARE {
        Encoding::Raw
    } else if gaps <= holes {
        Encoding::Gaps.coded_by(gaps_code)
    } else {
        Encoding::Holes.coded_by(holes_code)
    }
}

/// Expected bits of `probe_count` insertions of random items into `block_count` blocks: 32 bits of
/// seed each, and the gap from block to block.
///
/// ```
/// use umbel_codec::{gaps_bits, probes_bits};
///
/// // One item in every other block: mean gap 2, q = 2/3, B = 1, 1 + 1/(1 − 4/9) = 2.8 bits.
/// assert!((probes_bits(2_000, 1_000) / 1_000.0 - 34.8).abs() < 0.01);
/// // Its six positions among 1,024: a mean gap of 169.7, and 8.86 bits each.
/// assert!((gaps_bits(1_024_000, 6_000) / 1_000.0 - 53.2).abs() < 0.1);
/// ```
#[must_use]
pub fn probes_bits(block_count: u64, probe_count: u64) -> f64 {
    let mean_gap = mean_block_gap(block_count, probe_count);
    let gap_bits = RiceCode::for_mean_gap(mean_gap).expected_bits(mean_gap);
    probe_count as f64 * (SEED_BITS as f64 + gap_bits)
}

/// Expected bits of a counting filter's gaps and counters: `one_count` counters above 0 among
/// `position_count`, which sum up to `counter_sum`. A counter c is written in unary, c bits. At the
/// design load half of the counters are 0, and the others are 1 with probability ln 2 = 0.69 and
/// 1.39 on average; with a gap of 2 bits each, that is 1.69 bits a position in place of 4.
///
/// ```
/// use umbel_codec::counters_bits;
///
/// // 1,000 counters, half of them set, 693 inserted probes.
/// assert!((counters_bits(1_000, 500, 693) / 1_000.0 - 1.69).abs() < 0.01);
/// ```
#[must_use]
pub fn counters_bits(position_count: u64, one_count: u64, counter_sum: u64) -> f64 {
    rice_bits(position_count, one_count) + counter_sum as f64
}

/// Codes are written if they take at most this share of the words.
pub(super) const RAW_SHARE: f64 = 63.0 / 64.0;

/// Bits of a probe seed.
pub(super) const SEED_BITS: u32 = 32;

/// The gaps before each of the n ones and after the last share the zeros.
pub(super) fn mean_gap(position_count: u64, one_count: u64) -> f64 {
    position_count.saturating_sub(one_count) as f64 / (one_count as f64 + 1.0)
}

/// The gaps before each of the n probes and after the last share the blocks.
pub(super) fn mean_block_gap(block_count: u64, probe_count: u64) -> f64 {
    block_count as f64 / (probe_count as f64 + 1.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_are_found_again() {
        for id in 0..=u8::MAX {
            assert!(Encoding::from_id(id).is_none_or(|encoding| encoding.id() == id));
        }
        assert_eq!(Encoding::ALL.map(Encoding::id), [1, 2, 3, 4, 5, 6, 7, 8]);
    }

    /// The picture of the module: where the encodings change.
    #[test]
    fn raw_wins_in_the_middle() {
        for (ones, expected) in [
            (0, Encoding::Gaps),
            (300, Encoding::Gaps),
            (425_000, Encoding::AnsGaps),
            (430_000, Encoding::Raw),
            (570_000, Encoding::Raw),
            (575_000, Encoding::AnsHoles),
            (999_700, Encoding::Holes),
            (1_000_000, Encoding::Holes),
        ] {
            assert_eq!(cheapest_encoding(1_000_000, ones), expected, "{ones} ones");
        }
        for (ones, expected) in [
            (0, Encoding::Gaps),
            (365, Encoding::Gaps),
            (375, Encoding::Raw),
            (625, Encoding::Raw),
            (635, Encoding::Holes),
        ] {
            assert_eq!(cheapest_encoding(1_000, ones), expected, "{ones} of 1,000");
        }
    }

    #[test]
    fn the_table_of_fills() {
        let position_count = 1_000_000_000;
        for (ones, rice, ans) in
            [(1_000_000, 11.495, 11.410), (10_000_000, 8.108, 8.081), (100_000_000, 4.756, 4.693)]
        {
            let found = [rice_bits(position_count, ones), gaps_bits(position_count, ones)]
                .map(|bits| bits / ones as f64);
            assert!((found[0] - rice).abs() < 0.0006, "{found:?} for {ones} ones");
            assert!((found[1] - ans).abs() < 0.0006, "{found:?} for {ones} ones");
        }
    }

    #[test]
    fn the_table_of_items() {
        let position_count = 10_000_000 * 512;
        for (items, probes, gaps) in [
            (10_000u32, 43.5, 107.0),
            (1_000_000, 36.9, 67.1),
            (10_000_000, 34.0, 46.9),
            (40_000_000, 33.2, 34.4),
            (80_000_000, 33.1, 27.8),
            (500_000_000, 33.0, 10.1),
        ] {
            // Ones of 6 probes an item at random: m (1 − (1 − 1/m)^6n), about m (1 − e^(−6n/m)).
            let load = 6.0 * f64::from(items) / position_count as f64;
            let ones = -(position_count as f64) * (-load).exp_m1();
            #[expect(clippy::cast_possible_truncation, reason = "at most the positions")]
            let ones = ones.round() as u64;
            let found = [probes_bits(10_000_000, items.into()), gaps_bits(position_count, ones)]
                .map(|bits| bits / f64::from(items));
            assert!((found[0] - probes).abs() < 0.06, "{found:?} for {items} items");
            assert!((found[1] - gaps).abs() < 0.06, "{found:?} for {items} items");
        }
    }
}
