//! Checks after everything else has healed: quotas admit what fits and nothing more, a drop makes room at
//! once, and every node reports the usage that the log yields.

use std::cell::RefCell;
use std::rc::Rc;
use std::time::Duration;

use tonic::Code;
use umbel_client::proto::access_client::AccessClient;
use umbel_client::proto::filters_client::FiltersClient;
use umbel_client::proto::{
    ContainsRequest, CreateRequest, ErrorCode, ErrorDetail, InsertRequest, Items,
    ListPrincipalsRequest, Quota,
};
use umbel_client::{Hashing, Kind};

use super::{out_of_sync, run_until};
use crate::access::Clerk;
use crate::access::holders::{HoldOutcome, RATE, called, token_of};
use crate::channel::node_channel;
use crate::counters;
use crate::net::SimNet;
use crate::now::now_us;
use crate::operator::Task;
use crate::oracle::quotas::{NAME, SERVED};
use crate::plan::access::ROOT;
use crate::plan::quota::{Hold, SLOTS, Size, held_filter, holder_name};
use crate::watch;
use crate::world::World;

/// All these checks end within this time.
const PATIENCE_US: u64 = 60_000_000;

/// Pause between two tries.
const TRY_PAUSE: Duration = Duration::from_millis(50);

/// Filters that each holder's quota allows here.
const ROOM: u32 = 2;

/// How often a filter is dropped and another one created right after: the catalogues of some nodes may be
/// older than the drop.
const ROUNDS: u32 = 6;

/// Capacity in items for which the growing filter is planned.
const GROWING_ITEMS: u64 = 100;

/// Bytes by which it may grow, summed over all nodes: a few levels. A quotient filter keeps its positions when it
/// grows, so one in one shard of one replica never grows by more than 5,120 bytes and would never be full.
const GROWTH_BYTES: u64 = 4_500;

/// Items of a batch. The growing filter must be full long before `BATCHES_MAX` batches.
const BATCH_ITEMS: u32 = 50;

/// See [`BATCH_ITEMS`].
const BATCHES_MAX: u32 = 200;

/// Batches that it is sent once a shard was split.
const BATCHES_AFTER_SPLIT: u32 = 20;

/// Drops the filters of all holders, uses up their quotas again, and compares the usage that every node
/// reports. In every second world a shard is split while a quota is used up.
///
/// # Errors
/// If a host's task panicked.
pub(super) fn heal(world: &mut World) -> Result<(), String> {
    let holding = world.plan.access.as_ref().and_then(|access| access.holding.as_ref());
    let Some(holders) = holding.map(|holding| holding.holders) else { return Ok(()) };
    let Some(clerk) = world.clerk.clone() else { return Ok(()) };
    let addresses: Vec<String> = world.hosts.iter().map(|host| host.address()).collect();
    let acknowledged = Rc::new(RefCell::new(Vec::new()));
    let (net, items) = (world.clients_net.clone(), Rc::clone(&acknowledged));
    let done = world.spawn(check(clerk, (net, addresses.clone()), holders, items));
    if !run_until(world, now_us() + PATIENCE_US, |_| done.get())? && !world.is_violated() {
        watch::violated("heals_and_serves", "quotas cannot be used up".to_owned());
    }
    if world.is_violated() || holders == 0 || world.plan.seed.is_multiple_of(2) {
        return Ok(());
    }
    split(world, addresses, acknowledged.take())
}

/// Splits a shard, and checks that this makes no more room for the growing filter of the first holder.
fn split(
    world: &mut World,
    addresses: Vec<String>,
    acknowledged: Vec<String>,
) -> Result<(), String> {
    let owner = holder_name(0);
    let counted = || {
        watch::with(|checks| {
            let (meta, usage) = (checks.reference.meta(), checks.quotas.now());
            let shards = u64::from(meta.shard_count());
            (
                shards,
                meta.replicas_wanted() as u64,
                usage.usage(&owner).1,
                usage.bytes_limit(&owner),
            )
        })
    };
    let (shards, replicas, before, limit) = counted();
    let operation = world.operator.send(Task::Split);
    let is_over = |world: &mut World| operation.outcome().is_some() && out_of_sync(world).is_none();
    if !run_until(world, now_us() + PATIENCE_US, is_over)? && !world.is_violated() {
        let what =
            format!("a shard is split, and its replicas do not agree: {:?}", out_of_sync(world));
        watch::violated("heals_and_agrees", what);
    }
    if world.is_violated() || operation.outcome() != Some(Ok(())) {
        return Ok(());
    }
    let (shards_now, _, after, _) = counted();
    if shards_now > shards {
        counters::state("split_at_quota");
    }
    counters::checked(NAME, 1);
    // Each half of what a slice may have more is rounded up.
    let most = before + replicas * shards_now.saturating_sub(shards);
    if !(before..=most).contains(&after) {
        let what = format!(
            "{owner} used {before} bytes, and {after} after a split, expected {most} at most"
        );
        watch::violated(NAME, what);
        return Ok(());
    }
    let most = limit.map_or(u64::MAX, |limit| limit.max(after));
    let done = world.spawn(grow_on(world.clients_net.clone(), addresses, acknowledged, most));
    if !run_until(world, now_us() + PATIENCE_US, |_| done.get())? && !world.is_violated() {
        watch::violated(
            "heals_and_serves",
            "a filter does not take items after a split".to_owned(),
        );
    }
    Ok(())
}

async fn check(
    clerk: Rc<Clerk>,
    (net, addresses): (SimNet, Vec<String>),
    holders: u32,
    acknowledged: Rc<RefCell<Vec<String>>>,
) {
    set(&clerk, "", Quota::default()).await;
    for holder in 0..holders {
        let quota = Quota { filters: Some(ROOM.into()), ..Quota::default() };
        set(&clerk, &holder_name(holder), quota).await;
        // Earlier creations may still be carried out, so the drops repeat until no filter is left.
        while watch::with(|checks| checks.quotas.now().held(&holder_name(holder)).count) > 0 {
            for slot in 0..SLOTS {
                resolved(&net, &addresses, holder, Hold::Drop { slot }).await;
            }
        }
        let made = |slot| {
            let make = Hold::Make { slot, size: Size::ALL[slot as usize % Size::ALL.len()] };
            resolved(&net, &addresses, holder, make)
        };
        for slot in 0..ROOM {
            expect_room(holder, slot, &made(slot).await);
        }
        let beyond = made(ROOM).await;
        counters::checked(NAME, 1);
        if !matches!(beyond, HoldOutcome::Full(_)) {
            let what =
                format!("{} may have {ROOM} filters, one more: {beyond:?}", holder_name(holder));
            watch::violated(NAME, what);
        }
        // The filter that was created first is dropped to make room for the missing one, on changing
        // nodes.
        for round in 0..ROUNDS {
            let call = Hold::Drop { slot: round % (ROOM + 1) };
            resolved(&net, &addresses, holder, call).await;
            let slot = (round + ROOM) % (ROOM + 1);
            expect_room(holder, slot, &made(slot).await);
        }
    }
    if holders > 0 {
        let items = grow(&clerk, &net, &addresses).await;
        acknowledged.replace(items);
    }
    for address in &addresses {
        compare(&net, address, holders).await;
    }
}

/// The name of the first holder's growing filter.
fn growing_filter() -> String {
    format!("{}s-grows", holder_name(0))
}

/// Has a filter of the first holder grow until the quota is used up. Checks that acknowledged items are
/// contained, and that the growth counts as usage. Returns the acknowledged items.
async fn grow(clerk: &Clerk, net: &SimNet, addresses: &[String]) -> Vec<String> {
    let (owner, name) = (holder_name(0), growing_filter());
    let used = || watch::with(|checks| checks.quotas.now().usage(&owner).1);
    set(clerk, &owner, Quota::default()).await;
    // The kind depends on the number of nodes, so that runs cover both kinds that grow.
    let kind = if addresses.len().is_multiple_of(2) { Kind::Quotient } else { Kind::Scalable };
    make_growing(net, &addresses[0], (&token_of(0), &name), kind).await;
    let planned = used();
    let most = planned + GROWTH_BYTES;
    set(clerk, &owner, Quota { memory_bytes: Some(most), ..Quota::default() }).await;
    let (acknowledged, is_full) = fill(net, addresses, &name, ("", BATCHES_MAX)).await;
    counters::checked(NAME, 1);
    if !is_full || used() == planned {
        let what = format!(
            "{name} took {} items, and counts {} bytes, {planned} of them planned, of {most}",
            acknowledged.len(),
            used()
        );
        watch::violated(NAME, what);
    }
    check_contained(net, &addresses[0], &name, &acknowledged).await;
    acknowledged
}

/// Has that filter take more items after a split of a shard: it may be full, or not, but uses `most` bytes at most, and
/// contains what was acknowledged before and after.
async fn grow_on(net: SimNet, addresses: Vec<String>, mut acknowledged: Vec<String>, most: u64) {
    let (owner, name) = (holder_name(0), growing_filter());
    let (more, _) = fill(&net, &addresses, &name, ("split.", BATCHES_AFTER_SPLIT)).await;
    acknowledged.extend(more);
    let used = watch::with(|checks| checks.quotas.now().usage(&owner).1);
    counters::checked(NAME, 1);
    if used > most {
        let what = format!("{name} grew to {used} bytes after a split, expected {most} at most");
        watch::violated(NAME, what);
    }
    check_contained(&net, &addresses[0], &name, &acknowledged).await;
    for address in &addresses {
        compare(&net, address, 1).await;
    }
}

/// Inserts batches of items, whose names begin so, until the filter is full. Returns those that were acknowledged, and
/// whether it is full.
async fn fill(
    net: &SimNet,
    addresses: &[String],
    name: &str,
    (prefix, batches): (&str, u32),
) -> (Vec<String>, bool) {
    let mut acknowledged = Vec::new();
    for batch in 0..batches {
        let item = |item: u32| format!("{prefix}{batch}.{item}");
        let items: Vec<String> = (0..BATCH_ITEMS).map(item).collect();
        let address = addresses[batch as usize % addresses.len()].clone();
        if !inserted(net, address, name, &items).await {
            return (acknowledged, true);
        }
        acknowledged.extend(items);
    }
    (acknowledged, false)
}

/// Checks that a filter contains these items.
async fn check_contained(net: &SimNet, address: &str, name: &str, acknowledged: &[String]) {
    let absent = absent(net, address, name, acknowledged).await;
    if absent > 0 {
        let what =
            format!("{absent} of {} acknowledged items are not in {name}", acknowledged.len());
        watch::violated("acked_is_contained", what);
    }
}

/// Creates the growing filter with its owner's token.
async fn make_growing(net: &SimNet, address: &str, (token, name): (&str, &str), kind: Kind) {
    loop {
        let request = CreateRequest {
            name: name.to_owned(),
            kind: kind.into(),
            capacity: GROWING_ITEMS,
            false_positive_rate: RATE,
            hashing: Hashing::Public.into(),
            ..CreateRequest::default()
        };
        let channel = node_channel(net, address.to_owned(), Some(token));
        match FiltersClient::new(channel).create(request).await {
            Ok(_) => return,
            Err(status) if status.code() == Code::AlreadyExists => return,
            Err(_) => tokio::time::sleep(TRY_PAUSE).await,
        }
    }
}

fn items_of(items: &[String]) -> Option<Items> {
    let items = items.iter().map(|item| item.clone().into()).collect();
    Some(Items { items, ..Items::default() })
}

/// How many of the items are not in a filter.
async fn absent(net: &SimNet, address: &str, filter: &str, items: &[String]) -> usize {
    loop {
        let (filter, items_asked) = (filter.to_owned(), items_of(items));
        let request = ContainsRequest { filter, items: items_asked, ..ContainsRequest::default() };
        let channel = node_channel(net, address.to_owned(), Some(ROOT));
        match FiltersClient::new(channel).contains(request).await {
            Ok(answer) => {
                let bits = answer.into_inner().present_bits;
                let present: u32 = bits.iter().map(|byte| byte.count_ones()).sum();
                return items.len() - present as usize;
            }
            Err(_) => tokio::time::sleep(TRY_PAUSE).await,
        }
    }
}

/// Inserts items, retrying until they are inserted; returns false if the filter is full.
async fn inserted(net: &SimNet, address: String, filter: &str, items: &[String]) -> bool {
    loop {
        let (filter, items) = (filter.to_owned(), items_of(items));
        let request = InsertRequest { filter, items, ..InsertRequest::default() };
        let channel = node_channel(net, address.clone(), Some(ROOT));
        match FiltersClient::new(channel).insert(request).await {
            Ok(_) => return true,
            Err(status) => {
                let detail: ErrorDetail = umbel_proto::detail_of(&status).unwrap_or_default();
                if detail.code() == ErrorCode::FilterFull {
                    return false;
                }
                tokio::time::sleep(TRY_PAUSE).await;
            }
        }
    }
}

async fn set(clerk: &Clerk, name: &str, quota: Quota) {
    while clerk.set_quota(name, quota).await.is_err() {
        tokio::time::sleep(TRY_PAUSE).await;
    }
}

fn expect_room(holder: u32, slot: u32, came: &HoldOutcome) {
    counters::checked(SERVED, 1);
    if let HoldOutcome::Full(text) = came {
        let what =
            format!("{} was refused although there is room: {text}", held_filter(holder, slot));
        watch::violated(SERVED, what);
    }
}

/// Makes a call at one node after the other until its result is known.
async fn resolved(net: &SimNet, addresses: &[String], holder: u32, call: Hold) -> HoldOutcome {
    let filter = held_filter(holder, call.slot());
    for turn in call.slot() as usize.. {
        let address = addresses[turn % addresses.len()].clone();
        let channel = node_channel(net, address, Some(&token_of(holder)));
        match called(channel, &filter, call).await {
            HoldOutcome::Open(_) => tokio::time::sleep(TRY_PAUSE).await,
            came => return came,
        }
    }
    unreachable!("turns do not end")
}

/// Compares the usage that a node reports for each holder with the usage that the log yields.
async fn compare(net: &SimNet, address: &str, holders: u32) {
    let listed = loop {
        let channel = node_channel(net, address.to_owned(), Some(ROOT));
        match AccessClient::new(channel).list_principals(ListPrincipalsRequest {}).await {
            Ok(listed) => break listed.into_inner().principals,
            Err(_) => tokio::time::sleep(TRY_PAUSE).await,
        }
    };
    for name in (0..holders).map(holder_name) {
        let expected = watch::with(|checks| checks.quotas.now().usage(&name));
        let found = listed.iter().find(|principal| principal.name == name);
        let used = found.and_then(|principal| principal.usage.as_ref());
        let used = used.map(|usage| (usage.filters, usage.memory_bytes));
        counters::checked(NAME, 1);
        if used != Some(expected) {
            let what = format!(
                "{address} says that {name} has (filters, bytes) {used:?}, expected {expected:?}"
            );
            watch::violated(NAME, what);
        }
    }
}
