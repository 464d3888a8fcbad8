//! The memory that the requests of all clients together may hold, or the messages of all links between nodes.
//!
//! No request waits for room: if older ones that are still arriving cannot make it, the request is refused. Nor does
//! a message of a link, so links cannot block each other, whatever part of a message each of them holds.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::task::Context;

use futures_util::task::AtomicWaker;
use umbel_node::failure::CallFailure;
use umbel_node::limits::CLIENT_MESSAGE_BYTES_MAX;
use umbel_node::metrics;
use umbel_ports::{ConnectionHandle, locked, memory_limit_bytes};

use super::limits::{LINK_BYTES_MIN, LINK_MEMORY_SHARE};

/// One in this many bytes of memory may be held by requests in progress; the rest is for filters, their
/// snapshots and copies, and what nodes send each other.
const MEMORY_SHARE: u64 = 8;

/// The memory budget of all requests of clients together.
pub(crate) struct Budget {
    bytes_max: u64,
    used: AtomicU64,
    /// Requests that have not arrived completely and hold bytes, the oldest first.
    arriving: Mutex<BTreeMap<u64, Arc<Lease>>>,
    last: AtomicU64,
}

/// What one request holds of the budget, from its first byte to its response.
pub(super) struct Lease {
    budget: Arc<Budget>,
    number: AtomicU64,
    /// The connection of a link, which ends with it: a link that does not take its answers is not read, and would not
    /// notice its end.
    connection: Option<ConnectionHandle>,
    pub(super) held: AtomicU64,
    /// The request was ended to make room for others.
    pub(super) is_over: AtomicBool,
    pub(super) reader: AtomicWaker,
}

/// The budget has no room for a request, or for what a connection or a stream holds.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct NoRoom;

impl Budget {
    /// A budget of `bytes_max` bytes; 0 for a share of the memory that the process may use.
    pub(crate) fn new(bytes_max: u64) -> Arc<Self> {
        let bytes_max = match bytes_max {
            0 => (memory_limit_bytes() / MEMORY_SHARE).max(CLIENT_MESSAGE_BYTES_MAX as u64),
            named => named,
        };
        metrics::request_bytes_max(bytes_max);
        Self::of_bytes(bytes_max)
    }

    /// A budget of so many bytes for other requests than those of clients.
    pub(super) fn of_bytes(bytes_max: u64) -> Arc<Self> {
        let (used, arriving) = (AtomicU64::new(0), Mutex::default());
        Arc::new(Self { bytes_max, used, arriving, last: AtomicU64::new(0) })
    }

    /// A budget for the messages of links.
    pub(super) fn of_links() -> Arc<Self> {
        Self::of_bytes((memory_limit_bytes() / LINK_MEMORY_SHARE).max(LINK_BYTES_MIN))
    }

    pub(super) fn lease(self: &Arc<Self>) -> Arc<Lease> {
        self.lease_on(None)
    }

    /// A lease that ends this connection when it is ended to make room for others.
    pub(super) fn lease_on(self: &Arc<Self>, connection: Option<ConnectionHandle>) -> Arc<Lease> {
        Arc::new(Lease {
            budget: Arc::clone(self),
            number: AtomicU64::new(self.next_number()),
            connection,
            held: AtomicU64::new(0),
            is_over: AtomicBool::new(false),
            reader: AtomicWaker::new(),
        })
    }

    /// Holds bytes that have arrived until the answer is dropped.
    ///
    /// # Errors
    /// If there is no room for them.
    pub(super) fn hold(self: &Arc<Self>, byte_count: u64) -> Result<BudgetShare, NoRoom> {
        let lease = self.lease();
        lease.take(byte_count)?;
        Ok(BudgetShare { lease })
    }

    fn next_number(&self) -> u64 {
        self.last.fetch_add(1, Ordering::Relaxed)
    }

    /// Ends the oldest request that is still arriving, if it is older than `before`; returns whether it did.
    fn end_oldest(&self, before: u64) -> bool {
        let mut arriving = locked(&self.arriving);
        let Some(oldest) = arriving.first_entry().filter(|oldest| *oldest.key() < before) else {
            return false;
        };
        let lease = oldest.remove();
        drop(arriving);
        lease.is_over.store(true, Ordering::Release);
        lease.give_back(u64::MAX);
        lease.reader.wake();
        if let Some(connection) = &lease.connection {
            metrics::connection_refused("gave_way");
            connection.end();
        }
        true
    }
}

impl Lease {
    /// Takes `byte_count` more bytes. If the budget is exceeded, older requests that are still arriving
    /// are ended first: a client that sends at once what it announced is quick.
    pub(super) fn take(&self, byte_count: u64) -> Result<(), NoRoom> {
        if byte_count == 0 {
            return Ok(());
        }
        let budget = &*self.budget;
        budget.used.fetch_add(byte_count, Ordering::Relaxed);
        self.held.fetch_add(byte_count, Ordering::Relaxed);
        while budget.used.load(Ordering::Relaxed) > budget.bytes_max {
            if !budget.end_oldest(self.number()) {
                self.give_back(byte_count);
                return Err(NoRoom);
            }
        }
        Ok(())
    }

    /// Returns bytes to the budget, at most those that are held.
    pub(super) fn give_back(&self, byte_count: u64) {
        let give = |held: u64| Some(held.saturating_sub(byte_count));
        // The update never fails, as `give` always returns a value.
        let held = self.held.fetch_update(Ordering::Relaxed, Ordering::Relaxed, give);
        let given = held.unwrap_or_default().min(byte_count);
        self.budget.used.fetch_sub(given, Ordering::Relaxed);
    }

    fn number(&self) -> u64 {
        self.number.load(Ordering::Relaxed)
    }

    /// Begins anew: a link gives way by the age of its last message. It must not be noted as arriving.
    pub(super) fn renew(&self) {
        self.number.store(self.budget.next_number(), Ordering::Relaxed);
    }

    /// Notes that more of the request is to come.
    pub(super) fn note_arriving(self: &Arc<Self>) {
        locked(&self.budget.arriving).entry(self.number()).or_insert_with(|| Arc::clone(self));
    }

    /// Notes that the whole request has arrived, or that no more of it is wanted.
    pub(super) fn note_arrived(&self) {
        locked(&self.budget.arriving).remove(&self.number());
    }
}

/// What an open stream, or one of its requests in progress, holds of the budget until it is dropped.
pub(super) struct BudgetShare {
    lease: Arc<Lease>,
}

impl BudgetShare {
    /// Returns all but so many bytes.
    pub(super) fn keep(&self, byte_count: u64) {
        let held = self.lease.held.load(Ordering::Relaxed);
        self.lease.give_back(held.saturating_sub(byte_count));
    }
}

/// What a request is told for which there is no room.
pub(super) fn no_room() -> CallFailure {
    metrics::request_refused("no_memory");
    let what = "this node holds as many bytes of requests as it may: send again later";
    CallFailure::Overloaded { what: what.to_owned() }
}

/// What a connection of a protocol other than HTTP holds of the budget, for requests that are long or
/// arrive slowly.
pub(super) struct Holding(Arc<Lease>);

impl Holding {
    pub(super) fn new(budget: &Arc<Budget>) -> Self {
        Self(budget.lease())
    }

    /// Sets how many bytes are held now, and whether more of a request is to come.
    ///
    /// # Errors
    /// If there is no room for the bytes, or the holding was ended to make room for others.
    pub(super) fn set(&self, byte_count: u64, is_arriving: bool) -> Result<(), NoRoom> {
        if self.is_over() {
            return Err(NoRoom);
        }
        let held = self.0.held.load(Ordering::Relaxed);
        match byte_count.checked_sub(held) {
            Some(more) => self.0.take(more)?,
            None => self.0.give_back(held - byte_count),
        }
        if is_arriving {
            self.0.note_arriving();
        } else {
            self.0.note_arrived();
        }
        Ok(())
    }

    /// Whether the holding was ended to make room for others; wakes the task when that happens.
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

#[cfg(test)]
mod tests {
    use super::*;

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
    fn what_is_held_is_free_when_it_is_dropped() {
        let budget = Budget::new(100);
        let Ok(held) = budget.hold(60) else { panic!("there is room") };
        assert!(budget.hold(41).is_err());
        assert_eq!(budget.used.load(Ordering::Relaxed), 60);
        held.keep(70);
        assert_eq!(budget.used.load(Ordering::Relaxed), 60);
        held.keep(10);
        assert_eq!(budget.used.load(Ordering::Relaxed), 10);
        drop(held);
        assert_eq!(budget.used.load(Ordering::Relaxed), 0);
        assert!(budget.hold(100).is_ok());
    }

    #[test]
    fn a_connection_holds_what_it_says() {
        let budget = Budget::new(100);
        let used = || budget.used.load(Ordering::Relaxed);
        let (one, two) = (Holding::new(&budget), Holding::new(&budget));
        assert_eq!((one.set(70, true), used()), (Ok(()), 70));
        assert_eq!((one.set(50, true), used()), (Ok(()), 50));
        // The first holding began earlier and is still arriving, so it makes room.
        assert_eq!((two.set(60, false), used()), (Ok(()), 60));
        assert_eq!((one.set(1, true), one.set(0, false)), (Err(NoRoom), Err(NoRoom)));
        assert_eq!(two.set(101, false), Err(NoRoom));
        drop((one, two));
        assert_eq!(used(), 0);
        assert!(locked(&budget.arriving).is_empty());
    }

    #[test]
    fn links_make_room_by_their_last_messages_and_with_their_connections() {
        let budget = Budget::of_bytes(100);
        let connections = [(); 2].map(|()| ConnectionHandle::default());
        let leases = connections.each_ref().map(|connection| {
            let lease = budget.lease_on(Some(connection.clone()));
            assert!(lease.take(40).is_ok());
            lease
        });
        leases[0].renew();
        leases.iter().for_each(Lease::note_arriving);
        assert!(budget.lease().take(50).is_ok());
        let cx = Context::from_waker(std::task::Waker::noop());
        let is_ended = connections.map(|connection| connection.poll_ended(&cx).is_ready());
        assert_eq!(is_ended, [false, true]);
        assert_eq!(leases.map(|lease| lease.is_over.load(Ordering::Relaxed)), [false, true]);
    }

    /// The largest messages fit, however little memory there is.
    #[test]
    fn links_have_room_for_the_largest_messages() {
        assert!(Budget::of_links().bytes_max >= (2 * 65) << 20);
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
        // No request makes room for an older one.
        assert!(leases[0].take(40).is_err());
        assert!(!is_over(&leases[2]) && !is_over(&late));
        leases[2].note_arrived();
        drop((leases, late));
        assert_eq!(budget.used.load(Ordering::Relaxed), 0);
    }
}
