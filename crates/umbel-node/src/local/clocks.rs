//! How far the wall clocks of other nodes are from that of this node's machine.

use std::collections::BTreeMap;
use std::sync::Mutex;
use std::time::Duration;

use tokio::time::Instant;
use umbel_engine::NodeId;
use umbel_ports::locked;

use super::Local;

/// How long an answer is reused: pages and commands that watch the status ask for it every second or two, and each
/// question to a node is a connection of its own.
const ANSWER_STANDS: Duration = Duration::from_secs(10);

/// What other nodes have answered of late, and when: by how many milliseconds they are ahead.
#[derive(Default)]
pub(super) struct Clocks(Mutex<BTreeMap<NodeId, (Instant, Option<i64>)>>);

impl Clocks {
    fn of(&self, node: NodeId) -> Option<Option<i64>> {
        let known = locked(&self.0);
        let (at, ahead_ms) = known.get(&node)?;
        (at.elapsed() < ANSWER_STANDS).then_some(*ahead_ms)
    }

    fn keep(&self, node: NodeId, ahead_ms: Option<i64>) {
        let mut known = locked(&self.0);
        known.retain(|_, (at, _)| at.elapsed() < ANSWER_STANDS);
        known.insert(node, (Instant::now(), ahead_ms));
    }
}

impl Local {
    /// By how many milliseconds at least another node's wall clock is ahead of that of this node's machine, negative if
    /// it is behind; None if the node does not answer, or its release does not tell its clock.
    pub async fn clock_ahead_ms(&self, node: NodeId, address: &str) -> Option<i64> {
        if node == self.node() {
            return Some(0);
        }
        if let Some(known) = self.clocks.of(node) {
            return known;
        }
        let sent_ms = self.seed().wall_ms();
        let answer = self.asked(node, address).await.ok();
        let received_ms = self.seed().wall_ms();
        let ahead_ms = answer.and_then(|answer| ahead_ms(answer.wall_ms, (sent_ms, received_ms)));
        self.clocks.keep(node, ahead_ms);
        ahead_ms
    }
}

/// By how much a clock is ahead that was read between these two times of this one. What the question may have taken
/// does not count.
fn ahead_ms(theirs_ms: u64, (sent_ms, received_ms): (u64, u64)) -> Option<i64> {
    let signed = |ms: u64| i64::try_from(ms).unwrap_or(i64::MAX);
    match theirs_ms {
        0 => None,
        _ if theirs_ms < sent_ms => Some(-signed(sent_ms - theirs_ms)),
        _ => Some(signed(theirs_ms.saturating_sub(received_ms))),
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;
    use std::sync::Arc;

    use umbel_ports::Seed;

    use super::*;
    use crate::ports::Ports;
    use crate::testing::{PeersOnly, SetClock, config, deadline, free_addresses};
    use crate::{Config, Node};

    #[test]
    fn the_time_that_a_question_takes_is_no_difference() {
        let asked = (1_000, 1_200);
        for (theirs_ms, ahead) in [(1_000, 0), (1_100, 0), (1_200, 0), (1_201, 1), (999, -1)] {
            assert_eq!(ahead_ms(theirs_ms, asked), Some(ahead), "{theirs_ms}");
        }
        assert_eq!(ahead_ms(0, asked), None, "of an earlier build");
        assert_eq!(ahead_ms(u64::MAX, (1, 1)), Some(i64::MAX));
    }

    /// Starts a founder whose wall clock shows this.
    async fn start_at(wall_ms: u64, data: &Path, address: &str, founders: &[String]) -> Node {
        let config = Config {
            listen: address.to_owned(),
            initial_cluster: founders.to_vec(),
            shards: 1,
            ..config(data)
        };
        let seed: Arc<dyn Seed> = Arc::new(SetClock::new(wall_ms));
        let ports = Ports { seed, ..Ports::real(data).unwrap() };
        Node::start(config, ports, Box::new(PeersOnly)).await.unwrap()
    }

    /// Asks until the node answers in time, which it may not at once on a busy machine.
    async fn ahead_ms_of(local: &Local, node: u64, address: &str) -> i64 {
        let until = deadline();
        loop {
            if let Some(ahead_ms) = local.clock_ahead_ms(NodeId(node), address).await {
                return ahead_ms;
            }
            assert!(Instant::now() < until, "node {node} does not tell its clock");
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn a_node_tells_how_far_its_clock_is_from_another_ones() {
        let folders = [(); 2].map(|()| tempfile::tempdir().unwrap());
        let addresses = free_addresses(2);
        let clocks = [5_000_000, 12_200_000];
        let starts =
            folders.iter().zip(&addresses).zip(clocks).map(|((folder, address), clock)| {
                start_at(clock, folder.path(), address, &addresses)
            });
        let nodes = futures_util::future::join_all(starts).await;
        let (first, second) = (nodes[0].local(), nodes[1].local());
        assert_eq!(ahead_ms_of(first, 1, &addresses[0]).await, 0);
        assert_eq!(ahead_ms_of(first, 2, &addresses[1]).await, 7_200_000);
        assert_eq!(ahead_ms_of(second, 1, &addresses[0]).await, -7_200_000);
        futures_util::future::join_all(nodes.into_iter().map(Node::shutdown)).await;
    }
}
