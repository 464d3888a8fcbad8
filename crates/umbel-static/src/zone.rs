//! Group testing: up to d numbers below N as bits, without any false positive (Eppstein et al. 2007, doi:10.1137/050631847; as a
//! filter, Kiss et al. 2018, *Bloom Filter with a False Positive Free Zone*, INFOCOM).
//!
//! A filter has a part of p bits for each of the primes 2, 3, 5, …, and a number x sets bit x mod p of each part. With d
//! numbers s, another number x is taken for one of them only if every prime divides the product of all x − s. That
//! product is not 0 and below N^d, so primes whose own product is N^d or more never all divide it:
//!
//! ```text
//! N = 100, d = 2        2 · 3 · 5 · 7 · 11 · 13 = 30,030 ≥ 100²        2 + 3 + 5 + 7 + 11 + 13 = 41 bits
//! {7, 52} and 22        mod 2: 1, 0 and 0    mod 3: 1, 1 and 1    mod 5: 2, 2 and 2    mod 7: 0, 3 and 1, so absent
//! ```
//!
//! What it is good for is hardware that can do nothing but OR: 41 bits where a list of two numbers takes 14, and for N = 2^32
//! and d = 10 5,830 where a list takes 320. Items are numbers, not hashes: of hashes N is 2^128.

use thiserror::Error;

/// Largest universe: numbers have 32 bits, and products of their differences stay short.
pub const ZONE_UNIVERSE_MAX: u64 = 1 << 32;

/// Most numbers of a filter: it has 157,589 bits then, where a list takes 2,048.
pub const ZONE_COUNT_MAX: u32 = 64;

/// A set of up to d numbers below N, which merges by OR and never errs.
///
/// ```
/// use umbel_static::ZoneFilter;
///
/// let mut zone = ZoneFilter::new(100, 2)?;
/// assert_eq!(zone.bit_count(), 41);
/// zone.insert(7)?;
/// zone.insert(52)?;
/// let found: Vec<u64> = (0..100).filter(|number| zone.contains(*number)).collect();
/// assert_eq!(found, [7, 52]);
/// assert!(zone.insert(3).is_err());
/// # Ok::<(), umbel_static::ZoneFilterError>(())
/// ```
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ZoneFilter {
    universe: u64,
    count_max: u32,
    /// Numbers in it.
    count: u32,
    primes: Vec<u64>,
    /// The parts behind each other, 64 bits a word.
    words: Vec<u64>,
}

/// Why there is no such zone, or a number or another zone was not taken in. Nothing was changed.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Error)]
#[non_exhaustive]
pub enum ZoneFilterError {
    /// Name a universe and a count within the limits.
    #[error(
        "up to {count_max} numbers below {universe}, expected 1 to {ZONE_COUNT_MAX} below 2 to {ZONE_UNIVERSE_MAX}"
    )]
    Shape {
        /// Bound of the numbers, N.
        universe: u64,
        /// Most numbers, d.
        count_max: u32,
    },
    /// The number is not of the universe. A bug of the caller.
    #[error("number {number}, expected one below {universe}")]
    Number {
        /// The number.
        number: u64,
        /// Bound of the numbers.
        universe: u64,
    },
    /// More numbers than it answers for. Make a larger one.
    #[error("it holds {count} numbers and may hold {count_max}")]
    Full {
        /// Numbers that it holds.
        count: u32,
        /// Most numbers.
        count_max: u32,
    },
    /// The other zone was made for other numbers. Make it for the same.
    #[error("the other zone has up to {count_max} numbers below {universe}")]
    Mismatch {
        /// Bound of the other's numbers.
        universe: u64,
        /// Most numbers of the other.
        count_max: u32,
    },
}

impl ZoneFilter {
    /// An empty zone for up to `count_max` (d) numbers below `universe` (N).
    ///
    /// # Errors
    ///
    /// [`ZoneFilterError::Shape`].
    pub fn new(universe: u64, count_max: u32) -> Result<Self, ZoneFilterError> {
        let is_shape = (2..=ZONE_UNIVERSE_MAX).contains(&universe)
            && (1..=ZONE_COUNT_MAX).contains(&count_max);
        if !is_shape {
            return Err(ZoneFilterError::Shape { universe, count_max });
        }
        let bound = (0..count_max).fold(vec![1], |power, _| times(&power, universe));
        let (mut primes, mut product): (Vec<u64>, _) = (Vec::new(), vec![1]);
        for number in 2u64.. {
            if !is_less(&product, &bound) {
                break;
            }
            if !primes.iter().any(|prime| number.is_multiple_of(*prime)) {
                product = times(&product, number);
                primes.push(number);
            }
        }
        Ok(Self::with(universe, count_max, primes))
    }

    fn with(universe: u64, count_max: u32, primes: Vec<u64>) -> Self {
        let bits: u64 = primes.iter().sum();
        let words = (0..bits.div_ceil(64)).map(|_| 0).collect();
        Self { universe, count_max, count: 0, primes, words }
    }

    /// Bits of all parts: the sum of the primes.
    #[must_use]
    pub fn bit_count(&self) -> u64 {
        self.primes.iter().sum()
    }

    /// Numbers in it.
    #[must_use]
    pub const fn count(&self) -> u32 {
        self.count
    }

    /// The bits: bit i is bit i mod 64 of word ⌊i / 64⌋, the part of the prime 2 first.
    #[must_use]
    pub fn words(&self) -> &[u64] {
        &self.words
    }

    /// The bits of a number.
    fn positions(&self, number: u64) -> impl Iterator<Item = (usize, u64)> + '_ {
        let mut start = 0;
        self.primes.iter().map(move |prime| {
            let bit = start + number % prime;
            start += prime;
            ((bit / 64) as usize, 1 << (bit % 64))
        })
    }

    /// Whether a number was inserted: certain either way. One that is not of the universe never was.
    #[must_use]
    pub fn contains(&self, number: u64) -> bool {
        number < self.universe
            && self.positions(number).all(|(word, bit)| self.words[word] & bit != 0)
    }

    /// Inserts a number; says whether it is new.
    ///
    /// # Errors
    ///
    /// [`ZoneFilterError::Number`] or [`ZoneFilterError::Full`].
    pub fn insert(&mut self, number: u64) -> Result<bool, ZoneFilterError> {
        if number >= self.universe {
            return Err(ZoneFilterError::Number { number, universe: self.universe });
        }
        if self.contains(number) {
            return Ok(false);
        }
        if self.count >= self.count_max {
            return Err(ZoneFilterError::Full { count: self.count, count_max: self.count_max });
        }
        let positions: Vec<(usize, u64)> = self.positions(number).collect();
        positions.into_iter().for_each(|(word, bit)| self.words[word] |= bit);
        self.count += 1;
        Ok(true)
    }

    /// ORs another zone in. One whose bits are all here is here already; of another one all numbers count, as if none were
    /// here.
    ///
    /// # Errors
    ///
    /// [`ZoneFilterError::Mismatch`] or [`ZoneFilterError::Full`].
    pub fn merge(&mut self, other: &Self) -> Result<(), ZoneFilterError> {
        let Self { universe, count_max, .. } = *other;
        if (self.universe, self.count_max) != (universe, count_max) {
            return Err(ZoneFilterError::Mismatch { universe, count_max });
        }
        let is_here = self.words.iter().zip(&other.words).all(|(ours, theirs)| theirs & !ours == 0);
        if is_here {
            return Ok(());
        }
        let count = self.count + other.count;
        if count > count_max {
            return Err(ZoneFilterError::Full { count, count_max });
        }
        self.words.iter_mut().zip(&other.words).for_each(|(ours, theirs)| *ours |= theirs);
        self.count = count;
        Ok(())
    }
}

/// A number of any length, the lowest 64 bits first and without zeros above, times a factor above 0.
fn times(number: &[u64], factor: u64) -> Vec<u64> {
    let mut carry = 0u128;
    let mut product: Vec<u64> = Vec::with_capacity(number.len() + 1);
    for word in number {
        carry += u128::from(*word) * u128::from(factor);
        product.push(low(carry));
        carry >>= 64;
    }
    if carry > 0 {
        product.push(low(carry));
    }
    product
}

#[expect(clippy::cast_possible_truncation, reason = "the lower half is wanted")]
const fn low(number: u128) -> u64 {
    number as u64
}

/// Whether the first of two such numbers is less.
fn is_less(a: &[u64], b: &[u64]) -> bool {
    (a.len(), a.iter().rev().collect::<Vec<_>>()) < (b.len(), b.iter().rev().collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::collection::btree_set;
    use proptest::prelude::*;

    /// How many numbers below 100 all pairs take for one of theirs.
    fn errors(primes: &[u64]) -> usize {
        let mut errors = 0;
        for a in 0..100 {
            for b in 0..a {
                let mut zone = ZoneFilter::with(100, 2, primes.to_vec());
                for number in [a, b] {
                    let positions: Vec<_> = zone.positions(number).collect();
                    positions.into_iter().for_each(|(word, bit)| zone.words[word] |= bit);
                }
                errors += (0..100).filter(|x| zone.contains(*x)).count() - 2;
            }
        }
        errors
    }

    #[test]
    fn the_last_prime_is_needed() {
        assert_eq!(ZoneFilter::new(100, 2).unwrap().primes, [2, 3, 5, 7, 11, 13]);
        assert_eq!(errors(&[2, 3, 5, 7, 11, 13]), 0);
        assert_eq!(errors(&[2, 3, 5, 7, 11]), 430);
    }

    #[test]
    fn sizes_are_those_of_the_formula() {
        assert_eq!(ZoneFilter::new(1 << 32, 10).unwrap().bit_count(), 5830);
        assert_eq!(ZoneFilter::new(2, 1).unwrap().primes, [2]);
        assert!(ZoneFilter::new(ZONE_UNIVERSE_MAX, ZONE_COUNT_MAX).unwrap().bit_count() < 400_000);
        for (universe, count_max) in [(1, 1), (ZONE_UNIVERSE_MAX + 1, 1), (2, 0), (2, 65)] {
            assert_eq!(
                ZoneFilter::new(universe, count_max),
                Err(ZoneFilterError::Shape { universe, count_max })
            );
        }
    }

    #[test]
    fn numbers_of_any_length_are_compared() {
        assert_eq!(times(&[u64::MAX], 2), [u64::MAX - 1, 1]);
        assert!(is_less(&[5], &[0, 1]) && !is_less(&[0, 1], &[5]));
        assert!(is_less(&[9, 1], &[0, 2]) && !is_less(&[7], &[7]));
    }

    #[test]
    fn wrong_use_is_refused() {
        let mut zone = ZoneFilter::new(50, 1).unwrap();
        assert_eq!(zone.insert(50), Err(ZoneFilterError::Number { number: 50, universe: 50 }));
        assert!(!zone.contains(50));
        assert_eq!(zone.insert(3), Ok(true));
        assert_eq!(zone.insert(3), Ok(false));
        assert_eq!(zone.insert(4), Err(ZoneFilterError::Full { count: 1, count_max: 1 }));
        let other = ZoneFilter::new(50, 2).unwrap();
        let mismatch = ZoneFilterError::Mismatch { universe: 50, count_max: 2 };
        assert_eq!(zone.merge(&other), Err(mismatch));
    }

    proptest! {
        /// Up to d numbers without an error, however they came together.
        #[test]
        fn a_zone_is_its_set(
            universe in 2u64..400,
            numbers in btree_set(0u64..400, 0..5),
            more in btree_set(0u64..400, 0..5),
        ) {
            let zone_of = |numbers: &std::collections::BTreeSet<u64>| {
                let mut zone = ZoneFilter::new(universe, 4).unwrap();
                numbers.iter().filter(|x| **x < universe).for_each(|x| { zone.insert(*x).unwrap(); });
                zone
            };
            let (a, b) = (zone_of(&numbers), zone_of(&more));
            for x in 0..universe {
                prop_assert_eq!(a.contains(x), numbers.contains(&x));
            }
            let (mut ab, mut ba) = (a.clone(), b.clone());
            if ab.merge(&b).is_ok() {
                for x in 0..universe {
                    prop_assert_eq!(ab.contains(x), numbers.contains(&x) || more.contains(&x));
                }
                let once = ab.clone();
                ab.merge(&b).unwrap();
                prop_assert!(ab == once);
                prop_assert!(ba.merge(&a).is_err() || ba.words == ab.words);
            } else {
                prop_assert!(a.count() + b.count() > 4 && ab == a);
            }
        }
    }
}
