//! A worker's claims: for each kept record, how many of this worker's records were dropped for it. The worker
//! sorts its drops by the kept record, counts them, and writes the counts to a scratch file, in which a
//! binary search finds a range.

use super::super::groups::for_each_group;
use super::super::segments::SegmentFile;
use super::super::sorted_rows::{RowSorter, SortedRows};
use super::super::spill::ScratchFile;
use super::bench::{Bench, ReadState};
use super::report::gather;
use super::weights::FileWeights;
use crate::error::{Result, bail};
use std::sync::Arc;
use umbel_dedup_engine::limits::GROUP_COUNT_RANGE_CLAIMS_MAX;
use umbel_dedup_engine::{Claim, RecordId, RecordRange};

/// Bytes of a claim in the file: the kept record's id, and the number of drops.
const CLAIM_BYTES: u64 = 16;

/// Claims that are appended to the file at once.
const GATHERED_CLAIMS: usize = 1 << 12;

/// Bytes of rows that are sorted in memory: a quarter, since at most two sorters exist at a time; a sixth if
/// records have parts, since then three exist.
pub(super) fn sort_bytes(bench: &Bench, state: &ReadState) -> u64 {
    bench.job(state.reading).resident_bytes() / if bench.spec.has_parts() { 6 } else { 4 }
}

/// Rows of kept and dropped record ids, sorted by the kept ones.
pub(super) fn drops_by_kept(bench: &Bench, state: &ReadState) -> Result<SortedRows<2>> {
    weighed_drops(bench, state, &mut FileWeights::default())
}

/// The same, and counts the drops of each file.
fn weighed_drops(
    bench: &Bench,
    state: &ReadState,
    weights: &mut FileWeights,
) -> Result<SortedRows<2>> {
    let scratch = Arc::new(ScratchFile::new(bench.folder.path()));
    let mut sorter = RowSorter::new(sort_bytes(bench, state), &scratch);
    gather(bench, state)?.for_each(|row| {
        bench.check_wanted()?;
        // A record that equals a reference is in no group: the kept record is one of another job.
        if row.is_known() {
            return Ok(());
        }
        weights.add_repeat(bench, state, row.record_id);
        sorter.push([row.kept.to_bits(), row.record_id.to_bits()])
    })?;
    sorter.finish()
}

/// The claims of a worker, ascending, in a scratch file.
pub(super) struct ClaimFile {
    scratch: ScratchFile,
    claims: u64,
}

impl ClaimFile {
    /// Gathers the claims, and counts the drops of each file.
    pub(super) fn gather(bench: &Bench, state: &ReadState) -> Result<(Self, FileWeights)> {
        let mut weights = FileWeights::new(bench);
        let rows = weighed_drops(bench, state, &mut weights)?;
        let mut file = Self { scratch: ScratchFile::new(bench.folder.path()), claims: 0 };
        let mut gathered = Vec::with_capacity(GATHERED_CLAIMS);
        for_each_group(&rows, |kept, size| {
            // `size` includes the kept record.
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
            kept: RecordId::from_bits(word(&pair[0])),
            dropped: word(&pair[1]),
        };
        Ok(words.chunks_exact(2).map(claim).collect())
    }

    /// Index of the first claim on this record id or a greater one.
    fn first_from(&self, record_id: RecordId) -> Result<u64> {
        let (mut low, mut high) = (0, self.claims);
        while low < high {
            let middle = low.midpoint(high);
            let is_before =
                self.read(middle, 1)?.first().is_some_and(|claim| claim.kept < record_id);
            if is_before { low = middle + 1 } else { high = middle }
        }
        Ok(low)
    }

    /// The claims in a range.
    pub(super) fn in_range(&self, range: RecordRange) -> Result<Vec<Claim>> {
        let (first, end) = (self.first_from(range.start)?, self.first_from(range.end)?);
        if end - first > GROUP_COUNT_RANGE_CLAIMS_MAX {
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
        let range = |start, end| RecordRange {
            start: RecordId::from_bits(start),
            end: RecordId::from_bits(end),
        };
        assert_eq!(file.in_range(range(0, u64::MAX)).unwrap(), []);
        let all: Vec<Claim> = (1..=100)
            .map(|number| Claim { kept: RecordId::from_bits(3 * number), dropped: number })
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
