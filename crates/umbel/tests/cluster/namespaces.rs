//! Network namespaces that are connected by a bridge; the link of each can be cut.
//!
//! Their names begin with the process id and the number of the test; everything is removed when the test ends.

use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};

/// The port on which the nodes listen.
const PORT: u16 = 7300;

/// A namespace per node, and one for the bridge.
pub(crate) struct Namespaces {
    tag: String,
    count: usize,
}

/// Runs a program; returns its output if it failed.
fn run(program: &str, words: &str) -> Result<(), String> {
    let words: Vec<&str> = words.split_whitespace().collect();
    let output = Command::new(program).args(&words).stdin(Stdio::null()).output();
    let output = output.map_err(|error| format!("{program}: {error}"))?;
    if output.status.success() {
        return Ok(());
    }
    Err(format!("{program} {}: {}", words.join(" "), String::from_utf8_lossy(&output.stderr)))
}

impl Namespaces {
    /// Creates this many; prints a line and returns None if that is not allowed, or a program is missing.
    pub(crate) fn make(count: usize) -> Option<Self> {
        // Tests of this process that run at the same time have theirs.
        static MADE: AtomicUsize = AtomicUsize::new(0);
        let number = MADE.fetch_add(1, Ordering::Relaxed);
        let made = Self { tag: format!("u{}t{number}", std::process::id()), count };
        let (hub, is_allowed) = (made.hub(), run("ip", &format!("netns add {}", made.hub())));
        if let Err(said) = is_allowed {
            println!("skipped: needs root and ip netns ({})", said.trim_end());
            return None;
        }
        made.connect(&hub).unwrap();
        Some(made)
    }

    fn connect(&self, hub: &str) -> Result<(), String> {
        let ip = |words: &str| run("ip", words);
        ip(&format!("-n {hub} link add bridge type bridge"))?;
        ip(&format!("-n {hub} link set bridge up"))?;
        for number in 0..self.count {
            let name = self.name(number);
            ip(&format!("netns add {name}"))?;
            ip(&format!("-n {hub} link add port{number} type veth peer name cable netns {name}"))?;
            ip(&format!("-n {hub} link set port{number} master bridge"))?;
            ip(&format!("-n {hub} link set port{number} up"))?;
            ip(&format!("-n {name} address add 10.83.0.{}/24 dev cable", number + 1))?;
            ip(&format!("-n {name} link set cable up"))?;
            ip(&format!("-n {name} link set lo up"))?;
        }
        Ok(())
    }

    fn hub(&self) -> String {
        format!("{}hub", self.tag)
    }

    /// The name of a node's namespace.
    pub(crate) fn name(&self, number: usize) -> String {
        format!("{}n{number}", self.tag)
    }

    /// The address of a node.
    pub(crate) fn address(&self, number: usize) -> String {
        format!("10.83.0.{}:{PORT}", number + 1)
    }

    /// The command that runs a program in a node's namespace.
    pub(crate) fn prefix(&self, number: usize) -> [String; 4] {
        ["ip".into(), "netns".into(), "exec".into(), self.name(number)]
    }

    /// Cuts or restores a node's link.
    pub(crate) fn set_cable(&self, number: usize, is_plugged: bool) {
        let state = if is_plugged { "up" } else { "down" };
        run("ip", &format!("-n {} link set port{number} {state}", self.hub())).unwrap();
    }
}

impl Drop for Namespaces {
    fn drop(&mut self) {
        for name in (0..self.count).map(|number| self.name(number)).chain([self.hub()]) {
            // Links are removed with their ends.
            let _ = run("ip", &format!("netns del {name}"));
        }
    }
}
