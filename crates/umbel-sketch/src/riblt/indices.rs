//! The walk of a symbol through the indices of the coded symbols that contain it.
//!
//! After index i, the next one is beyond i + g with probability Π (1 − 1/(1 + j/2)) over the
//! indices in between, which is nearly ((i + 1.5) / (i + g + 1.5))². So g = (i + 1.5)·(1/√u − 1)
//! for u uniform in (0, 1], which is (state + 1) / 2^64 for the states of a multiplicative
//! generator.
//!
//! IEEE 754 defines square root and division exactly and nothing is fused, so the walk is the same
//! on every machine.

/// The generator's multiplier.
const MULTIPLIER: u64 = 0xda94_2042_e4dd_58b5;

/// √2^64.
const ROOT: f64 = 4_294_967_296.0;

/// All indices are below this: beyond, gaps do not fit.
pub(super) const INDEX_END: u64 = 1 << 63;

/// Indices of the coded symbols that contain a symbol, ascending, from its keyed hash.
///
/// ```
/// use umbel_sketch::Indices;
///
/// let first: Vec<u64> = Indices::new(1_234_567_891).take(7).collect();
/// assert_eq!(first, [0, 2, 3, 9, 10, 11, 16]);
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Indices {
    state: u64,
    next: u64,
}

impl Indices {
    /// The walk of a symbol with this keyed hash.
    #[inline]
    #[must_use]
    pub const fn new(check_hash: u64) -> Self {
        Self { state: check_hash, next: 0 }
    }

    /// The next index; there is none from 2^63 on.
    #[inline]
    #[must_use]
    pub const fn peek(self) -> u64 {
        self.next
    }

    /// Advances past the next index.
    #[inline(always)]
    pub(super) fn advance(&mut self) {
        self.state = self.state.wrapping_mul(MULTIPLIER);
        // Rounded to the nearest: that is part of the definition, which both peers share.
        let (state, index) = (self.state as f64, self.next.cast_signed() as f64);
        let gap = (index + 1.5) * (ROOT / (state + 1.0).sqrt() - 1.0);
        // Round up without `ceil`, which is a function call on older processors. Signed conversions
        // are one instruction each; they saturate, which ends the walk.
        #[expect(clippy::cast_possible_truncation, reason = "a cast from float saturates")]
        let whole = gap as i64;
        let is_cut = (whole as f64) < gap;
        self.next += whole.cast_unsigned() + u64::from(is_cut);
    }
}

impl Iterator for Indices {
    type Item = u64;

    #[inline]
    fn next(&mut self) -> Option<u64> {
        let index = self.next;
        if index >= INDEX_END {
            return None;
        }
        self.advance();
        Some(index)
    }
}
