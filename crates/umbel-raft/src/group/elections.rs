//! Elections: requesting and granting votes, transferring leadership.
//!
//! openraft runs no timers and starts no elections here: the node's failure detector decides when
//! ([`umbel_engine::liveness`]).

use std::collections::BTreeSet;
use std::future::pending;
use std::sync::atomic::Ordering;
use std::time::Duration;

use futures_util::StreamExt as _;
use futures_util::stream::FuturesUnordered;
use openraft::raft::{VoteRequest, VoteResponse};
use openraft::vote::leader_id_adv::LeaderId;
use openraft_rt::WatchReceiver;
use umbel_engine::NodeId;
use umbel_engine::liveness::{GroupStanding, is_majority};
use umbel_step::planted::{self, Planted};
use umbel_storage::types::{LogId, Types, Vote};

use super::{Group, leader_of};

/// Entries that the target of a leadership transfer may lack; sending them takes less than one more
/// round trip.
const HAND_OVER_LAG_MAX: u64 = 64;

impl Group {
    /// The replica's state as the failure detector needs it, with the group's home by the shard map.
    pub(crate) fn standing(&self, home: Option<NodeId>) -> GroupStanding {
        let metrics = self.raft.metrics();
        let metrics = metrics.borrow_watched();
        let is_leader = metrics.state.is_leader();
        if !is_leader {
            self.is_handing_over.store(false, Ordering::Relaxed);
        }
        let is_handing_over = self.is_handing_over.load(Ordering::Relaxed);
        // A replica that a membership change removes may have to lead until that change is committed.
        let voters = metrics.membership_config.membership();
        let committed = metrics.committed_membership_config.membership();
        // The sets themselves, because `voter_ids` makes their union, and this is asked of every group at every beat.
        let mut sets = voters.get_joint_config().iter().chain(committed.get_joint_config());
        let is_voter = sets.any(|set| set.contains(&metrics.id));
        GroupStanding {
            group: self.id,
            term: metrics.current_term,
            leader: leader_of(&metrics).filter(|_| !is_handing_over),
            is_leader: is_leader && !is_handing_over,
            committed_index: metrics.cluster_committed.map_or(0, |id| id.index),
            may_lead: !is_handing_over && self.is_whole(),
            is_voter,
            voters: voters.get_joint_config().clone(),
            home,
        }
    }

    /// Whether the log holds every entry that this replica once confirmed. Before that it must not
    /// stand: with an old list of voters from the entries that it is being sent, it could elect itself
    /// on its outdated log.
    fn is_whole(&self) -> bool {
        self.log.floor().is_none() || planted::on(Planted::LostTailVotes)
    }

    /// Sends pre-vote requests to the voters, and stands for election if a majority would vote for this
    /// replica.
    pub async fn stand(&self) {
        let standing = self.standing(None);
        let own = *self.raft.node_id();
        let leader_id = LeaderId { term: standing.term + 1, node_id: own };
        let request = VoteRequest::new(Vote { leader_id, committed: false }, self.log.last_id());
        let mut granted = BTreeSet::from([own]);
        let others = voters_asked(&standing.voters, own, |voter| self.beats.is_suspected(voter));
        let ask = |voter: NodeId| {
            let (request, timeout) = (request.clone(), self.beats.suspicion());
            async move {
                let address = self.address_of(voter)?;
                let asked = self.network.request_pre_vote(voter, &address, &request, timeout).await;
                asked.ok().filter(|answer| answer.vote_granted).map(|_| voter)
            }
        };
        let mut answers: FuturesUnordered<_> = others.into_iter().map(ask).collect();
        while !is_majority(&standing.voters, |voter| granted.contains(&voter)) {
            match answers.next().await {
                Some(answer) => granted.extend(answer),
                None => return,
            }
        }
        // A stopped group cannot stand for election; its failure is reported elsewhere.
        let _ = self.raft.trigger().elect(false).await;
    }

    /// Returns once this replica knows a leader that is alive, and is another node than `tried` or leads a later term
    /// than when the call began. Never returns if the group stops.
    pub async fn leader_other_than(&self, tried: NodeId) {
        let mut metrics = self.raft.metrics();
        let term = metrics.borrow_watched().current_term;
        loop {
            let is_known = {
                let now = metrics.borrow_watched();
                leader_of(&now).is_some_and(|leader| {
                    let is_other = leader != tried || now.current_term != term;
                    is_other && !self.beats.is_suspected(leader)
                })
            };
            if is_known {
                return;
            }
            if metrics.changed().await.is_err() {
                pending::<()>().await;
            }
        }
    }

    /// Sends the followers a heartbeat with the commit index.
    pub(crate) async fn remind(&self) {
        // A stopped group has nothing to send; its failure is reported elsewhere.
        let _ = self.raft.trigger().heartbeat().await;
    }

    /// Whether this replica would vote for the candidate. It promises nothing by that.
    ///
    /// Terms are not compared: a candidate that has missed some learns of them when it stands.
    pub(crate) fn pre_vote(
        &self,
        request: &VoteRequest<Types>,
    ) -> Result<VoteResponse<Types>, String> {
        self.check_term(&request.vote)?;
        self.check_caught_up(request.last_log_id)?;
        self.check_vacant(request)?;
        let last = self.log.last_id();
        let vote = self.raft.metrics().borrow_watched().vote;
        Ok(VoteResponse::new(vote, last, request.last_log_id >= last))
    }

    /// Grants or refuses a vote.
    pub(crate) async fn vote(
        &self,
        mut request: VoteRequest<Types>,
    ) -> Result<VoteResponse<Types>, String> {
        self.check_term(&request.vote)?;
        self.check_caught_up(request.last_log_id)?;
        self.check_vacant(&request)?;
        // Skips openraft's own lease, which depends on time alone and ignores that a leader may be
        // gone.
        request.leadership_transfer = true;
        self.raft.vote(request).await.map_err(|error| error.to_string())
    }

    /// Refuses a vote while the node has a live leader, unless the candidate stands because of a
    /// leadership transfer.
    fn check_vacant(&self, request: &VoteRequest<Types>) -> Result<(), String> {
        let candidate = request.vote.leader_id.node_id;
        if !request.leadership_transfer
            && self.beats.has_live_leader(self.id, self.term(), candidate)
        {
            return Err("a live node leads the group".to_owned());
        }
        Ok(())
    }

    /// A replica whose log lacks entries that it once acknowledged votes as if its log held them: only
    /// for a candidate whose log reaches that far.
    pub(super) fn check_caught_up(&self, candidates_last: Option<LogId>) -> Result<(), String> {
        match self.log.floor() {
            Some(floor)
                if candidates_last < Some(floor) && !planted::on(Planted::LostTailVotes) =>
            {
                Err(format!("the replica lacks entries up to {floor} that it had confirmed"))
            }
            _ => Ok(()),
        }
    }

    /// If this node leads, transfers leadership, because the node is to stop: if possible, to a voter whose links with
    /// this node work both ways, and otherwise to any that is heard, since a transfer that fails costs no more than none.
    pub async fn hand_over(&self) {
        let mut heard = self.followers(|_| true);
        heard.retain(|&(voter, _)| !self.beats.is_suspected(voter));
        let linked = self.beats.successors(names(&heard));
        if let Some(to) = self.one_of(&heirs(&heard, &linked)) {
            self.transfer(to).await;
        }
    }

    /// If this node leads, and continues if it cannot hand over, transfers leadership to the one with the longest log
    /// among the voters that may lead and whose links with this node work both ways. Returns false if there is none, or
    /// this node does not lead: then nothing was changed. A transfer to a voter that gets no votes would leave the group
    /// without entries for the rest of the term.
    pub(super) async fn hand_over_among(&self, may_lead: impl Fn(NodeId) -> bool) -> bool {
        let mut voters = self.followers(may_lead);
        let linked = self.beats.successors(names(&voters));
        voters.retain(|(voter, _)| linked.contains(voter));
        let to = self.one_of(&with_longest_log(&voters));
        let Some(to) = to else { return false };
        self.transfer(to).await;
        true
    }

    /// The other voters that may lead; none if this node does not lead.
    fn followers(&self, may_lead: impl Fn(NodeId) -> bool) -> Vec<Follower> {
        let metrics = self.raft.metrics();
        let metrics = metrics.borrow_watched();
        let Some(replication) = metrics.replication.as_ref() else { return Vec::new() };
        let entries = |voter: NodeId| {
            let matched = replication.get(&voter).copied().flatten();
            (voter, matched.map_or(0, |last| last.index + 1))
        };
        let voters = metrics.membership_config.membership().voter_ids();
        let is_able = |&voter: &NodeId| voter != metrics.id && may_lead(voter);
        voters.filter(is_able).map(entries).collect()
    }

    /// One of these nodes, by the group's number, which spreads leaders over nodes.
    fn one_of(&self, nodes: &[NodeId]) -> Option<NodeId> {
        let turn = (self.id.number() as usize).checked_rem(nodes.len())?;
        nodes.get(turn).copied()
    }

    /// If this node leads, transfers leadership to the group's home node, if that node's log is almost
    /// as long.
    pub(crate) async fn hand_home(&self, to: NodeId) {
        let is_close = {
            let metrics = self.raft.metrics();
            let metrics = metrics.borrow_watched();
            let last = metrics.last_log_index.unwrap_or(0);
            let matched = metrics.replication.as_ref().and_then(|all| *all.get(&to)?);
            matched.is_some_and(|id| id.index + HAND_OVER_LAG_MAX >= last)
        };
        if is_close {
            self.transfer(to).await;
        }
    }

    /// openraft accepts no proposals from here on, whatever the outcome: so the group counts as without
    /// a leader until one is elected in another term.
    async fn transfer(&self, to: NodeId) {
        self.is_handing_over.store(true, Ordering::Relaxed);
        // If the transfer fails, the other replicas elect a leader.
        let _ = self.raft.trigger().transfer_leader(to).await;
    }

    /// Waits until an ongoing leadership transfer is complete or `timeout` has passed; returns at once
    /// if there is none.
    pub async fn handed_over(&self, timeout: Duration) {
        if self.is_handing_over.load(Ordering::Relaxed) {
            let _ = tokio::time::timeout(timeout, self.leadership_lost()).await;
        }
    }
}

/// A voter, and the number of the leader's entries that it is known to have.
type Follower = (NodeId, u64);

fn names(voters: &[Follower]) -> Vec<NodeId> {
    voters.iter().map(|&(voter, _)| voter).collect()
}

fn with_longest_log(voters: &[Follower]) -> Vec<NodeId> {
    let longest = voters.iter().map(|&(_, entries)| entries).max();
    let has_longest = |&&(_, entries): &&Follower| Some(entries) == longest;
    voters.iter().filter(has_longest).map(|&(voter, _)| voter).collect()
}

/// The voters to one of which a leader that stops gives leadership, of those that are heard: the ones with the longest
/// log among the `linked`, whose links with this node work both ways. If all of these lack more entries than a transfer
/// waits for, or there are none, the ones with the longest log of all.
fn heirs(heard: &[Follower], linked: &[NodeId]) -> Vec<NodeId> {
    let longest = heard.iter().map(|&(_, entries)| entries).max().unwrap_or(0);
    let is_close = |&(voter, entries): &Follower| {
        linked.contains(&voter) && entries + HAND_OVER_LAG_MAX >= longest
    };
    let close: Vec<Follower> = heard.iter().copied().filter(is_close).collect();
    with_longest_log(if close.is_empty() { heard } else { &close })
}

/// The voters that a replica asks before it stands: all others but the suspected ones, whose timeouts would
/// delay the end of this attempt even if all others have refused, and no new attempt could begin before.
fn voters_asked(
    voters: &[BTreeSet<NodeId>],
    own: NodeId,
    is_suspected: impl Fn(NodeId) -> bool,
) -> BTreeSet<NodeId> {
    let is_asked = |voter: &NodeId| *voter != own && !is_suspected(*voter);
    voters.iter().flatten().copied().filter(is_asked).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn nodes(numbers: &[u64]) -> BTreeSet<NodeId> {
        numbers.iter().copied().map(NodeId).collect()
    }

    #[test]
    fn a_leader_that_stops_gives_leadership_to_a_linked_voter_if_its_log_is_long_enough() {
        let heirs = |heard: &[(u64, u64)], linked: &[u64]| {
            let heard: Vec<Follower> =
                heard.iter().map(|&(node, entries)| (NodeId(node), entries)).collect();
            let linked: Vec<NodeId> = linked.iter().copied().map(NodeId).collect();
            let heirs = heirs(&heard, &linked);
            heirs.into_iter().map(|node| node.0).collect::<Vec<u64>>()
        };
        let most = 1_000;
        let (close, far) = (most - HAND_OVER_LAG_MAX, most - HAND_OVER_LAG_MAX - 1);
        assert_eq!(heirs(&[(2, most), (3, most), (4, close)], &[2, 3, 4]), [2, 3]);
        assert_eq!(heirs(&[(2, most), (3, most), (4, close)], &[3, 4]), [3]);
        assert_eq!(heirs(&[(2, most), (4, close)], &[4]), [4]);
        assert_eq!(heirs(&[(2, most), (4, far)], &[4]), [2], "node 4 would get no votes either");
        assert_eq!(heirs(&[(2, most), (3, close)], &[]), [2], "rather than to nobody");
        assert_eq!(heirs(&[(2, 0), (3, 0)], &[3]), [3]);
        assert!(heirs(&[], &[]).is_empty());
    }

    #[test]
    fn suspected_voters_are_not_asked_for_their_votes() {
        let asked = |voters: &[&[u64]], suspected: &[u64]| {
            let voters: Vec<BTreeSet<NodeId>> = voters.iter().copied().map(nodes).collect();
            let suspected = nodes(suspected);
            voters_asked(&voters, NodeId(1), |voter| suspected.contains(&voter))
        };
        assert_eq!(asked(&[&[1, 2, 3]], &[]), nodes(&[2, 3]));
        assert_eq!(asked(&[&[1, 2, 3]], &[2]), nodes(&[3]));
        // While voters change, those of both lists are asked.
        assert_eq!(asked(&[&[1, 2, 3], &[1, 3, 4]], &[3]), nodes(&[2, 4]));
        // Of the last list the replica itself is no member.
        assert_eq!(asked(&[&[1, 2], &[2, 3]], &[2, 3]), nodes(&[]));
    }
}
