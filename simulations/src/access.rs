//! Principals in a run: an administrator who adds, changes and revokes them, those who ask for what they
//! may and may not, who steals sessions, and nodes that were removed and call on.
//!
//! | file | who |
//! |---|---|
//! | `answer` | what comes of a call |
//! | `clerk` | the administrator |
//! | `callers` | principals and strangers; `invariants/nothing_ungranted_is_done` checks each answer |
//! | `hello` | calls of nodes to nodes, in another one's name |
//! | `holders` | principals with quotas, who use them up; `invariants/quotas_hold` checks each answer |
//! | `thief` | one who sends requests in another one's session |
//! | `stranger` | somebody who knocks at nodes that start |
//! | `ghosts` | nodes that were removed |
//! | `impostors` | certificates that are none of the caller's, or of no worth |

mod callers;
mod clerk;
mod ghosts;
mod hello;
pub(crate) mod holders;
mod impostors;
mod stranger;
mod thief;

use std::rc::Rc;

use umbel_client::Token;

use crate::net::SimNet;
use crate::plan::access::{AccessPlan, ROOT};
use crate::plan::quota::HoldingPlan;

pub(crate) use clerk::{Clerk, named};

/// The administrator's token, in a plan with principals.
pub(crate) fn root_token(access: Option<&AccessPlan>) -> Option<Token> {
    access.map(|_| Token::new(ROOT).expect("it is a token"))
}

/// The hash of a token's secret.
pub(crate) fn digest_of(token: &str) -> [u8; 32] {
    let (_, secret) = token.rsplit_once('.').expect("tokens have a name and a secret");
    *blake3::hash(secret.as_bytes()).as_bytes()
}

/// Does what the plan says, to its end.
pub(crate) async fn run(clerk: Rc<Clerk>, net: SimNet, addresses: Vec<String>, plan: AccessPlan) {
    let AccessPlan { changes, asks, holding, identities } = plan;
    // They prove themselves by tokens, or not at all.
    let net = net.showing(None);
    let machines = u32::try_from(addresses.len()).expect("a few nodes");
    tokio::task::spawn_local(ghosts::run(net.clone(), machines));
    tokio::task::spawn_local(stranger::run(net.clone()));
    let holding = async {
        if let Some(HoldingPlan { limits, calls, .. }) = holding {
            let calling = holders::Holders::new(net.clone(), addresses.clone()).run(calls);
            tokio::join!(clerk.limit(limits), calling);
        }
    };
    let asking = callers::AccessCallers::new(net.clone(), addresses.clone()).run(asks);
    let impostors = async {
        if let Some(plan) = identities {
            impostors::run(net.clone(), plan).await;
        }
    };
    tokio::join!(clerk.run(changes), asking, holding, impostors);
}
