//! Sends a batch: splits it into requests, sends several concurrently, and joins their answers.

use std::sync::Arc;

use bytes::Bytes;
use tokio::task::JoinSet;
use tonic::Response;
use umbel_proto::v1::{
    AckLevel, Applied, ContainsRequest, InsertRequest, Items, PackedItems, ReadLevel, RemoveRequest,
};

use crate::answers::{Answer, Bits, BitsJoin};
use crate::caller::{CallPolicy, Caller, Failed, First, Progress, Repeat, is_session_lost};
use crate::failure::Failure;
use crate::limits::SESSIONS_PER_REQUEST_MAX;
use crate::packed_batch::PackedPart;
use crate::session::Ticket;

/// The operation on the items.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Verb {
    /// With the time of the items in milliseconds since the Unix epoch, if given.
    Insert {
        level: AckLevel,
        at_ms: Option<u64>,
    },
    Remove,
    Contains(ReadLevel),
}

impl Verb {
    /// Orders the levels on the wire by the strength of their guarantee, the weakest first.
    fn promise(self, level: i32) -> i32 {
        match self {
            // Their numbers are in that order.
            Self::Insert { .. } => level,
            Self::Remove => 0,
            Self::Contains(_) => match ReadLevel::try_from(level) {
                Ok(ReadLevel::Unspecified) | Err(_) => 0,
                Ok(ReadLevel::Local) => 1,
                Ok(ReadLevel::Majority) => 2,
                Ok(ReadLevel::AnyReplica) => 3,
                Ok(ReadLevel::Linearizable) => 4,
            },
        }
    }
}

/// What all requests of a batch share.
pub(crate) struct Header {
    pub(crate) caller: Arc<Caller>,
    pub(crate) filter: Arc<str>,
    pub(crate) verb: Verb,
    /// Whether the filter is known to be replicated. Then requests go to the home node first, and carry
    /// no request id, as nodes do not remember requests to such filters.
    pub(crate) is_replicated: bool,
}

/// One request of a batch. Its content never changes.
pub(crate) struct Part {
    items: PartItems,
    place: Place,
    item_count: usize,
    /// Its request id, once it was sent; None for queries, and for inserts into replicated filters.
    ticket: Option<Ticket>,
    progress: Progress,
    answer: Option<Answer>,
}

enum PartItems {
    Packed(PackedPart),
    /// 16 bytes per item, the upper half of the first hash, which determines the shard, and the seed.
    Hashes {
        bytes: Bytes,
        hi: u64,
        seed: u64,
    },
}

/// The positions of the part's items in the batch.
enum Place {
    From(usize),
    At(Vec<u32>),
}

/// Why a part has no answer.
pub(crate) enum PartFailed {
    /// A later retry may succeed. The failure says whether the part was applied.
    Unanswered(Failure),
    /// The cluster refuses the part, and nothing was changed.
    Refused(Failure),
    /// The part may have been applied, and the cluster has forgotten its answer.
    AnswerLost(Failure),
    /// The answer does not match the request.
    BadAnswer(Failure),
}

/// All requests of a batch.
pub(crate) struct Batch {
    pub(crate) header: Arc<Header>,
    pub(crate) parts: Vec<Part>,
    pub(crate) item_count: usize,
}

impl Part {
    pub(crate) fn packed(part: PackedPart, start: usize) -> Self {
        let item_count = part.item_bytes.len();
        Self::new(PartItems::Packed(part), Place::From(start), item_count)
    }

    pub(crate) fn hashes(bytes: Bytes, hi: u64, seed: u64, places: Vec<u32>) -> Self {
        let item_count = places.len();
        Self::new(PartItems::Hashes { bytes, hi, seed }, Place::At(places), item_count)
    }

    fn new(items: PartItems, place: Place, item_count: usize) -> Self {
        let progress = Progress::default();
        Self { items, place, item_count, ticket: None, progress, answer: None }
    }

    pub(crate) const fn item_count(&self) -> usize {
        self.item_count
    }

    pub(crate) const fn may_be_applied(&self) -> bool {
        self.progress.may_be_applied
    }

    fn wire_items(&self) -> Items {
        match &self.items {
            PartItems::Packed(part) => {
                let packed =
                    PackedItems { data: part.data.clone(), item_bytes: part.item_bytes.clone() };
                Items { packed: Some(packed), ..Items::default() }
            }
            PartItems::Hashes { bytes, seed, .. } => {
                Items { hashes: bytes.clone(), hash_seed: *seed, ..Items::default() }
            }
        }
    }

    /// Sends the part until it is answered, refused or late.
    async fn run(&mut self, header: &Header) -> Result<(), PartFailed> {
        let target = format!("filter {:?}", header.filter);
        let mut session_count = 0;
        loop {
            match self.send(header, &target).await {
                Ok((bytes, level)) => {
                    let byte_count = bytes.len();
                    let Some(bits) = Bits::from_answer(bytes, self.item_count) else {
                        let text = format!("{byte_count} bytes answer {} items", self.item_count);
                        let failure = Failure::bad_answer(text, &target, "(last called)");
                        return Err(PartFailed::BadAnswer(failure));
                    };
                    self.answer = Some(Answer { bits, level });
                    self.ticket = None; // the cluster may forget its answer from now on
                    return Ok(());
                }
                Err(failed) if is_session_lost(&failed.failure) && self.ticket.is_some() => {
                    if self.progress.may_be_applied {
                        return Err(PartFailed::AnswerLost(failed.failure));
                    }
                    session_count += 1;
                    if session_count == SESSIONS_PER_REQUEST_MAX {
                        return Err(PartFailed::Refused(failed.failure.of_new_sessions()));
                    }
                    let renewed = header.caller.ticket(self.ticket.as_ref()).await;
                    self.ticket = Some(renewed.map_err(PartFailed::of_nothing_sent)?);
                }
                Err(failed) => {
                    let is_unknown = failed.failure.applied == Applied::Unknown;
                    return Err(if failed.is_transient || is_unknown {
                        PartFailed::Unanswered(failed.failure)
                    } else {
                        PartFailed::Refused(failed.failure)
                    });
                }
            }
        }
    }

    /// Sends the part; returns the bits and the level of its answer as the wire has them.
    async fn send(&mut self, header: &Header, target: &str) -> Result<(Bytes, i32), Failed> {
        let Header { caller, filter, verb, is_replicated } = header;
        let is_named = !matches!(verb, Verb::Contains(_)) && !is_replicated;
        if is_named && self.ticket.is_none() {
            self.ticket = Some(caller.ticket(None).await?);
        }
        let first = match &self.items {
            PartItems::Packed(_) if *is_replicated => First::Home,
            PartItems::Packed(_) => First::InTurn,
            PartItems::Hashes { hi, .. } => First::LeaderOf(*hi),
        };
        let policy = CallPolicy { target, repeat: Repeat::Freely, first };
        let mut progress = std::mem::take(&mut self.progress);
        let part = &*self;
        let answer = caller.call(&policy, &mut progress, |node, patience| {
            let filter = filter.to_string();
            let items = Some(part.wire_items());
            let timeout_ms = u32::try_from(patience.as_millis()).unwrap_or(u32::MAX);
            let request = part.ticket.as_ref().map(Ticket::request_id);
            async move {
                let mut filters = node.filters();
                Ok(Response::new(match *verb {
                    Verb::Insert { level, at_ms } => {
                        let level = level.into();
                        let message =
                            InsertRequest { filter, items, request, level, timeout_ms, at_ms };
                        let answer = filters.insert(message).await?.into_inner();
                        (answer.new_bits, answer.level)
                    }
                    Verb::Remove => {
                        let message = RemoveRequest { filter, items, request, timeout_ms };
                        (filters.remove(message).await?.into_inner().removed_bits, 0)
                    }
                    Verb::Contains(level) => {
                        let level = level.into();
                        let message = ContainsRequest { filter, items, level, timeout_ms };
                        let answer = filters.contains(message).await?.into_inner();
                        (answer.present_bits, answer.level)
                    }
                }))
            }
        });
        let answer = answer.await;
        self.progress = progress;
        answer
    }
}

impl PartFailed {
    /// The failure of a part that was not sent because it got no request id.
    fn of_nothing_sent(mut failed: Failed) -> Self {
        failed.failure.applied = Applied::No;
        if failed.is_transient {
            Self::Unanswered(failed.failure)
        } else {
            Self::Refused(failed.failure)
        }
    }
}

impl Batch {
    /// Sends all parts without an answer, several concurrently, and starts no further part after a
    /// failure. Returns the failures.
    pub(crate) async fn run(&mut self) -> Vec<PartFailed> {
        let header = Arc::clone(&self.header);
        header.caller.keep_map_fresh();
        // The common case of one part needs no task.
        if let [part] = &mut self.parts[..] {
            return match part.answer {
                Some(_) => Vec::new(),
                None => part.run(&header).await.err().into_iter().collect(),
            };
        }
        let (done, mut waiting): (Vec<Part>, Vec<Part>) =
            std::mem::take(&mut self.parts).into_iter().partition(|part| part.answer.is_some());
        self.parts = done;
        // Parts are popped from the end.
        waiting.reverse();
        let mut failures = Vec::new();
        let mut running = JoinSet::new();
        loop {
            while failures.is_empty()
                && running.len() < header.caller.options.parallel_requests.max(1)
                && let Some(mut part) = waiting.pop()
            {
                let header = Arc::clone(&header);
                running.spawn(async move {
                    let result = part.run(&header).await;
                    (part, result)
                });
            }
            match running.join_next().await {
                None => break,
                Some(Ok((part, result))) => {
                    self.parts.push(part);
                    failures.extend(result.err());
                }
                Some(Err(error)) => match error.try_into_panic() {
                    Ok(panic) => std::panic::resume_unwind(panic),
                    // A task is stopped only with its runtime, which also stops this one.
                    Err(_) => std::future::pending().await,
                },
            }
        }
        self.parts.append(&mut waiting);
        failures
    }

    /// Whether any part is answered.
    pub(crate) fn is_begun(&self) -> bool {
        self.parts.iter().any(|part| part.answer.is_some())
    }

    /// Whether a part without an answer may have been applied.
    pub(crate) fn is_open(&self) -> bool {
        self.parts.iter().any(|part| part.answer.is_none() && part.may_be_applied())
    }

    /// The answers in the order of the batch, at the weakest of their levels. Every part must have an
    /// answer.
    pub(crate) fn join(mut self) -> Answer {
        if let [Part { place: Place::From(0), answer, .. }] = &mut self.parts[..] {
            return answer.take().expect("the part was answered");
        }
        let mut join = BitsJoin::new(self.item_count);
        let mut levels = Vec::with_capacity(self.parts.len());
        for part in &self.parts {
            let answer = part.answer.as_ref().expect("every part was answered");
            match &part.place {
                Place::From(start) => join.put_from(*start, &answer.bits),
                Place::At(places) => join.put_at(places, &answer.bits),
            }
            levels.push(answer.level);
        }
        let weakest = levels.into_iter().min_by_key(|level| self.header.verb.promise(*level));
        Answer { bits: join.finish(), level: weakest.unwrap_or_default() }
    }
}
