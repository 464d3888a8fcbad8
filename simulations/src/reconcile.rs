//! Sessions of set reconciliation between machines of the world that have a set and no node: the engine's
//! sessions over simulated connections that break, stall and lie, between machines that crash and whose
//! sets grow.
//!
//! What a session works on is frozen when it begins; what it hands out is put into the set when it is
//! verified. Then all heals, and a few sessions must make the sets equal.
//!
//! The faults of a session are its own ([`Trouble`]): which ones it must survive depends on the byte or the
//! input at which they strike.

mod context;
mod failure;
mod host;
mod items;
mod lie;
mod oracle;
mod place;
mod side;
mod transport;

use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;
use std::time::Duration;

use crate::links::{Claim, Direction};
use crate::now::now_us;
use crate::plan::Plan;
use crate::plan::scenario::{Growth, Kept, Scenario, Trouble, Way};
use crate::report::RunReport;
use crate::world::World;
use crate::{counters, trace, watch};

use self::context::{Context, Order, STATES};
use self::host::Host;
use self::items::{item, kind_of};
use self::place::Place;

/// How often sides are looked at that may hang.
const LOOK_INTERVAL_US: u64 = 1_000_000;

/// Between the end of the faults and the first healing session: what was held arrives.
const CALM_US: u64 = 3_000_000;

/// After a cut session: both sides have noticed by then, and what was held has come.
const AGAIN_AFTER_US: u64 = 8_000_000;

/// Items of the next host, and of the next growth, begin so much later.
const NUMBERS_APART: u64 = 1 << 32;

/// What happens at a moment.
#[derive(Debug)]
enum Event {
    Meet(usize),
    Grow(usize),
    Release { directions: Vec<Direction>, claim: Claim, class: &'static str },
    Start(u32),
}

/// The sessions of a plan, and the machines between which they run.
pub(crate) struct Sessions {
    context: Rc<Context>,
    /// The growths of the plan, by machine.
    growth: Vec<Growth>,
    /// Machines that have crashed.
    down: BTreeSet<u32>,
    /// Cut sessions that are about to go on, by the number of their first run.
    again: BTreeSet<usize>,
    /// By time, and in the order in which they were planned.
    events: BTreeMap<(u64, u64), Event>,
    planned: u64,
}

impl Sessions {
    /// Those of a plan, which may have none. Their machines come after all that nodes may get.
    pub(crate) fn new(plan: &Plan) -> Self {
        let sets = plan.sets.clone().unwrap_or_default();
        let before = plan.node_count();
        let host = |(place, own): (u32, &u32)| {
            let first = u64::from(place) * NUMBERS_APART;
            let numbers = (0..u64::from(sets.shared)).chain(first..first + u64::from(*own));
            let set = numbers.map(|number| item(sets.items, number)).collect();
            Host::new(plan.seed, before + place, set, kind_of(sets.items))
        };
        let hosts = (1..).zip(&sets.own).map(host).collect();
        let growth = sets.growth.iter();
        let growth = growth.map(|growth| Growth { host: before + growth.host, ..*growth });
        Self {
            context: Context::new(plan.seed, sets.items, hosts),
            growth: growth.collect(),
            down: BTreeSet::new(),
            again: BTreeSet::new(),
            events: BTreeMap::new(),
            planned: 0,
        }
    }

    /// Starts the machines, and plans the sessions from now on.
    pub(crate) fn begin(&mut self, world: &mut World) {
        let plan = Rc::clone(&world.plan);
        let Some(sets) = &plan.sets else { return };
        counters::announce_states(&STATES);
        let longest = Duration::from_millis(sets.latency_ms.into());
        for host in &self.context.hosts {
            self.context.oracle.borrow_mut().give(host.set.borrow().iter().cloned());
            let (number, program, context) =
                (host.number, Rc::clone(host), Rc::clone(&self.context));
            world.run_on(number, move || Rc::clone(&program).run(Rc::clone(&context)));
            for other in self.context.hosts.iter().take_while(|other| other.number < number) {
                world.set_link_latency([other.number, number], longest);
            }
        }
        let before = plan.node_count();
        for scenario in &plan.scenarios {
            let Scenario { initiator, responder, .. } = *scenario;
            let [initiator, responder] = [before + initiator, before + responder];
            let scenario = Scenario { initiator, responder, ..*scenario };
            let number = self.context.oracle.borrow_mut().add(scenario);
            if let Some(class) = scenario.trouble.class() {
                counters::planned(class);
            }
            self.plan_event(now_us() + scenario.at_ms * 1_000, Event::Meet(number));
        }
        for (number, growth) in sets.growth.iter().enumerate() {
            self.plan_event(now_us() + growth.at_ms * 1_000, Event::Grow(number));
        }
    }

    fn plan_event(&mut self, at_us: u64, event: Event) {
        self.planned += 1;
        self.events.insert((at_us, self.planned), event);
    }

    /// Whether a session runs, or something is to happen to one.
    pub(crate) fn is_busy(&self) -> bool {
        !self.events.is_empty()
            || self.context.has_orders()
            || self.context.oracle.borrow().is_busy()
    }

    /// Sessions up and down the row of hosts make all sets equal; then comparisons find nothing. All sessions of
    /// the run succeeded that had to.
    ///
    /// # Errors
    /// If a host's task panicked.
    pub(crate) fn heal(&mut self, world: &mut World) -> Result<(), String> {
        if self.context.hosts.is_empty() {
            return Ok(());
        }
        let calm_us = now_us() + CALM_US;
        while now_us() < calm_us {
            world.step()?;
        }
        let numbers: Vec<u32> = self.context.hosts.iter().map(|host| host.number).collect();
        let row: Vec<(u32, u32)> = numbers.windows(2).map(|pair| (pair[0], pair[1])).collect();
        let back = row.iter().rev().skip(1).map(|&(one, other)| (other, one));
        let pairs: Vec<(u32, u32)> = row.iter().copied().chain(back).collect();
        for (way, pairs) in [(Way::Both, &pairs), (Way::Compare, &row)] {
            for &(initiator, responder) in pairs {
                let scenario = healing(way, initiator, responder);
                let number = self.context.oracle.borrow_mut().add(scenario);
                self.meet(world, number);
                world.step()?;
                while self.is_busy() {
                    self.step(world);
                    world.step()?;
                }
                if world.is_violated() {
                    return Ok(());
                }
            }
        }
        let oracle = self.context.oracle.borrow();
        // Only here have all sessions ended: in a run that was broken off, one that is open would be taken for one
        // that failed, and would hide why the run was broken off.
        oracle.check_ends();
        let sets: Vec<_> = self.context.hosts.iter().map(|host| host.set.borrow()).collect();
        for (host, set) in numbers.iter().zip(&sets) {
            oracle.check_final(*host, set);
            if **set != *sets[0] {
                let (count, first) = (set.len(), sets[0].len());
                let what =
                    format!("host {host} has {count} items, the first has {first}, and others");
                watch::violated("sets_end_equal", what);
            }
        }
        Ok(())
    }

    /// Executes what the sides ordered, and what is due.
    pub(crate) fn step(&mut self, world: &mut World) {
        for order in self.context.take_orders() {
            self.follow(world, order);
        }
        if now_us().is_multiple_of(LOOK_INTERVAL_US) {
            self.context.oracle.borrow().look(now_us());
        }
        while let Some(entry) = self.events.first_entry()
            && entry.key().0 <= now_us()
        {
            let event = entry.remove();
            self.happen(world, event);
        }
    }

    fn happen(&mut self, world: &mut World, event: Event) {
        trace::line(now_us(), "world", "event", format_args!("{event:?}"));
        match event {
            Event::Meet(number) => self.meet(world, number),
            Event::Grow(number) => self.grow(number),
            Event::Release { directions, claim, class } => {
                world.unclaim(&directions, claim, class);
            }
            Event::Start(host) => {
                if self.down.remove(&host) {
                    world.bounce(host);
                    for scenario in self.context.host(host).unfinished() {
                        self.go_on(scenario);
                    }
                }
            }
        }
    }

    /// A cut session goes on after a while.
    fn go_on(&mut self, number: usize) {
        let mut oracle = self.context.oracle.borrow_mut();
        let first = oracle.origin(number);
        if self.again.contains(&first) {
            return;
        }
        let Some(again) = oracle.add_again(number) else { return };
        drop(oracle);
        self.again.insert(first);
        self.plan_event(now_us() + AGAIN_AFTER_US, Event::Meet(again));
    }

    fn meet(&mut self, world: &World, number: usize) {
        let mut oracle = self.context.oracle.borrow_mut();
        self.again.remove(&oracle.origin(number));
        let scenario = oracle.scenario(number);
        let pair = [scenario.initiator, scenario.responder];
        if pair.iter().any(|host| self.down.contains(host)) || !world.is_healthy(pair) {
            oracle.disturb_one(number);
        }
        drop(oracle);
        if let Trouble::Stranger { .. } = scenario.trouble {
            self.context.fired(Place { scenario: number, first: false });
        }
        let host = self.context.host(scenario.initiator);
        if !self.down.contains(&scenario.initiator) && !host.meet(number) {
            trace::line(now_us(), "world", "skipped", format_args!("{number}"));
        }
    }

    fn grow(&self, number: usize) {
        let growth = self.growth[number];
        let begin = (100 + number as u64) * NUMBERS_APART;
        let numbers = begin..begin + u64::from(growth.count);
        let items: Vec<_> = numbers.map(|number| item(self.context.items, number)).collect();
        let mut oracle = self.context.oracle.borrow_mut();
        if oracle.is_busy() {
            counters::state("session_grown");
        }
        oracle.give(items.iter().cloned());
        self.context.host(growth.host).add(items);
    }

    /// What a session's trouble does outside of it.
    fn follow(&mut self, world: &mut World, order: Order) {
        trace::line(now_us(), "world", "order", format_args!("{order:?}"));
        let place = match order {
            Order::Again(place) => return self.go_on(place.scenario),
            Order::Crash(place) | Order::Link(place) => place,
        };
        let scenario = self.context.scenario(place.scenario);
        match scenario.trouble {
            Trouble::Crash { for_ms, .. } => {
                let host = self.context.oracle.borrow().host_of(place);
                if self.down.insert(host) {
                    world.crash(host);
                    self.context.oracle.borrow_mut().crash(host);
                    counters::effect("session_crash", 1);
                }
                self.plan_event(now_us() + for_ms * 1_000, Event::Start(host));
            }
            Trouble::Cut { for_ms, .. } => self.claim(world, place.scenario, Claim::Cut, for_ms),
            Trouble::Hold { for_ms, .. } => self.claim(world, place.scenario, Claim::Held, for_ms),
            _ => {}
        }
    }

    /// The link of a session's hosts fails for a while.
    fn claim(&mut self, world: &mut World, number: usize, claim: Claim, for_ms: u64) {
        let Scenario { initiator, responder, trouble, .. } = self.context.scenario(number);
        let (there, back) = ((initiator, responder), (responder, initiator));
        let directions = match trouble {
            Trouble::Cut { one_way: true, first: true, .. } => vec![there],
            Trouble::Cut { one_way: true, first: false, .. } => vec![back],
            _ => vec![there, back],
        };
        let class = trouble.class().unwrap_or("session");
        world.claim(&directions, claim, class);
        self.context.oracle.borrow_mut().disturb(&[initiator, responder], Some(number));
        let release = Event::Release { directions, claim, class };
        self.plan_event(now_us() + for_ms * 1_000, release);
    }

    /// Adds the ends of sessions and the items that they compared to a report.
    pub(crate) fn add_to(&self, report: &mut RunReport) {
        let oracle = self.context.oracle.borrow();
        report.calls.extend(oracle.ends());
        report.items_checked += oracle.items_checked;
    }
}

/// A session that must succeed.
const fn healing(way: Way, initiator: u32, responder: u32) -> Scenario {
    Scenario {
        at_ms: 0,
        initiator,
        responder,
        way,
        fast: false,
        contents: false,
        told: false,
        expected: None,
        bytes_max: None,
        short: false,
        resume: false,
        kept: Kept::Neither,
        chunk_bytes: 8_192,
        trouble: Trouble::Nothing,
    }
}
