//! Streams of inserts and of questions: many requests of one call, each answered as a call of its own would be.
//!
//! ```text
//!   requests ──► a place for each, of ITEM_STREAM_REQUESTS_MAX ──► carried out at once, in any order
//!                     ▲                                                      │ answers, in order
//!                     └──── free when its answer goes out ◄──────────────────┘
//! ```
//!
//! Without a free place nothing is read, so HTTP/2 holds the client back. A task of its own drives the requests:
//! a client that reads no answers must not stop requests that hold a place in a queue of the cluster.

use std::future::Future;
use std::sync::Arc;

use bytes::Bytes;
use futures_util::future::BoxFuture;
use futures_util::stream::FuturesOrdered;
use futures_util::{Stream, StreamExt};
use prost::Message;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc, watch};
use tokio::time::Instant;
use tokio_stream::wrappers::ReceiverStream;
use tonic::codegen::BoxStream;
use tonic::{Request, Response, Status, Streaming};
use umbel_coordinator::Coordinator;
use umbel_engine::limits::REQUEST_ITEMS_MAX;
use umbel_node::failure::CallFailure;
use umbel_node::metrics;
use umbel_proto::v1;

use super::budget::{Budget, BudgetShare, no_room};
use super::caller::Caller;
use super::deadlines::Deadlines;
use super::entrance::Entrance;
use super::errors::{Result, code_name, status, unread};
use super::item_calls;
use super::limits::{ITEM_STREAM_BYTES, ITEM_STREAM_REQUEST_BYTES, ITEM_STREAM_REQUESTS_MAX};
use super::measure::measured;

#[cfg(test)]
mod item_streams_test;

/// What all such streams of a node share.
pub(super) struct ItemStreams {
    pub(super) budget: Arc<Budget>,
    /// True once the node stops: streams read no further requests then.
    pub(super) is_stopping: watch::Receiver<bool>,
}

/// What the requests of one stream share.
struct Terms {
    coordinator: Arc<Coordinator>,
    deadlines: Deadlines,
    entrance: Entrance,
}

/// A request of a stream.
pub(super) trait ItemRequest: Message + Sized + 'static {
    /// The name of such calls in metrics.
    const METHOD: &'static str;
    /// What a call of its own is answered.
    type Response: Send + 'static;
    /// That, or a status, in the stream.
    type Answer: Send + 'static;

    /// Its items.
    fn items_mut(&mut self) -> Option<&mut v1::Items>;

    /// Its time limit; 0 for none.
    fn timeout_ms(&self) -> u32;

    /// Carries it out.
    fn carry_out(
        self,
        coordinator: Arc<Coordinator>,
        caller: Caller,
        deadline: Instant,
    ) -> impl Future<Output = Result<Self::Response>> + Send;

    /// The answer in the stream.
    fn answer(outcome: Result<Self::Response, Status>) -> Self::Answer;
}

/// Requests whose answers in a stream are a response or a status each.
macro_rules! item_requests {
    ($($request:ident: $call:ident, $method:literal, $response:ident, $answer:ident in $module:ident;)*) => {$(
        impl ItemRequest for v1::$request {
            const METHOD: &'static str = $method;
            type Response = v1::$response;
            type Answer = v1::$answer;

            fn items_mut(&mut self) -> Option<&mut v1::Items> {
                self.items.as_mut()
            }

            fn timeout_ms(&self) -> u32 {
                self.timeout_ms
            }

            async fn carry_out(
                self,
                coordinator: Arc<Coordinator>,
                caller: Caller,
                deadline: Instant,
            ) -> Result<v1::$response> {
                item_calls::$call(&coordinator, &caller, self, deadline).await
            }

            fn answer(outcome: Result<v1::$response, Status>) -> v1::$answer {
                use v1::$module::Outcome;
                let outcome = match outcome {
                    Ok(response) => Outcome::Response(response),
                    Err(status) => Outcome::Status(request_status(&status)),
                };
                v1::$answer { outcome: Some(outcome) }
            }
        }
    )*};
}

item_requests! {
    InsertRequest: insert, "insert_stream", InsertResponse, InsertAnswer in insert_answer;
    ContainsRequest: contains, "contains_stream", ContainsResponse, ContainsAnswer in contains_answer;
}

/// A status as a message.
fn request_status(status: &Status) -> v1::RequestStatus {
    let detail = umbel_proto::detail_of(status);
    v1::RequestStatus { code: status.code().into(), message: status.message().to_owned(), detail }
}

/// An answer, and what its request holds until the answer goes out.
struct AnswerWithPlace<A> {
    answer: A,
    _place: OwnedSemaphorePermit,
    _held: Option<BudgetShare>,
}

/// What goes out: answers, then at most one status, with which the stream ends.
type Outgoing<A> = mpsc::Sender<Result<AnswerWithPlace<A>, Status>>;

/// Opens a stream for a call that has passed the gate.
///
/// # Errors
/// If it has not, or there is no room for one more stream.
pub(super) fn open<Q: ItemRequest>(
    request: Request<Streaming<Q>>,
    streams: &ItemStreams,
    coordinator: Arc<Coordinator>,
    deadlines: Deadlines,
) -> Result<Response<BoxStream<Q::Answer>>, Status> {
    let (_, extensions, requests) = request.into_parts();
    let Some(entrance) = extensions.get::<Entrance>().cloned() else {
        let what = "the stream has not passed the gate: this is a bug of umbel".to_owned();
        return Err(status(&CallFailure::Denied { what }));
    };
    let terms = Terms { coordinator, deadlines, entrance };
    Ok(Response::new(Box::pin(answers(requests, streams, terms)?)))
}

/// The answers to requests, in their order.
fn answers<Q, R>(
    requests: R,
    streams: &ItemStreams,
    terms: Terms,
) -> Result<impl Stream<Item = Result<Q::Answer, Status>> + Send + use<Q, R>, Status>
where
    Q: ItemRequest,
    R: Stream<Item = Result<Q, Status>> + Send + Unpin + 'static,
{
    let held = streams.budget.hold(ITEM_STREAM_BYTES).map_err(|_| status(&no_room()))?;
    // One more for the status at the end.
    let (sender, receiver) = mpsc::channel(ITEM_STREAM_REQUESTS_MAX + 1);
    let (budget, is_stopping) = (Arc::clone(&streams.budget), streams.is_stopping.clone());
    let stream = OpenStream { requests, terms: Arc::new(terms), budget, is_stopping };
    tokio::spawn(stream.run::<Q>(sender));
    let answers = ReceiverStream::new(receiver).map(move |sent| {
        // The stream holds its share as long as somebody may read from it.
        let _held = &held;
        sent.map(|answered| answered.answer)
    });
    Ok(answers)
}

struct OpenStream<R> {
    requests: R,
    terms: Arc<Terms>,
    budget: Arc<Budget>,
    is_stopping: watch::Receiver<bool>,
}

impl<R> OpenStream<R> {
    /// Answers requests until the client ends the stream, the stream breaks or the node stops, and then those that
    /// have been read. Ends at once if nobody is there to hear the answers, as a call does.
    async fn run<Q>(self, outgoing: Outgoing<Q::Answer>)
    where
        Q: ItemRequest,
        R: Stream<Item = Result<Q, Status>> + Send + Unpin,
    {
        let Self { mut requests, terms, budget, mut is_stopping } = self;
        let places = Arc::new(Semaphore::new(ITEM_STREAM_REQUESTS_MAX));
        let mut in_progress: FuturesOrdered<BoxFuture<'static, AnswerWithPlace<Q::Answer>>> =
            FuturesOrdered::new();
        let mut place: Option<OwnedSemaphorePermit> = None;
        let (mut is_open, mut end): (bool, Option<Status>) = (true, None);
        while is_open || !in_progress.is_empty() {
            tokio::select! {
                biased;
                () = outgoing.closed() => return,
                Some(answered) = in_progress.next(), if !in_progress.is_empty() => {
                    // There is room, as each answer has a place; the reader may be gone.
                    let _ = outgoing.try_send(Ok(answered));
                }
                _ = is_stopping.wait_for(|&is_stopping| is_stopping), if is_open => {
                    (is_open, end) = (false, Some(stopping()));
                }
                // Counts towards what a task may do before others have their turn.
                free = Arc::clone(&places).acquire_owned(), if is_open && place.is_none() => {
                    place = free.ok();
                }
                request = requests.next(), if is_open && place.is_some() => {
                    match (request, place.take()) {
                        (Some(Ok(request)), Some(place)) => {
                            in_progress.push_back(Self::begin(&terms, &budget, request, place));
                        }
                        (Some(Err(broken)), _) => {
                            (is_open, end) = (false, Some(ended_by(broken, Q::METHOD)));
                        }
                        (None | Some(Ok(_)), _) => is_open = false,
                    }
                }
            }
        }
        if let Some(end) = end {
            // As above.
            let _ = outgoing.try_send(Err(end));
        }
    }

    /// The future that carries out a request. Its bytes are held until it is done, and its share until its answer
    /// goes out.
    fn begin<Q: ItemRequest>(
        terms: &Arc<Terms>,
        budget: &Arc<Budget>,
        mut request: Q,
        place: OwnedSemaphorePermit,
    ) -> BoxFuture<'static, AnswerWithPlace<Q::Answer>> {
        let deadline = terms.deadlines.of_streamed(request.timeout_ms());
        let memory_bytes = request.items_mut().map_or(0, |items| item_calls::memory_bytes(items));
        let byte_count = request.encoded_len().max(memory_bytes) as u64;
        let held = budget.hold(byte_count + ITEM_STREAM_REQUEST_BYTES);
        if held.is_ok()
            && let Some(items) = request.items_mut()
        {
            detach(items);
        }
        let terms = Arc::clone(terms);
        Box::pin(async move {
            let (outcome, held) = match held {
                Ok(held) => {
                    let outcome = terms.carry_out(request, deadline).await;
                    held.keep(ITEM_STREAM_REQUEST_BYTES);
                    (outcome, Some(held))
                }
                Err(_) => (Err(status(&no_room())), None),
            };
            AnswerWithPlace { answer: Q::answer(outcome), _place: place, _held: held }
        })
    }
}

impl Terms {
    async fn carry_out<Q: ItemRequest>(
        &self,
        request: Q,
        deadline: Instant,
    ) -> Result<Q::Response, Status> {
        let caller = self.entrance.pass().await?;
        let done = request.carry_out(Arc::clone(&self.coordinator), caller, deadline);
        Ok(measured(Q::METHOD, done).await?.into_inner())
    }
}

/// The status at the end of a stream from which nothing more can be read. A request that is refused for it is measured, as
/// others are.
fn ended_by(broken: Status, method: &'static str) -> Status {
    let Some(status) = unread(&broken) else { return broken };
    metrics::call_answered(method, code_name(status.code()), 0.0);
    status
}

/// The status at the end of a stream whose node stops.
fn stopping() -> Status {
    let what = "this node is stopping: send what was not answered to another one";
    status(&CallFailure::Overloaded { what: what.to_owned() })
}

/// Copies the items out of the buffer in which they arrived: the messages before and after them are in it too, and a
/// short one in progress would keep the memory of a long one.
fn detach(items: &mut v1::Items) {
    let v1::Items { items, packed, hashes, hash_seed: _ } = items;
    // More are refused before they wait for anything.
    let listed = items.iter_mut().take(REQUEST_ITEMS_MAX);
    let packed = packed.iter_mut().map(|packed| &mut packed.data);
    for bytes in listed.chain(packed).chain([hashes]) {
        *bytes = Bytes::copy_from_slice(bytes);
    }
}
