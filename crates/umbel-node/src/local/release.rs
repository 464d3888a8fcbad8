//! What each node reports of itself: its release, and where clients reach its port of the Redis protocol.

use std::time::Duration;

use tokio::time::timeout;
use umbel_engine::NodeId;
use umbel_engine::meta::VersionRange;
use umbel_proto::v1::{WhoAreYouRequest, WhoAreYouResponse};
use umbel_raft::peer::{cluster_bytes, member_client};

use super::Local;
use crate::VERSION;
use crate::config::split_address;

/// How long a node may take to report what it is asked.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(2);

/// Longest reported address of the Redis protocol, in bytes: names of hosts have at most 253.
const RESP_ADDRESS_BYTES_MAX: usize = 300;

/// The versions that an answer names.
pub(crate) const fn versions_of(answer: &WhoAreYouResponse) -> VersionRange {
    VersionRange::of_wire(answer.oldest_version, answer.newest_version)
}

impl Local {
    /// The release of a node, empty if the node does not report it, and which cluster versions it can run.
    ///
    /// # Errors
    /// If the node did not answer: why.
    pub async fn release_of(
        &self,
        node: NodeId,
        address: &str,
    ) -> Result<(String, VersionRange), String> {
        if node == self.node() {
            return Ok((VERSION.to_owned(), self.versions()));
        }
        let answer = self.asked(node, address).await?;
        let versions = versions_of(&answer);
        Ok((answer.release, versions))
    }

    /// Host and port at which clients reach another node's port of the Redis protocol; None if it has none, or its
    /// release does not report it.
    ///
    /// # Errors
    /// If the node did not answer: why.
    pub async fn resp_address_of(
        &self,
        node: NodeId,
        address: &str,
    ) -> Result<Option<(String, u16)>, String> {
        let answer = self.asked(node, address).await?;
        Ok(resp_address(&answer))
    }

    /// Asks another node who it is.
    pub(super) async fn asked(
        &self,
        node: NodeId,
        address: &str,
    ) -> Result<WhoAreYouResponse, String> {
        let identity = self.identity();
        let mut client = member_client(self.net(), address, identity.member(node))
            .map_err(|error| error.to_string())?;
        let answer = match timeout(REQUEST_TIMEOUT, client.who_are_you(WhoAreYouRequest {})).await {
            Ok(Ok(answer)) => answer.into_inner(),
            Ok(Err(status)) => return Err(status.message().to_owned()),
            Err(_) => return Err(format!("no answer within {} ms", REQUEST_TIMEOUT.as_millis())),
        };
        if answer.cluster_id != cluster_bytes(identity.cluster) || answer.node != node.0 {
            return Err(format!("another node answers at {address}"));
        }
        Ok(answer)
    }
}

/// The address of the Redis protocol that an answer names.
fn resp_address(answer: &WhoAreYouResponse) -> Option<(String, u16)> {
    let text = Some(&*answer.resp_address).filter(|text| text.len() <= RESP_ADDRESS_BYTES_MAX)?;
    let (host, port) = split_address(text)?;
    Some((host.to_owned(), port))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::join_address;

    #[test]
    fn only_what_is_an_address_is_believed() {
        let of = |text: String| {
            resp_address(&WhoAreYouResponse { resp_address: text, ..Default::default() })
        };
        for (host, port) in [("n1", 6379), ("2001:db8::1", 7), ("10.0.0.7", 6380)] {
            assert_eq!(of(join_address(host, port)), Some((host.to_owned(), port)));
        }
        for text in ["", "n1", "n1:", "n 1:6379", "n1:6379\r\n", "n1:65536"] {
            assert_eq!(of(text.to_owned()), None, "{text:?}");
        }
        let long = |length| format!("{}:1", "n".repeat(length));
        assert!(of(long(253)).is_some());
        assert_eq!(of(long(299)), None);
    }
}
