//! Joins several indexes into one, hash range by hash range, so that memory is bounded by a range.

use super::commit::commit;
use super::object_inputs::ObjectStores;
use super::references::IndexFile;
use super::save_index::Blocks;
use super::sink::{Complete, Sink};
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
    let (joined, count) = join(&indexes, output, bits, overwrite, scratch)?;
    put_in_place(&indexes, output, joined)?;
    Ok(count)
}

/// Writes one index with the hashes of several, and returns it with their number.
fn join(
    indexes: &[IndexFile],
    output: &Path,
    bits: Option<IndexBits>,
    overwrite: bool,
    scratch: &Path,
) -> Result<(Complete, u64)> {
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
    Ok((blocks.finish(sink)?, count))
}

/// Gives the joined index its name, unless another job has updated meanwhile the index that it replaces, or is about to.
fn put_in_place(indexes: &[IndexFile], output: &Path, joined: Complete) -> Result<()> {
    if let Ok(place) = std::fs::canonicalize(output) {
        let mut replaced = indexes.iter().filter(|index| index.stands_at(&place)).peekable();
        // Only once: an index that was named twice is open twice, and one lock excludes the other.
        replaced.peek().map_or(Ok(()), |index| index.lock())?;
        replaced.try_for_each(IndexFile::check_not_replaced)?;
    }
    commit(joined)
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

#[cfg(test)]
mod tests {
    use super::*;
    use umbel_dedup_engine::SpecDigest;
    use umbel_filter::ItemHash;

    /// Writes an index of this many hashes.
    fn write(path: &Path, hashes: u64) {
        let scratch = ScratchFile::new(&std::env::temp_dir());
        let spec = IndexSpec { bits: IndexBits::Bits128, seed: 1, digest: SpecDigest([0; 16]) };
        let mut blocks = Blocks::new(spec, hashes, &scratch);
        let hashes: Vec<ItemHash> =
            (0..hashes).map(|number| ItemHash::new(number << 40, number)).collect();
        blocks.add(&hashes).unwrap();
        let sink = Sink::packed_file(path, Compression::Plain, true).unwrap();
        commit(blocks.finish(sink).unwrap()).unwrap();
    }

    #[test]
    fn an_index_that_is_updated_while_it_is_joined_stays() {
        let folder = tempfile::tempdir().unwrap();
        let (old, other) = (folder.path().join("old"), folder.path().join("other"));
        write(&old, 5);
        write(&other, 7);
        let stores = ObjectStores::new(READING_BYTES);
        let indexes = [&old, &other].map(|path| open(path, &stores).unwrap());
        let joined = |output: &Path| join(&indexes, output, None, true, folder.path()).unwrap().0;
        put_in_place(&indexes, &old, joined(&old)).unwrap();
        assert_eq!(index_facts(std::slice::from_ref(&old)).unwrap()[0].count, 7);

        // The first index of these is no longer the one that was read.
        write(&old, 9);
        let error = put_in_place(&indexes, &old, joined(&old)).unwrap_err().to_string();
        assert!(error.contains("old: another job has replaced this index"), "{error}");
        assert_eq!(index_facts(std::slice::from_ref(&old)).unwrap()[0].count, 9);
        // Also where it was named twice, this one may be replaced, unless another job that has read it, too, is about to.
        let twice = || [&old, &old].map(|path| open(path, &stores).unwrap());
        put_in_place(&twice(), &old, joined(&old)).unwrap();
        let theirs = open(&old, &stores).unwrap();
        theirs.lock().unwrap();
        let error = put_in_place(&twice(), &old, joined(&old)).unwrap_err().to_string();
        assert!(error.contains("old: another process has locked this index"), "{error}");
        theirs.check_not_replaced().unwrap();
        // An output elsewhere undoes nothing.
        let new = folder.path().join("new");
        put_in_place(&indexes, &new, joined(&new)).unwrap();
        assert!(new.exists());
    }
}
