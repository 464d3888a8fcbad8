//! The replay table, compared with one that never forgets.

use std::collections::BTreeMap;

use proptest::collection::vec;
use proptest::prelude::*;
use umbel_filter::HashRange;

use super::replay::{Operation, ReplayLimits, ReplayTable, StampedPart};
use super::{Bitmap, PartError, RequestStamp};
use crate::ids::{FilterId, OwnerId, RequestId, SessionId, ShardId};

const SMALL: ReplayLimits =
    ReplayLimits { bytes_max: 1_000, sessions_max: 3, owners_max: 2, requests_per_session_max: 5 };

fn stamped(session: u64, sequence: u64, acknowledged_below: u64, digest: u64) -> StampedPart {
    stamped_by(0, session, sequence, acknowledged_below, digest)
}

fn stamped_by(owner: u64, session: u64, sequence: u64, below: u64, digest: u64) -> StampedPart {
    let id = RequestId { session: SessionId(session), sequence };
    let stamp = RequestStamp {
        id,
        acknowledged_below: below,
        digest,
        cut: (0, u64::MAX),
        owner: OwnerId(owner),
    };
    StampedPart::new(stamp, Operation::Insert, FilterId(1), 4)
}

fn look_up(table: &ReplayTable, stamped: &StampedPart) -> Result<Option<Bitmap>, PartError> {
    table.look_up(stamped, (ShardId(0), HashRange::WHOLE))
}

fn answer(number: usize) -> Bitmap {
    Bitmap::from_ones(4, (0..4).filter(|bit| number >> bit & 1 == 1))
}

fn table(limits: ReplayLimits, requests: &[StampedPart]) -> ReplayTable {
    let mut table = ReplayTable::new(limits);
    for (number, stamped) in requests.iter().enumerate() {
        assert_eq!(look_up(&table, stamped), Ok(None));
        table.record(stamped, answer(number));
    }
    table
}

#[test]
fn the_first_answer_is_kept_until_it_is_acknowledged() {
    let mut table = table(SMALL, &[stamped(1, 1, 0, 7), stamped(1, 2, 0, 8)]);
    assert_eq!(look_up(&table, &stamped(1, 1, 0, 7)), Ok(Some(answer(0))));
    assert_eq!(look_up(&table, &stamped(1, 2, 0, 8)), Ok(Some(answer(1))));
    let id = RequestId { session: SessionId(1), sequence: 1 };
    assert_eq!(look_up(&table, &stamped(1, 1, 0, 9)), Err(PartError::RequestReused { id }));
    let stamp = stamped(1, 1, 0, 7).stamp;
    for other in [
        StampedPart::new(stamp, Operation::Insert, FilterId(1), 5),
        StampedPart::new(stamp, Operation::Insert, FilterId(2), 4),
        StampedPart::new(stamp, Operation::Remove, FilterId(1), 4),
    ] {
        assert_eq!(look_up(&table, &other), Err(PartError::RequestReused { id }));
    }
    // The third request acknowledges the first.
    table.record(&stamped(1, 3, 2, 9), answer(2));
    assert_eq!(look_up(&table, &stamped(1, 1, 0, 7)), Err(PartError::RequestExpired { id }));
    assert_eq!(look_up(&table, &stamped(1, 2, 0, 8)), Ok(Some(answer(1))));
    assert!(matches!(
        look_up(&table, &stamped(1, u64::MAX, 0, 8)),
        Err(PartError::Malformed { .. })
    ));
}

#[test]
fn a_session_with_too_many_requests_loses_the_lowest() {
    let requests: Vec<StampedPart> = (1..=6).map(|sequence| stamped(1, sequence, 0, 7)).collect();
    let table = table(SMALL, &requests);
    assert!(matches!(look_up(&table, &requests[0]), Err(PartError::RequestExpired { .. })));
    assert_eq!(look_up(&table, &requests[1]), Ok(Some(answer(1))));
}

#[test]
fn the_quietest_session_is_forgotten_whole() {
    let requests = [(1, 1), (5, 1), (3, 1), (1, 2), (4, 1)];
    let requests = requests.map(|(session, sequence)| stamped(session, sequence, 0, 7));
    let table = table(SMALL, &requests);
    // Session 5 was unused for the longest time. A lower session that is unknown may have been known
    // before.
    for session in [5, 2] {
        let id = RequestId { session: SessionId(session), sequence: 1 };
        let refused = Err(PartError::SessionExpired { id });
        assert_eq!(look_up(&table, &stamped(session, 1, 0, 7)), refused);
    }
    assert_eq!(look_up(&table, &requests[0]), Ok(Some(answer(0))));
    assert_eq!(look_up(&table, &stamped(6, 1, 0, 7)), Ok(None));
}

/// A table of sixteen sessions: the oldest, 1 to 4, belong to owner 1, and 5 to 8 to owner 2.
fn with_two_owners() -> ReplayTable {
    let limits = ReplayLimits { sessions_max: 16, bytes_max: 100_000, ..SMALL };
    let mut table = ReplayTable::new(limits);
    for session in 1..=8 {
        table.record(&stamped_by(1 + session / 5, session, 1, 0, 7), answer(1));
    }
    table
}

#[test]
fn who_opens_many_sessions_pushes_out_its_own() {
    let mut table = with_two_owners();
    for session in 9..1_000 {
        table.record(&stamped_by(3, session, 1, 0, 7), answer(2));
    }
    for session in 1..=8 {
        let of_others = stamped_by(1 + session / 5, session, 1, 0, 7);
        assert_eq!(look_up(&table, &of_others), Ok(Some(answer(1))), "session {session}");
    }
    let kept = |session| look_up(&table, &stamped_by(3, session, 1, 0, 7));
    assert!((992..1_000).all(|session| kept(session) == Ok(Some(answer(2)))));
    assert!(matches!(kept(991), Err(PartError::SessionExpired { .. })));
    // A session that was opened before all of these, and whose first request reaches this shard only
    // now.
    assert_eq!(look_up(&table, &stamped_by(4, 9, 1, 0, 7)), Ok(None));
    assert!(matches!(
        look_up(&table, &stamped_by(3, 9, 2, 0, 7)),
        Err(PartError::SessionExpired { .. })
    ));
}

#[test]
fn a_newcomer_takes_the_place_of_who_has_most() {
    let mut table = with_two_owners();
    for session in 9..=16 {
        table.record(&stamped_by(3, session, 1, 0, 7), answer(2));
    }
    // Owner 3 has eight of sixteen sessions.
    table.record(&stamped_by(4, 20, 1, 0, 7), answer(3));
    assert!(matches!(
        look_up(&table, &stamped_by(3, 9, 1, 0, 7)),
        Err(PartError::SessionExpired { .. })
    ));
    assert_eq!(look_up(&table, &stamped_by(1, 1, 1, 0, 7)), Ok(Some(answer(1))));
    // Every owner may get as many sessions as every other one.
    for session in 21..=30 {
        table.record(&stamped_by(1, session, 1, 0, 7), answer(3));
    }
    for owner in [2, 4] {
        let first = if owner == 2 { (5, answer(1)) } else { (20, answer(3)) };
        assert_eq!(look_up(&table, &stamped_by(owner, first.0, 1, 0, 7)), Ok(Some(first.1)));
    }
}

#[test]
fn of_owners_beyond_the_limit_the_oldest_sessions_count_as_forgotten_for_all() {
    let mut table = ReplayTable::new(ReplayLimits { sessions_max: 1, ..SMALL });
    for (owner, session) in [(1, 10), (2, 20), (3, 30), (4, 40)] {
        table.record(&stamped_by(owner, session, 1, 0, 7), answer(1));
    }
    // Sessions 10, 20 and 30 are forgotten, and two owners are tracked separately: 2 and 3.
    let look_up = |owner, session| look_up(&table, &stamped_by(owner, session, 2, 0, 7));
    for (owner, session) in [(1, 10), (2, 20), (3, 30), (9, 10)] {
        let refused = look_up(owner, session);
        assert!(matches!(refused, Err(PartError::SessionExpired { .. })), "{owner} {session}");
    }
    for (owner, session) in [(1, 11), (2, 21), (3, 31), (9, 11)] {
        assert_eq!(look_up(owner, session), Ok(None), "{owner} {session}");
    }
}

#[test]
fn above_its_bytes_it_drops_the_oldest() {
    let limits = ReplayLimits { bytes_max: 111 * 3, ..SMALL };
    let requests = [(1, 9), (2, 1), (1, 3), (2, 2)];
    let requests = requests.map(|(session, sequence)| stamped(session, sequence, 0, 7));
    let table = table(limits, &requests);
    // The oldest record is request 9 of session 1; request 3 is below it.
    assert!(matches!(look_up(&table, &requests[0]), Err(PartError::RequestExpired { .. })));
    assert!(matches!(look_up(&table, &requests[2]), Err(PartError::RequestExpired { .. })));
    assert_eq!(look_up(&table, &requests[3]), Ok(Some(answer(3))));
    assert_eq!(table.bytes(), 2 * 111);
}

#[test]
fn above_its_bytes_who_holds_more_than_a_share_loses_its_own() {
    let limits = ReplayLimits { bytes_max: 111 * 4, sessions_max: 8, ..SMALL };
    let mut table = ReplayTable::new(limits);
    table.record(&stamped_by(1, 1, 1, 0, 7), answer(1));
    for sequence in 1..=5 {
        table.record(&stamped_by(2, 2, sequence, 0, 7), answer(2));
    }
    // The oldest record of all belongs to owner 1. Owner 2 has reached three of four, and lost its
    // own first two.
    let look_up = |table: &ReplayTable, owner, sequence| {
        look_up(table, &stamped_by(owner, owner, sequence, 0, 7))
    };
    assert_eq!(look_up(&table, 1, 1), Ok(Some(answer(1))));
    assert!(matches!(look_up(&table, 2, 2), Err(PartError::RequestExpired { .. })));
    assert_eq!(look_up(&table, 2, 3), Ok(Some(answer(2))));
    // Owner 1 reaches its half at the expense of owner 2, and then pays for itself.
    table.record(&stamped_by(1, 1, 2, 0, 7), answer(3));
    assert!(matches!(look_up(&table, 2, 3), Err(PartError::RequestExpired { .. })));
    table.record(&stamped_by(1, 1, 3, 0, 7), answer(4));
    assert!(matches!(look_up(&table, 1, 1), Err(PartError::RequestExpired { .. })));
    assert_eq!(look_up(&table, 1, 2), Ok(Some(answer(3))));
    assert_eq!(look_up(&table, 2, 4), Ok(Some(answer(2))));
    assert_eq!(table.bytes(), 4 * 111);
}

#[test]
fn who_loses_answers_keeps_no_memory_of_them() {
    let limits = ReplayLimits { bytes_max: 111 * 200, requests_per_session_max: 200, ..SMALL };
    let mut table = ReplayTable::new(limits);
    // The oldest record has the highest number, so all others are dropped with it.
    for sequence in (1..=200).rev() {
        table.record(&stamped_by(2, 2, sequence, 0, 7), answer(1));
    }
    assert_eq!(table.queued_count(), 200);
    table.record(&stamped_by(1, 1, 1, 0, 7), answer(2));
    assert_eq!((table.bytes(), table.queued_count()), (111, 1));
}

#[test]
fn hostile_heads_are_refused() {
    let table = table(SMALL, &[stamped(1, 1, 0, 7), stamped(1, 2, 0, 8), stamped(2, 1, 0, 8)]);
    let head = table.head(HashRange::WHOLE);
    assert_eq!(
        ReplayTable::from_head(SMALL, HashRange::WHOLE, &head).unwrap().head(HashRange::WHOLE),
        head
    );
    for limits in [
        ReplayLimits { bytes_max: 3 * 111 - 1, ..SMALL },
        ReplayLimits { sessions_max: 1, ..SMALL },
        ReplayLimits { requests_per_session_max: 1, ..SMALL },
    ] {
        assert!(ReplayTable::from_head(limits, HashRange::WHOLE, &head).is_err());
    }
}

#[derive(Clone, Copy, Debug)]
struct Step {
    session: u64,
    sequence: u64,
    acknowledged: u64,
    digest: u64,
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = (1..8u64, 1..12u64, 0..8u64, 0..8u64).prop_map(
        |(session, sequence, unacknowledged, other)| {
            // Mostly one digest per request, and nothing acknowledged beyond it.
            let digest = if other == 0 { 1 } else { 0 };
            Step {
                session,
                sequence,
                acknowledged: sequence.saturating_sub(unacknowledged),
                digest,
            }
        },
    );
    vec(step, 0..120)
}

fn limits() -> impl Strategy<Value = ReplayLimits> {
    let numbers = (100..2_000usize, 1..8usize, 1..4usize, 1..8usize);
    numbers.prop_map(|(bytes_max, sessions_max, owners_max, requests)| ReplayLimits {
        bytes_max,
        sessions_max,
        owners_max,
        requests_per_session_max: requests,
    })
}

proptest! {
    /// At most once, whatever is forgotten: a request that the table does not know was never
    /// recorded, and a recorded answer is the first one. Every bound holds after every step, and a
    /// copy restored from a snapshot in the middle behaves the same.
    #[test]
    fn it_never_forgets_that_it_forgot(
        steps in steps(), limits in limits(), travel in 0..120usize,
    ) {
        let mut table = ReplayTable::new(limits);
        let mut copy = table.clone();
        let mut all = BTreeMap::new();
        for (number, step) in steps.iter().enumerate() {
            let Step { session, sequence, acknowledged, digest } = *step;
            let stamped = stamped_by(session % 3, session, sequence, acknowledged, digest);
            let found = look_up(&table, &stamped);
            prop_assert_eq!(&found, &look_up(&copy, &stamped));
            let first = all.get(&stamped.stamp.id);
            match found {
                Ok(None) => {
                    prop_assert_eq!(first, None);
                    table.record(&stamped, answer(number));
                    copy.record(&stamped, answer(number));
                    all.insert(stamped.stamp.id, (step.digest, answer(number)));
                }
                Ok(Some(answer)) => prop_assert_eq!(first, Some(&(step.digest, answer))),
                Err(PartError::RequestReused { .. }) => {
                    prop_assert!(first.is_some_and(|&(digest, _)| digest != step.digest));
                }
                Err(PartError::RequestExpired { .. } | PartError::SessionExpired { .. }) => (),
                Err(other) => prop_assert!(false, "{}", other),
            }
            if number == travel {
                copy = ReplayTable::from_head(limits, HashRange::WHOLE, &table.head(HashRange::WHOLE)).unwrap();
            }
            prop_assert_eq!(table.head(HashRange::WHOLE), copy.head(HashRange::WHOLE));
            prop_assert_eq!(table.bytes(), copy.bytes());
            prop_assert!(table.bytes() <= limits.bytes_max);
        }
    }

    /// The slow twin: within its limits, the table is a map that drops acknowledged requests.
    #[test]
    fn within_its_limits_it_is_a_map(steps in steps()) {
        let mut table = ReplayTable::new(ReplayLimits::SHARD);
        let mut all = BTreeMap::new();
        let mut below = BTreeMap::new();
        for (number, step) in steps.iter().enumerate() {
            let stamped = stamped(step.session, step.sequence, step.acknowledged, step.digest);
            let id = stamped.stamp.id;
            let below: &mut u64 = below.entry(step.session).or_default();
            let expected = match all.get(&id) {
                _ if step.sequence < *below => Err(PartError::RequestExpired { id }),
                None => Ok(None),
                Some((digest, _)) if *digest != step.digest => {
                    Err(PartError::RequestReused { id })
                }
                Some((_, answer)) => Ok(Some(Bitmap::clone(answer))),
            };
            prop_assert_eq!(&look_up(&table, &stamped), &expected);
            if expected == Ok(None) {
                table.record(&stamped, answer(number));
                all.insert(id, (step.digest, answer(number)));
                *below = step.acknowledged.max(*below);
            }
        }
    }
}
