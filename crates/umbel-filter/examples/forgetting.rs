//! What filters that forget cost beside each other: a window of slices, aging and stable filters.
//!
//! Each keeps a million items at least and takes ten million different ones; the window turns its 24 slices
//! so that they hold a million, beside the one that ends. A row says, once each is full:
//!
//! * bits an item, and the share of a million strangers that is present;
//! * the share missing of those that came last one, half and a tenth of a million items ago, and the
//!   share present of those that came three million ago;
//! * nanoseconds an insert and a question, in batches of 1,024 and one by one, half of the asked present;
//! * the longest batch of 1,024 inserts, in milliseconds: an aging filter that turns over.
//!
//! `cargo run --release -p umbel-filter --example forgetting`

use std::hint::black_box;
use std::time::Instant;

use umbel_filter::{
    Aging, Contains, Describe, HashRange, Insert, Insertion, ItemHash, ItemHasher, Sighting,
    Stable, Window,
};

const ITEMS: u64 = 1_000_000;
const INSERTED: u64 = 10 * ITEMS;
const BATCH_LEN: u64 = 1_000;
const SLICES: u64 = 24;
const STRANGERS: u64 = 1_000_000;
const ASKED: u64 = 200_000;

fn main() {
    println!(
        "{:>7} {:>7} {:>6} {:>9} {:>9} {:>9} {:>9} {:>9} {:>7} {:>7} {:>7} {:>7} {:>7}",
        "rate",
        "kind",
        "bits",
        "strangers",
        "1.0 M",
        "0.5 M",
        "0.1 M",
        "after 3M",
        "insert",
        "one",
        "ask",
        "one",
        "longest"
    );
    for rate in [0.01, 0.001, 0.000_1] {
        let whole = HashRange::WHOLE;
        // The slice that ends beside those of the last million.
        let held = ITEMS / SLICES * (SLICES + 1);
        let window = WindowOfItems(Window::for_rate(whole, held, rate).expect("a window"));
        measure("window", rate, window);
        measure("aging", rate, Aging::for_rate(whole, ITEMS, rate).expect("a filter"));
        measure("stable", rate, Stable::for_rate(whole, ITEMS, rate).expect("a filter"));
    }
}

fn item(number: u64) -> ItemHash {
    ItemHasher::Xxh3 { seed: 7 }.hash(&number.to_le_bytes())
}

/// What is measured of a kind.
trait Forgets: Contains + Insert + Describe {
    /// Says how many items have come.
    fn turn(&mut self, _item_count: u64) {}
}

impl Forgets for Aging {}
impl Forgets for Stable {}

/// A window whose clock is the number of items: with the slice at hand it holds what it was made for.
struct WindowOfItems(Window);

impl Contains for WindowOfItems {
    fn contains(&self, hash: ItemHash) -> bool {
        self.0.contains(hash)
    }

    fn contains_batch(&self, hashes: &[ItemHash], present: &mut Vec<bool>) {
        self.0.contains_batch(hashes, present);
    }
}

impl Insert for WindowOfItems {
    fn insert(&mut self, hash: ItemHash) -> Result<Insertion, umbel_filter::InsertError> {
        self.0.insert_at(hash, self.0.newest(), Sighting::Last)
    }

    fn insert_batch(
        &mut self,
        hashes: &[ItemHash],
        outcomes: &mut Vec<Insertion>,
    ) -> Result<(), umbel_filter::InsertError> {
        self.0.insert_batch_at(hashes, self.0.newest(), Sighting::Last, outcomes)
    }
}

impl Describe for WindowOfItems {
    fn shape(&self) -> umbel_filter::Shape {
        self.0.shape()
    }

    fn describe(&self) -> umbel_filter::Description {
        self.0.describe()
    }
}

impl Forgets for WindowOfItems {
    fn turn(&mut self, item_count: u64) {
        let newest = item_count * SLICES / ITEMS;
        self.0.advance(newest.saturating_sub(SLICES), newest);
    }
}

fn hashes(numbers: std::ops::Range<u64>) -> Vec<ItemHash> {
    numbers.map(item).collect()
}

/// Share of present ones.
fn present(filter: &impl Contains, numbers: std::ops::Range<u64>) -> f64 {
    let count = numbers.end - numbers.start;
    numbers.filter(|&number| filter.contains(item(number))).count() as f64 / count as f64
}

#[expect(clippy::disallowed_methods, reason = "a measurement takes the time")]
fn measure(kind: &str, rate: f64, mut filter: impl Forgets) {
    let (mut outcomes, mut spent, mut longest) = (Vec::new(), 0.0, 0.0_f64);
    for batch in 0..INSERTED / BATCH_LEN {
        let items = hashes(batch * BATCH_LEN..(batch + 1) * BATCH_LEN);
        let start = Instant::now();
        filter.turn(batch * BATCH_LEN);
        filter.insert_batch(&items, &mut outcomes).expect("room for them");
        let seconds = start.elapsed().as_secs_f64();
        (spent, longest) = (spent + seconds, longest.max(seconds));
    }
    // Of the oldest that are promised: those that came just within the distance.
    let missing = |filter: &_, ago: u64| {
        let from = INSERTED - ago;
        1.0 - present(filter, from..from + ITEMS / 100)
    };
    let missed = [ITEMS, ITEMS / 2, ITEMS / 10].map(|ago| missing(&filter, ago));
    let strangers = present(&filter, 1 << 40..(1 << 40) + STRANGERS);
    let after = present(&filter, INSERTED - 3 * ITEMS..INSERTED - 3 * ITEMS + ITEMS / 100);
    let asked: Vec<ItemHash> = (0..ASKED)
        .map(|at| item(if at % 2 == 0 { INSERTED - 1 - at } else { 1 << 41 | at }))
        .collect();
    let mut answers = Vec::new();
    let start = Instant::now();
    for batch in asked.chunks(1_024) {
        filter.contains_batch(batch, &mut answers);
        black_box(&answers);
    }
    let ask_batch = start.elapsed().as_secs_f64() / ASKED as f64;
    let start = Instant::now();
    black_box(asked.iter().filter(|&&hash| filter.contains(hash)).count());
    let ask_one = start.elapsed().as_secs_f64() / ASKED as f64;
    let items = hashes(INSERTED..INSERTED + ITEMS / 50);
    let start = Instant::now();
    for &hash in &items {
        black_box(filter.insert(hash).is_ok());
    }
    let insert_one = start.elapsed().as_secs_f64() / items.len() as f64;
    let bits = filter.describe().memory_bytes as f64 * 8.0 / ITEMS as f64;
    let ns = |seconds: f64| 1e9 * seconds;
    println!(
        "{rate:>7} {kind:>7} {bits:>6.1} {strangers:>9.6} {:>9.6} {:>9.6} {:>9.6} {after:>9.6} \
         {:>7.1} {:>7.1} {:>7.1} {:>7.1} {:>7.2}",
        missed[0],
        missed[1],
        missed[2],
        ns(spent / INSERTED as f64),
        ns(insert_one),
        ns(ask_batch),
        ns(ask_one),
        1e3 * longest
    );
}
