//! What all connections of the Redis protocol share.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::Semaphore;
use tokio::time::Instant;
use umbel_coordinator::Coordinator;
use umbel_filter::Kind;
use umbel_resp::Protocol;

use super::chain_dumps::ChainDumps;
use super::dumps::Dumps;
use super::gateway::RespGateway;
use crate::admission::Budget;
use crate::deadlines::Deadlines;
use crate::limits::RESP_PAYLOADS_MAX;

/// What a node shares with all connections.
pub(super) struct Shared {
    pub(super) coordinator: Arc<Coordinator>,
    pub(super) deadlines: Deadlines,
    pub(super) budget: Arc<Budget>,
    /// Whether a node's certificate must name the node.
    pub(super) needs_member: bool,
    /// The kind of the filters that plain commands create.
    pub(super) default_kind: Kind,
    /// The host and port at which clients reach this listener.
    pub(super) address: (String, u16),
    pub(super) started: Instant,
    pub(super) clients: Clients,
    pub(super) counts: Counts,
    pub(super) dumps: Dumps,
    pub(super) chain_dumps: ChainDumps,
    /// Permits for payloads that are produced, read or sent.
    pub(super) payloads: Arc<Semaphore>,
}

impl Shared {
    /// Of a listener without connections.
    pub(super) fn new(gateway: RespGateway) -> Self {
        let RespGateway { coordinator, timeout_max, budget, needs_member, default_kind, address } =
            gateway;
        Self {
            coordinator,
            deadlines: Deadlines::new(timeout_max),
            budget,
            needs_member,
            default_kind,
            address,
            started: Instant::now(),
            clients: Clients::default(),
            counts: Counts::default(),
            dumps: Dumps::default(),
            chain_dumps: ChainDumps::default(),
            payloads: Arc::new(Semaphore::new(RESP_PAYLOADS_MAX)),
        }
    }
}

/// Counters that `INFO` shows.
#[derive(Default)]
pub(super) struct Counts {
    pub(super) commands: AtomicU64,
    pub(super) hits: AtomicU64,
    pub(super) misses: AtomicU64,
}

impl Counts {
    pub(super) fn add(counter: &AtomicU64, count: usize) {
        counter.fetch_add(count as u64, Ordering::Relaxed);
    }
}

/// The open connections.
#[derive(Default)]
pub(super) struct Clients {
    last: AtomicU64,
    open: Mutex<BTreeMap<u64, Arc<Client>>>,
}

/// A connection among the open ones. It leaves them however its task ends, also by a panic: its place would be
/// lost otherwise.
pub(super) struct Place {
    shared: Arc<Shared>,
    /// The connection.
    pub(super) client: Arc<Client>,
}

impl Place {
    /// A place for a connection from this address.
    pub(super) fn new(shared: &Arc<Shared>, from: String) -> Self {
        Self { shared: Arc::clone(shared), client: shared.clients.enter(from) }
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.shared.clients.leave(self.client.id);
    }
}

/// One connection as others see it.
pub(super) struct Client {
    pub(super) id: u64,
    /// The client's address.
    pub(super) from: String,
    since: Instant,
    details: Mutex<Details>,
}

/// What a client has set about its connection, and the connection's state.
#[derive(Clone, Default)]
pub(super) struct Details {
    pub(super) name: Vec<u8>,
    pub(super) library: Vec<u8>,
    pub(super) version: Vec<u8>,
    pub(super) database: u8,
    pub(super) protocol: Protocol,
    pub(super) user: String,
}

impl Clients {
    /// Adds a connection, which counts as open until `leave`.
    fn enter(&self, from: String) -> Arc<Client> {
        let id = self.last.fetch_add(1, Ordering::Relaxed) + 1;
        let details = Details { user: "default".to_owned(), ..Details::default() };
        let client =
            Arc::new(Client { id, from, since: Instant::now(), details: Mutex::new(details) });
        self.lock().insert(id, Arc::clone(&client));
        client
    }

    fn leave(&self, id: u64) {
        self.lock().remove(&id);
    }

    /// The number of open connections.
    pub(super) fn count(&self) -> usize {
        self.lock().len()
    }

    /// The number of connections since the start.
    pub(super) fn total(&self) -> u64 {
        self.last.load(Ordering::Relaxed)
    }

    /// The open connections, the oldest first.
    pub(super) fn all(&self) -> Vec<Arc<Client>> {
        self.lock().values().cloned().collect()
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<u64, Arc<Client>>> {
        // No holder of the lock panics, and the map is consistent after every call.
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Client {
    /// Changes the details of the connection.
    pub(super) fn change(&self, change: impl FnOnce(&mut Details)) {
        change(&mut self.details.lock().unwrap_or_else(PoisonError::into_inner));
    }

    pub(super) fn details(&self) -> Details {
        self.details.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// A line of `CLIENT LIST`.
    pub(super) fn line(&self, own_address: &(String, u16)) -> String {
        let Details { name, library, version, database, protocol, user } = self.details();
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        let (host, port) = own_address;
        format!(
            "id={} addr={} laddr={host}:{port} name={} age={} idle=0 flags=N db={database} sub=0 psub=0 \
             ssub=0 multi=-1 user={user} resp={} lib-name={} lib-ver={}\n",
            self.id,
            self.from,
            text(&name),
            self.since.elapsed().as_secs(),
            match protocol {
                Protocol::Two => 2,
                Protocol::Three => 3,
            },
            text(&library),
            text(&version),
        )
    }
}
