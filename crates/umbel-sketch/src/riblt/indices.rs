//! The walk of a symbol through the indices of the coded symbols that hold it.
//!
//! From index i the next one is beyond i + g with probability Π (1 − 1/(1 + j/2)) over what lies
//! between, nearly ((i + 1.5) / (i + g + 1.5))². So g = (i + 1.5)·(1/√u − 1) for u uniform in (0, 1],
//! which is (state + 1) / 2^64 for the states of a multiplicative generator.
//!
//! Square root and division are exact to the last bit by IEEE 754 and nothing is fused, so the walk
//! is the same on every machine.

/// The generator's multiplier.
const MULTIPLIER: u64 = 0xda94_2042_e4dd_58b5;

/// √2^64.
const ROOT: f64 = 4_294_967_296.0;

/// Indices end below: beyond, gaps do not fit.
pub(super) const INDEX_END: u64 = 1 << 63;

/// Indices of the coded symbols that hold a symbol, ascending, from its keyed hash.
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

    /// The index that comes next; from 2^63 on there is none.
    #[inline]
    #[must_use]
    pub const fn peek(self) -> u64 {
        self.next
    }

    /// Steps over the next index.
    #[inline(always)]
    pub(super) fn advance(&mut self) {
        self.state = self.state.wrapping_mul(MULTIPLIER);
        #[expect(clippy::cast_precision_loss, reason = "as defined, rounded to the nearest")]
        let (state, index) = (self.state as f64, self.next.cast_signed() as f64);
        let gap = (index + 1.5) * (ROOT / (state + 1.0).sqrt() - 1.0);
        // Rounded up, without the call of a function that `ceil` is on older processors. Signed
        // conversions are one instruction each; they saturate, which takes the walk to its end.
        #[expect(clippy::cast_possible_truncation, reason = "a cast from float saturates")]
        let whole = gap as i64;
        #[expect(clippy::cast_precision_loss, reason = "a float's whole part is a float")]
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
