//! Items: short texts like numbers of users and addresses of pages, all different, made of a counter.

/// Fronts of items; 16 digits follow, so items have 16, 21 or 24 bytes.
const FRONTS: [&[u8]; 3] = [b"", b"user:", b"ex.am/p/"];

const DIGITS: &[u8; 16] = b"0123456789abcdef";

/// First of the items that are never inserted.
pub(crate) const ABSENT_FIRST: u64 = 1 << 48;

/// One item.
pub(crate) struct Item {
    bytes: [u8; 24],
    byte_count: usize,
}

impl Item {
    /// The item of this number. Different numbers have different items.
    pub(crate) fn of(index: u64) -> Self {
        let front = match index % 3 {
            0 => FRONTS[0],
            1 => FRONTS[1],
            _ => FRONTS[2],
        };
        let mut item = Self { bytes: [0; 24], byte_count: front.len() + 16 };
        item.bytes[..front.len()].copy_from_slice(front);
        let mut rest = mix(index);
        for digit in item.bytes[front.len()..item.byte_count].iter_mut().rev() {
            *digit = DIGITS[(rest & 15) as usize];
            rest >>= 4;
        }
        item
    }

    pub(crate) fn as_bytes(&self) -> &[u8] {
        &self.bytes[..self.byte_count]
    }
}

/// Repeatable numbers that look random.
pub(crate) struct Dice(u64);

impl Dice {
    pub(crate) fn new(seed: u64) -> Self {
        Self(mix(seed))
    }

    /// A number below `end`, which is not 0. The bias is below `end` / 2^64.
    pub(crate) fn below(&mut self, end: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        mix(self.0) % end
    }
}

/// The finalizer of SplitMix64, which maps no two numbers to one.
fn mix(mut x: u64) -> u64 {
    x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    x ^ (x >> 31)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn items_are_different_and_of_16_to_24_bytes() {
        let items: BTreeSet<Vec<u8>> = (0..3_000)
            .chain(ABSENT_FIRST..ABSENT_FIRST + 3_000)
            .map(|index| Item::of(index).as_bytes().to_vec())
            .collect();
        assert_eq!(items.len(), 6_000);
        let lengths: BTreeSet<usize> = items.iter().map(Vec::len).collect();
        assert_eq!(lengths.into_iter().collect::<Vec<_>>(), [16, 21, 24]);
    }

    #[test]
    fn dice_repeat_and_stay_below() {
        let roll = |seed| {
            let mut dice = Dice::new(seed);
            (0..100).map(|_| dice.below(7)).collect::<Vec<_>>()
        };
        assert_eq!(roll(1), roll(1));
        assert_ne!(roll(1), roll(2));
        assert!(roll(1).iter().all(|&number| number < 7));
    }
}
