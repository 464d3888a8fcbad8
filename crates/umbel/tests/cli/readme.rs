//! Runs every command in the README and in `docs/security.md`, and compares the output with the text.
//!
//! A block of ```` ```console ```` is a session: a line that begins with `$ ` is a command, and the lines
//! after it are its standard output and standard error together. In these lines `...` stands for any text
//! within a line and, as a whole line, for any number of lines, since durations vary. A command that ends
//! with ` &` is a server: the test waits for its first line, and kills it at the end. `export NAME=VALUE ..`
//! applies to all later commands.
//!
//! The sessions of a file run one after the other in one directory, which contains the repository's
//! `docs`. Cargo commands are special: `cargo run --release --` is this test's binary, and `cargo test`
//! is skipped.

use crate::sandbox::Sandbox;
use std::collections::BTreeMap;
use std::fs;
use std::io::{BufRead, BufReader};
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use umbel_ports::testing::free_port;

/// Stands for the binary's name in the README, for readers who have not installed it.
const BUILD_AND_RUN: &str = "cargo run --release --";

/// The test command, which is skipped, since it would run this test.
const TEST_COMMAND: &str = "cargo test --workspace";

/// The default address of `umbel serve`; the test uses a free port instead.
const DEFAULT_ADDRESS: &str = "127.0.0.1:7300";

/// The addresses of a cluster's nodes in the text; the test uses free ports instead.
const CLUSTER_ADDRESSES: [&str; 3] = ["127.0.0.1:7301", "127.0.0.1:7302", "127.0.0.1:7303"];

/// A command of the README and its expected output.
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

/// Whether a line matches the one in the text, in which `...` stands for anything.
fn line_is_as_shown(shown: &str, line: &str) -> bool {
    let Some((head, tail)) = shown.split_once("...") else { return shown == line };
    let Some(rest) = line.strip_prefix(head) else { return false };
    rest.char_indices().any(|(at, _)| line_is_as_shown(tail, &rest[at..]))
        || line_is_as_shown(tail, "")
}

/// Whether lines match those in the text, where a line `...` stands for any number of lines.
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

/// A running session: a directory, a path to `umbel`, and the started servers.
struct Walk {
    sandbox: Sandbox,
    bin: PathBuf,
    servers: Vec<Child>,
    address: Option<String>,
    /// Exported variables.
    variables: BTreeMap<String, String>,
    /// Addresses in the text, and those that the test uses instead.
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

    /// A command with the addresses that the test uses.
    fn taken(&self, command: &str) -> String {
        let taken = |text: String, (shown, taken): &(&str, String)| text.replace(shown, taken);
        self.addresses.iter().fold(command.to_owned(), taken)
    }

    /// Output with the addresses of the text.
    fn shown(&self, printed: &str) -> String {
        let shown = |text: String, (shown, taken): &(&str, String)| text.replace(taken, shown);
        self.addresses.iter().fold(printed.to_owned(), shown)
    }

    /// Executes a command; returns all of its output.
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
        // It is about these tests, and a node says that it knows no such setting.
        command.env_remove("UMBEL_AXE");
        if let Some(address) = &self.address {
            command.env("UMBEL_CLUSTER", address);
        }
        command.envs(&self.variables);
        command
    }

    /// Runs a command to its end; returns all of its output. The exit code is ignored: that of `umbel
    /// reconcile`, like that of `diff`, shows whether there is a difference.
    fn run(&self, command: &str) -> String {
        let script = format!("{{ {command}\n}} 2>&1");
        let output = self.shell(&script).stdout(Stdio::piped()).output().unwrap();
        String::from_utf8(output.stdout).unwrap()
    }

    /// Starts a server on a free port; returns its first line, with the address of the text.
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

/// Executes the steps, and compares their output.
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
