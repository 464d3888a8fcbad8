//! A node under attack: what the attack costs it, and how its honest client fares.

use std::fs;
use std::time::Duration;

use umbel_client::{Client, ClientOptions};

use crate::honest::{Connect, DEADLINE, Honest};
use crate::servers::{Cluster, PROBE_PATIENCE, Server, number_of, until};

/// Descriptors that an idle node may open in addition: connections that it closes soon, a new segment.
const DESCRIPTORS_SLACK: u64 = 12;

/// Calls of the honest client during an attack, alternately inserts and queries.
const CALLS_BESIDE: u64 = 4;

/// Calls in the long form, in which attacks last longer.
const CALLS_BESIDE_LONG: u64 = 10;

/// The scale from which throughput is measured.
const SCALE_MEASURED: u64 = 4;

/// How long throughput is measured before and during an attack.
const MEASURED: Duration = Duration::from_secs(3);

/// The size of attacks relative to those in CI.
pub(crate) fn scale() -> u64 {
    number_of("UMBEL_HOSTILE_TEST_SCALE", 1).max(1)
}

/// A number of connections, frames or calls that grows with the scale.
pub(crate) fn scaled(count: u64) -> usize {
    usize::try_from(count * scale()).unwrap()
}

/// Whether tests wait for time limits, and measure throughput.
pub(crate) fn is_long() -> bool {
    scale() >= SCALE_MEASURED
}

fn calls_beside() -> u64 {
    if is_long() { CALLS_BESIDE_LONG } else { CALLS_BESIDE }
}

/// Options of a client that knows only one node. While the machine is busy, the node's answer to a call or a probe may be
/// late without a fault of the node.
pub(crate) fn patient() -> ClientOptions {
    ClientOptions {
        learns_nodes: false,
        timeout: DEADLINE,
        attempt_timeout: DEADLINE / 2,
        probe_timeout: PROBE_PATIENCE,
        ..ClientOptions::default()
    }
}

/// What an attack may cost the node in addition to its usage at rest.
#[derive(Clone, Copy)]
pub(crate) struct Bounds {
    /// The peak of its memory.
    pub(crate) memory_mib: u64,
    /// Open descriptors.
    pub(crate) descriptors: u64,
}

/// The resource usage of a process.
#[derive(Clone, Copy, Debug)]
struct Usage {
    resident_kib: u64,
    peak_kib: u64,
    descriptors: u64,
}

impl Usage {
    fn of(pid: u32) -> Self {
        let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
        let kib = |name: &str| {
            let line = status.lines().find_map(|line| line.strip_prefix(name)).unwrap();
            line.trim_start_matches(':').trim().trim_end_matches(" kB").parse().unwrap()
        };
        let descriptors = fs::read_dir(format!("/proc/{pid}/fd")).unwrap().count() as u64;
        Self { resident_kib: kib("VmRSS"), peak_kib: kib("VmHWM"), descriptors }
    }
}

/// The peak memory of a process.
pub(crate) fn peak_mib(pid: u32) -> u64 {
    Usage::of(pid).peak_kib >> 10
}

/// A node, an honest client, and the usage before the attack.
pub(crate) struct Siege {
    pub(crate) cluster: Cluster,
    pub(crate) honest: Honest,
    rest: Usage,
    calls_before: Option<u64>,
}

impl Siege {
    /// Starts a node without TLS, and its honest client.
    pub(crate) async fn begin() -> Self {
        Self::begin_with(|_| ()).await
    }

    /// Like `Self::begin`, with a change of the node's settings.
    pub(crate) async fn begin_with(change: impl FnOnce(&mut Server)) -> Self {
        Self::begin_in(Cluster::none().await, change).await
    }

    /// Like `Self::begin_with`, while no other test runs: the memory that the allocator keeps grows
    /// with the threads that wait for a processor.
    pub(crate) async fn begin_alone(change: impl FnOnce(&mut Server)) -> Self {
        Self::begin_in(Cluster::alone().await, change).await
    }

    async fn begin_in(mut cluster: Cluster, change: impl FnOnce(&mut Server)) -> Self {
        let mut node = cluster.another(&["--dev"]);
        change(&mut node);
        node.start();
        node.ready().await;
        let address = node.address.clone();
        cluster.nodes.push(node);
        let connect = move || Client::connect_with(address.as_str(), patient()).unwrap();
        Self::around(cluster, Box::new(connect)).await
    }

    /// Attacks the first node of an existing cluster; `connect` makes the clients.
    pub(crate) async fn around(cluster: Cluster, connect: Connect) -> Self {
        let honest = Honest::begin(connect).await;
        honest.makes_calls(calls_beside()).await;
        let calls_before = if is_long() { Some(honest.count_for(MEASURED).await) } else { None };
        let rest = Usage::of(cluster.nodes[0].pid());
        let mut siege = Self { cluster, honest, rest, calls_before };
        siege.rests();
        siege
    }

    /// Attacks the first of several nodes; the clients know them all.
    pub(crate) async fn around_all(cluster: Cluster) -> Self {
        let addresses: Vec<String> =
            cluster.nodes.iter().map(|node| node.address.clone()).collect();
        let options = ClientOptions { timeout: DEADLINE, ..crate::servers::options() };
        let connect = move || Client::connect_with(addresses.clone(), options.clone()).unwrap();
        Self::around(cluster, Box::new(connect)).await
    }

    /// Kills the node and restarts it, until it is ready.
    pub(crate) async fn restarts(mut self) -> Self {
        self.honest.finish().await;
        let node = &mut self.cluster.nodes[0];
        node.kill();
        node.start();
        node.ready().await;
        self.honest.goes_on();
        self.honest.makes_calls(calls_beside()).await;
        let rest = Usage::of(self.node().pid());
        Self { rest, ..self }
    }

    pub(crate) fn node(&self) -> &Server {
        &self.cluster.nodes[0]
    }

    pub(crate) fn address(&self) -> String {
        self.node().address.clone()
    }

    /// Takes the node's present usage as that at rest.
    pub(crate) fn rests(&mut self) {
        let pid = self.node().pid();
        // This resets the peak.
        fs::write(format!("/proc/{pid}/clear_refs"), "5").unwrap();
        self.rest = Usage::of(pid);
    }

    /// The node's present memory.
    pub(crate) fn resident_mib(&self) -> u64 {
        Usage::of(self.node().pid()).resident_kib >> 10
    }

    /// Asserts the bounds while the attack lasts.
    pub(crate) async fn holds(&self, attack: &str, bounds: Bounds) {
        self.honest.makes_calls(calls_beside()).await;
        if let Some(before) = self.calls_before {
            let during = self.honest.count_for(MEASURED).await;
            println!("{attack}: {before} calls before, {during} during the attack");
            assert!(during * 2 >= before, "{attack}: {before} calls before, {during} during it");
        }
        self.costs_at_most(attack, bounds);
    }

    /// Asserts the bounds on the peak of memory since the node was ready, and on present descriptors.
    pub(crate) fn costs_at_most(&self, attack: &str, bounds: Bounds) {
        let usage = Usage::of(self.node().pid());
        let grown_mib = usage.peak_kib.saturating_sub(self.rest.resident_kib) >> 10;
        let opened = usage.descriptors.saturating_sub(self.rest.descriptors);
        println!(
            "{attack}: {grown_mib} MiB and {opened} descriptors beyond {} MiB and {} at rest; slowest honest call {:?}",
            self.rest.resident_kib >> 10,
            self.rest.descriptors,
            self.honest.slowest(),
        );
        let most = bounds.memory_mib;
        assert!(grown_mib <= most, "{attack}: {grown_mib} MiB of memory, at most {most}");
        let most = bounds.descriptors;
        assert!(opened <= most, "{attack}: {opened} descriptors, at most {most}");
    }

    /// Asserts after the attack that descriptors are released, and that the honest client was served.
    pub(crate) async fn recovers(mut self, attack: &str) {
        let most = self.rest.descriptors + DESCRIPTORS_SLACK;
        let pid = self.node().pid();
        until(&format!("{attack}: at most {most} descriptors"), || async {
            (Usage::of(pid).descriptors <= most).then_some(())
        })
        .await;
        self.honest.makes_calls(calls_beside()).await;
        self.honest.comes_anew().await;
        self.honest.finish().await;
        let node = &mut self.cluster.nodes[0];
        assert!(node.has_ended().is_none(), "{attack}: the node ended");
        let log = node.log();
        assert!(!log.contains("panicked"), "{attack}: {log}");
    }
}
