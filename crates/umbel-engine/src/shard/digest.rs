//! A digest of a state, to compare replicas.

/// Multiplier of the mixing step: 2^64 divided by the golden ratio, odd.
const FACTOR: u64 = 0x9e37_79b9_7f4a_7c15;

/// Mixes words into one digest. Detects accidental differences, does not resist an adversary.
///
/// Every step is a bijection of the state for a fixed word, and of the word for a fixed state. So two
/// sequences that differ in exactly one word never collide.
#[derive(Clone, Copy, Debug)]
pub(super) struct Digest(u64);

impl Digest {
    pub(super) const fn new() -> Self {
        Self(FACTOR)
    }

    #[inline]
    pub(super) const fn push(&mut self, word: u64) {
        let mixed = (self.0 ^ word).wrapping_mul(FACTOR);
        self.0 = (mixed ^ mixed >> 32).wrapping_add(FACTOR);
    }

    pub(super) fn push_words(&mut self, words: &[u64]) {
        self.push(words.len() as u64);
        words.iter().for_each(|&word| self.push(word));
    }

    pub(super) fn push_bytes(&mut self, bytes: &[u8]) {
        self.push(bytes.len() as u64);
        let (words, rest) = bytes.as_chunks::<8>();
        words.iter().for_each(|&word| self.push(u64::from_le_bytes(word)));
        rest.iter().for_each(|&byte| self.push(byte.into()));
    }

    /// A keyed digest of a block of words. Four lanes are mixed side by side: a single one would be
    /// limited by the latency of its multiplications, to a third of memory speed.
    pub(super) fn of_block(key: u64, words: &[u64]) -> u64 {
        let mut lanes = [Self::new(); 4];
        lanes.iter_mut().for_each(|lane| lane.push(key));
        let (quads, rest) = words.as_chunks::<4>();
        for quad in quads {
            lanes.iter_mut().zip(quad).for_each(|(lane, &word)| lane.push(word));
        }
        let mut digest = Self::new();
        digest.push_words(rest);
        digest.push(words.len() as u64);
        lanes.into_iter().for_each(|lane| digest.push(lane.finish()));
        digest.finish()
    }

    /// Mixes the last bits into all others.
    pub(super) const fn finish(mut self) -> u64 {
        self.push(0);
        self.push(0);
        self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(words: &[u64]) -> u64 {
        let mut digest = Digest::new();
        digest.push_words(words);
        digest.finish()
    }

    #[test]
    fn every_word_of_a_block_counts_and_the_key() {
        let words: Vec<u64> = (0..11).collect();
        let whole = Digest::of_block(7, &words);
        assert_eq!(Digest::of_block(7, &words), whole);
        assert_ne!(Digest::of_block(8, &words), whole);
        for at in 0..words.len() {
            let mut other = words.clone();
            other[at] ^= 1 << 40;
            assert_ne!(Digest::of_block(7, &other), whole, "{at}");
            other.swap_remove(at);
            assert_ne!(Digest::of_block(7, &other), whole, "{at}");
        }
        assert_ne!(Digest::of_block(7, &[]), Digest::of_block(7, &[0]));
    }

    #[test]
    fn order_length_and_every_bit_count() {
        assert_ne!(of(&[1, 2]), of(&[2, 1]));
        assert_ne!(of(&[]), of(&[0]));
        assert_ne!(of(&[0]), of(&[0, 0]));
        for bit in 0..64 {
            assert_ne!(of(&[0]), of(&[1 << bit]));
        }
    }
}
