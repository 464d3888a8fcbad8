//! The plan of a job: what all workers must agree on before the first frame of the exchange.
//!
//! [`JobShape`] is fixed when the job begins, [`Plan`] after all input was read and, if necessary, sampled.

use super::entry::{Keep, RANK_BITS};
use super::error::ExchangeError;
use super::frame::flag;
use super::index::IndexBits;
use crate::limits::{
    DEDUP_CELLS_MAX, DEDUP_WORKERS_MAX, RECORD_ID_CHUNK_BITS, RECORD_ID_ITEM_BITS, REFINE_BITS_MAX,
};
use serde::{Deserialize, Serialize};
use umbel_bits::RiceCode;
use umbel_filter::{CellCount, HashRange, ItemHash, SingleShotShape};

/// When two items are equal.
#[derive(Clone, Copy, PartialEq, Debug, Serialize, Deserialize)]
pub enum Exactness {
    /// Same position and same refinement bits; some items are dropped wrongly.
    Approximate {
        /// Bound on the probability that an item is dropped wrongly, in (0, 1).
        false_positive_rate: f64,
    },
    /// Same 128-bit hash.
    Fingerprint,
    /// Same bytes.
    Bytes,
}

/// How entries are compared between workers.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum Mode {
    /// One worker: nothing is exchanged.
    Local,
    /// Single-shot filter, then refinement if the plan has refinement bits, then residues: the survivors send the rest
    /// of their hashes.
    Filter,
    /// Every entry sends its full hash.
    FullHash,
}

/// What is fixed when the job begins, before any input is read.
#[derive(Clone, Copy, PartialEq, Debug, Serialize, Deserialize)]
pub struct JobShape {
    /// Number of workers, p. Workers have contiguous ranges of chunks: all record ids of a worker are less than those of
    /// the next one.
    pub workers: u32,
    /// Number of cells (hash ranges exchanged one at a time) of each owner.
    pub cells_per_owner: u32,
    /// When items are equal.
    pub exactness: Exactness,
    /// Which of several equal items is kept.
    pub keep: Keep,
    /// Whether the worker that drops a record must know which one was kept for it: then record ids are sent.
    pub report_kept: bool,
    /// Mean item length in bytes, for the cost model at exactness `bytes`; 0 if unknown.
    pub item_bytes_mean: f64,
}

impl JobShape {
    /// Checks the numbers of workers and cells against the limits.
    ///
    /// # Errors
    ///
    /// [`ExchangeError::JobShape`] with the number and its limit; nothing was started.
    pub fn validate(&self) -> Result<(), ExchangeError> {
        let refuse = |what, got: u64, max: u32| Err(ExchangeError::JobShape { what, got, max });
        if self.workers == 0 || self.workers > DEDUP_WORKERS_MAX {
            return refuse("workers", self.workers.into(), DEDUP_WORKERS_MAX);
        }
        let cells = u64::from(self.workers) * u64::from(self.cells_per_owner);
        if cells == 0 || cells > u64::from(DEDUP_CELLS_MAX) {
            return refuse("cells", cells, DEDUP_CELLS_MAX);
        }
        Ok(())
    }

    /// Whether entries have ranks: under [`Keep::Best`], except at exactness `bytes`, where items have them.
    #[must_use]
    pub fn ranks_entries(&self) -> bool {
        self.keep == Keep::Best && self.exactness != Exactness::Bytes
    }

    /// Number of cells of all owners together.
    ///
    /// # Panics
    ///
    /// If the shape was not validated.
    #[must_use]
    pub fn cells(&self) -> CellCount {
        CellCount::new(self.workers * self.cells_per_owner).expect("validated")
    }

    /// The worker that owns a cell.
    #[must_use]
    pub const fn owner(&self, cell: u32) -> u32 {
        cell / self.cells_per_owner
    }

    /// The part of an owner's first cell whose entries are exchanged as the sample: 1/256 of the owner's range, or
    /// the whole first cell where that is smaller.
    ///
    /// # Panics
    ///
    /// If the shape was not validated, or has no such owner.
    #[must_use]
    pub fn sample_range(&self, owner: u32) -> HashRange {
        let cell = HashRange::cell(owner * self.cells_per_owner, self.cells());
        let parts = (SAMPLE_PARTS / u128::from(self.cells_per_owner)).max(1);
        let end = u128::from(cell.start()) + (cell.width() / parts).max(1);
        HashRange::new(cell.start(), end).expect("a prefix of a cell is a range")
    }

    /// Share of the hash space that the sample ranges of all owners cover.
    #[must_use]
    pub fn sample_share(&self) -> f64 {
        let width: u128 = (0..self.workers).map(|owner| self.sample_range(owner).width()).sum();
        width as f64 / 2f64.powi(64)
    }
}

/// The sample is one part in this many of every owner's range.
const SAMPLE_PARTS: u128 = 256;

/// The order to send the sample.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct SampleOrder {
    /// Positions of the sample's filter over the whole hash space: so many that nearly every collision is one
    /// of equal hashes.
    pub position_count: u64,
}

/// Widths of a record id on the wire, from the largest chunk number and item number of the job.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct RecordIdBits {
    /// Bits of the chunk number.
    pub chunk: u32,
    /// Bits of the item number.
    pub item: u32,
}

impl RecordIdBits {
    /// Bits of a record id.
    #[must_use]
    pub const fn total(self) -> u32 {
        self.chunk + self.item
    }
}

/// Widths of the parts of a priority that are sent.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct PriorityBits {
    /// Bits of the rank; 0 if ranks are not sent.
    pub(super) rank: u32,
    /// Widths of the record id, if record ids are sent.
    pub(super) record_id: Option<RecordIdBits>,
}

impl PriorityBits {
    /// Bits of a priority.
    pub(super) fn total(self) -> u32 {
        self.rank + self.record_id.map_or(0, RecordIdBits::total)
    }

    /// The flags of frames with priorities of these widths.
    pub(super) fn flags(self) -> u8 {
        let score = if self.rank > 0 { flag::SCORE } else { 0 };
        let record_id = if self.record_id.is_some() { flag::RECORD_ID } else { 0 };
        score | record_id
    }
}

/// The bits of a hash that are compared at exactness `approximate`: those of a position and the refinement bits. All others
/// are cleared.
///
/// The exact protocol on truncated hashes is the approximate protocol, so its result does not depend on the number of
/// workers.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Truncation {
    /// log2 of the position count.
    pub position_bits: u32,
    /// Refinement bits.
    pub refine_bits: u32,
}

/// Fewest position bits of a truncation: cell borders are multiples of 2^-24 of the hash space, so a position of this
/// width or narrower is within one cell.
const TRUNCATION_POSITION_BITS_MIN: u32 = umbel_filter::GRAIN_BITS;

impl Truncation {
    /// The truncation with which an item among `items` is dropped wrongly with a probability of at most
    /// ε = `false_positive_rate`: at least six positions per item, and r = ⌈log2(1/(12·ε))⌉ bits, at least 1. Two of n
    /// different items are equal after truncation with probability 2^−r/m, and one of such a pair is dropped:
    /// n/(2·m·2^r) ≤ 1/(12·2^r) wrong drops per item.
    ///
    /// ```
    /// use umbel_dedup_engine::Truncation;
    /// let t = Truncation::for_rate(1_000_000_000, 1e-3);
    /// assert_eq!((t.position_bits, t.refine_bits), (33, 7)); // 2^33 > 6e9; 1/(12·2^7) < 1e-3
    /// ```
    #[must_use]
    pub fn for_rate(items: u64, false_positive_rate: f64) -> Self {
        let positions = items.saturating_mul(6).clamp(2, 1 << 60);
        let position_bits = (positions - 1).ilog2() + 1;
        let bits = (1.0 / (12.0 * false_positive_rate)).log2().ceil();
        #[expect(clippy::cast_possible_truncation, reason = "clamped")]
        let refine_bits = bits.clamp(1.0, 24.0) as u32;
        Self { position_bits: position_bits.max(TRUNCATION_POSITION_BITS_MIN), refine_bits }
    }

    /// The hash with all other bits cleared.
    #[must_use]
    #[inline]
    pub const fn apply(self, hash: ItemHash) -> ItemHash {
        let hi = hash.hi() >> (64 - self.position_bits) << (64 - self.position_bits);
        let lo = hash.lo() >> (64 - self.refine_bits) << (64 - self.refine_bits);
        ItemHash::new(hi, lo)
    }
}

/// The hashes of earlier jobs with which this job compares its entries. The owner of a cell treats them as
/// one more sender, whose entries are always kept.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct ReferenceShape {
    /// Number of hashes.
    pub entries: u64,
    /// How many bits of each are stored.
    pub bits: IndexBits,
}

impl ReferenceShape {
    /// The most refinement bits that all of these hashes have: none if `lo` is not stored.
    #[must_use]
    pub const fn refine_bits_max(self) -> u32 {
        if matches!(self.bits, IndexBits::Bits64) { 0 } else { REFINE_BITS_MAX }
    }
}

/// Most positions of a filter: a position and the residue of a hash fit into 64 bits.
const POSITION_COUNT_MAX: u64 = 1 << 60;

/// What all workers agree on for the exchange.
#[derive(Clone, Copy, PartialEq, Debug, Serialize, Deserialize)]
pub struct Plan {
    /// What was fixed when the job began.
    pub shape: JobShape,
    /// How entries are compared.
    pub mode: Mode,
    /// Positions over the whole hash space, m; 0 unless the mode is [`Mode::Filter`].
    pub position_count: u64,
    /// Refinement bits, r; 0 for one pass.
    pub refine_bits: u32,
    /// The bits of a hash that are compared, at exactness `approximate`.
    pub truncation: Option<Truncation>,
    /// Widths of record ids, if they are sent.
    pub record_id_bits: Option<RecordIdBits>,
    /// The hashes of earlier jobs, if there are any to compare with.
    pub references: Option<ReferenceShape>,
    /// Estimated number of entries of all workers together, n.
    pub entries_estimate: f64,
    /// Estimated share of them that another worker has, too, δ.
    pub delta_estimate: f64,
    /// Expected bits per entry, headers not included.
    pub predicted_bits_per_entry: f64,
}

impl Plan {
    /// Checks every number of a plan that was received, so that nothing computed from it overflows.
    ///
    /// # Errors
    ///
    /// [`ExchangeError::JobShape`] or [`ExchangeError::Plan`] with the number and its limit.
    pub fn validate(&self) -> Result<(), ExchangeError> {
        self.shape.validate()?;
        let truncation = self.truncation.map(|t| (t.position_bits, t.refine_bits));
        let record_id = self.record_id_bits.map(|bits| (bits.chunk, bits.item)).unwrap_or_default();
        let (position_bits, truncated_bits) = truncation.unwrap_or((1, 1));
        let has_filter = self.mode == Mode::Filter;
        let rows = [
            ("position count", self.position_count, u64::from(has_filter), POSITION_COUNT_MAX),
            ("refinement bits", self.refine_bits.into(), 0, REFINE_BITS_MAX.into()),
            ("position bits", position_bits.into(), 1, 60),
            ("truncated bits", truncated_bits.into(), 1, REFINE_BITS_MAX.into()),
            ("chunk bits", record_id.0.into(), 0, RECORD_ID_CHUNK_BITS.into()),
            ("item bits", record_id.1.into(), 0, RECORD_ID_ITEM_BITS.into()),
        ];
        match rows.into_iter().find(|&(_, got, min, max)| got < min || got > max) {
            Some((field, got, _, max)) => Err(ExchangeError::Plan { field, got, max }),
            None if self.mode == Mode::Local && self.shape.workers > 1 => {
                let (field, got) = ("no exchange and a number of workers of", self.shape.workers);
                Err(ExchangeError::Plan { field, got: got.into(), max: 1 })
            }
            None => Ok(()),
        }
    }

    /// The shape of the single-shot filter over a cell.
    ///
    /// # Panics
    ///
    /// If the mode is not [`Mode::Filter`].
    #[must_use]
    pub fn cell_shape(&self, cell: u32) -> SingleShotShape {
        let range = HashRange::cell(cell, self.shape.cells());
        SingleShotShape::new(range, self.position_count).expect("the plan's m lies in 1..=2^60")
    }

    /// B, the Rice parameter for an average worker's positions. Each stream has its own, which depends on its length.
    #[must_use]
    pub fn modulus_bits(&self) -> u32 {
        let per_entry = self.position_count as f64 / self.entries_estimate.max(1.0);
        RiceCode::for_mean_gap(per_entry * f64::from(self.shape.workers)).low_bits()
    }

    /// Whether items are compared byte by byte after their hashes.
    #[must_use]
    pub fn compares_bytes(&self) -> bool {
        self.shape.exactness == Exactness::Bytes
    }

    /// Bits of a record id on the wire; 0 if record ids are not sent.
    #[must_use]
    pub fn record_id_width(&self) -> u32 {
        self.record_id_bits.map_or(0, RecordIdBits::total)
    }

    /// Widths of the priority that is sent with a whole hash.
    pub(super) fn entry_priority_bits(&self) -> PriorityBits {
        let rank = if self.shape.ranks_entries() { RANK_BITS } else { 0 };
        PriorityBits { rank, record_id: self.record_id_bits }
    }

    /// Widths of the priority that is sent with an item.
    pub(super) fn item_priority_bits(&self) -> PriorityBits {
        let rank = if self.shape.keep == Keep::Best { RANK_BITS } else { 0 };
        PriorityBits { rank, record_id: self.record_id_bits }
    }

    /// Bits of `hi` in a survivor's residue.
    #[must_use]
    pub fn residue_bits(&self, shape: SingleShotShape) -> u32 {
        if self.truncation.is_some() { 0 } else { shape.residue_bits() }
    }

    /// Bits of `lo` in a survivor's residue.
    #[must_use]
    pub const fn residue_low_bits(&self) -> u32 {
        if self.truncation.is_some() { 0 } else { 64 - self.refine_bits }
    }

    /// Whether the verdict on refinement bits is final, because residues would contain nothing.
    #[must_use]
    pub fn ends_after_refine(&self) -> bool {
        self.truncation.is_some() && self.entry_priority_bits().total() == 0
    }
}
