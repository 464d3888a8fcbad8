//! Sends parts of a comparison to the other side, and receives its parts.

use std::time::Duration;

use bytes::Bytes;
use tokio::sync::mpsc;
use tokio::time::timeout;
use tonic::{Code, Status, Streaming};
use umbel_ports::{Pacer, causes};
use umbel_proto::v1;
use umbel_proto::v1::scrub_part::Part;
use umbel_replicated_engine::hypercube::Coverage;

use super::{ScrubError, TURN_PATIENCE};
use crate::cube::wire::{counts_to_proto, coverage_of};

/// Parts that wait to be sent: the next part is made while one is being sent.
pub(super) const PARTS_WAITING_MAX: usize = 2;

/// How long the other side may take to send or accept a part: it may wait for the byte rate limit,
/// compute the residues of 1 GiB, or write a snapshot.
pub(super) const PART_PATIENCE: Duration = Duration::from_secs(30);

/// Most bytes of frames in a part: more than the longest that a session makes at once.
const PART_BYTES_MAX: usize = 2 << 20;

/// Both directions of parts.
pub(super) struct Line<T> {
    pub(super) parts: Streaming<v1::ScrubPart>,
    pub(super) outlet: Outlet<T>,
}

/// Sends parts, which `message` turns into the messages of this node's side.
pub(super) struct Outlet<T> {
    pub(super) out: mpsc::Sender<T>,
    pub(super) message: fn(v1::ScrubPart) -> T,
}

impl<T> Clone for Outlet<T> {
    fn clone(&self) -> Self {
        Self { out: self.out.clone(), message: self.message }
    }
}

impl<T> Outlet<T> {
    async fn send(&self, part: Part) -> Result<(), ScrubError> {
        let message = (self.message)(v1::ScrubPart { part: Some(part) });
        let sent = timeout(PART_PATIENCE, self.out.send(message)).await;
        sent.map_err(|_| ScrubError::Timeout(PART_PATIENCE))?
            .map_err(|_| ScrubError::Broken("it takes nothing more".to_owned()))
    }

    /// Sends frames at the rate limit that deltas share.
    pub(super) async fn send_frames(self, bytes: Vec<u8>, pacer: &Pacer) -> Result<(), ScrubError> {
        pacer.pass(bytes.len()).await;
        self.send(Part::Frames(Bytes::from(bytes))).await
    }
}

impl<T> Line<T> {
    pub(super) async fn send(&self, part: Part) -> Result<(), ScrubError> {
        self.outlet.send(part).await
    }

    /// The next part; None at the end.
    pub(super) async fn next(&mut self) -> Result<Option<Part>, ScrubError> {
        self.next_within(PART_PATIENCE).await
    }

    async fn next_within(&mut self, patience: Duration) -> Result<Option<Part>, ScrubError> {
        let message = timeout(patience, self.parts.message()).await;
        let message = message.map_err(|_| ScrubError::Timeout(patience))?;
        let Some(message) = message.map_err(|status| of_status(&status))? else { return Ok(None) };
        match message.part {
            Some(Part::Frames(frames)) if frames.len() > PART_BYTES_MAX => {
                Err(ScrubError::Nonsense(format!("a part of {} bytes", frames.len())))
            }
            Some(part) => Ok(Some(part)),
            None => Err(ScrubError::Nonsense("a part without content".to_owned())),
        }
    }

    /// The next part, which must be a claim; the answering side may have to answer other partners
    /// first.
    pub(super) async fn claim(&mut self) -> Result<Coverage, ScrubError> {
        match self.next_within(TURN_PATIENCE + PART_PATIENCE).await? {
            Some(Part::Claim(claim)) => claim_of(&claim),
            _ => Err(ScrubError::Nonsense("a claim is expected".to_owned())),
        }
    }
}

pub(super) fn of_status(status: &Status) -> ScrubError {
    // Of a broken connection the last cause says what happened, the status only that there was one.
    let text =
        causes(status).last().map_or_else(|| status.message().to_owned(), ToString::to_string);
    match status.code() {
        Code::FailedPrecondition | Code::InvalidArgument => ScrubError::Refused(text),
        Code::ResourceExhausted => ScrubError::Busy,
        _ => ScrubError::Broken(text),
    }
}

pub(super) fn claim_part(claim: &Coverage) -> Part {
    let (complete, partial) = (counts_to_proto(&claim.complete), counts_to_proto(&claim.partial));
    Part::Claim(v1::ScrubClaim { knows: complete, may_have: partial })
}

fn claim_of(message: &v1::ScrubClaim) -> Result<Coverage, ScrubError> {
    coverage_of(&message.knows, &message.may_have).map_err(ScrubError::Nonsense)
}
