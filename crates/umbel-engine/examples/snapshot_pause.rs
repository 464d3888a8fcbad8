//! What a snapshot costs a shard that shares its slices with it, as those of kinds are shared whose changes are not kept
//! position by position: how long taking it lasts, how long the first insert into each slice takes while the snapshot is
//! held, and how much memory both take. The last line is of inserts before which a slice is copied aside, as a replica
//! does it: only the rest of them keeps readers waiting.
//!
//!     cargo run --release -p umbel-engine --example snapshot_pause 16 32
//!
//! The arguments are the number of filters and the MiB of each one's slice.

use umbel_engine::shard::{ShardSnapshot, SharedSlice};

use filled_shard::{filled, insert, insert_command, memory_mib, timed};

mod filled_shard;

fn main() {
    let mut numbers = std::env::args().skip(1).map(|text| text.parse().expect("a number"));
    let (filter_count, mib) = (numbers.next().unwrap_or(16_u64), numbers.next().unwrap_or(32_u64));
    let mut state = filled(filter_count, mib);
    let before = memory_mib("VmRSS");
    let (snapshot, took_ms) = timed(|| state.snapshot());
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
    let_go(snapshot);
    println!("let go of                       resident {} MiB", memory_mib("VmRSS"));
    let snapshot = state.snapshot();
    let (mut copied_ms, mut slowest_ms) = (0.0_f64, 0.0_f64);
    for filter in 1..=filter_count {
        let insert = insert_command(&state, filter, 1 << 41..(1 << 41) + 10);
        let copy_shared = || state.shared_slices(&insert).into_iter().map(SharedSlice::copy);
        let (copies, took_ms) = timed(|| copy_shared().collect());
        copied_ms = copied_ms.max(took_ms);
        let ((_released, _reply), took_ms) =
            timed(|| (state.take_copies(copies), state.apply(&insert)));
        slowest_ms = slowest_ms.max(took_ms);
    }
    println!("copied aside       {copied_ms:8.2} ms, then the slowest insert {slowest_ms:8.3} ms");
    let_go(snapshot);
}

/// Gives each slice back as soon as it would be on the disk.
fn let_go(mut snapshot: ShardSnapshot) {
    while let Some(slice) = snapshot.take_slice() {
        drop(slice);
    }
}
