//! The answering side of a step: sends a partner what it lacks, filter by filter.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use bytes::Bytes;
use futures_util::{Stream, StreamExt};
use tokio::sync::{SemaphorePermit, mpsc};
use tokio::time::{Instant, timeout, timeout_at};
use tonic::Status;
use umbel_codec::frames;
use umbel_engine::NodeId;
use umbel_filter::AnyFilter;
use umbel_proto::v1;
use umbel_proto::v1::exchange_part::Part;
use umbel_replicated_engine::hypercube::{DeltaError, DeltaReply};

use super::copies::Copies;
use super::copy::Copy;
use super::events::{Asked, ExchangeEvent, PARTS_WAITING_MAX};
use super::questions::{QuestionError, Questions};
use super::wire::{self, CopyDelta, CopyQuestion};
use crate::metrics;

/// How long a partner's questions may take to arrive, and longer only at [`COUNTS_PER_SECOND_MIN`] or more: the partner
/// has all of them at hand, and those that are being read take the place of other partners'.
const QUESTIONS_PATIENCE: Duration = Duration::from_secs(5);

/// At about ten bytes a count, slower than every line over which Raft works. The largest step may take nine minutes.
const COUNTS_PER_SECOND_MIN: u64 = 8 << 10;

/// How long the partner may take to read a part.
const READ_PATIENCE: Duration = Duration::from_secs(15);

/// How long to wait until another whole filter was sent. Shorter than the partner waits for a part: it goes on with
/// its next question, and asks about this filter again in its next sweep.
const WHOLE_SEND_PATIENCE: Duration = Duration::from_secs(5);

/// The parts of an answer, sent as they become ready.
pub(crate) type AnswerParts =
    tokio_stream::wrappers::ReceiverStream<Result<v1::ExchangePart, Status>>;

/// The partner has stopped reading.
struct Gone;

/// What to send about a copy.
enum Sent<'p> {
    Changes(DeltaReply),
    /// The whole filter, a clone in memory for as long as it is sent.
    Whole(DeltaReply, AnyFilter, SemaphorePermit<'p>),
    /// Nothing now, and why.
    Nothing(&'static str),
}

/// Reads a partner's questions and passes them to the exchange.
///
/// # Errors
/// If the questions are malformed or do not arrive in time, or too many partners ask at once.
pub(crate) async fn take_questions(
    copies: &Copies,
    from: NodeId,
    mut questions: impl Stream<Item = Result<v1::ExchangeQuestion, Status>> + Unpin,
) -> Result<AnswerParts, Status> {
    let began = Instant::now();
    let mut next = async |count| {
        let message = timeout_at(arrival_deadline(began, count), questions.next()).await;
        let message = message.map_err(|_| Status::deadline_exceeded("no question came"))?;
        Ok::<_, Status>(message.transpose()?.and_then(|message| message.part))
    };
    let nonsense = |what: String| {
        copies.refused(from, &what);
        Status::invalid_argument(what)
    };
    let rooms = &copies.questions;
    // Held only while the questions are read: after that they wait for their turn, as other partners'
    // questions do.
    let _reading = rooms.reading.try_acquire().map_err(|_| too_many())?;
    let Some(v1::exchange_question::Part::Step(step)) = next(0).await? else {
        return Err(nonsense("a step is expected first".to_owned()));
    };
    let mut asked = Questions::new(rooms);
    while let Some(part) = next(asked.count).await? {
        let v1::exchange_question::Part::Question(question) = part else {
            return Err(nonsense("a second step".to_owned()));
        };
        asked.add(&question).map_err(|error| match error {
            QuestionError::Nonsense(what) => nonsense(what),
            QuestionError::NoRoom => too_many(),
        })?;
    }
    let (parts, receiver) = mpsc::channel(PARTS_WAITING_MAX);
    let Questions { list: questions, taken: room, .. } = asked;
    let asked = Asked { from, step, questions, parts, _room: room };
    let events = &copies.events;
    events.try_send(ExchangeEvent::Asked(asked)).map_err(|_| too_many())?;
    Ok(AnswerParts::new(receiver))
}

/// When the next question must have come, if those before it have so many counts.
fn arrival_deadline(began: Instant, count: usize) -> Instant {
    began + QUESTIONS_PATIENCE + Duration::from_millis(count as u64 * 1000 / COUNTS_PER_SECOND_MIN)
}

fn too_many() -> Status {
    Status::resource_exhausted("too many partners ask at once")
}

/// Answers all questions of a partner.
pub(super) async fn answer(copies: Arc<Copies>, asked: Asked, sweep: u64) {
    let Asked { from, questions, parts, .. } = asked;
    let sender = Sender { copies: &copies, parts };
    let mut outcome = sender.send(Part::Begun(v1::ExchangeBegun { sweep })).await;
    for question in &questions {
        if outcome.is_ok() {
            outcome = sender.answer(from, question).await;
        }
    }
    if outcome.is_err() {
        tracing::debug!(%from, "a partner left before the answer's end");
    }
}

struct Sender<'c> {
    copies: &'c Copies,
    parts: mpsc::Sender<Result<v1::ExchangePart, Status>>,
}

impl Sender<'_> {
    async fn send(&self, part: Part) -> Result<(), Gone> {
        let part = v1::ExchangePart { part: Some(part) };
        let sent = timeout(READ_PATIENCE, self.parts.send(Ok(part))).await;
        sent.map_err(|_| Gone)?.map_err(|_| Gone)
    }

    async fn answer(&self, from: NodeId, asked: &CopyQuestion) -> Result<(), Gone> {
        let filter = asked.question.filter;
        let Some(copy) = self.copies.get(filter) else {
            let message = format!("{} has no copy of {filter}", self.copies.member.node());
            return self.refuse(filter.0, 0, message).await;
        };
        let (reply, whole) = match self.reply(&copy, from, asked).await {
            Ok(Sent::Changes(reply)) => (reply, None),
            Ok(Sent::Whole(reply, filter, permit)) => (reply, Some((filter, permit))),
            Ok(Sent::Nothing(why)) => {
                let message = format!("{filter} {why}");
                return self.refuse(filter.0, copy.generation().0, message).await;
            }
            Err(error) => {
                copy.refused(&error);
                self.copies.refused(from, &error);
                self.copies.stop_if_outgrown(&error);
                return self.refuse(filter.0, copy.generation().0, error.to_string()).await;
            }
        };
        let DeltaReply { delta, changes } = reply;
        let delta = CopyDelta { delta, samples: copy.samples_since(&asked.samples) };
        self.send(Part::Delta(wire::delta_to_proto(&delta))).await?;
        let mut frame_count = 0;
        if let Some(changes) = changes {
            for frame in changes.into_frames() {
                frame_count += 1;
                self.frame(&copy, frame).await?;
            }
        }
        if let Some((filter, _permit)) = whole {
            let key = copy.settings.frame_key();
            for frame in frames(&filter, key, copy.frame_payload_bytes_max()) {
                frame_count += 1;
                self.frame(&copy, frame.expect("a payload holds at least one block")).await?;
            }
        }
        self.send(Part::End(v1::CopyDeltaEnd { frame_count })).await
    }

    async fn reply(
        &self,
        copy: &Copy,
        from: NodeId,
        asked: &CopyQuestion,
    ) -> Result<Sent<'_>, DeltaError> {
        const VOLATILE: Sent<'_> = Sent::Nothing("is on its way to the disk");
        match copy.reply(from, &asked.question, false)? {
            Some((reply, _)) if reply.changes.is_some() => return Ok(Sent::Changes(reply)),
            Some(_) => {}
            None => return Ok(VOLATILE),
        }
        let turn = self.copies.whole_sends.acquire();
        let Ok(Ok(permit)) = timeout(WHOLE_SEND_PATIENCE, turn).await else {
            return Ok(Sent::Nothing("waits until other filters were sent whole"));
        };
        // What must be sent may have become less by now.
        Ok(match copy.reply(from, &asked.question, true)? {
            Some((reply, Some(filter))) => Sent::Whole(reply, filter, permit),
            Some((reply, None)) => Sent::Changes(reply),
            None => VOLATILE,
        })
    }

    async fn frame(&self, copy: &Copy, frame: Vec<u8>) -> Result<(), Gone> {
        let byte_count = frame.len();
        self.copies.pacer.pass(byte_count).await;
        self.send(Part::Frame(Bytes::from(frame))).await?;
        copy.traffic.sent_bytes.fetch_add(byte_count as u64, Ordering::Relaxed);
        metrics::delta_sent(byte_count);
        Ok(())
    }

    async fn refuse(&self, filter: u64, generation: u64, message: String) -> Result<(), Gone> {
        self.send(Part::Refusal(v1::CopyRefusal { filter, generation, message })).await
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicUsize;

    use futures_util::stream;
    use tokio::time::sleep;
    use tonic::Code;
    use umbel_engine::limits::FILTER_COUNT_MAX;
    use umbel_engine::meta::Distribution;
    use umbel_filter::{Insert, ItemHash};
    use umbel_replicated_engine::hypercube::VersionVector;

    use super::super::copies::WHOLE_SENDS_MAX;
    use super::super::copy::copy_test::partner_of;
    use super::super::questions::{QuestionRooms, STEP_COUNTS_MAX};
    use super::*;
    use crate::testing::{create_filter, start_alone};

    /// A partner that had so long for each of them could keep its place for hours.
    #[tokio::test]
    async fn questions_have_their_time_together() {
        let folder = tempfile::tempdir().unwrap();
        let node = start_alone(folder.path()).await;
        let copies = Arc::clone(node.local().copies());
        let places = copies.questions.reading.available_permits();
        tokio::time::pause();
        let sent = AtomicUsize::new(0);
        // A step, and questions without an end, each two seconds after the one before.
        let slow = stream::unfold((), async |()| {
            use v1::exchange_question::Part;
            let part = match sent.fetch_add(1, Ordering::Relaxed) {
                0 => Part::Step(v1::ExchangeStep::default()),
                _ => {
                    sleep(Duration::from_secs(2)).await;
                    Part::Question(v1::CopyQuestion::default())
                }
            };
            Some((Ok(v1::ExchangeQuestion { part: Some(part) }), ()))
        });
        let began = Instant::now();
        let taken = take_questions(&copies, NodeId(99), Box::pin(slow)).await;
        assert_eq!(taken.err().map(|status| status.code()), Some(Code::DeadlineExceeded));
        assert_eq!(began.elapsed().as_secs(), QUESTIONS_PATIENCE.as_secs());
        // The third question was asked for, and had not come.
        assert_eq!(sent.into_inner(), 4);
        assert_eq!(copies.questions.reading.available_permits(), places);
        tokio::time::resume();
        drop(copies);
        node.shutdown().await;
    }

    #[tokio::test(start_paused = true)]
    async fn many_questions_have_more_time() {
        let began = Instant::now();
        assert_eq!(arrival_deadline(began, 0) - began, QUESTIONS_PATIENCE);
        let rooms = QuestionRooms::new();
        let mut questions = Questions::new(&rooms);
        for _ in 0..FILTER_COUNT_MAX {
            questions.add(&v1::CopyQuestion::default()).unwrap();
        }
        let seconds = |count| (arrival_deadline(began, count) - began).as_secs();
        assert_eq!(seconds(questions.count), 14);
        // At that rate, the largest step.
        assert_eq!(seconds(STEP_COUNTS_MAX), 5 + 512);
    }

    /// Each is a clone in memory until its last frame was read.
    #[tokio::test]
    async fn a_filter_that_is_sent_whole_keeps_its_place_until_it_is_read() {
        let folder = tempfile::tempdir().unwrap();
        let node = start_alone(folder.path()).await;
        // Some 400 kB, in two frames.
        let id = create_filter(&node, Distribution::Replicated, (100_000, 1e-6)).await;
        let copies = Arc::clone(node.local().copies());
        let copy = copies.get(id).unwrap();
        let mut other = copy.settings.shape.create_copy().unwrap();
        other.insert(ItemHash::new(1, 2)).unwrap();
        // It is in no log, so it can only be sent with the whole filter.
        copies.absorb(id, copy.generation(), &other, None).await.unwrap();

        let partner = NodeId(99);
        let question = partner_of(&copy, partner).ask(copies.member.node());
        let asked = Arc::new(CopyQuestion { question, samples: VersionVector::default() });
        let answer = || {
            let (parts, read) = mpsc::channel(1);
            let (copies, asked) = (Arc::clone(&copies), Arc::clone(&asked));
            let task =
                async move { Sender { copies: &copies, parts }.answer(partner, &asked).await };
            (tokio::spawn(task), read)
        };
        let free = || copies.whole_sends.available_permits();

        let (sending, mut read) = answer();
        let mut next = async || read.recv().await.map(|part| part.unwrap().part.unwrap());
        assert!(matches!(next().await, Some(Part::Delta(_))));
        assert!(matches!(next().await, Some(Part::Frame(_))));
        assert_eq!(free(), WHOLE_SENDS_MAX - 1);
        assert!(matches!(next().await, Some(Part::Frame(_))));
        assert!(matches!(next().await, Some(Part::End(v1::CopyDeltaEnd { frame_count: 2 }))));
        assert!(sending.await.unwrap().is_ok());
        assert_eq!(free(), WHOLE_SENDS_MAX);

        let all = u32::try_from(WHOLE_SENDS_MAX).unwrap();
        let others = copies.whole_sends.acquire_many(all).await.unwrap();
        tokio::time::pause();
        let (sending, mut read) = answer();
        let part = read.recv().await.unwrap().unwrap().part.unwrap();
        let Part::Refusal(refusal) = part else { panic!("{part:?}") };
        assert!(refusal.message.ends_with("waits until other filters were sent whole"));
        assert!(sending.await.unwrap().is_ok());
        tokio::time::resume();
        drop(others);
        drop((copy, copies));
        node.shutdown().await;
    }
}
