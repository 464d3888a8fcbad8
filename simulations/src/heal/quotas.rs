//! After everything else has healed: quotas let in what fits and nothing more, dropping gives room at once, and
//! every node says the same of what is used.

use std::rc::Rc;
use std::time::Duration;

use umbel_client::proto::access_client::AccessClient;
use umbel_client::proto::{ListPrincipalsRequest, Quota};

use super::run_until;
use crate::access::holders::{Held, called, token_of};
use crate::access::{Clerk, ROOT};
use crate::channel::node_channel;
use crate::counters;
use crate::invariants::quotas_hold::{NAME, SERVED};
use crate::net::SimNet;
use crate::now::now_us;
use crate::plan::quota::{Hold, SLOTS, Size, held_filter, holder_name};
use crate::watch;
use crate::world::World;

/// All of it is over in this time.
const PATIENCE_US: u64 = 60_000_000;

/// Pause between two tries.
const TRY_PAUSE: Duration = Duration::from_millis(50);

/// Filters that a holder may have in the end.
const ROOM: u32 = 2;

/// How often one is dropped and another one made then: catalogues of some nodes are older than the drop.
const ROUNDS: u32 = 6;

/// Empties all quotas, fills them again, and asks every node what is used.
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
        // What was asked for before may still be done: until nothing is left.
        while watch::with(|checks| checks.quotas.now().held(&holder_name(holder)).count) > 0 {
            for slot in 0..SLOTS {
                settled(&net, &addresses, holder, Hold::Drop { slot }).await;
            }
        }
        let made = |slot| {
            let make = Hold::Make { slot, size: Size::ALL[slot as usize % Size::ALL.len()] };
            settled(&net, &addresses, holder, make)
        };
        for slot in 0..ROOM {
            expect_room(holder, slot, &made(slot).await);
        }
        let beyond = made(ROOM).await;
        counters::checked(NAME, 1);
        if !matches!(beyond, Held::Full(_)) {
            let what =
                format!("{} may have {ROOM} filters, one more: {beyond:?}", holder_name(holder));
            watch::violated(NAME, what);
        }
        // The filter that was made first makes room for the one that is not there, on one node after the other.
        for round in 0..ROUNDS {
            let call = Hold::Drop { slot: round % (ROOM + 1) };
            settled(&net, &addresses, holder, call).await;
            let slot = (round + ROOM) % (ROOM + 1);
            expect_room(holder, slot, &made(slot).await);
        }
    }
    for address in &addresses {
        compare(&net, address, holders).await;
    }
}

async fn set(clerk: &Clerk, name: &str, quota: Quota) {
    while clerk.set_quota(name, quota).await.is_err() {
        tokio::time::sleep(TRY_PAUSE).await;
    }
}

fn expect_room(holder: u32, slot: u32, came: &Held) {
    counters::checked(SERVED, 1);
    if let Held::Full(text) = came {
        let what =
            format!("{} was refused although there is room: {text}", held_filter(holder, slot));
        watch::violated(SERVED, what);
    }
}

/// Asks one node after the other until there is an answer.
async fn settled(net: &SimNet, addresses: &[String], holder: u32, call: Hold) -> Held {
    let filter = held_filter(holder, call.slot());
    for turn in call.slot() as usize.. {
        let address = addresses[turn % addresses.len()].clone();
        let channel = node_channel(net, address, Some(&token_of(holder)));
        match called(channel, &filter, call).await {
            Held::Open(_) => tokio::time::sleep(TRY_PAUSE).await,
            came => return came,
        }
    }
    unreachable!("turns do not end")
}

/// Holds what a node says of holders against what the log says.
async fn compare(net: &SimNet, address: &str, holders: u32) {
    let said = loop {
        let channel = node_channel(net, address.to_owned(), Some(ROOT));
        match AccessClient::new(channel).list_principals(ListPrincipalsRequest {}).await {
            Ok(said) => break said.into_inner().principals,
            Err(_) => tokio::time::sleep(TRY_PAUSE).await,
        }
    };
    for name in (0..holders).map(holder_name) {
        let expected = watch::with(|checks| checks.quotas.now().usage(&name));
        let found = said.iter().find(|principal| principal.name == name);
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
