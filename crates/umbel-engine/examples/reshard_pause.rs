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

use umbel_engine::shard::{ShardCommand, ShardReply, ShardState};
use umbel_engine::{Epoch, FilterId, GroupId, ShardId};

use filled_shard::{filled, memory_mib, timed};

mod filled_shard;

const SPLIT: ShardCommand = ShardCommand::Split { into: ShardId(1), at: 1 << 63 };

/// Index of the entry that ends the upper shard.
const FENCE_INDEX: u64 = 7;

fn main() {
    let mut numbers = std::env::args().skip(1).map(|text| text.parse().expect("a number"));
    let (filter_count, mib) = (numbers.next().unwrap_or(8_u64), numbers.next().unwrap_or(128_u64));
    println!("{filter_count} slices of {mib} MiB");
    for way in [Way::Held, Way::Aside] {
        let whole = filled(filter_count, mib);
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
