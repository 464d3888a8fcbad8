//! Schedules gossip: when this node asks which partner for what it lacks, in sweeps over the steps of
//! the cube.
//!
//! Sweeps are numbered. In each step a node asks its partner for what it lacks, and continues after it
//! has merged the answer. The partner answers once it has completed the earlier steps, because only then
//! does it have everything that this step must carry. A node that is asked in a newer sweep than its own
//! joins that sweep, so one node with changes starts a sweep on all nodes:
//!
//! ```text
//! rank 0   ── asks in sweep 7, dimension 0 ──► rank 1, idle: joins sweep 7
//!          ◄── asks in sweep 7, dimension 0 ──
//!          ◄────────── answer ──────────────     both have done all steps before
//!          ─────────── answer ─────────────►
//! both go on with dimension 1: 0 asks 2, and 1 asks 3, which join, and answer behind dimension 0
//! ```
//!
//! A partner that does not answer is skipped. No data is lost, because each question states what its
//! sender has, but the sweep is then not whole.
//!
//! A node that lost its sweep number in a restart may begin a sweep that others have already finished:
//! they answer, but do not join. Every answer carries the highest sweep number that its sender knows, so
//! that number comes one partner closer with each sweep. Within as many sweeps as the cube has steps,
//! the node begins a sweep that all nodes join.

use std::collections::BTreeMap;

use thiserror::Error;

use super::topology::{Cube, CubeRank, CubeSizeOutOfRange, Pairing, Step};
use umbel_engine::{Epoch, NodeId};
use umbel_step::Outbox;

/// Sweep numbers are below this. No cluster reaches it; a peer that exceeds it is broken.
const SWEEP_MAX: u64 = 1 << 62;

/// The nodes of one epoch, by rank.
///
/// ```
/// use umbel_replicated_engine::hypercube::{Members, CubeRank};
/// use umbel_engine::{Epoch, NodeId};
///
/// let members = Members::new(Epoch(1), vec![NodeId(7), NodeId(2)])?;
/// assert_eq!(members.rank_of(NodeId(7)), Some(CubeRank(1)));
/// # Ok::<(), umbel_replicated_engine::hypercube::CubeSizeOutOfRange>(())
/// ```
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Members {
    epoch: Epoch,
    /// Sorted, without duplicates.
    nodes: Vec<NodeId>,
    cube: Cube,
}

impl Members {
    /// The nodes of an epoch, in any order.
    ///
    /// # Errors
    /// If there are none, or too many for a cube.
    pub fn new(epoch: Epoch, mut nodes: Vec<NodeId>) -> Result<Self, CubeSizeOutOfRange> {
        nodes.sort_unstable();
        nodes.dedup();
        let cube = Cube::new(nodes.len())?;
        Ok(Self { epoch, nodes, cube })
    }

    /// Version of the list.
    #[must_use]
    pub const fn epoch(&self) -> Epoch {
        self.epoch
    }

    /// The nodes by rank.
    #[must_use]
    pub fn nodes(&self) -> &[NodeId] {
        &self.nodes
    }

    /// The cube of this many nodes.
    #[must_use]
    pub const fn cube(&self) -> Cube {
        self.cube
    }

    /// A node's rank, or None if it is not a member.
    #[must_use]
    pub fn rank_of(&self, node: NodeId) -> Option<CubeRank> {
        let place = self.nodes.binary_search(&node).ok()?;
        u32::try_from(place).ok().map(CubeRank)
    }

    /// The node that has a rank, or None if there is none.
    #[must_use]
    pub fn node_of(&self, rank: CubeRank) -> Option<NodeId> {
        self.nodes.get(rank.0 as usize).copied()
    }
}

/// An event.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum SweepInput {
    /// There is something to send or to request. Ignored during a sweep.
    Begin,
    /// A node asks for what it lacks.
    Asked {
        /// The node that asks.
        from: NodeId,
        /// The rank that it states.
        rank: CubeRank,
        /// The epoch of its member list.
        epoch: Epoch,
        /// The number of its sweep.
        sweep: u64,
        /// The step that it is in.
        step: Step,
    },
    /// The answer of the current step's partner has been merged.
    Answered {
        /// The node that answered.
        from: NodeId,
        /// The sweep of the question.
        sweep: u64,
        /// The step of the question.
        step: Step,
        /// The highest sweep number that the partner knew when it answered.
        theirs: u64,
    },
    /// A node does not answer. If it is the current step's partner, the step is skipped.
    Unreachable {
        /// The node.
        node: NodeId,
    },
    /// The list of members has changed. A running sweep ends and is not whole; waiting questions are
    /// dropped.
    Changed(Members),
}

/// What the caller must do.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum SweepOutput {
    /// A sweep begins: everything inserted here since the last one began takes part in it.
    Begun {
        /// Its number.
        sweep: u64,
    },
    /// Ask a node for what this one lacks.
    Ask {
        /// The node to ask.
        to: NodeId,
        /// Number of the sweep.
        sweep: u64,
        /// The step.
        step: Step,
    },
    /// Answer a node's question of this step with everything that it lacks, even if that is nothing.
    Answer {
        /// The node that asked.
        to: NodeId,
        /// The sweep of the question.
        sweep: u64,
        /// The step of the question.
        step: Step,
        /// The highest sweep number that this node knows.
        ours: u64,
    },
    /// A sweep has ended.
    Done {
        /// Its number.
        sweep: u64,
        /// Whether every partner of every step answered.
        is_whole: bool,
    },
}

/// Why a message is refused. Nothing was changed.
#[derive(Clone, PartialEq, Eq, Debug, Error)]
pub enum SweepError {
    /// One of the two nodes has an outdated member list: the one with the lower epoch must get the newer
    /// list.
    #[error("{from} exchanges in {theirs}, expected {ours}")]
    ForeignEpoch {
        /// The sender.
        from: NodeId,
        /// The sender's epoch.
        theirs: Epoch,
        /// This node's epoch.
        ours: Epoch,
    },
    /// The sender is not a member in this epoch. Refuse its link.
    #[error("{from} is no node of {epoch}")]
    UnknownNode {
        /// The sender.
        from: NodeId,
        /// This node's epoch.
        epoch: Epoch,
    },
    /// The sender states a wrong rank: it has a bug, or a different list with the same epoch.
    #[error("{from} says that it is {claimed}, expected {expected}")]
    WrongRank {
        /// The sender.
        from: NodeId,
        /// The rank that it states.
        claimed: CubeRank,
        /// The rank that it has.
        expected: CubeRank,
    },
    /// The sender does not receive from this node in this step.
    #[error("{from} asks in {step}, in which it gets nothing from us")]
    WrongStep {
        /// The sender.
        from: NodeId,
        /// The step.
        step: Step,
    },
    /// The sweep number is too high: no cluster makes so many sweeps.
    #[error("sweep {sweep} of {from}, expected at most {SWEEP_MAX}")]
    SweepTooLarge {
        /// The sender.
        from: NodeId,
        /// The sweep's number.
        sweep: u64,
    },
}

/// The sweeps of one node.
///
/// ```
/// use umbel_replicated_engine::hypercube::{Members, Step, SweepInput, SweepOutput, Sweeper};
/// use umbel_engine::{Epoch, NodeId};
/// use umbel_step::Outbox;
///
/// let members = Members::new(Epoch(1), vec![NodeId(1), NodeId(2)])?;
/// let mut sweeper = Sweeper::new(NodeId(1), members);
/// let mut outbox = Outbox::new();
/// sweeper.step(SweepInput::Begin, &mut outbox)?;
/// let ask = SweepOutput::Ask { to: NodeId(2), sweep: 1, step: Step::Across(0) };
/// assert_eq!(outbox.take(), [SweepOutput::Begun { sweep: 1 }, ask]);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Sweeper {
    node: NodeId,
    members: Members,
    /// Number of the current sweep, or of the last one.
    sweep: u64,
    /// The highest sweep number known.
    newest: u64,
    /// The current step; None between sweeps.
    step: Option<Step>,
    /// Questions that this node cannot answer yet: by step, the node that asked and its sweep.
    waiting: BTreeMap<Step, (NodeId, u64)>,
    /// Whether no partner has been skipped in this sweep so far.
    is_whole: bool,
}

impl Sweeper {
    /// A node between sweeps.
    #[must_use]
    pub const fn new(node: NodeId, members: Members) -> Self {
        let waiting = BTreeMap::new();
        Self { node, members, sweep: 0, newest: 0, step: None, waiting, is_whole: true }
    }

    /// The nodes with which it exchanges.
    #[must_use]
    pub const fn members(&self) -> &Members {
        &self.members
    }

    /// The current step and the partner that it waits for; None between sweeps.
    #[must_use]
    pub fn waits_for(&self) -> Option<(Step, NodeId)> {
        let step = self.step?;
        Some((step, self.partner(step)?.0))
    }

    /// The current sweep and step; None between sweeps.
    #[must_use]
    pub fn running(&self) -> Option<(u64, Step)> {
        Some((self.sweep, self.step?))
    }

    /// Handles an event, and outputs what must be done.
    ///
    /// # Errors
    /// If a message is refused. Nothing was changed then.
    pub fn step(
        &mut self,
        input: SweepInput,
        outbox: &mut Outbox<SweepOutput>,
    ) -> Result<(), SweepError> {
        match input {
            SweepInput::Begin => {
                if self.step.is_none() {
                    self.begin(self.newest + 1, outbox);
                }
            }
            SweepInput::Asked { from, rank, epoch, sweep, step } => {
                self.check(from, rank, epoch, step)?;
                check_sweep(from, sweep)?;
                self.waiting.insert(step, (from, sweep));
                if sweep > self.sweep {
                    // Joins the newer sweep from its first step on; what was received so far is kept.
                    if self.step.is_some() {
                        outbox.push(SweepOutput::Done { sweep: self.sweep, is_whole: false });
                    }
                    self.begin(sweep, outbox);
                } else {
                    self.answer(outbox);
                }
            }
            SweepInput::Answered { from, sweep, step, theirs } => {
                check_sweep(from, theirs)?;
                self.newest = self.newest.max(theirs);
                let is_awaited = self.waits_for() == Some((step, from)) && sweep == self.sweep;
                if is_awaited {
                    self.go_on(outbox);
                }
            }
            SweepInput::Unreachable { node } => {
                if self.waits_for().is_some_and(|(_, partner)| partner == node) {
                    self.is_whole = false;
                    self.go_on(outbox);
                }
            }
            SweepInput::Changed(members) => {
                if self.step.take().is_some() {
                    outbox.push(SweepOutput::Done { sweep: self.sweep, is_whole: false });
                }
                self.members = members;
                self.waiting.clear();
            }
        }
        Ok(())
    }

    /// Checks that this node may be asked this question.
    fn check(
        &self,
        from: NodeId,
        rank: CubeRank,
        theirs: Epoch,
        step: Step,
    ) -> Result<(), SweepError> {
        let ours = self.members.epoch();
        if theirs != ours {
            return Err(SweepError::ForeignEpoch { from, theirs, ours });
        }
        let expected = self.members.rank_of(from);
        let expected = expected.ok_or(SweepError::UnknownNode { from, epoch: ours })?;
        if rank != expected {
            return Err(SweepError::WrongRank { from, claimed: rank, expected });
        }
        match self.partner(step) {
            Some((partner, pairing)) if partner == from && pairing.sends => Ok(()),
            _ => Err(SweepError::WrongStep { from, step }),
        }
    }

    /// The partner of a step, and the direction of the exchange.
    fn partner(&self, step: Step) -> Option<(NodeId, Pairing)> {
        let rank = self.members.rank_of(self.node)?;
        let pairing = self.members.cube().pairing(rank, step)?;
        Some((self.members.node_of(pairing.partner)?, pairing))
    }

    fn begin(&mut self, sweep: u64, outbox: &mut Outbox<SweepOutput>) {
        (self.sweep, self.newest) = (sweep, self.newest.max(sweep));
        self.is_whole = true;
        outbox.push(SweepOutput::Begun { sweep });
        self.enter(self.members.cube().steps().next(), outbox);
    }

    /// Completes the current step.
    fn go_on(&mut self, outbox: &mut Outbox<SweepOutput>) {
        let next = self.step.and_then(|step| self.members.cube().step_behind(step));
        self.enter(next, outbox);
    }

    /// Enters the next step, from `from` on, in which this node receives something.
    fn enter(&mut self, from: Option<Step>, outbox: &mut Outbox<SweepOutput>) {
        self.step = from;
        while let Some(step) = self.step {
            match self.partner(step) {
                Some((to, pairing)) if pairing.receives => {
                    outbox.push(SweepOutput::Ask { to, sweep: self.sweep, step });
                    break;
                }
                _ => self.step = self.members.cube().step_behind(step),
            }
        }
        self.answer(outbox);
        if self.step.is_none() {
            outbox.push(SweepOutput::Done { sweep: self.sweep, is_whole: self.is_whole });
        }
    }

    /// Answers waiting questions of steps for which this node is ready.
    fn answer(&mut self, outbox: &mut Outbox<SweepOutput>) {
        let (ours, newest, position) = (self.sweep, self.newest, self.step);
        self.waiting.retain(|&step, &mut (to, sweep)| {
            let is_ready = position.is_none_or(|running| running >= step) || sweep < ours;
            if is_ready {
                outbox.push(SweepOutput::Answer { to, sweep, step, ours: newest });
            }
            !is_ready
        });
    }
}

const fn check_sweep(from: NodeId, sweep: u64) -> Result<(), SweepError> {
    if sweep < SWEEP_MAX { Ok(()) } else { Err(SweepError::SweepTooLarge { from, sweep }) }
}

#[cfg(test)]
mod sweeper_test;
