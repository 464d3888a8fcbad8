//! Repeats by file, for the summary and the page of a job: how many each file has, and which files have the most.

use super::chunk_facts::ChunkFacts;
use super::context::Job;
use super::overlap::Counts;
use super::report::FileName;
use crate::error::Result;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use std::cmp::Reverse;
use std::ops::AddAssign;

/// Most files that the summary names, those with the most repeats.
const FILES_NAMED_MAX: usize = 50;

/// The counts of a file, or of several files together.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub(crate) struct FileCounts {
    pub(crate) stored_bytes: u64,
    pub(crate) item_bytes: u64,
    pub(crate) records: u64,
    pub(crate) items: u64,
    /// Dropped for a record of the same file.
    pub(crate) repeats_within: u64,
    /// Dropped for a record of another file.
    pub(crate) repeats_of_others: u64,
    /// Dropped because a reference contains them.
    pub(crate) known: u64,
    pub(crate) missing_key: u64,
    pub(crate) bad: u64,
}

impl FileCounts {
    /// Items dropped for another one of the job.
    pub(crate) fn repeats(&self) -> u64 {
        self.repeats_within.saturating_add(self.repeats_of_others)
    }

    fn fields(&mut self) -> [&mut u64; 9] {
        let Self { stored_bytes, item_bytes, records, items, repeats_within, .. } = self;
        let Self { repeats_of_others, known, missing_key, bad, .. } = self;
        [
            stored_bytes,
            item_bytes,
            records,
            items,
            repeats_within,
            repeats_of_others,
            known,
            missing_key,
            bad,
        ]
    }
}

impl AddAssign for FileCounts {
    fn add_assign(&mut self, mut other: Self) {
        for (sum, part) in self.fields().into_iter().zip(other.fields()) {
            *sum = sum.saturating_add(*part);
        }
    }
}

/// The totals of the files of one process, in a size that does not grow with the number of files.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub(crate) struct FileTotals {
    /// How many files.
    count: u64,
    /// The files with the most repeats, by their numbers; among equal ones the first in input order.
    named: Vec<(u32, FileCounts)>,
    /// All others together.
    others: FileCounts,
}

/// A worker's part of the sections `files` and `overlap`.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
pub(crate) struct RepeatTotals {
    /// The totals of its own files.
    pub(crate) files: FileTotals,
    /// Its own drops in the overlap matrix of all files of the job.
    pub(crate) overlap: Counts,
}

/// Counts the repeats in each file of a process.
pub(crate) struct FileCounter {
    counts: Vec<FileCounts>,
}

impl FileCounter {
    /// Begins with the facts of the first reading.
    pub(crate) fn new(job: &Job<'_>, facts: &[ChunkFacts]) -> Self {
        let stored = |bytes| FileCounts { stored_bytes: bytes, ..<_>::default() };
        let mut counts: Vec<FileCounts> =
            job.sources.iter().map(|source| stored(source.bytes)).collect();
        for (chunk, facts) in job.chunks.iter().zip(facts) {
            counts[chunk.source] += FileCounts {
                item_bytes: facts.item_bytes,
                records: facts.records,
                items: facts.items,
                missing_key: facts.left_out,
                bad: facts.bad.count(),
                ..<_>::default()
            };
        }
        Self { counts }
    }

    /// Counts an item of a file that a reference contains.
    pub(crate) fn add_known(&mut self, file: usize) {
        self.counts[file].known += 1;
    }

    /// Counts an item of a file that repeats another one, of the same file or of another.
    pub(crate) fn add_repeat(&mut self, file: usize, is_within: bool) {
        let counts = &mut self.counts[file];
        if is_within { counts.repeats_within += 1 } else { counts.repeats_of_others += 1 }
    }

    /// The number of repeats of each file.
    pub(crate) fn repeats(&self) -> impl Iterator<Item = u64> {
        self.counts.iter().map(FileCounts::repeats)
    }

    /// The totals.
    pub(crate) fn totals(&self) -> FileTotals {
        let mut order: Vec<usize> = (0..self.counts.len()).collect();
        order.sort_by_key(|&at| Reverse(self.counts[at].repeats()));
        let (named, rest) = order.split_at(order.len().min(FILES_NAMED_MAX));
        let mut others = FileCounts::default();
        rest.iter().for_each(|&at| others += self.counts[at]);
        let number = |at: usize| u32::try_from(at).expect("fewer files than chunks");
        let named = named.iter().map(|&at| (number(at), self.counts[at])).collect();
        FileTotals { count: self.counts.len() as u64, named, others }
    }
}

/// A file that the summary names.
#[derive(Serialize)]
struct NamedFile<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    worker: Option<u16>,
    file: &'a str,
    #[serde(flatten)]
    counts: FileCounts,
}

/// The section `files` of the summary, from the totals of all processes in the order of the input.
///
/// # Errors
///
/// As `name_of`, which names a file by process and number.
pub(crate) fn files_json<'a>(
    totals: &[&FileTotals],
    name_of: impl Fn(usize, u32) -> Result<FileName<'a>>,
) -> Result<Value> {
    let of_process = |(process, totals): (usize, &&'_ FileTotals)| {
        totals.named.iter().map(move |&(file, counts)| (process, file, counts)).collect::<Vec<_>>()
    };
    let mut all: Vec<(usize, u32, FileCounts)> =
        totals.iter().enumerate().flat_map(of_process).collect();
    all.sort_by_key(|&(process, file, counts)| (Reverse(counts.repeats()), process, file));
    let (named, rest) = all.split_at(all.len().min(FILES_NAMED_MAX));
    let mut others = FileCounts::default();
    totals.iter().for_each(|totals| others += totals.others);
    rest.iter().for_each(|&(_, _, counts)| others += counts);
    let mut sum = others;
    named.iter().for_each(|&(_, _, counts)| sum += counts);
    let name = |&(process, file, counts): &(usize, u32, FileCounts)| {
        let FileName { worker, name } = name_of(process, file)?;
        Ok(NamedFile { worker, file: name, counts })
    };
    let named: Vec<NamedFile<'_>> = named.iter().map(name).collect::<Result<_>>()?;
    let count = totals.iter().fold(0, |sum: u64, totals| sum.saturating_add(totals.count));
    Ok(json!({
        "count": count, "named": named,
        "others": { "count": count.saturating_sub(named.len() as u64), "counts": others },
        "all": sum,
    }))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn counter(repeats: &[(u64, u64)]) -> FileCounter {
        let counts = |&(repeats_within, repeats_of_others): &(u64, u64)| FileCounts {
            items: 100,
            repeats_within,
            repeats_of_others,
            ..<_>::default()
        };
        FileCounter { counts: repeats.iter().map(counts).collect() }
    }

    #[test]
    fn the_files_with_the_most_repeats_are_named_and_all_others_counted() {
        let totals = counter(&[(1, 0), (1, 2), (0, 1)]).totals();
        let names = ["a", "b", "c"];
        let name = |_, file: u32| Ok(FileName { worker: None, name: names[file as usize] });
        let files = files_json(&[&totals], name).unwrap();
        let named = files["named"].as_array().unwrap();
        let row = |at: usize| {
            let count = |name: &str| named[at][name].as_u64().unwrap();
            (&named[at]["file"], count("repeats_within"), count("repeats_of_others"))
        };
        let expected = [(&json!("b"), 1, 2), (&json!("a"), 1, 0), (&json!("c"), 0, 1)];
        assert_eq!([row(0), row(1), row(2)], expected);
        assert!(named[0].get("worker").is_none());
        assert_eq!((&files["all"]["items"], &files["others"]["count"]), (&json!(300), &json!(0)));
    }

    proptest! {
        /// For any division of the files among processes, their totals add up to the same section as those of
        /// one process.
        #[test]
        fn totals_of_processes_are_those_of_one(
            repeats in proptest::collection::vec((0u64..4, 0u64..4), 0..200),
            cuts in proptest::collection::vec(0usize..200, 0..4),
        ) {
            let mut cuts: Vec<usize> = cuts.into_iter().map(|cut| cut.min(repeats.len())).collect();
            cuts.extend([0, repeats.len()]);
            cuts.sort_unstable();
            let names: Vec<String> = (0..repeats.len()).map(|at| at.to_string()).collect();
            let named = |from: usize, file: u32| {
                Ok(FileName { worker: None, name: &names[from + file as usize] })
            };
            let parts: Vec<FileTotals> =
                cuts.windows(2).map(|ends| counter(&repeats[ends[0]..ends[1]]).totals()).collect();
            let parts: Vec<&FileTotals> = parts.iter().collect();
            let together = files_json(&parts, |process, file| named(cuts[process], file)).unwrap();
            let whole = counter(&repeats).totals();
            prop_assert_eq!(together, files_json(&[&whole], |_, file| named(0, file)).unwrap());
        }
    }

    #[test]
    fn many_files_are_a_few_rows_and_the_others() {
        const FILES: usize = 100_000;
        let totals = counter(&vec![(0, 1); FILES]).totals();
        let files =
            files_json(&[&totals], |_, _| Ok(FileName { worker: None, name: "x" })).unwrap();
        assert_eq!(files["count"], FILES);
        assert_eq!(files["named"].as_array().unwrap().len(), FILES_NAMED_MAX);
        assert_eq!(files["others"]["count"], FILES - FILES_NAMED_MAX);
        assert_eq!(files["all"]["repeats_of_others"], FILES);
    }
}
