//! The index of a worker's kept items. The indexes of all workers together form the index of the job.

use super::super::save_index::{self, KeptHashes, kept_count};
use super::super::sink::{Complete, Sink};
use super::super::spec::SaveIndex;
use super::super::spill::ScratchFile;
use super::bench::{Bench, ReadState};
use crate::error::Result;
use umbel_filter::ItemHash;

/// The kept items of a worker.
struct KeptOfWorker<'a> {
    bench: &'a Bench,
    state: &'a ReadState,
}

impl KeptHashes for KeptOfWorker<'_> {
    fn count(&self) -> u64 {
        kept_count(&self.state.facts)
    }

    fn of_cell(&self, cell: u32, hashes: &mut Vec<ItemHash>) -> Result<()> {
        self.bench.check_wanted()?;
        for entry in self.state.cells.entries(cell)?.entries {
            let (chunk, record) = self.bench.own_record(self.state, entry.record_id)?;
            if !self.state.facts[chunk].dropped.get(record) {
                hashes.push(entry.hash);
            }
        }
        Ok(())
    }
}

/// Writes the index.
pub(super) fn write(
    bench: &Bench,
    state: &ReadState,
    index: &SaveIndex,
    sink: Sink,
) -> Result<Complete> {
    let scratch = ScratchFile::new(bench.folder.path());
    let kept = KeptOfWorker { bench, state };
    save_index::write(&bench.job(state.reading), &kept, index.bits, &scratch, sink)
}
