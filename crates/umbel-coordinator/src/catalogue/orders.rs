//! Orders about filters, for which the caller's right was checked on the filter's name.

use tokio::time::Instant;
use umbel_engine::FilterId;
use umbel_engine::meta::{
    FilterChange, FilterOrder, FilterRecord, MetaCommand, MetaError, MetaReply,
};

use crate::{Coordinator, Result};
use umbel_node::failure::CallFailure;

impl Coordinator {
    /// Proposes a change of a filter, which is refused if the filter has another name by then: the caller
    /// may have no right on that one. A cluster of a lower version, whose nodes may not know such entries,
    /// gets the change without the name.
    ///
    /// # Errors
    /// [`CallFailure::UnknownFilter`] if the filter is gone or has another name. Of a rename, an expiry, and a change that is
    /// proposed once, [`CallFailure::Changed`] if another filter has its name by now, and nothing was done: the caller may
    /// have meant that one.
    pub(crate) async fn propose_order(
        &self,
        filter: FilterId,
        record: &FilterRecord,
        change: FilterChange,
        deadline: Instant,
    ) -> Result<()> {
        let is_proposed_once =
            matches!(change, FilterChange::Take { .. } | FilterChange::ReplaceExpiry { .. });
        let is_drop = change == FilterChange::Drop;
        let sets_expiry = matches!(change, FilterChange::SetExpiry { .. });
        let looks_again = sets_expiry || matches!(change, FilterChange::Rename { .. });
        let order = FilterOrder { filter, name: record.name.clone(), change };
        let bare = order.command();
        let named = MetaCommand::Order(order);
        let is_known = self.read_meta(|state| state.check_writable(&named).is_ok())?;
        let command = if is_known { named } else { bare };
        let (reply, is_only_try) = self.calls.meta_propose_tried(command, deadline).await?;
        match reply {
            MetaReply::Refused(MetaError::UnknownFilter { .. }) => {}
            MetaReply::Refused(refusal) => return Err(refusal.into()),
            _ => return Ok(()),
        }
        // No earlier try has done it.
        let is_undone = is_proposed_once || (looks_again && is_only_try);
        let name = record.name.as_str();
        let (now, is_replaced) = self.read_meta(|state| {
            (state.filter(filter).cloned(), state.filter_by_name(name).is_some())
        })?;
        let moved = now.filter(|now| now.name != record.name);
        Err(match moved {
            // An earlier try, whose reply was lost, may have been applied before the rename.
            Some(now) if sets_expiry && !is_undone => super::rename::unknown(record, &now),
            // A drop leaves nothing to rename.
            Some(now) if !is_undone && !is_drop => super::rename::meanwhile(record, &now),
            _ if is_undone && is_replaced => CallFailure::Changed { name: name.to_owned() },
            _ => CallFailure::UnknownFilter { name: name.to_owned() },
        })
    }
}
