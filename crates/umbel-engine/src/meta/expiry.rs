//! Filters with a time of expiry, and imports, which have one while they last.
//!
//! State machines read no clock: the leader of the meta group compares the times with its own clock and
//! proposes to drop what is due. The proposal includes the time, so that it has no effect on a filter
//! whose time was changed meanwhile.

use umbel_step::planted::{self, Planted};

use super::catalogue::IMPORTS_EXPIRE_SINCE;
use super::command::MetaCommand;
use super::filter_name::FilterName;
use super::filter_record::FilterState;
use super::principal::PrincipalName;
use super::reply::{MetaError, MetaReply};
use super::settings::FilterSettings;
use super::state::MetaState;
use crate::ids::FilterId;
use crate::limits::IMPORT_LEASE_MS;
use crate::meta::Result;

impl MetaState {
    /// The commands that drop all filters whose time has come, and give a time to imports that have none; `now_ms` is
    /// in milliseconds since 1970. While shards are merged, only replicated filters are dropped: the drop of a
    /// partitioned one is refused until that is over, and each proposal would be an entry of the log for nothing.
    ///
    /// ```
    /// use umbel_engine::meta::MetaState;
    ///
    /// assert!(MetaState::new().expired(u64::MAX).is_empty());
    /// ```
    #[must_use]
    pub fn expired(&self, now_ms: u64) -> Vec<MetaCommand> {
        self.due(now_ms).chain(self.endless_imports(now_ms)).collect()
    }

    /// Those of these commands that drop filters.
    pub fn due(&self, now_ms: u64) -> impl Iterator<Item = MetaCommand> + '_ {
        let due = self.expiring().filter(move |&(_, expires_ms)| expires_ms <= now_ms);
        due.map(|(filter, expires_ms)| MetaCommand::DropExpired { filter, expires_ms })
    }

    /// The first time, in milliseconds since 1970, at which there is a filter to drop; None if none expires.
    ///
    /// ```
    /// use umbel_engine::meta::MetaState;
    ///
    /// assert_eq!(MetaState::new().next_expiry_ms(), None);
    /// ```
    #[must_use]
    pub fn next_expiry_ms(&self) -> Option<u64> {
        self.expiring().map(|(_, expires_ms)| expires_ms).min()
    }

    /// The filters that can be dropped once their time has come, with that time.
    fn expiring(&self) -> impl Iterator<Item = (FilterId, u64)> + '_ {
        let is_merging = self.shard_map().merging().is_some();
        self.filters().filter_map(move |(filter, record)| {
            let is_held = is_merging && !record.is_replicated();
            let is_there = record.state != FilterState::Dropping && !is_held;
            Some((filter, record.expires_ms.filter(|_| is_there)?))
        })
    }

    /// Imports whose node has not taken a lease: it may have died before it could.
    fn endless_imports(&self, now_ms: u64) -> impl Iterator<Item = MetaCommand> + '_ {
        let expires_ms = now_ms.saturating_add(IMPORT_LEASE_MS);
        let imports = self.filters().filter(|(_, record)| {
            self.version >= IMPORTS_EXPIRE_SINCE
                && record.is_imported()
                && record.expires_ms.is_none()
        });
        imports.map(move |(filter, _)| MetaCommand::RenewImport { filter, expires_ms })
    }

    pub(super) fn set_expiry(
        &mut self,
        filter: FilterId,
        expires_ms: Option<u64>,
    ) -> Result<MetaReply> {
        let imports_expire = self.version >= IMPORTS_EXPIRE_SINCE;
        let record = self.named(filter)?;
        // It would be gone when the import is complete.
        if imports_expire && record.is_imported() {
            return Err(record.busy());
        }
        record.expires_ms = expires_ms;
        Ok(MetaReply::Done)
    }

    /// Sets the time of expiry as it was seen: of several who saw the same, one sets it. A repetition is not known as such:
    /// it is refused if the first one still counts, and takes effect if the time that was seen has been restored.
    pub(super) fn replace_expiry(
        &mut self,
        filter: FilterId,
        seen_ms: Option<u64>,
        expires_ms: Option<u64>,
    ) -> Result<MetaReply> {
        let is_as_seen = self.named(filter)?.expires_ms == seen_ms;
        if is_as_seen || planted::on(Planted::ExpiryNotCompared) {
            self.set_expiry(filter, expires_ms)
        } else {
            Err(MetaError::ExpiryChanged { filter })
        }
    }

    /// Creates a filter for an import. Settings do not tell imports apart, since keys come with the copy; the
    /// time of expiry does: until the import has this answer, nobody else changes it.
    pub(super) fn begin_import(
        &mut self,
        log_index: u64,
        name: &FilterName,
        settings: &FilterSettings,
        owner: Option<&PrincipalName>,
        expires_ms: u64,
    ) -> Result<MetaReply> {
        if let Some((filter, record)) = self.filter_by_name(name.as_str()) {
            let is_own = record.expires_ms == Some(expires_ms);
            if is_own && record.is_answer_to(settings, true) {
                return Ok(MetaReply::Filter(filter));
            }
            return Err(MetaError::NameTaken { name: name.as_str().to_owned() });
        }
        let reply = self.create_filter(log_index, name, settings, true, owner)?;
        if let MetaReply::Filter(filter) = reply {
            self.named(filter)?.expires_ms = Some(expires_ms);
        }
        Ok(reply)
    }

    /// Prolongs an import. A filter whose node has died would otherwise be in the catalogue for ever, where
    /// it keeps its name and all shards from being merged. A proposal that arrives late must not let a filter
    /// expire that is live.
    pub(super) fn renew_import(&mut self, filter: FilterId, expires_ms: u64) -> Result<MetaReply> {
        let record = self.named(filter)?;
        if record.is_imported() {
            record.expires_ms = record.expires_ms.max(Some(expires_ms));
        }
        Ok(MetaReply::Done)
    }

    pub(super) fn drop_expired(&mut self, filter: FilterId, expires_ms: u64) -> Result<MetaReply> {
        let is_due = |record: &super::FilterRecord| record.expires_ms == Some(expires_ms);
        if self.filters.get(&filter).is_some_and(is_due) {
            // If it is refused, the controller proposes it again.
            self.drop_filter(filter)
        } else {
            Ok(MetaReply::Done)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ids::NodeId;
    use crate::meta::catalogue::IMPORTS_BEGIN_SINCE;
    use crate::meta::{ClusterVersion, Distribution, FilterChange, FilterOrder, HashKey};
    use crate::shard::SliceShape;

    fn state(importing: bool) -> (MetaState, FilterId) {
        let mut state = MetaState::new().at_version(IMPORTS_EXPIRE_SINCE);
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
        let create = MetaCommand::CreateFilter { name, settings, importing, owner: None };
        assert_eq!(state.apply(5, &create), MetaReply::Filter(FilterId(5)));
        (state, FilterId(5))
    }

    #[test]
    fn a_filter_goes_at_its_time_and_not_at_an_older_one() {
        let (mut state, filter) = state(false);
        let at = |expires_ms| MetaCommand::SetExpiry { filter, expires_ms };
        assert_eq!(state.next_expiry_ms(), None);
        assert_eq!(state.apply(6, &at(Some(1_000))), MetaReply::Done);
        assert_eq!(state.next_expiry_ms(), Some(1_000));
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
        assert_eq!(state.next_expiry_ms(), None, "it is being dropped");
        let unknown = MetaReply::Refused(MetaError::UnknownFilter { filter });
        assert_eq!(state.apply(12, &at(None)), unknown);
    }

    #[test]
    fn of_those_who_saw_the_same_time_one_replaces_it() {
        let (mut state, filter) = state(false);
        let replace =
            |seen_ms, expires_ms| MetaCommand::ReplaceExpiry { filter, seen_ms, expires_ms };
        let changed = MetaReply::Refused(MetaError::ExpiryChanged { filter });
        let expires = |state: &MetaState| state.filter(filter).unwrap().expires_ms;
        assert_eq!(state.apply(6, &replace(None, Some(1_000))), MetaReply::Done);
        // Also if it is the same time: the first one has won.
        for (index, at_ms) in [(7, 1_000), (8, 2_000)] {
            assert_eq!(state.apply(index, &replace(None, Some(at_ms))), changed);
            assert_eq!(expires(&state), Some(1_000));
        }
        assert_eq!(state.apply(9, &replace(Some(1_000), Some(3_000))), MetaReply::Done);
        assert_eq!(state.apply(10, &replace(Some(1_000), None)), changed);
        assert_eq!(state.apply(11, &replace(Some(3_000), None)), MetaReply::Done);
        assert_eq!(expires(&state), None);
        state.apply(12, &MetaCommand::DropFilter { filter });
        let unknown = MetaReply::Refused(MetaError::UnknownFilter { filter });
        assert_eq!(state.apply(13, &replace(None, Some(1))), unknown);
    }

    /// Another client has made the filter last for ever since, and was told so.
    #[test]
    fn a_time_that_replaces_what_was_seen_is_not_proposed_twice() {
        let (mut state, filter) = state(false);
        let (seen_ms, expires_ms) = (None, Some(1_000));
        let replace = MetaCommand::ReplaceExpiry { filter, seen_ms, expires_ms };
        let persist = MetaCommand::SetExpiry { filter, expires_ms: None };
        for (index, command) in [(6, &replace), (7, &persist), (8, &replace)] {
            assert_eq!(state.apply(index, command), MetaReply::Done);
        }
        assert_eq!(
            state.filter(filter).unwrap().expires_ms,
            expires_ms,
            "it is not known as a repetition"
        );
        let order = |change| {
            let name = FilterName::new("f").unwrap();
            MetaCommand::Order(FilterOrder { filter, name, change })
        };
        let change = FilterChange::ReplaceExpiry { seen_ms, expires_ms };
        assert!(!replace.is_repeatable() && !order(change).is_repeatable());
        let change = FilterChange::SetExpiry { expires_ms };
        assert!(persist.is_repeatable() && order(change).is_repeatable());
    }

    #[test]
    fn an_import_that_is_not_renewed_ends() {
        let (mut state, filter) = state(true);
        let renew = |expires_ms| MetaCommand::RenewImport { filter, expires_ms };
        for (index, expires_ms) in [(6, 1_000), (7, 2_000), (8, 1_500)] {
            assert_eq!(state.apply(index, &renew(expires_ms)), MetaReply::Done);
        }
        assert_eq!(state.expired(1_999), []);
        let due = state.expired(2_000).pop().unwrap();
        assert_eq!(state.apply(9, &due), MetaReply::Done);
        assert!(state.filter_by_name("f").is_none());
        let unknown = MetaReply::Refused(MetaError::UnknownFilter { filter });
        assert_eq!(state.apply(10, &renew(3_000)), unknown);
    }

    #[test]
    fn one_of_two_imports_at_once_is_refused_and_a_repetition_is_not() {
        let (mut state, _) = state(false);
        let settings = state.filter(FilterId(5)).unwrap().settings.clone();
        let begin = |expires_ms| MetaCommand::BeginImport {
            name: FilterName::new("g").unwrap(),
            settings: settings.clone(),
            owner: None,
            expires_ms,
        };
        assert!(state.check_writable(&begin(1_000)).is_err(), "other nodes may not know it");
        assert_eq!(state.apply(6, &begin(1_000)), MetaReply::Filter(FilterId(6)));
        assert_eq!(state.apply(7, &begin(1_000)), MetaReply::Filter(FilterId(6)));
        let taken = MetaReply::Refused(MetaError::NameTaken { name: "g".to_owned() });
        assert_eq!(state.apply(8, &begin(1_001)), taken);
        // It has its lease from the beginning.
        let drop = MetaCommand::DropExpired { filter: FilterId(6), expires_ms: 1_000 };
        assert_eq!(state.expired(1_000), [drop]);
        state.apply(9, &MetaCommand::FilterCreated { filter: FilterId(6) });
        state.apply(10, &MetaCommand::ActivateImport { filter: FilterId(6) });
        assert_eq!(state.apply(11, &begin(1_000)), taken, "it is live");
    }

    /// Of a node whose catalogue still has the version before.
    #[test]
    fn an_import_that_begins_like_any_filter_gets_no_other_imports_filter() {
        let (state, _) = state(false);
        let settings = state.filter(FilterId(5)).unwrap().settings.clone();
        let name = FilterName::new("g").unwrap();
        let (of, owner) = (name.clone(), None);
        let begin =
            MetaCommand::BeginImport { name: of, settings: settings.clone(), owner, expires_ms: 9 };
        let create = MetaCommand::CreateFilter { name, settings, importing: true, owner: None };
        let mut newer = state.clone().at_version(IMPORTS_BEGIN_SINCE);
        assert_eq!(newer.apply(6, &begin), MetaReply::Filter(FilterId(6)));
        let taken = MetaReply::Refused(MetaError::NameTaken { name: "g".to_owned() });
        assert_eq!(newer.apply(7, &create), taken);
        assert_eq!(newer.filter(FilterId(6)).unwrap().expires_ms, Some(9));
        // As all releases that run clusters of such versions do it.
        let mut older = state;
        assert_eq!(older.apply(6, &create), MetaReply::Filter(FilterId(6)));
        assert_eq!(older.apply(7, &create), MetaReply::Filter(FilterId(6)));
    }

    #[test]
    fn an_import_without_an_end_gets_one() {
        let (state, filter) = state(true);
        let expires_ms = 1_000 + IMPORT_LEASE_MS;
        let renew = MetaCommand::RenewImport { filter, expires_ms };
        assert_eq!(state.expired(1_000), std::slice::from_ref(&renew));
        assert_eq!(state.clone().at_version(ClusterVersion(3)).expired(1_000), []);
        let mut state = state;
        state.apply(6, &renew);
        assert_eq!(state.expired(1_001), []);
    }

    #[test]
    fn an_import_that_is_complete_stays() {
        let (mut state, filter) = state(true);
        let renew = MetaCommand::RenewImport { filter, expires_ms: 1_000 };
        state.apply(6, &renew);
        state.apply(7, &MetaCommand::FilterCreated { filter });
        let expire = MetaCommand::SetExpiry { filter, expires_ms: Some(500) };
        let busy = state.apply(8, &expire);
        assert!(matches!(busy, MetaReply::Refused(MetaError::Busy { .. })), "{busy:?}");
        state.apply(9, &MetaCommand::ActivateImport { filter });
        // The node's last word arrives after that.
        assert_eq!(state.apply(10, &renew), MetaReply::Done);
        assert_eq!(state.filter(filter).unwrap().expires_ms, None);
        assert_eq!(state.apply(11, &expire), MetaReply::Done);
        assert_eq!(state.filter(filter).unwrap().expires_ms, Some(500));
    }

    /// As all releases that run clusters of such versions do it.
    #[test]
    fn before_version_4_an_expiry_stays_with_the_filter() {
        let (state, filter) = state(true);
        let mut state = state.at_version(ClusterVersion(3));
        state.apply(6, &MetaCommand::FilterCreated { filter });
        let expire = MetaCommand::SetExpiry { filter, expires_ms: Some(500) };
        assert_eq!(state.apply(7, &expire), MetaReply::Done);
        state.apply(8, &MetaCommand::ActivateImport { filter });
        assert_eq!(state.filter(filter).unwrap().expires_ms, Some(500));
    }
}
