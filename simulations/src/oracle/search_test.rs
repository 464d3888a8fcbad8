//! Compares the rule for one item with a search over all orders of its operations.

use std::collections::BTreeSet;

use proptest::collection::vec;
use proptest::prelude::*;

use super::register::{self, Operation, RegisterAnswer};

/// Whether some order of the operations respects their times and yields their answers on one register.
/// Tries all orders; operations with unknown outcomes may be left out.
fn is_linearizable(operations: &[Operation]) -> bool {
    search(operations, 0, false, &mut BTreeSet::new())
}

/// Continues after the operations that are done, which left the register in this state. `seen` contains
/// the states from which no order exists.
fn search(
    operations: &[Operation],
    done: u32,
    is_set: bool,
    seen: &mut BTreeSet<(u32, bool)>,
) -> bool {
    let open = |at: &usize| done & 1 << at == 0;
    let left: Vec<usize> = (0..operations.len()).filter(open).collect();
    if left.iter().all(|&at| operations[at].answer == RegisterAnswer::Unknown) {
        return true;
    }
    if !seen.insert((done, is_set)) {
        return false;
    }
    // Only an operation that began before any other remaining one ended can be next.
    let first_end_us = left.iter().map(|&at| operations[at].end_us).min().unwrap_or(u64::MAX);
    left.iter().any(|&at| {
        let Operation { answer, start_us, .. } = operations[at];
        let fits = match answer {
            RegisterAnswer::New | RegisterAnswer::No => !is_set,
            RegisterAnswer::Yes => is_set,
            RegisterAnswer::Unknown => true,
        };
        let sets = matches!(answer, RegisterAnswer::New | RegisterAnswer::Unknown);
        let next = |seen| search(operations, done | 1 << at, is_set || sets, seen);
        start_us <= first_end_us && fits && next(seen)
    })
}

fn is_accepted(operations: &[Operation]) -> bool {
    register::check(operations, u64::MAX).is_ok()
}

/// A client's call, and when it is applied, in thousandths of the call's duration.
#[derive(Clone, Copy, Debug)]
struct TimedCall {
    is_insert: bool,
    is_unknown: bool,
    pause_us: u64,
    length_us: u64,
    applied_per_mille: u64,
}

fn asked() -> impl Strategy<Value = TimedCall> {
    (any::<bool>(), 0..4_u8, 0..6_u64, 0..12_u64, 0..=1000_u64).prop_map(
        |(is_insert, unknown, pause_us, length_us, applied_per_mille)| TimedCall {
            is_insert,
            is_unknown: unknown == 0,
            pause_us,
            length_us,
            applied_per_mille,
        },
    )
}

/// The answers of one register to clients, each of which makes its calls one after the other.
fn run(clients: &[Vec<TimedCall>]) -> Vec<Operation> {
    let mut calls = Vec::new();
    for client in clients {
        let mut now_us = 0;
        for &asked in client {
            let start_us = now_us + asked.pause_us;
            now_us = start_us + asked.length_us;
            let applied = start_us * 1000 + asked.length_us * asked.applied_per_mille;
            calls.push((applied, start_us, now_us, asked));
        }
    }
    calls.sort_by_key(|&(applied, ..)| applied);
    let mut is_set = false;
    let mut operations = Vec::new();
    for (call, (_, start_us, end_us, asked)) in (0..).zip(calls) {
        let was_set = is_set;
        // Of two unknown inserts one is never applied.
        is_set |= asked.is_insert && !(asked.is_unknown && asked.applied_per_mille % 2 == 0);
        let (answer, end_us) = match (asked.is_insert, asked.is_unknown, was_set) {
            (true, true, _) => (RegisterAnswer::Unknown, u64::MAX),
            (true, false, false) => (RegisterAnswer::New, end_us),
            (false, _, false) => (RegisterAnswer::No, end_us),
            (_, _, true) => (RegisterAnswer::Yes, end_us),
        };
        operations.push(Operation { call, answer, start_us, end_us });
    }
    operations
}

fn flipped(answer: RegisterAnswer, to_new: bool) -> RegisterAnswer {
    match answer {
        RegisterAnswer::New | RegisterAnswer::No => RegisterAnswer::Yes,
        RegisterAnswer::Yes if to_new => RegisterAnswer::New,
        RegisterAnswer::Yes => RegisterAnswer::No,
        RegisterAnswer::Unknown => RegisterAnswer::Unknown,
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2_000))]

    #[test]
    fn what_a_register_answered_is_accepted(clients in vec(vec(asked(), 0..5), 1..4)) {
        let operations = run(&clients);
        prop_assert!(is_linearizable(&operations));
        prop_assert_eq!(register::check(&operations, u64::MAX), Ok(()));
    }

    #[test]
    fn with_one_answer_changed_rule_and_search_agree(
        clients in vec(vec(asked(), 0..5), 1..4), at: prop::sample::Index, to_new: bool,
    ) {
        let mut operations = run(&clients);
        prop_assume!(!operations.is_empty());
        let changed = at.index(operations.len());
        operations[changed].answer = flipped(operations[changed].answer, to_new);
        prop_assert_eq!(is_accepted(&operations), is_linearizable(&operations));
    }

    /// Random answers at random times.
    #[test]
    fn rule_and_search_agree(
        drawn in vec((0..4_u8, 0..12_u64, 0..12_u64), 0..8),
    ) {
        let operations: Vec<Operation> = (0..).zip(drawn).map(|(call, (answer, start_us, length_us))| {
            let (answer, end_us) = match answer {
                0 => (RegisterAnswer::New, start_us + length_us),
                1 => (RegisterAnswer::No, start_us + length_us),
                2 => (RegisterAnswer::Yes, start_us + length_us),
                _ => (RegisterAnswer::Unknown, u64::MAX),
            };
            Operation { call, answer, start_us, end_us }
        }).collect();
        prop_assert_eq!(is_accepted(&operations), is_linearizable(&operations));
    }
}
