//! References: entries that equal one are dropped; all others are compared as without references.

use crate::shuttle::{Dice, Record, World, deal, shape};
use proptest::prelude::*;
use umbel_dedup_engine::{
    CoordinatorInput, CoordinatorOutput, Cost, CostQuestion, Exactness, ExchangeCoordinator,
    ExchangeError, ExchangeInput, FilterChoice, FrameKind, IndexBits, JobShape, Keep, Mode, Plan,
    RecordId, ReferenceShape, Worker, WorkerId, reference,
};
use umbel_filter::{ItemHash, ItemHasher};
use umbel_step::Outbox;

/// The plan of a coordinator with references.
fn plan(
    shape: JobShape,
    parts: &[Vec<Record>],
    choice: FilterChoice,
    entries: u64,
    bits: IndexBits,
) -> Plan {
    let references = ReferenceShape { entries, bits };
    let mut coordinator =
        ExchangeCoordinator::new(shape, choice).unwrap().with_references(references).unwrap();
    let mut orders = Outbox::new();
    for (worker, part) in (0u16..).zip(parts) {
        let (items, chunks_end) = (part.len() as u64, u32::from(worker) + 1);
        let worker = WorkerId(worker);
        let counted =
            CoordinatorInput::Counted { worker, items, chunks_end, chunk_items_max: items };
        coordinator.step(counted, &mut orders).unwrap();
    }
    for worker in 0..parts.len() as u16 {
        if let [CoordinatorOutput::Plan(plan)] = orders.take()[..] {
            return plan;
        }
        for owner in (0..parts.len() as u16).map(WorkerId).skip(worker.into()) {
            let sampled = CoordinatorInput::Sampled { owner, entries: 9, candidates: 1 };
            coordinator.step(sampled, &mut orders).unwrap();
        }
    }
    let [CoordinatorOutput::Plan(plan)] = orders.take()[..] else { panic!("a plan is due") };
    plan
}

/// Hashes of which some are equal in their first 64 or 96 bits.
fn hash(number: u64) -> ItemHash {
    let own = ItemHasher::Xxh3 { seed: 3 }.hash(&(number / 4).to_le_bytes());
    match number % 4 {
        0 | 1 => own,
        2 => ItemHash::new(own.hi(), own.lo() ^ 1),
        _ => ItemHash::new(own.hi(), own.lo() ^ (1 << 63)),
    }
}

proptest! {
    #[test]
    fn what_a_reference_holds_is_dropped_and_the_rest_as_ever(
        numbers in proptest::collection::vec(0u64..60, 1..80),
        known in proptest::collection::vec(0u64..60, 0..30),
        workers in 1u32..6,
        cells_per_owner in 1u32..4,
        options in (any::<bool>(), any::<bool>(), any::<bool>(), any::<bool>()),
        width in 0usize..3,
        seed in any::<u64>(),
    ) {
        let (last, report, single_shot, approximate) = options;
        let bits = [IndexBits::Bits64, IndexBits::Bits96, IndexBits::Bits128][width];
        let approximate = approximate && bits != IndexBits::Bits64;
        let exactness = if approximate { Exactness::Approximate { false_positive_rate: 1e-3 } } else { Exactness::Fingerprint };
        let keep = if last { Keep::Last } else { Keep::First };
        let shape = shape(workers, cells_per_owner, exactness, keep, report);
        let items: Vec<_> = numbers.iter().map(|&number| (hash(number), Vec::new())).collect();
        let parts = deal(&items, workers);
        let known: Vec<ItemHash> = known.iter().map(|&number| bits.apply(hash(number))).collect();
        let choice = if single_shot { FilterChoice::SingleShot } else { FilterChoice::Auto };
        let plan = plan(shape, &parts, choice, known.len() as u64, bits);
        prop_assert_eq!(plan.mode == Mode::Local, false);

        let counts = |hash: ItemHash| plan.truncation.map_or(hash, |truncation| truncation.apply(hash));
        let is_known = |hash: ItemHash| known.iter().any(|known| counts(bits.apply(hash)) == counts(*known));
        let records = || parts.iter().flatten();
        let unknown: Vec<(RecordId, ItemHash)> = records()
            .filter(|record| !is_known(record.hash))
            .map(|record| (record.record_id, counts(record.hash)))
            .collect();
        let mut expected: Vec<(RecordId, Option<RecordId>)> = reference::drops(&unknown, keep)
            .into_iter()
            .map(|(record_id, kept)| (record_id, report.then_some(kept)))
            .collect();
        let dropped_for_known: Vec<RecordId> =
            records().filter(|record| is_known(record.hash)).map(|record| record.record_id).collect();
        expected.extend(dropped_for_known.iter().map(|&record_id| (record_id, report.then_some(record_id))));
        expected.sort_unstable();

        let mut world = World::new(plan, parts.clone());
        world.references = known.clone();
        let outcome = world.run(&mut Dice(seed));
        prop_assert_eq!(outcome.drops, expected);
        prop_assert_eq!(outcome.report.reference_drops, dropped_for_known.len() as u64);
        let report = outcome.report;
        let all = report.local_drops + report.cross_drops + report.reference_drops;
        prop_assert_eq!(all, items.len() as u64 - unknown.len() as u64 + reference::drops(&unknown, keep).len() as u64);
    }
}

/// With many references, a filter costs what the model predicts.
#[test]
fn references_cost_what_the_model_says() {
    let entries = 40_000;
    let hasher = ItemHasher::Xxh3 { seed: 5 };
    let hash = |number: u64| hasher.hash(&number.to_le_bytes());
    let items: Vec<_> = (0..entries).map(|number| (hash(number), Vec::new())).collect();
    let shape = shape(4, 1, Exactness::Fingerprint, Keep::First, false);
    let parts = deal(&items, 4);
    // Four times as many reference entries as entries; 1 % of the entries are among them.
    let known: Vec<ItemHash> = (entries * 99 / 100..entries * 5).map(hash).collect();
    let references = Some(ReferenceShape { entries: known.len() as u64, bits: IndexBits::Bits128 });
    let question = CostQuestion {
        workers: 4,
        entries: entries as f64,
        delta: 0.01,
        survivor_extra_bits: 0.0,
        references,
    };
    let Cost { mode, position_count, refine_bits, .. } = question.cheapest_filter().unwrap();
    let plan =
        ExchangeCoordinator::plan_without_sample(shape, entries, None, FilterChoice::FullHash);
    let plan = Plan { mode, position_count, refine_bits, references, ..plan };
    let mut world = World::new(plan, parts);
    world.references = known;
    let report = world.run(&mut Dice(1)).report;
    assert_eq!((report.reference_drops, report.cross_drops), (400, 0));
    let bits: u64 = FrameKind::ALL.into_iter().map(|kind| report.payload_bits(kind)).sum();
    let model = question.filter_bits(plan.position_count, plan.refine_bits);
    let ratio = bits as f64 / report.entries as f64 / model;
    assert!((0.96..1.04).contains(&ratio), "{ratio}");
}

#[test]
fn references_come_to_the_owner_once() {
    let shape = shape(2, 1, Exactness::Fingerprint, Keep::First, false);
    let parts = [Vec::new(), Vec::new()];
    let plan = plan(shape, &parts, FilterChoice::Auto, 1, IndexBits::Bits128);
    let mut worker = Worker::new(WorkerId(0), shape, 1).unwrap();
    let mut step = |input| worker.step(input, &mut Outbox::new());
    let low = || ExchangeInput::References { cell: 0, hashes: vec![ItemHash::new(1, 1)] };
    assert!(matches!(step(low()), Err(ExchangeError::Driver { .. }))); // before the plan
    step(ExchangeInput::Plan(plan)).unwrap();
    assert!(step(ExchangeInput::References { cell: 1, hashes: Vec::new() }).is_err()); // not its cell
    assert!(
        step(ExchangeInput::References { cell: 0, hashes: vec![ItemHash::new(u64::MAX, 1)] })
            .is_err()
    );
    step(low()).unwrap();
    assert!(step(low()).is_err());
    let bytes = ExchangeCoordinator::new(
        JobShape { exactness: Exactness::Bytes, ..shape },
        FilterChoice::Auto,
    );
    let references = ReferenceShape { entries: 1, bits: IndexBits::Bits128 };
    assert!(bytes.unwrap().with_references(references).is_err());
}
