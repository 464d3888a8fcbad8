//! A worker's data in a simulated world. Its durable part survives crashes of the node, as a disk does.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::runtime::Handle;
use umbel_dedup_engine::job::{
    CellSet, Counts, Forecast, GroupCountOrder, JobResult, KnownReferences, ReadOrder, WriteOrder,
    Written,
};
use umbel_dedup_engine::{
    Claim, Drops, Entry, ExchangeReport, Group, GroupSize, IndexBits, Item, Rank, RecordId,
    RecordPart, RecordRange, ReferenceShape, Route, Suspect, WorkerId,
};
use umbel_engine::JobId;
use umbel_filter::{HashRange, ItemHash};
use umbel_jobs::{JobSite, OpenJob, Workshop, WorkshopError, Workshops};
use umbel_ports::PortFuture;

use super::planned::PlannedJobs;
use super::{CHUNK_RECORDS, Output, hash_of, part_of, place_of, rank_of, record_at, weight_at};
use crate::disk::SimDisk;
use crate::plan::JobPlan;

/// Simulated time that a record takes to read or write, on a healthy disk.
const RECORD_TIME: Duration = Duration::from_micros(200);

/// The durable data of all jobs on one machine, by job id.
#[derive(Clone, Default)]
pub(crate) struct HostJobs(Arc<Mutex<BTreeMap<JobId, Arc<Mutex<Stored>>>>>);

/// The durable data of one job on one machine.
#[derive(Default)]
pub(crate) struct Stored {
    /// Index of the job in the plan.
    plan: usize,
    seed: u64,
    marks: Vec<Vec<u8>>,
    order: Option<ReadOrder>,
    /// Chunks that were read, durably.
    read: BTreeSet<u32>,
    decided: Option<CellSet>,
    drops: BTreeMap<RecordId, Option<RecordId>>,
    report: ExchangeReport,
    /// How large the groups are, once that is durable.
    groups: Option<BTreeMap<RecordId, GroupSize>>,
    /// Numbers of the records that the filter contained, once it was asked.
    held: Option<BTreeSet<u32>>,
    /// The output that is written but not committed.
    aside: Option<Output>,
    /// Whether the job has scratch data here.
    has_scratch: bool,
    /// The committed output; never removed.
    pub(crate) committed: Option<Output>,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // A panic that poisoned the lock has already failed the run.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl HostJobs {
    /// The committed output of a job on this machine.
    pub(crate) fn committed(&self, job: JobId) -> Option<Output> {
        let stored = lock(&self.0).get(&job).cloned()?;
        lock(&stored).committed.clone()
    }

    /// The jobs that have scratch data.
    pub(crate) fn with_scratch(&self) -> Vec<JobId> {
        let jobs = lock(&self.0);
        jobs.iter().filter(|(_, stored)| lock(stored).has_scratch).map(|(job, _)| *job).collect()
    }
}

/// Opens the data of jobs on one machine.
pub(crate) struct SimWorkshops {
    pub(crate) machine: u32,
    pub(crate) jobs: HostJobs,
    pub(crate) disk: SimDisk,
    pub(crate) planned: Arc<PlannedJobs>,
}

impl Workshops for SimWorkshops {
    fn check(&self, spec: &[u8]) -> Result<(), String> {
        self.plan_of(spec).map(drop)
    }

    fn open(&self, site: JobSite) -> PortFuture<'_, Result<OpenJob, WorkshopError>> {
        Box::pin(async move {
            let failed = |cause| WorkshopError { cause, resumable: false };
            let plan = self.plan_of(&site.spec).map_err(failed)?;
            let stored = Arc::clone(lock(&self.jobs.0).entry(site.job).or_default());
            {
                let mut stored = lock(&stored);
                (stored.plan, stored.seed, stored.has_scratch) = (plan, site.seed, true);
            }
            let plan = self.planned.plans()[plan].clone();
            let rules = plan.rules();
            let route = plan.grid.then_some(Route::Grid);
            let workshop = SimWorkshop {
                job: site.job,
                machine: self.machine,
                plan,
                planned: Arc::clone(&self.planned),
                stored,
                disk: self.disk.clone(),
                loose: Mutex::default(),
            };
            Ok(OpenJob { workshop: Arc::new(workshop), rules, route })
        })
    }

    fn stored(&self) -> Vec<JobId> {
        self.jobs.with_scratch()
    }

    fn discard(&self, job: JobId) {
        if let Some(stored) = lock(&self.jobs.0).get(&job) {
            lock(stored).clear();
        }
    }

    fn cell_tasks(&self) -> (u32, Option<Handle>) {
        (1, None)
    }
}

impl SimWorkshops {
    fn plan_of(&self, spec: &[u8]) -> Result<usize, String> {
        let text = std::str::from_utf8(spec).map_err(|error| error.to_string())?;
        let index: usize = text.parse().map_err(|_| format!("{text:?} is no number of a job"))?;
        if index < self.planned.plans().len() {
            Ok(index)
        } else {
            Err(format!("there is no job {index}"))
        }
    }
}

impl Stored {
    /// Discards everything but the committed output.
    fn clear(&mut self) {
        let committed = self.committed.take();
        *self = Self { committed, ..Self::default() };
    }
}

/// One worker's data. The `loose` part is not durable and is lost with the worker.
struct SimWorkshop {
    job: JobId,
    machine: u32,
    plan: JobPlan,
    planned: Arc<PlannedJobs>,
    stored: Arc<Mutex<Stored>>,
    disk: SimDisk,
    loose: Mutex<Loose>,
}

/// Data that is not durable.
#[derive(Default)]
struct Loose {
    decided: Vec<(u32, Drops)>,
    suspects: Vec<(u32, Vec<Suspect>)>,
    items: BTreeMap<u32, Vec<Item>>,
    groups: BTreeMap<RecordId, GroupSize>,
}

impl SimWorkshop {
    fn stored(&self) -> MutexGuard<'_, Stored> {
        lock(&self.stored)
    }

    /// Fails if the disk accepts no writes now.
    fn writable(&self) -> Result<(), WorkshopError> {
        if self.disk.takes_writes() {
            return Ok(());
        }
        let cause = format!("machine {}: no space left on the disk", self.machine);
        Err(WorkshopError { cause, resumable: true })
    }

    /// Waits for the time that so many records take on this disk.
    async fn pass(&self, records: u32) {
        tokio::time::sleep(RECORD_TIME * records * self.disk.slow_factor()).await;
    }

    fn order(&self) -> Result<ReadOrder, WorkshopError> {
        let cause = "asked for entries before it was told to read".to_owned();
        self.stored().order.ok_or(WorkshopError { cause, resumable: false })
    }

    /// The references that earlier jobs left, which are equal on every machine; None if there are none.
    fn known(&self) -> Option<KnownReferences> {
        let entries = self.plan.known_items().count() as u64;
        let shape = ReferenceShape { entries, bits: IndexBits::Bits128 };
        (entries > 0).then_some(KnownReferences { shape, digest: [1; 16] })
    }

    /// Asks the filter about the records that would be kept, and stores the answers durably. Does nothing
    /// if the job asks no filter, or if the answers are stored already.
    async fn ask(&self) -> Result<(), WorkshopError> {
        if !self.plan.asks || self.stored().held.is_some() {
            return Ok(());
        }
        let items = self.plan.items(self.machine);
        self.pass(u32::try_from(items.len()).unwrap_or(u32::MAX)).await;
        let base = self.order()?.chunk_base;
        let added = self.planned.added(self.job);
        let is_held = |item: u32| self.plan.is_held(item) || added.contains(&item);
        self.writable()?;
        let mut stored = self.stored();
        let held = (0u32..).zip(items).filter(|(record, item)| {
            !stored.drops.contains_key(&place_of(base, *record)) && is_held(*item)
        });
        stored.held = Some(held.map(|(record, _)| record).collect());
        Ok(())
    }

    fn all_entries(&self) -> Result<Vec<(Entry, u32)>, WorkshopError> {
        let base = self.order()?.chunk_base;
        let seed = self.stored().seed;
        let items = self.plan.items(self.machine);
        let entry = |(record, item): (u32, u32)| {
            let hash = hash_of(&self.plan, seed, item);
            (Entry { hash, record_id: place_of(base, record) }, item)
        };
        Ok((0..).zip(items).map(entry).collect())
    }
}

impl Workshop for SimWorkshop {
    fn marks(&self) -> Result<Vec<Vec<u8>>, WorkshopError> {
        Ok(self.stored().marks.clone())
    }

    fn mark(&self, mark: &[u8]) -> Result<(), WorkshopError> {
        self.writable()?;
        self.stored().marks.push(mark.to_vec());
        Ok(())
    }

    fn forecast(&self) -> Result<Forecast, WorkshopError> {
        let total: u32 = self.plan.records.iter().sum();
        let records = self.plan.items(self.machine).len() as u64;
        // Chosen so that the job is divided into as many cells as the plan says.
        let cells = u64::from(self.plan.cells.max(1)) * self.plan.records.len() as u64;
        let memory_bytes = u64::from(total.max(1)) * 96 * 16 / cells;
        Ok(Forecast {
            stored_bytes: records * 4,
            content_bytes: records * 4,
            records,
            chunks: self.plan.chunk_count(self.machine),
            memory_bytes,
            references: self.known(),
        })
    }

    fn read(&self, order: ReadOrder) -> PortFuture<'_, Result<Counts, WorkshopError>> {
        Box::pin(async move {
            let cells = order.shape.cells().get();
            {
                let mut stored = self.stored();
                stored.order = Some(order);
                stored.decided.get_or_insert(CellSet::new(cells));
            }
            for chunk in 0..self.plan.chunk_count(self.machine) {
                if self.stored().read.contains(&chunk) {
                    continue;
                }
                self.pass(CHUNK_RECORDS).await;
                self.writable()?;
                self.stored().read.insert(chunk);
            }
            let items = self.plan.items(self.machine).len() as u64;
            Ok(Counts {
                items,
                records: items,
                chunk_items_max: items.min(CHUNK_RECORDS.into()),
                bad: 0,
                catalogue: Vec::new(),
            })
        })
    }

    fn sample(&self) -> Result<Vec<Vec<Entry>>, WorkshopError> {
        let shape = self.order()?.shape;
        let entries = self.all_entries()?;
        let list = |owner: u32| {
            let range = shape.sample_range(owner);
            let own = entries.iter().filter(|(entry, _)| range.contains(entry.hash.hi()));
            own.map(|(entry, _)| *entry).collect()
        };
        Ok((0..shape.workers).map(list).collect())
    }

    fn entries(&self, cell: u32) -> Result<Vec<Entry>, WorkshopError> {
        let cells = self.order()?.shape.cells();
        let entries = self.all_entries()?.into_iter().map(|(entry, _)| entry);
        Ok(entries.filter(|entry| cells.cell_of(entry.hash.hi()) == cell).collect())
    }

    fn ranked_entries(&self, cell: u32) -> Result<(Vec<Entry>, Vec<Rank>), WorkshopError> {
        let entries = self.entries(cell)?;
        let ranked = if self.order()?.shape.ranks_entries() { &entries[..] } else { &[] };
        let ranks = ranked.iter().map(|entry| rank_of(entry.record_id)).collect();
        Ok((entries, ranks))
    }

    fn references(&self, range: HashRange) -> Result<Vec<ItemHash>, WorkshopError> {
        let seed = self.stored().seed;
        let hashes = self.plan.known_items().map(|item| hash_of(&self.plan, seed, item));
        Ok(hashes.filter(|hash| range.contains(hash.hi())).collect())
    }

    fn decide(&self, cell: u32, drops: Drops) -> Result<(), WorkshopError> {
        lock(&self.loose).decided.push((cell, drops));
        Ok(())
    }

    fn seal(&self, report: &ExchangeReport) -> Result<(), WorkshopError> {
        self.writable()?;
        let decided = std::mem::take(&mut lock(&self.loose).decided);
        let mut stored = self.stored();
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

    fn sealed(&self) -> Result<(CellSet, ExchangeReport), WorkshopError> {
        lock(&self.loose).decided.clear();
        lock(&self.loose).suspects.clear();
        let cells = self.order()?.shape.cells().get();
        let stored = self.stored();
        Ok((stored.decided.clone().unwrap_or_else(|| CellSet::new(cells)), stored.report))
    }

    fn suspect(&self, cell: u32, suspects: &[Suspect]) -> Result<(), WorkshopError> {
        lock(&self.loose).suspects.push((cell, suspects.to_vec()));
        Ok(())
    }

    fn fetch(&self) -> PortFuture<'_, Result<(), WorkshopError>> {
        Box::pin(async move {
            let items = self.plan.items(self.machine);
            let base = self.order()?.chunk_base;
            let seed = self.stored().seed;
            self.pass(u32::try_from(items.len()).unwrap_or(u32::MAX)).await;
            self.writable()?;
            let mut loose = lock(&self.loose);
            loose.items.clear();
            for (cell, suspects) in std::mem::take(&mut loose.suspects) {
                let item = |suspect: Suspect| {
                    let item = items[record_at(base, suspect.record_id) as usize];
                    Item {
                        hash: hash_of(&self.plan, seed, item),
                        record_id: suspect.record_id,
                        shared: suspect.shared,
                        rank: rank_of(suspect.record_id),
                        bytes: item.to_le_bytes().to_vec(),
                    }
                };
                loose.items.insert(cell, suspects.into_iter().map(item).collect());
            }
            Ok(())
        })
    }

    fn items(&self, cell: u32) -> Result<Vec<Item>, WorkshopError> {
        Ok(lock(&self.loose).items.remove(&cell).unwrap_or_default())
    }

    fn gather(&self, _order: GroupCountOrder) -> PortFuture<'_, Result<Vec<u64>, WorkshopError>> {
        Box::pin(async move {
            let records = u32::try_from(self.plan.items(self.machine).len()).unwrap_or(u32::MAX);
            self.pass(records).await;
            self.writable()?;
            lock(&self.loose).groups.clear();
            let chunks = 0..self.plan.chunk_count(self.machine);
            let places = |chunk: u32| (records - chunk * CHUNK_RECORDS).min(CHUNK_RECORDS);
            Ok(chunks.map(|chunk| places(chunk).into()).collect())
        })
    }

    fn claims(&self, range: RecordRange) -> Result<Vec<Claim>, WorkshopError> {
        let mut claims: BTreeMap<RecordId, u64> = BTreeMap::new();
        for (place, kept) in &self.stored().drops {
            // A record that was dropped for a reference is stored with its own id as the kept one.
            if let Some(kept) = kept.filter(|kept| kept != place && range.contains(*kept)) {
                *claims.entry(kept).or_default() += 1;
            }
        }
        Ok(claims.into_iter().map(|(kept, dropped)| Claim { kept, dropped }).collect())
    }

    fn parts(&self, places: &[RecordId]) -> Result<Vec<RecordPart>, WorkshopError> {
        Ok(places.iter().map(|place| part_of(*place)).collect())
    }

    fn learn(&self, _keeper: WorkerId, groups: Vec<Group>) -> Result<(), WorkshopError> {
        let as_size = |Group { kept, size, part }| (kept, GroupSize { size, part });
        lock(&self.loose).groups.extend(groups.into_iter().map(as_size));
        Ok(())
    }

    fn seal_groups(&self) -> Result<Vec<u8>, WorkshopError> {
        self.writable()?;
        let own = self.plan.chunks_from(self.order()?.chunk_base, self.machine);
        let Stored { drops, groups, .. } = &mut *self.stored();
        Ok(weight_at(drops, groups.get_or_insert(lock(&self.loose).groups.clone()), &own))
    }

    fn write(&self, order: WriteOrder) -> PortFuture<'_, Result<Written, WorkshopError>> {
        Box::pin(async move {
            self.ask().await?;
            let records = u32::try_from(self.plan.items(self.machine).len()).unwrap_or(u32::MAX);
            self.pass(records).await;
            self.writable()?;
            let base = self.order()?.chunk_base;
            let mut stored = self.stored();
            let held = stored.held.clone().unwrap_or_default();
            let groups = stored.groups.clone().unwrap_or_default();
            let mut output = Output { groups, weights: order.weights, ..Output::default() };
            for record in 0..records {
                let place = place_of(base, record);
                match stored.drops.get(&place) {
                    // The record is reported with its own id as the kept one, like one dropped for a
                    // reference.
                    None if held.contains(&record) => output.dropped.push((record, Some(place))),
                    None => output.kept.push(record),
                    Some(kept) => output.dropped.push((record, *kept)),
                }
            }
            let (kept, dropped) = (output.kept.len() as u64, output.dropped.len() as u64);
            stored.aside = Some(output);
            Ok(Written { kept, dropped, detail: Vec::new() })
        })
    }

    fn commit(&self) -> PortFuture<'_, Result<(), WorkshopError>> {
        Box::pin(async move {
            self.pass(1).await;
            let mut stored = self.stored();
            stored.committed = stored.aside.clone();
            Ok(())
        })
    }

    fn add(&self) -> PortFuture<'_, Result<(), WorkshopError>> {
        Box::pin(async move {
            let items = self.plan.items(self.machine);
            let kept = self.stored().committed.clone().unwrap_or_default().kept;
            for record in kept {
                self.pass(1).await;
                self.planned.add(self.job, items[record as usize]);
            }
            Ok(())
        })
    }

    fn conclude(&self, _result: &JobResult) -> PortFuture<'_, Result<(), WorkshopError>> {
        Box::pin(async move { self.writable() })
    }

    fn end(&self, keep_scratch: bool) {
        if !keep_scratch {
            self.stored().clear();
        }
    }
}
