//! Laws of the plan, and totals computed by hand.

use proptest::prelude::*;

use super::*;

/// A small cluster whose break-even is above 0.
const ITEMS: u64 = 10_000_000;
const NODES: usize = 64;

fn plan(input: &DistributionInput) -> DistributionPlan {
    DistributionPlan::new(input).unwrap()
}

fn asked(query_count: u64) -> DistributionPlan {
    plan(&DistributionInput::new(ITEMS, 0.01, NODES, query_count))
}

fn is_near(a: f64, b: f64, relative_error: f64) -> bool {
    (a - b).abs() <= relative_error * a.abs().max(b.abs())
}

#[test]
fn a_change_comes_to_every_other_node_once() {
    for node_count in 1..=130 {
        let cube = Cube::new(node_count).unwrap();
        let messages: Vec<_> = sweep_messages(cube, 1000).collect();
        let changes: f64 = messages.iter().map(|&(count, each)| f64::from(count) * each).sum();
        let others = (node_count * (node_count - 1)) as f64;
        assert!(is_near(changes, 1000.0 * others, 1e-12), "{node_count} nodes");
        let message_count: u64 = messages.iter().map(|&(count, _)| u64::from(count)).sum();
        assert_eq!(message_count, cube.message_count());
    }
}

#[test]
fn eight_nodes_by_hand() {
    let plan = plan(&DistributionInput::new(10_000_000, 0.01, 8, 0));
    let bytes = plan.shape.memory_bytes();
    assert!(is_near(bytes as f64, 9.91 / 8.0 * 1e7, 0.001));
    assert_eq!(plan.partitioned.node_memory_bytes, (bytes * 3).div_ceil(8));
    assert_eq!(plan.replicated.node_memory_bytes, bytes);
    assert_eq!((plan.sweep_step_count, plan.sweep_message_count), (3, 24));
    assert_eq!(plan.partitioned.insert_bytes, 7.0 / 8.0 * 16.125 + 32.0);
    assert_eq!(plan.partitioned.insert_round_trips, 1.875);
    // 193,548 blocks, and 10, 20, 40 thousand changes in the messages: gaps of 19.4, 9.7, 4.8.
    let gaps = [(1.0, 19.4_f64), (2.0, 9.7), (4.0, 4.8)];
    let change_bits = gaps.map(|(share, gap)| share * (32.0 + 1.5 + gap.log2()));
    let envelopes = 24.0 * (128.0 + 100.0) / 80_000.0;
    let by_hand = change_bits.iter().sum::<f64>() / 8.0 + envelopes;
    assert!(is_near(plan.replicated.insert_bytes, by_hand, 0.01), "{plan:?}, {by_hand}");
}

#[test]
fn a_change_takes_a_seed_and_a_gap() {
    for node_count in [2, 3, 8, 11, 64, 100, 256] {
        let plan = plan(&DistributionInput::new(100_000_000, 0.01, node_count, 0));
        let others = (node_count - 1) as f64;
        let each = plan.replicated.insert_bytes / others;
        assert!((4.1..6.0).contains(&each), "{node_count} nodes: {each} bytes a change and node");
    }
}

#[test]
fn totals_are_equal_at_the_break_even() {
    let plan = asked(0);
    let break_even = plan.break_even_query_count.unwrap();
    assert!(break_even > 0.0, "{plan:?}");
    let items = ITEMS as f64;
    let [partitioned, replicated] =
        [plan.partitioned, plan.replicated].map(|cost| cost.bytes(items, break_even));
    assert!(is_near(partitioned, replicated, 1e-12), "{partitioned} and {replicated}");
    // One query below and one above.
    let around = [break_even.floor(), break_even.ceil() + 1.0].map(|queries| asked(queries as u64));
    let advised = around.map(|plan| plan.advice);
    let [below, above] =
        [DistributionAdvice::PartitionedMovesLess, DistributionAdvice::ReplicatedMovesLess];
    assert_eq!(advised, [below, above]);
}

#[test]
fn the_rule_of_thumb_is_near() {
    for node_count in [16, 64, 100, 256] {
        let plan = plan(&DistributionInput::new(100_000_000, 0.01, node_count, 0));
        let (nodes, replicas) = (node_count as f64, f64::from(plan.replica_count));
        let change_bytes = plan.replicated.insert_bytes / (nodes - 1.0);
        let saved = (nodes - 1.0) * change_bytes - 16.0 * (replicas - 1.0);
        let rule = saved / (16.0 * (1.0 - 1.0 / nodes)) - 1.0;
        let exact = plan.break_even_query_count.unwrap() / 1e8;
        assert!((rule - exact).abs() < 0.01 * (exact + 3.0), "{node_count}: {rule}, {exact}");
    }
}

#[test]
fn one_node_sends_nothing() {
    let plan = plan(&DistributionInput::new(1_000, 0.01, 1, 1_000_000));
    for cost in [plan.partitioned, plan.replicated] {
        let bytes = [cost.insert_bytes, cost.query_bytes, cost.total_bytes];
        assert_eq!(bytes, [0.0; 3]);
        assert_eq!([cost.insert_round_trips, cost.query_round_trips], [0.0; 2]);
        assert_eq!(cost.node_memory_bytes, plan.shape.memory_bytes());
    }
    assert_eq!((plan.replica_count, plan.break_even_query_count), (1, None));
    assert_eq!((plan.sweep_step_count, plan.sweep_message_count), (0, 0));
    assert_eq!(plan.advice, DistributionAdvice::OneNode);
}

#[test]
fn nodes_beyond_the_corners_cost_two_steps() {
    let steps = [2, 3, 4, 5, 7, 8, 9]
        .map(|nodes| plan(&DistributionInput::new(1_000, 0.01, nodes, 0)).sweep_step_count);
    assert_eq!(steps, [1, 3, 2, 4, 4, 3, 5]);
}

#[test]
fn the_whole_filter_is_sent_where_it_is_shorter() {
    // 1,000 items in one sweep: a copy has 1.2 KB, a list of all changes would have 4.
    let plan = plan(&DistributionInput::new(1_000, 0.01, 64, 0));
    assert_eq!(plan.sweep_item_count, 16);
    let copies = plan.sweep_message_count * plan.shape.memory_bytes();
    let envelopes = plan.sweep_message_count * (16 * 64 + 100);
    assert!(plan.replicated.insert_bytes * 1024.0 < (copies + envelopes) as f64);
}

#[test]
fn memory_decides_before_bytes() {
    let input = DistributionInput::new(ITEMS, 0.01, NODES, u64::MAX);
    let copy_bytes = plan(&input).shape.memory_bytes();
    let share_bytes = plan(&input).partitioned.node_memory_bytes;
    let with = |node_memory_bytes| {
        plan(&DistributionInput { node_memory_bytes: Some(node_memory_bytes), ..input }).advice
    };
    assert_eq!(with(copy_bytes), DistributionAdvice::ReplicatedMovesLess);
    assert_eq!(with(copy_bytes - 1), DistributionAdvice::CopyAboveMemory { copy_bytes });
    assert_eq!(with(share_bytes), DistributionAdvice::CopyAboveMemory { copy_bytes });
    // One byte less, and 64 nodes with 3 replicas are just too few.
    assert_eq!(with(share_bytes - 1), DistributionAdvice::MoreNodes { node_count_min: 65 });
    let large = plan(&DistributionInput::new(1_000_000_000, 0.001, 8, u64::MAX));
    let copy_bytes = large.shape.memory_bytes();
    assert_eq!(large.advice, DistributionAdvice::CopyAboveLimit { copy_bytes });
    assert_eq!(large.advice.distribution(), Distribution::Partitioned);
    assert_eq!(large.shard_count_min, copy_bytes.div_ceil(256 << 20));
}

#[test]
fn nodes_that_are_said_to_be_enough_are() {
    for (node_count, replica_count) in [(1, 3), (2, 3), (5, 1), (7, 9)] {
        let input = DistributionInput {
            replica_count,
            node_memory_bytes: Some(1_000_000),
            ..DistributionInput::new(20_000_000, 0.01, node_count, 0)
        };
        let DistributionAdvice::MoreNodes { node_count_min } = plan(&input).advice else {
            panic!("{:?}", plan(&input));
        };
        let fits = |node_count: u64| {
            let advice =
                plan(&DistributionInput { node_count: node_count as usize, ..input }).advice;
            !matches!(advice, DistributionAdvice::MoreNodes { .. })
        };
        assert!(fits(node_count_min) && !fits(node_count_min - 1), "{node_count_min}");
    }
}

#[test]
fn bad_numbers_are_named() {
    let good = DistributionInput::new(1_000, 0.01, 3, 0);
    let text = |input| DistributionPlan::new(&input).unwrap_err().to_string();
    let bad = [
        (DistributionInput { item_count: 0, ..good }, "0 items"),
        (DistributionInput { false_positive_rate: 0.0, ..good }, "rate 0,"),
        (DistributionInput { false_positive_rate: 1.0, ..good }, "rate 1,"),
        (DistributionInput { false_positive_rate: f64::NAN, ..good }, "rate NaN,"),
        (DistributionInput { node_count: 0, ..good }, "0 nodes, expected 1 to 256"),
        (DistributionInput { node_count: 257, ..good }, "257 nodes"),
        (DistributionInput { replica_count: 0, ..good }, "0 replicas, expected 1 to 9"),
        (DistributionInput { replica_count: 10, ..good }, "10 replicas"),
        (DistributionInput { sweep_item_count: 0, ..good }, "0 items between two sweeps"),
        (DistributionInput { node_memory_bytes: Some(0), ..good }, "0 bytes of memory"),
        (DistributionInput { item_count: u64::MAX, ..good }, "no such filter"),
        (DistributionInput { item_count: 1 << 40, ..good }, "at most 68719476736"),
        (DistributionInput { false_positive_rate: 1e-9, ..good }, "no such filter"),
    ];
    for (input, expected) in bad {
        assert!(text(input).contains(expected), "{}", text(input));
    }
}

proptest! {
    /// More queries cost more if partitioned and nothing if replicated; once replicated is advised,
    /// it stays advised.
    #[test]
    fn more_questions_never_speak_for_partitioned(
        items in 1_u64..1 << 32,
        nodes in 1_usize..=256,
        replicas in 1_u32..=9,
        sweep_items in 1_u64..1 << 20,
        queries in 0_u64..1 << 40,
        more in 0_u64..1 << 40,
    ) {
        let input = DistributionInput {
            replica_count: replicas,
            sweep_item_count: sweep_items,
            ..DistributionInput::new(items, 0.01, nodes, queries)
        };
        let few = plan(&input);
        let many = plan(&DistributionInput { query_count: queries + more, ..input });
        prop_assert!(few.partitioned.total_bytes <= many.partitioned.total_bytes);
        prop_assert_eq!(few.replicated, many.replicated);
        prop_assert_eq!(few.break_even_query_count, many.break_even_query_count);
        if few.advice == DistributionAdvice::ReplicatedMovesLess {
            prop_assert_eq!(many.advice, few.advice);
        }
        prop_assert!(few.partitioned.node_memory_bytes <= few.replicated.node_memory_bytes);
        prop_assert!(few.replicated.total_bytes.is_finite() && few.replicated.total_bytes >= 0.0);
    }
}
