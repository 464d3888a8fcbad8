//! Whether a node should get traffic: its replicas must run, know their leaders, and follow them.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use futures_util::future::join_all;
use tokio::sync::Mutex;
use tokio::time::Instant;
use umbel_engine::placement::ShardRecord;
use umbel_engine::{GroupId, NodeId};
use umbel_raft::peer::CallKind;
use umbel_raft::{Group, committed_in};
use umbel_storage::WalHealth;

use super::Local;

/// How long an answer is reused: each leader is asked once in that time, however often the node is
/// checked.
const ANSWER_STANDS: Duration = Duration::from_millis(500);

/// How long a leader may take to report its commit index.
const LEADER_TIMEOUT: Duration = Duration::from_millis(1000);

/// How long replicas may take to apply what was committed when their leaders were asked.
const FOLLOW_TIMEOUT: Duration = Duration::from_millis(1000);

/// The last answer; its lock lets one check run at a time.
#[derive(Default)]
pub(super) struct Readiness(Mutex<Option<(Instant, Result<(), String>)>>);

impl Local {
    /// Checks whether this node should get traffic.
    ///
    /// # Errors
    /// If it should not: why.
    pub async fn is_ready(&self) -> Result<(), String> {
        self.runs_all()?;
        let mut last = self.readiness.0.lock().await;
        if let Some((at, answer)) = &*last
            && at.elapsed() < ANSWER_STANDS
        {
            return answer.clone();
        }
        let answer = self.follows_all().await;
        *last = Some((Instant::now(), answer.clone()));
        answer
    }

    /// Whether all replicas run and know their leaders.
    fn runs_all(&self) -> Result<(), String> {
        if self.is_stopping.load(Ordering::Relaxed) {
            return Err("the node is stopping".to_owned());
        }
        if *self.storage.health().borrow() == WalHealth::Failed {
            return Err("the log failed".to_owned());
        }
        let wanted = self.meta.replica().read_meta(|state| {
            state.is_formed().then(|| {
                let has = |record: &ShardRecord| record.members().contains(&self.node);
                state.shards().filter(|(_, record)| has(record)).count()
            })
        });
        let Some(wanted) = wanted else {
            return Err("the cluster is not formed, or this node has not heard of it".to_owned());
        };
        let shards = self.shards();
        if shards.len() < wanted {
            return Err(format!("{} of {wanted} replicas are running", shards.len()));
        }
        let groups = self.groups();
        if let Some(group) = groups.iter().find(|group| group.leader().is_none()) {
            return Err(format!("{} has no leader that this node knows", group.id()));
        }
        match groups.iter().find_map(|group| Some((group.id(), group.lacking()?))) {
            Some((group, why)) => Err(format!("{group}: {why}")),
            None => Ok(()),
        }
    }

    /// Whether all replicas have applied what is committed now.
    async fn follows_all(&self) -> Result<(), String> {
        let leaders: BTreeSet<NodeId> =
            self.groups().iter().filter_map(|group| group.leader()).collect();
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
        let follow = self.groups().into_iter().map(|group| {
            let (committed, failures) = (&committed, &failures);
            async move { self.follows(&group, committed, failures).await }
        });
        join_all(follow).await.into_iter().collect()
    }

    async fn follows(
        &self,
        group: &Arc<Group>,
        committed: &BTreeMap<GroupId, u64>,
        failures: &BTreeMap<NodeId, String>,
    ) -> Result<(), String> {
        let id = group.id();
        let leader = group.leader();
        if leader == Some(self.node) {
            return Ok(());
        }
        if let Some((leader, why)) =
            leader.and_then(|leader| Some((leader, failures.get(&leader)?)))
        {
            return Err(format!(
                "{id}: its leader, {leader}, does not say what is committed: {why}"
            ));
        }
        let Some(&index) = committed.get(&id) else {
            return Err(format!("{id}: it has a new leader, or none"));
        };
        let mut applied = group.replica().applied_index();
        let reached = applied.wait_for(|&applied| applied >= index);
        let is_there = matches!(tokio::time::timeout(FOLLOW_TIMEOUT, reached).await, Ok(Ok(_)));
        if is_there {
            return Ok(());
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
