//! The distribution of a session's cost: bytes and rounds of many sessions over the same two sets with
//! different nonces, and so different keys, estimates and collisions.
//!
//! `session_tail` runs every case of the table below; `session_tail MODE BITS N D SESSIONS` runs one. MODE is `two-way`,
//! `time` (two-way, `--optimize time`) or `quiet` (counts alone, `umbel reconcile -q`), BITS is 64 or 256.

mod session_pair;

use std::env;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;

use session_pair::{item, mix, run};
use umbel_reconcile_engine::{Direction, Item, Optimize, Options, SessionRole, SymbolKind};

/// Mode, bits of an id, items of each side, the difference, sessions.
const CASES: [(&str, u64, u64, u64, u64); 12] = [
    ("two-way", 256, 10_000, 100, 100_000),
    ("two-way", 64, 10_000, 100, 10_000),
    ("time", 256, 10_000, 100, 10_000),
    ("quiet", 256, 10_000, 100, 10_000),
    ("two-way", 256, 100_000, 1_000, 10_000),
    ("time", 256, 100_000, 1_000, 2_000),
    ("quiet", 256, 100_000, 1_000, 10_000),
    ("two-way", 256, 100_000, 10_000, 1_000),
    ("time", 256, 100_000, 10_000, 1_000),
    ("quiet", 256, 100_000, 10_000, 1_000),
    ("two-way", 256, 100_000, 100_000, 300),
    ("quiet", 256, 100_000, 100_000, 1_000),
];

/// What one session cost.
#[derive(Clone, Copy)]
struct Cost {
    bytes: u64,
    rounds: u64,
    attempts: u32,
}

fn options(mode: &str, kind: SymbolKind, number: u64) -> (Options, Options) {
    let direction = if mode == "quiet" { Direction::Compare } else { Direction::TwoWay };
    let mut initiator = Options::initiator(kind, direction, mix(2 * number));
    if let SessionRole::Initiator(aim) = &mut initiator.role {
        aim.want_items = mode != "quiet";
        aim.notify_responder = false;
        if mode == "time" {
            aim.optimize = Optimize::Time;
        }
    }
    (initiator, Options::responder(kind, mix(2 * number + 1)))
}

fn costs_of(mode: &str, bits: u64, n: u64, d: u64, session_count: u64) -> Vec<Cost> {
    let kind = if bits == 64 { SymbolKind::Id64 } else { SymbolKind::Hashed };
    let (a, b) = (d.div_ceil(2), d / 2);
    let side = |from: u64, only: u64| -> Vec<Item> {
        let shared = (0..n - only).map(|number| item(kind, 1, number));
        shared.chain((from..from + only).map(|number| item(kind, 1, number))).collect()
    };
    assert_eq!(a, b, "an even difference");
    let (our_items, their_items) = (side(1 << 40, a), side(2 << 40, b));
    let next = AtomicU64::new(0);
    let work = || {
        let mut costs = Vec::new();
        loop {
            let number = next.fetch_add(1, Ordering::Relaxed);
            if number >= session_count {
                return costs;
            }
            let (initiator, responder) = options(mode, kind, number);
            let (ours, _) = run((initiator, &our_items), (responder, &their_items));
            let outcome = ours.outcome.expect("done");
            assert_eq!((outcome.only_here_count, outcome.only_there_count), (a, b));
            costs.push(Cost {
                bytes: outcome.bytes.total(),
                rounds: outcome.round_count.into(),
                attempts: outcome.attempt_count,
            });
        }
    };
    let thread_count = thread::available_parallelism().map_or(1, usize::from);
    thread::scope(|scope| {
        let workers: Vec<_> = (0..thread_count).map(|_| scope.spawn(work)).collect();
        workers.into_iter().flat_map(|worker| worker.join().expect("no panic")).collect()
    })
}

/// The value that is not exceeded by `share` in 10,000 of all values.
fn quantile(sorted: &[u64], share: usize) -> u64 {
    let at = (sorted.len() * share).div_ceil(10_000).saturating_sub(1);
    sorted.get(at).copied().unwrap_or(0)
}

fn print_row(mode: &str, bits: u64, n: u64, d: u64, costs: &[Cost]) {
    let again = costs.iter().filter(|cost| cost.attempts > 1).count();
    let row = |value: fn(&Cost) -> u64| {
        let mut sorted: Vec<u64> = costs.iter().map(value).collect();
        sorted.sort_unstable();
        let [p50, p99, p9999, max] = [5_000, 9_900, 9_999, 10_000].map(|p| quantile(&sorted, p));
        format!("{p50} | {p99} | {p9999} | {max} | {:.2}", max as f64 / p50.max(1) as f64)
    };
    let (bytes, rounds) = (row(|cost| cost.bytes), row(|cost| cost.rounds));
    println!("| {mode} | {bits} | {n} | {d} | {} | {again} | {bytes} | {rounds} |", costs.len());
}

fn main() {
    println!(
        "| mode | bits | n | d | sessions | again | bytes: p50 | p99 | p99.99 | max | max/p50 \
         | rounds: p50 | p99 | p99.99 | max | max/p50 |"
    );
    println!("|---|--:|--:|--:|--:|--:|--:|--:|--:|--:|--:|--:|--:|--:|--:|--:|");
    let arguments: Vec<String> = env::args().skip(1).collect();
    if let [mode, bits, n, d, session_count] = arguments.as_slice() {
        let [bits, n, d, session_count] =
            [bits, n, d, session_count].map(|text| text.parse().expect("a number"));
        return print_row(mode, bits, n, d, &costs_of(mode, bits, n, d, session_count));
    }
    for (mode, bits, n, d, session_count) in CASES {
        print_row(mode, bits, n, d, &costs_of(mode, bits, n, d, session_count));
    }
}
