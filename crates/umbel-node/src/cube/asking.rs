//! The asking side of a step: sends what this node has of each filter, and merges what it lacks.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use bytes::Bytes;
use thiserror::Error;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::timeout;
use tonic::transport::Channel;
use tonic::{Code, Request, Status, Streaming};
use umbel_engine::NodeId;
use umbel_engine::limits::REPLICATED_BYTES_MAX;
use umbel_proto::v1;
use umbel_proto::v1::exchange_part::Part;
use umbel_proto::v1::peer_client::PeerClient;
use umbel_raft::peer::{add_hello, member_client};
use umbel_replicated_engine::hypercube::{
    ChangeReader, Delta, DeltaContent, DeltaError, ReadChanges,
};
use umbel_replicated_engine::limits::DELTA_LIST_BYTES_MAX;

use super::copies::{Copies, LISTED_BYTES_MAX};
use super::copy::Copy;
use super::questions::{STEP_COUNTS_MAX, counts_of};
use super::wire::{self, CopyQuestion};
use crate::member::Member;
use crate::metrics;

/// Time limit for a partner to reach a step, for each step up to it: at every step the partner may wait
/// for others.
const STEP_PATIENCE: Duration = Duration::from_secs(3);

/// Time limit for the next part of an answer; at the lowest byte rate, a frame takes four seconds.
const PART_PATIENCE: Duration = Duration::from_secs(15);

/// Offset between the first copies of two consecutive sweeps: 2^64 times the golden section, so that no
/// copy stays last for long.
const SWEEP_STRIDE: u64 = 0x9e37_79b9_7f4a_7c15;

/// Most frame bytes of a delta that lists changes; a change takes less when encoded than in a list.
const CHANGES_BYTES_MAX: u64 = DELTA_LIST_BYTES_MAX;

/// Most frame bytes of a whole filter; in small frames the headers can be as long as the content.
const WHOLE_BYTES_MAX: u64 = 2 * REPLICATED_BYTES_MAX;

/// Why a partner's answer is missing or incomplete. What was merged before stays.
#[derive(Debug, Error)]
pub(super) enum AskError {
    /// The partner did not answer recently, or its address is unknown.
    #[error("it is passed over")]
    PassedOver,
    /// The connection failed.
    #[error("{0}")]
    Broken(String),
    /// The partner did not reach the step, or stopped in the middle of its answer.
    #[error("it did not answer within {} ms", .0.as_millis())]
    Timeout(Duration),
    /// The partner has another list of nodes, or mistakes this node for another one.
    #[error("it refused: {0}")]
    Refused(String),
    /// Other partners send many changes at the same time; the next sweep asks again.
    #[error("the lists of changes that come in take more than {LISTED_BYTES_MAX} bytes")]
    TooMuchAtOnce,
    /// The answer is malformed.
    #[error("its answer makes no sense: {0}")]
    Nonsense(String),
}

impl AskError {
    /// Whether the partner seems to be absent.
    pub(super) const fn is_absence(&self) -> bool {
        matches!(self, Self::Broken(_) | Self::Timeout(_))
    }

    fn of_status(status: &Status) -> Self {
        match status.code() {
            Code::FailedPrecondition | Code::InvalidArgument => {
                Self::Refused(status.message().to_owned())
            }
            _ => Self::Broken(status.message().to_owned()),
        }
    }
}

/// Clients of the partners by address; each is for one node.
pub(super) struct Clients(BTreeMap<String, (NodeId, PeerClient<Channel>)>);

impl Clients {
    pub(super) const fn new() -> Self {
        Self(BTreeMap::new())
    }

    /// Drops the clients of all other addresses.
    pub(super) fn keep(&mut self, addresses: &BTreeSet<String>) {
        self.0.retain(|address, _| addresses.contains(address));
    }

    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.0.len()
    }

    /// A client, which connects when first used.
    pub(super) fn get(
        &mut self,
        member: &Member,
        node: NodeId,
        address: &str,
    ) -> Result<PeerClient<Channel>, AskError> {
        if let Some((called, client)) = self.0.get(address)
            && *called == node
        {
            return Ok(client.clone());
        }
        let client = member_client(member.net(), address, member.identity().member(node));
        let client = client.map_err(|error| AskError::Broken(error.to_string()))?;
        self.0.insert(address.to_owned(), (node, client.clone()));
        Ok(client)
    }
}

/// Asks a partner about the copies and merges its answer. Sets `is_answered` when the answer begins.
/// Returns the number of the partner's sweep.
pub(super) async fn ask(
    copies: &Copies,
    mut client: PeerClient<Channel>,
    to: NodeId,
    step: v1::ExchangeStep,
    is_answered: &AtomicBool,
) -> Result<u64, AskError> {
    let patience = STEP_PATIENCE * (step.step + 1);
    let (asked, questions) = questions_to(copies, to, step.sweep);
    let mut messages = vec![question(v1::exchange_question::Part::Step(step))];
    let questions = questions.into_iter().map(v1::exchange_question::Part::Question);
    messages.extend(questions.map(question));
    let mut request = Request::new(tokio_stream::iter(messages));
    add_hello(&mut request, copies.member.identity(), to);
    let response = timeout(patience, client.exchange(request)).await;
    let response = response.map_err(|_| AskError::Timeout(patience))?;
    let mut parts = Parts(response.map_err(|status| AskError::of_status(&status))?.into_inner());
    let theirs = match parts.next(patience).await? {
        Part::Begun(begun) => begun.sweep,
        _ => return Err(AskError::Nonsense("it does not say that it answers".to_owned())),
    };
    is_answered.store(true, Ordering::Relaxed);
    for copy in asked {
        take(copies, &copy, to, &mut parts).await?;
    }
    Ok(theirs)
}

/// The copies to ask a partner about, and the questions: about all copies, or about some of them if all
/// are too many for one step. Each sweep starts with another copy, so that it is not always the same
/// copies that are left out or that an interrupted answer does not reach.
fn questions_to(
    copies: &Copies,
    to: NodeId,
    sweep: u64,
) -> (Vec<Arc<Copy>>, Vec<v1::CopyQuestion>) {
    let mut asked = copies.all();
    let first = sweep.wrapping_mul(SWEEP_STRIDE) % asked.len().max(1) as u64;
    asked.rotate_left(usize::try_from(first).expect("below the number of copies"));
    let (mut questions, mut count) = (Vec::new(), 0);
    for copy in &asked {
        let question = CopyQuestion { question: copy.ask(to), samples: copy.sample_counts() };
        let question = wire::question_to_proto(&question);
        count += counts_of(&question);
        if count > STEP_COUNTS_MAX {
            break;
        }
        questions.push(question);
    }
    asked.truncate(questions.len());
    (asked, questions)
}

const fn question(part: v1::exchange_question::Part) -> v1::ExchangeQuestion {
    v1::ExchangeQuestion { part: Some(part) }
}

/// The parts of an answer.
struct Parts(Streaming<v1::ExchangePart>);

impl Parts {
    async fn next(&mut self, patience: Duration) -> Result<Part, AskError> {
        let message = timeout(patience, self.0.message()).await;
        let message = message.map_err(|_| AskError::Timeout(patience))?;
        let message = message.map_err(|status| AskError::of_status(&status))?;
        let message = message.ok_or_else(|| AskError::Broken("it ended its answer".to_owned()))?;
        message.part.ok_or_else(|| AskError::Nonsense("a part without content".to_owned()))
    }
}

/// Merges the answer about one copy. A delta that does not fit is refused, but read to its end.
async fn take(
    copies: &Copies,
    copy: &Copy,
    from: NodeId,
    parts: &mut Parts,
) -> Result<(), AskError> {
    let message = match parts.next(PART_PATIENCE).await? {
        Part::Delta(message) => message,
        Part::Refusal(v1::CopyRefusal { filter, message, .. }) if filter == copy.filter.0 => {
            tracing::debug!(%from, message, "a partner does not answer about a filter");
            return Ok(());
        }
        _ => return Err(AskError::Nonsense(format!("it says nothing of {}", copy.filter))),
    };
    let answer = wire::delta_of(&message).map_err(AskError::Nonsense)?;
    let mut incoming = Incoming::new(copy, from, &answer.delta);
    let is_whole = answer.delta.content == DeltaContent::Whole;
    if is_whole {
        incoming.note(copy.begin_whole(from, &answer.delta));
    }
    let bytes_max = if is_whole { WHOLE_BYTES_MAX } else { CHANGES_BYTES_MAX };
    let (mut byte_count, mut frame_count) = (0, 0);
    loop {
        match parts.next(PART_PATIENCE).await? {
            Part::Frame(frame) => {
                frame_count += 1;
                byte_count += frame.len();
                if byte_count as u64 > bytes_max {
                    return Err(AskError::Nonsense(format!("more than {bytes_max} bytes")));
                }
                if is_whole {
                    incoming.merge_frame(&frame);
                } else {
                    incoming.read_frame(&frame, &copies.listed)?;
                }
            }
            Part::End(end) if end.frame_count == frame_count => break,
            Part::End(end) => {
                let what = format!("{} frames, {frame_count} came", end.frame_count);
                return Err(AskError::Nonsense(what));
            }
            _ => return Err(AskError::Nonsense("something else between frames".to_owned())),
        }
    }
    copy.traffic.received_bytes.fetch_add(byte_count as u64, Ordering::Relaxed);
    metrics::delta_received(byte_count);
    if is_whole {
        incoming.end_whole();
    } else {
        incoming.merge_changes();
    }
    let error = incoming.error;
    if let Some(error) = error {
        copy.refused(&error);
        copies.refused(from, &error);
        copies.stop_if_outgrown(&error);
    } else if let Err(error) = copy.take_samples(answer.delta.generation, &answer.samples) {
        copies.refused(from, &error);
    }
    Ok(())
}

/// A delta that is being received.
struct Incoming<'c> {
    copy: &'c Copy,
    from: NodeId,
    delta: &'c Delta,
    new_bit_count: u64,
    /// Reads frames without locking the copy.
    reader: ChangeReader,
    changes: ReadChanges,
    /// One permit per byte of the lists that were read.
    listed: Option<OwnedSemaphorePermit>,
    /// Why merging stopped.
    error: Option<DeltaError>,
}

impl<'c> Incoming<'c> {
    fn new(copy: &'c Copy, from: NodeId, delta: &'c Delta) -> Self {
        let (reader, changes) = (copy.reader(), ReadChanges::default());
        Self { copy, from, delta, new_bit_count: 0, reader, changes, listed: None, error: None }
    }

    fn note<T>(&mut self, outcome: Result<T, DeltaError>) -> Option<T> {
        outcome.map_err(|error| self.error = Some(error)).ok()
    }

    fn merge_frame(&mut self, frame: &Bytes) {
        if self.error.is_none() {
            let merged = self.copy.merge_whole_frame(self.from, self.delta, frame);
            self.new_bit_count += self.note(merged).unwrap_or(0);
        }
    }

    fn end_whole(&mut self) {
        if self.error.is_none() {
            let merged = self.copy.end_whole(self.from, self.delta, self.new_bit_count);
            self.note(merged);
        }
    }

    /// Reads a frame that lists changes, and acquires room for its list.
    fn read_frame(&mut self, frame: &[u8], room: &Arc<Semaphore>) -> Result<(), AskError> {
        if self.error.is_some() {
            return Ok(());
        }
        let before = self.changes.list_bytes();
        let read = self.reader.read(self.from, frame, &mut self.changes);
        if self.note(read).is_none() {
            (self.changes, self.listed) = (ReadChanges::default(), None);
            return Ok(());
        }
        let byte_count = u32::try_from(self.changes.list_bytes() - before);
        let taken =
            byte_count.ok().and_then(|bytes| Arc::clone(room).try_acquire_many_owned(bytes).ok());
        let taken = taken.ok_or(AskError::TooMuchAtOnce)?;
        match &mut self.listed {
            Some(listed) => listed.merge(taken),
            None => self.listed = Some(taken),
        }
        Ok(())
    }

    fn merge_changes(&mut self) {
        if self.error.is_none() {
            let changes = std::mem::take(&mut self.changes);
            let merged = self.copy.merge_changes(self.from, self.delta, changes);
            self.note(merged);
        }
    }
}
