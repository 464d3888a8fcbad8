//! Copies of filters inside the cluster: an export is imported under another name.

use std::sync::Arc;

use bytes::Bytes;
use futures_util::{StreamExt as _, stream};
use tokio::time::Instant;
use umbel_engine::FilterId;
use umbel_engine::meta::{FilterName, FilterRecord, MetaError, PrincipalName};
use umbel_ports::Purpose;

use super::outgoing::{ExportParts, ExportWish, unknown_change};
use super::{ExportPart, ImportHead, ImportPart, one_shard, step_deadline};
use crate::catalogue::Seen;
use crate::{Coordinator, Result};
use umbel_node::failure::CallFailure;

/// What a new filter is to be once all of it is loaded.
#[derive(Clone, Copy)]
pub struct Destination<'a> {
    /// The name that it gets.
    pub name: &'a FilterName,
    /// Whether it takes the name from another filter.
    pub replaces: bool,
    /// When it is dropped, in milliseconds since 1970.
    pub expires_at_ms: Option<u64>,
}

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
        let parts = self.export(name, whole_at_once(), deadline).await?;
        let replaces = false;
        self.copy_parts(parts, new_name, replaces, owner, deadline).await
    }

    /// The same in place of a filter that has the name, which serves requests until the copy does. Returns whether
    /// one of the two is replicated.
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
        let parts = self.export(name, whole_at_once(), deadline).await?;
        let replaces = true;
        let copied = self.copy_parts(parts, new_name, replaces, owner, deadline).await;
        copied.map(|(_, has_copies)| has_copies)
    }

    /// Bytes of a filter that is to be copied, as it was planned. Refuses what [`copy_filter`](Self::copy_filter), or
    /// with `replaces` [`copy_over`](Self::copy_over), refuses for the names.
    ///
    /// # Errors
    /// If there is no such filter, or the name is taken.
    pub async fn bytes_to_copy(
        &self,
        name: &FilterName,
        new_name: &FilterName,
        replaces: bool,
        deadline: Instant,
    ) -> Result<u64> {
        self.meta_refresh(deadline).await?;
        let filter = self.live_filter(name.as_str(), deadline).await?;
        if !replaces {
            self.refuse_taken(new_name)?;
        }
        Ok(filter.record.settings.memory_bytes)
    }

    /// Creates a copy from the parts of an export, all of which are still to come.
    async fn copy_parts(
        self: &Arc<Self>,
        parts: ExportParts,
        name: &FilterName,
        replaces: bool,
        owner: Option<PrincipalName>,
        deadline: Instant,
    ) -> Result<(FilterId, bool)> {
        // Of the filter that is copied: its name may be another filter's by now.
        let destination = Destination { name, replaces, expires_at_ms: parts.expires_ms() };
        let first_name = self.first_name(destination).await?;
        let parts = parts.into_stream().map(|part| {
            Ok(match part? {
                ExportPart::Head(head) => ImportPart::Head(ImportHead {
                    name: first_name.clone(),
                    ranges: head.ranges,
                    settings: head.settings,
                }),
                ExportPart::Frame(frame) => ImportPart::Frame(frame),
                ExportPart::End(end) => ImportPart::End(end),
                ExportPart::Change(shard, _) => return Err(unknown_change(shard)),
            })
        });
        let imported = self.import(Box::pin(parts), owner).await;
        self.put_in_place(imported, &first_name, destination, deadline).await
    }

    /// Creates a filter, cut for one shard, from the parts of an import that follow its head. If it replaces
    /// another filter, that one serves requests until the new one does. Returns whether one of the two is
    /// replicated.
    ///
    /// # Errors
    /// As for [`import`](Self::import); no part of the new filter is left then, and the filter that has
    /// the name stays.
    pub async fn import_whole(
        self: &Arc<Self>,
        destination: Destination<'_>,
        settings: Bytes,
        parts: Vec<ImportPart>,
        owner: Option<PrincipalName>,
        deadline: Instant,
    ) -> Result<bool> {
        let first_name = self.first_name(destination).await?;
        let head = ImportHead { name: first_name.clone(), ranges: one_shard(), settings };
        let parts = [ImportPart::Head(head)].into_iter().chain(parts).map(Ok);
        let imported = self.import(stream::iter(parts), owner).await;
        let placed = self.put_in_place(imported, &first_name, destination, deadline).await;
        placed.map(|(_, has_copies)| has_copies)
    }

    /// The name under which a filter is loaded: the final one, unless a step is left once it is loaded. It is live by
    /// then, and if that step failed under the final name, it could not be dropped, because others may have inserted
    /// into it.
    async fn first_name(&self, destination: Destination<'_>) -> Result<FilterName> {
        let Destination { name, replaces, expires_at_ms } = destination;
        if !replaces && expires_at_ms.is_none() {
            return Ok(name.clone());
        }
        if !replaces {
            // Otherwise it would be loaded in vain.
            self.meta_refresh(step_deadline()).await?;
            self.refuse_taken(name)?;
        }
        let random = format!("copying-{:016x}", self.seed().number(Purpose::Snapshot));
        FilterName::new(random).map_err(|error| CallFailure::Invalid { what: error.to_string() })
    }

    /// Gives a filter that was loaded under its first name its expiry, and then its final name; the filter is dropped
    /// if that fails. Returns the filter, and whether it, or one that it replaces, is replicated.
    async fn put_in_place(
        &self,
        imported: Result<(FilterId, FilterRecord)>,
        first_name: &FilterName,
        destination: Destination<'_>,
        deadline: Instant,
    ) -> Result<(FilterId, bool)> {
        let Destination { name, replaces, expires_at_ms } = destination;
        let is_beside = first_name != name;
        let (made, is_replicated) = match imported {
            Ok((made, record)) => (made, record.is_replicated()),
            Err(failure) => {
                // It may be live, under a name that nobody was told.
                if is_beside && matches!(failure, CallFailure::OutcomeUnknown { .. }) {
                    self.drop_temporary(first_name, None).await;
                }
                return Err(failure);
            }
        };
        if !is_beside {
            return Ok((made, is_replicated));
        }
        let seen = Some(Seen { filter: made, generation: None });
        let placed = async {
            if expires_at_ms.is_some() {
                self.expire(first_name, seen, expires_at_ms, of_last_step(deadline)).await?;
            }
            self.rename(first_name, name, replaces, of_last_step(deadline)).await
        };
        match placed.await {
            Ok((_, _, has_copies)) => Ok((made, has_copies)),
            // Its time came first: it would be gone under its final name, too.
            Err(
                CallFailure::UnknownFilter { .. }
                | CallFailure::Meta(MetaError::UnknownFilter { .. }),
            ) if !replaces && expires_at_ms.is_some_and(|at_ms| at_ms <= self.believed_ms()) => {
                Ok((made, is_replicated))
            }
            Err(failure) => {
                self.drop_temporary(first_name, seen).await;
                Err(failure)
            }
        }
    }

    /// Drops a filter that has not got its final name. The drop is an order for its first name: a filter that has got
    /// its final one, although its renaming failed, may have replaced another one, and stays, even if the renaming is
    /// applied only just before the drop.
    async fn drop_temporary(&self, first_name: &FilterName, seen: Option<Seen>) {
        match self.drop_filter(first_name, seen, step_deadline()).await {
            Ok(_) | Err(CallFailure::UnknownFilter { .. } | CallFailure::Changed { .. }) => {}
            Err(error) => {
                let filter = first_name.as_str();
                tracing::warn!(filter, %error, "a copy that did not get its name could not be dropped");
            }
        }
    }
}

/// An export of all shards as they are at one moment, of which nobody has frames.
fn whole_at_once() -> ExportWish {
    ExportWish { known: None, is_snapshot: true }
}

/// The deadline of a step after a copy: the copy may take longer than its command, and must not be lost for that.
fn of_last_step(deadline: Instant) -> Instant {
    deadline.max(step_deadline())
}

#[cfg(test)]
mod tests {
    use std::path::Path;
    use std::sync::Mutex;

    use umbel_engine::meta::{FilterChange, FilterOrder, MetaCommand};
    use umbel_filter::Kind;
    use umbel_node::ports::observer::{Event, Payload};
    use umbel_node::ports::{NodeObserver, Ports};
    use umbel_node::{Config, Node};

    use super::*;
    use crate::nodes_test::Coordinated;
    use crate::nodes_test::node_test::{PeersOnly, config, create, deadline, items, start_alone};

    const NEVER: Option<u64> = Some(u64::MAX);

    fn name(name: &str) -> FilterName {
        FilterName::new(name).unwrap()
    }

    /// What was ordered of filters, and for which names, in the order of the log.
    #[derive(Default)]
    struct Ordered(Mutex<Vec<(&'static str, String)>>);

    impl NodeObserver for Ordered {
        fn observe(&self, event: &Event<'_>) {
            let Event::Applied { payload: Payload::Meta(command, _), .. } = event else { return };
            let (what, name) = match command {
                MetaCommand::BeginImport { name, .. } => ("import", name),
                MetaCommand::Order(FilterOrder { name, change, .. }) => match change {
                    FilterChange::SetExpiry { .. } => ("expire", name),
                    FilterChange::Rename { .. } => ("rename", name),
                    FilterChange::Drop => ("drop", name),
                    _ => return,
                },
                _ => return,
            };
            let mut ordered = self.0.lock().unwrap();
            ordered.push((what, name.as_str().to_owned()));
            // On a busy machine a command may be sent twice.
            ordered.dedup();
        }
    }

    async fn start_observed(data: &Path) -> (Node, Arc<Ordered>) {
        let ordered = Arc::new(Ordered::default());
        let observer: Arc<dyn NodeObserver> = Arc::clone(&ordered) as _;
        let ports = Ports { observer: Some(observer), ..Ports::real(data).unwrap() };
        let config = Config { dev: true, shards: 2, replicas: 1, ..config(data) };
        (Node::start(config, ports, Box::new(PeersOnly)).await.unwrap(), ordered)
    }

    /// A filter that has been loaded under this name.
    async fn loaded(coordinator: &Coordinator, name: &str) -> (FilterId, FilterRecord) {
        let filter = create(coordinator, name, Kind::Blocked).await;
        (filter, coordinator.live_filter(name, deadline()).await.unwrap().record)
    }

    /// Nobody can insert into the copy before the last step that may fail.
    #[tokio::test(flavor = "multi_thread")]
    async fn a_copy_with_an_expiry_gets_its_name_last() {
        let folder = tempfile::tempdir().unwrap();
        let (node, ordered) = start_observed(folder.path()).await;
        let coordinator = node.coordinator();
        create(&coordinator, "copied", Kind::Blocked).await;
        coordinator.expire(&name("copied"), None, NEVER, deadline()).await.unwrap();
        ordered.0.lock().unwrap().clear();
        let (copied, copy) = (name("copied"), name("copy"));
        let (made, _) = coordinator.copy_filter(&copied, &copy, None, deadline()).await.unwrap();
        assert_eq!(coordinator.expiry(&copy, deadline()).await, Ok(Some((made, NEVER))));
        let ordered = std::mem::take(&mut *ordered.0.lock().unwrap());
        let (steps, names): (Vec<_>, Vec<_>) = ordered.into_iter().unzip();
        assert_eq!(steps, ["import", "expire", "rename"]);
        let are_beside = names.iter().all(|name| name.starts_with("copying-"));
        assert!(are_beside && names.iter().all(|name| *name == names[0]), "{names:?}");
        // Nothing is loaded for a name that is taken.
        let refused = coordinator.copy_filter(&copied, &copy, None, deadline()).await;
        let taken = MetaError::NameTaken { name: "copy".to_owned() };
        assert_eq!(refused, Err(CallFailure::Meta(taken)));
        drop(coordinator);
        node.shutdown().await;
    }

    /// The drop may come behind a renaming of which nobody has heard.
    #[tokio::test(flavor = "multi_thread")]
    async fn a_copy_that_does_not_get_its_name_is_dropped_under_its_first_one() {
        let folder = tempfile::tempdir().unwrap();
        let (node, ordered) = start_observed(folder.path()).await;
        let coordinator = node.coordinator();
        create(&coordinator, "taken", Kind::Blocked).await;
        let (first, taken) = (name("copying-1"), name("taken"));
        let destination = Destination { name: &taken, replaces: false, expires_at_ms: NEVER };
        let made = loaded(&coordinator, "copying-1").await;
        let refused = coordinator.put_in_place(Ok(made), &first, destination, deadline()).await;
        let is_taken = CallFailure::Meta(MetaError::NameTaken { name: "taken".to_owned() });
        assert_eq!(refused, Err(is_taken));
        let steps = ["expire", "rename", "drop"].map(|step| (step, "copying-1".to_owned()));
        assert_eq!(*ordered.0.lock().unwrap(), steps);
        assert_eq!(coordinator.expiry(&first, deadline()).await, Ok(None));

        // It may be live although nobody knows, but no other failure leaves a filter behind.
        let (other, _) = loaded(&coordinator, "copying-1").await;
        let unknown = CallFailure::OutcomeUnknown { what: "nobody answered".to_owned() };
        let invalid = CallFailure::Invalid { what: "a frame is wrong".to_owned() };
        for (failure, left) in [(invalid, Some((other, None))), (unknown, None)] {
            let imported = Err(failure.clone());
            let failed = coordinator.put_in_place(imported, &first, destination, deadline()).await;
            assert_eq!(failed, Err(failure));
            assert_eq!(coordinator.expiry(&first, deadline()).await, Ok(left));
        }
        assert!(coordinator.live_filter("taken", deadline()).await.is_ok());
        drop(coordinator);
        node.shutdown().await;
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn a_copy_that_somebody_else_renamed_is_not_dropped() {
        let folder = tempfile::tempdir().unwrap();
        let node = start_alone(folder.path()).await;
        let coordinator = node.coordinator();
        let (first, kept, other) = (name("copying-1"), name("kept"), name("other"));
        for replaces in [false, true] {
            let made = loaded(&coordinator, "copying-1").await;
            let filter = made.0;
            coordinator.rename(&first, &kept, true, deadline()).await.unwrap();
            coordinator.insert("kept", &items(0..100), None, None, deadline()).await.unwrap();
            let destination = Destination { name: &other, replaces, expires_at_ms: NEVER };
            let refused = coordinator.put_in_place(Ok(made), &first, destination, deadline()).await;
            assert!(matches!(refused, Err(CallFailure::UnknownFilter { .. })), "{refused:?}");
            assert_eq!(coordinator.expiry(&kept, deadline()).await, Ok(Some((filter, None))));
            let found = coordinator.contains("kept", &items(0..100), None, deadline()).await;
            assert_eq!(found.unwrap().0.count_ones(), 100);
        }
        drop(coordinator);
        node.shutdown().await;
    }

    /// As if it had had its final name when its time came.
    #[tokio::test(flavor = "multi_thread")]
    async fn a_copy_whose_time_comes_before_its_name_was_made() {
        let folder = tempfile::tempdir().unwrap();
        let node = start_alone(folder.path()).await;
        let coordinator = node.coordinator();
        let (first, copy) = (name("copying-1"), name("copy"));
        let made = loaded(&coordinator, "copying-1").await;
        coordinator.drop_filter(&first, None, deadline()).await.unwrap();
        let put = async |replaces, expires_at_ms| {
            let destination = Destination { name: &copy, replaces, expires_at_ms };
            coordinator.put_in_place(Ok(made.clone()), &first, destination, deadline()).await
        };
        assert_eq!(put(false, Some(1)).await, Ok((made.0, false)));
        // What it was to replace is still there.
        for (replaces, expires_at_ms) in [(true, Some(1)), (false, NEVER)] {
            let refused = put(replaces, expires_at_ms).await;
            assert!(matches!(refused, Err(CallFailure::UnknownFilter { .. })), "{refused:?}");
        }
        drop(coordinator);
        node.shutdown().await;
    }

    /// Another filter gets the name of the one that is copied, once the copy has begun.
    #[tokio::test(flavor = "multi_thread")]
    async fn a_copy_has_the_expiry_of_the_filter_whose_items_it_has() {
        let folder = tempfile::tempdir().unwrap();
        let node = start_alone(folder.path()).await;
        let coordinator = node.coordinator();
        let (copied, other, copy) = (name("copied"), name("other"), name("copy"));
        for filter in ["copied", "other"] {
            create(&coordinator, filter, Kind::Blocked).await;
        }
        coordinator.insert("copied", &items(0..100), None, None, deadline()).await.unwrap();
        coordinator.expire(&copied, None, NEVER, deadline()).await.unwrap();
        let parts = coordinator.export(&copied, whole_at_once(), deadline()).await.unwrap();
        coordinator.rename(&copied, &name("moved"), false, deadline()).await.unwrap();
        coordinator.rename(&other, &copied, false, deadline()).await.unwrap();
        let replaces = false;
        let made = coordinator.copy_parts(parts, &copy, replaces, None, deadline()).await.unwrap();
        let found = coordinator.contains("copy", &items(0..100), None, deadline()).await;
        assert_eq!(found.unwrap().0.count_ones(), 100);
        assert_eq!(coordinator.expiry(&copy, deadline()).await, Ok(Some((made.0, NEVER))));
        drop(coordinator);
        node.shutdown().await;
    }

    /// A copy may take longer than its command has time.
    #[tokio::test(flavor = "multi_thread")]
    async fn a_copy_that_is_late_gets_its_expiry_and_its_name() {
        let folder = tempfile::tempdir().unwrap();
        let node = start_alone(folder.path()).await;
        let coordinator = node.coordinator();
        let (first, taken) = (name("copying-1"), name("taken"));
        create(&coordinator, "taken", Kind::Blocked).await;
        let made = loaded(&coordinator, "copying-1").await;
        let filter = made.0;
        let destination = Destination { name: &taken, replaces: true, expires_at_ms: NEVER };
        let late = Instant::now();
        coordinator.put_in_place(Ok(made), &first, destination, late).await.unwrap();
        assert_eq!(coordinator.expiry(&taken, deadline()).await, Ok(Some((filter, NEVER))));
        assert_eq!(coordinator.expiry(&first, deadline()).await, Ok(None));
        drop(coordinator);
        node.shutdown().await;
    }
}
