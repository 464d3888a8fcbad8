//! Retrieval: a value of w bits for every key, in about 1.13 · w bits, and any value for all other keys.
//!
//! Three cells of the table, which the hash chooses, are XORed; cells are filled so that the result is the value of the
//! key. Keys themselves are not stored, so a key that was not given gets the XOR of three cells that are none of its
//! business: as good as random bits.
//!
//! Reference: Chazelle et al. 2004 (Bloomier filters, SODA); binary fuse, Graf & Lemire 2022, doi:10.1145/3510449.

use umbel_filter::ItemHash;

use crate::cells::{cell_bytes, fill, mask, read, read_8, read_16};
use crate::error::BuildError;
use crate::limits::{CHUNK_KEYS_MAX, SEED_COUNT_MAX};
use crate::peel::{Peeled, peel};
use crate::placement::Placement;
use crate::{Geometry, chunk_of};

/// Keys whose values are looked up before the cells of any of them are filled.
const SOLVED_AT_ONCE: usize = 64;

/// What a directory says of a table.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct TableShape {
    pub(crate) key_count: u32,
    pub(crate) geometry: Geometry,
    pub(crate) seed: u16,
    /// Bits of a cell.
    pub(crate) bits: u8,
}

impl TableShape {
    /// Of no keys.
    pub(crate) const fn empty(bits: u8) -> Self {
        Self { key_count: 0, geometry: Geometry::EMPTY, seed: 0, bits }
    }

    /// Bytes of its cells.
    pub(crate) fn bytes(&self) -> usize {
        cell_bytes(self.geometry.cell_count(), self.bits)
    }
}

/// A table that is asked: its cells are elsewhere.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Table {
    placement: Placement,
    bits: u8,
    /// The lower `bits` bits; of a table without keys none.
    mask: u64,
}

impl Table {
    pub(crate) fn new(shape: &TableShape, chunk_bits: u8) -> Self {
        Self {
            placement: Placement::new(shape.geometry, chunk_bits, shape.seed),
            bits: shape.bits,
            mask: if shape.key_count == 0 { 0 } else { mask(shape.bits) },
        }
    }

    /// Whether it has no keys: its values mean nothing then.
    #[inline]
    pub(crate) const fn is_empty(&self) -> bool {
        self.mask == 0
    }

    /// Three cells of a hash, XORed: the value of a key in the lower bits, and anything above. `cells` begins with those of
    /// the table; others may follow.
    #[inline]
    pub(crate) fn word(&self, cells: &[u8], hash: ItemHash) -> u64 {
        self.xor::<ANY_BITS>(cells, self.placement.cells(hash))
    }

    /// Whether the value of a hash agrees with the lower bits of this one; never in a table without keys.
    #[inline]
    pub(crate) fn is(&self, cells: &[u8], hash: ItemHash, value: u64) -> bool {
        ((self.word(cells, hash) ^ value) & self.mask == 0) & !self.is_empty()
    }

    /// The same where the bits are known, or [`ANY_BITS`], and where in its chunk the hash lies.
    // It is called from loops over many hashes, which keep what they need of the table in registers.
    #[inline(always)]
    pub(crate) fn is_within<const BITS: u8>(
        &self,
        cells: &[u8],
        (hash, within): (ItemHash, u64),
        value: u64,
    ) -> bool {
        let word = self.xor::<BITS>(cells, self.placement.cells_within(hash, within));
        ((word ^ value) & self.mask == 0) & !self.is_empty()
    }

    #[inline(always)]
    fn xor<const BITS: u8>(&self, cells: &[u8], places: [usize; 3]) -> u64 {
        let [a, b, c] = places.map(|cell| match BITS {
            8 => read_8(cells, cell),
            16 => read_16(cells, cell),
            _ => read(cells, cell, self.bits),
        });
        a ^ b ^ c
    }
}

/// Cells of bits that are not known when the code is compiled. Of others there are 8 and 16: they spare shifts, and are
/// never in two lines of the cache.
pub(crate) const ANY_BITS: u8 = 0;

/// Refuses hashes that are not those of one chunk, sorted, each once.
///
/// # Errors
///
/// [`BuildError::Chunk`], [`BuildError::Order`] or [`BuildError::TooManyKeys`].
pub(crate) fn check_chunk(hashes: &[ItemHash], chunk_bits: u8) -> Result<(), BuildError> {
    if hashes.len() > CHUNK_KEYS_MAX {
        return Err(BuildError::TooManyKeys { key_count: hashes.len() });
    }
    if let Some(at) = hashes.windows(2).position(|pair| pair[0] >= pair[1]) {
        return Err(BuildError::Order { at: at + 1 });
    }
    // They are sorted, so the first and the last are the farthest apart.
    let [Some(first), Some(last)] = [hashes.first(), hashes.last()] else { return Ok(()) };
    let [first, last] = [first, last].map(|hash| chunk_of(*hash, chunk_bits));
    if first == last { Ok(()) } else { Err(BuildError::Chunk { first, last }) }
}

/// Appends the cells of a table to bytes. Hashes are those of [`check_chunk`].
///
/// # Errors
///
/// [`BuildError::Unpeelable`].
pub(crate) fn build(
    hashes: &[ItemHash],
    chunk_bits: u8,
    bits: u8,
    value_of: impl Fn(usize) -> u64,
    bytes: &mut Vec<u8>,
) -> Result<TableShape, BuildError> {
    if hashes.is_empty() || bits == 0 {
        return Ok(TableShape::empty(bits));
    }
    let geometry = Geometry::of(hashes.len());
    for seed in 0..SEED_COUNT_MAX {
        let placement = Placement::new(geometry, chunk_bits, seed);
        let Some(order) = peel(hashes, &placement, geometry.cell_count()) else {
            continue;
        };
        let start = bytes.len();
        bytes.resize(start + cell_bytes(geometry.cell_count(), bits), 0);
        let cells = &mut bytes[start..];
        let mut values = Vec::with_capacity(SOLVED_AT_ONCE);
        for peeled in order.rchunks(SOLVED_AT_ONCE) {
            // First, because these reads wait for memory together, and those of cells for each other.
            values.clear();
            values.extend(peeled.iter().map(|peeled| value_of(peeled.key as usize)));
            for (Peeled { places, cell, .. }, value) in peeled.iter().zip(&values).rev() {
                // The key's own cell is still 0.
                let [a, b, c] = placement.cells_of(*places).map(|cell| read(cells, cell, bits));
                fill(cells, *cell as usize, bits, (value ^ a ^ b ^ c) & mask(bits));
            }
        }
        let key_count = u32::try_from(hashes.len()).expect("at most 2^21 keys");
        return Ok(TableShape { key_count, geometry, seed, bits });
    }
    Err(BuildError::Unpeelable { key_count: hashes.len() })
}
