//! One attempt at the exchange on a worker's files: entries and decisions by cell, the comparison of items, and the
//! count of groups.

use super::super::compare::{self, Suspects};
use super::super::exchange::sample_lists;
use super::super::observer::Unit;
use super::super::progress::Bar;
use super::super::run_builder::CellEntries;
use super::super::spill::{GroupedBytes, ScratchFile};
use super::super::turns::lock;
use super::bench::{Bench, DecidedCells, ReadState};
use super::claims::ClaimFile;
use super::journal_records::JournalRecord;
use super::weights::FileWeights;
use super::workshop::{Outcome, apart};
use super::{drop_file, group_file};
use crate::error::Result;
use std::sync::{Arc, Mutex};
use umbel_dedup_engine::job::GroupCountOrder;
use umbel_dedup_engine::{
    Claim, Drops, Entry, ExchangeReport, KeptGroup, Rank, RecordId, RecordPart, RecordRange,
    Suspect, SuspectItem, WorkerId,
};
use umbel_filter::{HashRange, ItemHash};
use umbel_jobs::{Attempt, BegunAttempt, CellItems, GatheredGroups};
use umbel_ports::PortFuture;

/// Items that are read again may take the memory divided by this before they go to disk.
const GATHERED_MEMORY_SHARE: u64 = 8;

/// An attempt at the exchange.
pub(super) struct FileAttempt {
    bench: Arc<Bench>,
    /// The records whose items must be compared; `None` if there are none so far.
    suspects: Mutex<Option<Suspects>>,
}

impl FileAttempt {
    /// Begins an attempt, and discards the cells that are not sealed.
    pub(super) fn begin(bench: &Arc<Bench>) -> Result<BegunAttempt> {
        let mut decided_cells = lock(&bench.decided_cells);
        decided_cells.open.clear();
        decided_cells.open_reference_drops = 0;
        bench.drops.cut(decided_cells.sealed_bytes)?;
        let attempt = Arc::new(Self { bench: Arc::clone(bench), suspects: Mutex::default() });
        let (sealed, report) = (decided_cells.sealed.clone(), decided_cells.report);
        Ok(BegunAttempt { sealed, report, attempt })
    }
}

impl Attempt for FileAttempt {
    fn sample(&self) -> Outcome<Vec<Vec<Entry>>> {
        let state = self.bench.read_state()?;
        let shape = self.bench.job(state.reading).shape;
        Ok(sample_lists(shape, |cell| state.cells.entries(cell))?)
    }

    fn entries(&self, cell: u32) -> Outcome<(Vec<Entry>, Vec<Rank>)> {
        let CellEntries { entries, ranks } = self.bench.read_state()?.cells.entries(cell)?;
        Ok((entries, ranks))
    }

    fn references(&self, range: HashRange) -> Outcome<Vec<ItemHash>> {
        Ok(self.bench.references.hashes(range)?)
    }

    fn decide(&self, cell: u32, drops: Drops) -> Outcome<()> {
        let bench = &*self.bench;
        let state = bench.read_state()?;
        for &record_id in &drops.record_ids {
            bench.mark_dropped(&state, record_id)?;
        }
        let mut decided_cells = lock(&bench.decided_cells);
        // If the cell was decided before, it had the same drops.
        if decided_cells.sealed.contains(cell) || decided_cells.open.contains(&cell) {
            return Ok(());
        }
        let before = bench.drops.bytes();
        if let Err(error) = drop_file::append(&bench.drops, cell, &drops) {
            bench.drops.cut(before)?;
            return Err(error.into());
        }
        decided_cells.open.push(cell);
        decided_cells.open_reference_drops += drops.reference;
        Ok(())
    }

    fn seal(&self, report: &ExchangeReport) -> Outcome<()> {
        let bench = &*self.bench;
        let mut decided_cells = lock(&bench.decided_cells);
        if decided_cells.open.is_empty() && decided_cells.report == *report {
            return Ok(());
        }
        bench.drops.sync()?;
        let (cells, drops_bytes) = (decided_cells.open.clone(), bench.drops.bytes());
        let reference_drops = decided_cells.reference_drops + decided_cells.open_reference_drops;
        bench.append_record(&JournalRecord::Sealed {
            cells,
            drops_bytes,
            reference_drops,
            report: Box::new(*report),
        })?;
        let DecidedCells { sealed, open, .. } = &mut *decided_cells;
        open.drain(..).for_each(|cell| sealed.insert(cell));
        (decided_cells.sealed_bytes, decided_cells.report) = (drops_bytes, *report);
        (decided_cells.reference_drops, decided_cells.open_reference_drops) = (reference_drops, 0);
        Ok(())
    }

    fn suspect(&self, _: u32, suspects: &[Suspect]) -> Outcome<()> {
        if suspects.is_empty() {
            return Ok(());
        }
        let bench = &self.bench;
        let state = bench.read_state()?;
        let mut stored = lock(&self.suspects);
        let stored = stored.get_or_insert_with(|| Suspects::new(&state.facts));
        for &suspect in suspects {
            let (_, record) = bench.own_record(&state, suspect.record_id)?;
            let chunk = suspect.record_id.chunk() - state.reading.chunk_base;
            stored.add(Suspect { record_id: RecordId::new(chunk, record), ..suspect });
        }
        Ok(())
    }

    fn fetch(&self) -> PortFuture<'_, Outcome<CellItems>> {
        // A worker that has written its outputs has no input any more, but then it has no suspects either.
        let Some(suspects) = lock(&self.suspects).take() else {
            return Box::pin(async { Ok(Arc::new(|_| Ok(Vec::new())) as CellItems) });
        };
        apart(&self.bench, move |bench| {
            let state = bench.read_state()?;
            let store = fetch(bench, &state, &suspects)?;
            let base = state.reading.chunk_base;
            Ok(Arc::new(move |cell| Ok(items(&store, cell, base)?)) as CellItems)
        })
    }

    fn gather(&self, _: GroupCountOrder) -> PortFuture<'_, Outcome<Box<dyn GatheredGroups>>> {
        // Before the thread starts, so that a thread left over from an earlier attempt cannot clear what
        // this attempt learns.
        let begun = match lock(&self.bench.journal_state).group_bytes {
            Some(_) => Ok(()),
            None => self.bench.groups.cut(0),
        };
        apart(&self.bench, move |bench| {
            begun?;
            let (bench, state) = (Arc::clone(bench), bench.read_state()?);
            let (claims, weights) = ClaimFile::gather(&bench, &state)?;
            Ok(Box::new(FileGroups { bench, state, claims, weights }) as Box<dyn GatheredGroups>)
        })
    }
}

/// Reads the items of suspects again.
fn fetch(bench: &Bench, state: &ReadState, suspects: &Suspects) -> Result<GroupedBytes> {
    let scratch = Arc::new(ScratchFile::new(bench.folder.path()));
    let buffers = bench.spec.memory_bytes / GATHERED_MEMORY_SHARE;
    let bytes = bench.chunks.iter().map(|chunk| chunk.bytes).sum();
    let bar = Bar::new(&*bench.observer, "compare", bytes, Unit::Bytes);
    let job = bench.job(state.reading);
    compare::read_again(&job, suspects, &state.facts, (0, buffers), &scratch, &bar)
}

/// The fetched items of a cell, with the job's numbers of chunks.
fn items(store: &GroupedBytes, cell: u32, chunk_base: u32) -> Result<Vec<SuspectItem>> {
    let items = compare::decode(&store.read(cell as usize)?)?.into_iter();
    let of_job = |(_, item): (WorkerId, SuspectItem)| {
        let (chunk, number) = (item.record_id.chunk() + chunk_base, item.record_id.item());
        SuspectItem { record_id: RecordId::new(chunk, number), ..item }
    };
    Ok(items.map(of_job).collect())
}

/// This worker's claims, and the groups that it learns.
struct FileGroups {
    bench: Arc<Bench>,
    state: Arc<ReadState>,
    claims: ClaimFile,
    /// How much of each file was repeated, as far as it is known yet.
    weights: FileWeights,
}

impl GatheredGroups for FileGroups {
    fn record_counts(&self) -> Vec<u64> {
        self.state.facts.iter().map(|facts| facts.id_count).collect()
    }

    fn claims(&self, range: RecordRange) -> Outcome<Vec<Claim>> {
        Ok(self.claims.in_range(range)?)
    }

    fn parts(&self, record_ids: &[RecordId]) -> Outcome<Vec<RecordPart>> {
        let part = |record_id: &RecordId| Ok(self.bench.own_part(&self.state, *record_id)?);
        record_ids.iter().map(part).collect()
    }

    fn learn(&mut self, owner: WorkerId, groups: Vec<KeptGroup>) -> Outcome<()> {
        // An earlier attempt has made the same groups durable.
        if lock(&self.bench.journal_state).group_bytes.is_some() {
            return Ok(());
        }
        if owner == WorkerId(self.bench.member.worker) {
            self.weights.add_groups(&self.bench, &self.state, &groups);
        }
        Ok(group_file::append(&self.bench.groups, owner, &groups)?)
    }

    fn seal(&mut self) -> Outcome<Vec<u8>> {
        let mut journal_state = lock(&self.bench.journal_state);
        if journal_state.group_bytes.is_some() {
            return Ok(journal_state.weights.clone());
        }
        self.bench.groups.sync()?;
        let (group_bytes, weights) = (self.bench.groups.bytes(), self.weights.encode());
        self.bench
            .append_record(&JournalRecord::Counted { group_bytes, weights: weights.clone() })?;
        (journal_state.group_bytes, journal_state.weights) = (Some(group_bytes), weights.clone());
        Ok(weights)
    }
}
