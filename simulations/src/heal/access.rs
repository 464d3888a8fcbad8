//! Checks after everything else has healed: a change of principals takes effect on all nodes within a
//! second, and inserts that were never granted had no effect.

use std::rc::Rc;
use std::time::Duration;

use tonic::Status;
use umbel_client::proto::filters_client::FiltersClient;
use umbel_client::proto::{ContainsRequest, FilterVerb, InfoRequest};

use super::run_until;
use crate::access::{Clerk, named};
use crate::answer::{Answer, answer_of};
use crate::channel::{NodeChannel, node_channel};
use crate::counters;
use crate::invariants::nothing_ungranted_is_done;
use crate::net::SimNet;
use crate::now::now_us;
use crate::plan::access::{ACCESS_FILTERS, ROOT, access_filter};
use crate::watch;
use crate::workload::{bits, items_of};
use crate::world::World;

/// Name of the invariant. The bound is that of docs/security.md and of the design of the gate.
const NAME: &str = "changes_count_within_a_second";

/// Name of the invariant that a new token counts at once: a node asks the majority about a token that it
/// does not know.
const AT_ONCE: &str = "new_tokens_count_at_once";

/// How many tokens are used as soon as they are acknowledged, so that one reaches a node before the log
/// entry that adds it.
const NEW_TOKENS: u32 = 10;

/// Within this time a change takes effect on every node that can reach a majority.
const COUNTS_WITHIN: Duration = Duration::from_secs(1);

/// Each phase of these checks ends within this time.
const PATIENCE_US: u64 = 60_000_000;

/// How long a call may take.
const CALL_TIMEOUT: Duration = Duration::from_secs(3);

/// Pause between two tries.
const TRY_PAUSE: Duration = Duration::from_millis(50);

/// The token of a principal that is added and revoked here.
const LATE: &str = "late.k0";

/// The successive tokens of a principal whose token is replaced several times.
fn new_token(number: u32) -> String {
    format!("new.k{number}")
}

type Client = FiltersClient<NodeChannel>;

/// Adds a principal and revokes it, and checks that no filter contains items whose inserts were never
/// granted.
///
/// # Errors
/// If a host's task panicked.
pub(crate) fn heal(world: &mut World) -> Result<(), String> {
    let Some(clerk) = world.clerk.clone() else { return Ok(()) };
    let asking = Rc::clone(&world.asking);
    if !run_until(world, now_us() + PATIENCE_US, |_| asking.get())? && !world.is_violated() {
        watch::violated("heals_and_serves", "a call of a principal has not ended".to_owned());
    }
    if world.is_violated() {
        return Ok(());
    }
    let addresses: Vec<String> = world.hosts.iter().map(|host| host.address()).collect();
    let done = world.spawn(check(clerk, world.clients_net.clone(), addresses));
    if !run_until(world, now_us() + PATIENCE_US, |_| done.get())? && !world.is_violated() {
        watch::violated("heals_and_serves", "principals cannot be changed".to_owned());
    }
    Ok(())
}

async fn check(clerk: Rc<Clerk>, net: SimNet, addresses: Vec<String>) {
    for number in 0..NEW_TOKENS {
        check_new(&clerk, &net, &addresses, &new_token(number)).await;
    }
    let principal = named("late", LATE, "*", &[FilterVerb::Read]);
    while clerk.put(principal.clone()).await.is_err() {
        tokio::time::sleep(TRY_PAUSE).await;
    }
    tokio::time::sleep(COUNTS_WITHIN).await;
    let client = |address: &String| Client::new(node_channel(&net, address.clone(), Some(LATE)));
    let clients: Vec<Client> = addresses.iter().map(client).collect();
    for (client, address) in clients.iter().zip(&addresses) {
        let answer = ask(client).await;
        if let Answer::Denied(text) = answer {
            watch::violated(NAME, format!("{address} denies what was granted before: {text}"));
        }
        counters::checked(NAME, 1);
    }
    // A revocation whose answer was lost is refused when it comes again.
    while matches!(clerk.revoke("late").await, Err(error) if error.failure().is_none()) {
        tokio::time::sleep(TRY_PAUSE).await;
    }
    tokio::time::sleep(COUNTS_WITHIN).await;
    // On the connections whose calls were granted before.
    for (client, address) in clients.iter().zip(&addresses) {
        let answer = ask(client).await;
        if !matches!(answer, Answer::Denied(_)) {
            let what = format!("{address} answers a token that was revoked before: {answer:?}");
            watch::violated(NAME, what);
        }
        counters::checked(NAME, 1);
    }
    let items = watch::with(|checks| checks.seen.never_granted());
    let client = Client::new(node_channel(&net, addresses[0].clone(), Some(ROOT)));
    for filter in 0..ACCESS_FILTERS {
        let name = access_filter(filter);
        if let Some(present) = present(&client, &name, &items).await {
            let what = format!(
                "items {present:?} are in {name}, which only those without a right inserted"
            );
            watch::violated(nothing_ungranted_is_done::NAME, what);
        }
    }
    counters::checked(nothing_ungranted_is_done::NAME, items.len() as u64);
}

/// Adds a token and, as soon as it is acknowledged, uses it on all nodes at once.
async fn check_new(clerk: &Clerk, net: &SimNet, addresses: &[String], token: &str) {
    while clerk.put(named("new", token, "*", &[FilterVerb::Read])).await.is_err() {
        tokio::time::sleep(TRY_PAUSE).await;
    }
    let mut asking = tokio::task::JoinSet::new();
    for address in addresses {
        let client = Client::new(node_channel(net, address.clone(), Some(token)));
        let address = address.clone();
        asking.spawn_local(async move { (address, ask(&client).await) });
    }
    while let Some(asked) = asking.join_next().await {
        let Ok((address, answer)) = asked else { continue };
        if let Answer::Denied(text) = answer {
            watch::violated(AT_ONCE, format!("{address} denies what was granted: {text}"));
        }
        counters::checked(AT_ONCE, 1);
    }
}

/// Repeats a call until it has a definite response.
async fn ask(client: &Client) -> Answer {
    loop {
        let mut client = client.clone();
        let asked = client.info(InfoRequest { name: access_filter(0) });
        let answer = match tokio::time::timeout(CALL_TIMEOUT, asked).await {
            Ok(done) => answer_of(done.map(|_| Vec::new())),
            Err(_) => answer_of(Err(Status::deadline_exceeded("no answer"))),
        };
        if !matches!(answer, Answer::Open(_)) {
            return answer;
        }
        tokio::time::sleep(TRY_PAUSE).await;
    }
}

/// Which of the items are in a filter; None if none is, or if the query is refused.
async fn present(client: &Client, name: &str, items: &[u32]) -> Option<Vec<u32>> {
    if items.is_empty() {
        return None;
    }
    loop {
        let request = ContainsRequest {
            filter: name.to_owned(),
            items: Some(items_of(items)),
            ..ContainsRequest::default()
        };
        let mut client = client.clone();
        match client.contains(request).await {
            Ok(answer) => {
                let bits = bits(&answer.into_inner().present_bits, items.len());
                let found = items.iter().zip(bits).filter(|(_, is_present)| *is_present);
                let found: Vec<u32> = found.map(|(&item, _)| item).collect();
                return (!found.is_empty()).then_some(found);
            }
            Err(status) => match answer_of(Err(status)) {
                Answer::Open(_) => tokio::time::sleep(TRY_PAUSE).await,
                _ => return None,
            },
        }
    }
}
