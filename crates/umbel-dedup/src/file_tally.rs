//! Repeats by file, for the page of a job: how many each file had, and of which files they were repeats.
//!
//! Counters are one row a file and one matrix of bounded size, whatever the number of records. The matrix has the files
//! in it, or their directories where files are many: the largest by what was dropped there or kept for others, and one
//! row and column for all others together.

use super::chunk_facts::ChunkFacts;
use super::context::Job;
use super::drop_rows::DropRow;
use super::inputs::Source;
use super::sorted_rows::SortedRows;
use crate::error::Result;
use serde::Serialize;
use serde_json::{Value, json};
use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::ops::AddAssign;
use umbel_engine::dedup::Place;

/// Most files that the summary names, those with the most repeats: as many as people read.
const FILES_NAMED_MAX: usize = 50;

/// Most files or directories in the matrix beside the others: as many squares as people tell apart.
const UNITS_MAX: usize = 24;

/// What is counted of a file, or of several together.
#[derive(Clone, Copy, Default, Serialize)]
struct FileCounts {
    stored_bytes: u64,
    item_bytes: u64,
    records: u64,
    items: u64,
    /// Dropped for a record of the same file.
    repeats_within: u64,
    /// Dropped for a record of another file.
    repeats_of_others: u64,
    /// Dropped because a reference holds them.
    known: u64,
    missing_key: u64,
    bad: u64,
    /// Records of any file that were dropped for one of this file.
    #[serde(skip)]
    kept_for: u64,
}

impl FileCounts {
    fn repeats(&self) -> u64 {
        self.repeats_within + self.repeats_of_others
    }
}

impl AddAssign for FileCounts {
    fn add_assign(&mut self, other: Self) {
        self.stored_bytes += other.stored_bytes;
        self.item_bytes += other.item_bytes;
        self.records += other.records;
        self.items += other.items;
        self.repeats_within += other.repeats_within;
        self.repeats_of_others += other.repeats_of_others;
        self.known += other.known;
        self.missing_key += other.missing_key;
        self.bad += other.bad;
        self.kept_for += other.kept_for;
    }
}

/// A file that the summary names.
#[derive(Serialize)]
struct NamedFile<'a> {
    file: &'a str,
    #[serde(flatten)]
    counts: FileCounts,
}

/// What a row of the matrix is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum UnitKind {
    File,
    Directory,
}

/// Counts repeats by file.
pub(crate) struct FileTally<'a> {
    sources: &'a [Source],
    /// Which file each chunk is of.
    source_of: Vec<usize>,
    counts: Vec<FileCounts>,
}

impl<'a> FileTally<'a> {
    /// Begins with what reading has shown.
    pub(crate) fn new(job: &Job<'a>, facts: &[ChunkFacts]) -> Self {
        let source_of: Vec<usize> = job.chunks.iter().map(|chunk| chunk.source).collect();
        let stored = |source: &Source| FileCounts { stored_bytes: source.bytes, ..<_>::default() };
        let mut counts: Vec<FileCounts> = job.sources.iter().map(stored).collect();
        for (&source, facts) in source_of.iter().zip(facts) {
            counts[source] += FileCounts {
                item_bytes: facts.item_bytes,
                records: facts.records,
                items: facts.items,
                missing_key: facts.left_out,
                bad: facts.bad.len() as u64,
                ..<_>::default()
            };
        }
        Self { sources: job.sources, source_of, counts }
    }

    fn source(&self, place: Place) -> usize {
        self.source_of[place.chunk() as usize]
    }

    /// Counts a drop.
    pub(crate) fn add(&mut self, row: &DropRow) {
        let of = self.source(row.place);
        if row.is_known() {
            self.counts[of].known += 1;
            return;
        }
        let kept = self.source(row.kept);
        self.counts[kept].kept_for += 1;
        match kept == of {
            true => self.counts[of].repeats_within += 1,
            false => self.counts[of].repeats_of_others += 1,
        }
    }

    /// The sections `files` and `overlap` of the summary, once all drops are counted.
    ///
    /// # Errors
    ///
    /// If scratch cannot be read.
    pub(crate) fn json(&self, by_kept: &SortedRows<2>) -> Result<(Value, Value)> {
        Ok((self.files(), self.overlap(by_kept)?))
    }

    fn files(&self) -> Value {
        let mut order: Vec<usize> = (0..self.counts.len()).collect();
        order.sort_by_key(|&at| Reverse(self.counts[at].repeats()));
        let (named, others) = order.split_at(order.len().min(FILES_NAMED_MAX));
        let mut rest = FileCounts::default();
        others.iter().for_each(|&at| rest += self.counts[at]);
        let mut all = rest;
        named.iter().for_each(|&at| all += self.counts[at]);
        let name =
            |&at: &usize| NamedFile { file: &self.sources[at].name, counts: self.counts[at] };
        let named: Vec<NamedFile<'_>> = named.iter().map(name).collect();
        json!({
            "count": self.counts.len(), "named": named,
            "others": { "count": others.len(), "counts": rest },
            "all": all,
        })
    }

    fn overlap(&self, by_kept: &SortedRows<2>) -> Result<Value> {
        let units = Units::new(self);
        let side = units.names.len() + usize::from(units.others > 0);
        let mut matrix = vec![vec![0u64; side]; side];
        let mut rows = by_kept.read()?;
        while let Some([kept, dropped]) = rows.next()? {
            let unit = |bits: u64| units.unit_of[self.source(Place::from_bits(bits))];
            matrix[unit(dropped)][unit(kept)] += 1;
        }
        let by = match units.kind {
            UnitKind::File => "file",
            UnitKind::Directory => "directory",
        };
        Ok(json!({ "by": by, "names": units.names, "others": units.others, "dropped": matrix }))
    }
}

/// The rows of the matrix.
struct Units {
    kind: UnitKind,
    /// Of those that have a row of their own, in the order of the input.
    names: Vec<String>,
    /// How many share the last row.
    others: usize,
    /// The row of each file.
    unit_of: Vec<usize>,
}

impl Units {
    fn new(tally: &FileTally<'_>) -> Self {
        let names = tally.sources.iter().map(|source| &source.name[..]);
        let (mut kind, mut keys): (_, Vec<&str>) = (UnitKind::File, names.collect());
        if keys.len() > UNITS_MAX {
            let folders: Vec<&str> = keys.iter().map(|name| directory_of(name)).collect();
            // One directory overlaps with nothing: its files tell more.
            if folders.iter().any(|folder| *folder != folders[0]) {
                (kind, keys) = (UnitKind::Directory, folders);
            }
        }
        // A file may be there twice under one name only as a pipe; a directory has as many files as it has.
        let mut numbers: BTreeMap<&str, usize> = BTreeMap::new();
        let mut sizes: Vec<(u64, &str)> = Vec::new();
        let mut unit_of: Vec<usize> = Vec::with_capacity(keys.len());
        for (key, counts) in keys.into_iter().zip(&tally.counts) {
            let number = *numbers.entry(key).or_insert_with(|| {
                sizes.push((0, key));
                sizes.len() - 1
            });
            sizes[number].0 += counts.repeats() + counts.kept_for;
            unit_of.push(number);
        }
        let mut order: Vec<usize> = (0..sizes.len()).collect();
        order.sort_by_key(|&at| Reverse(sizes[at].0));
        order.truncate(UNITS_MAX);
        order.sort_unstable();
        let mut row_of = vec![order.len(); sizes.len()];
        order.iter().enumerate().for_each(|(row, &number)| row_of[number] = row);
        unit_of.iter_mut().for_each(|number| *number = row_of[*number]);
        let others = sizes.len() - order.len();
        let names = order.iter().map(|&at| sizes[at].1.to_owned()).collect();
        Self { kind, names, others, unit_of }
    }
}

/// The directory of a file or an object, as people call it.
fn directory_of(name: &str) -> &str {
    match name.rsplit_once('/') {
        Some(("", _)) => "/",
        Some((folder, _)) => folder,
        None => ".",
    }
}

#[cfg(test)]
mod tests {
    use super::super::sorted_rows::RowSorter;
    use super::super::spill::ScratchFile;
    use super::*;
    use std::path::PathBuf;
    use std::sync::Arc;
    use umbel_engine::dedup::Rank;
    use umbel_records::{Compression, Format};

    fn source(name: String) -> Source {
        let place = super::super::inputs::Place::Path(PathBuf::new());
        Source::new(name, PathBuf::new(), 10, (Compression::Plain, Format::Text), place)
    }

    /// Each file is one chunk; the drops are given by the files of the dropped and the kept record.
    fn told(names: Vec<String>, drops: &[(u32, u32)]) -> (Value, Value) {
        let sources: Vec<Source> = names.into_iter().map(source).collect();
        let source_of = (0..sources.len()).collect();
        let counts = vec![FileCounts { items: 100, ..<_>::default() }; sources.len()];
        let mut tally = FileTally { sources: &sources, source_of, counts };
        let scratch = Arc::new(ScratchFile::new(&std::env::temp_dir()));
        let mut by_kept = RowSorter::<2>::new(0, &scratch);
        for (item, &(dropped, kept)) in (0..).zip(drops) {
            let (place, kept) = (Place::new(dropped, 50 + item), Place::new(kept, item));
            tally.add(&DropRow { place, kept, rank: Rank(0) });
            by_kept.push([kept.to_bits(), place.to_bits()]).unwrap();
        }
        tally.json(&by_kept.finish().unwrap()).unwrap()
    }

    fn sum(matrix: &Value) -> u64 {
        let rows = matrix.as_array().unwrap().iter();
        rows.flat_map(|row| row.as_array().unwrap()).map(|cell| cell.as_u64().unwrap()).sum()
    }

    #[test]
    fn repeats_are_counted_where_they_stood_and_beside_what_was_kept() {
        let names = vec!["a".to_owned(), "b".to_owned(), "c".to_owned()];
        let (files, overlap) = told(names, &[(1, 0), (1, 0), (1, 1), (2, 1), (0, 0)]);
        let named = files["named"].as_array().unwrap();
        let row = |at: usize| {
            let file = &named[at];
            let count = |name: &str| file[name].as_u64().unwrap();
            (file["file"].as_str().unwrap(), count("repeats_within"), count("repeats_of_others"))
        };
        assert_eq!([row(0), row(1), row(2)], [("b", 1, 2), ("a", 1, 0), ("c", 0, 1)]);
        assert_eq!(files["all"]["items"], 300);
        assert_eq!((&overlap["by"], &overlap["others"]), (&json!("file"), &json!(0)));
        assert_eq!(overlap["dropped"], json!([[1, 0, 0], [2, 1, 0], [0, 1, 0]]));
    }

    /// 10^5 files in as many directories as are told: names are few, and nothing is lost in the others.
    #[test]
    fn many_files_are_a_few_rows_and_the_others() {
        const FILES: u32 = 100_000;
        let drops: Vec<(u32, u32)> = (1..FILES).map(|file| (file, file / 2)).collect();
        for (directories, by, others) in
            [(1, "file", FILES as usize - UNITS_MAX), (1000, "directory", 1000 - UNITS_MAX)]
        {
            let names = (0..FILES).map(|file| format!("in/{}/{file}.txt", file % directories));
            let (files, overlap) = told(names.collect(), &drops);
            assert_eq!(files["count"], FILES);
            assert_eq!(files["named"].as_array().unwrap().len(), FILES_NAMED_MAX);
            assert_eq!(files["others"]["count"], FILES as usize - FILES_NAMED_MAX);
            assert_eq!(files["all"]["repeats_of_others"], FILES - 1);
            assert_eq!((&overlap["by"], &overlap["others"]), (&json!(by), &json!(others)));
            assert_eq!(overlap["names"].as_array().unwrap().len(), UNITS_MAX);
            assert_eq!(overlap["dropped"].as_array().unwrap().len(), UNITS_MAX + 1);
            assert_eq!(sum(&overlap["dropped"]), u64::from(FILES) - 1);
        }
    }

    #[test]
    fn directories_are_called_as_people_call_them() {
        let names = ["a.txt", "/a.txt", "in/x/a.txt", "s3://bucket/a.txt"];
        assert_eq!(names.map(directory_of), [".", "/", "in/x", "s3://bucket"]);
    }
}
