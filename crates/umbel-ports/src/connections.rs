//! Limits the connections of a process: its log needs descriptors too, and no stranger may keep others
//! out.
//!
//! A connection is *proved* when its certificate names a node or a client, or when a call on it is
//! authenticated at the gate. When there is no room, the oldest unproved connection is closed: silent
//! connections keep nobody out, however many there are. When too many TLS handshakes are unfinished, the
//! oldest of them is closed.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, Ipv6Addr};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock};
use std::task::{Context, Poll};
use std::time::Duration;

use futures_util::task::AtomicWaker;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use tokio::sync::Notify;
use tokio::time::timeout;

use crate::{locked, metrics};

/// One in so many descriptors is reserved for log, snapshots, jobs and connections to peers.
const KEPT_SHARE: u64 = 3;

/// Descriptors that are assumed if the system has no limit: each takes some ten kilobytes, which silent
/// connections may cost.
const DESCRIPTORS_MAX: u64 = 1 << 20;

/// One address may have at most one in so many connections, so that a single address cannot keep others
/// out, even with proved connections. Many clients behind one address still have many: of the 1,024
/// descriptors of the smallest systems, they may have 170.
const ADDRESS_SHARE: usize = 4;

/// One in so many slots may belong to connections that are being closed. Until they are closed, their
/// descriptors stay in use; accepting faster than connections close would use up the reserved ones.
const ENDING_SHARE: usize = 8;

/// How long accepting waits for such a connection to close. A connection that cannot be closed at once
/// delays others no longer than this.
const ENDING_PATIENCE: Duration = Duration::from_millis(50);

/// Concurrent TLS handshakes of the process: each holds some ten kilobytes, and may keep a core busy with
/// signatures. A peer that answers finishes while far fewer strangers connect.
pub(super) const HANDSHAKES_MAX: usize = 256;

/// A handle with which others can end a connection.
#[derive(Clone, Default)]
pub struct ConnectionHandle(Arc<State>);

#[derive(Default)]
struct State {
    is_ended: AtomicBool,
    has_asked: AtomicBool,
    is_proved: AtomicBool,
    /// The task that reads the connection.
    reader: AtomicWaker,
    place: Option<(Arc<Places>, u64)>,
}

impl ConnectionHandle {
    /// Ends the connection: its reader gets an error.
    pub fn end(&self) {
        self.0.is_ended.store(true, Ordering::Release);
        self.0.reader.wake();
    }

    /// Whether the connection is still open, or others know it by this handle.
    pub(crate) fn is_known(&self) -> bool {
        Arc::strong_count(&self.0) > 1
    }

    /// Ready once the connection was ended. One task may wait for it.
    pub fn poll_ended(&self, cx: &Context<'_>) -> Poll<()> {
        self.0.reader.register(cx.waker());
        if self.0.is_ended.load(Ordering::Acquire) { Poll::Ready(()) } else { Poll::Pending }
    }

    /// Notes that a request's headers have been received.
    pub(crate) fn note_request(&self) {
        self.0.has_asked.store(true, Ordering::Relaxed);
    }

    /// Whether a request's headers have ever been received.
    pub(crate) fn has_asked(&self) -> bool {
        self.0.has_asked.load(Ordering::Relaxed)
    }

    /// Notes that the TLS handshake is over: the connection no longer gives way to other handshakes.
    pub(crate) fn note_handshake(&self) {
        if let Some((places, number)) = &self.0.place {
            places.lock().shaking.remove(number);
        }
    }

    /// Marks the connection as proved: it keeps its slot also when others need one.
    pub fn prove(&self) {
        if self.0.is_proved.load(Ordering::Relaxed)
            || self.0.is_proved.swap(true, Ordering::Relaxed)
        {
            return;
        }
        if let Some((places, number)) = &self.0.place {
            places.lock().keep(*number);
        }
    }
}

/// Slots for connections. Without a free slot, new connections wait in the system's queue.
#[derive(Clone)]
pub(super) struct ConnectionSlots(Arc<Places>);

struct Places {
    count_max: usize,
    address_max: usize,
    table: Mutex<Table>,
    /// Notified when a connection has gone.
    freed: Notify,
}

#[derive(Default)]
struct Table {
    last: u64,
    taken: BTreeMap<u64, Taken>,
    /// Unproved connections, oldest first.
    unproved: BTreeSet<u64>,
    /// The same by address.
    unproved_of: BTreeSet<(IpAddr, u64)>,
    by_address: BTreeMap<IpAddr, usize>,
    /// Connections whose TLS handshake is not over, oldest first.
    shaking: BTreeSet<u64>,
    /// Connections that had to make room and are not closed yet.
    ending_count: usize,
}

struct Taken {
    /// None if the address is not counted.
    address: Option<IpAddr>,
    connection: ConnectionHandle,
}

/// A connection's slot, for as long as the connection lives.
pub struct ConnectionSlot {
    connection: ConnectionHandle,
}

impl ConnectionSlot {
    /// The connection that has this slot.
    pub const fn connection(&self) -> &ConnectionHandle {
        &self.connection
    }
}

impl Drop for ConnectionSlot {
    fn drop(&mut self) {
        if let Some((places, number)) = &self.connection.0.place {
            places.lock().leave(*number);
            // One listener may wait for room, and another one for connections.
            places.freed.notify_waiters();
        }
    }
}

impl ConnectionSlots {
    /// As many slots as the process's descriptors permit, for all its listeners together.
    pub(super) fn of_process() -> Self {
        static OF_PROCESS: OnceLock<ConnectionSlots> = OnceLock::new();
        let count = || {
            let limit = getrlimit(Resource::Nofile).current.unwrap_or(DESCRIPTORS_MAX);
            Self::new(slot_count(limit))
        };
        OF_PROCESS.get_or_init(count).clone()
    }

    pub(super) fn new(count_max: usize) -> Self {
        let address_max = (count_max / ADDRESS_SHARE).max(1);
        let (table, freed) = (Mutex::default(), Notify::new());
        Self(Arc::new(Places { count_max, address_max, table, freed }))
    }

    /// Waits until a connection may be accepted: there is a free slot or a connection that can be
    /// closed for it, and most of those that had to make room are closed.
    pub(super) async fn room(&self) {
        loop {
            let freed = self.0.freed.notified();
            let (has_place, is_behind) = {
                let table = self.0.lock();
                let is_free = table.taken.len() < self.0.count_max;
                let ending_max = (self.0.count_max / ENDING_SHARE).max(1);
                (is_free || !table.unproved.is_empty(), table.ending_count >= ending_max)
            };
            if !has_place {
                freed.await;
            } else if !is_behind || timeout(ENDING_PATIENCE, freed).await.is_err() {
                return;
            }
        }
    }

    /// A slot for a connection from this address, for which another connection may have to be closed.
    /// None if the address has its share, or there is no room at all.
    pub(super) fn enter(&self, from: IpAddr) -> Option<ConnectionSlot> {
        self.enter_table(&mut self.0.lock(), from)
    }

    /// As [`Self::enter`], for a connection that begins with a TLS handshake: if as many as allowed are
    /// unfinished, the oldest one is closed.
    pub(super) fn enter_handshake(&self, from: IpAddr) -> Option<ConnectionSlot> {
        let mut table = self.0.lock();
        let slot = self.enter_table(&mut table, from)?;
        if table.shaking.len() >= HANDSHAKES_MAX
            && let Some(oldest) = table.shaking.first().copied()
        {
            table.end(oldest);
        }
        let number = table.last;
        table.shaking.insert(number);
        Some(slot)
    }

    fn enter_table(&self, table: &mut Table, from: IpAddr) -> Option<ConnectionSlot> {
        let address = counted_address(from);
        let entered = table.make_room(address, self.0.address_max, self.0.count_max);
        if !entered {
            metrics::connection_refused("no_room");
            return None;
        }
        table.last += 1;
        let number = table.last;
        let place = Some((Arc::clone(&self.0), number));
        let connection = ConnectionHandle(Arc::new(State { place, ..State::default() }));
        table.unproved.insert(number);
        if let Some(address) = address {
            table.unproved_of.insert((address, number));
            *table.by_address.entry(address).or_default() += 1;
        }
        table.taken.insert(number, Taken { address, connection: connection.clone() });
        Some(ConnectionSlot { connection })
    }
}

impl Places {
    fn lock(&self) -> MutexGuard<'_, Table> {
        // No holder of the lock panics, and the table is consistent after every call.
        locked(&self.table)
    }
}

impl Table {
    /// Ends connections until one more fits; false if none may be ended.
    fn make_room(&mut self, address: Option<IpAddr>, address_max: usize, count_max: usize) -> bool {
        if let Some(address) = address
            && self.by_address.get(&address).is_some_and(|&count| count >= address_max)
        {
            let of_it = (address, 0)..=(address, u64::MAX);
            let oldest = self.unproved_of.range(of_it).next().map(|&(_, number)| number);
            return oldest.is_some_and(|number| self.end(number));
        }
        if self.taken.len() < count_max {
            return true;
        }
        let oldest = self.unproved.first().copied();
        oldest.is_some_and(|number| self.end(number))
    }

    /// Ends a connection and frees its slot at once: the reserved third of the descriptors also covers
    /// connections that are not closed yet.
    fn end(&mut self, number: u64) -> bool {
        let Some(taken) = self.taken.get(&number) else { return false };
        taken.connection.end();
        self.free(number);
        self.ending_count += 1;
        metrics::connection_refused("gave_way");
        true
    }

    fn keep(&mut self, number: u64) {
        self.unproved.remove(&number);
        if let Some(address) = self.taken.get(&number).and_then(|taken| taken.address) {
            self.unproved_of.remove(&(address, number));
        }
    }

    /// Removes a closed connection, whether or not it had to make room.
    fn leave(&mut self, number: u64) {
        if self.taken.contains_key(&number) { self.free(number) } else { self.ending_count -= 1 }
    }

    fn free(&mut self, number: u64) {
        self.keep(number);
        self.shaking.remove(&number);
        let Some(Taken { address: Some(address), .. }) = self.taken.remove(&number) else { return };
        if let Some(count) = self.by_address.get_mut(&address) {
            *count -= 1;
            if *count == 0 {
                self.by_address.remove(&address);
            }
        }
    }
}

/// What counts as one address: for IPv6 the 64-bit network of one household. None for this machine:
/// proxies and tools beside the node connect from there, each for many clients, and a local attacker
/// has other means.
fn counted_address(from: IpAddr) -> Option<IpAddr> {
    match from.to_canonical() {
        address if address.is_loopback() => None,
        address @ IpAddr::V4(_) => Some(address),
        IpAddr::V6(address) => {
            let network = u128::from(address) & !u128::from(u64::MAX);
            Some(Ipv6Addr::from(network).into())
        }
    }
}

fn slot_count(descriptors: u64) -> usize {
    let descriptors = descriptors.min(DESCRIPTORS_MAX);
    usize::try_from(descriptors - descriptors / KEPT_SHARE).expect("below 2^20").max(1)
}

/// Raises the process's limit of descriptors to its maximum: systems start programs with a low limit
/// for the sake of programs that need small descriptor numbers.
pub fn raise_descriptor_limit() {
    let limit = getrlimit(Resource::Nofile);
    // If that is refused, the old limit stays.
    let _ = setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, ..limit });
}

#[cfg(test)]
mod tests {
    use futures_util::{FutureExt, poll};
    use tokio::time::Instant;

    use super::*;

    fn address(text: &str) -> IpAddr {
        text.parse().unwrap()
    }

    fn is_ended(slot: &ConnectionSlot) -> bool {
        let ended = std::future::poll_fn(|cx| slot.connection().poll_ended(cx));
        ended.now_or_never().is_some()
    }

    #[test]
    fn a_third_of_the_descriptors_is_kept() {
        assert_eq!(slot_count(1024), 683);
        assert_eq!(slot_count(3), 2);
        assert_eq!(slot_count(1), 1);
        assert_eq!(slot_count(u64::MAX), 699_051);
    }

    #[tokio::test]
    async fn a_place_is_free_again_when_its_connection_is_gone() {
        let slots = ConnectionSlots::new(1);
        let first = slots.enter(address("127.0.0.1")).unwrap();
        first.connection().prove();
        assert!(slots.enter(address("127.0.0.1")).is_none());
        let waiting = slots.room();
        tokio::pin!(waiting);
        assert!(poll!(&mut waiting).is_pending());
        drop(first);
        assert!(poll!(&mut waiting).is_ready());
        assert!(slots.enter(address("127.0.0.1")).is_some());
    }

    #[tokio::test(start_paused = true)]
    async fn the_oldest_that_has_proved_nothing_gives_way() {
        let slots = ConnectionSlots::new(3);
        let taken: Vec<_> = (0..3).map(|_| slots.enter(address("127.0.0.1")).unwrap()).collect();
        taken[0].connection().prove();
        let more = slots.enter(address("10.0.0.1")).unwrap();
        assert_eq!(taken.iter().map(is_ended).collect::<Vec<_>>(), [false, true, false]);
        // No connection is accepted until that one is closed, or for a while.
        let since = Instant::now();
        slots.room().await;
        assert!((ENDING_PATIENCE..2 * ENDING_PATIENCE).contains(&since.elapsed()));
        // Its end does not free a second slot.
        drop(taken.into_iter().nth(1));
        assert!(slots.room().now_or_never().is_some());
        more.connection().prove();
        let table = slots.0.lock();
        assert_eq!((table.taken.len(), table.ending_count), (1, 0));
    }

    #[tokio::test]
    async fn the_oldest_unfinished_handshake_gives_way_to_a_new_one() {
        let slots = ConnectionSlots::new(2 * HANDSHAKES_MAX);
        let enter = || slots.enter_handshake(address("127.0.0.1")).unwrap();
        // One whose handshake is over does not count, nor one that is gone, nor one without TLS.
        let over = enter();
        over.connection().note_handshake();
        drop(enter());
        let plain = slots.enter(address("127.0.0.1")).unwrap();
        let unfinished: Vec<_> = (0..HANDSHAKES_MAX).map(|_| enter()).collect();
        assert!(!unfinished.iter().any(is_ended));
        let new = enter();
        assert!(is_ended(&unfinished[0]) && !unfinished[1..].iter().any(is_ended));
        assert!(!is_ended(&over) && !is_ended(&plain) && !is_ended(&new));
        drop((over, plain, unfinished, new));
        let table = slots.0.lock();
        assert!(table.shaking.is_empty() && table.taken.is_empty() && table.ending_count == 0);
    }

    #[test]
    fn one_address_has_its_share() {
        let slots = ConnectionSlots::new(8);
        let enter = |from| slots.enter(address(from));
        let (first, second) = (enter("10.0.0.1").unwrap(), enter("::ffff:10.0.0.1").unwrap());
        first.connection().prove();
        let third = enter("10.0.0.1").unwrap();
        assert_eq!([&first, &second, &third].map(is_ended), [false, true, false]);
        third.connection().prove();
        assert!(enter("10.0.0.1").is_none());
        let others = [enter("10.0.0.2").unwrap(), enter("2001:db8::1").unwrap()];
        let last = enter("2001:db8::2").unwrap();
        assert!(enter("2001:db8::3").is_some() && is_ended(&others[1]) && !is_ended(&others[0]));
        // The address may connect again after one of its connections has gone.
        drop(first);
        assert!(enter("10.0.0.1").is_some());
        drop((others, last));
    }

    #[test]
    fn this_machine_has_no_share() {
        let slots = ConnectionSlots::new(8);
        let taken: Vec<_> = (0..8).map(|_| slots.enter(address("::1")).unwrap()).collect();
        assert!(!taken.iter().any(is_ended));
        drop(taken);
        assert!(slots.0.lock().unproved.is_empty() && slots.0.lock().unproved_of.is_empty());
    }
}
