//! The history as the checks read it: by filter, with the copies of a request merged into one.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};

use umbel_engine::meta::ClusterVersion;
use umbel_engine::placement::ShardRanges;
use umbel_engine::shard::{HashList, PartError, ShardState};
use umbel_engine::{FilterId, Generation};

use super::bits::{NEVER_US, Probes, hash_of};
use super::reference::{Incarnation, Reference};
use crate::history::{Call, FilterFacts, Outcome, Verb};

/// Maximum difference of hosts' clocks in simulated time: a tick is one millisecond.
pub(crate) const CLOCKS_APART_US: u64 = 2_000;

/// The cluster version since which the entry decides who adds an absent item, changes an expiry or drops a filter.
const RACES_SINCE: ClusterVersion = ClusterVersion(6);

/// Calls by which items come into a filter.
const INSERTS: &[Verb] = &[Verb::Insert, Verb::AddNew, Verb::AddOne];

/// A history, its filters in the order of the facts.
pub(crate) struct View<'a> {
    /// All calls.
    pub(crate) calls: &'a [Call],
    /// The result of the logs.
    pub(crate) reference: &'a Reference,
    /// The operations on each filter.
    pub(crate) filters: Vec<FilterView<'a>>,
}

/// The operations on one filter.
pub(crate) struct FilterView<'a> {
    /// The known facts about it.
    pub(crate) facts: &'a FilterFacts,
    /// Whether it was dropped, recreated, cleared or merged into, or has expired, or any of that was attempted.
    pub(crate) is_rewritten: bool,
    /// Inserts that were or may have been applied, by start time.
    pub(crate) inserts: Vec<Request<'a>>,
    /// Removals that were or may have been applied, by start time.
    pub(crate) removes: Vec<Request<'a>>,
    /// Inserts that certainly were not applied.
    pub(crate) refused: Vec<&'a Call>,
    /// Queries that got an answer.
    pub(crate) reads: Vec<&'a Call>,
    /// Calls that drop or clear it, or let it expire, and that were or may have been applied.
    pub(crate) erasers: Vec<Request<'a>>,
    /// Rotations that were or may have been done, by start time.
    pub(crate) rotations: Vec<Request<'a>>,
    /// Merges into it and intersections that were or may have been done, by start time.
    pub(crate) merges: Vec<Request<'a>>,
    /// The filters of its name, by creation time.
    pub(crate) lives: Vec<Life<'a>>,
    /// When any of them was dropped or a slice of it was emptied, ascending; only from a client's first
    /// attempt on.
    pub(crate) erased_at_us: Vec<u64>,
}

/// A filter of a name from its creation to its drop.
pub(crate) struct Life<'a> {
    /// Its number.
    pub(crate) id: FilterId,
    /// What the logs say of it.
    pub(crate) incarnation: &'a Incarnation,
    /// Positions of all items inserted into it or into a filter that was merged into it, over the
    /// initial shards: those that may be set; `None` for kinds that grow.
    pub(crate) probes: Option<Probes>,
    /// The same over the final shards, if any was split: those that must be set.
    split_probes: Option<Probes>,
    /// Indices of the filters that were merged into it, directly or indirectly.
    pub(crate) sources: BTreeSet<usize>,
}

/// A request with all its copies.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Request<'a> {
    /// The first copy.
    pub(crate) call: &'a Call,
    /// Start of the first copy.
    pub(crate) start_us: u64,
    /// End of the first copy that was answered, or never.
    pub(crate) end_us: u64,
    /// End of the last copy, or never. A copy that arrives after a request whose items were all present
    /// counts as a new request, because the shard keeps no answer of what it did not log.
    pub(crate) last_us: u64,
    /// The answers, if there are any.
    pub(crate) answers: Option<&'a [bool]>,
}

impl<'a> View<'a> {
    /// Groups the calls by filter. Calls to filters without facts are left out.
    pub(crate) fn new(
        calls: &'a [Call],
        facts: &'a [FilterFacts],
        reference: &'a Reference,
    ) -> Self {
        let places: BTreeMap<&str, usize> =
            (0..).zip(facts).map(|(place, facts)| (facts.name.as_str(), place)).collect();
        let mut calls_of: Vec<Vec<&Call>> = facts.iter().map(|_| Vec::new()).collect();
        for call in calls {
            if let Some(&place) = places.get(call.filter.as_str()) {
                calls_of[place].push(call);
            }
        }
        let items_of: Vec<BTreeSet<u32>> = calls_of
            .iter()
            .map(|calls| calls.iter().flat_map(|call| &call.items).copied().collect())
            .collect();
        let lives = |facts: &FilterFacts, place: usize| -> Vec<Life<'a>> {
            let incarnations = reference.incarnations(&facts.name);
            let live = |(id, incarnation): (FilterId, &'a Incarnation)| {
                let sources = sources_of(id, reference, &places);
                let named = sources.iter().chain([&place]).flat_map(|&place| &items_of[place]);
                let settings = &incarnation.record.settings;
                let named: BTreeSet<u32> = named.copied().collect();
                let finest = reference.finest();
                let first = finest
                    .and_then(|finest| ShardRanges::new(finest.founded(), finest.founded()).ok());
                let probes_of = |ranges: ShardRanges| {
                    let shard_of = |hi| ranges.shard_of(hi).0;
                    Probes::new(settings, shard_of, named.iter().copied())
                };
                let split = finest.filter(|finest| Some(*finest) != first);
                let (probes, split_probes) = (first.and_then(probes_of), split.and_then(probes_of));
                Life { id, incarnation, probes, split_probes, sources }
            };
            incarnations.map(live).collect()
        };
        let filters = (0..)
            .zip(facts)
            .zip(&calls_of)
            .map(|((place, facts), calls)| FilterView::new(facts, calls, lives(facts, place)));
        Self { calls, reference, filters: filters.collect() }
    }
}

impl View<'_> {
    /// Whether a filter that was never cleared contains an item at the end.
    pub(crate) fn holds(&self, life: &Life<'_>, item: u32) -> bool {
        self.ask(life, item, ShardState::contains).is_some_and(|found| found.get(0))
    }

    /// How often a filter that tells copies, and was never cleared, has an item at the end.
    pub(crate) fn copies(&self, life: &Life<'_>, item: u32) -> u64 {
        let copies = self.ask(life, item, ShardState::copies);
        copies.and_then(|copies| copies.first().copied()).unwrap_or(0)
    }

    /// Whether shards were split: those that are merged again may have some items of a cuckoo filter twice.
    pub(crate) fn has_splits(&self) -> bool {
        self.reference.finest().is_some_and(|finest| finest.count() > finest.founded())
    }

    /// Asks the final state about an item; None if it has no such filter.
    fn ask<T>(
        &self,
        life: &Life<'_>,
        item: u32,
        question: impl FnOnce(&ShardState, FilterId, Generation, &HashList) -> Result<T, PartError>,
    ) -> Option<T> {
        let record = &life.incarnation.record;
        let hash = hash_of(record.settings.key, item);
        // A filter that is kept whole in one shard has all items in its own place.
        let place = record.settings.shape.place().unwrap_or(hash.hi());
        let state = self.state_with(place)?;
        let list = HashList::from_hashes(&[hash]);
        // A filter that has had another name for a while is at another generation.
        let now = self.reference.meta().filter(life.id).map(|record| record.generation);
        let generation = now.unwrap_or(record.generation);
        question(state.as_ref(), life.id, generation, &list).ok()
    }

    /// The shard with these hashes. If it has ended and is not absorbed yet, the one that absorbs it.
    fn state_with(&self, place: u64) -> Option<Cow<'_, ShardState>> {
        let all = || self.reference.shards();
        let state = all().find(|state| state.range().contains(place))?;
        let Some(fence) = state.fence() else { return Some(Cow::Borrowed(state)) };
        let mut whole = all().find(|lower| Some(lower.shard()) == fence.into.shard())?.clone();
        let group = self.reference.meta().shard(state.shard())?.group();
        whole.absorb(0, group, state.clone());
        Some(Cow::Owned(whole))
    }
}

/// The filters whose items may have been merged into this one.
fn sources_of(
    id: FilterId,
    reference: &Reference,
    places: &BTreeMap<&str, usize>,
) -> BTreeSet<usize> {
    let (mut seen, mut todo) = (BTreeSet::from([id]), vec![id]);
    let mut sources = BTreeSet::new();
    while let Some(id) = todo.pop() {
        let merged = reference.incarnation(id).into_iter().flat_map(|into| &into.merged);
        for &source in merged {
            let name = reference.incarnation(source).map(|source| source.record.name.as_str());
            sources.extend(name.and_then(|name| places.get(name)));
            if seen.insert(source) {
                todo.push(source);
            }
        }
    }
    sources
}

impl Life<'_> {
    /// Whether entries alone decide races for its items, its expiry and its drop.
    pub(crate) fn decides_races(&self) -> bool {
        self.incarnation.version >= RACES_SINCE
    }

    /// Positions that are certainly set once all items that have them were inserted.
    pub(crate) fn sure_probes(&self) -> Option<&Probes> {
        self.split_probes.as_ref().or(self.probes.as_ref())
    }

    /// Whether it may have answered a call in that interval: it was created, and some shard may have
    /// had a slice of it.
    pub(crate) const fn was_there(&self, from_us: u64, to_us: u64) -> bool {
        let Incarnation { created_at_us, gone_at_us, .. } = self.incarnation;
        *created_at_us <= to_us.saturating_add(CLOCKS_APART_US)
            && gone_at_us.saturating_add(CLOCKS_APART_US) >= from_us
    }
}

impl<'a> FilterView<'a> {
    fn new(facts: &'a FilterFacts, calls: &[&'a Call], lives: Vec<Life<'a>>) -> Self {
        let of = |verbs: &'static [Verb]| {
            calls.iter().copied().filter(move |call| verbs.contains(&call.verb))
        };
        let is_done = |call: &&Call| matches!(call.outcome, Outcome::Done(_));
        let erasers = requests(of(&[Verb::Drop, Verb::Clear, Verb::Take, Verb::ExpireIn]));
        let first_us = erasers.iter().map(|eraser| eraser.start_us).min().unwrap_or(NEVER_US);
        let mut erased_at_us: Vec<u64> = lives
            .iter()
            .flat_map(|life| &life.incarnation.erased_at_us)
            .copied()
            .filter(|at_us| at_us.saturating_add(CLOCKS_APART_US) >= first_us)
            .collect();
        erased_at_us.sort_unstable();
        let merges = requests(of(&[Verb::Merge, Verb::Intersect]));
        let is_rewritten = facts.is_rewritten || !erasers.is_empty() || !merges.is_empty();
        let is_refused = |call: &&Call| matches!(call.outcome, Outcome::NotApplied(_));
        Self {
            facts,
            is_rewritten,
            inserts: requests(of(INSERTS)),
            removes: requests(of(&[Verb::Remove, Verb::DeleteOne])),
            refused: of(INSERTS).filter(is_refused).collect(),
            reads: of(&[Verb::Contains, Verb::ContainsAny]).filter(is_done).collect(),
            erasers,
            rotations: requests(of(&[Verb::Rotate])),
            merges,
            lives,
            erased_at_us,
        }
    }

    /// Whether items stay in it until the end of the run, and no more is known of an item than whether it is in it. Where
    /// copies are added, `copies_are_counted` knows more.
    pub(crate) fn only_grows(&self) -> bool {
        let forgets = self.facts.kind.forgets();
        let is_kept = !self.facts.kind.removes() || self.removes.is_empty();
        let is_counted = self.inserts.iter().any(|insert| insert.call.verb == Verb::AddOne);
        !self.is_rewritten && !forgets && is_kept && !is_counted
    }

    /// The filter of its name, if it was created and never rewritten.
    pub(crate) fn only_life(&self) -> Option<&Life<'a>> {
        if self.is_rewritten { None } else { self.lives.first() }
    }

    /// Whether a drop or a clear may have taken effect in that interval.
    pub(crate) fn was_erased(&self, from_us: u64, to_us: u64) -> bool {
        let from_us = from_us.saturating_sub(CLOCKS_APART_US);
        let at = self.erased_at_us.partition_point(|&at_us| at_us < from_us);
        let next_us = self.erased_at_us.get(at);
        next_us.is_some_and(|&at_us| at_us <= to_us.saturating_add(CLOCKS_APART_US))
    }

    /// Inserts that were acknowledged.
    pub(crate) fn acked(&self) -> impl Iterator<Item = &Request<'a>> {
        self.inserts.iter().filter(|insert| insert.answers.is_some())
    }

    /// Inserts that were acknowledged, by item.
    pub(crate) fn acked_by_item(&self) -> BTreeMap<u32, Vec<&Request<'a>>> {
        let mut acked: BTreeMap<u32, Vec<&Request<'_>>> = BTreeMap::new();
        for insert in self.acked() {
            insert.call.items.iter().for_each(|&item| acked.entry(item).or_default().push(insert));
        }
        acked
    }

    /// The items of a query that was answered, each with whether it was found.
    pub(crate) fn read_answers(call: &Call) -> impl Iterator<Item = (u32, bool)> {
        let bits: &[bool] = match &call.outcome {
            Outcome::Done(bits) => bits,
            Outcome::NotApplied(_) | Outcome::Unknown(_) | Outcome::Reused(_) => &[],
        };
        call.items.iter().copied().zip(bits.iter().copied())
    }
}

impl<'a> Request<'a> {
    /// Its items, each with its answer; none if there was no answer.
    pub(crate) fn answered(&self) -> impl Iterator<Item = (u32, bool)> + use<'a> {
        let bits = self.answers.unwrap_or_default();
        self.call.items.iter().copied().zip(bits.iter().copied())
    }
}

/// When a call was answered, or never.
pub(crate) fn end_us(call: &Call) -> u64 {
    match call.outcome {
        Outcome::Unknown(_) | Outcome::Reused(_) => NEVER_US,
        Outcome::Done(_) | Outcome::NotApplied(_) => call.end_us.unwrap_or(NEVER_US),
    }
}

/// The requests of these calls that were or may have been applied, with copies merged.
fn requests<'a>(calls: impl Iterator<Item = &'a Call>) -> Vec<Request<'a>> {
    let mut requests: Vec<Request<'a>> = Vec::new();
    let mut place_of: BTreeMap<u32, usize> = BTreeMap::new();
    for call in calls {
        let answers = match &call.outcome {
            Outcome::Done(bits) => Some(bits.as_slice()),
            Outcome::Unknown(_) | Outcome::Reused(_) => None,
            Outcome::NotApplied(_) => continue,
        };
        let (start_us, end_us) = (call.start_us, end_us(call));
        let new = Request { call, start_us, end_us, last_us: end_us, answers };
        let place = call.request.map(|request| *place_of.entry(request).or_insert(requests.len()));
        let Some(known) = place.and_then(|place| requests.get_mut(place)) else {
            requests.push(new);
            continue;
        };
        known.start_us = known.start_us.min(start_us);
        known.last_us = known.last_us.max(end_us);
        if end_us < known.end_us {
            (known.end_us, known.answers) = (end_us, answers);
        }
    }
    requests.sort_by_key(|request| request.start_us);
    requests
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::oracle::fixture::History;

    #[test]
    fn copies_are_one_request_from_first_start_to_first_answer() {
        let mut history = History::new();
        history.insert("f", &[1], 10, 50, &[true]).request = Some(1);
        history.insert("f", &[1], 12, 40, &[true]).request = Some(1);
        history.insert("f", &[1], 14, 90, &[true]).request = Some(2);
        history.unknown(Verb::Insert, "f", &[1], 5, 30).request = Some(2);
        history.refused(Verb::Insert, "f", &[1], 1, 2).request = Some(3);
        history.unknown(Verb::Insert, "f", &[1], 20, 30);
        let got: Vec<_> = requests(history.calls.iter())
            .into_iter()
            .map(|request| (request.start_us, request.end_us, request.answers.is_some()))
            .collect();
        assert_eq!(got, [(5, 90, true), (10, 40, true), (20, NEVER_US, false)]);
    }
}
