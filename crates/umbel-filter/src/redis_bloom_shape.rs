//! Shape of RedisBloom's chain of filters: the numbers that decide every link.

use std::fmt;

/// How much less often a link errs than the one before.
pub(crate) const TIGHTENING: f64 = 0.5;

/// What decides every link of RedisBloom's chain: capacity and rate of the first one, by how much capacities rise, and
/// whether there is a second one at all.
///
/// ```
/// use umbel_filter::RedisBloomShape;
///
/// // What `BF.ADD` makes: 100 items at 1 %, of which the first link has half.
/// let shape = RedisBloomShape::for_rate(100, 0.01)?;
/// let (first, second) = (shape.link(0)?, shape.link(1)?);
/// assert_eq!((first.bit_count(), first.probe_count()), (1_152, 8));
/// assert_eq!((second.capacity(), second.false_positive_rate()), (200, 0.0025));
/// # Ok::<(), umbel_filter::CreateError>(())
/// ```
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct RedisBloomShape {
    first_capacity: u64,
    first_rate: f64,
    expansion: u32,
    is_fixed: bool,
}

impl RedisBloomShape {
    /// Numbers whose first link was, or will be, checked.
    pub(crate) const fn unchecked(first_capacity: u64, first_rate: f64, expansion: u32) -> Self {
        Self { first_capacity, first_rate, expansion, is_fixed: false }
    }

    /// By how much capacities rise where nobody says.
    pub const EXPANSION: u32 = 2;

    /// The same first link, and no other one: `NONSCALING`.
    ///
    /// ```
    /// use umbel_filter::RedisBloomShape;
    ///
    /// let shape = RedisBloomShape::new(100, 0.01, 2)?.fixed();
    /// assert!(shape.is_fixed());
    /// assert_eq!(shape.false_positive_rate(), 0.01);
    /// # Ok::<(), umbel_filter::CreateError>(())
    /// ```
    #[must_use]
    pub const fn fixed(self) -> Self {
        Self { is_fixed: true, ..self }
    }

    /// Number of items that the first link is made for.
    #[must_use]
    pub const fn first_capacity(self) -> u64 {
        self.first_capacity
    }

    /// Rate of the first link when it is full.
    #[must_use]
    pub const fn first_rate(self) -> f64 {
        self.first_rate
    }

    /// By how much the capacity of a link exceeds that of the one before; of a fixed chain a number without meaning.
    #[must_use]
    pub const fn expansion(self) -> u32 {
        self.expansion
    }

    /// Whether the first link is the only one.
    #[must_use]
    pub const fn is_fixed(self) -> bool {
        self.is_fixed
    }

    /// The bound that the rate of all links together keeps, below 1.
    #[must_use]
    pub fn false_positive_rate(self) -> f64 {
        let sum = if self.is_fixed { self.first_rate } else { self.first_rate / TIGHTENING };
        if sum < 1.0 { sum } else { self.first_rate }
    }
}

impl fmt::Display for RedisBloomShape {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "redisbloom from {} items at rate {}", self.first_capacity, self.first_rate)?;
        if self.is_fixed {
            f.write_str(" and no more")
        } else {
            write!(f, ", {} times as many each", self.expansion)
        }
    }
}
