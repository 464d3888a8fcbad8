//! The search for a free slot, eight at once.
//!
//! Of a slot x let B(x) be the runs of quotients up to x less the runs that end up to x. Every run ends where
//! its quotient is or behind it, so B is never negative, and where it is 0 nothing of quotients up to x
//! lies behind x. The slot x is free where B(x) = 0 and no run ends. Eight slots are looked at at once, a byte each.

/// A one in each byte.
const ONES: u64 = 0x0101_0101_0101_0101;

/// The highest bit of each byte.
const HIGHS: u64 = ONES << 7;

/// How many ones a byte has up to each of its bits, in the byte with the bit's number.
const PREFIXES: [u64; 256] = {
    let mut table = [0; 256];
    let mut byte = 0;
    while byte < 256 {
        let mut bit = 0;
        while bit < 8 {
            let ones = (byte as u64 & ((2 << bit) - 1)).count_ones() as u64;
            table[byte] |= ones << (8 * bit);
            bit += 1;
        }
        byte += 1;
    }
    table
};

/// What eight slots look like.
#[derive(Clone, Copy)]
pub(super) struct Eight {
    /// The highest bit of each byte whose B is 0.
    pub(super) clear: u64,
    /// The highest bit of each byte whose slot is free.
    pub(super) free: u64,
    /// B of the last of them.
    pub(super) balance: u64,
}

/// Looks at eight slots: which of their quotients have a run, which of them end one, and B of the slot
/// before them.
#[inline(always)]
pub(super) const fn eight(occupieds: u64, runends: u64, balance: u64) -> Eight {
    let (occupieds, runends) = ((occupieds & 0xff) as usize, (runends & 0xff) as usize);
    let (begun, ended) = (PREFIXES[occupieds], PREFIXES[runends]);
    let after = balance.wrapping_add(begun >> 56).wrapping_sub(ended >> 56);
    // It falls by one a slot at most.
    if balance > 8 {
        return Eight { clear: 0, free: 0, balance: after };
    }
    let lanes = (balance * ONES).wrapping_add(begun).wrapping_sub(ended);
    let clear = !(((lanes & !HIGHS) + !HIGHS) | lanes) & HIGHS;
    let spread = (runends as u64).wrapping_mul(ONES) & 0x8040_2010_0804_0201;
    let ends = (spread + !HIGHS) & HIGHS;
    Eight { clear, free: clear & !ends, balance: after }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        /// The slow twin: slot by slot.
        #[test]
        fn eight_slots_are_slots_one_by_one(occupieds in 0..=255_u64, runends in 0..=255_u64, start in 0..300_u64) {
            let (mut balance, mut clear, mut free) = (start, 0, 0);
            for bit in 0..8 {
                balance += occupieds >> bit & 1;
                let ends = runends >> bit & 1;
                // What no filter has.
                prop_assume!(balance >= ends);
                balance -= ends;
                if balance == 0 {
                    clear |= 0x80 << (8 * bit);
                    free |= (1 - ends) << (8 * bit + 7);
                }
            }
            let seen = eight(occupieds, runends, start);
            prop_assert_eq!((seen.clear, seen.free, seen.balance), (clear, free, balance));
        }
    }
}
