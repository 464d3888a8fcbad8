//! What a request may cost before its handler sees it: bytes that are held while it comes, the time
//! that it takes to come, and the time that its answer waits to be read.
//!
//! It stands behind the gate, so who may not call costs nothing of it; calls of nodes pass it by, so
//! nothing of Raft or the exchange waits here. Nobody waits: what finds no room is refused.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::Context;

use axum::body::{Body, HttpBody};
use axum::extract::{Request, State};
use axum::middleware::Next;
use axum::response::Response;
use futures_util::task::AtomicWaker;
use tokio::time::Instant;

use super::console;
use super::deadlines::timeout_of;
use super::limits::{STREAM_TIMEOUT_DEFAULT, STREAM_TIMEOUT_MAX};
use crate::limits::CLIENT_MESSAGE_BYTES_MAX;
use crate::metrics;
use crate::ports::{Connection, memory_limit_bytes};

mod answers;
mod body;

#[cfg(test)]
mod admission_test;

use body::AdmittedBody;

/// Of so many bytes of memory one may be requests that are under way: beside filters, their snapshots
/// and copies, and what nodes send each other.
const MEMORY_SHARE: u64 = 8;

/// What the requests of clients may hold altogether.
pub(crate) struct Budget {
    bytes_max: u64,
    used: AtomicU64,
    /// Requests that have not come as a whole and hold something, the oldest first.
    arriving: Mutex<BTreeMap<u64, Arc<Lease>>>,
    last: AtomicU64,
}

/// What one request holds of the budget, from its first byte to its answer.
struct Lease {
    budget: Arc<Budget>,
    number: u64,
    held: AtomicU64,
    /// It had to make room.
    is_over: AtomicBool,
    reader: AtomicWaker,
}

/// There is no room for a request.
struct Spent;

impl Budget {
    /// Of so many bytes; 0 for a share of the memory that the process may have.
    pub(crate) fn new(bytes_max: u64) -> Arc<Self> {
        let bytes_max = match bytes_max {
            0 => (memory_limit_bytes() / MEMORY_SHARE).max(CLIENT_MESSAGE_BYTES_MAX as u64),
            named => named,
        };
        metrics::request_bytes_max(bytes_max);
        let (used, arriving) = (AtomicU64::new(0), Mutex::default());
        Arc::new(Self { bytes_max, used, arriving, last: AtomicU64::new(0) })
    }

    fn lease(self: &Arc<Self>) -> Arc<Lease> {
        Arc::new(Lease {
            budget: Arc::clone(self),
            number: self.last.fetch_add(1, Ordering::Relaxed),
            held: AtomicU64::new(0),
            is_over: AtomicBool::new(false),
            reader: AtomicWaker::new(),
        })
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<u64, Arc<Lease>>> {
        // No holder of the lock panics, and the map is whole after every call.
        self.arriving.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Ends the request that has been coming for the longest, if there is one older than this.
    fn end_oldest(&self, before: u64) -> bool {
        let mut arriving = self.lock();
        let Some(oldest) = arriving.first_entry().filter(|oldest| *oldest.key() < before) else {
            return false;
        };
        let lease = oldest.remove();
        drop(arriving);
        lease.is_over.store(true, Ordering::Release);
        lease.give_back(u64::MAX);
        lease.reader.wake();
        true
    }
}

impl Lease {
    /// Takes so many bytes more. Where there are not so many, requests that began to come earlier and
    /// have not come yet make room: who sends all that he announced is quick.
    fn take(&self, byte_count: u64) -> Result<(), Spent> {
        let budget = &*self.budget;
        budget.used.fetch_add(byte_count, Ordering::Relaxed);
        self.held.fetch_add(byte_count, Ordering::Relaxed);
        while budget.used.load(Ordering::Relaxed) > budget.bytes_max {
            if !budget.end_oldest(self.number) {
                self.give_back(byte_count);
                return Err(Spent);
            }
        }
        Ok(())
    }

    /// Gives bytes back, at most all that are held.
    fn give_back(&self, byte_count: u64) {
        let give = |held: u64| Some(held.saturating_sub(byte_count));
        // It never fails, for there is always a new value.
        let held = self.held.fetch_update(Ordering::Relaxed, Ordering::Relaxed, give);
        let given = held.unwrap_or_default().min(byte_count);
        self.budget.used.fetch_sub(given, Ordering::Relaxed);
    }

    /// More of the request is to come.
    fn note_arriving(self: &Arc<Self>) {
        self.budget.lock().entry(self.number).or_insert_with(|| Arc::clone(self));
    }

    /// All of the request has come, or nothing more is wanted.
    fn note_arrived(&self) {
        self.budget.lock().remove(&self.number);
    }
}

/// What a connection that is no HTTP holds of the budget, for requests that are long or come slowly.
pub(super) struct Holding(Arc<Lease>);

/// There is no room for what a connection holds.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct NoRoom;

impl Holding {
    pub(super) fn new(budget: &Arc<Budget>) -> Self {
        Self(budget.lease())
    }

    /// Says how much is held now, and whether more of a request is to come.
    ///
    /// # Errors
    /// If there is no room for it, or it has made room for others.
    pub(super) fn set(&self, byte_count: u64, is_arriving: bool) -> Result<(), NoRoom> {
        if self.is_over() {
            return Err(NoRoom);
        }
        let held = self.0.held.load(Ordering::Relaxed);
        match byte_count.checked_sub(held) {
            Some(more) => self.0.take(more).map_err(|Spent| NoRoom)?,
            None => self.0.give_back(held - byte_count),
        }
        match is_arriving {
            true => self.0.note_arriving(),
            false => self.0.note_arrived(),
        }
        Ok(())
    }

    /// Whether it has made room for others; wakes the task when it has.
    pub(super) fn poll_over(&self, cx: &Context<'_>) -> bool {
        self.0.reader.register(cx.waker());
        self.is_over()
    }

    fn is_over(&self) -> bool {
        self.0.is_over.load(Ordering::Acquire)
    }
}

impl Drop for Holding {
    fn drop(&mut self) {
        self.0.note_arrived();
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        self.give_back(u64::MAX);
    }
}

/// How a call speaks.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Manner {
    /// One message, one answer; pages too.
    Unary,
    /// Many messages from the client, one answer, within a time.
    Takes,
    /// The same for as long as they come: a copy of everything.
    TakesLong,
    /// One message, many answers, within a time.
    Gives,
    /// Many answers, for as long as they are read: a copy of everything, or what is watched.
    GivesLong,
    /// Many messages, many answers.
    Talks,
    /// A node's call to a node.
    Peer,
}

impl Manner {
    fn of(path: &str) -> Self {
        if console::is_stream(path) {
            return Self::GivesLong;
        }
        let Some((service, method)) = path.trim_start_matches('/').split_once('/') else {
            return Self::Unary;
        };
        match (service, method) {
            ("umbel.v1.Peer" | "umbel.v1.JobControl" | "umbel.v1.JobExchange", _) => Self::Peer,
            ("umbel.v1.Filters", "Import") => Self::Takes,
            ("umbel.v1.Admin", "Restore") => Self::TakesLong,
            ("umbel.v1.Filters", "Export") => Self::Gives,
            ("umbel.v1.Admin", "Backup" | "Scrub") | ("grpc.health.v1.Health", "Watch") => {
                Self::GivesLong
            }
            (service, _) if service.starts_with("grpc.reflection.") => Self::Talks,
            _ => Self::Unary,
        }
    }

    const fn takes_many(self) -> bool {
        matches!(self, Self::Takes | Self::TakesLong | Self::Talks)
    }

    const fn gives_many(self) -> bool {
        matches!(self, Self::Gives | Self::GivesLong | Self::Talks)
    }
}

/// Lets a request's body come within the budget and in time, and its answers go in time.
pub(super) async fn admit(
    State(budget): State<Arc<Budget>>,
    request: Request,
    next: Next,
) -> Response {
    let manner = Manner::of(request.uri().path());
    if manner == Manner::Peer {
        return next.run(request).await;
    }
    let ends_at = match manner {
        Manner::Takes | Manner::Gives | Manner::Talks => {
            let named = timeout_of(request.headers()).map(|named| named.min(STREAM_TIMEOUT_MAX));
            Some(Instant::now() + named.unwrap_or(STREAM_TIMEOUT_DEFAULT))
        }
        Manner::Unary | Manner::TakesLong | Manner::GivesLong | Manner::Peer => None,
    };
    let connection: Option<Connection> =
        manner.gives_many().then(|| request.extensions().get().cloned()).flatten();
    let lease = budget.lease();
    let request = match request.body().is_end_stream() {
        true => request,
        false => request.map(|body| {
            let lease = Arc::clone(&lease);
            Body::new(AdmittedBody::new(body, lease, manner.takes_many(), ends_at))
        }),
    };
    let response = next.run(request).await;
    // The handler has done with the request, unless it is still reading it.
    drop(lease);
    match manner.gives_many() {
        true => response.map(|body| answers::paced(body, connection, ends_at)),
        false => response,
    }
}

#[cfg(test)]
mod tests {
    use prost::Message as _;

    use super::*;

    /// How the interface says that a call speaks.
    #[test]
    fn every_call_has_its_manner() {
        let files = prost_types::FileDescriptorSet::decode(umbel_proto::DESCRIPTORS).unwrap();
        for service in files.file.iter().flat_map(|file| &file.service) {
            for method in &service.method {
                let path = format!("/umbel.v1.{}/{}", service.name(), method.name());
                let manner = Manner::of(&path);
                let is_right = match (method.client_streaming(), method.server_streaming()) {
                    _ if matches!(service.name(), "Peer" | "JobControl" | "JobExchange") => {
                        manner == Manner::Peer
                    }
                    (false, false) => manner == Manner::Unary,
                    (true, false) => matches!(manner, Manner::Takes | Manner::TakesLong),
                    (false, true) => matches!(manner, Manner::Gives | Manner::GivesLong),
                    (true, true) => manner == Manner::Talks,
                };
                assert!(is_right, "{path} is {manner:?}");
            }
        }
        assert_eq!(Manner::of("/metrics"), Manner::Unary);
        assert_eq!(Manner::of("/console"), Manner::Unary);
        assert_eq!(Manner::of("/console/events/cluster"), Manner::GivesLong);
    }

    #[test]
    fn bytes_are_held_until_the_lease_ends() {
        let budget = Budget::new(100);
        let used = || budget.used.load(Ordering::Relaxed);
        let (one, two) = (budget.lease(), budget.lease());
        assert!(one.take(60).is_ok() && two.take(40).is_ok());
        assert!(two.take(1).is_err(), "the other one has come as a whole");
        assert_eq!(used(), 100);
        one.give_back(20);
        assert!(two.take(20).is_ok() && two.take(1).is_err());
        drop(one);
        assert_eq!(used(), 60);
        drop(two);
        assert_eq!(used(), 0);
    }

    #[test]
    fn a_connection_holds_what_it_says() {
        let budget = Budget::new(100);
        let used = || budget.used.load(Ordering::Relaxed);
        let (one, two) = (Holding::new(&budget), Holding::new(&budget));
        assert_eq!((one.set(70, true), used()), (Ok(()), 70));
        assert_eq!((one.set(50, true), used()), (Ok(()), 50));
        // It began earlier and is still coming, so it makes room.
        assert_eq!((two.set(60, false), used()), (Ok(()), 60));
        assert_eq!((one.set(1, true), one.set(0, false)), (Err(NoRoom), Err(NoRoom)));
        assert_eq!(two.set(101, false), Err(NoRoom));
        drop((one, two));
        assert_eq!(used(), 0);
        assert!(budget.lock().is_empty());
    }

    #[test]
    fn what_has_been_coming_for_the_longest_makes_room() {
        let budget = Budget::new(100);
        let leases: Vec<_> = (0..3).map(|_| budget.lease()).collect();
        for lease in &leases {
            assert!(lease.take(30).is_ok());
            lease.note_arriving();
        }
        leases[0].note_arrived();
        let late = budget.lease();
        assert!(late.take(40).is_ok());
        let is_over = |lease: &Arc<Lease>| lease.is_over.load(Ordering::Relaxed);
        assert_eq!(leases.iter().map(is_over).collect::<Vec<_>>(), [false, true, false]);
        // Nobody makes room for an older one.
        assert!(leases[0].take(40).is_err());
        assert!(!is_over(&leases[2]) && !is_over(&late));
        leases[2].note_arrived();
        drop((leases, late));
        assert_eq!(budget.used.load(Ordering::Relaxed), 0);
    }
}
