//! Shape of a scalable filter: what decides the size and the rate of every level.

use std::fmt;

use crate::range::HashRange;
use crate::sizing::{SizingError, scalable_level};

/// What decides every level of a scalable filter: its hash range, the number of items of the first
/// level over the whole hash space, and the false-positive rate of all levels together.
///
/// ```
/// use umbel_filter::{HashRange, ScalableShape};
///
/// let shape = ScalableShape::new(HashRange::WHOLE, 1_000, 0.01)?;
/// assert_eq!((shape.first_capacity(), shape.false_positive_rate()), (1_000, 0.01));
/// // A quarter of it is made for a quarter of the items, in a quarter of the same blocks.
/// let quarter = ScalableShape::new(HashRange::new(0, 1 << 62)?, 1_000, 0.01)?;
/// let ((capacity, blocks), (_, all)) = (quarter.level(0)?, shape.level(0)?);
/// assert_eq!((capacity, blocks.map().block_count()), (250, all.map().block_count()));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct ScalableShape {
    range: HashRange,
    first_capacity: u64,
    false_positive_rate: f64,
}

impl ScalableShape {
    /// Checks that a first level of such numbers exists: `first_capacity` items over the whole hash space,
    /// of which the range has its [share](HashRange::share_of).
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

    /// Number of items that the first level is made for over the whole hash space.
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
            "scalable from {} items of the space at rate {} over hashes {start} to {last}",
            self.first_capacity, self.false_positive_rate
        )
    }
}
