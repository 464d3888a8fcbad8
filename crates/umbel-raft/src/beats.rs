//! This node's failure detector. [`umbel_engine::liveness`] decides what follows from the silence of
//! other nodes.

use std::collections::BTreeSet;
use std::sync::Mutex;
use std::time::Duration;

use tokio::time::Instant;
use umbel_engine::liveness::{Beat, GroupStanding, Input, Liveness, LivenessOrder, Timing};
use umbel_engine::{GroupId, NodeId};
use umbel_ports::locked;
use umbel_step::Outbox;

/// How long an election may take, in times that a node may be silent: one until the leader is missed, seven for the pauses
/// after three elections that nobody wins (1, 2 and 4), and two for the turns of candidates and the calls.
const ELECTION_SUSPICIONS: u32 = 10;

/// For how long the disk may keep the log waiting, in times that a node may be silent: with the defaults four seconds,
/// which a sync of a busy disk does not take, and which leave callers, who wait for ten, time for an election.
const DISK_SUSPICIONS: u32 = 10;

/// This node's knowledge of which other nodes are alive.
pub struct Beats {
    began: Instant,
    timing: Timing,
    state: Mutex<State>,
}

struct State {
    liveness: Liveness,
    orders: Outbox<LivenessOrder>,
}

impl Beats {
    /// Creates the detector. `incarnation` must be a number that no other process of this node has had.
    pub(crate) fn new(node: NodeId, incarnation: u64, timing: Timing) -> Self {
        let liveness = Liveness::new(node, incarnation, timing);
        let state = Mutex::new(State { liveness, orders: Outbox::new() });
        Self { began: Instant::now(), timing, state }
    }

    pub(crate) const fn interval(&self) -> Duration {
        Duration::from_millis(self.timing.beat_ms)
    }

    /// How long a node may be silent before it is suspected.
    pub const fn suspicion(&self) -> Duration {
        Duration::from_millis(self.timing.suspect_ms)
    }

    /// How long an election may take, including its detection delay and a few failed attempts.
    pub fn election(&self) -> Duration {
        ELECTION_SUSPICIONS * self.suspicion()
    }

    /// How long one call of the disk may take before the node falls silent, because it can confirm nothing.
    pub(crate) fn disk_patience(&self) -> Duration {
        DISK_SUSPICIONS * self.suspicion()
    }

    /// Whether a node was reachable and no longer is.
    pub fn is_suspected(&self, node: NodeId) -> bool {
        locked(&self.state).liveness.is_suspected(node)
    }

    /// Whether a node is reachable.
    pub fn is_alive(&self, node: NodeId) -> bool {
        locked(&self.state).liveness.is_alive(node)
    }

    /// Waits until a node is not heard any more, and answers nothing therefore; of one that was never heard, for as
    /// long as a node may be silent.
    pub async fn until_silent(&self, node: NodeId) {
        let patience_ends = Instant::now() + self.suspicion();
        while !self.is_suspected(node) && (self.is_alive(node) || Instant::now() < patience_ends) {
            // The detector decides at its ticks, and only then.
            tokio::time::sleep(self.interval()).await;
        }
    }

    /// Whether a majority of each of the sets is alive.
    pub(crate) fn has_majority(&self, voters: &[BTreeSet<NodeId>]) -> bool {
        locked(&self.state).liveness.has_majority(voters)
    }

    /// Whether a majority of each of the sets is alive and answers this node's own beats.
    pub(crate) fn reaches_majority(&self, voters: &[BTreeSet<NodeId>]) -> bool {
        locked(&self.state).liveness.reaches_majority(voters)
    }

    /// Those of the voters whose links with this node work both ways.
    pub(crate) fn successors(&self, voters: Vec<NodeId>) -> Vec<NodeId> {
        let now_ms = self.now_ms();
        locked(&self.state).liveness.successors(now_ms, voters)
    }

    /// Whether a live node other than the candidate leads a group, in this term or a later one.
    pub(crate) fn has_live_leader(&self, group: GroupId, term: u64, candidate: NodeId) -> bool {
        locked(&self.state).liveness.has_live_leader(group, term, candidate)
    }

    /// Processes another node's beat, and returns the beat to respond with.
    pub(crate) fn take(&self, node: NodeId, beat: Beat) -> Beat {
        self.receive(node, beat, false)
    }

    /// Processes another node's answer to a beat of this one.
    pub(crate) fn is_answered(&self, node: NodeId, beat: Beat) {
        drop(self.receive(node, beat, true));
    }

    /// Notes that another node refused a beat of this one: the link to it works.
    pub(crate) fn is_refused(&self, node: NodeId) {
        let mut state = locked(&self.state);
        let State { liveness, orders } = &mut *state;
        liveness.step(Input::Refused { node }, orders);
    }

    pub(crate) fn is_unreachable(&self, node: NodeId) {
        let mut state = locked(&self.state);
        let State { liveness, orders } = &mut *state;
        liveness.step(Input::Unreachable { node }, orders);
    }

    /// Called once per beat interval: returns the beats to send, and the orders to carry out.
    pub(crate) fn tick(
        &self,
        peers: &BTreeSet<NodeId>,
        groups: &[GroupStanding],
    ) -> (Vec<(NodeId, Beat)>, Vec<LivenessOrder>) {
        let now_ms = self.now_ms();
        let mut state = locked(&self.state);
        let State { liveness, orders } = &mut *state;
        liveness.step(Input::Tick { now_ms, peers, groups }, orders);
        let due = liveness.due().into_iter().map(|node| (node, liveness.beat_for(node)));
        (due.collect(), orders.take())
    }

    /// Processes a beat, and returns the one for its sender.
    fn receive(&self, node: NodeId, beat: Beat, is_answer: bool) -> Beat {
        let now_ms = self.now_ms();
        let mut state = locked(&self.state);
        let State { liveness, orders } = &mut *state;
        liveness.step(Input::Received { node, now_ms, beat, is_answer }, orders);
        liveness.beat_for(node)
    }

    fn now_ms(&self) -> u64 {
        u64::try_from(self.began.elapsed().as_millis()).unwrap_or(u64::MAX)
    }
}

#[cfg(test)]
mod tests {
    use umbel_engine::liveness::LedVersion;

    use super::*;

    const OWN: NodeId = NodeId(1);
    const OTHER: NodeId = NodeId(2);

    fn detector() -> Beats {
        Beats::new(OWN, 7, Timing { beat_ms: 100, suspect_ms: 400 })
    }

    fn beat() -> Beat {
        let version = LedVersion { incarnation: 8, number: 1 };
        Beat { version, leads: None, has: None }
    }

    /// Ticks as `beating` does, until the wait has ended; returns how long it took. The other node sends a beat at
    /// each of the first ticks.
    async fn waited(beats: &Beats, beat_count: usize) -> Duration {
        let peers = BTreeSet::from([OTHER]);
        let began = Instant::now();
        let ticks = async {
            let mut ticks = tokio::time::interval(beats.interval());
            for number in 0.. {
                ticks.tick().await;
                beats.tick(&peers, &[]);
                if number < beat_count {
                    beats.take(OTHER, beat());
                }
            }
        };
        tokio::select! {
            biased;
            () = ticks => unreachable!("the detector ticks for ever"),
            () = beats.until_silent(OTHER) => began.elapsed(),
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_node_is_waited_for_until_it_falls_silent() {
        let ms = Duration::from_millis;
        let beats = detector();
        // The last beat comes at 2,900 ms, and the silence is noticed at a tick.
        let waited_for = waited(&beats, 30).await;
        assert!((ms(3_300)..=ms(3_500)).contains(&waited_for), "{waited_for:?}");
        // It is suspected already.
        assert_eq!(waited(&beats, 0).await, ms(0));
        // A node that was never heard may be about to start.
        let waited_for = waited(&detector(), 0).await;
        assert!((ms(400)..=ms(500)).contains(&waited_for), "{waited_for:?}");
    }

    #[tokio::test(start_paused = true)]
    async fn a_node_that_only_calls_is_heard_and_not_reached() {
        let (beats, peers) = (detector(), BTreeSet::from([OTHER]));
        let voters = [BTreeSet::from([OWN, OTHER])];
        for _ in 0..10 {
            beats.tick(&peers, &[]);
            beats.take(OTHER, beat());
            tokio::time::advance(beats.interval()).await;
        }
        assert!(beats.has_majority(&voters) && !beats.reaches_majority(&voters));
        beats.is_answered(OTHER, beat());
        assert!(beats.reaches_majority(&voters));
    }

    #[tokio::test(start_paused = true)]
    async fn this_node_is_never_silent() {
        let beats = detector();
        let waited_for =
            tokio::time::timeout(Duration::from_secs(60), beats.until_silent(OWN)).await;
        assert!(waited_for.is_err());
    }
}
