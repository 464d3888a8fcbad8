//! Hashes of the items of inputs, for other programs: reads the inputs once, in parallel, and groups the
//! hashes by hash range, in memory up to a limit and beyond it on scratch disk.
//!
//! ```text
//! ItemSource --open--> OpenedItems --gather--> GatheredItems: group 0, group 1, … by the upper bits of the hash
//!                                  --find----> the records of given items, for error messages
//! ```
//!
//! Inputs are found, cut and read like those of a job. If numbers are wanted, each comes from a field of its record.

use super::bad::{BadCause, BadRecord};
use super::best::BestField;
use super::chunks::{Chunk, cut};
use super::content::{Found, Position, open_content, open_records, read_on};
use super::footers::read_footers;
use super::format_rule::FormatRule;
use super::headers::read_headers;
use super::inputs::Source;
use super::memory::threads_of_process;
use super::name_filter::NameFilter;
use super::observer::{Observer, Unit};
use super::progress::Bar;
use super::scope::Scope;
use super::search::{Search, resolve};
use super::spec::JobSpec;
use super::spill::{GroupWriter, GroupedBytes, ScratchFile, buffer_bytes};
use super::turns::run_tasks;
use crate::error::{Context, DedupError, InputError, Result, refuse};
use std::ffi::OsString;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use umbel_dedup_engine::Rank;
use umbel_files::{FileRoles, UsageError};
use umbel_filter::{ItemHash, ItemHasher};
use umbel_records::{
    Granularity, Normaliser, RecordItemError, Score, ScoreValue, item_before, records_ending,
};

/// Bytes of a hash, and of a hash with a number.
const HASH_BYTES: usize = 16;
const NUMBER_BYTES: usize = 8;

/// The inputs, and which part of a record is an item.
#[derive(Clone, Debug)]
pub struct ItemSource {
    /// Files, directories, globs, `-`, objects: names of files may have any bytes.
    pub inputs: Vec<OsString>,
    /// How records are cut.
    pub format: FormatRule,
    /// The part of a record that is its item: the line, a key or the record.
    pub granularity: Granularity,
    /// The normalisations of items, in order.
    pub normalise: Vec<Normaliser>,
    /// The field with the number of each item, a whole number, if items have numbers.
    pub number: Option<String>,
    /// The largest allowed number.
    pub number_max: u64,
    /// The file that is made of the items: it is no input where it lies in a directory or matches a glob.
    pub output: Option<PathBuf>,
    /// Directory for scratch files.
    pub scratch: PathBuf,
    /// Memory in bytes for hashes and reading threads; further hashes go to scratch files.
    pub memory_bytes: u64,
}

/// Inputs that were found and opened.
pub struct OpenedItems<'o> {
    spec: JobSpec,
    number_max: u64,
    sources: Vec<Source>,
    chunks: Vec<Chunk>,
    threads: usize,
    observer: &'o dyn Observer,
}

/// A record with an item that was searched for.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct FoundRecord {
    /// The name of its file.
    pub file: String,
    /// Its number in the file, from 1.
    pub record: u64,
    /// The number of its item, or 0.
    pub number: u64,
}

impl std::fmt::Display for FoundRecord {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "record {} of {}", self.record, self.file)
    }
}

/// The item of a record.
#[derive(Clone, Copy)]
struct Seen<'a> {
    /// Number of the record in its chunk, from 0.
    number: u64,
    /// Its bytes.
    item: &'a [u8],
    rank: Rank,
}

impl ItemSource {
    /// Finds the inputs.
    ///
    /// # Errors
    ///
    /// As for the inputs of a job.
    pub fn open(self, observer: &dyn Observer) -> Result<OpenedItems<'_>> {
        let number = self.number.clone().map(|field| BestField { field, smallest: true });
        let (number_max, scratch, memory_bytes) =
            (self.number_max, self.scratch, self.memory_bytes);
        let spec = JobSpec {
            names: NameFilter::default(),
            normalise: self.normalise,
            best: number,
            ..JobSpec::reading(self.inputs, self.format, self.granularity, scratch, memory_bytes)
        };
        let output = self.output.as_deref();
        let search = Search { has_options: false, output, ..spec.search(spec.format, observer) };
        let mut sources = resolve(&search)?;
        read_headers(&mut sources)?;
        read_footers(&spec, false, &mut sources)?;
        for source in &sources {
            let usage = |error: String| {
                UsageError(format!("{}: {error}{}", source.name, source.name_note()))
            };
            source.check(&spec.granularity).map_err(|error| usage(error.to_string()))?;
            if let Some(BestField { field, .. }) = &spec.best {
                let extractor = source.score_extractor(field);
                extractor.map_err(|error| usage(error.to_string()))?;
            }
        }
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        let threads = threads_of_process(spec.memory_bytes, cores);
        let chunks = cut(&sources, 1, threads, false)?;
        Ok(OpenedItems { spec, number_max, sources, chunks, threads, observer })
    }
}

impl OpenedItems<'_> {
    /// Registers the inputs, so that no output replaces one.
    pub fn add_to(&self, roles: &mut FileRoles) {
        for source in self.sources.iter().filter(|source| !source.is_object()) {
            match (&source.identity, source.inode) {
                (Some(path), _) => roles.add_input(&source.name, path),
                (None, Some(inode)) => roles.add_open_input(&source.name, inode),
                (None, None) => {}
            }
        }
    }

    /// Reads all items and gathers their hashes in 2^`group_bits` groups, at most 2^16, by the upper bits of the hash.
    ///
    /// # Errors
    ///
    /// The first record without an item, or without a valid number; an input that cannot be read; a full disk.
    pub fn gather(&self, hasher: ItemHasher, group_bits: u8) -> Result<GatheredItems> {
        let group_bits = group_bits.min(16);
        let groups = 1usize << group_bits;
        let memory_bytes = self.spec.memory_bytes;
        let store = GroupedBytes::new(
            groups,
            memory_bytes / 2,
            Arc::new(ScratchFile::new(&self.spec.scratch)),
        );
        let store = store.with_buffers(buffer_bytes(memory_bytes / 4, self.threads, groups));
        let (item_count, tags) = (AtomicU64::new(0), AtomicU32::new(0));
        let number_most = AtomicU64::new(0);
        let total = self.chunks.iter().map(|chunk| chunk.bytes).sum();
        let bar = Bar::new(self.observer, "reading", total, Unit::Bytes);
        run_tasks(
            self.threads,
            self.chunks.len(),
            || Ok(GroupWriter::new(&store)),
            |writer, task| {
                let (mut count, mut tags_seen, mut most) = (0, 0, 0);
                self.read(task, &mut |seen| {
                    count += 1;
                    let number = self.number_of(task, seen)?;
                    most = most.max(number.unwrap_or(0));
                    tags_seen |= tag_bit(seen.item);
                    let hash = hasher.hash(seen.item);
                    writer.append(group_of(hash, group_bits), |bytes| {
                        bytes.extend(hash.hi().to_le_bytes());
                        bytes.extend(hash.lo().to_le_bytes());
                        bytes.extend(number.map(u64::to_le_bytes).iter().flatten());
                    })?;
                    Ok(true)
                })?;
                item_count.fetch_add(count, Ordering::Relaxed);
                tags.fetch_or(tags_seen, Ordering::Relaxed);
                number_most.fetch_max(most, Ordering::Relaxed);
                bar.add(self.chunks[task].bytes)
            },
            GroupWriter::finish,
        )?;
        Ok(GatheredItems {
            store,
            has_numbers: self.spec.best.is_some(),
            item_count: item_count.into_inner(),
            number_most: number_most.into_inner(),
            tags: tags.into_inner(),
        })
    }

    /// The first records with these items, at most as many as given, in input order. Reads the inputs again.
    ///
    /// # Errors
    ///
    /// As [`gather`](Self::gather).
    pub fn find(
        &self,
        hasher: ItemHasher,
        wanted: &dyn Fn(ItemHash, u64) -> bool,
        count_max: usize,
    ) -> Result<Vec<FoundRecord>> {
        let mut found = Vec::new();
        for task in 0..self.chunks.len() {
            self.read(task, &mut |seen| {
                let number = self.number_of(task, seen)?.unwrap_or(0);
                if wanted(hasher.hash(seen.item), number) {
                    let record = self.records_before(task)? + seen.number + 1;
                    let file = self.source(task).name.clone();
                    found.push(FoundRecord { file, record, number });
                }
                Ok(found.len() < count_max)
            })?;
            if found.len() >= count_max {
                break;
            }
        }
        Ok(found)
    }

    fn source(&self, task: usize) -> &Source {
        &self.sources[self.chunks[task].source]
    }

    /// The number of an item, if items have numbers.
    fn number_of(&self, task: usize, seen: Seen<'_>) -> Result<Option<u64>> {
        let Some(BestField { field, .. }) = &self.spec.best else { return Ok(None) };
        // The ranker maps numbers to ranks, and a record without a number to the last rank.
        let value = (seen.rank != Rank(u64::MAX)).then(|| Score::from_image(seen.rank.0).value());
        let whole = match value {
            Some(ScoreValue::Integer(value)) => u64::try_from(value).ok(),
            _ => None,
        };
        match whole.filter(|number| *number <= self.number_max) {
            Some(number) => Ok(Some(number)),
            None => Err(self.without_number(task, seen.number, field)),
        }
    }

    /// The error of a record whose field is missing, as that of a key that is missing, or has no number in range.
    fn without_number(&self, task: usize, record: u64, field: &str) -> DedupError {
        let text = || -> Result<String> {
            let (source, before) = (self.source(task), self.records_before(task)?);
            if let Some(bad) = self.missing_field(task, record, field)? {
                return Ok(bad.text(source, before));
            }
            let (name, most) = (&source.name, self.number_max);
            let record = before + record + 1;
            Ok(format!("{name}: record {record}: `{field}` is no whole number from 0 to {most}"))
        };
        match text() {
            Ok(text) => InputError::Bad(text).into(),
            Err(error) => error,
        }
    }

    /// The record of a chunk with this number, if it has no such field.
    fn missing_field(&self, task: usize, record: u64, field: &str) -> Result<Option<BadRecord>> {
        let (chunk, source) = (self.chunks[task], self.source(task));
        // All rows of Parquet have all columns.
        if chunk.row_group.is_some() {
            return Ok(None);
        }
        let name = || source.name.clone();
        let key = Granularity::Key(vec![field.to_owned()]);
        let Some(mut extractor) = source.extractor(&key).with_context(name)? else {
            return Ok(None);
        };
        let mut reader = open_records(source, chunk)?;
        let mut passed = 0;
        while reader.next_block().with_context(name)?.is_some() {
            let block_offset = reader.block_offset();
            for (at, bytes) in reader.block_records() {
                if passed < record {
                    passed += 1;
                    continue;
                }
                let error = extractor.item(bytes).err();
                let missing =
                    error.filter(|error| matches!(error, RecordItemError::MissingKey { .. }));
                let content_offset = block_offset + at as u64;
                let cause = missing.map(BadCause::Item);
                return Ok(cause.map(|cause| BadRecord { record, content_offset, cause }));
            }
        }
        Ok(None)
    }

    /// The number of records of the file before a chunk, for messages. It is counted by reading them.
    fn records_before(&self, task: usize) -> Result<u64> {
        let mut count = 0;
        let source = self.chunks[task].source;
        for (before, chunk) in self.chunks[..task].iter().enumerate() {
            if chunk.source == source {
                self.visit(before, &mut |_, _| {
                    count += 1;
                    Ok(true)
                })?;
            }
        }
        Ok(count)
    }

    /// Calls `take` for the items of a chunk, in order, until it returns false.
    fn read(&self, task: usize, take: &mut dyn FnMut(Seen<'_>) -> Result<bool>) -> Result<()> {
        self.visit(task, &mut |number, found| match found {
            Found::Item(item, rank) => take(Seen { number, item, rank }),
            Found::Exempt | Found::LeftOut => Ok(true),
            Found::Hashed { .. } => refuse!("whole files are no items here"),
            Found::Bad { content_offset, error } => {
                let cause = BadCause::Item(error);
                Err(self.bad(task, BadRecord { record: number, content_offset, cause }))
            }
        })
    }

    fn bad(&self, task: usize, bad: BadRecord) -> DedupError {
        match self.records_before(task) {
            Ok(before) => InputError::Bad(bad.text(self.source(task), before)).into(),
            Err(error) => error,
        }
    }

    /// Calls `take` for the positions of a chunk, in order, until it returns false.
    fn visit(
        &self,
        task: usize,
        take: &mut dyn FnMut(u64, Found<'_>) -> Result<bool>,
    ) -> Result<()> {
        let (chunk, source) = (self.chunks[task], self.source(task));
        // Whole files are not items here, so this hasher is not used.
        let hasher = Scope::Global.hasher(0, source, None);
        let ranker = match &self.spec.best {
            Some(best) => {
                super::best::Ranker::new(best, source).with_context(|| source.name.clone())?
            }
            None => None,
        };
        let mut content = open_content(source, chunk, &self.spec, hasher, ranker)?;
        let (mut number, mut goes_on) = (0, true);
        while goes_on {
            match read_on(&mut *content, source)? {
                Ok(true) => {}
                Ok(false) => break,
                Err(error) => {
                    let (content_offset, cause) = (content.content_offset(), BadCause::Read(error));
                    return Err(self.bad(task, BadRecord { record: number, content_offset, cause }));
                }
            }
            if let Some((block, end)) = content.lines() {
                for record in records_ending(block, end) {
                    let found = Found::Item(item_before(record, end), Rank::default());
                    goes_on = goes_on && take(number, found)?;
                    number += 1;
                }
                continue;
            }
            // An error of `take` names the file itself.
            let mut taken = Ok(());
            content
                .hand_out(&|_| true, &mut |spot: Position, found| {
                    number = spot.number + 1;
                    goes_on = take(spot.number, found).unwrap_or_else(|error| {
                        taken = Err(error);
                        false
                    });
                    Ok(goes_on)
                })
                .with_context(|| source.name.clone())?;
            taken?;
        }
        Ok(())
    }
}

/// The bit of a key's tag, the small letter at its beginning, which names the type of its first value.
fn tag_bit(item: &[u8]) -> u32 {
    match item.first() {
        Some(tag @ b'a'..=b'z') => 1 << (tag - b'a'),
        _ => 0,
    }
}

/// The group of a hash: its upper bits.
fn group_of(hash: ItemHash, group_bits: u8) -> usize {
    usize::try_from((hash.hi() >> 1) >> (63 - group_bits)).expect("at most 2^16 groups")
}

fn hash_of(piece: &[u8]) -> ItemHash {
    ItemHash::new(word(piece, 0), word(piece, 8))
}

fn word(piece: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(piece[at..at + 8].try_into().expect("8 bytes"))
}

/// The hashes of all items, in groups by the upper bits of the hash.
pub struct GatheredItems {
    store: GroupedBytes,
    has_numbers: bool,
    item_count: u64,
    number_most: u64,
    tags: u32,
}

impl GatheredItems {
    /// Number of items, including equal ones.
    pub fn item_count(&self) -> u64 {
        self.item_count
    }

    /// The largest number of all items, or 0.
    pub fn number_most(&self) -> u64 {
        self.number_most
    }

    /// The tags that items begin with, if they are keys: `s` of texts, `d` of numbers, see
    /// [`ItemExtractor`](umbel_records::ItemExtractor). The letters are in order; for lines they have no meaning.
    pub fn tags(&self) -> String {
        let has = |tag: &u8| self.tags & (1 << (tag - b'a')) != 0;
        (b'a'..=b'z').filter(has).map(char::from).collect()
    }

    /// The hashes of a group, in no particular order, including equal ones.
    ///
    /// # Errors
    ///
    /// If scratch files cannot be read.
    pub fn hashes(&self, group: usize) -> Result<Vec<ItemHash>> {
        if self.has_numbers {
            return self
                .pairs(group)
                .map(|pairs| pairs.into_iter().map(|(hash, _)| hash).collect());
        }
        let bytes = self.store.read(group)?;
        let (pieces, _) = bytes.as_chunks::<HASH_BYTES>();
        Ok(pieces.iter().map(|piece| hash_of(piece)).collect())
    }

    /// The hashes of a group as above, each with its number, or 0.
    ///
    /// # Errors
    ///
    /// If scratch files cannot be read.
    pub fn pairs(&self, group: usize) -> Result<Vec<(ItemHash, u64)>> {
        let bytes = self.store.read(group)?;
        Ok(if self.has_numbers {
            let (pieces, _) = bytes.as_chunks::<{ HASH_BYTES + NUMBER_BYTES }>();
            pieces.iter().map(|piece| (hash_of(piece), word(piece, HASH_BYTES))).collect()
        } else {
            let (pieces, _) = bytes.as_chunks::<HASH_BYTES>();
            pieces.iter().map(|piece| (hash_of(piece), 0)).collect()
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::memory::MEMORY_BYTES_MIN;
    use crate::observer::Unwatched;

    /// On a machine with many cores, the buffers of all of them would take more than the memory that is allowed.
    #[test]
    fn little_memory_has_room_for_few_threads() {
        let folder = tempfile::tempdir().unwrap();
        let input = folder.path().join("keys");
        std::fs::write(&input, "a\nb\n").unwrap();
        let source = ItemSource {
            inputs: vec![input.into_os_string()],
            format: FormatRule::default(),
            granularity: Granularity::Line,
            normalise: Vec::new(),
            number: None,
            number_max: 0,
            output: None,
            scratch: folder.path().to_owned(),
            memory_bytes: MEMORY_BYTES_MIN,
        };
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        let opened = source.open(&Unwatched).unwrap();
        assert_eq!(opened.threads, threads_of_process(MEMORY_BYTES_MIN, cores));
        assert!(opened.threads <= 2, "{}", opened.threads);
    }
}
