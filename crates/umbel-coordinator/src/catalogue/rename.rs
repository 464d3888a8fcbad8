//! Renames filters.

use tokio::time::Instant;
use umbel_engine::meta::{
    FilterName, FilterRecord, FilterState, MetaCommand, MetaError, MetaState,
};
use umbel_engine::{FilterId, Generation};

use crate::Coordinator;
use umbel_node::failure::CallFailure;

/// Tries to replace the filter that has the new name, if other calls give that name to other filters meanwhile.
const REPLACE_TRIES_MAX: u32 = 8;

impl Coordinator {
    /// Renames a filter; returns it once it serves requests under the new name and is refused under the
    /// old one. With `replaces` a filter that has the new name is dropped: it serves requests under the
    /// name until the renamed one does.
    ///
    /// # Errors
    /// If there is no such filter, or the name is taken.
    pub async fn rename(
        &self,
        name: &FilterName,
        new: &FilterName,
        replaces: bool,
        deadline: Instant,
    ) -> Result<(FilterId, FilterRecord), CallFailure> {
        let (id, record) = self.filter_in_any_state(name, deadline).await?;
        if name == new {
            return Ok((id, record));
        }
        let mut try_count = 1;
        loop {
            let other =
                self.read_meta(|state| state.filter_by_name(new.as_str()).map(|(id, _)| id))?;
            let replaced = other.filter(|_| replaces);
            let (generation, new) = (record.generation, new.clone());
            let command = MetaCommand::RenameFilter { filter: id, generation, name: new, replaced };
            match self.meta_propose(command, deadline).await {
                Ok(_) => return self.wait_renamed((id, &record), (name, replaced), deadline).await,
                // Another filter has taken that name since this node looked.
                Err(CallFailure::Meta(MetaError::NameTaken { .. }))
                    if replaces && try_count < REPLACE_TRIES_MAX =>
                {
                    try_count += 1;
                    self.meta_refresh(deadline).await?;
                }
                Err(failure) => return Err(failure),
            }
        }
    }

    async fn wait_renamed(
        &self,
        (id, before): (FilterId, &FilterRecord),
        (old, replaced): (&FilterName, Option<FilterId>),
        deadline: Instant,
    ) -> Result<(FilterId, FilterRecord), CallFailure> {
        let is_gone =
            |state: &MetaState| replaced.is_none_or(|other| state.filter(other).is_none());
        let is_next =
            |generation: Generation| generation > before.generation || before.is_replicated();
        let look = |state: &MetaState| match state.filter(id) {
            None => Some(Err(MetaError::UnknownFilter { filter: id }.into())),
            // The filter was cleared before the command arrived, which therefore did nothing.
            Some(record) if record.name == *old && record.generation > before.generation => {
                Some(Err(CallFailure::Changed { name: old.as_str().to_owned() }))
            }
            Some(record) => {
                let is_done = record.name != *old && record.state == FilterState::Live;
                (is_done && is_next(record.generation) && is_gone(state))
                    .then(|| Ok((id, record.clone())))
            }
        };
        match self.wait_meta(Self::patience_until(deadline), look).await {
            Err(CallFailure::NoQuorum { within, .. }) => {
                Err(self.unfinished(id, within, deadline).await)
            }
            outcome => outcome?,
        }
    }
}
