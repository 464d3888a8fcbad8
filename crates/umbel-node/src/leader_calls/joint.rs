//! Calls about few items that go to another node together: an answer costs the node, and an entry of the log all
//! replicas, far more than an item does.
//!
//! A call that finds none like it on its way goes at once, so a lone one waits for nobody. What is called while it is on
//! its way waits until it is answered, and then goes as one call.
//!
//! *Law.* Each caller is answered as if it had called alone, after all that were answered before it called.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::future::Future;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::runtime::Handle;
use tokio::sync::oneshot;
use tokio::time::Instant;
use umbel_engine::shard::{Bitmap, HashList, PartError};
use umbel_engine::{FilterId, Generation, GroupId, NodeId};
use umbel_ports::encoding::encode;
use umbel_ports::locked;
use umbel_raft::peer::CallKind;

use super::{Tried, send_request};
use crate::calls::{AllowedGrowth, ShardAnswer, ShardFailure, ShardRequest};
use crate::local::Local;

/// Most items of a call that goes with others. What a larger one costs is mostly that of its items.
const CALL_ITEMS_MAX: usize = 256;

/// Most items of calls that go together: 256 KiB of hashes, a quarter of the largest entry of a log.
const JOINT_ITEMS_MAX: usize = 1 << 14;

/// The calls to other nodes that are on their way, and those that wait for one of them.
#[derive(Default)]
pub(super) struct JointCalls {
    /// Those that wait, for each way on which a call is.
    waiting: Mutex<BTreeMap<Way, Vec<Waiting>>>,
}

/// What calls that go together have in common: all but their items.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) struct Way {
    node: NodeId,
    group: GroupId,
    filter: FilterId,
    generation: Generation,
    verb: Verb,
}

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
enum Verb {
    /// Confirmed by the leader.
    Contains,
    /// The bytes by which the slice may grow, if it is one that grows.
    Insert(Option<u64>),
}

/// Sends a call to the node that its way names.
pub(super) trait Carrier: Send + Sync + 'static {
    fn carry(
        &self,
        way: Way,
        hashes: HashList,
        timeout: Duration,
    ) -> impl Future<Output = Tried<ShardAnswer>> + Send;
}

impl Carrier for Local {
    async fn carry(&self, way: Way, hashes: HashList, timeout: Duration) -> Tried<ShardAnswer> {
        let body = encode(&way.request(hashes));
        send_request(self, way.node, CallKind::Shard, way.group, body, timeout).await
    }
}

/// A call that waits.
struct Waiting {
    hashes: HashList,
    until: Instant,
    caller: oneshot::Sender<Outcome>,
}

/// What the caller of a call that went with others is told.
#[derive(Clone)]
enum Outcome {
    Tried(Tried<ShardAnswer>),
    /// All of them were refused, whichever was the cause, and nothing was done.
    Refused,
}

impl Way {
    /// The way of a call, and its items; None if it goes alone.
    pub(super) fn of(
        node: NodeId,
        group: GroupId,
        request: &ShardRequest,
    ) -> Option<(Self, &HashList)> {
        let (&filter, &generation, hashes, verb) = match request {
            ShardRequest::Contains { filter, generation, hashes, confirmed: true } => {
                (filter, generation, hashes, Verb::Contains)
            }
            ShardRequest::Insert {
                filter,
                generation,
                request: None,
                hashes,
                growth,
                at_ms: None,
            } if growth.is_none_or(|growth| !growth.is_final) => {
                (filter, generation, hashes, Verb::Insert(growth.map(|growth| growth.bytes)))
            }
            _ => return None,
        };
        let is_small = hashes.len() <= CALL_ITEMS_MAX;
        is_small.then_some((Self { node, group, filter, generation, verb }, hashes))
    }

    fn request(self, hashes: HashList) -> ShardRequest {
        let Self { filter, generation, verb, .. } = self;
        match verb {
            Verb::Contains => {
                ShardRequest::Contains { filter, generation, hashes, confirmed: true }
            }
            Verb::Insert(bytes) => {
                let growth = bytes.map(|bytes| AllowedGrowth { bytes, is_final: false });
                let (request, at_ms) = (None, None);
                ShardRequest::Insert { filter, generation, request, hashes, growth, at_ms }
            }
        }
    }

    /// What each of several callers is told of an answer that is not the bits of all.
    fn outcome_of_all(self, answer: Tried<ShardAnswer>) -> Outcome {
        let Tried::Answer(answer) = answer else { return Outcome::Tried(answer) };
        let told = match answer {
            // Items before the first one without room may be in, and it is not known whose.
            ShardAnswer::Failed(ShardFailure::Part(PartError::Full { what, .. })) => {
                Tried::Unknown(what)
            }
            ShardAnswer::Failed(ShardFailure::Part(_) | ShardFailure::Overloaded(_)) => {
                return Outcome::Refused;
            }
            ShardAnswer::Failed(_) | ShardAnswer::Growing { .. } => Tried::Answer(answer),
            other => Tried::Unknown(format!("{} answered with {other:?}", self.node)),
        };
        Outcome::Tried(told)
    }
}

impl JointCalls {
    /// Calls another node, alone or with others.
    pub(super) async fn call<C: Carrier>(
        self: &Arc<Self>,
        carrier: &Arc<C>,
        (way, hashes): (Way, &HashList),
        timeout: Duration,
    ) -> Tried<ShardAnswer> {
        let until = Instant::now() + timeout;
        let Some(told) = self.wait(way, hashes, until) else {
            let on_its_way = OnItsWay::of(self, carrier, way);
            let answer = carrier.carry(way, hashes.clone(), timeout).await;
            drop(on_its_way);
            return answer;
        };
        match tokio::time::timeout_at(until, told).await {
            Ok(Ok(Outcome::Tried(tried))) => tried,
            Ok(Ok(Outcome::Refused)) => {
                let left = until.saturating_duration_since(Instant::now());
                carrier.carry(way, hashes.clone(), left).await
            }
            Ok(Err(_)) => Tried::Unknown("a call for several callers was given up".to_owned()),
            Err(_) => Tried::Unknown(format!("no answer within {} ms", timeout.as_millis())),
        }
    }

    /// Has a call wait for the one on its way. If there is none, the caller is to send it, and None is returned.
    fn wait(
        &self,
        way: Way,
        hashes: &HashList,
        until: Instant,
    ) -> Option<oneshot::Receiver<Outcome>> {
        match locked(&self.waiting).entry(way) {
            Entry::Vacant(place) => {
                place.insert(Vec::new());
                None
            }
            Entry::Occupied(mut place) => {
                let (caller, told) = oneshot::channel();
                place.get_mut().push(Waiting { hashes: hashes.clone(), until, caller });
                Some(told)
            }
        }
    }

    /// The calls that go next of those that waited for the one on this way. None if none did: the way is free then.
    fn next(&self, way: Way) -> Option<Vec<Waiting>> {
        let mut all = locked(&self.waiting);
        let waiting = all.get_mut(&way)?;
        let mut item_count = 0;
        let fits = |call: &&Waiting| {
            item_count += call.hashes.len();
            item_count <= JOINT_ITEMS_MAX
        };
        let count = waiting.iter().take_while(fits).count();
        let next: Vec<Waiting> = waiting.drain(..count).collect();
        if next.is_empty() {
            all.remove(&way);
            return None;
        }
        Some(next)
    }
}

/// A call on its way, until this is dropped, whether it was answered or given up: then those that wait for it go.
struct OnItsWay<C: Carrier> {
    calls: Arc<JointCalls>,
    carrier: Arc<C>,
    way: Way,
}

impl<C: Carrier> OnItsWay<C> {
    fn of(calls: &Arc<JointCalls>, carrier: &Arc<C>, way: Way) -> Self {
        Self { calls: Arc::clone(calls), carrier: Arc::clone(carrier), way }
    }

    async fn send_together(self, mut calls: Vec<Waiting>) {
        calls.retain(|call| !call.caller.is_closed());
        let Some(until) = calls.iter().map(|call| call.until).max() else { return };
        let hashes = HashList::joined(calls.iter().map(|call| &call.hashes));
        let item_count = hashes.len();
        let left = until.saturating_duration_since(Instant::now());
        let answer = self.carrier.carry(self.way, hashes, left).await;
        let way = self.way;
        // The next ones go before these are told.
        drop(self);
        match answer {
            Tried::Answer(ShardAnswer::Bits(bits)) if bits.len() as usize == item_count => {
                tell_each(calls, &bits);
            }
            answer => {
                let outcome = match calls.len() {
                    1 => Outcome::Tried(answer),
                    _ => way.outcome_of_all(answer),
                };
                for call in calls {
                    // Whoever has given up needs no answer; so below.
                    let _ = call.caller.send(outcome.clone());
                }
            }
        }
    }
}

impl<C: Carrier> Drop for OnItsWay<C> {
    fn drop(&mut self) {
        // Without a runtime the node has stopped, and nobody waits.
        let Ok(runtime) = Handle::try_current() else { return };
        if let Some(waiting) = self.calls.next(self.way) {
            let next = Self::of(&self.calls, &self.carrier, self.way);
            runtime.spawn(next.send_together(waiting));
        }
    }
}

/// Tells each caller the bits of its items, which are in the order of the calls.
fn tell_each(calls: Vec<Waiting>, bits: &Bitmap) {
    let mut bits = bits.iter();
    for call in calls {
        let own = Bitmap::from_bools(bits.by_ref().take(call.hashes.len()));
        let _ = call.caller.send(Outcome::Tried(Tried::Answer(ShardAnswer::Bits(own))));
    }
}

#[cfg(test)]
mod tests {
    use std::ops::Range;

    use tokio::sync::mpsc;
    use tokio::task::{JoinHandle, yield_now};
    use umbel_engine::shard::RequestStamp;
    use umbel_engine::{OwnerId, RequestId, SessionId, ShardId};
    use umbel_filter::ItemHash;

    use super::*;

    const INSERT: Verb = Verb::Insert(None);
    const PATIENCE: Duration = Duration::from_secs(1);

    /// A call that was sent: its items, and where the test answers it.
    type Sent = (HashList, oneshot::Sender<Tried<ShardAnswer>>);

    /// Hands calls to the test.
    struct Handed(mpsc::UnboundedSender<Sent>);

    impl Carrier for Handed {
        async fn carry(&self, _: Way, hashes: HashList, timeout: Duration) -> Tried<ShardAnswer> {
            let (answer, answered) = oneshot::channel();
            self.0.send((hashes, answer)).unwrap();
            match tokio::time::timeout(timeout, answered).await {
                Ok(answer) => answer.unwrap(),
                Err(_) => Tried::Unknown("late".to_owned()),
            }
        }
    }

    struct Bench {
        calls: Arc<JointCalls>,
        carrier: Arc<Handed>,
        sent: mpsc::UnboundedReceiver<Sent>,
    }

    impl Bench {
        fn new() -> Self {
            let (handed, sent) = mpsc::unbounded_channel();
            Self { calls: Arc::default(), carrier: Arc::new(Handed(handed)), sent }
        }

        /// Calls, and returns once the call is on its way or waits for another one.
        async fn call(&self, verb: Verb, numbers: Range<u64>) -> JoinHandle<Tried<ShardAnswer>> {
            let (calls, carrier) = (Arc::clone(&self.calls), Arc::clone(&self.carrier));
            let (node, group) = (NodeId(2), GroupId::of_shard(ShardId(0)));
            let way = Way { node, group, filter: FilterId(1), generation: Generation(1), verb };
            let called = tokio::spawn(async move {
                calls.call(&carrier, (way, &items(numbers)), PATIENCE).await
            });
            yield_now().await;
            called
        }

        /// The next call that is sent, which has these items.
        async fn take(&mut self, numbers: Range<u64>) -> oneshot::Sender<Tried<ShardAnswer>> {
            let (hashes, answer) = self.sent.recv().await.unwrap();
            assert_eq!(hashes, items(numbers));
            answer
        }

        /// Whether no call waits, and none is on its way.
        fn is_idle(&mut self) -> bool {
            self.sent.try_recv().is_err() && locked(&self.calls.waiting).is_empty()
        }
    }

    fn items(numbers: Range<u64>) -> HashList {
        HashList::from_hashes(&numbers.map(|n| ItemHash::new(n, n)).collect::<Vec<_>>())
    }

    fn bits(bits: &[bool]) -> Tried<ShardAnswer> {
        Tried::Answer(ShardAnswer::Bits(Bitmap::from_bools(bits.iter().copied())))
    }

    fn failed(failure: ShardFailure) -> Tried<ShardAnswer> {
        Tried::Answer(ShardAnswer::Failed(failure))
    }

    async fn bits_of(called: JoinHandle<Tried<ShardAnswer>>) -> Vec<bool> {
        match called.await.unwrap() {
            Tried::Answer(ShardAnswer::Bits(bits)) => bits.iter().collect(),
            Tried::Answer(other) => panic!("{other:?}"),
            Tried::Elsewhere(_) => panic!("elsewhere"),
            Tried::Unknown(why) => panic!("{why}"),
        }
    }

    #[tokio::test]
    async fn what_is_called_meanwhile_goes_together_and_each_gets_its_bits() {
        for verb in [Verb::Contains, INSERT, Verb::Insert(Some(7))] {
            let mut bench = Bench::new();
            let first = bench.call(verb, 0..1).await;
            let second = bench.call(verb, 1..2).await;
            let third = bench.call(verb, 2..5).await;
            let alone = bench.take(0..1).await;
            assert!(bench.sent.try_recv().is_err(), "the others wait");
            alone.send(bits(&[true])).ok().unwrap();
            assert_eq!(bits_of(first).await, [true]);
            let together = bench.take(1..5).await;
            let late = bench.call(verb, 5..6).await;
            together.send(bits(&[false, true, false, true])).ok().unwrap();
            assert_eq!(bits_of(second).await, [false]);
            assert_eq!(bits_of(third).await, [true, false, true]);
            bench.take(5..6).await.send(bits(&[true])).ok().unwrap();
            assert_eq!(bits_of(late).await, [true]);
            assert!(bench.is_idle());
        }
    }

    #[tokio::test]
    async fn calls_on_other_ways_do_not_wait() {
        let mut bench = Bench::new();
        let _insert = bench.call(INSERT, 0..1).await;
        let _grown = bench.call(Verb::Insert(Some(1)), 1..2).await;
        let _question = bench.call(Verb::Contains, 2..3).await;
        for number in 0..3 {
            bench.take(number..number + 1).await;
        }
    }

    /// One call is on its way, and two wait; then the two are answered so, together.
    async fn two_answered(
        verb: Verb,
        answer: Tried<ShardAnswer>,
    ) -> (Bench, [JoinHandle<Tried<ShardAnswer>>; 2]) {
        let mut bench = Bench::new();
        let first = bench.call(verb, 0..1).await;
        let two = [bench.call(verb, 1..2).await, bench.call(verb, 2..3).await];
        bench.take(0..1).await.send(bits(&[true])).ok().unwrap();
        bits_of(first).await;
        bench.take(1..3).await.send(answer).ok().unwrap();
        (bench, two)
    }

    #[tokio::test]
    async fn if_several_are_refused_each_asks_alone() {
        let refused = failed(ShardFailure::Overloaded(5));
        let (mut bench, [second, third]) = two_answered(INSERT, refused).await;
        bench.take(1..2).await.send(bits(&[false])).ok().unwrap();
        bench.take(2..3).await.send(bits(&[true])).ok().unwrap();
        assert_eq!((bits_of(second).await, bits_of(third).await), (vec![false], vec![true]));
        assert!(bench.is_idle());
    }

    #[tokio::test]
    async fn what_is_true_of_all_is_told_to_all() {
        let leader = Some(NodeId(3));
        let elsewhere = failed(ShardFailure::NotLeader(leader));
        for called in two_answered(Verb::Contains, elsewhere).await.1 {
            let answer = called.await.unwrap();
            assert!(matches!(
                answer,
                Tried::Answer(ShardAnswer::Failed(ShardFailure::NotLeader(l))) if l == leader
            ));
        }
        let growing = Tried::Answer(ShardAnswer::Growing { growth_bytes: 9 });
        for called in two_answered(Verb::Insert(Some(0)), growing).await.1 {
            let answer = called.await.unwrap();
            assert!(matches!(answer, Tried::Answer(ShardAnswer::Growing { growth_bytes: 9 })));
        }
    }

    #[tokio::test]
    async fn nobody_is_told_what_may_be_true_of_others_alone() {
        let full = PartError::Full { filter: FilterId(1), what: "no room".to_owned() };
        for answer in [failed(full.into()), bits(&[true]), bits(&[true; 3])] {
            for called in two_answered(INSERT, answer).await.1 {
                assert!(matches!(called.await.unwrap(), Tried::Unknown(_)));
            }
        }
    }

    #[tokio::test]
    async fn who_goes_without_others_is_told_what_the_leader_says() {
        let mut bench = Bench::new();
        let first = bench.call(INSERT, 0..1).await;
        let second = bench.call(INSERT, 1..2).await;
        bench.take(0..1).await.send(bits(&[true])).ok().unwrap();
        bits_of(first).await;
        let full = PartError::Full { filter: FilterId(1), what: "no room".to_owned() };
        bench.take(1..2).await.send(failed(full.clone().into())).ok().unwrap();
        let Tried::Answer(answer) = second.await.unwrap() else { panic!("no answer") };
        assert_eq!(answer, ShardAnswer::Failed(full.into()));
        assert!(bench.is_idle());
    }

    #[tokio::test]
    async fn callers_that_give_up_hold_up_nobody_and_send_nothing() {
        let mut bench = Bench::new();
        let first = bench.call(INSERT, 0..1).await;
        let second = bench.call(INSERT, 1..2).await;
        let third = bench.call(INSERT, 2..3).await;
        let _unanswered = bench.take(0..1).await;
        second.abort();
        first.abort();
        bench.take(2..3).await.send(bits(&[true])).ok().unwrap();
        assert_eq!(bits_of(third).await, [true]);
        assert!(bench.is_idle());
    }

    #[tokio::test(start_paused = true)]
    async fn a_caller_waits_no_longer_than_it_would_alone() {
        let mut bench = Bench::new();
        let first = bench.call(INSERT, 0..1).await;
        tokio::time::advance(PATIENCE / 2).await;
        let second = bench.call(INSERT, 1..2).await;
        let _unanswered = bench.take(0..1).await;
        assert!(matches!(first.await.unwrap(), Tried::Unknown(_)));
        let began = Instant::now();
        let _unanswered = bench.take(1..2).await;
        assert!(matches!(second.await.unwrap(), Tried::Unknown(_)));
        assert!(began.elapsed() <= PATIENCE / 2 + Duration::from_millis(1));
    }

    #[tokio::test]
    async fn no_more_items_go_together_than_the_log_takes_well() {
        let mut bench = Bench::new();
        let _first = bench.call(INSERT, 0..1).await;
        let each = CALL_ITEMS_MAX as u64;
        let mut called = Vec::new();
        for n in 0..=(JOINT_ITEMS_MAX as u64 / each) {
            called.push(bench.call(INSERT, n * each..(n + 1) * each).await);
        }
        bench.take(0..1).await.send(bits(&[true])).ok().unwrap();
        let most = JOINT_ITEMS_MAX as u64;
        bench.take(0..most).await.send(bits(&[true; JOINT_ITEMS_MAX])).ok().unwrap();
        bench.take(most..most + each).await;
    }

    #[test]
    fn calls_whose_answers_differ_by_caller_go_alone() {
        let insert = |request, hashes, growth, at_ms| ShardRequest::Insert {
            filter: FilterId(1),
            generation: Generation(2),
            request,
            hashes,
            growth,
            at_ms,
        };
        let goes_with_others = |request: &ShardRequest| {
            let Some((way, hashes)) = Way::of(NodeId(1), GroupId::of_shard(ShardId(0)), request)
            else {
                return false;
            };
            assert_eq!(way.request(hashes.clone()), *request);
            true
        };
        let growth = |is_final| Some(AllowedGrowth { bytes: 5, is_final });
        assert!(goes_with_others(&insert(None, items(0..2), None, None)));
        assert!(goes_with_others(&insert(None, items(0..2), growth(false), None)));
        assert!(!goes_with_others(&insert(None, items(0..2), growth(true), None)));
        assert!(!goes_with_others(&insert(None, items(0..2), None, Some(1))));
        let id = RequestId { session: SessionId(1), sequence: 1 };
        let (digest, cut, owner) = (items(0..2).digest(), (0, u64::MAX), OwnerId(0));
        let named = RequestStamp { id, acknowledged_below: 0, digest, cut, owner };
        assert!(!goes_with_others(&insert(Some(named), items(0..2), None, None)));
        assert!(!goes_with_others(&insert(None, items(0..257), None, None)));
        let (filter, generation, hashes) = (FilterId(1), Generation(2), items(0..2));
        let mut contains = ShardRequest::Contains { filter, generation, hashes, confirmed: true };
        assert!(goes_with_others(&contains));
        if let ShardRequest::Contains { confirmed, .. } = &mut contains {
            *confirmed = false;
        }
        assert!(!goes_with_others(&contains));
        assert!(!goes_with_others(&ShardRequest::Status));
    }
}
