//! Confirms that this node still leads its groups: one question to each other node about all groups
//! whose reads wait.
//!
//! A leader may answer a read from its own state if no later leader was elected before the read arrived
//! (`ReadIndex`, section 6.4 of D. Ongaro, *Consensus: Bridging Theory and Practice*, 2014). So after the
//! read arrived, the voters are asked whether they still follow this leader. Votes only rise: if a later
//! leader had been elected, a voter of every majority would have voted for it, and would deny.
//!
//! openraft asks the same by a heartbeat of the one group, which takes its tasks on three nodes. A node
//! leads many groups, each with a few reads at a time, so here groups share the messages, and only a
//! group without a majority of yes asks by itself.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use bytes::Bytes;
use futures_util::StreamExt as _;
use futures_util::stream::FuturesUnordered;
use tokio::sync::{mpsc, oneshot};
use tokio::time::timeout;
use umbel_engine::liveness::is_majority;
use umbel_engine::{GroupId, NodeId};
use umbel_ports::encoding::{decode, encode};
use umbel_storage::types::Vote;

use crate::beats::Beats;
use crate::peer::{CallKind, Links};

#[cfg(test)]
mod read_rounds_test;

/// Claims that may wait for the next round. A group makes one at a time, so more are groups of a node
/// with more shards than a cluster may have.
const CLAIMS_MAX: usize = 1024;

/// A leader's claim that no later leader has been elected in its group.
#[derive(Clone, Debug)]
pub(crate) struct Claim {
    pub(crate) group: GroupId,
    /// The vote with which this node leads, and which it has not replaced.
    pub(crate) vote: Vote,
    /// The voters: two sets while they change.
    pub(crate) voters: Vec<BTreeSet<NodeId>>,
    /// The addresses of all members.
    pub(crate) addresses: BTreeMap<NodeId, String>,
}

/// A claim whose group waits for the outcome.
struct WaitingClaim {
    claim: Claim,
    outcome: oneshot::Sender<bool>,
}

/// The rounds of a node, one at a time: claims that are made during a round go into the next one.
#[derive(Clone)]
pub(crate) struct ReadRounds {
    queue: mpsc::Sender<WaitingClaim>,
}

impl ReadRounds {
    /// Starts the rounds of node `own`; they end when the last clone of the result is dropped.
    pub(crate) fn start(own: NodeId, links: Arc<Links>, beats: Arc<Beats>) -> Self {
        let (queue, waiting) = mpsc::channel(CLAIMS_MAX);
        tokio::spawn(run(own, links, beats, waiting));
        Self { queue }
    }

    /// Whether a majority of the voters confirmed the claim after the call. False means that nothing is
    /// known.
    pub(crate) async fn confirm(&self, claim: Claim) -> bool {
        let (outcome, decided) = oneshot::channel();
        let sent = self.queue.send(WaitingClaim { claim, outcome }).await;
        sent.is_ok() && decided.await.unwrap_or(false)
    }
}

async fn run(
    own: NodeId,
    links: Arc<Links>,
    beats: Arc<Beats>,
    mut queue: mpsc::Receiver<WaitingClaim>,
) {
    let mut claims = Vec::new();
    // A node that hangs must not delay groups that do not need it, for longer than half of the time
    // after which it is suspected, and is not asked any more.
    let patience = beats.suspicion() / 2;
    while queue.recv_many(&mut claims, CLAIMS_MAX).await > 0 {
        let mut round = Round::new(own, std::mem::take(&mut claims));
        let questions = round.questions(|node| !beats.is_suspected(node));
        let mut answers: FuturesUnordered<_> = questions
            .into_iter()
            .map(async |Question { to, address, body, claims }| {
                let (kind, group) = (CallKind::ConfirmReads, GroupId::META);
                let called = links.call(to, &address, kind, group, body, patience).await;
                (to, claims, called)
            })
            .collect();
        let all = async {
            while !round.is_decided()
                && let Some((from, claims, called)) = answers.next().await
            {
                match called {
                    Ok(answer) => round.take(from, &claims, &answer),
                    Err(error) => tracing::debug!(%from, %error, "leadership was not confirmed"),
                }
            }
        };
        // Claims that are undecided are dropped with the round.
        let _ = timeout(patience, all).await;
    }
}

/// What a node is asked in a round.
#[derive(Debug)]
struct Question {
    to: NodeId,
    address: String,
    body: Bytes,
    /// The claims in the body, by their index in the round.
    claims: Vec<usize>,
}

/// The claims of one round, and who has confirmed them.
struct Round {
    own: NodeId,
    claims: Vec<Claim>,
    confirmed_by: Vec<BTreeSet<NodeId>>,
    /// None once the claim is confirmed.
    outcomes: Vec<Option<oneshot::Sender<bool>>>,
    undecided_count: usize,
}

impl Round {
    fn new(own: NodeId, waiting: Vec<WaitingClaim>) -> Self {
        let undecided_count = waiting.len();
        let confirmed_by = vec![BTreeSet::from([own]); undecided_count];
        let split =
            waiting.into_iter().map(|WaitingClaim { claim, outcome }| (claim, Some(outcome)));
        let (claims, outcomes) = split.unzip();
        Self { own, claims, confirmed_by, outcomes, undecided_count }
    }

    fn is_decided(&self) -> bool {
        self.undecided_count == 0
    }

    /// One question for each voter that may be asked, about all claims in which it votes.
    fn questions(&self, may_ask: impl Fn(NodeId) -> bool) -> Vec<Question> {
        let mut by_node: BTreeMap<NodeId, (&str, Vec<usize>)> = BTreeMap::new();
        for (index, claim) in self.claims.iter().enumerate() {
            let voters: BTreeSet<NodeId> = claim.voters.iter().flatten().copied().collect();
            for voter in voters.into_iter().filter(|&voter| voter != self.own && may_ask(voter)) {
                let Some(address) = claim.addresses.get(&voter) else { continue };
                by_node.entry(voter).or_insert((address, Vec::new())).1.push(index);
            }
        }
        let question = |(to, (address, claims)): (NodeId, (&str, Vec<usize>))| {
            let asked = claims.iter().map(|&index| &self.claims[index]);
            let asked: Vec<(GroupId, Vote)> = asked.map(|of| (of.group, of.vote)).collect();
            Question { to, address: address.to_owned(), body: encode(&asked), claims }
        };
        by_node.into_iter().map(question).collect()
    }

    /// Takes a node's answer to these claims: one bool for each.
    fn take(&mut self, from: NodeId, claims: &[usize], answer: &[u8]) {
        let confirmed: Vec<bool> = match decode(answer) {
            Ok(confirmed) => confirmed,
            Err(error) => {
                tracing::warn!(%from, %error, "a confirmation was not understood");
                return;
            }
        };
        if confirmed.len() != claims.len() {
            let (asked, answered) = (claims.len(), confirmed.len());
            tracing::warn!(%from, asked, answered, "a confirmation is about other groups");
            return;
        }
        for (&index, _) in claims.iter().zip(confirmed).filter(|(_, is_confirmed)| *is_confirmed) {
            let by = &mut self.confirmed_by[index];
            by.insert(from);
            if is_majority(&self.claims[index].voters, |voter| by.contains(&voter))
                && let Some(outcome) = self.outcomes[index].take()
            {
                self.undecided_count -= 1;
                // A group that stopped has dropped its receiver.
                let _ = outcome.send(true);
            }
        }
    }
}
