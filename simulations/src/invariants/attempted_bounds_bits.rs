//! Nothing is present that no client tried to insert: for a `Maybe`, a `Present` or a `Removed`,
//! inserts that began before it ended must cover all positions of the item.
//!
//! In filters that were cleared or dropped, an insert does not count if it ended before the last such
//! call began that was over before the query began. Items of merged filters always count. Filters that
//! grow have no positions that a history determines: there, something must have been inserted, and the
//! final state must still contain the item.

use std::collections::BTreeMap;

use super::checked::Checked;
use crate::history::{Call, Verb};
use crate::oracle::bits::{FirstSet, NEVER_US, Probes};
use crate::oracle::view::{FilterView, Life, Request, View};
use crate::plan::FilterKind;

/// Name of the invariant.
pub(crate) const NAME: &str = "attempted_bounds_bits";

/// Setter of positions that is not an insert into the filter itself.
const OTHER: u32 = u32::MAX;

/// Checks every answer that calls an item present.
pub(crate) fn check(view: &View<'_>) -> Checked {
    let mut checked = Checked::new(NAME);
    for filter in &view.filters {
        // Answers, grouped by which inserts may count for them.
        let mut by_erased_us: BTreeMap<u64, Vec<Positive<'_>>> = BTreeMap::new();
        for positive in positives(filter) {
            by_erased_us.entry(erased_us(filter, &positive)).or_default().push(positive);
        }
        for (erased_us, positives) in by_erased_us {
            let from_us = positives.iter().map(Positive::since_us).min().unwrap_or(0);
            let to_us = positives.iter().map(|positive| positive.end_us).max().unwrap_or(0);
            let lives = filter.lives.iter().filter(|life| life.was_there(from_us, to_us));
            let counts = (erased_us, to_us);
            let covers: Vec<_> =
                lives.map(|life| (life, Cover::new(view, filter, life, counts))).collect();
            for positive in positives {
                let is_covered = covers.iter().any(|(life, cover)| {
                    life.was_there(positive.since_us(), positive.end_us) && cover.has(&positive)
                });
                let what = || broken(filter, &positive, erased_us);
                checked.record(positive.end_us, (!is_covered).then(what));
            }
        }
    }
    checked
}

/// An item that was called present.
#[derive(Clone, Copy)]
struct Positive<'a> {
    call: &'a Call,
    /// Place of the item in the call.
    place: usize,
    start_us: u64,
    end_us: u64,
}

impl Positive<'_> {
    fn item(&self) -> u32 {
        self.call.items[self.place]
    }

    /// The earliest state that the answer may be from: any replica may answer from long before.
    fn since_us(&self) -> u64 {
        if self.call.verb == Verb::ContainsAny { 0 } else { self.start_us }
    }

    /// The items that the same call inserted before it.
    fn before_in_call(&self) -> &[u32] {
        let inserts = matches!(self.call.verb, Verb::Insert | Verb::AddNew);
        if inserts { &self.call.items[..self.place] } else { &[] }
    }
}

fn positives<'a>(filter: &FilterView<'a>) -> Vec<Positive<'a>> {
    let of = |requests: &[Request<'a>], wanted: bool| -> Vec<Positive<'a>> {
        let each = requests.iter().flat_map(|request| {
            let Request { call, start_us, end_us, .. } = *request;
            let answers = (0..).zip(request.answered());
            let wanted = answers.filter(move |(_, (_, bit))| *bit == wanted);
            wanted.map(move |(place, _)| Positive { call, place, start_us, end_us })
        });
        each.collect()
    };
    let mut positives = of(&filter.inserts, false);
    positives.extend(of(&filter.removes, true));
    for &call in &filter.reads {
        let (start_us, end_us) = (call.start_us, call.end_us.unwrap_or(NEVER_US));
        let maybe = (0..).zip(FilterView::read_answers(call)).filter(|(_, (_, bit))| *bit);
        positives.extend(maybe.map(|(place, _)| Positive { call, place, start_us, end_us }));
    }
    positives
}

/// Start of the last drop or clear that was over when the query began; inserts that ended before it are
/// gone. 0 for queries that any replica may answer, because it may answer from before.
fn erased_us(filter: &FilterView<'_>, positive: &Positive<'_>) -> u64 {
    let over = filter.erasers.iter().filter(|eraser| eraser.end_us < positive.since_us());
    over.map(|eraser| eraser.start_us).max().unwrap_or(0)
}

/// What may have been set in one filter of the name, and when, by inserts that did not end before
/// one time and began up to another.
enum Cover<'a> {
    /// By position.
    Bits { probes: &'a Probes, set: FirstSet },
    /// Of a filter that grows: when its first items may have come.
    Any { set: FirstSet, contains: Box<dyn Fn(u32) -> bool + 'a> },
}

impl<'a> Cover<'a> {
    fn new(
        view: &'a View<'_>,
        filter: &'a FilterView<'_>,
        life: &'a Life<'_>,
        (erased_us, to_us): (u64, u64),
    ) -> Self {
        let begun = |inserts: &'a [Request<'_>]| {
            &inserts[..inserts.partition_point(|insert| insert.start_us <= to_us)]
        };
        let own = begun(&filter.inserts).iter().filter(|insert| insert.last_us >= erased_us);
        let Some(probes) = &life.probes else {
            let mut set = FirstSet::new(1);
            own.for_each(|insert| set.set(&[0], insert.start_us, insert.call.id));
            let is_final = filter.only_grows();
            let contains = move |item| !is_final || view.holds(life, item);
            return Self::Any { set, contains: Box::new(contains) };
        };
        let mut set = FirstSet::new(probes.position_count());
        let mut add = |insert: &Request<'_>, setter: u32| {
            for &item in &insert.call.items {
                set.set(probes.of(item), insert.start_us, setter);
            }
        };
        own.for_each(|insert| add(insert, insert.call.id));
        let sources = life.sources.iter().flat_map(|&place| begun(&view.filters[place].inserts));
        sources.for_each(|insert| add(insert, OTHER));
        Self::Bits { probes, set }
    }

    /// Whether the item may have been present when the query ended, apart from the insert that asks.
    fn has(&self, positive: &Positive<'_>) -> bool {
        let Positive { call, end_us, .. } = *positive;
        let before = positive.before_in_call();
        match self {
            Self::Bits { probes, set } => probes.of(positive.item()).iter().all(|&position| {
                set.set_by_others(position, call.id) <= end_us
                    || before.iter().any(|&item| probes.of(item).contains(&position))
            }),
            Self::Any { set, contains } => {
                let is_set = set.set_by_others(0, call.id) <= end_us || !before.is_empty();
                is_set && contains(positive.item())
            }
        }
    }
}

fn broken(filter: &FilterView<'_>, positive: &Positive<'_>, erased_us: u64) -> String {
    let Positive { call, end_us, .. } = *positive;
    let (id, verb, item, name) = (call.id, call.verb, positive.item(), &filter.facts.name);
    let since = match erased_us {
        0 => String::new(),
        at_us => format!(" and did not end before the filter was emptied from {at_us} us on"),
    };
    let growing =
        if filter.facts.kind == FilterKind::Scalable { ", or the log has none" } else { "" };
    format!(
        "call {id} ({verb:?}) ended at {end_us} us and called item {item} of {name} present, but \
         not all its positions are covered by other inserts that began before{since}{growing}"
    )
}

#[cfg(test)]
#[path = "attempted_bounds_bits_test.rs"]
mod tests;
