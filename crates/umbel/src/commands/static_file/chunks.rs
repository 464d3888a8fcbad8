//! Writes a static file from gathered hashes: builds chunks on all processors and writes them in order.

use anyhow::{Context, Result};
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;
use umbel_dedup::GatheredItems;
use umbel_filter::ItemHash;
use umbel_static::{
    BuildError, BuiltChunk, CHUNK_BITS_MAX, Head, HeadBuilder, Role, StaticShape, StaticShapeError,
};

/// Number of upper bits of a hash that choose its group. A chunk consists of whole groups, whatever the
/// number of chunks.
pub(super) const GROUP_BITS: u8 = CHUNK_BITS_MAX;

/// Memory to build a chunk: its hashes, the contents of its cells, and the order in which keys are
/// placed.
const CHUNK_BYTES: u64 = 64 << 20;

/// Chunks that are built concurrently even with little memory.
const THREADS_MIN: usize = 2;

/// The input of a file.
pub(super) struct Gathered {
    /// The memory that the user allows.
    pub(super) memory_bytes: u64,
    pub(super) keys: GatheredItems,
    /// The others of an exact set.
    pub(super) others: Option<GatheredItems>,
}

/// The plan of a file: its shape, and how many bits of a hash choose its chunk.
#[derive(Clone, PartialEq, Eq)]
pub(super) struct Plan {
    pub(super) shape: StaticShape,
    pub(super) chunk_bits: u8,
}

impl Gathered {
    /// Writes the file.
    ///
    /// The plan depends on the number of distinct keys, which is known only once they are sorted. So the
    /// file is written with a plan for the number of all keys, and written again in the rare case that
    /// the distinct keys need another plan.
    ///
    /// # Errors
    ///
    /// A [`BuildError`] of a chunk; if there are too many keys, scratch files cannot be read, or the file
    /// cannot be written.
    pub(super) fn write(
        &self,
        plan_for: impl Fn(u64, u64) -> Result<Plan, StaticShapeError>,
        file: &File,
        path: &Path,
    ) -> Result<Head> {
        let item_count = |items: &GatheredItems| items.item_count();
        let mut counts = (self.keys.item_count(), self.others.as_ref().map_or(0, item_count));
        loop {
            let plan = match plan_for(counts.0, counts.1) {
                // Too many keys with duplicates may be few enough without.
                Err(StaticShapeError::KeyCount { .. }) => {
                    counts = self.count_distinct()?;
                    plan_for(counts.0, counts.1)?
                }
                plan => plan?,
            };
            let head = self.write_as(&plan, file, path)?;
            counts = (head.key_count(), head.other_count());
            if plan_for(counts.0, counts.1)? == plan {
                return Ok(head);
            }
        }
    }

    fn count_distinct(&self) -> Result<(u64, u64)> {
        let mut counts = (0, 0);
        for group in 0..1 << GROUP_BITS {
            counts.0 += sorted_hashes(&self.keys, group)?.len() as u64;
            if let Some(others) = &self.others {
                counts.1 += sorted_hashes(others, group)?.len() as u64;
            }
        }
        Ok(counts)
    }

    fn write_as(&self, plan: &Plan, file: &File, path: &Path) -> Result<Head> {
        let cannot = || format!("{}: cannot write", path.display());
        let threads = self.threads();
        let mut builder = HeadBuilder::new(plan.shape.clone(), plan.chunk_bits);
        file.set_len(0).with_context(cannot)?;
        // The head is written last, over these zeros; until then the file is not valid.
        file.write_all_at(&vec![0; builder.head_bytes()], 0).with_context(cannot)?;
        let mut offset = builder.head_bytes() as u64;
        let chunks: Vec<usize> = (0..1 << plan.chunk_bits).collect();
        for wave in chunks.chunks(threads) {
            let built = std::thread::scope(|scope| {
                let begin = |chunk: &usize| {
                    let chunk = *chunk;
                    scope.spawn(move || self.chunk(plan, chunk))
                };
                let begun: Vec<_> = wave.iter().map(begin).collect();
                let join = |thread: std::thread::ScopedJoinHandle<'_, Result<BuiltChunk>>| {
                    thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
                };
                begun.into_iter().map(join).collect::<Result<Vec<BuiltChunk>>>()
            })?;
            for chunk in built {
                builder.push(&chunk);
                file.write_all_at(chunk.cells(), offset).with_context(cannot)?;
                offset += chunk.cells().len() as u64;
            }
        }
        let head = builder.finish();
        file.write_all_at(&head.to_bytes(), 0).with_context(cannot)?;
        Ok(head)
    }

    /// Chunks that are built concurrently: one per processor, if memory allows.
    fn threads(&self) -> usize {
        let processors = std::thread::available_parallelism().map_or(1, usize::from);
        let affordable = usize::try_from(self.memory_bytes / CHUNK_BYTES).unwrap_or(usize::MAX);
        processors.min(affordable.max(THREADS_MIN))
    }

    /// Builds a chunk.
    fn chunk(&self, plan: &Plan, chunk: usize) -> Result<BuiltChunk> {
        let Plan { shape, chunk_bits } = plan;
        let groups_per_chunk = 1 << (GROUP_BITS - chunk_bits);
        let groups = chunk * groups_per_chunk..(chunk + 1) * groups_per_chunk;
        Ok(match shape.role() {
            Role::Filter => shape.filter_chunk(&all_hashes(&self.keys, groups)?, *chunk_bits)?,
            Role::Map => {
                let (mut hashes, mut values) = (Vec::new(), Vec::new());
                for group in groups {
                    for (hash, value) in sorted_pairs(&self.keys, group)? {
                        hashes.push(hash);
                        values.push(value);
                    }
                }
                shape.map_chunk(&hashes, &values, *chunk_bits)?
            }
            Role::Exact => {
                let members = all_hashes(&self.keys, groups.clone())?;
                let mut begun = shape.exact_chunk(members, *chunk_bits)?;
                for group in groups {
                    if let Some(others) = &self.others {
                        begun.take_others(&sorted_hashes(others, group)?)?;
                    }
                }
                begun.finish()?
            }
        })
    }
}

/// The distinct hashes of a group, sorted.
fn sorted_hashes(items: &GatheredItems, group: usize) -> Result<Vec<ItemHash>> {
    let mut hashes = items.hashes(group)?;
    hashes.sort_unstable();
    hashes.dedup();
    Ok(hashes)
}

/// The distinct hashes of some groups, sorted, since groups ascend with the hash.
fn all_hashes(items: &GatheredItems, groups: std::ops::Range<usize>) -> Result<Vec<ItemHash>> {
    let mut hashes = Vec::new();
    for group in groups {
        hashes.append(&mut sorted_hashes(items, group)?);
    }
    Ok(hashes)
}

/// The distinct hashes of a group with their values, sorted. Fails if a hash has two values.
fn sorted_pairs(items: &GatheredItems, group: usize) -> Result<Vec<(ItemHash, u64)>> {
    let mut pairs = items.pairs(group)?;
    pairs.sort_unstable();
    pairs.dedup();
    if let Some(pair) = pairs.windows(2).find(|pair| pair[0].0 == pair[1].0) {
        let (hash, values) = (pair[0].0, [pair[0].1, pair[1].1]);
        return Err(BuildError::TwoValues { hash, values }.into());
    }
    Ok(pairs)
}
