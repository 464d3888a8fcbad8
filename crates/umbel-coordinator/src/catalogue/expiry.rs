//! Expiry of filters.

use tokio::time::Instant;
use umbel_engine::FilterId;
use umbel_engine::meta::{FilterChange, FilterName, MetaCommand};

use super::Seen;
use crate::{Coordinator, Result};
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
        let (filter, record) = self.filter_in_any_state(name, deadline).await?;
        seen.map_or(Ok(()), |seen| seen.check(filter, &record))?;
        let change = FilterChange::SetExpiry { expires_ms };
        self.propose_order(filter, &record, change, deadline).await
    }

    /// The same for a filter that has the time `seen_ms`: of several callers who saw the same, one sets it, and the others
    /// get [`MetaError::ExpiryChanged`](umbel_engine::meta::MetaError::ExpiryChanged). It is proposed once: if
    /// the answer is lost, the outcome is unknown. Clusters of lower versions do not compare the times.
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
        let replacing = MetaCommand::ReplaceExpiry { filter, seen_ms, expires_ms };
        let change = if self.read_meta(|state| state.check_writable(&replacing))?.is_ok() {
            FilterChange::ReplaceExpiry { seen_ms, expires_ms }
        } else {
            FilterChange::SetExpiry { expires_ms }
        };
        self.propose_order(filter, &record, change, deadline).await
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
