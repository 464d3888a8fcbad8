//! Values of Rust types as items: what the standard library's `Hash` writes of a value is the item.
//!
//! Integers are written with the low byte first and sizes as 64 bits, so that a value has one hash on
//! every platform. What a type writes is the type's affair, though, and may change with a release of
//! the standard library or of the type's crate: a filter that is stored, or asked by programs in other
//! languages, should be given bytes ([`ItemHasher::hash`]).

use std::hash::{BuildHasher, Hash, Hasher};

use crate::hash::{ItemHash, ItemHasher, RunningHash};

/// Bytes of an item that are gathered before a running hash is made: most values are shorter, and are
/// hashed at once, without an allocation.
const GATHERED_BYTES: usize = 128;

/// An item that is being written by [`Hash`].
///
/// ```
/// use std::hash::Hasher;
/// use umbel_filter::ItemHasher;
///
/// let hasher = ItemHasher::Xxh3 { seed: 7 };
/// // A `str` writes its bytes, and a byte that no UTF-8 has.
/// assert_eq!(hasher.hash_of("alice"), hasher.hash(b"alice\xff"));
/// // An integer writes its bytes, the low one first on every platform.
/// assert_eq!(hasher.hash_of(&0x0102_u16), hasher.hash(&[2, 1]));
/// ```
#[derive(Debug)]
pub struct HashState {
    hasher: ItemHasher,
    /// Number of bytes in `gathered`.
    len: usize,
    gathered: [u8; GATHERED_BYTES],
    /// All bytes so far, once there are more than fit.
    running: Option<RunningHash>,
}

impl HashState {
    /// The hash of what was written so far.
    #[must_use]
    pub fn item_hash(&self) -> ItemHash {
        match &self.running {
            Some(running) => running.finish(),
            None => self.hasher.hash(&self.gathered[..self.len]),
        }
    }
}

impl ItemHasher {
    /// Hashes a value by what its [`Hash`] writes. The types must agree where the values shall: `1_u8`
    /// and `1_u16` are different items, `"a"` and `String::from("a")` are one.
    #[must_use]
    pub fn hash_of<T: Hash + ?Sized>(&self, value: &T) -> ItemHash {
        let mut state = self.build_hasher();
        value.hash(&mut state);
        state.item_hash()
    }
}

/// So that maps and sets of the standard library can use the same function: a [`HashState`] is asked
/// for the upper half of its hash.
impl BuildHasher for ItemHasher {
    type Hasher = HashState;

    fn build_hasher(&self) -> HashState {
        HashState { hasher: *self, len: 0, gathered: [0; GATHERED_BYTES], running: None }
    }
}

impl Hasher for HashState {
    /// The upper half of [`item_hash`](HashState::item_hash).
    fn finish(&self) -> u64 {
        self.item_hash().hi()
    }

    fn write(&mut self, bytes: &[u8]) {
        if let Some(running) = &mut self.running {
            running.update(bytes);
        } else if let Some(free) = self.gathered[self.len..].get_mut(..bytes.len()) {
            free.copy_from_slice(bytes);
            self.len += bytes.len();
        } else {
            let mut running = self.hasher.running();
            running.update(&self.gathered[..self.len]);
            running.update(bytes);
            self.running = Some(running);
        }
    }

    // The standard library would write these in the order of bytes, and sizes in the width, of the
    // platform.
    fn write_u16(&mut self, value: u16) {
        self.write(&value.to_le_bytes());
    }

    fn write_u32(&mut self, value: u32) {
        self.write(&value.to_le_bytes());
    }

    fn write_u64(&mut self, value: u64) {
        self.write(&value.to_le_bytes());
    }

    fn write_u128(&mut self, value: u128) {
        self.write(&value.to_le_bytes());
    }

    fn write_usize(&mut self, value: usize) {
        self.write_u64(value as u64);
    }
}

#[cfg(test)]
mod tests {
    use proptest::collection::vec;
    use proptest::prelude::*;

    use super::*;

    const HASHERS: [ItemHasher; 2] =
        [ItemHasher::Xxh3 { seed: 7 }, ItemHasher::SipHash { key: [3; 16] }];

    #[test]
    fn sizes_are_64_bits_and_signs_do_not_matter() {
        for hasher in HASHERS {
            assert_eq!(hasher.hash_of(&5_usize), hasher.hash_of(&5_u64));
            assert_eq!(hasher.hash_of(&-1_i32), hasher.hash_of(&u32::MAX));
            assert_eq!(hasher.hash_of(&-1_isize), hasher.hash_of(&u64::MAX));
            assert_eq!(
                hasher.hash_of(&(1_u128 << 100)),
                hasher.hash(&(1_u128 << 100).to_le_bytes())
            );
            // A slice writes its length before its elements.
            let slice = hasher.hash(&[2, 0, 0, 0, 0, 0, 0, 0, 7, 8]);
            assert_eq!(hasher.hash_of([7_u8, 8].as_slice()), slice);
        }
    }

    #[test]
    fn a_map_of_the_standard_library_takes_the_hasher() {
        let mut ages = std::collections::HashMap::with_hasher(HASHERS[0]);
        ages.insert("alice", 30);
        assert_eq!(ages.get("alice"), Some(&30));
        assert_eq!(HASHERS[0].hash_one("alice"), HASHERS[0].hash_of("alice").hi());
    }

    proptest! {
        /// However a value is written in pieces, shorter or longer than the buffer.
        #[test]
        fn pieces_are_one_item(pieces in vec(vec(any::<u8>(), 0..100), 0..6)) {
            for hasher in HASHERS {
                let mut state = hasher.build_hasher();
                pieces.iter().for_each(|piece| state.write(piece));
                prop_assert_eq!(state.item_hash(), hasher.hash(&pieces.concat()));
            }
        }
    }
}
