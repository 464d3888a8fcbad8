//! The administrator of principals: one change after the other, each until it is acknowledged.

use std::rc::Rc;
use std::time::Duration;

use tokio::time::Instant;
use umbel_client::proto::{ClusterVerb, FilterVerb, Grant, Principal, PutPrincipalRequest};
use umbel_client::{Client, ClientError, ErrorCode, NewFilter};

use super::{ROOT, digest_of, thief};
use crate::net::SimNet;
use crate::now::now_us;
use crate::operator::admin_client;
use crate::plan::access::{
    ACCESS_FILTERS, Change, ChangePlan, ClusterRight, FilterRight, GrantPlan, access_filter,
    principal_name,
};
use crate::seed::true_wall_ms;
use crate::trace;

/// How long one change is tried.
const CHANGE_TIMEOUT: Duration = Duration::from_secs(6);

/// Pause between two tries.
const TRY_PAUSE: Duration = Duration::from_millis(100);

/// Items that a filter of principals is made for: far more than it gets, so that what was never
/// inserted is absent but by a chance that no sweep meets.
pub(super) const CAPACITY: u64 = 20_000;

/// See the module.
pub(crate) struct Clerk {
    client: Client,
}

impl Clerk {
    pub(crate) fn new(net: SimNet, addresses: Vec<String>) -> Rc<Self> {
        let token = Some(umbel_client::Token::new(ROOT).expect("it is a token"));
        Rc::new(Self { client: admin_client(net, addresses, token) })
    }

    /// Guards the cluster, and creates the filters that principals ask about.
    pub(crate) async fn set_up(&self) {
        let root = Principal {
            cluster_verbs: vec![
                ClusterVerb::Admin.into(),
                ClusterVerb::Jobs.into(),
                ClusterVerb::Metrics.into(),
                ClusterVerb::Backup.into(),
            ],
            ..named("root", ROOT, "*", &ALL)
        };
        let owner = named("owner", thief::OWNER, thief::FILTER, &[FilterVerb::Insert]);
        let thief = named("thief", thief::THIEF, thief::FILTER, &[FilterVerb::Insert]);
        for principal in [root, owner, thief] {
            while self.put(principal.clone()).await.is_err() {
                tokio::time::sleep(TRY_PAUSE).await;
            }
        }
        let names = (0..ACCESS_FILTERS).map(access_filter).chain([thief::FILTER.to_owned()]);
        for name in names {
            let settings = NewFilter {
                hashing: umbel_client::Hashing::Public,
                ..NewFilter::for_rate(CAPACITY, 1e-6)
            };
            loop {
                match self.client.create(&name, &settings).await {
                    Ok(_) => break,
                    Err(error)
                        if error
                            .failure()
                            .is_some_and(|failure| failure.cause == ErrorCode::NameTaken) =>
                    {
                        break;
                    }
                    Err(_) => tokio::time::sleep(TRY_PAUSE).await,
                }
            }
        }
    }

    /// Adds a principal, or replaces it.
    pub(crate) async fn put(&self, principal: Principal) -> Result<(), ClientError> {
        let request =
            PutPrincipalRequest { principal: Some(principal), replace: true, keep_proof: false };
        self.client.put_principal(request).await
    }

    /// Ends a principal.
    pub(crate) async fn revoke(&self, name: &str) -> Result<(), ClientError> {
        self.client.revoke_principal(name).await
    }

    /// Makes the plan's changes, each at its time or when the one before it has ended.
    pub(super) async fn run(&self, changes: Vec<ChangePlan>) {
        let began = Instant::now();
        for ChangePlan { at_ms, principal, change } in changes {
            tokio::time::sleep_until(began + Duration::from_millis(at_ms)).await;
            let name = principal_name(principal);
            let deadline = Instant::now() + CHANGE_TIMEOUT;
            let end = loop {
                let tried = match &change {
                    Change::Revoke => self.revoke(&name).await,
                    Change::Put { secret, grants, cluster, for_ms } => {
                        let token = token_of(principal, *secret);
                        let wall_ms = true_wall_ms();
                        self.put(Principal {
                            grants: grants.iter().map(grant).collect(),
                            cluster_verbs: cluster.iter().map(cluster_verb).collect(),
                            expires_ms: if *for_ms == 0 { 0 } else { wall_ms + for_ms },
                            ..named(&name, &token, "", &[])
                        })
                        .await
                    }
                };
                match tried {
                    Ok(()) => break "done",
                    // It is not there, or what was sent before was done.
                    Err(ClientError::Refused(_)) => break "refused",
                    Err(_) if Instant::now() > deadline => break "given up",
                    Err(_) => tokio::time::sleep(TRY_PAUSE).await,
                }
            };
            trace::line(now_us(), "clerk", "change", format_args!("{name} {change:?} {end}"));
        }
    }
}

const ALL: [FilterVerb; 5] = [
    FilterVerb::Read,
    FilterVerb::Insert,
    FilterVerb::Remove,
    FilterVerb::Manage,
    FilterVerb::Export,
];

/// A principal with a token and one grant; none where there is no pattern.
pub(crate) fn named(name: &str, token: &str, pattern: &str, verbs: &[FilterVerb]) -> Principal {
    let verbs = verbs.iter().map(|&verb| verb.into()).collect();
    let grant = Grant { pattern: pattern.to_owned(), verbs };
    Principal {
        name: name.to_owned(),
        token_digest: digest_of(token).to_vec().into(),
        grants: if pattern.is_empty() { Vec::new() } else { vec![grant] },
        ..Principal::default()
    }
}

/// The token of a principal of the plan, with the secret of this number.
pub(super) fn token_of(principal: u32, secret: u32) -> String {
    format!("{}.k{secret}", principal_name(principal))
}

fn grant(plan: &GrantPlan) -> Grant {
    let verb = |right: &FilterRight| match right {
        FilterRight::Read => FilterVerb::Read.into(),
        FilterRight::Insert => FilterVerb::Insert.into(),
        FilterRight::Remove => FilterVerb::Remove.into(),
        FilterRight::Manage => FilterVerb::Manage.into(),
        FilterRight::Export => FilterVerb::Export.into(),
    };
    Grant { pattern: plan.pattern.clone(), verbs: plan.rights.iter().map(verb).collect() }
}

fn cluster_verb(right: &ClusterRight) -> i32 {
    match right {
        ClusterRight::Metrics => ClusterVerb::Metrics.into(),
        ClusterRight::Jobs => ClusterVerb::Jobs.into(),
    }
}
