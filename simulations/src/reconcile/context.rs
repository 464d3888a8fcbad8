//! Through it the sides of sessions report what they do, and request what the world is to do. All is
//! traced.

use std::cell::RefCell;
use std::collections::BTreeSet;
use std::fmt;
use std::rc::Rc;

use umbel_reconcile_engine::{Item, ItemIndex, RemoteItem, SessionOutcome};

use super::failure::Failure;
use super::host::Host;
use super::oracle::{End, Oracle, SideSeen};
use super::place::Place;
use crate::names::host_name;
use crate::now::now_us;
use crate::plan::scenario::{ItemKind, Scenario};
use crate::{counters, trace};

/// What the world is to do at the end of this instant.
#[derive(Clone, Copy, Debug)]
pub(super) enum Order {
    /// Crash the side's host.
    Crash(Place),
    /// Apply the plan's fault to the link of the session's hosts.
    Link(Place),
    /// Run the session again later, because it was cut.
    Again(Place),
}

/// About one key in two to this power makes symbols collide.
const RARE_BITS: u32 = 3;

/// Fewest and most bits of short symbols: the engine uses fewer than 32 bits exactly, and others as a
/// minimum.
const SHORT_BITS: [u32; 2] = [10, 31];

/// What all sides of a world share.
pub(super) struct Context {
    pub(super) seed: u64,
    pub(super) items: ItemKind,
    pub(super) oracle: RefCell<Oracle>,
    /// The machines, by number.
    pub(super) hosts: Vec<Rc<Host>>,
    orders: RefCell<Vec<Order>>,
}

impl Context {
    pub(super) fn new(seed: u64, items: ItemKind, hosts: Vec<Rc<Host>>) -> Rc<Self> {
        let (oracle, orders) = Default::default();
        Rc::new(Self { seed, items, oracle, hosts, orders })
    }

    /// The machine of this number.
    pub(super) fn host(&self, number: u32) -> &Host {
        &self.hosts[(number - self.hosts[0].number) as usize]
    }

    pub(super) fn scenario(&self, number: usize) -> Scenario {
        self.oracle.borrow().scenario(number)
    }

    pub(super) fn order(&self, order: Order) {
        self.orders.borrow_mut().push(order);
    }

    pub(super) fn has_orders(&self) -> bool {
        !self.orders.borrow().is_empty()
    }

    pub(super) fn take_orders(&self) -> Vec<Order> {
        self.orders.take()
    }

    /// Bits of symbols with which some pair collides under about one key in eight. Sessions in which all
    /// five keys do are too rare to be met.
    pub(super) fn short_bits(&self, scenario: &Scenario, here: usize) -> u8 {
        let there = self.host(scenario.responder).set.borrow().len();
        let largest = u64::try_from(here.max(there)).unwrap_or(u64::MAX) + 1;
        let bits = 2 * largest.next_power_of_two().ilog2() + RARE_BITS - 1;
        u8::try_from(bits.clamp(SHORT_BITS[0], SHORT_BITS[1])).expect("at most 31")
    }

    pub(super) fn trace(&self, place: Place, kind: &str, what: impl fmt::Display) {
        let host = self.oracle.borrow().host_of(place);
        trace::line(now_us(), &host_name(host), kind, format_args!("s{} {what}", place.scenario));
    }

    /// Counts and traces that the planned fault of this session happens now.
    pub(super) fn fired(&self, place: Place) {
        let trouble = self.scenario(place.scenario).trouble;
        if let Some(class) = trouble.class() {
            counters::fired(class);
        }
        self.trace(place, "trouble", format_args!("{trouble:?}"));
    }

    /// Records that a side begins, with its set as it is now.
    pub(super) fn begin(
        &self,
        place: Place,
        host: u32,
        frozen: BTreeSet<Item>,
        indexed: Rc<Vec<Item>>,
    ) {
        let count = frozen.len();
        self.oracle.borrow_mut().begin(place, SideSeen::new(host, now_us(), frozen, indexed));
        self.trace(place, "begin", count);
    }

    pub(super) fn sent(&self, place: Place, bytes: usize) {
        self.oracle.borrow_mut().sent(place, bytes as u64);
        self.trace(place, "send", bytes);
    }

    pub(super) fn only_here(&self, place: Place, items: &[ItemIndex]) {
        self.trace(place, "only_here", items.len());
        self.oracle.borrow_mut().only_here(place, items);
    }

    pub(super) fn only_there(&self, place: Place, items: Vec<RemoteItem>) {
        self.trace(place, "only_there", items.len());
        self.oracle.borrow_mut().only_there(place, items);
    }

    /// Records that a side has ended, and that its host has added the items `taken`.
    pub(super) fn end(
        &self,
        place: Place,
        result: Result<SessionOutcome, Failure>,
        taken: Vec<Item>,
    ) {
        match &result {
            Ok(outcome) => {
                let text = format_args!(
                    "{} {} {} keys, {} {}",
                    outcome.only_here_count,
                    outcome.only_there_count,
                    outcome.attempt_count,
                    outcome.bytes.total(),
                    outcome.plan
                );
                self.trace(place, "verified", text);
                note_plan(outcome);
            }
            Err(failure) => {
                self.trace(place, "failed", failure);
                if let Some(class) = self.scenario(place.scenario).trouble.class() {
                    counters::effect(class, 1);
                }
            }
        }
        let mut oracle = self.oracle.borrow_mut();
        oracle.take(place, taken);
        oracle.end(place, End::from(result));
    }
}

/// The states that successful sessions reach, which are counted at their ends.
pub(super) const STATES: [&str; 10] = [
    "session_equal",
    "session_by_hello",
    "session_by_sketch",
    "session_by_stream",
    "session_by_stored",
    "session_by_list",
    "session_filtered",
    "session_resalted",
    "session_grown",
    "session_resumed",
];

fn note_plan(outcome: &SessionOutcome) {
    let plan = outcome.plan.as_str();
    let stages = [
        ("digest", "session_equal"),
        ("hello", "session_by_hello"),
        ("part", "session_by_sketch"),
        ("riblt", "session_by_stream"),
        ("stored", "session_by_stored"),
        ("list", "session_by_list"),
        ("whole", "session_by_list"),
        ("filter", "session_filtered"),
    ];
    for (word, state) in stages {
        if plan.contains(word) {
            counters::state(state);
        }
    }
    if outcome.attempt_count > 1 {
        counters::state("session_resalted");
    }
}
