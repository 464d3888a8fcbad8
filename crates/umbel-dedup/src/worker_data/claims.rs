//! What a worker has dropped, by the records that were kept in its stead: its claims on groups.

use super::super::groups::for_each_group;
use super::super::sorted_rows::{RowSorter, SortedRows};
use super::super::spill::ScratchFile;
use super::bench::{Bench, ReadState};
use super::report::gather;
use super::weights::FileWeights;
use crate::error::{Result, bail};
use std::sync::Arc;
use umbel_dedup_engine::limits::TALLY_RANGE_CLAIMS_MAX;
use umbel_dedup_engine::{Claim, Place, PlaceRange};

/// Bytes of a claim in the file: the kept record, and how many were dropped for it.
const CLAIM_BYTES: u64 = 16;

/// Claims that are gathered before they go to the file.
const GATHERED_CLAIMS: usize = 1 << 12;

/// Bytes of rows that are sorted in memory. A quarter: two sorters at most are alive at once, or three where records have
/// parts.
pub(super) fn sort_bytes(bench: &Bench, state: &ReadState) -> u64 {
    bench.job(state.reading).resident_bytes() / if bench.spec.has_parts() { 6 } else { 4 }
}

/// What was kept and what was dropped for it, by places of the job.
pub(super) fn drops_by_kept(bench: &Bench, state: &ReadState) -> Result<SortedRows<2>> {
    weighed_drops(bench, state, &mut FileWeights::default())
}

/// The same, and counts in which files they stood.
fn weighed_drops(
    bench: &Bench,
    state: &ReadState,
    weights: &mut FileWeights,
) -> Result<SortedRows<2>> {
    let scratch = Arc::new(ScratchFile::new(bench.folder.path()));
    let mut sorter = RowSorter::new(sort_bytes(bench, state), &scratch);
    gather(bench, state)?.for_each(|row| {
        bench.check_wanted()?;
        // What a reference holds is in no group: the record that was kept is not of this job.
        if row.is_known() {
            return Ok(());
        }
        weights.add_repeat(bench, state, row.place);
        sorter.push([row.kept.to_bits(), row.place.to_bits()])
    })?;
    sorter.finish()
}

/// The claims of a worker, in rising order.
pub(super) struct ClaimFile {
    scratch: ScratchFile,
    claims: u64,
}

impl ClaimFile {
    /// Sorts all that the worker has dropped; and in which of its files that stood.
    pub(super) fn gather(bench: &Bench, state: &ReadState) -> Result<(Self, FileWeights)> {
        let mut weights = FileWeights::new(bench);
        let rows = weighed_drops(bench, state, &mut weights)?;
        let mut file = Self { scratch: ScratchFile::new(bench.folder.path()), claims: 0 };
        let mut gathered = Vec::with_capacity(GATHERED_CLAIMS);
        for_each_group(&rows, |kept, size| {
            // A group of this worker's alone would be the kept record and its drops.
            gathered.push(Claim { kept, dropped: size - 1 });
            if gathered.len() == GATHERED_CLAIMS {
                file.append(&mut gathered)?;
            }
            Ok(())
        })?;
        file.append(&mut gathered)?;
        Ok((file, weights))
    }

    fn append(&mut self, claims: &mut Vec<Claim>) -> Result<()> {
        if claims.is_empty() {
            return Ok(());
        }
        let words = claims.iter().flat_map(|claim| [claim.kept.to_bits(), claim.dropped]);
        let bytes: Vec<u8> = words.flat_map(u64::to_le_bytes).collect();
        self.scratch.append(&bytes)?;
        self.claims += claims.len() as u64;
        claims.clear();
        Ok(())
    }

    fn read(&self, first: u64, count: u64) -> Result<Vec<Claim>> {
        let bytes = usize::try_from(count * CLAIM_BYTES).expect("claims of one range");
        let mut bytes = vec![0; bytes];
        self.scratch.read(first * CLAIM_BYTES, &mut bytes)?;
        let (words, _) = bytes.as_chunks::<8>();
        let word = |word: &[u8; 8]| u64::from_le_bytes(*word);
        let claim = |pair: &[[u8; 8]]| Claim {
            kept: Place::from_bits(word(&pair[0])),
            dropped: word(&pair[1]),
        };
        Ok(words.chunks_exact(2).map(claim).collect())
    }

    /// Number of the first claim on this place or behind it.
    fn first_from(&self, place: Place) -> Result<u64> {
        let (mut low, mut high) = (0, self.claims);
        while low < high {
            let middle = low.midpoint(high);
            let is_before = self.read(middle, 1)?.first().is_some_and(|claim| claim.kept < place);
            if is_before { low = middle + 1 } else { high = middle }
        }
        Ok(low)
    }

    /// The claims in a range.
    pub(super) fn in_range(&self, range: PlaceRange) -> Result<Vec<Claim>> {
        let (first, end) = (self.first_from(range.start)?, self.first_from(range.end)?);
        if end - first > TALLY_RANGE_CLAIMS_MAX {
            bail!("another worker asks for {} claims at once: a bug of umbel", end - first);
        }
        if first == end { Ok(Vec::new()) } else { self.read(first, end - first) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn claims_are_found_by_range() {
        let scratch = ScratchFile::new(&std::env::temp_dir());
        let mut file = ClaimFile { scratch, claims: 0 };
        let range =
            |start, end| PlaceRange { start: Place::from_bits(start), end: Place::from_bits(end) };
        assert_eq!(file.in_range(range(0, u64::MAX)).unwrap(), []);
        let all: Vec<Claim> = (1..=100)
            .map(|number| Claim { kept: Place::from_bits(3 * number), dropped: number })
            .collect();
        file.append(&mut all[..60].to_vec()).unwrap();
        file.append(&mut all[60..].to_vec()).unwrap();
        for (start, end) in [(0, 400), (3, 4), (4, 6), (177, 190), (299, 301), (301, 900)] {
            let range = range(start, end);
            let expected: Vec<Claim> =
                all.iter().copied().filter(|claim| range.contains(claim.kept)).collect();
            assert_eq!(file.in_range(range).unwrap(), expected, "{start} {end}");
        }
    }
}
