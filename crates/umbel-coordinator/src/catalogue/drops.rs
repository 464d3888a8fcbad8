//! Drops filters.

use tokio::time::Instant;
use umbel_engine::FilterId;
use umbel_engine::meta::{
    FilterChange, FilterName, FilterRecord, MetaCommand, MetaError, MetaState, SeenExpiry,
};

use super::Seen;
use crate::{Coordinator, Result};
use umbel_node::failure::CallFailure;

impl Coordinator {
    /// Drops a filter in any state; returns once no shard has a slice of it, and whether it was
    /// replicated. With `seen`, another filter of the name is left alone.
    pub async fn drop_filter(
        &self,
        name: &FilterName,
        seen: Option<Seen>,
        deadline: Instant,
    ) -> Result<bool> {
        let (id, record) = self.filter_in_any_state(name, deadline).await?;
        seen.map_or(Ok(()), |seen| seen.check(id, &record))?;
        self.drop_by(FilterChange::Drop, id, &record, deadline).await
    }

    /// The same for who has to know that nobody else has dropped the filter: of several callers one has, and the others get
    /// [`CallFailure::UnknownFilter`], unless another filter has got the name since: without `seen`, that one is dropped. It
    /// is proposed once: if the answer is lost, the outcome is unknown. In clusters of lower versions several callers at
    /// once may all have dropped it.
    pub async fn take_filter(
        &self,
        name: &FilterName,
        seen: Option<Seen>,
        deadline: Instant,
    ) -> Result<bool> {
        self.take_with(SeenExpiry::Any, name, seen, deadline).await
    }

    /// The same, if the filter has this expiry.
    pub(super) async fn take_with(
        &self,
        expiry: SeenExpiry,
        name: &FilterName,
        seen: Option<Seen>,
        deadline: Instant,
    ) -> Result<bool> {
        let found = self.filter_in_any_state(name, deadline).await?;
        self.take_found(found, expiry, seen, deadline).await
    }

    /// The same, once the filter was found. A name that passes from one filter to another is never without one: whoever
    /// comes too late for the first filter, and has not named it, drops the other one.
    async fn take_found(
        &self,
        mut found: (FilterId, FilterRecord),
        expiry: SeenExpiry,
        seen: Option<Seen>,
        deadline: Instant,
    ) -> Result<bool> {
        loop {
            let (filter, record) = &found;
            seen.map_or(Ok(()), |seen| seen.check(*filter, record))?;
            let taking = MetaCommand::TakeFilter { filter: *filter, seen: expiry };
            let is_known = self.read_meta(|state| state.check_writable(&taking).is_ok())?;
            let change =
                if is_known { FilterChange::Take { seen: expiry } } else { FilterChange::Drop };
            match self.drop_by(change, *filter, record, deadline).await {
                Err(CallFailure::Changed { .. }) if seen.is_none() => {}
                outcome => return outcome,
            }
            found = self.filter_in_any_state(&record.name, deadline).await?;
        }
    }

    async fn drop_by(
        &self,
        change: FilterChange,
        id: FilterId,
        record: &FilterRecord,
        deadline: Instant,
    ) -> Result<bool> {
        // Whoever drops what it made itself, because a later step failed, does not try again.
        while let Err(error) = self.propose_order(id, record, change.clone(), deadline).await {
            self.wait_for_merge(error, deadline).await?;
        }
        let is_gone = |state: &MetaState| state.filter(id).is_none().then_some(());
        self.wait_change(id, is_gone, deadline).await?;
        Ok(record.is_replicated())
    }

    /// Waits for the end of the merge of shards because of which a drop was refused; any other error is the drop's.
    async fn wait_for_merge(&self, refused: CallFailure, deadline: Instant) -> Result<()> {
        let is_merging = matches!(refused, CallFailure::Meta(MetaError::ShardBusy { .. }));
        if !is_merging || Instant::now() >= deadline {
            return Err(refused);
        }
        self.shards().wait_unsplit(deadline).await
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
    async fn who_drops_a_name_drops_the_filter_that_has_taken_it_over() {
        let folder = tempfile::tempdir().unwrap();
        let node = start_alone(folder.path()).await;
        let coordinator = node.coordinator();
        let [name, other] = ["taken", "other"].map(|name| FilterName::new(name).unwrap());
        for is_seen in [false, true] {
            create(&coordinator, "taken", Kind::Blocked).await;
            create(&coordinator, "other", Kind::Blocked).await;
            let found = coordinator.filter_in_any_state(&name, deadline()).await.unwrap();
            coordinator.rename(&other, &name, true, deadline()).await.unwrap();
            let seen = is_seen.then_some(Seen { filter: found.0, generation: None });
            let taken = coordinator.take_found(found, SeenExpiry::Any, seen, deadline()).await;
            if is_seen {
                let changed = CallFailure::Changed { name: "taken".to_owned() };
                assert_eq!(taken, Err(changed), "what has the name was not meant");
            } else {
                assert_eq!(taken, Ok(false));
                assert_eq!(coordinator.expiry(&name, deadline()).await, Ok(None));
            }
        }
        drop(coordinator);
        node.shutdown().await;
    }
}
