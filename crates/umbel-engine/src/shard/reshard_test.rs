//! Requests that are tried again while shards are split and merged, compared with a model that remembers
//! everything.
//!
//! The shards have the replay tables of this crate and sets of items; the requester divides batches as a
//! coordinator does, by a map that may be older or newer than the shards, and may give up in between.

use std::collections::{BTreeMap, BTreeSet};

use proptest::collection::vec;
use proptest::prelude::*;
use umbel_filter::{HashRange, ItemHash};

use super::replay::{Operation, ReplayLimits, ReplayTable, StampedPart};
use super::{Bitmap, HashList, PartError, RequestStamp};
use crate::ids::{FilterId, OwnerId, RequestId, SessionId, ShardId};
use crate::placement::ShardRanges;
use crate::routing::{BatchParts, Pieces, Rest};

/// Most shards of a test.
const COUNT_MAX: u32 = 9;

/// Large enough that nothing is forgotten.
const LARGE: ReplayLimits = ReplayLimits::SHARD;

/// Small enough that most is.
const SMALL: ReplayLimits =
    ReplayLimits { bytes_max: 1_500, sessions_max: 4, owners_max: 2, requests_per_session_max: 5 };

fn item(number: u64) -> ItemHash {
    umbel_filter::ItemHasher::Xxh3 { seed: 3 }.hash(&number.to_le_bytes())
}

/// One request of a client. Its number decides about its items.
#[derive(Clone, Copy, Debug)]
struct Request {
    session: u64,
    sequence: u64,
    acknowledged_below: u64,
    /// Whether every insert counts. Otherwise a part whose items are all present leaves no record.
    counts: bool,
}

impl Request {
    fn id(self) -> RequestId {
        RequestId { session: SessionId(self.session), sequence: self.sequence }
    }

    /// Zero to nine items, some of which other requests have, too.
    fn items(self) -> Vec<ItemHash> {
        let first = 7 * self.session + 3 * self.sequence;
        (first..first + (self.session + 5 * self.sequence) % 10).map(item).collect()
    }

    fn stamped(self, cut: HashRange, hashes: &HashList) -> StampedPart {
        let stamp = RequestStamp {
            id: self.id(),
            acknowledged_below: self.acknowledged_below,
            digest: hashes.digest(),
            cut: cut.bounds(),
            owner: OwnerId(self.session % 3),
        };
        StampedPart::new(
            stamp,
            Operation::Insert,
            FilterId(1),
            u32::try_from(hashes.len()).unwrap(),
        )
    }
}

/// What happens to the cluster.
#[derive(Clone, Debug)]
enum Step {
    Split,
    Merge,
    /// A replica is loaded from a snapshot.
    Reload(u32),
    /// A try of a request, by a map that is this many splits ahead. Before the calls with these numbers,
    /// shards are split (true) or merged, and the requester gives up after so many calls.
    Try {
        request: Request,
        ahead: i64,
        changes: Vec<(u32, bool)>,
        calls_max: u32,
    },
}

#[derive(Clone, Debug)]
struct Shard {
    range: HashRange,
    /// The same table in two replicas.
    tables: [ReplayTable; 2],
    items: BTreeSet<(u64, u64)>,
}

struct World {
    limits: ReplayLimits,
    ranges: ShardRanges,
    shards: Vec<Shard>,
    /// For each item of each request, the answer when it was applied.
    first: BTreeMap<(RequestId, (u64, u64)), bool>,
    calls: u32,
}

/// Why a try has no answer.
#[derive(Debug, PartialEq)]
enum Failed {
    GaveUp,
    Refused(PartError),
}

fn key(hash: ItemHash) -> (u64, u64) {
    (hash.hi(), hash.lo())
}

impl World {
    fn new(founded: u32, limits: ReplayLimits) -> Self {
        let ranges = ShardRanges::new(founded, founded).unwrap();
        let shards = ranges.shards().map(|shard| Shard {
            range: ranges.range(shard).unwrap(),
            tables: [(); 2].map(|()| ReplayTable::new(limits)),
            items: BTreeSet::new(),
        });
        Self { limits, ranges, shards: shards.collect(), first: BTreeMap::new(), calls: 0 }
    }

    fn split(&mut self) {
        let Some(after) = self.ranges.split().filter(|after| after.count() <= COUNT_MAX) else {
            return;
        };
        let new = ShardId(self.ranges.count());
        let parent = after.parent(new).unwrap();
        let mut upper = self.shards[parent.0 as usize].clone();
        for (shard, number) in [(&mut self.shards[parent.0 as usize], parent), (&mut upper, new)] {
            let (whole, range) = (shard.range, after.range(number).unwrap());
            shard.range = range;
            shard.tables.iter_mut().for_each(|table| table.split(whole, range));
            shard.items.retain(|&(hi, _)| shard.range.contains(hi));
        }
        self.shards.push(upper);
        self.ranges = after;
    }

    fn merge(&mut self) {
        let (founded, count) = (self.ranges.founded(), self.ranges.count());
        let Ok(after) = ShardRanges::new(founded, count - 1) else { return };
        let parent = self.ranges.parent(ShardId(count - 1)).unwrap();
        let mut upper = self.shards.pop().unwrap();
        let lower = &mut self.shards[parent.0 as usize];
        for (own, other) in lower.tables.iter_mut().zip(&upper.tables) {
            own.merge(other);
        }
        lower.items.append(&mut upper.items);
        lower.range = after.range(parent).unwrap();
        self.ranges = after;
    }

    fn reload(&mut self, number: u32) {
        let count = self.shards.len();
        let Shard { range, ref mut tables, .. } = self.shards[number as usize % count];
        tables[1] = ReplayTable::from_head(self.limits, range, &tables[1].head(range)).unwrap();
    }

    /// Replicas agree, within the limits.
    fn check(&self) -> Result<(), TestCaseError> {
        for Shard { range, tables, .. } in &self.shards {
            prop_assert_eq!(tables[0].head(*range), tables[1].head(*range));
            prop_assert_eq!(tables[0].bytes(), tables[1].bytes());
            let again = ReplayTable::from_head(self.limits, *range, &tables[0].head(*range));
            prop_assert_eq!(again.unwrap().head(*range), tables[0].head(*range));
        }
        Ok(())
    }

    /// A shard takes a part, and applies it if it is new.
    fn send_call(
        &mut self,
        number: ShardId,
        request: Request,
        cut: HashRange,
        items: &[ItemHash],
    ) -> Result<Bitmap, PartError> {
        let hashes = HashList::from_hashes(items);
        let stamped = request.stamped(cut, &hashes);
        let Some(shard) = self.shards.get_mut(number.0 as usize) else {
            let hi = items[0].hi();
            return Err(PartError::ForeignHash { hi, shard: number });
        };
        let found =
            shard.tables.each_ref().map(|table| table.look_up(&stamped, (number, shard.range)));
        assert_eq!(found[0], found[1]);
        let [found, _] = found;
        if let Some(answer) = found? {
            return Ok(answer);
        }
        assert!(
            items.iter().all(|hash| shard.range.contains(hash.hi()) && cut.contains(hash.hi()))
        );
        let is_new: Vec<bool> =
            items.iter().map(|&hash| !shard.items.contains(&key(hash))).collect();
        if !request.counts && !is_new.contains(&true) {
            return Ok(Bitmap::from_bools(is_new));
        }
        for (&hash, &is_new) in items.iter().zip(&is_new) {
            shard.items.insert(key(hash));
            let before = self.first.insert((request.id(), key(hash)), is_new);
            assert_eq!(before, None, "an item of {} is applied twice", request.id());
        }
        let answer = Bitmap::from_bools(is_new);
        shard.tables.iter_mut().for_each(|table| table.record(&stamped, answer.clone()));
        Ok(answer)
    }

    /// Asks a shard for a part, in pieces if it has answered before. None if the map is out of date.
    fn send_part(
        &mut self,
        (request, batch): (Request, &[ItemHash]),
        (shard, cut): (ShardId, HashRange),
        changes: &[(u32, bool)],
        calls_left: &mut u32,
    ) -> Result<Option<Bitmap>, Failed> {
        let mut pieces = Pieces::of(cut);
        while let Some(piece) = pieces.next_piece() {
            let items: Vec<ItemHash> =
                batch.iter().copied().filter(|hash| piece.contains(hash.hi())).collect();
            if items.is_empty() {
                pieces.answered(Bitmap::zeros(0));
                continue;
            }
            *calls_left = calls_left.checked_sub(1).ok_or(Failed::GaveUp)?;
            let now = self.calls;
            for &(_, is_split) in changes.iter().filter(|&&(at, _)| at == now) {
                if is_split { self.split() } else { self.merge() }
            }
            self.calls += 1;
            match self.send_call(shard, request, piece, &items) {
                Ok(bits) => pieces.answered(bits),
                Err(PartError::CutBefore { start, last, .. }) => {
                    let named = HashRange::from_bounds((start, last)).unwrap();
                    pieces.cut_before(named).unwrap();
                }
                Err(PartError::OtherCut { .. } | PartError::ForeignHash { .. }) => return Ok(None),
                Err(error) => return Err(Failed::Refused(error)),
            }
        }
        Ok(Some(pieces.join(batch.iter().map(|hash| hash.hi())).unwrap()))
    }

    /// Tries a request like a coordinator with this map.
    fn attempt(
        &mut self,
        request: Request,
        mut map: ShardRanges,
        changes: &[(u32, bool)],
        mut calls_left: u32,
    ) -> Result<Bitmap, Failed> {
        let batch = request.items();
        let mut rest = Rest::all(&batch, true);
        self.calls = 0;
        for _ in 0..20 {
            let parts = BatchParts::cut(rest.hashes(), map);
            let mut answered: Vec<(ShardId, Bitmap)> = Vec::new();
            for &(shard, _) in parts.parts() {
                let part = (shard, map.range(shard).unwrap());
                let answer = self.send_part((request, &batch), part, changes, &mut calls_left)?;
                answered.extend(answer.map(|answer| (shard, answer)));
            }
            if answered.len() == parts.parts().len() {
                let of =
                    |shard| answered.iter().find(|(of, _)| *of == shard).map(|(_, a)| a.clone());
                return Ok(rest.with(&parts.join(of).unwrap()));
            }
            rest = rest.recut(&batch, (map, self.ranges), &answered);
            map = self.ranges;
        }
        panic!("{} is never answered", request.id());
    }

    /// What a try of a request returned is what was answered first.
    fn check_answer(&self, request: Request, answer: &Bitmap) -> Result<(), TestCaseError> {
        let items = request.items();
        prop_assert_eq!(answer.len() as usize, items.len());
        for (&hash, is_new) in items.iter().zip(answer.iter()) {
            let first = self.first.get(&(request.id(), key(hash)));
            prop_assert_eq!(first.copied().unwrap_or(false), is_new, "{}", request.id());
        }
        Ok(())
    }

    fn take(&mut self, step: &Step, may_expire: bool) -> Result<(), TestCaseError> {
        match *step {
            Step::Split => self.split(),
            Step::Merge => self.merge(),
            Step::Reload(number) => self.reload(number),
            Step::Try { request, ahead, ref changes, calls_max } => {
                let (founded, count) = (self.ranges.founded(), i64::from(self.ranges.count()));
                let count = u32::try_from((count + ahead).max(founded.into())).unwrap();
                let map = ShardRanges::new(founded, count).unwrap();
                match self.attempt(request, map, changes, calls_max) {
                    Ok(answer) => self.check_answer(request, &answer)?,
                    Err(Failed::GaveUp) => {}
                    Err(Failed::Refused(error)) => {
                        let is_expired = matches!(
                            error,
                            PartError::RequestExpired { .. } | PartError::SessionExpired { .. }
                        );
                        prop_assert!(is_expired && may_expire, "{} {error}", request.id());
                    }
                }
            }
        }
        self.check()
    }
}

fn steps(acknowledge: bool) -> impl Strategy<Value = Vec<Step>> {
    let request = (1..6_u64, 1..9_u64, 0..12_u64).prop_map(move |(session, sequence, given_up)| {
        let acknowledged_below = if acknowledge { sequence.saturating_sub(given_up) } else { 0 };
        // What is a request's own must be the same in every try.
        let counts = (session + sequence) % 2 == 0;
        Request { session, sequence, acknowledged_below, counts }
    });
    let changes = vec((0..12_u32, any::<bool>()), 0..4);
    let calls = prop_oneof![1 => 0..6_u32, 2 => Just(10_000)];
    let step = prop_oneof![
        2 => Just(Step::Split),
        2 => Just(Step::Merge),
        1 => (0..COUNT_MAX).prop_map(Step::Reload),
        8 => (request, -3..=2_i64, changes, calls).prop_map(|(request, ahead, changes, calls_max)| {
            Step::Try { request, ahead, changes, calls_max }
        }),
    ];
    vec(step, 0..80)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(256))]

    /// Nothing is forgotten: every retry gets the first answer, however shards were split and merged.
    #[test]
    fn a_retry_is_first_answer(founded in 1..4_u32, steps in steps(false)) {
        let mut world = World::new(founded, LARGE);
        for step in &steps {
            world.take(step, false)?;
        }
        // And at the end, with one shard less at a time.
        for _ in 0..COUNT_MAX {
            for step in &steps {
                let Step::Try { request, .. } = *step else { continue };
                let answer = world.attempt(request, world.ranges, &[], 10_000);
                world.check_answer(request, &answer.unwrap())?;
            }
            world.merge();
        }
    }

    /// Much is forgotten: then a retry is refused, and still never applied again.
    #[test]
    fn what_is_forgotten_is_not_applied_again(founded in 1..4_u32, steps in steps(true)) {
        let mut world = World::new(founded, SMALL);
        for step in &steps {
            world.take(step, true)?;
        }
    }
}
