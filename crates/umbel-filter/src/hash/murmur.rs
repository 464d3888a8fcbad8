//! MurmurHash64A (Appleby 2008, public domain), which RedisBloom hashes items with.
//!
//! All arithmetic is modulo 2^64, and words are read as little-endian. The length goes in first, so an item that
//! comes in pieces has to be kept until it ends.

/// What keys and states are multiplied with.
const FACTOR: u64 = 0xc6a4_a793_5bd1_e995;

/// How far a value is shifted onto itself.
const SHIFT: u32 = 47;

/// The seed of an item's first hash in RedisBloom, where its filters have 64-bit hashes.
const FIRST_SEED: u64 = FACTOR;

/// The first hash of an item and, with it as seed, the second.
#[inline]
pub(super) fn pair(item: &[u8]) -> (u64, u64) {
    let first = murmur_hash_64a(item, FIRST_SEED);
    (first, murmur_hash_64a(item, first))
}

/// `MurmurHash64A` of the bytes.
#[inline]
fn murmur_hash_64a(item: &[u8], seed: u64) -> u64 {
    let (words, tail) = item.as_chunks::<8>();
    let mut state = seed ^ (item.len() as u64).wrapping_mul(FACTOR);
    for &word in words {
        let mut word = u64::from_le_bytes(word).wrapping_mul(FACTOR);
        word ^= word >> SHIFT;
        state = (state ^ word.wrapping_mul(FACTOR)).wrapping_mul(FACTOR);
    }
    if !tail.is_empty() {
        let mut last = [0; 8];
        last.iter_mut().zip(tail).for_each(|(to, from)| *to = *from);
        state = (state ^ u64::from_le_bytes(last)).wrapping_mul(FACTOR);
    }
    state ^= state >> SHIFT;
    state = state.wrapping_mul(FACTOR);
    state ^ state >> SHIFT
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Computed from the definition by another program.
    #[test]
    fn hashes_are_those_of_the_definition() {
        assert_eq!(pair(b"foo"), (0x822b_4f99_b121_f10d, 0x9d63_d52a_557f_61c2));
        assert_eq!(murmur_hash_64a(b"foo", 0), 0xcdde_3835_8fd2_5b01);
        assert_eq!(pair(b"hello world!"), (0x6fc0_90f3_e01a_7b8c, 0xac73_5213_3b63_861a));
        assert_eq!(pair(b""), (0x1ab1_1ea5_a7b2_c56e, 0xbbdd_cb5a_b56d_d547));
    }
}
