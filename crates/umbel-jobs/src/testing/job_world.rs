//! Processes of one job over an in-memory network, for tests.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex};

use tokio::sync::{mpsc, watch};
use tokio::task::JoinHandle;
use umbel_dedup_engine::job::{JobEvent, JobResult, JobRules};
use umbel_dedup_engine::{Exactness, FilterChoice, Keep, Rank, RecordId, Route, reference};
use umbel_ports::testing::{CountingSeed, MemoryNet};
use umbel_ports::{Net, SecretNet, SecretTls, Seed};
use umbel_tls::{Secret, SecretUse};

use super::cut_net::CutNet;
use super::memory_records::{CHUNKS, hash, part, rank, record_id};
use super::memory_workshop::{MemoryDisk, MemoryWorkshop, Trap};
use crate::{
    JobObserver, JobProgress, MemberConfig, MemberError, MemberPorts, WORKER_TIMEOUT, run_member,
};

type Outcome = Result<Option<JobResult>, MemberError>;

/// Records what the observers of the job receive.
#[derive(Default)]
pub(crate) struct RecordingObserver {
    pub(crate) events: Mutex<Vec<JobEvent>>,
    pub(crate) progress: Mutex<Vec<JobProgress>>,
    pub(crate) refused: Mutex<Vec<String>>,
    pub(crate) coordinator_away: watch::Sender<Vec<Option<String>>>,
}

impl JobObserver for RecordingObserver {
    fn event(&self, event: &JobEvent) {
        self.events.lock().unwrap().push(event.clone());
    }

    fn progress(&self, progress: JobProgress) {
        self.progress.lock().unwrap().push(progress);
    }

    fn refused(&self, cause: &str) {
        self.refused.lock().unwrap().push(cause.to_owned());
    }

    fn coordinator_away(&self, cause: Option<&str>) {
        self.coordinator_away.send_modify(|told| told.push(cause.map(str::to_owned)));
    }
}

/// The process of a worker.
pub(crate) struct Process {
    pub(crate) outcome: JoinHandle<Outcome>,
    pub(crate) sprung: mpsc::UnboundedReceiver<()>,
    workshop: Arc<MemoryWorkshop>,
    pub(crate) net: Arc<CutNet>,
}

impl Process {
    /// Waits for the trap, then kills the process.
    pub(crate) async fn crash(mut self) {
        self.sprung.recv().await.expect("the trap springs");
        self.kill().await;
    }

    pub(crate) async fn kill(self) {
        self.workshop.kill();
        self.outcome.abort();
        // It may have ended by itself when its disk was gone.
        let _ = self.outcome.await;
    }
}

/// The workers of one job and their disks.
pub(crate) struct World {
    net: Arc<MemoryNet>,
    seed: Arc<dyn Seed>,
    pub(crate) rules: JobRules,
    pub(crate) route: Route,
    pub(crate) disks: Vec<Arc<MemoryDisk>>,
    pub(crate) observer: Arc<RecordingObserver>,
    /// The TLS secret of processes that are started from now on, if any.
    pub(crate) tls: Option<SecretTls>,
    /// The reasons for refused connections.
    pub(crate) refused: watch::Sender<Vec<String>>,
}

impl World {
    pub(crate) fn new(workers: u32, records_each: u32, exactness: Exactness) -> Self {
        let records = |worker: u32| (0..records_each).map(move |index| record(worker, index));
        let disks = (0..workers).map(|worker| MemoryDisk::new(records(worker).collect())).collect();
        let choice = FilterChoice::SingleShot;
        let rules = JobRules {
            exactness,
            keep: Keep::First,
            report_kept: false,
            report_sizes: false,
            names_parts: false,
            choice,
            bad_max: 0,
            adds: false,
        };
        Self {
            net: Arc::default(),
            seed: Arc::new(CountingSeed::default()),
            rules,
            route: Route::Direct,
            disks,
            observer: Arc::default(),
            tls: None,
            refused: watch::Sender::default(),
        }
    }

    /// The same job, which reports the kept record for each dropped one and, with `sizes`, for all
    /// records how many are equal to it.
    pub(crate) fn reporting(mut self, sizes: bool) -> Self {
        (self.rules.report_kept, self.rules.report_sizes) = (true, sizes);
        self
    }

    /// The same workers, whose processes use this secret from now on.
    pub(crate) fn knowing_secret(mut self, text: &str) -> Self {
        let secret = Secret::new(text).unwrap().derive(SecretUse::Job);
        self.tls = Some(SecretTls::new(&secret).unwrap());
        self
    }

    /// The same workers on a grid.
    pub(crate) fn on_grid(mut self) -> Self {
        self.route = Route::Grid;
        self
    }

    /// The same job, whose records have parts that are reported.
    pub(crate) fn naming_parts(mut self) -> Self {
        self.rules.names_parts = true;
        self
    }

    /// The same job, which adds the surviving records to a filter.
    pub(crate) fn adding(mut self) -> Self {
        self.rules.adds = true;
        self
    }

    /// The same workers, with the knowledge that earlier jobs have kept every fifth of their records,
    /// and some others.
    pub(crate) fn knowing(mut self) -> Self {
        let records = self.disks.iter().flat_map(|disk| &disk.records);
        let mut known: Vec<_> = records.step_by(5).map(|record| hash(record)).collect();
        known.extend((0..50).map(|number| hash(format!("of old {number}").as_bytes())));
        let knows =
            |disk: &Arc<MemoryDisk>| MemoryDisk::knowing(disk.records.clone(), known.clone());
        self.disks = self.disks.iter().map(knows).collect();
        self
    }

    /// Ports of a process, with a handle on its network.
    pub(crate) fn ports(&self) -> (MemberPorts, Arc<CutNet>) {
        let net = Arc::new(CutNet::new(&self.net));
        let refused = self.refused.clone();
        let used: Arc<dyn Net> = match self.tls.clone() {
            None => Arc::clone(&net) as _,
            Some(tls) => Arc::new(SecretNet::new(Arc::clone(&net) as _, tls, move |_, why| {
                refused.send_modify(|reasons| reasons.push(why.to_string()));
            })),
        };
        (MemberPorts { net: used, seed: Arc::clone(&self.seed) }, net)
    }

    pub(crate) fn config(&self, worker: u16) -> MemberConfig {
        let peers: Vec<String> = (0..self.disks.len()).map(|index| format!("w{index}:1")).collect();
        MemberConfig {
            worker,
            listen: peers[usize::from(worker)].clone(),
            peers,
            nodes: Vec::new(),
            job: 77,
            spec_digest: [5; 16],
            options: Vec::new(),
            secret: b"secret".to_vec(),
            rules: self.rules,
            route: self.route,
            worker_timeout: WORKER_TIMEOUT,
            cell_tasks: 1 + u32::from(worker) % 3,
            runtime: None,
        }
    }

    pub(crate) fn start(&self, worker: u16, trap: Option<Trap>) -> Process {
        self.start_with(self.config(worker), trap)
    }

    pub(crate) fn start_with(&self, config: MemberConfig, trap: Option<Trap>) -> Process {
        let (sender, sprung) = mpsc::unbounded_channel();
        let disk = &self.disks[usize::from(config.worker)];
        let (ports, net) = self.ports();
        let workshop = MemoryWorkshop::new(disk, trap, sender, &net);
        let used = Arc::clone(&workshop);
        let observer = Arc::clone(&self.observer);
        let outcome = tokio::spawn(async move { run_member(config, &ports, used, observer).await });
        Process { outcome, sprung, workshop, net }
    }

    pub(crate) fn start_all(&self) -> Vec<Process> {
        (0u16..).zip(&self.disks).map(|(worker, _)| self.start(worker, None)).collect()
    }

    /// Starts all workers; one of them crashes at a trap, and is started again.
    pub(crate) async fn start_all_after_crash(&self, worker: u16, trap: Trap) -> Vec<Process> {
        let trap_of = |other: u16| (other == worker).then_some(trap);
        let all = (0u16..).zip(&self.disks);
        let mut processes: Vec<Process> =
            all.map(|(other, _)| self.start(other, trap_of(other))).collect();
        let index = usize::from(worker);
        processes.remove(index).crash().await;
        processes.insert(index, self.start(worker, None));
        processes
    }

    /// Compares the outputs with what a single machine would have kept.
    pub(crate) fn check_outputs(&self) {
        let mut kept = BTreeSet::new();
        let mut all: Vec<(RecordId, Vec<u8>)> = Vec::new();
        for (worker, disk) in (0u32..).zip(&self.disks) {
            kept.extend(disk.output().unwrap_or_else(|| panic!("worker {worker} has no output")));
            let records = &disk.records;
            let with_id = |(index, record): (usize, &Vec<u8>)| {
                (record_id(worker * CHUNKS, index, records.len()), record.clone())
            };
            all.extend(records.iter().enumerate().map(with_id));
        }
        let keep = self.rules.keep;
        let rank = |record_id| if keep == Keep::Best { rank(record_id) } else { Rank::default() };
        let dropped = if self.rules.exactness == Exactness::Bytes {
            let ranked: Vec<_> =
                all.iter().map(|(record_id, item)| (rank(*record_id), *record_id, item)).collect();
            reference::ranked_drops(&ranked, keep)
        } else {
            let ranked: Vec<_> = all
                .iter()
                .map(|(record_id, item)| (rank(*record_id), *record_id, hash(item)))
                .collect();
            reference::ranked_drops(&ranked, keep)
        };
        let mut expected: BTreeSet<RecordId> =
            all.iter().map(|(record_id, _)| *record_id).collect();
        dropped.iter().for_each(|(record_id, _)| {
            expected.remove(record_id);
        });
        let known = &self.disks[0].known;
        let is_known = |record: &[u8]| known.contains(&hash(record));
        let known: BTreeSet<RecordId> = all
            .iter()
            .filter(|(_, record)| is_known(record))
            .map(|(record_id, _)| *record_id)
            .collect();
        expected.retain(|record_id| !known.contains(record_id));
        if self.rules.report_kept {
            let pairs = dropped.into_iter().filter(|(record_id, _)| !known.contains(record_id));
            self.check_groups(&pairs.collect());
        }
        assert!(kept == expected, "{} kept, {} expected", kept.len(), expected.len());
        for disk in self.disks.iter().filter(|_| self.rules.adds) {
            assert_eq!(disk.added().map(|(record_ids, _)| record_ids), disk.output());
        }
        assert!(self.disks[0].has_summary());
    }

    /// Compares the workers' groups with the kept record of each dropped one.
    fn check_groups(&self, dropped: &BTreeMap<RecordId, RecordId>) {
        let mut sizes: BTreeMap<RecordId, u64> = BTreeMap::new();
        dropped.values().for_each(|kept| *sizes.entry(*kept).or_insert(1) += 1);
        for (worker, disk) in (0u32..).zip(&self.disks) {
            let own = worker * CHUNKS..(worker + 1) * CHUNKS;
            let own = |record_id: &RecordId| own.contains(&record_id.chunk());
            let pairs: BTreeMap<RecordId, RecordId> = dropped
                .iter()
                .filter(|(record_id, _)| own(record_id))
                .map(|(a, b)| (*a, *b))
                .collect();
            let drops = disk.dropped().into_iter().filter(|(record_id, kept)| record_id != kept);
            assert_eq!(drops.collect::<BTreeMap<_, _>>(), pairs, "worker {worker}");
            let mut expected = sizes.clone();
            let counts_sizes = self.rules.report_sizes || self.rules.names_parts;
            let claimed: BTreeSet<&RecordId> =
                if counts_sizes { pairs.values().collect() } else { BTreeSet::new() };
            expected.retain(|kept, _| own(kept) || claimed.contains(kept));
            assert_eq!(disk.groups().as_ref(), Some(&expected), "worker {worker}");
            let foreign = expected.keys().filter(|kept| self.rules.names_parts && !own(kept));
            let parts: BTreeMap<_, _> = foreign.map(|kept| (*kept, part(*kept))).collect();
            assert_eq!(disk.parts(), parts, "worker {worker}");
        }
    }

    pub(crate) fn attempts(&self) -> usize {
        let events = self.observer.events.lock().unwrap();
        1 + events.iter().filter(|event| matches!(event, JobEvent::Attempt { .. })).count()
    }
}

/// A record: every third is also at the next worker, every seventh occurs twice at this one, every
/// eleventh has the hash of another one.
fn record(worker: u32, index: u32) -> Vec<u8> {
    match index {
        _ if index.is_multiple_of(3) => format!("shared {} {index}", (worker + index % 2) / 2),
        _ if index.is_multiple_of(7) => format!("here {worker} {}", index / 14),
        _ if index.is_multiple_of(11) => format!("hash {} {}~", index / 22, worker % 3),
        _ => format!("only {worker} {index}"),
    }
    .into_bytes()
}

/// The result, once all processes have ended.
pub(crate) async fn finish(processes: Vec<Process>) -> JobResult {
    let mut result = None;
    for (worker, process) in processes.into_iter().enumerate() {
        let outcome = process.outcome.await.unwrap();
        let outcome = outcome.unwrap_or_else(|error| panic!("worker {worker}: {error}"));
        result = outcome.or(result);
    }
    result.expect("worker 0 has it")
}
