//! The order in which the cells of a table can be filled.
//!
//! Every key has three cells. A cell that one key alone has can be filled last, whatever the other two hold, so the key
//! is taken away, which leaves other cells with one key, and so on: the table is *peeled*. If all keys go, filling the
//! cells in the opposite order gives each key its value. Whether all go does not depend on the order; the order does
//! depend on nothing but keys and seed.
//!
//! Cells are looked at from the first to the last, and those behind again when they come down to one key: as segments
//! are coupled like a chain, peeling moves along the table, and what it touches stays in the cache.
//!
//! References: Botelho, Pagh & Ziviani 2013, doi:10.1016/j.is.2012.06.003; chains, Walzer 2021,
//! doi:10.1137/1.9781611976465.131.

use umbel_filter::ItemHash;

use crate::placement::Placement;

/// One key in the upper half of a cell's word; the lower half is the XOR of its keys' numbers.
const ONE_KEY: u64 = 1 << 32;

/// A key, and the cell that is filled for it.
#[derive(Clone, Copy)]
pub(crate) struct Peeled {
    pub(crate) key: u32,
    pub(crate) cell: u32,
}

/// All keys in the order in which they go; `None` if some stay.
///
/// Words of `cells`, one a cell, are overwritten: who builds many tables gives the same again.
pub(crate) fn peel(
    hashes: &[ItemHash],
    placement: &Placement,
    cell_count: usize,
    cells: &mut Vec<u64>,
) -> Option<Vec<Peeled>> {
    cells.clear();
    cells.resize(cell_count, 0);
    for (key, hash) in (0u64..).zip(hashes) {
        for cell in placement.cells(*hash) {
            cells[cell] = (cells[cell] + ONE_KEY) ^ key;
        }
    }
    let mut order = Vec::with_capacity(hashes.len());
    let mut open = Vec::new();
    for front in 0..cell_count {
        open.push(front);
        while let Some(cell) = open.pop() {
            if cells[cell] >> 32 != 1 {
                continue;
            }
            #[expect(clippy::cast_possible_truncation, reason = "the lower half is what is wanted")]
            let key = cells[cell] as u32;
            #[expect(clippy::cast_possible_truncation, reason = "tables have 2^24 cells at most")]
            order.push(Peeled { key, cell: cell as u32 });
            for other in placement.cells(hashes[key as usize]) {
                cells[other] = (cells[other] - ONE_KEY) ^ u64::from(key);
                if other <= front && cells[other] >> 32 == 1 {
                    open.push(other);
                }
            }
        }
    }
    (order.len() == hashes.len()).then_some(order)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Geometry;
    use umbel_filter::ItemHasher;

    #[test]
    fn a_key_is_alone_in_its_cell_among_those_that_stay() {
        let hasher = ItemHasher::Xxh3 { seed: 1 };
        let mut hashes: Vec<ItemHash> =
            (0..3000u32).map(|key| hasher.hash(&key.to_le_bytes())).collect();
        hashes.sort_unstable();
        let geometry = Geometry::of(hashes.len());
        let placement = Placement::new(geometry, 0, 0);
        let order = peel(&hashes, &placement, geometry.cell_count(), &mut Vec::new()).unwrap();
        let mut keys_of_cell = vec![0; geometry.cell_count()];
        let cells = |peeled: &Peeled| placement.cells(hashes[peeled.key as usize]);
        for peeled in order.iter().rev() {
            cells(peeled).iter().for_each(|cell| keys_of_cell[*cell] += 1);
            assert_eq!(keys_of_cell[peeled.cell as usize], 1);
        }
    }

    #[test]
    fn equal_keys_stay() {
        let hashes = [ItemHash::new(1, 2); 2];
        let geometry = Geometry::of(2);
        let placement = Placement::new(geometry, 0, 0);
        assert!(peel(&hashes, &placement, geometry.cell_count(), &mut Vec::new()).is_none());
    }
}
