//! `deploy/compose.yaml` in containers, by the commands in its head: certificates, three nodes that find each other by name, a
//! principal; then what happens to containers: one is killed, one is frozen, and two change their addresses.
//!
//! The image is the last stage of `deploy/Dockerfile` with the binary of these tests, and the libraries that it is linked with.
//! Needs a Docker daemon and Compose, and is skipped where there is none.

use std::fs;
use std::io::Write;
use std::net::Ipv4Addr;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use super::{between, folder};

/// How long a condition may take on a machine that does other work.
const PATIENCE: Duration = Duration::from_secs(120);

/// Time between two looks at a condition.
const LOOK_INTERVAL: Duration = Duration::from_millis(200);

/// Runs a command with these bytes as its input; what it printed, or what it said when it failed.
fn run(command: &mut Command, input: &str) -> Result<String, String> {
    let command = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().map_err(|error| format!("{command:?}: {error}"))?;
    // A command that does not read its input says why.
    let _ = child.stdin.take().unwrap().write_all(input.as_bytes());
    let output = child.wait_with_output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    if output.status.success() {
        Ok(String::from_utf8_lossy(&output.stdout).into_owned())
    } else {
        Err(format!("{command:?}: {}: {said}", output.status))
    }
}

fn docker(args: &[&str]) -> Result<String, String> {
    run(Command::new("docker").args(args), "")
}

/// The words of Compose: a plug-in of Docker, or a program of its own.
fn compose_words() -> Result<Vec<&'static str>, String> {
    docker(&["info"])?;
    let words = [vec!["docker", "compose"], vec!["docker-compose"]];
    let works = |words: &&Vec<&str>| {
        run(Command::new(words[0]).args(&words[1..]).arg("version"), "").is_ok()
    };
    words.iter().find(works).cloned().ok_or_else(|| "there is no Compose".to_owned())
}

/// The nodes of the Compose file, under names of their own; removed with all that they had when dropped.
struct Composed {
    words: Vec<&'static str>,
    name: String,
    folder: tempfile::TempDir,
}

impl Composed {
    fn new(words: Vec<&'static str>) -> Self {
        let name = format!("umbel-test-{}", std::process::id());
        let composed = Self { words, name, folder: tempfile::tempdir().unwrap() };
        composed.build_image();
        let text = fs::read_to_string(folder().join("compose.yaml")).unwrap();
        assert_eq!(text.matches("image: umbel\n").count(), 2, "of the nodes, and of certs");
        // Any port of this machine: another node may have the usual one.
        let usual_port = "ports: [\"127.0.0.1:7300:7300\"]";
        assert_eq!(text.matches(usual_port).count(), 1);
        let text = text
            .replace("image: umbel\n", &format!("image: {}\n", composed.name))
            .replace(usual_port, "ports: [\"127.0.0.1::7300\"]");
        fs::write(composed.folder.path().join("compose.yaml"), text).unwrap();
        composed
    }

    /// Builds the last stage of the Dockerfile.
    fn build_image(&self) {
        let root = self.folder.path().join("image");
        let copy = |from: &Path, to: &str| {
            let to = root.join("root").join(to.trim_start_matches('/'));
            fs::create_dir_all(to.parent().unwrap()).unwrap();
            fs::copy(from, to).unwrap();
        };
        let binary = env!("CARGO_BIN_EXE_umbel");
        copy(Path::new(binary), "/umbel");
        let linked = run(Command::new("ldd").arg(binary), "").unwrap();
        for library in linked.split_whitespace().filter(|word| word.starts_with('/')) {
            copy(Path::new(library), library);
        }
        for volume in ["data", "authority", "tls"] {
            fs::create_dir_all(root.join("volumes").join(volume)).unwrap();
        }
        let text = fs::read_to_string(folder().join("Dockerfile")).unwrap();
        let stage = format!("FROM scratch\n{}", text.rsplit_once("\nFROM scratch\n").unwrap().1);
        let binary_line = "COPY --from=build /src/target/release/umbel /umbel\n";
        assert!(stage.contains(binary_line) && stage.contains("COPY --from=build --chown="));
        let stage = stage.replace(binary_line, "COPY root /\n").replace("--from=build ", "");
        fs::write(root.join("Dockerfile"), stage.replace(" /volumes /", " volumes /")).unwrap();
        docker(&["build", "--quiet", "--tag", &self.name, root.to_str().unwrap()]).unwrap();
    }

    fn compose_with(&self, args: &[&str], input: &str) -> Result<String, String> {
        let file = self.folder.path().join("compose.yaml");
        let file = ["--file", file.to_str().unwrap(), "--project-name", &self.name];
        run(Command::new(self.words[0]).args(&self.words[1..]).args(file).args(args), input)
    }

    fn compose(&self, args: &[&str]) -> String {
        self.compose_with(args, "").unwrap()
    }

    /// Runs the binary in a node's container, with this input.
    fn umbel(&self, node: &str, args: &[&str], input: &str) -> Result<String, String> {
        self.compose_with(&[&["exec", "-T", node, "/umbel"], args].concat(), input)
    }

    fn container(&self, node: &str) -> String {
        self.compose(&["ps", "--quiet", "--all", node]).trim().to_owned()
    }

    /// Waits until a node says of itself that it is ready.
    #[expect(clippy::disallowed_methods, reason = "waits for containers, which nothing tells of")]
    fn ready(&self, node: &str) {
        let deadline = Instant::now() + PATIENCE;
        while let Err(why) = self.umbel(node, &["cluster", "status", "--ready"], "") {
            let logs = || self.compose(&["logs", node]);
            assert!(Instant::now() < deadline, "{node} is not ready: {why}\n{}", logs());
            std::thread::sleep(LOOK_INTERVAL);
        }
    }

    /// Inserts so many items from this one on through a node, all of which are new.
    fn insert(&self, node: &str, from: u32, count: u32) {
        let items: String = (from..from + count).map(|item| format!("{item}\n")).collect();
        let said = self.umbel(node, &["filter", "insert", "seen"], &items).unwrap();
        // A filter that was made for a million items calls one of a million present by mistake while it is so empty.
        let new: u32 = between(&said, "new\t", "\n").parse().unwrap();
        assert!(new + 1 >= count, "{said}");
    }
}

impl Drop for Composed {
    fn drop(&mut self) {
        if let Err(why) = self.compose_with(&["down", "--volumes", "--timeout", "1"], "") {
            eprintln!("containers may be left: {why}");
        }
        let _ = docker(&["rmi", "--force", &self.name]);
    }
}

#[test]
fn three_nodes_run_in_containers_as_the_compose_file_says() {
    let words = match compose_words() {
        Ok(words) => words,
        Err(why) => {
            eprintln!("skipped: no Docker with Compose: {why}");
            return;
        }
    };
    let composed = Composed::new(words);
    let nodes = ["umbel-1", "umbel-2", "umbel-3"];
    composed.compose(&["run", "--rm", "certs", "init", "--out", "/authority"]);
    let names = ["umbel", nodes[0], nodes[1], nodes[2], "localhost", "127.0.0.1"];
    let folders = ["--authority", "/authority", "--out", "/tls"];
    composed.compose(&[&["run", "--rm", "certs", "node"], &names[..], &folders].concat());
    composed.compose(&["up", "--detach"]);
    nodes.iter().for_each(|node| composed.ready(node));

    // Who may do what, and a filter.
    let may = ["--may", "admin,backup,jobs,metrics", "--grant", "*:all"];
    let token = composed.umbel(nodes[0], &[&["access", "add", "operator"], &may[..]].concat(), "");
    assert!(token.unwrap().starts_with("operator."));
    composed.umbel(nodes[0], &["filter", "create", "seen", "--capacity", "1M"], "").unwrap();
    composed.insert(nodes[1], 0, 1_000);

    // One is killed, comes back, and then one stands still.
    let containers = nodes.map(|node| composed.container(node));
    docker(&["kill", &containers[2]]).unwrap();
    composed.insert(nodes[0], 1_000, 1_000);
    docker(&["start", &containers[2]]).unwrap();
    composed.ready(nodes[2]);
    docker(&["pause", &containers[0]]).unwrap();
    composed.insert(nodes[1], 2_000, 1_000);
    docker(&["unpause", &containers[0]]).unwrap();
    composed.ready(nodes[0]);

    // Two stop by SIGTERM, as process 1 of their containers, and get each other's address: Docker gives the lowest first.
    let address = |container: &String| -> Ipv4Addr {
        let format = "{{range .NetworkSettings.Networks}}{{.IPAddress}}{{end}}";
        docker(&["inspect", "--format", format, container]).unwrap().trim().parse().unwrap()
    };
    let before = [address(&containers[0]), address(&containers[1])];
    let is_first_lower = before[0] < before[1];
    docker(&["stop", "--time", "60", &containers[0], &containers[1]]).unwrap();
    for container in &containers[..2] {
        let code = docker(&["inspect", "--format", "{{.State.ExitCode}}", container]).unwrap();
        assert_eq!(code.trim(), "0", "{}", docker(&["logs", container]).unwrap());
    }
    docker(&["start", &containers[usize::from(is_first_lower)]]).unwrap();
    docker(&["start", &containers[usize::from(!is_first_lower)]]).unwrap();
    nodes.iter().for_each(|node| composed.ready(node));
    if before == [address(&containers[0]), address(&containers[1])] {
        eprintln!("skipped in part: Docker gave the same addresses again");
    }
    composed.insert(nodes[0], 3_000, 1_000);

    // Whatever was acknowledged is there, at every node.
    let items: String = (0..4_000).map(|item| format!("{item}\n")).collect();
    for node in nodes {
        let said = composed.umbel(node, &["filter", "contains", "seen"], &items).unwrap();
        assert_eq!(said.lines().filter(|line| line.starts_with("present\t")).count(), 4_000);
    }
}
