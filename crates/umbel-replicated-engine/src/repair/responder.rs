//! The side of a repair that answers.

use umbel_sketch::{BLOCK_BITS, BLOCK_WORDS, FLIPS_PER_WORD, block_syndromes};

use super::core::{Core, limit, out_of_order};
use super::error::{RepairError, RepairRefusal, Result};
use super::event::{Out, RepairOutput};
use super::finder::Finder;
use super::keys::RepairKey;
use super::message::refusal_parts;
use super::message::{GROUP_BLOCKS, Message, Question, VERSION, Verdict, policy_byte, put_list};
use super::options::{BlockDifference, Policy};
use super::table::{BitBlocks, TABLE_WORDS, bit_place, block_code};
use crate::limits::{REPAIR_ANSWER_BYTES_MAX, REPAIR_FRAME_BODY_BYTES_CUT, REPAIR_WINDOWS_MAX};
use umbel_reconcile_engine::wire::put_varint;
use umbel_reconcile_engine::{SessionFrameError, SessionInput};

/// A responder between two frames.
#[derive(Debug)]
pub(crate) struct Responder {
    accept_bits: bool,
    is_greeted: bool,
    may_push: bool,
    finder: Option<Box<Finder>>,
    /// The blocks of the window in each slot.
    windows: [Vec<u32>; REPAIR_WINDOWS_MAX],
    pushed_block: Option<u32>,
    block_reads: u64,
}

impl Responder {
    pub(crate) const fn new(accept_bits: bool) -> Self {
        Self {
            accept_bits,
            is_greeted: false,
            may_push: false,
            finder: None,
            windows: [const { Vec::new() }; REPAIR_WINDOWS_MAX],
            pushed_block: None,
            block_reads: 0,
        }
    }

    pub(crate) fn on_message(
        &mut self,
        core: &mut Core,
        message: Message,
        blocks: &dyn BitBlocks,
        out: &mut Out,
    ) -> Result<()> {
        if let Message::Hello { .. } = message
            && !self.is_greeted
        {
            return self.greet(core, &message, out);
        }
        if !self.is_greeted {
            return Err(out_of_order(&message, core.phase));
        }
        match message {
            Message::Find(bytes) => self.find(core, bytes, out),
            Message::Window { slot, blocks } => {
                self.finder = None;
                core.phase = "answering";
                let block = |&block: &u64| u32::try_from(block).expect("a block of the array");
                if let Some(window) = self.windows.get_mut(usize::from(slot)) {
                    *window = blocks.iter().map(block).collect();
                }
                Ok(())
            }
            Message::Ask { slot, question, places } => {
                let window = self.windows.get(usize::from(slot)).map_or(&[][..], Vec::as_slice);
                let asked = places.iter().map(|&place| {
                    let block = usize::try_from(place).ok().and_then(|place| window.get(place));
                    block.copied().ok_or(SessionFrameError::Field { field: "place", got: place })
                });
                let asked = asked.collect::<Result<Vec<u32>, _>>()?;
                self.answer(core, question, &asked, blocks, out)
            }
            Message::Push(bits) if self.may_push => self.push(core, &bits, blocks, out),
            Message::Done { root } => {
                let ours = core.key.root(&core.outcome.table);
                core.send(&Message::Done { root: ours }, out);
                if root != ours {
                    return Err(RepairError::NotConverged);
                }
                core.finish(out);
                Ok(())
            }
            message => Err(out_of_order(&message, core.phase)),
        }
    }

    fn greet(&mut self, core: &mut Core, message: &Message, out: &mut Out) -> Result<()> {
        let &Message::Hello { version, policy, shape_id, bits, nonce, check, root } = message
        else {
            return Ok(());
        };
        self.is_greeted = true;
        let options = core.options;
        let first = RepairKey::derive(&options.domain, options.shape_id, [nonce, 0]);
        let (ours, theirs) = (shape_id, options.shape_id);
        let is_union = policy == policy_byte(Policy::Union);
        let refusal = if version != VERSION || policy > policy_byte(Policy::Union) {
            Some(RepairRefusal::Version)
        } else if ours != theirs {
            Some(RepairRefusal::Shape { ours, theirs })
        } else if bits != core.outcome.table.bit_count() {
            Some(RepairRefusal::BitCount { ours: bits, theirs: core.outcome.table.bit_count() })
        } else if check != first.check() {
            Some(RepairRefusal::Key)
        } else if is_union && !self.accept_bits {
            Some(RepairRefusal::ReadOnly)
        } else {
            None
        };
        if let Some(refusal) = refusal {
            let (reason, theirs) = refusal_parts(refusal);
            core.send(&Message::Welcome(Verdict::Refused { reason, theirs }), out);
            return Err(RepairError::RefusedHere);
        }
        if first.root(&core.outcome.table) == root {
            core.send(&Message::Welcome(Verdict::Equal), out);
            core.finish(out);
            return Ok(());
        }
        self.may_push = is_union;
        core.key = RepairKey::derive(&options.domain, shape_id, [nonce, options.nonce]);
        core.phase = "waiting for a question";
        let verdict = Verdict::Differs {
            nonce: options.nonce,
            check: core.key.check(),
            root: core.key.root(&core.outcome.table),
            estimator: core.key.estimator(&core.outcome.table).to_bytes(),
        };
        core.send(&Message::Welcome(verdict), out);
        let mut finder = Finder::responder(&options, core.outcome.table.block_count());
        finder.step(SessionInput::Start, &core.outcome.table, &mut Vec::new());
        self.finder = Some(Box::new(finder));
        Ok(())
    }

    fn find(&mut self, core: &mut Core, bytes: Vec<u8>, out: &mut Out) -> Result<()> {
        let Some(finder) = &mut self.finder else {
            return Err(RepairError::OutOfOrder { frame: "Find", phase: core.phase });
        };
        core.phase = "finding blocks";
        let mut send = Vec::new();
        finder.step(SessionInput::Received(bytes), &core.outcome.table, &mut send);
        if finder.result().is_some() {
            self.finder = None;
        }
        send.iter().for_each(|message| core.send(message, out));
        Ok(())
    }

    fn answer(
        &mut self,
        core: &mut Core,
        question: Question,
        asked: &[u32],
        blocks: &dyn BitBlocks,
        out: &mut Out,
    ) -> Result<()> {
        let bytes = asked.len() * question.bytes_per_block();
        if bytes > REPAIR_ANSWER_BYTES_MAX {
            return Err(limit("bytes of an answer", bytes as u64, REPAIR_ANSWER_BYTES_MAX as u64));
        }
        self.block_reads += asked.len() as u64;
        let reads_max = core.options.limits.block_reads_max;
        if self.block_reads > reads_max {
            return Err(limit("block reads", self.block_reads, reads_max));
        }
        let step = match question {
            Question::GroupHashes => GROUP_BLOCKS,
            _ => 1,
        };
        let mut first = 0;
        let mut payload = Vec::new();
        for (place, group) in (0..).step_by(step).zip(asked.chunks(step)) {
            if payload.len() + step * question.bytes_per_block() > REPAIR_FRAME_BODY_BYTES_CUT {
                let payload = std::mem::take(&mut payload);
                core.send(&Message::Answer { first, payload }, out);
                first = place;
            }
            put_answer(core, question, group, blocks, &mut payload);
        }
        core.send(&Message::Answer { first, payload }, out);
        core.answered();
        core.outcome.round_count += 1;
        core.check_step()
    }

    /// Sets the bits that this copy lacks. `blocks` includes the flips of earlier steps; those of this step
    /// follow below.
    fn push(
        &mut self,
        core: &mut Core,
        bits: &[u64],
        blocks: &dyn BitBlocks,
        out: &mut Out,
    ) -> Result<()> {
        let mut words = [0; BLOCK_WORDS];
        for of_block in bits.chunk_by(|a, b| bit_place(*a).0 == bit_place(*b).0) {
            let Some(&first) = of_block.first() else { continue };
            let block = bit_place(first).0;
            blocks.read(block, &mut words);
            let positions = of_block.iter().map(|&bit| bit_place(bit).1);
            let is_unset = |at: &u32| words[*at as usize / 64] >> (at % 64) & 1 == 0;
            let flips: Vec<u32> = positions.filter(is_unset).collect();
            let residues = core.outcome.table.of_block_mut(block);
            flips.iter().for_each(|&position| block_code().flip(residues, position));
            let narrow = |&at: &u32| u16::try_from(at).expect("a bit of a block");
            let flips: Vec<u16> = flips.iter().map(narrow).collect();
            if !flips.is_empty() {
                let is_new = self.pushed_block.replace(block) != Some(block);
                core.note_differing(is_new, flips.len(), flips.len());
                let differing = flips.clone();
                out.push(RepairOutput::Differs(BlockDifference { block, differing, flips }));
            }
        }
        Ok(())
    }
}

/// Appends the answer for a block or a group.
fn put_answer(
    core: &Core,
    question: Question,
    group: &[u32],
    blocks: &dyn BitBlocks,
    payload: &mut Vec<u8>,
) {
    let mut words = [0; BLOCK_WORDS];
    if let Question::Syndromes { from, to } = question {
        let mut syndromes = Vec::new();
        for &block in group {
            own_syndromes(core, block, from.into(), to.into(), blocks, &mut syndromes);
        }
        syndromes.iter().for_each(|syndrome| payload.extend(syndrome.to_le_bytes()));
        return;
    }
    let mut hasher = core.key.block_hasher();
    for &block in group {
        blocks.read(block, &mut words);
        match question {
            Question::Raw => put_raw(&words, payload),
            _ => hasher.add(&words),
        }
    }
    match question {
        Question::GroupHashes => payload.extend(hasher.finish().to_le_bytes()),
        Question::BlockHashes => payload.extend(block_hash(hasher.finish()).to_le_bytes()),
        _ => {}
    }
}

/// The part of a hash that is sent for one block: it only has to tell which of 64 blocks is wrong.
pub(crate) const fn block_hash(hash: u64) -> u32 {
    (hash >> 32) as u32
}

/// Appends a block as it is, or as a list of its ones if that is shorter.
fn put_raw(words: &[u64; BLOCK_WORDS], payload: &mut Vec<u8>) {
    let ones: u32 = words.iter().map(|word| word.count_ones()).sum();
    // A longer list is never shorter than the block: this is a fill of 0.3.
    if ones < 10_000 {
        let is_one = |at: &u32| words[*at as usize / 64] >> (at % 64) & 1 == 1;
        let positions: Vec<u64> = (0..BLOCK_BITS).filter(is_one).map(u64::from).collect();
        let mut list = Vec::new();
        put_list(&mut list, &positions);
        if list.len() + 3 < 8 * BLOCK_WORDS {
            payload.push(1);
            put_varint(payload, list.len() as u64);
            payload.extend(list);
            return;
        }
    }
    payload.push(0);
    words.iter().for_each(|word| payload.extend(word.to_le_bytes()));
}

/// Appends the syndromes of this copy's block, computed from the table if it has enough words.
pub(crate) fn own_syndromes(
    core: &Core,
    block: u32,
    from: usize,
    to: usize,
    blocks: &dyn BitBlocks,
    syndromes: &mut Vec<u16>,
) {
    let word_count = to.div_ceil(FLIPS_PER_WORD);
    if word_count <= TABLE_WORDS {
        block_syndromes(core.outcome.table.of_block(block), from..to, syndromes);
        return;
    }
    let mut words = [0; BLOCK_WORDS];
    blocks.read(block, &mut words);
    let mut residues = vec![0; word_count];
    block_code().residues_into(&words, &mut residues);
    block_syndromes(&residues, from..to, syndromes);
}
