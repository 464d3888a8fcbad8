//! Calls of the leaders of groups, and what this node knows of the cluster.
//!
//! Every call ends at its deadline at the latest, with an answer or with an error that tells whether
//! anything was changed. A repeatable request is sent again if its reply was lost; any other request then
//! fails with "the outcome is unknown".

#![expect(
    clippy::missing_errors_doc,
    reason = "each variant of `CallFailure` says whether anything was changed, and what the caller does"
)]

use std::collections::BTreeMap;
use std::future::{Future, pending};
use std::sync::{Arc, Mutex, OnceLock};
use std::time::Duration;

use bytes::Bytes;
use serde::de::DeserializeOwned;
use tokio::time::Instant;
use umbel_engine::meta::{MetaCommand, MetaReply, MetaState};
use umbel_engine::placement::ShardRecord;
use umbel_engine::shard::PartError;
use umbel_engine::{GroupId, NodeId, ShardId};
use umbel_ports::Seed;
use umbel_ports::encoding::{decode, encode};
use umbel_raft::peer::CallKind;
use umbel_step::planted::{self, Planted};

use self::joint::{JointCalls, Way};
use self::old_map::OldMap;
use crate::awaited::Awaited;
use crate::calls::{MetaAnswer, MetaRequest, ShardAnswer, ShardFailure, ShardRequest};
use crate::failure::CallFailure;
use crate::local::Local;

mod joint;
mod leaders;
mod old_map;
mod refusals;
mod tries;

pub use self::leaders::absorbed_by;
use self::refusals::refused;
pub use self::refusals::unexpected;
pub use self::tries::Tries;

/// Finds the leaders of groups and calls them, for this node and for its clients.
pub struct LeaderCalls {
    /// Set once the node belongs to a cluster.
    local: Arc<OnceLock<Arc<Local>>>,
    /// What the node waits for until then, and until the cluster is formed.
    awaited: Awaited,
    seed: Arc<dyn Seed>,
    /// The leader of each group, according to the last answer.
    leaders: Mutex<BTreeMap<GroupId, NodeId>>,
    old_map: OldMap,
    /// Calls about items that are on their way to other nodes.
    joint: Arc<JointCalls>,
}

/// The outcome of one try at one node.
#[derive(Clone)]
enum Tried<T> {
    Answer(T),
    /// The node did nothing; the leader, if the node named it.
    Elsewhere(Option<NodeId>),
    /// The node may have done it.
    Unknown(String),
}

/// The answer of the meta group's leader.
struct MetaAnswered {
    answer: MetaAnswer,
    /// The entry that this node must have applied.
    index: u64,
    /// Whether no earlier try is without an answer, which may have been applied.
    is_only_try: bool,
}

impl LeaderCalls {
    pub(crate) fn new(local: Arc<OnceLock<Arc<Local>>>, seed: Arc<dyn Seed>) -> Self {
        let (leaders, old_map) = (Mutex::default(), OldMap::default());
        let joint = Arc::default();
        Self { local, awaited: Awaited::default(), seed, leaders, old_map, joint }
    }

    /// What this node waits for until its cluster is formed.
    pub(crate) const fn awaited(&self) -> &Awaited {
        &self.awaited
    }

    /// This node's number, 0 while it belongs to no cluster.
    pub fn node(&self) -> NodeId {
        self.local.get().map_or(NodeId(0), |local| local.node())
    }

    /// Entropy and wall-clock time.
    pub fn seed(&self) -> &dyn Seed {
        &*self.seed
    }

    /// This node as a member of its cluster.
    pub fn local(&self) -> Result<&Arc<Local>, CallFailure> {
        self.local.get().ok_or_else(|| self.awaited.failure())
    }

    /// The leader of the meta group, as far as this node knows.
    pub fn meta_leader(&self) -> Option<NodeId> {
        self.local.get()?.meta().leader()
    }

    /// Whether a node answers now.
    pub async fn is_reachable(&self, node: NodeId) -> bool {
        match self.local.get() {
            Some(local) => node == local.node() || local.member().is_reachable(node).await,
            None => false,
        }
    }

    /// Reads this node's copy of the catalogue and the shard map.
    ///
    /// # Errors
    /// If the cluster is not formed.
    pub fn read_meta<T>(&self, read: impl FnOnce(&MetaState) -> T) -> Result<T, CallFailure> {
        let read = |state: &MetaState| state.is_formed().then(|| read(state));
        self.local()?.read_meta(read).ok_or_else(|| self.awaited.failure())
    }

    /// Waits until this node's copy of the catalogue shows what `until` looks for.
    pub async fn wait_meta<T>(
        &self,
        deadline: Instant,
        mut until: impl FnMut(&MetaState) -> Option<T>,
    ) -> Result<T, CallFailure> {
        let began = Instant::now();
        let mut applied = self.local()?.meta().replica().applied_index();
        loop {
            applied.borrow_and_update();
            if let Some(found) = self.read_meta(&mut until)? {
                return Ok(found);
            }
            let changed = tokio::time::timeout_at(deadline, applied.changed()).await;
            if !matches!(changed, Ok(Ok(()))) {
                let within = began.elapsed();
                return Err(CallFailure::NoQuorum {
                    what: "part of the cluster".to_owned(),
                    within,
                });
            }
        }
    }

    /// Proposes a command to the meta group; returns once this node, too, has applied it.
    pub async fn meta_propose(
        &self,
        command: MetaCommand,
        deadline: Instant,
    ) -> Result<MetaReply, CallFailure> {
        match self.meta_propose_tried(command, deadline).await?.0 {
            MetaReply::Refused(error) => Err(error.into()),
            reply => Ok(reply),
        }
    }

    /// The same with the reply as it came, and whether it is that of the only try that may have been applied: a refusal then
    /// means that nothing of the command was done.
    pub async fn meta_propose_tried(
        &self,
        command: MetaCommand,
        deadline: Instant,
    ) -> Result<(MetaReply, bool), CallFailure> {
        let answered = self.meta_call(&MetaRequest::Propose(command), deadline).await?;
        let MetaAnswered { answer, index, is_only_try } = answered;
        let MetaAnswer::Reply(reply) = answer else { return Err(unexpected(&answer)) };
        let unheard = |what| CallFailure::OutcomeUnknown { what };
        self.wait_applied(index, deadline).await.map_err(unheard)?;
        Ok((reply, is_only_try))
    }

    /// Returns once this node's copy of the catalogue has all that was committed before the call.
    pub async fn meta_refresh(&self, deadline: Instant) -> Result<(), CallFailure> {
        let refreshed = async {
            let index = self.meta_call(&MetaRequest::Confirm, deadline).await?.index;
            let late = |what| CallFailure::Overloaded {
                what: format!("{what}: try again, or another node"),
            };
            self.wait_applied(index, deadline).await.map_err(late)
        };
        // Boxed: calls about items seldom need it, and each of their tasks would reserve room for it.
        Box::pin(refreshed).await?;
        self.old_map.forget();
        Ok(())
    }

    /// Waits until this node has applied an entry of the meta group; the error says that it has not.
    async fn wait_applied(&self, index: u64, deadline: Instant) -> Result<(), String> {
        let began = Instant::now();
        let local = self.local().map_err(|failure| failure.to_string())?;
        let mut applied = local.meta().replica().applied_index();
        let reached = applied.wait_for(|&applied| applied >= index);
        match tokio::time::timeout_at(deadline, reached).await {
            Ok(Ok(_)) => Ok(()),
            _ => Err(format!(
                "this node did not hear of entry {index} of the meta group within {} ms",
                began.elapsed().as_millis()
            )),
        }
    }

    /// Calls the meta group's leader; finds out which node that is.
    async fn meta_call(
        &self,
        request: &MetaRequest,
        deadline: Instant,
    ) -> Result<MetaAnswered, CallFailure> {
        let local = self.local()?;
        let mut tries = Tries::new(deadline);
        loop {
            let node = self.meta_candidate(local, &tries);
            // A request that must not be sent twice gets all of the remaining time.
            let timeout = if request.is_repeatable() { tries.timeout() } else { tries.remaining() };
            let open = match self.try_meta(local, node, request, timeout).await {
                Tried::Answer((MetaAnswer::NotLeader(leader), _)) | Tried::Elsewhere(leader) => {
                    self.note_leader(GroupId::META, node, leader);
                    self.pause(&mut tries, GroupId::META, node, leader).await;
                    None
                }
                Tried::Answer((MetaAnswer::Unknown, _)) => Some("its leader changed".to_owned()),
                Tried::Answer((answer, index)) => {
                    self.note_leader(GroupId::META, node, Some(node));
                    return Ok(MetaAnswered { answer, index, is_only_try: tries.open.is_none() });
                }
                Tried::Unknown(why) => {
                    self.note_leader(GroupId::META, node, None);
                    Some(why)
                }
            };
            if let Some(why) = open {
                tries.open = Some(why);
                if !request.is_repeatable() {
                    return Err(tries.failure("the meta group", false));
                }
                self.pause(&mut tries, GroupId::META, node, None).await;
            }
            let is_read = matches!(request, MetaRequest::Confirm);
            if local.stops_alone(GroupId::META) {
                return Err(tries.stopped("the meta group", is_read));
            }
            if tries.is_over() {
                return Err(tries.failure("the meta group", is_read));
            }
        }
    }

    /// Waits before a group is tried again, at most until this node's replica of it knows another leader than the node
    /// that was tried. `named` is the leader that this node named.
    async fn pause(&self, tries: &mut Tries, group: GroupId, tried: NodeId, named: Option<NodeId>) {
        let learned = async {
            match self.local.get() {
                Some(local) => local.leader_learned(group, tried).await,
                None => pending().await,
            }
        };
        // Boxed: it is rare, and the task of every call would reserve room for it.
        Box::pin(tries.pause(named.is_some(), learned)).await;
    }

    /// The node to try next for the meta group.
    fn meta_candidate(&self, local: &Local, tries: &Tries) -> NodeId {
        let is_trusted = |node: &NodeId| !local.beats().is_suspected(*node);
        let known = local.meta().leader().or_else(|| self.known_leader(GroupId::META));
        let known = known.filter(is_trusted);
        let mut voters = local.meta().view().voters;
        voters.retain(is_trusted);
        match known {
            Some(leader) if tries.is_at_leader() => leader,
            _ if voters.is_empty() => self.node(),
            _ => voters[tries.count % voters.len()],
        }
    }

    async fn try_meta(
        &self,
        local: &Local,
        node: NodeId,
        request: &MetaRequest,
        timeout: Duration,
    ) -> Tried<(MetaAnswer, u64)> {
        if node == self.node() {
            let served = local.serve_meta(request.clone());
            return match tokio::time::timeout(timeout, served).await {
                Ok(answer) => Tried::Answer(answer),
                Err(_) => Tried::Unknown(
                    "no answer on this node, as when most voters are down".to_owned(),
                ),
            };
        }
        send_request(local, node, CallKind::Meta, GroupId::META, encode(request), timeout).await
    }

    /// Calls a shard's leader, whichever node that is, or, if the request allows it, any replica.
    ///
    /// Never returns [`ShardAnswer::Failed`]: it becomes a [`CallFailure`].
    pub fn shard_call(
        &self,
        shard: ShardId,
        request: ShardRequest,
        deadline: Instant,
    ) -> impl Future<Output = Result<ShardAnswer, CallFailure>> {
        self.item_call(shard, request, false, deadline)
    }

    /// The same for a call about items. With `may_join` it may reach another node together with others; not for a filter
    /// that refuses items at some point: one caller would be refused for the items of another.
    pub async fn item_call(
        &self,
        shard: ShardId,
        mut request: ShardRequest,
        may_join: bool,
        deadline: Instant,
    ) -> Result<ShardAnswer, CallFailure> {
        let local = self.local()?;
        let mut tries = Tries::new(deadline);
        loop {
            let (group, node) = self.shard_candidate(shard, &tries)?;
            // A request that must not be sent twice, or takes long, gets all of the remaining time.
            let is_tried_often = request.is_repeatable() && !request.takes_long();
            let timeout = if is_tried_often { tries.timeout() } else { tries.remaining() };
            let is_joint = may_join && node != local.node();
            let tried = match is_joint.then(|| Way::of(node, group, &request)).flatten() {
                Some(joint) => self.joint.call(local, joint, timeout).await,
                None => try_shard(local, node, group, &request, timeout).await,
            };
            let open = match tried {
                Tried::Answer(ShardAnswer::Failed(failure)) => match failure {
                    ShardFailure::NotLeader(leader) => {
                        self.note_leader(group, node, leader);
                        self.pause(&mut tries, group, node, leader).await;
                        None
                    }
                    ShardFailure::Unknown | ShardFailure::Stopped(_) => Some(failure.to_string()),
                    failure => {
                        let (what, refusal) = (shard.to_string(), refused(shard, failure));
                        return Err(tries.refusal(&what, &request, refusal));
                    }
                },
                Tried::Answer(answer) => {
                    self.note_leader(group, node, Some(node));
                    return Ok(answer);
                }
                Tried::Elsewhere(leader) => {
                    self.note_leader(group, node, leader);
                    self.pause(&mut tries, group, node, leader).await;
                    None
                }
                Tried::Unknown(why) => {
                    self.note_leader(group, node, None);
                    Some(why)
                }
            };
            if let Some(why) = open {
                tries.open = Some(why);
                if !request.is_repeatable() {
                    return Err(tries.failure(&shard.to_string(), request.is_read()));
                }
                self.pause(&mut tries, group, node, None).await;
                if planted::on(Planted::RetryNewId)
                    && let ShardRequest::Insert { request: stamp, .. } = &mut request
                {
                    *stamp = None;
                }
            } else if planted::on(Planted::OpenForgotten) {
                tries.open = None;
            }
            if local.stops_alone(group) {
                return Err(tries.stopped(&shard.to_string(), request.is_read()));
            }
            if tries.is_over() {
                return Err(tries.failure(&shard.to_string(), request.is_read()));
            }
        }
    }

    /// Calls one node's replica of a shard once, whichever node leads the shard by now.
    pub async fn replica_call(
        &self,
        shard: ShardId,
        holder: NodeId,
        request: ShardRequest,
        deadline: Instant,
    ) -> Result<ShardAnswer, CallFailure> {
        let timeout = deadline.saturating_duration_since(Instant::now());
        let group = self.guess_meta(|state| state.shard(shard).map(ShardRecord::group))?;
        let Some(group) = group else {
            let what = format!("{shard} was merged into another shard");
            return Err(CallFailure::Overloaded { what });
        };
        let what = match try_shard(self.local()?, holder, group, &request, timeout).await {
            Tried::Answer(ShardAnswer::Failed(failure)) => return Err(refused(shard, failure)),
            Tried::Answer(answer) => return Ok(answer),
            Tried::Elsewhere(_) => format!("{shard}: {holder} cannot be asked"),
            Tried::Unknown(why) => format!("{shard}: {why}"),
        };
        Err(CallFailure::Overloaded { what })
    }

    /// The node to try next for a shard: the known leader at every other try, otherwise replicas in turn.
    fn shard_candidate(
        &self,
        shard: ShardId,
        tries: &Tries,
    ) -> Result<(GroupId, NodeId), CallFailure> {
        let found = self.guess_meta(|state| {
            let map = state.shard_map();
            match map.get(shard) {
                Some(record) => Ok((record.group(), record.members())),
                None => Err(absorbed_by(map, shard)),
            }
        })?;
        let (group, mut replicas) = found.map_err(|by| match by {
            Some(into) => CallFailure::Part(PartError::Fenced { shard, into }),
            None => CallFailure::Invalid { what: format!("there is no {shard}") },
        })?;
        let beats = self.local()?.beats();
        replicas.retain(|&node| !beats.is_suspected(node));
        let known = self.leader_hint(group).filter(|leader| replicas.contains(leader));
        let node = match known {
            Some(leader) if tries.is_at_leader() => leader,
            _ if replicas.is_empty() => self.node(),
            _ => replicas[tries.count % replicas.len()],
        };
        Ok((group, node))
    }
}

async fn try_shard(
    local: &Local,
    node: NodeId,
    group: GroupId,
    request: &ShardRequest,
    timeout: Duration,
) -> Tried<ShardAnswer> {
    if node == local.node() {
        let Some(leader) = local.leader_of(group) else { return Tried::Elsewhere(None) };
        // Boxed: a future is moved by whoever awaits it, so a call is as slow as all that it may await is large.
        let served = Box::pin(leader.serve(request.clone()));
        return match tokio::time::timeout(timeout, served).await {
            Ok(answer) => Tried::Answer(answer),
            Err(_) => Tried::Unknown(format!("no answer within {} ms", timeout.as_millis())),
        };
    }
    send_request(local, node, CallKind::Shard, group, encode(request), timeout).await
}

/// One try over a link to another node.
async fn send_request<T: DeserializeOwned>(
    local: &Local,
    node: NodeId,
    kind: CallKind,
    group: GroupId,
    body: Bytes,
    timeout: Duration,
) -> Tried<T> {
    match local.member().call(node, kind, group, body, timeout).await {
        Ok(body) => match decode(&body) {
            Ok(answer) => Tried::Answer(answer),
            Err(error) => Tried::Unknown(format!("{node} answered nonsense: {error}")),
        },
        Err(error) if !error.is_certainly_undone() => Tried::Unknown(format!("{node}: {error}")),
        Err(error) => {
            tracing::debug!(%node, %group, %error, "a try failed");
            Tried::Elsewhere(None)
        }
    }
}
