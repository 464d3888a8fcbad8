//! What a question to an index of many sets costs, beside one to a filter a set.
//!
//! A thousand sets whose sizes differ by up to a hundred times; a question is one item of one of them, or a hundred
//! items of one of them with a share of 0.8. A row says bits an item, how long building takes an item, how many questions a
//! second one thread answers, and the same of as many classic filters that are asked one by one. It fails if the two
//! name other sets.
//!
//! `cargo run --release -p umbel-static --example sliced_speed [MEAN_ITEMS]`

#![allow(clippy::cast_possible_truncation, reason = "numbers are small")]

use std::time::Instant;

use umbel_codec::FrameKey;
use umbel_filter::{Classic, Contains, HashFunction, ItemHash, ItemHasher};
use umbel_static::sliced::{SlicedFile, SlicedShape, build_sliced};

const SET_COUNT: u64 = 1000;
const QUESTION_COUNT: u64 = 2000;
const ITEMS_OF_A_GENE: u64 = 100;

fn main() {
    let mean =
        std::env::args().nth(1).map_or(10_000, |mean| mean.parse().expect("a number of items"));
    println!("{SET_COUNT} sets of {mean} items in the mean");
    println!(
        "  k  rate  groups  bits/item  build ns/item  asked/s  of filters  shares/s  of filters"
    );
    for (probe_count, rate) in [(1, 0.3), (3, 0.01), (4, 0.001)] {
        measure(mean, probe_count, rate);
    }
}

fn hash(set: u64, item: u64) -> ItemHash {
    let bytes = (u128::from(set) << 64 | u128::from(item)).to_le_bytes();
    ItemHasher::Xxh3 { seed: 0 }.hash(&bytes)
}

/// By equal ratios up to a hundred times the least, scaled so that the mean is met: (10 − 0.1) / ln 100 is 2.15.
fn size(set: u64, mean: u64) -> u64 {
    let place = set as f64 / (SET_COUNT - 1) as f64;
    (mean as f64 * 100f64.powf(place) / 10.0 / 2.15) as u64 + ITEMS_OF_A_GENE
}

fn measure(mean: u64, probe_count: u32, rate: f64) {
    let key = FrameKey { function: HashFunction::Xxh3Seeded, key_id: 0 };
    let shape = SlicedShape::new(key, probe_count, rate).expect("within limits");
    let sets: Vec<(String, Vec<ItemHash>)> = (0..SET_COUNT)
        .map(|set| (set.to_string(), (0..size(set, mean)).map(|item| hash(set, item)).collect()))
        .collect();
    let item_count: usize = sets.iter().map(|(_, hashes)| hashes.len()).sum();
    let (bytes, build) = timed(|| build_sliced(&shape, sets).expect("few items"));
    let bits = bytes.len() as f64 * 8.0 / item_count as f64;
    let file = SlicedFile::parse(bytes).expect("as it was built");
    let filter = |set| file.filter(set).expect("memory for it").expect("it is there");
    let filters: Vec<Classic> = (0..SET_COUNT as usize).map(filter).collect();

    let asked: Vec<ItemHash> =
        (0..QUESTION_COUNT).map(|at| hash(at * 7 % SET_COUNT, at % ITEMS_OF_A_GENE)).collect();
    let ask = |hash: &ItemHash| file.sets_with(*hash);
    let ask_all = |hash: &ItemHash| -> Vec<usize> {
        (0..filters.len()).filter(|set| filters[*set].contains(*hash)).collect()
    };
    let (ours, sliced) = timed(|| asked.iter().map(ask).collect::<Vec<_>>());
    let (theirs, alone) = timed(|| asked.iter().map(ask_all).collect::<Vec<_>>());
    assert_eq!(ours, theirs);

    let genes: Vec<Vec<ItemHash>> = (0..QUESTION_COUNT / 20)
        .map(|at| (0..ITEMS_OF_A_GENE).map(|item| hash(at * 7 % SET_COUNT, item)).collect())
        .collect();
    let share = |gene: &Vec<ItemHash>| -> Vec<usize> {
        let counts = file.counts(gene);
        (0..counts.len()).filter(|set| counts[*set] >= 80).collect()
    };
    let share_all = |gene: &Vec<ItemHash>| -> Vec<usize> {
        let count = |set: usize| gene.iter().filter(|hash| filters[set].contains(**hash)).count();
        (0..filters.len()).filter(|set| count(*set) >= 80).collect()
    };
    let (ours, shares) = timed(|| genes.iter().map(share).collect::<Vec<_>>());
    let (theirs, shares_alone) = timed(|| genes.iter().map(share_all).collect::<Vec<_>>());
    assert_eq!(ours, theirs);
    assert!(ours.iter().zip(0..).all(|(found, at)| found.contains(&((at * 7) % 1000))));
    println!(
        "  {probe_count}  {rate:5} {:6}  {bits:9.2}  {:13.1}  {:7.0}  {:10.0}  {:8.0}  {:10.0}",
        file.head().groups().len(),
        build * 1e9 / item_count as f64,
        asked.len() as f64 / sliced,
        asked.len() as f64 / alone,
        genes.len() as f64 / shares,
        genes.len() as f64 / shares_alone,
    );
}

/// What a closure returns, and how many seconds it took.
fn timed<T>(work: impl FnOnce() -> T) -> (T, f64) {
    #[expect(clippy::disallowed_methods, reason = "it measures")]
    let start = Instant::now();
    (work(), start.elapsed().as_secs_f64())
}
