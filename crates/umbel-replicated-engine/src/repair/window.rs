//! A window: some thousand blocks that are repaired together, by syndromes until they decode, hashes, and
//! whole blocks.

use umbel_sketch::{BLOCK_BITS, BLOCK_WORDS, decode_block};

use super::core::Core;
use super::error::{RepairError, Result};
use super::ladder::{Ladder, flips_max};
use super::message::{GROUP_BLOCKS, ListLimits, Question, read_list};
use super::responder::{block_hash, own_syndromes};
use super::table::BitBlocks;
use crate::limits::REPAIR_ANSWER_BYTES_MAX;
use umbel_reconcile_engine::SessionFrameError;
use umbel_reconcile_engine::wire::Reader;

/// The bits in which the copies of a block differ: a few positions, or a mask.
#[derive(Clone, Debug)]
pub(crate) enum Differing {
    Few(Vec<u32>),
    Many(Box<[u64; BLOCK_WORDS]>),
}

impl Differing {
    pub(crate) fn count(&self) -> usize {
        match self {
            Self::Few(positions) => positions.len(),
            Self::Many(mask) => mask.iter().map(|word| word.count_ones() as usize).sum(),
        }
    }

    /// The positions of the bits, ascending.
    pub(crate) fn positions(&self) -> Vec<u32> {
        match self {
            Self::Few(positions) => positions.clone(),
            Self::Many(mask) => {
                let is_set = |at: &u32| mask[*at as usize / 64] >> (at % 64) & 1 == 1;
                (0..BLOCK_BITS).filter(is_set).collect()
            }
        }
    }

    /// Turns the block of one copy into that of the other.
    pub(crate) fn apply(&self, words: &mut [u64; BLOCK_WORDS]) {
        match self {
            Self::Few(positions) => {
                positions.iter().for_each(|&at| words[at as usize / 64] ^= 1 << (at % 64));
            }
            Self::Many(mask) => words.iter_mut().zip(mask.iter()).for_each(|(w, m)| *w ^= m),
        }
    }
}

/// One block of a window.
#[derive(Debug)]
pub(crate) struct Member {
    pub(crate) block: u32,
    /// Syndromes of the difference, as many as have been received.
    syndromes: Vec<u16>,
    /// The bits in which the copies differ, once they are known.
    pub(crate) differing: Option<Differing>,
    is_raw: bool,
    /// The hash of the other copy's block, if it was requested.
    hash: Option<u32>,
}

impl Member {
    fn held_bytes(&self) -> usize {
        let differing = match &self.differing {
            None => 0,
            Some(Differing::Few(positions)) => size_of_val(positions.as_slice()),
            Some(Differing::Many(mask)) => size_of_val(mask.as_slice()),
        };
        size_of::<Self>() + size_of_val(self.syndromes.as_slice()) + differing
    }

    /// The other copy's block, as far as this side knows it.
    fn read_theirs(&self, blocks: &dyn BitBlocks) -> [u64; BLOCK_WORDS] {
        let mut words = [0; BLOCK_WORDS];
        blocks.read(self.block, &mut words);
        if let Some(differing) = &self.differing {
            differing.apply(&mut words);
        }
        words
    }

    fn has_hash(&self, hash: u32, core: &Core, blocks: &dyn BitBlocks) -> bool {
        let mut hasher = core.key.block_hasher();
        hasher.add(&self.read_theirs(blocks));
        block_hash(hasher.finish()) == hash
    }
}

/// A question, and the number of its blocks that have been answered.
#[derive(Debug)]
struct PendingQuestion {
    question: Question,
    places: Vec<u64>,
    answered: usize,
}

/// The next action for a window.
#[derive(Debug)]
pub(crate) enum Next {
    Ask(Question, Vec<u64>),
    Complete,
}

/// The blocks that are being repaired together.
#[derive(Debug)]
pub(crate) struct Window {
    pub(crate) members: Vec<Member>,
    asked: Option<PendingQuestion>,
    group_hashes: Vec<u64>,
    is_verified: Vec<bool>,
}

impl Window {
    pub(crate) fn new(blocks: &[u32]) -> Self {
        let member = |&block: &u32| Member {
            block,
            syndromes: Vec::new(),
            differing: None,
            is_raw: false,
            hash: None,
        };
        Self {
            members: blocks.iter().map(member).collect(),
            asked: None,
            group_hashes: Vec::new(),
            is_verified: vec![false; blocks.len().div_ceil(GROUP_BLOCKS)],
        }
    }

    /// Bytes that are kept for the blocks, besides the array itself.
    pub(crate) fn held_bytes(&self) -> usize {
        self.members.iter().map(Member::held_bytes).sum()
    }

    /// Whether a question is waiting for its answer.
    pub(crate) const fn is_waiting(&self) -> bool {
        self.asked.is_some()
    }

    /// The next question, or completion.
    ///
    /// # Errors
    /// If a block that was sent as it is has another hash.
    pub(crate) fn next(
        &mut self,
        core: &mut Core,
        ladder: &Ladder,
        blocks: &dyn BitBlocks,
    ) -> Result<Next> {
        loop {
            if let Some((question, places)) = self.open_question(ladder) {
                return Ok(self.ask(question, places));
            }
            if self.group_hashes.is_empty() {
                let places = (0..self.members.len() as u64).collect();
                return Ok(self.ask(Question::GroupHashes, places));
            }
            let bad = self.bad_groups(core, blocks);
            if bad.is_empty() {
                return Ok(Next::Complete);
            }
            let in_bad = |place: &usize| bad.contains(&(place / GROUP_BLOCKS));
            let places: Vec<usize> = (0..self.members.len()).filter(in_bad).collect();
            let unknown = places.iter().filter(|&&place| self.members[place].hash.is_none());
            let unknown: Vec<u64> = unknown.map(|&place| place as u64).collect();
            if !unknown.is_empty() {
                return Ok(self.ask(Question::BlockHashes, unknown));
            }
            self.reopen(&places, core, blocks)?;
        }
    }

    fn ask(&mut self, question: Question, mut places: Vec<u64>) -> Next {
        places.truncate(REPAIR_ANSWER_BYTES_MAX / question.bytes_per_block());
        self.asked = Some(PendingQuestion { question, places: places.clone(), answered: 0 });
        Next::Ask(question, places)
    }

    /// Asks for more syndromes of the blocks that have the fewest and do not decode, or for the blocks
    /// themselves.
    fn open_question(&self, ladder: &Ladder) -> Option<(Question, Vec<u64>)> {
        let open = || self.members.iter().zip(0u64..).filter(|(m, _)| m.differing.is_none());
        let from = open().map(|(member, _)| member.syndromes.len()).min()?;
        let places = open().filter(|(member, _)| member.syndromes.len() == from);
        let places = places.map(|(_, place)| place).collect();
        let byte = |count: usize| u8::try_from(count).expect("at most 128 syndromes");
        let question = match ladder.next(from) {
            Some(to) => Question::Syndromes { from: byte(from), to: byte(to) },
            None => Question::Raw,
        };
        Some((question, places))
    }

    fn bad_groups(&mut self, core: &Core, blocks: &dyn BitBlocks) -> Vec<usize> {
        let mut bad = Vec::new();
        for (group, members) in self.members.chunks(GROUP_BLOCKS).enumerate() {
            if self.is_verified[group] {
                continue;
            }
            let mut hasher = core.key.block_hasher();
            members.iter().for_each(|member| hasher.add(&member.read_theirs(blocks)));
            self.is_verified[group] = self.group_hashes.get(group) == Some(&hasher.finish());
            if !self.is_verified[group] {
                bad.push(group);
            }
        }
        bad
    }

    /// Reopens blocks whose hashes show that they were decoded wrongly.
    fn reopen(&mut self, places: &[usize], core: &mut Core, blocks: &dyn BitBlocks) -> Result<()> {
        let mut reopened = 0;
        for &place in places {
            let member = &mut self.members[place];
            if member.hash.is_some_and(|hash| !member.has_hash(hash, core, blocks)) {
                if member.is_raw {
                    return Err(RepairError::Changed { block: member.block });
                }
                member.differing = None;
                reopened += 1;
            }
        }
        core.outcome.wrong_block_count += reopened;
        match places.first() {
            // All blocks match their hashes, but the group does not.
            Some(&place) if reopened == 0 => {
                Err(RepairError::Changed { block: self.members[place].block })
            }
            _ => Ok(()),
        }
    }

    /// Handles a part of the answer.
    ///
    /// # Errors
    /// If it is not the next part of the expected answer.
    pub(crate) fn answered(
        &mut self,
        core: &mut Core,
        first: u64,
        payload: &[u8],
        blocks: &dyn BitBlocks,
    ) -> Result<()> {
        let Some(mut asked) = self.asked.take() else {
            return Err(RepairError::OutOfOrder { frame: "Answer", phase: core.phase });
        };
        if first != asked.answered as u64 {
            return Err(SessionFrameError::Field { field: "place", got: first }.into());
        }
        let before = asked.answered;
        let mut reader = Reader::new(payload);
        while !reader.is_empty() {
            let Some(&place) = asked.places.get(asked.answered) else {
                return Err(SessionFrameError::Field { field: "answers", got: first }.into());
            };
            let place = usize::try_from(place).expect("a place of the window");
            asked.answered += 1;
            match asked.question {
                Question::Syndromes { from, to } => {
                    self.grow(place, from..to, &mut reader, core, blocks)?;
                }
                Question::GroupHashes => {
                    self.group_hashes.push(reader.u64("group hash")?);
                    asked.answered = (asked.answered - 1 + GROUP_BLOCKS).min(asked.places.len());
                }
                Question::BlockHashes => {
                    self.members[place].hash = Some(reader.u32("block hash")?);
                }
                Question::Raw => self.take_raw(place, &mut reader, core, blocks)?,
            }
        }
        if asked.answered == before {
            return Err(SessionFrameError::Truncated { field: "answer" }.into());
        }
        if asked.answered < asked.places.len() {
            self.asked = Some(asked);
        }
        Ok(())
    }

    /// Adds syndromes to a block, and decodes it.
    fn grow(
        &mut self,
        place: usize,
        numbers: std::ops::Range<u8>,
        reader: &mut Reader<'_>,
        core: &mut Core,
        blocks: &dyn BitBlocks,
    ) -> Result<()> {
        let member = &mut self.members[place];
        let (from, to) = (usize::from(numbers.start), usize::from(numbers.end));
        own_syndromes(core, member.block, from, to, blocks, &mut member.syndromes);
        for syndrome in member.syndromes.iter_mut().skip(from) {
            *syndrome ^= reader.u16("syndrome")?;
        }
        let seed = core.options.nonce ^ u64::from(member.block);
        let found = decode_block(&member.syndromes, flips_max(to), seed);
        let bits = core.outcome.table.bits_of_block(member.block);
        let is_inside = |found: &Vec<u32>| found.last().is_none_or(|&last| last < bits);
        member.differing = found.filter(is_inside).map(Differing::Few);
        if let Some(hash) = member.hash
            && member.differing.is_some()
            && !member.has_hash(hash, core, blocks)
        {
            member.differing = None;
            core.outcome.wrong_block_count += 1;
        }
        Ok(())
    }

    fn take_raw(
        &mut self,
        place: usize,
        reader: &mut Reader<'_>,
        core: &mut Core,
        blocks: &dyn BitBlocks,
    ) -> Result<()> {
        let member = &mut self.members[place];
        let mut words = read_raw(reader)?;
        let bits = core.outcome.table.bits_of_block(member.block);
        let tail = (bits..BLOCK_BITS).any(|at| words[at as usize / 64] >> (at % 64) & 1 == 1);
        if tail {
            return Err(SessionFrameError::Field { field: "bit", got: bits.into() }.into());
        }
        let mut ours = [0; BLOCK_WORDS];
        blocks.read(member.block, &mut ours);
        words.iter_mut().zip(ours).for_each(|(theirs, ours)| *theirs ^= ours);
        member.differing = Some(Differing::Many(Box::new(words)));
        member.is_raw = true;
        core.outcome.raw_block_count += 1;
        Ok(())
    }
}

fn read_raw(reader: &mut Reader<'_>) -> Result<[u64; BLOCK_WORDS], SessionFrameError> {
    let mut words = [0; BLOCK_WORDS];
    match reader.u8("block form")? {
        0 => {
            for word in &mut words {
                *word = reader.u64("block")?;
            }
        }
        1 => {
            let max = 8 * BLOCK_WORDS as u64;
            let length = reader.varint_at_most("block bytes", max)?;
            let bytes = reader.bytes("block", usize::try_from(length).unwrap_or(0))?;
            let limits = ListLimits { end: BLOCK_BITS.into(), count_max: BLOCK_BITS as usize };
            for at in read_list(&mut Reader::new(bytes), limits)? {
                words[usize::try_from(at / 64).expect("a word of a block")] |= 1 << (at % 64);
            }
        }
        got => return Err(SessionFrameError::Field { field: "block form", got: got.into() }),
    }
    Ok(words)
}
