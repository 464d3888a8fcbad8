//! Network namespaces that are joined by a bridge, each with a cable that can be cut.
//!
//! Names begin with the number of the process; everything is removed with the test.

use std::process::{Command, Stdio};

/// Where the nodes listen.
const PORT: u16 = 7300;

/// One namespace a node, and one that holds the bridge.
pub(crate) struct Namespaces {
    tag: String,
    count: usize,
}

/// Runs a program: what it said if it failed.
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
    /// Makes so many; None, with a line that says so, where that is not allowed or not installed.
    pub(crate) fn make(count: usize) -> Option<Self> {
        let made = Self { tag: format!("u{}", std::process::id()), count };
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

    /// Name of a node's namespace.
    pub(crate) fn name(&self, number: usize) -> String {
        format!("{}n{number}", self.tag)
    }

    /// Where the node listens.
    pub(crate) fn address(&self, number: usize) -> String {
        format!("10.83.0.{}:{PORT}", number + 1)
    }

    /// What runs a program within a namespace.
    pub(crate) fn prefix(&self, number: usize) -> [String; 4] {
        ["ip".into(), "netns".into(), "exec".into(), self.name(number)]
    }

    /// Pulls a node's cable, or plugs it in.
    pub(crate) fn set_cable(&self, number: usize, is_plugged: bool) {
        let state = if is_plugged { "up" } else { "down" };
        run("ip", &format!("-n {} link set port{number} {state}", self.hub())).unwrap();
    }
}

impl Drop for Namespaces {
    fn drop(&mut self) {
        for name in (0..self.count).map(|number| self.name(number)).chain([self.hub()]) {
            // Cables go with their ends.
            let _ = run("ip", &format!("netns del {name}"));
        }
    }
}
