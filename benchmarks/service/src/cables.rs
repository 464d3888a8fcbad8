//! Nodes with a network of their own each, whose cable can be pulled: namespaces that a bridge joins, this program at one more
//! of its ports. The bridge is in a namespace, too, where no rule of this machine's for forwarded packets holds.

use std::process::{Command, Stdio};

use anyhow::{Context, Result, ensure};

/// Where nodes listen.
const PORT: u16 = 7300;

/// The network of nodes and clients, which nothing else on this machine may have.
const NETWORK: &str = "10.84.0";

/// This program's place in it.
const CLIENT_HOST: u8 = 254;

/// Cables of nodes. Dropping them takes them away; names begin with the number of this process.
pub(crate) struct Cables {
    tag: String,
    count: usize,
}

impl Cables {
    /// # Errors
    /// Without root's rights, or `ip` of iproute2.
    pub(crate) fn lay(count: usize) -> Result<Self> {
        let cables = Self { tag: format!("u{}", std::process::id()), count };
        cables.connect().context("cables need root and `ip netns`")?;
        Ok(cables)
    }

    fn connect(&self) -> Result<()> {
        let (hub, own) = (self.hub(), &self.tag);
        ip(&format!("netns add {hub}"))?;
        ip(&format!("-n {hub} link add bridge type bridge"))?;
        ip(&format!("-n {hub} link set bridge up"))?;
        ip(&format!("link add {own} type veth peer name client netns {hub}"))?;
        ip(&format!("-n {hub} link set client master bridge"))?;
        ip(&format!("-n {hub} link set client up"))?;
        ip(&format!("address add {NETWORK}.{CLIENT_HOST}/24 dev {own}"))?;
        ip(&format!("link set {own} up"))?;
        for number in 0..self.count {
            let name = self.name(number);
            ip(&format!("netns add {name}"))?;
            ip(&format!("-n {hub} link add port{number} type veth peer name cable netns {name}"))?;
            ip(&format!("-n {hub} link set port{number} master bridge"))?;
            ip(&format!("-n {hub} link set port{number} up"))?;
            ip(&format!("-n {name} address add {NETWORK}.{}/24 dev cable", number + 1))?;
            ip(&format!("-n {name} link set cable up"))?;
            ip(&format!("-n {name} link set lo up"))?;
        }
        Ok(())
    }

    fn hub(&self) -> String {
        format!("{}hub", self.tag)
    }

    fn name(&self, number: usize) -> String {
        format!("{}n{number}", self.tag)
    }

    /// Where the nodes listen.
    pub(crate) fn addresses(&self) -> Vec<String> {
        (1..=self.count).map(|host| format!("{NETWORK}.{host}:{PORT}")).collect()
    }

    /// The words before a command that a node is to run.
    pub(crate) fn prefix(&self, number: usize) -> [String; 4] {
        ["ip".into(), "netns".into(), "exec".into(), self.name(number)]
    }

    /// Pulls a node's cable, or plugs it in.
    ///
    /// # Errors
    /// If that is not done.
    pub(crate) fn set_plugged(&self, number: usize, is_plugged: bool) -> Result<()> {
        let state = if is_plugged { "up" } else { "down" };
        ip(&format!("-n {} link set port{number} {state}", self.hub()))
    }
}

impl Drop for Cables {
    fn drop(&mut self) {
        for name in (0..self.count).map(|number| self.name(number)).chain([self.hub()]) {
            // Cables go with their ends, and what was not made is not there.
            let _ = ip(&format!("netns del {name}"));
        }
    }
}

fn ip(words: &str) -> Result<()> {
    let output = Command::new("ip").args(words.split_whitespace()).stdin(Stdio::null()).output();
    let output = output.with_context(|| format!("ip {words}"))?;
    let said = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "ip {words}: {}", said.trim_end());
    Ok(())
}
