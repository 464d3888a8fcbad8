//! A filter before each table: what guards save a store of sorted tables that never change, as Bigtable, HBase and Cassandra have
//! them.
//!
//! A question goes from the newest table to the oldest until one has the key; each is a read of a disk. A static filter of each
//! table's keys, in memory, says which need no read. For a key that is nowhere that is all but one in 1,024 of them; for
//! one that is there all but its own (Chang et al. 2006, OSDI; Monkey gives large tables fewer bits: Dayan et al. 2017,
//! doi:10.1145/3035918.3064054).
//!
//! `cargo run --release -p umbel-static --example guard`

use std::collections::BTreeSet;
use std::error::Error;

use umbel_codec::FrameKey;
use umbel_filter::{HashFunction, ItemHash, ItemHasher};
use umbel_static::{StaticFile, build_filter};

const TABLE_COUNT: u64 = 16;
const KEYS_OF_A_TABLE: u64 = 2_000;
const QUESTION_COUNT: u64 = 20_000;

fn hash(key: u64) -> ItemHash {
    ItemHasher::Xxh3 { seed: 0 }.hash(&key.to_le_bytes())
}

struct Table {
    /// On disk.
    keys: BTreeSet<u64>,
    /// In memory.
    guard: StaticFile<Vec<u8>>,
}

/// Reads until a key is found, the newest table first, and whether it was.
fn reads(tables: &[Table], key: u64, is_guarded: bool) -> (u64, bool) {
    let mut reads = 0;
    for table in tables {
        if is_guarded && !table.guard.contains(hash(key)) {
            continue;
        }
        reads += 1;
        if table.keys.contains(&key) {
            return (reads, true);
        }
    }
    (reads, false)
}

fn main() -> Result<(), Box<dyn Error>> {
    let key = FrameKey { function: HashFunction::Xxh3Seeded, key_id: 0 };
    let tables = (0..TABLE_COUNT)
        .map(|table| {
            let keys: BTreeSet<u64> =
                (0..KEYS_OF_A_TABLE).map(|at| at * TABLE_COUNT + table).collect();
            let guard = build_filter(keys.iter().map(|key| hash(*key)).collect(), 10, key)?;
            Ok(Table { keys, guard: StaticFile::parse(guard)? })
        })
        .collect::<Result<Vec<Table>, Box<dyn Error>>>()?;
    let bytes: usize = tables.iter().map(|table| table.guard.as_bytes().len()).sum();
    let keys = TABLE_COUNT * KEYS_OF_A_TABLE;
    println!(
        "{TABLE_COUNT} tables of {KEYS_OF_A_TABLE} keys, guards of {:.1} bits a key",
        bytes as f64 * 8.0 / keys as f64
    );
    println!("reads a question   without guards   with guards");
    let mean = |questions: std::ops::Range<u64>, is_guarded: bool, is_there: bool| {
        let count = questions.end - questions.start;
        let reads = questions.map(|key| reads(&tables, key, is_guarded)).map(|(reads, found)| {
            assert_eq!(found, is_there);
            reads
        });
        reads.sum::<u64>() as f64 / count as f64
    };
    for (name, questions, is_there) in [
        ("keys that are there", 0..QUESTION_COUNT, true),
        ("keys that are nowhere", keys..keys + QUESTION_COUNT, false),
    ] {
        let [without, with] = [false, true].map(|g| mean(questions.clone(), g, is_there));
        println!("{name:<22} {without:>10.3} {with:>13.3}");
        // 16 tables err with 1/1,024 each: 0.0156, and five times 0.0009.
        let least = f64::from(u8::from(is_there));
        assert!(without > 8.0 && (least..least + 0.0156 + 0.0045).contains(&with));
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
