//! What other nodes know of a node whose disk may have lost data: the node asks them when it starts,
//! and they notify it when they notice a loss.
//!
//! Raft assumes that a replica keeps what it has confirmed. A disk that loses a synced tail, or a
//! folder that was restored from an older copy, breaks this assumption without leaving a trace: a log
//! that ends early looks like any other. But other nodes remember what was confirmed. So:
//!
//! * A node that starts asks all others before its replicas take part in anything. A replica adopts the
//!   highest vote that it learns of. If another node knows of an entry that this replica confirmed,
//!   that it proposed as leader to a voter, or that is committed, and its log does not reach that entry, then the
//!   entry becomes the replica's floor (`umbel-storage/src/wal/left.rs`): until its log reaches the floor, it
//!   does not stand for election, and grants no vote to a candidate that lacks the entry. Entries that
//!   it proposed matter because a leader counts itself towards the majority without a confirmation to
//!   another node; and a follower that has an entry may not know yet that it is committed. What a learner has
//!   counts for nobody.
//! * A leader that finds that a replica lacks what it confirmed in the same term notifies the replica.
//! * A copy of a replicated filter with fewer of its own inserts than other nodes know of does not
//!   open: it would reuse the numbers of the missing inserts for new ones, which no node would then
//!   request.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use futures_util::future::join_all;
use tokio::time::Instant;
use umbel_engine::limits::NODE_COUNT_MAX;
use umbel_engine::{FilterId, Generation, GroupId, NodeId};
use umbel_ports::encoding::{decode, encode};
use umbel_ports::locked;
use umbel_storage::Storage;
use umbel_storage::types::{LogId, Vote};

use calls::{RecallAnswer, RecallRequest, ReplicaStanding, Standings};

use crate::metrics;
use crate::peer::{CallError, CallKind, Links, RefusalReason};
use crate::witness::Witness;

pub(crate) mod calls;

/// How long a starting node waits for other nodes' knowledge, and asks again. A running node answers from memory unless
/// it lacks processor time, and a node without a process refuses at once. So only an absent machine
/// costs a start this long.
pub(crate) const START_TIMEOUT: Duration = Duration::from_secs(3);

/// How long a node that is about to start more replicas waits for nodes that have not answered before.
/// They are usually absent, and the running replicas wait meanwhile for changes of the map.
pub(crate) const LATER_TIMEOUT: Duration = Duration::from_millis(500);

/// Pause before a node that did not answer is asked again: short beside the timeouts, and long enough that
/// a busy node is asked a few dozen times at most.
const RETRY_PAUSE: Duration = Duration::from_millis(100);

/// How often a node asks those that it has just heard of. The first nodes know nearly all others; each further round
/// only brings those that have joined since what one of the last round knows.
const ROUNDS_MAX: usize = 8;

/// Most nodes that are asked in all: the members of the largest cluster, and those that were members as far as one of them
/// knows.
const NODES_ASKED_MAX: usize = 4 * NODE_COUNT_MAX;

/// How long a replica may take to record on its disk that it lost entries.
const NOTIFY_TIMEOUT: Duration = Duration::from_secs(10);

/// The other nodes' answers when this node started.
#[derive(Default)]
pub struct Recollection {
    inner: Mutex<Inner>,
}

#[derive(Default)]
struct Inner {
    callers: BTreeSet<NodeId>,
    groups: BTreeMap<GroupId, Known>,
    copies: BTreeMap<FilterId, KnownInserts>,
}

/// What other nodes know of this node's replica of a group.
#[derive(Clone, Copy, Default)]
struct Known {
    /// The highest vote of any of them.
    vote: Option<Vote>,
    /// The entry that the replica's log must reach.
    last: Option<LogId>,
    /// The last entry that the replica has confirmed to one of them.
    confirmed: Option<LogId>,
}

impl Known {
    /// The last entry that the replica has confirmed, if neither its log nor its floor, which is there if it
    /// left this node or has noted its loss, reaches it. The end of the log alone tells of no loss: the group
    /// may have committed more while this node was away, or before it had a replica.
    fn lost(&self, last: Option<LogId>, floor: Option<LogId>) -> Option<LogId> {
        self.confirmed.filter(|&confirmed| last.max(floor) < Some(confirmed))
    }
}

/// How many of this node's inserts into a replicated filter another node has.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct KnownInserts {
    /// The node that has them.
    pub by: NodeId,
    /// The generation of the copy that they are in.
    pub generation: Generation,
    /// How many it has.
    pub count: u64,
}

impl Recollection {
    /// Asks all of these nodes that have not answered yet, and the nodes that they know of. Nodes that do
    /// not answer in time are skipped, and those whose machine says that they do not run: a cluster must be
    /// able to start with some of its nodes absent. Whatever nodes the others name, it ends: after [`ROUNDS_MAX`] rounds,
    /// and no more than [`NODES_ASKED_MAX`] nodes are asked.
    ///
    /// # Errors
    /// If one of them reports that this node was removed from the cluster; then it must not continue.
    pub(crate) async fn query(
        &self,
        links: &Links,
        node: NodeId,
        nodes: BTreeMap<NodeId, String>,
        timeout: Duration,
    ) -> Result<(), String> {
        if !self.query_named(links, node, nodes, timeout).await? {
            tracing::warn!(
                "other nodes name more nodes that may know of this one than are asked: the others are left out"
            );
        }
        Ok(())
    }

    /// As [`Self::query`]; returns whether all nodes were asked that anybody named.
    async fn query_named(
        &self,
        links: &Links,
        node: NodeId,
        mut nodes: BTreeMap<NodeId, String>,
        timeout: Duration,
    ) -> Result<bool, String> {
        let mut asked: BTreeSet<NodeId> = locked(&self.inner).callers.clone();
        asked.insert(node);
        let mut is_cut = false;
        for _ in 0..ROUNDS_MAX {
            nodes.retain(|other, _| !asked.contains(other));
            let room = NODES_ASKED_MAX.saturating_sub(asked.len());
            is_cut |= nodes.len() > room;
            nodes = nodes.into_iter().take(room).collect();
            if nodes.is_empty() {
                break;
            }
            asked.extend(nodes.keys());
            let asks = std::mem::take(&mut nodes).into_iter().map(async |(other, address)| {
                let called = request_standings(links, other, &address, timeout);
                match called.await.map(|answer| decode(&answer)) {
                    Ok(Ok(RecallAnswer::Standings(standings))) => Ok(Some((other, standings))),
                    Ok(other) => {
                        tracing::warn!(?other, "what is known of this node was not understood");
                        Ok(None)
                    }
                    Err(error) if error.is_removal() => Err(error.to_string()),
                    Err(error) => {
                        tracing::info!(%error, "a node did not say what it knows of this one");
                        Ok(None)
                    }
                }
            });
            for answer in join_all(asks).await {
                if let Some((other, standings)) = answer? {
                    nodes.extend(locked(&self.inner).take(other, standings));
                }
            }
        }
        Ok(!is_cut && nodes.keys().all(|other| asked.contains(other)))
    }

    /// Makes a group's log adopt what was learned of its replica on this node.
    ///
    /// # Errors
    /// If the log has failed.
    pub(crate) async fn restore(&self, storage: &Storage, group: GroupId) -> io::Result<()> {
        let Some(known) = locked(&self.inner).groups.get(&group).copied() else {
            return Ok(());
        };
        let log = storage.log(group);
        let (last, floor) = (log.last_id(), log.floor());
        log.recall(known.vote, known.last).await?;
        let ours = last.map_or(0, |last| last.index);
        if let Some(confirmed) = known.lost(last, floor) {
            metrics::replica_behind();
            tracing::warn!(
                %group, ours, known = confirmed.index,
                "other nodes know of entries of this replica that its log lacks: it does not vote for \
                 whoever lacks them, and does not lead, until it has them"
            );
        } else if let Some(known) = known.last.filter(|known| last < Some(*known)) {
            tracing::info!(
                %group, ours, known = known.index,
                "the group has gone on without this replica: it does not lead until it has those entries"
            );
        }
        Ok(())
    }

    /// The highest number of this node's inserts into a replicated filter that another node reported.
    pub fn inserts(&self, filter: FilterId) -> Option<KnownInserts> {
        locked(&self.inner).copies.get(&filter).copied()
    }
}

impl Inner {
    /// Merges a node's answer; returns the nodes that it knows of.
    fn take(&mut self, by: NodeId, standings: Standings) -> Vec<(NodeId, String)> {
        self.callers.insert(by);
        for ReplicaStanding { group, vote, last } in standings.groups {
            let known = self.groups.entry(group).or_default();
            // If a node leads by that vote, it reports that itself.
            let vote = vote.map(|vote| Vote { committed: false, ..vote });
            if known.vote < vote {
                known.vote = vote;
            }
            known.last = known.last.max(last);
            if vote.is_some() {
                known.confirmed = known.confirmed.max(last);
            }
        }
        for (filter, generation, count) in standings.copies {
            let theirs = KnownInserts { by, generation, count };
            let known = self.copies.entry(filter).or_insert(theirs);
            if (known.generation, known.count) < (generation, count) {
                *known = theirs;
            }
        }
        standings.nodes
    }
}

/// Asks a node what it knows of this one, until it answers, the timeout is over, or trying again is of no
/// use.
async fn request_standings(
    links: &Links,
    other: NodeId,
    address: &str,
    timeout: Duration,
) -> Result<Bytes, CallError> {
    let until = Instant::now() + timeout;
    loop {
        let left = until.saturating_duration_since(Instant::now());
        let body = encode(&RecallRequest::Standings);
        let called = links.call(other, address, CallKind::Recall, GroupId::META, body, left);
        match called.await {
            Err(error) if may_answer_later(&error) && Instant::now() + RETRY_PAUSE < until => {
                tokio::time::sleep(RETRY_PAUSE).await;
            }
            called => return called,
        }
    }
}

/// Whether a node that failed a call so may be running, and too busy to be reached or to answer.
const fn may_answer_later(error: &CallError) -> bool {
    match error {
        CallError::Unreachable { is_refused, .. } => !*is_refused,
        CallError::Refused { reason, .. } => matches!(reason, RefusalReason::Overloaded),
        CallError::Timeout { .. } | CallError::Overloaded { .. } => true,
        CallError::WrongPeer { .. } => false,
    }
}

/// Whether a call asks what is known of its caller, a node that starts.
pub fn requests_standings(kind: CallKind, body: &[u8]) -> bool {
    kind == CallKind::Recall && matches!(decode(body), Ok(RecallRequest::Standings))
}

/// The answer to a starting node: what this node's disk and memory know of its replicas, how many of its
/// inserts into replicated filters this node has, and nodes that may know more. This node is `own`; without a
/// number it has no replicas yet.
pub async fn answer_standings(
    node: NodeId,
    own: Option<NodeId>,
    storage: &Storage,
    witness: &Witness,
    copies: Vec<(FilterId, Generation, u64)>,
    nodes: Vec<(NodeId, String)>,
) -> Bytes {
    let groups = match own {
        Some(own) => standings_of(node, own, storage, witness).await,
        None => Vec::new(),
    };
    encode(&RecallAnswer::Standings(Standings { groups, copies, nodes }))
}

/// The question which entries are committed in the groups that the called node leads.
pub fn request_committed() -> Bytes {
    encode(&RecallRequest::Committed)
}

/// The index of the last committed entry of each group, from the answer to [`request_committed`].
///
/// # Errors
/// If it is another answer, or none.
pub fn committed_in(answer: &[u8]) -> Result<Vec<(GroupId, u64)>, String> {
    match decode(answer) {
        Ok(RecallAnswer::Committed(committed)) => Ok(committed),
        Ok(other) => Err(format!("it answered {other:?}")),
        Err(error) => Err(format!("it answered nonsense: {error}")),
    }
}

/// What this node's disk and memory know of a starting node's replicas.
async fn standings_of(
    node: NodeId,
    own: NodeId,
    storage: &Storage,
    witness: &Witness,
) -> Vec<ReplicaStanding> {
    let mut confirmed = witness.recall(node);
    let mut standings = Vec::new();
    for group in storage.groups().into_iter().filter(|group| group.copy().is_none()) {
        let (vote, had) = storage.standing_of(group, own, node).await;
        standings.extend(ReplicaStanding::of(group, vote, confirmed.remove(&group), had));
    }
    standings
}

/// Notifies a replica that it lacks entries that it confirmed to this node, and records its
/// acknowledgement.
pub(crate) async fn notify_lost(
    links: Arc<Links>,
    witness: Arc<Witness>,
    node: NodeId,
    address: String,
    group: GroupId,
    lost: LogId,
) {
    let body = encode(&RecallRequest::Lost { confirmed: lost });
    let called = links.call(node, &address, CallKind::Recall, group, body, NOTIFY_TIMEOUT).await;
    match called.map(|answer| decode(&answer)) {
        Ok(Ok(RecallAnswer::Noted)) => {
            if !witness.was_notified(node, group, lost) {
                metrics::replica_lost_entries();
                tracing::error!(
                    %group, %node, index = lost.index,
                    "a replica lacks entries that it had confirmed: its disk lost synced data or its \
                     folder is an older copy; it is sent them again and has no vote until it has them; \
                     look at that disk"
                );
            }
            witness.set_notified(node, group, lost);
        }
        Ok(other) => tracing::warn!(%group, %node, ?other, "an answer was not understood"),
        Err(error) => tracing::info!(%group, %node, %error, "a replica was not told of its loss"),
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use tonic::Status;
    use umbel_ports::testing::MemoryNet;
    use umbel_ports::{Listener, Net, PortFuture, Stream};
    use umbel_proto::v1::{AdoptRequest, WhoAreYouResponse};
    use umbel_storage::testing::id;

    use super::*;
    use crate::peer::test_node::{TestNode, identity, links, serve_handler};
    use crate::peer::{CallHandler, CallRefusal, LocalIdentity};

    const ADDRESS: &str = "two:1";

    /// Node 2, which is too busy for the first calls and knows nothing.
    struct BusyNode {
        refusals: AtomicUsize,
    }

    impl CallHandler for BusyNode {
        fn identity(&self) -> Option<LocalIdentity> {
            Some(identity(2))
        }

        fn handle(
            self: Arc<Self>,
            _from: NodeId,
            kind: CallKind,
            _group: GroupId,
            body: Bytes,
        ) -> PortFuture<'static, Result<Bytes, CallRefusal>> {
            assert!(requests_standings(kind, &body));
            let answer = if take_one(&self.refusals) {
                Err(CallRefusal::new(RefusalReason::Overloaded, "busy"))
            } else {
                Ok(encode(&RecallAnswer::Standings(Standings::default())))
            };
            Box::pin(async { answer })
        }

        fn adopt(&self, _request: AdoptRequest) -> PortFuture<'_, Result<(), Status>> {
            Box::pin(async { Err(Status::failed_precondition("this is node 2")) })
        }

        fn who_are_you(&self) -> WhoAreYouResponse {
            WhoAreYouResponse::default()
        }
    }

    /// A network on which the first connections are neither made nor refused.
    #[derive(Default)]
    struct LossyNet {
        net: MemoryNet,
        losses: AtomicUsize,
    }

    impl Net for LossyNet {
        fn listen<'a>(&'a self, address: &'a str) -> PortFuture<'a, io::Result<Box<dyn Listener>>> {
            self.net.listen(address)
        }

        fn connect<'a>(&'a self, address: &'a str) -> PortFuture<'a, io::Result<Box<dyn Stream>>> {
            let connected = self.net.connect(address);
            if take_one(&self.losses) { Box::pin(std::future::pending()) } else { connected }
        }
    }

    fn take_one(count: &AtomicUsize) -> bool {
        count.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |count| count.checked_sub(1)).is_ok()
    }

    /// Whether node 2 answered, how long that took, and how many connections were tried.
    async fn answer_over(net: LossyNet) -> (bool, Duration, usize) {
        let net = Arc::new(net);
        let dyn_net: Arc<dyn Net> = Arc::clone(&net) as _;
        let (links, recollection) = (links(&dyn_net, 1), Recollection::default());
        let nodes = BTreeMap::from([(NodeId(2), ADDRESS.to_owned())]);
        let began = Instant::now();
        let are_asked = recollection.query_named(&links, NodeId(1), nodes, START_TIMEOUT).await;
        assert_eq!(are_asked, Ok(true));
        let is_answered = locked(&recollection.inner).callers.contains(&NodeId(2));
        (is_answered, began.elapsed(), net.net.connect_count())
    }

    async fn serve(net: &LossyNet, refusals: usize) -> TestNode<BusyNode> {
        let node = BusyNode { refusals: AtomicUsize::new(refusals) };
        serve_handler(net, ADDRESS, Arc::new(node)).await
    }

    /// What node 1 learns of its replica from node 2.
    fn known(vote: Option<Vote>, confirmed: Option<LogId>, had: Option<LogId>) -> Known {
        let mut inner = Inner::default();
        let groups = ReplicaStanding::of(GroupId::META, vote, confirmed, had).collect();
        inner.take(NodeId(2), Standings { groups, ..Standings::default() });
        inner.groups[&GroupId::META]
    }

    #[test]
    fn only_what_a_replica_had_confirmed_is_lost() {
        let vote = Some(Vote::new(1, NodeId(2)));
        // A restart while the others commit more; a new node; a replica that comes to a node later.
        for (confirmed, last) in [(Some(id(1, 4)), Some(id(1, 4))), (None, None)] {
            let known = known(vote, confirmed, Some(id(1, 9)));
            assert_eq!((known.vote, known.last), (vote, Some(id(1, 9))));
            assert_eq!(known.lost(last, None), None);
        }
        for had in [None, Some(id(1, 3)), Some(id(1, 9))] {
            let known = known(vote, Some(id(1, 4)), had);
            assert_eq!(known.last, had.max(Some(id(1, 4))));
            assert_eq!(known.lost(Some(id(1, 3)), None), Some(id(1, 4)));
            assert_eq!(known.lost(None, Some(id(1, 3))), Some(id(1, 4)));
            assert_eq!(known.lost(None, Some(id(1, 4))), None, "it left, and has come back");
            assert_eq!(known.lost(Some(id(2, 3)), None), None, "another leader truncated them");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_node_that_is_too_busy_is_asked_again() {
        let net = LossyNet::default();
        let _node = serve(&net, 3).await;
        let (is_answered, took, connect_count) = answer_over(net).await;
        assert!(is_answered && took < START_TIMEOUT, "{took:?}");
        assert_eq!(connect_count, 1);
    }

    #[tokio::test(start_paused = true)]
    async fn a_node_that_is_reached_late_is_asked() {
        let net = LossyNet { losses: AtomicUsize::new(1), ..LossyNet::default() };
        let _node = serve(&net, 0).await;
        let (is_answered, took, connect_count) = answer_over(net).await;
        assert!(is_answered && took < START_TIMEOUT, "{took:?}");
        assert_eq!(connect_count, 2);
    }

    #[tokio::test(start_paused = true)]
    async fn nobody_waits_for_a_node_that_does_not_run() {
        let (is_answered, took, connect_count) = answer_over(LossyNet::default()).await;
        assert!(!is_answered && took < RETRY_PAUSE, "{took:?}");
        assert_eq!(connect_count, 1);
    }

    #[tokio::test(start_paused = true)]
    async fn an_absent_machine_costs_the_timeout_and_no_more() {
        let net = LossyNet { losses: AtomicUsize::new(usize::MAX), ..LossyNet::default() };
        let (is_answered, took, _) = answer_over(net).await;
        assert!(!is_answered && took <= START_TIMEOUT, "{took:?}");
    }

    /// A node that knows of so many others, which do not run, and of one that follows it.
    struct GossipingNode {
        number: u64,
        others: u64,
        asked: Arc<AtomicUsize>,
    }

    fn address_of(number: u64) -> String {
        format!("n{number}:1")
    }

    impl CallHandler for GossipingNode {
        fn identity(&self) -> Option<LocalIdentity> {
            Some(identity(self.number))
        }

        fn handle(
            self: Arc<Self>,
            _from: NodeId,
            _kind: CallKind,
            _group: GroupId,
            _body: Bytes,
        ) -> PortFuture<'static, Result<Bytes, CallRefusal>> {
            self.asked.fetch_add(1, Ordering::SeqCst);
            let next = self.number + 1;
            let others = (1_000_000..).take(usize::try_from(self.others).unwrap());
            let nodes = std::iter::once(next).chain(others);
            let nodes = nodes.map(|number| (NodeId(number), address_of(number))).collect();
            let standings = Standings { nodes, ..Standings::default() };
            Box::pin(async move { Ok(encode(&RecallAnswer::Standings(standings))) })
        }

        fn adopt(&self, _request: AdoptRequest) -> PortFuture<'_, Result<(), Status>> {
            Box::pin(async { Err(Status::failed_precondition("it belongs to a cluster")) })
        }

        fn who_are_you(&self) -> WhoAreYouResponse {
            WhoAreYouResponse::default()
        }
    }

    /// Asks 20 nodes, each of which names the next one and so many others: how many answered, how many connections
    /// were tried, and whether all were asked.
    async fn asked_in_a_row(others: u64) -> (usize, usize, bool) {
        let net = Arc::new(MemoryNet::default());
        let asked = Arc::new(AtomicUsize::new(0));
        let mut served = Vec::new();
        for number in 2..22 {
            let node = GossipingNode { number, others, asked: Arc::clone(&asked) };
            served.push(serve_handler(&*net, &address_of(number), Arc::new(node)).await);
        }
        let dyn_net: Arc<dyn Net> = Arc::clone(&net) as _;
        let (links, recollection) = (links(&dyn_net, 1), Recollection::default());
        let nodes = BTreeMap::from([(NodeId(2), address_of(2))]);
        let are_asked = recollection.query_named(&links, NodeId(1), nodes, START_TIMEOUT).await;
        (asked.load(Ordering::SeqCst), net.connect_count(), are_asked.unwrap())
    }

    #[tokio::test(start_paused = true)]
    async fn nodes_that_name_ever_more_nodes_do_not_keep_a_node_from_starting() {
        assert_eq!(asked_in_a_row(0).await, (ROUNDS_MAX, ROUNDS_MAX, false));
        // One list that is cut, and one that fits, with a next node for which no place is left.
        for others in [5000, NODES_ASKED_MAX as u64 - 3] {
            let (_, connect_count, are_all_asked) = asked_in_a_row(others).await;
            // Without this node itself.
            assert_eq!(connect_count, NODES_ASKED_MAX - 1, "{others}");
            assert!(!are_all_asked, "{others}");
        }
    }
}
