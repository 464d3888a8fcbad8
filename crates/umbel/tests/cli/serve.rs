//! `umbel serve`: sources of settings, start, stop; and a server for tests of its clients.

use crate::sandbox::{Ran, Sandbox};
use std::io::{BufRead, BufReader, Read, Write};
use std::process::{Child, ChildStderr, Command, Stdio};

/// A command `umbel` with these arguments, separated by blanks, without settings in the environment.
pub(crate) fn umbel(sandbox: &Sandbox, args: &str) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_umbel"));
    command.args(args.split_whitespace()).current_dir(sandbox.path(""));
    command.env_clear().env("TMPDIR", sandbox.path(".scratch"));
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

/// Runs it.
pub(crate) fn run(sandbox: &Sandbox, args: &str) -> Ran {
    let output = umbel(sandbox, args).output().unwrap();
    sandbox.ended(output)
}

/// A single node.
pub(crate) const SERVE: &str = "serve --dev --listen 127.0.0.1:0 --data node --no-fsync";

/// A cluster of one node with its data in the sandbox; it is killed when the test ends.
pub(crate) struct Server {
    child: Child,
    stderr: BufReader<ChildStderr>,
    /// The address on which it listens.
    pub(crate) address: String,
    /// The node's number and the cluster's id, from its first line.
    pub(crate) membership: String,
}

impl Server {
    /// Starts it, and waits until it is ready.
    pub(crate) fn start(sandbox: &Sandbox) -> Self {
        Self::spawn(umbel(sandbox, SERVE))
    }

    /// Like `Self::start`; returns the address of the Redis protocol, too.
    pub(crate) fn start_with_redis(sandbox: &Sandbox) -> (Self, String) {
        Self::start_with_redis_and(sandbox, "")
    }

    /// Like `Self::start_with_redis`, with further arguments.
    pub(crate) fn start_with_redis_and(sandbox: &Sandbox, args: &str) -> (Self, String) {
        let mut server = Self::spawn(umbel(sandbox, &format!("{SERVE} --resp 127.0.0.1:0 {args}")));
        let mut line = String::new();
        server.stderr.read_line(&mut line).unwrap();
        let address = line.strip_prefix("speaking the Redis protocol on ");
        let address = address.unwrap_or_else(|| panic!("{line}")).trim_end().to_owned();
        (server, address)
    }

    /// Its present memory in bytes.
    pub(crate) fn resident_bytes(&self) -> u64 {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.child.id())).unwrap();
        let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
        line.trim().strip_suffix(" kB").unwrap().parse::<u64>().unwrap() * 1024
    }

    /// Starts a server with this command.
    fn spawn(mut command: Command) -> Self {
        // Only the first line is read, so further output must fit in the pipe.
        command.stdout(Stdio::null()).env("UMBEL_LOG_LEVEL", "error");
        let mut child = command.spawn().unwrap();
        let mut stderr = BufReader::new(child.stderr.take().unwrap());
        let mut said = String::new();
        let ready = loop {
            let mut line = String::new();
            let is_end = stderr.read_line(&mut line).unwrap() == 0;
            said += &line;
            assert!(!is_end, "the server ended: {said}");
            if let Some(ready) = line.strip_prefix("listening on ") {
                break ready.trim_end().to_owned();
            }
        };
        let (address, membership) = ready.split_once(", ").unwrap();
        let (address, membership) = (address.to_owned(), membership.to_owned());
        Self { child, stderr, address, membership }
    }

    /// A command `umbel` with these arguments for this server.
    pub(crate) fn command(&self, sandbox: &Sandbox, args: &str) -> Command {
        let mut command = umbel(sandbox, args);
        command.env("UMBEL_CLUSTER", &self.address);
        command
    }

    /// Runs it.
    pub(crate) fn run(&self, sandbox: &Sandbox, args: &str) -> Ran {
        let output = self.command(sandbox, args).output().unwrap();
        sandbox.ended(output)
    }

    /// Runs it with these bytes as standard input.
    pub(crate) fn run_piped(&self, sandbox: &Sandbox, args: &str, stdin: &[u8]) -> Ran {
        let mut child = self.command(sandbox, args).stdin(Stdio::piped()).spawn().unwrap();
        let mut pipe = child.stdin.take().unwrap();
        std::thread::scope(|scope| {
            scope.spawn(move || pipe.write_all(stdin));
            sandbox.ended(child.wait_with_output().unwrap())
        })
    }

    /// Asks it to stop, and waits; returns its exit code.
    pub(crate) fn stop(mut self) -> Option<i32> {
        let killed = Command::new("kill").args(["-TERM", &self.child.id().to_string()]).status();
        assert!(killed.unwrap().success());
        // It must not block on writing its output.
        std::io::copy(&mut self.stderr, &mut std::io::sink()).unwrap();
        self.child.wait().unwrap().code()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[test]
fn wrong_settings_are_exit_code_2_and_are_named() {
    let files = [
        ("a.toml", "shards = 1025\n"),
        ("b.toml", "shard = 1\n"),
        ("c.toml", "x\ny"),
        ("no.token", "no token\n"),
    ];
    let sandbox = Sandbox::with(&files);
    for (args, said) in [
        ("--listen nowhere", &["listen = \"nowhere\"", "HOST:PORT"][..]),
        ("--listen 0.0.0.0:0", &["without TLS", "tls_cert", "--insecure"]),
        ("--listen 0.0.0.0:0 --insecure", &["advertise"]),
        ("--shards 1025", &["shards = 1025: expected 0 to 1024"]),
        ("--dev --join a:1", &["dev and join exclude each other"]),
        ("--initial-cluster a:1 --join a:1", &["--join"]),
        ("--initial-cluster a:1,b:1", &["a:1, b:1", "127.0.0.1:7300"]),
        ("--log-format xml", &["log_format = \"xml\""]),
        ("--config gone.toml", &["gone.toml", "No such file"]),
        ("--config a.toml", &["shards = 1025"]),
        ("--config b.toml", &["b.toml", "\"shard\" is no setting"]),
        ("--config c.toml", &["c.toml:1"]),
        ("--no-such-flag", &["--no-such-flag"]),
        ("--listen 127.0.0.1:0 --data new", &["--initial-cluster, --join or --dev"]),
        (
            "--listen 127.0.0.1:0 --advertise a:1 --join a:1 --data new",
            &["join = \"a:1\" is this node itself"],
        ),
        (
            "--join a:1 --join-token-file gone.token",
            &["join_token_file gone.token", "No such file"],
        ),
        ("--join a:1 --join-token-file no.token", &["join_token_file no.token"]),
    ] {
        run(&sandbox, &format!("serve {args}")).refused(2, said);
    }
    let output = umbel(&sandbox, "serve").env("UMBEL_SHARDS", "many").output().unwrap();
    sandbox.ended(output).refused(2, &["UMBEL_SHARDS=many", "a whole number"]);
}

#[test]
fn flags_go_before_the_environment_and_that_before_the_file() {
    let sandbox = Sandbox::with(&[("a.toml", "shards = 5\nreplicas = 5\nheartbeat_ms = 50\n")]);
    let mut command = umbel(&sandbox, "serve --config a.toml --shards 7 --print-config");
    let output = command.env("UMBEL_SHARDS", "6").env("UMBEL_REPLICAS", "6").output().unwrap();
    let printed = sandbox.ended(output).kept_text();
    for line in ["shards = 7", "replicas = 6", "heartbeat_ms = 50", "suspect_ms = 400"] {
        assert!(printed.lines().any(|printed| printed == line), "{line}: {printed}");
    }
    sandbox.write("b.toml", &printed);
    let again = run(&sandbox, "serve --config b.toml --print-config").kept_text();
    assert_eq!(again, printed);
    let output = umbel(&sandbox, "serve --print-config").env("UMBEL_CONFIG", "b.toml").output();
    assert_eq!(sandbox.ended(output.unwrap()).kept_text(), printed);
}

#[test]
fn a_misspelt_variable_is_warned_of_and_those_of_others_are_not() {
    let sandbox = Sandbox::new();
    let mut command = umbel(&sandbox, "serve --print-config");
    let variables = [
        ("UMBEL_SHARD", "3"),
        ("UMBEL_PORT", "tcp://10.0.0.1:7400"),
        ("UMBEL_SERVICE_HOST", "10.0.0.1"),
        ("UMBEL_CLUSTER", "a:1"),
    ];
    let ran = sandbox.ended(command.envs(variables).output().unwrap());
    assert_eq!(
        ran.stderr,
        "umbel: UMBEL_SHARD in the environment is no setting, and has no effect: is UMBEL_SHARDS meant?\n"
    );
    ran.kept();
    // Regression: it was not named where the settings lack what it was to set.
    let mut command = umbel(&sandbox, "serve --dev --tls-key k --tls-ca a");
    let output = command.env("UMBEL_TLS_CRT", "c").output().unwrap();
    let said = ["UMBEL_TLS_CRT in the environment is no setting", "tls_cert is not set"];
    sandbox.ended(output).refused(2, &said);
}

#[test]
fn help_describes_every_flag() {
    let sandbox = Sandbox::new();
    let help = run(&sandbox, "serve --help").kept_text();
    // The help's lines are wrapped.
    let help = help.split_whitespace().collect::<Vec<_>>().join(" ");
    for words in ["--listen <HOST:PORT>", "Where to listen", "[default: 127.0.0.1:7300]"] {
        assert!(help.contains(words), "{words}: {help}");
    }
}

#[test]
fn a_server_starts_says_where_and_stops_when_asked() {
    let sandbox = Sandbox::new();
    let server = Server::start(&sandbox);
    assert!(!server.address.ends_with(":0"), "{}", server.address);
    let cluster = server.membership.strip_prefix("node 1 of cluster ").unwrap().to_owned();
    assert_eq!(cluster.len(), 32, "{cluster}");
    assert_eq!(server.stop(), Some(0));
    // After a restart, it is the same node of the same cluster.
    let server = Server::start(&sandbox);
    assert_eq!(server.membership, format!("node 1 of cluster {cluster}"));
    let second = run(&sandbox, "serve --dev --listen 127.0.0.1:0 --data node");
    assert_eq!(second.code, Some(1), "{}", second.stderr);
    assert!(second.stderr.contains("node"), "{}", second.stderr);
    assert_eq!(server.stop(), Some(0));
}

/// Whoever reads the log of a node that ended must not take it for a crash.
#[test]
fn a_server_that_a_signal_stops_says_so() {
    let sandbox = Sandbox::new();
    let mut child = umbel(&sandbox, SERVE).stdout(Stdio::null()).spawn().unwrap();
    let mut said = String::new();
    let mut stderr = BufReader::new(child.stderr.take().unwrap());
    while !said.contains("listening on ") {
        assert_ne!(stderr.read_line(&mut said).unwrap(), 0, "the server ended: {said}");
    }
    let killed = Command::new("kill").args(["-HUP", &child.id().to_string()]).status();
    assert!(killed.unwrap().success());
    stderr.read_to_string(&mut said).unwrap();
    assert_eq!(child.wait().unwrap().code(), Some(0), "{said}");
    assert!(said.contains("asked to stop: its cluster has no other node"), "{said}");
}

/// The log goes to files and journals, in which escape sequences would be in the way.
#[test]
fn the_log_has_no_colours() {
    let sandbox = Sandbox::new();
    let mut child = umbel(&sandbox, SERVE).stdout(Stdio::null()).spawn().unwrap();
    let mut said = String::new();
    let mut stderr = BufReader::new(child.stderr.take().unwrap());
    while !said.contains(" INFO") {
        assert_ne!(stderr.read_line(&mut said).unwrap(), 0, "the server ended: {said}");
    }
    child.kill().unwrap();
    child.wait().unwrap();
    assert!(!said.contains('\x1b'), "{said:?}");
}

/// The program at the other end of the log's pipe may end first.
#[test]
fn a_server_goes_on_when_nobody_reads_its_log() {
    let sandbox = Sandbox::new();
    let mut command = umbel(&sandbox, SERVE);
    command.env("UMBEL_LOG_LEVEL", "debug").stdout(Stdio::null());
    let mut child = command.spawn().unwrap();
    let mut stderr = BufReader::new(child.stderr.take().unwrap());
    let address = loop {
        let mut line = String::new();
        assert_ne!(stderr.read_line(&mut line).unwrap(), 0, "the server ended");
        if let Some(ready) = line.strip_prefix("listening on ") {
            break ready.split_once(',').unwrap().0.to_owned();
        }
    };
    drop(stderr);
    let mut create = umbel(&sandbox, "filter create seen --capacity 1000");
    let created = create.env("UMBEL_CLUSTER", address).output().unwrap();
    child.kill().unwrap();
    child.wait().unwrap();
    sandbox.ended(created).kept();
}

#[test]
fn a_certificate_that_others_refuse_is_warned_of() {
    let sandbox = Sandbox::new();
    for args in ["init", "node elsewhere", "init --out others", "node 127.0.0.1 --out others"] {
        run(&sandbox, &format!("cluster certs {args}")).kept();
    }
    for (pair, warning) in [
        ("certs/elsewhere", "certs/elsewhere.pem is not for 127.0.0.1, where others"),
        ("others/127.0.0.1", "others/127.0.0.1.pem is signed by no authority of certs/ca.pem, so"),
        ("certs/ca", "certs/ca.pem is an authority's own certificate, and no node's, so"),
    ] {
        let said = said_at_start(&sandbox, pair);
        assert!(said.contains(warning), "{said}");
    }
}

#[test]
fn a_node_that_has_no_tls_warns_where_the_cluster_has() {
    let sandbox = Sandbox::new();
    for args in ["init", "node 127.0.0.1"] {
        run(&sandbox, &format!("cluster certs {args}")).kept();
    }
    let tls = "--tls-ca certs/ca.pem --tls-cert certs/127.0.0.1.pem --tls-key certs/127.0.0.1.key";
    let server = Server::spawn(umbel(&sandbox, &format!("{SERVE} {tls}")));
    let args = format!("serve --listen 127.0.0.1:0 --data second --join {}", server.address);
    let mut child = umbel(&sandbox, &args).stdout(Stdio::null()).spawn().unwrap();
    let mut said = String::new();
    let mut stderr = BufReader::new(child.stderr.take().unwrap());
    // Of one reason a node tells once in a while, and it has warned by then.
    while !said.contains(" WARN") && said.matches("cannot join yet").count() < 4 {
        assert_ne!(stderr.read_line(&mut said).unwrap(), 0, "the node ended: {said}");
    }
    child.kill().unwrap();
    child.wait().unwrap();
    let warning = said.lines().last().unwrap();
    for words in [" WARN", "cannot join", &server.address, "this node needs tls_cert"] {
        assert!(warning.contains(words), "{words}: {said}");
    }
}

/// What a node says until it listens, with this certificate and key.
fn said_at_start(sandbox: &Sandbox, pair: &str) -> String {
    let tls = format!("--tls-ca certs/ca.pem --tls-cert {pair}.pem --tls-key {pair}.key");
    let mut command = umbel(sandbox, &format!("{SERVE} {tls}"));
    let mut child = command.stdout(Stdio::null()).spawn().unwrap();
    let mut said = String::new();
    let mut stderr = BufReader::new(child.stderr.take().unwrap());
    while !said.contains("listening on ") {
        assert_ne!(stderr.read_line(&mut said).unwrap(), 0, "the server ended: {said}");
    }
    child.kill().unwrap();
    child.wait().unwrap();
    said
}

/// Most file descriptors of the server below.
#[cfg(target_os = "linux")]
const DESCRIPTORS: usize = 150;

#[cfg(target_os = "linux")]
#[test]
fn connections_that_say_nothing_leave_descriptors_for_the_rest() {
    use std::net::TcpStream;
    let sandbox = Sandbox::new();
    let mut command = Command::new("sh");
    command.args(["-c", &format!("ulimit -n {DESCRIPTORS} && exec \"$0\" \"$@\"")]);
    command.arg(env!("CARGO_BIN_EXE_umbel")).args(SERVE.split_whitespace());
    command.current_dir(sandbox.path("")).env_clear().env("TMPDIR", sandbox.path(".scratch"));
    command.stdin(Stdio::null()).stderr(Stdio::piped());
    let server = Server::spawn(command);
    // The system's queue accepts each of these at least, so none waits for the server.
    let connect = |_| TcpStream::connect(&server.address).unwrap();
    let silent: Vec<TcpStream> = (0..DESCRIPTORS).map(connect).collect();
    let folder = format!("/proc/{}/fd", server.child.id());
    let open = || std::fs::read_dir(&folder).unwrap().count();
    // The server accepts connections up to two thirds of its descriptors.
    while open() < DESCRIPTORS * 2 / 3 {
        std::thread::yield_now();
    }
    assert!(open() < DESCRIPTORS - 10, "{} of {DESCRIPTORS} descriptors are taken", open());
    drop(silent);
    let created = server.run(&sandbox, "filter create seen --capacity 1000");
    created.kept();
}
