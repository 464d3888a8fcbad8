//! How long readers of a shard wait for one entry: one that splits the shard, and one by which it absorbs the
//! shard that was split off.
//!
//!     cargo run --release -p umbel-engine --example reshard_pause 8 128
//!
//! The arguments are the number of filters and the MiB of each one's slice. The state is behind a lock, as a
//! node's replica has it. Each entry is applied twice: to the state, while the lock is held, and aside, to a
//! copy that then takes the place of the state, as a replica does it.

use std::sync::RwLock;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use umbel_engine::shard::{
    HashList, InsertPart, KeyName, PreparedInsert, ShardCommand, ShardReply, ShardState,
    SliceGrowth, SliceShape, SliceSpec,
};
use umbel_engine::{Epoch, FilterId, Generation, GroupId, ShardId};
use umbel_filter::{HashFunction, HashRange, ItemHasher, Kind};

const GENERATION: Generation = Generation(1);

const SPLIT: ShardCommand = ShardCommand::Split { into: ShardId(1), at: 1 << 63 };

/// Index of the entry that ends the upper shard.
const FENCE_INDEX: u64 = 7;

fn main() {
    let mut numbers = std::env::args().skip(1).map(|text| text.parse().expect("a number"));
    let (filter_count, mib) = (numbers.next().unwrap_or(8_u64), numbers.next().unwrap_or(128_u64));
    println!("{filter_count} slices of {mib} MiB");
    for way in [Way::Held, Way::Aside] {
        let whole = full(filter_count, mib);
        let mut upper = whole.upper_half(&SPLIT).expect("it can be split").expect("it is not yet");
        let shard = RwLock::new(whole);
        measure("split", way, &shard, |state| state.apply_at(1, &SPLIT));
        let [into, from] = [0, 1].map(|shard| GroupId::of_shard(ShardId(shard)));
        upper.apply_at(FENCE_INDEX, &ShardCommand::Fence { into, since: Epoch(3) });
        measure("merge", way, &shard, |state| state.absorb(2, from, upper));
    }
}

/// How an entry is applied.
#[derive(Clone, Copy)]
enum Way {
    /// To the state, while the lock is held.
    Held,
    /// To a copy.
    Aside,
}

/// Applies an entry while another thread reads the state without a pause.
fn measure(
    name: &str,
    way: Way,
    shard: &RwLock<ShardState>,
    change: impl FnOnce(&mut ShardState) -> ShardReply,
) {
    // Starts a high-water mark anew; without the right to, it stays what it was.
    let _ = std::fs::write("/proc/self/clear_refs", "5");
    let before_mib = memory_mib("VmRSS");
    let (is_read, is_over) = (AtomicBool::new(false), AtomicBool::new(false));
    let (took_ms, held_ms, slowest_ms) = std::thread::scope(|scope| {
        let reader = scope.spawn(|| {
            let mut slowest_ms = 0.0_f64;
            while !is_over.load(Ordering::Relaxed) {
                let read = || shard.read().expect("no holder panics").summary(FilterId(1));
                let (summary, waited_ms) = timed(read);
                assert!(summary.is_some());
                slowest_ms = slowest_ms.max(waited_ms);
                is_read.store(true, Ordering::Relaxed);
            }
            slowest_ms
        });
        while !is_read.load(Ordering::Relaxed) {
            std::hint::spin_loop();
        }
        let ((reply, held_ms), took_ms) = timed(|| apply(way, shard, change));
        assert_eq!(reply, ShardReply::Done(Ok(())));
        is_over.store(true, Ordering::Relaxed);
        (took_ms, held_ms, reader.join().expect("it does not panic"))
    });
    let way = match way {
        Way::Held => "in place",
        Way::Aside => "aside",
    };
    println!(
        "{name}, {way:<8} {took_ms:8.2} ms, lock held {held_ms:8.3} ms, slowest read {slowest_ms:8.2} ms, resident \
         {before_mib} MiB before, {} MiB at most, {} MiB after",
        memory_mib("VmHWM"),
        memory_mib("VmRSS")
    );
}

/// The reply, and for how many milliseconds readers were kept out.
fn apply(
    way: Way,
    shard: &RwLock<ShardState>,
    change: impl FnOnce(&mut ShardState) -> ShardReply,
) -> (ShardReply, f64) {
    match way {
        Way::Held => {
            let mut state = shard.write().expect("no holder panics");
            timed(|| change(&mut state))
        }
        Way::Aside => {
            let mut state = shard.read().expect("no holder panics").clone();
            let reply = change(&mut state);
            let mut place = shard.write().expect("no holder panics");
            let (before, held_ms) = timed(|| std::mem::replace(&mut *place, state));
            drop(place);
            drop(before);
            (reply, held_ms)
        }
    }
}

/// A shard of the whole hash range, with slices all of whose pages are resident.
fn full(filter_count: u64, mib: u64) -> ShardState {
    let mut state = ShardState::new(ShardId(0), HashRange::WHOLE);
    for filter in 1..=filter_count {
        let shape = SliceShape::Blocks {
            kind: Kind::Blocked.id(),
            block_count: mib << 14,
            block_bits: 512,
            probe_count: 6,
        };
        let key = KeyName { function: HashFunction::Xxh3Seeded.id(), key_id: 7 };
        let spec = SliceSpec { filter: FilterId(filter), generation: GENERATION, shape, key };
        state.apply(&ShardCommand::CreateSlice(spec));
        insert(&mut state, filter, 0..mib << 12);
    }
    state
}

fn insert(state: &mut ShardState, filter: u64, items: std::ops::Range<u64>) {
    let hasher = ItemHasher::Xxh3 { seed: 7 };
    let hashes: Vec<_> = items.map(|item| hasher.hash(&item.to_le_bytes())).collect();
    for hashes in hashes.chunks(1 << 14) {
        let hashes = HashList::from_hashes(hashes);
        let (filter, growth) = (FilterId(filter), SliceGrowth::ANY);
        let prepared = state.prepare_insert(filter, GENERATION, None, hashes, growth);
        let part: InsertPart = match prepared.expect("the slice is there") {
            PreparedInsert::Propose(part) => part,
            other => panic!("{other:?}"),
        };
        state.apply(&ShardCommand::Insert(vec![part]));
    }
}

#[expect(clippy::disallowed_methods, reason = "a measurement of time")]
fn timed<T>(work: impl FnOnce() -> T) -> (T, f64) {
    let began = Instant::now();
    let done = work();
    (done, began.elapsed().as_secs_f64() * 1e3)
}

/// A line of `/proc/self/status` on Linux, in MiB; 0 elsewhere.
fn memory_mib(name: &str) -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
    let kib = line.and_then(|line| line.split_whitespace().next()?.parse::<u64>().ok());
    kib.unwrap_or(0) >> 10
}
