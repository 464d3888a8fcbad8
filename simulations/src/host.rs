//! A simulated machine: its disk, its network, and the node on it, running or not.

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::time::Duration;

use tokio::sync::mpsc;
use umbel_engine::meta::VersionRange;
use umbel_gateway::client_interface;
use umbel_node::ports::Ports;
use umbel_node::{Config, Node, StartError};
use umbel_ports::Rare;

use crate::certificate::Certificate;
use crate::disk::SimDisk;
use crate::identity::{Papers, keep_certificate};
use crate::jobs::{HostJobs, PlannedJobs, SimWorkshops};
use crate::names::{PORT, RESP_PORT, address_of, host_name};
use crate::net::SimNet;
use crate::now::now_us;
use crate::plan::WorldShape;
use crate::plan::identity::IdentityPlan;
use crate::seed::SimSeed;
use crate::trace;
use crate::watch::{self, SimObserver};

/// Commands to a host from outside.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Order {
    /// Stop as after a signal, then exit.
    Stop,
    /// Write snapshots of all groups.
    SnapshotGroups,
    /// Hand over all leaderships.
    HandOver,
    /// The clock jumps forward.
    Leap(Duration),
}

/// State of a host's node.
pub(crate) enum Condition {
    /// No node runs: it was killed, or stopped on command.
    Down,
    /// The node starts.
    Starting,
    /// The node runs.
    Up(Rc<Node>),
    /// The node stopped by itself or failed to start; with the reason.
    Failed(Failure),
}

/// Why a node does not run.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Failure {
    /// The data on its disk is damaged, or belongs to another node.
    Data(String),
    /// The cluster rejects the node.
    Membership(String),
    /// The node ran, and its storage failed or its server stopped; or its disk failed at the start. The
    /// next start may succeed.
    Stopped(String),
}

impl Failure {
    /// The node that the cluster lists at the address of a rejected node, if the error names it. A
    /// crash in the middle of joining left that entry, and only an operator who reads it can remove it.
    pub(crate) fn listed(&self) -> Option<u64> {
        let Self::Membership(text) = self else { return None };
        let (before, _) = text.split_once(" listens on ")?;
        before.rsplit_once("node ")?.1.parse().ok()
    }
}

/// A machine.
pub(crate) struct Host {
    pub(crate) number: u32,
    pub(crate) name: String,
    pub(crate) disk: SimDisk,
    pub(crate) net: SimNet,
    /// Its certificates, in a world with some.
    pub(crate) papers: Option<Arc<Papers>>,
    /// What the machine holds of jobs.
    pub(crate) jobs: HostJobs,
    planned_jobs: Arc<PlannedJobs>,
    pub(crate) condition: RefCell<Condition>,
    pub(crate) wall_offset_ms: Arc<AtomicI64>,
    /// The node id that the cluster assigned to the machine's present identity, once known.
    pub(crate) node_id: Cell<Option<u64>>,
    /// Whether the disk was wiped and the machine has not become a new node yet.
    pub(crate) is_lost: Cell<bool>,
    /// Number of damages that its nodes found on its disk.
    pub(crate) damage_count: Arc<AtomicU64>,
    /// The zone that its nodes report, if it has one.
    pub(crate) zone: Cell<Option<u32>>,
    /// The node through which it joins; `None` for founders.
    pub(crate) join: RefCell<Option<String>>,
    founders: Vec<String>,
    shape: WorldShape,
    seed: u64,
    provoked: Vec<Rare>,
    incarnation: Cell<u32>,
    /// Whether its nodes run the previous release.
    is_earlier_release: Cell<bool>,
    /// When its node was last started, in simulated microseconds.
    started_us: Cell<u64>,
    orders: RefCell<Option<mpsc::UnboundedSender<Order>>>,
}

impl Host {
    /// A machine with an empty disk.
    pub(crate) fn new(
        number: u32,
        founders: &[String],
        shape: WorldShape,
        seed: u64,
        provoked: Vec<Rare>,
        planned_jobs: Arc<PlannedJobs>,
        identities: Option<&IdentityPlan>,
    ) -> Rc<Self> {
        let name = host_name(number);
        let skew_ms = identities.and_then(|plan| plan.skews_ms.get(number as usize - 1));
        let wall_offset_ms = Arc::new(AtomicI64::new(skew_ms.copied().unwrap_or(0)));
        let papers = identities.map(|plan| {
            let clock = Arc::clone(&wall_offset_ms);
            Papers::new(number, Some(Certificate::generic()), plan.life_ms, clock)
        });
        Rc::new(Self {
            number,
            disk: SimDisk::new(disk_seed(seed, number)),
            net: SimNet::new(seed, number).proving(papers.clone()),
            papers,
            jobs: HostJobs::default(),
            planned_jobs,
            condition: RefCell::new(Condition::Down),
            wall_offset_ms,
            node_id: Cell::new(None),
            is_lost: Cell::new(false),
            damage_count: Arc::default(),
            zone: Cell::new(None),
            join: RefCell::default(),
            founders: founders.to_vec(),
            shape,
            seed,
            provoked,
            incarnation: Cell::new(0),
            is_earlier_release: Cell::new(shape.earlier_release && number <= shape.nodes),
            started_us: Cell::new(0),
            orders: RefCell::default(),
            name,
        })
    }

    /// The address at which other hosts reach it.
    pub(crate) fn address(&self) -> String {
        address_of(self.number)
    }

    /// The node, if it runs.
    pub(crate) fn node(&self) -> Option<Rc<Node>> {
        match &*self.condition.borrow() {
            Condition::Up(node) => Some(Rc::clone(node)),
            _ => None,
        }
    }

    pub(crate) fn is_up(&self) -> bool {
        matches!(*self.condition.borrow(), Condition::Up(_))
    }

    /// Why its node does not run, if it stopped by itself.
    pub(crate) fn failure(&self) -> Option<Failure> {
        match &*self.condition.borrow() {
            Condition::Failed(failure) => Some(failure.clone()),
            _ => None,
        }
    }

    /// Sends the node a command; without a running node the command is dropped.
    pub(crate) fn order(&self, order: Order) {
        if let Some(orders) = &*self.orders.borrow() {
            // The node may have stopped in this very tick.
            let _ = orders.send(order);
        }
    }

    /// Called when the machine was killed: drops everything that the world still holds of the node.
    pub(crate) fn killed(&self) {
        self.orders.replace(None);
        self.condition.replace(Condition::Down);
        self.disk.crash();
    }

    /// Gives the machine an empty disk and makes it join the cluster through another node.
    pub(crate) fn become_new(&self, join: String) {
        self.disk.wipe();
        // The cluster may be at a version that the earlier release cannot run.
        self.upgrade();
        self.node_id.set(None);
        self.is_lost.set(false);
        self.join.replace(Some(join));
        if let Some(papers) = &self.papers {
            papers.mend();
            papers.show(Some(Certificate::generic()));
        }
    }

    /// From now on its nodes run this release.
    pub(crate) fn upgrade(&self) {
        self.is_earlier_release.set(false);
    }

    /// Called when a node with a wiped disk runs. If it has joined, it became a new node without an
    /// operator's help, because the cluster did not know its machine, or no longer.
    fn joined_by_itself(&self) {
        if self.join.borrow().is_none() || !self.is_lost.replace(false) {
            return;
        }
        if self.node_id.get().is_some() {
            watch::with(|checks| checks.generations.lost(now_us(), self.number));
        }
    }

    /// The node through which it joins, if its own node started before `before_us` (simulated
    /// microseconds) and has no node id yet.
    pub(crate) fn joins_through(&self, before_us: u64) -> Option<String> {
        let is_starting = matches!(*self.condition.borrow(), Condition::Starting);
        let is_nobody = self.is_lost.get() || self.node_id.get().is_none();
        let waits = is_starting && is_nobody && self.started_us.get() < before_us;
        self.join.borrow().clone().filter(|_| waits)
    }

    fn config(&self) -> Config {
        let join = self.join.borrow().clone();
        let is_required = self.papers.as_ref().is_some_and(|papers| papers.is_required());
        // The files are never opened: the simulated network does not use them.
        let of_tls = || is_required.then(|| "simulated".to_owned());
        let initial_cluster = if join.is_some() { Vec::new() } else { self.founders.clone() };
        Config {
            listen: format!("0.0.0.0:{PORT}"),
            advertise: Some(self.address()),
            // Only where clients use it, so that runs of other plans stay what they were.
            resp_listen: (self.shape.resp_from > 0).then(|| format!("0.0.0.0:{RESP_PORT}")),
            data: self.name.clone(),
            initial_cluster,
            join,
            shards: self.shape.shards,
            replicas: self.shape.replicas,
            cores: self.shape.cores,
            zone: self.zone.get().map(|zone| format!("z{zone}")),
            // Five times as fast as the default, so that more happens in a simulated second.
            heartbeat_ms: 20,
            suspect_ms: 100,
            insecure: true,
            require_node_identity: is_required,
            tls_cert: of_tls(),
            tls_key: of_tls(),
            tls_ca: of_tls(),
            scrub_interval_s: self.shape.scrub_s.into(),
            ..Config::default()
        }
    }

    fn ports(&self) -> Ports {
        let incarnation = self.incarnation.get();
        let host = self.name.clone();
        let damage_count = Arc::clone(&self.damage_count);
        // A founder with a wiped disk may briefly found a cluster of its own, with a node id that means
        // another node in this one. A joining node gets its id from this cluster, whatever happened to
        // its disk before.
        let is_lost = self.is_lost.get() && self.join.borrow().is_none();
        let observer = SimObserver { host, incarnation, is_lost, damage_count };
        Ports {
            net: Arc::new(self.net.clone()),
            disk: self.disk.mount(),
            seed: Arc::new(SimSeed::new(
                self.seed,
                &self.name,
                incarnation,
                self.provoked.clone(),
                Arc::clone(&self.wall_offset_ms),
            )),
            observer: Some(Arc::new(observer)),
            workshops: Some(Arc::new(SimWorkshops {
                machine: self.number,
                jobs: self.jobs.clone(),
                disk: self.disk.clone(),
                planned: Arc::clone(&self.planned_jobs),
            })),
            wrapping: None,
            versions: if self.is_earlier_release.get() {
                VersionRange::FIRST
            } else {
                VersionRange::OWN
            },
        }
    }

    /// The machine's main task, from its start to its end.
    pub(crate) async fn run(self: Rc<Self>) {
        self.incarnation.set(self.incarnation.get() + 1);
        trace::line(now_us(), &self.name, "start", format_args!("{}", self.incarnation.get()));
        watch::with(|checks| checks.rights.started(now_us(), self.number));
        let (sender, mut orders) = mpsc::unbounded_channel();
        self.orders.replace(Some(sender));
        self.started_us.set(now_us());
        self.condition.replace(Condition::Starting);
        let damage_before = self.damage_count.load(Ordering::Relaxed);
        let Some(started) = self.start(&mut orders).await else {
            self.condition.replace(Condition::Down);
            return;
        };
        let node = match started {
            Ok(node) => Rc::new(node),
            Err(error) => {
                let is_damaged = self.damage_count.load(Ordering::Relaxed) > damage_before;
                return self.fail(failure_of(error, is_damaged));
            }
        };
        self.joined_by_itself();
        self.node_id.set(Some(node.id().0));
        trace::line(now_us(), &self.name, "up", format_args!("{}", node.id()));
        self.condition.replace(Condition::Up(Rc::clone(&node)));
        let mut tasks = tokio::task::JoinSet::new();
        if let Some(papers) = self.papers.clone() {
            let own = self.address();
            let others = self.founders.iter().filter(|&address| *address != own).cloned();
            let keeping = keep_certificate(self.net.clone(), papers, others.collect());
            tasks.spawn_local(keeping);
        }
        let failure = loop {
            tokio::select! {
                biased;
                stopped = node.stopped() => break stopped.err(),
                order = orders.recv() => match order {
                    None | Some(Order::Stop) => break None,
                    Some(Order::Leap(by)) => tokio::time::advance(by).await,
                    Some(order) => {
                        let node = Rc::clone(&node);
                        tasks.spawn_local(async move {
                            match order {
                                Order::SnapshotGroups => {
                                    node.snapshot_groups().await;
                                }
                                _ => node.hand_over().await,
                            }
                        });
                    }
                },
            }
        };
        self.condition.replace(Condition::Down);
        tasks.shutdown().await;
        let node = Rc::into_inner(node).expect("the world holds a node for a moment only");
        node.shutdown().await;
        trace::line(now_us(), &self.name, "down", format_args!("{failure:?}"));
        if let Some(failure) = failure {
            crate::counters::state("storage_failed");
            // Shards start after the node itself runs.
            let is_damaged = self.damage_count.load(Ordering::Relaxed) > damage_before;
            let text = failure.to_string();
            self.fail(if is_damaged { Failure::Data(text) } else { Failure::Stopped(text) });
        }
    }

    /// Starts the node; `None` if it was told to stop in the meantime.
    async fn start(
        &self,
        orders: &mut mpsc::UnboundedReceiver<Order>,
    ) -> Option<Result<Node, StartError>> {
        let starting = Node::start(self.config(), self.ports(), client_interface(None));
        let mut starting = std::pin::pin!(starting);
        loop {
            tokio::select! {
                biased;
                started = &mut starting => return Some(started),
                order = orders.recv() => match order {
                    None | Some(Order::Stop) => return None,
                    Some(Order::Leap(by)) => tokio::time::advance(by).await,
                    // The node is not up yet, so there is nothing to do.
                    Some(Order::SnapshotGroups | Order::HandOver) => {}
                },
            }
        }
    }

    fn fail(&self, failure: Failure) {
        trace::line(now_us(), &self.name, "failed", format_args!("{failure:?}"));
        self.condition.replace(Condition::Failed(failure));
    }

    /// Shifts the wall clock.
    pub(crate) fn set_wall_offset_ms(&self, offset_ms: i64) {
        self.wall_offset_ms.store(offset_ms, Ordering::Relaxed);
    }
}

fn disk_seed(seed: u64, number: u32) -> u64 {
    seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ u64::from(number) << 32
}

fn failure_of(error: StartError, is_damaged: bool) -> Failure {
    match error {
        StartError::Data(text) if is_damaged => Failure::Data(text),
        StartError::Membership(text) | StartError::Founded(text) => Failure::Membership(text),
        error => Failure::Stopped(error.to_string()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refusal_names_the_node_that_is_in_the_way() {
        let text =
            "n2:7300 refuses this node: node 143 listens on n1:7300 already; if its data is gone";
        assert_eq!(Failure::Membership(text.to_owned()).listed(), Some(143));
        assert_eq!(Failure::Membership("no founder answers".to_owned()).listed(), None);
        assert_eq!(Failure::Stopped(text.to_owned()).listed(), None);
    }
}
