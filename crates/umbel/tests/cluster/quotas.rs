//! Quotas hold for calls through several nodes and for every kind of call; refusals for rates tell when
//! to retry.

use std::collections::BTreeSet;

use tokio::task::JoinSet;
use umbel_client::proto::{FilterVerb, Quota, SetQuotaRequest, SetQuotaResponse};
use umbel_client::{
    Applied, Client, ClientError, ClientOptions, ErrorCode, Kind, NewFilter, ReadLevel,
};

use crate::access::{add, guarded, principal, with_token, with_token_and};
use crate::load::{copy, sharp_filter};
use crate::servers::{options, until};

const ALL: [FilterVerb; 5] = [
    FilterVerb::Read,
    FilterVerb::Insert,
    FilterVerb::Remove,
    FilterVerb::Export,
    FilterVerb::Manage,
];

/// Batches of which one comes before the previous one is paid for.
const BATCHES_MAX: u32 = 20;

async fn set(client: &Client, principal: &str, change: Quota) -> SetQuotaResponse {
    let (principal, change) = (principal.to_owned(), Some(change));
    client.set_quota(SetQuotaRequest { principal, change, from_none: false }).await.unwrap()
}

/// The message of a refusal because of a quota.
fn refusal(outcome: Result<(), ClientError>) -> String {
    let error = outcome.expect_err("a quota is exceeded");
    let failure = error.failure().expect("a node has refused it");
    assert_eq!(failure.cause, ErrorCode::Quota, "{error}");
    failure.message.clone()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_quota_holds_over_all_nodes_and_calls() {
    let (cluster, addresses, root) = guarded().await;
    add(&root, principal("writer", vec![("q.*", &ALL)], &[])).await;
    let filters = Some(2);
    set(&root, "writer", Quota { filters, ..Quota::default() }).await;
    let clients: Vec<Client> =
        cluster.nodes.iter().map(|node| with_token(&node.address, "writer")).collect();
    let mut creates = JoinSet::new();
    for number in 0..6 {
        let client = clients[number % clients.len()].clone();
        creates.spawn(async move {
            let name = format!("q.{number}");
            (client.create(&name, &sharp_filter()).await.map(drop), name)
        });
    }
    let outcomes = creates.join_all().await;
    let (made, refused): (Vec<_>, Vec<_>) =
        outcomes.into_iter().partition(|(outcome, _)| outcome.is_ok());
    assert_eq!((made.len(), refused.len()), (2, 4));
    for (outcome, _) in refused {
        let text = refusal(outcome);
        assert!(text.contains("principal writer has a quota of 2 filters, has 2"), "{text}");
    }
    let (first, second) = (made[0].1.as_str(), made[1].1.as_str());
    let writer = with_token(&addresses, "writer");
    refusal(copy(&writer, first, "q.copy").await);
    // Other principals still have room, and dropped filters release theirs.
    root.create("other", &sharp_filter()).await.unwrap();
    writer.drop_filter(second).await.unwrap();
    copy(&writer, first, "q.copy").await.unwrap();
    let who = writer.who_am_i().await.unwrap().principal.unwrap();
    assert_eq!(who.quota.unwrap().filters, filters);
    let usage = who.usage.unwrap();
    let planned = writer.list("q.").await.unwrap()[0].memory_bytes;
    assert_eq!((usage.filters, usage.memory_bytes), (2, 2 * 3 * planned), "three replicas of two");

    // Nodes report their memory when they start, and the cluster adds it up.
    let of_cluster = || set(&root, "", Quota::default());
    let most = until("a node has told its memory", || async {
        of_cluster().await.quota.unwrap().memory_bytes
    })
    .await;
    assert!(most > 64 << 20, "{most}");
    set(&root, "", Quota { memory_bytes: Some(1000), ..Quota::default() }).await;
    let text = refusal(root.create("more", &sharp_filter()).await.map(drop));
    assert!(text.contains("the cluster has a quota of 1000 bytes"), "{text}");
    let request = SetQuotaRequest { from_none: true, ..SetQuotaRequest::default() };
    root.set_quota(request).await.unwrap();
    root.create("more", &sharp_filter()).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn rates_say_when_to_come_again() {
    let (cluster, addresses, root) = guarded().await;
    root.create("q", &sharp_filter()).await.unwrap();
    add(&root, principal("writer", vec![("q", &ALL)], &[])).await;
    let items_per_second = Some(3000);
    set(&root, "writer", Quota { items_per_second, ..Quota::default() }).await;
    let once = ClientOptions { attempt_count_max: 1, learns_nodes: false, ..options() };
    let address = &cluster.nodes[0].address;
    let one = with_token_and(address, "writer", once);
    until("the rate is known", || async {
        let who = one.who_am_i().await.ok()?.principal?;
        who.quota.filter(|quota| quota.items_per_second == items_per_second)
    })
    .await;
    // A batch costs nine seconds at this node's share of the rate; the second one comes too soon, unless the machine has
    // taken as long for the first.
    let items = |batch: u32| (9000 * batch..9000 * (batch + 1)).map(|number| number.to_string());
    one.filter("q").insert(items(0)).await.unwrap();
    let (mut refused, mut outcome) = (1, one.filter("q").insert(items(1)).await);
    while outcome.is_ok() && refused < BATCHES_MAX {
        refused += 1;
        outcome = one.filter("q").insert(items(refused)).await;
    }
    let error = outcome.unwrap_err();
    let failure = error.failure().unwrap();
    assert_eq!((failure.cause, failure.applied), (ErrorCode::Overloaded, Applied::No), "{error}");
    assert!(failure.retry_after.is_some_and(|pause| !pause.is_zero()), "{error}");
    assert!(failure.message.contains("quota of 3000 items a second"), "{error}");
    // Calls without items still work, and so do principals with other rates.
    one.info("q").await.unwrap();
    root.filter("q").insert(items(0)).await.unwrap();
    // A client that may retry does so after the pause that it was told.
    with_token(&addresses, "writer").filter("q").insert(items(refused)).await.unwrap();
    let new_count = 9000 * u64::from(refused + 1);
    assert_eq!(root.info("q").await.unwrap().new_count, new_count);
}

/// Inserts batches of new items, through these clients in turn, until one is refused; returns the
/// acknowledged items, and the refusal.
async fn fill(clients: &[Client], filter: &str, most: usize) -> (Vec<String>, ClientError) {
    let mut acknowledged = Vec::new();
    for number in 0..most {
        let items: Vec<String> = (0..100).map(|item| format!("{number}.{item}")).collect();
        let client = &clients[number % clients.len()];
        match client.filter(filter).insert(&items).await {
            Ok(_) => acknowledged.extend(items),
            Err(error) => return (acknowledged, error),
        }
    }
    panic!("{most} batches were taken");
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_scalable_filter_grows_by_is_in_the_quota() {
    what_grows_is_in_the_quota(Kind::Scalable).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_quotient_filter_grows_by_is_in_the_quota() {
    what_grows_is_in_the_quota(Kind::Quotient).await;
}

/// The bytes that the principal of these clients uses, if all their nodes say the same. A node says what it has applied,
/// and one of them, which leads, has applied every growth for acknowledged inserts.
async fn used_alike(clients: &[Client]) -> Option<u64> {
    let mut used = BTreeSet::new();
    for client in clients {
        used.insert(client.who_am_i().await.ok()?.principal?.usage?.memory_bytes);
    }
    used.pop_first().filter(|_| used.is_empty())
}

async fn what_grows_is_in_the_quota(kind: Kind) {
    let (cluster, addresses, root) = guarded().await;
    add(&root, principal("writer", vec![("q.*", &ALL)], &[])).await;
    let writer = with_token(&addresses, "writer");
    // A quotient filter needs remainders that are long enough for this growth.
    let rate = if kind == Kind::Quotient { 1e-6 } else { 0.01 };
    let growing = NewFilter { kind, ..NewFilter::for_rate(200, rate) };
    writer.create("q.grows", &growing).await.unwrap();
    let used = || async {
        let who = writer.who_am_i().await.unwrap().principal.unwrap();
        who.usage.unwrap().memory_bytes
    };
    let planned = used().await;
    assert!(planned > 0);
    let most = 20 * planned;
    set(&root, "writer", Quota { memory_bytes: Some(most), ..Quota::default() }).await;
    let clients: Vec<Client> =
        cluster.nodes.iter().map(|node| with_token(&node.address, "writer")).collect();
    let (acknowledged, error) = fill(&clients, "q.grows", 1000).await;
    let failure = error.failure().unwrap();
    assert_eq!(failure.cause, ErrorCode::FilterFull, "{error}");
    let text = &failure.message;
    let quota =
        format!(" is full: principal writer has a quota of {most} bytes of memory for filters");
    assert!(text.contains(&quota) && text.contains(", uses "), "{text}");
    assert!(text.contains("(umbel access quota writer --memory N)"), "{text}");
    // It has grown, but not beyond the quota, and the growth is counted.
    let grown = used().await;
    assert!(planned < grown && grown <= most, "{planned}, {grown} of {most}");
    let holds = writer.info("q.grows").await.unwrap().memory_bytes;
    assert!(holds * 3 <= grown, "{holds} in each of three replicas, {grown} are counted");
    // No item is lost, and others are not affected.
    let found = writer.filter("q.grows").contains(&acknowledged, ReadLevel::Linearizable).await;
    assert!(acknowledged.len() > 500 && found.unwrap().iter().all(|is_present| is_present));
    root.create("other", &growing).await.unwrap();
    set(&root, "writer", Quota { memory_bytes: Some(3 * most), ..Quota::default() }).await;
    writer.filter("q.grows").insert((0..500).map(|item| format!("more {item}"))).await.unwrap();
    // A copy takes as much. If there is no room for it, nothing of it remains.
    let grown = until("all nodes count alike", || used_alike(&clients)).await;
    let memory_bytes = Some(grown + planned);
    set(&root, "writer", Quota { memory_bytes, ..Quota::default() }).await;
    let text = refusal(copy(&writer, "q.grows", "q.copy").await);
    assert!(text.contains("principal writer has a quota of"), "{text}");
    until("the copy is gone", || async { (used().await == grown).then_some(()) }).await;
    set(&root, "writer", Quota { memory_bytes: Some(2 * grown), ..Quota::default() }).await;
    copy(&writer, "q.grows", "q.copy").await.unwrap();
    let holds = writer.info("q.grows").await.unwrap().memory_bytes;
    assert_eq!(writer.info("q.copy").await.unwrap().memory_bytes, holds);
    let copied = until("all nodes count the copy", || used_alike(&clients)).await;
    assert!((grown + 3 * holds..=2 * grown).contains(&copied), "{copied}");
    let found = writer.filter("q.copy").contains(&acknowledged, ReadLevel::Linearizable).await;
    assert!(found.unwrap().iter().all(|is_present| is_present));
    // Once cleared, it has its planned size again.
    writer.drop_filter("q.copy").await.unwrap();
    writer.clear("q.grows").await.unwrap();
    until("the plan is left", || async { (used().await == planned).then_some(()) }).await;
}
