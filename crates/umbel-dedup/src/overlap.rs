//! The overlap matrix: how many items of each file or directory repeat an item of each other one.
//!
//! Its size is bounded for any number of files. It has a row and a column for each of the files with the
//! largest weights (items dropped there, or dropped for an item there), and one for all others together; if
//! there are many files, rows are directories instead. The choice depends on names and weights alone: each
//! worker that knows those of all files counts its own drops in the same matrix, and the sum of all workers'
//! matrices equals the matrix of one process.

use super::report::FileName;
use serde_json::{Value, json};
use std::cmp::Reverse;
use std::collections::BTreeMap;

/// Most files or directories with a row of their own: as many as people can tell apart in a picture.
pub(crate) const UNITS_MAX: usize = 24;

/// What a row of the matrix stands for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum UnitKind {
    File,
    Directory,
}

/// A matrix of counts, row by row.
pub(crate) type Counts = Vec<Vec<u64>>;

/// The overlap matrix.
pub(crate) struct Overlap<'a> {
    kind: UnitKind,
    /// Names of the rows, in the order of the input, without the last row of others.
    names: Vec<FileName<'a>>,
    /// How many files or directories share the last row.
    others: usize,
    /// The row of each file.
    unit_of: Vec<usize>,
    /// Number of items of a row that were dropped for an item of a column.
    dropped: Counts,
}

impl<'a> Overlap<'a> {
    /// The matrix of these files, all zero. `files` are names and weights in the order of the input; a weight is the number
    /// of the file's items that were dropped for an item of the job, plus that of items dropped for one of the file's.
    pub(crate) fn new(files: &[(FileName<'a>, u64)]) -> Self {
        let (mut kind, mut keys): (_, Vec<FileName<'a>>) =
            (UnitKind::File, files.iter().map(|(name, _)| *name).collect());
        if keys.len() > UNITS_MAX {
            let folders: Vec<FileName<'a>> = keys.iter().map(FileName::directory).collect();
            // If all files are in one directory, a matrix by directory would have only one row.
            if folders.iter().any(|folder| *folder != folders[0]) {
                (kind, keys) = (UnitKind::Directory, folders);
            }
        }
        // Several files have one key if it is their directory, or if a pipe was named twice.
        let mut numbers: BTreeMap<FileName<'a>, usize> = BTreeMap::new();
        let mut sizes: Vec<(u64, FileName<'a>)> = Vec::new();
        let mut unit_of: Vec<usize> = Vec::with_capacity(keys.len());
        for (key, (_, weight)) in keys.into_iter().zip(files) {
            let number = *numbers.entry(key).or_insert_with(|| {
                sizes.push((0, key));
                sizes.len() - 1
            });
            sizes[number].0 = sizes[number].0.saturating_add(*weight);
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
        let names: Vec<FileName<'a>> = order.iter().map(|&at| sizes[at].1).collect();
        let side = names.len() + usize::from(others > 0);
        Self { kind, names, others, unit_of, dropped: vec![vec![0; side]; side] }
    }

    /// Counts an item of file `dropped` that was dropped for one of file `kept`.
    pub(crate) fn add(&mut self, dropped: usize, kept: usize) {
        let cell = &mut self.dropped[self.unit_of[dropped]][self.unit_of[kept]];
        *cell = cell.saturating_add(1);
    }

    /// The counts.
    pub(crate) fn into_counts(self) -> Counts {
        self.dropped
    }

    /// Adds the counts of a matrix of the same files. Returns false, and changes nothing, if it has another size.
    #[must_use]
    pub(crate) fn add_counts(&mut self, counts: &Counts) -> bool {
        let side = self.dropped.len();
        if counts.len() != side || counts.iter().any(|row| row.len() != side) {
            return false;
        }
        let all = self.dropped.iter_mut().flatten();
        for (sum, count) in all.zip(counts.iter().flatten()) {
            *sum = sum.saturating_add(*count);
        }
        true
    }

    /// The section `overlap` of the summary.
    pub(crate) fn json(&self) -> Value {
        let by = match self.kind {
            UnitKind::File => "file",
            UnitKind::Directory => "directory",
        };
        let names: Vec<&str> = self.names.iter().map(|name| name.name).collect();
        let workers: Option<Vec<u16>> = self.names.iter().map(|name| name.worker).collect();
        json!({
            "by": by, "names": names,
            // Also `null` if there are no files.
            "workers": workers.filter(|workers| !workers.is_empty()),
            "others": self.others, "dropped": self.dropped,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn named<'a>(worker: Option<u16>, name: &'a str, weight: u64) -> (FileName<'a>, u64) {
        (FileName { worker, name }, weight)
    }

    #[test]
    fn files_of_many_directories_are_counted_by_directory_and_worker() {
        let names: Vec<String> = (0..60).map(|at| format!("in/{}/{at}.txt", at % 5)).collect();
        let one: Vec<_> = names.iter().map(|name| named(None, name, 1)).collect();
        assert_eq!(Overlap::new(&one).json()["names"].as_array().unwrap().len(), 5);
        // The same path on two machines is two directories.
        let two: Vec<_> =
            (0u16..).zip(&names).map(|(at, name)| named(Some(at / 30), name, 1)).collect();
        let json = Overlap::new(&two).json();
        assert_eq!(json["workers"], json!([0, 0, 0, 0, 0, 1, 1, 1, 1, 1]));
        assert_eq!((&json["by"], &json["names"][0]), (&json!("directory"), &json!("in/0")));
    }

    /// With 10^5 files in `directories` directories few are named, and all others are counted.
    #[test]
    fn many_files_are_a_few_rows_and_the_others() {
        const FILES: usize = 100_000;
        for (directories, by, others) in
            [(1, "file", FILES - UNITS_MAX), (1000, "directory", 1000 - UNITS_MAX)]
        {
            let names = (0..FILES).map(|file| format!("in/{}/{file}.txt", file % directories));
            let names: Vec<String> = names.collect();
            let files: Vec<_> =
                names.iter().zip(0..).map(|(name, weight)| named(None, name, weight)).collect();
            let mut overlap = Overlap::new(&files);
            (1..FILES).for_each(|file| overlap.add(file, file / 2));
            let json = overlap.json();
            assert_eq!((&json["by"], &json["others"]), (&json!(by), &json!(others)));
            // The directories with the largest weights.
            assert_eq!(json["names"].as_array().unwrap().len(), UNITS_MAX);
            let last = json["names"][UNITS_MAX - 1].as_str().unwrap();
            assert!(last.contains("999"), "{last}");
            let rows = overlap.into_counts();
            assert_eq!(rows.len(), UNITS_MAX + 1);
            assert_eq!(rows.iter().flatten().sum::<u64>(), FILES as u64 - 1);
        }
    }

    #[test]
    fn sums_of_parts_are_the_whole_and_other_shapes_are_refused() {
        let files: Vec<_> = ["a", "b", "c"].iter().map(|name| named(Some(0), name, 1)).collect();
        let mut whole = Overlap::new(&files);
        let mut parts = [Overlap::new(&files), Overlap::new(&files)];
        for at in 0..20 {
            whole.add(at % 3, at * at % 3);
            parts[at % 2].add(at % 3, at * at % 3);
        }
        let mut sum = Overlap::new(&files);
        for part in parts {
            assert!(sum.add_counts(&part.into_counts()));
        }
        assert_eq!(sum.json(), whole.json());
        for other in [vec![], vec![vec![1; 3]; 2], vec![vec![1; 3], vec![1; 3], vec![1; 2]]] {
            assert!(!sum.add_counts(&other));
        }
        assert_eq!(sum.json(), whole.json());
    }

    #[test]
    fn a_job_without_files_has_an_empty_matrix() {
        let json = Overlap::new(&[]).json();
        let none = json!({"by": "file", "names": [], "workers": null, "others": 0, "dropped": []});
        assert_eq!(json, none);
    }
}
