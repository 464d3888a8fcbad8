//! What a file answers, and with how many bits.

use std::fmt;

use umbel_codec::FrameKey;

use crate::error::StaticShapeError;
use crate::limits::{
    CELL_BITS_MAX, CHUNK_BITS_MAX, CHUNK_KEYS_EXPECTED_MAX, FORM_BYTES_MAX, KEY_COUNT_MAX,
};

/// What a file answers.
///
/// ```
/// use umbel_static::Role;
///
/// assert_eq!(Role::from_id(2), Some(Role::Map));
/// assert_eq!(Role::from_id(4), None); // reserved
/// assert_eq!(Role::Exact.to_string(), "exact set");
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[repr(u8)]
pub enum Role {
    /// Whether an item is among the keys: a key always is, another item with the false-positive rate.
    Filter = 1,
    /// The value of a key; of another item none, but with the false-positive rate some value.
    Map = 2,
    /// Whether an item of a closed universe is a member: without any error.
    Exact = 3,
    // 4 is ribbon's, doi:10.4230/LIPIcs.SEA.2022.4, which no release builds so far.
}

impl Role {
    /// The role with this stored number, or None if no release builds it.
    #[must_use]
    pub const fn from_id(id: u8) -> Option<Self> {
        match id {
            1 => Some(Self::Filter),
            2 => Some(Self::Map),
            3 => Some(Self::Exact),
            _ => None,
        }
    }

    /// The number stored for it, never reused.
    #[must_use]
    pub const fn id(self) -> u8 {
        self as u8
    }
}

impl fmt::Display for Role {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Filter => "filter",
            Self::Map => "map",
            Self::Exact => "exact set",
        })
    }
}

/// What a file is: its role, the bits of its cells, how items are hashed, and what of a record is a key.
///
/// ```
/// use umbel_codec::FrameKey;
/// use umbel_filter::HashFunction;
/// use umbel_static::StaticShape;
///
/// let key = FrameKey { function: HashFunction::Xxh3Seeded, key_id: 0 };
/// let filter = StaticShape::filter(8, key)?;
/// assert_eq!(filter.false_positive_rate(), 1.0 / 256.0);
/// // 2^6 · 2 · 10^6 is the first to reach 10^8: six bits leave 1,562,500 of the others to be corrected.
/// let exact = StaticShape::exact(1_000_000, 100_000_000, key)?;
/// assert_eq!((exact.check_bits(), exact.false_positive_rate()), (6, 0.0));
/// # Ok::<(), umbel_static::StaticShapeError>(())
/// ```
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct StaticShape {
    role: Role,
    value_bits: u8,
    check_bits: u8,
    key: FrameKey,
    form: String,
}

impl StaticShape {
    /// A filter whose fingerprints have so many bits, 1 to 56: the rate is 2^-`check_bits`.
    ///
    /// # Errors
    ///
    /// [`StaticShapeError::CellBits`].
    pub fn filter(check_bits: u8, key: FrameKey) -> Result<Self, StaticShapeError> {
        Self::new(Role::Filter, 0, check_bits, key)
    }

    /// A map to values of 1 to 56 bits, with so many check bits, 0 and more, that both together are at most 56: an item
    /// that is no key has a value with probability 2^-`check_bits`.
    ///
    /// # Errors
    ///
    /// [`StaticShapeError::CellBits`].
    pub fn map(value_bits: u8, check_bits: u8, key: FrameKey) -> Result<Self, StaticShapeError> {
        Self::new(Role::Map, value_bits, check_bits, key)
    }

    /// An exact set of so many members among so many others, with the bits that make it smallest.
    ///
    /// A filter of w bits leaves S / 2^w of S others to be corrected, one bit each and one a member; a bit more costs
    /// one for each of R members and spares half of those. So w is the least for which S ≤ R · 2^(w + 1): the integer
    /// next to log2(S · ln 2 / R). Reference: Larisch et al. 2017, doi:10.1109/SP.2017.17, whose filters are many.
    ///
    /// # Errors
    ///
    /// [`StaticShapeError::KeyCount`].
    pub fn exact(
        member_count: u64,
        other_count: u64,
        key: FrameKey,
    ) -> Result<Self, StaticShapeError> {
        let members = u128::from(member_count.max(1));
        let fits = |bits: &u8| u128::from(other_count) <= members << (bits + 1);
        let check_bits = (0..CELL_BITS_MAX).find(fits).unwrap_or(CELL_BITS_MAX);
        let shape = Self::new(Role::Exact, 1, check_bits, key)?;
        shape.chunk_bits(member_count, other_count)?;
        Ok(shape)
    }

    /// The same with a text that says what of a record is a key, for whoever asks. It is stored, and means nothing here.
    ///
    /// # Errors
    ///
    /// [`StaticShapeError::Form`].
    pub fn with_form(self, form: impl Into<String>) -> Result<Self, StaticShapeError> {
        let form = form.into();
        match form.len() {
            0..=FORM_BYTES_MAX => Ok(Self { form, ..self }),
            form_bytes => Err(StaticShapeError::Form { form_bytes }),
        }
    }

    /// A shape of any role.
    pub(crate) fn new(
        role: Role,
        value_bits: u8,
        check_bits: u8,
        key: FrameKey,
    ) -> Result<Self, StaticShapeError> {
        let is_possible = match role {
            Role::Filter => value_bits == 0 && (1..=CELL_BITS_MAX).contains(&check_bits),
            Role::Map => {
                let bits = value_bits.checked_add(check_bits);
                value_bits >= 1 && bits.is_some_and(|bits| bits <= CELL_BITS_MAX)
            }
            Role::Exact => value_bits == 1 && check_bits <= CELL_BITS_MAX,
        };
        if is_possible {
            Ok(Self { role, value_bits, check_bits, key, form: String::new() })
        } else {
            Err(StaticShapeError::CellBits { value_bits, check_bits })
        }
    }

    /// What the file answers.
    #[must_use]
    pub const fn role(&self) -> Role {
        self.role
    }

    /// Bits of a value; of a filter none.
    #[must_use]
    pub const fn value_bits(&self) -> u8 {
        self.value_bits
    }

    /// Bits that are compared with those of the item that is asked for.
    #[must_use]
    pub const fn check_bits(&self) -> u8 {
        self.check_bits
    }

    /// How items are hashed.
    #[must_use]
    pub const fn key(&self) -> FrameKey {
        self.key
    }

    /// What of a record is a key, in the words of whoever built the file.
    #[must_use]
    pub fn form(&self) -> &str {
        &self.form
    }

    /// Probability that an item that is no key is taken for one: 2^-`check_bits`; of an exact set 0, for items of its
    /// universe.
    #[must_use]
    pub fn false_positive_rate(&self) -> f64 {
        match self.role {
            Role::Exact => 0.0,
            Role::Filter | Role::Map => 1.0 / (1u64 << self.check_bits) as f64,
        }
    }

    /// How many bits of a hash choose its chunk, for so many different keys and others.
    ///
    /// # Errors
    ///
    /// [`StaticShapeError::KeyCount`] if they need more chunks than there can be.
    pub fn chunk_bits(&self, key_count: u64, other_count: u64) -> Result<u8, StaticShapeError> {
        let corrected = match self.role {
            Role::Exact => other_count >> self.check_bits,
            Role::Filter | Role::Map => 0,
        };
        let key_count = key_count.saturating_add(corrected);
        let fits = |bits: &u8| key_count <= CHUNK_KEYS_EXPECTED_MAX << bits;
        (0..=CHUNK_BITS_MAX).find(fits).ok_or(StaticShapeError::KeyCount { key_count })
    }
}

/// The fewest bits of a fingerprint that keep a filter at or below a rate, 1 to 56.
///
/// ```
/// use umbel_static::check_bits_for;
///
/// assert_eq!(check_bits_for(0.01), 7); // 1 / 128 = 0.78 %
/// assert_eq!(check_bits_for(0.001), 10);
/// assert_eq!(check_bits_for(0.0), 56);
/// ```
#[must_use]
pub fn check_bits_for(rate: f64) -> u8 {
    let mut bits = 1;
    let mut reached = 0.5;
    while reached > rate && bits < CELL_BITS_MAX {
        // Halving is exact, so the answer is the same on every platform.
        reached /= 2.0;
        bits += 1;
    }
    bits
}

// Keys of a file are counted in what its chunks are expected to hold.
const _: () = assert!(KEY_COUNT_MAX == CHUNK_KEYS_EXPECTED_MAX << CHUNK_BITS_MAX);

#[cfg(test)]
mod tests {
    use super::*;
    use umbel_filter::HashFunction;

    const KEY: FrameKey = FrameKey { function: HashFunction::Xxh3Seeded, key_id: 0 };

    #[test]
    fn the_bits_of_exact_sets_are_those_of_the_formula() {
        for (members, others) in [(1_000_000, 100_000_000), (10, 1 << 40), (1000, 12_345), (7, 90)]
        {
            let ratio = others as f64 * std::f64::consts::LN_2 / members as f64;
            let found = StaticShape::exact(members, others, KEY).unwrap().check_bits();
            let cost = |bits: u8| {
                members as f64 * f64::from(bits) + others as f64 / f64::from(bits).exp2()
            };
            assert!((f64::from(found) - ratio.log2()).abs() < 1.0);
            assert!(cost(found) <= cost(found + 1) && cost(found) <= cost(found - 1));
        }
        let bits = |members, others| StaticShape::exact(members, others, KEY).unwrap().check_bits();
        assert_eq!([bits(5, 0), bits(5, 10), bits(5, 11), bits(0, 0)], [0, 0, 1, 0]);
    }

    #[test]
    fn impossible_bits_are_refused() {
        assert!(StaticShape::filter(0, KEY).is_err() && StaticShape::filter(57, KEY).is_err());
        assert!(StaticShape::map(0, 8, KEY).is_err() && StaticShape::map(50, 7, KEY).is_err());
        assert!(StaticShape::map(255, 255, KEY).is_err());
        assert!(StaticShape::map(56, 0, KEY).is_ok() && StaticShape::filter(56, KEY).is_ok());
        let error = StaticShape::map(50, 7, KEY).unwrap_err().to_string();
        assert_eq!(error, "50 value bits and 7 check bits, expected 1 to 56 in all");
        let form = "x".repeat(FORM_BYTES_MAX + 1);
        assert!(StaticShape::filter(8, KEY).unwrap().with_form(form).is_err());
    }

    #[test]
    fn chunks_hold_what_is_expected_of_them() {
        let filter = StaticShape::filter(8, KEY).unwrap();
        let bits = |keys| filter.chunk_bits(keys, 0);
        assert_eq!([bits(0), bits(1 << 20), bits((1 << 20) + 1)], [Ok(0), Ok(0), Ok(1)]);
        assert_eq!(bits(KEY_COUNT_MAX), Ok(12));
        let key_count = KEY_COUNT_MAX + 1;
        assert_eq!(bits(key_count), Err(StaticShapeError::KeyCount { key_count }));
    }
}
