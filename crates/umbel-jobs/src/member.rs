//! A worker of a job in this process, from its start to its end.

use std::io;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use thiserror::Error;
use tokio::runtime::Handle;
use tokio::sync::{mpsc, oneshot, watch};
use tokio::task::JoinHandle;
use umbel_dedup_engine::job::{
    Forecast, JobCoordinator, JobFailure, JobResult, JobRules, JobWorker, WorkerJournalRecord,
};
use umbel_dedup_engine::limits::DEDUP_WORKERS_MAX;
use umbel_dedup_engine::{Route, WorkerId};
use umbel_engine::NodeId;
use umbel_ports::channel::{incoming, server};
use umbel_ports::{Net, Purpose, Seed};

use super::control::{Coordinator, LineTask};
use super::coordinating::{Conclusion, Coordinating, CoordinatorEvent};
use super::exchanger::Exchanger;
use super::host::{JobHost, OpenEndpoint, WorkerEndpoint};
use super::incoming::Inlet;
use super::journal_records::decode_journal_records;
use super::limits::{CELL_TASKS_MAX, WORDS_WAITING_MAX};
use super::observer::JobObserver;
use super::outgoing::Reach;
use super::wire::{Identity, OptionDigest, ProofKey};
use super::working::{Ending, Working, send_ended, send_failed};
use super::workshop::{Workshop, WorkshopError};

/// How long a job waits for an absent worker, unless configured otherwise.
pub const WORKER_TIMEOUT: Duration = Duration::from_secs(600);

/// The configuration of a worker of a job.
#[derive(Clone)]
pub struct MemberConfig {
    /// The worker's number, from 0. The process of worker 0 runs the coordinator.
    pub worker: u16,
    /// Addresses (`host:port`) of all workers, in the order of their numbers; the same list at all
    /// workers.
    pub peers: Vec<String>,
    /// The nodes of a cluster on which the workers run, in the same order; empty if they run on none. A
    /// caller whose certificate names a node must be the worker on that node.
    pub nodes: Vec<NodeId>,
    /// The address on which [`run_member`] listens; not used by a hosted member.
    pub listen: String,
    /// The job's number, the same at all workers.
    pub job: u64,
    /// Digest of all options that must be equal at all workers; a worker with another digest is
    /// refused.
    pub spec_digest: [u8; 16],
    /// The options that the digest covers, so that a refusal can name those that differ; may be empty.
    pub options: Vec<OptionDigest>,
    /// A secret that only the job's workers know; may be empty. It is never sent.
    pub secret: Vec<u8>,
    /// The rules of the job's decisions.
    pub rules: JobRules,
    /// How frames travel between workers; the same at all workers, as [`Route::for_workers`] is.
    pub route: Route,
    /// How long a worker, or the coordinator, may be absent; see [`WORKER_TIMEOUT`].
    pub worker_timeout: Duration,
    /// Cell tasks, which process cells in parallel: 1 to 4. More of them need more memory.
    pub cell_tasks: u32,
    /// The runtime of the worker's tasks, whose calls to the workshop may block; if None, the caller's
    /// runtime.
    pub runtime: Option<Handle>,
}

/// Why a worker ended without a result. Unless the text says otherwise, starting the same worker again
/// resumes the job.
#[derive(Debug, Error)]
pub enum MemberError {
    /// Nothing was started. Correct the setting.
    #[error("{what}")]
    Config {
        /// The setting, its value, and the possible values.
        what: String,
    },
    /// The address cannot be bound. Choose another one, or stop the process that uses it.
    #[error("cannot listen on {address}")]
    Listen {
        /// The address.
        address: String,
        /// The operating system's error.
        #[source]
        source: io::Error,
    },
    /// The job ended without a result, as its coordinator decided. Only at worker 0.
    #[error(transparent)]
    Job(#[from] JobFailure),
    /// The job ended without a result, as the coordinator reported. Not at worker 0.
    #[error("the coordinator ended the job: {cause}")]
    Aborted {
        /// The reason.
        cause: String,
        /// Whether the job can be resumed.
        resumable: bool,
    },
    /// This worker could not continue.
    #[error(transparent)]
    Workshop(#[from] WorkshopError),
    /// The coordinator refused this worker. Do what the text says.
    #[error("the coordinator at {address} refused worker {worker}: {cause}")]
    Refused {
        /// The coordinator's address.
        address: String,
        /// This worker.
        worker: u16,
        /// The reason, with both sides' values.
        cause: String,
    },
    /// The coordinator was absent for too long. Start it, and this worker again.
    #[error("the coordinator at {address} was away for {} s: {cause}", waited.as_secs())]
    Unreachable {
        /// The coordinator's expected address.
        address: String,
        /// How long the worker tried.
        waited: Duration,
        /// The result of the last attempt.
        cause: String,
    },
    /// The worker's tasks failed because of a bug. The job can be resumed.
    #[error("the worker broke: {what}")]
    Broken {
        /// What happened.
        what: String,
    },
}

impl MemberError {
    /// Whether the job can be resumed from what is durable.
    #[must_use]
    pub const fn is_resumable(&self) -> bool {
        match self {
            Self::Job(failure) => failure.is_resumable(),
            Self::Aborted { resumable, .. } => *resumable,
            Self::Workshop(error) => error.resumable,
            _ => true,
        }
    }
}

/// The ports of a worker besides its [`Workshop`].
pub struct MemberPorts {
    /// The network.
    pub net: Arc<dyn Net>,
    /// Entropy.
    pub seed: Arc<dyn Seed>,
}

/// A running worker. Dropping it ends it as a crash would: what is durable stays.
pub struct Member {
    outcome: oneshot::Receiver<Result<Option<JobResult>, MemberError>>,
    task: JoinHandle<()>,
    cancel: watch::Sender<bool>,
    _opened: OpenEndpoint,
}

impl Member {
    /// Starts a worker; other workers reach it through `host`, which a server must serve.
    ///
    /// # Errors
    /// [`MemberError::Config`], before anything was started.
    pub fn start(
        config: MemberConfig,
        ports: &MemberPorts,
        workshop: Arc<dyn Workshop>,
        observer: Arc<dyn JobObserver>,
        host: &Arc<JobHost>,
    ) -> Result<Self, MemberError> {
        let workers = check(&config)?;
        let runtime = config.runtime.clone().unwrap_or_else(Handle::current);
        let identity = Arc::new(Identity {
            job: config.job,
            spec_digest: config.spec_digest,
            options: config.options.clone(),
            worker: WorkerId(config.worker),
            workers,
            nodes: config.nodes.clone(),
            route: config.route,
            key: ProofKey::of(&config.secret),
            incarnation: ports.seed.number(Purpose::Identity),
        });
        let addresses = Arc::new(config.peers.clone());
        let reach = Reach { identity, addresses, net: Arc::clone(&ports.net) };
        let (coordinator, received) = mpsc::channel(WORDS_WAITING_MAX);
        let inlet = Arc::new(watch::Sender::new(Inlet::of_attempt(0)));
        let coordinates = config.worker == 0;
        let opened = host.open(WorkerEndpoint {
            identity: Arc::clone(&reach.identity),
            runtime: runtime.clone(),
            inlet: Arc::clone(&inlet),
            observer: Arc::clone(&observer),
            coordinator: coordinates.then(|| coordinator.clone()),
        });
        let opened = opened.ok_or_else(|| {
            let job = config.job;
            MemberError::Config { what: format!("job {job:016x} has a worker in this process") }
        })?;
        let (cancel, cancelled) = watch::channel(false);
        let part = Part {
            config,
            reach,
            workshop,
            observer,
            runtime: runtime.clone(),
            inlet,
            coordinator: coordinates.then_some((coordinator, received)),
            cancelled,
        };
        let (ended, outcome) = oneshot::channel();
        let task = runtime.spawn(async move {
            // The receiver is gone if the member was dropped.
            let _ = ended.send(part.run().await);
        });
        Ok(Self { outcome, task, cancel, _opened: opened })
    }

    /// Cancels the job (at worker 0, whose scratch space is then removed), or this worker's part in it
    /// (at other workers), which ends the job too, but lets it be resumed. A job that is already
    /// committing its outputs continues.
    pub fn cancel(&self) {
        self.cancel.send_replace(true);
    }

    /// A handle for [`Member::cancel`] that can be used while another task awaits the outcome.
    #[must_use]
    pub fn canceller(&self) -> Canceller {
        Canceller(self.cancel.clone())
    }

    /// Waits for the end. Returns the result at worker 0, unless an earlier start received it; None at
    /// other workers.
    ///
    /// # Errors
    /// Why the job, or this worker's part in it, ended without a result.
    pub async fn outcome(mut self) -> Result<Option<JobResult>, MemberError> {
        let broken = || MemberError::Broken { what: "its task ended early".to_owned() };
        (&mut self.outcome).await.unwrap_or_else(|_| Err(broken()))
    }
}

/// A handle that cancels; see [`Member::canceller`].
#[derive(Clone)]
pub struct Canceller(watch::Sender<bool>);

impl Canceller {
    /// Cancels; see [`Member::cancel`].
    pub fn cancel(&self) {
        self.0.send_replace(true);
    }
}

impl Drop for Member {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// Runs a worker with its own listener until the job has ended. Returns the result at worker 0; None at
/// other workers. Dropping the future ends the worker as a crash would.
///
/// # Errors
/// See [`MemberError`].
pub async fn run_member(
    config: MemberConfig,
    ports: &MemberPorts,
    workshop: Arc<dyn Workshop>,
    observer: Arc<dyn JobObserver>,
) -> Result<Option<JobResult>, MemberError> {
    check(&config)?;
    let address = config.listen.clone();
    let listener = ports.net.listen(&address).await;
    let listener = listener.map_err(|source| MemberError::Listen { address, source })?;
    let host = JobHost::new();
    let serving = server()
        .add_service(host.control_service())
        .add_service(host.exchange_service())
        .serve_with_incoming(incoming(listener));
    let member = Member::start(config, ports, workshop, observer, &host)?;
    tokio::select! {
        outcome = member.outcome() => outcome,
        served = serving => {
            let what = match served {
                Ok(()) => "its server ended".to_owned(),
                Err(error) => format!("its server cannot run: {error}"),
            };
            Err(MemberError::Broken { what })
        }
    }
}

/// Checks the settings, and returns the number of workers.
fn check(config: &MemberConfig) -> Result<u32, MemberError> {
    let refused = |what: String| Err(MemberError::Config { what });
    let workers = u32::try_from(config.peers.len()).unwrap_or(u32::MAX);
    if workers == 0 || workers > DEDUP_WORKERS_MAX {
        return refused(format!("{workers} peers, possible are 1 to {DEDUP_WORKERS_MAX}"));
    }
    if u32::from(config.worker) >= workers {
        let (worker, last) = (config.worker, workers - 1);
        return refused(format!("worker {worker} of workers 0 to {last}"));
    }
    if !(1..=CELL_TASKS_MAX).contains(&config.cell_tasks) {
        return refused(format!(
            "{} cell tasks, possible are 1 to {CELL_TASKS_MAX}",
            config.cell_tasks
        ));
    }
    Ok(workers)
}

/// The end of the job, if an earlier process of this worker recorded it.
fn known_end(records: &[WorkerJournalRecord]) -> Option<Ending> {
    match records.last()? {
        WorkerJournalRecord::Ended { failure: None } => Some(Ending::Finished),
        WorkerJournalRecord::Ended { failure: Some(cause) } => {
            Some(Ending::Aborted { cause: cause.clone(), resumable: false })
        }
        _ => None,
    }
}

/// The state of a member's task.
struct Part {
    config: MemberConfig,
    reach: Reach,
    workshop: Arc<dyn Workshop>,
    observer: Arc<dyn JobObserver>,
    runtime: Handle,
    inlet: Arc<watch::Sender<Inlet>>,
    coordinator: Option<(mpsc::Sender<CoordinatorEvent>, mpsc::Receiver<CoordinatorEvent>)>,
    cancelled: watch::Receiver<bool>,
}

impl Part {
    async fn run(mut self) -> Result<Option<JobResult>, MemberError> {
        let workshop = Arc::clone(&self.workshop);
        let records = match workshop.journal_records() {
            Ok(records) => decode_journal_records(&records),
            Err(error) => Err(error),
        };
        let (of_worker, coordinating) = match records {
            Ok((of_worker, of_coordinator)) => {
                let (rules, workers) = (self.config.rules, self.reach.identity.workers);
                let machine = JobCoordinator::new(rules, workers, &of_coordinator)
                    .map_err(|error| MemberError::Config { what: error.to_string() })?;
                let timeout = self.config.worker_timeout;
                let observer = Arc::clone(&self.observer);
                let workshop = Arc::clone(&workshop);
                (Ok(of_worker), Coordinating::new(machine, workers, timeout, workshop, observer))
            }
            // Without its journal records, the coordinator knows nothing; other workers must find it
            // absent.
            Err(error) if self.coordinator.is_some() => {
                workshop.end(true);
                return Err(error.into());
            }
            Err(error) => return self.finish(self.work(Err(error), None).await),
        };
        let known = of_worker.as_deref().ok().and_then(known_end);
        if let (None, Some(ending)) = (&self.coordinator, known) {
            return self.finish(ending);
        }
        match self.coordinator.take() {
            None => self.finish(self.work(of_worker, None).await),
            Some((coordinator, received)) => {
                let cancel = self.cancel_of(coordinator.clone());
                let worked = self.work(of_worker, Some(coordinator));
                let both = async { tokio::join!(coordinating.run(received), worked) };
                let (conclusion, ending) = tokio::select! {
                    both = both => both,
                    never = cancel => match never {},
                };
                self.conclude(conclusion, ending)
            }
        }
    }

    /// Passes the user's cancellation to the coordinator.
    fn cancel_of(
        &self,
        coordinator: mpsc::Sender<CoordinatorEvent>,
    ) -> impl Future<Output = std::convert::Infallible> + use<> {
        let mut cancelled = self.cancelled.clone();
        async move {
            if cancelled.wait_for(|cancelled| *cancelled).await.is_ok() {
                let _ = coordinator.send(CoordinatorEvent::Cancel).await;
            }
            std::future::pending().await
        }
    }

    /// Runs the worker.
    async fn work(
        &self,
        records: Result<Vec<WorkerJournalRecord>, WorkshopError>,
        coordinator: Option<mpsc::Sender<CoordinatorEvent>>,
    ) -> Ending {
        let (events, mut line) = mpsc::channel(WORDS_WAITING_MAX);
        let coordinates = coordinator.is_some();
        let line_task = LineTask {
            reach: self.reach.clone(),
            coordinator: coordinator.map_or(Coordinator::There, Coordinator::Here),
            patience: self.config.worker_timeout,
            observer: Arc::clone(&self.observer),
            away_told: AtomicBool::new(false),
            events,
        };
        let mut tasks = tokio::task::JoinSet::new();
        tasks.spawn_on(line_task.run(), &self.runtime);
        let begun = records.and_then(|records| Ok((self.workshop.forecast()?, records)));
        let (forecast, records): (Forecast, Vec<WorkerJournalRecord>) = match begun {
            Ok(begun) => begun,
            Err(error) => {
                let words = send_failed(None, &mut line, &error).await;
                send_ended(words, &mut line).await;
                return Ending::Failed(error);
            }
        };
        // An overseer sends at most a few events, as each ends what its attempt was ordered to do, and an attempt begins
        // only after the driver has ended the one before; besides, there is one cancellation.
        let (events, received) = mpsc::unbounded_channel();
        let exchanger = Exchanger {
            reach: self.reach.clone(),
            workshop: Arc::clone(&self.workshop),
            observer: Arc::clone(&self.observer),
            runtime: self.runtime.clone(),
            cell_tasks: self.config.cell_tasks,
            inlet: Arc::clone(&self.inlet),
            events: events.clone(),
            begun: None,
            running: None,
        };
        if !coordinates {
            let mut cancelled = self.cancelled.clone();
            let cancel = async move {
                if cancelled.wait_for(|cancelled| *cancelled).await.is_ok() {
                    let cause = "cancelled there".to_owned();
                    let failed =
                        umbel_dedup_engine::job::WorkerEvent::Failed { cause, resumable: true };
                    let _ = events.send(failed);
                }
            };
            tasks.spawn_on(cancel, &self.runtime);
        }
        let machine = JobWorker::new(forecast, &records).adding(self.config.rules.adds);
        Working::new(machine, self.reach.identity.workers, exchanger).run(line, received).await
    }

    /// The outcome of a worker without the coordinator.
    fn finish(&self, ending: Ending) -> Result<Option<JobResult>, MemberError> {
        let address = self.config.peers[0].clone();
        let outcome = match ending {
            Ending::Finished => Ok(None),
            Ending::Done => {
                // If the coordinator restarts, it must learn that this worker has done its part.
                self.workshop.end(true);
                return Ok(None);
            }
            Ending::Aborted { cause, resumable } => Err(MemberError::Aborted { cause, resumable }),
            Ending::Failed(error) => Err(error.into()),
            Ending::Refused(cause) => {
                Err(MemberError::Refused { address, worker: self.config.worker, cause })
            }
            Ending::Unreachable(cause) => {
                let waited = self.config.worker_timeout;
                Err(MemberError::Unreachable { address, waited, cause })
            }
        };
        self.workshop.end(outcome.as_ref().is_err_and(MemberError::is_resumable));
        outcome
    }

    /// The outcome of worker 0.
    fn conclude(
        &self,
        conclusion: Conclusion,
        ending: Ending,
    ) -> Result<Option<JobResult>, MemberError> {
        let outcome = match (conclusion, ending) {
            (Conclusion::Finished(result), _) => Ok(result.map(|result| *result)),
            // The worker's own error has the better text.
            (
                Conclusion::Failed(JobFailure::Worker { worker: WorkerId(0), .. }),
                Ending::Failed(error),
            ) => Err(error.into()),
            (Conclusion::Failed(failure), _) => Err(failure.into()),
            (Conclusion::Broken(error), _) => Err(error.into()),
        };
        self.workshop.end(outcome.as_ref().is_err_and(MemberError::is_resumable));
        outcome
    }
}
