//! The second request goes into the cache: what a filter before a cache saves, beside plain LRU and TinyLFU.
//!
//! Most objects are asked for once and never again. A cache that keeps each of them writes it, and throws another one
//! out for nothing. Here a filter is asked for every object that the cache lacks, and keeps it: *new* means that the
//! object goes past the cache, *present* that it was asked for lately and is worth a place (Maggs & Sitaraman 2015,
//! doi:10.1145/2805789.2805800, measured it in front of the disks of a content delivery network).
//!
//! Two traces of two million requests, from a seed, for a million objects of 4 KiB whose popularity is
//! Zipf's: object r of the ranking is asked for in proportion to r^−0.9. In the first the ranking stays. In the
//! second it moves: every 10,000 requests the 100 most popular objects are out of it, and all others
//! move up. All caches have the same memory, 64 MiB with the filter's or sketch's bytes in it; what a cache
//! keeps of an object beside its body is not counted.
//!
//! `cargo run --release -p umbel-filter --example admission`

mod caches;
mod trace;

use umbel_filter::{CreateError, ItemHash, ItemHasher};

use caches::{Aged, Cache, InWindow, Lru, SecondRequest, TinyLfu};
use trace::Trace;

const OBJECT_BYTES: u64 = 4_096;
const FALSE_POSITIVE_RATE: f64 = 0.01;
/// A filter remembers so many times the objects that fit into the cache.
const REMEMBERED: u64 = 4;

/// What is compared on a trace.
#[derive(Clone, Copy)]
struct Setting {
    object_count: u64,
    request_count: u64,
    /// Bytes of the cache and what stands before it.
    memory_bytes: u64,
}

const WHOLE: Setting =
    Setting { object_count: 1_000_000, request_count: 2_000_000, memory_bytes: 64 << 20 };

/// How a cache did on a trace.
struct Outcome {
    name: &'static str,
    hit_count: u64,
    written_bytes: u64,
    /// Of the filter or sketch, in the memory of all.
    filter_bytes: u64,
}

fn main() -> Result<(), CreateError> {
    for (trace, moved) in [("ranking stays", 0), ("ranking moves", 100)] {
        println!("{trace:<24} {:>9} {:>12} {:>13}", "hit rate", "written, MiB", "of filter, KiB");
        for outcome in compare(WHOLE, moved)? {
            println!(
                "{:<24} {:>7.2} % {:>12.0} {:>13.0}",
                outcome.name,
                100.0 * outcome.hit_count as f64 / WHOLE.request_count as f64,
                outcome.written_bytes as f64 / f64::from(1 << 20),
                outcome.filter_bytes as f64 / 1_024.0,
            );
        }
    }
    Ok(())
}

/// All caches on one trace.
fn compare(setting: Setting, moved: u64) -> Result<Vec<Outcome>, CreateError> {
    let remembered = REMEMBERED * (setting.memory_bytes / OBJECT_BYTES);
    let room = |filter_bytes: u64| (setting.memory_bytes - filter_bytes) / OBJECT_BYTES;
    let aged = Aged::new(remembered, FALSE_POSITIVE_RATE)?;
    let aged_bytes = aged.memory_bytes();
    let window = InWindow::new(remembered, FALSE_POSITIVE_RATE)?;
    let window_bytes = window.memory_bytes();
    let sketch_bytes = TinyLfu::sketch_bytes(room(0));
    Ok(vec![
        run("LRU", setting, moved, 0, Lru::new(room(0))),
        run("aging filter, LRU", setting, moved, aged_bytes, {
            SecondRequest::new(aged, room(aged_bytes))
        }),
        run("window, LRU", setting, moved, window_bytes, {
            SecondRequest::new(window, room(window_bytes))
        }),
        run("TinyLFU", setting, moved, sketch_bytes, TinyLfu::new(room(sketch_bytes))),
    ])
}

fn run(
    name: &'static str,
    setting: Setting,
    moved: u64,
    filter_bytes: u64,
    mut cache: impl Cache,
) -> Outcome {
    let mut outcome = Outcome { name, hit_count: 0, written_bytes: 0, filter_bytes };
    for object in Trace::new(setting.object_count, moved).requests(setting.request_count) {
        match cache.request(object) {
            Request::Hit => outcome.hit_count += 1,
            Request::Written => outcome.written_bytes += OBJECT_BYTES,
            Request::Passed => {}
        }
    }
    outcome
}

/// What became of a request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Request {
    /// It was in the cache.
    Hit,
    /// It was fetched, and is in the cache now.
    Written,
    /// It was fetched, and went past the cache.
    Passed,
}

fn hash(object: u64) -> ItemHash {
    ItemHasher::Xxh3 { seed: 7 }.hash(&object.to_le_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;

    const SMALL: Setting =
        Setting { object_count: 50_000, request_count: 100_000, memory_bytes: 4 << 20 };

    fn outcomes(moved: u64) -> [Outcome; 4] {
        let outcomes = compare(SMALL, moved).unwrap();
        outcomes.try_into().unwrap_or_else(|_| panic!("four caches"))
    }

    /// On either trace the filter hits more often than plain LRU, and writes less than half.
    #[test]
    fn a_filter_hits_more_and_writes_less() {
        for moved in [0, 100] {
            let [lru, aged, window, _] = outcomes(moved);
            for filtered in [aged, window] {
                let name = filtered.name;
                assert!(filtered.hit_count > lru.hit_count, "{name}, {moved}");
                assert!(2 * filtered.written_bytes < lru.written_bytes, "{name}, {moved}");
                assert!(filtered.filter_bytes > 0 && lru.filter_bytes == 0);
            }
        }
    }

    /// What counts how often objects are asked for hits most while the ranking stays, and loses more than the
    /// others when it moves.
    #[test]
    fn counts_win_while_the_ranking_stays() {
        let [_, aged, window, counted] = outcomes(0);
        assert!(counted.hit_count > aged.hit_count.max(window.hit_count));
        assert!(counted.written_bytes < aged.written_bytes.min(window.written_bytes));
        let [_, aged_moved, _, counted_moved] = outcomes(100);
        let lost = |stays: &Outcome, moves: &Outcome| stays.hit_count - moves.hit_count;
        assert!(lost(&counted, &counted_moved) > lost(&aged, &aged_moved));
    }

    #[test]
    fn the_second_request_is_kept_and_the_third_hits() {
        let filter = Aged::new(100, FALSE_POSITIVE_RATE).unwrap();
        let mut cache = SecondRequest::new(filter, 1);
        let became = [1, 1, 1, 2, 2, 2, 1].map(|object| cache.request(object));
        use Request::{Hit, Passed, Written};
        assert_eq!(became, [Passed, Written, Hit, Passed, Written, Hit, Written]);
    }
}
