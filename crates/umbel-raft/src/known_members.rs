//! The members of a group according to its disk state, before the group runs.

use std::collections::BTreeMap;
use std::io;

use openraft::entry::RaftPayload;
use umbel_engine::{GroupId, NodeId};
use umbel_storage::Storage;
use umbel_storage::types::StoredMembership;

/// The addresses of a group's members, as the newest snapshot and all later entries name them.
///
/// # Errors
/// If the log cannot be read. A damaged snapshot is reported when the group starts.
pub(crate) async fn known_members(
    storage: &Storage,
    group: GroupId,
) -> io::Result<BTreeMap<NodeId, String>> {
    let mut members = BTreeMap::new();
    if let Ok(Some(newest)) = storage.snapshots(group).latest().await {
        add(&mut members, &newest.meta().last_membership);
    }
    let log = storage.log(group);
    let mut from = log.first_index();
    loop {
        let entries = log.read_from(from).await?;
        let Some(last) = entries.last() else { return Ok(members) };
        from = last.log_id.index + 1;
        for entry in entries {
            if let Some(membership) = entry.payload.get_membership() {
                add(&mut members, &StoredMembership::new(Some(entry.log_id), membership));
            }
        }
    }
}

fn add(members: &mut BTreeMap<NodeId, String>, membership: &StoredMembership) {
    let nodes = membership.membership().nodes();
    members.extend(nodes.map(|(node, address)| (*node, address.0.clone())));
}
