//! The answering side of a comparison.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use tokio::sync::mpsc;
use tokio::task::AbortHandle;
use tokio::time::timeout;
use tonic::{Status, Streaming};
use umbel_engine::{FilterId, Generation, NodeId};
use umbel_proto::v1;
use umbel_proto::v1::scrub_part::Part;

use super::image::ComparedImage;
use super::line::{Line, Outlet, PARTS_WAITING_MAX, claim_part};
use super::talk::{Side, talk};
use super::{SESSION_TIME_MAX, ScrubError, TURN_PATIENCE};
use crate::cube::copies::Copies;
use crate::cube::failure::CopyFailure;

type Answer = Result<v1::ScrubPart, Status>;

/// The parts of an answer. The comparison ends when this is dropped.
pub(crate) struct ScrubAnswer {
    parts: mpsc::Receiver<Answer>,
    task: AbortHandle,
}

impl Drop for ScrubAnswer {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl tokio_stream::Stream for ScrubAnswer {
    type Item = Answer;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Answer>> {
        self.parts.poll_recv(context)
    }
}

/// Answers a partner that compares copies.
///
/// # Errors
/// If too many partners wait already.
pub(crate) fn answer_scrub(
    copies: Arc<Copies>,
    from: NodeId,
    parts: Streaming<v1::ScrubPart>,
) -> Result<ScrubAnswer, Status> {
    let waiting = Arc::clone(&copies.scrubs().waiting);
    let place = waiting.try_acquire_owned().map_err(|_| busy())?;
    let (out, receiver) = mpsc::channel(PARTS_WAITING_MAX);
    let task = tokio::spawn(async move {
        let _place = place;
        let outlet = Outlet { out: out.clone(), message: Ok };
        let mut line = Line { parts, outlet };
        let mut stopping = copies.scrubs().is_stopping.subscribe();
        let answering = timeout(SESSION_TIME_MAX + TURN_PATIENCE, answer(&copies, from, &mut line));
        let answered = tokio::select! {
            biased;
            _ = stopping.wait_for(|&is_stopping| is_stopping) => {
                Err(ScrubError::Broken("this node is stopping".to_owned()))
            }
            answered = answering => {
                answered.unwrap_or(Err(ScrubError::Timeout(SESSION_TIME_MAX)))
            }
        };
        if let Err(error) = answered {
            tracing::info!(%from, %error, "a comparison of copies was not answered");
            // The asking partner may have gone.
            let _ = out.try_send(Err(status_of(&error)));
        }
    });
    Ok(ScrubAnswer { parts: receiver, task: task.abort_handle() })
}

fn busy() -> Status {
    Status::resource_exhausted("others are being compared")
}

fn status_of(error: &ScrubError) -> Status {
    match error {
        ScrubError::Busy => busy(),
        ScrubError::Broken(_) | ScrubError::Timeout(_) => Status::unavailable(error.to_string()),
        _ => Status::failed_precondition(error.to_string()),
    }
}

async fn answer(copies: &Copies, from: NodeId, line: &mut Line<Answer>) -> Result<(), ScrubError> {
    let Some(Part::Open(open)) = line.next().await? else {
        return Err(ScrubError::Nonsense("an opening is expected first".to_owned()));
    };
    let v1::ScrubOpen { filter, generation } = open;
    let (filter, generation) = (FilterId(filter), Generation(generation));
    let copy = copies.get(filter).ok_or(CopyFailure::UnknownCopy { filter })?;
    copy.check_generation(generation)?;
    let answering = Arc::clone(&copies.scrubs().answering);
    let turn = timeout(TURN_PATIENCE, answering.acquire_owned()).await;
    let _turn = turn.map_err(|_| ScrubError::Busy)?.expect("it is never closed");
    let mut image = ComparedImage::of(copies, &copy, generation)?;
    line.send(claim_part(&image.claim)).await?;
    let theirs = line.claim().await?;
    copy.check_coverage(from, &theirs)?;
    talk(copies, Side::Answering, &mut image, line).await?;
    let mut end = v1::ScrubEnd::default();
    match image.set_missing(copies, from, &theirs) {
        Ok(set) => (end.lost_bits, end.news_bits) = (set.lost_count, set.news_count),
        Err(error) => end.failure = error.to_string(),
    }
    line.send(Part::End(end)).await
}
