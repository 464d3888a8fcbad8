//! Shape of a scalable filter: what decides the size and the rate of every level.

use std::fmt;

use crate::range::HashRange;
use crate::sizing::{SizingError, scalable_level};

/// What decides every level of a scalable filter: its hash range, the number of items of the first
/// level, and the false-positive rate of all levels together.
///
/// ```
/// use umbel_filter::{HashRange, ScalableShape};
///
/// let shape = ScalableShape::new(HashRange::WHOLE, 1_000, 0.01)?;
/// assert_eq!((shape.first_capacity(), shape.false_positive_rate()), (1_000, 0.01));
/// # Ok::<(), umbel_filter::sizing::SizingError>(())
/// ```
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct ScalableShape {
    range: HashRange,
    first_capacity: u64,
    false_positive_rate: f64,
}

impl ScalableShape {
    /// Checks that a first level of such numbers exists.
    ///
    /// # Errors
    /// If the capacity is 0, or the first level's share of the rate is none of a blocked filter.
    pub fn new(
        range: HashRange,
        first_capacity: u64,
        false_positive_rate: f64,
    ) -> Result<Self, SizingError> {
        scalable_level(first_capacity, false_positive_rate, 0)?;
        Ok(Self { range, first_capacity, false_positive_rate })
    }

    /// The hash range whose items the filter holds.
    #[must_use]
    pub const fn range(self) -> HashRange {
        self.range
    }

    /// Number of items that the first level is made for.
    #[must_use]
    pub const fn first_capacity(self) -> u64 {
        self.first_capacity
    }

    /// The bound that the rate of all levels together keeps.
    #[must_use]
    pub const fn false_positive_rate(self) -> f64 {
        self.false_positive_rate
    }
}

impl fmt::Display for ScalableShape {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (start, last) = (self.range.start(), self.range.last());
        write!(
            f,
            "scalable from {} items at rate {} over hashes {start} to {last}",
            self.first_capacity, self.false_positive_rate
        )
    }
}
