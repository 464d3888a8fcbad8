//! Clients that make calls which they may or may not have the right to make. Each call is sent once, to
//! the node that the plan names.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;
use std::time::Duration;

use tonic::Status;
use umbel_client::proto::access_client::AccessClient;
use umbel_client::proto::admin_client::AdminClient;
use umbel_client::proto::filters_client::FiltersClient;
use umbel_client::proto::jobs_client::JobsClient;
use umbel_client::proto::{
    ClearRequest, ClusterVerb, ContainsRequest, CreateRequest, DropRequest, FilterVerb,
    FlushRequest, InfoRequest, InsertRequest, Items, ListJobsRequest, ListPrincipalsRequest,
    ListRequest, MergeRequest, PutPrincipalRequest, RemoveRequest, StatusRequest,
};

use super::clerk::{CAPACITY, named, token_of};
use super::{digest_of, thief};
use crate::answer::{Answer, answer_of};
use crate::channel::{NodeChannel, node_channel};
use crate::invariants::nothing_ungranted_is_done::{ObservedCall, check};
use crate::net::SimNet;
use crate::now::now_us;
use crate::oracle::rights::Shown;
use crate::plan::access::{AccessCall, AccessCallPlan, access_filter, principal_name};
use crate::seed::true_wall_ms;
use crate::timed;
use crate::trace;
use crate::workload::items_of;

/// How long a call may take.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(3);

/// All clients of this kind.
pub(super) struct AccessCallers {
    net: SimNet,
    addresses: Vec<String>,
    /// Connections by token and machine. They stay open when their principal is changed or revoked.
    channels: RefCell<BTreeMap<(Option<String>, u32), NodeChannel>>,
}

impl AccessCallers {
    pub(super) fn new(net: SimNet, addresses: Vec<String>) -> Rc<Self> {
        Rc::new(Self { net, addresses, channels: RefCell::default() })
    }

    /// Makes the plan's calls, each `at_ms` after now, and waits until all have ended.
    pub(super) async fn run(self: Rc<Self>, asks: Vec<AccessCallPlan>) {
        timed::run(asks, |plan| plan.at_ms, |plan| Rc::clone(&self).ask(plan)).await;
    }

    async fn ask(self: Rc<Self>, plan: AccessCallPlan) {
        let founders = u32::try_from(self.addresses.len()).expect("a few nodes");
        let machine = (plan.via - 1) % founders + 1;
        if let AccessCall::Steal { item } = plan.ask {
            return thief::steal(&self.net, &self.addresses, machine, item).await;
        }
        let token = plan.secret.map(|secret| token_of(plan.principal, secret));
        let channel = self.channel(token.as_deref(), machine);
        let (from_us, from_ms) = (now_us(), true_wall_ms());
        let called = tokio::time::timeout(REQUEST_TIMEOUT, call(channel, &plan));
        let answer = match called.await {
            Ok(done) => answer_of(done),
            Err(_) => Answer::Open("no answer".to_owned()),
        };
        let token = token.map(|token| (principal_name(plan.principal), digest_of(&token)));
        let asked = ObservedCall {
            shown: Shown { token },
            machine,
            ask: plan.ask,
            us: (from_us, now_us()),
            wall_ms: (from_ms, true_wall_ms()),
            answer,
        };
        trace::line(now_us(), "askers", "asked", format_args!("{plan:?} {:?}", asked.answer));
        check(&asked);
    }

    fn channel(&self, token: Option<&str>, machine: u32) -> NodeChannel {
        let address = self.addresses[machine as usize - 1].clone();
        let mut channels = self.channels.borrow_mut();
        let made = || node_channel(&self.net, address, token);
        channels.entry((token.map(str::to_owned), machine)).or_insert_with(made).clone()
    }
}

fn items(item: u32) -> Option<Items> {
    Some(items_of(&[item]))
}

/// The result of a call whose response contains no names.
fn nameless<T>(answer: Result<T, Status>) -> Result<Vec<String>, Status> {
    answer.map(|_| Vec::new())
}

fn new_filter(name: String) -> CreateRequest {
    CreateRequest {
        name,
        kind: umbel_client::Kind::Blocked.into(),
        capacity: CAPACITY,
        false_positive_rate: 1e-6,
        hashing: umbel_client::Hashing::Public.into(),
        ..Default::default()
    }
}

async fn call(channel: NodeChannel, plan: &AccessCallPlan) -> Result<Vec<String>, Status> {
    let mut filters = FiltersClient::new(channel.clone());
    let name = access_filter;
    match plan.ask {
        AccessCall::Contains { filter, item } => {
            let (filter, items) = (name(filter), items(item));
            nameless(
                filters.contains(ContainsRequest { filter, items, ..Default::default() }).await,
            )
        }
        AccessCall::Info { filter } => {
            nameless(filters.info(InfoRequest { name: name(filter) }).await)
        }
        AccessCall::Insert { filter, item } => {
            let (filter, items) = (name(filter), items(item));
            nameless(filters.insert(InsertRequest { filter, items, ..Default::default() }).await)
        }
        AccessCall::Remove { filter, item } => {
            let (filter, items) = (name(filter), items(item));
            nameless(filters.remove(RemoveRequest { filter, items, ..Default::default() }).await)
        }
        AccessCall::Flush { filter } => {
            nameless(filters.flush(FlushRequest { name: name(filter) }).await)
        }
        AccessCall::Create { filter } => nameless(filters.create(new_filter(name(filter))).await),
        AccessCall::Clear { filter } => {
            nameless(filters.clear(ClearRequest { name: name(filter) }).await)
        }
        AccessCall::Drop { filter } => {
            nameless(filters.drop(DropRequest { name: name(filter) }).await)
        }
        AccessCall::Merge { filter, source } => {
            let request =
                MergeRequest { target: name(filter), sources: vec![name(source)], request: None };
            nameless(filters.merge(request).await)
        }
        AccessCall::List => {
            let listed = filters.list(ListRequest::default()).await?.into_inner();
            Ok(listed.filters.into_iter().map(|filter| filter.name).collect())
        }
        AccessCall::Status => {
            nameless(AdminClient::new(channel).status(StatusRequest::default()).await)
        }
        AccessCall::Jobs => nameless(JobsClient::new(channel).list_jobs(ListJobsRequest {}).await),
        AccessCall::Principals => {
            nameless(AccessClient::new(channel).list_principals(ListPrincipalsRequest {}).await)
        }
        AccessCall::Escalate => {
            let own = principal_name(plan.principal);
            let token = token_of(plan.principal, plan.secret.unwrap_or(0));
            let mut principal = named(&own, &token, "*", &[FilterVerb::Manage]);
            principal.cluster_verbs = vec![ClusterVerb::Admin.into()];
            let request = PutPrincipalRequest {
                principal: Some(principal),
                replace: true,
                keep_proof: false,
            };
            nameless(AccessClient::new(channel).put(request).await)
        }
        AccessCall::Steal { .. } => unreachable!("a thief has calls of its own"),
    }
}
