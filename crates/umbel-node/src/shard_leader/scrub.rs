//! Compares and repairs the replicas of a shard: the leader's side, and each replica's.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::join_all;
use tokio::sync::{OwnedRwLockWriteGuard, Semaphore};
use tokio::time::timeout;
use umbel_engine::shard::{
    ReplicaAnswer, ReplicaQuestion, ScrubInput, ScrubOutput, Scrubber, ShardCommand, ShardReply,
    SliceScrubbed,
};
use umbel_engine::{FilterId, Generation, NodeId};
use umbel_ports::Purpose;
use umbel_ports::encoding::{decode, encode};
use umbel_raft::peer::CallKind;
use umbel_step::Outbox;

use super::{ShardLeader, propose, unexpected};
use crate::calls::{ShardAnswer, ShardFailure, ShardRequest};
use crate::comparisons::{Comparison, LastComparisons};
use crate::metrics;

/// How long a replica may take to apply what the leader has applied, and to respond.
const ANSWER_PATIENCE: Duration = Duration::from_secs(5);

/// How long the replica itself waits for that: shorter, so that it can still report its progress.
const APPLY_PATIENCE: Duration = Duration::from_secs(4);

/// The same while inserts are held back: slower replicas are left out.
const HELD_PATIENCE: Duration = Duration::from_millis(500);

/// How long to wait for writes in flight when holding back writes.
const HOLD_PATIENCE: Duration = Duration::from_secs(2);

/// State of the comparisons that a shard's leader runs.
pub(super) struct SliceScrubs {
    turn: Semaphore,
    last: LastComparisons<FilterId>,
}

impl Default for SliceScrubs {
    fn default() -> Self {
        Self { turn: Semaphore::new(1), last: LastComparisons::default() }
    }
}

impl ShardLeader {
    /// Compares the replicas of a slice piece by piece, with pauses in between, and repairs them; one
    /// slice of the shard at a time.
    ///
    /// # Errors
    /// If this node does not lead, or the slice is dropped. What was repaired stays repaired.
    pub(crate) async fn scrub(
        &self,
        filter: FilterId,
        generation: Generation,
        pause: Duration,
    ) -> Result<SliceScrubbed, ShardFailure> {
        self.check_leader()?;
        self.check_slice(filter, generation)?;
        let _turn = self.scrubs.turn.acquire().await.expect("it is never closed");
        let scrubbed = self.scrub_now(filter, generation, pause).await;
        let comparison = Comparison::of_slice(self.group.wall_ms(), &scrubbed);
        self.scrubs.last.note(filter, comparison);
        match &scrubbed {
            Ok(report) => self.record(filter, report),
            Err(error) => {
                metrics::shard_scrubbed("failed");
                tracing::debug!(shard = %self.shard(), %filter, %error, "replicas were not compared");
            }
        }
        scrubbed
    }

    async fn scrub_now(
        &self,
        filter: FilterId,
        generation: Generation,
        pause: Duration,
    ) -> Result<SliceScrubbed, ShardFailure> {
        let others = self.group.view().voters.into_iter().filter(|&voter| voter != self.node);
        let voters = [self.node].into_iter().chain(others).collect();
        let seed = self.group.number(Purpose::Scrub);
        let mut scrubber = Scrubber::new(filter, generation, voters, seed);
        let mut out = Outbox::new();
        // Held while writes are held back.
        let mut held: Option<OwnedRwLockWriteGuard<()>> = None;
        let mut refused = None;
        scrubber.step(ScrubInput::Start, &mut out);
        loop {
            let (mut inputs, mut asks) = (Vec::new(), Vec::new());
            for order in out.take() {
                match order {
                    ScrubOutput::Propose(command) => {
                        if matches!(command, ShardCommand::Scrub(_)) && !pause.is_zero() {
                            tokio::time::sleep(pause).await;
                        }
                        let applied = self.apply(command).await;
                        inputs.push(ScrubInput::Applied(applied.map_err(|error| {
                            let why = error.to_string();
                            refused = Some(error);
                            why
                        })));
                    }
                    ScrubOutput::Ask { replica, question } => asks.push((replica, question)),
                    ScrubOutput::Hold => {
                        let hold = timeout(HOLD_PATIENCE, Arc::clone(&self.writes).write_owned());
                        let why = || "writes on their way do not end".to_owned();
                        held = Some(hold.await.map_err(|_| ShardFailure::NotCompared(why()))?);
                        inputs.push(ScrubInput::Held);
                    }
                    ScrubOutput::Release => held = None,
                    ScrubOutput::Finish(Ok(report)) => return Ok(report),
                    ScrubOutput::Finish(Err(why)) => {
                        return Err(refused.unwrap_or(ShardFailure::NotCompared(why)));
                    }
                }
            }
            let patience = if held.is_some() { HELD_PATIENCE } else { ANSWER_PATIENCE };
            let asked = asks.into_iter().map(|(replica, question)| async move {
                let answer = self.send_request(replica, question, patience).await;
                ScrubInput::Answered { replica, answer }
            });
            inputs.extend(join_all(asked).await);
            inputs.into_iter().for_each(|input| scrubber.step(input, &mut out));
        }
    }

    /// Applies a command of a comparison, even while writes are held back.
    async fn apply(&self, command: ShardCommand) -> Result<(), ShardFailure> {
        // Without a majority it would wait as long as this node leads, and all other comparisons with it.
        let proposed = timeout(APPLY_PATIENCE, propose(&self.group, command)).await;
        let late = |_| ShardFailure::NotCompared("no majority confirms an entry".to_owned());
        match proposed.map_err(late)?? {
            ShardReply::Done(outcome) => Ok(outcome?),
            other => Err(unexpected(&other)),
        }
    }

    /// Asks another replica, or this one.
    async fn send_request(
        &self,
        replica: NodeId,
        question: ReplicaQuestion,
        patience: Duration,
    ) -> Result<ReplicaAnswer, String> {
        let applied_index = self.group.applied_index();
        if replica == self.node {
            return self.answer(&question, applied_index).await.map_err(|error| error.to_string());
        }
        let address = self.group.address_of(replica);
        let address = address.ok_or_else(|| format!("{replica} has no address"))?;
        let request = encode(&ShardRequest::Compare { question, applied_index });
        let group = self.group.id();
        let called =
            self.links.call(replica, &address, CallKind::Shard, group, request, patience).await;
        match decode(&called.map_err(|error| error.to_string())?) {
            Ok(ShardAnswer::Held(answer)) => Ok(answer),
            Ok(ShardAnswer::Failed(failure)) => Err(failure.to_string()),
            Ok(other) => Err(format!("it answered {other:?}")),
            Err(error) => Err(format!("it answered nonsense: {error}")),
        }
    }

    /// The content of this replica, once it has applied an entry. The caller limits the time.
    pub(super) async fn answer(
        &self,
        question: &ReplicaQuestion,
        applied_index: u64,
    ) -> Result<ReplicaAnswer, ShardFailure> {
        let mut applied = self.group.replica().applied_index();
        let stopped = |_| ShardFailure::Stopped(format!("{} stopped", self.group.id()));
        let reached = timeout(APPLY_PATIENCE, applied.wait_for(|&index| index >= applied_index));
        let late = |_| {
            let got = self.group.applied_index();
            let lacking = self.group.lacking().map_or_else(String::new, |why| format!("; {why}"));
            ShardFailure::NotCompared(format!(
                "it has applied entries up to {got}, {applied_index} are committed{lacking}"
            ))
        };
        reached.await.map_err(late)?.map_err(stopped)?;
        let missed = || {
            let why = "it was given a snapshot, or compared by another leader, meanwhile";
            ShardFailure::NotCompared(why.to_owned())
        };
        self.group.replica().read_shard_at(|index, state| match question {
            ReplicaQuestion::Root { seed } => {
                let piece = state.scrubbed(*seed).ok_or_else(missed)?;
                Ok(ReplicaAnswer::Root {
                    root: piece.root(),
                    answers: piece.answers,
                    block_count: piece.block_count,
                    block_words: piece.block_words,
                })
            }
            ReplicaQuestion::Digests { seed } => {
                Ok(ReplicaAnswer::Digests(state.scrubbed(*seed).ok_or_else(missed)?.clone()))
            }
            ReplicaQuestion::Blocks { filter, generation, blocks } => {
                let held = state.read_blocks(index, *filter, *generation, blocks)?;
                Ok(ReplicaAnswer::Blocks(held))
            }
        })
    }

    /// Counts and logs the result of a comparison.
    fn record(&self, filter: FilterId, report: &SliceScrubbed) {
        let shard = self.shard();
        for (node, bits) in &report.differing {
            metrics::shard_bits_differed(bits.lost, bits.surplus);
            let (lost, surplus) = (bits.lost, bits.surplus);
            tracing::error!(%shard, %filter, %node, lost, surplus, "a replica's bits had changed");
        }
        if report.left_blocks > 0 || report.answers_differ {
            let (blocks, answers) = (report.left_blocks, report.answers_differ);
            tracing::error!(%shard, %filter, blocks, answers, "replicas still differ");
        }
        let outcome = outcome_of(report);
        metrics::shard_scrubbed(outcome);
        if matches!(outcome, "equal" | "mended") && report.away.is_empty() {
            self.scrubs.last.verified(filter);
        }
    }

    /// The result of each slice's last comparison, if this node leads.
    pub(crate) fn last_comparisons(&self) -> Vec<(FilterId, Option<Comparison>)> {
        self.scrubs.last.of(self.led_slices())
    }

    /// The longest time since a slice's replicas were compared, if this node leads and has slices.
    pub(crate) fn scrub_age(&self) -> Option<Duration> {
        self.scrubs.last.age(&self.led_slices(), |&filter| filter)
    }

    /// The filters of the shard's slices. Of a shard that this node does not lead there are none: the current leader
    /// has its comparisons, and if this node leads again, it starts over.
    fn led_slices(&self) -> BTreeSet<FilterId> {
        if !self.group.is_leader() {
            return BTreeSet::new();
        }
        self.group.replica().read_shard(|state| state.slices().map(|(id, _)| id).collect())
    }
}

/// The outcome of a comparison, as it is counted. Tables of answers are not repaired.
fn outcome_of(report: &SliceScrubbed) -> &'static str {
    match report {
        _ if report.left_blocks > 0 || report.answers_differ => "left",
        _ if !report.differing.is_empty() => "mended",
        _ if !report.away.is_empty() => "partial",
        _ => "equal",
    }
}
