//! Tables of shards that were split and merged: what they answer, drop, and carry in a snapshot.

use umbel_filter::{HashRange, Kind};

use super::replay::{Operation, ReplayLimits, ReplayTable, StampedPart};
use super::shard_test::{filter_of, insert, item, list, range, stamp, state};
use super::{Bitmap, PartError, RequestStamp, ShardCommand};
use crate::ids::{FilterId, OwnerId, RequestId, SessionId, ShardId};

const LARGE: ReplayLimits = ReplayLimits::SHARD;

/// A quarter of the hash space, or several.
fn quarters(first: u64, last: u64) -> HashRange {
    HashRange::from_bounds((first << 62, (last << 62) + ((1 << 62) - 1))).unwrap()
}

fn asked_for(
    (session, sequence): (u64, u64),
    cut: HashRange,
    operation: Operation,
    digest: u64,
) -> StampedPart {
    let id = RequestId { session: SessionId(session), sequence };
    let owner = OwnerId(session % 10);
    let stamp = RequestStamp { id, acknowledged_below: 0, digest, cut: cut.bounds(), owner };
    StampedPart::new(stamp, operation, FilterId(1), 4)
}

/// With other items for each cut.
fn stamped(session: u64, sequence: u64, cut: HashRange) -> StampedPart {
    asked_for((session, sequence), cut, Operation::Insert, cut.start() ^ cut.last())
}

fn look_up(
    table: &ReplayTable,
    stamped: &StampedPart,
    range: HashRange,
) -> Result<Option<Bitmap>, PartError> {
    table.look_up(stamped, (ShardId(0), range))
}

fn record(table: &mut ReplayTable, session: u64, sequence: u64, cut: HashRange) {
    table.record(&stamped(session, sequence, cut), answer(sequence));
}

fn answer(number: u64) -> Bitmap {
    Bitmap::from_ones(4, (0..4).filter(|bit| number >> bit & 1 == 1))
}

fn reloaded(table: &ReplayTable, range: HashRange, limits: ReplayLimits) -> ReplayTable {
    ReplayTable::from_head(limits, range, &table.head(range)).unwrap()
}

fn is_cut_before(refused: &Result<Option<Bitmap>, PartError>, cut: HashRange) -> bool {
    matches!(refused, Err(PartError::CutBefore { start, last, .. }) if (*start, *last) == cut.bounds())
}

/// The tables of quarters 0 and 1 and of quarters 2 and 3, which were one shard when request 1 came.
fn halves(limits: ReplayLimits) -> [ReplayTable; 2] {
    let whole = quarters(0, 3);
    let mut lower = ReplayTable::new(limits);
    record(&mut lower, 1, 1, whole);
    let mut upper = lower.clone();
    lower.split(whole, quarters(0, 1));
    upper.split(whole, quarters(2, 3));
    [lower, upper]
}

#[test]
fn a_merged_table_answers_for_what_either_did() {
    let [mut lower, mut upper] = halves(LARGE);
    record(&mut upper, 1, 2, quarters(2, 3));
    record(&mut lower, 1, 3, quarters(0, 1));
    record(&mut upper, 1, 3, quarters(2, 3));
    let bytes = lower.bytes() + upper.bytes();
    lower.merge(&upper);
    // Request 1 was in both.
    assert_eq!(lower.bytes(), bytes / 5 * 4);
    let whole = quarters(0, 3);
    for table in [&lower, &reloaded(&lower, whole, LARGE)] {
        let ask = |sequence, cut| look_up(table, &stamped(1, sequence, cut), whole);
        assert_eq!(ask(1, whole), Ok(Some(answer(1))));
        // Of two answers, the lower one is named first.
        assert!(is_cut_before(&ask(3, whole), quarters(0, 1)));
        for cut in [quarters(0, 1), quarters(2, 3)] {
            assert_eq!(ask(3, cut), Ok(Some(answer(3))));
        }
        assert!(is_cut_before(&ask(3, quarters(1, 2)), quarters(0, 1)));
        assert!(is_cut_before(&ask(3, quarters(3, 3)), quarters(2, 3)));
        // Half of request 2 was never applied.
        assert!(is_cut_before(&ask(2, whole), quarters(2, 3)));
        assert_eq!(ask(2, quarters(0, 1)), Ok(None));
        let reused =
            look_up(table, &asked_for((1, 2), quarters(2, 3), Operation::Insert, 8), whole);
        assert!(matches!(reused, Err(PartError::RequestReused { .. })), "{reused:?}");
    }
}

/// All items of the request are in one half.
#[test]
fn the_same_items_are_answered_whatever_the_cut() {
    let mut table = ReplayTable::new(LARGE);
    for (sequence, operation) in [(1, Operation::Insert), (2, Operation::Sum)] {
        table.record(&asked_for((1, sequence), quarters(0, 1), operation, 7), answer(sequence));
    }
    for cut in [quarters(0, 0), quarters(0, 3)] {
        let ask = |sequence, operation| {
            look_up(&table, &asked_for((1, sequence), cut, operation, 7), quarters(0, 3))
        };
        assert_eq!(ask(1, Operation::Insert), Ok(Some(answer(1))));
        assert!(is_cut_before(&ask(2, Operation::Sum), quarters(0, 1)));
    }
}

#[test]
fn only_what_is_left_of_a_part_is_taken_for_less_than_the_range() {
    let [mut lower, mut upper] = halves(LARGE);
    record(&mut upper, 1, 2, quarters(2, 3));
    lower.merge(&upper);
    let whole = quarters(0, 3);
    let is_taken = |stamped: &StampedPart, range| match look_up(&lower, stamped, range) {
        Ok(None) => true,
        Err(PartError::OtherCut { .. }) => false,
        other => panic!("{other:?}"),
    };
    assert!(is_taken(&stamped(1, 2, quarters(0, 1)), whole));
    assert!(is_taken(&stamped(1, 2, quarters(1, 1)), whole));
    // Nothing of request 4 was answered here; and a sum adds all of the range.
    assert!(is_taken(&stamped(1, 4, whole), whole));
    assert!(!is_taken(&stamped(1, 4, quarters(0, 1)), whole));
    assert!(!is_taken(&asked_for((1, 2), quarters(0, 1), Operation::Sum, 7), whole));
    // Neither are hashes that the shard does not have.
    assert!(!is_taken(&stamped(1, 2, quarters(0, 1)), quarters(1, 3)));
    assert!(!is_taken(&stamped(1, 4, whole), quarters(1, 3)));
    let mut nonsense = stamped(1, 2, whole);
    nonsense.stamp.cut = (5, 4);
    assert!(!is_taken(&nonsense, whole));
}

#[test]
fn a_half_keeps_what_is_about_its_hashes() {
    let [mut lower, mut upper] = halves(LARGE);
    record(&mut upper, 1, 2, quarters(2, 3));
    record(&mut lower, 1, 3, quarters(0, 1));
    record(&mut upper, 1, 3, quarters(2, 3));
    let before = lower.clone();
    lower.merge(&upper);
    lower.split(quarters(0, 3), quarters(0, 1));
    assert_eq!(lower.head(quarters(0, 1)), before.head(quarters(0, 1)));
    assert_eq!((lower.bytes(), lower.queued_count()), (before.bytes(), 2));
    // A request that is gone may be applied here, and is then queued once.
    assert_eq!(look_up(&lower, &stamped(1, 2, quarters(0, 1)), quarters(0, 1)), Ok(None));
    record(&mut lower, 1, 2, quarters(0, 1));
    assert_eq!((lower.queued_count(), lower.head(quarters(0, 1)).counts()), (3, (1, 3)));
}

#[test]
fn what_one_table_dropped_the_other_forgets() {
    let limits = ReplayLimits { requests_per_session_max: 2, sessions_max: 2, ..LARGE };
    let [mut lower, mut upper] = halves(limits);
    // The upper half drops request 1 of session 1, and the lower one forgets session 11.
    record(&mut upper, 1, 2, quarters(2, 3));
    record(&mut upper, 1, 3, quarters(2, 3));
    record(&mut upper, 11, 1, quarters(2, 3));
    record(&mut lower, 11, 1, quarters(0, 1));
    record(&mut lower, 1, 2, quarters(0, 1));
    record(&mut lower, 21, 1, quarters(0, 1));
    lower.merge(&upper);
    let whole = quarters(0, 3);
    let ask = |session, sequence, cut| look_up(&lower, &stamped(session, sequence, cut), whole);
    assert!(matches!(ask(1, 1, whole), Err(PartError::RequestExpired { .. })));
    assert_eq!(ask(1, 2, quarters(0, 1)), Ok(Some(answer(2))));
    for cut in [whole, quarters(2, 3)] {
        assert!(matches!(ask(11, 1, cut), Err(PartError::SessionExpired { .. })));
    }
    // The upper half never forgot a session, so it did not know session 21.
    assert_eq!(ask(21, 1, quarters(0, 1)), Ok(Some(answer(1))));
}

#[test]
fn a_merged_table_is_within_the_limits() {
    let limits = ReplayLimits {
        sessions_max: 4,
        requests_per_session_max: 3,
        bytes_max: 8 * 111,
        owners_max: 2,
    };
    let [mut lower, mut upper] = [(); 2].map(|()| ReplayTable::new(limits));
    // Owners 1 and 2; of sessions 1 and 2 the last uses are the oldest.
    for (session, sequence) in [(1, 1), (2, 1), (11, 1), (11, 2), (21, 3)] {
        record(&mut lower, session, sequence, quarters(0, 1));
    }
    for (session, sequence) in [(12, 1), (31, 1), (31, 2), (11, 3), (11, 4)] {
        record(&mut upper, session, sequence, quarters(2, 3));
    }
    lower.merge(&upper);
    let whole = quarters(0, 3);
    assert!(lower.bytes() <= limits.bytes_max);
    assert_eq!(reloaded(&lower, whole, limits).head(whole), lower.head(whole));
    let ask = |session, sequence, cut| look_up(&lower, &stamped(session, sequence, cut), whole);
    // Owner 1 had four sessions of six, and loses those that it used least recently.
    for session in [1, 31] {
        assert!(matches!(ask(session, 1, whole), Err(PartError::SessionExpired { .. })));
    }
    // Session 11 had four requests.
    assert!(matches!(ask(11, 1, whole), Err(PartError::RequestExpired { .. })));
    assert_eq!(ask(11, 2, quarters(0, 1)), Ok(Some(answer(2))));
    assert_eq!(ask(11, 4, quarters(2, 3)), Ok(Some(answer(4))));
    assert_eq!(ask(12, 1, quarters(2, 3)), Ok(Some(answer(1))));

    let few = ReplayLimits { bytes_max: 2 * 111, ..LARGE };
    let [mut lower, mut upper] = [(); 2].map(|()| ReplayTable::new(few));
    record(&mut lower, 1, 1, quarters(0, 1));
    record(&mut lower, 1, 2, quarters(0, 1));
    record(&mut upper, 2, 1, quarters(2, 3));
    lower.merge(&upper);
    // Owner 1 had most, and loses its oldest.
    let ask = |session, sequence, cut| look_up(&lower, &stamped(session, sequence, cut), whole);
    assert!(matches!(ask(1, 1, whole), Err(PartError::RequestExpired { .. })));
    assert_eq!(ask(1, 2, quarters(0, 1)), Ok(Some(answer(2))));
    assert_eq!(ask(2, 1, quarters(2, 3)), Ok(Some(answer(1))));
}

/// No two shards record such answers. If they did, neither may hide the other.
#[test]
fn answers_that_contradict_each_other_are_dropped() {
    let [mut lower, mut upper] = [(); 2].map(|()| ReplayTable::new(LARGE));
    record(&mut lower, 1, 1, quarters(0, 2));
    record(&mut lower, 1, 2, quarters(0, 1));
    record(&mut upper, 1, 1, quarters(2, 3));
    lower.merge(&upper);
    let whole = quarters(0, 3);
    let expired = look_up(&lower, &stamped(1, 1, quarters(2, 3)), whole);
    assert!(matches!(expired, Err(PartError::RequestExpired { .. })), "{expired:?}");
    assert_eq!(look_up(&lower, &stamped(1, 2, quarters(0, 1)), whole), Ok(Some(answer(2))));
}

#[test]
fn ranges_are_listed_if_they_were_split_or_a_record_is_cut_for_them() {
    let (whole, half, quarter) = (quarters(0, 3), quarters(0, 1), quarters(0, 0));
    let mut table = ReplayTable::new(LARGE);
    table.split(whole, half);
    table.split(half, quarter);
    // As releases from before merges write it.
    let head = table.head(quarter);
    assert_eq!(head.counts(), (2, 0));
    assert_eq!(reloaded(&table, quarter, LARGE).head(quarter), head);
    let mut upper = ReplayTable::new(LARGE);
    record(&mut upper, 1, 1, quarters(1, 1));
    table.merge(&upper);
    assert_eq!(table.head(half).counts(), (3, 1));
    // However often it is split and merged.
    for _ in 0..100 {
        let mut upper = table.clone();
        table.split(half, quarter);
        upper.split(half, quarters(1, 1));
        table.merge(&upper);
        table = reloaded(&table, half, LARGE);
    }
    assert_eq!(table.head(half).counts(), (3, 1));
    let mut acknowledging = stamped(1, 2, half);
    acknowledging.stamp.acknowledged_below = 2;
    table.record(&acknowledging, answer(2));
    assert_eq!(table.head(half).counts(), (1, 1));
    // A range that was never split, and that no record has, is left out.
    let more = table.head(half).with_unused(quarters(2, 2));
    assert_eq!(more.counts(), (2, 1));
    let loaded = ReplayTable::from_head(LARGE, half, &more).unwrap();
    assert_eq!(loaded.head(half), table.head(half));
}

/// What is left of a part after a merge may cover more than the range that a split leaves. It is no range
/// that was split, and is not listed once no record has it, in a replica that was loaded either.
#[test]
fn a_cut_that_covers_the_range_is_not_taken_for_a_split() {
    let (whole, half) = (quarters(0, 3), quarters(2, 3));
    let mut table = ReplayTable::new(LARGE);
    record(&mut table, 1, 1, quarters(0, 0));
    record(&mut table, 1, 1, quarters(1, 3));
    table.split(whole, half);
    let mut loaded = reloaded(&table, half, LARGE);
    assert_eq!(table.head(half).counts(), (3, 1));
    for table in [&mut table, &mut loaded] {
        let mut acknowledging = stamped(1, 2, half);
        acknowledging.stamp.acknowledged_below = 2;
        table.record(&acknowledging, answer(2));
        table.split(half, quarters(3, 3));
    }
    assert_eq!(table.head(quarters(3, 3)), loaded.head(quarters(3, 3)));
    assert_eq!(table.head(quarters(3, 3)).counts(), (2, 1));
}

#[test]
fn hostile_cuts_are_refused() {
    let [mut lower, mut upper] = halves(LARGE);
    record(&mut lower, 1, 3, quarters(0, 1));
    record(&mut upper, 1, 3, quarters(2, 3));
    lower.merge(&upper);
    let whole = quarters(0, 3);
    let head = lower.head(whole);
    let refused = |head| ReplayTable::from_head(LARGE, whole, &head).err();
    assert_eq!((refused(head.clone()), head.counts()), (None, (3, 3)));
    // All for one range, in the wrong order, for a range that is not listed.
    let changes: [fn(u32) -> u32; 3] = [|_| 2, |cut| 3 - cut, |cut| cut + 2];
    for change in changes {
        let refused = refused(head.clone().with_cuts(change)).unwrap();
        assert!(refused.contains("is cut for"), "{refused}");
    }
    let mut many = head;
    for at in 0..40 {
        many = many.with_unused(HashRange::from_bounds((at, at)).unwrap());
    }
    assert!(refused(many).unwrap().contains("ranges of 3 records"));
    let empty = ReplayTable::new(LARGE).head(quarters(0, 0));
    let mut many = empty;
    for _ in 0..33 {
        many = many.with_unused(whole);
    }
    assert!(ReplayTable::from_head(LARGE, quarters(0, 0), &many).is_err());
}

/// The hashes of a part lie within its cut, or its record would not cover them.
#[test]
fn a_hash_outside_of_the_cut_is_refused() {
    let mut whole = state();
    let filter = filter_of(Kind::Counting, 0);
    let at = range().start() + u64::try_from(range().width() / 2).unwrap();
    let split = ShardCommand::Split { into: ShardId(7), at };
    let mut upper = whole.upper_half(&split).unwrap().unwrap();
    let is_upper = |number: &u64| item(*number).hi() >= at;
    let (above, below): (Vec<u64>, Vec<u64>) = (0..20).partition(is_upper);
    let part = |items: &[u64], cut: HashRange| {
        Some(RequestStamp { cut: cut.bounds(), ..stamp(1, 1, &list(items)) })
    };
    let request = part(&above, upper.range());
    insert(&mut upper, filter, request, list(&above)).unwrap();
    whole.replay.merge(&upper.replay);
    let lower = HashRange::new(range().start(), at.into()).unwrap();
    let all: Vec<u64> = (0..20).collect();
    let digest = whole.digest();
    let refused = insert(&mut whole, filter, part(&all, lower), list(&all));
    assert!(matches!(refused, Err(PartError::Malformed { .. })), "{refused:?}");
    let refused = super::shard_test::remove(&mut whole, filter, part(&all, lower), list(&all));
    assert!(matches!(refused, Err(PartError::Malformed { .. })), "{refused:?}");
    assert_eq!(whole.digest(), digest);
    let applied = insert(&mut whole, filter, part(&below, lower), list(&below)).unwrap();
    assert_eq!(applied.count_ones() as usize, below.len());
    assert!(whole.contains(filter, super::shard_test::FIRST, &list(&below)).is_ok());
}
