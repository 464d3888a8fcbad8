//! Sessions of set reconciliation between hosts that have nothing but a set: the engine's sessions over
//! simulated connections that break, stall and lie, between hosts that crash and whose sets grow.
//!
//! What a session works on is frozen when it begins; what it hands out is put into the set when it is
//! verified. Then all heals, and a few sessions must make the sets equal.

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
use std::time::{Duration, SystemTime};

use crate::host::host_name;
use crate::links::{Claim, LinkState, Links};
use crate::now::{now_us, set_now_us};
use crate::plan::Plan;
use crate::plan::scenario::{Kept, Scenario, SetsPlan, Trouble, Way};
use crate::report::RunReport;
use crate::{counters, trace, watch};

use self::context::{Context, Order, Place, STATES};
use self::host::Host;
use self::items::{item, kind_of};

/// One step of simulated time.
const TICK: Duration = Duration::from_millis(1);

/// Segments that a host's sockets hold.
const SEGMENTS_MAX: usize = 1 << 16;

/// Longest run.
const SIMULATED_MAX: Duration = Duration::from_secs(3600);

/// How often sides are looked at that may hang.
const LOOK_INTERVAL_US: u64 = 1_000_000;

/// Between the end of the faults and the first healing session: what was held arrives.
const CALM_US: u64 = 3_000_000;

/// After a cut session: both sides have noticed by then, and what was held has come.
const AGAIN_AFTER_US: u64 = 8_000_000;

/// Items of the next host, and of the next growth, begin so much later.
const NUMBERS_APART: u64 = 1 << 32;

/// What happens at a moment.
#[derive(Clone, Copy, Debug)]
enum Event {
    Meet(usize),
    Grow(usize),
    Release { scenario: usize, claim: Claim },
    Start(u32),
}

struct World {
    sim: turmoil::Sim<'static>,
    sets: SetsPlan,
    context: Rc<Context>,
    hosts: Vec<Rc<Host>>,
    links: Links,
    /// Hosts that have crashed.
    down: BTreeSet<u32>,
    /// Cut sessions that are about to go on, by the number of their first run.
    again: BTreeSet<usize>,
    /// By time, and in the order in which they were planned.
    events: BTreeMap<(u64, u64), Event>,
    planned: u64,
}

/// Runs a plan of sessions to its end, in this process, which must have run none before.
pub(crate) fn run(plan: &Plan, sets: &SetsPlan) -> RunReport {
    watch::begin();
    counters::announce_states(&STATES);
    set_now_us(0);
    let mut world = World::build(plan, sets);
    let verdict = world.live(plan.run_ms);
    let oracle = world.context.oracle.borrow();
    oracle.close();
    if let Err(what) = verdict {
        watch::violated("no_panic", what);
    }
    RunReport {
        seed: plan.seed,
        profile: plan.profile.clone(),
        planted: plan.planted.clone(),
        simulated_ms: now_us() / 1_000,
        calls: oracle.ends(),
        items_checked: oracle.items_checked,
        counters: counters::take(),
        trace: trace::finish(),
        violations: watch::end().violations.into_iter().map(Into::into).collect(),
    }
}

impl World {
    fn build(plan: &Plan, sets: &SetsPlan) -> Self {
        let mut sim = turmoil::Builder::new()
            .epoch(SystemTime::UNIX_EPOCH + Duration::from_secs(1_767_225_600))
            .simulation_duration(SIMULATED_MAX)
            .tick_duration(TICK)
            .min_message_latency(TICK)
            .max_message_latency(Duration::from_millis(u64::from(sets.latency_ms)).max(TICK))
            .tcp_capacity(SEGMENTS_MAX)
            .rng_seed(plan.seed)
            .enable_random_order()
            .build();
        let context = Context::new(plan.seed, sets.items);
        let mut hosts = Vec::new();
        for (number, own) in (1..).zip(&sets.own) {
            let first = u64::from(number) * NUMBERS_APART;
            let numbers = (0..u64::from(sets.shared)).chain(first..first + u64::from(*own));
            let set: BTreeSet<_> = numbers.map(|number| item(sets.items, number)).collect();
            context.oracle.borrow_mut().give(set.iter().cloned());
            let host = Host::new(number, set, kind_of(sets.items));
            let (program, its_context) = (Rc::clone(&host), Rc::clone(&context));
            sim.host(host_name(number), move || {
                let (program, context) = (Rc::clone(&program), Rc::clone(&its_context));
                async move { Ok(program.run(context).await?) }
            });
            hosts.push(host);
        }
        context.hosts.borrow_mut().clone_from(&hosts);
        let mut world = Self {
            sim,
            sets: sets.clone(),
            context,
            hosts,
            links: Links::default(),
            down: BTreeSet::new(),
            again: BTreeSet::new(),
            events: BTreeMap::new(),
            planned: 0,
        };
        for scenario in &plan.scenarios {
            let number = world.context.oracle.borrow_mut().add(*scenario);
            if let Some(class) = scenario.trouble.class() {
                counters::planned(class);
            }
            world.plan_event(scenario.at_ms * 1_000, Event::Meet(number));
        }
        for (number, growth) in sets.growth.iter().enumerate() {
            world.plan_event(growth.at_ms * 1_000, Event::Grow(number));
        }
        world
    }

    fn plan_event(&mut self, at_us: u64, event: Event) {
        self.planned += 1;
        self.events.insert((at_us, self.planned), event);
    }

    fn live(&mut self, run_ms: u64) -> Result<(), String> {
        let until_us = run_ms * 1_000;
        while now_us() < until_us || !self.events.is_empty() || self.is_busy() {
            self.step()?;
            if is_violated() {
                return Ok(());
            }
        }
        let calm_us = now_us() + CALM_US;
        while now_us() < calm_us {
            self.step()?;
        }
        self.heal()
    }

    fn is_busy(&self) -> bool {
        self.context.oracle.borrow().is_busy()
    }

    /// Sessions up and down the row of hosts make all sets equal; then comparisons find nothing.
    fn heal(&mut self) -> Result<(), String> {
        let count = u32::try_from(self.hosts.len()).expect("a few hosts");
        let row: Vec<(u32, u32)> = (1..count).map(|host| (host, host + 1)).collect();
        let back = row.iter().rev().skip(1).map(|&(one, other)| (other, one));
        let pairs: Vec<(u32, u32)> = row.iter().copied().chain(back).collect();
        for (way, pairs) in [(Way::Both, &pairs), (Way::Compare, &row)] {
            for &(initiator, responder) in pairs {
                let scenario = healing(way, initiator, responder);
                let number = self.context.oracle.borrow_mut().add(scenario);
                self.meet(number);
                self.step()?;
                while self.is_busy() {
                    self.step()?;
                }
                if is_violated() {
                    return Ok(());
                }
            }
        }
        let oracle = self.context.oracle.borrow();
        let sets: Vec<_> = self.hosts.iter().map(|host| host.set.borrow()).collect();
        for (host, set) in (1..).zip(&sets) {
            oracle.check_final(host, set);
            if **set != *sets[0] {
                let (count, first) = (set.len(), sets[0].len());
                let what = format!("host {host} has {count} items, host 1 has {first}, and others");
                watch::violated("sets_end_equal", what);
            }
        }
        Ok(())
    }

    /// One tick of everything.
    fn step(&mut self) -> Result<(), String> {
        while let Some(entry) = self.events.first_entry()
            && entry.key().0 <= now_us()
        {
            let event = entry.remove();
            self.happen(event);
        }
        self.sim.step().map_err(|error| error.to_string())?;
        set_now_us(u64::try_from(self.sim.elapsed().as_micros()).expect("runs end in time"));
        for order in self.context.take_orders() {
            self.follow(order);
        }
        if now_us().is_multiple_of(LOOK_INTERVAL_US) {
            self.context.oracle.borrow().look(now_us());
        }
        Ok(())
    }

    fn happen(&mut self, event: Event) {
        trace::line(now_us(), "world", "event", format_args!("{event:?}"));
        match event {
            Event::Meet(number) => self.meet(number),
            Event::Grow(number) => self.grow(number),
            Event::Release { scenario, claim } => {
                let (directions, class) = self.claimed(scenario);
                let changed = self.links.release(&directions, claim, class);
                self.set_links(&changed);
            }
            Event::Start(host) => {
                if self.down.remove(&host) {
                    self.sim.bounce(host_name(host));
                    for scenario in self.hosts[host as usize - 1].unfinished() {
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

    fn meet(&mut self, number: usize) {
        let mut oracle = self.context.oracle.borrow_mut();
        self.again.remove(&oracle.origin(number));
        let scenario = oracle.scenario(number);
        let pair = [scenario.initiator, scenario.responder];
        if pair.iter().any(|host| self.down.contains(host)) || !self.links.is_healthy(pair) {
            oracle.disturb_one(number);
        }
        drop(oracle);
        if let Trouble::Stranger { .. } = scenario.trouble {
            self.context.fired(Place { scenario: number, first: false });
        }
        let host = &self.hosts[scenario.initiator as usize - 1];
        if !self.down.contains(&scenario.initiator) && !host.meet(number) {
            trace::line(now_us(), "world", "skipped", format_args!("{number}"));
        }
    }

    fn grow(&self, number: usize) {
        let growth = self.sets.growth[number];
        let begin = (100 + number as u64) * NUMBERS_APART;
        let numbers = begin..begin + u64::from(growth.count);
        let items: Vec<_> = numbers.map(|number| item(self.sets.items, number)).collect();
        let mut oracle = self.context.oracle.borrow_mut();
        if oracle.is_busy() {
            counters::state("session_grown");
        }
        oracle.give(items.iter().cloned());
        self.hosts[growth.host as usize - 1].add(items);
    }

    /// What a session's trouble does outside of it.
    fn follow(&mut self, order: Order) {
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
                    self.sim.crash(host_name(host));
                    self.context.oracle.borrow_mut().crash(host);
                    counters::effect("session_crash", 1);
                }
                self.plan_event(now_us() + for_ms * 1_000, Event::Start(host));
            }
            Trouble::Cut { for_ms, .. } => self.claim(place.scenario, Claim::Cut, for_ms),
            Trouble::Hold { for_ms, .. } => {
                counters::effect("session_hold", 1);
                self.claim(place.scenario, Claim::Held, for_ms);
            }
            _ => {}
        }
    }

    /// The link of a session's hosts fails for a while.
    fn claim(&mut self, scenario: usize, claim: Claim, for_ms: u64) {
        let (directions, class) = self.claimed(scenario);
        let changed = self.links.claim(&directions, claim, class);
        self.set_links(&changed);
        let Scenario { initiator, responder, .. } = self.context.scenario(scenario);
        self.context.oracle.borrow_mut().disturb(&[initiator, responder], Some(scenario));
        self.plan_event(now_us() + for_ms * 1_000, Event::Release { scenario, claim });
    }

    fn claimed(&self, scenario: usize) -> (Vec<crate::links::Direction>, &'static str) {
        let Scenario { initiator, responder, trouble, .. } = self.context.scenario(scenario);
        let there = (initiator, responder);
        let back = (responder, initiator);
        let directions = match trouble {
            Trouble::Cut { one_way: true, first: true, .. } => vec![there],
            Trouble::Cut { one_way: true, first: false, .. } => vec![back],
            _ => vec![there, back],
        };
        (directions, trouble.class().unwrap_or("session"))
    }

    fn set_links(&self, changed: &[(crate::links::Direction, LinkState, LinkState)]) {
        for &((low, high), before, wanted) in changed {
            crate::links::set_link(&self.sim, [&host_name(low), &host_name(high)], before, wanted);
        }
    }
}

fn is_violated() -> bool {
    watch::with(|checks| !checks.violations.is_empty())
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
