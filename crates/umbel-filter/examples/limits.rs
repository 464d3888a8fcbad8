//! Who comes too often? A stream of requests, counted by filters: flows that pass a threshold, as routers and rate limits
//! want them.
//!
//! A counter an address is exact and takes a table that attackers fill. Here are the filters that count: counters that are
//! raised all (*counting*), of which only the least are raised (*layered*, spectral with minimal increase), a table of
//! remainders (*d-left*). Each is asked who came at least 8 times (d-left, whose counts end at 3: at least 3). None
//! misses one that did; how many others are named is the price.
//!
//! `cargo run --release -p umbel-filter --example limits`

#![allow(clippy::cast_possible_truncation, reason = "numbers are small")]

use std::collections::BTreeMap;
use std::error::Error;

use umbel_filter::{
    Contains, Counting, DLeft, HashRange, Insert, ItemHash, ItemHasher, Join, Lattice, Removal,
    Remove, VariableCounting,
};

const ADDRESS_COUNT: u64 = 20_000;
const REQUEST_COUNT: u64 = 60_000;
const THRESHOLD: u32 = 8;

/// Bytes of the first two: four bits in 64 blocks of 512 cells, far too few for all addresses.
const BLOCK_COUNT: u64 = 64;
const PROBE_COUNT: u32 = 4;

fn hash(address: u64) -> ItemHash {
    ItemHasher::Xxh3 { seed: 1 }.hash(&address.to_le_bytes())
}

/// Requests whose addresses are Zipf's, about: the address of rank r comes in proportion to 1/r.
fn requests() -> impl Iterator<Item = u64> {
    let mut state = 1u64;
    (0..REQUEST_COUNT).map(move |_| {
        state = state.wrapping_mul(0xd134_2543_de82_ef95).wrapping_add(1);
        let place = (state >> 11) as f64 / (1u64 << 53) as f64;
        (ADDRESS_COUNT as f64).powf(place) as u64
    })
}

fn main() -> Result<(), Box<dyn Error>> {
    let mut truth: BTreeMap<u64, u32> = BTreeMap::new();
    let mut counting = Counting::new(HashRange::WHOLE, BLOCK_COUNT, PROBE_COUNT)?;
    let mut layered = Lattice::new(Join::Max, HashRange::WHOLE, BLOCK_COUNT, PROBE_COUNT)?;
    for address in requests() {
        *truth.entry(address).or_default() += 1;
        counting.insert(hash(address))?;
        layered.count(hash(address))?;
    }
    let frequent = truth.values().filter(|count| **count >= THRESHOLD).count();
    println!("{} addresses, {frequent} of them {THRESHOLD} times and more", truth.len());
    let is_named = |by: &dyn Fn(u64) -> bool| -> usize {
        let named = truth.iter().filter(|(address, _)| by(**address));
        named.filter(|(_, count)| **count < THRESHOLD).count()
    };
    let by_counting = |address| counting.contains_at_least(hash(address), THRESHOLD.into());
    let by_layers = |address| u32::from(layered.value(hash(address))) >= THRESHOLD;
    for address in truth.iter().filter(|(_, count)| **count >= THRESHOLD).map(|(a, _)| *a) {
        assert!(by_counting(address) && by_layers(address));
    }
    let (counted, layers) = (is_named(&by_counting), is_named(&by_layers));
    let bytes = layered.words().len() * 8;
    println!("counting, all counters rise      {bytes:>6} bytes, {counted:>5} others named");
    println!("layered, the least of them rise  {bytes:>6} bytes, {layers:>5} others named");
    assert!(layers * 2 < counted);

    // What comes and goes: connections that are open now, each address up to twice.
    let open: Vec<u64> = truth.iter().filter(|(_, count)| **count <= 2).map(|(a, _)| *a).collect();
    let mut dleft = DLeft::for_rate(HashRange::WHOLE, open.len() as u64, 0.01)?;
    let mut variable = VariableCounting::for_rate(HashRange::WHOLE, open.len() as u64, 0.01, 8)?;
    for address in &open {
        dleft.insert(hash(*address))?;
        variable.insert(hash(*address))?;
    }
    let others = || (1 << 32..(1 << 32) + 100_000).map(hash);
    let wrong = [
        others().filter(|other| dleft.contains(*other)).count(),
        others().filter(|other| variable.contains(*other)).count(),
    ];
    let bits = |bytes: usize| bytes as f64 * 8.0 / open.len() as f64;
    let bits = [bits(dleft.memory_bytes() as usize), bits(variable.words().len() * 8)];
    println!(
        "d-left, {} open                {:>6.1} bits an item, {} of 100,000 others present",
        open.len(),
        bits[0],
        wrong[0]
    );
    println!(
        "variable increments              {:>6.1} bits an item, {} of 100,000 others present",
        bits[1], wrong[1]
    );
    assert!(wrong.iter().all(|wrong| *wrong < 1_200));
    for address in &open {
        assert_eq!(dleft.remove(hash(*address))?, Removal::Removed);
        assert_eq!(variable.remove(hash(*address))?, Removal::Removed);
    }
    assert_eq!(dleft.item_count(), 0);
    assert!(variable.words().iter().all(|word| *word == 0));
    Ok(())
}

#[cfg(test)]
mod tests {
    #[test]
    fn figures_hold() {
        super::main().unwrap();
    }
}
