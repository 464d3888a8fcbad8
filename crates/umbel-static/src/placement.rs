//! Where a key lies in its table: three cells, and the fingerprint that is compared.
//!
//! With the halves `hi` and `lo` of the item's hash, b bits that choose the chunk, and a table of `segments` segments of 2^s
//! cells, everything modulo 2^64:
//!
//! ```text
//! chunk        the upper b bits of hi
//! segment      t = ⌊(hi · 2^b) · (segments − 2) / 2^64⌋, and the next two
//! mix          m = upper XOR lower 64 bits of (lo XOR (A + seed · C)) · (hi XOR B)
//! cells        (t + j) · 2^s + (⌊m / 2^(21 j)⌋ mod 2^s) for j = 0, 1, 2
//! fingerprint  (hi XOR (lo rotated by 32)) mod 2^w
//!
//! A = 0x9e3779b97f4a7c15   B = 0xe7037ed1a0b428db   C = 0xd1342543de82ef95
//! ```
//!
//! Multiplications by powers of 2 replace shifts: a multiplication is one instruction, and a shift by a variable is
//! three.
//!
//! Cells rise with `hi`, so keys that are sorted by their hashes touch a table from its begin to its end. The seed
//! changes the offsets alone.

use umbel_filter::ItemHash;

use crate::Geometry;
use crate::limits::SEGMENT_BITS_MAX;

const A: u64 = 0x9e37_79b9_7f4a_7c15;
const B: u64 = 0xe703_7ed1_a0b4_28db;
const C: u64 = 0xd134_2543_de82_ef95;

/// Bits of the mix that an offset begins behind the one before: three of them are 63.
const OFFSET_STRIDE: u32 = 21;

/// Which of 2^`chunk_bits` chunks a hash belongs to: rises with the hash.
///
/// ```
/// use umbel_filter::ItemHash;
/// use umbel_static::chunk_of;
///
/// assert_eq!(chunk_of(ItemHash::new(0xc000_0000_0000_0000, 5), 2), 3);
/// assert_eq!(chunk_of(ItemHash::new(u64::MAX, 5), 0), 0);
/// ```
#[inline]
#[must_use]
pub fn chunk_of(hash: ItemHash, chunk_bits: u8) -> usize {
    chunk_among(hash, 1 << chunk_bits.min(63))
}

/// The same, given the number of chunks, a power of 2.
#[inline]
pub(crate) fn chunk_among(hash: ItemHash, chunk_count: u64) -> usize {
    place_among(hash, chunk_count).0
}

/// The same, and where in its chunk the hash lies: what of `hi` is below the bits that choose the chunk, at the top.
#[inline(always)]
pub(crate) fn place_among(hash: ItemHash, chunk_count: u64) -> (usize, u64) {
    let (chunk, within) = wide_product(hash.hi(), chunk_count);
    #[expect(clippy::cast_possible_truncation, reason = "below the number of chunks")]
    let chunk = chunk as usize;
    (chunk, within)
}

/// The halves of a product of 128 bits, the upper one first.
#[inline(always)]
fn wide_product(a: u64, b: u64) -> (u64, u64) {
    let product = u128::from(a) * u128::from(b);
    #[expect(clippy::cast_possible_truncation, reason = "the halves are what is wanted")]
    let halves = ((product >> 64) as u64, product as u64);
    halves
}

/// The bits of a hash that are compared: its fingerprint is in the lower ones, the upper ones are
/// arbitrary.
#[inline]
pub(crate) const fn fingerprint(hash: ItemHash) -> u64 {
    hash.hi() ^ hash.lo().rotate_left(32)
}

/// The first segment of a key in the upper 10 bits, and below it the three offsets, the first one lowest.
pub(crate) type Places = u64;

/// Bits of an offset in [`Places`]. Chunks of 2^21 keys have some 150 segments, smaller ones fewer than 250.
const PLACE_BITS: u32 = SEGMENT_BITS_MAX as u32;

/// Places keys in the cells of one table.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Placement {
    /// 2^b.
    chunk_count: u64,
    /// Segments that may be a key's first.
    first_count: u64,
    /// Cells of a segment.
    segment_cells: u64,
    salt: u64,
}

impl Placement {
    /// Of a table with cells.
    pub(crate) fn new(geometry: Geometry, chunk_bits: u8, seed: u16) -> Self {
        Self {
            chunk_count: 1 << chunk_bits,
            first_count: u64::from(geometry.segment_count().saturating_sub(2)),
            segment_cells: 1 << geometry.segment_bits(),
            salt: A.wrapping_add(u64::from(seed).wrapping_mul(C)),
        }
    }

    /// The cells of a key, in three segments that follow each other.
    #[inline]
    pub(crate) fn cells(&self, hash: ItemHash) -> [usize; 3] {
        self.cells_within(hash, place_among(hash, self.chunk_count).1)
    }

    /// The same in one word, for building.
    #[inline]
    pub(crate) fn places(&self, hash: ItemHash) -> Places {
        let (mix, segment) = self.mix(hash, place_among(hash, self.chunk_count).1);
        let mask = self.segment_cells - 1;
        let offset = |at: u32| ((mix >> (OFFSET_STRIDE * at)) & mask) << (PLACE_BITS * at);
        segment << (3 * PLACE_BITS) | offset(2) | offset(1) | offset(0)
    }

    /// The cells that a word of [`places`](Self::places) means.
    #[inline]
    pub(crate) fn cells_of(&self, places: Places) -> [usize; 3] {
        let first = (places >> (3 * PLACE_BITS)) * self.segment_cells;
        let offset = |at: u32| (places >> (PLACE_BITS * at)) & ((1 << PLACE_BITS) - 1);
        let cells = [
            first + offset(0),
            first + self.segment_cells + offset(1),
            first + 2 * self.segment_cells + offset(2),
        ];
        #[expect(clippy::cast_possible_truncation, reason = "below the number of cells")]
        let cells = cells.map(|cell| cell as usize);
        cells
    }

    /// What offsets are cut from, and the first segment.
    #[inline(always)]
    fn mix(&self, hash: ItemHash, within: u64) -> (u64, u64) {
        let (upper, lower) = wide_product(hash.lo() ^ self.salt, hash.hi() ^ B);
        let (segment, _) = wide_product(within, self.first_count);
        (upper ^ lower, segment)
    }

    /// The same as [`cells`](Self::cells), given what [`place_among`] says.
    #[inline(always)]
    pub(crate) fn cells_within(&self, hash: ItemHash, within: u64) -> [usize; 3] {
        let (mix, segment) = self.mix(hash, within);
        let first = segment * self.segment_cells;
        let (second, third) = (first + self.segment_cells, first + 2 * self.segment_cells);
        let mask = self.segment_cells - 1;
        let cells = [
            first + (mix & mask),
            second + ((mix >> OFFSET_STRIDE) & mask),
            third + ((mix >> (2 * OFFSET_STRIDE)) & mask),
        ];
        #[expect(clippy::cast_possible_truncation, reason = "below the number of cells")]
        let cells = cells.map(|cell| cell as usize);
        cells
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn golden_cells() {
        let hash = ItemHash::new(0x0123_4567_89ab_cdef, 0xfedc_ba98_7654_3210);
        let cells = |keys, chunk_bits, seed| {
            Placement::new(Geometry::of(keys), chunk_bits, seed).cells(hash)
        };
        assert_eq!(cells(1000, 0, 0), [8, 215, 305]);
        assert_eq!(cells(1000, 0, 1), [113, 201, 352]);
        assert_eq!(cells(1_000_000, 5, 0), [161800, 166743, 174897]);
        assert_eq!(fingerprint(hash), 0x0123_4567_89ab_cdef ^ 0x7654_3210_fedc_ba98);
    }

    #[test]
    fn cells_are_those_of_the_table_and_rise_with_the_hash() {
        for keys in [1, 2, 10, 1000, 1 << 21] {
            let geometry = Geometry::of(keys);
            for (chunk_bits, seed) in [(0, 0), (3, 255), (12, 7)] {
                let placement = Placement::new(geometry, chunk_bits, seed);
                let mut before = 0;
                for number in 0..=1000u64 {
                    let within = (u64::MAX / 1000 * number) >> chunk_bits;
                    let hash = ItemHash::new(within, number.wrapping_mul(A));
                    let cells = placement.cells(hash);
                    let segments = cells.map(|cell| cell >> geometry.segment_bits());
                    assert!(cells.iter().all(|cell| *cell < geometry.cell_count()));
                    assert_eq!(segments, [segments[0], segments[0] + 1, segments[0] + 2]);
                    assert!(segments[0] >= before);
                    assert_eq!(placement.cells_of(placement.places(hash)), cells);
                    before = segments[0];
                }
                assert_eq!(before, geometry.segment_count() as usize - 3);
            }
        }
    }
}
