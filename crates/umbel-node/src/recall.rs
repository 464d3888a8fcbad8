//! What the other nodes know of a node whose disk may have lost something: asked when it starts, told
//! when they notice it.
//!
//! Raft believes that a replica keeps what it has confirmed. A disk that loses a synced tail, or a folder
//! that was put back from an older copy, breaks that without a trace on the disk itself: a log that ends
//! early looks like any other. The others remember it, so:
//!
//! * A node that starts asks all others before its replicas take part in anything. A replica takes over
//!   the highest vote that it learns of, and if somebody knows of an entry that it confirmed, that it
//!   proposed as a leader, or that is committed, and that its log does not reach, that entry becomes its
//!   floor (`storage/wal/left.rs`): until its log reaches it, it does not stand for election and votes for
//!   none that lacks it. A leader counts itself for a majority, and nobody is asked to confirm that; a
//!   follower that has the entry may not know yet that it is committed.
//! * A leader that finds that a replica lacks what it confirmed in the same term notifies it of that.
//! * A copy of a replicated filter that has fewer of its own inserts than others know of does not open:
//!   it would give the numbers of those to others, which nobody would ask for.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use futures_util::future::join_all;
use umbel_engine::{FilterId, Generation, GroupId, NodeId};

use crate::calls::{RecallAnswer, RecallRequest, Standing, Standings};
use crate::metrics;
use crate::peer::{CallKind, Links};
use crate::raft::encoding::{decode, encode};
use crate::raft::types::{LogId, Vote};
use crate::storage::Storage;
use crate::witness::Witness;

/// How long a node that starts waits for what another one knows of it. Whoever is there answers from memory, if its processor
/// is not taken; whoever has no process refuses at once. Only a machine that is away costs a start so long.
pub(crate) const START_TIMEOUT: Duration = Duration::from_secs(3);

/// How long a node that is about to start more replicas waits for nodes that have not answered before. They are away as a
/// rule, and the replicas that run wait meanwhile for changes of the map.
pub(crate) const LATER_TIMEOUT: Duration = Duration::from_millis(500);

/// How long a replica may take to note on its disk that it lost something.
const TELL_TIMEOUT: Duration = Duration::from_secs(10);

/// What the others said when this node started.
#[derive(Default)]
pub(crate) struct Recollection {
    inner: Mutex<Inner>,
}

#[derive(Default)]
struct Inner {
    callers: BTreeSet<NodeId>,
    groups: BTreeMap<GroupId, (Option<Vote>, Option<LogId>)>,
    copies: BTreeMap<FilterId, KnownInserts>,
}

/// How many of this node's inserts into a replicated filter another node has.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct KnownInserts {
    pub(crate) by: NodeId,
    pub(crate) generation: Generation,
    pub(crate) count: u64,
}

impl Recollection {
    fn lock(&self) -> MutexGuard<'_, Inner> {
        // No holder of the lock panics, and the maps are whole after every statement.
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Asks all these nodes that have not answered yet, and those that they know of. Whoever does not
    /// answer now is not waited for: a cluster must start with some of its nodes away.
    ///
    /// # Errors
    /// If one of them says that this node was removed from the cluster; then it must not go on.
    pub(crate) async fn ask(
        &self,
        links: &Links,
        node: NodeId,
        mut nodes: BTreeMap<NodeId, String>,
        timeout: Duration,
    ) -> Result<(), String> {
        let mut asked: BTreeSet<NodeId> = self.lock().callers.clone();
        asked.insert(node);
        loop {
            nodes.retain(|other, _| !asked.contains(other));
            if nodes.is_empty() {
                return Ok(());
            }
            asked.extend(nodes.keys());
            let asks = std::mem::take(&mut nodes).into_iter().map(async |(other, address)| {
                let body = encode(&RecallRequest::Standings);
                let called =
                    links.call(other, &address, CallKind::Recall, GroupId::META, body, timeout);
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
                    nodes.extend(self.lock().take(other, standings));
                }
            }
        }
    }

    /// Has a group's log take over what was learned of its replica here.
    ///
    /// # Errors
    /// If the log has failed.
    pub(crate) async fn restore(&self, storage: &Storage, group: GroupId) -> io::Result<()> {
        let Some((vote, confirmed)) = self.lock().groups.get(&group).copied() else {
            return Ok(());
        };
        let log = storage.log(group);
        let last = log.last_id();
        log.recall(vote, confirmed).await?;
        if let Some(confirmed) = confirmed.filter(|confirmed| last < Some(*confirmed)) {
            metrics::replica_behind();
            let ours = last.map_or(0, |last| last.index);
            tracing::warn!(
                %group, ours, known = confirmed.index,
                "other nodes know of entries of this replica that its log lacks: it does not vote for \
                 whoever lacks them, and does not lead, until it has them"
            );
        }
        Ok(())
    }

    /// What others have of this node's inserts into a replicated filter, the most of all.
    pub(crate) fn inserts(&self, filter: FilterId) -> Option<KnownInserts> {
        self.lock().copies.get(&filter).copied()
    }
}

impl Inner {
    /// Takes what a node said; the nodes that it knows of.
    fn take(&mut self, by: NodeId, standings: Standings) -> Vec<(NodeId, String)> {
        self.callers.insert(by);
        for Standing { group, vote, last } in standings.groups {
            let known = self.groups.entry(group).or_default();
            // Who leads by that vote, if anybody does, says so itself.
            let vote = vote.map(|vote| Vote { committed: false, ..vote });
            if known.0 < vote {
                known.0 = vote;
            }
            known.1 = known.1.max(last);
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

/// What this node knows of the replicas of one that starts, from its disk and its memory.
pub(crate) fn standings_of(node: NodeId, storage: &Storage, witness: &Witness) -> Vec<Standing> {
    let mut confirmed = witness.recall(node);
    let groups = storage.groups().into_iter().filter(|group| group.copy().is_none());
    groups
        .map(|group| {
            let (vote, last) = storage.log(group).standing_of(node);
            Standing { group, vote, last: confirmed.remove(&group).max(last) }
        })
        .collect()
}

/// Notifies a replica that it lacks what it confirmed to this node, and notes its acknowledgement.
pub(crate) async fn notify_lost(
    links: Arc<Links>,
    witness: Arc<Witness>,
    (node, address): (NodeId, String),
    group: GroupId,
    lost: LogId,
) {
    let body = encode(&RecallRequest::Lost { confirmed: lost });
    let called = links.call(node, &address, CallKind::Recall, group, body, TELL_TIMEOUT).await;
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
