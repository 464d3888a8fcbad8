//! A world: hosts, links, clients and their time.

use std::collections::BTreeMap;
use std::ops::RangeInclusive;
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use umbel_ports::Rare;

use crate::access::{self, Clerk};
use crate::host::{Condition, Host, Order};
use crate::job_users::Users;
use crate::jobs::PlannedJobs;
use crate::links::{CLIENTS, CLIENTS_HOST, Links};
use crate::names::address_of;
use crate::net::{SimNet, address_of_number};
use crate::now::{now_us, set_now_us};
use crate::operator::{Operation, Operator};
use crate::plan::{LossMode, Plan, Who};
use crate::trace;
use crate::watch;
use crate::workload::Clients;

mod certificates;
pub(crate) mod copies;
mod cuts;
mod leaders;
mod machines;
mod supervision;

use certificates::{Certifying, clients_net, identities_of};

/// One step of simulated time.
const TICK: Duration = Duration::from_millis(1);

/// Minimum and maximum latency of a message on a healthy link.
const LATENCY: [Duration; 2] = [Duration::from_millis(1), Duration::from_millis(8)];

/// Segments that a host's sockets buffer. turmoil panics when they hold more, where TCP would apply
/// backpressure.
const SEGMENTS_MAX: usize = 1 << 16;

/// Interval at which groups and hosts are inspected.
const LOOK_INTERVAL_US: u64 = 50_000;

/// Interval at which copies of replicated filters are compared with the attempted inserts.
const COPIES_INTERVAL_US: u64 = 5_000_000;

/// Maximum time in which a cluster must form and create its filters, without faults.
const SETUP_MAX_US: u64 = 60_000_000;

/// Longest run: a longer one counts as a hang.
const SIMULATED_MAX: Duration = Duration::from_secs(3600);

/// Everything that exists in a run.
pub(crate) struct World {
    sim: turmoil::Sim<'static>,
    pub(crate) plan: Rc<Plan>,
    pub(crate) hosts: Vec<Rc<Host>>,
    /// The plan's jobs, and what they have added to filters.
    pub(crate) jobs: Arc<PlannedJobs>,
    pub(crate) clients: Rc<Clients>,
    pub(crate) users: Rc<Users>,
    /// The clerk, which changes principals, in a plan that has some.
    pub(crate) clerk: Option<Rc<Clerk>>,
    /// Whether all requests of the plan's principals were made.
    pub(crate) asking: Rc<std::cell::Cell<bool>>,
    /// The network of the clients' host.
    pub(crate) clients_net: SimNet,
    pub(crate) operator: Operator,
    links: Links,
    rare: Vec<Rare>,
    /// Addresses of the first nodes.
    pub(crate) founders: Vec<String>,
    next_look_us: u64,
    next_copies_us: u64,
    /// Nodes whose disk is lost, and the operation by which the operator retires each.
    retiring: BTreeMap<u32, Operation>,
    /// When failed nodes are restarted.
    restarts: BTreeMap<u32, u64>,
    /// Nodes that must not be changed, because a fault is still active.
    pub(crate) reserved: BTreeMap<u32, u32>,
    /// Progress of the world's certificates.
    certifying: Certifying,
    /// Tasks of the clients' host.
    tasks: tokio::sync::mpsc::UnboundedSender<std::pin::Pin<Box<dyn Future<Output = ()>>>>,
}

/// Ports of connections that a host opens. A connection to a node that is cut off keeps its port, so there are
/// more than usual; hosts listen below.
const PORTS: RangeInclusive<u16> = 10_000..=u16::MAX;

impl World {
    /// The hosts and clients of a plan; no time has passed yet.
    pub(crate) fn build(plan: &Plan) -> Self {
        let mut builder = turmoil::Builder::new();
        builder
            .epoch(SystemTime::UNIX_EPOCH + Duration::from_secs(1_767_225_600))
            .simulation_duration(SIMULATED_MAX)
            .tick_duration(TICK)
            .min_message_latency(LATENCY[0])
            .max_message_latency(LATENCY[1])
            .tcp_capacity(SEGMENTS_MAX)
            .ephemeral_ports(PORTS)
            .rng_seed(plan.seed)
            .enable_random_order();
        let mut sim = builder.build();
        let plan = Rc::new(plan.clone());
        // A client is made for some address, although without nodes it has no calls to make.
        let founders: Vec<String> = (1..=plan.world.nodes.max(1)).map(address_of).collect();
        let clients_net = clients_net(&plan);
        let token = access::root_token(plan.access.as_ref());
        let net = || clients_net.clone();
        let clients = Clients::new(net(), founders.clone(), &plan, token.clone());
        let users = Users::new(net(), founders.clone(), token.clone(), plan.jobs.len());
        let (operator, working) = Operator::new(net(), founders.clone(), token);
        let clerk = plan.access.as_ref().map(|_| Clerk::new(net(), founders.clone()));
        let (tasks, mut waiting) =
            tokio::sync::mpsc::unbounded_channel::<std::pin::Pin<Box<dyn Future<Output = ()>>>>();
        assert_eq!(sim.lookup(CLIENTS_HOST), address_of_number(CLIENTS));
        sim.client(CLIENTS_HOST, async move {
            tokio::task::spawn_local(working);
            while let Some(task) = waiting.recv().await {
                tokio::task::spawn_local(task);
            }
            Ok(())
        });
        let rare = Rare::ALL.iter().filter(|(_, name)| plan.provoked.iter().any(|p| p == name));
        let rare: Vec<Rare> = rare.map(|(rare, _)| *rare).collect();
        if rare.contains(&Rare::OldMap) {
            watch::with(|checks| checks.generations.expect_old_maps());
        }
        let mut world = Self {
            sim,
            hosts: Vec::new(),
            jobs: PlannedJobs::new(plan.jobs.clone()),
            clients,
            users,
            clerk,
            asking: Rc::default(),
            clients_net,
            operator,
            links: Links::default(),
            rare,
            founders,
            next_look_us: 0,
            next_copies_us: 0,
            retiring: BTreeMap::new(),
            restarts: BTreeMap::new(),
            reserved: BTreeMap::new(),
            certifying: Certifying::default(),
            tasks,
            plan,
        };
        for number in 1..=world.plan.world.nodes {
            world.add_host(number, None);
        }
        world
    }

    /// Adds a machine and starts its node.
    fn add_host(&mut self, number: u32, join: Option<String>) {
        let Plan { world: shape, seed, .. } = *self.plan;
        let jobs = Arc::clone(&self.jobs);
        // If shards are split, half of the machines learn of it at once and half later, so that their
        // shard maps differ.
        let is_late = number % 2 == 1 || !self.plan.splits_shards();
        let is_made = |rare: &Rare| is_late || *rare != Rare::OldMap;
        let rare = self.rare.iter().copied().filter(is_made).collect();
        let identities = identities_of(&self.plan);
        let host = Host::new(number, &self.founders, shape, seed, rare, jobs, identities);
        host.join.replace(join);
        host.zone.set(self.plan.zone(number));
        let program = Rc::clone(&host);
        self.run_on(number, move || {
            let program = Rc::clone(&program);
            async move {
                program.run().await;
                Ok(())
            }
        });
        self.hosts.push(host);
    }

    /// Waits until the cluster has formed, and creates the filters; false if an invariant was violated.
    ///
    /// # Errors
    /// If a host's task panicked.
    pub(crate) fn set_up(&mut self) -> Result<bool, String> {
        let clients = Rc::clone(&self.clients);
        let clerk = self.clerk.clone();
        let holding = self.plan.access.as_ref().and_then(|access| access.holding.as_ref());
        let holders = holding.map_or(0, |holding| holding.holders);
        let is_proving = identities_of(&self.plan).is_some();
        let done = self.spawn(async move {
            if let Some(clerk) = clerk {
                clerk.set_up(holders, is_proving).await;
            }
            clients.create_filters().await;
        });
        while !done.get() {
            self.step()?;
            if self.is_violated() {
                return Ok(false);
            }
            if now_us() > SETUP_MAX_US {
                let seconds = SETUP_MAX_US / 1_000_000;
                let what =
                    format!("no cluster with its filters within {seconds} s, without a fault");
                watch::violated("heals_and_serves", what);
                return Ok(false);
            }
        }
        self.certify()
    }

    /// Runs a task on the clients' host; the cell tells when it is done.
    pub(crate) fn spawn(
        &self,
        task: impl Future<Output = ()> + 'static,
    ) -> Rc<std::cell::Cell<bool>> {
        let done = Rc::new(std::cell::Cell::new(false));
        let flag = Rc::clone(&done);
        let task = Box::pin(async move {
            task.await;
            flag.set(true);
        });
        assert!(self.tasks.send(task).is_ok(), "the clients' host runs as long as the world");
        done
    }

    /// Whether nodes make this rare choice.
    pub(crate) fn provokes(&self, rare: Rare) -> bool {
        self.rare.contains(&rare)
    }

    pub(crate) fn is_violated(&self) -> bool {
        watch::with(|checks| !checks.violations.is_empty())
    }

    /// Advances the whole world by one tick.
    ///
    /// # Errors
    /// If a host's task panicked.
    pub(crate) fn step(&mut self) -> Result<(), String> {
        self.sim.step().map_err(|error| error.to_string())?;
        set_now_us(u64::try_from(self.sim.elapsed().as_micros()).expect("runs end in time"));
        if now_us() >= self.next_look_us {
            self.next_look_us = now_us() + LOOK_INTERVAL_US;
            self.look();
        }
        if now_us() >= self.next_copies_us {
            self.next_copies_us = now_us() + COPIES_INTERVAL_US;
            copies::look(&self.hosts, &self.clients.calls());
        }
        Ok(())
    }

    /// Adds a new machine that joins through another one.
    pub(crate) fn join(&mut self, via: u32) {
        let number = u32::try_from(self.hosts.len()).expect("a few hosts") + 1;
        self.add_host(number, Some(address_of(via)));
    }

    pub(crate) fn host(&self, number: u32) -> &Rc<Host> {
        &self.hosts[number as usize - 1]
    }

    /// Kills a node, as `kill -9` does.
    pub(crate) fn kill(&mut self, number: u32) {
        let name = self.host(number).name.clone();
        trace::line(now_us(), &name, "kill", format_args!(""));
        self.host(number).killed();
        self.crash(number);
        self.restarts.remove(&number);
    }

    /// Kills a node and cuts its disk's power.
    pub(crate) fn power_loss(&mut self, number: u32, mode: LossMode) -> bool {
        self.kill(number);
        let loss = self.host(number).disk.power_loss(mode);
        let name = &self.host(number).name;
        trace::line(now_us(), name, "power_loss", format_args!("{loss:?}"));
        loss.lost_bytes + loss.lost_names > 0
    }

    /// Starts a node that does not run.
    pub(crate) fn start(&mut self, number: u32) {
        let host = Rc::clone(self.host(number));
        if matches!(*host.condition.borrow(), Condition::Up(_) | Condition::Starting) {
            return;
        }
        host.killed();
        self.bounce(number);
    }

    pub(crate) fn order(&self, number: u32, order: Order) {
        self.host(number).order(order);
    }

    /// The nodes that a fault selector matches now; none if there is no such node.
    pub(crate) fn resolve(&self, who: Who) -> Vec<u32> {
        let reports = |host: &Host| host.node().map(|node| node.groups()).unwrap_or_default();
        let leads = |host: &Host, shard: Option<u32>| {
            reports(host).iter().any(|report| {
                report.is_leader && report.group.shard().map(|shard| shard.0) == shard
            })
        };
        let has = |host: &Host, shard: u32| {
            reports(host)
                .iter()
                .any(|report| report.group.shard().is_some_and(|own| own.0 == shard))
        };
        let first = |is_met: &dyn Fn(&Host) -> bool| {
            let met = self.hosts.iter().find(|host| is_met(host));
            met.map(|host| host.number).into_iter().collect()
        };
        match who {
            Who::All => self.hosts.iter().map(|host| host.number).collect(),
            Who::Node(number) => first(&|host| host.number == number),
            Who::Leader(shard) => first(&|host| leads(host, Some(shard))),
            Who::MetaLeader => first(&|host| leads(host, None)),
            Who::Follower(shard) => first(&|host| has(host, shard) && !leads(host, Some(shard))),
        }
    }
}
