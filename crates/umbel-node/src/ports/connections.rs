//! How many connections a process takes: descriptors are for its log, too, and no stranger shall
//! keep others out.
//!
//! A connection *proves* something when its certificate names a node or a client, or when a call on it
//! passes the gate as somebody. When there is no room, the oldest one that has proved nothing gives
//! way: who connects and stays silent keeps nobody out, however often he does so.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, Ipv6Addr};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::task::{Context, Poll};
use std::time::Duration;

use futures_util::task::AtomicWaker;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use tokio::sync::Notify;
use tokio::time::timeout;

use crate::metrics;

/// Of so many descriptors one is kept for log, snapshots, jobs and connections to peers.
const KEPT_SHARE: u64 = 3;

/// Descriptors that are counted on where the system has no limit: some ten kilobytes each, which
/// connections that say nothing may cost.
const DESCRIPTORS_MAX: u64 = 1 << 20;

/// One address has at most one of so many connections: who has one address cannot keep others out, also
/// where all of its connections have proved who they are. Many clients behind one address are still
/// many: of the 1,024 descriptors of the smallest systems they may have 170.
const ADDRESS_SHARE: usize = 4;

/// Of so many places one may be left by connections that are being closed: until they are, their descriptors are taken, and
/// who accepts faster than others are closed would take those that are kept.
const ENDING_SHARE: usize = 8;

/// How long accepting waits for one of these. One that cannot be closed at once holds nobody up for longer.
const ENDING_PATIENCE: Duration = Duration::from_millis(50);

/// A connection as those see it who may end it.
#[derive(Clone, Default)]
pub(crate) struct Connection(Arc<State>);

#[derive(Default)]
struct State {
    is_ended: AtomicBool,
    has_asked: AtomicBool,
    is_proved: AtomicBool,
    /// Of the task that reads the connection.
    reader: AtomicWaker,
    place: Option<(Arc<Places>, u64)>,
}

impl Connection {
    /// Ends the connection: its reader sees an error.
    pub(crate) fn end(&self) {
        self.0.is_ended.store(true, Ordering::Release);
        self.0.reader.wake();
    }

    /// Ready once the connection was ended. One task may wait for it.
    pub(crate) fn poll_ended(&self, cx: &Context<'_>) -> Poll<()> {
        self.0.reader.register(cx.waker());
        if self.0.is_ended.load(Ordering::Acquire) { Poll::Ready(()) } else { Poll::Pending }
    }

    /// A request's headers have come on it.
    pub(crate) fn note_request(&self) {
        self.0.has_asked.store(true, Ordering::Relaxed);
    }

    /// Whether a request's headers have ever come on it.
    pub(crate) fn has_asked(&self) -> bool {
        self.0.has_asked.load(Ordering::Relaxed)
    }

    /// The other end is somebody: its place is kept also when others want one.
    pub(crate) fn prove(&self) {
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

/// Room for connections. Who comes when there is none waits in the system's queue.
#[derive(Clone)]
pub(super) struct ConnectionSlots(Arc<Places>);

struct Places {
    count_max: usize,
    address_max: usize,
    table: Mutex<Table>,
    /// A connection has gone.
    freed: Notify,
}

#[derive(Default)]
struct Table {
    last: u64,
    taken: BTreeMap<u64, Taken>,
    /// Those that have proved nothing, the oldest first.
    unproved: BTreeSet<u64>,
    /// The same by address.
    unproved_of: BTreeSet<(IpAddr, u64)>,
    by_address: BTreeMap<IpAddr, usize>,
    /// Those that have given way, and are not closed yet.
    ending_count: usize,
}

struct Taken {
    /// None where the address does not count.
    address: Option<IpAddr>,
    connection: Connection,
}

/// A connection's place, as long as it lives.
pub(crate) struct ConnectionSlot {
    connection: Connection,
}

impl ConnectionSlot {
    /// The connection that has this place.
    pub(crate) const fn connection(&self) -> &Connection {
        &self.connection
    }
}

impl Drop for ConnectionSlot {
    fn drop(&mut self) {
        if let Some((places, number)) = &self.connection.0.place {
            places.lock().leave(*number);
            // One listener may wait for room, and another one for somebody who connects.
            places.freed.notify_waiters();
        }
    }
}

impl ConnectionSlots {
    /// As many as the process's descriptors allow, for all its listeners together.
    pub(super) fn of_process() -> Self {
        static OF_PROCESS: OnceLock<ConnectionSlots> = OnceLock::new();
        let count = || {
            let limit = getrlimit(Resource::Nofile).current.unwrap_or(DESCRIPTORS_MAX);
            Self::new(slot_count(limit))
        };
        OF_PROCESS.get_or_init(count).clone()
    }

    fn new(count_max: usize) -> Self {
        let address_max = (count_max / ADDRESS_SHARE).max(1);
        let (table, freed) = (Mutex::default(), Notify::new());
        Self(Arc::new(Places { count_max, address_max, table, freed }))
    }

    /// Waits until a connection may be taken: a place is free, or somebody gives way; and most of those that gave way
    /// are closed.
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

    /// A place for a connection from there, for which another one may have to go; None if the address
    /// has its share, or there is no room at all.
    pub(super) fn enter(&self, from: IpAddr) -> Option<ConnectionSlot> {
        let address = counted_address(from);
        let mut table = self.0.lock();
        let entered = table.make_room(address, self.0.address_max, self.0.count_max);
        if !entered {
            drop(table);
            metrics::connection_refused("no_room");
            return None;
        }
        table.last += 1;
        let number = table.last;
        let place = Some((Arc::clone(&self.0), number));
        let connection = Connection(Arc::new(State { place, ..State::default() }));
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
        // No holder of the lock panics, and the table is whole after every call.
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
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

    /// Ends a connection, whose place is free at once: a third of the descriptors is kept for those that are not closed
    /// yet, too.
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

    /// A connection is closed, whether or not it has given way.
    fn leave(&mut self, number: u64) {
        match self.taken.contains_key(&number) {
            true => self.free(number),
            false => self.ending_count -= 1,
        }
    }

    fn free(&mut self, number: u64) {
        self.keep(number);
        let Some(Taken { address: Some(address), .. }) = self.taken.remove(&number) else { return };
        if let Some(count) = self.by_address.get_mut(&address) {
            *count -= 1;
            if *count == 0 {
                self.by_address.remove(&address);
            }
        }
    }
}

/// What counts as one address: of IPv6 the network of 64 bits that one household has. None for this
/// machine: proxies and tools beside the node come from there, each for many, and who is on the machine
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

/// Lets this process have as many descriptors as it may: systems start programs with few, for the
/// sake of those that count on small numbers.
pub fn raise_descriptor_limit() {
    let limit = getrlimit(Resource::Nofile);
    // Refused, the process has what it had.
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
        // Nobody else is accepted until that one is closed, or for a while.
        let since = Instant::now();
        slots.room().await;
        assert!((ENDING_PATIENCE..2 * ENDING_PATIENCE).contains(&since.elapsed()));
        // Its end frees no second place.
        drop(taken.into_iter().nth(1));
        assert!(slots.room().now_or_never().is_some());
        more.connection().prove();
        let table = slots.0.lock();
        assert_eq!((table.taken.len(), table.ending_count), (1, 0));
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
        // It may come again when one of its connections has gone.
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
