//! Jobs of a run: what the founders hold, and what became of it. Their users are in `job_users`.

mod attempt;
mod data;
mod planned;

pub(crate) use data::{HostJobs, SimWorkshops};
pub(crate) use planned::PlannedJobs;

use std::collections::BTreeMap;
use std::ops::Range;
use umbel_dedup_engine::job::JobRules;

use umbel_dedup_engine::{Exactness, FilterChoice, GroupSize, Keep, Rank, RecordId, RecordPart};
use umbel_filter::{ItemHash, ItemHasher};

use crate::plan::{JobFilter, JobKeep, JobLevel, JobPlan};

/// Records of a chunk.
const CHUNK_RECORDS: u32 = 16;

/// Of so many items in a row earlier jobs have kept one.
const KNOWN_STEP: usize = 4;

/// Of so many items in a row a filter that is asked holds one, never one that earlier jobs have kept.
const HELD_STEP: usize = 6;

/// Different ranks: so few that the best of equal records are often several.
const RANKS: u64 = 5;

/// A worker's output: the records that stay, and for what the others were dropped.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(crate) struct Output {
    /// Numbers of records of the machine.
    pub(crate) kept: Vec<u32>,
    /// For each dropped record the id of the record that was kept in its stead, where the job tells.
    pub(crate) dropped: Vec<(u32, Option<RecordId>)>,
    /// How many records stand for each kept one of this machine that has copies, and where the job
    /// tells sizes for each that a record of this machine was dropped for; of another machine's also
    /// which part it is.
    pub(crate) groups: BTreeMap<RecordId, GroupSize>,
    /// Every worker's group weights, as this machine received them, if the job reports what was
    /// kept.
    pub(crate) weights: Vec<Vec<u8>>,
}

/// The group weights that a worker sends to all others: how many of its records repeat others, and how many repeat
/// one of its own, by the sizes of its groups.
pub(crate) fn weight_of(dropped: u64, sizes: impl Iterator<Item = u64>) -> Vec<u8> {
    let kept_for: u64 = sizes.map(|size| size - 1).sum();
    [dropped, kept_for].into_iter().flat_map(u64::to_le_bytes).collect()
}

/// The same of a machine with these chunks, by what it knows.
pub(crate) fn weight_at(
    drops: &BTreeMap<RecordId, Option<RecordId>>,
    groups: &BTreeMap<RecordId, GroupSize>,
    own: &Range<u32>,
) -> Vec<u8> {
    // What a reference holds is noted as kept in its own stead, and no repeat.
    let dropped = drops.iter().filter(|(record_id, kept)| kept.as_ref() != Some(record_id));
    let kept_for = groups.iter().filter(|(kept, _)| own.contains(&kept.chunk()));
    weight_of(dropped.count() as u64, kept_for.map(|(_, group)| group.size))
}

impl JobPlan {
    /// The items of a machine's records, in their order: small numbers, of which others hold some too.
    pub(crate) fn items(&self, machine: u32) -> Vec<u32> {
        let count = self.records.get((machine as usize).wrapping_sub(1)).copied().unwrap_or(0);
        let seed = u64::from(self.distinct) << 32 | u64::from(machine);
        let draw = |record: u32| {
            let hash = ItemHasher::Xxh3 { seed }.hash(&record.to_le_bytes());
            let item = hash.hi() % u64::from(self.distinct.max(1));
            u32::try_from(item).expect("below `distinct`")
        };
        (0..count).map(draw).collect()
    }

    /// Items that earlier jobs have kept.
    pub(crate) fn known_items(&self) -> impl Iterator<Item = u32> + use<> {
        let end = if self.known { self.distinct } else { 0 };
        (0..end).step_by(KNOWN_STEP)
    }

    /// Whether the filter that the job asks holds an item from the start.
    pub(crate) fn is_held(&self, item: u32) -> bool {
        self.asks && item as usize % HELD_STEP == 1
    }

    /// Chunks that a machine's input is read in.
    pub(crate) fn chunk_count(&self, machine: u32) -> u32 {
        let count = self.records.get((machine as usize).wrapping_sub(1)).copied().unwrap_or(0);
        count.div_ceil(CHUNK_RECORDS)
    }

    /// The numbers of a machine's chunks in a job, given that of its first one.
    pub(crate) fn chunks_from(&self, base: u32, machine: u32) -> Range<u32> {
        base..base + self.chunk_count(machine)
    }

    /// What the job decides by.
    pub(crate) fn rules(&self) -> JobRules {
        JobRules {
            exactness: match self.level {
                JobLevel::Approximate => Exactness::Approximate { false_positive_rate: 1e-6 },
                JobLevel::Fingerprint => Exactness::Fingerprint,
                JobLevel::Bytes => Exactness::Bytes,
            },
            keep: match self.keep {
                JobKeep::First => Keep::First,
                JobKeep::Last => Keep::Last,
                JobKeep::Best => Keep::Best,
            },
            report_kept: self.report,
            report_sizes: self.report && self.sizes,
            names_parts: self.report && self.sizes,
            choice: match self.filter {
                JobFilter::Auto => FilterChoice::Auto,
                JobFilter::SingleShot => FilterChoice::SingleShot,
                JobFilter::Wide => FilterChoice::FullHash,
            },
            bad_max: 0,
            adds: self.asks,
        }
    }
}

/// The id of a machine's record, given the number of its first chunk.
pub(crate) fn record_id_of(chunk_base: u32, record: u32) -> RecordId {
    RecordId::new(chunk_base + record / CHUNK_RECORDS, u64::from(record % CHUNK_RECORDS))
}

/// The record with an id, given the number of the machine's first chunk.
pub(crate) fn record_at(chunk_base: u32, record_id: RecordId) -> u32 {
    let item = u32::try_from(record_id.item()).expect("a chunk has few records");
    (record_id.chunk() - chunk_base) * CHUNK_RECORDS + item
}

/// Which part of which record an id stands for, where a job tells of parts.
pub(crate) fn part_of(record_id: RecordId) -> RecordPart {
    RecordPart { record: record_id.item() / 3, part: record_id.item() % 3 + 1 }
}

/// How the record with an id ranks.
pub(crate) fn rank_of(record_id: RecordId) -> Rank {
    Rank(ItemHasher::Xxh3 { seed: 1 }.hash(&record_id.to_bits().to_le_bytes()).hi() % RANKS)
}

/// Hash of an item. Exactness `bytes` has collisions to find: every item shares its hash with another one.
pub(crate) fn hash_of(job: &JobPlan, seed: u64, item: u32) -> ItemHash {
    let shown = if job.level == JobLevel::Bytes { item / 2 } else { item };
    ItemHasher::Xxh3 { seed }.hash(&shown.to_le_bytes())
}
