//! The clients: make each call of the plan at its time, and record its outcome.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;
use std::time::Duration;

use umbel_client::proto::Items;
use umbel_client::proto::filters_client::FiltersClient;
use umbel_client::{
    Applied, Client, ClientError, ClientOptions, ErrorCode, NewFilter, PackedBatch, ReadLevel,
    Token,
};

use self::renames::other_name;
use self::resp::RespState;
use crate::channel::NodeChannel;
use crate::history::{Call, Outcome, Verb};
use crate::net::SimNet;
use crate::now::now_us;
use crate::plan::{FilterPlan, Op, OpPlan, Plan, WorldShape};
use crate::timed;
use crate::trace;

mod copies;
mod renames;
mod replicated;
mod resp;
mod settings;
mod snapshots;

/// Timeout of a client's request.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(8);

/// Timeout of an impatient client's request: as long as one attempt, so that the client sees what a
/// node answers to a request that it could not finish.
const IMPATIENT_TIMEOUT: Duration = Duration::from_secs(2);

/// Timeout of one attempt.
const ATTEMPT_TIMEOUT: Duration = Duration::from_secs(2);

/// Pause between two tries to create a filter before the work begins.
const CREATE_PAUSE: Duration = Duration::from_millis(100);

/// How much longer the client waits for the node's own answer after a request's deadline.
const ANSWER_GRACE: Duration = Duration::from_millis(250);

/// Most requests that a call makes one after another: the filter's summary and the shard map, then
/// three times a session and the request, because sessions may expire; and those once more if the
/// outcome was unknown.
const REQUESTS_PER_CALL: u32 = 2 + 2 * 3 * 2;

/// State shared by all clients.
pub(crate) struct Clients {
    net: SimNet,
    /// Addresses of the founding nodes, by number from 1.
    addresses: Vec<String>,
    filters: Vec<FilterPlan>,
    world: WorldShape,
    resp: RespState,
    /// Whether even-numbered clients keep their session for copies of requests.
    keeps_sessions: bool,
    /// The token of all clients, if the cluster has principals.
    token: Option<Token>,
    calls: RefCell<Vec<Call>>,
    /// A client for each pair of client number and first node.
    clients: RefCell<BTreeMap<(u32, u32), Client>>,
    /// A connection to each machine's node, for calls to replicated filters.
    copy_clients: RefCell<BTreeMap<u32, FiltersClient<NodeChannel>>>,
    request_count: RefCell<u32>,
    /// The sessions that clients keep for copies of requests, and the last request number in each.
    sessions: RefCell<BTreeMap<u32, (u64, u64)>>,
}

/// Text of an item.
pub(crate) fn item_text(item: u32) -> String {
    format!("item {item}")
}

/// Items in a request.
pub(crate) fn items_of(items: &[u32]) -> Items {
    let items = items.iter().map(|&item| item_text(item).into()).collect();
    Items { items, ..Items::default() }
}

/// The answers for so many items, of which a response has one bit each.
pub(crate) fn bits(bytes: &[u8], count: usize) -> Vec<bool> {
    let bit = |at: usize| bytes.get(at / 8).is_some_and(|byte| byte >> (at % 8) & 1 == 1);
    (0..count).map(bit).collect()
}

impl Clients {
    pub(crate) fn new(
        net: SimNet,
        addresses: Vec<String>,
        plan: &Plan,
        token: Option<Token>,
    ) -> Rc<Self> {
        Rc::new(Self {
            net,
            addresses,
            filters: plan.filters.clone(),
            world: plan.world,
            resp: RespState::default(),
            keeps_sessions: plan.splits_shards(),
            token,
            calls: RefCell::default(),
            clients: RefCell::default(),
            copy_clients: RefCell::default(),
            request_count: RefCell::new(0),
            sessions: RefCell::default(),
        })
    }

    /// All calls so far.
    pub(crate) fn calls(&self) -> std::cell::Ref<'_, Vec<Call>> {
        self.calls.borrow()
    }

    /// Makes the plan's calls, each at its time after now, and waits until all have ended.
    pub(crate) async fn run(self: Rc<Self>, ops: Vec<OpPlan>) {
        // Boxed, because the future is large, and is moved several times where it becomes a task.
        let call = |op| Box::pin(Rc::clone(&self).call(op));
        timed::run(ops, |op| op.at_ms, call).await;
    }

    /// Makes one call; several copies of a request are recorded separately, and this returns an unknown
    /// outcome for them.
    pub(crate) async fn call(self: Rc<Self>, plan: OpPlan) -> Outcome {
        let OpPlan { client, via, op, .. } = plan;
        let (filter, items, verb) = subject(&op);
        let speaks_resp = self.world.speaks_resp(client);
        if let Op::Insert { copies, .. } = op
            && copies > 1
        {
            if speaks_resp {
                self.insert_copies_resp(client, via, &filter, &items, copies).await;
            } else {
                self.insert_copies(client, via, &filter, &items, copies).await;
            }
            return Outcome::Unknown("several calls".to_owned());
        }
        let machine = self.is_replicated(&filter).then(|| self.machine(via));
        let only = machine.or_else(|| op.is_of_one_node().then(|| self.machine(via)));
        let id = self.begin(client, only, &filter, verb, &items, None);
        let sources = op.filter_names().skip(1).map(|(_, name)| name.to_owned());
        self.calls.borrow_mut()[id as usize].sources = sources.collect();
        let outcome = match (machine, &op) {
            (None, Op::Snapshot { filter }) => {
                let copied = self.snapshot(client, via, filter).await;
                copied.map_or_else(Outcome::NotApplied, |(ranges, frames)| {
                    let mut calls = self.calls.borrow_mut();
                    let call = &mut calls[id as usize];
                    (call.ranges, call.frames) = (ranges, frames);
                    Outcome::Done(Vec::new())
                })
            }
            (Some(machine), op) => self.call_copy(machine, op).await,
            (None, op @ (Op::Insert { .. } | Op::Contains { .. })) if speaks_resp => {
                self.call_resp(client, via, op).await
            }
            (
                None,
                op @ (Op::AddNew { .. }
                | Op::Expire { .. }
                | Op::Take { .. }
                | Op::AddOne { .. }
                | Op::DeleteOne { .. }
                | Op::ExpireIn { .. }
                | Op::AddVia { .. }
                | Op::AskVia { .. }),
            ) => self.race_resp(client, via, op).await,
            (None, op) => self.carry_out(client, via, op).await,
        };
        self.end(id, outcome.clone());
        if let Op::Rename { filter } = &op
            && !matches!(outcome, Outcome::NotApplied(_))
        {
            self.rename_back(client, via, filter).await;
        }
        outcome
    }

    /// The number of the next request that has several copies.
    fn next_number(&self) -> u32 {
        let mut count = self.request_count.borrow_mut();
        *count += 1;
        *count
    }

    fn begin(
        &self,
        client: u32,
        machine: Option<u32>,
        filter: &str,
        verb: Verb,
        items: &[u32],
        request: Option<u32>,
    ) -> u32 {
        let mut calls = self.calls.borrow_mut();
        let id = u32::try_from(calls.len()).expect("a run makes far fewer calls");
        let start_us = now_us();
        let patience = REQUESTS_PER_CALL * (request_timeout(client) + ANSWER_GRACE);
        let patience = u64::try_from(patience.as_micros()).expect("minutes");
        calls.push(Call {
            id,
            client,
            filter: filter.to_owned(),
            verb,
            machine,
            items: items.to_vec(),
            sources: Vec::new(),
            frames: Vec::new(),
            ranges: None,
            request,
            start_us,
            end_us: None,
            deadline_us: start_us + patience,
            outcome: Outcome::Unknown("no answer yet".to_owned()),
        });
        trace::line(
            start_us,
            "clients",
            "call",
            format_args!("{id} c{client} {machine:?} {verb:?} {filter} {items:?}"),
        );
        id
    }

    fn end(&self, id: u32, outcome: Outcome) {
        let now = now_us();
        let mut calls = self.calls.borrow_mut();
        let call = &mut calls[id as usize];
        trace::line(now, "clients", "end", format_args!("{id} c{} {outcome:?}", call.client));
        call.end_us = Some(now);
        call.outcome = outcome;
    }

    /// Even-numbered clients know all nodes and learn leaders; odd-numbered ones only call the node
    /// that the plan names.
    fn client(&self, number: u32, via: u32) -> Client {
        let is_stubborn = number % 2 == 1;
        let key = (number, if is_stubborn { via } else { 0 });
        let mut clients = self.clients.borrow_mut();
        let made = clients.entry(key).or_insert_with(|| {
            let addresses = if is_stubborn {
                vec![self.addresses[(via as usize - 1) % self.addresses.len()].clone()]
            } else {
                self.addresses.clone()
            };
            let timeout = request_timeout(number);
            let token = self.token.clone();
            let options = ClientOptions { learns_nodes: !is_stubborn, timeout, token, ..options() };
            let made = Client::connect_through(addresses, options, self.net.clone());
            made.expect("the hosts' addresses are addresses")
        });
        made.clone()
    }

    async fn carry_out(&self, client: u32, via: u32, op: &Op) -> Outcome {
        let client = self.client(client, via);
        let texts = |items: &[u32]| items.iter().map(|&item| item_text(item)).collect::<Vec<_>>();
        match op {
            Op::Insert { filter, items, .. } => {
                match client.filter(filter).insert(texts(items)).await {
                    // Half of the calls with unknown outcome are retried, with the same timeout.
                    Err(ClientError::OutcomeUnknown { request, .. }) if items[0] % 2 == 0 => {
                        match request.resend().await {
                            Ok(umbel_client::Outcome::Inserted(answer)) => {
                                Outcome::Done(answer.iter().collect())
                            }
                            Ok(other) => unreachable!("an insert answers as one, not {other:?}"),
                            Err(error) => failed(&error, true),
                        }
                    }
                    done => change(done, |answer| answer.iter().collect()),
                }
            }
            Op::Contains { filter, items, any } => {
                let level = if *any { ReadLevel::AnyReplica } else { ReadLevel::Linearizable };
                // Some calls query the first filter that contains each item, with another filter as the
                // second candidate.
                let found = match items[0] % 4 {
                    0 => self.first_filters(&client, filter, &texts(items), level).await,
                    _ => {
                        let answer = client.filter(filter).contains(texts(items), level).await;
                        answer.map(|answer| answer.iter().collect())
                    }
                };
                found.map_or_else(|error| failed(&error, false), Outcome::Done)
            }
            Op::Remove { filter, items } => {
                let removed = client.filter(filter).remove(texts(items)).await;
                change(removed, |answer| answer.iter().collect())
            }
            Op::Clear { filter } => change(client.clear(filter).await, |_| Vec::new()),
            Op::Rotate { filter } => change(client.rotate(filter).await, |_| Vec::new()),
            Op::Create { filter } => {
                change(client.create(filter, &self.settings(filter)).await, |_| Vec::new())
            }
            Op::Drop { filter } => change(client.drop_filter(filter).await, |_| Vec::new()),
            Op::Merge { filter, source } => {
                change(client.merge(filter, &[source]).await, |_| Vec::new())
            }
            Op::Intersect { filter, sources } => {
                let sources: Vec<&str> = sources.iter().map(String::as_str).collect();
                change(client.intersect(filter, &sources).await, |_| Vec::new())
            }
            Op::Rename { filter } => {
                change(client.rename(filter, &other_name(filter)).await, |_| Vec::new())
            }
            Op::Snapshot { .. }
            | Op::AddNew { .. }
            | Op::Expire { .. }
            | Op::Take { .. }
            | Op::AddOne { .. }
            | Op::DeleteOne { .. }
            | Op::ExpireIn { .. }
            | Op::AddVia { .. }
            | Op::AskVia { .. } => unreachable!("its caller makes it"),
            Op::InsertCopy { .. } | Op::ContainsCopy { .. } | Op::Flush { .. } => {
                unreachable!("a plan that was checked has it for replicated filters only")
            }
        }
    }

    /// Which items are in a filter, from a query that names another filter after it.
    async fn first_filters(
        &self,
        client: &Client,
        filter: &str,
        items: &[String],
        level: ReadLevel,
    ) -> Result<Vec<bool>, ClientError> {
        let is_other = |other: &&FilterPlan| !other.replicated && other.name != filter;
        let other = self.filters.iter().find(is_other).map(|other| other.name.as_str());
        let filters: Vec<&str> = std::iter::once(filter).chain(other).collect();
        let items = PackedBatch::from_items(items).expect("items of a plan are short and few");
        match client.contains_any(&filters, items.clone(), level).await {
            Ok(found) => Ok(found.iter().map(|first| first == Some(0)).collect()),
            // The other filter may have been dropped, and the error then names it.
            Err(ClientError::Refused(failure)) if failure.cause == ErrorCode::UnknownFilter => {
                let answer = client.filter(filter).contains_packed(items, level).await?;
                Ok(answer.iter().collect())
            }
            Err(error) => Err(error),
        }
    }

    /// Creates the plan's filters, and retries until each exists.
    pub(crate) async fn create_filters(&self) {
        for filter in &self.filters {
            let name = &filter.name;
            if filter.replicated {
                self.create_copies(name).await;
            } else {
                create_filter(&self.client(0, 1), name, &self.settings(name)).await;
            }
        }
    }
}

/// Creates a filter, and retries until it exists.
pub(crate) async fn create_filter(client: &Client, name: &str, settings: &NewFilter) {
    while let Err(error) = client.create(name, settings).await {
        if error.failure().is_some_and(|failure| failure.cause == ErrorCode::NameTaken) {
            return;
        }
        tokio::time::sleep(CREATE_PAUSE).await;
    }
}

/// Half of the odd-numbered clients are impatient.
const fn request_timeout(client: u32) -> Duration {
    if client % 4 == 3 { IMPATIENT_TIMEOUT } else { REQUEST_TIMEOUT }
}

/// Options that all simulated clients share.
fn options() -> ClientOptions {
    ClientOptions {
        attempt_timeout: ATTEMPT_TIMEOUT,
        connect_timeout: Duration::from_secs(1),
        map_age_max: Duration::from_secs(5),
        ..ClientOptions::default()
    }
}

fn subject(op: &Op) -> (String, Vec<u32>, Verb) {
    match op {
        Op::Insert { filter, items, .. } => (filter.clone(), items.clone(), Verb::Insert),
        Op::Contains { filter, items, any } => {
            let verb = if *any { Verb::ContainsAny } else { Verb::Contains };
            (filter.clone(), items.clone(), verb)
        }
        Op::Remove { filter, items } => (filter.clone(), items.clone(), Verb::Remove),
        Op::Clear { filter } => (filter.clone(), Vec::new(), Verb::Clear),
        Op::Rotate { filter } => (filter.clone(), Vec::new(), Verb::Rotate),
        Op::Snapshot { filter } => (filter.clone(), Vec::new(), Verb::Snapshot),
        Op::Rename { filter } => (filter.clone(), Vec::new(), Verb::Rename),
        Op::Create { filter } => (filter.clone(), Vec::new(), Verb::Create),
        Op::Drop { filter } => (filter.clone(), Vec::new(), Verb::Drop),
        Op::Merge { filter, .. } => (filter.clone(), Vec::new(), Verb::Merge),
        Op::Intersect { filter, .. } => (filter.clone(), Vec::new(), Verb::Intersect),
        Op::InsertCopy { filter, items, ack } => {
            (filter.clone(), items.clone(), Verb::InsertCopy(*ack))
        }
        Op::ContainsCopy { filter, items, majority } => {
            let verb = if *majority { Verb::ContainsMajority } else { Verb::ContainsCopy };
            (filter.clone(), items.clone(), verb)
        }
        Op::Flush { filter } => (filter.clone(), Vec::new(), Verb::Flush),
        Op::AddNew { filter, items } => (filter.clone(), items.clone(), Verb::AddNew),
        Op::Expire { filter, turn } => (filter.clone(), vec![*turn], Verb::Expire),
        Op::Take { filter } => (filter.clone(), Vec::new(), Verb::Take),
        Op::AddOne { filter, items } => (filter.clone(), items.clone(), Verb::AddOne),
        Op::DeleteOne { filter, items } => (filter.clone(), items.clone(), Verb::DeleteOne),
        Op::ExpireIn { filter, .. } => (filter.clone(), Vec::new(), Verb::ExpireIn),
        Op::AddVia { filter, items } => (filter.clone(), items.clone(), Verb::AddVia),
        Op::AskVia { filter, items } => (filter.clone(), items.clone(), Verb::AskVia),
    }
}

/// The outcome of a call that was to change something.
fn change<T>(done: Result<T, ClientError>, answers: impl FnOnce(T) -> Vec<bool>) -> Outcome {
    done.map_or_else(|error| failed(&error, true), |answer| Outcome::Done(answers(answer)))
}

/// The outcome of a call that got no answer.
fn failed(error: &ClientError, changes: bool) -> Outcome {
    let text = error.to_string();
    if error.failure().is_some_and(|failure| failure.cause == ErrorCode::RequestReused) {
        return Outcome::Reused(text);
    }
    let is_untouched = match error {
        ClientError::Refused(failure) => failure.applied == Applied::No,
        ClientError::Unavailable(_) => true,
        _ => false,
    };
    if is_untouched || !changes { Outcome::NotApplied(text) } else { Outcome::Unknown(text) }
}
