//! An attempt at the exchange of a worker in a simulated world, and the groups that it counts.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use umbel_dedup_engine::job::GroupCountOrder;
use umbel_dedup_engine::{
    Claim, Drops, Entry, ExchangeReport, GroupSize, KeptGroup, Rank, RecordId, RecordPart,
    RecordRange, Suspect, SuspectItem, WorkerId,
};
use umbel_filter::{HashRange, ItemHash};
use umbel_jobs::{Attempt, CellItems, GatheredGroups, WorkshopError};
use umbel_ports::PortFuture;

use super::data::{SimWorker, Stored, lock};
use super::{CHUNK_RECORDS, hash_of, part_of, rank_of, record_at, weight_at};

/// One attempt at the exchange. What it has not sealed is lost with it.
pub(super) struct SimAttempt {
    worker: Arc<SimWorker>,
    decided: Mutex<Vec<(u32, Drops)>>,
    suspects: Mutex<Vec<(u32, Vec<Suspect>)>>,
}

impl SimAttempt {
    /// An attempt that has decided nothing.
    pub(super) fn new(worker: Arc<SimWorker>) -> Self {
        Self { worker, decided: Mutex::default(), suspects: Mutex::default() }
    }
}

impl Attempt for SimAttempt {
    fn sample(&self) -> Result<Vec<Vec<Entry>>, WorkshopError> {
        let shape = self.worker.order()?.shape;
        let entries = self.worker.all_entries()?;
        let list = |owner: u32| {
            let range = shape.sample_range(owner);
            let own = entries.iter().filter(|(entry, _)| range.contains(entry.hash.hi()));
            own.map(|(entry, _)| *entry).collect()
        };
        Ok((0..shape.workers).map(list).collect())
    }

    fn entries(&self, cell: u32) -> Result<(Vec<Entry>, Vec<Rank>), WorkshopError> {
        let shape = self.worker.order()?.shape;
        let entries = self.worker.all_entries()?.into_iter().map(|(entry, _)| entry);
        let is_meant = |entry: &Entry| shape.cells().cell_of(entry.hash.hi()) == cell;
        let entries: Vec<Entry> = entries.filter(is_meant).collect();
        let ranked = if shape.ranks_entries() { &entries[..] } else { &[] };
        let ranks = ranked.iter().map(|entry| rank_of(entry.record_id)).collect();
        Ok((entries, ranks))
    }

    fn references(&self, range: HashRange) -> Result<Vec<ItemHash>, WorkshopError> {
        let seed = self.worker.stored().seed;
        let hashes =
            self.worker.plan.known_items().map(|item| hash_of(&self.worker.plan, seed, item));
        Ok(hashes.filter(|hash| range.contains(hash.hi())).collect())
    }

    fn decide(&self, cell: u32, drops: Drops) -> Result<(), WorkshopError> {
        lock(&self.decided).push((cell, drops));
        Ok(())
    }

    fn seal(&self, report: &ExchangeReport) -> Result<(), WorkshopError> {
        self.worker.writable()?;
        let decided = std::mem::take(&mut *lock(&self.decided));
        let mut stored = self.worker.stored();
        for (cell, drops) in decided {
            if let Some(cells) = &mut stored.decided {
                cells.insert(cell);
            }
            let kept = drops.kept.iter().copied().map(Some).chain(std::iter::repeat(None));
            stored.drops.extend(drops.record_ids.into_iter().zip(kept));
        }
        stored.report = *report;
        Ok(())
    }

    fn suspect(&self, cell: u32, suspects: &[Suspect]) -> Result<(), WorkshopError> {
        lock(&self.suspects).push((cell, suspects.to_vec()));
        Ok(())
    }

    fn fetch(&self) -> PortFuture<'_, Result<CellItems, WorkshopError>> {
        Box::pin(async move {
            let items = self.worker.plan.items(self.worker.machine);
            let base = self.worker.order()?.chunk_base;
            let seed = self.worker.stored().seed;
            self.worker.pass(u32::try_from(items.len()).unwrap_or(u32::MAX)).await;
            self.worker.writable()?;
            let item = |suspect: Suspect| {
                let item = items[record_at(base, suspect.record_id) as usize];
                SuspectItem {
                    hash: hash_of(&self.worker.plan, seed, item),
                    record_id: suspect.record_id,
                    shared: suspect.shared,
                    rank: rank_of(suspect.record_id),
                    bytes: item.to_le_bytes().to_vec(),
                }
            };
            let suspects = std::mem::take(&mut *lock(&self.suspects)).into_iter();
            let fetched: BTreeMap<u32, Vec<SuspectItem>> = suspects
                .map(|(cell, suspects)| (cell, suspects.into_iter().map(item).collect()))
                .collect();
            let items_of = move |cell| Ok(fetched.get(&cell).cloned().unwrap_or_default());
            Ok(Arc::new(items_of) as CellItems)
        })
    }

    fn gather(
        &self,
        _order: GroupCountOrder,
    ) -> PortFuture<'_, Result<Box<dyn GatheredGroups>, WorkshopError>> {
        Box::pin(async move {
            let records = u32::try_from(self.worker.plan.items(self.worker.machine).len())
                .unwrap_or(u32::MAX);
            self.worker.pass(records).await;
            self.worker.writable()?;
            let (worker, groups) = (Arc::clone(&self.worker), BTreeMap::new());
            Ok(Box::new(SimGroups { worker, groups }) as Box<dyn GatheredGroups>)
        })
    }
}

/// The groups that a worker learns; lost with it before they are sealed.
struct SimGroups {
    worker: Arc<SimWorker>,
    groups: BTreeMap<RecordId, GroupSize>,
}

impl GatheredGroups for SimGroups {
    fn record_counts(&self) -> Vec<u64> {
        let records = self.worker.plan.items(self.worker.machine).len() as u64;
        let each = u64::from(CHUNK_RECORDS);
        let chunks = 0..u64::from(self.worker.plan.chunk_count(self.worker.machine));
        chunks.map(|chunk| (records - chunk * each).min(each)).collect()
    }

    fn claims(&self, range: RecordRange) -> Result<Vec<Claim>, WorkshopError> {
        let mut claims: BTreeMap<RecordId, u64> = BTreeMap::new();
        for (record_id, kept) in &self.worker.stored().drops {
            // A record that was dropped for a reference is stored with its own id as the kept one.
            if let Some(kept) = kept.filter(|kept| kept != record_id && range.contains(*kept)) {
                *claims.entry(kept).or_default() += 1;
            }
        }
        Ok(claims.into_iter().map(|(kept, dropped)| Claim { kept, dropped }).collect())
    }

    fn parts(&self, record_ids: &[RecordId]) -> Result<Vec<RecordPart>, WorkshopError> {
        Ok(record_ids.iter().map(|record_id| part_of(*record_id)).collect())
    }

    fn learn(&mut self, _owner: WorkerId, groups: Vec<KeptGroup>) -> Result<(), WorkshopError> {
        let as_size = |KeptGroup { kept, size, part }| (kept, GroupSize { size, part });
        self.groups.extend(groups.into_iter().map(as_size));
        Ok(())
    }

    fn seal(&mut self) -> Result<Vec<u8>, WorkshopError> {
        self.worker.writable()?;
        let own =
            self.worker.plan.chunks_from(self.worker.order()?.chunk_base, self.worker.machine);
        let Stored { drops, groups, .. } = &mut *self.worker.stored();
        Ok(weight_at(drops, groups.get_or_insert(self.groups.clone()), &own))
    }
}
