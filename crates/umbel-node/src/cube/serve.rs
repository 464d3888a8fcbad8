//! Serves requests of other nodes' coordinators to this node's copies.

use std::time::Duration;

use bytes::Bytes;
use tokio::sync::watch;
use tokio::time::Instant;
use umbel_engine::shard::{Bitmap, HashList};
use umbel_engine::{Epoch, FilterId, GroupId, NodeId};
use umbel_filter::ItemHash;
use umbel_ports::encoding::{decode, encode};
use umbel_raft::peer::{CallError, CallKind, RefusalReason};

use super::copies::Copies;
use super::failure::CopyFailure;
use super::scrub::compare;
use crate::calls::{CopyAnswer, CopyReport, CopyRequest};
use crate::cube::Result;

/// How long a request waits for its condition before the response is "not yet".
const WAIT_MAX: Duration = Duration::from_millis(500);

impl Copies {
    /// Sends a request to a node's copy of a filter, which may be this node's own.
    ///
    /// # Errors
    /// If the node did not answer: the error says whether the request may have reached it.
    pub async fn call(
        &self,
        node: NodeId,
        group: GroupId,
        request: &CopyRequest,
        timeout: Duration,
    ) -> Result<CopyAnswer, CallError> {
        if node == self.member.node() {
            return Ok(self.serve(group, request.clone()).await);
        }
        let body: Bytes = encode(request);
        let answer = self.member.call(node, CallKind::Copy, group, body, timeout).await?;
        decode(&answer).map_err(|error| CallError::Refused {
            node,
            reason: RefusalReason::Unspecified,
            message: error.to_string(),
        })
    }

    /// Responds to a coordinator.
    pub(crate) async fn serve(&self, group: GroupId, request: CopyRequest) -> CopyAnswer {
        let served = self.try_serve(group, request).await;
        served.unwrap_or_else(CopyAnswer::Failed)
    }

    async fn try_serve(&self, group: GroupId, request: CopyRequest) -> Result<CopyAnswer> {
        if let CopyRequest::Follow { index } = request {
            let followed = self.followed();
            return Ok(CopyAnswer::Done(comes_true(followed, |&followed| followed >= index).await));
        }
        let filter = group.copy().unwrap_or(FilterId(0));
        let copy = self.get(filter).ok_or(CopyFailure::UnknownCopy { filter })?;
        Ok(match request {
            CopyRequest::Hold { generation, epoch, hashes } => {
                self.check_epoch(epoch)?;
                let hashes = hashes_of(&hashes)?;
                let held = copy.insert(generation, &hashes).await?;
                CopyAnswer::Bits { bits: Bitmap::from_bools(held), is_in_sync: copy.is_in_sync() }
            }
            CopyRequest::Find { generation, epoch, hashes } => {
                self.check_epoch(epoch)?;
                // Asked first: what makes a late copy count may come between the two, and is not in the answer.
                let is_in_sync = copy.is_in_sync();
                let present = copy.contains(generation, &hashes_of(&hashes)?)?;
                CopyAnswer::Bits { bits: Bitmap::from_bools(present), is_in_sync }
            }
            CopyRequest::Inserted { generation } => {
                let count = copy.inserted(generation)?;
                self.begin_sweep();
                CopyAnswer::Count(count)
            }
            CopyRequest::Dominates { generation, counts } => {
                let deadline = Instant::now() + WAIT_MAX;
                let mut revision = copy.revision();
                loop {
                    revision.borrow_and_update();
                    if copy.dominates(generation, &counts)? {
                        return Ok(CopyAnswer::Done(true));
                    }
                    let changed = tokio::time::timeout_at(deadline, revision.changed()).await;
                    if !matches!(changed, Ok(Ok(()))) {
                        // An interrupted sweep is not repeated by itself if no copy has news.
                        self.begin_sweep();
                        return Ok(CopyAnswer::Done(false));
                    }
                }
            }
            CopyRequest::Version { generation } => {
                let (version, is_in_sync) = copy.version(generation)?;
                CopyAnswer::Version { version, is_in_sync }
            }
            CopyRequest::Describe => {
                let load = copy.load(None).await;
                let sweeps = self.sweeps();
                CopyAnswer::Load(Box::new(CopyReport { load, sweeps }))
            }
            CopyRequest::Scrub { generation, partner } => {
                let compared = compare(self, &copy, generation, partner).await;
                CopyAnswer::Compared(compared.map_err(|error| error.to_string()))
            }
            CopyRequest::Follow { .. } => unreachable!("it was answered above"),
        })
    }

    fn check_epoch(&self, theirs: Epoch) -> Result<()> {
        let ours = self.member.read_meta(umbel_engine::meta::MetaState::epoch);
        if theirs == ours { Ok(()) } else { Err(CopyFailure::StaleEpoch { theirs, ours }) }
    }
}

fn hashes_of(list: &HashList) -> Result<Vec<ItemHash>> {
    list.check().map_err(|error| CopyFailure::BadHashes(error.to_string()))?;
    Ok(list.to_vec())
}

/// Whether a condition becomes true within [`WAIT_MAX`].
async fn comes_true<T>(mut watched: watch::Receiver<T>, is_so: impl FnMut(&T) -> bool) -> bool {
    let waited = tokio::time::timeout(WAIT_MAX, watched.wait_for(is_so)).await;
    matches!(waited, Ok(Ok(_)))
}
