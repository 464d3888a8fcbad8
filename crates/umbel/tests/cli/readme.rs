//! Every command that the README and `docs/security.md` show is run, and prints what they say.
//!
//! A block of ```` ```console ```` is a session: a line that begins with `$ ` is a command, the lines behind it are what it
//! prints on standard output and standard error together. In these lines `...` stands for anything within a line, and alone
//! for any number of lines: figures of time are nobody's promise. A command that ends with ` &` is a server: it is waited for
//! until it has said its first line, and killed when the walk ends. `export NAME=VALUE ..` holds for the commands behind it.
//!
//! The sessions of the file run one behind the other in one directory, which has the `docs` of the repository. The commands that
//! set everything up are Cargo's: `cargo run --release --` is the binary of this test, and `cargo test` is not run within itself.

use crate::free_ports::free_port;
use crate::sandbox::Sandbox;
use std::collections::BTreeMap;
use std::fs;
use std::io::{BufRead, BufReader};
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

/// What the README says instead of the binary's name, for those who have not installed it.
const BUILD_AND_RUN: &str = "cargo run --release --";

/// The test command, which must not be run within itself.
const TEST_COMMAND: &str = "cargo test --workspace";

/// Where `umbel serve` listens unless it is told otherwise; in the test it takes a free port.
const DEFAULT_ADDRESS: &str = "127.0.0.1:7300";

/// Where the nodes of a cluster listen whose commands name their addresses; in the test they take free ports.
const CLUSTER_ADDRESSES: [&str; 3] = ["127.0.0.1:7301", "127.0.0.1:7302", "127.0.0.1:7303"];

/// A command of the README and what it shall print.
struct Step {
    line: usize,
    command: String,
    expected: Vec<String>,
}

/// The commands of all `console` blocks, in order.
fn steps(text: &str) -> Vec<Step> {
    let mut steps: Vec<Step> = Vec::new();
    let mut is_console = false;
    for (at, line) in text.lines().enumerate() {
        if let Some(language) = line.strip_prefix("```") {
            assert!(language != "sh", "line {}: show what a command prints: ```console", at + 1);
            is_console = language == "console";
        } else if is_console {
            if let Some(command) = line.strip_prefix("$ ") {
                let command = command.split("  #").next().unwrap().trim_end().to_owned();
                steps.push(Step { line: at + 1, command, expected: Vec::new() });
            } else {
                let step = steps.last_mut().expect("a block begins with a command");
                step.expected.push(line.to_owned());
            }
        }
    }
    steps
}

/// Whether a line is as it was shown, where `...` stands for anything.
fn line_is_as_shown(shown: &str, line: &str) -> bool {
    let Some((head, tail)) = shown.split_once("...") else { return shown == line };
    let Some(rest) = line.strip_prefix(head) else { return false };
    rest.char_indices().any(|(at, _)| line_is_as_shown(tail, &rest[at..]))
        || line_is_as_shown(tail, "")
}

/// Whether lines are as they were shown, where a line `...` stands for any number of lines.
fn is_as_shown(shown: &[String], lines: &[&str]) -> bool {
    match (shown.split_first(), lines.split_first()) {
        (None, None) => true,
        (Some((first, rest)), _) if first == "..." => {
            (0..=lines.len()).any(|skipped| is_as_shown(rest, &lines[skipped..]))
        }
        (Some((first, shown)), Some((line, lines))) => {
            line_is_as_shown(first, line) && is_as_shown(shown, lines)
        }
        _ => false,
    }
}

/// The walk: a directory, a path to `umbel`, and the servers that were started.
struct Walk {
    sandbox: Sandbox,
    bin: PathBuf,
    servers: Vec<Child>,
    address: Option<String>,
    /// What was exported.
    variables: BTreeMap<String, String>,
    /// Addresses that the text names, and those that the test takes.
    addresses: Vec<(&'static str, String)>,
}

impl Walk {
    fn new(root: &Path) -> Self {
        let sandbox = Sandbox::new();
        let bin = sandbox.path("bin");
        fs::create_dir(&bin).unwrap();
        symlink(env!("CARGO_BIN_EXE_umbel"), bin.join("umbel")).unwrap();
        symlink(root.join("docs"), sandbox.path("docs")).unwrap();
        let address = |shown| (shown, format!("127.0.0.1:{}", free_port()));
        let addresses = CLUSTER_ADDRESSES.map(address).to_vec();
        let variables = BTreeMap::new();
        Self { sandbox, bin, servers: Vec::new(), address: None, variables, addresses }
    }

    /// A command with the addresses that the test takes.
    fn taken(&self, command: &str) -> String {
        let taken = |text: String, (shown, taken): &(&str, String)| text.replace(shown, taken);
        self.addresses.iter().fold(command.to_owned(), taken)
    }

    /// What was printed, with the addresses that the text shows.
    fn shown(&self, printed: &str) -> String {
        let shown = |text: String, (shown, taken): &(&str, String)| text.replace(taken, shown);
        self.addresses.iter().fold(printed.to_owned(), shown)
    }

    /// Does what a command says: all that it printed.
    fn step(&mut self, command: &str) -> String {
        let command = self.taken(command);
        let printed = if let Some(variables) = command.strip_prefix("export ") {
            for variable in variables.split_whitespace() {
                let (name, value) = variable.split_once('=').expect("NAME=VALUE");
                self.variables.insert(name.to_owned(), value.to_owned());
            }
            String::new()
        } else if let Some(server) = command.strip_suffix(" &") {
            self.serve(server)
        } else {
            self.run(&command)
        };
        self.shown(&printed)
    }

    fn shell(&self, script: &str) -> Command {
        let mut command = Command::new("bash");
        let path = std::env::var("PATH").unwrap_or_default();
        command.args(["-o", "pipefail", "-c", script]).current_dir(self.sandbox.path(""));
        command.env("PATH", format!("{}:{path}", self.bin.display()));
        command.env("UMBEL_LOG_LEVEL", "error").stdin(Stdio::null());
        if let Some(address) = &self.address {
            command.env("UMBEL_CLUSTER", address);
        }
        command.envs(&self.variables);
        command
    }

    /// Runs a command to its end: all that it printed. Its exit code is not looked at: that of `umbel reconcile`, like that of
    /// `diff`, says that there is a difference.
    fn run(&self, command: &str) -> String {
        let script = format!("{{ {command}\n}} 2>&1");
        let output = self.shell(&script).stdout(Stdio::piped()).output().unwrap();
        String::from_utf8(output.stdout).unwrap()
    }

    /// Starts a server on a free port: its first line, with the address that it would have had.
    fn serve(&mut self, command: &str) -> String {
        let mut shell = self.shell(&format!("exec {command}"));
        shell.env("UMBEL_LISTEN", "127.0.0.1:0").stdout(Stdio::null()).stderr(Stdio::piped());
        let mut child = shell.spawn().unwrap();
        let mut first = String::new();
        BufReader::new(child.stderr.as_mut().unwrap()).read_line(&mut first).unwrap();
        self.servers.push(child);
        let address = first.strip_prefix("listening on ").and_then(|line| line.split(',').next());
        let address = address.unwrap_or_else(|| panic!("{command}: {first}")).to_owned();
        if command.contains("--listen") {
            return first;
        }
        let shown = first.replace(&address, DEFAULT_ADDRESS);
        self.address = Some(address);
        shown
    }
}

impl Drop for Walk {
    fn drop(&mut self) {
        for server in &mut self.servers {
            let _ = server.kill();
            let _ = server.wait();
        }
    }
}

#[test]
fn the_readme_shows_what_its_commands_print() {
    let steps = steps(&fs::read_to_string(root().join("README.md")).unwrap());
    assert!(steps.iter().any(|step| step.command.starts_with(BUILD_AND_RUN)), "no first command");
    assert!(steps.iter().any(|step| step.command == TEST_COMMAND), "no test command");
    walk("README.md", steps);
}

#[test]
fn a_secure_cluster_is_made_by_the_commands_of_its_page() {
    let steps = steps(&fs::read_to_string(root().join("docs/security.md")).unwrap());
    assert!(steps.iter().any(|step| step.command.starts_with("umbel serve ")), "no cluster");
    walk("docs/security.md", steps);
}

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().nth(2).unwrap()
}

/// Does what the steps say, and compares what is printed.
fn walk(file: &str, steps: Vec<Step>) {
    let mut walk = Walk::new(root());
    for mut step in steps {
        if step.command == TEST_COMMAND {
            continue;
        }
        step.command = step.command.replace(BUILD_AND_RUN, "umbel");
        let printed = walk.step(&step.command);
        let lines: Vec<&str> = printed.lines().collect();
        let Step { line, command, expected } = &step;
        assert!(
            is_as_shown(expected, &lines),
            "{file}, line {line}: {command}\nprints:\n{printed}\nand not:\n{}",
            expected.join("\n")
        );
    }
}

#[test]
fn dots_stand_for_anything_and_nothing_else_does() {
    let shown = |text: &str| text.lines().map(str::to_owned).collect::<Vec<String>>();
    assert!(is_as_shown(&shown("kept 3\ntime ... s"), &["kept 3", "time 0.1 s"]));
    assert!(is_as_shown(&shown("a\n...\nz"), &["a", "b", "c", "z"]));
    assert!(is_as_shown(&shown("a\n..."), &["a"]));
    assert!(!is_as_shown(&shown("kept 3"), &["kept 4"]));
    assert!(!is_as_shown(&shown("kept 3"), &["kept 3", "and more"]));
    assert!(!is_as_shown(&shown("time ... s"), &["time 0.1 ms!"]));
    assert!(!is_as_shown(&shown("a ... b ... c"), &["a b c d"]));
}
