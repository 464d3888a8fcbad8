//! The catalogue: every filter of the cluster, with its state.
//!
//! ```text
//! CreateFilter -> Creating -> Live <-> Clearing, Rotating, Renaming
//!                        \-> Importing -> Live
//! any -> Dropping -> gone
//! ```
//!
//! One entry creates, clears or drops a replicated filter, because no shard takes part: nodes create, empty
//! and drop their copies when they apply the entry.

use std::collections::BTreeMap;

use umbel_filter::Kind;

use super::filter_name::FilterName;
use super::filter_order::SeenExpiry;
use super::filter_record::{FilterRecord, FilterState};
use super::principal::PrincipalName;
use super::reply::{MetaError, MetaReply};
use super::settings::{Distribution, FilterSettings, HashKey};
use super::state::MetaState;
use super::version::ClusterVersion;
use crate::ids::{FilterId, Generation, GroupId, ShardId};
use crate::limits::{FILTER_COUNT_MAX, SLICE_BYTES_MAX};
use crate::meta::Result;
use umbel_step::planted::{self, Planted};

/// The version since which the time of expiry of a filter that is being imported is that of its import.
pub(super) const IMPORTS_EXPIRE_SINCE: ClusterVersion = ClusterVersion(4);

/// The version since which imports begin by a command of their own, which tells them apart.
pub(super) const IMPORTS_BEGIN_SINCE: ClusterVersion = ClusterVersion(5);

impl MetaState {
    pub(super) fn create_filter(
        &mut self,
        log_index: u64,
        name: &FilterName,
        settings: &FilterSettings,
        importing: bool,
        owner: Option<&PrincipalName>,
    ) -> Result<MetaReply> {
        if let Some((id, filter)) = self.filter_by_name(name.as_str()) {
            // A node that does not know the version yet begins an import by this command. It must not get the
            // filter of another import, which it would drop if its own failed.
            let tells_apart = importing && self.version >= IMPORTS_BEGIN_SINCE;
            if !tells_apart && filter.is_answer_to(settings, importing) {
                return Ok(MetaReply::Filter(id));
            }
            return Err(MetaError::NameTaken { name: name.as_str().to_owned() });
        }
        settings.check(self.widest_shard_count())?;
        self.check_key(settings.key)?;
        if self.filters.len() >= FILTER_COUNT_MAX {
            let count = self.filters.len();
            let what = format!("{count} filters, at most {FILTER_COUNT_MAX} are allowed");
            return Err(MetaError::Quota { what });
        }
        if !planted::on(Planted::QuotaRaced) {
            self.check_quota(owner, settings)?;
        }
        let is_replicated = settings.distribution == Distribution::Replicated;
        if !is_replicated {
            self.check_no_merge()?;
        }
        let id = FilterId(log_index);
        let (name, settings) = (name.clone(), settings.clone());
        if is_replicated && GroupId::of_copy(id).is_none() {
            let what = format!("{id}: the numbers of replicated filters are used up");
            return Err(MetaError::Quota { what });
        }
        let state = match (is_replicated, importing) {
            (false, importing) => FilterState::Creating { importing },
            (true, false) => FilterState::Live,
            (true, true) => FilterState::Importing,
        };
        self.names.insert(name.clone(), id);
        let (generation, owner) = (Generation(1), owner.cloned());
        let growth = BTreeMap::new();
        let expires_ms = None;
        let record = FilterRecord { name, settings, generation, state, owner, growth, expires_ms };
        self.filters.insert(id, record);
        Ok(MetaReply::Filter(id))
    }

    /// Refuses a key whose id belongs to a different key: frames identify keys by id alone.
    fn check_key(&self, key: HashKey) -> Result<()> {
        let HashKey::SipHash { key_id, .. } = key else { return Ok(()) };
        if self.key(key_id).is_some_and(|held| held != key) {
            let what = format!("key {key_id:#018x} is another key already");
            return Err(MetaError::BadSettings { what });
        }
        Ok(())
    }

    /// Allows a slice to grow. Refused while the filter is being cleared.
    pub(super) fn grow_filter(
        &mut self,
        (filter, generation): (FilterId, Generation),
        shard: ShardId,
        growth_bytes: u64,
    ) -> Result<MetaReply> {
        self.check_growth((filter, generation), shard, growth_bytes)?;
        let record = self.named(filter)?;
        let growth = record.growth.entry(shard).or_default();
        *growth = growth_bytes.max(*growth);
        Ok(MetaReply::Done)
    }

    /// Refuses growth that the filter cannot have, or for which the quota of its owner or of the cluster
    /// has no room. Checked again when the entry that allows it is applied.
    ///
    /// # Errors
    /// [`MetaError::Quota`], with the quota, the use and the need; or the reason why the filter does not
    /// grow.
    pub fn check_growth(
        &self,
        (filter, generation): (FilterId, Generation),
        shard: ShardId,
        growth_bytes: u64,
    ) -> Result<()> {
        let record = self.filters.get(&filter).ok_or(MetaError::UnknownFilter { filter })?;
        match record.state {
            // A filter that is being imported grows as its frames arrive.
            FilterState::Live | FilterState::Importing if record.generation == generation => {}
            FilterState::Dropping => return Err(MetaError::UnknownFilter { filter }),
            _ => return Err(record.busy()),
        }
        let bad = |what: String| Err(MetaError::BadSettings { what });
        if !Kind::from_id(record.settings.kind).is_some_and(Kind::grows) {
            return bad(format!(
                "{filter} does not grow: its kind has the size that it was made with"
            ));
        }
        if self.shard(shard).is_none() {
            return bad(format!("there is no {shard}"));
        }
        if growth_bytes > SLICE_BYTES_MAX {
            return bad(format!("growth by {growth_bytes} bytes, at most {SLICE_BYTES_MAX}"));
        }
        match growth_bytes.checked_sub(record.growth_bytes(shard)) {
            None | Some(0) => Ok(()),
            Some(more) => {
                self.check_merged_growth(record, shard, growth_bytes)?;
                self.check_growth_quota(record.owner.as_ref(), more)
            }
        }
    }

    /// The filter, unless it is being dropped.
    pub(super) fn named(&mut self, filter: FilterId) -> Result<&mut FilterRecord> {
        match self.filters.get_mut(&filter) {
            Some(record) if record.state != FilterState::Dropping => Ok(record),
            _ => Err(MetaError::UnknownFilter { filter }),
        }
    }

    pub(super) fn filter_created(&mut self, filter: FilterId) -> Result<MetaReply> {
        let record = self.named(filter)?;
        if let FilterState::Creating { importing } = record.state {
            record.state = if importing { FilterState::Importing } else { FilterState::Live };
        }
        Ok(MetaReply::Done)
    }

    pub(super) fn activate_import(&mut self, filter: FilterId) -> Result<MetaReply> {
        let expires = self.version >= IMPORTS_EXPIRE_SINCE;
        let record = self.named(filter)?;
        match record.state {
            FilterState::Creating { .. } => return Err(record.busy()),
            FilterState::Importing => {
                record.state = FilterState::Live;
                if expires {
                    record.expires_ms = None;
                }
            }
            FilterState::Live
            | FilterState::Clearing { .. }
            | FilterState::Rotating { .. }
            | FilterState::Renaming { .. }
            | FilterState::Dropping => {}
        }
        Ok(MetaReply::Done)
    }

    pub(super) fn drop_filter(&mut self, filter: FilterId) -> Result<MetaReply> {
        let no_merge = self.check_no_merge();
        if let Some(record) = self.filters.get_mut(&filter)
            && record.state != FilterState::Dropping
        {
            if !record.is_replicated() {
                no_merge?;
            }
            record.state = FilterState::Dropping;
            self.names.remove(&record.name);
            if record.is_replicated() {
                self.filters.remove(&filter);
            }
        }
        Ok(MetaReply::Done)
    }

    /// Drops a filter that nobody has dropped, and that has the expiry that was seen.
    pub(super) fn take_filter(&mut self, filter: FilterId, seen: SeenExpiry) -> Result<MetaReply> {
        if planted::on(Planted::TakenTwice) && self.named(filter).is_err() {
            return Ok(MetaReply::Done);
        }
        let record = self.named(filter)?;
        // The time is that of the import, which renews it: nobody else sets it.
        if seen != SeenExpiry::Any && record.is_imported() {
            return Err(record.busy());
        }
        if !seen.is_still(record.expires_ms) {
            return Err(MetaError::ExpiryChanged { filter });
        }
        self.drop_filter(filter)
    }

    pub(super) fn filter_dropped(&mut self, filter: FilterId) -> Result<MetaReply> {
        match self.filters.get(&filter) {
            Some(record) if record.state != FilterState::Dropping => return Err(record.busy()),
            _ => self.filters.remove(&filter),
        };
        Ok(MetaReply::Done)
    }

    pub(super) fn clear_filter(
        &mut self,
        filter: FilterId,
        generation: Generation,
    ) -> Result<MetaReply> {
        let no_merge = self.check_no_merge();
        let record = self.named(filter)?;
        let to = Generation(record.generation.0.saturating_add(1));
        match record.state {
            FilterState::Live if record.generation > generation => record.check_cleared()?,
            FilterState::Live if record.is_replicated() => record.generation = to,
            FilterState::Live => {
                no_merge?;
                record.state = FilterState::Clearing { to };
                if planted::on(Planted::FenceSkipped) {
                    record.generation = to;
                }
            }
            FilterState::Clearing { .. } => {}
            _ => return Err(record.busy()),
        }
        Ok(MetaReply::Done)
    }

    pub(super) fn rotate_filter(
        &mut self,
        filter: FilterId,
        generation: Generation,
    ) -> Result<MetaReply> {
        let no_merge = self.check_no_merge();
        let record = self.named(filter)?;
        if !record.settings.shape.is_rotated_by_hand() {
            let what = format!(
                "{:?} has no slices that end by hand, expected a filter with a manual window",
                record.name.as_str()
            );
            return Err(MetaError::BadSettings { what });
        }
        let to = Generation(record.generation.0.saturating_add(1));
        match record.state {
            FilterState::Live if record.generation > generation => {}
            FilterState::Live => {
                no_merge?;
                record.state = FilterState::Rotating { to };
            }
            FilterState::Rotating { .. } => {}
            _ => return Err(record.busy()),
        }
        Ok(MetaReply::Done)
    }

    pub(super) fn filter_cleared(
        &mut self,
        filter: FilterId,
        generation: Generation,
    ) -> Result<MetaReply> {
        let record = self.named(filter)?;
        if record.state.next_generation() == Some(generation) {
            record.generation = generation;
            // After a clear or a rotation the slices start at their planned size again.
            if !matches!(record.state, FilterState::Renaming { .. }) {
                record.growth.clear();
            }
            record.state = FilterState::Live;
        } else if generation > record.generation {
            return Err(record.busy());
        }
        Ok(MetaReply::Done)
    }
}
