//! What both sides of a repair share: the residue table, the key and the counters.

use std::collections::VecDeque;

use super::error::RepairError;
use super::event::RepairOutput;
use super::keys::RepairKey;
use super::message::{ListLimits, Message, MessageLimits, Question};
use super::options::{RepairBytes, RepairOptions, RepairOutcome};
use super::table::ResidueTable;
use crate::limits::{
    REPAIR_PUSH_BITS_MAX as PUSH_BITS_MAX, REPAIR_STEP_BYTES_MAX as STEP_BYTES_MAX,
    REPAIR_WINDOW_BLOCKS_MAX as WINDOW_BLOCKS_MAX,
};
use umbel_reconcile_engine::wire::put_frame;
use umbel_step::Outbox;

/// The state that both sides share.
#[derive(Debug)]
pub(crate) struct Core {
    pub(crate) options: RepairOptions,
    pub(crate) table: ResidueTable,
    pub(crate) key: RepairKey,
    pub(crate) phase: &'static str,
    pub(crate) is_over: bool,
    /// Questions that are not fully answered yet, oldest first: answers in transit belong to the
    /// first one.
    questions: VecDeque<Question>,
    /// Bytes sent before the current step.
    step_began_bytes: u64,
    pub(crate) bytes: RepairBytes,
    pub(crate) sent_bytes: u64,
    pub(crate) received_bytes: u64,
    pub(crate) dirty_block_count: u64,
    pub(crate) differing_bit_count: u64,
    pub(crate) flip_count: u64,
    pub(crate) raw_block_count: u64,
    pub(crate) wrong_block_count: u64,
    pub(crate) round_count: u64,
}

impl Core {
    pub(crate) fn new(options: RepairOptions, table: ResidueTable) -> Self {
        Self {
            options,
            table,
            key: RepairKey::derive(&options.secret, options.shape_id, [options.nonce, 0]),
            phase: "waiting for a first frame",
            is_over: false,
            questions: VecDeque::new(),
            step_began_bytes: 0,
            bytes: RepairBytes::default(),
            sent_bytes: 0,
            received_bytes: 0,
            dirty_block_count: 0,
            differing_bit_count: 0,
            flip_count: 0,
            raw_block_count: 0,
            wrong_block_count: 0,
            round_count: 0,
        }
    }

    pub(crate) fn message_limits(&self) -> MessageLimits {
        let end = self.table.block_count().into();
        MessageLimits {
            blocks: ListLimits { end, count_max: WINDOW_BLOCKS_MAX },
            places: ListLimits { end: WINDOW_BLOCKS_MAX as u64, count_max: WINDOW_BLOCKS_MAX },
            bits: ListLimits { end: self.table.bit_count(), count_max: PUSH_BITS_MAX },
        }
    }

    pub(crate) fn send(&mut self, message: &Message, out: &mut Outbox<RepairOutput>) {
        let mut bytes = Vec::new();
        put_frame(&mut bytes, message.frame_type(), &message.body());
        self.sent_bytes += bytes.len() as u64;
        self.count(message, bytes.len() as u64);
        out.push(RepairOutput::Send(bytes));
    }

    pub(crate) fn received(&mut self, message: &Message, bytes: u64) -> Result<(), RepairError> {
        self.received_bytes += bytes;
        self.count(message, bytes);
        let got = self.sent_bytes + self.received_bytes;
        let max = self.options.limits.bytes_max;
        if got > max { Err(limit("bytes on the wire", got, max)) } else { Ok(()) }
    }

    fn count(&mut self, message: &Message, bytes: u64) {
        let counter = match message {
            Message::Find(_) => &mut self.bytes.find,
            Message::Window { .. } => &mut self.bytes.lists,
            Message::Ask { question, .. } => {
                self.questions.push_back(*question);
                &mut self.bytes.lists
            }
            Message::Answer { .. } => match self.questions.front() {
                Some(Question::Syndromes { .. }) | None => &mut self.bytes.syndromes,
                Some(Question::Raw) => &mut self.bytes.raw,
                Some(_) => &mut self.bytes.hashes,
            },
            Message::Push(_) => &mut self.bytes.push,
            _ => &mut self.bytes.greeting,
        };
        *counter += bytes;
    }

    /// Records that the oldest question is fully answered.
    pub(crate) fn answered(&mut self) {
        self.questions.pop_front();
    }

    /// Records that a step begins.
    pub(crate) const fn step_begins(&mut self) {
        self.step_began_bytes = self.sent_bytes;
    }

    /// # Errors
    /// If this step has output more bytes than a peer may have requested.
    pub(crate) const fn check_step(&self) -> Result<(), RepairError> {
        let got = self.sent_bytes - self.step_began_bytes;
        if got > STEP_BYTES_MAX {
            return Err(limit("bytes of answers at once", got, STEP_BYTES_MAX));
        }
        Ok(())
    }

    pub(crate) const fn note_differing(&mut self, is_new: bool, differing: usize, flips: usize) {
        self.dirty_block_count += is_new as u64;
        self.differing_bit_count += differing as u64;
        self.flip_count += flips as u64;
    }

    /// Ends the session with success.
    pub(crate) fn finish(&mut self, out: &mut Outbox<RepairOutput>) {
        self.is_over = true;
        out.push(RepairOutput::Finish(Ok(Box::new(RepairOutcome {
            table: self.table.clone(),
            dirty_block_count: self.dirty_block_count,
            differing_bit_count: self.differing_bit_count,
            flip_count: self.flip_count,
            raw_block_count: self.raw_block_count,
            wrong_block_count: self.wrong_block_count,
            round_count: self.round_count,
            bytes: self.bytes,
            sent_bytes: self.sent_bytes,
            received_bytes: self.received_bytes,
        }))));
    }
}

pub(crate) const fn limit(limit: &'static str, got: u64, max: u64) -> RepairError {
    RepairError::LimitExceeded { limit, got, max }
}

pub(crate) fn out_of_order(message: &Message, phase: &'static str) -> RepairError {
    RepairError::OutOfOrder { frame: message.name(), phase }
}
