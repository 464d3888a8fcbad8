//! Processes of `umbel serve` on loopback ports, each with its own data folder; they are killed when the
//! test ends.

use std::fs::File;
use std::future::Future;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::Duration;

use tempfile::TempDir;
use tokio::sync::{Semaphore, SemaphorePermit};
use tokio::time::Instant;
use umbel_client::proto::NodeStatus;
use umbel_client::{Client, ClientOptions, StatusResponse};
use umbel_ports::testing::free_port;

/// Most clusters at the same time, since tests run on two cores.
pub(crate) const CLUSTERS_MAX: u32 = 2;

/// A test acquires as many permits as its program decides.
static TURNS: Semaphore = Semaphore::const_new(CLUSTERS_MAX as usize);

/// Longest wait for a condition: it only ends a hang, so it is far above the time that anything takes on a
/// busy machine.
pub(crate) const PATIENCE: Duration = Duration::from_secs(180);

/// Longest silence of a node that sends a page.
const PAGE_PATIENCE: Duration = Duration::from_secs(30);

/// Time limit of calls that cannot be answered.
const HASTE: Duration = Duration::from_secs(4);

/// How long a node may leave a client's probe unanswered: its process may get no processor for a while.
pub(crate) const PROBE_PATIENCE: Duration = Duration::from_secs(10);

/// The pause between two checks of a condition.
pub(crate) const LOOK_INTERVAL: Duration = Duration::from_millis(20);

/// Attempts to form a cluster, each with new ports, in case another program has taken one.
const PORT_ATTEMPTS_MAX: u32 = 5;

/// Lines of each node's log that a failed test prints.
const LOG_LINES_SHOWN: usize = 40;

/// The settings of all nodes in tests: small and fast, but with every sync.
const SETTINGS: [(&str, &str); 5] = [
    ("UMBEL_SHARDS", "4"),
    // Long, because many nodes share few cores.
    ("UMBEL_SUSPECT_MS", "800"),
    ("UMBEL_DISK_RESERVE_BYTES", "0"),
    ("UMBEL_LOG_BYTES_MAX", "16777216"),
    ("RUST_BACKTRACE", "1"),
];

/// Waits until the condition returns a value.
///
/// # Panics
///
/// If it does not within [`PATIENCE`]; the message contains `what`.
pub(crate) async fn until<T, F>(what: &str, mut condition: impl FnMut() -> F) -> T
where
    F: Future<Output = Option<T>>,
{
    let deadline = Instant::now() + PATIENCE;
    loop {
        if let Some(found) = condition().await {
            return found;
        }
        assert!(Instant::now() < deadline, "not within {PATIENCE:?}: {what}");
        tokio::time::sleep(LOOK_INTERVAL).await;
    }
}

/// A number from an environment variable.
pub(crate) fn number_of(variable: &str, otherwise: u64) -> u64 {
    match std::env::var(variable) {
        Ok(text) => text.parse().unwrap_or_else(|_| panic!("{variable}={text}: not a number")),
        Err(_) => otherwise,
    }
}

/// `umbel` with these arguments; of Umbel's settings, only those of the tests are in its environment.
pub(crate) fn umbel(args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_umbel"));
    with_settings(&mut command).args(args).stdin(Stdio::null());
    command
}

/// Sets the tests' settings in a command's environment.
pub(crate) fn with_settings(command: &mut Command) -> &mut Command {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let levels = std::env::var("UMBEL_CLUSTER_TEST_LOG");
    let levels = levels.unwrap_or_else(|_| "info,openraft=warn".to_owned());
    command.env_clear().env("PATH", path).env("UMBEL_LOG_LEVEL", levels).envs(SETTINGS)
}

/// A node: the arguments of its process, and the process while it runs.
pub(crate) struct Server {
    /// The address on which it listens.
    pub(crate) address: String,
    /// Its data folder.
    pub(crate) data: PathBuf,
    log: PathBuf,
    args: Vec<String>,
    prefix: Vec<String>,
    settings: Vec<(String, String)>,
    child: Option<Child>,
    /// Where the running process's output begins in the log.
    log_start: usize,
}

impl Server {
    /// A node with its data folder below `folder`; it is not started.
    pub(crate) fn new(folder: &Path, address: &str, args: &[&str]) -> Self {
        let name = address.replace(':', "-");
        Self {
            address: address.to_owned(),
            data: folder.join(&name),
            log: folder.join(format!("{name}.log")),
            args: args.iter().map(ToString::to_string).collect(),
            prefix: Vec::new(),
            settings: Vec::new(),
            child: None,
            log_start: 0,
        }
    }

    /// Sets an environment variable for later starts.
    pub(crate) fn set(&mut self, variable: &str, value: &str) {
        self.settings.push((variable.to_owned(), value.to_owned()));
    }

    /// Replaces the arguments for later starts.
    pub(crate) fn set_args(&mut self, args: &[&str]) {
        self.args = args.iter().map(ToString::to_string).collect();
    }

    /// Starts it through another program, given with its arguments.
    pub(crate) fn run_through(&mut self, prefix: &[&str]) {
        self.prefix = prefix.iter().map(ToString::to_string).collect();
    }

    /// Starts the process.
    pub(crate) fn start(&mut self) {
        assert!(self.child.is_none(), "{} runs", self.address);
        self.log_start = self.whole_log().len();
        let log = File::options().create(true).append(true).open(&self.log).unwrap();
        let binary = env!("CARGO_BIN_EXE_umbel").to_owned();
        let words: Vec<String> = self.prefix.iter().cloned().chain([binary]).collect();
        let mut command = Command::new(&words[0]);
        with_settings(&mut command).args(&words[1..]);
        command.args(["serve", "--listen", &self.address, "--data"]).arg(&self.data);
        command.args(&self.args).envs(self.settings.iter().cloned());
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(log);
        self.child = Some(command.spawn().unwrap());
    }

    /// Waits until the process logs that it listens.
    pub(crate) async fn listening(&mut self) {
        let said = self.said_ready().await;
        assert!(said, "{} ended:\n{}", self.address, self.log());
    }

    /// Waits until the process logs that it listens, and the node is ready.
    pub(crate) async fn ready(&mut self) {
        self.listening().await;
        let address = self.address.clone();
        until(&format!("{address} ready"), || async { is_ready(&address).await.then_some(()) })
            .await;
    }

    /// Waits for the log line that it listens; returns false if the process exits before.
    async fn said_ready(&mut self) -> bool {
        let deadline = Instant::now() + PATIENCE;
        let line = format!("listening on {}, node ", self.address);
        loop {
            if self.log().contains(&line) {
                return true;
            }
            if self.has_ended().is_some() {
                return false;
            }
            assert!(Instant::now() < deadline, "{} does not start:\n{}", self.address, self.log());
            tokio::time::sleep(LOOK_INTERVAL).await;
        }
    }

    /// Kills the process, like a crash of the process but not of the machine.
    pub(crate) fn kill(&mut self) {
        if let Some(mut child) = self.child.take() {
            let _ = child.kill();
            let _ = child.wait();
        }
    }

    /// Asks the process to stop, and waits; returns its status.
    pub(crate) async fn stop(&mut self) -> ExitStatus {
        self.signal("TERM");
        self.ended().await
    }

    /// Sends the process a signal, given by its name.
    pub(crate) fn signal(&self, name: &str) {
        let (name, id) = (format!("-{name}"), self.pid().to_string());
        assert!(Command::new("kill").args([name, id]).status().unwrap().success());
    }

    /// Waits until the process exits by itself; returns its status.
    pub(crate) async fn ended(&mut self) -> ExitStatus {
        let deadline = Instant::now() + PATIENCE;
        loop {
            if let Some(status) = self.has_ended() {
                self.child = None;
                return status;
            }
            assert!(Instant::now() < deadline, "{} does not end:\n{}", self.address, self.log());
            tokio::time::sleep(LOOK_INTERVAL).await;
        }
    }

    /// The process id.
    pub(crate) fn pid(&self) -> u32 {
        self.child.as_ref().unwrap().id()
    }

    /// The process's exit status, if it has exited.
    pub(crate) fn has_ended(&mut self) -> Option<ExitStatus> {
        self.child.as_mut().and_then(|child| child.try_wait().unwrap())
    }

    /// Waits until the started process exits without having become ready; returns its output.
    pub(crate) async fn refused(&mut self) -> String {
        self.refused_with(1).await
    }

    /// Like `Self::refused`, with an exit code other than the usual one for failures.
    pub(crate) async fn refused_with(&mut self, code: i32) -> String {
        self.start();
        let said_ready = self.said_ready().await;
        let log = self.log();
        assert!(!said_ready, "{} started:\n{log}", self.address);
        let status = self.ended().await;
        assert_eq!(status.code(), Some(code), "{log}");
        log
    }

    /// The standard error of the running process or, if none runs, of the last one.
    pub(crate) fn log(&self) -> String {
        String::from_utf8_lossy(&self.whole_log()[self.log_start..]).into_owned()
    }

    fn whole_log(&self) -> Vec<u8> {
        std::fs::read(&self.log).unwrap_or_default()
    }

    /// The node's number and its cluster's id, from the first line of the log.
    pub(crate) fn membership(&self) -> (u64, String) {
        let log = self.log();
        let line = log.lines().find(|line| line.starts_with("listening on ")).unwrap();
        let (_, rest) = line.split_once(", node ").unwrap();
        let (node, cluster) = rest.split_once(" of cluster ").unwrap();
        (node.parse().unwrap(), cluster.to_owned())
    }

    /// A client of this node alone that gives up soon, since it will not be answered.
    pub(crate) fn hasty_client(&self) -> Client {
        let options = ClientOptions { timeout: HASTE, learns_nodes: false, ..options() };
        Client::connect_with(self.address.as_str(), options).unwrap()
    }

    /// A client that knows only this node.
    pub(crate) fn client(&self) -> Client {
        let options = ClientOptions { learns_nodes: false, ..options() };
        Client::connect_with(self.address.as_str(), options).unwrap()
    }

    /// A client for tests in which no node dies, but the machine may be slow.
    pub(crate) fn patient_client(&self) -> Client {
        let attempt_timeout = ClientOptions::default().timeout;
        let options = ClientOptions { learns_nodes: false, attempt_timeout, ..options() };
        Client::connect_with(self.address.as_str(), options).unwrap()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.kill();
    }
}

/// As many attempts as there is time for. A node that is down refuses connections, so only one that is slow or
/// suspended takes an attempt's time.
pub(crate) fn options() -> ClientOptions {
    ClientOptions {
        attempt_count_max: 1000,
        probe_timeout: PROBE_PATIENCE,
        ..ClientOptions::default()
    }
}

/// The response to a GET over plain HTTP/1.1, head and body; None if there is none.
pub(crate) async fn page(address: &str, path: &str) -> Option<String> {
    let (address, path) = (address.to_owned(), path.to_owned());
    let ask = move || -> std::io::Result<String> {
        let mut stream = TcpStream::connect(&address)?;
        stream.set_read_timeout(Some(PAGE_PATIENCE))?;
        let head = format!("GET {path} HTTP/1.1\r\nhost: {address}\r\nconnection: close\r\n\r\n");
        stream.write_all(head.as_bytes())?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer)?;
        Ok(answer)
    };
    tokio::task::spawn_blocking(ask).await.unwrap().ok()
}

/// Whether the node reports that it is ready.
pub(crate) async fn is_ready(address: &str) -> bool {
    page(address, "/readyz").await.is_some_and(|answer| answer.starts_with("HTTP/1.1 200 "))
}

/// The nodes of a cluster, and the permits of their test.
pub(crate) struct Cluster {
    /// Node n is at index n - 1.
    pub(crate) nodes: Vec<Server>,
    /// The folder of the nodes' data folders.
    pub(crate) folder: TempDir,
    _turn: SemaphorePermit<'static>,
}

impl Cluster {
    /// An empty cluster with a folder.
    pub(crate) async fn none() -> Self {
        Self::with_room(crate::room_of_a_test()).await
    }

    /// Like `Self::none`, while no other cluster runs.
    pub(crate) async fn alone() -> Self {
        Self::with_room(CLUSTERS_MAX).await
    }

    async fn with_room(room: u32) -> Self {
        let turn = TURNS.acquire_many(room).await.unwrap();
        let mut folder = tempfile::Builder::new().prefix("umbel-cluster-").tempdir().unwrap();
        folder.disable_cleanup(std::env::var_os("UMBEL_CLUSTER_TEST_KEEP").is_some());
        Self { nodes: Vec::new(), folder, _turn: turn }
    }

    /// A cluster of this many nodes, all of them ready.
    pub(crate) async fn form(count: usize) -> Self {
        Self::form_with(count, |_| ()).await
    }

    /// Like `Self::form`, with a change of each node's settings.
    pub(crate) async fn form_with(count: usize, mut change: impl FnMut(&mut Server)) -> Self {
        let mut cluster = Self::none().await;
        for _ in 0..PORT_ATTEMPTS_MAX {
            cluster.nodes = founders(cluster.folder.path(), count);
            cluster.nodes.iter_mut().for_each(&mut change);
            cluster.nodes.iter_mut().for_each(Server::start);
            if cluster.all_said_ready().await {
                for node in &mut cluster.nodes {
                    node.ready().await;
                }
                return cluster;
            }
        }
        panic!("no free ports:\n{}", cluster.logs());
    }

    /// Returns false if a port was taken in the meantime.
    async fn all_said_ready(&mut self) -> bool {
        for node in &mut self.nodes {
            if !node.said_ready().await {
                let log = node.log();
                assert!(log.contains("cannot listen"), "{} ended:\n{log}", node.address);
                return false;
            }
        }
        true
    }

    /// Another server with its own folder and a free port.
    pub(crate) fn another(&self, args: &[&str]) -> Server {
        Server::new(self.folder.path(), &format!("127.0.0.1:{}", free_port()), args)
    }

    /// A client that knows all nodes.
    pub(crate) fn client(&self) -> Client {
        let addresses: Vec<&str> = self.nodes.iter().map(|node| node.address.as_str()).collect();
        Client::connect_with(addresses, options()).unwrap()
    }

    /// Waits until the cluster's status, from any node, satisfies the condition.
    pub(crate) async fn status_until(
        &self,
        what: &str,
        is_wanted: impl Fn(&StatusResponse) -> bool,
    ) -> StatusResponse {
        let client = self.client();
        until(what, || async { client.status().await.ok().filter(&is_wanted) }).await
    }

    /// Whether some node has logged this since it was started the last time.
    pub(crate) fn has_logged(&self, text: &str) -> bool {
        self.nodes.iter().any(|node| node.log().contains(text))
    }

    /// The last lines of each node's log.
    pub(crate) fn logs(&self) -> String {
        let last_lines = |node: &Server| {
            let log = node.log();
            let lines: Vec<&str> = log.lines().collect();
            let start = lines.len().saturating_sub(LOG_LINES_SHOWN);
            // What came of a panic may fill the last lines.
            let panic = lines.iter().position(|line| line.contains("panicked at")).unwrap_or(start);
            let panic = &lines[panic.min(start)..start.min(panic + LOG_LINES_SHOWN)];
            let last = lines[start..].join("\n");
            format!("--- {}\n{}\n---\n{last}\n", node.address, panic.join("\n"))
        };
        self.nodes.iter().map(last_lines).collect()
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("{}", self.logs());
        }
    }
}

/// A node's entry in a status.
pub(crate) fn line_of(status: &StatusResponse, number: u64) -> &NodeStatus {
    status.nodes.iter().find(|node| node.node == number).unwrap()
}

/// Nodes for a new cluster, numbered in the order of their addresses.
pub(crate) fn founders(folder: &Path, count: usize) -> Vec<Server> {
    let mut addresses: Vec<String> =
        (0..count).map(|_| format!("127.0.0.1:{}", free_port())).collect();
    addresses.sort_unstable();
    let list = addresses.join(",");
    let args = ["--initial-cluster", &list];
    addresses.iter().map(|address| Server::new(folder, address, &args)).collect()
}
