//! Filters as a whole: create, find, describe, clear, merge, drop.

use futures_util::StreamExt;
use futures_util::stream;
use tokio::time::{Instant, timeout_at};
use umbel_engine::limits::FILTER_COUNT_MAX;
use umbel_engine::meta::{
    Distribution, FilterChange, FilterName, FilterRecord, FilterSettings, FilterState, GroupView,
    HashKey, MetaCommand, MetaError, MetaReply, MetaState, PrincipalName,
};
use umbel_engine::placement::ShardRanges;
use umbel_engine::shard::{PartError, SliceShape};
use umbel_engine::{FilterId, Generation, NodeId, ShardId};
use umbel_filter::{CellCount, Kind};
use umbel_ports::Purpose;
use umbel_replicated_engine::hypercube::DistinctEstimates;
use umbel_step::planted::{self, Planted};

use super::sizes::{FilterSize, planned};
use super::{Coordinator, LiveFilter, Result};
use umbel_node::calls::{CopyLoad, CopyReport, ShardAnswer, ShardRequest, SliceLoad};
use umbel_node::failure::CallFailure;
use umbel_node::leader_calls::unexpected;

mod drops;
pub(crate) mod expiry;
pub mod load;
mod merge;
mod orders;
pub mod outlook;
pub mod overlap;
mod rename;
mod room;
mod sums;
mod unfinished;

pub use self::merge::PreparedMerge;

/// Shards that one call asks at once: enough that 1,024 shards take a few round trips.
const SHARD_CALLS_MAX: usize = 64;

/// What a new filter is to be.
#[derive(Clone, PartialEq, Debug)]
pub enum FilterRequest {
    /// Planned from figures.
    Planned {
        /// The kind of filter.
        kind: Kind,
        /// Partitioned or replicated.
        distribution: Distribution,
        /// Different items that it is planned for.
        capacity: u64,
        /// How large it is to be.
        size: FilterSize,
        /// How its items are hashed.
        hashing: Hashing,
    },
    /// With the shape and the key of the filter with this name.
    Like(FilterName),
}

/// How items are hashed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Hashing {
    /// Under a secret key of the cluster.
    Keyed,
    /// With a public seed.
    Public,
}

/// A part of the list of filters.
#[derive(Clone, PartialEq, Debug)]
pub struct FilterPage {
    /// Sorted by name.
    pub filters: Vec<(FilterId, FilterRecord)>,
    /// Whether more filters follow.
    pub has_more: bool,
}

/// A filter in the state in which a caller saw it before it ordered a change: a change that is sent twice,
/// or arrives late, affects neither another filter of the name nor what was inserted after a clear.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Seen {
    /// The filter.
    pub filter: FilterId,
    /// None if the filter may have been cleared since.
    pub generation: Option<Generation>,
}

impl Seen {
    /// Refuses a filter that is no longer the one that was seen.
    fn check(self, id: FilterId, record: &FilterRecord) -> Result<()> {
        let is_same = self.filter == id
            && self.generation.is_none_or(|generation| generation == record.generation);
        if is_same {
            Ok(())
        } else {
            Err(CallFailure::Changed { name: record.name.as_str().to_owned() })
        }
    }
}

/// What is known of a filter and its slices.
#[derive(Clone, PartialEq, Debug)]
pub struct FilterInfo {
    /// The number of the filter.
    pub id: FilterId,
    /// Its record in the catalogue.
    pub record: FilterRecord,
    /// How the shards are cut.
    pub ranges: ShardRanges,
    /// In ascending order of shards; none for a replicated filter, one if the filter lies in one shard.
    pub slices: Vec<(ShardId, SliceLoad)>,
    /// Only for a replicated filter.
    pub copies: Option<CopiesInfo>,
}

/// What is known of the copies of a replicated filter.
#[derive(Clone, PartialEq, Debug)]
pub struct CopiesInfo {
    /// This node's copy.
    pub own: CopyLoad,
    /// The copies of all nodes, in ascending order of nodes; None for nodes that did not answer.
    pub all: Vec<(NodeId, Option<CopyReport>)>,
    /// This node's estimates of how many items were inserted on which nodes.
    pub distinct: DistinctEstimates,
}

impl Coordinator {
    /// Creates a filter, and returns once every shard has its slice. A name in use is refused, whatever
    /// its filter is like. The filter counts towards the quota of `owner`.
    pub async fn create(
        &self,
        name: &FilterName,
        new: &FilterRequest,
        owner: Option<PrincipalName>,
        deadline: Instant,
    ) -> Result<(FilterId, FilterRecord)> {
        self.wait_formed(deadline).await?;
        let settings = match new {
            FilterRequest::Planned { kind, distribution, capacity, size, hashing } => {
                self.let_expired_go(name, deadline).await?;
                let (cells, filter_count) =
                    self.read_meta(|state| (widest_cells(state), state.filters().count()))?;
                check_filter_count(filter_count)?;
                let key = self.draw_key(*kind, *hashing);
                let mut settings = planned(*kind, *distribution, *capacity, *size, cells?, key)?;
                settings.shape = self.placed(settings.shape);
                settings
            }
            FilterRequest::Like(other) => {
                self.meta_refresh(deadline).await?;
                self.refuse_taken(name)?;
                self.live_filter(other.as_str(), deadline).await?.record.settings
            }
        };
        // A random key, or place, distinguishes this filter from all others, so a filter of the name with
        // the same settings was created by this very call, whose first reply was lost.
        let is_unique = matches!(new, FilterRequest::Planned { .. });
        let importing = false;
        let id = match self.propose_filter(name, &settings, importing, owner, deadline).await {
            Err(CallFailure::Meta(MetaError::NameTaken { name })) if is_unique => {
                let own = self.read_meta(|state| {
                    let (id, record) = state.filter_by_name(&name)?;
                    (record.settings == settings).then_some(id)
                })?;
                own.ok_or(CallFailure::Meta(MetaError::NameTaken { name }))?
            }
            outcome => outcome.map_err(|error| unfinished::may_exist(name.as_str(), error))?,
        };
        let record = self.wait_filter(id, deadline, is_answering).await?;
        Ok((id, record))
    }

    /// Waits until this node knows that the cluster is formed: it may be the last one to learn it.
    ///
    /// # Errors
    /// If it does not learn it in time, or belongs to no cluster.
    async fn wait_formed(&self, deadline: Instant) -> Result<()> {
        let mut applied = self.local()?.meta().replica().applied_index();
        let is_readable = applied.wait_for(|_| self.read_meta(|_| ()).is_ok());
        match timeout_at(deadline, is_readable).await {
            Ok(Ok(_)) => Ok(()),
            _ => self.read_meta(|_| ()),
        }
    }

    /// Proposes a new filter to the meta group; its slices are created later. A filter beyond a quota is
    /// not proposed; the meta group checks again, because other calls may create filters at the same
    /// time. Neither is one for which a disk has no room.
    pub(super) async fn propose_filter(
        &self,
        name: &FilterName,
        settings: &FilterSettings,
        importing: bool,
        owner: Option<PrincipalName>,
        deadline: Instant,
    ) -> Result<FilterId> {
        let check = |state: &MetaState| state.check_quota(owner.as_ref(), settings);
        if self.read_meta(check)?.is_err() {
            // Filters may have been dropped since.
            if !planted::on(Planted::QuotaByOldCopy) {
                self.meta_refresh(deadline).await?;
            }
            self.read_meta(|state| match state.filter_by_name(name.as_str()) {
                // The name may be this very request's, which was sent again.
                Some(_) => Ok(()),
                None => check(state),
            })??;
        }
        self.refuse_without_room(name, settings, deadline).await?;
        let (name, settings) = (name.clone(), settings.clone());
        let command = if importing {
            self.begun_import(name, settings, owner)?
        } else {
            MetaCommand::CreateFilter { name, settings, importing, owner }
        };
        match self.meta_propose(command, deadline).await? {
            MetaReply::Filter(id) => Ok(id),
            other => Err(unexpected(&other)),
        }
    }

    /// Refuses a name that is in use as far as this node knows. Only for filters whose settings are not
    /// unique: for those the meta group would take a second filter for a repetition of the first.
    pub(super) fn refuse_taken(&self, name: &FilterName) -> Result<()> {
        let name = name.as_str();
        if self.read_meta(|state| state.filter_by_name(name).is_some())? {
            return Err(MetaError::NameTaken { name: name.to_owned() }.into());
        }
        Ok(())
    }

    /// Waits until a filter is in a state that `until` accepts.
    pub(super) async fn wait_filter(
        &self,
        id: FilterId,
        deadline: Instant,
        until: fn(FilterState) -> bool,
    ) -> Result<FilterRecord> {
        let look = |state: &MetaState| match state.filter(id) {
            Some(record) if until(record.state) => Some(Ok(record.clone())),
            Some(record) if record.state != FilterState::Dropping => None,
            _ => Some(Err(MetaError::UnknownFilter { filter: id }.into())),
        };
        self.wait_change(id, look, deadline).await?
    }

    /// Draws a key for a filter; filters of RedisBloom's kind have none, whatever `hashing` is.
    fn draw_key(&self, kind: Kind, hashing: Hashing) -> HashKey {
        if kind == Kind::RedisBloom {
            return HashKey::RedisBloom;
        }
        let number = self.seed().number(Purpose::FilterKey);
        match hashing {
            Hashing::Public => HashKey::Xxh3 { seed: number },
            Hashing::Keyed => {
                let mut secret = [0; 16];
                self.seed().fill(Purpose::FilterKey, &mut secret);
                HashKey::SipHash { key_id: number, secret }
            }
        }
    }

    /// The shape of a new filter; if it lies in one shard, its place is drawn at random.
    pub(super) fn placed(&self, shape: SliceShape) -> SliceShape {
        match shape.place() {
            Some(_) => shape.placed(self.seed().number(Purpose::FilterKey)),
            None => shape,
        }
    }

    /// Clears a filter; returns its new generation once every shard has begun it, and whether the filter
    /// is replicated. With `seen`, a filter that was cleared or replaced since is left alone.
    pub async fn clear(
        &self,
        name: &FilterName,
        seen: Option<Seen>,
        deadline: Instant,
    ) -> Result<(Generation, bool)> {
        let (id, record) = self.filter_in_any_state(name, deadline).await?;
        seen.map_or(Ok(()), |seen| seen.check(id, &record))?;
        let change = FilterChange::Clear { generation: record.generation };
        self.begin_generation(id, &record, change, deadline).await
    }

    /// Ends the current slice of a window that is rotated by hand; returns the filter's new generation
    /// once every shard has begun it.
    pub async fn rotate(&self, name: &FilterName, deadline: Instant) -> Result<Generation> {
        let (id, record) = self.filter_in_any_state(name, deadline).await?;
        if !record.settings.shape.is_rotated_by_hand() {
            let what = format!(
                "{:?} has no slices that end by hand, expected a filter that was created with --window manual",
                name.as_str()
            );
            return Err(PartError::WrongKind { what }.into());
        }
        let change = FilterChange::Rotate { generation: record.generation };
        self.begin_generation(id, &record, change, deadline).await.map(|(generation, _)| generation)
    }

    /// Waits until a change of a filter shows; without a majority the failure says how far the change is.
    pub(super) async fn wait_change<T>(
        &self,
        id: FilterId,
        look: impl FnMut(&MetaState) -> Option<T>,
        deadline: Instant,
    ) -> Result<T> {
        match self.wait_meta(Self::patience_until(deadline), look).await {
            Err(CallFailure::NoQuorum { within, .. }) => {
                Err(self.unfinished(id, within, deadline).await)
            }
            outcome => outcome,
        }
    }

    /// Proposes a filter's next generation, and waits until every shard has begun it.
    pub(crate) async fn begin_generation(
        &self,
        id: FilterId,
        record: &FilterRecord,
        change: FilterChange,
        deadline: Instant,
    ) -> Result<(Generation, bool)> {
        unfinished::refuse_during_other_change(record, &change)?;
        // A repeated command is answered, too: a change in progress leads to the same generation.
        if let Err(refusal) = self.propose_order(id, record, change, deadline).await {
            let now = self.read_meta(|state| state.filter(id).map(|now| now.generation))?;
            unfinished::check_begun(record, now, refusal)?;
        }
        let next = Generation(record.generation.0.saturating_add(1));
        let wanted = record.state.next_generation().unwrap_or(next);
        let look = |state: &MetaState| match state.filter(id) {
            None => Some(Err(MetaError::UnknownFilter { filter: id }.into())),
            // A rename raises the generation, too: the command may have done nothing.
            Some(now) if now.name != record.name => Some(Err(rename::meanwhile(record, now))),
            Some(record) => (record.generation >= wanted)
                .then_some(Ok((record.generation, record.is_replicated()))),
        };
        self.wait_change(id, look, deadline).await?
    }

    /// A filter by its name, from a copy of the catalogue that is refreshed for the call.
    async fn filter_in_any_state(
        &self,
        name: &FilterName,
        deadline: Instant,
    ) -> Result<(FilterId, FilterRecord)> {
        self.meta_refresh(deadline).await?;
        let name = name.as_str();
        let found = self.read_meta(|state| {
            state.filter_by_name(name).map(|(id, record)| (id, record.clone()))
        })?;
        found.ok_or_else(|| CallFailure::UnknownFilter { name: name.to_owned() })
    }

    /// The first filters, sorted by name, whose names begin with `prefix` and come after `after`, without
    /// those that are being dropped, according to this node's catalogue.
    pub fn list(
        &self,
        prefix: &str,
        after: &str,
        limit: usize,
        is_visible: impl Fn(&str) -> bool,
    ) -> Result<FilterPage> {
        self.read_meta(|state| {
            let is_listed = |record: &FilterRecord| {
                let name = record.name.as_str();
                let is_here = record.state != FilterState::Dropping && is_visible(name);
                is_here && name.starts_with(prefix) && name > after
            };
            let mut found: Vec<_> =
                state.filters().filter(|(_, record)| is_listed(record)).collect();
            found.sort_unstable_by_key(|(_, record)| &record.name);
            let has_more = found.len() > limit;
            found.truncate(limit);
            let filters = found.into_iter().map(|(id, record)| (id, record.clone())).collect();
            FilterPage { filters, has_more }
        })
    }

    /// Describes a filter and its slices.
    pub async fn info(&self, name: &FilterName, deadline: Instant) -> Result<FilterInfo> {
        loop {
            let filter = self.live_filter(name.as_str(), deadline).await?;
            if filter.record.is_replicated() {
                return self.copies().info(filter, deadline).await;
            }
            let LiveFilter { id, record, ranges, .. } = filter;
            let generation = record.generation;
            let request = |_| ShardRequest::Describe { filter: id, generation };
            let answers = match record.settings.shape.place() {
                // All other shards have no slice of it.
                Some(place) => {
                    let home = ranges.shard_of(place);
                    let answer = self.shard_call(home, request(home), deadline).await;
                    vec![(home, answer)]
                }
                None => self.call_every_shard(ranges, request, deadline).await,
            };
            let slices: Result<Vec<_>, _> = answers
                .into_iter()
                .map(|(shard, answer)| match answer? {
                    ShardAnswer::Slice(load) => Ok((shard, load)),
                    other => Err(unexpected(&other)),
                })
                .collect();
            // A shard that was split during the calls may be counted twice, or not at all: then the calls
            // are repeated.
            let is_cut_so = self.read_meta(ranges_of)?? == ranges;
            match slices {
                Ok(_) if !is_cut_so && Instant::now() < deadline => {}
                Ok(slices) => return Ok(FilterInfo { id, record, ranges, slices, copies: None }),
                // The filter was cleared or replaced meanwhile.
                Err(CallFailure::Part(
                    PartError::UnknownSlice { .. } | PartError::StaleGeneration { .. },
                )) if Instant::now() < deadline => self.meta_refresh(deadline).await?,
                // The shard is merged into another one, which takes a moment.
                Err(CallFailure::Part(PartError::Fenced { .. })) if Instant::now() < deadline => {
                    self.shards().wait_unsplit(deadline).await?;
                }
                Err(error) => return Err(error),
            }
        }
    }

    /// Calls every shard, up to `SHARD_CALLS_MAX` at once; returns the answers in ascending order of shards.
    pub(super) async fn call_every_shard(
        &self,
        ranges: ShardRanges,
        request: impl Fn(ShardId) -> ShardRequest,
        deadline: Instant,
    ) -> Vec<(ShardId, Result<ShardAnswer>)> {
        let calls = ranges.shards().map(|shard| {
            let request = request(shard);
            async move { (shard, self.shard_call(shard, request, deadline).await) }
        });
        stream::iter(calls).buffered(SHARD_CALLS_MAX).collect().await
    }

    /// Leader and members of the meta group, as far as this node knows.
    pub fn meta_view(&self) -> Result<GroupView> {
        Ok(self.local()?.meta().view())
    }
}

pub(super) fn is_answering(state: FilterState) -> bool {
    state == FilterState::Live || state.next_generation().is_some()
}

/// How the shards of a formed cluster are cut.
pub(super) fn ranges_of(state: &MetaState) -> Result<ShardRanges> {
    state.shard_map().ranges().ok_or(CallFailure::NotFormed)
}

/// The number of equal ranges, each as wide as the widest shards, for which a new filter is planned.
fn widest_cells(state: &MetaState) -> Result<CellCount> {
    ranges_of(state).map(ShardRanges::widest)
}

fn check_filter_count(count: usize) -> Result<()> {
    if count < FILTER_COUNT_MAX {
        return Ok(());
    }
    let what = format!("{count} filters, at most {FILTER_COUNT_MAX} are allowed");
    Err(MetaError::Quota { what }.into())
}

#[cfg(test)]
mod tests {
    use super::*;
    use umbel_node::calls::RateProbes;

    pub(super) fn record() -> FilterRecord {
        let (kind, distribution) = (Kind::Blocked, Distribution::Partitioned);
        let (size, cells) = (FilterSize::Rate(0.01), CellCount::new(2).unwrap());
        let key = HashKey::Xxh3 { seed: 7 };
        FilterRecord {
            name: FilterName::new("a").unwrap(),
            settings: planned(kind, distribution, 1000, size, cells, key).unwrap(),
            generation: Generation(1),
            state: FilterState::Live,
            owner: None,
            growth: std::collections::BTreeMap::new(),
            expires_ms: None,
        }
    }

    #[test]
    fn slices_add_up() {
        let slice = |item_count, false_positive_rate, new_count| SliceLoad {
            leader: NodeId(1),
            position_count: 100,
            one_count: 10,
            item_count,
            false_positive_rate,
            new_count,
            memory_bytes: 64,
            room: None,
            probes: RateProbes { probe_count: 100, hit_count: 2 },
            unexplained_one_count: Some(3),
            new_per_second: item_count,
        };
        let mut info = FilterInfo {
            id: FilterId(1),
            record: record(),
            ranges: ShardRanges::new(2, 2).unwrap(),
            slices: vec![
                (ShardId(0), slice(Some(2.0), 0.25, 3)),
                (ShardId(1), slice(Some(3.0), 0.75, u64::MAX)),
            ],
            copies: None,
        };
        assert_eq!((info.item_count(), info.false_positive_rate()), (Some(5.0), 0.5));
        // Shard 0 has a quarter of the hashes now, and shard 1 half.
        info.ranges = ShardRanges::new(2, 3).unwrap();
        assert!((info.false_positive_rate() - 1.75 / 3.0).abs() < 1e-12);
        assert_eq!((info.sum(|slice| slice.new_count), info.sum(|s| s.one_count)), (u64::MAX, 20));
        assert_eq!(info.probes(), RateProbes { probe_count: 200, hit_count: 4 });
        assert_eq!(info.unexplained_one_count(), Some(6));
        assert_eq!(info.outlook().new_per_second, Some(5.0));
        info.slices[1].1.new_per_second = None;
        assert_eq!(info.outlook().new_per_second, Some(4.0), "the other takes as many");
        info.slices[1].1.unexplained_one_count = None;
        assert_eq!(info.unexplained_one_count(), None);
        info.slices[1].1.item_count = None;
        assert_eq!(info.item_count(), None);
    }
}
