//! When a node asks which partner for what it lacks: sweeps over the steps of the cube.
//!
//! A sweep has a number. In each step a node asks its partner for what it lacks, and goes on when it
//! has that. The partner answers when it has done the steps before, for only then has it what this step
//! is to bring. Whoever is asked in a sweep that is newer than its own joins it, so one node's news
//! bring all of them along:
//!
//! ```text
//! rank 0   ── asks in sweep 7, dimension 0 ──► rank 1, idle: joins sweep 7
//!          ◄── asks in sweep 7, dimension 0 ──
//!          ◄────────── answer ──────────────     both have done all steps before
//!          ─────────── answer ─────────────►
//! both go on with dimension 1: 0 asks 2, and 1 asks 3, which join, and answer behind dimension 0
//! ```
//!
//! A partner that does not answer is left out. Nothing is lost by it, for whoever lacks something says
//! so in its next question, but the sweep was not whole then.
//!
//! A node that has lost its number, by a restart, may begin a sweep that others have ended: they answer,
//! and do not join. Every answer tells the largest number that its sender knows of, so such news
//! comes one partner nearer with each sweep, and within as many sweeps as a cube has steps the node
//! begins one that all join.

use std::collections::BTreeMap;

use thiserror::Error;

use super::topology::{Cube, CubeSizeOutOfRange, Meeting, Rank, Step};
use crate::ids::{Epoch, NodeId};
use umbel_step::Outbox;

/// A sweep is numbered below this: no cluster comes so far, and a peer that counts further is broken.
const SWEEP_MAX: u64 = 1 << 62;

/// The nodes of one epoch, by rank.
///
/// ```
/// use umbel_engine::hypercube::{Members, Rank};
/// use umbel_engine::{Epoch, NodeId};
///
/// let members = Members::new(Epoch(1), vec![NodeId(7), NodeId(2)])?;
/// assert_eq!(members.rank_of(NodeId(7)), Some(Rank(1)));
/// # Ok::<(), umbel_engine::hypercube::CubeSizeOutOfRange>(())
/// ```
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Members {
    epoch: Epoch,
    /// Sorted, none twice.
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

    /// The cube of so many nodes.
    #[must_use]
    pub const fn cube(&self) -> Cube {
        self.cube
    }

    /// A node's rank, or None if it is no member.
    #[must_use]
    pub fn rank_of(&self, node: NodeId) -> Option<Rank> {
        let place = self.nodes.binary_search(&node).ok()?;
        u32::try_from(place).ok().map(Rank)
    }

    /// The node of a rank, or None if nobody has it.
    #[must_use]
    pub fn node_of(&self, rank: Rank) -> Option<NodeId> {
        self.nodes.get(rank.0 as usize).copied()
    }
}

/// What happened.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum SweepInput {
    /// There is something to send or to request. Does nothing during a sweep.
    Begin,
    /// A partner asks for what it lacks.
    Asked {
        /// Who.
        from: NodeId,
        /// Its rank, as it says.
        rank: Rank,
        /// The epoch of its list of nodes.
        epoch: Epoch,
        /// Number of its sweep.
        sweep: u64,
        /// Its step.
        step: Step,
    },
    /// The answer of the running step's partner has been merged.
    Answered {
        /// Who answered.
        from: NodeId,
        /// Number of the sweep in which it was asked.
        sweep: u64,
        /// The step in which it was asked.
        step: Step,
        /// The largest number of a sweep that the partner knew of when it answered.
        theirs: u64,
    },
    /// A node does not answer: the running step is not waited for if it is with this one.
    Unreachable {
        /// Which.
        node: NodeId,
    },
    /// The list of nodes has changed. A running sweep ends, and is not whole; questions that wait
    /// are forgotten.
    Changed(Members),
}

/// What is to be done.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum SweepOutput {
    /// A sweep begins: what was inserted here since the last began takes part in it.
    Begun {
        /// Its number.
        sweep: u64,
    },
    /// Ask a node for what this one lacks.
    Ask {
        /// Whom.
        to: NodeId,
        /// Number of the sweep.
        sweep: u64,
        /// The step.
        step: Step,
    },
    /// Answer a node's question of this step: with all that it lacks, also if that is nothing.
    Answer {
        /// Whom.
        to: NodeId,
        /// Number of the sweep in which it asked.
        sweep: u64,
        /// The step in which it asked.
        step: Step,
        /// The largest number of a sweep that this node knows of.
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

/// A message that is refused: nothing was changed.
#[derive(Clone, PartialEq, Eq, Debug, Error)]
pub enum SweepError {
    /// One of the two has an old list of nodes. Whose epoch is lower gets the newer one.
    #[error("{from} exchanges in {theirs}, expected {ours}")]
    ForeignEpoch {
        /// Who sent it.
        from: NodeId,
        /// Its epoch.
        theirs: Epoch,
        /// Ours.
        ours: Epoch,
    },
    /// No node of the epoch. Refuse its link.
    #[error("{from} is no node of {epoch}")]
    UnknownNode {
        /// Who sent it.
        from: NodeId,
        /// Our epoch.
        epoch: Epoch,
    },
    /// The sender counts ranks differently: it has a bug, or another list under the same epoch.
    #[error("{from} says that it is {claimed}, expected {expected}")]
    WrongRank {
        /// Who sent it.
        from: NodeId,
        /// The rank that it claims.
        claimed: Rank,
        /// The rank that it has.
        expected: Rank,
    },
    /// It has nothing to ask this node for in this step.
    #[error("{from} asks in {step}, in which it gets nothing from us")]
    WrongStep {
        /// Who sent it.
        from: NodeId,
        /// The step.
        step: Step,
    },
    /// No cluster makes so many sweeps.
    #[error("sweep {sweep} of {from}, expected at most {SWEEP_MAX}")]
    SweepTooLarge {
        /// Who sent it.
        from: NodeId,
        /// The sweep's number.
        sweep: u64,
    },
}

/// The sweeps of one node.
///
/// ```
/// use umbel_engine::hypercube::{Members, Step, SweepInput, SweepOutput, Sweeper};
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
    /// Number of the running sweep, or of the last.
    sweep: u64,
    /// The largest number that was learned of.
    newest: u64,
    /// The running step; None between sweeps.
    step: Option<Step>,
    /// Questions that this node cannot answer yet: by step, who asked and in which sweep.
    waiting: BTreeMap<Step, (NodeId, u64)>,
    /// Whether nobody was left out so far.
    is_whole: bool,
}

impl Sweeper {
    /// A node between sweeps.
    #[must_use]
    pub const fn new(node: NodeId, members: Members) -> Self {
        let waiting = BTreeMap::new();
        Self { node, members, sweep: 0, newest: 0, step: None, waiting, is_whole: true }
    }

    /// The nodes that it exchanges with.
    #[must_use]
    pub const fn members(&self) -> &Members {
        &self.members
    }

    /// The running step and the node that it waits for; None between sweeps.
    #[must_use]
    pub fn waits_for(&self) -> Option<(Step, NodeId)> {
        let step = self.step?;
        Some((step, self.partner(step)?.0))
    }

    /// The running sweep and its step; None between sweeps.
    #[must_use]
    pub fn running(&self) -> Option<(u64, Step)> {
        Some((self.sweep, self.step?))
    }

    /// Takes what happened, and says what is to be done.
    ///
    /// # Errors
    /// If a message does not fit: it changed nothing here.
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
                    // Whoever is ahead is joined, from the first step on: what was done is not lost.
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

    /// Whether a question is one that this node may be asked.
    fn check(&self, from: NodeId, rank: Rank, theirs: Epoch, step: Step) -> Result<(), SweepError> {
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
            Some((partner, meeting)) if partner == from && meeting.sends => Ok(()),
            _ => Err(SweepError::WrongStep { from, step }),
        }
    }

    /// The partner of a step, and what is done with it.
    fn partner(&self, step: Step) -> Option<(NodeId, Meeting)> {
        let rank = self.members.rank_of(self.node)?;
        let meeting = self.members.cube().meeting(rank, step)?;
        Some((self.members.node_of(meeting.partner)?, meeting))
    }

    fn begin(&mut self, sweep: u64, outbox: &mut Outbox<SweepOutput>) {
        (self.sweep, self.newest) = (sweep, self.newest.max(sweep));
        self.is_whole = true;
        outbox.push(SweepOutput::Begun { sweep });
        self.enter(self.members.cube().steps().next(), outbox);
    }

    /// Leaves the running step.
    fn go_on(&mut self, outbox: &mut Outbox<SweepOutput>) {
        let next = self.step.and_then(|step| self.members.cube().step_behind(step));
        self.enter(next, outbox);
    }

    /// Enters the first of the steps from this one on in which something comes.
    fn enter(&mut self, from: Option<Step>, outbox: &mut Outbox<SweepOutput>) {
        self.step = from;
        while let Some(step) = self.step {
            match self.partner(step) {
                Some((to, meeting)) if meeting.receives => {
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

    /// Answers the questions that wait for steps which this node has done.
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
