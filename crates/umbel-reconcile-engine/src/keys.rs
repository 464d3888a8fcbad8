//! Keys of a session, keyed hashes of items, and symbols.
//!
//! Everything is derived from one session key K by SipHash-2-4 (Aumasson & Bernstein 2012,
//! doi:10.1007/978-3-642-34931-7_28). K depends on both sides' nonces, so items cannot be chosen to
//! collide. A new attempt has a new K, so items that collided do so no longer.

use std::hash::Hasher;

use siphasher::sip::SipHasher24;
use siphasher::sip128::{Hasher128, SipHasher24 as Sip128};

use super::item::{Item, ItemRef};
use super::options::SymbolKind;

/// Bits of a keyed item's symbol that come from its key; the lower ones come from the value.
pub(crate) const KEY_HALF_BITS: u32 = 40;

/// What K is derived from, besides the attempt.
#[derive(Clone, Copy, Debug)]
pub(crate) struct KeySource {
    /// The domain of a session, the salt of a sketch, or the secret of a fingerprint.
    pub(crate) seed: [u8; 16],
    pub(crate) dataset_id: u64,
    pub(crate) nonce_initiator: u64,
    pub(crate) nonce_responder: u64,
}

/// An item's hashes under a session's key: 128 bits for the digest and the filters, and the symbol.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct KeyedHash {
    pub(crate) lo: u64,
    pub(crate) hi: u64,
    /// The 64-bit symbol; a symbol of h bits is its top h bits.
    pub(crate) symbol: u64,
}

/// The keys of one attempt.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct SessionKey {
    kind: SymbolKind,
    item: [u8; 16],
    check: [u8; 16],
    perm: [u8; 16],
}

fn sip128(key: &[u8; 16], parts: &[&[u8]]) -> (u64, u64) {
    let mut hasher = Sip128::new_with_key(key);
    for part in parts {
        hasher.write(part);
    }
    let hash = hasher.finish128();
    (hash.h1, hash.h2)
}

fn sip64(key: &[u8; 16], bytes: &[u8]) -> u64 {
    SipHasher24::new_with_key(key).hash(bytes)
}

fn key_of(key: &[u8; 16], parts: &[&[u8]]) -> [u8; 16] {
    let (lo, hi) = sip128(key, parts);
    (u128::from(lo) | u128::from(hi) << 64).to_le_bytes()
}

impl SessionKey {
    /// Derives K(attempt). Attempt 0 precedes the responder's first frame and leaves its nonce out.
    pub(crate) fn derive(source: &KeySource, attempt: u8, kind: SymbolKind) -> Self {
        let k = Self::session_key(source, attempt);
        let [item, check, perm] =
            ["item", "check", "perm"].map(|name| key_of(&k, &[name.as_bytes()]));
        Self { kind, item, check, perm }
    }

    fn session_key(source: &KeySource, attempt: u8) -> [u8; 16] {
        let nonce_responder = if attempt == 0 { 0 } else { source.nonce_responder };
        let parts: [&[u8]; 5] = [
            b"umbel/reconcile/1",
            &[attempt],
            &source.dataset_id.to_le_bytes(),
            &source.nonce_initiator.to_le_bytes(),
            &nonce_responder.to_le_bytes(),
        ];
        key_of(&source.seed, &parts)
    }

    pub(crate) const fn kind(&self) -> SymbolKind {
        self.kind
    }

    /// The hashes of an item under this key.
    pub(crate) fn hash(&self, item: ItemRef<'_>) -> KeyedHash {
        match item {
            ItemRef::Bytes(bytes) => self.hash_bytes(&[bytes]),
            ItemRef::Id(id) => {
                let (lo, hi) = sip128(&self.item, &[&id.to_le_bytes()]);
                KeyedHash { lo, hi, symbol: self.permute(id) }
            }
            ItemRef::Keyed { key, value } => {
                let (lo, hi) = sip128(&self.item, &[&item.length_prefix(), key, value]);
                let (key_hash, value_hash) = (sip64(&self.item, key), sip64(&self.check, value));
                let key_half = key_hash >> (64 - KEY_HALF_BITS) << (64 - KEY_HALF_BITS);
                KeyedHash { lo, hi, symbol: key_half | value_hash >> KEY_HALF_BITS }
            }
        }
    }

    fn hash_bytes(&self, parts: &[&[u8]]) -> KeyedHash {
        let (lo, hi) = sip128(&self.item, parts);
        KeyedHash { lo, hi, symbol: lo }
    }

    /// An id's symbol: four Feistel rounds, a bijection of 64-bit numbers.
    pub(crate) fn permute(&self, id: u64) -> u64 {
        let (mut left, mut right) = (id >> 32, id & 0xffff_ffff);
        for round in 0..4 {
            (left, right) = (right, left ^ self.round(right, round));
        }
        left << 32 | right
    }

    /// The id of a symbol.
    pub(crate) fn unpermute(&self, symbol: u64) -> u64 {
        let (mut left, mut right) = (symbol >> 32, symbol & 0xffff_ffff);
        for round in (0..4).rev() {
            (left, right) = (right ^ self.round(left, round), left);
        }
        left << 32 | right
    }

    fn round(&self, half: u64, round: u64) -> u64 {
        sip64(&self.perm, &(half | round << 32).to_le_bytes()) & 0xffff_ffff
    }

    /// The item of an id's symbol.
    pub(crate) fn item_of(&self, symbol: u64) -> Item {
        Item::Id(self.unpermute(symbol))
    }

    /// A symbol's check, which also seeds its mapping to coded symbols.
    pub(crate) fn check(&self, symbol: u64) -> u64 {
        sip64(&self.check, &symbol.to_le_bytes())
    }

    /// A value that only sides with the same key know. Under different keys, where all items seem to
    /// differ, both sides could still compute the same sum of hashes; with this value added they do not.
    pub(crate) fn mark(&self) -> u128 {
        let (lo, hi) = sip128(&self.check, &[b"done"]);
        u128::from(lo) | u128::from(hi) << 64
    }

    /// Four bytes of `mark`, to detect different domains before anything is exchanged.
    pub(crate) fn short_mark(&self) -> u32 {
        u32::try_from(self.mark() & 0xffff_ffff).expect("32 bits")
    }

    /// Masks or unmasks the syndromes of the Hello. Otherwise two small sets under different keys would
    /// decode, because their symbols have nothing in common, and items would be sent to another domain.
    pub(crate) fn mask_hello(&self, syndromes: &mut [u8]) {
        for (number, chunk) in (0u64..).zip(syndromes.chunks_mut(8)) {
            let [a, b, c, d, e, f, g, h] = number.to_le_bytes();
            let mask = sip64(&self.check, &[a, b, c, d, e, f, g, h, b'm', b'a', b's', b'k']);
            chunk.iter_mut().zip(mask.to_le_bytes()).for_each(|(byte, mask)| *byte ^= mask);
        }
    }

    /// A second hash of a symbol besides its check: if the sums of these are equal, the sets of symbols
    /// are.
    pub(crate) fn second_check(&self, symbol: u64) -> u64 {
        let [a, b, c, d, e, f, g, h] = symbol.to_le_bytes();
        sip64(&self.check, &[a, b, c, d, e, f, g, h, b's', b'u', b'm'])
    }

    /// The seed of root finding, which the peer cannot control.
    pub(crate) fn decode_seed(&self) -> u64 {
        sip64(&self.check, b"decode")
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use umbel_bits::Hex;

    use super::*;

    const SOURCE: KeySource = KeySource {
        seed: [0; 16],
        dataset_id: 0x0102_0304_0506_0708,
        nonce_initiator: 0x1111_1111_1111_1111,
        nonce_responder: 0x2222_2222_2222_2222,
    };

    #[test]
    fn golden_keys() {
        assert_eq!(
            Hex(&SessionKey::session_key(&SOURCE, 0)).to_string(),
            "d64491b1c6d05e559966df8542512c51"
        );
        assert_eq!(
            Hex(&SessionKey::session_key(&SOURCE, 1)).to_string(),
            "13c4d0422f129377efbfed8d028f1c99"
        );
        let key = SessionKey::derive(&SOURCE, 1, SymbolKind::Hashed);
        assert_eq!(Hex(&key.item).to_string(), "3efd7ebe372045c6f222d4456f86b9bf");
        assert_eq!(Hex(&key.check).to_string(), "eefbc0415efcd071c23d7676554f1c40");
        assert_eq!(Hex(&key.perm).to_string(), "4b1f267331a5c7271f5ce5dcca09902a");
    }

    #[test]
    fn golden_hashes_and_digest() {
        let key = SessionKey::derive(&SOURCE, 1, SymbolKind::Hashed);
        let alpha = key.hash(ItemRef::Bytes(b"alpha"));
        let beta = key.hash(ItemRef::Bytes(b"beta"));
        assert_eq!((alpha.lo, alpha.hi), (0x3113_0ed1_f80c_ab91, 0x9ad5_b719_fc02_01e6));
        assert_eq!((beta.lo, beta.hi), (0xa703_7939_ff2a_61b8, 0x65c6_ccc4_0b4d_479d));
        assert_eq!(alpha.symbol >> 24, 0x31_130e_d1f8);
    }

    #[test]
    fn golden_permutation() {
        let key = SessionKey::derive(&SOURCE, 1, SymbolKind::Id64);
        let expected = [
            (0, 0x3b67_08b9_c1a7_bf40),
            (1, 0xaa89_242b_7552_c5de),
            (2, 0x6dfa_c9aa_72ed_eafa),
            (3, 0x21fa_e205_62d3_2667),
            (u64::MAX, 0x80a4_6d5e_af16_9fd0),
        ];
        for (id, symbol) in expected {
            assert_eq!(key.permute(id), symbol);
        }
        // "mapping of id 1": the seed is the check of its symbol.
        assert_eq!(key.check(key.permute(1)), 0x038d_497e_9127_7cb6);
    }

    proptest! {
        #[test]
        fn the_permutation_has_an_inverse(id: u64, attempt: u8) {
            let key = SessionKey::derive(&SOURCE, attempt, SymbolKind::Id64);
            prop_assert_eq!(key.unpermute(key.permute(id)), id);
            prop_assert_eq!(key.item_of(key.permute(id)), Item::Id(id));
        }

        /// A keyed item's digest is over the bytes that travel.
        #[test]
        fn keyed_items_are_hashed_as_they_travel(key_bytes: Vec<u8>, value: Vec<u8>) {
            let key = SessionKey::derive(&SOURCE, 1, SymbolKind::Keyed);
            let item = ItemRef::Keyed { key: &key_bytes, value: &value };
            let (hash, whole) = (key.hash(item), key.hash_bytes(&[&item.to_bytes()]));
            prop_assert_eq!((hash.lo, hash.hi), (whole.lo, whole.hi));
        }
    }
}
