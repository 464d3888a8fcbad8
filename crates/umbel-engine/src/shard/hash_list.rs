//! Hashes of a batch, as logs and messages carry them.

use bytes::Bytes;
use serde::{Deserialize, Serialize};
use thiserror::Error;
use umbel_filter::{ItemHash, ItemHasher};

/// Bytes of a hash.
pub(crate) const HASH_BYTES: usize = 16;

/// A list of hashes, 16 bytes each: `hi`, then `lo`, little-endian.
///
/// ```
/// use umbel_engine::shard::HashList;
/// use umbel_filter::ItemHash;
///
/// let list = HashList::from_hashes(&[ItemHash::new(1, 2), ItemHash::new(3, 4)]);
/// assert_eq!(list.len(), 2);
/// assert_eq!(list.to_vec()[1], ItemHash::new(3, 4));
/// ```
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct HashList {
    bytes: Bytes,
}

/// The bytes are not a list of hashes. Refuse the message that contains them.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Error)]
#[error("{byte_count} bytes of hashes, expected a multiple of 16")]
pub struct HashListError {
    /// Number of bytes received.
    pub byte_count: usize,
}

impl HashList {
    /// A list of these hashes.
    #[must_use]
    pub fn from_hashes(hashes: &[ItemHash]) -> Self {
        let mut bytes = Vec::with_capacity(hashes.len() * HASH_BYTES);
        for &hash in hashes {
            bytes.extend_from_slice(&to_bytes(hash));
        }
        Self { bytes: bytes.into() }
    }

    /// The list in these bytes, without copying them.
    ///
    /// # Errors
    /// If the number of bytes is not a multiple of 16.
    pub fn from_bytes(bytes: Bytes) -> Result<Self, HashListError> {
        let list = Self { bytes };
        list.check()?;
        Ok(list)
    }

    /// A value that deserialisation may produce from arbitrary bytes.
    #[cfg(test)]
    pub(super) const fn unchecked(bytes: Bytes) -> Self {
        Self { bytes }
    }

    /// The concatenation of several lists.
    ///
    /// ```
    /// use umbel_engine::shard::HashList;
    /// use umbel_filter::ItemHash;
    ///
    /// let one = HashList::from_hashes(&[ItemHash::new(1, 2)]);
    /// assert_eq!(HashList::joined([&one, &one]).len(), 2);
    /// ```
    #[must_use]
    pub fn joined<'l>(lists: impl IntoIterator<Item = &'l Self>) -> Self {
        let mut bytes = Vec::new();
        for list in lists {
            bytes.extend_from_slice(&list.bytes);
        }
        Self { bytes: bytes.into() }
    }

    /// Validates a deserialised value.
    ///
    /// # Errors
    /// As [`from_bytes`](Self::from_bytes).
    pub fn check(&self) -> Result<(), HashListError> {
        let byte_count = self.bytes.len();
        if byte_count.is_multiple_of(HASH_BYTES) {
            Ok(())
        } else {
            Err(HashListError { byte_count })
        }
    }

    /// Whether the number of bytes is a multiple of 16. Always true for values that were not
    /// deserialised.
    #[must_use]
    pub fn is_valid(&self) -> bool {
        self.check().is_ok()
    }

    /// Number of hashes.
    #[must_use]
    pub fn len(&self) -> usize {
        self.bytes.len() / HASH_BYTES
    }

    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The hashes in order; bytes after the last whole hash are ignored.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = ItemHash> + Clone + '_ {
        self.bytes.as_chunks::<HASH_BYTES>().0.iter().map(from_bytes)
    }

    /// The hashes in order.
    #[must_use]
    pub fn to_vec(&self) -> Vec<ItemHash> {
        self.iter().collect()
    }

    /// A digest of the hashes and their order, the same on every platform and in every release.
    /// Different lists collide with probability 2^-64.
    ///
    /// ```
    /// use umbel_engine::shard::HashList;
    ///
    /// // The high half of XXH3-128 of nothing.
    /// assert_eq!(HashList::default().digest(), 0x99aa_06d3_0147_98d8);
    /// ```
    #[must_use]
    pub fn digest(&self) -> u64 {
        ItemHasher::Xxh3 { seed: 0 }.hash(&self.bytes).hi()
    }
}

/// A hash in the byte format of a list.
#[inline]
pub(crate) fn to_bytes(hash: ItemHash) -> [u8; HASH_BYTES] {
    (u128::from(hash.lo()) << 64 | u128::from(hash.hi())).to_le_bytes()
}

#[inline]
fn from_bytes(bytes: &[u8; HASH_BYTES]) -> ItemHash {
    let both = u128::from_le_bytes(*bytes);
    #[expect(clippy::cast_possible_truncation, reason = "the low half is wanted")]
    let hi = both as u64;
    ItemHash::new(hi, (both >> 64) as u64)
}

#[cfg(test)]
mod tests {
    use proptest::collection::vec;
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn half_a_hash_is_refused() {
        let bytes = Bytes::from(vec![0; 24]);
        assert_eq!(HashList::from_bytes(bytes.clone()), Err(HashListError { byte_count: 24 }));
        let hostile = HashList { bytes };
        assert!(!hostile.is_valid());
        assert_eq!((hostile.len(), hostile.iter().len()), (1, 1));
    }

    proptest! {
        #[test]
        fn lists_are_their_hashes(hashes in vec(any::<(u64, u64)>(), 0..50)) {
            let hashes: Vec<ItemHash> =
                hashes.into_iter().map(|(hi, lo)| ItemHash::new(hi, lo)).collect();
            let list = HashList::from_hashes(&hashes);
            prop_assert_eq!(list.to_vec(), hashes.clone());
            let bytes: Vec<u8> = hashes
                .iter()
                .flat_map(|hash| [hash.hi().to_le_bytes(), hash.lo().to_le_bytes()].concat())
                .collect();
            prop_assert_eq!(&list.bytes, &bytes);
            let again = HashList::from_bytes(bytes.into()).unwrap();
            prop_assert_eq!(again.digest(), list.digest());
        }
    }
}
