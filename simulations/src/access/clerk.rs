//! The administrator of principals. It makes one change after the other and retries each until it is
//! acknowledged, refused or out of time.

use std::rc::Rc;
use std::time::Duration;

use tokio::time::Instant;
use umbel_client::proto::{
    ClusterVerb, FilterVerb, Grant, Principal, PutPrincipalRequest, Quota, SetQuotaRequest,
};
use umbel_client::{Client, ClientError, NewFilter};

use super::{digest_of, holders, thief};
use crate::identity::CERTIFIED;
use crate::net::SimNet;
use crate::now::now_us;
use crate::operator::admin_client;
use crate::plan::access::{
    ACCESS_FILTERS, Change, ChangePlan, ClusterRight, FilterRight, GrantPlan, ROOT, access_filter,
    principal_name,
};
use crate::plan::quota::{LimitPlan, Size, holder_name};
use crate::seed::true_wall_ms;
use crate::trace;
use crate::watch;
use crate::workload::create_filter;

/// How long one change is retried.
const CHANGE_TIMEOUT: Duration = Duration::from_secs(6);

/// Pause between two tries.
const TRY_PAUSE: Duration = Duration::from_millis(100);

/// Capacity in items of a filter that principals ask about. It is far above what is inserted, so that
/// false positives are too rare for any sweep to meet one.
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

    /// Adds the root principal, with which the cluster is guarded, `holders` principals that the plan's
    /// quotas are for, and, if `is_proving`, one that is identified by a certificate. Then creates the
    /// filters that principals ask about, and one sample filter of each `Size`, whose memory shows what
    /// others of that size take.
    pub(crate) async fn set_up(&self, holders: u32, is_proving: bool) {
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
        let holders = (0..holders).map(|number| {
            let name = holder_name(number);
            named(&name, &holders::token_of(number), &format!("{name}s*"), &[FilterVerb::Manage])
        });
        // This principal has no token: its certificate identifies it. Only some worlds have certificates.
        let certified = Principal {
            token_digest: bytes::Bytes::new(),
            ..named(CERTIFIED, ROOT, "a*", &[FilterVerb::Read])
        };
        let certified = is_proving.then_some(certified);
        for principal in [root, owner, thief].into_iter().chain(holders).chain(certified) {
            while self.put(principal.clone()).await.is_err() {
                tokio::time::sleep(TRY_PAUSE).await;
            }
        }
        let names = (0..ACCESS_FILTERS).map(access_filter).chain([thief::FILTER.to_owned()]);
        let samples =
            Size::ALL.map(|size| (size.sample().to_owned(), size.capacity(), holders::RATE));
        for (name, capacity, rate) in names.map(|name| (name, CAPACITY, 1e-6)).chain(samples) {
            let settings = NewFilter {
                hashing: umbel_client::Hashing::Public,
                ..NewFilter::for_rate(capacity, rate)
            };
            create_filter(&self.client, &name, &settings).await;
        }
    }

    /// Adds a principal, or replaces it.
    pub(crate) async fn put(&self, principal: Principal) -> Result<(), ClientError> {
        let request =
            PutPrincipalRequest { principal: Some(principal), replace: true, keep_proof: false };
        self.client.put_principal(request).await
    }

    /// Revokes a principal.
    pub(crate) async fn revoke(&self, name: &str) -> Result<(), ClientError> {
        self.client.revoke_principal(name).await
    }

    /// Makes the plan's changes, each at its time or when the one before it has ended.
    pub(super) async fn run(&self, changes: Vec<ChangePlan>) {
        let began = Instant::now();
        for ChangePlan { at_ms, principal, change } in changes {
            tokio::time::sleep_until(began + Duration::from_millis(at_ms)).await;
            let name = principal_name(principal);
            let end = tried(async || match &change {
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
            });
            let end = end.await;
            trace::line(now_us(), "clerk", "change", format_args!("{name} {change:?} {end}"));
        }
    }
}

/// The part of the clerk that sets quotas.
impl Clerk {
    /// Replaces the quota of a principal, or of the whole cluster if `name` is empty.
    pub(crate) async fn set_quota(&self, name: &str, quota: Quota) -> Result<(), ClientError> {
        let (principal, change) = (name.to_owned(), Some(quota));
        let request = SetQuotaRequest { principal, change, from_none: true };
        self.client.set_quota(request).await.map(drop)
    }

    /// Sets the plan's quotas, each at its time or when the one before it has ended.
    pub(super) async fn limit(&self, limits: Vec<LimitPlan>) {
        let began = Instant::now();
        for limit in limits {
            tokio::time::sleep_until(began + Duration::from_millis(limit.at_ms)).await;
            let name = limit.of.map(holder_name).unwrap_or_default();
            let end = tried(async || self.set_quota(&name, quota_of(limit)).await).await;
            trace::line(now_us(), "clerk", "limit", format_args!("{limit:?} {end}"));
        }
    }
}

/// Makes a change until it is acknowledged, refused or out of time; returns which.
async fn tried(change: impl AsyncFn() -> Result<(), ClientError>) -> &'static str {
    let deadline = Instant::now() + CHANGE_TIMEOUT;
    loop {
        match change().await {
            Ok(()) => return "done",
            // The principal does not exist, or an earlier try was carried out.
            Err(ClientError::Refused(_)) => return "refused",
            Err(_) if Instant::now() > deadline => return "given up",
            Err(_) => tokio::time::sleep(TRY_PAUSE).await,
        }
    }
}

/// Converts a planned limit into a quota. The cluster's limits are added to its present usage, which
/// includes the other clients' filters.
fn quota_of(limit: LimitPlan) -> Quota {
    let LimitPlan { of, filters, tenths, .. } = limit;
    let (large, (count, bytes)) = watch::with(|checks| {
        let used = if of.is_none() { checks.quotas.now().usage_of_all() } else { (0, 0) };
        (checks.quotas.bytes_of(Size::Large.sample()).unwrap_or(0), used)
    });
    Quota {
        filters: filters.map(|more| count + u64::from(more)),
        memory_bytes: tenths.map(|tenths| bytes + large * u64::from(tenths) / 10),
        ..Quota::default()
    }
}

const ALL: [FilterVerb; 5] = [
    FilterVerb::Read,
    FilterVerb::Insert,
    FilterVerb::Remove,
    FilterVerb::Manage,
    FilterVerb::Export,
];

/// A principal with a token and one grant, or no grant if the pattern is empty.
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

/// The token of a planned principal, with the secret of this number.
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
