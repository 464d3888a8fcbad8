//! Repeats by file, for the page of a job: how many each file had, and which files have the most.

use super::chunk_facts::ChunkFacts;
use super::context::Job;
use super::overlap::Counts;
use super::report::FileName;
use crate::error::Result;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use std::cmp::Reverse;
use std::ops::AddAssign;

/// Most files that the summary names, those with the most repeats: as many as people read.
const FILES_NAMED_MAX: usize = 50;

/// What is counted of a file, or of several together.
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
    /// Dropped because a reference holds them.
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

/// What a process tells of the files that it has read.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub(crate) struct ToldFiles {
    /// How many files.
    count: u64,
    /// Those with the most repeats, by their numbers; of equal ones the first in input order.
    named: Vec<(u32, FileCounts)>,
    /// All others together.
    others: FileCounts,
}

/// A worker's part of the sections `files` and `overlap`.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
pub(crate) struct ToldRepeats {
    /// What it tells of its own files.
    pub(crate) files: ToldFiles,
    /// Its own drops, in the matrix of all files of the job.
    pub(crate) overlap: Counts,
}

/// Counts what the files of a process had.
pub(crate) struct FileTally {
    counts: Vec<FileCounts>,
}

impl FileTally {
    /// Begins with what reading has shown.
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
                bad: facts.bad.len() as u64,
                ..<_>::default()
            };
        }
        Self { counts }
    }

    /// Counts an item of a file that a reference holds.
    pub(crate) fn add_known(&mut self, file: usize) {
        self.counts[file].known += 1;
    }

    /// Counts an item of a file that repeats another one, of the same file or of another.
    pub(crate) fn add_repeat(&mut self, file: usize, is_within: bool) {
        let counts = &mut self.counts[file];
        match is_within {
            true => counts.repeats_within += 1,
            false => counts.repeats_of_others += 1,
        }
    }

    /// Items of each file that repeat others.
    pub(crate) fn repeats(&self) -> impl Iterator<Item = u64> {
        self.counts.iter().map(FileCounts::repeats)
    }

    /// In a form that travels.
    pub(crate) fn told(&self) -> ToldFiles {
        let mut order: Vec<usize> = (0..self.counts.len()).collect();
        order.sort_by_key(|&at| Reverse(self.counts[at].repeats()));
        let (named, rest) = order.split_at(order.len().min(FILES_NAMED_MAX));
        let mut others = FileCounts::default();
        rest.iter().for_each(|&at| others += self.counts[at]);
        let number = |at: usize| u32::try_from(at).expect("fewer files than chunks");
        let named = named.iter().map(|&at| (number(at), self.counts[at])).collect();
        ToldFiles { count: self.counts.len() as u64, named, others }
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

/// The section `files` of the summary: what all processes have told, each of its own files, in the order of the input.
///
/// # Errors
///
/// As `name_of`, which names a file by process and number.
pub(crate) fn files_json<'a>(
    told: &[&ToldFiles],
    name_of: impl Fn(usize, u32) -> Result<FileName<'a>>,
) -> Result<Value> {
    let of_process = |(process, told): (usize, &&'_ ToldFiles)| {
        told.named.iter().map(move |&(file, counts)| (process, file, counts)).collect::<Vec<_>>()
    };
    let mut all: Vec<(usize, u32, FileCounts)> =
        told.iter().enumerate().flat_map(of_process).collect();
    all.sort_by_key(|&(process, file, counts)| (Reverse(counts.repeats()), process, file));
    let (named, rest) = all.split_at(all.len().min(FILES_NAMED_MAX));
    let mut others = FileCounts::default();
    told.iter().for_each(|told| others += told.others);
    rest.iter().for_each(|&(_, _, counts)| others += counts);
    let mut sum = others;
    named.iter().for_each(|&(_, _, counts)| sum += counts);
    let name = |&(process, file, counts): &(usize, u32, FileCounts)| {
        let FileName { worker, name } = name_of(process, file)?;
        Ok(NamedFile { worker, file: name, counts })
    };
    let named: Vec<NamedFile<'_>> = named.iter().map(name).collect::<Result<_>>()?;
    let count = told.iter().fold(0, |sum: u64, told| sum.saturating_add(told.count));
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

    fn tally(repeats: &[(u64, u64)]) -> FileTally {
        let counts = |&(repeats_within, repeats_of_others): &(u64, u64)| FileCounts {
            items: 100,
            repeats_within,
            repeats_of_others,
            ..<_>::default()
        };
        FileTally { counts: repeats.iter().map(counts).collect() }
    }

    #[test]
    fn the_files_with_the_most_repeats_are_named_and_all_others_counted() {
        let told = tally(&[(1, 0), (1, 2), (0, 1)]).told();
        let names = ["a", "b", "c"];
        let name = |_, file: u32| Ok(FileName { worker: None, name: names[file as usize] });
        let files = files_json(&[&told], name).unwrap();
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
        /// However files are dealt to processes, together they tell what one tells that has read all of them.
        #[test]
        fn processes_tell_what_one_tells(
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
            let parts: Vec<ToldFiles> =
                cuts.windows(2).map(|ends| tally(&repeats[ends[0]..ends[1]]).told()).collect();
            let parts: Vec<&ToldFiles> = parts.iter().collect();
            let together = files_json(&parts, |process, file| named(cuts[process], file)).unwrap();
            let whole = tally(&repeats).told();
            prop_assert_eq!(together, files_json(&[&whole], |_, file| named(0, file)).unwrap());
        }
    }

    #[test]
    fn many_files_are_a_few_rows_and_the_others() {
        const FILES: usize = 100_000;
        let told = tally(&vec![(0, 1); FILES]).told();
        let files = files_json(&[&told], |_, _| Ok(FileName { worker: None, name: "x" })).unwrap();
        assert_eq!(files["count"], FILES);
        assert_eq!(files["named"].as_array().unwrap().len(), FILES_NAMED_MAX);
        assert_eq!(files["others"]["count"], FILES - FILES_NAMED_MAX);
        assert_eq!(files["all"]["repeats_of_others"], FILES);
    }
}
