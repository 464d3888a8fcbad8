//! The weights of a worker's files: how much of each file was repeated. All workers receive all weights
//! before they write, so that all choose the same rows and columns of the overlap matrix.
//!
//! ```text
//! weights:  { of a file, in the order of the catalogue } ...            numbers as LEB128
//! ```
//!
//! A file's weight is the number of its items that were dropped for others, plus the number of items that were dropped for
//! one of its items, which its worker learns when groups are counted.

use super::super::overlap::Overlap;
use super::super::report::FileName;
use super::bench::{Bench, ReadState};
use super::catalogue::{Catalogues, push, take};
use crate::error::{Context, Result};
use umbel_dedup_engine::{KeptGroup, RecordId};

/// Counts the weights of a worker's own files.
#[derive(Default)]
pub(super) struct FileWeights(Vec<u64>);

impl FileWeights {
    /// All zero; nothing is counted if the job does not report files.
    pub(super) fn new(bench: &Bench) -> Self {
        Self(vec![0; if bench.spec.reports_files { bench.sources.len() } else { 0 }])
    }

    /// Counts an item that was dropped for another one.
    pub(super) fn add_repeat(&mut self, bench: &Bench, state: &ReadState, record_id: RecordId) {
        self.add(bench, state, record_id, 1);
    }

    /// Counts items that were dropped for this worker's items.
    pub(super) fn add_groups(&mut self, bench: &Bench, state: &ReadState, groups: &[KeptGroup]) {
        groups.iter().for_each(|group| self.add(bench, state, group.kept, group.size - 1));
    }

    fn add(&mut self, bench: &Bench, state: &ReadState, record_id: RecordId, count: u64) {
        let chunk = record_id.chunk().checked_sub(state.reading.chunk_base);
        let file = chunk.and_then(|chunk| bench.chunks.get(chunk as usize));
        if let Some(weight) = file.and_then(|chunk| self.0.get_mut(chunk.source)) {
            *weight = weight.saturating_add(count);
        }
    }

    /// Encodes the weights.
    pub(super) fn encode(&self) -> Vec<u8> {
        let mut bytes = Vec::new();
        self.0.iter().for_each(|&weight| push(&mut bytes, weight));
        bytes
    }
}

/// Decodes the weights of `files` files.
fn decode(mut bytes: &[u8], files: usize) -> Result<Vec<u64>> {
    let length = bytes.len();
    let weights: Option<Vec<u64>> = (0..files).map(|_| take(&mut bytes)).collect();
    let weights = weights.filter(|_| bytes.is_empty());
    weights.with_context(|| format!("{length} bytes are no weights of {files} files"))
}

/// The overlap matrix of all files of a job, all zero.
///
/// # Errors
///
/// Names the worker whose number of weights differs from its number of files.
pub(super) fn overlap<'a>(catalogues: &'a Catalogues, weights: &[Vec<u8>]) -> Result<Overlap<'a>> {
    let mut files: Vec<(FileName<'a>, u64)> = Vec::new();
    for (worker, bytes) in (0..catalogues.worker_count()).zip(weights) {
        let names = catalogues.files_of(worker);
        let weights = decode(bytes, names.len()).with_context(|| format!("worker {worker}"))?;
        let worker = u16::try_from(worker).ok();
        let named = names.iter().map(|name| FileName { worker, name });
        files.extend(named.zip(weights));
    }
    Ok(Overlap::new(&files))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn weights_come_back_and_others_are_refused(
            weights in proptest::collection::vec(prop_oneof![0u64..300, any::<u64>()], 0..20),
        ) {
            let bytes = FileWeights(weights.clone()).encode();
            prop_assert_eq!(decode(&bytes, weights.len()).unwrap(), weights.clone());
            prop_assert!(decode(&bytes, weights.len() + 1).is_err());
            prop_assert!(weights.is_empty() || decode(&bytes, weights.len() - 1).is_err());
            prop_assert!(weights.is_empty() || decode(&bytes[..bytes.len() - 1], weights.len()).is_err());
        }
    }

    #[test]
    fn a_number_without_an_end_is_refused() {
        assert!(decode(&[0xff; 40], 1).is_err());
    }
}
