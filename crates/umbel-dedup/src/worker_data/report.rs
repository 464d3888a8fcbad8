//! The report of a worker's dropped records: which one was dropped for which, perhaps of another worker.

use super::super::drop_rows::{DropRow, DropRows};
use super::super::report::Report;
use super::super::sink::{Complete, Sink};
use super::super::spill::ScratchFile;
use super::super::turns::lock;
use super::bench::{Bench, ReadState};
use super::drop_file;
use super::part_names::{KeptElsewhere, PlaceNames};
use crate::error::{Context, Result};
use std::sync::Arc;
use umbel_dedup_engine::job::WriteOrder;
use umbel_dedup_engine::{Keep, Place, Rank};

/// Words of a pair of the first reading: the places dropped and kept, and where the best stays the rank of the former.
const fn pair_words(keep: Keep) -> usize {
    if matches!(keep, Keep::Best) { 3 } else { 2 }
}

/// A pair of the first reading, by the worker's own numbers of chunks, as it is kept on disk.
pub(super) fn push_pair(row: DropRow, keep: Keep, bytes: &mut Vec<u8>) {
    let words = [row.place.to_bits(), row.kept.to_bits(), row.rank.0];
    bytes.extend(words[..pair_words(keep)].iter().flat_map(|word| word.to_le_bytes()));
}

/// Writes the report.
pub(super) fn write(
    bench: &Bench,
    state: &ReadState,
    order: &WriteOrder,
    sink: Sink,
) -> Result<Complete> {
    let elsewhere = KeptElsewhere::gather(bench, state)?;
    let names = PlaceNames::new(bench, state, order, &elsewhere)?;
    let rows = gather(bench, state)?;
    let mut report = Report::new(&names, bench.spec.best.as_ref(), sink);
    rows.for_each(|row| report.add(row))?;
    report.complete()
}

/// All drops by places of the job.
pub(super) fn gather(bench: &Bench, state: &ReadState) -> Result<DropRows> {
    let base = state.reading.chunk_base;
    let scratch = Arc::new(ScratchFile::new(bench.folder.path()));
    let rows = DropRows::on_disk(&bench.job(state.reading), base, &scratch);
    let mut writer = rows.writer();
    let mut add = |place: Place, kept: Place, rank: Rank| {
        bench.own_place(state, place)?;
        writer.append(DropRow { place, kept, rank })
    };
    for blob in &state.pairs {
        let bytes = bench.runs.read_blob(*blob)?;
        let (words, _) = bytes.as_chunks::<8>();
        for pair in words.chunks_exact(pair_words(bench.spec.keep)) {
            let word = |at: usize| pair.get(at).map_or(0, |word| u64::from_le_bytes(*word));
            let [place, kept] = [0, 1].map(|at| {
                let own = Place::from_bits(word(at));
                Place::new(own.chunk() + base, own.item())
            });
            add(place, kept, Rank(word(2)))?;
        }
    }
    let good_bytes = lock(&bench.settling).sealed_bytes;
    let asked_bytes = lock(&bench.told).asked_bytes();
    for (file, bytes) in [(&bench.drops, good_bytes), (&bench.asked, asked_bytes)] {
        drop_file::for_each(file, bytes, |place, kept, rank| {
            add(place, kept.context("a drop does not name what was kept")?, rank)
        })?;
    }
    writer.finish()?;
    Ok(rows)
}
