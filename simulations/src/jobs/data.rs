//! A worker's data in a simulated world. Its durable part survives crashes of the node, as a disk does.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::runtime::Handle;
use umbel_dedup_engine::job::{
    CellSet, Counts, Forecast, JobResult, KnownReferences, ReadOrder, WriteOrder, Written,
};
use umbel_dedup_engine::{
    Entry, ExchangeReport, GroupSize, IndexBits, RecordId, ReferenceShape, Route,
};
use umbel_engine::JobId;
use umbel_engine::meta::ClusterVersion;
use umbel_jobs::{BegunAttempt, JobSite, OpenJob, Workshop, WorkshopError, Workshops};
use umbel_ports::PortFuture;

use super::attempt::SimAttempt;
use super::planned::PlannedJobs;
use super::{CHUNK_RECORDS, Output, hash_of, record_id_of};
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
    pub(super) seed: u64,
    journal: Vec<Vec<u8>>,
    order: Option<ReadOrder>,
    /// Chunks that were read, durably.
    read: BTreeSet<u32>,
    pub(super) decided: Option<CellSet>,
    pub(super) drops: BTreeMap<RecordId, Option<RecordId>>,
    pub(super) report: ExchangeReport,
    /// How large the groups are, once that is durable.
    pub(super) groups: Option<BTreeMap<RecordId, GroupSize>>,
    /// Numbers of the records that the filter contained, once it was asked.
    held: Option<BTreeSet<u32>>,
    /// The output that is written but not committed.
    aside: Option<Output>,
    /// Whether the job has scratch data here.
    has_scratch: bool,
    /// The committed output; never removed.
    pub(crate) committed: Option<Output>,
}

pub(super) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
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
    fn check(&self, spec: &[u8], _: bool) -> Result<ClusterVersion, String> {
        self.plan_of(spec).map(|_| ClusterVersion::FIRST)
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
            let worker = SimWorker {
                job: site.job,
                machine: self.machine,
                plan,
                planned: Arc::clone(&self.planned),
                stored,
                disk: self.disk.clone(),
            };
            Ok(OpenJob { workshop: Arc::new(SimWorkshop(Arc::new(worker))), rules, route })
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

/// One worker's data.
struct SimWorkshop(Arc<SimWorker>);

pub(super) struct SimWorker {
    job: JobId,
    pub(super) machine: u32,
    pub(super) plan: JobPlan,
    planned: Arc<PlannedJobs>,
    stored: Arc<Mutex<Stored>>,
    disk: SimDisk,
}

impl SimWorker {
    pub(super) fn stored(&self) -> MutexGuard<'_, Stored> {
        lock(&self.stored)
    }

    /// Fails if the disk accepts no writes now.
    pub(super) fn writable(&self) -> Result<(), WorkshopError> {
        if self.disk.takes_writes() {
            return Ok(());
        }
        let cause = format!("machine {}: no space left on the disk", self.machine);
        Err(WorkshopError { cause, resumable: true })
    }

    /// Waits for the time that so many records take on this disk.
    pub(super) async fn pass(&self, records: u32) {
        tokio::time::sleep(RECORD_TIME * records * self.disk.slow_factor()).await;
    }

    pub(super) fn order(&self) -> Result<ReadOrder, WorkshopError> {
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
            !stored.drops.contains_key(&record_id_of(base, *record)) && is_held(*item)
        });
        stored.held = Some(held.map(|(record, _)| record).collect());
        Ok(())
    }

    pub(super) fn all_entries(&self) -> Result<Vec<(Entry, u32)>, WorkshopError> {
        let base = self.order()?.chunk_base;
        let seed = self.stored().seed;
        let items = self.plan.items(self.machine);
        let entry = |(record, item): (u32, u32)| {
            let hash = hash_of(&self.plan, seed, item);
            (Entry { hash, record_id: record_id_of(base, record) }, item)
        };
        Ok((0..).zip(items).map(entry).collect())
    }
}

impl Workshop for SimWorkshop {
    fn journal_records(&self) -> Result<Vec<Vec<u8>>, WorkshopError> {
        Ok(self.0.stored().journal.clone())
    }

    fn append_record(&self, record: &[u8]) -> Result<(), WorkshopError> {
        self.0.writable()?;
        self.0.stored().journal.push(record.to_vec());
        Ok(())
    }

    fn forecast(&self) -> Result<Forecast, WorkshopError> {
        let total: u32 = self.0.plan.records.iter().sum();
        let records = self.0.plan.items(self.0.machine).len() as u64;
        // Chosen so that the job is divided into as many cells as the plan says.
        let cells = u64::from(self.0.plan.cells.max(1)) * self.0.plan.records.len() as u64;
        let memory_bytes = u64::from(total.max(1)) * 96 * 16 / cells;
        Ok(Forecast {
            stored_bytes: records * 4,
            content_bytes: records * 4,
            records,
            chunks: self.0.plan.chunk_count(self.0.machine),
            memory_bytes,
            references: self.0.known(),
        })
    }

    fn read(&self, order: ReadOrder) -> PortFuture<'_, Result<Counts, WorkshopError>> {
        Box::pin(async move {
            let cells = order.shape.cells().get();
            {
                let mut stored = self.0.stored();
                stored.order = Some(order);
                stored.decided.get_or_insert(CellSet::new(cells));
            }
            for chunk in 0..self.0.plan.chunk_count(self.0.machine) {
                if self.0.stored().read.contains(&chunk) {
                    continue;
                }
                self.0.pass(CHUNK_RECORDS).await;
                self.0.writable()?;
                self.0.stored().read.insert(chunk);
            }
            let items = self.0.plan.items(self.0.machine).len() as u64;
            Ok(Counts {
                items,
                records: items,
                chunk_items_max: items.min(CHUNK_RECORDS.into()),
                bad: 0,
                catalogue: Vec::new(),
            })
        })
    }

    fn begin_attempt(&self) -> Result<BegunAttempt, WorkshopError> {
        let cells = self.0.order()?.shape.cells().get();
        let worker = Arc::clone(&self.0);
        let stored = self.0.stored();
        Ok(BegunAttempt {
            sealed: stored.decided.clone().unwrap_or_else(|| CellSet::new(cells)),
            report: stored.report,
            attempt: Arc::new(SimAttempt::new(worker)),
        })
    }

    fn write(&self, order: WriteOrder) -> PortFuture<'_, Result<Written, WorkshopError>> {
        Box::pin(async move {
            self.0.ask().await?;
            let records =
                u32::try_from(self.0.plan.items(self.0.machine).len()).unwrap_or(u32::MAX);
            self.0.pass(records).await;
            self.0.writable()?;
            let base = self.0.order()?.chunk_base;
            let mut stored = self.0.stored();
            let held = stored.held.clone().unwrap_or_default();
            let groups = stored.groups.clone().unwrap_or_default();
            let mut output = Output { groups, weights: order.weights, ..Output::default() };
            for record in 0..records {
                let record_id = record_id_of(base, record);
                match stored.drops.get(&record_id) {
                    // The record is reported with its own id as the kept one, like one dropped for a
                    // reference.
                    None if held.contains(&record) => {
                        output.dropped.push((record, Some(record_id)));
                    }
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
            self.0.pass(1).await;
            let mut stored = self.0.stored();
            stored.committed = stored.aside.clone();
            Ok(())
        })
    }

    fn add(&self) -> PortFuture<'_, Result<(), WorkshopError>> {
        Box::pin(async move {
            let items = self.0.plan.items(self.0.machine);
            let kept = self.0.stored().committed.clone().unwrap_or_default().kept;
            for record in kept {
                self.0.pass(1).await;
                self.0.planned.add(self.0.job, items[record as usize]);
            }
            Ok(())
        })
    }

    fn conclude(&self, _result: &JobResult) -> PortFuture<'_, Result<(), WorkshopError>> {
        Box::pin(async move { self.0.writable() })
    }

    fn end(&self, keep_scratch: bool) {
        if !keep_scratch {
            self.0.stored().clear();
        }
    }
}
