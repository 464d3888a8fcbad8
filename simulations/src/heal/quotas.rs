//! Checks after everything else has healed: quotas admit what fits and nothing more, a drop makes room at
//! once, and every node reports the usage that the log yields.

use std::rc::Rc;
use std::time::Duration;

use prost::Message;
use tonic::Code;
use umbel_client::proto::access_client::AccessClient;
use umbel_client::proto::filters_client::FiltersClient;
use umbel_client::proto::{
    ContainsRequest, CreateRequest, ErrorCode, ErrorDetail, InsertRequest, Items,
    ListPrincipalsRequest, Quota,
};
use umbel_client::{Hashing, Kind};

use super::run_until;
use crate::access::Clerk;
use crate::access::holders::{HoldOutcome, RATE, called, token_of};
use crate::channel::node_channel;
use crate::counters;
use crate::net::SimNet;
use crate::now::now_us;
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

/// Drops the filters of all holders, uses up their quotas again, and compares the usage that every node
/// reports.
///
/// # Errors
/// If a host's task panicked.
pub(super) fn heal(world: &mut World) -> Result<(), String> {
    let holding = world.plan.access.as_ref().and_then(|access| access.holding.as_ref());
    let Some(holders) = holding.map(|holding| holding.holders) else { return Ok(()) };
    let Some(clerk) = world.clerk.clone() else { return Ok(()) };
    let addresses: Vec<String> = world.hosts.iter().map(|host| host.address()).collect();
    let done = world.spawn(check(clerk, world.clients_net.clone(), addresses, holders));
    if !run_until(world, now_us() + PATIENCE_US, |_| done.get())? && !world.is_violated() {
        watch::violated("heals_and_serves", "quotas cannot be used up".to_owned());
    }
    Ok(())
}

async fn check(clerk: Rc<Clerk>, net: SimNet, addresses: Vec<String>, holders: u32) {
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
    for holder in 0..holders.min(1) {
        grow(&clerk, &net, &addresses, holder).await;
    }
    for address in &addresses {
        compare(&net, address, holders).await;
    }
}

/// Has a filter of a holder grow until the quota is used up. Checks that acknowledged items are
/// contained, and that the growth counts as usage.
async fn grow(clerk: &Clerk, net: &SimNet, addresses: &[String], holder: u32) {
    let (owner, name) = (holder_name(holder), format!("{}s-grows", holder_name(holder)));
    let used = || watch::with(|checks| checks.quotas.now().usage(&owner).1);
    set(clerk, &owner, Quota::default()).await;
    // The kind depends on the number of nodes, so that runs cover both kinds that grow.
    let kind = if addresses.len().is_multiple_of(2) { Kind::Quotient } else { Kind::Scalable };
    make_growing(net, &addresses[0], (&token_of(holder), &name), kind).await;
    let planned = used();
    let most = planned + GROWTH_BYTES;
    set(clerk, &owner, Quota { memory_bytes: Some(most), ..Quota::default() }).await;
    let (mut acknowledged, mut is_full) = (Vec::new(), false);
    for batch in 0..BATCHES_MAX {
        let items: Vec<String> = (0..BATCH_ITEMS).map(|item| format!("{batch}.{item}")).collect();
        let address = addresses[batch as usize % addresses.len()].clone();
        if inserted(net, address, &name, &items).await {
            acknowledged.extend(items);
        } else {
            is_full = true;
            break;
        }
    }
    counters::checked(NAME, 1);
    if !is_full || used() == planned {
        let what = format!(
            "{name} took {} items, and counts {} bytes, {planned} of them planned, of {most}",
            acknowledged.len(),
            used()
        );
        watch::violated(NAME, what);
    }
    let absent = absent(net, &addresses[0], &name, &acknowledged).await;
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
                let detail = ErrorDetail::decode(status.details()).unwrap_or_default();
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
