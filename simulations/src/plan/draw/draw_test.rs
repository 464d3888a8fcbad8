//! Plans of many seeds: their guarantees, and that they differ.

use std::collections::{BTreeMap, BTreeSet};

use proptest::prelude::*;
use umbel_ports::Rare;

use super::dice::{Dice, Stream};
use super::{
    across_splits, add_splits, add_upgrade, closed_links, deletions, draw_world, draw_zones,
    expiries, faults, races,
};
use crate::plan::{Fault, FaultPlan, FilterKind, Op, OpPlan, Plan, Who, WorldShape};
use crate::profile::Profile;

const RUN_MS: u64 = 30_000;

/// Long enough for tests that need nothing rare.
const SHORT_MS: u64 = 6_000;

/// The classes of the faults of a plan, without drawing the rest of it.
fn classes(seed: u64, profile: Profile, run_ms: u64) -> BTreeSet<&'static str> {
    let world = draw_world(&mut Dice::new(seed, Stream::World));
    let mut faults = faults::draw(&mut Dice::new(seed, Stream::Faults), world, profile, run_ms);
    closed_links::replace(&mut faults, seed, profile, run_ms);
    add_splits(&mut faults, world, seed, profile, run_ms);
    add_upgrade(&mut faults, world, seed, profile, run_ms);
    faults.iter().map(|fault| fault.fault.class()).collect()
}

fn profiles() -> impl Strategy<Value = Profile> {
    prop::sample::select(&Profile::ALL[..])
}

/// Checks the damage budget in another way: instant by instant, from the fault list alone.
fn assert_damage_is_bearable(plan: &Plan) {
    let damage = |fault: &FaultPlan| {
        let classes = ["bit_rot", "misdirect", "wipe_disk", "sync_fails", "replace"];
        classes.contains(&fault.fault.class()).then(|| match fault.fault.who() {
            Some(Who::Node(node)) => node,
            other => panic!("damage of {other:?}"),
        })
    };
    let damaged: BTreeSet<u32> = plan.faults.iter().filter_map(damage).collect();
    let replicas = usize::try_from(plan.world.replicas.min(plan.world.nodes)).unwrap();
    assert!(damaged.is_empty() || 2 * damaged.len() < replicas, "{damaged:?} of {replicas}");
    for start_ms in 0..=plan.run_ms / 100 {
        let window = start_ms * 100..start_ms * 100 + 10_000;
        for node in &damaged {
            let hits = plan
                .faults
                .iter()
                .filter(|fault| damage(fault) == Some(*node) && window.contains(&fault.at_ms));
            assert!(hits.count() <= 1, "node {node} within 10 s of {}", window.start);
        }
        let now_ms = window.start;
        let lasts =
            |fault: &&FaultPlan| (fault.at_ms..fault.at_ms + fault.for_ms).contains(&now_ms);
        let now: Vec<&FaultPlan> = plan.faults.iter().filter(lasts).collect();
        assert!(now.len() <= 4 || now.iter().any(|fault| fault.fault == Fault::RollingRestart));
        let is_swap = |fault: &&&FaultPlan| fault.fault.class() == "swap_disks";
        let swaps = now.iter().filter(is_swap).count();
        let damages = now.iter().filter(|fault| damage(fault).is_some()).count();
        assert!(swaps == 0 || swaps + damages == 1, "{swaps} exchanges, {damages} damages");
    }
    let joins_before = |index: usize| {
        plan.faults[..index].iter().filter(|fault| fault.fault.class() == "join").count()
    };
    assert!(joins_before(plan.faults.len()) <= 2);
    for (index, fault) in plan.faults.iter().enumerate() {
        let is_roomy = plan.world.nodes > plan.world.replicas || plan.world.nodes >= 4;
        assert!(fault.fault.class() != "replace" || is_roomy || joins_before(index) > 0);
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn plans_are_read_back(seed in any::<u64>(), profile in profiles()) {
        let plan = Plan::draw(seed, profile, SHORT_MS);
        prop_assert_eq!(&Plan::from_json(&plan.to_json()).unwrap(), &plan);
        prop_assert_eq!(&Plan::draw(seed, profile, SHORT_MS), &plan);
        prop_assert_ne!(Plan::draw(seed ^ 1, profile, SHORT_MS).to_json(), plan.to_json());
    }

    #[test]
    fn plans_pass_their_check(seed in any::<u64>(), profile in profiles(), run_ms in 1..40_000_u64) {
        let plan = Plan::draw(seed, profile, run_ms);
        prop_assert_eq!(plan.check(), Ok(()));
        prop_assert_eq!(plan.excess_damage(), None);
        assert_damage_is_bearable(&plan);
        prop_assert!(plan.faults.iter().all(|fault| profile.classes().contains(&fault.fault.class())));
    }

    #[test]
    fn work_does_not_depend_on_the_profile(seed in any::<u64>(), profile in profiles()) {
        let is_own = |profile| {
            matches!(profile, Profile::Cube | Profile::Images | Profile::Jobs | Profile::Moves)
                || matches!(profile, Profile::Failover | Profile::Reconcile)
        };
        prop_assume!(!is_own(profile));
        let (calm, other) = (Plan::draw(seed, Profile::Calm, SHORT_MS), Plan::draw(seed, profile, SHORT_MS));
        // These depend on the profile's faults: cores on splits, the earlier release on upgrades.
        prop_assert_eq!((calm.world.cores, calm.world.earlier_release), (0, false));
        let world = WorldShape { cores: 0, earlier_release: false, ..other.world };
        prop_assert_eq!(calm.world, world);
        prop_assert_eq!(calm.filters, other.filters);
        // So do the requests that are sent during splits.
        let is_across = |op: &&OpPlan| {
            op.op.items().is_some_and(|items| items[0] >= across_splits::FIRST_ITEM)
        };
        let ops: Vec<OpPlan> = other.ops.iter().filter(|op| !is_across(op)).cloned().collect();
        let is_split = other.faults.iter().any(|fault| fault.fault == Fault::SplitShard);
        prop_assert!(is_split || ops.len() == other.ops.len());
        prop_assert_eq!(calm.ops, ops);
        prop_assert!(calm.faults.is_empty());
        prop_assert_eq!(other.faults.is_empty(), profile == Profile::Calm);
    }

    #[test]
    fn one_filter_is_whole(seed in any::<u64>()) {
        let plan = Plan::draw(seed, Profile::Calm, RUN_MS);
        let mut rewritten = BTreeSet::new();
        for op in &plan.ops {
            let named = |name: &str| plan.filters.iter().find(|filter| filter.name == name).unwrap();
            match &op.op {
                Op::Clear { filter } | Op::Create { filter } | Op::Drop { filter }
                    if !named(filter).replicated && filter != deletions::TAKEN =>
                {
                    rewritten.insert(filter.clone());
                }
                Op::Merge { filter, source } => {
                    rewritten.insert(filter.clone());
                    let (target, source) = (named(filter), named(source));
                    prop_assert!(target.merges_with(source));
                }
                Op::Intersect { filter, sources } => {
                    rewritten.insert(filter.clone());
                    let is_alike = |source: &String| named(filter).merges_with(named(source));
                    prop_assert!(sources.len() == 2 && sources.iter().all(is_alike));
                }
                Op::Rotate { filter } => {
                    prop_assert_eq!(named(filter).kind, FilterKind::ManualWindow);
                }
                Op::Remove { filter, .. } => {
                    prop_assert!(named(filter).kind.removes());
                }
                _ => {}
            }
            let items = op.op.items().unwrap_or_default();
            prop_assert_eq!(items.iter().collect::<BTreeSet<_>>().len(), items.len());
        }
        prop_assert!(rewritten.len() <= 1);
        prop_assert!(!rewritten.contains("f0"));
    }
}

#[test]
fn a_run_has_a_few_hundred_to_a_few_thousand_calls() {
    let counts: Vec<usize> =
        (0..60).map(|seed| Plan::draw(seed, Profile::Calm, RUN_MS).ops.len()).collect();
    assert!(counts.iter().all(|count| (200..5_000).contains(count)), "{counts:?}");
    assert!(counts.iter().any(|count| *count < 600), "{counts:?}");
    assert!(counts.iter().any(|count| *count > 1_500), "{counts:?}");
}

#[test]
fn every_third_world_in_which_replicas_move_has_zones() {
    let world = WorldShape::new(5, 4, 3, 8);
    for profile in Profile::ALL {
        let zoned: Vec<Vec<u32>> = (0..300)
            .map(|seed| draw_zones(seed, world, profile))
            .filter(|zones| !zones.is_empty())
            .collect();
        if !matches!(profile, Profile::Churn | Profile::Moves | Profile::Mixed) {
            assert!(zoned.is_empty(), "{profile}");
            continue;
        }
        assert!((60..=140).contains(&zoned.len()), "{profile}: {}", zoned.len());
        // Five founders, and two nodes that may join.
        assert!(zoned.iter().all(|zones| zones.len() == 7));
        let drawn: BTreeSet<u32> = zoned.iter().flatten().copied().collect();
        assert_eq!(drawn, BTreeSet::from([1, 2, 3]));
    }
}

#[test]
fn the_longest_run_fits() {
    for seed in 0..2 {
        let plan = Plan::draw(seed, Profile::Network, 600_000);
        assert_eq!(plan.check(), Ok(()));
        assert!(plan.ops.len() > 4_000 && plan.faults.len() > 100);
    }
}

#[test]
fn every_class_of_a_profile_is_drawn() {
    for profile in Profile::ALL {
        let drawn: BTreeSet<&str> =
            (0..200).flat_map(|seed| classes(seed, profile, RUN_MS)).collect();
        let wanted: BTreeSet<&str> = profile.classes().iter().copied().collect();
        assert_eq!(drawn, wanted, "{profile}");
    }
}

#[test]
fn links_are_closed_in_the_place_of_other_faults() {
    let world = WorldShape::new(5, 3, 3, 4);
    let place = |plan: &FaultPlan| (plan.at_ms, plan.for_ms, plan.fault.who());
    for profile in Profile::ALL {
        let (mut closed_count, mut order_count) = (0, 0);
        for seed in 0..40 {
            let dice = &mut Dice::new(seed, Stream::Faults);
            let before = faults::draw(dice, world, profile, RUN_MS);
            let mut after = before.clone();
            closed_links::replace(&mut after, seed, profile, RUN_MS);
            if profile == Profile::Failover {
                let is_order = |plan: &FaultPlan| plan.fault == Fault::HandOver { who: Who::All };
                order_count += after.iter().filter(|plan| is_order(plan)).count();
                after.retain(|plan| !is_order(plan));
            }
            assert!(before.iter().map(place).eq(after.iter().map(place)), "{profile}, seed {seed}");
            closed_count += before.iter().zip(&after).filter(|(one, other)| one != other).count();
        }
        let has_closed = profile.classes().contains(&"close_links");
        assert_eq!(closed_count > 0, has_closed, "{profile}");
        assert_eq!(order_count > 0, profile == Profile::Failover, "{profile}");
        assert!(order_count <= closed_count, "{profile}");
    }
}

#[test]
fn every_feature_is_drawn_and_left_out() {
    let plans: Vec<Plan> = (0..120).map(|seed| Plan::draw(seed, Profile::Mixed, 10_000)).collect();
    let sometimes = |does: &dyn Fn(&Plan) -> bool| plans.iter().any(does);
    let op = |does: fn(&Op) -> bool| sometimes(&|plan| plan.ops.iter().any(|op| does(&op.op)));
    assert!(op(|op| matches!(op, Op::Insert { copies: 3, .. })));
    assert!(op(|op| matches!(op, Op::Contains { any: true, .. })));
    assert!(op(|op| matches!(op, Op::Remove { .. })));
    assert!(op(|op| matches!(op, Op::Clear { .. })));
    assert!(
        op(|op| matches!(op, Op::Rotate { .. })) && op(|op| matches!(op, Op::Intersect { .. }))
    );
    assert!(op(|op| matches!(op, Op::Snapshot { .. })));
    assert!(op(|op| matches!(op, Op::Rename { .. })));
    assert!(op(|op| matches!(op, Op::Create { .. })));
    assert!(op(|op| matches!(op, Op::Drop { .. })));
    assert!(op(|op| matches!(op, Op::Merge { .. })));
    assert!(op(|op| op.items().is_some_and(|items| items.len() > 50)));
    for replicas in [1, 3, 5] {
        assert!(sometimes(&|plan| plan.world.replicas == replicas));
    }
    for who in [Who::Node(7), Who::Leader(7), Who::Follower(0), Who::MetaLeader, Who::All] {
        assert!(sometimes(&|plan| plan.faults.iter().any(|fault| fault.fault.who() == Some(who))));
    }
    for (_, rare) in Rare::ALL {
        let is_provoked = |plan: &Plan| plan.provoked.iter().any(|name| name == rare);
        assert!(sometimes(&is_provoked));
        assert!(sometimes(&|plan| !is_provoked(plan)));
    }
    assert!(sometimes(&|plan| plan.sets.is_some()) && sometimes(&|plan| plan.sets.is_none()));
    // A burst: every client inserts the same item in the same millisecond.
    assert!(sometimes(&|plan| {
        plan.world.clients > 8
            && plan
                .ops
                .windows(9)
                .any(|ops| ops.iter().all(|op| (op.at_ms, &op.op) == (ops[0].at_ms, &ops[0].op)))
    }));
}

#[test]
fn runs_differ_in_what_they_leave_out() {
    let distinct: BTreeSet<BTreeSet<&str>> =
        (0..40).map(|seed| classes(seed, Profile::Network, 120_000)).collect();
    assert!(distinct.len() > 20, "{distinct:?}");
}

#[test]
fn some_clients_speak_the_redis_protocol() {
    let plans: Vec<Plan> = (0..40).map(|seed| Plan::draw(seed, Profile::Calm, SHORT_MS)).collect();
    let spoken: Vec<&Plan> = plans.iter().filter(|plan| plan.world.resp_from > 0).collect();
    assert!((8..32).contains(&spoken.len()), "{}", spoken.len());
    let speaks = |plan: &Plan, has: fn(&Op) -> bool| {
        plan.ops.iter().any(|op| plan.world.speaks_resp(op.client) && has(&op.op))
    };
    for has in [
        (|op| matches!(op, Op::Insert { copies: 2.., .. })) as fn(&Op) -> bool,
        |op| matches!(op, Op::Insert { copies: 1, .. }),
        |op| matches!(op, Op::Contains { any: true, .. }),
        |op| matches!(op, Op::Contains { any: false, .. }),
    ] {
        assert!(spoken.iter().any(|plan| speaks(plan, has)));
    }
    let failover = Plan::draw(1, Profile::Failover, SHORT_MS);
    assert_eq!(failover.world.resp_from, 0);
}

#[test]
fn some_of_them_race_on_a_filter_of_their_own() {
    let plans: Vec<Plan> = (0..40).map(|seed| Plan::draw(seed, Profile::Calm, SHORT_MS)).collect();
    let is_race = |op: &Op| matches!(op, Op::AddNew { .. } | Op::Expire { .. });
    let races = |plan: &Plan| plan.ops.iter().any(|op| is_race(&op.op));
    let racing: Vec<&Plan> = plans.iter().filter(|plan| races(plan)).collect();
    assert!((3..24).contains(&racing.len()), "{}", racing.len());
    for plan in racing {
        let own = plan.filters.iter().find(|filter| filter.name == races::FILTER).unwrap();
        assert!(own.kind.tells_copies());
        for op in &plan.ops {
            let is_of_own = op.op.filter_names().any(|(_, name)| name == own.name);
            assert_eq!(is_of_own, is_race(&op.op), "{op:?}");
        }
        // Every call is one of several, and three of those are sent to different nodes.
        for op in plan.ops.iter().filter(|op| is_race(&op.op)) {
            let same: Vec<&OpPlan> = plan.ops.iter().filter(|other| other.op == op.op).collect();
            let nodes: BTreeSet<u32> = same.iter().map(|other| other.via).collect();
            assert!((3..=5).contains(&same.len()) && nodes.len() >= 3, "{op:?}");
        }
    }
}

#[test]
fn some_of_them_delete_a_filter_and_copies_of_items() {
    let plans: Vec<Plan> = (0..40).map(|seed| Plan::draw(seed, Profile::Calm, SHORT_MS)).collect();
    for name in [deletions::TAKEN, deletions::COUNTED] {
        let has_own = |plan: &&Plan| plan.filters.iter().any(|filter| filter.name == name);
        let deleting: Vec<&Plan> = plans.iter().filter(has_own).collect();
        assert!((3..24).contains(&deleting.len()), "{name}: {}", deleting.len());
        let mut deletion_count = 0;
        for op in deleting.iter().flat_map(|plan| &plan.ops) {
            let is_own = op.op.filter_names().any(|(_, filter)| filter == name);
            let is_deletion = match &op.op {
                Op::Take { .. } => Some(name == deletions::TAKEN),
                Op::DeleteOne { .. } => Some(name == deletions::COUNTED),
                _ => None,
            };
            assert!(is_deletion.is_none_or(|is_of_name| is_of_name == is_own), "{op:?}");
            deletion_count += usize::from(is_own && is_deletion.is_some());
        }
        assert!(deletion_count >= deleting.len(), "{name}: {deletion_count}");
    }
}

/// A quotient filter lets none of more copies go.
#[test]
fn of_an_item_few_copies_are_added() {
    for seed in 0..40 {
        let plan = Plan::draw(seed, Profile::Calm, SHORT_MS);
        let mut copies: BTreeMap<u32, u32> = BTreeMap::new();
        for op in &plan.ops {
            if let Op::AddOne { items, .. } = &op.op {
                items.iter().for_each(|item| *copies.entry(*item).or_default() += 1);
            }
        }
        assert!(copies.values().all(|count| *count <= 3), "seed {seed}");
    }
}

#[test]
fn some_of_them_use_a_filter_before_and_after_its_time() {
    let plans: Vec<Plan> = (0..40).map(|seed| Plan::draw(seed, Profile::Calm, SHORT_MS)).collect();
    let has_own = |plan: &&Plan| plan.filters.iter().any(|own| own.name == expiries::EXPIRING);
    let expiring: Vec<&Plan> = plans.iter().filter(has_own).collect();
    assert!((3..32).contains(&expiring.len()), "{}", expiring.len());
    let (mut early_count, mut late_count) = (0, 0);
    for plan in expiring {
        let mut due_ms = None;
        for OpPlan { at_ms, op, .. } in &plan.ops {
            let is_of_own = op.filter_names().any(|(_, name)| name == expiries::EXPIRING);
            let is_own = match op {
                Op::ExpireIn { in_ms, .. } => {
                    due_ms = Some(at_ms + in_ms);
                    true
                }
                Op::AddVia { .. } | Op::AskVia { .. } => true,
                _ => false,
            };
            assert_eq!(is_of_own, is_own, "{op:?}");
            if let (Op::AddVia { .. }, Some(due_ms)) = (op, due_ms) {
                let is_early = *at_ms < due_ms;
                early_count += usize::from(is_early);
                late_count += usize::from(!is_early);
            }
        }
    }
    assert!(early_count > 3 && late_count > 3, "{early_count} early, {late_count} late");
}
