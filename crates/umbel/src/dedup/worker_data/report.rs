//! The report of a worker's dropped records: which one was dropped for which, perhaps of another worker.

use super::super::drop_rows::{DropRow, DropRows};
use super::super::report::Report;
use super::super::sink::{Complete, Sink};
use super::super::spill::ScratchFile;
use super::super::turns::lock;
use super::bench::{Bench, ReadState};
use super::catalogue::Catalogues;
use super::drop_file;
use anyhow::{Context, Result};
use std::sync::Arc;
use umbel_engine::dedup::job::WriteOrder;
use umbel_engine::dedup::{Place, Rank};

/// Bytes of a pair of places, dropped and kept.
const PAIR_BYTES: usize = 16;

/// A pair of the first reading, by the worker's own numbers of chunks, as it is kept on disk.
pub(super) fn push_pair(row: DropRow, bytes: &mut Vec<u8>) {
    bytes.extend(row.place.to_bits().to_le_bytes());
    bytes.extend(row.kept.to_bits().to_le_bytes());
}

/// Writes the report.
pub(super) fn write(
    bench: &Bench,
    state: &ReadState,
    order: &WriteOrder,
    sink: Sink,
) -> Result<Complete> {
    let names = Catalogues::decode(&order.chunk_bases, &order.catalogues)?;
    let rows = gather(bench, state)?;
    let mut report = Report::new(&names, None, sink);
    rows.for_each(|row| report.add(row))?;
    report.complete()
}

/// All drops by places of the job.
fn gather(bench: &Bench, state: &ReadState) -> Result<DropRows> {
    let base = state.reading.chunk_base;
    let scratch = Arc::new(ScratchFile::new(bench.folder.path()));
    let rows = DropRows::on_disk(&bench.job(state.reading), base, &scratch);
    let mut writer = rows.writer();
    let mut add = |place: Place, kept: Place| {
        bench.own_place(state, place)?;
        writer.append(DropRow { place, kept, rank: Rank::default() })
    };
    for blob in &state.pairs {
        let bytes = bench.runs.read_blob(*blob)?;
        for pair in bytes.as_chunks::<PAIR_BYTES>().0 {
            let (words, _) = pair.as_chunks::<8>();
            let [place, kept] = [0, 1].map(|at| {
                let own = Place::from_bits(u64::from_le_bytes(words[at]));
                Place::new(own.chunk() + base, own.item())
            });
            add(place, kept)?;
        }
    }
    let good_bytes = lock(&bench.settling).sealed_bytes;
    drop_file::for_each(&bench.drops, good_bytes, |place, kept| {
        add(place, kept.context("a drop does not name what was kept")?)
    })?;
    writer.finish()?;
    Ok(rows)
}
