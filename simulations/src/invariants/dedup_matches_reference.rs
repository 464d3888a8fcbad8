//! A finished job has kept one record of each class of equal items, the right one, except for items
//! that its filter already contained. Each machine has committed exactly those records under the job's
//! name and was told how much of every machine's records was repeated, and all kept items are in the
//! filter. A job without a result has committed nothing.

use std::collections::{BTreeMap, BTreeSet};

use umbel_dedup_engine::{GroupSize, Keep, Rank, RecordId, reference};

use super::checked::Checked;
use crate::jobs::{Output, part_of, rank_of, record_id_of, weight_of};
use crate::plan::JobPlan;

/// Name of the invariant.
pub(crate) const NAME: &str = "dedup_matches_reference";

/// What one job came to.
pub(crate) struct JobFacts<'a> {
    /// Its index in the plan.
    pub(crate) index: usize,
    /// The plan.
    pub(crate) plan: &'a JobPlan,
    /// State in the ledger: done, failed or cancelled.
    pub(crate) state: &'a str,
    /// Machines that worked, in the order of workers.
    pub(crate) machines: Vec<u32>,
    /// What is committed under its name on each of them.
    pub(crate) committed: Vec<Option<Output>>,
    /// What was added to its filter.
    pub(crate) added: BTreeSet<u32>,
}

/// Checks one job at the end of a run.
pub(crate) fn check(checked: &mut Checked, now_us: u64, facts: &JobFacts<'_>) {
    let JobFacts { index, plan, state, machines, committed, added } = facts;
    if *state != "done" {
        for (machine, output) in machines.iter().zip(committed) {
            let what = output.as_ref().map(|_| {
                format!("job {index} is {state}, but machine {machine} has put its output under its name")
            });
            checked.record(now_us, what);
        }
        return;
    }
    let expected = expected(facts);
    let kept = |(&machine, output): (&u32, &Output)| {
        let items = plan.items(machine);
        output.kept.iter().map(|&record| items[record as usize]).collect::<Vec<_>>()
    };
    let kept: BTreeSet<u32> = machines.iter().zip(&expected).flat_map(kept).collect();
    let wrong = added.symmetric_difference(&kept).next().filter(|_| plan.asks);
    let what = wrong.map(|item| {
        let what = if added.contains(item) { "has, but was not to get" } else { "lacks" };
        format!("job {index} is done, and its filter {what} item {item}")
    });
    checked.record(now_us, what);
    for (machine, (output, expected)) in machines.iter().zip(committed.iter().zip(expected)) {
        let what = match output {
            None => Some("has no output".to_owned()),
            Some(output) => difference(output, &expected, plan.report),
        };
        let what = what.map(|what| format!("job {index} is done, but machine {machine} {what}"));
        checked.record(now_us, what);
    }
}

/// What every machine must have kept and dropped, by a slow reference.
fn expected(facts: &JobFacts<'_>) -> Vec<Output> {
    let rules = facts.plan.rules();
    let mut records = Vec::new();
    let mut base = 0;
    let mut bases = Vec::new();
    for &machine in &facts.machines {
        bases.push(base);
        let items = facts.plan.items(machine);
        let ranked = |(record, item): (u32, u32)| {
            let record_id = record_id_of(base, record);
            let rank = if rules.keep == Keep::Best { rank_of(record_id) } else { Rank::default() };
            (rank, record_id, item)
        };
        records.extend((0..).zip(items).map(ranked));
        base += facts.plan.chunk_count(machine);
    }
    let drops: BTreeMap<RecordId, RecordId> =
        reference::ranked_drops(&records, rules.keep).into_iter().collect();
    let known: BTreeSet<u32> = facts.plan.known_items().collect();
    let items: BTreeMap<RecordId, u32> =
        records.iter().map(|(_, record_id, item)| (*record_id, *item)).collect();
    let mut sizes: BTreeMap<RecordId, u64> = BTreeMap::new();
    for (record_id, kept) in &drops {
        if !known.contains(&items[record_id]) {
            *sizes.entry(*kept).or_insert(1) += 1;
        }
    }
    let weight = |(&machine, &base): (&u32, &u32)| {
        let own = facts.plan.chunks_from(base, machine);
        let is_own = |record_id: &RecordId| own.contains(&record_id.chunk());
        let repeats = drops
            .keys()
            .filter(|record_id| is_own(record_id) && !known.contains(&items[record_id]));
        let kept_for = sizes.iter().filter(|(kept, _)| is_own(kept)).map(|(_, size)| *size);
        weight_of(repeats.count() as u64, kept_for)
    };
    let weights: Vec<Vec<u8>> = facts.machines.iter().zip(&bases).map(weight).collect();
    let of_machine = |(&machine, &base): (&u32, &u32)| {
        let mut output = Output { weights: weights.clone(), ..Output::default() };
        let own = facts.plan.chunks_from(base, machine);
        if rules.report_kept {
            let mut named: BTreeSet<RecordId> = BTreeSet::new();
            let of_own = drops.iter().filter(|(record_id, _)| own.contains(&record_id.chunk()));
            named.extend(of_own.filter(|_| rules.report_sizes).map(|(_, kept)| *kept));
            let is_reported = |kept: &RecordId| own.contains(&kept.chunk()) || named.contains(kept);
            let reported = sizes.iter().filter(|(kept, _)| is_reported(kept));
            let named = |kept: RecordId| (!own.contains(&kept.chunk())).then(|| part_of(kept));
            let group =
                |(&kept, &size): (&RecordId, &u64)| (kept, GroupSize { size, part: named(kept) });
            output.groups = reported.map(group).collect();
        }
        for (record, item) in (0..).zip(facts.plan.items(machine)) {
            let record_id = record_id_of(base, record);
            match drops.get(&record_id) {
                // It is noted as kept in its own stead: what was kept is none of this job's records.
                _ if known.contains(&item) => output.dropped.push((record, Some(record_id))),
                None if facts.plan.is_held(item) => output.dropped.push((record, Some(record_id))),
                None => output.kept.push(record),
                Some(kept) => output.dropped.push((record, Some(*kept))),
            }
        }
        output
    };
    facts.machines.iter().zip(&bases).map(of_machine).collect()
}

fn difference(output: &Output, expected: &Output, reports: bool) -> Option<String> {
    if output.kept != expected.kept {
        let wrong =
            |one: &[u32], other: &[u32]| one.iter().copied().find(|record| !other.contains(record));
        return Some(match wrong(&output.kept, &expected.kept) {
            Some(record) => format!("kept record {record}, which is a duplicate"),
            None => format!("lost record {:?}", wrong(&expected.kept, &output.kept)),
        });
    }
    if reports && output.dropped != expected.dropped {
        let pairs = output.dropped.iter().zip(&expected.dropped);
        let wrong = pairs.into_iter().find(|(one, other)| one != other);
        return Some(format!("says of a dropped record {wrong:?} (said, expected)"));
    }
    if reports && output.groups != expected.groups {
        let both = output.groups.keys().chain(expected.groups.keys());
        let wrong = both.map(|kept| (kept, output.groups.get(kept), expected.groups.get(kept)));
        let wrong = wrong.into_iter().find(|(_, actual, expected)| actual != expected);
        return Some(format!("says of a group {wrong:?} (kept, said, expected)"));
    }
    if reports && output.weights != expected.weights {
        let (actual, expected) = (&output.weights, &expected.weights);
        return Some(format!("was told the weights {actual:?} of machines, expected {expected:?}"));
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::{JobFilter, JobKeep, JobLevel};

    fn plan() -> JobPlan {
        JobPlan {
            at_ms: 0,
            records: vec![40, 30],
            distinct: 20,
            level: JobLevel::Fingerprint,
            keep: JobKeep::Best,
            known: true,
            report: true,
            sizes: true,
            filter: JobFilter::Auto,
            grid: false,
            cells: 2,
            asks: true,
            cancel_at_ms: None,
        }
    }

    fn found(change: impl Fn(&mut Vec<Option<Output>>), state: &'static str) -> usize {
        found_with(change, |_| {}, state)
    }

    fn found_with(
        change: impl Fn(&mut Vec<Option<Output>>),
        change_added: impl Fn(&mut BTreeSet<u32>),
        state: &'static str,
    ) -> usize {
        let plan = plan();
        let (machines, committed, added) = (vec![1, 2], Vec::new(), BTreeSet::new());
        let mut facts = JobFacts { index: 0, plan: &plan, state, machines, committed, added };
        for (machine, output) in [1, 2].into_iter().zip(expected(&facts)) {
            let items = plan.items(machine);
            facts.added.extend(output.kept.iter().map(|&record| items[record as usize]));
            facts.committed.push(Some(output));
        }
        change(&mut facts.committed);
        change_added(&mut facts.added);
        let mut checked = Checked::new(NAME);
        check(&mut checked, 1, &facts);
        checked.violations.len()
    }

    #[test]
    fn what_is_lost_kept_twice_or_there_too_early_is_found() {
        assert_eq!(found(|_| {}, "done"), 0);
        assert_eq!(found(|outputs| outputs[1] = None, "done"), 1);
        let lose = |outputs: &mut Vec<Option<Output>>| {
            outputs[0].as_mut().unwrap().kept.remove(3);
        };
        assert_eq!(found(lose, "done"), 1);
        let twice = |outputs: &mut Vec<Option<Output>>| {
            outputs[1].as_mut().unwrap().kept.push(29);
        };
        assert_eq!(found(twice, "done"), 1);
        let misname = |outputs: &mut Vec<Option<Output>>| {
            outputs[1].as_mut().unwrap().dropped[0].1 = Some(RecordId::new(9, 9));
        };
        assert_eq!(found(misname, "done"), 1);
        let miscount = |outputs: &mut Vec<Option<Output>>| {
            let mut sizes = outputs[1].as_mut().unwrap().groups.values_mut();
            sizes.next().unwrap().size += 1;
        };
        assert_eq!(found(miscount, "done"), 1);
        let misreport = |outputs: &mut Vec<Option<Output>>| {
            outputs[0].as_mut().unwrap().weights.swap(0, 1);
        };
        assert_eq!(found(misreport, "done"), 1);
        let lack = |added: &mut BTreeSet<u32>| assert!(added.pop_first().is_some());
        assert_eq!(found_with(|_| {}, lack, "done"), 1);
        let add = |added: &mut BTreeSet<u32>| assert!(added.insert(1_000));
        assert_eq!(found_with(|_| {}, add, "done"), 1);
        assert_eq!(found(|_| {}, "failed"), 2);
        assert_eq!(found(|outputs| outputs.fill(None), "cancelled"), 0);
    }
}
