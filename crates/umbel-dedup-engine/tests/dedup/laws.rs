//! Laws that hold for any records, workers, plan and order of arrival.

use crate::shuttle::{Dice, Outcome, World, deal, plan, shape};
use proptest::prelude::*;
use umbel_dedup_engine::{
    Exactness, ExchangeInput, FilterChoice, Keep, Mode, Plan, Rank, RecordId, reference,
};
use umbel_filter::ItemHash;

/// What a worker reads: an item's hash and bytes.
type Read = (ItemHash, Vec<u8>);

/// Items as small numbers. Their hashes are spread over the space, and often collide in any few bits.
fn item(number: u8) -> Read {
    let mut dice = Dice(u64::from(number));
    let hi = (dice.roll(64) as u64) << 58 | dice.roll(4) as u64;
    (ItemHash::new(hi, (dice.roll(16) as u64) << 60 | u64::from(number)), vec![number])
}

/// Items whose hashes collide although their bytes differ.
fn weak_item(number: u8) -> Read {
    let (hash, bytes) = item(number / 4);
    (hash, [bytes, vec![number; usize::from(number % 4)]].concat())
}

/// The expected drops, from a map over the key that the exactness compares.
fn expected<Key: Ord>(
    items: &[Read],
    plan: &Plan,
    key: impl Fn(&Read) -> Key,
) -> Vec<(RecordId, Option<RecordId>)> {
    let parts = deal(items, plan.shape.workers);
    let keyed: Vec<(Rank, RecordId, Key)> = parts
        .into_iter()
        .flatten()
        .map(|record| (record.rank, record.record_id, key(&(record.hash, record.bytes))))
        .collect();
    let report = plan.shape.report_kept;
    let drops = match plan.shape.keep {
        Keep::Best => reference::ranked_drops(&keyed, Keep::Best),
        keep => {
            let unranked = keyed.into_iter().map(|(_, record_id, key)| (record_id, key));
            reference::drops(&unranked.collect::<Vec<_>>(), keep)
        }
    };
    drops.into_iter().map(|(record_id, kept)| (record_id, report.then_some(kept))).collect()
}

/// Runs the exchange, and checks that ranks are reported if they should be, each as read.
fn run(items: &[Read], plan: Plan, seed: u64) -> Outcome {
    let parts = deal(items, plan.shape.workers);
    let outcome = World::new(plan, parts.clone()).run(&mut Dice(seed));
    let reports_ranks = plan.shape.keep == Keep::Best && plan.shape.report_kept;
    assert_eq!(outcome.ranks.len(), if reports_ranks { outcome.drops.len() } else { 0 });
    for &(record_id, rank) in &outcome.ranks {
        assert_eq!(parts[record_id.chunk() as usize][record_id.item() as usize].rank, rank);
    }
    outcome
}

fn keeps() -> impl Strategy<Value = Keep> {
    prop_oneof![Just(Keep::First), Just(Keep::Last), Just(Keep::Best)]
}

/// A plan that no cost model would choose gives the same result.
fn any_filter(plan: Plan, position_count: u64, refine_bits: u32) -> Plan {
    let mode = if plan.shape.workers == 1 { Mode::Local } else { Mode::Filter };
    Plan { mode, position_count, refine_bits, ..plan }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, ..ProptestConfig::default() })]

    #[test]
    fn fingerprints_leave_what_a_map_leaves(
        numbers in proptest::collection::vec(any::<u8>(), 1..120),
        workers in 1u32..10,
        cells in 1u32..4,
        positions in prop_oneof![Just(1u64), 1u64..400, Just(1 << 40), Just(1 << 60)],
        refine_bits in 0u32..=4,
        full_hash in any::<bool>(),
        keep in keeps(),
        report in any::<bool>(),
        seed in any::<u64>(),
    ) {
        let items: Vec<_> = numbers.into_iter().map(item).collect();
        let shape = shape(workers, cells, Exactness::Fingerprint, keep, report);
        let full_hash_plan = plan(shape, items.len() as u64, FilterChoice::FullHash);
        let plan = if full_hash { full_hash_plan } else { any_filter(full_hash_plan, positions, refine_bits) };
        let outcome = run(&items, plan, seed);
        prop_assert_eq!(&outcome.drops, &expected(&items, &plan, |item| item.0));
        prop_assert_eq!(outcome.decided, workers * workers * cells);
        let report = outcome.report;
        prop_assert_eq!(report.local_drops + report.cross_drops, outcome.drops.len() as u64);
        prop_assert_eq!(report.items, items.len() as u64);
    }

    #[test]
    fn bytes_decide_where_hashes_lie(
        numbers in proptest::collection::vec(0u8..60, 1..80),
        workers in 1u32..10,
        positions in 1u64..400,
        full_hash in any::<bool>(),
        keep in keeps(),
        report in any::<bool>(),
        seed in any::<u64>(),
    ) {
        let items: Vec<_> = numbers.into_iter().map(weak_item).collect();
        let shape = shape(workers, 2, Exactness::Bytes, keep, report);
        let full_hash_plan = plan(shape, items.len() as u64, FilterChoice::FullHash);
        let plan = if full_hash { full_hash_plan } else { any_filter(full_hash_plan, positions, 3) };
        let outcome = run(&items, plan, seed);
        prop_assert_eq!(&outcome.drops, &expected(&items, &plan, |item| item.1.clone()));
        let distinct = |key: fn(&Read) -> Read| {
            items.iter().map(key).collect::<std::collections::BTreeSet<_>>().len() as u64
        };
        let variants = distinct(Clone::clone);
        let hashes = distinct(|item| (item.0, Vec::new()));
        prop_assert_eq!(outcome.report.collisions, variants - hashes);
    }

    #[test]
    fn approximate_results_do_not_depend_on_the_number_of_workers(
        numbers in proptest::collection::vec(any::<u8>(), 1..120),
        workers in 1u32..10,
        cells in 1u32..4,
        rate in prop_oneof![Just(0.04), Just(1e-3)],
        keep in keeps(),
        report in any::<bool>(),
        seed in any::<u64>(),
    ) {
        let items: Vec<_> = numbers.into_iter().map(item).collect();
        let exactness = Exactness::Approximate { false_positive_rate: rate };
        let shape = shape(workers, cells, exactness, keep, report);
        let plan = plan(shape, items.len() as u64, FilterChoice::Auto);
        let truncation = plan.truncation.unwrap();
        let outcome = run(&items, plan, seed);
        prop_assert_eq!(&outcome.drops, &expected(&items, &plan, |item| truncation.apply(item.0)));
    }

    #[test]
    fn silence_is_not_uniqueness(
        numbers in proptest::collection::vec(any::<u8>(), 8..60),
        workers in 2u32..5,
        lost in any::<prop::sample::Index>(),
        seed in any::<u64>(),
    ) {
        let items: Vec<_> = numbers.into_iter().map(item).collect();
        let shape = shape(workers, 1, Exactness::Fingerprint, Keep::First, false);
        let plan = any_filter(plan(shape, 60, FilterChoice::FullHash), 100, 2);
        let mut world = World::new(plan, deal(&items, workers));
        world.start();
        world.lose(lost.index(world.letters()));
        let mut dice = Dice(seed);
        while world.letters() > 0 {
            let letter = dice.roll(world.letters());
            world.deliver(letter, false);
        }
        // For the cell whose frame is missing, some worker gets no verdict, and so decides nothing.
        prop_assert!(!world.workers.iter().all(umbel_dedup_engine::Worker::is_idle));
    }
}

#[test]
fn what_is_kept_is_kept_again() {
    let items: Vec<_> = (0..200u8).map(|number| item(number % 70)).collect();
    let plan = plan(
        shape(3, 2, Exactness::Fingerprint, Keep::First, false),
        200,
        FilterChoice::SingleShot,
    );
    let first = run(&items, plan, 1);
    let parts = deal(&items, 3);
    let dropped = |record_id| first.drops.iter().any(|&(drop, _)| drop == record_id);
    let kept: Vec<_> = parts
        .into_iter()
        .flatten()
        .filter(|record| !dropped(record.record_id))
        .map(|record| (record.hash, record.bytes))
        .collect();
    assert!(kept.len() < items.len());
    assert_eq!(run(&kept, plan, 2).drops, []);
}

#[test]
fn streams_of_many_frames_arrive_in_order_and_agree_with_the_map() {
    // 400,000 full hashes of at least 100 bits are several frames per stream.
    let mut dice = Dice(5);
    let mut hash = || ItemHash::new(dice.roll(700_000) as u64 * 0x1700_0000_0000, 7);
    let items: Vec<_> = (0..900_000).map(|_| (hash(), Vec::new())).collect();
    let plan = plan(
        shape(2, 1, Exactness::Fingerprint, Keep::First, true),
        900_000,
        FilterChoice::FullHash,
    );
    let plan = Plan {
        record_id_bits: Some(umbel_dedup_engine::RecordIdBits { chunk: 4, item: 20 }),
        ..plan
    };
    let mut world = World::new(plan, deal(&items, 2));
    world.start();
    assert!(world.letters() > 8);
    while world.letters() > 0 {
        world.deliver_oldest();
    }
    let outcome = world.finish();
    assert_eq!(outcome.drops, expected(&items, &plan, |item| item.0));
}

#[test]
fn frames_that_come_before_the_plan_wait_for_it() {
    let items: Vec<_> = (0..40u8).map(|number| item(number % 20)).collect();
    let plan =
        plan(shape(2, 1, Exactness::Fingerprint, Keep::First, false), 40, FilterChoice::SingleShot);
    let parts = deal(&items, 2);
    let mut world = World::new(plan, parts.clone());
    // Worker 0 is ready, and its frames reach worker 1 before worker 1 has the plan.
    world.start_one(0);
    while world.letters() > 0 {
        world.deliver_oldest();
    }
    world.start_one(1);
    while world.letters() > 0 {
        world.deliver_oldest();
    }
    assert_eq!(world.finish().drops, expected(&items, &plan, |item| item.0));
    let second_plan = ExchangeInput::Plan(plan);
    let mut world = World::new(plan, parts);
    world.start();
    assert!(world.workers[0].step(second_plan, &mut umbel_step::Outbox::new()).is_err());
}

/// Of equal items, the one with the smallest rank is kept, whichever worker has read it. Only then are ranks
/// sent.
#[test]
fn the_best_of_three_workers_stays() {
    let items: Vec<_> = [5, 5, 9, 5, 9, 5].map(item).to_vec();
    let of = |keep, report| {
        let plan =
            plan(shape(3, 1, Exactness::Fingerprint, keep, report), 6, FilterChoice::FullHash);
        let mut parts = deal(&items, 3);
        let ranks = [[40, 30], [1, 10], [1, 10]];
        for (part, ranks) in parts.iter_mut().zip(ranks) {
            part.iter_mut().zip(ranks).for_each(|(record, rank)| record.rank = Rank(rank));
        }
        World::new(plan, parts).run(&mut Dice(1))
    };
    let record_id = |worker, item| RecordId::new(worker, item);
    let outcome = of(Keep::Best, true);
    let kept = Some(record_id(1, 1)); // rank 10, as the last one, but before it
    let expected = [
        (record_id(0, 0), kept),
        (record_id(0, 1), kept),
        (record_id(2, 0), Some(record_id(1, 0))),
    ];
    assert_eq!(outcome.drops[..3], expected);
    assert_eq!(outcome.drops[3..], [(record_id(2, 1), kept)]);
    assert_eq!(outcome.ranks[0], (record_id(0, 0), Rank(40)));
    let bits = |keep| of(keep, false).report.payload_bits(umbel_dedup_engine::FrameKind::Positions);
    // Five entries are sent: each worker's own repeats are not. Streams are padded to whole bytes.
    assert_eq!(bits(Keep::Best) - bits(Keep::First), 5 * 64);
}

#[test]
fn ranks_come_exactly_where_entries_rank() {
    let refuse = |keep, ranks: Vec<Rank>| {
        let shape = shape(1, 1, Exactness::Fingerprint, keep, false);
        let mut worker =
            umbel_dedup_engine::Worker::new(umbel_dedup_engine::WorkerId(0), shape, 1).unwrap();
        let mut outbox = umbel_step::Outbox::new();
        let plan = plan(shape, 1, FilterChoice::FullHash);
        worker.step(ExchangeInput::Plan(plan), &mut outbox).unwrap();
        let hash = ItemHash::new(1, 1);
        let entries = vec![umbel_dedup_engine::Entry { hash, record_id: RecordId::new(0, 0) }];
        worker.step(ExchangeInput::Cell { cell: 0, entries, ranks }, &mut outbox).is_err()
    };
    assert!(refuse(Keep::Best, vec![]) && refuse(Keep::First, vec![Rank(1)]));
    assert!(!refuse(Keep::Best, vec![Rank(1)]) && !refuse(Keep::Last, vec![]));
}
