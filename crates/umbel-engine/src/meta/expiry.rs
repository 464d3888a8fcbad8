//! Filters with a time of expiry.
//!
//! State machines read no clock: the leader of the meta group compares the times with its own clock and
//! proposes to drop what is due. The proposal includes the time, so that it has no effect on a filter
//! whose time was changed meanwhile.

use super::catalogue::FilterState;
use super::command::{MetaCommand, MetaError, MetaReply};
use super::state::MetaState;
use crate::ids::FilterId;

impl MetaState {
    /// The commands that drop all filters whose time has come; `now_ms` is in milliseconds since 1970. While shards
    /// are merged, only replicated ones: the drop of a partitioned one is refused until that is over, and each
    /// proposal would be an entry of the log for nothing.
    ///
    /// ```
    /// use umbel_engine::meta::MetaState;
    ///
    /// assert!(MetaState::new().expired(u64::MAX).is_empty());
    /// ```
    #[must_use]
    pub fn expired(&self, now_ms: u64) -> Vec<MetaCommand> {
        let is_merging = self.shard_map().merging().is_some();
        let due = self.filters().filter_map(|(filter, record)| {
            let expires_ms = record.expires_ms.filter(|&at_ms| at_ms <= now_ms)?;
            let is_held = is_merging && !record.is_replicated();
            let is_there = record.state != FilterState::Dropping && !is_held;
            is_there.then_some(MetaCommand::DropExpired { filter, expires_ms })
        });
        due.collect()
    }

    pub(super) fn set_expiry(
        &mut self,
        filter: FilterId,
        expires_ms: Option<u64>,
    ) -> Result<MetaReply, MetaError> {
        match self.filters.get_mut(&filter) {
            Some(record) if record.state != FilterState::Dropping => {
                record.expires_ms = expires_ms;
                Ok(MetaReply::Done)
            }
            _ => Err(MetaError::UnknownFilter { filter }),
        }
    }

    pub(super) fn drop_expired(
        &mut self,
        filter: FilterId,
        expires_ms: u64,
    ) -> Result<MetaReply, MetaError> {
        let is_due = |record: &super::FilterRecord| record.expires_ms == Some(expires_ms);
        match self.filters.get(&filter).is_some_and(is_due) {
            // If it is refused, the controller proposes it again.
            true => self.drop_filter(filter),
            false => Ok(MetaReply::Done),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ids::NodeId;
    use crate::meta::{Distribution, FilterName, FilterSettings, HashKey};
    use crate::shard::SliceShape;

    fn state() -> (MetaState, FilterId) {
        let mut state = MetaState::new();
        let nodes = vec![(NodeId(1), "a:7070".to_owned())];
        state.apply(1, &MetaCommand::Form { cluster: 9, nodes, shard_count: 1, replica_count: 1 });
        let settings = FilterSettings {
            distribution: Distribution::Partitioned,
            kind: umbel_filter::Kind::SingleShot.id(),
            capacity: 10,
            false_positive_rate: 0.1,
            shape: SliceShape::SingleShot { position_count: 100 },
            memory_bytes: 20,
            key: HashKey::Xxh3 { seed: 0 },
        };
        let name = FilterName::new("f").unwrap();
        let create = MetaCommand::CreateFilter { name, settings, importing: false, owner: None };
        assert_eq!(state.apply(5, &create), MetaReply::Filter(FilterId(5)));
        (state, FilterId(5))
    }

    #[test]
    fn a_filter_goes_at_its_time_and_not_at_an_older_one() {
        let (mut state, filter) = state();
        let at = |expires_ms| MetaCommand::SetExpiry { filter, expires_ms };
        assert_eq!(state.apply(6, &at(Some(1_000))), MetaReply::Done);
        assert_eq!(state.expired(999), []);
        let drop = MetaCommand::DropExpired { filter, expires_ms: 1_000 };
        assert_eq!(state.expired(1_000), std::slice::from_ref(&drop));
        // Its time is extended before the drop is applied.
        state.apply(7, &at(Some(2_000)));
        state.apply(8, &drop);
        assert!(state.filter_by_name("f").is_some());
        state.apply(9, &at(None));
        assert_eq!(state.expired(u64::MAX), []);
        state.apply(10, &at(Some(3_000)));
        let due = state.expired(5_000).pop().unwrap();
        assert_eq!(state.apply(11, &due), MetaReply::Done);
        assert!(state.filter_by_name("f").is_none());
        assert_eq!(state.expired(5_000), []);
        let unknown = MetaReply::Refused(MetaError::UnknownFilter { filter });
        assert_eq!(state.apply(12, &at(None)), unknown);
    }
}
