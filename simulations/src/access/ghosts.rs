//! Removed nodes that keep calling the nodes on all founders' machines.

use std::time::Duration;

use umbel_engine::NodeId;
use umbel_ports::NodeIdentity;

use super::hello::{as_node, asked, knock};
use crate::invariants::removed_stay_out;
use crate::net::SimNet;
use crate::watch;

/// Pause between two rounds.
const ROUND_PAUSE: Duration = Duration::from_millis(700);

/// Repeats the calls in the name of every removed node until the world ends.
pub(super) async fn run(net: SimNet, machines: u32) {
    loop {
        tokio::time::sleep(ROUND_PAUSE).await;
        let removed = watch::with(|checks| checks.rights.removed());
        for from in removed {
            for machine in 1..=machines {
                haunt(&net, machine, from).await;
            }
        }
    }
}

/// Calls a machine's node as a removed one, with the certificate of that one. Returns None if the called
/// node does not respond.
async fn haunt(net: &SimNet, machine: u32, from: NodeId) -> Option<()> {
    let to = asked(net, machine).await?;
    let cluster = watch::with(|checks| checks.reference.meta().cluster())?;
    let net = as_node(net, NodeIdentity { cluster, node: from.0 });
    for knock in knock(&net, machine, &to, from).await {
        removed_stay_out::check(machine, from, knock.us, knock.call, knock.is_admitted);
    }
    Some(())
}
