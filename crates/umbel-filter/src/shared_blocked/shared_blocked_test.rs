//! Races: every interleaving of small cases under loom, and many threads against the plain filter.

use loom::sync::Arc;
use loom::thread;

use super::*;
use crate::capability::{Describe, Insert};
use crate::hash::ItemHasher;

impl AtomicWord for loom::sync::atomic::AtomicU64 {
    fn load_relaxed(&self) -> u64 {
        self.load(Ordering::Relaxed)
    }

    fn or_relaxed(&self, bits: u64) -> u64 {
        self.fetch_or(bits, Ordering::Relaxed)
    }
}

type LoomLine = SharedLine<loom::sync::atomic::AtomicU64>;

fn mask<const N: usize>(bits: [usize; N]) -> Line {
    let mut line = Line::default();
    bits.into_iter().for_each(|bit| line.0[bit / 64] |= 1 << (bit % 64));
    line
}

/// Two threads insert these bits at once; `check` gets how many each set, and the line afterwards.
fn race(ours: Line, theirs: Line, check: impl Fn(u32, u32, &Line) + Sync + Send + 'static) {
    loom::model(move || {
        let line = Arc::new(LoomLine::from(Line::default()));
        let shared = Arc::clone(&line);
        let other = thread::spawn(move || {
            let set = shared.set(&theirs);
            assert!(shared.contains(&theirs), "an insert is seen by its own thread");
            set
        });
        let ours_set = line.set(&ours);
        let theirs_set = other.join().unwrap();
        assert!(line.contains(&ours) && line.contains(&theirs), "and by all after the join");
        check(ours_set, theirs_set, &line.load());
    });
}

#[test]
fn equal_items_share_their_positions() {
    let item = mask([3, 100, 500]);
    race(item, item, move |ours, theirs, after| {
        assert_eq!(ours + theirs, 3, "each position is set once");
        assert_eq!(*after, item);
    });
}

#[test]
fn items_that_overlap_share_the_common_positions() {
    race(mask([3, 4, 100]), mask([4, 100, 200]), |ours, theirs, after| {
        assert_eq!(ours + theirs, 4);
        // Each has a position of its own, so both are new, whatever the order.
        assert!(ours > 0 && theirs > 0);
        assert_eq!(*after, mask([3, 4, 100, 200]));
    });
}

/// An item whose positions two others set between them: it is new unless both came first.
#[test]
fn a_covered_item_is_present_only_if_it_was_covered() {
    loom::model(|| {
        let line = Arc::new(LoomLine::from(mask([100])));
        let shared = Arc::clone(&line);
        let other = thread::spawn(move || shared.set(&mask([3, 200])));
        let covered_before = line.contains(&mask([3, 100]));
        let set = line.set(&mask([3, 100]));
        let theirs = other.join().unwrap();
        assert!(!covered_before || set == 0, "bits only rise");
        assert_eq!(set + theirs, 2);
    });
}

#[test]
fn a_query_never_sees_a_bit_go() {
    loom::model(|| {
        let line = Arc::new(LoomLine::from(Line::default()));
        let shared = Arc::clone(&line);
        let item = mask([7, 300]);
        let writer = thread::spawn(move || shared.set(&item));
        let first = line.contains(&item);
        let second = line.contains(&item);
        assert!(!first || second);
        writer.join().unwrap();
        assert!(line.contains(&item));
    });
}

fn hashes(count: u64) -> Vec<ItemHash> {
    let hasher = ItemHasher::Xxh3 { seed: 3 };
    (0..count).map(|item| hasher.hash(&item.to_le_bytes())).collect()
}

/// Four threads insert overlapping parts; the result is the plain filter of all items.
#[test]
fn threads_make_the_filter_of_one_thread() {
    let hashes = hashes(4_000);
    let shared = SharedBlocked::for_rate(HashRange::WHOLE, 2_000, 0.01).unwrap();
    let new_count: usize = std::thread::scope(|scope| {
        let insert = |part: &[ItemHash]| {
            let mut outcomes = Vec::new();
            shared.insert_batch(part, &mut outcomes).unwrap();
            let mut present = Vec::new();
            shared.contains_batch(part, &mut present);
            assert!(present.iter().all(|&present| present), "no false negative");
            outcomes.iter().filter(|&&outcome| outcome == Insertion::New).count()
        };
        let parts =
            [&hashes[..2_000], &hashes[1_000..3_000], &hashes[2_000..], &hashes[500..3_500]];
        let threads = parts.map(|part| scope.spawn(move || insert(part)));
        threads.into_iter().map(|thread| thread.join().unwrap()).sum()
    });
    let mut plain = Blocked::with_shape(shared.block_shape()).unwrap();
    let mut outcomes = Vec::new();
    plain.insert_batch(&hashes, &mut outcomes).unwrap();
    assert_eq!(shared.snapshot().unwrap(), plain);
    // How many are new depends on the order, but whoever set a one heard so, and set at most k.
    let probe_count = u64::from(shared.block_shape().probe_count());
    assert!(new_count as u64 * probe_count >= plain.describe().one_count);
    assert_eq!(SharedBlocked::from_blocked(&plain).unwrap().snapshot().unwrap(), plain);
    assert!(plain.describe().one_count > 0);
}

#[test]
fn one_thread_gets_the_answers_of_the_plain_filter() {
    let hashes = hashes(3_000);
    let shared = SharedBlocked::for_rate(HashRange::WHOLE, 1_000, 0.01).unwrap();
    let mut plain = Blocked::with_shape(shared.block_shape()).unwrap();
    for &hash in hashes.iter().chain(&hashes[..100]) {
        assert_eq!(shared.contains(hash), plain.contains(hash));
        assert_eq!(shared.insert(hash).unwrap(), plain.insert(hash).unwrap());
    }
}

#[test]
fn items_of_other_ranges_are_refused() {
    let range = HashRange::new(1 << 63, 1 << 64).unwrap();
    let shared = SharedBlocked::for_rate(range, 100, 0.01).unwrap();
    let (inside, outside) = (ItemHash::new(1 << 63, 5), ItemHash::new(7, 5));
    let refused = OutOfRange { hi: 7, range };
    assert_eq!(shared.insert(outside), Err(refused));
    let mut outcomes = vec![Insertion::New];
    assert_eq!(shared.insert_batch(&[inside, outside], &mut outcomes), Err(refused));
    assert!(outcomes.is_empty() && !shared.contains(inside), "nothing was changed");
    shared.insert(inside).unwrap();
    let mut present = Vec::new();
    shared.contains_batch(&[inside, outside], &mut present);
    assert_eq!(present, [true, false]);
}
