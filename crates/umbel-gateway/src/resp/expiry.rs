//! `EXPIRE` and related commands: when filters expire.

use tokio::time::Instant;
use umbel_coordinator::Coordinator;
use umbel_coordinator::catalogue::Seen;
use umbel_engine::FilterId;
use umbel_engine::meta::{FilterName, FilterVerb, MetaError};
use umbel_node::failure::CallFailure;
use umbel_resp::{Condition, Expiry, ExpiryCommand, Refusal, Reply, TimeUnit};

use super::answers::refusal;
use super::session::{NoFilter, Session};

/// Answers of `TTL` for a missing key, and for a key without expiry.
const NO_KEY: i64 = -2;
const NO_TIME: i64 = -1;

pub(super) async fn answer(
    session: &Session,
    command: ExpiryCommand<'_>,
) -> Result<Reply, Refusal> {
    let coordinator = &session.shared.coordinator;
    let deadline = session.shared.deadlines.of_command();
    let now_ms = match command {
        ExpiryCommand::Set { expiry, .. } => now_for(coordinator, expiry),
        // What `EXPIRE` was told is what is left at once.
        ExpiryCommand::Ask { .. } | ExpiryCommand::Persist(_) => coordinator.term_start_ms(),
    };
    if let ExpiryCommand::Set { command, expiry, .. } = command {
        check_moment(command, expiry, now_ms)?;
    }
    let (key, verb) = match command {
        ExpiryCommand::Set { key, .. } | ExpiryCommand::Persist(key) => (key, FilterVerb::Manage),
        ExpiryCommand::Ask { key, .. } => (key, FilterVerb::Read),
    };
    let name = match session.filter(verb, key) {
        Ok(name) => name,
        Err(NoFilter::NoName) => return Ok(missing(command)),
        Err(why @ NoFilter::Denied) => return Err(why.into()),
    };
    let sets = !matches!(command, ExpiryCommand::Ask { .. });
    // They look at the expiry first, and set it then. Those of this node take turns: none of them has to look again, and
    // in clusters of lower versions, which do not compare what was seen, none sets what another one has set.
    let place = sets.then(|| session.shared.turns.line_up((name.clone(), None)));
    let turn = match &place {
        Some(place) => Some(place.turn(deadline).await.map_err(|error| refusal(&error))?),
        None => None,
    };
    loop {
        let found = coordinator.expiry(&name, deadline).await.map_err(|error| refusal(&error))?;
        let Some((filter, had)) = found else { return Ok(missing(command)) };
        let wanted = match command {
            ExpiryCommand::Ask { unit, is_moment, .. } => {
                return Ok(Reply::Integer(time_left(had, now_ms, unit, is_moment)));
            }
            ExpiryCommand::Persist(_) => had.map(|had_ms| Change::Persist { had_ms }),
            ExpiryCommand::Set { expiry, condition, .. } => {
                wanted(condition, had, moment(expiry, now_ms), now_ms)
            }
        };
        let Some(wanted) = wanted else { return Ok(Reply::Integer(0)) };
        let until = match wanted {
            Change::Drop | Change::Expire { .. } => session.shared.deadlines.of_long_command(),
            Change::Set(_) | Change::Replace { .. } | Change::Persist { .. } => deadline,
        };
        match change(coordinator, &name, filter, wanted, until).await {
            Ok(has_dropped_copies) => {
                // Nobody waits for what other nodes confirm.
                drop(turn);
                let deadline = session.shared.deadlines.of_long_command();
                let confirmed = session.confirm(has_dropped_copies, deadline).await;
                return confirmed.map(|()| Reply::Integer(1)).map_err(|error| refusal(&error));
            }
            Err(error) if is_missing(&error) => return Ok(missing(command)),
            // Another filter has got the name since, and the command is about that one; or the filter another expiry.
            Err(
                CallFailure::Changed { .. } | CallFailure::Meta(MetaError::ExpiryChanged { .. }),
            ) if Instant::now() < deadline => {}
            Err(error) => return Err(refusal(&error)),
        }
    }
}

/// What happens to a filter.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Change {
    /// It is dropped before the reply, as in Redis, because the moment has passed.
    Drop,
    /// The same, if the filter still has the expiry that was seen.
    Expire { had: Option<u64> },
    /// The moment at which it is dropped.
    Set(u64),
    /// The same, if the filter still has the expiry that was seen.
    Replace { had: Option<u64>, at_ms: u64 },
    /// It lasts for ever, if it still has the expiry that was seen.
    Persist { had_ms: u64 },
}

/// What a moment that is set under a condition does to a filter that has this expiry; None for nothing.
fn wanted(condition: Condition, had: Option<u64>, at_ms: u64, now_ms: u64) -> Option<Change> {
    let has_passed = at_ms <= now_ms;
    match condition {
        _ if !allows(condition, had, at_ms) => None,
        Condition::Always if has_passed => Some(Change::Drop),
        Condition::Always => Some(Change::Set(at_ms)),
        _ if has_passed => Some(Change::Expire { had }),
        _ => Some(Change::Replace { had, at_ms }),
    }
}

/// Changes a filter as it was seen; returns whether a replicated filter was dropped.
async fn change(
    coordinator: &Coordinator,
    name: &FilterName,
    filter: FilterId,
    change: Change,
    deadline: Instant,
) -> Result<bool, CallFailure> {
    let seen = Seen { filter, generation: None };
    match change {
        Change::Drop => coordinator.take_filter(name, Some(seen), deadline).await,
        Change::Expire { had } => coordinator.expire_now(name, seen, had, deadline).await,
        Change::Set(at_ms) => {
            coordinator.expire(name, Some(seen), Some(at_ms), deadline).await.map(|()| false)
        }
        Change::Replace { had, at_ms } => {
            let replaced = coordinator.replace_expiry(name, seen, had, Some(at_ms), deadline).await;
            replaced.map(|()| false)
        }
        Change::Persist { had_ms } => {
            let replaced = coordinator.replace_expiry(name, seen, Some(had_ms), None, deadline);
            replaced.await.map(|()| false)
        }
    }
}

/// Whether a filter was not changed because it is dropped, or is being dropped.
const fn is_missing(failure: &CallFailure) -> bool {
    matches!(
        failure,
        CallFailure::UnknownFilter { .. } | CallFailure::Meta(MetaError::UnknownFilter { .. })
    )
}

const fn missing(command: ExpiryCommand<'_>) -> Reply {
    match command {
        ExpiryCommand::Ask { .. } => Reply::Integer(NO_KEY),
        ExpiryCommand::Set { .. } | ExpiryCommand::Persist(_) => Reply::Integer(0),
    }
}

/// Refuses a moment that is too late for the protocol's numbers, as Redis does before it looks for the key.
fn check_moment(command: &'static str, expiry: Expiry, now_ms: u64) -> Result<(), Refusal> {
    let now_ms = i64::try_from(now_ms).unwrap_or(i64::MAX);
    match expiry {
        Expiry::InMs(ms) if ms > i64::MAX - now_ms => Err(Refusal::ExpireTime { command }),
        Expiry::InMs(_) | Expiry::AtMs(_) => Ok(()),
    }
}

/// The time with which an expiry is compared, or from which it counts.
pub(super) fn now_for(coordinator: &Coordinator, expiry: Expiry) -> u64 {
    match expiry {
        Expiry::InMs(_) => coordinator.term_start_ms(),
        Expiry::AtMs(_) => coordinator.believed_ms(),
    }
}

/// The moment in milliseconds since 1970; earlier moments become 0.
pub(super) fn moment(expiry: Expiry, now_ms: u64) -> u64 {
    match expiry {
        Expiry::AtMs(at_ms) => u64::try_from(at_ms).unwrap_or(0),
        Expiry::InMs(ms) => now_ms.saturating_add_signed(ms),
    }
}

/// A missing expiry counts as one that never comes.
fn allows(condition: Condition, had: Option<u64>, at_ms: u64) -> bool {
    match condition {
        Condition::Always => true,
        Condition::IfNone => had.is_none(),
        Condition::IfSome => had.is_some(),
        Condition::IfLater => had.is_some_and(|had| at_ms > had),
        Condition::IfEarlier => had.is_none_or(|had| at_ms < had),
        Condition::IfSomeAndLater => had.is_some_and(|had| at_ms > had),
        Condition::IfSomeAndEarlier => had.is_some_and(|had| at_ms < had),
    }
}

/// The remaining time, or the moment; seconds are rounded to the nearest.
fn time_left(had: Option<u64>, now_ms: u64, unit: TimeUnit, is_moment: bool) -> i64 {
    let Some(at_ms) = had else { return NO_TIME };
    let ms = if is_moment { at_ms } else { at_ms.saturating_sub(now_ms) };
    let number = match unit {
        TimeUnit::Milliseconds => ms,
        TimeUnit::Seconds => ms.saturating_add(500) / 1_000,
    };
    i64::try_from(number).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicU64, Ordering};

    use futures_util::future::join_all;
    use umbel_engine::meta::ClusterVersion;
    use umbel_filter::Kind;

    use super::super::resp_test::{Client, node, node_at, node_up_to};
    use super::*;
    use crate::test_node::{Clock, create, deadline};

    const DAY_MS: u64 = 24 * 60 * 60 * 1000;

    #[tokio::test(flavor = "multi_thread")]
    async fn what_is_left_after_a_jump_back_is_what_was_given() {
        let clock = Arc::new(Clock(AtomicU64::new(1_000 * DAY_MS)));
        let (_folder, node) = node_at(&clock).await;
        let mut client = Client::new(&node).await;
        client.call("BF.ADD k x", ":1\r\n").await;
        clock.0.fetch_sub(DAY_MS, Ordering::Relaxed);
        client.call("EXPIRE k 3600", ":1\r\n").await;
        client.send(b"TTL k\r\n").await;
        let left: u64 = client.line().await[1..].parse().unwrap();
        // Meanwhile the monotonic clock goes on.
        assert!((3_000..=3_600).contains(&left), "{left}");
        node.shutdown().await;
    }

    /// The leader of the catalogue may have looked before the command, or not.
    #[tokio::test(flavor = "multi_thread")]
    async fn a_key_whose_time_has_passed_is_missing() {
        let clock = Clock::stopped();
        let (_folder, node) = node_at(&clock).await;
        let mut client = Client::new(&node).await;
        for (request, answer) in [
            ("EXISTS k", ":0\r\n"),
            ("TTL k", ":-2\r\n"),
            ("PEXPIRE k 100000 XX", ":0\r\n"),
            ("PERSIST k", ":0\r\n"),
            ("DEL k", ":0\r\n"),
            ("RENAME k l", "-ERR no such key\r\n"),
            ("BF.EXISTS k old", ":0\r\n"),
            ("BF.RESERVE k 0.01 100", "+OK\r\n"),
            ("BF.ADD k old", ":1\r\n"),
            ("BF.ADD k old\r\nBF.ADD k old\r\nTTL k", ":1\r\n:0\r\n:-1\r\n"),
            ("BF.EXISTS k old\r\nBF.ADD k old", ":0\r\n:1\r\n"),
            (
                "MULTI\r\nSADD k old\r\nTTL k\r\nEXEC",
                "+OK\r\n+QUEUED\r\n+QUEUED\r\n*2\r\n:1\r\n:-1\r\n",
            ),
            ("CF.EXISTS k old", ":0\r\n"),
            ("CF.ADD k old", ":1\r\n"),
        ] {
            client.call("BF.ADD k old", ":1\r\n").await;
            client.call("PEXPIRE k 1000", ":1\r\n").await;
            clock.0.fetch_add(1_000, Ordering::Relaxed);
            client.call(request, answer).await;
            client.send(b"DEL k\r\n").await;
            client.line().await;
        }
        node.shutdown().await;
    }

    /// Each looks at the expiry, and sets it if there is none.
    #[tokio::test(flavor = "multi_thread")]
    async fn of_commands_for_a_filter_without_expiry_one_sets_it() {
        let (_folder, node) = node().await;
        let mut client = Client::new(&node).await;
        client.call("BF.ADD k x", ":1\r\n").await;
        for _ in 0..10 {
            let answers = join_all((0..10).map(|_| async {
                let mut client = Client::new(&node).await;
                client.send(b"EXPIRE k 3600 NX\r\n").await;
                client.line().await
            }));
            let answers = answers.await;
            let set_count = answers.iter().filter(|answer| *answer == ":1").count();
            assert_eq!(set_count, 1, "{answers:?}");
            client.call("PERSIST k", ":1\r\n").await;
        }
        node.shutdown().await;
    }

    /// The filter is dropped, or replaced, after the command has looked at it.
    #[tokio::test(flavor = "multi_thread")]
    async fn a_filter_is_changed_as_it_was_seen() {
        let (_folder, node) = node().await;
        let asked = node.coordinator();
        let name = FilterName::new("k").unwrap();
        let seen = create(&asked, "k", Kind::Blocked).await;
        asked.drop_filter(&name, None, deadline()).await.unwrap();
        let replace = |at_ms| Change::Replace { had: None, at_ms };
        let (set, unset) = (Change::Set(u64::MAX), Change::Persist { had_ms: 1 });
        let expire = Change::Expire { had: None };
        for wanted in [Change::Drop, expire, set, unset, replace(u64::MAX)] {
            let gone = change(&asked, &name, seen, wanted, deadline()).await;
            assert!(gone.is_err_and(|failure| is_missing(&failure)), "Redis answers 0");
        }
        let newer = create(&asked, "k", Kind::Blocked).await;
        for wanted in [Change::Drop, expire, set, replace(u64::MAX)] {
            let changed = change(&asked, &name, seen, wanted, deadline()).await;
            assert!(matches!(changed, Err(CallFailure::Changed { .. })), "{changed:?}");
        }
        assert_eq!(asked.expiry(&name, deadline()).await.unwrap(), Some((newer, None)));
        // A command of another node has seen the filter without an expiry, too.
        let first = change(&asked, &name, newer, replace(u64::MAX), deadline()).await;
        assert_eq!(first, Ok(false));
        for wanted in [replace(u64::MAX), replace(u64::MAX - 1), expire] {
            let late = change(&asked, &name, newer, wanted, deadline()).await;
            assert_eq!(late, Err(MetaError::ExpiryChanged { filter: newer }.into()));
        }
        let found = asked.expiry(&name, deadline()).await.unwrap();
        assert_eq!(found, Some((newer, Some(u64::MAX))));
        // Of those who saw it with this expiry, one makes it last for ever.
        let unset = Change::Persist { had_ms: u64::MAX };
        assert_eq!(change(&asked, &name, newer, unset, deadline()).await, Ok(false));
        let late = change(&asked, &name, newer, unset, deadline()).await;
        assert_eq!(late, Err(MetaError::ExpiryChanged { filter: newer }.into()));
        assert_eq!(asked.expiry(&name, deadline()).await.unwrap(), Some((newer, None)));
        drop(asked);
        node.shutdown().await;
    }

    /// Before the sixth version of the cluster, what was seen is not compared.
    #[tokio::test(flavor = "multi_thread")]
    async fn a_moment_that_has_passed_drops_a_filter_once() {
        for newest in [ClusterVersion(5), ClusterVersion::NEWEST] {
            let (_folder, node) = node_up_to(newest).await;
            let mut client = Client::new(&node).await;
            for (before, condition) in [(None, ""), (None, " NX"), (None, " LT"), (Some(60), " XX")]
            {
                client.call("BF.ADD k x", ":1\r\n").await;
                if let Some(seconds) = before {
                    client.call(&format!("EXPIRE k {seconds}"), ":1\r\n").await;
                }
                let expire = format!("EXPIRE k 0{condition}");
                client.call(&expire, ":1\r\n").await;
                client.call("EXISTS k", ":0\r\n").await;
                client.call(&expire, ":0\r\n").await;
            }
            node.shutdown().await;
        }
    }

    #[test]
    fn a_filter_whose_time_has_passed_is_changed_as_any_other() {
        let wanted = |condition, had, at_ms| wanted(condition, had, at_ms, 50);
        assert_eq!(wanted(Condition::Always, Some(40), 50), Some(Change::Drop));
        assert_eq!(wanted(Condition::Always, None, 51), Some(Change::Set(51)));
        let expire = |had| Some(Change::Expire { had });
        assert_eq!(wanted(Condition::IfNone, None, 50), expire(None));
        assert_eq!(wanted(Condition::IfSome, Some(51), 0), expire(Some(51)));
        assert_eq!(wanted(Condition::IfNone, Some(51), 0), None);
        // Whether the time that it had has passed is for the leader of the catalogue to say.
        for (condition, at_ms) in [(Condition::IfSome, 50), (Condition::IfEarlier, 49)] {
            assert_eq!(wanted(condition, Some(50), at_ms), expire(Some(50)));
        }
        let replaced = Some(Change::Replace { had: Some(51), at_ms: 52 });
        assert_eq!(wanted(Condition::IfLater, Some(51), 52), replaced);
    }

    #[test]
    fn time_left_is_rounded_like_redis_does() {
        use TimeUnit::{Milliseconds, Seconds};
        assert_eq!(time_left(None, 5, Seconds, false), -1);
        assert_eq!(time_left(Some(10_499), 0, Seconds, false), 10);
        assert_eq!(time_left(Some(10_500), 0, Seconds, false), 11);
        assert_eq!(time_left(Some(10_500), 500, Milliseconds, false), 10_000);
        assert_eq!(time_left(Some(10_500), 500, Milliseconds, true), 10_500);
        // Due, but not dropped yet.
        assert_eq!(time_left(Some(10), 500, Milliseconds, false), 0);
    }

    #[test]
    fn a_moment_behind_the_last_number_is_refused() {
        let check = |expiry| check_moment("pexpire", expiry, 50);
        let refused = Err(Refusal::ExpireTime { command: "pexpire" });
        assert_eq!(check(Expiry::InMs(i64::MAX - 49)), refused);
        assert_eq!(check(Expiry::InMs(i64::MAX - 50)), Ok(()));
        assert_eq!(check(Expiry::InMs(i64::MIN)), Ok(()));
        assert_eq!(check(Expiry::AtMs(i64::MAX)), Ok(()));
    }

    #[test]
    fn conditions_are_those_of_redis() {
        assert!(allows(Condition::IfNone, None, 5) && !allows(Condition::IfNone, Some(4), 5));
        assert!(allows(Condition::IfSome, Some(4), 5) && !allows(Condition::IfSome, None, 5));
        // Without an expiry the filter lasts for ever: no moment is later, every moment is earlier.
        assert!(!allows(Condition::IfLater, None, 5) && allows(Condition::IfEarlier, None, 5));
        assert!(allows(Condition::IfLater, Some(4), 5) && !allows(Condition::IfLater, Some(5), 5));
        assert!(!allows(Condition::IfSomeAndEarlier, None, 5));
        assert_eq!(moment(Expiry::InMs(-70), 50), 0);
        assert_eq!(moment(Expiry::AtMs(-1), 50), 0);
        assert_eq!(moment(Expiry::InMs(7), 50), 57);
    }
}
