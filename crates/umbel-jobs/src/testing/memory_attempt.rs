//! An attempt at the exchange of an in-memory workshop, and the groups that it counts.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use umbel_dedup_engine::job::GroupCountOrder;
use umbel_dedup_engine::{
    Claim, Drops, Entry, ExchangeReport, KeptGroup, Rank, RecordId, RecordPart, RecordRange,
    Suspect, WorkerId,
};
use umbel_filter::{HashRange, ItemHash};
use umbel_ports::PortFuture;

use super::memory_records::{CHUNKS, part, rank};
use super::memory_workshop::{Point, ProcessState};
use crate::{Attempt, CellItems, GatheredGroups, WorkshopError};

/// An attempt of one process.
pub(super) struct MemoryAttempt {
    process: Arc<ProcessState>,
    decided: Mutex<BTreeMap<u32, Drops>>,
    suspects: Arc<Mutex<BTreeMap<u32, Vec<Suspect>>>>,
}

impl MemoryAttempt {
    /// An attempt that has decided nothing.
    pub(super) fn new(process: Arc<ProcessState>) -> Self {
        Self { process, decided: Mutex::default(), suspects: Arc::default() }
    }
}

impl Attempt for MemoryAttempt {
    fn sample(&self) -> Result<Vec<Vec<Entry>>, WorkshopError> {
        self.process.now(Point::Sample, |kept| {
            let shape = kept.order.unwrap().shape;
            let range = |owner| shape.sample_range(owner);
            let list = |owner| {
                let entries =
                    self.process.entries_where(kept, |hash| range(owner).contains(hash.hi()));
                entries.into_iter().map(|(entry, _)| entry).collect()
            };
            (0..shape.workers).map(list).collect()
        })
    }

    fn entries(&self, cell: u32) -> Result<(Vec<Entry>, Vec<Rank>), WorkshopError> {
        self.process.now(Point::Entries, |kept| {
            let shape = kept.order.unwrap().shape;
            let cells = shape.cells();
            let entries = self.process.entries_where(kept, |hash| cells.cell_of(hash.hi()) == cell);
            let entries: Vec<Entry> = entries.into_iter().map(|(entry, _)| entry).collect();
            let ranked = if shape.ranks_entries() { &entries[..] } else { &[] };
            let ranks = ranked.iter().map(|entry| rank(entry.record_id)).collect();
            (entries, ranks)
        })
    }

    fn references(&self, range: HashRange) -> Result<Vec<ItemHash>, WorkshopError> {
        let known = self.process.disk.known.iter().copied();
        Ok(known.filter(|hash| range.contains(hash.hi())).collect())
    }

    fn decide(&self, cell: u32, drops: Drops) -> Result<(), WorkshopError> {
        self.process.now(Point::Decide, |_| {
            self.decided.lock().unwrap().insert(cell, drops);
        })
    }

    fn seal(&self, report: &ExchangeReport) -> Result<(), WorkshopError> {
        self.process.now(Point::Seal, |kept| {
            kept.sealed.append(&mut self.decided.lock().unwrap());
            kept.report = *report;
        })
    }

    fn suspect(&self, cell: u32, suspects: &[Suspect]) -> Result<(), WorkshopError> {
        let earlier = self.suspects.lock().unwrap().insert(cell, suspects.to_vec());
        assert!(earlier.is_none(), "cell {cell} is compared once an attempt");
        Ok(())
    }

    fn fetch(&self) -> PortFuture<'_, Result<CellItems, WorkshopError>> {
        self.process.later(Point::Fetch, |_| -> CellItems {
            let (process, suspects) = (Arc::clone(&self.process), Arc::clone(&self.suspects));
            Arc::new(move |cell| process.items(&suspects.lock().unwrap(), cell))
        })
    }

    fn gather(
        &self,
        order: GroupCountOrder,
    ) -> PortFuture<'_, Result<Box<dyn GatheredGroups>, WorkshopError>> {
        self.process.later(Point::Gather, move |kept| -> Box<dyn GatheredGroups> {
            assert!(order.chunk_bases.contains(&kept.order.unwrap().chunk_base));
            let process = Arc::clone(&self.process);
            Box::new(MemoryGroups { process, groups: Vec::new() })
        })
    }
}

/// The groups that one process learns.
struct MemoryGroups {
    process: Arc<ProcessState>,
    groups: Vec<KeptGroup>,
}

impl GatheredGroups for MemoryGroups {
    fn record_counts(&self) -> Vec<u64> {
        let records = self.process.disk.records.len();
        let first = records.div_ceil(CHUNKS as usize);
        vec![first as u64, (records - first) as u64]
    }

    fn claims(&self, range: RecordRange) -> Result<Vec<Claim>, WorkshopError> {
        self.process.now(Point::Claims, |kept| {
            let mut claims: BTreeMap<RecordId, u64> = BTreeMap::new();
            let dropped = kept.dropped().into_iter().filter(|(record_id, kept)| record_id != kept);
            let dropped = dropped.filter(|(_, kept)| range.contains(*kept));
            dropped.for_each(|(_, kept)| *claims.entry(kept).or_default() += 1);
            claims.into_iter().map(|(kept, dropped)| Claim { kept, dropped }).collect()
        })
    }

    fn parts(&self, record_ids: &[RecordId]) -> Result<Vec<RecordPart>, WorkshopError> {
        Ok(record_ids.iter().map(|record_id| part(*record_id)).collect())
    }

    fn learn(&mut self, _: WorkerId, groups: Vec<KeptGroup>) -> Result<(), WorkshopError> {
        self.process.now(Point::Learn, |_| self.groups.extend(groups))
    }

    fn seal(&mut self) -> Result<Vec<u8>, WorkshopError> {
        self.process.now(Point::SealGroups, |kept| {
            if kept.groups.is_none() {
                let groups = self.groups.iter();
                let named = groups.clone().filter_map(|group| Some((group.kept, group.part?)));
                kept.parts = named.collect();
                kept.groups = Some(groups.map(|group| (group.kept, group.size)).collect());
            }
            vec![9; 2]
        })
    }
}
