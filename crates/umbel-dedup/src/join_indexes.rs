//! Joins several indexes into one, hash range by hash range, so that memory is bounded by a range.

use super::commit::commit;
use super::object_inputs::ObjectStores;
use super::references::IndexFile;
use super::save_index::Blocks;
use super::sink::Sink;
use super::spill::ScratchFile;
use crate::error::{Context, Result, refuse};
use std::path::{Path, PathBuf};
use umbel_dedup_engine::{IndexBits, IndexSpec};
use umbel_files::FileRoles;
use umbel_filter::{CellCount, HashRange};
use umbel_records::Compression;

/// Hashes that are sorted at a time: 16 MiB.
const RANGE_HASHES: u64 = 1 << 20;

/// Most ranges: those of 10^12 hashes.
const RANGES_MAX: u64 = 1 << 20;

/// Memory for reading ahead of objects, as that of a job: see `--memory`.
const READING_BYTES: u64 = 256 << 20;

/// The header of an index, with its name.
pub struct IndexFacts {
    /// Its name as given.
    pub name: String,
    /// Hashes in it.
    pub count: u64,
    /// Seed and digest of the hashes, and the bits that are stored of each.
    pub spec: IndexSpec,
}

fn open(path: &Path, stores: &ObjectStores) -> Result<IndexFile> {
    IndexFile::open(path, stores)
}

/// The headers of indexes.
///
/// # Errors
///
/// Names the one that cannot be read.
pub fn index_facts(paths: &[PathBuf]) -> Result<Vec<IndexFacts>> {
    let stores = ObjectStores::new(READING_BYTES);
    let facts = |path: &PathBuf| {
        let index = open(path, &stores)?;
        let (count, spec) = (index.header().count, index.header().spec);
        Ok(IndexFacts { name: index.name().to_owned(), count, spec })
    };
    paths.iter().map(facts).collect()
}

/// Writes one index with the hashes of several, and returns how many it has.
///
/// # Errors
///
/// A usage error if they are not comparable; any other error names the file. Then the output does not have its name.
pub fn join_indexes(
    paths: &[PathBuf],
    output: &Path,
    bits: Option<IndexBits>,
    overwrite: bool,
    scratch: &Path,
) -> Result<u64> {
    let mut roles = FileRoles::default();
    // The output may replace one of the inputs, because it contains its hashes.
    roles.add_replacement("--output", output)?;
    let stores = ObjectStores::new(READING_BYTES);
    let indexes: Vec<IndexFile> =
        paths.iter().map(|path| open(path, &stores)).collect::<Result<_>>()?;
    let first = indexes.first().context("there is an index")?;
    indexes.iter().try_for_each(|index| check(first, index))?;
    let least = indexes.iter().map(|index| index.header().spec.bits.get()).min();
    let least = least.and_then(IndexBits::new).context("an index has bits")?;
    let bits = bits.unwrap_or(least);
    if bits.get() > least.get() {
        let (bits, least) = (bits.get(), least.get());
        refuse!(
            "--index-bits {bits}: an index has {least} bits of each hash, and no more can be had"
        );
    }
    let sink = Sink::packed_file(output, Compression::Plain, overwrite)?;
    let total: u64 = indexes.iter().map(|index| index.header().count).sum();
    let scratch = ScratchFile::new(scratch);
    let spec = IndexSpec { bits, ..first.header().spec };
    let mut blocks = Blocks::new(spec, total, &scratch);
    let ranges = total.div_ceil(RANGE_HASHES).clamp(1, RANGES_MAX).next_power_of_two();
    let ranges = CellCount::new(u32::try_from(ranges)?).context("ranges")?;
    let mut hashes = Vec::new();
    for number in 0..ranges.get() {
        let range = HashRange::cell(number, ranges);
        hashes.clear();
        indexes.iter().try_for_each(|index| index.append_in(range, &mut hashes))?;
        hashes.iter_mut().for_each(|hash| *hash = bits.apply(*hash));
        hashes.sort_unstable();
        blocks.add(&hashes)?;
    }
    let count = blocks.count();
    commit(vec![blocks.finish(sink)?])?;
    Ok(count)
}

/// Refuses indexes whose hashes are not comparable.
fn check(first: &IndexFile, other: &IndexFile) -> Result<()> {
    let (one, two) = (first.header().spec, other.header().spec);
    let (first, other) = (first.name(), other.name());
    if one.seed != two.seed {
        let (one, two) = (one.seed, two.seed);
        refuse!(
            "{first} was made with seed {one:#018x} and {other} with {two:#018x}: hashes of two seeds cannot be joined. Make \
             such indexes with one --seed, or each with --reference of an earlier one, which gives its seed; jobs that \
             name both as --reference are refused, too"
        );
    }
    if one.digest != two.digest {
        let (one, two) = (one.digest, two.digest);
        refuse!(
            "{first} and {other} were made of other items (granularity, keys, normalisers, scope): their digests are {one} \
             and {two}"
        );
    }
    Ok(())
}
