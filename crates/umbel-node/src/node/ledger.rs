//! Starts and ends the workers of this node as the ledger in the catalogue says.
//!
//! A worker starts when its node learns of the job, and ends when the ledger says so. The first node to
//! learn how a job ended writes that to the ledger; usually that is the calls. Before a worker
//! starts, the ledger must be up to date: a node that starts replays old entries, and would otherwise
//! start jobs again that ended long ago.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio::time::Instant;
use umbel_dedup_engine::job::{JobFailure, JobResult};
use umbel_dedup_engine::{Route, WorkerId};
use umbel_engine::JobId;
use umbel_engine::meta::{JobEnd, JobRecord, JobState, MetaCommand};
use umbel_filter::ItemHasher;
use umbel_jobs::{
    JobSite, MemberConfig, MemberError, OpenJob, OptionDigest, WORKER_TIMEOUT, Workshops,
};
use umbel_ports::chain_text;

use crate::leader_calls::LeaderCalls;
use crate::local::Local;

/// Time limit for reading the newest ledger, or writing an entry, before a retry.
const LEDGER_TIMEOUT: Duration = Duration::from_secs(10);

/// How often to look for scratch space that is not needed any more.
const TIDY_INTERVAL: Duration = Duration::from_secs(5);

/// Pause before a retry.
const LEDGER_PAUSE: Duration = Duration::from_millis(200);

/// A worker that runs on this node.
struct RunningWorker {
    run: u32,
    cancel: watch::Sender<bool>,
    task: JoinHandle<()>,
}

impl Drop for RunningWorker {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// Starts and ends the workers of this node as the ledger says; never ends.
pub(super) async fn follow_ledger(local: Arc<Local>, calls: Arc<LeaderCalls>) {
    let Some(workshops) = local.jobs().workshops().cloned() else { return };
    let mut applied = local.meta().replica().applied_index();
    let mut running: BTreeMap<JobId, RunningWorker> = BTreeMap::new();
    let mut seen = None;
    loop {
        applied.borrow_and_update();
        let jobs = jobs_of(&local);
        if seen.as_ref() != Some(&jobs) {
            if let Err(error) = calls.meta_refresh(Instant::now() + LEDGER_TIMEOUT).await {
                tracing::info!(%error, "the newest ledger of jobs is not known yet");
                tokio::time::sleep(LEDGER_PAUSE).await;
                continue;
            }
            let jobs = jobs_of(&local);
            follow(&local, &calls, &*workshops, &mut running, &jobs);
            seen = Some(jobs);
        }
        loop {
            match tokio::time::timeout(TIDY_INTERVAL, applied.changed()).await {
                Ok(Ok(())) => break,
                Ok(Err(_)) => return,
                // A worker that was just ended may have kept its scratch space in use for a moment.
                Err(_) => tidy(&*workshops, seen.as_ref()),
            }
        }
    }
}

/// The jobs that have a worker on this node.
fn jobs_of(local: &Local) -> BTreeMap<JobId, JobRecord> {
    let node = local.node();
    local.read_meta(|state| {
        let own = state.jobs().filter(|(_, record)| record.order.workers.contains(&node));
        own.map(|(job, record)| (job, record.clone())).collect()
    })
}

fn follow(
    local: &Arc<Local>,
    calls: &Arc<LeaderCalls>,
    workshops: &dyn Workshops,
    running: &mut BTreeMap<JobId, RunningWorker>,
    jobs: &BTreeMap<JobId, JobRecord>,
) {
    let is_wanted = |job: &JobId, run: u32| {
        jobs.get(job).is_some_and(|record| record.run == run && record.state.is_active())
    };
    running.retain(|job, worker| is_wanted(job, worker.run));
    local.jobs().retain(|job| running.contains_key(&job));
    tidy(workshops, Some(jobs));
    for (&job, record) in jobs.iter().filter(|(_, record)| record.state.is_active()) {
        let worker = running.entry(job).or_insert_with(|| {
            let (cancel, cancelled) = watch::channel(false);
            let attending =
                attend(Arc::clone(local), Arc::clone(calls), job, record.clone(), cancelled);
            RunningWorker { run: record.run, cancel, task: tokio::spawn(attending) }
        });
        if record.state == JobState::Cancelling {
            worker.cancel.send_replace(true);
        }
    }
}

/// Removes the scratch space of jobs that do not need it any more.
fn tidy(workshops: &dyn Workshops, jobs: Option<&BTreeMap<JobId, JobRecord>>) {
    let Some(jobs) = jobs else { return };
    for job in workshops.stored() {
        let keeps = jobs.get(&job).is_some_and(|record| {
            record.state.is_active()
                || matches!(record.state, JobState::Failed { resumable: true, .. })
        });
        if !keeps {
            workshops.discard(job);
        }
    }
}

/// Runs this node's worker of a job to its end, and writes the end to the ledger if no other node
/// would.
async fn attend(
    local: Arc<Local>,
    calls: Arc<LeaderCalls>,
    job: JobId,
    record: JobRecord,
    cancelled: watch::Receiver<bool>,
) {
    let is_coordinator = record.coordinator() == Some(local.node());
    let outcome = work(&local, job, &record, cancelled.clone()).await;
    let was_aborted = !is_coordinator && matches!(outcome, Err(MemberError::Aborted { .. }));
    if was_aborted {
        // The coordinator writes how the job ended, and that ends this task. But if the coordinator
        // crashed before that, it would wait after its restart for workers that have left; so this node
        // writes the end itself after a pause.
        tokio::time::sleep(LEDGER_TIMEOUT).await;
    }
    let end = match outcome {
        Ok(Some(summary)) => JobEnd::Done { summary },
        // The coordinator writes how the job ended.
        Ok(None) => return,
        Err(MemberError::Job(JobFailure::Cancelled)) => JobEnd::Cancelled,
        Err(error) => {
            let resumable = error.is_resumable();
            JobEnd::Failed { cause: cause(&local, &record, &error), resumable }
        }
    };
    let knows = is_coordinator || was_aborted;
    if knows && *cancelled.borrow() && matches!(end, JobEnd::Failed { .. }) {
        // The job was being cancelled anyway.
        return write_end(&calls, job, record.run, JobEnd::Cancelled).await;
    }
    write_end(&calls, job, record.run, end).await;
}

/// Writes an end to the ledger, retrying until it succeeds.
async fn write_end(calls: &LeaderCalls, job: JobId, run: u32, end: JobEnd) {
    let command = MetaCommand::EndJob { job, run, end };
    loop {
        let deadline = Instant::now() + LEDGER_TIMEOUT;
        match calls.meta_propose(command.clone(), deadline).await {
            Ok(_) => return,
            Err(error) => {
                tracing::info!(%job, %error, "the end of a job is not in the ledger yet");
                tokio::time::sleep(LEDGER_PAUSE).await;
            }
        }
    }
}

/// The text of a failure, with nodes named in place of workers.
fn cause(local: &Local, record: &JobRecord, error: &MemberError) -> String {
    let node = |worker: WorkerId| match record.order.workers.get(worker.index()) {
        Some(node) => node.to_string(),
        None => format!("worker {}", worker.0),
    };
    match error {
        MemberError::Job(JobFailure::Worker { worker, cause, .. }) => {
            format!("{}: {cause}", node(*worker))
        }
        MemberError::Job(JobFailure::Away { worker, missing }) => {
            format!("{} is away; missing from it: {missing}", node(*worker))
        }
        MemberError::Job(failure) => failure.to_string(),
        error => format!("{}: {}", local.node(), chain_text(error)),
    }
}

/// Opens this node's data of a job and runs its worker; returns the summary at the calls.
async fn work(
    local: &Local,
    job: JobId,
    record: &JobRecord,
    mut cancelled: watch::Receiver<bool>,
) -> Result<Option<Vec<u8>>, MemberError> {
    let jobs = local.jobs();
    let refused = |what: String| MemberError::Config { what };
    let workshops = jobs.workshops().ok_or_else(|| refused("it takes no part in jobs".into()))?;
    let order = &record.order;
    let node = local.node();
    let place = order.workers.iter().position(|&worker| worker == node);
    let worker = place.and_then(|place| u16::try_from(place).ok());
    let worker = worker.ok_or_else(|| refused(format!("{job} has no worker here")))?;
    let address = local.member().address_of(node);
    let site = JobSite {
        job,
        node,
        address: address.ok_or_else(|| refused(format!("{node} has left")))?,
        worker: WorkerId(worker),
        workers: order.workers.clone(),
        seed: order.seed,
        spec: order.spec.clone(),
    };
    let OpenJob { workshop, rules, route } = workshops.open(site).await?;
    let mut peers = Vec::new();
    for &node in &order.workers {
        let address = local.member().address_of(node);
        peers.push(address.ok_or_else(|| refused(format!("{node} has left the cluster")))?);
    }
    let (cell_tasks, runtime) = workshops.cell_tasks();
    let workers = u32::try_from(peers.len()).unwrap_or(u32::MAX);
    let config = MemberConfig {
        worker,
        peers,
        nodes: order.workers.clone(),
        listen: String::new(),
        job: job_number(local.cluster(), job, record.run),
        spec_digest: digest(record),
        options: vec![OptionDigest { name: "the release", digest: release_digest() }],
        secret: order.secret.bytes().to_vec(),
        rules,
        route: route.unwrap_or(Route::for_workers(workers)),
        worker_timeout: WORKER_TIMEOUT,
        cell_tasks,
        runtime,
    };
    let member = jobs.start(job, config, Arc::clone(&workshop))?;
    let canceller = member.canceller();
    let cancelling = async move {
        // Only the coordinator cancels a job; the other workers learn it from the coordinator.
        if worker == 0 && cancelled.wait_for(|&is_cancelled| is_cancelled).await.is_ok() {
            canceller.cancel();
        }
        std::future::pending::<()>().await;
    };
    let result: Option<JobResult> = tokio::select! {
        biased;
        outcome = member.outcome() => outcome?,
        () = cancelling => unreachable!("it never ends"),
    };
    Ok((worker == 0).then(|| if result.is_some() { workshop.summary() } else { Vec::new() }))
}

/// A number for a run of a job that is unique among all runs that may ever meet: frames of an earlier
/// run are foreign.
fn job_number(cluster: u128, job: JobId, run: u32) -> u64 {
    let mut bytes = cluster.to_le_bytes().to_vec();
    bytes.extend(run.to_le_bytes());
    ItemHasher::Xxh3 { seed: job.0 }.hash(&bytes).lo()
}

/// A digest of this node's release: releases may read a record, or hash an item, differently.
fn release_digest() -> u32 {
    let hash = ItemHasher::Xxh3 { seed: 0 }.hash(env!("CARGO_PKG_VERSION").as_bytes());
    u32::try_from(hash.lo() >> 32).expect("32 bits")
}

/// A digest of what all workers of a job must have in common: the ledger's record, and the release.
fn digest(record: &JobRecord) -> [u8; 16] {
    let order = &record.order;
    let mut bytes = order.seed.to_le_bytes().to_vec();
    bytes.extend(release_digest().to_le_bytes());
    order.workers.iter().for_each(|node| bytes.extend(node.0.to_le_bytes()));
    bytes.extend(&order.spec);
    let hash = ItemHasher::Xxh3 { seed: 0 }.hash(&bytes);
    let mut digest = [0; 16];
    digest[..8].copy_from_slice(&hash.hi().to_le_bytes());
    digest[8..].copy_from_slice(&hash.lo().to_le_bytes());
    digest
}
