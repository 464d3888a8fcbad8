//! Expiry of filters. Whether one has expired, the leader of the catalogue says by its clock, when it is asked
//! what there is: it drops the filter first.

use tokio::time::Instant;
use umbel_engine::FilterId;
use umbel_engine::meta::{FilterChange, FilterName, FilterRecord, MetaCommand, SeenExpiry};

use super::Seen;
use crate::{Coordinator, Result, may_have_passed};
use umbel_node::failure::CallFailure;

impl Coordinator {
    /// Sets or removes the time at which a filter is dropped, in milliseconds since 1970. If the time has
    /// passed, the filter is dropped as soon as the leader of the meta group looks. With `seen`, another
    /// filter of the name is left alone.
    pub async fn expire(
        &self,
        name: &FilterName,
        seen: Option<Seen>,
        expires_ms: Option<u64>,
        deadline: Instant,
    ) -> Result<()> {
        let found = self.filter_in_any_state(name, deadline).await?;
        self.expire_found(found, seen, expires_ms, deadline).await
    }

    /// The same, once the filter was found. A name that passes from one filter to another is never without one: whoever comes
    /// too late for the first filter, and has not named it, means the other one.
    async fn expire_found(
        &self,
        mut found: (FilterId, FilterRecord),
        seen: Option<Seen>,
        expires_ms: Option<u64>,
        deadline: Instant,
    ) -> Result<()> {
        loop {
            let (filter, record) = &found;
            seen.map_or(Ok(()), |seen| seen.check(*filter, record))?;
            let change = FilterChange::SetExpiry { expires_ms };
            match self.propose_order(*filter, record, change, deadline).await {
                Err(CallFailure::Changed { .. }) if seen.is_none() => {}
                outcome => return outcome,
            }
            found = self.filter_in_any_state(&record.name, deadline).await?;
        }
    }

    /// The same for a filter that has the time `seen_ms`: of several callers who saw the same, one sets it, and the others
    /// get [`MetaError::ExpiryChanged`](umbel_engine::meta::MetaError::ExpiryChanged), or [`CallFailure::Changed`] if another
    /// filter has its name. It is proposed once: if the answer is lost, the outcome is unknown. Clusters of lower versions
    /// do not compare the times.
    pub async fn replace_expiry(
        &self,
        name: &FilterName,
        seen: Seen,
        seen_ms: Option<u64>,
        expires_ms: Option<u64>,
        deadline: Instant,
    ) -> Result<()> {
        let (filter, record) = self.filter_in_any_state(name, deadline).await?;
        seen.check(filter, &record)?;
        let replacing = self.replacing(filter, seen_ms, expires_ms)?;
        let change = replacing.unwrap_or(FilterChange::SetExpiry { expires_ms });
        self.propose_order(filter, &record, change, deadline).await
    }

    /// The same for a time that has passed, which drops the filter in one step. Returns whether it was replicated, once no
    /// shard has a slice of it. Whoever comes too late gets [`CallFailure::UnknownFilter`], or [`CallFailure::Changed`] if
    /// another filter has its name. Clusters of lower versions drop the filter whatever its time is.
    pub async fn expire_now(
        &self,
        name: &FilterName,
        seen: Seen,
        seen_ms: Option<u64>,
        deadline: Instant,
    ) -> Result<bool> {
        self.take_with(SeenExpiry::At(seen_ms), name, Some(seen), deadline).await
    }

    /// The change that replaces a time as it was seen; None if the cluster may have nodes that do not know it.
    fn replacing(
        &self,
        filter: FilterId,
        seen_ms: Option<u64>,
        expires_ms: Option<u64>,
    ) -> Result<Option<FilterChange>> {
        let command = MetaCommand::ReplaceExpiry { filter, seen_ms, expires_ms };
        let is_known = self.read_meta(|state| state.check_writable(&command).is_ok())?;
        Ok(is_known.then_some(FilterChange::ReplaceExpiry { seen_ms, expires_ms }))
    }

    /// Has the leader of the catalogue drop the filter of this name if its time has come by the clock of the leader, too: the
    /// name is free then.
    pub(super) async fn let_expired_go(&self, name: &FilterName, deadline: Instant) -> Result<()> {
        let expires_ms = self.read_meta(|state| {
            state.filter_by_name(name.as_str()).and_then(|(_, record)| record.expires_ms)
        })?;
        if may_have_passed(&self.calls, expires_ms) {
            self.meta_refresh(deadline).await
        } else {
            Ok(())
        }
    }

    /// A filter, and when it is dropped, from a catalogue that is refreshed for the call; the outer None
    /// means that there is no such filter.
    pub async fn expiry(
        &self,
        name: &FilterName,
        deadline: Instant,
    ) -> Result<Option<(FilterId, Option<u64>)>> {
        match self.filter_in_any_state(name, deadline).await {
            Ok((filter, record)) => Ok(Some((filter, record.expires_ms))),
            Err(CallFailure::UnknownFilter { .. }) => Ok(None),
            Err(failure) => Err(failure),
        }
    }
}

#[cfg(test)]
mod tests {
    use umbel_filter::Kind;

    use super::*;
    use crate::nodes_test::Coordinated;
    use crate::nodes_test::node_test::{create, deadline, start_alone};

    /// Another filter takes over the name once the first one was found.
    #[tokio::test(flavor = "multi_thread")]
    async fn an_expiry_is_that_of_the_filter_that_has_taken_over_the_name() {
        let folder = tempfile::tempdir().unwrap();
        let node = start_alone(folder.path()).await;
        let coordinator = node.coordinator();
        let [name, other] = ["taken", "other"].map(|name| FilterName::new(name).unwrap());
        create(&coordinator, "taken", Kind::Blocked).await;
        let newer = create(&coordinator, "other", Kind::Blocked).await;
        let found = coordinator.filter_in_any_state(&name, deadline()).await.unwrap();
        coordinator.rename(&other, &name, true, deadline()).await.unwrap();
        let (seen, last) = (Seen { filter: found.0, generation: None }, Some(u64::MAX));
        let set = coordinator.expire_found(found.clone(), Some(seen), last, deadline()).await;
        assert_eq!(set, Err(CallFailure::Changed { name: "taken".to_owned() }));
        assert_eq!(coordinator.expiry(&name, deadline()).await, Ok(Some((newer, None))));
        assert_eq!(coordinator.expire_found(found, None, last, deadline()).await, Ok(()));
        assert_eq!(coordinator.expiry(&name, deadline()).await, Ok(Some((newer, last))));
        drop(coordinator);
        node.shutdown().await;
    }
}
