//! The digest of a set: its number of items, and the sum of their 128-bit hashes.

use super::keys::KeyedHash;

/// Count and sum of keyed hashes modulo 2^128. The digests of disjoint sets add up, in any order.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub(crate) struct SetDigest {
    pub(crate) count: u64,
    pub(crate) sum: u128,
}

impl SetDigest {
    pub(crate) fn add(&mut self, hash: KeyedHash) {
        *self = self.and(Self { count: 1, sum: u128::from(hash.lo) | u128::from(hash.hi) << 64 });
    }

    /// The digest of both sets together. A lying peer's count may overflow; then no digest matches.
    #[must_use]
    pub(crate) const fn and(self, other: Self) -> Self {
        Self { count: self.count.wrapping_add(other.count), sum: self.sum.wrapping_add(other.sum) }
    }
}

#[cfg(test)]
mod tests {
    use super::super::item::ItemRef;
    use super::super::keys::{KeySource, SessionKey};
    use super::super::options::SymbolKind;
    use super::*;

    #[test]
    fn golden_digest() {
        let source = KeySource {
            seed: [0; 16],
            dataset_id: 0x0102_0304_0506_0708,
            nonce_initiator: 0x1111_1111_1111_1111,
            nonce_responder: 0x2222_2222_2222_2222,
        };
        let key = SessionKey::derive(&source, 1, SymbolKind::Hashed);
        let [mut alpha, mut beta] = [SetDigest::default(); 2];
        alpha.add(key.hash(ItemRef::Bytes(b"alpha")));
        beta.add(key.hash(ItemRef::Bytes(b"beta")));
        let both = SetDigest { count: 2, sum: 0x009c_83de_074f_4983_d816_880b_f737_0d49 };
        assert_eq!(alpha.and(beta), both);
        assert_eq!(beta.and(alpha), both);
    }
}
