//! The cluster's operator: retires lost nodes, moves replicas, splits shards, raises the cluster version.

use std::cell::RefCell;
use std::rc::Rc;
use std::time::Duration;

use tokio::sync::mpsc;
use tokio::time::Instant;
use umbel_client::{Client, ClientError, ClientOptions, ErrorCode, Token};
use umbel_engine::meta::ClusterVersion;

use crate::net::SimNet;
use crate::now::now_us;
use crate::trace;

/// How long an operation is retried.
const OPERATION_TIMEOUT: Duration = Duration::from_secs(20);

/// How long a drain may take before the node is removed anyway.
const DRAIN_TIMEOUT: Duration = Duration::from_secs(10);

/// Pause between two tries.
const TRY_PAUSE: Duration = Duration::from_millis(250);

/// What the operator is asked to do.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Task {
    /// Remove a node for good, after a drain if `drain`.
    Retire { node: u64, drain: bool },
    /// Move a shard's replica.
    Move { shard: u32, from: u64, to: u64 },
    /// Split the next shard.
    Split,
    /// Merge the last shard into the one from which it was split off.
    Merge,
    /// Have the cluster split shards by itself.
    SplitByItself,
    /// Raise the cluster's version to this release's.
    Upgrade,
}

/// A task and its outcome.
#[derive(Clone)]
pub(crate) struct Operation {
    pub(crate) task: Task,
    outcome: Rc<RefCell<Option<Result<(), String>>>>,
}

impl Operation {
    /// Its outcome; `None` while it is in progress.
    pub(crate) fn outcome(&self) -> Option<Result<(), String>> {
        self.outcome.borrow().clone()
    }
}

/// Sends operations to the host that carries them out.
pub(crate) struct Operator {
    operations: mpsc::UnboundedSender<Operation>,
}

impl Operator {
    /// The operator, and the program that must run on the clients' host.
    pub(crate) fn new(
        net: SimNet,
        addresses: Vec<String>,
        token: Option<Token>,
    ) -> (Self, impl Future<Output = ()>) {
        let (operations, waiting) = mpsc::unbounded_channel();
        (Self { operations }, work(admin_client(net, addresses, token), waiting))
    }

    /// Submits a task.
    pub(crate) fn send(&self, task: Task) -> Operation {
        let operation = Operation { task, outcome: Rc::default() };
        // The receiver lives until the world ends, because the clients' host runs as long.
        let _ = self.operations.send(operation.clone());
        operation
    }
}

/// A client for the operator, the administrator of principals and the users of jobs. Its timeouts suffice
/// for one change.
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

async fn work(client: Client, mut waiting: mpsc::UnboundedReceiver<Operation>) {
    let mut running = tokio::task::JoinSet::new();
    while let Some(operation) = waiting.recv().await {
        while running.try_join_next().is_some() {}
        let client = client.clone();
        running.spawn_local(async move {
            let outcome = carry_out(&client, operation.task).await;
            trace::line(
                now_us(),
                "operator",
                "operation",
                format_args!("{:?} {outcome:?}", operation.task),
            );
            operation.outcome.replace(Some(outcome));
        });
    }
}

async fn carry_out(client: &Client, task: Task) -> Result<(), String> {
    let deadline = Instant::now() + OPERATION_TIMEOUT;
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
        Task::SplitByItself => retry(deadline, async || client.set_auto_split(true).await).await,
        Task::Upgrade => loop {
            match client.upgrade(false).await {
                Ok(upgraded) if upgraded.cluster_version >= ClusterVersion::NEWEST.0 => {
                    return Ok(());
                }
                outcome if Instant::now() > deadline => return Err(format!("{outcome:?}")),
                _ => tokio::time::sleep(TRY_PAUSE).await,
            }
        },
        Task::Merge => {
            let count = async || Ok(shard_count(client).await?.saturating_sub(1));
            // One that is given up, because filters of the two have no room for each other, would be given up again, and the
            // shard that ends takes no calls meanwhile.
            let merge = async |count| match client.merge_shard(count).await {
                Err(ClientError::Refused(failure)) if failure.cause == ErrorCode::BadChange => {
                    Ok(())
                }
                outcome => outcome.map(drop),
            };
            recut(deadline, count, merge).await
        }
        Task::Split => {
            let count = async || Ok(shard_count(client).await? + 1);
            let split = async |count| client.split_shard(count).await.map(drop);
            recut(deadline, count, split).await
        }
    }
}

async fn shard_count(client: &Client) -> Result<u32, ClientError> {
    let shards = client.status().await?.shards.len();
    Ok(u32::try_from(shards).expect("a few shards"))
}

/// Splits or merges until there are as many shards as `wanted` says at the first attempt, however often the
/// request is retried.
async fn recut(
    deadline: Instant,
    wanted: impl AsyncFn() -> Result<u32, ClientError>,
    change: impl AsyncFn(u32) -> Result<(), ClientError>,
) -> Result<(), String> {
    let mut count: Option<u32> = None;
    retry(deadline, async || {
        let count = match count {
            Some(count) => count,
            None => *count.insert(wanted().await?),
        };
        change(count).await
    })
    .await
}

/// Drains a node until it has no replicas left, for `DRAIN_TIMEOUT` at most. Once it drains, it must get none, even
/// by hand.
async fn drained(client: &Client, node: u64) {
    let deadline = Instant::now() + DRAIN_TIMEOUT;
    let mut is_tried = false;
    while Instant::now() < deadline {
        match client.drain(node, false).await {
            Ok(0) => return,
            Ok(_) if !is_tried => {
                is_tried = true;
                try_move_to(client, node).await;
            }
            _ => {}
        }
        tokio::time::sleep(TRY_PAUSE).await;
    }
}

/// Asks once for a move of a replica to a node that drains. An invariant says whether it is refused.
async fn try_move_to(client: &Client, node: u64) {
    let Ok(status) = client.status().await else { return };
    let mut free = status.shards.iter().filter(|shard| {
        shard.target.is_empty() && !shard.replicas.is_empty() && !shard.replicas.contains(&node)
    });
    if let Some(shard) = free.next() {
        let _ = client.move_shard(shard.shard, shard.replicas[0], node).await;
    }
}

/// Retries until an attempt succeeds or the deadline has passed. A refusal after an attempt whose outcome
/// is unknown counts as success, because that attempt may have been carried out.
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
