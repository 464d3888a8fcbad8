//! How often the types that are tables or count call items present that were never inserted, beside their formulas.
//!
//! Each is made for so many items at a rate, gets as many, and is asked about ten million others. A quotient filter has then grown
//! once, and gets as many again. Ends with 1 if a rate is further from its formula than a tenth of it, and than five
//! standard errors. Filters of 10^8 items take up to 0.8 GB.
//!
//! `cargo run --release -p umbel-filter --example rates`

use std::ops::Range;
use std::process::ExitCode;

use umbel_filter::sizing::variable_counting_blocked_rate;
use umbel_filter::{
    Contains, Cuckoo, DLeft, HashRange, Insert, ItemHash, ItemHasher, Join, Lattice, Quotient,
    VariableCounting,
};

const ITEM_COUNTS: [u64; 3] = [1_000_000, 10_000_000, 100_000_000];

const RATES: [f64; 2] = [0.01, 0.001];

/// Items that each filter is asked about and does not have.
const PROBE_COUNT: u64 = 10_000_000;

/// Numbers of the items that are asked about; those that are inserted are counted from 0.
const FIRST_PROBE: u64 = 1 << 40;

const BATCH_LEN: usize = 4096;

/// Increments of the counting filter, L to 2L − 1.
const BASE: u8 = 8;

const WHOLE: HashRange = HashRange::WHOLE;

/// How often a filter was wrong, and how often it should have been.
struct Measured {
    name: &'static str,
    item_count: u64,
    memory_bytes: u64,
    formula: f64,
    present_count: u64,
}

fn main() -> ExitCode {
    println!("| type | items | bits an item | formula | measured | of it | standard errors |");
    println!("|---|--:|--:|--:|--:|--:|--:|");
    let mut is_near = true;
    for count in ITEM_COUNTS {
        for rate in RATES {
            is_near &= show(&cuckoo(count, rate));
            for measured in quotient(count, rate) {
                is_near &= show(&measured);
            }
            is_near &= show(&d_left(count, rate));
            is_near &= show(&variable_counting(count, rate));
            is_near &= show(&lattice(count, rate));
        }
    }
    if is_near { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

fn cuckoo(count: u64, rate: f64) -> Measured {
    let mut filter = Cuckoo::for_rate(WHOLE, count, rate).expect("a filter");
    insert(&mut filter, 0..count);
    let shape = filter.block_shape();
    let (memory_bytes, formula) = (shape.memory_bytes(), shape.false_positive_rate(count));
    let present_count = count_present(&filter);
    Measured { name: "Cuckoo", item_count: count, memory_bytes, formula, present_count }
}

/// As it was made, and grown, with twice the items.
fn quotient(count: u64, rate: f64) -> [Measured; 2] {
    let mut filter = Quotient::for_rate(WHOLE, count, rate).expect("a filter");
    [("Quotient", 0..count), ("Quotient, grown once", count..2 * count)].map(|(name, numbers)| {
        if numbers.start > 0 {
            filter.grow().expect("remainders of several bits");
        }
        let item_count = numbers.end;
        insert(&mut filter, numbers);
        let shape = filter.block_shape();
        let formula = shape.false_positive_rate(item_count);
        let (memory_bytes, present_count) = (shape.memory_bytes(), count_present(&filter));
        Measured { name, item_count, memory_bytes, formula, present_count }
    })
}

fn d_left(count: u64, rate: f64) -> Measured {
    let mut filter = DLeft::for_rate(WHOLE, count, rate).expect("a filter");
    insert(&mut filter, 0..count);
    let (memory_bytes, formula) = (filter.memory_bytes(), filter.false_positive_rate());
    let present_count = count_present(&filter);
    Measured { name: "DLeft", item_count: count, memory_bytes, formula, present_count }
}

fn variable_counting(count: u64, rate: f64) -> Measured {
    let mut filter = VariableCounting::for_rate(WHOLE, count, rate, BASE).expect("a filter");
    insert(&mut filter, 0..count);
    let (blocks, probes) =
        (filter.block_shape().map().block_count(), filter.block_shape().probe_count());
    let formula = variable_counting_blocked_rate(blocks, probes, BASE, count).expect("a shape");
    let memory_bytes = filter.words().len() as u64 * 8;
    let present_count = count_present(&filter);
    Measured { name: "VariableCounting", item_count: count, memory_bytes, formula, present_count }
}

fn lattice(count: u64, rate: f64) -> Measured {
    let mut filter = Lattice::for_rate(Join::Max, WHOLE, count, rate).expect("a filter");
    for hash in batches(0..count).flatten() {
        filter.raise(hash, 1).expect("the whole range");
    }
    let shape = filter.block_shape();
    let (memory_bytes, formula) = (shape.memory_bytes(), shape.false_positive_rate(count));
    let present_count = count_present(&filter);
    Measured { name: "Lattice", item_count: count, memory_bytes, formula, present_count }
}

fn batches(numbers: Range<u64>) -> impl Iterator<Item = Vec<ItemHash>> {
    let hasher = ItemHasher::Xxh3 { seed: 7 };
    numbers.clone().step_by(BATCH_LEN).map(move |first| {
        let batch = first..(first + BATCH_LEN as u64).min(numbers.end);
        batch.map(|number| hasher.hash(&number.to_le_bytes())).collect()
    })
}

fn insert(filter: &mut impl Insert, numbers: Range<u64>) {
    let mut outcomes = Vec::new();
    for batch in batches(numbers) {
        filter.insert_batch(&batch, &mut outcomes).expect("as many as it was made for");
    }
}

fn count_present(filter: &impl Contains) -> u64 {
    let mut present = Vec::new();
    let counts = batches(FIRST_PROBE..FIRST_PROBE + PROBE_COUNT).map(|batch| {
        filter.contains_batch(&batch, &mut present);
        present.iter().map(|&is_present| u64::from(is_present)).sum::<u64>()
    });
    counts.sum()
}

/// Prints a row; whether the rate is near its formula.
fn show(measured: &Measured) -> bool {
    let Measured { name, item_count, memory_bytes, formula, present_count } = *measured;
    let probes = PROBE_COUNT as f64;
    let rate = present_count as f64 / probes;
    let standard_error = (formula * (1.0 - formula) / probes).sqrt();
    let (off, errors) = (rate / formula, (rate - formula) / standard_error);
    let bits = memory_bytes as f64 * 8.0 / item_count as f64;
    println!(
        "| {name} | {item_count} | {bits:.2} | {:.4} % | {:.4} % | {off:.3} | {errors:+.1} |",
        100.0 * formula,
        100.0 * rate
    );
    (off - 1.0).abs() <= 0.1 || errors.abs() <= 5.0
}
