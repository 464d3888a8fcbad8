//! Filters whose time has come: a command that names one drops it first. Otherwise the leader of the catalogue drops it a
//! moment later, with what was inserted meanwhile.

use umbel_engine::FilterId;
use umbel_engine::meta::{FilterName, MetaState};
use umbel_node::failure::CallFailure;
use umbel_resp::Refusal;

use super::answers::refusal;
use super::keys::is_shown;
use super::session::{Session, name_of};

/// A filter that expires.
struct Expiring {
    filter: FilterId,
    name: FilterName,
    at_ms: u64,
}

/// Drops the filters of these keys whose time has come by this node's clock; returns once their names are free.
///
/// # Errors
/// If one cannot be dropped. The command was not carried out.
pub(super) async fn drop_due<'a>(
    session: &Session,
    keys: impl Iterator<Item = &'a [u8]>,
) -> Result<(), Refusal> {
    let expiring = expiring(session, keys);
    if expiring.is_empty() {
        return Ok(());
    }
    let coordinator = &session.shared.coordinator;
    let (now_ms, is_visible) = (coordinator.believed_ms(), session.caller.visible());
    let deadline = session.shared.deadlines.of_command();
    for Expiring { filter, name, at_ms } in expiring {
        // What the caller may not see, the command refuses.
        if at_ms > now_ms || !is_visible(name.as_str()) {
            continue;
        }
        // One of this node's commands proposes the drop, and the others wait for it.
        let place = session.shared.turns.line_up((name.clone(), None));
        let _turn = place.turn(deadline).await.map_err(|failure| refusal(&failure))?;
        let is_there = coordinator.read_meta(|state| state.filter(filter).is_some());
        if is_there.map_err(|failure| refusal(&failure))? {
            // The entry compares the time, so a filter that has got another one since stays.
            let dropped = coordinator.drop_expired(filter, &name, at_ms, deadline).await;
            dropped.map_err(|failure| not_dropped(&failure))?;
        }
    }
    Ok(())
}

/// The filters of these keys that expire. As long as this node does not know of any filter, commands say so themselves.
fn expiring<'a>(session: &Session, keys: impl Iterator<Item = &'a [u8]>) -> Vec<Expiring> {
    let look = |state: &MetaState| {
        let found = keys.filter_map(|key| {
            let name = name_of(session.database, key)?;
            let (filter, record) = state.filter_by_name(&name)?;
            // The time of a filter that is being loaded is that of its import.
            let at_ms = record.expires_ms.filter(|_| is_shown(record.state))?;
            Some(Expiring { filter, name: record.name.clone(), at_ms })
        });
        found.collect()
    };
    session.shared.coordinator.read_meta(look).unwrap_or_default()
}

/// Whatever became of the drop, nothing of the command itself was done.
fn not_dropped(failure: &CallFailure) -> Refusal {
    let why = match failure {
        CallFailure::OutcomeUnknown { what } => what.clone(),
        failure => failure.to_string(),
    };
    Refusal::Other(format!("TRYAGAIN the command was not carried out: {why}").into())
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::Ordering;

    use super::super::resp_test::{Client, node_at};
    use super::*;
    use crate::test_node::Clock;

    /// The leader of the catalogue may drop it before the command, or not.
    #[tokio::test(flavor = "multi_thread")]
    async fn a_filter_whose_time_has_come_is_missing() {
        let clock = Clock::stopped();
        let (_folder, node) = node_at(&clock).await;
        let mut client = Client::new(&node).await;
        for (request, answer) in [
            ("EXISTS k", ":0\r\n"),
            ("TTL k", ":-2\r\n"),
            ("PEXPIRE k 100000 NX", ":0\r\n"),
            ("PERSIST k", ":0\r\n"),
            ("DEL k", ":0\r\n"),
            ("RENAME k l", "-ERR no such key\r\n"),
            ("SISMEMBER k old", ":0\r\n"),
            ("BF.RESERVE k 0.01 100", "+OK\r\n"),
            ("SADD k old", ":1\r\n"),
            ("SADD k old\r\nSADD k old", ":1\r\n:0\r\n"),
            ("CF.ADD k old", ":1\r\n"),
        ] {
            client.call("BF.ADD k old", ":1\r\n").await;
            client.call("PEXPIRE k 1000", ":1\r\n").await;
            clock.0.fetch_add(1000, Ordering::Relaxed);
            client.call(request, answer).await;
            // What came in its place does not expire with it.
            client.send(b"TTL k\r\n").await;
            assert!([":-1", ":-2"].contains(&&*client.line().await), "{request}");
            client.send(b"DEL k\r\n").await;
            client.line().await;
        }
        node.shutdown().await;
    }

    #[test]
    fn a_command_before_which_nothing_could_be_dropped_may_be_sent_again() {
        let what = "filter \"k\" has expired, and is not dropped yet: w".to_owned();
        let refusal = not_dropped(&CallFailure::OutcomeUnknown { what }).to_string();
        let text = "TRYAGAIN the command was not carried out: filter \"k\" has expired, and is not dropped yet: w";
        assert_eq!(refusal, text);
    }
}
