//! Whether a node should get traffic: it must be in touch with the cluster, and its replicas must run, know their
//! leaders, and follow them. Groups without a majority are named, but no reason to send calls elsewhere, and neither is
//! an election.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use futures_util::future::join_all;
use tokio::sync::Mutex;
use tokio::time::Instant;
use umbel_engine::placement::ShardRecord;
use umbel_engine::{GroupId, NodeId};
use umbel_ports::locked;
use umbel_raft::peer::CallKind;
use umbel_raft::{Group, committed_in, request_committed};
use umbel_storage::WalHealth;

use super::Local;
use crate::awaited::named;

mod elections;

use elections::Elections;

/// How long an answer is reused: each leader is asked once in that time, however often the node is
/// checked.
const ANSWER_STANDS: Duration = Duration::from_millis(500);

/// How long a leader may take to report its commit index.
const LEADER_TIMEOUT: Duration = Duration::from_millis(1000);

/// How long replicas may take to apply what was committed when their leaders were asked.
const FOLLOW_TIMEOUT: Duration = Duration::from_millis(1000);

/// Whether a node should get traffic, and what it cannot serve.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Readiness {
    /// Why the node should get no traffic; None if it should.
    pub why_not: Option<String>,
    /// The groups of the node's replicas of whose voters it hears no majority, the meta group first. Calls that need
    /// them fail here, and at all other nodes, too, unless some of these hear a majority.
    pub no_majority: Vec<GroupId>,
    /// The voters of these groups that it does not hear, with their addresses: those to be started, or to be connected again.
    pub unheard: BTreeMap<NodeId, String>,
}

impl fmt::Display for Readiness {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.why_not.as_deref().unwrap_or("ready"))?;
        for (index, group) in self.no_majority.iter().enumerate() {
            let before = if index == 0 { "\nno majority of: " } else { ", " };
            write!(f, "{before}{group}")?;
        }
        if self.unheard.is_empty() {
            Ok(())
        } else {
            write!(f, "\nnot heard: {}", listed(&self.unheard))
        }
    }
}

/// Nodes by numbers and addresses, up to a limit.
fn listed(nodes: &BTreeMap<NodeId, String>) -> String {
    let texts: Vec<String> =
        nodes.iter().map(|(node, address)| format!("{node} ({address})")).collect();
    named(&texts.iter().map(String::as_str).collect::<Vec<_>>())
}

/// The groups whose leaders do not say what is committed, each with the reason; or what the replica of another group
/// lacks.
type Followed = Result<BTreeMap<GroupId, String>, String>;

/// What the checks of a node remember.
#[derive(Default)]
pub(super) struct Checks {
    /// The last answer of the leaders; its lock lets one check run at a time.
    followed: Mutex<Option<(Instant, Followed)>>,
    /// Since when the node has been in touch with the cluster, as the checks saw it.
    in_touch_since: std::sync::Mutex<Option<Instant>>,
    /// The elections that are waited for.
    elections: std::sync::Mutex<Elections>,
}

impl Local {
    /// Checks whether this node should get traffic.
    pub async fn readiness(&self) -> Readiness {
        let groups = self.groups().into_iter();
        let (heard, lost): (Vec<_>, Vec<_>) = groups.partition(|group| group.hears_majority());
        let why_not = self.check(&heard, &lost).await.err();
        let unheard = lost.iter().flat_map(|group| group.unheard_voters()).collect();
        Readiness { why_not, no_majority: lost.iter().map(|group| group.id()).collect(), unheard }
    }

    /// The voters of the meta group that this node does not hear; empty if it hears all of them.
    pub(crate) fn unheard_of_meta(&self) -> String {
        listed(&self.meta.unheard_voters())
    }

    /// Whether this node should get traffic, given the groups of which it hears a majority, and the others.
    async fn check(&self, heard: &[Arc<Group>], lost: &[Arc<Group>]) -> Result<(), String> {
        self.runs_all()?;
        self.is_in_touch(lost)?;
        let why = |id: GroupId| (id, format!("{id} has no leader that this node knows"));
        let leaderless = heard.iter().filter(|group| group.leader().is_none());
        let mut leaderless: BTreeMap<GroupId, String> =
            leaderless.map(|group| why(group.id())).collect();
        // A node that is starting asks no leaders before all groups have one, because their answers are reused.
        let waits = locked(&self.checks.elections).was_ready();
        if let Some(why) = leaderless.values().next().filter(|_| !waits) {
            return Err(why.clone());
        }
        // What a replica has lost is no matter of who is heard, so that of a group without a majority counts.
        let lacking = |group: &Arc<Group>| Some((group.id(), group.lacking()?));
        let followed = match heard.iter().chain(lost).find_map(lacking) {
            Some((group, why)) => Err(format!("{group}: {why}")),
            None => self.followed(heard).await,
        };
        match followed {
            Ok(unanswered) => {
                leaderless.extend(unanswered);
                locked(&self.checks.elections).judge(
                    &leaderless,
                    Instant::now(),
                    self.beats().election(),
                )
            }
            Err(why) => {
                locked(&self.checks.elections).keep(&leaderless);
                Err(why)
            }
        }
    }

    /// Whether these replicas follow their leaders, which are asked unless they were asked a moment ago.
    async fn followed(&self, groups: &[Arc<Group>]) -> Followed {
        let mut last = self.checks.followed.lock().await;
        if let Some((at, answer)) = &*last
            && at.elapsed() < ANSWER_STANDS
        {
            return answer.clone();
        }
        let answer = self.follows_all(groups).await;
        *last = Some((Instant::now(), answer.clone()));
        answer
    }

    /// Whether all replicas run.
    fn runs_all(&self) -> Result<(), String> {
        if self.is_stopping.load(Ordering::Relaxed) {
            return Err("the node is stopping".to_owned());
        }
        if *self.storage.health().borrow() == WalHealth::Failed {
            return Err("the log failed".to_owned());
        }
        if self.space.is_folder_gone() {
            return Err("the data folder is gone".to_owned());
        }
        if self.host.is_stalled() {
            return Err("the disk of the data folder does not return from a write".to_owned());
        }
        let wanted = self.read_meta(|state| {
            state.is_formed().then(|| {
                let has = |record: &ShardRecord| record.members().contains(&self.node);
                state.shards().filter(|(_, record)| has(record)).count()
            })
        });
        let Some(wanted) = wanted else {
            return Err("the cluster is not formed, or this node has not heard of it".to_owned());
        };
        let running = self.shards().len();
        if running < wanted {
            return Err(format!("{running} of {wanted} replicas are running"));
        }
        Ok(())
    }

    /// Whether this node is in touch with the cluster, so that what it does not hear is most likely lost to the other
    /// nodes, too. It is if it hears a majority of the meta group, of which there is one only, or of all nodes.
    fn is_in_touch(&self, lost: &[Arc<Group>]) -> Result<(), String> {
        let nodes = self.addresses();
        let heard_count = nodes.keys().filter(|&&node| self.is_alive(node)).count();
        // No holder of the lock panics.
        let mut since = locked(&self.checks.in_touch_since);
        if !self.meta.hears_majority() && 2 * heard_count <= nodes.len() {
            *since = None;
            locked(&self.checks.elections).forget();
            return Err(format!(
                "this node hears {heard_count} of {} nodes, itself included: it may be cut off",
                nodes.len()
            ));
        }
        let in_touch = since.get_or_insert_with(Instant::now).elapsed();
        match lost.first() {
            // A node that has just started has not heard all others yet.
            Some(group) if in_touch < self.beats().election() => {
                Err(format!("{}: this node does not hear a majority yet", group.id()))
            }
            _ => Ok(()),
        }
    }

    /// Whether these replicas have applied what is committed now.
    async fn follows_all(&self, groups: &[Arc<Group>]) -> Followed {
        let leaders: BTreeSet<NodeId> = groups.iter().filter_map(|group| group.leader()).collect();
        let others = leaders.into_iter().filter(|&leader| leader != self.node);
        let asked = others.map(|leader| async move { (leader, self.committed_by(leader).await) });
        let mut committed = BTreeMap::new();
        let mut failures = BTreeMap::new();
        for (leader, answer) in join_all(asked).await {
            match answer {
                Ok(of_leader) => committed.extend(of_leader),
                Err(why) => drop(failures.insert(leader, why)),
            }
        }
        let follow = groups.iter().map(|group| {
            let (committed, failures) = (&committed, &failures);
            async move { self.follows(group, committed, failures).await }
        });
        join_all(follow).await.into_iter().filter_map(Result::transpose).collect()
    }

    /// Whether this replica has applied what is committed: if its leader does not say what is, the group with the reason.
    async fn follows(
        &self,
        group: &Arc<Group>,
        committed: &BTreeMap<GroupId, u64>,
        failures: &BTreeMap<NodeId, String>,
    ) -> Result<Option<(GroupId, String)>, String> {
        let id = group.id();
        let leader = group.leader();
        if leader == Some(self.node) {
            return Ok(None);
        }
        if let Some((leader, why)) =
            leader.and_then(|leader| Some((leader, failures.get(&leader)?)))
        {
            let why = format!("{id}: its leader, {leader}, does not say what is committed: {why}");
            return Ok(Some((id, why)));
        }
        let Some(&index) = committed.get(&id) else {
            return Ok(Some((id, format!("{id}: it has a new leader, or none"))));
        };
        let mut applied = group.replica().applied_index();
        let reached = applied.wait_for(|&applied| applied >= index);
        let is_there = matches!(tokio::time::timeout(FOLLOW_TIMEOUT, reached).await, Ok(Ok(_)));
        if is_there {
            return Ok(None);
        }
        let got = group.applied_index();
        Err(format!("{id}: this replica has applied entries up to {got}, {index} are committed"))
    }

    async fn committed_by(&self, leader: NodeId) -> Result<Vec<(GroupId, u64)>, String> {
        let body = request_committed();
        let called =
            self.member.call(leader, CallKind::Recall, GroupId::META, body, LEADER_TIMEOUT).await;
        committed_in(&called.map_err(|error| error.to_string())?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Node;
    use crate::testing::{deadline, start_cluster};

    #[test]
    fn groups_without_a_majority_are_named_whether_ready_or_not() {
        let mut readiness = Readiness::default();
        assert_eq!(readiness.to_string(), "ready");
        // The shard had its number from an earlier one, which readers need not know.
        let shard = GroupId::of_shard_in(umbel_engine::ShardId(4), 16);
        readiness.no_majority = vec![GroupId::META, shard];
        assert_eq!(readiness.to_string(), "ready\nno majority of: meta group, shard 4");
        readiness.why_not = Some("the log failed".to_owned());
        assert_eq!(readiness.to_string(), "the log failed\nno majority of: meta group, shard 4");
        readiness.unheard = (2..4).map(|node| (NodeId(node), format!("n{node}:1"))).collect();
        let text = readiness.to_string();
        assert!(text.ends_with("shard 4\nnot heard: node 2 (n2:1), node 3 (n3:1)"), "{text}");
    }

    /// Waits until all these nodes say this of themselves.
    async fn until_all_say(nodes: &[Node], says: impl Fn(NodeId, &Readiness) -> bool) {
        for node in nodes {
            let number = node.local().node();
            let until = deadline();
            loop {
                let said = node.local().readiness().await;
                if says(number, &said) {
                    break;
                }
                assert!(Instant::now() < until, "{number}: {said}");
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        }
    }

    /// Two of five nodes are down, so that the third replica of a shard is alone.
    #[tokio::test(flavor = "multi_thread")]
    async fn a_shard_without_a_majority_leaves_nodes_ready_and_a_node_that_is_cut_off_is_not() {
        let folders = [(); 5].map(|()| tempfile::tempdir().unwrap());
        let nodes = start_cluster(&folders).await;
        until_all_say(&nodes, |_, said| *said == Readiness::default()).await;
        let records = nodes[0].local().read_meta(|state| {
            let record = |(_, record): (_, &ShardRecord)| (record.shard, record.members());
            state.shards().map(record).collect::<Vec<_>>()
        });
        let down = [records[0].1[0], records[0].1[1]];
        let gone = BTreeSet::from(down);
        let (stopped, mut nodes): (Vec<_>, Vec<_>) =
            nodes.into_iter().partition(|node| down.contains(&node.local().node()));
        join_all(stopped.into_iter().map(Node::shutdown)).await;
        let lost_to = |node: NodeId| {
            let is_lost =
                |members: &[NodeId]| down.iter().chain([&node]).all(|node| members.contains(node));
            let lost = records.iter().filter(|(_, members)| is_lost(members));
            lost.map(|&(shard, _)| GroupId::of_shard(shard)).collect::<Vec<_>>()
        };
        assert!(nodes.iter().any(|node| !lost_to(node.local().node()).is_empty()));
        until_all_say(&nodes, |node, said| {
            let lost = lost_to(node);
            let unheard = if lost.is_empty() { BTreeSet::new() } else { gone.clone() };
            said.why_not.is_none() && said.no_majority == lost && said.unheard.keys().eq(&unheard)
        })
        .await;
        nodes.remove(0).shutdown().await;
        until_all_say(&nodes, |_, said| {
            let why_not = said.why_not.as_deref().unwrap_or_default();
            why_not.starts_with("this node hears 2 of 5 nodes")
                && said.no_majority.first() == Some(&GroupId::META)
        })
        .await;
        join_all(nodes.into_iter().map(Node::shutdown)).await;
    }
}
