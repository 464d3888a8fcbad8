//! A client without a token that calls nodes while they start: the part of the catalogue that they have
//! read by then may be older than the first principal.

use std::time::Duration;

use umbel_client::proto::ListPrincipalsRequest;
use umbel_client::proto::access_client::AccessClient;

use crate::answer::answer_of;
use crate::channel::node_channel;
use crate::invariants::nothing_ungranted_is_done::{ObservedCall, check};
use crate::names::address_of;
use crate::net::SimNet;
use crate::now::now_us;
use crate::oracle::rights::Shown;
use crate::plan::access::AccessCall;
use crate::seed::true_wall_ms;
use crate::watch;

/// Pause between two calls: a node reads its log in a few hundredths of a second.
const KNOCK_PAUSE: Duration = Duration::from_millis(10);

/// How long after its start a node is called, in simulated microseconds.
const KNOCKS_FOR_US: u64 = 500_000;

/// How long a call may take.
const KNOCK_TIMEOUT: Duration = Duration::from_secs(1);

/// Calls all recently started nodes, again and again until the world ends.
pub(super) async fn run(net: SimNet) {
    loop {
        tokio::time::sleep(KNOCK_PAUSE).await;
        let since_us = now_us().saturating_sub(KNOCKS_FOR_US);
        for machine in watch::with(|checks| checks.rights.started_after(since_us)) {
            tokio::task::spawn_local(knock(net.clone(), machine));
        }
    }
}

async fn knock(net: SimNet, machine: u32) {
    let mut client = AccessClient::new(node_channel(&net, address_of(machine), None));
    let (from_us, from_ms) = (now_us(), true_wall_ms());
    let asking = client.list_principals(ListPrincipalsRequest {});
    let Ok(done) = tokio::time::timeout(KNOCK_TIMEOUT, asking).await else { return };
    check(&ObservedCall {
        shown: Shown { token: None },
        machine,
        ask: AccessCall::Principals,
        us: (from_us, now_us()),
        wall_ms: (from_ms, true_wall_ms()),
        answer: answer_of(done.map(|_| Vec::new())),
    });
}
