//! Callers whose certificate is from a foreign authority or cluster, is expired or not yet valid, or
//! contradicts their hello; and callers with a valid certificate.

use std::time::Duration;

use tonic::{Response, Status};
use umbel_client::proto::InfoRequest;
use umbel_client::proto::ListPrincipalsRequest;
use umbel_client::proto::access_client::AccessClient;
use umbel_client::proto::filters_client::FiltersClient;
use umbel_engine::NodeId;
use umbel_ports::NodeIdentity;

use super::hello::{as_node, asked, knock, member, node_of};
use crate::answer::{Answer, answer_of};
use crate::certificate::{Certificate, FOREIGN_AUTHORITY};
use crate::channel::node_channel;
use crate::identity::CERTIFIED;
use crate::invariants::identities_hold::{check_certified, check_served};
use crate::names::address_of;
use crate::net::SimNet;
use crate::now::now_us;
use crate::plan::access::access_filter;
use crate::plan::identity::{IdentityPlan, ImpostorPlan, Show};
use crate::seed::true_wall_ms;
use crate::timed;
use crate::trace;

/// How long a call may take.
const CALL_TIMEOUT: Duration = Duration::from_secs(2);

/// Makes the plan's calls, each `at_ms` after now, and waits until all have ended.
pub(super) async fn run(net: SimNet, plan: IdentityPlan) {
    let IdentityPlan { require, skews_ms, impostors, .. } = plan;
    let begun = |impostor: ImpostorPlan| {
        let founders = u32::try_from(skews_ms.len()).expect("a few nodes");
        let machine = (impostor.via - 1) % founders + 1;
        let offset_ms = skews_ms[machine as usize - 1];
        call(net.clone(), impostor, (machine, offset_ms), require)
    };
    timed::run(impostors, |impostor| impostor.at_ms, begun).await;
}

/// Makes one planned call. Returns None if a node that it needs is unknown or does not respond.
async fn call(
    net: SimNet,
    plan: ImpostorPlan,
    (machine, offset_ms): (u32, i64),
    is_required: bool,
) -> Option<()> {
    trace::line(now_us(), "impostors", "call", format_args!("{plan:?}"));
    let what = format!("{:?}", plan.show);
    match plan.show {
        Show::Foreign { node } => {
            let shown = Certificate { authority: FOREIGN_AUTHORITY, ..member(node_of(node)?) };
            let answer = list(&net.showing(Some(shown)), machine).await;
            // The handshake must fail, so any definite response, even a refusal, is a violation.
            let served = !matches!(answer, Answer::Open(_));
            check_served(machine, &what, served.then_some(&*format!("{answer:?}")));
        }
        Show::Elsewhere { node } => {
            let own = node_of(node)?;
            let net = as_node(&net, NodeIdentity { cluster: !own.cluster, ..own });
            let answer = list(&net, machine).await;
            let served = matches!(answer, Answer::Done(_) | Answer::Refused(_));
            check_served(machine, &what, served.then_some(&*format!("{answer:?}")));
            greet(&net, machine, NodeId(own.node), &what).await?;
        }
        Show::Namesake { node, says } => {
            let (own, says) = (node_of(node)?, node_of(says)?);
            greet(&as_node(&net, own), machine, NodeId(says.node), &what).await?;
        }
        Show::Generic { says } => {
            // Unless certificates must name their node, the bearer of a generic one may claim to be any
            // node.
            if is_required {
                let net = net.showing(Some(Certificate::generic()));
                let answer = list(&net, machine).await;
                let served = matches!(answer, Answer::Done(_) | Answer::Refused(_));
                check_served(machine, &what, served.then_some(&*format!("{answer:?}")));
                greet(&net, machine, NodeId(node_of(says)?.node), &what).await?;
            }
        }
        Show::Client { says } => {
            let net = net.showing(Some(Certificate::client(CERTIFIED)));
            greet(&net, machine, NodeId(node_of(says)?.node), &what).await?;
        }
        Show::Dated { from_ms, to_ms } => {
            let now_ms = true_wall_ms();
            let at = |ms| now_ms.saturating_add_signed(ms);
            let valid_ms = (at(from_ms), at(to_ms));
            let shown = Certificate { valid_ms, ..Certificate::client(CERTIFIED) };
            let answer = info(&net.showing(Some(shown.clone())), machine).await;
            let is_served = !matches!(answer, Answer::Open(_));
            let denied = match &answer {
                Answer::Denied(text) => Some(text.as_str()),
                _ => None,
            };
            let ms = (now_ms, true_wall_ms());
            check_certified(machine, (&shown, offset_ms), ms, is_served, denied);
        }
    }
    Some(())
}

/// Makes node calls whose hello claims to come from node `says`.
async fn greet(net: &SimNet, machine: u32, says: NodeId, what: &str) -> Option<()> {
    let to = asked(net, machine).await?;
    for knock in knock(net, machine, &to, says).await {
        check_served(machine, what, knock.is_admitted.then_some(knock.call));
    }
    Some(())
}

async fn list(net: &SimNet, machine: u32) -> Answer {
    let mut client = AccessClient::new(node_channel(net, address_of(machine), None));
    came_of(client.list_principals(ListPrincipalsRequest {})).await
}

async fn info(net: &SimNet, machine: u32) -> Answer {
    let mut client = FiltersClient::new(node_channel(net, address_of(machine), None));
    came_of(client.info(InfoRequest { name: access_filter(0) })).await
}

async fn came_of<T>(calling: impl Future<Output = Result<Response<T>, Status>>) -> Answer {
    match tokio::time::timeout(CALL_TIMEOUT, calling).await {
        Ok(done) => answer_of(done.map(|_| Vec::new())),
        Err(_) => Answer::Open("no answer".to_owned()),
    }
}
