//! Once any client has seen a filter emptied, no client sees it as it was before. That is from the end of
//! the clear on, or of an answer that reports an item as absent which was acknowledged before the clear
//! began. From then on, no linearizable query that begins later reports anything as present that only
//! inserts from before the clear explain. Nor may one answer mix both states: its items are in several
//! shards, but it is about one generation.
//!
//! Checked for filters with one incarnation and known positions that were cleared and never merged
//! into. Answers that any replica may give are not linearizable, and are left out.

use std::collections::BTreeMap;

use super::acked_is_contained::{Negative, negatives};
use super::checked::Checked;
use crate::history::{Call, Verb};
use crate::oracle::bits::{FirstSet, Probes};
use crate::oracle::view::{FilterView, Request, View, end_us};

/// Name of the invariant.
pub(crate) const NAME: &str = "reset_is_atomic";

/// Checks every clear.
pub(crate) fn check(view: &View<'_>) -> Checked {
    let mut checked = Checked::new(NAME);
    for filter in &view.filters {
        let Some(probes) = probes_of(filter) else { continue };
        let acked = filter.acked_by_item();
        for clear in &filter.erasers {
            if let Some(seen) = first_seen(filter, clear, &acked) {
                check_after(filter, probes, clear, seen, &mut checked);
            }
        }
    }
    checked
}

/// The positions of a filter that this can be asked of.
fn probes_of<'a>(filter: &'a FilterView<'_>) -> Option<&'a Probes> {
    let [life] = &filter.lives[..] else { return None };
    let is_counted = filter.facts.kind.removes();
    let is_cleared = filter.erasers.iter().all(|eraser| eraser.call.verb == Verb::Clear);
    let is_simple = is_cleared && !is_counted && life.sources.is_empty();
    is_simple.then_some(life.probes.as_ref()).flatten()
}

/// The first evidence of a clear: the answer, and when it arrived.
#[derive(Clone, Copy)]
struct FirstEvidence {
    call: u32,
    end_us: u64,
}

/// The first answer that shows that a clear was done.
fn first_seen(
    filter: &FilterView<'_>,
    clear: &Request<'_>,
    acked: &BTreeMap<u32, Vec<&Request<'_>>>,
) -> Option<FirstEvidence> {
    let done = clear.answers.map(|_| FirstEvidence { call: clear.call.id, end_us: clear.end_us });
    let absent = negatives(filter).into_iter().filter(|negative| {
        let before = acked.get(&negative.item).map_or(&[][..], Vec::as_slice);
        let latest_us = clear.start_us.min(negative.start_us);
        // The insert that began last: the fewest clears are between it and the answer.
        let last = before.iter().rev().find(|insert| insert.end_us < latest_us);
        last.is_some_and(|insert| is_only_one(filter, clear, insert.start_us, negative.end_us))
    });
    let absent =
        absent.map(|Negative { call, end_us, .. }| FirstEvidence { call: call.id, end_us });
    done.into_iter().chain(absent).min_by_key(|seen| seen.end_us)
}

/// Whether no other clearing may have been done in that time.
fn is_only_one(filter: &FilterView<'_>, clear: &Request<'_>, from_us: u64, to_us: u64) -> bool {
    let others = filter.erasers.iter().filter(|other| other.call.id != clear.call.id);
    let mut meanwhile = others.filter(|other| other.start_us <= to_us && other.last_us >= from_us);
    clear.start_us <= to_us && meanwhile.next().is_none()
}

fn check_after(
    filter: &FilterView<'_>,
    probes: &Probes,
    clear: &Request<'_>,
    seen: FirstEvidence,
    checked: &mut Checked,
) {
    // What may be in the generations from the clearing on.
    let mut set = FirstSet::new(probes.position_count());
    for insert in filter.inserts.iter().filter(|insert| insert.last_us >= clear.start_us) {
        for &item in &insert.call.items {
            set.set(probes.of(item), insert.start_us, insert.call.id);
        }
    }
    let reads = filter.reads.iter().filter(|read| read.verb == Verb::Contains);
    for &read in reads.filter(|read| read.start_us > seen.end_us || read.id == seen.call) {
        for (item, is_maybe) in FilterView::read_answers(read).filter(|&(_, is_maybe)| is_maybe) {
            let (first_us, _) = set.all_set(probes.of(item));
            let is_old = is_maybe && first_us > end_us(read);
            checked.record(end_us(read), is_old.then(|| broken(filter, clear, seen, read, item)));
        }
    }
}

fn broken(
    filter: &FilterView<'_>,
    clear: &Request<'_>,
    seen: FirstEvidence,
    read: &Call,
    item: u32,
) -> String {
    format!(
        "call {} calls item {item} of {} present, which was inserted before clearing {} alone, and \
         call {} had seen the filter emptied at {} us",
        read.id, filter.facts.name, clear.call.id, seen.call, seen.end_us
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::invariants::check_history;
    use crate::oracle::fixture::{Cluster, History};
    use crate::plan::FilterKind;

    /// A filter with items 1 and 2 from before a clearing that lasts from 100 to 200 us, and 3 from after it.
    fn cleared() -> (History, Cluster) {
        let (mut history, mut cluster) = (History::new(), Cluster::new());
        history.knows("f", FilterKind::Classic, true);
        cluster.create("f", FilterKind::Classic);
        cluster.insert("f", &[1, 2]);
        history.insert("f", &[1, 2], 10, 20, &[true, true]);
        cluster.clear("f", 150);
        history.done(Verb::Clear, "f", &[], 100, 200, &[]);
        cluster.at_us = 300;
        cluster.insert("f", &[3]);
        history.insert("f", &[3], 290, 310, &[true]);
        (history, cluster)
    }

    fn found(history: &History, cluster: &Cluster) -> Vec<String> {
        let checks = check_history(&history.calls, &history.facts, &cluster.reference);
        let (_, _, violations) = checks.into_iter().find(|(name, ..)| *name == NAME).unwrap();
        violations.into_iter().map(|violation| violation.what).collect()
    }

    #[test]
    fn what_was_before_is_seen_until_somebody_has_seen_what_is_after() {
        let (mut history, cluster) = cleared();
        history.contains("f", &[1, 2], 110, 120, &[true, true]);
        // One that began before the first that saw it.
        history.contains("f", &[1, 2], 125, 160, &[true, true]);
        history.contains("f", &[1], 130, 140, &[false]);
        // One that may have asked before they were inserted.
        history.contains("f", &[1], 15, 115, &[false]);
        history.contains("f", &[1, 2, 3], 320, 330, &[false, false, true]);
        assert_eq!(found(&history, &cluster), [""; 0]);
    }

    #[test]
    fn nobody_goes_back() {
        let (mut history, cluster) = cleared();
        history.contains("f", &[1], 130, 140, &[false]);
        history.contains("f", &[2], 150, 160, &[true]);
        let violations = found(&history, &cluster);
        assert!(
            violations.len() == 1 && violations[0].contains("item 2 of f present"),
            "{violations:?}"
        );
        // Whoever has cleared it has seen it.
        let (mut history, cluster) = cleared();
        history.contains("f", &[2], 210, 220, &[true]);
        assert_eq!(found(&history, &cluster).len(), 1);
    }

    #[test]
    fn one_answer_is_about_one_generation() {
        let (mut history, cluster) = cleared();
        history.contains("f", &[1, 2], 130, 140, &[false, true]);
        assert_eq!(found(&history, &cluster).len(), 1);
    }
}
