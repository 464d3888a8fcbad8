//! Orders about filters, for which the caller's right was checked on the filter's name.

use tokio::time::Instant;
use umbel_engine::FilterId;
use umbel_engine::meta::{FilterChange, FilterOrder, FilterRecord, MetaCommand, MetaError};

use crate::{Coordinator, Result};
use umbel_node::failure::CallFailure;

impl Coordinator {
    /// Proposes a change of a filter, which is refused if the filter has another name by then: the caller
    /// may have no right on that one. A cluster of a lower version, whose nodes may not know such entries,
    /// gets the change without the name.
    ///
    /// # Errors
    /// [`CallFailure::UnknownFilter`] if the filter is gone or has another name. Of a change that is proposed once,
    /// [`CallFailure::Changed`] if another filter has its name by now: the caller may have meant that one.
    pub(crate) async fn propose_order(
        &self,
        filter: FilterId,
        record: &FilterRecord,
        change: FilterChange,
        deadline: Instant,
    ) -> Result<()> {
        // What is proposed once was not done by an earlier try, and a drop leaves nothing to rename.
        let is_once =
            matches!(change, FilterChange::Take { .. } | FilterChange::ReplaceExpiry { .. });
        let is_certain = is_once || change == FilterChange::Drop;
        let sets_expiry = matches!(change, FilterChange::SetExpiry { .. });
        let order = FilterOrder { filter, name: record.name.clone(), change };
        let bare = order.command();
        let named = MetaCommand::Order(order);
        let is_known = self.read_meta(|state| state.check_writable(&named).is_ok())?;
        let command = if is_known { named } else { bare };
        match self.meta_propose(command, deadline).await {
            Err(CallFailure::Meta(MetaError::UnknownFilter { .. })) => {
                let name = record.name.as_str();
                let (now, is_replaced) = self.read_meta(|state| {
                    (state.filter(filter).cloned(), state.filter_by_name(name).is_some())
                })?;
                let moved = now.filter(|now| now.name != record.name);
                Err(match moved {
                    // An earlier try, whose reply was lost, may have been applied before the rename.
                    Some(now) if sets_expiry => super::rename::unknown(record, &now),
                    Some(now) if !is_certain => super::rename::meanwhile(record, &now),
                    _ if is_once && is_replaced => CallFailure::Changed { name: name.to_owned() },
                    _ => CallFailure::UnknownFilter { name: name.to_owned() },
                })
            }
            outcome => outcome.map(drop),
        }
    }
}
