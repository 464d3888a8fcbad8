//! Principals with quotas. They create, clear and drop filters through several nodes at once, and use up
//! their quotas. Each call is sent once, to the node that the plan names.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;
use std::time::Duration;

use tonic::{Code, Status};
use umbel_client::proto::filters_client::FiltersClient;
use umbel_client::proto::{ClearRequest, CreateRequest, DropRequest, ErrorCode, ErrorDetail};

use crate::channel::{NodeChannel, node_channel};
use crate::invariants::quotas_hold::{self, Made};
use crate::net::SimNet;
use crate::now::now_us;
use crate::plan::quota::{Hold, HoldPlan, Size, held_filter, holder_name};
use crate::timed;
use crate::trace;
use crate::watch;

/// How long a call may take.
const CALL_TIMEOUT: Duration = Duration::from_secs(3);

/// False positive rate of a holder's filter, which no client queries.
pub(crate) const RATE: f64 = 0.01;

/// The result of a holder's call.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum HoldOutcome {
    /// It was done.
    Done,
    /// The quota is used up, with this error text.
    Full(String),
    /// It changed nothing: the filter exists already, or no longer.
    Vain,
    /// It is unknown whether it was done; the error text.
    Open(String),
}

/// All holders.
pub(super) struct Holders {
    net: SimNet,
    addresses: Vec<String>,
    channels: RefCell<BTreeMap<(u32, u32), NodeChannel>>,
    /// For each filter, how many drops are in flight or have an unknown outcome.
    drops: RefCell<BTreeMap<String, u32>>,
}

/// A holder's token.
pub(crate) fn token_of(holder: u32) -> String {
    format!("{}.k0", holder_name(holder))
}

impl Holders {
    pub(super) fn new(net: SimNet, addresses: Vec<String>) -> Rc<Self> {
        Rc::new(Self { net, addresses, channels: RefCell::default(), drops: RefCell::default() })
    }

    /// Makes the plan's calls, each `at_ms` after now, and waits until all have ended.
    pub(super) async fn run(self: Rc<Self>, calls: Vec<HoldPlan>) {
        timed::run(calls, |plan| plan.at_ms, |plan| Rc::clone(&self).call(plan)).await;
    }

    async fn call(self: Rc<Self>, plan: HoldPlan) {
        let founders = u32::try_from(self.addresses.len()).expect("a few nodes");
        let machine = (plan.via - 1) % founders + 1;
        let channel = self.channel(plan.holder, machine);
        let holder = holder_name(plan.holder);
        let filter = held_filter(plan.holder, plan.call.slot());
        let from_us = now_us();
        let is_contested = || self.drops.borrow().get(&filter).is_some_and(|&count| count > 0);
        let was_contested = is_contested();
        let is_drop = matches!(plan.call, Hold::Drop { .. });
        if is_drop {
            watch::with(|checks| checks.acknowledged.dropping(&holder, &filter));
            *self.drops.borrow_mut().entry(filter.clone()).or_default() += 1;
        }
        let came = called(channel, &filter, plan.call).await;
        if is_drop && !matches!(came, HoldOutcome::Open(_)) {
            *self.drops.borrow_mut().entry(filter.clone()).or_default() -= 1;
        }
        trace::line(now_us(), "holders", "called", format_args!("{plan:?} {came:?}"));
        let Hold::Make { size, .. } = plan.call else { return };
        let is_contested = was_contested || is_contested();
        let (holder, filter, sample) = (&*holder, &*filter, size.sample());
        let us = (from_us, now_us());
        let made = Made { holder, filter, sample, machine, us, is_contested };
        match came {
            HoldOutcome::Done => quotas_hold::acknowledged(&made),
            HoldOutcome::Full(text) => quotas_hold::refused(&made, &text),
            HoldOutcome::Vain | HoldOutcome::Open(_) => {}
        }
    }

    fn channel(&self, holder: u32, machine: u32) -> NodeChannel {
        let made = || {
            let address = self.addresses[machine as usize - 1].clone();
            node_channel(&self.net, address, Some(&token_of(holder)))
        };
        self.channels.borrow_mut().entry((holder, machine)).or_insert_with(made).clone()
    }
}

/// Sends a call once and classifies its result.
pub(crate) async fn called(channel: NodeChannel, filter: &str, call: Hold) -> HoldOutcome {
    let mut client = FiltersClient::new(channel);
    let name = filter.to_owned();
    let calling = async {
        match call {
            Hold::Make { size, .. } => client.create(request(name, size)).await.map(drop),
            Hold::Clear { .. } => client.clear(ClearRequest { name }).await.map(drop),
            Hold::Drop { .. } => client.drop(DropRequest { name }).await.map(drop),
        }
    };
    match tokio::time::timeout(CALL_TIMEOUT, calling).await {
        Ok(Ok(())) => HoldOutcome::Done,
        Ok(Err(status)) => of_status(&status),
        Err(_) => HoldOutcome::Open("no answer".to_owned()),
    }
}

fn request(name: String, size: Size) -> CreateRequest {
    CreateRequest {
        name,
        kind: umbel_client::Kind::Blocked.into(),
        capacity: size.capacity(),
        false_positive_rate: RATE,
        hashing: umbel_client::Hashing::Public.into(),
        ..CreateRequest::default()
    }
}

fn of_status(status: &Status) -> HoldOutcome {
    let detail: ErrorDetail = umbel_proto::detail_of(status).unwrap_or_default();
    let text = format!("{:?}: {}", status.code(), status.message());
    match (detail.code(), status.code()) {
        (ErrorCode::Quota, _) => HoldOutcome::Full(text),
        (ErrorCode::NameTaken | ErrorCode::UnknownFilter, Code::AlreadyExists | Code::NotFound) => {
            HoldOutcome::Vain
        }
        _ => HoldOutcome::Open(text),
    }
}
