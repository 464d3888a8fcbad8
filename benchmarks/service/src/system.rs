//! What is measured: clusters of Umbel and servers of Redis, and the ways to ask them.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use tokio::time::{Instant, sleep, timeout};
use umbel_client::{Client, ClientOptions, KeyPairFiles, StatusResponse, TlsConnector, TlsFiles};

use crate::cables::Cables;
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
    /// Whether both ends of every connection prove themselves by certificates.
    pub(crate) is_encrypted: bool,
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
    /// Umbel: as `Keyed`, by one handle of its client for all workers: single items of all of them travel together.
    Joined,
    /// Umbel: items, by plain gRPC without its client: a call a batch, all over one connection.
    Calls,
    /// Umbel: items, by plain gRPC without its client: one stream, a request a batch.
    Stream,
    /// Redis: a key an item, one command an item, pipelined.
    SetNx,
    /// Redis: members of one set, one command an item, pipelined.
    Sadd,
    /// Redis: members of one set, one command a batch. Its answer to an insert is a count only.
    SaddMany,
}

const UMBEL: &[Request] = &[Request::Keyed, Request::Public];
const UMBEL_WITHOUT_CLIENT: &[Request] =
    &[Request::Keyed, Request::Joined, Request::Calls, Request::Stream];
const REDIS: &[Request] = &[Request::SetNx, Request::Sadd, Request::SaddMany];

/// The authority's certificate, the one that all share, and its key, as commands name them.
const CERTIFICATES: [&str; 3] = ["ca.pem", "127.0.0.1.pem", "127.0.0.1.key"];

/// Everything that can be measured.
pub(crate) const SYSTEMS: [System; 8] = [
    System::umbel("umbel-1", 1),
    System::redis("redis"),
    System::umbel("umbel-1-fsync", 1).durable(),
    System::redis("redis-fsync").durable(),
    System::umbel("umbel-3", 3),
    System::umbel("umbel-1-tls", 1).encrypted(),
    System::umbel("umbel-3-fsync-tls", 3).durable().encrypted(),
    System::umbel("umbel-3-fsync", 3).durable(),
];

impl System {
    const fn umbel(name: &'static str, node_count: usize) -> Self {
        Self { name, node_count, is_durable: false, is_encrypted: false, requests: UMBEL }
    }

    const fn redis(name: &'static str) -> Self {
        Self { name, node_count: 0, is_durable: false, is_encrypted: false, requests: REDIS }
    }

    const fn durable(self) -> Self {
        Self { is_durable: true, ..self }
    }

    const fn encrypted(self) -> Self {
        Self { is_encrypted: true, ..self }
    }

    pub(crate) const fn is_umbel(self) -> bool {
        self.node_count > 0
    }

    /// How it is asked where streams of requests are compared with calls; plain gRPC is without certificates here.
    pub(crate) const fn requests_with_streams(self) -> &'static [Request] {
        if self.is_umbel() && !self.is_encrypted { UMBEL_WITHOUT_CLIENT } else { self.requests }
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
            if self.is_encrypted {
                words.extend(["--tls-ca", CERTIFICATES[0]]);
                words.extend(["--tls-cert", CERTIFICATES[1], "--tls-key", CERTIFICATES[2]]);
            }
            if let Some(address) = addresses.get(index) {
                words.extend(["--listen", address, "--data", &folder]);
            }
        } else {
            // Rewriting its log in the middle of a measurement would be another process's time.
            words.extend(if self.is_durable {
                &["--appendonly", "yes", "--appendfsync", "always"][..]
            } else {
                &["--appendonly", "no"]
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
            (Self::Joined, Verb::Insert) => "Insert items (keyed, joined)",
            (Self::Joined, Verb::Contains) => "Contains items (keyed, joined)",
            (Self::Calls, Verb::Insert) => "Insert items (keyed, plain gRPC)",
            (Self::Calls, Verb::Contains) => "Contains items (keyed, plain gRPC)",
            (Self::Stream, Verb::Insert) => "InsertStream items (keyed, plain gRPC)",
            (Self::Stream, Verb::Contains) => "ContainsStream items (keyed, plain gRPC)",
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
    /// What clients prove themselves by.
    pub(crate) tls: Option<TlsFiles>,
    // Ended before the folder and the cables go.
    processes: Vec<Process>,
    cables: Option<Cables>,
    /// How each process was started: program, arguments, log.
    commands: Vec<(PathBuf, Vec<String>, PathBuf)>,
    system: System,
    folder: Folder,
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
        Self::start_on(system, places, more, None).await
    }

    /// The same, each process at the end of its cable.
    pub(crate) async fn start_on(
        system: System,
        places: &Places,
        more: &[&str],
        cables: Option<Cables>,
    ) -> Result<Self> {
        let program = if system.is_umbel() { &places.umbel } else { &places.redis };
        if system.is_umbel() && !places.is_smoke {
            check_release(program)?;
        }
        let process_count = system.node_count.max(1);
        let addresses = match &cables {
            Some(cables) => cables.addresses(),
            None => free_addresses(process_count)?,
        };
        let folder = Folder(places.data.join(format!("{}-{}", system.name, std::process::id())));
        let tls = if system.is_encrypted {
            Some(make_certificates(program, &folder.0.join("certs"))?)
        } else {
            None
        };
        let (mut processes, mut commands) = (Vec::new(), Vec::new());
        for index in 0..process_count {
            let name = format!("{}-{}", system.name, index + 1);
            let data = folder.0.join(&name);
            std::fs::create_dir_all(&data).with_context(|| data.display().to_string())?;
            let mut arguments = system.arguments(&addresses, index, &data);
            for word in arguments.iter_mut().filter(|word| CERTIFICATES.contains(&word.as_str())) {
                *word = folder.0.join("certs").join(&*word).display().to_string();
            }
            arguments.extend(more.iter().map(|word| (*word).to_owned()));
            let log = places.logs.join(format!("{name}.log"));
            let (program, arguments) = match &cables {
                Some(cables) => {
                    let [first, prefix @ ..] = cables.prefix(index);
                    let own = [program.display().to_string()];
                    (first.into(), prefix.into_iter().chain(own).chain(arguments).collect())
                }
                None => (program.clone(), arguments),
            };
            processes.push(Process::start(&program, &arguments, &log)?);
            commands.push((program, arguments, log));
        }
        let mut servers = Self { addresses, tls, processes, cables, commands, system, folder };
        servers.ready().await?;
        Ok(servers)
    }

    /// Waits until all nodes can be asked, and know of each other.
    ///
    /// # Errors
    /// If one of them has ended, or it takes too long.
    pub(crate) async fn ready(&mut self) -> Result<()> {
        let end = Instant::now() + START_TIMEOUT;
        loop {
            self.check_alive()?;
            let ready = timeout(READY_TIMEOUT, self.check_ready(self.system)).await;
            match ready.context("no answer").flatten() {
                Ok(()) => return Ok(()),
                Err(error) if Instant::now() > end => {
                    return Err(error.context(format!("{}: it does not start", self.system.name)));
                }
                Err(_) => sleep(START_POLL).await,
            }
        }
    }

    /// Starts one more node, without certificates, which joins the cluster through the first one. Does not wait for it.
    ///
    /// # Errors
    /// If it cannot be started.
    pub(crate) fn join(&mut self) -> Result<()> {
        let address = free_addresses(1)?.remove(0);
        let (program, _, log) = self.commands.first().context("there is no node to join")?;
        // Never one of a node that left.
        let name = format!("{}-{}", self.system.name, address.replace(':', "-"));
        let (program, log) = (program.clone(), log.with_file_name(format!("{name}.log")));
        let data = self.folder.0.join(&name);
        std::fs::create_dir_all(&data).with_context(|| data.display().to_string())?;
        let folder = data.display().to_string();
        let member = self.addresses[0].as_str();
        let words = ["serve", "--join", member, "--listen", &address, "--data", &folder];
        let arguments: Vec<String> = words.into_iter().map(str::to_owned).collect();
        self.processes.push(Process::start(&program, &arguments, &log)?);
        self.commands.push((program, arguments, log));
        self.addresses.push(address);
        Ok(())
    }

    /// A command about the cluster, with these words.
    ///
    /// # Errors
    /// If there is no node.
    pub(crate) fn command(&self, words: &[&str]) -> Result<Command> {
        let (program, ..) = self.commands.first().context("there is no node")?;
        let mut command = Command::new(program);
        command.args(words).args(["--cluster", &self.addresses.join(",")]);
        Ok(command)
    }

    /// Ends a node that the cluster has removed.
    pub(crate) fn leave(&mut self, index: usize) {
        self.processes.remove(index).end();
        self.commands.remove(index);
        self.addresses.remove(index);
    }

    /// One of the processes.
    pub(crate) fn process(&mut self, index: usize) -> &mut Process {
        &mut self.processes[index]
    }

    /// Pulls the cable of a process, or plugs it in.
    ///
    /// # Errors
    /// If the processes have none.
    pub(crate) fn set_plugged(&self, index: usize, is_plugged: bool) -> Result<()> {
        self.cables.as_ref().context("there are no cables")?.set_plugged(index, is_plugged)
    }

    /// Ends a process, if it has not ended, and starts it again with its data.
    ///
    /// # Errors
    /// If the program cannot be started.
    pub(crate) fn restart(&mut self, index: usize) -> Result<()> {
        let (program, arguments, log) = &self.commands[index];
        self.processes[index].end();
        self.processes[index] = Process::start(program, arguments, log)?;
        Ok(())
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
            let client = connect(std::slice::from_ref(address), self.tls.as_ref())?;
            check_formed(&client.status().await?, system.node_count)?;
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
        connect(&self.addresses, self.tls.as_ref())
    }
}

/// An authority, and a certificate that nodes and clients share: what a certificate says does not
/// change what it costs.
fn make_certificates(umbel: &Path, folder: &Path) -> Result<TlsFiles> {
    for words in [&["init"][..], &["node", "127.0.0.1"]] {
        let mut command = Command::new(umbel);
        command.args(["cluster", "certs"]).args(words).arg("--out").arg(folder);
        let output = command.output().with_context(|| umbel.display().to_string())?;
        let said = String::from_utf8_lossy(&output.stderr);
        ensure!(output.status.success(), "{} cluster certs: {said}", umbel.display());
    }
    let [ca, certificate, key] = CERTIFICATES.map(|name| folder.join(name));
    Ok(TlsFiles { ca, pair: Some(KeyPairFiles { certificate, key }) })
}

/// A client of the nodes at these addresses.
pub(crate) fn connect(addresses: &[String], tls: Option<&TlsFiles>) -> Result<Client> {
    Ok(match tls {
        None => Client::connect(addresses.to_vec())?,
        Some(files) => {
            let tls = TlsConnector::open(files.clone())?;
            Client::connect_through(addresses.to_vec(), ClientOptions::default(), tls)?
        }
    })
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
            "umbel serve --dev --no-fsync --tls-ca ca.pem --tls-cert 127.0.0.1.pem --tls-key \
             127.0.0.1.key",
            "umbel serve --initial-cluster A,B,C --tls-ca ca.pem --tls-cert 127.0.0.1.pem --tls-key \
             127.0.0.1.key",
            "umbel serve --initial-cluster A,B,C",
        ];
        assert_eq!(commands, expected);
    }

    #[test]
    fn arguments_name_addresses_and_folders() {
        let addresses = ["127.0.0.1:1".to_owned(), "127.0.0.1:2".to_owned()];
        let words = SYSTEMS[7].arguments(&addresses, 1, Path::new("/d"));
        let expected = "serve --initial-cluster 127.0.0.1:1,127.0.0.1:2 --listen 127.0.0.1:2 \
                        --data /d";
        assert_eq!(words.join(" "), expected);
        let words = SYSTEMS[1].arguments(&addresses, 0, Path::new("/d"));
        assert!(words.join(" ").ends_with("--save  --bind 127.0.0.1 --port 1 --dir /d"));
    }
}
