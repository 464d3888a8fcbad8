//! Renames filters.

use tokio::time::Instant;
use umbel_engine::FilterId;
use umbel_engine::meta::{
    FilterChange, FilterName, FilterRecord, FilterState, MetaError, MetaState,
};

use crate::{Coordinator, Result};
use umbel_node::failure::CallFailure;

/// Tries to replace the filter that has the new name, if other calls give that name to other filters meanwhile.
const REPLACE_TRIES_MAX: u32 = 8;

impl Coordinator {
    /// Renames a filter; returns it once it serves requests under the new name and is refused under the
    /// old one. With `replaces` a filter that has the new name is dropped: it serves requests under the
    /// name until the renamed one does. Also returns whether one of the two has copies, from which nodes
    /// that have not heard of the change still answer.
    ///
    /// # Errors
    /// If there is no such filter, or the name is taken.
    pub async fn rename(
        &self,
        name: &FilterName,
        new: &FilterName,
        replaces: bool,
        deadline: Instant,
    ) -> Result<(FilterId, FilterRecord, bool)> {
        let found = self.filter_in_any_state(name, deadline).await?;
        if name == new {
            let (id, record) = found;
            return Ok((id, record, false));
        }
        self.rename_found(found, new, replaces, deadline).await
    }

    /// The same, once the filter was found, for another name.
    async fn rename_found(
        &self,
        (mut id, mut record): (FilterId, FilterRecord),
        new: &FilterName,
        replaces: bool,
        deadline: Instant,
    ) -> Result<(FilterId, FilterRecord, bool)> {
        let mut try_count = 1;
        loop {
            let look = |state: &MetaState| {
                let (other, record) = state.filter_by_name(new.as_str())?;
                Some((other, record.is_replicated()))
            };
            let (replaced, hides_copies) = self.read_meta(look)?.filter(|_| replaces).unzip();
            let generation = record.generation;
            let change = FilterChange::Rename { generation, name: new.clone(), replaced };
            match self.propose_order(id, &record, change, deadline).await {
                Ok(()) => {
                    let renamed = self.wait_renamed(id, &record, new, replaced, deadline);
                    let (id, now) = renamed.await?;
                    let has_copies = now.is_replicated() || hides_copies == Some(true);
                    return Ok((id, now, has_copies));
                }
                // Another filter has taken that name since this node looked.
                Err(CallFailure::Meta(MetaError::NameTaken { .. }))
                    if replaces && try_count < REPLACE_TRIES_MAX =>
                {
                    try_count += 1;
                    self.meta_refresh(deadline).await?;
                }
                // Another filter has taken over the name of this one, which was never without a filter.
                Err(CallFailure::Changed { .. }) => {
                    (id, record) = self.filter_in_any_state(&record.name, deadline).await?;
                }
                Err(failure) => return Err(failure),
            }
        }
    }

    /// Waits until a filter that was `before` has the new name, and the filter that it replaced is gone.
    async fn wait_renamed(
        &self,
        id: FilterId,
        before: &FilterRecord,
        new: &FilterName,
        replaced: Option<FilterId>,
        deadline: Instant,
    ) -> Result<(FilterId, FilterRecord)> {
        let is_gone =
            |state: &MetaState| replaced.is_none_or(|other| state.filter(other).is_none());
        let look = |state: &MetaState| match state.filter(id) {
            None => Some(Err(MetaError::UnknownFilter { filter: id }.into())),
            Some(record) => match is_renamed(record, before, new) {
                Ok(is_done) => (is_done && is_gone(state)).then(|| Ok((id, record.clone()))),
                Err(failure) => Some(Err(failure)),
            },
        };
        self.wait_change(id, look, deadline).await?
    }
}

/// Whether a filter has its new name everywhere.
///
/// # Errors
/// If the command did nothing, or may have done nothing, because another one came first.
fn is_renamed(now: &FilterRecord, before: &FilterRecord, new: &FilterName) -> Result<bool> {
    let is_next = now.generation > before.generation;
    if now.name == *new {
        return Ok(now.state == FilterState::Live && (is_next || before.is_replicated()));
    }
    if now.name != before.name {
        return Err(meanwhile(before, now));
    }
    // The filter was cleared before the command arrived, which therefore did nothing.
    let changed = || CallFailure::Changed { name: before.name.as_str().to_owned() };
    if is_next { Err(changed()) } else { Ok(false) }
}

/// The error of a change to a filter's next generation if somebody renamed the filter meanwhile. If it is at the next
/// generation, or on the way to it, the rename has begun that one, and the change did nothing.
pub(super) fn meanwhile(before: &FilterRecord, now: &FilterRecord) -> CallFailure {
    let begun = now.state.next_generation().unwrap_or(now.generation);
    // The generation of a replicated filter stays when it is renamed.
    if !before.is_replicated() && begun.0 <= before.generation.0.saturating_add(1) {
        return CallFailure::UnknownFilter { name: before.name.as_str().to_owned() };
    }
    unknown(before, now)
}

/// The error of a change of a filter that somebody renamed meanwhile: before the change, which then did nothing, or
/// after it.
pub(super) fn unknown(before: &FilterRecord, now: &FilterRecord) -> CallFailure {
    let (name, now) = (before.name.as_str(), now.name.as_str());
    CallFailure::OutcomeUnknown { what: format!("{name:?} was renamed to {now:?} meanwhile") }
}

#[cfg(test)]
mod tests {
    use umbel_engine::Generation;
    use umbel_filter::Kind;

    use super::super::tests::record;
    use super::*;
    use crate::nodes_test::Coordinated;
    use crate::nodes_test::node_test::{create, create_replicated, deadline, start_alone};

    #[test]
    fn a_rename_is_done_when_the_filter_has_the_new_name() {
        let before = record();
        let (b, c) = (FilterName::new("b").unwrap(), FilterName::new("c").unwrap());
        let now = |name: &FilterName, generation, state| FilterRecord {
            name: name.clone(),
            generation: Generation(generation),
            state,
            ..record()
        };
        let text = |now| is_renamed(&now, &before, &b).map_err(|failure| failure.to_string());
        let changing = FilterState::Renaming { to: Generation(2) };
        assert_eq!(text(now(&before.name, 1, FilterState::Live)), Ok(false));
        assert_eq!(text(now(&b, 1, changing)), Ok(false));
        assert_eq!(text(now(&b, 2, FilterState::Live)), Ok(true));
        let cleared = CallFailure::Changed { name: "a".to_owned() }.to_string();
        assert_eq!(text(now(&before.name, 2, FilterState::Live)), Err(cleared));
        // Another client's rename came first, and there is no filter "b".
        let missing = CallFailure::UnknownFilter { name: "a".to_owned() }.to_string();
        for (generation, state) in [(1, changing), (2, FilterState::Live)] {
            assert_eq!(text(now(&c, generation, state)), Err(missing.clone()));
        }
        // Two changes: the first may have been this one.
        let twice = FilterState::Renaming { to: Generation(3) };
        for (generation, state) in [(2, twice), (3, FilterState::Live)] {
            let other = text(now(&c, generation, state)).unwrap_err();
            assert!(other.contains(r#""a" was renamed to "c" meanwhile"#), "{other}");
        }
    }

    /// Another filter takes over the name once the first one was found.
    #[tokio::test(flavor = "multi_thread")]
    async fn who_renames_a_name_renames_the_filter_that_has_taken_it_over() {
        let folder = tempfile::tempdir().unwrap();
        let node = start_alone(folder.path()).await;
        let coordinator = node.coordinator();
        let [name, other, new] = ["taken", "other", "new"].map(|n| FilterName::new(n).unwrap());
        for is_replicated in [false, true] {
            if is_replicated {
                create_replicated(&coordinator, "taken").await;
            } else {
                create(&coordinator, "taken", Kind::Blocked).await;
            }
            let newer = create(&coordinator, "other", Kind::Blocked).await;
            let found = coordinator.filter_in_any_state(&name, deadline()).await.unwrap();
            coordinator.rename(&other, &name, true, deadline()).await.unwrap();
            let renamed = coordinator.rename_found(found.clone(), &new, false, deadline()).await;
            assert_eq!(renamed.unwrap().0, newer);
            // Now no filter has the name.
            let late = coordinator.rename_found(found, &other, false, deadline()).await;
            assert_eq!(late, Err(CallFailure::UnknownFilter { name: "taken".to_owned() }));
            coordinator.drop_filter(&new, None, deadline()).await.unwrap();
        }
        drop(coordinator);
        node.shutdown().await;
    }

    /// The generation of a replicated filter does not tell.
    #[tokio::test(flavor = "multi_thread")]
    async fn a_replicated_filter_that_has_another_name_is_not_found() {
        let folder = tempfile::tempdir().unwrap();
        let node = start_alone(folder.path()).await;
        let coordinator = node.coordinator();
        let [a, b, c] = ["a", "b", "c"].map(|name| FilterName::new(name).unwrap());
        create_replicated(&coordinator, "a").await;
        let found = coordinator.filter_in_any_state(&a, deadline()).await.unwrap();
        coordinator.rename(&a, &b, false, deadline()).await.unwrap();
        let late = coordinator.rename_found(found, &c, false, deadline()).await;
        assert_eq!(late, Err(CallFailure::UnknownFilter { name: "a".to_owned() }));
        drop(coordinator);
        node.shutdown().await;
    }
}
