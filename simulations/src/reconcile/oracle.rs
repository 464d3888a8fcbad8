//! Checks the guarantees of sessions against plain sets.

use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;

use umbel_reconcile_engine::limits::RESUME_WINDOW_BYTES;
use umbel_reconcile_engine::{Item, ItemIndex, RemoteItem, SessionError, SessionOutcome};

use super::failure::Failure;
use super::place::Place;
use crate::counters;
use crate::plan::scenario::{Scenario, Stranger, Trouble, Way};
use crate::watch::violated;

/// A session reports its exact difference, or an error.
const EXACT: &str = "difference_is_exact";

/// When one side succeeds, the other side has received all items that it should.
const BOTH: &str = "success_means_both";

/// Items that are only reported, not added, are reported if the session is verified, and otherwise not.
const TOLD: &str = "told_when_verified";

/// No side spends more bytes than it may.
const CAP: &str = "byte_cap_holds";

/// Few bytes are in flight when a session is cut, so that few are sent again.
const AGAIN: &str = "little_travels_again";

/// Sessions with incompatible responders do not succeed.
const STRANGERS: &str = "strangers_part";

/// A session that no fault disturbs succeeds.
const HONEST: &str = "honest_sessions_succeed";

/// A side ends in time.
const ENDS: &str = "sessions_end";

/// Longest time that a side may take, in simulated microseconds.
const SIDE_US_MAX: u64 = 60_000_000;

/// Most bytes of the frame that says why a session is given up, which is sent regardless of the limit.
const LAST_WORD_BYTES: u64 = 300;

/// Longest time for which messages may be held without a session failing, in simulated milliseconds.
const HARMLESS_HOLD_MS: u64 = 1_000;

/// Most runs of a session that is cut repeatedly.
const RUNS_MAX: usize = 5;

/// How a side ended.
#[derive(Debug)]
pub(super) enum End {
    Verified(Box<SessionOutcome>),
    Failed { text: String, is_driver: bool },
    Crashed,
}

impl From<Result<SessionOutcome, Failure>> for End {
    fn from(result: Result<SessionOutcome, Failure>) -> Self {
        match result {
            Ok(outcome) => Self::Verified(Box::new(outcome)),
            Err(failure) => Self::Failed {
                text: failure.to_string(),
                is_driver: matches!(failure, Failure::Session(SessionError::Driver { .. })),
            },
        }
    }
}

/// What was observed of a side.
pub(super) struct SideSeen {
    host: u32,
    since_us: u64,
    frozen: BTreeSet<Item>,
    indexed: Rc<Vec<Item>>,
    only_here: Option<BTreeSet<Item>>,
    only_there: Vec<RemoteItem>,
    sent: u64,
    end: Option<End>,
}

impl SideSeen {
    pub(super) const fn new(
        host: u32,
        since_us: u64,
        frozen: BTreeSet<Item>,
        indexed: Rc<Vec<Item>>,
    ) -> Self {
        Self {
            host,
            since_us,
            frozen,
            indexed,
            only_here: None,
            only_there: Vec::new(),
            sent: 0,
            end: None,
        }
    }

    fn items_there(&self) -> BTreeSet<Item> {
        self.only_there.iter().filter_map(|remote| remote.item.clone()).collect()
    }
}

/// A session.
struct Record {
    scenario: Scenario,
    /// The number of its first run.
    origin: usize,
    /// Whether something other than its own planned fault disturbed it.
    is_disturbed: bool,
    /// The initiator's and the responder's.
    sides: [Option<SideSeen>; 2],
}

impl Record {
    fn must_succeed(&self) -> bool {
        let is_calm = match self.scenario.trouble {
            Trouble::Nothing => true,
            Trouble::Hold { for_ms, .. } => for_ms <= HARMLESS_HOLD_MS,
            _ => false,
        };
        is_calm && !self.is_disturbed && self.scenario.bytes_max.is_none()
    }

    fn is_under_way(&self) -> bool {
        self.sides.iter().flatten().any(|side| side.end.is_none())
    }

    fn involves(&self, hosts: &[u32]) -> bool {
        hosts.contains(&self.scenario.initiator) || hosts.contains(&self.scenario.responder)
    }
}

/// All sessions and all known items.
#[derive(Default)]
pub(super) struct Oracle {
    records: Vec<Record>,
    /// Items that the plan gave to some host.
    given: BTreeSet<Item>,
    /// Items that a host added because of a lie.
    believed: BTreeSet<Item>,
    pub(super) items_checked: u64,
}

const fn at(first: bool) -> usize {
    if first { 0 } else { 1 }
}

impl Oracle {
    /// Adds a session, and returns its number.
    pub(super) fn add(&mut self, scenario: Scenario) -> usize {
        let origin = self.records.len();
        self.records.push(Record { scenario, origin, is_disturbed: false, sides: [None, None] });
        origin
    }

    /// Adds another run of a session that was cut, without a fault; None after `RUNS_MAX` runs.
    pub(super) fn add_again(&mut self, number: usize) -> Option<usize> {
        let Record { scenario, origin, .. } = self.records[number];
        let runs = self.records.iter().filter(|record| record.origin == origin).count();
        if runs >= RUNS_MAX {
            return None;
        }
        let scenario = Scenario { trouble: Trouble::Nothing, ..scenario };
        let number = self.add(scenario);
        let record = &mut self.records[number];
        record.origin = origin;
        // The length of its symbols fits the sets of the first run. The sets have grown since, so all
        // keys may make symbols collide.
        record.is_disturbed = scenario.short;
        Some(number)
    }

    /// The number of a session's first run.
    pub(super) fn origin(&self, number: usize) -> usize {
        self.records[number].origin
    }

    /// Records that a side cannot resume although its set is unchanged. Only a lie in the first run
    /// explains that.
    pub(super) fn refuted(&self, place: Place) {
        let first = self.records[self.records[place.scenario].origin].scenario;
        if !matches!(first.trouble, Trouble::Lie { .. }) {
            violated(HONEST, format!("{place:?} cannot go on with the set that it had"));
        }
    }

    /// Checks a session that is resumed. `lost` are the bytes in each direction that were sent but not
    /// received, and are sent again.
    pub(super) fn resume(place: Place, lost: [u64; 2]) {
        counters::checked(AGAIN, 1);
        if lost.iter().any(|bytes| *bytes > RESUME_WINDOW_BYTES) {
            violated(AGAIN, format!("{place:?}: {lost:?} bytes travel again"));
        }
    }

    /// Records that some host was given these items.
    pub(super) fn give(&mut self, items: impl IntoIterator<Item = Item>) {
        self.given.extend(items);
    }

    pub(super) fn scenario(&self, number: usize) -> Scenario {
        self.records[number].scenario
    }

    pub(super) fn host_of(&self, place: Place) -> u32 {
        let scenario = self.records[place.scenario].scenario;
        if place.first { scenario.initiator } else { scenario.responder }
    }

    pub(super) fn begin(&mut self, place: Place, seen: SideSeen) {
        self.records[place.scenario].sides[at(place.first)] = Some(seen);
    }

    fn side(&mut self, place: Place) -> &mut SideSeen {
        self.records[place.scenario].sides[at(place.first)].as_mut().expect("a side that began")
    }

    pub(super) fn sent(&mut self, place: Place, bytes: u64) {
        let bytes_max = self.records[place.scenario].scenario.bytes_max;
        let side = self.side(place);
        side.sent += bytes;
        let sent = side.sent;
        if let Some(max) = bytes_max {
            counters::checked(CAP, 1);
            if sent > max + LAST_WORD_BYTES {
                violated(CAP, format!("{place:?} sent {sent} bytes and may send {max}"));
            }
        }
    }

    pub(super) fn only_here(&mut self, place: Place, items: &[ItemIndex]) {
        let side = self.side(place);
        let item = |index: &ItemIndex| {
            side.indexed[usize::try_from(index.0).expect("a place of the snapshot")].clone()
        };
        side.only_here = Some(items.iter().map(item).collect());
    }

    pub(super) fn only_there(&mut self, place: Place, items: Vec<RemoteItem>) {
        self.side(place).only_there.extend(items);
    }

    /// Records that a host has added these items of a session to its set.
    pub(super) fn take(&mut self, place: Place, items: Vec<Item>) {
        let is_lie = self.records[place.scenario].scenario.trouble.is_plausible_lie();
        for item in items.into_iter().filter(|item| !self.given.contains(item)) {
            // A host that has added such an item passes it on.
            if !is_lie && !self.believed.contains(&item) {
                violated(EXACT, format!("{place:?} took {item:?}, which nobody was given"));
            }
            self.believed.insert(item);
        }
    }

    pub(super) fn end(&mut self, place: Place, end: End) {
        counters::checked(ENDS, 1);
        if let End::Failed { text, is_driver: true } = &end {
            violated(HONEST, format!("{place:?}: {text}"));
        }
        let is_verified = matches!(end, End::Verified(_));
        self.side(place).end = Some(end);
        let record = &self.records[place.scenario];
        let (here, there) = (&record.sides[at(place.first)], &record.sides[at(!place.first)]);
        let here = here.as_ref().expect("it just ended");
        if !is_verified {
            check_failed(place, &record.scenario, here, there.as_ref());
            return;
        }
        let Some(there) = there else {
            return violated(EXACT, format!("{place:?} succeeds with nobody"));
        };
        self.items_checked += (here.frozen.len() + there.frozen.len()) as u64;
        check_verified(place, &record.scenario, here, there);
        // A side that resumes withholds what came in an earlier run until it has received the peer's
        // verdict. Real programs end after the byte which confirms that everything is applied; there is
        // none here.
        let is_held_back = record.origin != place.scenario && there.end.is_none();
        if !is_held_back {
            check_both(place, &record.scenario, here, there);
        }
    }

    /// Records that a host crashes, which ends its sides.
    pub(super) fn crash(&mut self, host: u32) {
        self.disturb(&[host], None);
        for number in 0..self.records.len() {
            for first in [true, false] {
                let side = &self.records[number].sides[at(first)];
                if side.as_ref().is_some_and(|side| side.host == host && side.end.is_none()) {
                    self.end(Place { scenario: number, first }, End::Crashed);
                }
            }
        }
    }

    /// Marks all running sessions of these hosts, except `but`, as disturbed.
    pub(super) fn disturb(&mut self, hosts: &[u32], but: Option<usize>) {
        for (number, record) in self.records.iter_mut().enumerate() {
            let has_begun = record.sides.iter().any(Option::is_some);
            if has_begun && Some(number) != but && record.involves(hosts) {
                record.is_disturbed |= record.is_under_way() || record.sides[1].is_none();
            }
        }
    }

    /// Marks one session as disturbed.
    pub(super) fn disturb_one(&mut self, number: usize) {
        self.records[number].is_disturbed = true;
    }

    /// Whether any session is running.
    pub(super) fn is_busy(&self) -> bool {
        self.records.iter().any(Record::is_under_way)
    }

    /// Checks that no side has run for too long.
    pub(super) fn look(&self, now_us: u64) {
        for (number, record) in self.records.iter().enumerate() {
            for side in record.sides.iter().flatten() {
                if side.end.is_none() && now_us > side.since_us + SIDE_US_MAX {
                    let seconds = SIDE_US_MAX / 1_000_000;
                    violated(
                        ENDS,
                        format!("session {number} does not end on {}: {seconds} s", side.host),
                    );
                }
            }
        }
    }

    /// Checks at the end that all sessions succeeded that had to.
    pub(super) fn check_ends(&self) {
        for (number, record) in self.records.iter().enumerate() {
            let has_begun = record.sides.iter().any(Option::is_some);
            if !has_begun || !record.must_succeed() {
                continue;
            }
            counters::checked(HONEST, 1);
            for (side, name) in record.sides.iter().zip(["initiator", "responder"]) {
                match side.as_ref().map(|side| &side.end) {
                    Some(Some(End::Verified(_))) => {}
                    Some(end) => violated(HONEST, format!("session {number}, {name}: {end:?}")),
                    None => violated(HONEST, format!("session {number}: no {name}")),
                }
            }
        }
    }

    /// Checks the final set of a host.
    pub(super) fn check_final(&self, host: u32, set: &BTreeSet<Item>) {
        let invariant = "sets_end_equal";
        counters::checked(invariant, set.len() as u64);
        let missing = self.given.difference(set).count();
        if missing > 0 {
            violated(
                invariant,
                format!("host {host} lacks {missing} of {} items", self.given.len()),
            );
        }
        let extra =
            set.iter().find(|item| !self.given.contains(item) && !self.believed.contains(item));
        if let Some(item) = extra {
            violated(invariant, format!("host {host} has {item:?}, which nobody was given"));
        }
    }

    /// Number of sides by how they ended.
    pub(super) fn ends(&self) -> BTreeMap<String, u64> {
        let mut ends = BTreeMap::new();
        for side in self.records.iter().flat_map(|record| &record.sides).flatten() {
            let name = match &side.end {
                Some(End::Verified(_)) => "verified",
                Some(End::Failed { .. }) => "failed",
                Some(End::Crashed) => "crashed",
                None => "open",
            };
            *ends.entry(name.to_owned()).or_default() += 1;
        }
        ends
    }
}

/// Checks that a side that failed reported no differences, and received only items that the peer alone
/// has.
fn check_failed(place: Place, scenario: &Scenario, here: &SideSeen, there: Option<&SideSeen>) {
    counters::checked(TOLD, 1);
    if !scenario.changes(place.first) && !here.only_there.is_empty() {
        let count = here.only_there.len();
        violated(TOLD, format!("{place:?} told {count} items and failed: {:?}", here.end));
    }
    if here.only_here.is_some() {
        violated(TOLD, format!("{place:?} told what only it has and failed: {:?}", here.end));
    }
    if scenario.trouble.is_plausible_lie() {
        return;
    }
    let is_real = |item: &Item| {
        there.is_some_and(|there| there.frozen.contains(item)) && !here.frozen.contains(item)
    };
    if let Some(item) = here.items_there().iter().find(|item| !is_real(item)) {
        violated(EXACT, format!("{place:?} was handed {item:?}, which is not the other's alone"));
    }
}

/// Checks that a side that succeeded reported the exact difference.
fn check_verified(place: Place, scenario: &Scenario, here: &SideSeen, there: &SideSeen) {
    let Some(End::Verified(outcome)) = &here.end else { return };
    counters::checked(EXACT, (here.frozen.len() + there.frozen.len()) as u64);
    if let Trouble::Stranger { what } = scenario.trouble {
        counters::checked(STRANGERS, 1);
        let is_nothing = here.frozen.is_empty() && there.frozen.is_empty();
        if what != Stranger::Domain || !is_nothing {
            violated(STRANGERS, format!("{place:?} succeeds: {outcome:?}"));
        }
    }
    let is_lie = scenario.trouble.is_plausible_lie();
    if is_lie && outcome.attempt_count > 1 {
        // The invented items were merged before the digests differed, and have belonged to both sets
        // since.
        return;
    }
    let only_here: BTreeSet<Item> = here.frozen.difference(&there.frozen).cloned().collect();
    let only_there: BTreeSet<Item> = there.frozen.difference(&here.frozen).cloned().collect();
    let counts = [
        (outcome.only_there_count, only_there.len(), "only there", true),
        (outcome.only_here_count, only_here.len(), "only here", !is_lie),
        (outcome.here_count, here.frozen.len(), "here", !is_lie),
        (outcome.there_count, there.frozen.len(), "there", !is_lie),
    ];
    for (count_reported, is, what, counts) in counts {
        if counts && count_reported != is as u64 {
            violated(
                EXACT,
                format!(
                    "{place:?} says {count_reported} items {what}, there are {is}: {outcome:?}"
                ),
            );
        }
    }
    if let Some(max) = scenario.bytes_max
        && outcome.bytes.total() > max
    {
        violated(CAP, format!("{place:?} cost {} bytes of {max}", outcome.bytes.total()));
    }
    if here.only_here.as_ref().is_some_and(|reported| *reported != only_here) {
        violated(EXACT, format!("{place:?} told others than those that only it has: {outcome:?}"));
    }
    let handed = here.items_there();
    let is_shown = matches!(scenario.way, Way::Compare) && scenario.contents && place.first;
    let is_whole = scenario.changes(place.first) || is_shown;
    if if is_whole { handed != only_there } else { !handed.is_subset(&only_there) } {
        let (handed, is) = (handed.len(), only_there.len());
        violated(EXACT, format!("{place:?} handed {handed} items out of {is}: {outcome:?}"));
    }
}

/// Checks that the peer of a side that succeeded has received all items that it lacked.
fn check_both(place: Place, scenario: &Scenario, here: &SideSeen, there: &SideSeen) {
    if !scenario.changes(!place.first) || scenario.trouble.is_plausible_lie() {
        return;
    }
    counters::checked(BOTH, 1);
    let only_here: BTreeSet<Item> = here.frozen.difference(&there.frozen).cloned().collect();
    if there.items_there() != only_here {
        let (has, lacks) = (there.only_there.len(), only_here.len());
        violated(BOTH, format!("{place:?} succeeds, the other has {has} of {lacks} items"));
    }
}
