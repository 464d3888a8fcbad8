//! Umbel as programs without its client ask it: gRPC over one connection, a call for each request or one stream of
//! requests.

use std::sync::Arc;

use anyhow::{Context, Result, bail, ensure};
use tokio::sync::{Mutex, mpsc, oneshot};
use tokio_stream::wrappers::ReceiverStream;
use tonic::transport::{Channel, Endpoint};
use tonic::{Status, Streaming};
use umbel_client::PackedBatch;
use umbel_client::proto::filters_client::FiltersClient;
use umbel_client::proto::{
    ContainsAnswer, ContainsRequest, ContainsResponse, InsertAnswer, InsertRequest, InsertResponse,
    Items, PackedItems, RequestStatus, contains_answer, insert_answer,
};

use crate::check::Answers;
use crate::connection::Verb;

/// Requests of a stream that wait to be sent, at most: more than the server has in flight, so that it is never
/// idle for want of them.
const WAITING_REQUESTS_MAX: usize = 512;

/// A connection over which all tasks make calls of their own.
#[derive(Clone)]
pub(crate) struct Calls {
    filters: FiltersClient<Channel>,
    filter: String,
}

impl Calls {
    /// A connection to the node at this address, for this filter.
    pub(crate) async fn connect(address: &str, filter: &str) -> Result<Self> {
        let channel = Endpoint::from_shared(format!("http://{address}"))?.connect().await?;
        Ok(Self { filters: FiltersClient::new(channel), filter: filter.to_owned() })
    }

    /// Does it with all items of the batch by a call, and waits for the answer.
    pub(crate) async fn call(&mut self, verb: Verb, batch: &PackedBatch) -> Result<Answers> {
        match verb {
            Verb::Insert => {
                let request = insert_request(&self.filter, batch);
                inserted(&self.filters.insert(request).await?.into_inner(), batch.len())
            }
            Verb::Contains => {
                let request = contains_request(&self.filter, batch);
                contained(&self.filters.contains(request).await?.into_inner(), batch.len())
            }
        }
    }
}

/// Two streams, of inserts and of questions, over one connection for all tasks.
#[derive(Clone)]
pub(crate) struct Streams {
    inserts: Arc<Pipe<InsertRequest, InsertAnswer>>,
    questions: Arc<Pipe<ContainsRequest, ContainsAnswer>>,
    /// Their connection.
    calls: Calls,
}

impl Streams {
    /// Opens them at the node at this address, for this filter.
    pub(crate) async fn open(address: &str, filter: &str) -> Result<Self> {
        let mut calls = Calls::connect(address, filter).await?;
        let (requests, sent) = mpsc::channel(WAITING_REQUESTS_MAX);
        let answers = calls.filters.insert_stream(ReceiverStream::new(sent)).await?.into_inner();
        let inserts = Arc::new(Pipe::new(requests, answers));
        let (requests, sent) = mpsc::channel(WAITING_REQUESTS_MAX);
        let answers = calls.filters.contains_stream(ReceiverStream::new(sent)).await?.into_inner();
        Ok(Self { inserts, questions: Arc::new(Pipe::new(requests, answers)), calls })
    }

    /// Does it with all items of the batch by a request of the stream, and waits for the answer.
    pub(crate) async fn call(&self, verb: Verb, batch: &PackedBatch) -> Result<Answers> {
        match verb {
            Verb::Insert => {
                let answer = self.inserts.ask(insert_request(&self.calls.filter, batch)).await?;
                match answer.outcome {
                    Some(insert_answer::Outcome::Response(response)) => {
                        inserted(&response, batch.len())
                    }
                    Some(insert_answer::Outcome::Status(status)) => failed(&status),
                    None => bail!("an answer of the stream has no outcome"),
                }
            }
            Verb::Contains => {
                let answer =
                    self.questions.ask(contains_request(&self.calls.filter, batch)).await?;
                match answer.outcome {
                    Some(contains_answer::Outcome::Response(response)) => {
                        contained(&response, batch.len())
                    }
                    Some(contains_answer::Outcome::Status(status)) => failed(&status),
                    None => bail!("an answer of the stream has no outcome"),
                }
            }
        }
    }
}

/// Who waits for an answer.
type Waiter<A> = oneshot::Sender<Result<A, Status>>;

/// One stream of requests with answers in their order.
struct Pipe<Q, A> {
    /// Taken together, so that waiters are in the order of their requests.
    ends: Mutex<(mpsc::UnboundedSender<Waiter<A>>, mpsc::Sender<Q>)>,
}

impl<Q: Send + 'static, A: Send + 'static> Pipe<Q, A> {
    fn new(requests: mpsc::Sender<Q>, answers: Streaming<A>) -> Self {
        let (waiting, waiters) = mpsc::unbounded_channel();
        tokio::spawn(deal(answers, waiters));
        Self { ends: Mutex::new((waiting, requests)) }
    }

    async fn ask(&self, request: Q) -> Result<A> {
        let (waiter, answer) = oneshot::channel();
        {
            let ends = self.ends.lock().await;
            let (waiting, requests) = &*ends;
            let is_open = waiting.send(waiter).is_ok() && requests.send(request).await.is_ok();
            ensure!(is_open, "the stream has ended");
        }
        Ok(answer.await.context("the stream has ended")??)
    }
}

/// Gives each waiter its answer, until the stream ends or nobody will ask any more. Those who wait then are told so
/// by the end of `waiters`.
async fn deal<A>(mut answers: Streaming<A>, mut waiters: mpsc::UnboundedReceiver<Waiter<A>>) {
    while let Some(waiter) = waiters.recv().await {
        let Some(answer) = answers.message().await.transpose() else { return };
        let is_over = answer.is_err();
        // A worker that gave up has reported why.
        let _ = waiter.send(answer);
        if is_over {
            return;
        }
    }
}

fn insert_request(filter: &str, batch: &PackedBatch) -> InsertRequest {
    let (filter, items) = (filter.to_owned(), Some(items_of(batch)));
    InsertRequest { filter, items, ..InsertRequest::default() }
}

fn contains_request(filter: &str, batch: &PackedBatch) -> ContainsRequest {
    let (filter, items) = (filter.to_owned(), Some(items_of(batch)));
    ContainsRequest { filter, items, ..ContainsRequest::default() }
}

fn items_of(batch: &PackedBatch) -> Items {
    let mut data = Vec::with_capacity(batch.data_bytes());
    let mut item_bytes = Vec::with_capacity(batch.len());
    for item in batch.iter() {
        data.extend_from_slice(item);
        item_bytes.push(u32::try_from(item.len()).unwrap_or(u32::MAX));
    }
    let packed = Some(PackedItems { data: data.into(), item_bytes });
    Items { packed, ..Items::default() }
}

fn inserted(response: &InsertResponse, item_count: usize) -> Result<Answers> {
    each(&response.new_bits, item_count, false)
}

fn contained(response: &ContainsResponse, item_count: usize) -> Result<Answers> {
    each(&response.present_bits, item_count, true)
}

/// Of each item whether it was present, from bits that are `present` if it was.
fn each(bits: &[u8], item_count: usize, present: bool) -> Result<Answers> {
    let byte_count = item_count.div_ceil(8);
    ensure!(bits.len() == byte_count, "{} bytes of answers to {item_count} items", bits.len());
    let is_set = |at: usize| bits[at / 8] >> (at % 8) & 1 == 1;
    Ok(Answers::Each((0..item_count).map(|at| is_set(at) == present).collect()))
}

fn failed(status: &RequestStatus) -> Result<Answers> {
    bail!("a request of the stream failed with code {}: {}", status.code, status.message)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bits_are_answers_in_the_order_of_items() {
        let answers = |bits: &[u8], count, present| match each(bits, count, present) {
            Ok(Answers::Each(answers)) => Some(answers),
            _ => None,
        };
        let of_nine = [true, false, true, false, false, false, false, false, true];
        assert_eq!(answers(&[0b101, 1], 9, true).unwrap(), of_nine);
        assert_eq!(answers(&[0b101, 1], 9, false).unwrap(), of_nine.map(|is| !is));
        assert_eq!(answers(&[], 0, true).unwrap(), Vec::<bool>::new());
        assert_eq!((answers(&[1], 9, true), answers(&[1, 1], 8, true)), (None, None));
    }

    #[test]
    fn items_travel_packed() {
        let batch = PackedBatch::from_items(["a", "", "bcd"]).unwrap();
        let items = items_of(&batch);
        let packed = items.packed.unwrap();
        assert_eq!((&packed.data[..], &packed.item_bytes[..]), (&b"abcd"[..], &[1, 0, 3][..]));
        assert!(items.items.is_empty() && items.hashes.is_empty());
    }
}
