//! Histories of a correct service, in which no check finds a violation whatever overlaps, is cleared,
//! merged, removed or has an unknown outcome; and some histories that violate an invariant.

use std::collections::BTreeMap;

use rand::rngs::ChaCha8Rng;
use rand::{RngExt as _, SeedableRng as _};

use super::check_history;
use crate::history::{Outcome, Verb};
use crate::oracle::fixture::{Cluster, History};
use crate::plan::FilterKind;

const KINDS: [FilterKind; 4] =
    [FilterKind::Classic, FilterKind::Blocked, FilterKind::Counting, FilterKind::Scalable];

/// The parameters of a random history.
#[derive(Clone, Copy)]
struct Mix {
    kind: FilterKind,
    calls: u32,
    items: u32,
    /// Share of calls that change a filter as a whole, in thousandths.
    rewrites: u32,
    /// Share of calls that remove items, in thousandths.
    removes: u32,
}

/// Calls on two filters, `f` and `g`, in the order in which the service applies them: each at one moment
/// of its duration or, if its outcome is unknown, later or never.
fn draw(seed: u64, mix: Mix) -> (History, Cluster) {
    let mut rng = ChaCha8Rng::seed_from_u64(seed);
    let (mut history, mut cluster) = (History::new(), Cluster::new());
    for name in ["f", "g"] {
        history.knows(name, mix.kind, mix.rewrites > 0);
        cluster.create(name, mix.kind);
    }
    let mut todo = BTreeMap::new();
    for number in 0..mix.calls {
        // One call per two milliseconds, so that several overlap.
        let start_us = rng.random_range(0..u64::from(mix.calls) * 2_000);
        let end_us = start_us + rng.random_range(5_000..40_000);
        let fate = rng.random_range(0..10);
        let applied_us = match fate {
            0 => rng.random_range(start_us..end_us + 50_000),
            _ => rng.random_range(start_us..=end_us),
        };
        todo.insert((applied_us, number), (start_us, end_us, fate));
    }
    for ((applied_us, _), (start_us, end_us, fate)) in todo {
        cluster.at_us = applied_us;
        let name = if rng.random() { "f" } else { "g" };
        let verb = drawn_verb(&mut rng, mix);
        let count = if verb == Verb::Remove { 1 } else { rng.random_range(1..4) };
        let has_items = matches!(verb, Verb::Insert | Verb::Contains | Verb::Remove);
        let items: Vec<u32> = (0..if has_items { count } else { 0 })
            .map(|_| rng.random_range(0..mix.items))
            .collect();
        // Refused, or unknown and never applied.
        let applied = if fate == 1 || (fate == 0 && rng.random()) {
            None
        } else {
            apply(&mut cluster, mix.kind, verb, name, &items)
        };
        let outcome = match (fate, applied) {
            (0, _) => Outcome::Unknown("deadline".to_owned()),
            (_, Some(bits)) => Outcome::Done(bits),
            (_, None) => Outcome::NotApplied("refused".to_owned()),
        };
        history.call(verb, name, &items, (start_us, end_us), outcome);
    }
    (history, cluster)
}

fn drawn_verb(rng: &mut ChaCha8Rng, mix: Mix) -> Verb {
    let drawn = rng.random_range(0..1_000);
    if drawn < mix.rewrites {
        let verbs = [Verb::Clear, Verb::Drop, Verb::Create, Verb::Create, Verb::Merge];
        return verbs[rng.random_range(0..verbs.len())];
    }
    if drawn < mix.rewrites + mix.removes {
        return Verb::Remove;
    }
    if rng.random() { Verb::Insert } else { Verb::Contains }
}

/// The answers; None if the call is refused.
fn apply(
    cluster: &mut Cluster,
    kind: FilterKind,
    verb: Verb,
    name: &str,
    items: &[u32],
) -> Option<Vec<bool>> {
    let at_us = cluster.at_us;
    let is_there = |name: &str| cluster.meta.filter_by_name(name).is_some();
    if is_there(name) == (verb == Verb::Create) {
        return None;
    }
    let is_mergeable = matches!(kind, FilterKind::Classic | FilterKind::Blocked);
    match verb {
        Verb::Insert => return Some(cluster.insert(name, items)),
        Verb::Contains | Verb::ContainsAny => return Some(cluster.contains(name, items)),
        Verb::Remove => return Some(vec![cluster.remove(name, items[0])]),
        Verb::Merge if !is_mergeable || !is_there("f") || !is_there("g") => return None,
        Verb::Merge if name == "f" => cluster.merge("f", "g"),
        Verb::Merge => cluster.merge("g", "f"),
        Verb::Create => drop(cluster.create(name, kind)),
        Verb::Drop => cluster.drop_filter(name, at_us),
        Verb::Clear => cluster.clear(name, at_us),
        Verb::InsertCopy(_)
        | Verb::ContainsCopy
        | Verb::ContainsMajority
        | Verb::Flush
        | Verb::Rotate
        | Verb::Snapshot
        | Verb::Rename
        | Verb::Intersect
        | Verb::AddNew
        | Verb::Expire
        | Verb::Take
        | Verb::AddOne
        | Verb::DeleteOne
        | Verb::ExpireIn
        | Verb::AddVia
        | Verb::AskVia => unreachable!("nobody draws it"),
    }
    Some(Vec::new())
}

/// The names of the violated invariants, and the number of checks.
fn broken(history: &History, cluster: &Cluster) -> (Vec<String>, u64) {
    let checks = check_history(&history.calls, &history.facts, &cluster.reference);
    let count = checks.iter().map(|(_, count, _)| count).sum();
    let found = checks.into_iter().flat_map(|(_, _, violations)| violations);
    (found.map(|violation| violation.to_string()).collect(), count)
}

#[test]
fn kept_promises_are_not_called_broken() {
    let mut checks = 0;
    for seed in 0..12 {
        for kind in KINDS {
            for (rewrites, removes) in [(0, 0), (120, 0), (0, 150), (120, 150)] {
                let removes = if kind == FilterKind::Counting { removes } else { 0 };
                let items = if seed % 2 == 0 { 12 } else { 300 };
                let mix = Mix { kind, calls: 200, items, rewrites, removes };
                let (history, cluster) = draw(seed, mix);
                let (violations, count) = broken(&history, &cluster);
                assert_eq!(violations, [""; 0], "seed {seed}, {kind:?}, {rewrites}, {removes}");
                checks += count;
            }
        }
    }
    assert!(checks > 100_000, "{checks}");
}

/// If one answer of a `Contains` is changed, most histories violate an invariant; not all, because the
/// call may have overlapped the insert.
#[test]
fn a_changed_answer_is_found_mostly() {
    for kind in KINDS {
        let mut found = 0;
        for seed in 0..40 {
            let mix = Mix { kind, calls: 200, items: 12, rewrites: 0, removes: 0 };
            let (mut history, cluster) = draw(seed, mix);
            let answered = |call: &&mut crate::history::Call| {
                call.verb == Verb::Contains && matches!(call.outcome, Outcome::Done(_))
            };
            let call = history.calls.iter_mut().rfind(answered).unwrap();
            let Outcome::Done(bits) = &mut call.outcome else { unreachable!() };
            bits[0] = !bits[0];
            found += u64::from(!broken(&history, &cluster).0.is_empty());
        }
        assert!(found >= 35, "{kind:?}: {found} of 40");
    }
}
