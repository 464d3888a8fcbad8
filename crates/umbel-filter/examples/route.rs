//! Finding what is near: attenuated filters in a network of 400 nodes.
//!
//! Every node keeps, for each neighbour, a filter of what is how many hops behind it. A search goes where the nearest flag
//! is set, and only if none is does it ask a directory far away (Rhea & Kubiatowicz 2002,
//! doi:10.1109/INFCOM.2002.1019375). Filters are told in rounds: each node tells what it has and what it was told, one hop
//! further away. As telling twice changes nothing, lost and repeated messages do no harm.
//!
//! `cargo run --release -p umbel-filter --example route`

use std::error::Error;

use umbel_filter::{HashRange, ItemHash, ItemHasher, Join, Lattice};

/// A torus of so many by so many nodes.
const SIDE: usize = 20;
const NODE_COUNT: usize = SIDE * SIDE;

/// Objects of a node.
const OBJECT_COUNT: usize = 20;

/// Flags that travel: what is here, one and two hops away; told on, one, two and three.
const HOPS_MAX: usize = 3;

fn hash(node: usize, object: usize) -> ItemHash {
    ItemHasher::Xxh3 { seed: 1 }.hash(&[node.to_le_bytes(), object.to_le_bytes()].concat())
}

fn neighbours(node: usize) -> [usize; 4] {
    let (row, column) = (node / SIDE, node % SIDE);
    let at = |row: usize, column: usize| row % SIDE * SIDE + column % SIDE;
    [
        at(row + SIDE - 1, column),
        at(row + 1, column),
        at(row, column + SIDE - 1),
        at(row, column + 1),
    ]
}

/// Hops between two nodes.
fn distance(a: usize, b: usize) -> usize {
    let along = |a: usize, b: usize| a.abs_diff(b).min(SIDE - a.abs_diff(b));
    along(a / SIDE, b / SIDE) + along(a % SIDE, b % SIDE)
}

/// For each node and neighbour what the neighbour has told.
fn advertised(own: &[Lattice]) -> Result<Vec<Vec<Lattice>>, Box<dyn Error>> {
    let empty =
        Lattice::new(Join::Or, HashRange::WHOLE, own[0].block_shape().map().block_count(), 6)?;
    let mut advertised = vec![vec![empty; 4]; NODE_COUNT];
    for _ in 0..HOPS_MAX {
        let mut known = own.to_vec();
        for (known, advertised) in known.iter_mut().zip(&advertised) {
            advertised.iter().try_for_each(|advertised| known.merge(advertised).map(drop))?;
        }
        for (node, advertised) in advertised.iter_mut().enumerate() {
            for (advertised, neighbour) in advertised.iter_mut().zip(neighbours(node)) {
                *advertised = known[neighbour].attenuated()?;
            }
        }
    }
    Ok(advertised)
}

/// Hops to an object by flags; None if a node on the way sees none, or they mislead.
fn search(
    advertised: &[Vec<Lattice>],
    own: &[Lattice],
    from: usize,
    home: usize,
    item: ItemHash,
) -> Option<usize> {
    let (mut at, mut hops) = (from, 0);
    while at != home {
        // The flag of the fewest hops, behind the first neighbour that has it.
        let nearest = advertised[at].iter().zip(neighbours(at));
        let nearest = nearest.filter(|(advertised, _)| advertised.value(item) > 0);
        let (_, next) =
            nearest.min_by_key(|(advertised, _)| advertised.value(item).trailing_zeros())?;
        (at, hops) = (next, hops + 1);
        if hops > HOPS_MAX || (own[at].value(item) > 0 && at != home) {
            return None;
        }
    }
    Some(hops)
}

fn main() -> Result<(), Box<dyn Error>> {
    let own = (0..NODE_COUNT)
        .map(|node| {
            // Room for all of 25 nodes within three hops.
            let mut own =
                Lattice::for_rate(Join::Or, HashRange::WHOLE, 25 * OBJECT_COUNT as u64, 0.01)?;
            (0..OBJECT_COUNT).try_for_each(|object| own.raise(hash(node, object), 1).map(drop))?;
            Ok(own)
        })
        .collect::<Result<Vec<_>, Box<dyn Error>>>()?;
    let advertised = advertised(&own)?;
    let (mut counts, mut misled, mut wrong_home) = ([[0usize; 2]; HOPS_MAX + 1], 0, 0);
    for from in (0..NODE_COUNT).step_by(7) {
        for home in 0..NODE_COUNT {
            let (item, distance) = (hash(home, from % OBJECT_COUNT), distance(from, home));
            let found = search(&advertised, &own, from, home, item);
            match distance {
                0 => {}
                1..=HOPS_MAX => {
                    counts[distance][0] += 1;
                    counts[distance][1] += usize::from(found == Some(distance));
                    misled += usize::from(found != Some(distance));
                }
                _ => wrong_home += usize::from(found.is_some()),
            }
        }
    }
    println!("hops away  searches  found by the shortest way");
    for (hops, [asked, found]) in counts.iter().enumerate().skip(1) {
        println!("{hops:>9}  {asked:>8}  {found:>8}");
        // Flags of what is nearer by error mislead a few.
        assert!(*found as f64 > 0.95 * *asked as f64);
    }
    println!(
        "{misled} of them misled, to be found by the directory; {} bytes a neighbour",
        own[0].words().len() * 8
    );
    assert_eq!(wrong_home, 0);
    Ok(())
}

#[cfg(test)]
mod tests {
    #[test]
    fn figures_hold() {
        super::main().unwrap();
    }
}
