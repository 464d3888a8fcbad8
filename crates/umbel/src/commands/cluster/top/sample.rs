//! Takes a sample of a cluster: its status, its running jobs, and the metrics of each node.

use super::figures::{Figures, Rates};
use crate::clock::Stopwatch;
use crate::cluster_client::{self, Credentials};
use crate::exit::UsageError;
use anyhow::Result;
use std::collections::BTreeMap;
use std::time::Duration;
use tokio::task::JoinSet;
use umbel_client::proto::{DescribeJobResponse, Job, NodeStatus};
use umbel_client::{Client, ClientError, ClientOptions, StatusResponse};

/// Timeout of a request. It is short, because a sample is soon out of date.
const PATIENCE: Duration = Duration::from_secs(3);

/// Most jobs that are shown with their progress.
const JOBS_MAX: usize = 5;

/// The clients that take samples.
pub(super) struct Sources {
    credentials: Credentials,
    cluster: Client,
    /// A client for each node, by address.
    nodes: BTreeMap<String, Client>,
}

/// The answers of the cluster and its nodes at one moment.
pub(super) struct Sample {
    pub(super) status: StatusResponse,
    /// Metrics by node, or why they are missing.
    pub(super) figures: BTreeMap<u64, Result<Figures, String>>,
    /// The running jobs, or why they are unknown.
    pub(super) jobs: Result<Jobs, String>,
    at: Stopwatch,
}

/// The running jobs of the ledger.
#[derive(Default)]
pub(super) struct Jobs {
    /// How many jobs run.
    pub(super) running_count: usize,
    /// The newest of them, at most `JOBS_MAX`.
    pub(super) shown: Vec<DescribeJobResponse>,
}

impl Sources {
    /// The sources for the cluster at these addresses.
    ///
    /// # Errors
    ///
    /// As [`cluster_client::connect`].
    pub(super) fn of(addresses: &str, credentials: Credentials) -> Result<Self, UsageError> {
        let options = ClientOptions { first_contact_timeout: PATIENCE, ..impatient() };
        let cluster = cluster_client::connect(addresses, options, &credentials)?;
        Ok(Self { credentials, cluster, nodes: BTreeMap::new() })
    }

    /// The client that reads the status.
    pub(super) const fn cluster(&self) -> &Client {
        &self.cluster
    }

    /// Takes a sample. For a node that does not answer, the sample holds the reason.
    ///
    /// # Errors
    ///
    /// If the cluster's status cannot be read.
    pub(super) async fn sample(&mut self) -> Result<Sample, ClientError> {
        let (status, jobs) = tokio::join!(self.cluster.status(), jobs(&self.cluster));
        let status = status?;
        let mut asked = JoinSet::new();
        let mut figures = BTreeMap::new();
        let is_member = |node: &&NodeStatus| node.state != "removed";
        let members: Vec<_> = status.nodes.iter().filter(is_member).collect();
        self.nodes.retain(|address, _| members.iter().any(|node| node.address == *address));
        for &NodeStatus { node, ref address, .. } in members {
            match self.node(address) {
                Ok(client) => {
                    asked.spawn(async move { (node, client.measurements().await) });
                }
                Err(error) => {
                    figures.insert(node, Err(error.to_string()));
                }
            }
        }
        for (node, text) in asked.join_all().await {
            let read = text.map(|text| Figures::read(&text)).map_err(|error| error.to_string());
            figures.insert(node, read);
        }
        Ok(Sample { status, figures, jobs, at: Stopwatch::start() })
    }

    /// A client that sends its requests to this node only, without retries.
    fn node(&mut self, address: &str) -> Result<Client, UsageError> {
        if let Some(client) = self.nodes.get(address) {
            return Ok(client.clone());
        }
        let options = ClientOptions { learns_nodes: false, attempt_count_max: 1, ..impatient() };
        let client = cluster_client::connect(address, options, &self.credentials)?;
        self.nodes.insert(address.to_owned(), client.clone());
        Ok(client)
    }
}

fn impatient() -> ClientOptions {
    ClientOptions {
        timeout: PATIENCE,
        attempt_timeout: PATIENCE,
        connect_timeout: PATIENCE,
        ..ClientOptions::default()
    }
}

async fn jobs(cluster: &Client) -> Result<Jobs, String> {
    let failed = |error: ClientError| error.to_string();
    let is_running = |job: &Job| matches!(job.state.as_str(), "running" | "being cancelled");
    let all = cluster.jobs().await.map_err(failed)?;
    let running: Vec<u64> = all.iter().filter(|job| is_running(job)).map(|job| job.job).collect();
    let mut jobs = Jobs { running_count: running.len(), shown: Vec::new() };
    for &job in running.iter().rev().take(JOBS_MAX) {
        jobs.shown.push(cluster.job(job).await.map_err(failed)?);
    }
    Ok(jobs)
}

impl Sample {
    /// The time since the sample was taken.
    pub(super) fn age(&self) -> Duration {
        self.at.elapsed()
    }

    /// The rates of a node since an earlier sample; None if either sample lacks its metrics, or the node
    /// has restarted in between.
    pub(super) fn rates(&self, before: &Self, node: u64) -> Option<Rates> {
        let elapsed = before.age().saturating_sub(self.age());
        let figures = |sample: &Self| sample.figures.get(&node)?.as_ref().ok().copied();
        figures(self)?.rates_since(&figures(before)?, elapsed)
    }

    /// The metrics of a node, if it answered.
    pub(super) fn figures(&self, node: u64) -> Option<&Figures> {
        self.figures.get(&node)?.as_ref().ok()
    }

    /// All nodes except removed ones.
    pub(super) fn nodes(&self) -> impl Iterator<Item = &NodeStatus> {
        self.status.nodes.iter().filter(|node| node.state != "removed")
    }

    /// Shards that have a leader.
    pub(super) fn led_count(&self) -> usize {
        self.status.shards.iter().filter(|shard| shard.leader != 0).count()
    }
}
