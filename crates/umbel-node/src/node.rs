//! Life cycle of a node: start, run, shutdown.

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use thiserror::Error;
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::Instant;
use tonic::service::Routes;
use umbel_engine::{FilterId, Generation, NodeId};
use umbel_filter::AnyFilter;
use umbel_jobs::JobHost;
use umbel_ports::{Listener, PortFuture, Purpose, Rare, listen_advice};
use umbel_raft::peer::{LinkCloser, PeerService};
use umbel_raft::{GroupMemory, HostError, Witness};
use umbel_storage::identity::{self, Identity, IdentityError};
use umbel_storage::{LogOwner, OpenError, Storage, WalOptions, Wrapping};

use crate::client_interface::{ClientInterface, ServedNode};
use crate::config::{Config, ConfigError, join_address};
use crate::controller;
use crate::cube;
use crate::formation;
use crate::leader_calls::LeaderCalls;
use crate::local::Local;
use crate::local_copy::LocalCopy;
use crate::metrics;
use crate::node_failure::NodeFailure;
use crate::peer_admission::PeerAdmission;
use crate::ports::Ports;
use crate::ports::observer::{Event, GroupReport};
use crate::renewal::keep_certificate;
use crate::self_report::{self, SelfReport};

mod ledger;
mod scrub_turns;
mod tasks;
mod upkeep;

use self::tasks::Tasks;

/// How long a shutdown may take before connections are cut.
const STOP_TIMEOUT: Duration = Duration::from_secs(10);

/// Segments of a log that is as long as its limit, at least. Only whole segments are removed, and never the
/// newest one: with a segment as long as the limit, the log would grow to more than twice of it.
const SEGMENTS_PER_LOG: u64 = 4;

/// Bytes of a log segment where a simulation asks for small ones (`Rare::SmallSegments`).
const SHORT_SEGMENT_BYTES: u32 = 16 << 10;

/// Bytes of the log that are read at once where a simulation asks for few (`Rare::ShortReads`): some records, so that
/// pieces end within a record as well as between two.
const SHORT_READ_BYTES: u32 = 300;

/// Why a node did not start. The cluster is unchanged, unless the variant says otherwise.
#[derive(Debug, Error)]
pub enum StartError {
    /// A setting is invalid: correct the setting that the message names.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// The address cannot be bound: correct it, or stop the process that uses it.
    #[error("cannot listen on {address}{}", listen_advice(source))]
    Listen {
        /// The address.
        address: String,
        /// The operating system's error.
        #[source]
        source: std::io::Error,
    },
    /// The data folder cannot be used; the message names the file and says what to do.
    #[error("{0}")]
    Data(String),
    /// The data folder is not one for these settings: correct the setting that the message names.
    #[error("{0}")]
    Unfit(String),
    /// The node cannot be a member of the cluster; the message says what to do.
    #[error("{0}")]
    Membership(String),
    /// The cluster has removed the node: start it with an empty data folder to join again, or no more.
    #[error("{0}")]
    Removed(String),
    /// The cluster that the node is to found is formed, and the node has no data: start it with `join`, as the message says.
    #[error("{0}")]
    Founded(String),
}

impl StartError {
    /// Whether the settings are wrong, the data folder among them: the node will not start before they are corrected.
    /// Everything else may pass, or be mended elsewhere: on the disk, at other nodes, or by another release.
    #[must_use]
    pub const fn is_usage(&self) -> bool {
        match self {
            Self::Config(_) | Self::Unfit(_) | Self::Removed(_) | Self::Founded(_) => true,
            Self::Listen { .. } | Self::Data(_) | Self::Membership(_) => false,
        }
    }
}

/// A running node.
pub struct Node {
    address: String,
    resp_address: Option<String>,
    local: Arc<Local>,
    failure: watch::Receiver<Option<NodeFailure>>,
    stop: watch::Sender<bool>,
    links: LinkCloser,
    tasks: JoinSet<()>,
    server: tokio::task::JoinHandle<()>,
}

impl Node {
    /// Starts a node, whose clients are served by `clients`, and waits until it belongs to a cluster.
    ///
    /// # Errors
    /// If a setting is invalid, an address cannot be bound, the data folder cannot be used, or no
    /// cluster admits the node.
    pub fn start(
        config: Config,
        ports: Ports,
        clients: Box<dyn ClientInterface>,
    ) -> PortFuture<'static, Result<Self, StartError>> {
        // Boxed here, so that the whole node is compiled with this crate and not with each caller.
        Box::pin(Self::begin(config, ports, clients))
    }

    async fn begin(
        config: Config,
        ports: Ports,
        clients: Box<dyn ClientInterface>,
    ) -> Result<Self, StartError> {
        config.validate()?;
        metrics::describe();
        metrics::begin();
        // First, before the data folder is opened: if this address is only a default, the caller may
        // retry without it.
        let resp = match &config.resp_listen {
            Some(address) => Some(listen(&ports, address).await?),
            None => None,
        };
        let (identity, storage) = open_data(&config, &ports).await?;
        let listener = listen(&ports, &config.listen).await?;
        let address = config.advertise.clone().unwrap_or_else(|| listener.local_address());
        check_address(&config, &identity, &address)?;
        let founding = (formation::founders(&config, &address), (config.shards, config.replicas));

        let cell = Arc::new(OnceLock::new());
        let disk = Arc::clone(&ports.disk);
        let (witness, kept) = (Arc::<Witness>::default(), (disk, storage.clone()));
        let (known, versions) = (Arc::clone(&witness), ports.versions);
        let resp_address = resp.as_ref().map(|listener| listener.local_address());
        let said = resp_said(&config, resp_address.as_deref(), &address);
        let admission =
            PeerAdmission::new(Arc::clone(&cell), identity, kept, known, founding, versions, said);
        let admission = Arc::new(admission);
        let calls = Arc::new(LeaderCalls::new(Arc::clone(&cell), Arc::clone(&ports.seed)));
        let peers = PeerService::new(Arc::clone(&admission) as _);
        let links = peers.closer();
        let jobs = JobHost::new();
        let (stop, stopped) = watch::channel(false);
        let (failure, failed) = watch::channel(None);
        let served = ServedNode {
            config: config.clone(),
            address: address.clone(),
            listener,
            resp_listener: resp,
            calls: Arc::clone(&calls),
            routes: Routes::new(peers.into_server())
                .add_service(jobs.control_service())
                .add_service(jobs.exchange_service()),
            stopped,
            failure: failure.clone(),
        };
        let server = tokio::spawn(clients.serve(served));

        let mut starting = Starting { stop: Some(stop), links, server: Some(server) };
        let parts = (&config, &ports, address.as_str());
        let memory = GroupMemory { storage, witness };
        let local = become_part(parts, &admission, (&cell, &calls), memory, failure, jobs).await?;
        let mut tasks = Tasks::new(&local);
        let (host, running) = (Arc::clone(local.host()), Arc::clone(&local));
        tasks.spawn(umbel_raft::beat(host, running));
        tasks.spawn(upkeep::follow(Arc::clone(&local), Arc::clone(&calls)));
        let report = SelfReport::of(&config, ports.versions);
        tasks.spawn(self_report::propose_report(Arc::clone(&local), Arc::clone(&calls), report));
        tasks.spawn(controller::control(Arc::clone(&local), Arc::clone(&calls)));
        tasks.spawn(upkeep::watch(Arc::clone(&local)));
        tasks.spawn(upkeep::care(Arc::clone(&local)));
        tasks.spawn(upkeep::save_copies(Arc::clone(&local)));
        tasks.spawn(upkeep::tidy_slices(Arc::clone(&local)));
        tasks.spawn(keep_certificate(Arc::clone(&local)));
        tasks.spawn(upkeep::follow_catalogue(Arc::clone(&local)));
        tasks.spawn(ledger::follow_ledger(Arc::clone(&local), Arc::clone(&calls)));
        tasks.spawn(cube::exchange(Arc::clone(local.copies()), local.sweep_interval()));
        tasks.spawn(cube::take_turns(Arc::clone(local.copies()), local.scrub_interval()));
        tasks.spawn(scrub_turns::take_turns(Arc::clone(&local), local.scrub_interval()));
        tasks.spawn(formation::await_cluster(Arc::clone(&calls), &config, &ports, &address));
        formation::complete(&admission, (&local, calls.awaited()), &config, &ports, &address)
            .await
            .map_err(StartError::Membership)?;
        let (stop, links, server) = starting.done();
        let tasks = tasks.into_set();
        Ok(Self { address, resp_address, local, failure: failed, stop, links, tasks, server })
    }

    /// The node as a member of its cluster, for tests of what is above it.
    #[cfg(any(test, feature = "testing"))]
    #[must_use]
    pub fn local(&self) -> &Arc<Local> {
        &self.local
    }

    /// The address at which other nodes reach this node, with the port that was chosen.
    #[must_use]
    pub fn address(&self) -> &str {
        &self.address
    }

    /// The address at which the node serves the Redis protocol, with the port that was chosen; None if
    /// it does not.
    #[must_use]
    pub fn resp_address(&self) -> Option<&str> {
        self.resp_address.as_deref()
    }

    /// The node's number in the cluster.
    #[must_use]
    pub fn id(&self) -> NodeId {
        self.local.node()
    }

    /// The cluster's identity.
    #[must_use]
    pub fn cluster(&self) -> u128 {
        self.local.cluster()
    }

    /// Waits until the node has failed: its storage failed, or the cluster removed it.
    ///
    /// # Errors
    /// Always returns an error: the reason.
    pub async fn stopped(&self) -> Result<(), NodeFailure> {
        let mut failure = self.failure.clone();
        let ended = || NodeFailure::Failed("the node's tasks ended".to_owned());
        match failure.wait_for(Option::is_some).await {
            Ok(failure) => Err(failure.clone().unwrap_or_else(ended)),
            Err(_) => Err(ended()),
        }
    }

    /// Reports of the groups that run on this node, the meta group first.
    #[must_use]
    pub fn groups(&self) -> Vec<GroupReport> {
        self.local.groups().iter().map(|group| group.report()).collect()
    }

    /// This node's copy of a replicated filter, if it has one.
    #[must_use]
    pub fn local_copy(&self, filter: FilterId) -> Option<LocalCopy> {
        self.local.copies().get(filter).map(LocalCopy::new)
    }

    /// Generation and bits of this node's copy of a replicated filter, if it has one.
    #[must_use]
    pub fn copy(&self, filter: FilterId) -> Option<(Generation, AnyFilter)> {
        self.local.copies().bits(filter)
    }

    /// Starts to transfer every leadership that this node holds to another voter, without waiting for
    /// the outcome.
    pub async fn hand_over(&self) {
        for group in self.local.groups() {
            group.hand_over().await;
        }
    }

    /// Hands leadership over, answers the requests in flight, and stops.
    pub fn shutdown(self) -> PortFuture<'static, ()> {
        Box::pin(self.end())
    }

    async fn end(mut self) {
        if self.failure.borrow().is_none() {
            if self.local.read_meta(|state| state.live_nodes().len()) > 1 {
                tracing::info!("asked to stop: what this node leads is handed over");
            } else {
                tracing::info!(
                    "asked to stop: its cluster has no other node, and answers again once this one is started"
                );
            }
        }
        self.tasks.shutdown().await;
        let deadline = Instant::now() + STOP_TIMEOUT;
        // What does not finish in time is cut; it has not been acknowledged.
        let _ = tokio::time::timeout_at(deadline, self.local.shut_down()).await;
        self.links.close();
        self.stop.send_replace(true);
        if tokio::time::timeout_at(deadline, &mut self.server).await.is_err() {
            self.server.abort();
        }
    }
}

async fn listen(ports: &Ports, address: &str) -> Result<Box<dyn Listener>, StartError> {
    let failed = |source| StartError::Listen { address: address.to_owned(), source };
    ports.net.listen(address).await.map_err(failed)
}

/// What a node says of where clients reach its port of the Redis protocol, which listens at `local`.
fn resp_said(config: &Config, local: Option<&str>, advertised: &str) -> String {
    let reached = local.map(|local| config.resp_reached_at(local, advertised));
    reached.map(|(host, port)| join_address(&host, port)).unwrap_or_default()
}

/// Stops the server again if the start fails half way.
struct Starting {
    stop: Option<watch::Sender<bool>>,
    links: LinkCloser,
    server: Option<tokio::task::JoinHandle<()>>,
}

impl Starting {
    fn done(&mut self) -> (watch::Sender<bool>, LinkCloser, tokio::task::JoinHandle<()>) {
        let stop = self.stop.take().expect("the start ends once");
        let server = self.server.take().expect("the start ends once");
        (stop, self.links.clone(), server)
    }
}

impl Drop for Starting {
    fn drop(&mut self) {
        if let Some(server) = self.server.take() {
            self.links.close();
            server.abort();
        }
    }
}

/// Loads the identity and opens the log; creates both if the data folder is empty.
pub(crate) async fn open_data(
    config: &Config,
    ports: &Ports,
) -> Result<(Identity, Storage), StartError> {
    let failed = |error: &dyn std::fmt::Display, is_damage: bool| {
        let what = format!("{}: {error}", config.data);
        if let Some(observer) = &ports.observer
            && is_damage
        {
            observer.observe(&Event::DamageFound { what: &what });
        }
        StartError::Data(what)
    };
    let data = |error: IdentityError| failed(&error, !matches!(error, IdentityError::Io(_)));
    let open = |error: OpenError| {
        if error.is_usage() {
            StartError::Unfit(format!("{}: {error}", config.data))
        } else {
            failed(&error, error.is_damage())
        }
    };
    let known = identity::load(&*ports.disk).await.map_err(data)?;
    let owner = known.as_ref().map_or_else(
        || LogOwner::New { nonce: ports.seed.number(Purpose::Identity) },
        Identity::log_owner,
    );
    let mut options = WalOptions { sync: config.fsync, ..WalOptions::new(owner) };
    options.segment_bytes_max =
        options.segment_bytes_max.min(segment_bytes_max(config.log_bytes_max));
    if ports.seed.provokes(Rare::SmallSegments) {
        options.segment_bytes_max = SHORT_SEGMENT_BYTES;
    }
    if ports.seed.provokes(Rare::ShortReads) {
        options.read_bytes_max = SHORT_READ_BYTES;
    }
    let wrapping = ports.wrapping.clone();
    let wrapping = wrapping.map(|key| Arc::new(Wrapping::new(key, Arc::clone(&ports.seed))));
    let opened = Storage::open_wrapped(Arc::clone(&ports.disk), options, wrapping).await;
    let (storage, recovered) = opened.map_err(open)?;
    if recovered.cut_byte_count > 0 {
        tracing::warn!(bytes = recovered.cut_byte_count, "the log's torn end was cut off");
    }
    let identity = match known {
        Some(identity) => identity,
        None => {
            let identity = Identity::new(recovered.nonce);
            identity::save(&*ports.disk, &identity).await.map_err(data)?;
            identity
        }
    };
    Ok((identity, storage.observed_by(ports.observer.clone())))
}

/// The longest segment of a log with this limit.
fn segment_bytes_max(log_bytes_max: u64) -> u32 {
    u32::try_from(log_bytes_max / SEGMENTS_PER_LOG).unwrap_or(u32::MAX)
}

/// Checks that a member's data folder belongs to the address under which the other nodes know the
/// member. A folder at another address is most likely another node's: with it, this node would vote as
/// that node, without having made its promises.
fn check_address(config: &Config, identity: &Identity, address: &str) -> Result<(), StartError> {
    let (Some(node), Some(_)) = (identity.node, identity.cluster) else { return Ok(()) };
    if config.dev || identity.address == address {
        return Ok(());
    }
    Err(StartError::Unfit(format!(
        "{}: the folder belongs to {node} at {}, but this node is at {address}: name the node's own \
         folder; or, if it moved to this address, run `umbel cluster remove {}` on another node and \
         let it join again with an empty folder",
        config.data, identity.address, node.0
    )))
}

/// Waits until the node is a member of a cluster, then starts its groups and services.
async fn become_part(
    (config, ports, address): (&Config, &Ports, &str),
    admission: &PeerAdmission,
    (cell, calls): (&OnceLock<Arc<Local>>, &LeaderCalls),
    memory: GroupMemory,
    failure: watch::Sender<Option<NodeFailure>>,
    jobs: Arc<JobHost>,
) -> Result<Arc<Local>, StartError> {
    let member = formation::membership(admission, calls.awaited(), config, ports, address).await?;
    let founders = (1..).map(NodeId).zip(formation::founders(config, address)).collect();
    let local = Local::start(member, config.clone(), ports, memory, failure, jobs, founders)
        .await
        .map_err(|error| match error {
            HostError::Removed(why) => StartError::Removed(why),
            HostError::Failed(why) => StartError::Data(why),
        })?;
    if cell.set(Arc::clone(&local)).is_err() {
        unreachable!("a node becomes a member once");
    }
    Ok(local)
}
