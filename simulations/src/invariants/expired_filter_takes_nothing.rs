//! A filter that goes at its time (`PEXPIREAT`) takes nothing that came after that: what is added (`BF.INSERT`) once its time has
//! passed is found until another filter of the name is dropped. And what was added before is found no more (`BF.EXISTS`).
//!
//! Both where all wall clocks go right, and as far as the node that is asked has heard of the time: through any other one the
//! old filter is there until the node hears of its end. While shards are merged an expired filter waits, and so do calls about
//! it: they are answered later or by an error, but not otherwise. Of filters that mistake hardly any item for another one.

use std::collections::BTreeMap;

use super::checked::Checked;
use crate::history::{Call, FilterFacts, Outcome, Verb};
use crate::oracle::generations::Generations;
use crate::oracle::reference::{Incarnation, Reference};
use crate::oracle::view::{CLOCKS_APART_US, end_us};
use crate::seed::true_us;

/// Name of the invariant.
pub(crate) const NAME: &str = "expired_filter_takes_nothing";

/// Checks every answer to a question. `generations` knows what nodes have heard of the catalogue.
pub(crate) fn check(
    calls: &[Call],
    facts: &[FilterFacts],
    reference: &Reference,
    generations: &Generations,
) -> Checked {
    let mut checked = Checked::new(NAME);
    for filter in facts.iter().filter(|filter| filter.is_punctual) {
        let name = filter.name.as_str();
        let of_name: Vec<&Call> = calls.iter().filter(|call| call.filter == name).collect();
        let mut adds: BTreeMap<u32, Vec<&Call>> = BTreeMap::new();
        for call in of_name.iter().copied().filter(|call| call.verb == Verb::AddVia) {
            if !matches!(call.outcome, Outcome::NotApplied(_)) {
                call.items.iter().for_each(|&item| adds.entry(item).or_default().push(call));
            }
        }
        let dropped = reference.incarnations(name).filter_map(|(_, one)| Dropped::of(one));
        let story = Story { dropped: dropped.collect(), generations };
        for ask in of_name.into_iter().filter(|call| call.verb == Verb::AskVia) {
            let Outcome::Done(bits) = &ask.outcome else { continue };
            for (item, &is_found) in ask.items.iter().zip(bits) {
                let adds = adds.get(item).map_or(&[][..], Vec::as_slice);
                let broken = if is_found { story.kept(adds, ask) } else { story.lost(adds, ask) };
                let what = broken.map(|why| format!("item {item} of {name}: {why}"));
                checked.record(end_us(ask), what);
            }
        }
    }
    checked
}

/// A filter that was dropped.
#[derive(Clone, Copy, Debug)]
struct Dropped {
    /// When the catalogue dropped it.
    from_us: u64,
    /// When the last shard had dropped its slice, or never.
    to_us: u64,
    /// If that was because its time had come: this time, and the entry of the catalogue's log that had set it.
    expiry: Option<(u64, u64)>,
}

impl Dropped {
    fn of(incarnation: &Incarnation) -> Option<Self> {
        let from_us = incarnation.erased_at_us.first().copied()?;
        let expires_ms = incarnation.expires_ms.filter(|_| incarnation.has_expired);
        let expiry = expires_ms.map(|at_ms| (true_us(at_ms), incarnation.expiry_index));
        Some(Self { from_us, to_us: incarnation.gone_at_us, expiry })
    }

    /// Whether it went at some moment of this interval, or part of it did.
    const fn goes_within(&self, from_us: u64, to_us: u64) -> bool {
        self.from_us <= to_us.saturating_add(CLOCKS_APART_US)
            && self.to_us.saturating_add(CLOCKS_APART_US) >= from_us
    }
}

/// What became of the filters of a name.
struct Story<'a> {
    dropped: Vec<Dropped>,
    generations: &'a Generations,
}

impl Story<'_> {
    /// Whether an answered call is about no filter as old as this one: when it began, the time of that one had passed, and
    /// the node had heard of this time. One that starts has forgotten it.
    fn is_past(&self, dropped: &Dropped, call: &Call) -> bool {
        let (Some((due_us, index)), Some(machine)) = (dropped.expiry, call.machine) else {
            return false;
        };
        call.start_us > due_us.saturating_add(CLOCKS_APART_US)
            && self.generations.known(machine, call.start_us) >= index
            && !self.generations.was_started(machine, call.start_us, end_us(call))
    }

    /// An acknowledged addition, if the question should have found the item: no filter went since that the addition, or the
    /// question, may have been about.
    fn lost(&self, adds: &[&Call], ask: &Call) -> Option<String> {
        let may_take = |dropped: &Dropped, add: &Call| {
            dropped.goes_within(add.start_us, end_us(ask)) && !self.is_past(dropped, add)
                || dropped.goes_within(ask.start_us, end_us(ask)) && !self.is_past(dropped, ask)
        };
        let is_lost = |add: &&&Call| {
            matches!(add.outcome, Outcome::Done(_))
                && end_us(add) < ask.start_us
                && !self.dropped.iter().any(|dropped| may_take(dropped, add))
        };
        let add = adds.iter().find(is_lost)?;
        Some(format!(
            "added by call {} in {} to {} us, and not found by call {} from {} us on, although no filter went between them \
             that had not passed its time before: {:?}",
            add.id,
            add.start_us,
            end_us(add),
            ask.id,
            ask.start_us,
            self.dropped
        ))
    }

    /// A filter that has gone, if the question was about a later one, and found an item that was added to that one or before.
    fn kept(&self, adds: &[&Call], ask: &Call) -> Option<String> {
        let began = adds.iter().filter(|add| add.start_us <= end_us(ask));
        let last_us = began.map(|add| end_us(add)).max()?;
        let is_before = |dropped: &&Dropped| {
            let due_us = dropped.expiry.map_or(0, |(due_us, _)| due_us);
            last_us.saturating_add(CLOCKS_APART_US) < due_us && self.is_past(dropped, ask)
        };
        let dropped = self.dropped.iter().find(is_before)?;
        Some(format!(
            "added until {last_us} us, and found by call {} from {} us on, when the filter had passed its time: {dropped:?}",
            ask.id, ask.start_us
        ))
    }
}

#[cfg(test)]
mod tests {
    use umbel_engine::meta::{MetaCommand, MetaReply};

    use super::*;
    use crate::names::host_name;
    use crate::now::set_now_us;
    use crate::oracle::fixture::{Cluster, History};
    use crate::plan::FilterKind;
    use crate::seed::true_wall_ms;

    const KIND: FilterKind = FilterKind::Classic;

    struct Fixture {
        cluster: Cluster,
        generations: Generations,
        history: History,
    }

    impl Fixture {
        /// A filter that expires at 100 ms, and is dropped at 150 ms. Machine 1 has heard of this time at 50 ms, machine 2
        /// has not.
        fn new() -> Self {
            let (mut cluster, mut generations) = (Cluster::newest_of(KIND), Generations::default());
            let (filter, _) = cluster.meta.filter_by_name("f").unwrap();
            set_now_us(100_000);
            let expire = MetaCommand::SetExpiry { filter, expires_ms: Some(true_wall_ms()) };
            assert_eq!(cluster.meta(&expire).unwrap(), MetaReply::Done);
            let (_, incarnation) = cluster.reference.incarnations("f").next().unwrap();
            let index = incarnation.expiry_index;
            generations.applied_on(50_000, &host_name(1), index, &cluster.meta);
            generations.applied_on(50_000, &host_name(2), index - 1, &cluster.meta);
            cluster.drop_expired("f", 150_000);
            Self { cluster, generations, history: History::of(KIND) }
        }

        /// A call about item 7 that takes 5 ms, by a machine.
        fn call(&mut self, verb: Verb, start_ms: u64, machine: u32, bit: bool) {
            let (start_us, end_us) = (start_ms * 1_000, (start_ms + 5) * 1_000);
            let call = self.history.done(verb, "f", &[7], start_us, end_us, &[bit]);
            call.machine = Some(machine);
        }

        fn found(&self) -> usize {
            let Self { cluster, generations, history } = self;
            let checked = check(&history.calls, &history.facts, &cluster.reference, generations);
            checked.violations.len()
        }
    }

    #[test]
    fn what_is_added_after_the_time_does_not_go_with_the_filter() {
        for (add_ms, machine, found_count) in [(110, 1, 1), (110, 2, 0), (90, 1, 0), (101, 1, 0)] {
            let mut fixture = Fixture::new();
            fixture.call(Verb::AddVia, add_ms, machine, true);
            fixture.call(Verb::AskVia, 200, 1, false);
            assert_eq!(fixture.found(), found_count, "at {add_ms} ms by machine {machine}");
            fixture.history.facts[0].is_punctual = false;
            assert_eq!(fixture.found(), 0, "some wall clock is wrong");
        }
    }

    #[test]
    fn another_filter_of_the_name_may_take_it() {
        let mut fixture = Fixture::new();
        fixture.call(Verb::AddVia, 160, 1, true);
        fixture.call(Verb::AskVia, 300, 1, false);
        assert_eq!(fixture.found(), 1);
        fixture.cluster.at_us = 155_000;
        fixture.cluster.create("f", KIND);
        assert_eq!(fixture.found(), 1);
        fixture.cluster.drop_filter("f", 250_000);
        assert_eq!(fixture.found(), 0);
    }

    #[test]
    fn who_has_not_heard_of_the_time_may_ask_the_old_filter() {
        let mut fixture = Fixture::new();
        fixture.call(Verb::AddVia, 110, 1, true);
        fixture.call(Verb::AskVia, 145, 2, false);
        assert_eq!(fixture.found(), 0);
        fixture.call(Verb::AskVia, 160, 2, false);
        assert_eq!(fixture.found(), 1, "no shard has a slice of it");
    }

    #[test]
    fn what_was_added_before_the_time_is_gone() {
        for (add_ms, ask_ms, machine, found_count) in
            [(10, 110, 1, 1), (10, 110, 2, 0), (10, 99, 1, 0), (94, 110, 1, 0), (105, 120, 1, 0)]
        {
            let mut fixture = Fixture::new();
            fixture.call(Verb::AddVia, add_ms, 1, true);
            fixture.call(Verb::AskVia, ask_ms, machine, true);
            assert_eq!(fixture.found(), found_count, "{add_ms} ms, {ask_ms} ms by {machine}");
            // It may arrive late.
            fixture.history.unknown(Verb::AddVia, "f", &[7], 20_000, 30_000);
            assert_eq!(fixture.found(), 0);
        }
    }

    #[test]
    fn a_node_that_starts_has_heard_of_nothing() {
        let mut fixture = Fixture::new();
        fixture.call(Verb::AddVia, 10, 1, true);
        fixture.call(Verb::AskVia, 110, 1, true);
        assert_eq!(fixture.found(), 1);
        fixture.generations.started(112_000, &host_name(1));
        assert_eq!(fixture.found(), 0);
    }
}
