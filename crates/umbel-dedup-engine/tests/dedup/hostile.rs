//! Hostile peers: frames with a valid checksum and invalid content.

use crate::shuttle::{Dice, World, deal, plan, shape};
use proptest::prelude::*;
use umbel_dedup_engine::{
    Exactness, ExchangeInput, FilterChoice, Frame, FrameKind, FrameLink, Keep, Mode, Plan, Worker,
    WorkerId,
};
use umbel_filter::ItemHash;
use umbel_step::Outbox;

fn items() -> Vec<(ItemHash, Vec<u8>)> {
    let mut dice = Dice(3);
    (0..60)
        .map(|_| {
            let number = dice.roll(30) as u64;
            (ItemHash::new(number << 59 | number, number << 60 | number), vec![number as u8])
        })
        .collect()
}

fn plans() -> impl Strategy<Value = Plan> {
    let exactness = prop_oneof![
        Just(Exactness::Fingerprint),
        Just(Exactness::Bytes),
        Just(Exactness::Approximate { false_positive_rate: 1e-3 })
    ];
    let keep = prop_oneof![Just(Keep::First), Just(Keep::Best)];
    (exactness, keep, any::<bool>(), any::<bool>(), 1u64..500, 0u32..5).prop_map(
        |(exactness, keep, report, full_hash, position_count, refine_bits)| {
            let shape = shape(3, 1, exactness, keep, report);
            let plan = plan(shape, 60, FilterChoice::Auto);
            if full_hash || plan.truncation.is_some() {
                plan
            } else {
                Plan { mode: Mode::Filter, position_count, refine_bits, ..plan }
            }
        },
    )
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, ..ProptestConfig::default() })]

    /// Any frame at any time gives an error or nothing, and never a panic. A rejected frame does not change
    /// what is sent.
    #[test]
    fn any_frame_at_any_time_is_survived(
        plan in plans(),
        kind in prop::sample::select(&FrameKind::ALL[..]),
        flags in any::<u8>(),
        param in prop_oneof![0u8..8, any::<u8>()],
        cell in 0u32..4,
        sequence in prop_oneof![Just(0u32), any::<u32>()],
        count in prop_oneof![0u32..40, any::<u32>()],
        covered in prop_oneof![0u32..40, any::<u32>()],
        payload in proptest::collection::vec(any::<u8>(), 0..64),
        delivered in 0usize..40,
        seed in any::<u64>(),
    ) {
        let mut world = World::new(plan, deal(&items(), 3));
        let mut dice = Dice(seed);
        world.start();
        for _ in 0..delivered.min(world.letters()) {
            let letter = dice.roll(world.letters());
            world.deliver(letter, false);
        }
        let link = FrameLink { job: 99, sender: 1, receiver: 0, attempt: 0 };
        let covered = if kind.is_verdict() { covered } else { 0 };
        let frame = Frame { kind, flags, param, cell, sequence, count, covered, payload: &payload };
        let input = ExchangeInput::Frame { from: WorkerId(1), bytes: frame.encode(link) };
        let mut outbox = Outbox::new();
        if world.workers[0].step(input, &mut outbox).is_err() {
            prop_assert_eq!(outbox.take(), []);
        }
    }

    /// A frame with any one byte changed is rejected, and the exchange ends as without it.
    #[test]
    fn damaged_frames_are_refused_and_leave_no_trace(
        plan in plans(),
        at in any::<prop::sample::Index>(),
        change in 1u8..,
        seed in any::<u64>(),
    ) {
        let undisturbed = World::new(plan, deal(&items(), 3)).run(&mut Dice(0));
        let mut world = World::new(plan, deal(&items(), 3));
        let mut dice = Dice(seed);
        world.start();
        while world.letters() > 0 {
            let letter = dice.roll(world.letters());
            let (from, to, bytes) = world.letter(letter);
            let (from, to, mut damaged) = (*from, *to, bytes.clone());
            let at = at.index(damaged.len());
            damaged[at] ^= change;
            let input = ExchangeInput::Frame { from, bytes: damaged };
            let refused = world.workers[to.index()].step(input, &mut Outbox::new());
            prop_assert!(refused.is_err());
            world.deliver(letter, false);
        }
        prop_assert_eq!(world.finish().drops, undisturbed.drops);
    }

    #[test]
    fn arbitrary_bytes_are_refused(bytes in proptest::collection::vec(any::<u8>(), 0..80)) {
        let shape = shape(2, 1, Exactness::Fingerprint, Keep::First, false);
        let mut worker = Worker::new(WorkerId(0), shape, 1).unwrap();
        let input = ExchangeInput::Frame { from: WorkerId(1), bytes };
        prop_assert!(worker.step(input, &mut Outbox::new()).is_err());
    }
}

#[test]
fn frames_ahead_of_the_plan_are_bounded() {
    let shape = shape(2, 1, Exactness::Fingerprint, Keep::First, false);
    let mut worker = Worker::new(WorkerId(0), shape, 99).unwrap();
    let link = FrameLink { job: 99, sender: 1, receiver: 0, attempt: 0 };
    let frame = Frame {
        kind: FrameKind::Positions,
        flags: 1,
        param: 0,
        cell: 0,
        sequence: 0,
        count: 0,
        covered: 0,
        payload: &[],
    };
    let mut accepted = 0;
    while worker
        .step(
            ExchangeInput::Frame { from: WorkerId(1), bytes: frame.encode(link) },
            &mut Outbox::new(),
        )
        .is_ok()
    {
        accepted += 1;
        assert!(accepted < 100);
    }
    assert_eq!(accepted, umbel_dedup_engine::limits::EARLY_FRAMES_PER_PEER_MAX);
}
