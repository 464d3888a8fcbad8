//! The options of a repair, and its result.

use super::table::ResidueTable;
use crate::limits::REPAIR_READS_PER_BLOCK_MAX as READS_PER_BLOCK_MAX;

/// What is done with the bits that differ. The initiator chooses.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Policy {
    /// They are found and verified; neither copy changes.
    Compare,
    /// The initiator's copy becomes the responder's: for a copy that lost against a majority, or against a checksum.
    Mirror,
    /// Both copies become their OR: for copies of a filter that must not forget, when nobody knows which one is right.
    Union,
}

/// What a session may cost. A peer that would exceed one of these ends the session with an error.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RepairLimits {
    /// Most bytes on the wire, both ways together.
    pub bytes_max: u64,
    /// Most times that a responder reads a block.
    pub block_reads_max: u64,
}

impl RepairLimits {
    /// Twice the array and a mebibyte; 24 reads of each block.
    #[must_use]
    pub fn of(table: &ResidueTable) -> Self {
        let blocks = u64::from(table.block_count());
        Self {
            bytes_max: (table.bit_count() / 4).saturating_add(1 << 20),
            block_reads_max: blocks * READS_PER_BLOCK_MAX + 1000,
        }
    }
}

/// The options of both sides.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RepairOptions {
    /// What the bits mean: a digest of all that both copies' filters must have in common. A responder refuses another.
    pub shape_id: u64,
    /// The cluster's secret, or zeros.
    pub secret: [u8; 16],
    /// Drawn by the driver for this session alone.
    pub nonce: u64,
    /// What the session may cost.
    pub limits: RepairLimits,
}

/// Blocks of an array differ in these bits.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct BlockDifference {
    /// Number of the block; its first bit is bit 32,768·block of the array.
    pub block: u32,
    /// The bits of the block in which the copies differ, ascending. A responder receives only those that it lacks.
    pub differing: Vec<u16>,
    /// Those of them that are to be flipped in this copy, by the session's policy: all, those that are 0 here, or none.
    pub flips: Vec<u16>,
}

/// Bytes on the wire, both ways together, frame headers included, by what they were for.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct RepairBytes {
    /// First frames with roots and estimator, last frames with roots.
    pub greeting: u64,
    /// Finding the blocks that differ.
    pub find: u64,
    /// Telling which blocks are spoken of.
    pub lists: u64,
    /// Syndromes.
    pub syndromes: u64,
    /// Hashes of groups and blocks.
    pub hashes: u64,
    /// Blocks as they are.
    pub raw: u64,
    /// Bits that the responder lacks.
    pub push: u64,
}

impl RepairBytes {
    /// All of them.
    ///
    /// ```
    /// use umbel_engine::repair::RepairBytes;
    ///
    /// let bytes = RepairBytes { greeting: 62, syndromes: 16, ..RepairBytes::default() };
    /// assert_eq!(bytes.total(), 78);
    /// ```
    #[must_use]
    pub const fn total(&self) -> u64 {
        self.greeting + self.find + self.lists + self.syndromes + self.hashes + self.raw + self.push
    }
}

/// How a repair ended well: the roots that should be equal are.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct RepairOutcome {
    /// This copy's table after the repair.
    pub table: ResidueTable,
    /// Blocks that differed; a responder knows only of those that it changed.
    pub dirty_block_count: u64,
    /// Bits that differed; a responder knows only of those that it lacked.
    pub differing_bit_count: u64,
    /// Bits that are to be flipped here.
    pub flip_count: u64,
    /// Blocks that were sent as they are.
    pub raw_block_count: u64,
    /// Blocks that decoded to wrong flips, which a hash found.
    pub wrong_block_count: u64,
    /// Questions that had to be asked one after the other, which are the round trips behind the search for blocks; of a
    /// responder, questions that it answered.
    pub round_count: u64,
    /// Bytes by what they were for.
    pub bytes: RepairBytes,
    /// Bytes that this side sent.
    pub sent_bytes: u64,
    /// Bytes that it received.
    pub received_bytes: u64,
}
