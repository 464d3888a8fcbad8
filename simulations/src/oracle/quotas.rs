//! What principals and the cluster hold and may hold, computed from the catalogue's log entries by
//! plain addition, and not by the code that enforces quotas: an independent check of every create.

use std::collections::BTreeMap;

use umbel_engine::meta::{
    Distribution, FilterName, FilterSettings, FilterState, MetaCommand, MetaError, MetaReply,
    MetaState, PrincipalName, Quota,
};
use umbel_engine::{FilterId, ShardId};

use super::view::CLOCKS_APART_US;
use crate::counters;

/// Name of the invariant: no holder exceeds its quota.
pub(crate) const NAME: &str = "quotas_hold";

/// Name of the invariant: a request for which there is room is not refused, and a drop frees room.
pub(crate) const SERVED: &str = "room_is_given";

/// Name of the invariant: the catalogue counts what the entries add up to, also after splits and merges of shards.
pub(crate) const SUM: &str = "usage_adds_up";

/// What a holder has: the number of filters, and the bytes of one copy of each, by number of copies.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub(crate) struct Holdings {
    /// Filters.
    pub(crate) count: u64,
    /// Bytes of filters that are stored once per shard replica.
    partitioned: u64,
    /// Bytes of filters that every node has.
    replicated: u64,
}

/// A holder's limits.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub(crate) struct HolderLimits {
    /// Filters.
    pub(crate) count: Option<u64>,
    /// Bytes on all nodes.
    pub(crate) bytes: Option<u64>,
}

/// All holdings and limits after some entry.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub(crate) struct HoldingsVersion {
    replicas: u64,
    nodes: u64,
    all: Holdings,
    held: BTreeMap<String, Holdings>,
    of_all: HolderLimits,
    limits: BTreeMap<String, HolderLimits>,
}

/// A filter that was created and still exists.
#[derive(Clone, PartialEq, Debug)]
struct Filter {
    owner: Option<String>,
    name: String,
    /// With what it has grown by.
    one: Holdings,
    generation: u64,
    /// The generation at which a rename ends, which changes no slice.
    renamed_to: Option<u64>,
    /// Bytes of each slice beyond the plan.
    grown: BTreeMap<ShardId, u64>,
    plan: PlanKey,
}

/// What determines the plan of a filter besides the number of shards: kind, capacity, and the bits of the rate.
type PlanKey = (u8, u64, u64);

/// Every version, and when it was first applied anywhere, in simulated microseconds.
#[derive(Default, Debug)]
pub(crate) struct Quotas {
    now: HoldingsVersion,
    versions: Vec<(u64, HoldingsVersion)>,
    filters: BTreeMap<FilterId, Filter>,
    defined: u64,
    /// The last entry after which the sum was compared with the catalogue.
    compared: u64,
    shard_count: u32,
    /// When that last changed, in simulated microseconds.
    recut_us: u64,
    /// What filters take as they were last planned, and for how many shards.
    planned: BTreeMap<PlanKey, (u32, Holdings)>,
    /// The shard that is being merged, and the one that it is merged into.
    merging: Option<(ShardId, ShardId)>,
}

impl Holdings {
    fn of(settings: &FilterSettings) -> Self {
        let bytes = settings.memory_bytes;
        match settings.distribution {
            Distribution::Partitioned => Self { count: 1, partitioned: bytes, replicated: 0 },
            Distribution::Replicated => Self { count: 1, partitioned: 0, replicated: bytes },
        }
    }

    fn add(&mut self, one: Self) {
        self.count += one.count;
        self.partitioned += one.partitioned;
        self.replicated += one.replicated;
    }

    fn take(&mut self, one: Self) {
        self.count -= one.count;
        self.partitioned -= one.partitioned;
        self.replicated -= one.replicated;
    }
}

impl Filter {
    /// What its slices have beyond the plan.
    fn growth(&self) -> Holdings {
        Holdings { partitioned: self.grown.values().sum(), ..Holdings::default() }
    }
}

impl HoldingsVersion {
    fn bytes(&self, held: Holdings) -> u64 {
        held.partitioned * self.replicas + held.replicated * self.nodes
    }

    /// Who would exceed its limits with one more filter; `None` if there is room.
    fn over(&self, owner: Option<&str>, one: Holdings) -> Option<String> {
        let limits = |name| self.limits.get(name).copied().unwrap_or_default();
        let own = owner.map(|name| (name, self.held(name), limits(name)));
        let all = ("the cluster", self.all, self.of_all);
        own.into_iter().chain([all]).find_map(|(name, mut held, limits)| {
            held.add(one);
            let bytes = self.bytes(held);
            let is_over = one.count > 0 && limits.count.is_some_and(|most| held.count > most)
                || limits.bytes.is_some_and(|most| bytes > most);
            let count = held.count;
            is_over.then(|| format!("{name} has {count} filters of {bytes} bytes of {limits:?}"))
        })
    }

    /// What a principal holds.
    pub(crate) fn held(&self, name: &str) -> Holdings {
        self.held.get(name).copied().unwrap_or_default()
    }

    /// The same in filters and bytes on all nodes.
    pub(crate) fn usage(&self, name: &str) -> (u64, u64) {
        let held = self.held(name);
        (held.count, self.bytes(held))
    }

    /// What everybody holds, likewise.
    pub(crate) fn usage_of_all(&self) -> (u64, u64) {
        (self.all.count, self.bytes(self.all))
    }

    /// How many bytes a principal may use.
    pub(crate) fn bytes_limit(&self, name: &str) -> Option<u64> {
        self.limits.get(name)?.bytes
    }

    /// How many filters a principal may hold.
    pub(crate) fn count_limit(&self, name: &str) -> Option<u64> {
        self.limits.get(name)?.count
    }
}

impl Quotas {
    /// A node applied an entry, perhaps not as the first; `newest` is the state of the catalogue that
    /// the log has produced.
    ///
    /// # Errors
    /// The invariant that the entry violates, and how.
    pub(crate) fn applied(
        &mut self,
        at_us: u64,
        index: u64,
        (command, reply): (&MetaCommand, &MetaReply),
        newest: &MetaState,
    ) -> Result<(), (&'static str, String)> {
        if index <= self.defined {
            return Ok(());
        }
        self.defined = index;
        self.now.replicas = newest.replicas_wanted() as u64;
        self.now.nodes = newest.nodes().filter(|(_, record)| record.is_live()).count() as u64;
        let bare = command.bare();
        let checked = match (&*bare, reply) {
            (
                MetaCommand::CreateFilter { name, settings, owner, .. }
                | MetaCommand::BeginImport { name, settings, owner, .. },
                reply,
            ) => self.create(index, (name, settings, owner.as_ref()), reply),
            (
                MetaCommand::DropFilter { filter }
                | MetaCommand::TakeFilter { filter, .. }
                | MetaCommand::DropExpired { filter, .. },
                MetaReply::Done,
            ) => {
                self.dropped(*filter, newest);
                Ok(())
            }
            (MetaCommand::RenameFilter { filter, replaced, .. }, MetaReply::Done) => {
                self.renamed(*filter, newest);
                replaced.iter().for_each(|&replaced| self.dropped(replaced, newest));
                Ok(())
            }
            (MetaCommand::FilterDropped { filter }, MetaReply::Done) => {
                self.gone(*filter);
                Ok(())
            }
            (MetaCommand::GrowFilter { filter, shard, growth_bytes, .. }, reply) => {
                self.grow(index, (*filter, *shard), *growth_bytes, reply)
            }
            (MetaCommand::FilterCleared { filter, generation }, MetaReply::Done) => {
                self.cleared(*filter, generation.0);
                Ok(())
            }
            (MetaCommand::SetQuota { of, change, from_none }, MetaReply::Done) => {
                self.limit(of.as_ref(), change, *from_none);
                Ok(())
            }
            (MetaCommand::DropPrincipal { name }, MetaReply::Done) => {
                self.now.limits.remove(name.as_str());
                Ok(())
            }
            _ => Ok(()),
        };
        self.follow_shards(at_us, newest);
        if self.versions.last().is_none_or(|(_, last)| *last != self.now) {
            self.versions.push((at_us, self.now.clone()));
        }
        checked
    }

    fn create(
        &mut self,
        index: u64,
        (name, settings, owner): (&FilterName, &FilterSettings, Option<&PrincipalName>),
        reply: &MetaReply,
    ) -> Result<(), (&'static str, String)> {
        let (one, owner) = (Holdings::of(settings), owner.map(PrincipalName::as_str));
        let FilterSettings { kind, capacity, false_positive_rate, .. } = *settings;
        let plan = (kind, capacity, false_positive_rate.to_bits());
        self.planned.insert(plan, (self.shard_count, one));
        let over = self.now.over(owner, one);
        let name = name.as_str();
        match (reply, over) {
            // A filter's number is the index of the entry that created it; a smaller one is the answer
            // to a repeated request.
            (MetaReply::Filter(filter), over) if filter.0 == index => {
                counters::checked(NAME, 1);
                let owner = owner.map(str::to_owned);
                self.now.all.add(one);
                if let Some(owner) = &owner {
                    self.now.held.entry(owner.clone()).or_default().add(one);
                }
                let (made, grown) = (name.to_owned(), BTreeMap::new());
                let (generation, renamed_to) = (1, None);
                let made = Filter { owner, name: made, one, generation, renamed_to, grown, plan };
                self.filters.insert(*filter, made);
                match over {
                    None => Ok(()),
                    Some(over) => {
                        Err((NAME, format!("entry {index} makes {name}, with which {over}")))
                    }
                }
            }
            (MetaReply::Refused(MetaError::Quota { what }), None) => {
                let text = format!("entry {index}: {name} was refused with room for it: {what}");
                Err((SERVED, text))
            }
            (MetaReply::Refused(MetaError::Quota { .. }), Some(_)) => {
                counters::checked(SERVED, 1);
                counters::state("quota_full");
                Ok(())
            }
            _ => Ok(()),
        }
    }

    fn grow(
        &mut self,
        index: u64,
        (filter, shard): (FilterId, ShardId),
        growth_bytes: u64,
        reply: &MetaReply,
    ) -> Result<(), (&'static str, String)> {
        let Some(Filter { owner, grown, name, .. }) = self.filters.get(&filter) else {
            return Ok(());
        };
        let had = grown.get(&shard).copied().unwrap_or(0);
        let more =
            Holdings { partitioned: growth_bytes.saturating_sub(had), ..Holdings::default() };
        // What a slice was allowed before is granted again, even if the quota was lowered meanwhile.
        let is_more = more.partitioned > 0;
        let over = if is_more { self.now.over(owner.as_deref(), more) } else { None };
        match (reply, over) {
            (MetaReply::Done, None) => {
                counters::checked(NAME, 1);
                self.add_growth((filter, shard), more);
                Ok(())
            }
            (MetaReply::Done, Some(over)) => {
                Err((NAME, format!("entry {index} lets {name} grow, with which {over}")))
            }
            (MetaReply::Refused(MetaError::Quota { what }), None) => {
                let text = format!("entry {index}: {name} may not grow with room for it: {what}");
                Err((SERVED, text))
            }
            _ => Ok(()),
        }
    }

    fn add_growth(&mut self, (filter, shard): (FilterId, ShardId), more: Holdings) {
        let Some(grown) = self.filters.get_mut(&filter) else { return };
        *grown.grown.entry(shard).or_default() += more.partitioned;
        grown.one.add(more);
        self.now.all.add(more);
        if let Some(held) = grown.owner.as_ref().and_then(|owner| self.now.held.get_mut(owner)) {
            held.add(more);
        }
    }

    /// Follows splits and merges of shards: each half may grow by half of what the whole was allowed, rounded up, and
    /// a shard that took over another one by as much as both.
    fn follow_shards(&mut self, at_us: u64, newest: &MetaState) {
        let (map, count) = (newest.shard_map(), newest.shard_count());
        if count > self.shard_count
            && let Some((whole, other)) = map.halved().zip(map.splitting())
        {
            self.recut(|grown| {
                if let Some(bytes) = grown.get_mut(&whole) {
                    *bytes = bytes.div_ceil(2);
                    let half = *bytes;
                    grown.insert(other, half);
                }
            });
        }
        if count < self.shard_count
            && let Some((from, into)) = self.merging
        {
            self.recut(|grown| {
                if let Some(bytes) = grown.remove(&from) {
                    *grown.entry(into).or_default() += bytes;
                }
            });
        }
        if count != self.shard_count {
            (self.shard_count, self.recut_us) = (count, at_us);
        }
        self.merging = map.merging().zip(map.absorbing());
    }

    /// Changes what the slices of all filters may have beyond their plans.
    fn recut(&mut self, change: impl Fn(&mut BTreeMap<ShardId, u64>)) {
        for filter in self.filters.values_mut() {
            let before = filter.growth();
            change(&mut filter.grown);
            let after = filter.growth();
            let held = filter.owner.as_ref().and_then(|owner| self.now.held.get_mut(owner));
            for sum in [&mut filter.one, &mut self.now.all].into_iter().chain(held) {
                sum.take(before);
                sum.add(after);
            }
        }
    }

    /// Compares the sum over all filters with what the catalogue counts after an entry, once for each.
    ///
    /// # Errors
    /// The invariant that is violated, and how.
    pub(crate) fn add_up(
        &mut self,
        index: u64,
        newest: &MetaState,
    ) -> Result<(), (&'static str, String)> {
        if index <= self.compared {
            return Ok(());
        }
        self.compared = index;
        counters::checked(SUM, 1);
        let counted = newest.usage(None);
        let counted = (counted.filter_count, counted.memory_bytes);
        let summed = self.now.usage_of_all();
        if counted == summed {
            return Ok(());
        }
        let text = format!(
            "after entry {index} the catalogue counts {counted:?} (filters, bytes), expected {summed:?}"
        );
        Err((SUM, text))
    }

    /// A filter was renamed, unless that was done before.
    fn renamed(&mut self, filter: FilterId, newest: &MetaState) {
        if let Some(renamed) = self.filters.get_mut(&filter)
            && let Some(FilterState::Renaming { to }) = newest.filter(filter).map(|now| now.state)
        {
            renamed.renamed_to = Some(to.0);
        }
    }

    /// A filter was dropped, if it is not there any more: of a partitioned one, the slices are there for a while.
    fn dropped(&mut self, filter: FilterId, newest: &MetaState) {
        let is_replicated = self.filters.get(&filter).is_some_and(|held| held.one.replicated > 0);
        if is_replicated && newest.filter(filter).is_none() {
            self.gone(filter);
        }
    }

    /// A filter that begins a generation is as it was planned, unless it was only renamed.
    fn cleared(&mut self, filter: FilterId, generation: u64) {
        let Some(cleared) = self.filters.get_mut(&filter) else { return };
        if generation <= cleared.generation {
            return;
        }
        cleared.generation = generation;
        if cleared.renamed_to.take_if(|to| *to == generation).is_some() {
            return;
        }
        let grown = cleared.growth();
        cleared.grown.clear();
        cleared.one.take(grown);
        self.now.all.take(grown);
        if let Some(held) = cleared.owner.as_ref().and_then(|owner| self.now.held.get_mut(owner)) {
            held.take(grown);
        }
    }

    fn gone(&mut self, filter: FilterId) {
        let Some(Filter { owner, one, .. }) = self.filters.remove(&filter) else { return };
        self.now.all.take(one);
        if let Some(held) = owner.and_then(|owner| self.now.held.get_mut(&owner)) {
            held.take(one);
        }
    }

    fn limit(&mut self, of: Option<&PrincipalName>, change: &Quota, from_none: bool) {
        let limits = match of {
            None => &mut self.now.of_all,
            Some(name) => self.now.limits.entry(name.as_str().to_owned()).or_default(),
        };
        let before = if from_none { HolderLimits::default() } else { *limits };
        // The cluster's default memory limit is gigabytes, which no simulated world fills.
        *limits = HolderLimits {
            count: change.filter_count.or(before.count),
            bytes: change.memory_bytes.or(before.bytes),
        };
    }

    /// Versions that a linearizable read of the catalogue may have returned between two times.
    pub(crate) fn between(&self, from_us: u64, to_us: u64) -> &[(u64, HoldingsVersion)] {
        let sure = |&(at_us, _): &(u64, HoldingsVersion)| at_us + CLOCKS_APART_US < from_us;
        let least = self.versions.partition_point(sure).saturating_sub(1);
        let by_us = to_us + CLOCKS_APART_US;
        let most = self.versions.partition_point(|&(at_us, _)| at_us <= by_us);
        &self.versions[least..most.max(least)]
    }

    /// Whether a filter like `sample` may have found no room at some time of the interval.
    pub(crate) fn may_be_full(&self, us: (u64, u64), owner: &str, sample: &str) -> bool {
        let Some(one) = self.sample(sample).filter(|_| self.recut_us + CLOCKS_APART_US < us.0)
        else {
            return true;
        };
        let mut versions = self.between(us.0, us.1).iter();
        versions.any(|(_, version)| version.over(Some(owner), one).is_some())
    }

    /// What a filter like this one takes if it is planned now; `None` if none was since shards were split or merged, with
    /// which plans change.
    fn sample(&self, name: &str) -> Option<Holdings> {
        let sample = self.filters.values().find(|filter| filter.name == name)?;
        let (shards, planned) = self.planned.get(&sample.plan)?;
        (*shards == self.shard_count).then_some(*planned)
    }

    /// What a filter of this name takes on all nodes.
    pub(crate) fn bytes_of(&self, name: &str) -> Option<u64> {
        let held = self.filters.values().find(|filter| filter.name == name)?;
        Some(self.now.bytes(held.one))
    }

    /// The last version.
    pub(crate) const fn now(&self) -> &HoldingsVersion {
        &self.now
    }
}

#[cfg(test)]
#[path = "quotas_test.rs"]
mod quotas_test;
