//! The report of a worker's dropped records, each with the kept record, which may belong to another worker.

use super::super::drop_rows::{DropRow, DropRows};
use super::super::report::Report;
use super::super::sink::{Complete, Sink};
use super::super::spill::ScratchFile;
use super::super::turns::lock;
use super::bench::{Bench, ReadState};
use super::drop_file;
use super::part_names::{KeptElsewhere, RecordNames};
use crate::error::{Context, Result};
use std::sync::Arc;
use umbel_dedup_engine::job::WriteOrder;
use umbel_dedup_engine::{Keep, Rank, RecordId};

/// Words of a pair of the first reading: dropped and kept record id, and the dropped one's rank if the job
/// keeps the best.
const fn pair_words(keep: Keep) -> usize {
    if matches!(keep, Keep::Best) { 3 } else { 2 }
}

/// Appends a pair of the first reading as stored on disk, with the worker's own numbers of chunks.
pub(super) fn push_pair(row: DropRow, keep: Keep, bytes: &mut Vec<u8>) {
    let words = [row.record_id.to_bits(), row.kept.to_bits(), row.rank.0];
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
    let names = RecordNames::new(bench, state, order, &elsewhere)?;
    let rows = gather(bench, state)?;
    let mut report = Report::new(&names, bench.spec.best.as_ref(), sink);
    rows.for_each(|row| report.add(row))?;
    report.complete()
}

/// All drops of this worker, with record ids of the job.
pub(super) fn gather(bench: &Bench, state: &ReadState) -> Result<DropRows> {
    let base = state.reading.chunk_base;
    let scratch = Arc::new(ScratchFile::new(bench.folder.path()));
    let rows = DropRows::on_disk(&bench.job(state.reading), base, &scratch);
    let mut writer = rows.writer();
    let mut add = |record_id: RecordId, kept: RecordId, rank: Rank| {
        bench.own_record(state, record_id)?;
        writer.append(DropRow { record_id, kept, rank })
    };
    for blob in &state.pairs {
        let bytes = bench.runs.read_blob(*blob)?;
        let (words, _) = bytes.as_chunks::<8>();
        for pair in words.chunks_exact(pair_words(bench.spec.keep)) {
            let word = |at: usize| pair.get(at).map_or(0, |word| u64::from_le_bytes(*word));
            let [record_id, kept] = [0, 1].map(|at| {
                let own = RecordId::from_bits(word(at));
                RecordId::new(own.chunk() + base, own.item())
            });
            add(record_id, kept, Rank(word(2)))?;
        }
    }
    let good_bytes = lock(&bench.decided_cells).sealed_bytes;
    let asked_bytes = lock(&bench.journal_state).asked_bytes();
    for (file, bytes) in [(&bench.drops, good_bytes), (&bench.asked, asked_bytes)] {
        drop_file::for_each(file, bytes, |record_id, kept, rank| {
            add(record_id, kept.context("a drop does not name what was kept")?, rank)
        })?;
    }
    writer.finish()?;
    Ok(rows)
}
