//! Copies of filters inside the cluster: an export is imported under another name.

use std::sync::Arc;

use bytes::Bytes;
use futures_util::{StreamExt as _, stream};
use tokio::time::Instant;
use umbel_engine::FilterId;
use umbel_engine::meta::{FilterName, PrincipalName};
use umbel_ports::Purpose;

use super::loading::drop_half;
use super::outgoing::{ExportParts, ExportWish, unknown_change};
use super::{ExportPart, ImportHead, ImportPart, one_shard, step_deadline};
use crate::catalogue::Seen;
use crate::{Coordinator, Result};
use umbel_node::failure::CallFailure;

impl Coordinator {
    /// Creates a copy of a filter, with all shards as they are at one moment, and with the filter's expiry; returns
    /// the new filter, and whether it is replicated.
    ///
    /// # Errors
    /// If there is no such filter, the name is taken, there is no room, or the expiry cannot be set: no part of a
    /// copy is left then.
    pub async fn copy_filter(
        self: &Arc<Self>,
        name: &FilterName,
        new_name: &FilterName,
        owner: Option<PrincipalName>,
        deadline: Instant,
    ) -> Result<(FilterId, bool)> {
        let wish = ExportWish { known: None, is_snapshot: true };
        let parts = self.export(name, wish, deadline).await?;
        self.copy_parts(parts, new_name, owner, deadline).await
    }

    /// The same from the parts of an export, all of which are still to come.
    async fn copy_parts(
        self: &Arc<Self>,
        parts: ExportParts,
        new_name: &FilterName,
        owner: Option<PrincipalName>,
        deadline: Instant,
    ) -> Result<(FilterId, bool)> {
        // Of the filter that is copied: the name may be another filter's by now.
        let expiry = parts.expires_ms();
        let parts = parts.into_stream().map(|part| {
            Ok(match part? {
                ExportPart::Head(head) => ImportPart::Head(ImportHead {
                    name: new_name.clone(),
                    ranges: head.ranges,
                    settings: head.settings,
                }),
                ExportPart::Frame(frame) => ImportPart::Frame(frame),
                ExportPart::End(end) => ImportPart::End(end),
                ExportPart::Change(shard, _) => return Err(unknown_change(shard)),
            })
        });
        let (made, record) = self.import(Box::pin(parts), owner).await?;
        self.expire_or_drop((made, new_name), expiry, deadline).await?;
        Ok((made, record.is_replicated()))
    }

    /// The same in place of a filter that has the name. The copy is made under another name, and the old
    /// filter serves requests until the copy does. Returns whether one of the two is replicated.
    ///
    /// # Errors
    /// As for [`copy_filter`](Self::copy_filter); the filter that has the name stays then.
    pub async fn copy_over(
        self: &Arc<Self>,
        name: &FilterName,
        new_name: &FilterName,
        owner: Option<PrincipalName>,
        deadline: Instant,
    ) -> Result<bool> {
        let beside = self.name_beside()?;
        let (made, _) = self.copy_filter(name, &beside, owner, deadline).await?;
        self.put_over((made, &beside), new_name, deadline).await
    }

    /// Creates a filter, cut for one shard, from the parts of an import that follow its head, with an
    /// expiry if one is given. If it replaces another filter, that one serves requests until the new one
    /// does. Returns whether one of the two is replicated.
    ///
    /// # Errors
    /// As for [`import`](Self::import); no part of the new filter is left then, and the filter that has
    /// the name stays.
    pub async fn import_whole(
        self: &Arc<Self>,
        (name, replaces): (&FilterName, bool),
        settings: Bytes,
        parts: Vec<ImportPart>,
        (owner, expires_at_ms): (Option<PrincipalName>, Option<u64>),
        deadline: Instant,
    ) -> Result<bool> {
        let made = if replaces { self.name_beside()? } else { name.clone() };
        let head = ImportHead { name: made.clone(), ranges: one_shard(), settings };
        let parts = [ImportPart::Head(head)].into_iter().chain(parts).map(Ok);
        let (filter, record) = self.import(stream::iter(parts), owner).await?;
        self.expire_or_drop((filter, &made), expires_at_ms, deadline).await?;
        match replaces {
            true => self.put_over((filter, &made), name, deadline).await,
            false => Ok(record.is_replicated()),
        }
    }

    /// Sets the expiry of a filter that was just made, if it has one; the filter is dropped if that fails.
    async fn expire_or_drop(
        self: &Arc<Self>,
        (made, name): (FilterId, &FilterName),
        expires_at_ms: Option<u64>,
        deadline: Instant,
    ) -> Result<()> {
        if expires_at_ms.is_none() {
            return Ok(());
        }
        // Somebody may have dropped it meanwhile, and made another one of the name.
        let seen = Some(Seen { filter: made, generation: None });
        let timed = self.expire(name, seen, expires_at_ms, of_last_step(deadline)).await;
        if timed.is_err() {
            drop_half(Arc::clone(self), made).await;
        }
        timed
    }

    /// A random name, which no other filter has, for a filter that is to replace another one.
    fn name_beside(&self) -> Result<FilterName> {
        let name = format!("copying-{:016x}", self.seed().number(Purpose::Snapshot));
        FilterName::new(name).map_err(|error| CallFailure::Invalid { what: error.to_string() })
    }

    /// Renames a filter that was just made to its final name, in place of the filter that has it; the filter is
    /// dropped if that fails. Returns whether one of the two is replicated.
    async fn put_over(
        self: &Arc<Self>,
        (made, beside): (FilterId, &FilterName),
        name: &FilterName,
        deadline: Instant,
    ) -> Result<bool> {
        let renamed = self.rename(beside, name, true, of_last_step(deadline)).await;
        if renamed.is_err() {
            self.drop_beside((made, beside)).await;
        }
        renamed.map(|(_, _, has_copies)| has_copies)
    }

    /// Drops a filter that has not got its final name. One that has got it, although its renaming failed, has
    /// replaced the filter of the name, and stays.
    async fn drop_beside(self: &Arc<Self>, (made, beside): (FilterId, &FilterName)) {
        let still = self.expiry(beside, step_deadline()).await;
        if still.is_ok_and(|found| found.is_some_and(|(filter, _)| filter == made)) {
            drop_half(Arc::clone(self), made).await;
        }
    }
}

/// The deadline of a step after a copy: the copy may take longer than its command, and must not be lost for that.
fn of_last_step(deadline: Instant) -> Instant {
    deadline.max(step_deadline())
}

#[cfg(test)]
mod tests {
    use umbel_filter::Kind;

    use super::*;
    use crate::nodes_test::Coordinated;
    use crate::nodes_test::node_test::{create, deadline, items, start_alone};

    #[tokio::test(flavor = "multi_thread")]
    async fn a_copy_whose_expiry_cannot_be_set_is_dropped() {
        let folder = tempfile::tempdir().unwrap();
        let node = start_alone(folder.path()).await;
        let coordinator = node.coordinator();
        let made = create(&coordinator, "copy", Kind::Blocked).await;
        let name = |name: &str| FilterName::new(name).unwrap();
        let (copy, absent) = (name("copy"), name("absent"));
        let expires_at_ms = Some(u64::MAX);
        coordinator.expire_or_drop((made, &copy), expires_at_ms, deadline()).await.unwrap();
        let expiry = coordinator.expiry(&copy, deadline()).await.unwrap();
        assert_eq!(expiry, Some((made, expires_at_ms)));
        // An expiry is refused for a name that no filter has.
        let refused = coordinator.expire_or_drop((made, &absent), expires_at_ms, deadline()).await;
        assert!(matches!(refused, Err(CallFailure::UnknownFilter { .. })), "{refused:?}");
        assert!(coordinator.live_filter("copy", deadline()).await.is_err(), "the copy stays");
        drop(coordinator);
        node.shutdown().await;
    }

    /// Another filter gets the name of the one that is copied, once the copy has begun.
    #[tokio::test(flavor = "multi_thread")]
    async fn a_copy_has_the_expiry_of_the_filter_whose_items_it_has() {
        let folder = tempfile::tempdir().unwrap();
        let node = start_alone(folder.path()).await;
        let coordinator = node.coordinator();
        let name = |name: &str| FilterName::new(name).unwrap();
        let (copied, other, copy) = (name("copied"), name("other"), name("copy"));
        for filter in ["copied", "other"] {
            create(&coordinator, filter, Kind::Blocked).await;
        }
        coordinator.insert("copied", &items(0..100), None, None, deadline()).await.unwrap();
        let expires_at_ms = Some(u64::MAX);
        coordinator.expire(&copied, None, expires_at_ms, deadline()).await.unwrap();
        let wish = ExportWish { known: None, is_snapshot: true };
        let parts = coordinator.export(&copied, wish, deadline()).await.unwrap();
        coordinator.rename(&other, &copied, true, deadline()).await.unwrap();
        let made = coordinator.copy_parts(parts, &copy, None, deadline()).await.unwrap();
        let found = coordinator.contains("copy", &items(0..100), None, deadline()).await;
        assert_eq!(found.unwrap().0.count_ones(), 100);
        let expiry = coordinator.expiry(&copy, deadline()).await.unwrap();
        assert_eq!(expiry, Some((made.0, expires_at_ms)));
        drop(coordinator);
        node.shutdown().await;
    }

    /// A copy may take longer than its command has time.
    #[tokio::test(flavor = "multi_thread")]
    async fn a_copy_that_is_late_gets_its_expiry_and_its_name() {
        let folder = tempfile::tempdir().unwrap();
        let node = start_alone(folder.path()).await;
        let coordinator = node.coordinator();
        let name = |name: &str| FilterName::new(name).unwrap();
        let (beside, taken, other) = (name("copying-1"), name("taken"), name("other"));
        create(&coordinator, "taken", Kind::Blocked).await;
        let made = create(&coordinator, "copying-1", Kind::Blocked).await;
        let expires_at_ms = Some(u64::MAX);
        let late = Instant::now();
        coordinator.expire_or_drop((made, &beside), expires_at_ms, late).await.unwrap();
        coordinator.put_over((made, &beside), &taken, late).await.unwrap();
        let expiry = coordinator.expiry(&taken, deadline()).await.unwrap();
        assert_eq!(expiry, Some((made, expires_at_ms)));
        assert_eq!(coordinator.expiry(&beside, deadline()).await.unwrap(), None);

        // If renaming fails for another reason, nothing of the copy stays, and what has the name does.
        let made = create(&coordinator, "copying-1", Kind::Blocked).await;
        coordinator.drop_beside((made, &other)).await;
        coordinator.drop_beside((FilterId(u64::MAX), &beside)).await;
        let refused = coordinator.put_over((made, &other), &taken, deadline()).await;
        assert!(matches!(refused, Err(CallFailure::UnknownFilter { .. })), "{refused:?}");
        assert!(coordinator.live_filter("copying-1", deadline()).await.is_ok());
        coordinator.drop_beside((made, &beside)).await;
        assert!(coordinator.live_filter("copying-1", deadline()).await.is_err(), "the copy stays");
        assert!(coordinator.live_filter("taken", deadline()).await.is_ok());
        drop(coordinator);
        node.shutdown().await;
    }
}
