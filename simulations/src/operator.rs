//! Whoever runs the cluster: retires nodes that are lost, moves replicas.

use std::cell::RefCell;
use std::rc::Rc;
use std::time::Duration;

use tokio::sync::mpsc;
use tokio::time::Instant;
use umbel_client::{Client, ClientError, ClientOptions, Token};

use crate::net::SimNet;
use crate::now::now_us;
use crate::trace;

/// How long an errand is tried.
const ERRAND_TIMEOUT: Duration = Duration::from_secs(20);

/// How long a drain may take before the node is removed all the same.
const DRAIN_TIMEOUT: Duration = Duration::from_secs(10);

/// Pause between two tries.
const TRY_PAUSE: Duration = Duration::from_millis(250);

/// What the operator is asked to do.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Task {
    /// Remove a node for ever, after a drain if it runs still.
    Retire { node: u64, drain: bool },
    /// Move a shard's replica.
    Move { shard: u32, from: u64, to: u64 },
}

/// A task, and what became of it.
#[derive(Clone)]
pub(crate) struct Errand {
    pub(crate) task: Task,
    outcome: Rc<RefCell<Option<Result<(), String>>>>,
}

impl Errand {
    /// What became of it; `None` while it is tried.
    pub(crate) fn outcome(&self) -> Option<Result<(), String>> {
        self.outcome.borrow().clone()
    }
}

/// Sends errands to the host that carries them out.
pub(crate) struct Operator {
    errands: mpsc::UnboundedSender<Errand>,
}

impl Operator {
    /// The operator, and the program that must run on the clients' host.
    pub(crate) fn new(
        net: SimNet,
        addresses: Vec<String>,
        token: Option<Token>,
    ) -> (Self, impl Future<Output = ()>) {
        let (errands, waiting) = mpsc::unbounded_channel();
        (Self { errands }, work(admin_client(net, addresses, token), waiting))
    }

    /// Has a task tried.
    pub(crate) fn send(&self, task: Task) -> Errand {
        let errand = Errand { task, outcome: Rc::default() };
        // The clients' host runs as long as the world.
        let _ = self.errands.send(errand.clone());
        errand
    }
}

/// A client of whoever looks after the cluster or its jobs: patient enough for one change.
pub(crate) fn admin_client(net: SimNet, addresses: Vec<String>, token: Option<Token>) -> Client {
    let options = ClientOptions {
        timeout: Duration::from_secs(5),
        attempt_timeout: Duration::from_secs(2),
        connect_timeout: Duration::from_secs(1),
        map_age_max: Duration::from_secs(2),
        token,
        ..ClientOptions::default()
    };
    let made = Client::connect_through(addresses, options, net);
    made.expect("the hosts' addresses are addresses")
}

async fn work(client: Client, mut waiting: mpsc::UnboundedReceiver<Errand>) {
    let mut running = tokio::task::JoinSet::new();
    while let Some(errand) = waiting.recv().await {
        while running.try_join_next().is_some() {}
        let client = client.clone();
        running.spawn_local(async move {
            let outcome = carry_out(&client, errand.task).await;
            trace::line(
                now_us(),
                "operator",
                "errand",
                format_args!("{:?} {outcome:?}", errand.task),
            );
            errand.outcome.replace(Some(outcome));
        });
    }
}

async fn carry_out(client: &Client, task: Task) -> Result<(), String> {
    let deadline = Instant::now() + ERRAND_TIMEOUT;
    match task {
        Task::Retire { node, drain } => {
            if drain {
                drained(client, node).await;
            }
            retry(deadline, async || client.remove_node(node).await).await
        }
        Task::Move { shard, from, to } => {
            retry(deadline, async || client.move_shard(shard, from, to).await).await
        }
    }
}

/// Waits until a node has no replicas left, or for too long.
async fn drained(client: &Client, node: u64) {
    let deadline = Instant::now() + DRAIN_TIMEOUT;
    while Instant::now() < deadline {
        if matches!(client.drain(node, false).await, Ok(0)) {
            return;
        }
        tokio::time::sleep(TRY_PAUSE).await;
    }
}

/// Tries until it is done or refused for good; a refusal after a try without an answer may mean that
/// it was done.
async fn retry(
    deadline: Instant,
    mut attempt: impl AsyncFnMut() -> Result<(), ClientError>,
) -> Result<(), String> {
    let mut is_unsure = false;
    loop {
        match attempt().await {
            Ok(()) => return Ok(()),
            Err(ClientError::Refused(_)) if is_unsure => return Ok(()),
            Err(error) if Instant::now() > deadline => return Err(error.to_string()),
            Err(error) => is_unsure |= !matches!(error, ClientError::Refused(_)),
        }
        tokio::time::sleep(TRY_PAUSE).await;
    }
}
