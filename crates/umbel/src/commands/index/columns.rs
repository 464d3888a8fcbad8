//! Builds an index of files: writes a filter per file to a scratch file, on all processors, and then
//! writes the index by rows.

use super::items::{ItemCutter, ItemRule};
use anyhow::{Context, Result};
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use umbel_filter::{ItemHash, ItemHasher};
use umbel_records::{Compression, ReadLimits, RecordReader};
use umbel_static::sliced::{SizeGroup, SlicedBuilder, SlicedHead, SlicedSet, SlicedShape};

/// The hashes of a file are sorted and deduplicated once there are this many: 16 MiB.
const HASHES_MIN: usize = 1 << 20;

/// Bytes of columns that are read at once to write them as rows; the rows take as many again.
const ROWS_BYTES: usize = 16 << 20;

/// Columns are read in multiples of this number of words.
const WORDS_AT_ONCE: usize = 8;

/// The filters of the files, concatenated in a scratch file.
pub(super) struct Columns {
    file: File,
    /// Each set, with the offset of its filter.
    sets: Vec<(SlicedSet, u64)>,
}

/// The state shared by the threads that read files.
struct Shared<'a> {
    file: &'a File,
    next_file: AtomicUsize,
    next_byte: AtomicU64,
    has_failed: AtomicBool,
}

impl Columns {
    /// Reads the files and builds a filter of each.
    ///
    /// # Errors
    ///
    /// The first error in the order of the files: a file cannot be read, or has more items than a set can
    /// have. If the scratch file cannot be written.
    pub(super) fn read(
        paths: &[PathBuf],
        rule: ItemRule,
        shape: &SlicedShape,
        hasher: ItemHasher,
        scratch: &Path,
    ) -> Result<Self> {
        let file = tempfile::tempfile_in(scratch)
            .with_context(|| format!("{}: cannot write a scratch file", scratch.display()))?;
        let shared = Shared {
            file: &file,
            next_file: AtomicUsize::new(0),
            next_byte: AtomicU64::new(0),
            has_failed: AtomicBool::new(false),
        };
        let read = Mutex::new(Vec::new());
        let work = || {
            while !shared.has_failed.load(Ordering::Relaxed) {
                let number = shared.next_file.fetch_add(1, Ordering::Relaxed);
                let Some(path) = paths.get(number) else { break };
                let column = column(path, rule, shape, hasher, &shared);
                shared.has_failed.fetch_or(column.is_err(), Ordering::Relaxed);
                read.lock().expect("no thread panics with it").push((number, column));
            }
        };
        std::thread::scope(|scope| {
            let threads = std::thread::available_parallelism().map_or(1, usize::from);
            (0..threads.min(paths.len())).for_each(|_| {
                scope.spawn(work);
            });
        });
        let mut read = read.into_inner().expect("no thread panicked");
        read.sort_by_key(|(number, _)| *number);
        let sets = read.into_iter().map(|(_, column)| column).collect::<Result<_>>()?;
        Ok(Self { file, sets })
    }

    /// The sets, in the order of the files.
    pub(super) fn sets(&self) -> impl Iterator<Item = &SlicedSet> {
        self.sets.iter().map(|(set, _)| set)
    }

    /// Writes the index.
    ///
    /// # Errors
    ///
    /// If the scratch file cannot be read, the index cannot be written, or there are too many files.
    pub(super) fn write(&self, shape: SlicedShape, index: &File) -> Result<SlicedHead> {
        let sets = self.sets.iter().map(|(set, _)| set.clone()).collect();
        let mut builder = SlicedBuilder::new(shape, sets)?;
        // The head is written last, over these zeros; until then the file is no valid index.
        index.write_all_at(&vec![0; builder.head_bytes()], 0)?;
        let mut offset = builder.head_bytes() as u64;
        for group in builder.groups().to_vec() {
            let words = usize::try_from(group.size().bits() / 64)?;
            let at_once = ROWS_BYTES / 8 / group.sets().len();
            let at_once = (at_once - at_once % WORDS_AT_ONCE).max(WORDS_AT_ONCE);
            for first in (0..words).step_by(at_once) {
                let rows = builder.rows(&self.part(&group, first, at_once.min(words - first))?);
                index.write_all_at(&rows, offset)?;
                offset += rows.len() as u64;
            }
        }
        let head = builder.finish();
        index.write_all_at(&head.to_bytes(), 0)?;
        Ok(head)
    }

    /// `count` words of each column of a group, from word `first`.
    fn part(&self, group: &SizeGroup, first: usize, count: usize) -> Result<Vec<Vec<u64>>> {
        let mut bytes = vec![0; 8 * count];
        let part = |set: &usize| -> Result<Vec<u64>> {
            let (_, start) = &self.sets[*set];
            self.file
                .read_exact_at(&mut bytes, start + 8 * first as u64)
                .context("cannot read the scratch file")?;
            let (words, _) = bytes.as_chunks::<8>();
            Ok(words.iter().map(|word| u64::from_le_bytes(*word)).collect())
        };
        group.sets().iter().map(part).collect()
    }
}

/// Reads a file, and writes its filter to the scratch file.
fn column(
    path: &Path,
    rule: ItemRule,
    shape: &SlicedShape,
    hasher: ItemHasher,
    shared: &Shared<'_>,
) -> Result<(SlicedSet, u64)> {
    let name = path.display().to_string();
    let hashes = hashes(path, rule, hasher).with_context(|| format!("{name}: cannot read"))?;
    let column = shape.column(&name, hashes)?;
    let bytes: Vec<u8> = column.words.iter().flat_map(|word| word.to_le_bytes()).collect();
    let start = shared.next_byte.fetch_add(bytes.len() as u64, Ordering::Relaxed);
    shared.file.write_all_at(&bytes, start).context("cannot write a scratch file")?;
    Ok((column.set, start))
}

/// The hashes of the items of a file, mostly without repetitions.
fn hashes(path: &Path, rule: ItemRule, hasher: ItemHasher) -> Result<Vec<ItemHash>> {
    let file = std::sync::Arc::new(File::open(path)?);
    let compression = Compression::of_file(&file, path)?;
    let mut reader = RecordReader::open(file, compression, None, ReadLimits::default())?;
    let mut cutter = ItemCutter::new(rule);
    let (mut hashes, mut distinct_count) = (Vec::new(), 0);
    while reader.next_block()?.is_some() {
        for (_, line) in reader.block_records() {
            cutter.cut(line, &mut |item| hashes.push(hasher.hash(item)));
            if hashes.len() >= HASHES_MIN.max(2 * distinct_count) {
                hashes.sort_unstable();
                hashes.dedup();
                distinct_count = hashes.len();
            }
        }
    }
    Ok(hashes)
}
