//! A second filter of what was removed: what it does, and what it costs.
//!
//! A filter cannot lose an item. Where few are removed and none comes back, a filter of removed items beside it answers
//! *present and not removed*. But it errs the other way: an item that is there and that the second filter takes for removed
//! is denied, and there is no way to tell (the first trick that comes to mind; Broder & Mitzenmacher 2004,
//! doi:10.1080/15427951.2004.10129096, name counting filters instead). In a small universe no filter is needed: a bit a number is exact,
//! and removing clears it.
//!
//! `cargo run --release -p umbel-filter --example removed`

#![allow(clippy::cast_possible_truncation, reason = "numbers are small")]

use std::error::Error;

use umbel_filter::{
    Blocked, Contains, Cuckoo, HashRange, Insert, ItemHash, ItemHasher, Remove, words,
};

const ITEM_COUNT: u64 = 100_000;
const REMOVED_COUNT: u64 = 10_000;

fn hash(number: u64) -> ItemHash {
    ItemHasher::Xxh3 { seed: 1 }.hash(&number.to_le_bytes())
}

fn main() -> Result<(), Box<dyn Error>> {
    let (items, removed) = (0..ITEM_COUNT, 0..REMOVED_COUNT);
    let mut inserted = Blocked::for_rate(HashRange::WHOLE, ITEM_COUNT, 0.01)?;
    let mut gone = Blocked::for_rate(HashRange::WHOLE, REMOVED_COUNT, 0.01)?;
    let mut table = Cuckoo::for_rate(HashRange::WHOLE, ITEM_COUNT, 0.01)?;
    // The universe is small here: these numbers.
    let mut bits = vec![0u64; ITEM_COUNT.div_ceil(64) as usize];
    for item in items.clone() {
        inserted.insert(hash(item))?;
        table.insert(hash(item))?;
        bits[item as usize / 64] |= 1 << (item % 64);
    }
    for item in removed {
        gone.insert(hash(item))?;
        table.remove(hash(item))?;
        bits[item as usize / 64] &= !(1 << (item % 64));
    }
    let two = |hash| inserted.contains(hash) && !gone.contains(hash);
    let there = || (REMOVED_COUNT..ITEM_COUNT).map(hash);
    let missed = there().filter(|hash| !two(*hash)).count();
    let missed_by_table = there().filter(|hash| !table.contains(*hash)).count();
    let kept = (0..REMOVED_COUNT).map(hash).filter(|hash| two(*hash)).count();
    let kept_by_table = (0..REMOVED_COUNT).map(hash).filter(|hash| table.contains(*hash)).count();
    let bytes = (inserted.words().len() + gone.words().len()) * 8;
    println!("                        bytes  missed of 90,000 there  present of 10,000 removed");
    println!("two blocked filters  {bytes:>8}  {missed:>22}  {kept:>25}");
    let table_bytes = table.words().len() * 8;
    println!("cuckoo filter        {table_bytes:>8}  {missed_by_table:>22}  {kept_by_table:>25}");
    println!("a bit a number       {:>8}  {:>22}  {:>25}", bits.len() * 8, 0, 0);
    assert_eq!((kept, missed_by_table), (0, 0));
    assert_eq!(words::count_ones(&bits), ITEM_COUNT - REMOVED_COUNT);
    // 1 % of 90,000, and five times 30.
    assert!((750..1050).contains(&missed));
    assert!(kept_by_table < 150);
    Ok(())
}

#[cfg(test)]
mod tests {
    #[test]
    fn figures_hold() {
        super::main().unwrap();
    }
}
