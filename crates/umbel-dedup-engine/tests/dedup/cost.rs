//! The measured cost of exchanges, compared with the cost model.

use crate::shuttle::{Dice, World, deal, shape};
use umbel_dedup_engine::{
    CoordinatorInput, CoordinatorOutput, Cost, CostQuestion, Exactness, ExchangeCoordinator,
    FilterChoice, FrameKind, Keep, Mode, Plan, WorkerId, cheapest,
};
use umbel_filter::{ItemHash, ItemHasher};
use umbel_step::Outbox;

/// `entries` items, of which two workers each have a share δ.
fn items(entries: u64, delta: f64) -> Vec<(ItemHash, Vec<u8>)> {
    let hasher = ItemHasher::Xxh3 { seed: 11 };
    let shared = (entries as f64 * delta / 2.0) as u64;
    // The first copies are at the first workers, the second ones at the last.
    let numbers = (0..entries - shared).chain(0..shared);
    numbers.map(|number| (hasher.hash(&number.to_le_bytes()), Vec::new())).collect()
}

fn run(workers: u32, delta: f64, entries: u64) {
    let question = CostQuestion {
        workers,
        entries: entries as f64,
        delta,
        survivor_extra_bits: 0.0,
        references: None,
    };
    let cost = question.cheapest_filter().unwrap();
    let shape = shape(workers, 1, Exactness::Fingerprint, Keep::First, false);
    let plan =
        ExchangeCoordinator::plan_without_sample(shape, entries, None, FilterChoice::FullHash);
    let plan = Plan {
        mode: Mode::Filter,
        position_count: cost.position_count,
        refine_bits: cost.refine_bits,
        ..plan
    };
    let outcome = World::new(plan, deal(&items(entries, delta), workers)).run(&mut Dice(1));
    let report = outcome.report;
    let n = report.entries as f64;
    let bits: u64 = FrameKind::ALL.into_iter().map(|kind| report.payload_bits(kind)).sum();
    let measured = bits as f64 / n;
    let ratio = measured / cost.bits_per_entry;
    assert!(
        (0.96..1.03).contains(&ratio),
        "p={workers} δ={delta}: {measured} / {}",
        cost.bits_per_entry
    );
    let forward = report.payload_bits(FrameKind::Positions) as f64;
    let over = forward / report.entropy_bits(FrameKind::Positions);
    assert!(over < 1.03, "p={workers} δ={delta}: forward {over} × entropy");
}

#[test]
fn measured_bits_are_those_of_the_model() {
    for workers in [2, 8] {
        for delta in [0.0, 0.006, 0.042, 0.17, 0.5] {
            run(workers, delta, 60_000);
        }
    }
    run(32, 0.006, 120_000);
}

/// Payload bits per entry of an exchange with the parameters of `cost`.
fn payload_bits(workers: u32, delta: f64, entries: u64, cost: Cost) -> f64 {
    let shape = shape(workers, 1, Exactness::Fingerprint, Keep::First, false);
    let plan =
        ExchangeCoordinator::plan_without_sample(shape, entries, None, FilterChoice::FullHash);
    let Cost { mode, position_count, refine_bits, .. } = cost;
    let plan = Plan { mode, position_count, refine_bits, ..plan };
    let report = World::new(plan, deal(&items(entries, delta), workers)).run(&mut Dice(1)).report;
    let bits: u64 = FrameKind::ALL.into_iter().map(|kind| report.payload_bits(kind)).sum();
    bits as f64 / report.entries as f64
}

/// For any share of duplicates, the chosen exchange costs no more than full hashes. If all entries are
/// duplicates, a filter saves nothing.
#[test]
fn the_choice_is_never_dearer_than_whole_hashes() {
    let (workers, entries) = (4, 20_000);
    for delta in [0.0, 0.17, 0.34, 0.5, 0.7, 0.9, 1.0] {
        let question = CostQuestion {
            workers,
            entries: entries as f64,
            delta,
            survivor_extra_bits: 0.0,
            references: None,
        };
        let chosen = cheapest(&question);
        let full_hash =
            Cost { mode: Mode::FullHash, position_count: 0, refine_bits: 0, bits_per_entry: 0.0 };
        let whole = payload_bits(workers, delta, entries, full_hash);
        let taken = payload_bits(workers, delta, entries, chosen);
        assert!(taken <= 1.02 * whole, "δ={delta}: {chosen:?} took {taken}, whole hashes {whole}");
        if delta > 0.99 {
            let filter = question.cheapest_filter().unwrap();
            let filter = payload_bits(workers, delta, entries, filter);
            assert_eq!(chosen.mode, Mode::FullHash);
            assert!(filter > 0.98 * whole, "a filter took {filter}, whole hashes {whole}");
        }
    }
}

/// Workers of very different sizes: each stream's parameter depends on its own gaps.
#[test]
fn skewed_workers_stay_near_their_entropy() {
    let all = items(66_000, 0.006);
    let shape = shape(8, 1, Exactness::Fingerprint, Keep::First, false);
    let plan =
        ExchangeCoordinator::plan_without_sample(shape, 66_000, None, FilterChoice::SingleShot);
    let mut parts = deal(&all, 8);
    // Worker w has a share of 2^-w of the records drawn for it.
    for (worker, part) in parts.iter_mut().enumerate() {
        part.truncate(part.len() >> worker.min(5));
    }
    let report = World::new(plan, parts).run(&mut Dice(1)).report;
    let forward = report.payload_bits(FrameKind::Positions) as f64;
    let over = forward / report.entropy_bits(FrameKind::Positions);
    assert!(over < 1.03, "forward {over} × entropy");
}

#[test]
fn the_sample_finds_the_share_of_duplicates() {
    let delta = 0.17;
    let entries = 400_000;
    let all = items(entries, delta);
    let shape = shape(4, 2, Exactness::Fingerprint, Keep::First, false);
    let parts = deal(&all, 4);
    let mut coordinator = ExchangeCoordinator::new(shape, FilterChoice::SingleShot).unwrap();
    let mut orders = Outbox::new();
    for (worker, part) in (0u16..).zip(&parts) {
        let (items, chunk_items_max) = (part.len() as u64, part.len() as u64);
        let worker = WorkerId(worker);
        let input = CoordinatorInput::Counted { worker, items, chunks_end: 4, chunk_items_max };
        coordinator.step(input, &mut orders).unwrap();
    }
    let [CoordinatorOutput::Sample(order)] = orders.take()[..] else { panic!("a sample is due") };
    let sampled = crate::shuttle::sample(shape, &parts, order);
    for (owner, (entries, candidates)) in (0u16..).zip(sampled) {
        let input = CoordinatorInput::Sampled { owner: WorkerId(owner), entries, candidates };
        coordinator.step(input, &mut orders).unwrap();
        coordinator.step(input, &mut orders).unwrap(); // repeated inputs are ignored
    }
    let [CoordinatorOutput::Plan(plan)] = orders.take()[..] else { panic!("one plan is due") };
    assert_eq!(plan.mode, Mode::Filter);
    // 1,560 entries were sampled: three standard errors are 0.03 of δ and 8 % of n.
    assert!((plan.delta_estimate - delta).abs() < 0.03, "{}", plan.delta_estimate);
    assert!(
        (plan.entries_estimate / entries as f64 - 1.0).abs() < 0.08,
        "{}",
        plan.entries_estimate
    );
}
