//! Inserts and removals whose outcome is unknown, to be sent again.

use std::fmt;

use umbel_proto::v1::Applied;

use crate::answers::{Answer, Inserted, Removed};
use crate::batch::{Batch, PartFailed, Verb};
use crate::error::{ClientError, Failure};

/// Requests that were not all answered.
#[derive(Debug)]
pub enum PendingRequest {
    /// Of [`Filter::insert`](crate::Filter::insert).
    Insert(PendingInsert),
    /// Of [`Filter::remove`](crate::Filter::remove).
    Remove(PendingRemove),
}

/// What became of a [`PendingRequest`].
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Outcome {
    /// Of an insert.
    Inserted(Inserted),
    /// Of a removal.
    Removed(Removed),
}

/// An insert that was not answered in full. It holds the items, and while it lives the cluster
/// keeps its first answers; dropping it gives it up.
pub struct PendingInsert(Batch);

/// A removal that was not answered in full, as [`PendingInsert`].
pub struct PendingRemove(Batch);

impl PendingRequest {
    /// Sends exactly what has no answer again, under the same names: what was applied is not
    /// applied again, and the answers are the first ones. Replicated filters remember no names, so
    /// what was applied of an insert is present then, whether it was new or not.
    ///
    /// # Errors
    /// As the call that it comes from; `OutcomeUnknown` gives it back.
    pub async fn resend(self) -> Result<Outcome, ClientError> {
        match self {
            Self::Insert(pending) => pending.resend().await.map(Outcome::Inserted),
            Self::Remove(pending) => pending.resend().await.map(Outcome::Removed),
        }
    }
}

impl PendingInsert {
    /// Sends exactly what has no answer again, under the same names. Replicated filters remember
    /// no names: what was applied is present then, whether it was new or not.
    ///
    /// # Errors
    /// As [`Filter::insert`](crate::Filter::insert).
    pub async fn resend(self) -> Result<Inserted, ClientError> {
        run(self.0).await.map(Inserted::new)
    }
}

impl PendingRemove {
    /// Sends exactly what has no answer again, under the same names.
    ///
    /// # Errors
    /// As [`Filter::remove`](crate::Filter::remove).
    pub async fn resend(self) -> Result<Removed, ClientError> {
        run(self.0).await.map(Removed::new)
    }
}

impl fmt::Debug for PendingInsert {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "PendingInsert({} items into {:?})", self.0.item_count, self.0.header.filter)
    }
}

impl fmt::Debug for PendingRemove {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "PendingRemove({} items from {:?})", self.0.item_count, self.0.header.filter)
    }
}

/// Runs a batch of any verb to its answers.
pub(crate) async fn run(mut batch: Batch) -> Result<Answer, ClientError> {
    let failures = batch.run().await;
    if failures.is_empty() { Ok(batch.join()) } else { Err(error_of(batch, failures)) }
}

/// The gravest failure decides: an answer that is lost for ever, then one that can still be had,
/// then a refusal, then that there was no time.
fn error_of(batch: Batch, failures: Vec<PartFailed>) -> ClientError {
    let (mut unanswered, mut refused) = (None, None);
    for failed in failures {
        match failed {
            PartFailed::AnswerLost(failure) => {
                return ClientError::FirstAnswerLost(Box::new(failure));
            }
            PartFailed::BadAnswer(failure) => return ClientError::BadAnswer(Box::new(failure)),
            PartFailed::Unanswered(failure) => unanswered = Some(failure),
            PartFailed::Refused(failure) => refused = Some(failure),
        }
    }
    let is_begun = batch.is_begun();
    let pending = match batch.header.verb {
        _ if !batch.is_open() && (refused.is_some() || !is_begun) => Err(batch),
        Verb::Insert { .. } => Ok(PendingRequest::Insert(PendingInsert(batch))),
        Verb::Remove => Ok(PendingRequest::Remove(PendingRemove(batch))),
        Verb::Contains(_) => Err(batch),
    };
    match (pending, refused, unanswered) {
        (Ok(request), refused, unanswered) => {
            let failure = unanswered.or(refused).expect("there is a failure");
            let failure = Box::new(Failure { applied: Applied::Unknown, ..failure });
            ClientError::OutcomeUnknown { request: Box::new(request), failure }
        }
        (Err(batch), Some(mut failure), _) => {
            if is_begun && !matches!(batch.header.verb, Verb::Contains(_)) {
                failure.applied = Applied::Partly;
            }
            ClientError::Refused(Box::new(failure))
        }
        (Err(_), None, failure) => {
            let failure = failure.expect("there is a failure");
            ClientError::Unavailable(Box::new(failure))
        }
    }
}
