//! What is measured: clusters of Umbel and servers of Redis, and the ways to ask them.

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use tokio::time::{Instant, sleep, timeout};
use umbel_client::{Client, StatusResponse};

use crate::connection::Verb;
use crate::processes::{Process, check_release, free_addresses};
use crate::resp::{Reply, RespStream};

/// How long a server may take until it can be asked.
const START_TIMEOUT: Duration = Duration::from_secs(60);

/// How long one look at it may take.
const READY_TIMEOUT: Duration = Duration::from_secs(5);

/// Pause between two looks at a server that starts.
const START_POLL: Duration = Duration::from_millis(50);

/// A kind of server with its settings.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct System {
    /// Its name on the command line and in tables.
    pub(crate) name: &'static str,
    /// Processes of Umbel; 0 means Redis.
    pub(crate) node_count: usize,
    /// Whether acknowledged inserts are on disk.
    pub(crate) is_durable: bool,
    /// How it is asked.
    pub(crate) requests: &'static [Request],
}

/// How items travel.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Request {
    /// Umbel: items; a node hashes them with the cluster's key.
    Keyed,
    /// Umbel: hashes that the client makes, to the leaders of their shards.
    Public,
    /// Redis: a key an item, one command an item, pipelined.
    SetNx,
    /// Redis: members of one set, one command an item, pipelined.
    Sadd,
    /// Redis: members of one set, one command a batch. Its answer to an insert is a count only.
    SaddMany,
}

const UMBEL: &[Request] = &[Request::Keyed, Request::Public];
const REDIS: &[Request] = &[Request::SetNx, Request::Sadd, Request::SaddMany];

/// Everything that can be measured.
pub(crate) const SYSTEMS: [System; 6] = [
    System { name: "umbel-1", node_count: 1, is_durable: false, requests: UMBEL },
    System { name: "redis", node_count: 0, is_durable: false, requests: REDIS },
    System { name: "umbel-1-fsync", node_count: 1, is_durable: true, requests: UMBEL },
    System { name: "redis-fsync", node_count: 0, is_durable: true, requests: REDIS },
    System { name: "umbel-3", node_count: 3, is_durable: false, requests: UMBEL },
    System { name: "umbel-3-fsync", node_count: 3, is_durable: true, requests: UMBEL },
];

impl System {
    pub(crate) const fn is_umbel(self) -> bool {
        self.node_count > 0
    }

    /// The command of one process, without addresses and folders.
    pub(crate) fn command(self) -> String {
        let words = self.arguments(&[], 0, Path::new(""));
        let program = if self.is_umbel() { "umbel" } else { "redis-server" };
        format!("{program} {}", words.join(" "))
    }

    /// Arguments of process `index`; those with addresses and folders only if there are addresses.
    fn arguments(self, addresses: &[String], index: usize, folder: &Path) -> Vec<String> {
        let folder = folder.display().to_string();
        let mut words: Vec<&str> = Vec::new();
        let founders = addresses.join(",");
        if self.is_umbel() {
            words.push("serve");
            match self.node_count {
                1 => words.push("--dev"),
                _ if addresses.is_empty() => words.extend(["--initial-cluster", "A,B,C"]),
                _ => words.extend(["--initial-cluster", &founders]),
            }
            if !self.is_durable {
                words.push("--no-fsync");
            }
            if let Some(address) = addresses.get(index) {
                words.extend(["--listen", address, "--data", &folder]);
            }
        } else {
            // Rewriting its log in the middle of a measurement would be another process's time.
            words.extend(match self.is_durable {
                true => &["--appendonly", "yes", "--appendfsync", "always"][..],
                false => &["--appendonly", "no"],
            });
            words.extend(["--auto-aof-rewrite-percentage", "0", "--save", "''"]);
            if let Some((host, port)) = addresses.get(index).and_then(|at| at.split_once(':')) {
                words.extend(["--bind", host, "--port", port, "--dir", &folder]);
                return words.iter().map(|word| word.replace("''", "")).collect();
            }
        }
        words.into_iter().map(str::to_owned).collect()
    }
}

impl Request {
    /// What travels, as the tables say it.
    pub(crate) const fn name(self, verb: Verb) -> &'static str {
        match (self, verb) {
            (Self::Keyed, Verb::Insert) => "Insert items (keyed)",
            (Self::Keyed, Verb::Contains) => "Contains items (keyed)",
            (Self::Public, Verb::Insert) => "Insert hashes (public)",
            (Self::Public, Verb::Contains) => "Contains hashes (public)",
            (Self::SetNx, Verb::Insert) => "SET k 1 NX",
            (Self::SetNx, Verb::Contains) => "EXISTS k",
            (Self::Sadd, Verb::Insert) => "SADD s k",
            (Self::Sadd, Verb::Contains) => "SISMEMBER s k",
            (Self::SaddMany, Verb::Insert) => "SADD s k…",
            (Self::SaddMany, Verb::Contains) => "SMISMEMBER s k…",
        }
    }
}

/// Where programs, data and logs are.
#[derive(Clone, Debug)]
pub(crate) struct Places {
    pub(crate) umbel: PathBuf,
    pub(crate) redis: PathBuf,
    /// Below it every server gets a folder, which is removed with it.
    pub(crate) data: PathBuf,
    pub(crate) logs: PathBuf,
    /// Accept any binary: a trial of the benchmark itself.
    pub(crate) is_smoke: bool,
}

/// Running servers. Dropping them ends them and removes their data.
pub(crate) struct Servers {
    /// Where they listen.
    pub(crate) addresses: Vec<String>,
    // Ended before the folder goes.
    processes: Vec<Process>,
    _folder: Folder,
}

struct Folder(PathBuf);

impl Drop for Folder {
    fn drop(&mut self) {
        // What cannot be removed is below a folder that the user named.
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

impl Servers {
    /// Starts a system and waits until it can be asked. `more` are further arguments of `umbel`.
    pub(crate) async fn start(system: System, places: &Places, more: &[&str]) -> Result<Self> {
        let program = if system.is_umbel() { &places.umbel } else { &places.redis };
        if system.is_umbel() && !places.is_smoke {
            check_release(program)?;
        }
        let process_count = system.node_count.max(1);
        let addresses = free_addresses(process_count)?;
        let folder = Folder(places.data.join(format!("{}-{}", system.name, std::process::id())));
        let mut processes = Vec::new();
        for index in 0..process_count {
            let name = format!("{}-{}", system.name, index + 1);
            let data = folder.0.join(&name);
            std::fs::create_dir_all(&data).with_context(|| data.display().to_string())?;
            let mut arguments = system.arguments(&addresses, index, &data);
            arguments.extend(more.iter().map(|word| (*word).to_owned()));
            let log = places.logs.join(format!("{name}.log"));
            processes.push(Process::start(program, &arguments, &log)?);
        }
        let mut servers = Self { addresses, processes, _folder: folder };
        let end = Instant::now() + START_TIMEOUT;
        loop {
            servers.check_alive()?;
            let ready = timeout(READY_TIMEOUT, servers.check_ready(system)).await;
            match ready.context("no answer").flatten() {
                Ok(()) => return Ok(servers),
                Err(error) if Instant::now() > end => {
                    return Err(error.context(format!("{}: it does not start", system.name)));
                }
                Err(_) => sleep(START_POLL).await,
            }
        }
    }

    /// # Errors
    /// If it cannot be asked yet.
    async fn check_ready(&self, system: System) -> Result<()> {
        if !system.is_umbel() {
            let pong = RespStream::connect(&self.addresses[0]).await?.ask(&["PING"]).await?;
            ensure!(pong == Reply::Status("PONG".into()), "{pong:?} instead of PONG");
            return Ok(());
        }
        for address in &self.addresses {
            // A client would wait for a node that is not there yet.
            tokio::net::TcpStream::connect(address).await.context("no connection")?;
            check_formed(&Client::connect(address.as_str())?.status().await?, system.node_count)?;
        }
        Ok(())
    }

    /// # Errors
    /// If one of them has ended.
    pub(crate) fn check_alive(&mut self) -> Result<()> {
        self.processes.iter_mut().try_for_each(Process::check_alive)
    }

    /// Their process ids.
    pub(crate) fn ids(&self) -> Vec<u32> {
        self.processes.iter().map(Process::id).collect()
    }

    /// A client that knows all nodes.
    pub(crate) fn client(&self) -> Result<Client> {
        Ok(Client::connect(self.addresses.clone())?)
    }
}

fn check_formed(status: &StatusResponse, node_count: usize) -> Result<()> {
    let live = status.nodes.iter().filter(|node| node.state == "live").count();
    ensure!(live == node_count, "{live} of {node_count} nodes");
    ensure!(!status.shards.is_empty(), "no shards");
    for shard in &status.shards {
        let wanted = (status.replica_count as usize).min(node_count);
        if shard.leader == 0 || shard.replicas.len() != wanted || !shard.target.is_empty() {
            bail!("shard {} is not formed", shard.shard);
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commands_say_what_runs() {
        let commands = SYSTEMS.map(System::command);
        let expected = [
            "umbel serve --dev --no-fsync",
            "redis-server --appendonly no --auto-aof-rewrite-percentage 0 --save ''",
            "umbel serve --dev",
            "redis-server --appendonly yes --appendfsync always --auto-aof-rewrite-percentage 0 \
             --save ''",
            "umbel serve --initial-cluster A,B,C --no-fsync",
            "umbel serve --initial-cluster A,B,C",
        ];
        assert_eq!(commands, expected);
    }

    #[test]
    fn arguments_name_addresses_and_folders() {
        let addresses = ["127.0.0.1:1".to_owned(), "127.0.0.1:2".to_owned()];
        let words = SYSTEMS[5].arguments(&addresses, 1, Path::new("/d"));
        let expected = "serve --initial-cluster 127.0.0.1:1,127.0.0.1:2 --listen 127.0.0.1:2 \
                        --data /d";
        assert_eq!(words.join(" "), expected);
        let words = SYSTEMS[1].arguments(&addresses, 0, Path::new("/d"));
        assert!(words.join(" ").ends_with("--save  --bind 127.0.0.1 --port 1 --dir /d"));
    }
}
