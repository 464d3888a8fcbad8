//! Whether other nodes respond.

use std::time::Duration;

use umbel_engine::{GroupId, NodeId};
use umbel_ports::encoding::encode;
use umbel_raft::peer::CallKind;

use super::Local;
use crate::calls::GroupRequest;

/// How long to wait for another node to answer whether it is reachable.
const REACH_TIMEOUT: Duration = Duration::from_millis(500);

impl Local {
    /// Whether another node responds now.
    pub(crate) async fn is_reachable(&self, node: NodeId) -> bool {
        self.runs(node, GroupId::META).await
    }

    /// Whether another node responds, and runs its replica of a group.
    pub(super) async fn runs(&self, node: NodeId, group: GroupId) -> bool {
        let body = encode(&GroupRequest::View);
        self.call(node, CallKind::Group, group, body, REACH_TIMEOUT).await.is_ok()
    }

    /// Whether a node that is not in the catalogue yet responds at an address.
    pub(crate) async fn is_there(&self, node: NodeId, address: &str) -> bool {
        let body = encode(&GroupRequest::View);
        let group = GroupId::META;
        let called =
            self.host.links().call(node, address, CallKind::Group, group, body, REACH_TIMEOUT);
        called.await.is_ok()
    }
}
