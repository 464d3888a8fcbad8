//! What both sides of a repair share: the residue table, the key and the counters.

use std::collections::VecDeque;

use super::error::{RepairError, Result};
use super::event::{Out, RepairOutput};
use super::keys::RepairKey;
use super::message::{ListLimits, Message, MessageLimits, Question};
use super::options::{RepairBytes, RepairOptions, RepairOutcome};
use super::table::ResidueTable;
use crate::limits::{REPAIR_PUSH_BITS_MAX, REPAIR_STEP_BYTES_MAX, REPAIR_WINDOW_BLOCKS_MAX};
use umbel_reconcile_engine::wire::put_frame;

/// The state that both sides share.
#[derive(Debug)]
pub(crate) struct Core {
    pub(crate) options: RepairOptions,
    pub(crate) key: RepairKey,
    pub(crate) phase: &'static str,
    pub(crate) is_over: bool,
    /// Questions that are not fully answered yet, oldest first: answers in transit belong to the
    /// first one.
    questions: VecDeque<Question>,
    /// Bytes sent before the current step.
    step_began_bytes: u64,
    /// The result, if the session ended now.
    pub(crate) outcome: RepairOutcome,
}

impl Core {
    pub(crate) fn new(options: RepairOptions, table: ResidueTable) -> Self {
        let outcome = RepairOutcome {
            table,
            dirty_block_count: 0,
            differing_bit_count: 0,
            flip_count: 0,
            raw_block_count: 0,
            wrong_block_count: 0,
            round_count: 0,
            bytes: RepairBytes::default(),
            sent_bytes: 0,
            received_bytes: 0,
        };
        Self {
            options,
            key: RepairKey::derive(&options.domain, options.shape_id, [options.nonce, 0]),
            phase: "waiting for a first frame",
            is_over: false,
            questions: VecDeque::new(),
            step_began_bytes: 0,
            outcome,
        }
    }

    pub(crate) fn message_limits(&self) -> MessageLimits {
        let end = self.outcome.table.block_count().into();
        MessageLimits {
            blocks: ListLimits { end, count_max: REPAIR_WINDOW_BLOCKS_MAX },
            places: ListLimits {
                end: REPAIR_WINDOW_BLOCKS_MAX as u64,
                count_max: REPAIR_WINDOW_BLOCKS_MAX,
            },
            bits: ListLimits {
                end: self.outcome.table.bit_count(),
                count_max: REPAIR_PUSH_BITS_MAX,
            },
        }
    }

    pub(crate) fn send(&mut self, message: &Message, out: &mut Out) {
        let mut bytes = Vec::new();
        put_frame(&mut bytes, message.frame_type(), &message.body());
        self.outcome.sent_bytes += bytes.len() as u64;
        self.count(message, bytes.len() as u64);
        out.push(RepairOutput::Send(bytes));
    }

    pub(crate) fn received(&mut self, message: &Message, bytes: u64) -> Result<()> {
        self.outcome.received_bytes += bytes;
        self.count(message, bytes);
        let got = self.outcome.sent_bytes + self.outcome.received_bytes;
        let max = self.options.limits.bytes_max;
        if got > max { Err(limit("bytes on the wire", got, max)) } else { Ok(()) }
    }

    fn count(&mut self, message: &Message, bytes: u64) {
        let counter = match message {
            Message::Find(_) => &mut self.outcome.bytes.find,
            Message::Window { .. } => &mut self.outcome.bytes.lists,
            Message::Ask { question, .. } => {
                self.questions.push_back(*question);
                &mut self.outcome.bytes.lists
            }
            Message::Answer { .. } => match self.questions.front() {
                Some(Question::Syndromes { .. }) | None => &mut self.outcome.bytes.syndromes,
                Some(Question::Raw) => &mut self.outcome.bytes.raw,
                Some(_) => &mut self.outcome.bytes.hashes,
            },
            Message::Push(_) => &mut self.outcome.bytes.push,
            _ => &mut self.outcome.bytes.greeting,
        };
        *counter += bytes;
    }

    /// Records that the oldest question is fully answered.
    pub(crate) fn answered(&mut self) {
        self.questions.pop_front();
    }

    /// Records that a step begins.
    pub(crate) const fn step_begins(&mut self) {
        self.step_began_bytes = self.outcome.sent_bytes;
    }

    /// # Errors
    /// If this step has output more bytes than a peer may have requested.
    pub(crate) const fn check_step(&self) -> Result<()> {
        let got = self.outcome.sent_bytes - self.step_began_bytes;
        if got > REPAIR_STEP_BYTES_MAX {
            return Err(limit("bytes of answers at once", got, REPAIR_STEP_BYTES_MAX));
        }
        Ok(())
    }

    pub(crate) const fn note_differing(&mut self, is_new: bool, differing: usize, flips: usize) {
        self.outcome.dirty_block_count += is_new as u64;
        self.outcome.differing_bit_count += differing as u64;
        self.outcome.flip_count += flips as u64;
    }

    /// Ends the session with success.
    pub(crate) fn finish(&mut self, out: &mut Out) {
        self.is_over = true;
        out.push(RepairOutput::Finish(Ok(Box::new(self.outcome.clone()))));
    }
}

pub(crate) const fn limit(limit: &'static str, got: u64, max: u64) -> RepairError {
    RepairError::LimitExceeded { limit, got, max }
}

pub(crate) fn out_of_order(message: &Message, phase: &'static str) -> RepairError {
    RepairError::OutOfOrder { frame: message.name(), phase }
}
