//! An in-memory workshop for tests: a disk that outlives its process, and traps that crash the process.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex};

use tokio::sync::mpsc;
use umbel_dedup_engine::job::{
    CellSet, Counts, Forecast, JobResult, KnownReferences, ReadOrder, WriteOrder, Written,
};
use umbel_dedup_engine::{
    Drops, Entry, ExchangeReport, IndexBits, RecordId, RecordPart, ReferenceShape, Suspect,
    SuspectItem,
};
use umbel_filter::ItemHash;
use umbel_ports::PortFuture;

use super::cut_net::CutNet;
use super::memory_attempt::MemoryAttempt;
use super::memory_records::{CHUNKS, hash, rank, record_id};
use crate::{BegunAttempt, Workshop, WorkshopError};

/// Points at which a process can be trapped.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Point {
    Record,
    Read,
    Sample,
    Entries,
    Decide,
    Seal,
    Fetch,
    Items,
    Gather,
    Claims,
    Learn,
    SealGroups,
    Write,
    Commit,
    Add,
    Conclude,
}

/// The effect of a trap.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Effect {
    /// The process crashes, before the call or after it.
    Crash { after: bool },
    /// The call fails.
    Fail,
    /// The call fails, and would fail again.
    Refuse,
    /// The call never ends.
    Hang,
    /// The test is notified; the call goes on.
    Signal,
    /// The process can make no more connections; the call goes on.
    Isolate,
}

/// The `nth` call at a point, counted from 0, has an effect.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Trap {
    pub(crate) point: Point,
    pub(crate) nth: u32,
    pub(crate) effect: Effect,
}

/// What survives a process.
#[derive(Default)]
pub(crate) struct MemoryDisk {
    pub(crate) records: Vec<Vec<u8>>,
    /// Hashes that earlier jobs have kept.
    pub(crate) known: Vec<ItemHash>,
    kept: Mutex<Kept>,
}

#[derive(Default)]
pub(crate) struct Kept {
    journal: Vec<Vec<u8>>,
    pub(crate) order: Option<ReadOrder>,
    pub(crate) sealed: BTreeMap<u32, Drops>,
    pub(crate) report: ExchangeReport,
    /// Sizes of groups by kept record, once sealed.
    pub(crate) groups: Option<BTreeMap<RecordId, u64>>,
    /// Parts of kept records that other workers have sent.
    pub(crate) parts: BTreeMap<RecordId, RecordPart>,
    aside: Option<Vec<RecordId>>,
    output: Option<Vec<RecordId>>,
    /// What was added to the filter, and how many times.
    added: Option<(Vec<RecordId>, u32)>,
    result: Option<JobResult>,
    ended: Option<bool>,
}

impl Kept {
    pub(crate) fn dropped(&self) -> BTreeMap<RecordId, RecordId> {
        let pairs = |drops: &Drops| drops.record_ids.clone().into_iter().zip(drops.kept.clone());
        self.sealed.values().flat_map(pairs).collect()
    }
}

impl MemoryDisk {
    pub(crate) fn new(records: Vec<Vec<u8>>) -> Arc<Self> {
        Self::knowing(records, Vec::new())
    }

    pub(crate) fn knowing(records: Vec<Vec<u8>>, known: Vec<ItemHash>) -> Arc<Self> {
        Arc::new(Self { records, known, ..Self::default() })
    }

    fn references(&self) -> Option<KnownReferences> {
        let count = self.known.len();
        let shape = ReferenceShape { entries: count as u64, bits: IndexBits::Bits128 };
        let digest = [self.known.first().map_or(0, |hash| hash.lo().to_le_bytes()[0]); 16];
        (count > 0).then_some(KnownReferences { shape, digest })
    }

    /// Ids of the records in the committed output.
    pub(crate) fn output(&self) -> Option<Vec<RecordId>> {
        self.kept.lock().unwrap().output.clone()
    }

    /// What was added to the filter, and how many times.
    pub(crate) fn added(&self) -> Option<(Vec<RecordId>, u32)> {
        self.kept.lock().unwrap().added.clone()
    }

    /// The kept record for each dropped one, if the job reports it.
    pub(crate) fn dropped(&self) -> BTreeMap<RecordId, RecordId> {
        self.kept.lock().unwrap().dropped()
    }

    /// The sizes of the groups that the worker knows, if it received them.
    pub(crate) fn groups(&self) -> Option<BTreeMap<RecordId, u64>> {
        self.kept.lock().unwrap().groups.clone()
    }

    /// Parts of kept records that other workers have sent.
    pub(crate) fn parts(&self) -> BTreeMap<RecordId, RecordPart> {
        self.kept.lock().unwrap().parts.clone()
    }

    /// Whether the worker ended, and kept its scratch space.
    pub(crate) fn ended(&self) -> Option<bool> {
        self.kept.lock().unwrap().ended
    }

    pub(crate) fn has_summary(&self) -> bool {
        self.kept.lock().unwrap().result.is_some()
    }
}

/// A disk as seen by one process.
pub(crate) struct MemoryWorkshop(Arc<ProcessState>);

impl MemoryWorkshop {
    /// Creates a process; `sprung` is notified when the trap has sprung.
    pub(crate) fn new(
        disk: &Arc<MemoryDisk>,
        trap: Option<Trap>,
        sprung: mpsc::UnboundedSender<()>,
        net: &Arc<CutNet>,
    ) -> Arc<Self> {
        Arc::new(Self(Arc::new(ProcessState {
            disk: Arc::clone(disk),
            trap,
            calls: AtomicU32::new(0),
            sprung,
            net: Arc::clone(net),
            is_dead: AtomicBool::new(false),
        })))
    }

    /// Cuts the process off from disk and network.
    pub(crate) fn kill(&self) {
        self.0.kill();
    }
}

pub(crate) struct ProcessState {
    pub(crate) disk: Arc<MemoryDisk>,
    trap: Option<Trap>,
    calls: AtomicU32,
    sprung: mpsc::UnboundedSender<()>,
    /// The network of the process.
    net: Arc<CutNet>,
    /// The process has ended: no call changes the disk any more.
    is_dead: AtomicBool,
}

impl ProcessState {
    fn kill(&self) {
        self.net.kill();
        self.is_dead.store(true, Ordering::SeqCst);
    }

    /// Carries out a call at a point. Its changes are lost if the process crashes before it.
    fn at<T>(
        &self,
        point: Point,
        call: impl FnOnce(&mut Kept) -> T,
    ) -> Result<(T, bool), WorkshopError> {
        let error = |cause: &str| WorkshopError { cause: cause.to_owned(), resumable: true };
        let is_trapped = self.trap.is_some_and(|trap| {
            trap.point == point && self.calls.fetch_add(1, Ordering::SeqCst) == trap.nth
        });
        let effect = self.trap.map(|trap| trap.effect).filter(|_| is_trapped);
        let mut kept = self.disk.kept.lock().unwrap();
        if self.is_dead.load(Ordering::SeqCst) {
            return Err(error("dead"));
        }
        if effect.is_some() {
            let _ = self.sprung.send(());
        }
        match effect {
            Some(Effect::Fail) => Err(error("disk /scratch is full")),
            Some(Effect::Refuse) => {
                Err(WorkshopError { resumable: false, ..error("there are no credentials") })
            }
            Some(Effect::Crash { after: false }) => {
                self.kill();
                Err(error("dead"))
            }
            Some(Effect::Crash { after: true }) => {
                let done = call(&mut kept);
                self.kill();
                Ok((done, true))
            }
            Some(Effect::Hang) => Ok((call(&mut kept), true)),
            Some(Effect::Isolate) => {
                self.net.close(true);
                Ok((call(&mut kept), false))
            }
            Some(Effect::Signal) | None => Ok((call(&mut kept), false)),
        }
    }

    pub(crate) fn now<T>(
        &self,
        point: Point,
        call: impl FnOnce(&mut Kept) -> T,
    ) -> Result<T, WorkshopError> {
        self.at(point, call).map(|(done, _)| done)
    }

    pub(crate) fn later<'a, T: Send + 'a>(
        &'a self,
        point: Point,
        call: impl FnOnce(&mut Kept) -> T + Send + 'a,
    ) -> PortFuture<'a, Result<T, WorkshopError>> {
        Box::pin(async move {
            tokio::task::yield_now().await;
            let (done, hangs) = self.at(point, call)?;
            if hangs {
                std::future::pending::<()>().await;
            }
            Ok(done)
        })
    }

    pub(crate) fn entries_where(
        &self,
        kept: &Kept,
        is_meant: impl Fn(ItemHash) -> bool,
    ) -> Vec<(Entry, usize)> {
        let Some(order) = kept.order else { return Vec::new() };
        let records = &self.disk.records;
        let entry = |(index, record): (usize, &Vec<u8>)| {
            let record_id = record_id(order.chunk_base, index, records.len());
            (Entry { hash: hash(record), record_id }, index)
        };
        let entries = records.iter().enumerate().map(entry);
        entries.filter(|(entry, _)| is_meant(entry.hash)).collect()
    }

    pub(crate) fn items(
        &self,
        suspects: &BTreeMap<u32, Vec<Suspect>>,
        cell: u32,
    ) -> Result<Vec<SuspectItem>, WorkshopError> {
        self.now(Point::Items, |kept| {
            let all = self.entries_where(kept, |_| true);
            let item = |suspect: &Suspect| {
                let (entry, index) =
                    *all.iter().find(|(e, _)| e.record_id == suspect.record_id).unwrap();
                let bytes = self.disk.records[index].clone();
                SuspectItem {
                    hash: entry.hash,
                    record_id: suspect.record_id,
                    rank: rank(suspect.record_id),
                    shared: suspect.shared,
                    bytes,
                }
            };
            suspects.get(&cell).into_iter().flatten().map(item).collect()
        })
    }
}

impl Workshop for MemoryWorkshop {
    fn journal_records(&self) -> Result<Vec<Vec<u8>>, WorkshopError> {
        Ok(self.0.disk.kept.lock().unwrap().journal.clone())
    }

    fn append_record(&self, record: &[u8]) -> Result<(), WorkshopError> {
        self.0.now(Point::Record, |kept| kept.journal.push(record.to_vec()))
    }

    fn forecast(&self) -> Result<Forecast, WorkshopError> {
        let records = self.0.disk.records.len() as u64;
        if self.0.disk.records.first().is_some_and(|record| record == b"missing") {
            let cause = "no file matches /data/*.txt".to_owned();
            return Err(WorkshopError { cause, resumable: false });
        }
        // An amount of memory that results in about eight cells per owner.
        let memory_bytes = (records * 192).max(1);
        let content_bytes = records * 8;
        Ok(Forecast {
            stored_bytes: content_bytes,
            content_bytes,
            records,
            chunks: CHUNKS,
            memory_bytes,
            references: self.0.disk.references(),
        })
    }

    fn read(&self, order: ReadOrder) -> PortFuture<'_, Result<Counts, WorkshopError>> {
        let records = self.0.disk.records.len();
        self.0.later(Point::Read, move |kept| {
            kept.order = Some(order);
            Counts {
                items: records as u64,
                records: records as u64,
                chunk_items_max: records as u64,
                bad: 0,
                catalogue: vec![7; 3],
            }
        })
    }

    fn begin_attempt(&self) -> Result<BegunAttempt, WorkshopError> {
        let kept = self.0.disk.kept.lock().unwrap();
        let mut sealed = CellSet::new(kept.order.unwrap().shape.cells().get());
        kept.sealed.keys().for_each(|&cell| sealed.insert(cell));
        let process = Arc::clone(&self.0);
        let attempt = Arc::new(MemoryAttempt::new(process));
        Ok(BegunAttempt { sealed, report: kept.report, attempt })
    }

    fn write(&self, order: WriteOrder) -> PortFuture<'_, Result<Written, WorkshopError>> {
        self.0.later(Point::Write, move |kept| {
            assert!(order.catalogues.iter().all(|catalogue| *catalogue == [7; 3]));
            // If groups were not counted, no weights are reported.
            let weights: &[u8] = if kept.groups.is_some() { &[9; 2] } else { &[] };
            assert!(order.weights.iter().all(|received| received == weights));
            let mut record_ids: Vec<RecordId> = self
                .0
                .entries_where(kept, |_| true)
                .iter()
                .map(|(entry, _)| entry.record_id)
                .collect();
            let records = record_ids.len() as u64;
            let dropped = || kept.sealed.values().flat_map(|drops| &drops.record_ids);
            record_ids.retain(|record_id| !dropped().any(|dropped| dropped == record_id));
            let stay = record_ids.len() as u64;
            kept.aside = Some(record_ids);
            Written { kept: stay, dropped: records - stay, detail: Vec::new() }
        })
    }

    fn commit(&self) -> PortFuture<'_, Result<(), WorkshopError>> {
        self.0.later(Point::Commit, |kept| kept.output.clone_from(&kept.aside))
    }

    fn add(&self) -> PortFuture<'_, Result<(), WorkshopError>> {
        self.0.later(Point::Add, |kept| {
            let times = kept.added.take().map_or(0, |(_, times)| times);
            kept.added = kept.output.clone().map(|record_ids| (record_ids, times + 1));
        })
    }

    fn conclude(&self, result: &JobResult) -> PortFuture<'_, Result<(), WorkshopError>> {
        let result = result.clone();
        self.0.later(Point::Conclude, move |kept| kept.result = Some(result))
    }

    fn end(&self, keep_scratch: bool) {
        if !self.0.is_dead.load(Ordering::SeqCst) {
            self.0.disk.kept.lock().unwrap().ended = Some(keep_scratch);
        }
    }
}
