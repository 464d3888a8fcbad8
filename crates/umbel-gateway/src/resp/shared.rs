//! What all connections of the Redis protocol share.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::sync::Semaphore;
use tokio::time::Instant;
use umbel_coordinator::Coordinator;
use umbel_filter::Kind;
use umbel_node::config::{ClusterAnswers, Config, Transactions, reached_at};
use umbel_ports::channel::PeerAddress;
use umbel_ports::{ConnectionHandle, locked};
use umbel_resp::Protocol;

use super::chain_dumps::ChainDumps;
use super::dumps::Dumps;
use super::nodes::RespAddresses;
use super::turns::Turns;
use crate::budget::Budget;
use crate::deadlines::Deadlines;
use crate::limits::RESP_PAYLOADS_MAX;

/// What a node shares with all connections.
pub(crate) struct Shared {
    pub(super) coordinator: Arc<Coordinator>,
    pub(super) deadlines: Deadlines,
    /// Limits the memory that the requests of clients in progress hold.
    pub(super) budget: Arc<Budget>,
    /// Whether a node's certificate must name the node.
    pub(super) needs_member: bool,
    /// The kind of the filters that plain commands create.
    pub(super) default_kind: Kind,
    /// How `CLUSTER` is answered.
    pub(super) cluster_answers: ClusterAnswers,
    /// Whether `EXEC` refuses commands that those of other clients could come between.
    pub(super) is_strict: bool,
    /// The host and port of this listener.
    pub(super) address: (String, u16),
    /// The host and port at which clients reach it.
    pub(super) announced: (String, u16),
    /// Where clients reach the other nodes.
    pub(super) addresses: RespAddresses,
    pub(super) started: Instant,
    pub(super) clients: Clients,
    pub(super) counts: Counts,
    pub(super) dumps: Dumps,
    pub(super) chain_dumps: ChainDumps,
    /// Commands that look first and change then.
    pub(super) turns: Turns,
    /// Permits for payloads that are produced, read or sent.
    pub(super) payloads: Arc<Semaphore>,
    /// The permit of the one payload that is being produced. The others wait for it: nodes serve few exports at once, and
    /// refuse what is more.
    pub(super) producing: Semaphore,
    /// The permit of the one `COPY` that is being carried out; the others wait for it, too.
    pub(super) copying: Semaphore,
}

impl Shared {
    /// Of a listener at the address `local` without connections. Clients reach it at the host that the node advertises,
    /// unless it is bound to a particular one, or the configuration announces another address.
    pub(crate) fn new(
        config: &Config,
        advertised: &str,
        local: &str,
        coordinator: Arc<Coordinator>,
        budget: Arc<Budget>,
    ) -> Self {
        Self {
            coordinator,
            deadlines: Deadlines::new(Duration::from_millis(config.request_timeout_ms_max)),
            budget,
            needs_member: config.require_node_identity,
            default_kind: config.default_kind().unwrap_or(Kind::Scalable),
            cluster_answers: config.cluster_answers().unwrap_or(ClusterAnswers::Single),
            is_strict: config.transactions() == Some(Transactions::Strict),
            address: reached_at(local, advertised),
            announced: config.resp_reached_at(local, advertised),
            addresses: RespAddresses::default(),
            started: Instant::now(),
            clients: Clients::default(),
            counts: Counts::default(),
            dumps: Dumps::default(),
            chain_dumps: ChainDumps::default(),
            turns: Turns::default(),
            payloads: Arc::new(Semaphore::new(RESP_PAYLOADS_MAX)),
            producing: Semaphore::new(1),
            copying: Semaphore::new(1),
        }
    }
}

/// Counters that `INFO` shows.
#[derive(Default)]
pub(super) struct Counts {
    pub(super) commands: AtomicU64,
    pub(super) hits: AtomicU64,
    pub(super) misses: AtomicU64,
    /// Connections that were refused because there were too many.
    pub(super) rejected: AtomicU64,
}

impl Counts {
    pub(super) fn add(counter: &AtomicU64, count: usize) {
        counter.fetch_add(count as u64, Ordering::Relaxed);
    }

    /// Sets all of them to 0.
    pub(super) fn reset(&self) {
        let Self { commands, hits, misses, rejected } = self;
        for counter in [commands, hits, misses, rejected] {
            counter.store(0, Ordering::Relaxed);
        }
    }
}

/// The open connections.
#[derive(Default)]
pub(super) struct Clients {
    last: AtomicU64,
    table: Mutex<Table>,
}

#[derive(Default)]
struct Table {
    open: BTreeMap<u64, Arc<Client>>,
    /// Those of them that have not authenticated, where that is needed.
    strangers: BTreeSet<u64>,
}

/// A connection among the open ones. It leaves them, and the copies that it reads end, however its task ends, also by a
/// panic: its place would be lost otherwise.
pub(super) struct ConnectionPlace {
    shared: Arc<Shared>,
    /// The connection.
    pub(super) client: Arc<Client>,
}

impl ConnectionPlace {
    /// A place for a connection from this address.
    pub(super) fn new(shared: &Arc<Shared>, from: String, connection: ConnectionHandle) -> Self {
        Self { shared: Arc::clone(shared), client: shared.clients.enter(from, connection) }
    }
}

impl Drop for ConnectionPlace {
    fn drop(&mut self) {
        self.shared.clients.leave(self.client.id);
        self.shared.chain_dumps.leave(self.client.id);
    }
}

/// One connection as others see it.
pub(super) struct Client {
    pub(super) id: u64,
    /// The client's address.
    pub(super) from: PeerAddress,
    connection: ConnectionHandle,
    since: Instant,
    /// Seconds from then to the last command.
    last_command_s: AtomicU64,
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
    /// Adds a connection, which counts as open until `leave`, and as a stranger's until `keep`.
    fn enter(&self, from: String, connection: ConnectionHandle) -> Arc<Client> {
        let from = from.into();
        let id = self.last.fetch_add(1, Ordering::Relaxed) + 1;
        let details = Mutex::new(Details { user: "default".to_owned(), ..Details::default() });
        let (since, last_command_s) = (Instant::now(), AtomicU64::default());
        let client = Arc::new(Client { id, from, connection, since, last_command_s, details });
        let mut table = locked(&self.table);
        table.strangers.insert(id);
        table.open.insert(id, Arc::clone(&client));
        client
    }

    fn leave(&self, id: u64) {
        let mut table = locked(&self.table);
        table.strangers.remove(&id);
        table.open.remove(&id);
    }

    /// Marks a connection as authenticated: it keeps its place also when others need one.
    pub(super) fn keep(&self, id: u64) {
        locked(&self.table).strangers.remove(&id);
    }

    /// Whether one more connection has a place. Where all are taken, the stranger that has been there longest is
    /// closed for it: otherwise whoever opens as many connections and sends nothing keeps all others out.
    pub(super) fn has_place(&self, count_max: usize) -> bool {
        let mut table = locked(&self.table);
        if table.open.len() < count_max {
            return true;
        }
        let Some(oldest) = table.strangers.pop_first() else { return false };
        if let Some(client) = table.open.get(&oldest) {
            client.connection.end();
        }
        true
    }

    /// The number of open connections.
    pub(super) fn count(&self) -> usize {
        locked(&self.table).open.len()
    }

    /// The number of connections since the start.
    pub(super) fn total(&self) -> u64 {
        self.last.load(Ordering::Relaxed)
    }

    /// The open connections, the oldest first.
    pub(super) fn all(&self) -> Vec<Arc<Client>> {
        locked(&self.table).open.values().cloned().collect()
    }

    /// The open connection of an id.
    pub(super) fn get(&self, id: u64) -> Option<Arc<Client>> {
        locked(&self.table).open.get(&id).cloned()
    }
}

impl Client {
    /// Changes the details of the connection.
    pub(super) fn change(&self, change: impl FnOnce(&mut Details)) {
        change(&mut locked(&self.details));
    }

    pub(super) fn details(&self) -> Details {
        locked(&self.details).clone()
    }

    /// Notes that a command has come.
    pub(super) fn note_command(&self) {
        self.last_command_s.store(self.since.elapsed().as_secs(), Ordering::Relaxed);
    }

    /// A line of `CLIENT LIST`. It has every field of Redis, in their order, by which some libraries read them; those
    /// of files, buffers and the last command, which are not known, have the values for nothing.
    pub(super) fn line(&self, own_address: &(String, u16)) -> String {
        let Details { name, library, version, database, protocol, user } = self.details();
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        let (host, port) = own_address;
        let age_s = self.since.elapsed().as_secs();
        format!(
            "id={} addr={} laddr={host}:{port} fd=-1 name={} age={age_s} idle={} flags=N db={database} sub=0 psub=0 \
             ssub=0 multi=-1 watch=0 qbuf=0 qbuf-free=0 argv-mem=0 multi-mem=0 rbs=0 rbp=0 obl=0 oll=0 omem=0 \
             tot-mem=0 events=r cmd=NULL user={user} redir=-1 resp={} lib-name={} lib-ver={}\n",
            self.id,
            self.from,
            text(&name),
            age_s.saturating_sub(self.last_command_s.load(Ordering::Relaxed)),
            match protocol {
                Protocol::Two => 2,
                Protocol::Three => 3,
            },
            text(&library),
            text(&version),
        )
    }
}

#[cfg(test)]
mod tests {
    use std::task::{Context, Waker};
    use std::time::Duration;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_client_is_idle_from_its_last_command_on() {
        let client = Clients::default().enter("from:1".to_owned(), ConnectionHandle::default());
        let line = || client.line(&("at".to_owned(), 2));
        tokio::time::advance(Duration::from_secs(70)).await;
        assert!(line().contains(" age=70 idle=70 "), "{}", line());
        client.note_command();
        tokio::time::advance(Duration::from_secs(5)).await;
        assert!(line().contains(" age=75 idle=5 "), "{}", line());
    }

    #[tokio::test]
    async fn the_oldest_stranger_gives_way_and_nobody_else() {
        let clients = Clients::default();
        let connections = [(); 4].map(|()| ConnectionHandle::default());
        let ids = connections.each_ref().map(|connection| {
            assert!(clients.has_place(4));
            clients.enter("client".to_owned(), connection.clone()).id
        });
        let ended = || {
            let context = Context::from_waker(Waker::noop());
            connections.each_ref().map(|connection| connection.poll_ended(&context).is_ready())
        };
        clients.keep(ids[0]);
        clients.leave(ids[2]);
        assert!(clients.has_place(4));
        assert_eq!(ended(), [false; 4]);
        assert!(clients.has_place(3));
        assert_eq!(ended(), [false, true, false, false]);
        assert!(clients.has_place(3));
        assert_eq!(ended(), [false, true, false, true]);
        // Only one that has authenticated is left, and those that are about to end.
        assert!(!clients.has_place(3));
    }
}
