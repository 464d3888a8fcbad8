//! The order in which the cells of a table can be filled.
//!
//! Every key has three cells. If a cell belongs to one key only, it can be filled last, whatever the key's other two
//! cells hold. So the key is taken away, which leaves other cells with one key, and so on: the table is *peeled*. If
//! all keys can be taken away, filling the cells in the opposite order gives each key its value. Whether all can be
//! does not depend on the order, and the order depends only on the keys and the seed.
//!
//! Cells are looked at from the first to the last, and those behind again when they come down to one key: as segments
//! are coupled like a chain, peeling moves along the table, and what it touches stays in the cache.
//!
//! References: Botelho, Pagh & Ziviani 2013, doi:10.1016/j.is.2012.06.003; chains, Walzer 2021,
//! doi:10.1137/1.9781611976465.131.

use umbel_filter::ItemHash;

use crate::placement::{Placement, Places};

/// One key in the upper half of a word; the lower half is the XOR of the keys' numbers.
const ONE_KEY: u64 = 1 << 32;

/// The content of a cell: how many keys it has, and the XOR of their numbers and of their positions. If one key is
/// left, these are its own, so peeling never has to look the key up.
#[derive(Clone, Copy, Default)]
struct Load {
    keys: u64,
    places: Places,
}

impl Load {
    #[inline]
    const fn is_one_key(self) -> bool {
        self.keys >> 32 == 1
    }
}

/// A key, where it lies, and the cell that is filled for it.
#[derive(Clone, Copy)]
pub(crate) struct Peeled {
    pub(crate) places: Places,
    pub(crate) key: u32,
    pub(crate) cell: u32,
}

/// All keys in the order in which they are taken away; `None` if some cannot be.
pub(crate) fn peel(
    hashes: &[ItemHash],
    placement: &Placement,
    cell_count: usize,
) -> Option<Vec<Peeled>> {
    let mut loads = vec![Load::default(); cell_count];
    for (key, hash) in (0u64..).zip(hashes) {
        let places = placement.places(*hash);
        for cell in placement.cells_of(places) {
            let load = &mut loads[cell];
            load.keys = (load.keys + ONE_KEY) ^ key;
            load.places ^= places;
        }
    }
    let mut order = Vec::with_capacity(hashes.len());
    let mut behind = Vec::new();
    for front in 0..cell_count {
        let mut next = loads[front].is_one_key().then_some(front);
        while let Some(cell) = next {
            let Load { keys, places } = loads[cell];
            #[expect(clippy::cast_possible_truncation, reason = "the lower half is what is wanted")]
            let key = keys as u32;
            #[expect(clippy::cast_possible_truncation, reason = "tables have 2^24 cells at most")]
            order.push(Peeled { places, key, cell: cell as u32 });
            for other in placement.cells_of(places) {
                let load = &mut loads[other];
                load.keys = (load.keys - ONE_KEY) ^ u64::from(key);
                load.places ^= places;
                if other <= front && load.is_one_key() {
                    behind.push(other);
                }
            }
            // A cell that had one key left may have none by now.
            next = loop {
                match behind.pop() {
                    Some(cell) if !loads[cell].is_one_key() => {}
                    found => break found,
                }
            };
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
        let order = peel(&hashes, &placement, geometry.cell_count()).unwrap();
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
        assert!(peel(&hashes, &placement, geometry.cell_count()).is_none());
    }
}
