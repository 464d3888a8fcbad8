//! Inserts and removals with an unknown outcome, which can be resent.

use std::fmt;

use umbel_proto::v1::Applied;

use crate::answers::{Answer, Inserted, Removed};
use crate::batch::{Batch, PartFailed, Verb};
use crate::error::{ClientError, Result};
use crate::failure::Failure;

/// Requests of which some have no answer.
#[derive(Debug)]
pub enum PendingRequest {
    /// From [`Filter::insert`](crate::Filter::insert).
    Insert(PendingInsert),
    /// From [`Filter::remove`](crate::Filter::remove).
    Remove(PendingRemove),
}

/// The result of a [`PendingRequest`].
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Outcome {
    /// The result of an insert.
    Inserted(Inserted),
    /// The result of a removal.
    Removed(Removed),
}

/// An insert of which some requests have no answer. It holds the items, and while it exists, the cluster
/// keeps the answers to its requests. Dropping it gives the insert up.
pub struct PendingInsert(Batch);

/// A removal of which some requests have no answer, like [`PendingInsert`].
pub struct PendingRemove(Batch);

impl PendingRequest {
    /// Resends exactly the requests without an answer, with their request ids: what was applied is not
    /// applied again, and the answers are those of the first attempt. Replicated filters do not remember
    /// request ids: items that an earlier attempt inserted are reported as present, whether they were new
    /// or not.
    ///
    /// # Errors
    /// As for the call that returned it; `OutcomeUnknown` contains the pending request again.
    pub async fn resend(self) -> Result<Outcome> {
        match self {
            Self::Insert(pending) => pending.resend().await.map(Outcome::Inserted),
            Self::Remove(pending) => pending.resend().await.map(Outcome::Removed),
        }
    }
}

impl PendingInsert {
    /// Resends exactly the requests without an answer, with their request ids. Replicated filters do not
    /// remember request ids: items that an earlier attempt inserted are reported as present, whether they
    /// were new or not.
    ///
    /// # Errors
    /// As for [`Filter::insert`](crate::Filter::insert).
    pub async fn resend(self) -> Result<Inserted> {
        run(self.0).await.map(Inserted::new)
    }
}

impl PendingRemove {
    /// Resends exactly the requests without an answer, with their request ids.
    ///
    /// # Errors
    /// As for [`Filter::remove`](crate::Filter::remove).
    pub async fn resend(self) -> Result<Removed> {
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

/// Runs a batch of any operation until it is answered.
pub(crate) async fn run(mut batch: Batch) -> Result<Answer> {
    let failures = batch.run().await;
    if failures.is_empty() { Ok(batch.join()) } else { Err(error_of(batch, failures)) }
}

/// The gravest failure determines the error: an answer that is lost for good, then an unknown outcome
/// that a resend can resolve, then a refusal, then a lack of time.
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
