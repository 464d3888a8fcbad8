//! What a snapshot costs the writers of a shard: how long taking it lasts, how long the first insert into
//! each slice takes while the snapshot is held, and how much memory both take.
//!
//!     cargo run --release -p umbel-engine --example snapshot_pause 16 32
//!
//! The arguments are the number of filters and the MiB of each one's slice.

use filled_shard::{filled, insert, memory_mib, timed};

mod filled_shard;

fn main() {
    let mut numbers = std::env::args().skip(1).map(|text| text.parse().expect("a number"));
    let (filter_count, mib) = (numbers.next().unwrap_or(16_u64), numbers.next().unwrap_or(32_u64));
    let mut state = filled(filter_count, mib);
    let before = memory_mib("VmRSS");
    let (mut snapshot, took_ms) = timed(|| state.snapshot());
    let held = memory_mib("VmRSS");
    println!("{filter_count} slices of {mib} MiB: resident {before} MiB");
    println!("snapshot           {took_ms:8.2} ms, resident {held} MiB");
    let mut slowest_ms = 0.0_f64;
    for filter in 1..=filter_count {
        let ((), took_ms) = timed(|| insert(&mut state, filter, 1 << 40..(1 << 40) + 10));
        slowest_ms = slowest_ms.max(took_ms);
    }
    let written = memory_mib("VmRSS");
    println!(
        "slowest insert     {slowest_ms:8.2} ms, resident {written} MiB when all were written"
    );
    while let Some(slice) = snapshot.take_slice() {
        drop(slice);
    }
    println!("let go of                       resident {} MiB", memory_mib("VmRSS"));
}
