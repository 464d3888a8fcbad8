//! Merges filters into another one: shard by shard, or this node's copies, whose changes the exchange
//! then spreads.

use tokio::time::{Instant, timeout_at};
use umbel_engine::meta::{FilterName, FilterRecord, FilterSettings};
use umbel_engine::shard::{PartError, SetOperation, ShardCommand};
use umbel_filter::Kind;

use super::ranges_of;
use crate::copy_failure::of_copy;
use crate::items::{graver, partial_failure};
use crate::{ClientRequest, Coordinator, LiveFilter, Result};
use umbel_node::calls::{ShardAnswer, ShardRequest};
use umbel_node::failure::CallFailure;
use umbel_node::leader_calls::unexpected;

/// Most filters that one call merges into another.
const MERGE_SOURCES_MAX: usize = 64;

/// Filters that were found and fit together, to be merged: nothing was done with their contents yet.
pub struct PreparedMerge {
    into: LiveFilter,
    from: Vec<LiveFilter>,
    operation: SetOperation,
}

impl PreparedMerge {
    /// Bytes of the sources, as they were planned.
    pub fn source_bytes(&self) -> u64 {
        planned_bytes(&self.from)
    }
}

/// Bytes of filters, as they were planned.
pub(super) fn planned_bytes<'a>(filters: impl IntoIterator<Item = &'a LiveFilter>) -> u64 {
    let bytes = filters.into_iter().map(|filter| filter.record.settings.memory_bytes);
    bytes.fold(0, u64::saturating_add)
}

impl Coordinator {
    /// Merges filters into another one.
    #[cfg(test)]
    pub(crate) async fn merge(
        &self,
        target: &FilterName,
        sources: &[FilterName],
        operation: SetOperation,
        request: Option<ClientRequest>,
        deadline: Instant,
    ) -> Result<u64> {
        let prepared = self.prepare_merge(target, sources, operation, deadline).await?;
        self.merge_prepared(prepared, request, deadline).await
    }

    /// Finds the filters of a merge, and refuses those that do not fit together.
    pub async fn prepare_merge(
        &self,
        target: &FilterName,
        sources: &[FilterName],
        operation: SetOperation,
        deadline: Instant,
    ) -> Result<PreparedMerge> {
        check_sources(target, sources, operation)?;
        self.meta_refresh(deadline).await?;
        self.shards().wait_unsplit(deadline).await?;
        let into = self.live_filter(target.as_str(), deadline).await?;
        let is_intersection = operation == SetOperation::Intersection;
        if is_intersection {
            check_bits(&into.record)?;
        }
        let mut from = Vec::with_capacity(sources.len());
        for name in sources {
            let source = self.live_filter(name.as_str(), deadline).await?;
            check_mergeable(&into.record, &source.record)?;
            from.push(source);
        }
        if is_intersection && !into.record.is_replicated() {
            for filter in from.iter().chain([&into]) {
                self.refuse_full(filter, deadline).await?;
            }
        }
        Ok(PreparedMerge { into, from, operation })
    }

    /// ORs the union, or the intersection, of several filters into another one, or adds up filters that
    /// count; returns the number of positions that were newly set. Repeating it does no harm, for filters
    /// that count only if it is the same request. For replicated filters, only what this node
    /// knows is merged.
    pub async fn merge_prepared(
        &self,
        prepared: PreparedMerge,
        request: Option<ClientRequest>,
        deadline: Instant,
    ) -> Result<u64> {
        let PreparedMerge { into, from, operation } = prepared;
        if into.record.is_replicated() {
            return self.merge_copies(into, from, operation, deadline).await;
        }
        let from = from.iter().map(|source| (source.id, source.record.generation)).collect();
        if !merges_by_or(&into.record) {
            return self.add_up(&into, from, request, deadline).await;
        }
        let command = ShardCommand::MergeSlices {
            target: into.id,
            generation: into.record.generation,
            sources: from,
            operation,
        };
        let request = |_| ShardRequest::Command(command.clone());
        let (mut ranges, mut new_count, mut is_begun) = (into.ranges, 0_u64, false);
        loop {
            let answers = self.call_every_shard(ranges, request, deadline).await;
            let answers = answers.into_iter().map(|(_, answer)| answer);
            let newly_set =
                new_count_of(answers.collect(), is_begun, "merging again does no harm")?;
            is_begun = true;
            new_count = new_count.saturating_add(newly_set);
            let merged = |error| {
                partial_failure(error, |error| {
                    format!(
                        "all shards have merged, and whether one was split meanwhile is not known: {error}; merging \
                         again does no harm"
                    )
                })
            };
            if self.shards().are_still_cut(ranges, deadline).await.map_err(merged)? {
                return Ok(new_count);
            }
            // A shard that was split off before its parent was asked has not merged.
            self.shards().wait_unsplit(deadline).await.map_err(merged)?;
            ranges = self.read_meta(ranges_of)??;
        }
    }

    /// Refuses a filter in which every position of a shard is set: it tells nothing about its items.
    async fn refuse_full(&self, filter: &LiveFilter, deadline: Instant) -> Result<()> {
        let (id, generation) = (filter.id, filter.record.generation);
        let request = |_| ShardRequest::Describe { filter: id, generation };
        for (shard, answer) in self.call_every_shard(filter.ranges, request, deadline).await {
            let load = match answer? {
                ShardAnswer::Slice(load) => load,
                other => return Err(unexpected(&other)),
            };
            if load.one_count == load.position_count {
                let name = filter.record.name.as_str();
                let what = format!(
                    "filter {name:?} is full: every position of {shard} is set, so it tells nothing \
                     of the items; nothing was changed"
                );
                return Err(CallFailure::Invalid { what });
            }
        }
        Ok(())
    }

    /// ORs this node's copies of replicated filters into its copy of another one. The wait for room may be long: a filter
    /// that has one of the names by then may hash items differently, and is left alone.
    pub(crate) async fn merge_copies(
        &self,
        into: LiveFilter,
        from: Vec<LiveFilter>,
        operation: SetOperation,
        deadline: Instant,
    ) -> Result<u64> {
        // The union is a whole filter in memory, like one that is imported. An intersection needs two
        // more for a moment: what the sources so far have in common, and the next source.
        let room = self.import_room(deadline).await?;
        let shape = into.record.settings.shape;
        let empty = || shape.create_copy().map_err(CallFailure::storage);
        let mut union = empty()?;
        for (at, source) in from.into_iter().enumerate() {
            let (source, copy) = self.copies().own_as_seen(source, deadline).await?;
            let generation = source.record.generation;
            if operation == SetOperation::Union || at == 0 {
                copy.add_to(generation, &mut union).map_err(of_copy)?;
            } else {
                let (mut next, mut shared) = (empty()?, empty()?);
                copy.add_to(generation, &mut next).map_err(of_copy)?;
                shared.merge_shared(&[&union, &next]).map_err(CallFailure::storage)?;
                union = shared;
            }
        }
        let (into, _) = self.copies().own_as_seen(into, deadline).await?;
        let absorbed = self.absorb(into.id, into.record.generation, union, None, room);
        timeout_at(deadline, absorbed).await.unwrap_or_else(|_| {
            let what = "the merged copy is not on this node's disk yet, and merging again does no \
                        harm";
            Err(CallFailure::OutcomeUnknown { what: what.to_owned() })
        })
    }
}

/// Newly set positions of all shards. If only some shards succeeded, or shards had before these (`is_begun`), `again`
/// tells what a retry does.
pub(super) fn new_count_of(
    answers: Vec<Result<ShardAnswer>>,
    is_begun: bool,
    again: &str,
) -> Result<u64> {
    let (shard_count, mut done_count, mut new_count) = (answers.len(), 0, 0_u64);
    let mut failure = None;
    for answer in answers {
        match answer {
            Ok(ShardAnswer::Done(count)) => {
                done_count += 1;
                new_count = new_count.saturating_add(count);
            }
            Ok(other) => failure = Some(graver(failure, unexpected(&other))),
            Err(error) => failure = Some(graver(failure, error)),
        }
    }
    match failure {
        None => Ok(new_count),
        Some(error) if done_count == 0 && !is_begun => Err(error),
        Some(error) if is_begun => Err(partial_failure(error, |error| {
            format!(
                "shards have merged, and not all that were split or merged meanwhile; {again}: {error}"
            )
        })),
        Some(error) => Err(partial_failure(error, |error| {
            format!("{done_count} of {shard_count} shards have merged, and {again}: {error}")
        })),
    }
}

fn merges_by_or(record: &FilterRecord) -> bool {
    Kind::from_id(record.settings.kind).is_some_and(Kind::merges_by_or)
}

/// The kinds for which this holds, by name.
fn kinds(holds: impl Fn(Kind) -> bool) -> String {
    let names = Kind::ALL.into_iter().filter(|&kind| holds(kind)).map(|kind| kind.to_string());
    names.collect::<Vec<_>>().join(", ")
}

/// Refuses a kind whose positions cannot be compared.
pub(super) fn check_ored(record: &FilterRecord) -> Result<()> {
    match Kind::from_id(record.settings.kind) {
        Some(kind) if !kind.merges_by_or() => {
            let name = record.name.as_str();
            let those = kinds(Kind::merges_by_or);
            let what = format!(
                "filter {name:?} is {kind}, whose positions are not compared, unlike those of {those}"
            );
            Err(PartError::WrongKind { what }.into())
        }
        _ => Ok(()),
    }
}

fn check_sources(
    target: &FilterName,
    sources: &[FilterName],
    operation: SetOperation,
) -> Result<()> {
    let invalid = |what| Err(CallFailure::Invalid { what });
    let count = sources.len();
    // An intersection of a single filter would be a union.
    let least = match operation {
        SetOperation::Union | SetOperation::Sum(_) => 1,
        SetOperation::Intersection => 2,
    };
    if !(least..=MERGE_SOURCES_MAX).contains(&count) {
        let most = MERGE_SOURCES_MAX;
        return invalid(format!("sources has {count} names, expected {least} to {most}"));
    }
    for (index, name) in sources.iter().enumerate() {
        if name == target {
            return invalid(format!("sources[{index}] is the target itself"));
        }
        if sources[..index].contains(name) {
            return invalid(format!("sources[{index}] is named twice"));
        }
    }
    Ok(())
}

/// Refuses a kind that does not consist of bits alone.
fn check_bits(record: &FilterRecord) -> Result<()> {
    match Kind::from_id(record.settings.kind) {
        Some(kind) if !kind.is_bit_array() => {
            let name = record.name.as_str();
            let those = kinds(Kind::is_bit_array);
            let what =
                format!("filter {name:?} is {kind}, which is not intersected, unlike {those}");
            Err(PartError::WrongKind { what }.into())
        }
        _ => Ok(()),
    }
}

/// What a filter was planned for, in words.
fn plan_of(settings: &FilterSettings) -> String {
    let FilterSettings { capacity, false_positive_rate, memory_bytes, .. } = settings;
    let kind = Kind::from_id(settings.kind).map_or("?".to_owned(), |kind| kind.to_string());
    format!(
        "{kind} for {capacity} items at a rate of {false_positive_rate:?} in {memory_bytes} bytes"
    )
}

/// Checks that the bits of one filter mean the same in the other.
pub(super) fn check_mergeable(into: &FilterRecord, from: &FilterRecord) -> Result<()> {
    let (ours, theirs) = (&into.settings, &from.settings);
    for record in [into, from] {
        let kind = Kind::from_id(record.settings.kind);
        if let Some(kind) = kind.filter(|kind| !kind.merges()) {
            let (name, those) = (record.name.as_str(), kinds(Kind::merges));
            let what = format!("filter {name:?} is {kind}, which does not merge, unlike {those}");
            return Err(PartError::WrongKind { what }.into());
        }
    }
    let (into, from) = (into.name.as_str(), from.name.as_str());
    if ours.distribution != theirs.distribution {
        let (ours, theirs) = (ours.distribution, theirs.distribution);
        let what = format!(
            "filter {into:?} is {ours}, filter {from:?} is {theirs}: only filters of one \
             distribution merge"
        );
        return Err(PartError::WrongKind { what }.into());
    }
    let hint = "make one with --like the other";
    if ours.shape != theirs.shape {
        let (ours, theirs) = (plan_of(ours), plan_of(theirs));
        let what =
            format!("filters {into:?} and {from:?} differ in shape: {ours}, {theirs}; {hint}");
        return Err(PartError::ShapeMismatch { what }.into());
    }
    if ours.key != theirs.key {
        let (ours, theirs) = (ours.key.key_name(), theirs.key.key_name());
        let what = format!(
            "filters {into:?} and {from:?} hash items differently: {ours}, {theirs}; {hint}"
        );
        return Err(PartError::ShapeMismatch { what }.into());
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use umbel_engine::Generation;
    use umbel_engine::meta::{Distribution, FilterState, HashKey};
    use umbel_filter::CellCount;

    use super::*;
    use crate::nodes_test::node_test::MINUTES;
    use crate::sizes::{FilterSize, planned};

    fn record(name: &str, kind: Kind, capacity: u64, key: HashKey) -> FilterRecord {
        let cells = CellCount::new(4).unwrap();
        FilterRecord {
            name: FilterName::new(name).unwrap(),
            settings: planned(kind, Distribution::Partitioned, capacity, size_of(kind), cells, key)
                .unwrap(),
            generation: Generation(1),
            state: FilterState::Live,
            owner: None,
            growth: std::collections::BTreeMap::new(),
            expires_ms: None,
        }
    }

    fn size_of(kind: Kind) -> FilterSize {
        match kind {
            Kind::Window => FilterSize::Window { rate: 0.01, rules: MINUTES },
            _ => FilterSize::Rate(0.01),
        }
    }

    const KEY: HashKey = HashKey::SipHash { key_id: 7, secret: [9; 16] };

    #[test]
    fn only_equals_merge() {
        let ours = record("a", Kind::Blocked, 1000, KEY);
        let same = record("b", Kind::Blocked, 1000, KEY);
        assert_eq!(check_mergeable(&ours, &same), Ok(()));
        let larger = record("b", Kind::Blocked, 9000, KEY);
        let error = check_mergeable(&ours, &larger).unwrap_err();
        assert!(matches!(error, CallFailure::Part(PartError::ShapeMismatch { .. })));
        assert_eq!(
            error.to_string(),
            format!(
                "filters \"a\" and \"b\" differ in shape: blocked for 1000 items at a rate of 0.01 in {} bytes, \
                 blocked for 9000 items at a rate of 0.01 in {} bytes; make one with --like the other",
                ours.settings.memory_bytes, larger.settings.memory_bytes
            )
        );
        let other = HashKey::SipHash { key_id: 8, secret: [9; 16] };
        let error = check_mergeable(&ours, &record("b", Kind::Blocked, 1000, other)).unwrap_err();
        assert_eq!(
            error.to_string(),
            "filters \"a\" and \"b\" hash items differently: function 2 under key 0x7, \
             function 2 under key 0x8; make one with --like the other"
        );
        let mut copy = same.clone();
        copy.settings.distribution = Distribution::Replicated;
        let error = check_mergeable(&ours, &copy).unwrap_err();
        assert_eq!(
            error.to_string(),
            "filter \"a\" is partitioned, filter \"b\" is replicated: only filters of one \
             distribution merge"
        );
        assert_eq!(check_mergeable(&copy, &copy), Ok(()));
        for kind in Kind::ALL {
            let same = record("b", kind, 1000, KEY);
            let is_refused =
                |checked| matches!(checked, Err(CallFailure::Part(PartError::WrongKind { .. })));
            assert_eq!(is_refused(check_mergeable(&same, &same)), !kind.merges(), "{kind}");
            assert_eq!(is_refused(check_ored(&same)), !kind.merges_by_or(), "{kind}");
        }
    }

    #[test]
    fn a_merge_of_which_shards_did_a_part_is_not_told_as_undone() {
        let within = std::time::Duration::from_secs(1);
        let lost = || CallFailure::NoQuorum { what: "shard 2".to_owned(), within };
        let told = |answers, is_begun| new_count_of(answers, is_begun, "again").unwrap_err();
        assert_eq!(told(vec![Err(lost()), Err(lost())], false), lost());
        let some = vec![Ok(ShardAnswer::Done(1)), Err(lost())];
        for (answers, is_begun) in [(some, false), (vec![Err(lost())], true)] {
            let failure = told(answers, is_begun);
            let CallFailure::OutcomeUnknown { what } = &failure else { panic!("{failure}") };
            assert!(what.contains("again: shard 2"), "{what}");
        }
    }

    #[test]
    fn only_bits_are_intersected() {
        for kind in Kind::ALL {
            let checked = check_bits(&record("a", kind, 1000, KEY));
            let is_bits = matches!(kind, Kind::Blocked | Kind::Classic | Kind::Partitioned);
            assert_eq!(checked.is_ok(), is_bits, "{kind}");
        }
        let refused = check_bits(&record("a", Kind::SingleShot, 1000, KEY)).unwrap_err();
        assert_eq!(
            refused.to_string(),
            "filter \"a\" is single-shot, which is not intersected, unlike blocked, classic, partitioned"
        );
        let refused = check_ored(&record("a", Kind::Counting, 1000, KEY)).unwrap_err();
        assert_eq!(
            refused.to_string(),
            "filter \"a\" is counting, whose positions are not compared, unlike those of single-shot, blocked, \
             classic, partitioned"
        );
    }

    #[test]
    fn sources_are_others() {
        let name = |name: &str| FilterName::new(name).unwrap();
        let message = |sources: &[FilterName]| {
            let checked = check_sources(&name("t"), sources, SetOperation::Union);
            checked.map_err(|error| error.to_string())
        };
        assert_eq!(message(&[name("a"), name("b")]), Ok(()));
        let alone = check_sources(&name("t"), &[name("a")], SetOperation::Intersection);
        assert_eq!(alone.unwrap_err().to_string(), "sources has 1 names, expected 2 to 64");
        assert_eq!(message(&[]), Err("sources has 0 names, expected 1 to 64".to_owned()));
        let many = vec![name("a"); 65];
        assert_eq!(message(&many), Err("sources has 65 names, expected 1 to 64".to_owned()));
        let itself = message(&[name("a"), name("t")]);
        assert_eq!(itself, Err("sources[1] is the target itself".to_owned()));
        let twice = message(&[name("a"), name("a")]);
        assert_eq!(twice, Err("sources[1] is named twice".to_owned()));
    }
}
