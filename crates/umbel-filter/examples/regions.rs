//! In which region is this place, without saying where the regions are: a spatial filter.
//!
//! A grid of cells is cut into regions of rising priority: a city, in it a district, in it a building. The filter tells a
//! phone in which of them it is, to 15, and is as large as the regions' cells, not as the map; who has the filter has no
//! list of the regions' borders (Palmieri et al. 2014, doi:10.1007/978-3-319-16745-9_2; the protocol that hides the place from
//! the server, too, is not here). A higher region is never called a lower one.
//!
//! `cargo run --release -p umbel-filter --example regions`

use std::error::Error;

use umbel_filter::{HashRange, ItemHash, ItemHasher, Join, Lattice, sizing};

/// Cells of a side of the map.
const SIDE: u32 = 1_000;

/// Middle and half of a side of the squares that regions are, the later ones above the earlier.
const REGIONS: [(u32, u32, u32); 4] =
    [(300, 300, 50), (600, 700, 50), (310, 310, 20), (312, 312, 3)];

fn hash(x: u32, y: u32) -> ItemHash {
    ItemHasher::Xxh3 { seed: 1 }.hash(&[x.to_le_bytes(), y.to_le_bytes()].concat())
}

/// The highest region of a cell, 0 for none.
fn region(x: u32, y: u32) -> usize {
    let is_in = |(a, b, half): &(u32, u32, u32)| x.abs_diff(*a) <= *half && y.abs_diff(*b) <= *half;
    REGIONS.iter().rposition(is_in).map_or(0, |region| region + 1)
}

fn main() -> Result<(), Box<dyn Error>> {
    let cells = || (0..SIDE).flat_map(|x| (0..SIDE).map(move |y| (x, y)));
    let mut sizes = [0u64; REGIONS.len() + 1];
    cells().for_each(|(x, y)| sizes[region(x, y)] += 1);
    let item_count = sizes[1..].iter().sum();
    let mut filter = Lattice::for_rate(Join::Max, HashRange::WHOLE, item_count, 0.01)?;
    for (x, y) in cells().filter(|(x, y)| region(*x, *y) > 0) {
        filter.raise(hash(x, y), u8::try_from(region(x, y))?)?;
    }
    let mut read = [[0u64; REGIONS.len() + 1]; REGIONS.len() + 1];
    cells().for_each(|(x, y)| read[region(x, y)][usize::from(filter.value(hash(x, y)))] += 1);
    let shape = filter.block_shape();
    let (m, k) = (shape.position_count(), shape.probe_count());
    let rates = sizing::spatial_false_positive_rates(m, k, &sizes[1..])?;
    println!("{} bytes, where a byte a cell of the map takes {}", m / 2, SIDE * SIDE);
    println!("region   cells  right  read as a higher one  cells outside read as it  expected");
    for at in 1..=REGIONS.len() {
        let (right, higher) = (read[at][at], read[at][at + 1..].iter().sum::<u64>());
        let expected = rates[at - 1] * sizes[0] as f64;
        println!(
            "{at:>6} {:>7} {right:>6} {higher:>21} {:>25} {expected:>9.0}",
            sizes[at], read[0][at]
        );
        assert_eq!((read[at][..at].iter().sum::<u64>(), right + higher), (0, sizes[at]));
        // Five standard deviations; blocks and this filter's own share of ones are a quarter at most.
        let slack = 5.0 * expected.sqrt() + 0.25 * expected + 5.0;
        assert!((read[0][at] as f64 - expected).abs() < slack);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    #[test]
    fn figures_hold() {
        super::main().unwrap();
    }
}
