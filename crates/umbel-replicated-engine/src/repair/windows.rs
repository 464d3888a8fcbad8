//! The windows of an initiator. Several are open at once, so that a session takes about as many round trips
//! as one window, not as all of them together.
//!
//! The first window is short and runs alone, because the ladder of the others is learnt from it. Answers
//! arrive in the order of the questions, so each belongs to the oldest unanswered question.

use std::collections::VecDeque;

use super::core::Core;
use super::error::{RepairError, Result};
use super::event::Out;
use super::ladder::Ladder;
use super::message::{Message, Question};
use super::table::BitBlocks;
use super::window::{Differing, Next, Window};
use crate::limits::{
    REPAIR_HELD_BYTES_MAX, REPAIR_UNANSWERED_BYTES_MAX, REPAIR_WINDOW_BLOCKS_MAX,
    REPAIR_WINDOWS_MAX,
};

/// Number of blocks of the first window, from which the ladder of the others is learnt.
const FIRST_WINDOW_BLOCKS: usize = 1024;

/// An open window, with its next question if that waits for room.
#[derive(Debug)]
struct Open {
    slot: u8,
    window: Window,
    next: Option<(Question, Vec<u64>)>,
}

/// A question that has not been answered completely.
#[derive(Debug)]
struct Unanswered {
    slot: u8,
    /// Most bytes of the answer.
    bytes: usize,
    /// The length of the chain of questions, each asked after the answer to the previous one, that ends
    /// with this one.
    round: u64,
}

/// All blocks that are to be repaired.
#[derive(Debug)]
pub(crate) struct Windows {
    /// Blocks that are not in a window yet, in descending order.
    rest: Vec<u32>,
    /// In order of age, oldest first.
    open: Vec<Open>,
    unanswered: VecDeque<Unanswered>,
    ladder: Ladder,
    is_learnt: bool,
    round: u64,
    /// Most blocks of the first window, and of the others.
    pub(crate) window_blocks: [usize; 2],
}

impl Windows {
    /// Windows without blocks.
    pub(crate) fn new() -> Self {
        Self {
            rest: Vec::new(),
            open: Vec::new(),
            unanswered: VecDeque::new(),
            ladder: Ladder::new(),
            is_learnt: false,
            round: 0,
            window_blocks: [FIRST_WINDOW_BLOCKS, REPAIR_WINDOW_BLOCKS_MAX],
        }
    }

    /// Sets the blocks to repair, in ascending order.
    pub(crate) fn over(&mut self, mut blocks: Vec<u32>) {
        blocks.reverse();
        self.rest = blocks;
    }

    /// Whether all blocks are repaired.
    pub(crate) const fn is_empty(&self) -> bool {
        self.rest.is_empty() && self.open.is_empty()
    }

    /// Handles a part of the answer to the oldest question, and returns whether the answer is complete.
    ///
    /// # Errors
    /// If it is not part of that answer.
    pub(crate) fn answered(
        &mut self,
        core: &mut Core,
        first: u64,
        payload: &[u8],
        blocks: &dyn BitBlocks,
    ) -> Result<bool> {
        let order = RepairError::OutOfOrder { frame: "Answer", phase: core.phase };
        let Some(due) = self.unanswered.front() else { return Err(order) };
        let open = self.open.iter_mut().find(|open| open.slot == due.slot).ok_or(order)?;
        open.window.answered(core, first, payload, blocks)?;
        if open.window.is_waiting() {
            return Ok(false);
        }
        self.round = due.round;
        self.unanswered.pop_front();
        core.answered();
        Ok(true)
    }

    /// Sends all questions that may be sent now. If a window is repaired and verified, returns it instead;
    /// the caller must then call again.
    ///
    /// # Errors
    /// If a block that was sent as it is has another hash.
    pub(crate) fn advance(
        &mut self,
        core: &mut Core,
        blocks: &dyn BitBlocks,
        out: &mut Out,
    ) -> Result<Option<Window>> {
        self.open_more(core, out);
        while let Some(at) = self.open.iter().position(|open| !open.window.is_waiting()) {
            let Some(open) = self.open.get_mut(at) else { break };
            match open.window.next(core, &self.ladder, blocks)? {
                Next::Ask(question, places) => open.next = Some((question, places)),
                Next::Complete => {
                    let window = self.open.remove(at).window;
                    let differing = window.members.iter().filter_map(|m| m.differing.as_ref());
                    let flips = differing.map(Differing::count);
                    let open = self.open.iter().map(|open| open.window.members.len());
                    let ahead = self.rest.len() + open.sum::<usize>();
                    self.ladder.learn(flips, ahead);
                    self.is_learnt = true;
                    return Ok(Some(window));
                }
            }
        }
        self.ask(core, out);
        Ok(None)
    }

    fn open_more(&mut self, core: &mut Core, out: &mut Out) {
        let [first_blocks_max, blocks_max] = self.window_blocks;
        let (blocks_max, windows_max) =
            if self.is_learnt { (blocks_max, REPAIR_WINDOWS_MAX) } else { (first_blocks_max, 1) };
        while self.open.len() < windows_max && !self.rest.is_empty() {
            let is_free = |slot: &u8| self.open.iter().all(|open| open.slot != *slot);
            let Some(slot) = (0..=u8::MAX).find(is_free) else { break };
            let mut blocks = self.rest.split_off(self.rest.len().saturating_sub(blocks_max));
            blocks.reverse();
            let window = Window::new(&blocks);
            let blocks = blocks.iter().map(|&block| block.into()).collect();
            core.send(&Message::Window { slot, blocks }, out);
            self.open.push(Open { slot, window, next: None });
        }
    }

    /// Sends the questions whose answers have room: in transit, and, except for the oldest window, in
    /// memory.
    fn ask(&mut self, core: &mut Core, out: &mut Out) {
        let mut unanswered: usize = self.unanswered.iter().map(|due| due.bytes).sum();
        let mut held: usize = self.open.iter().map(|open| open.window.held_bytes()).sum();
        for (age, open) in self.open.iter_mut().enumerate() {
            let Some((question, places)) = open.next.take() else { continue };
            let bytes = places.len() * question.bytes_per_block();
            let more = places.len() * question.held_bytes_per_block();
            let has_way = unanswered == 0 || unanswered + bytes <= REPAIR_UNANSWERED_BYTES_MAX;
            if !has_way || (age > 0 && held + more > REPAIR_HELD_BYTES_MAX) {
                open.next = Some((question, places));
                continue;
            }
            (unanswered, held) = (unanswered + bytes, held + more);
            let round = self.round + 1;
            self.unanswered.push_back(Unanswered { slot: open.slot, bytes, round });
            core.outcome.round_count = round;
            core.send(&Message::Ask { slot: open.slot, question, places }, out);
        }
    }
}
