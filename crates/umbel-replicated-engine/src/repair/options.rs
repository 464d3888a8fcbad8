//! The options of a repair, and its result.

use super::table::ResidueTable;
use crate::limits::REPAIR_READS_PER_BLOCK_MAX;

/// What happens to bits that differ. The initiator chooses.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Policy {
    /// Differences are found and verified; neither copy changes.
    Compare,
    /// The initiator's copy becomes equal to the responder's: for a copy that a majority or a checksum has
    /// proved wrong.
    Mirror,
    /// Both copies become their OR: for copies of a filter that must not lose items, when it is unknown
    /// which is right.
    Union,
}

/// Limits on the cost of a session. A peer that would exceed one of them ends the session with an error.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RepairLimits {
    /// Most bytes on the wire, in both directions together.
    pub bytes_max: u64,
    /// Most block reads by a responder.
    pub block_reads_max: u64,
}

impl RepairLimits {
    /// Twice the array's size plus 1 MiB; 24 reads per block.
    #[must_use]
    pub fn of(table: &ResidueTable) -> Self {
        let blocks = u64::from(table.block_count());
        Self {
            bytes_max: (table.bit_count() / 4).saturating_add(1 << 20),
            block_reads_max: blocks * REPAIR_READS_PER_BLOCK_MAX + 1000,
        }
    }
}

/// The options of one side.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RepairOptions {
    /// The meaning of the bits: a digest of everything that both copies' filters must have in common. A
    /// responder refuses a different one.
    pub shape_id: u64,
    /// The id of the cluster whose copies these are: sides with different ones refuse each other. Not secret.
    pub domain: [u8; 16],
    /// A random number, drawn by the caller for this session alone.
    pub nonce: u64,
    /// Limits on the cost of the session.
    pub limits: RepairLimits,
}

/// The bits in which one block differs.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct BlockDifference {
    /// Number of the block; its first bit is bit 32,768·`block` of the array.
    pub block: u32,
    /// The bits of the block in which the copies differ, ascending. A responder gets only those that it
    /// lacks.
    pub differing: Vec<u16>,
    /// Those of them that must be flipped in this copy, by the session's policy: all, those that are 0
    /// here, or none.
    pub flips: Vec<u16>,
}

/// Bytes on the wire by purpose, in both directions together, including frame headers.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct RepairBytes {
    /// First frames, with roots and estimator, and last frames, with roots.
    pub greeting: u64,
    /// Search for the blocks that differ.
    pub find: u64,
    /// Lists of the blocks that windows and questions are about.
    pub lists: u64,
    /// Syndromes.
    pub syndromes: u64,
    /// Hashes of groups and blocks.
    pub hashes: u64,
    /// Blocks sent as they are.
    pub raw: u64,
    /// Bits that the responder lacks.
    pub push: u64,
}

impl RepairBytes {
    /// The sum of all.
    ///
    /// ```
    /// use umbel_replicated_engine::repair::RepairBytes;
    ///
    /// let bytes = RepairBytes { greeting: 62, syndromes: 16, ..RepairBytes::default() };
    /// assert_eq!(bytes.total(), 78);
    /// ```
    #[must_use]
    pub const fn total(&self) -> u64 {
        self.greeting + self.find + self.lists + self.syndromes + self.hashes + self.raw + self.push
    }
}

/// The result of a successful repair: the roots that must be equal are equal.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct RepairOutcome {
    /// This copy's table after the repair.
    pub table: ResidueTable,
    /// Number of blocks that differed; for a responder, only those that it changed.
    pub dirty_block_count: u64,
    /// Number of bits that differed; for a responder, only those that it lacked.
    pub differing_bit_count: u64,
    /// Number of bits to flip in this copy.
    pub flip_count: u64,
    /// Number of blocks that were sent as they are.
    pub raw_block_count: u64,
    /// Number of blocks that decoded to wrong flips, as a hash revealed.
    pub wrong_block_count: u64,
    /// For the initiator, the number of questions that had to wait for the previous one, that is, round
    /// trips after the search for blocks. For a responder, the number of questions that it answered.
    pub round_count: u64,
    /// Bytes by purpose.
    pub bytes: RepairBytes,
    /// Bytes that this side sent.
    pub sent_bytes: u64,
    /// Bytes that this side received.
    pub received_bytes: u64,
}
