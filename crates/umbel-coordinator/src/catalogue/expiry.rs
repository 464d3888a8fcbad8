//! Expiry of filters.

use tokio::time::Instant;
use umbel_engine::meta::{FilterName, MetaCommand};

use crate::Coordinator;
use umbel_node::failure::CallFailure;

impl Coordinator {
    /// Sets or removes the time at which a filter is dropped, in milliseconds since 1970. If the time has
    /// passed, the filter is dropped as soon as the leader of the meta group looks.
    pub async fn expire(
        &self,
        name: &FilterName,
        expires_ms: Option<u64>,
        deadline: Instant,
    ) -> Result<(), CallFailure> {
        let (filter, _) = self.filter_in_any_state(name, deadline).await?;
        self.meta_propose(MetaCommand::SetExpiry { filter, expires_ms }, deadline).await?;
        Ok(())
    }

    /// When a filter is dropped, from a catalogue that is refreshed for the call; the outer None means
    /// that there is no such filter.
    pub async fn expiry(
        &self,
        name: &FilterName,
        deadline: Instant,
    ) -> Result<Option<Option<u64>>, CallFailure> {
        match self.filter_in_any_state(name, deadline).await {
            Ok((_, record)) => Ok(Some(record.expires_ms)),
            Err(CallFailure::UnknownFilter { .. }) => Ok(None),
            Err(failure) => Err(failure),
        }
    }
}
