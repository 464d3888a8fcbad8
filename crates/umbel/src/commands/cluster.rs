//! `umbel cluster`: administers nodes, shards, backups and certificates.

mod certs;
pub(crate) mod chunk_file;
#[cfg(test)]
mod chunk_file_test;
pub(crate) mod connect;
mod cube;
#[cfg(test)]
mod cube_test;
pub(crate) mod look;
mod merge;
mod moves;
mod notes;
mod ranges;
mod ready;
mod restore;
mod scrub;
mod split;
mod status;
mod token;
mod top;
mod upgrade;
mod wrapped_chunks;

use crate::clock::Stopwatch;
use crate::exit::{Exit, UsageError};
use crate::printer::{facts, print};
use crate::units::seconds;
use crate::waiting::Waiting;
use anyhow::{Result, bail};
use chunk_file::{ChunkWriter, broken_off};
use clap::{ArgGroup, Args, ColorChoice, Subcommand};
use connect::{ClusterArgs, block_on};
use serde_json::json;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;
use umbel_client::proto::{BackupChunk, NodeStatus};
use umbel_client::{Chunks, Client};
use umbel_ports::WrappingKey;

/// How often a waiting command polls the cluster.
const POLL_INTERVAL: Duration = Duration::from_secs(1);

/// How long a command waits for the cluster by default, in seconds.
const WAIT_S: u64 = 600;

/// Arguments of `umbel cluster`.
#[derive(Args)]
#[command(after_help = "Examples:\n  \
      umbel cluster status\n  \
      umbel cluster drain 3 --wait && umbel cluster remove 3\n  \
      umbel cluster backup --out filters.backup\n\n\
    docs/cluster.md has every detail.\n\
    Exit codes: 0 done, 1 failed, not done in time, not ready, or copies had lost bits, 2 wrong usage, 130 interrupted.")]
pub(crate) struct AdminArgs {
    #[command(flatten)]
    cluster: ClusterArgs,
    #[command(subcommand)]
    verb: AdminVerb,
}

#[derive(Subcommand)]
enum AdminVerb {
    /// Show nodes, shards and leaders, and how replicated filters are exchanged
    Status {
        /// Colours: on a terminal, unless NO_COLOR is set or TERM is dumb; `always` draws into a pipe too
        #[arg(long, value_name = "WHEN", default_value_t = ColorChoice::Auto)]
        color: ColorChoice,
        /// Also show which replicas would move later
        #[arg(long)]
        plan: bool,
        /// Only ask the node of --cluster whether it is ready for clients, as its page /readyz says; 1 if not
        #[arg(long, conflicts_with = "plan")]
        ready: bool,
    },
    /// Follow what nodes do: calls, items, memory, lag, jobs; q or ctrl-c ends it
    Top(top::TopArgs),
    /// Wait until a node has joined and is live; `umbel serve --join` starts one that joins
    Join {
        /// The address that the node advertises
        #[arg(value_name = "HOST:PORT", value_parser = node_address)]
        address: String,
        /// Fail after this time: seconds, or like 10m
        #[arg(long, value_name = "TIME", default_value_t = WAIT_S, value_parser = seconds)]
        timeout: u64,
    },
    /// Move all replicas off a node, to stop or remove it
    Drain {
        /// Its number
        node: u64,
        /// Allow replicas on the node again
        #[arg(long)]
        undo: bool,
        /// Wait until the node has no replicas
        #[arg(long, conflicts_with = "undo")]
        wait: bool,
        /// Only show which replicas would move where
        #[arg(long, conflicts_with_all = ["undo", "wait"])]
        dry_run: bool,
        /// With --wait: fail after this time: seconds, or like 10m
        #[arg(long, value_name = "TIME", default_value_t = WAIT_S, value_parser = seconds)]
        timeout: u64,
    },
    /// Remove a node permanently; drain it first if it still runs
    Remove {
        /// Its number
        node: u64,
    },
    /// Move a replica of a shard from one node to another
    Move {
        /// The shard's number
        shard: u32,
        /// The node that has the replica
        #[arg(long, value_name = "NODE")]
        from: u64,
        /// The node that gets the replica
        #[arg(long, value_name = "NODE")]
        to: u64,
    },
    /// Split shards in two, in turn, while they are in use
    Split(split::SplitArgs),
    /// Merge shards that were split, the last one first, while they are in use
    Merge(merge::MergeArgs),
    /// Raise the cluster's version as far as the releases of all nodes can; cannot be undone
    Upgrade(upgrade::UpgradeArgs),
    /// Compare copies and replicas of filters bit by bit, and repair what one of them has lost
    #[command(group = ArgGroup::new("scrubbed").required(true))]
    Scrub {
        /// The filter
        #[arg(group = "scrubbed")]
        filter: Option<String>,
        /// All filters
        #[arg(long, group = "scrubbed")]
        all: bool,
    },
    /// Copy all filters and the keys of their hashes to a file that only its owner may read
    Backup {
        /// The file
        #[arg(long, value_name = "FILE")]
        out: PathBuf,
        /// Replace the file if it exists
        #[arg(long)]
        overwrite: bool,
        /// Copy all shards of a filter as they were at one moment; writes to it wait for some milliseconds
        #[arg(long)]
        snapshot: bool,
        /// Encrypt it with the key in this file: 32 bytes, or 64 hexadecimal digits (openssl rand -hex 32)
        #[arg(long, value_name = "FILE")]
        key_file: Option<PathBuf>,
    },
    /// Create certificates that authenticate nodes and clients
    Certs(certs::CertsArgs),
    /// Create and print a token with which a node joins and gets its certificate
    Token(token::TokenArgs),
    /// Create the filters of a backup; their names must be free
    Restore {
        /// The file
        #[arg(long, value_name = "FILE")]
        file: PathBuf,
        /// File with the key that it was encrypted with
        #[arg(long, value_name = "FILE")]
        key_file: Option<PathBuf>,
    },
}

/// Runs the command.
///
/// # Errors
///
/// If arguments are wrong, a file cannot be read or written, a call to the cluster fails, or a wait times
/// out.
pub(crate) fn run(args: &AdminArgs) -> Result<Exit> {
    block_on(args.run())
}

impl AdminArgs {
    async fn run(&self) -> Result<Exit> {
        let json = self.cluster.json;
        let connect = || self.cluster.client();
        match &self.verb {
            AdminVerb::Certs(certs) => certs.run(json),
            AdminVerb::Token(token) => token.run(&self.cluster).await,
            AdminVerb::Top(top) => top.run(&self.cluster).await,
            AdminVerb::Scrub { filter, .. } => {
                return scrub::scrub(&connect()?, filter.as_deref(), json).await;
            }
            AdminVerb::Status { ready: true, .. } => return ready::show(&self.cluster).await,
            AdminVerb::Status { color, plan, .. } => {
                show_status(&connect()?, *color, *plan, json).await
            }
            AdminVerb::Join { address, timeout } => {
                let node = wait_for_node(&connect()?, address, *timeout).await?;
                print(json, &json!({ "node": node, "address": address }), || {
                    facts(&[("node", node.to_string()), ("address", address.clone())])
                })
            }
            AdminVerb::Drain { node, dry_run: true, .. } => {
                show_drain(&connect()?, *node, json).await
            }
            AdminVerb::Drain { node, undo, wait, timeout, .. } => {
                drain(&connect()?, (*node, *undo), wait.then_some(*timeout), json).await
            }
            AdminVerb::Remove { node } => {
                connect()?.remove_node(*node).await?;
                print(json, &json!({ "removed": node }), || format!("node {node} removed\n"))
            }
            AdminVerb::Move { shard, from, to } => {
                connect()?.move_shard(*shard, *from, *to).await?;
                let value = json!({ "shard": shard, "from": from, "to": to });
                print(json, &value, || moves::ordered_text(*shard, *from, *to))
            }
            AdminVerb::Split(split) => split.run(&connect()?, json).await,
            AdminVerb::Merge(merge) => merge.run(&connect()?, json).await,
            AdminVerb::Upgrade(upgrade) => upgrade.run(&connect()?, json).await,
            AdminVerb::Backup { out, overwrite, snapshot, key_file } => {
                let client = connect()?;
                let key = key_of(key_file.as_deref())?;
                let file = ChunkWriter::<BackupChunk>::create(out, *overwrite, key)?;
                let chunks = if *snapshot {
                    client.backup_snapshots().await?
                } else {
                    client.backup().await?
                };
                backup(chunks, file, out, json).await
            }
            AdminVerb::Restore { file, key_file } => {
                let key = key_of(key_file.as_deref())?;
                // Read first, so that a damaged file is found before the cluster is called.
                let contents = restore::Contents::read(file, key.clone())?;
                restore::restore(&connect()?, &contents, (file, key), json).await
            }
        }?;
        Ok(Exit::Done)
    }
}

async fn show_status(client: &Client, color: ColorChoice, plan: bool, json: bool) -> Result<()> {
    let status = if plan { client.status_with_plan(None).await? } else { client.status().await? };
    let look = look::Look::of(color);
    print(json, &status::json(&status), || status::text(&status, look))
}

/// Drains a node, or, with `undo`, allows replicas on it again, and says what the cluster then lacks. With
/// `wait_s`, waits so many seconds at most until the node has no replicas.
async fn drain(
    client: &Client,
    (node, undo): (u64, bool),
    wait_s: Option<u64>,
    json: bool,
) -> Result<()> {
    let mut count = client.drain(node, undo).await?;
    if let Some(timeout_s) = wait_s {
        count = wait_until_empty(client, node, count, timeout_s).await?;
    }
    // The drain is recorded, whether or not this is answered.
    let status = if undo { None } else { client.status().await.ok() };
    let notes = status.map(|status| notes::lacks(&status, node)).unwrap_or_default();
    let value = json!({ "node": node, "replicas": count, "notes": notes::texts(&notes) });
    print(json, &value, || {
        let mut known = vec![("node", node.to_string()), ("replicas", count.to_string())];
        known.extend(notes);
        facts(&known)
    })
}

/// Shows which replicas a drain would move, without draining.
async fn show_drain(client: &Client, node: u64, json: bool) -> Result<()> {
    let status = client.status_with_plan(Some(node)).await?;
    let look = look::Look::of(ColorChoice::Auto);
    print(json, &moves::drain_json(node, &status), || moves::drain_text(node, &status, look))
}

/// Parses the address of a node. No node has one without a port, so that nobody need wait for it.
fn node_address(text: &str) -> Result<String, String> {
    let parts = text.rsplit_once(':').filter(|(host, _)| !host.is_empty());
    match parts.and_then(|(_, port)| port.parse::<u16>().ok()) {
        Some(1..) => Ok(text.to_owned()),
        _ => Err("expected HOST:PORT, as the node advertises it, like 127.0.0.1:7300".to_owned()),
    }
}

/// Waits until the node with this address is live and reachable, and returns its number.
async fn wait_for_node(client: &Client, address: &str, timeout_s: u64) -> Result<u64> {
    let (watch, mut waiting) = (Stopwatch::start(), Waiting::start());
    loop {
        let status = client.status().await?;
        let node = status.nodes.iter().find(|node| node.address == address);
        let found = match node {
            Some(node) if node.state == "live" && node.is_reachable => return Ok(node.node),
            Some(node) if node.is_reachable => format!("it is {}", node.state),
            Some(node) => format!("it is {} and does not answer", node.state),
            None => "it is not among the nodes".to_owned(),
        };
        if watch.elapsed().as_secs() >= timeout_s {
            // It has joined before, so `--join` would do nothing.
            if let Some(node) = node.filter(|node| !node.is_reachable && node.state != "removed") {
                bail!(
                    "node {} at {address} does not answer after {timeout_s} s: start it with its data folder",
                    node.node
                );
            }
            bail!(
                "{address} is not live after {timeout_s} s: {found}; start it there with \
                 `umbel serve --join` and the address of a node of this cluster"
            );
        }
        waiting.show(&format!("waits for {address}: {found}"));
        tokio::time::sleep(POLL_INTERVAL).await;
    }
}

/// Waits until a node has no replicas any more, and returns that count, 0.
async fn wait_until_empty(
    client: &Client,
    number: u64,
    mut count: u32,
    timeout_s: u64,
) -> Result<u32> {
    let (watch, mut waiting) = (Stopwatch::start(), Waiting::start());
    while count > 0 {
        if watch.elapsed().as_secs() >= timeout_s {
            bail!(
                "node {number} still has {count} replicas after {timeout_s} s; it is being drained \
                 on, `umbel cluster status` shows how far it is"
            );
        }
        tokio::time::sleep(POLL_INTERVAL).await;
        let status = client.status().await?;
        let is_it = |node: &&NodeStatus| node.node == number;
        count = status.nodes.iter().find(is_it).map_or(0, |node| node.replica_count);
        waiting.show(&format!("node {number} has {count} replicas"));
    }
    Ok(count)
}

/// Reads the key that wraps a backup, if a key file is named.
fn key_of(file: Option<&Path>) -> Result<Option<Arc<WrappingKey>>> {
    let key = file.map(WrappingKey::read).transpose();
    Ok(key.map_err(|error| UsageError(error.to_string()))?.map(Arc::new))
}

async fn backup(
    mut chunks: Chunks<BackupChunk>,
    mut file: ChunkWriter<BackupChunk>,
    out: &Path,
    json: bool,
) -> Result<()> {
    let broken = |error| broken_off::<BackupChunk>(error, out);
    while let Some(chunk) = chunks.next().await.map_err(broken)? {
        file.write(&chunk)?;
    }
    let byte_count = file.finish()?;
    let out = out.display().to_string();
    print(json, &json!({ "file": out, "bytes": byte_count }), || {
        facts(&[("file", out.clone()), ("bytes", byte_count.to_string())])
    })
}
