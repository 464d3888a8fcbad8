//! How a shard's leader has the replicas of a slice compared and repaired.
//!
//! ```text
//!   for each piece of the slice
//!     ┌► propose Scrub             every replica digests the piece at one entry
//!     │  ask Root ──────────────►  all equal: the next piece
//!     │  ask Digests               which blocks differ
//!     │  hold writes               for each 512 KiB of these blocks
//!     │    ask Blocks              what every replica holds of them
//!     │    vote, propose Repair
//!     │  release writes
//!     └─ digest it again           up to three times, then what still differs is reported
//! ```
//!
//! A replica that does not answer is left out from then on, and reported.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use serde::{Deserialize, Serialize};

use super::command::ShardCommand;
use super::scrub_parts::{
    BlockContents, RepairPart, SCRUB_PIECE_BLOCKS, SCRUB_READ_WORDS, ScrubPart, ScrubbedPiece,
};
use super::vote::{Verdict, surplus, vote};
use crate::ids::{FilterId, Generation, NodeId};
use umbel_step::Outbox;
use umbel_step::planted::{self, Planted};

/// How often a piece is repaired before remaining differences are reported: writes that the leader
/// does not hold back, such as removals, may come between.
const TRIES_MAX: u32 = 3;

/// A request to a replica.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum ReplicaQuestion {
    /// The root of the piece with this name, once the replica has digested it.
    Root {
        /// Name of the piece.
        seed: u64,
    },
    /// All digests of the piece with this name.
    Digests {
        /// Name of the piece.
        seed: u64,
    },
    /// The contents of blocks, once the replica has applied everything that the leader has applied.
    Blocks {
        /// The filter whose slice is read.
        filter: FilterId,
        /// Its generation.
        generation: Generation,
        /// In ascending order.
        blocks: Vec<u32>,
    },
}

/// A replica's answer.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum ReplicaAnswer {
    /// To [`ReplicaQuestion::Root`].
    Root {
        /// [`ScrubbedPiece::root`].
        root: u64,
        /// [`ScrubbedPiece::answers`].
        answers: u64,
        /// Number of blocks of the slice.
        block_count: u32,
        /// Average number of words per block.
        block_words: u64,
    },
    /// To [`ReplicaQuestion::Digests`].
    Digests(ScrubbedPiece),
    /// To [`ReplicaQuestion::Blocks`].
    Blocks(BlockContents),
}

/// An event.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum ScrubInput {
    /// Starts the comparison. Given exactly once, first.
    Start,
    /// The proposed command was applied here, or the reason why not.
    Applied(Result<(), String>),
    /// A replica's answer, or the reason why there is none.
    Answered {
        /// The replica that was asked.
        replica: NodeId,
        /// Its answer.
        answer: Result<ReplicaAnswer, String>,
    },
    /// No insert is in flight to the log, and none will be before the release.
    Held,
}

/// What the caller must do.
#[derive(Clone, PartialEq, Debug)]
pub enum ScrubOutput {
    /// Propose this command, and report when it is applied.
    Propose(ShardCommand),
    /// Send a question to a replica, which may be this node's own.
    Ask {
        /// The replica.
        replica: NodeId,
        /// The question.
        question: ReplicaQuestion,
    },
    /// Hold inserts back, and report when none is in flight.
    Hold,
    /// Let inserts continue.
    Release,
    /// The comparison is over. If inserts are held back, they continue.
    Finish(Result<SliceScrubbed, String>),
}

/// The result of comparing a slice's replicas.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct SliceScrubbed {
    /// Replicas that took part in the whole comparison.
    pub compared: BTreeSet<NodeId>,
    /// Replicas that did not, with the reason.
    pub away: BTreeMap<NodeId, String>,
    /// For each replica that differed, by how much.
    pub differing: BTreeMap<NodeId, ReplicaBits>,
    /// Blocks without a majority, which now have the union of all replicas' contents.
    pub union_blocks: u64,
    /// Blocks that still differ.
    pub left_blocks: u64,
    /// Whether the replay tables differ. They are not repaired; the difference disappears when the
    /// sessions expire.
    pub answers_differ: bool,
}

/// How one replica differed from the decided contents.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct ReplicaBits {
    /// Bits or positions that the replica lacked. They are set.
    pub lost: u64,
    /// Bits that the majority lacked. A few are kept, and set on all replicas; many in one block are
    /// cleared.
    pub surplus: u64,
}

/// What the scrubber waits for.
#[derive(Debug)]
enum State {
    Idle,
    /// Waiting for the leader to apply the digesting of the piece.
    Digesting,
    Rooting(BTreeMap<NodeId, (u64, u64)>),
    Listing(BTreeMap<NodeId, ScrubbedPiece>),
    Holding,
    /// Waiting for the contents of these blocks.
    Reading(Vec<u32>, BTreeMap<NodeId, BlockContents>),
    Mending,
    Over,
}

/// The comparison of one slice's replicas, run by the shard's leader.
///
/// ```
/// use umbel_engine::shard::{ScrubInput, ScrubOutput, Scrubber, ShardCommand};
/// use umbel_engine::{FilterId, Generation, NodeId};
/// use umbel_step::Outbox;
///
/// let voters = vec![NodeId(1), NodeId(2)];
/// let mut scrubber = Scrubber::new(FilterId(1), Generation(1), voters, 7);
/// let mut out = Outbox::new();
/// scrubber.step(ScrubInput::Start, &mut out);
/// let orders = out.take();
/// assert!(matches!(&orders[..], [ScrubOutput::Propose(ShardCommand::Scrub(_))]));
/// // Both replicas are asked once the leader has applied it.
/// scrubber.step(ScrubInput::Applied(Ok(())), &mut out);
/// assert_eq!(out.take().len(), 2);
/// ```
#[derive(Debug)]
pub struct Scrubber {
    filter: FilterId,
    generation: Generation,
    /// The leader first.
    voters: Vec<NodeId>,
    seed: u64,
    state: State,
    first_block: u32,
    /// Number of blocks of the slice, as reported by the leader's replica.
    block_count: u32,
    block_words: u64,
    /// How often the piece has been repaired.
    try_count: u32,
    /// Blocks of the piece that differ and have not been read yet.
    suspects: VecDeque<u32>,
    report: SliceScrubbed,
}

impl Scrubber {
    /// A comparison that waits for [`ScrubInput::Start`]. The first of `voters` is the leader.
    #[must_use]
    pub fn new(filter: FilterId, generation: Generation, voters: Vec<NodeId>, seed: u64) -> Self {
        Self {
            filter,
            generation,
            voters,
            seed,
            state: State::Idle,
            first_block: 0,
            block_count: 0,
            block_words: 1,
            try_count: 0,
            suspects: VecDeque::new(),
            report: SliceScrubbed::default(),
        }
    }

    /// Handles one event, and outputs the orders that follow. An answer to a question that was not
    /// asked is ignored.
    pub fn step(&mut self, input: ScrubInput, out: &mut Outbox<ScrubOutput>) {
        match (input, &mut self.state) {
            (ScrubInput::Start, State::Idle) => self.digest(out),
            (ScrubInput::Applied(Err(why)), State::Digesting | State::Mending) => {
                self.finish(Err(why), out);
            }
            (ScrubInput::Applied(Ok(())), State::Digesting) => {
                self.state = State::Rooting(BTreeMap::new());
                let seed = self.seed;
                self.send_question(&ReplicaQuestion::Root { seed }, out);
            }
            (ScrubInput::Applied(Ok(())), State::Mending) => self.read_or_digest(out),
            (ScrubInput::Held, State::Holding) => self.read(out),
            (ScrubInput::Answered { replica, answer }, _) => self.answered(replica, answer, out),
            _ => {}
        }
    }

    fn present(&self) -> impl Iterator<Item = NodeId> + '_ {
        self.voters.iter().copied().filter(|voter| !self.report.away.contains_key(voter))
    }

    fn send_question(&self, question: &ReplicaQuestion, out: &mut Outbox<ScrubOutput>) {
        for replica in self.present() {
            out.push(ScrubOutput::Ask { replica, question: question.clone() });
        }
    }

    /// Has every replica digest the piece.
    fn digest(&mut self, out: &mut Outbox<ScrubOutput>) {
        self.seed = self.seed.wrapping_add(1);
        self.suspects.clear();
        self.state = State::Digesting;
        out.push(ScrubOutput::Propose(ShardCommand::Scrub(ScrubPart {
            filter: self.filter,
            generation: self.generation,
            seed: self.seed,
            first_block: self.first_block,
        })));
    }

    fn finish(&mut self, result: Result<(), String>, out: &mut Outbox<ScrubOutput>) {
        self.state = State::Over;
        self.report.compared = self.present().collect();
        let report = std::mem::take(&mut self.report);
        out.push(ScrubOutput::Finish(result.map(|()| report)));
    }

    fn answered(
        &mut self,
        replica: NodeId,
        answer: Result<ReplicaAnswer, String>,
        out: &mut Outbox<ScrubOutput>,
    ) {
        if !self.present().any(|present| present == replica) {
            return;
        }
        let is_leader = self.voters.first() == Some(&replica);
        if let Err(why) = self.take(replica, answer) {
            if is_leader {
                return self.finish(Err(why), out);
            }
            self.report.away.insert(replica, why);
        }
        let present = self.present().count();
        match &self.state {
            State::Rooting(roots) if roots.len() >= present => self.compare_roots(out),
            State::Listing(pieces) if pieces.len() >= present => self.list_suspects(out),
            State::Reading(_, contents) if contents.len() >= present => self.mend(out),
            _ => {}
        }
    }

    /// Stores an answer, if it matches the question.
    fn take(
        &mut self,
        replica: NodeId,
        answer: Result<ReplicaAnswer, String>,
    ) -> Result<(), String> {
        let is_leader = self.voters.first() == Some(&replica);
        match (&mut self.state, answer?) {
            (
                State::Rooting(roots),
                ReplicaAnswer::Root { root, answers, block_count, block_words },
            ) => {
                if is_leader {
                    (self.block_count, self.block_words) = (block_count, block_words);
                }
                roots.insert(replica, (root, answers));
            }
            (State::Listing(pieces), ReplicaAnswer::Digests(piece)) => {
                if piece.digests.len() > SCRUB_PIECE_BLOCKS as usize {
                    return Err(format!("{} digests came", piece.digests.len()));
                }
                pieces.insert(replica, piece);
            }
            (State::Reading(blocks, contents), ReplicaAnswer::Blocks(answer)) => {
                if answer.contents.len() != blocks.len() {
                    let (got, asked) = (answer.contents.len(), blocks.len());
                    return Err(format!("{got} blocks came, {asked} were asked for"));
                }
                contents.insert(replica, answer);
            }
            _ => return Err("an answer to another question came".to_owned()),
        }
        Ok(())
    }

    fn compare_roots(&mut self, out: &mut Outbox<ScrubOutput>) {
        let State::Rooting(roots) = &self.state else { return };
        let mut all = roots.iter().filter(|(node, _)| !self.report.away.contains_key(node));
        let Some((_, &(root, answers))) = all.next() else { return };
        let (mut is_equal, mut answers_differ) = (true, false);
        for (_, other) in all {
            is_equal &= other.0 == root;
            answers_differ |= other.1 != answers;
        }
        self.report.answers_differ |= answers_differ;
        if is_equal {
            return self.next_piece(out);
        }
        self.state = State::Listing(BTreeMap::new());
        let seed = self.seed;
        self.send_question(&ReplicaQuestion::Digests { seed }, out);
    }

    fn next_piece(&mut self, out: &mut Outbox<ScrubOutput>) {
        self.first_block = self.first_block.saturating_add(SCRUB_PIECE_BLOCKS);
        self.try_count = 0;
        // With a single replica left there is nothing to compare.
        if self.first_block >= self.block_count || self.present().count() < 2 {
            return self.finish(Ok(()), out);
        }
        self.digest(out);
    }

    fn list_suspects(&mut self, out: &mut Outbox<ScrubOutput>) {
        let State::Listing(pieces) = std::mem::replace(&mut self.state, State::Idle) else {
            return;
        };
        let of_present: Vec<&ScrubbedPiece> =
            self.present().filter_map(|node| pieces.get(&node)).collect();
        let longest = of_present.iter().map(|piece| piece.digests.len()).max().unwrap_or(0);
        let differs = |at: &usize| {
            let mut digests = of_present.iter().map(|piece| piece.digests.get(*at));
            let first = digests.next();
            digests.any(|digest| Some(digest) != first)
        };
        let offsets = (0..longest).filter(differs).filter_map(|at| u32::try_from(at).ok());
        let suspects: VecDeque<u32> = offsets.map(|at| self.first_block + at).collect();
        if self.try_count >= TRIES_MAX {
            // If no block differs, the counters do.
            self.report.left_blocks += suspects.len().max(1) as u64;
            return self.next_piece(out);
        }
        self.suspects = suspects;
        self.hold(out);
    }

    fn hold(&mut self, out: &mut Outbox<ScrubOutput>) {
        self.state = State::Holding;
        out.push(ScrubOutput::Hold);
    }

    fn read(&mut self, out: &mut Outbox<ScrubOutput>) {
        let count = (SCRUB_READ_WORDS / self.block_words.max(1)).max(1);
        let count = usize::try_from(count).unwrap_or(1).min(self.suspects.len());
        let blocks: Vec<u32> = self.suspects.drain(..count).collect();
        self.state = State::Reading(blocks.clone(), BTreeMap::new());
        let (filter, generation) = (self.filter, self.generation);
        self.send_question(&ReplicaQuestion::Blocks { filter, generation, blocks }, out);
    }

    fn mend(&mut self, out: &mut Outbox<ScrubOutput>) {
        let State::Reading(blocks, mut contents) =
            std::mem::replace(&mut self.state, State::Mending)
        else {
            return;
        };
        contents.retain(|node, _| !self.report.away.contains_key(node));
        let part = self.decide(&blocks, &contents);
        let read_at = part.read_at;
        let is_current = contents.values().all(|answer| answer.applied_index >= read_at);
        if is_current && !(part.blocks.is_empty() && part.counters.is_empty()) {
            out.push(ScrubOutput::Propose(ShardCommand::Repair(part)));
        } else {
            self.read_or_digest(out);
        }
    }

    /// Decides what the blocks should contain.
    fn decide(&mut self, blocks: &[u32], contents: &BTreeMap<NodeId, BlockContents>) -> RepairPart {
        // The leader first.
        let nodes: Vec<NodeId> =
            self.present().filter(|node| contents.contains_key(node)).collect();
        let answers: Vec<&BlockContents> = nodes.iter().map(|node| &contents[node]).collect();
        let is_monotone = answers.iter().all(|answer| answer.is_monotone);
        let is_words = answers.iter().all(|answer| answer.is_words);
        let mut mended = Vec::new();
        for (at, &block) in blocks.iter().enumerate() {
            let votes: Vec<&[u64]> =
                answers.iter().map(|answer| answer.contents[at].as_slice()).collect();
            let mut verdict = vote(&votes, self.voters.len(), is_monotone, is_words);
            if planted::on(Planted::ScrubTrustsLeader) && verdict != Verdict::Equal {
                verdict = Verdict::Mend(votes[0].to_vec());
            }
            let is_union = matches!(verdict, Verdict::Union(_));
            let (Verdict::Mend(content) | Verdict::Union(content)) = verdict else { continue };
            if self.try_count == 0 {
                self.report.union_blocks += u64::from(is_union);
                let majority = votes.iter().find(|&&content| {
                    2 * votes.iter().filter(|&&other| other == content).count() > self.voters.len()
                });
                for (&node, vote) in nodes.iter().zip(&votes) {
                    let lost = surplus(&content, vote, is_words);
                    let surplus = majority.map_or(0, |winner| surplus(vote, winner, is_words));
                    if majority != Some(vote) && lost + surplus > 0 {
                        let bits = self.report.differing.entry(node).or_default();
                        bits.lost += lost;
                        bits.surplus += surplus;
                    }
                }
            }
            mended.push((block, content));
        }
        let read_at = answers.iter().map(|answer| answer.written_index).max().unwrap_or(0);
        RepairPart {
            filter: self.filter,
            generation: self.generation,
            read_at,
            blocks: mended,
            counters: counters(&answers, self.voters.len()),
        }
    }

    /// Continues with the next differing blocks, or digests the piece again.
    fn read_or_digest(&mut self, out: &mut Outbox<ScrubOutput>) {
        out.push(ScrubOutput::Release);
        if self.suspects.is_empty() {
            self.try_count += 1;
            self.digest(out);
        } else {
            self.hold(out);
        }
    }
}

/// The counters that a majority has, if the replicas' counters differ; otherwise empty.
fn counters(answers: &[&BlockContents], voter_count: usize) -> Vec<u64> {
    let Some((first, rest)) = answers.split_first() else { return Vec::new() };
    if rest.iter().all(|answer| answer.counters == first.counters) {
        return Vec::new();
    }
    let votes = |answer: &&&BlockContents| {
        answers.iter().filter(|other| other.counters == answer.counters).count()
    };
    let majority = answers.iter().find(|answer| 2 * votes(answer) > voter_count);
    majority.map_or_else(Vec::new, |answer| answer.counters.clone())
}
