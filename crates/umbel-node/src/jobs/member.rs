//! A worker of a job in this process, from its start to its end.

use std::io;
use std::sync::Arc;
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

use super::control::{Coordinator, LineKeeper};
use super::coordinating::{Conclusion, Coordinating, CoordinatorEvent};
use super::exchanger::Exchanger;
use super::host::{JobHost, OpenEndpoint, WorkerEndpoint};
use super::incoming::Inlet;
use super::limits::{CELL_TASKS_MAX, WORDS_WAITING_MAX};
use super::marks::read_marks;
use super::observer::JobObserver;
use super::outgoing::Reach;
use super::wire::{Identity, OptionDigest, ProofKey};
use super::working::{Ending, Working, send_ended, send_failed};
use super::workshop::{Workshop, WorkshopError};
use crate::peer::channel::{incoming, server};
use crate::ports::{Ports, Purpose};

/// How long a job waits for a worker that is away, unless it is configured otherwise.
pub const WORKER_TIMEOUT: Duration = Duration::from_secs(600);

/// The configuration of a worker of a job.
#[derive(Clone)]
pub struct MemberConfig {
    /// Its number, from 0. The process of worker 0 coordinates.
    pub worker: u16,
    /// Address (`host:port`) of every worker, in the order of their numbers; all workers have one
    /// list.
    pub peers: Vec<String>,
    /// On which node of a cluster every worker is, in the same order; empty if they are on none. A caller whose
    /// certificate says which node it is must be on the worker's.
    pub nodes: Vec<NodeId>,
    /// Where [`run_member`] listens; a hosted member does not listen itself.
    pub listen: String,
    /// The job. All its workers have one number.
    pub job: u64,
    /// Digest of every option that must be equal at all workers; another one is refused.
    pub spec_digest: [u8; 16],
    /// The options that the digest is over, so that a refusal names those that differ; may be empty.
    pub options: Vec<OptionDigest>,
    /// What all workers of the job know and nobody else; may be empty. It does not travel.
    pub secret: Vec<u8>,
    /// What the job decides by.
    pub rules: JobRules,
    /// How frames go between workers; the same at all, as [`Route::for_workers`] is.
    pub route: Route,
    /// How long a worker, or the coordinator, may be away; see [`WORKER_TIMEOUT`].
    pub worker_timeout: Duration,
    /// Cells that are worked on side by side: 1 to 4. More need more memory.
    pub cell_tasks: u32,
    /// Where the worker's tasks run, whose calls to the workshop may block; the caller's runtime if
    /// there is none.
    pub runtime: Option<Handle>,
}

/// Why a worker ended without a result. Unless the text says otherwise the job can be taken up again
/// by starting the same worker again.
#[derive(Debug, Error)]
pub enum MemberError {
    /// Nothing was begun. Mend the setting.
    #[error("{what}")]
    Config {
        /// Which setting, what it is and what is possible.
        what: String,
    },
    /// The address cannot be listened on. Choose another one, or end who has it.
    #[error("cannot listen on {address}")]
    Listen {
        /// Where.
        address: String,
        /// Why.
        #[source]
        source: io::Error,
    },
    /// The job ended without a result, as its coordinator says. Only at worker 0.
    #[error(transparent)]
    Job(#[from] JobFailure),
    /// The job ended without a result, as the coordinator reported. Not at worker 0.
    #[error("the coordinator ended the job: {cause}")]
    Aborted {
        /// Why.
        cause: String,
        /// Whether the job can be taken up again.
        resumable: bool,
    },
    /// This worker could not go on.
    #[error(transparent)]
    Workshop(#[from] WorkshopError),
    /// The coordinator does not take this worker. Do what the text asks for.
    #[error("the coordinator at {address} refused worker {worker}: {cause}")]
    Refused {
        /// Where the coordinator is.
        address: String,
        /// This worker.
        worker: u16,
        /// Names both sides' values.
        cause: String,
    },
    /// The coordinator was away for too long. Start it, and this worker again.
    #[error("the coordinator at {address} was away for {} s: {cause}", waited.as_secs())]
    Unreachable {
        /// Where the coordinator should be.
        address: String,
        /// For how long it was tried.
        waited: Duration,
        /// What came of the last try.
        cause: String,
    },
    /// The worker's tasks broke: a bug. The job can be taken up again.
    #[error("the worker broke: {what}")]
    Broken {
        /// What happened.
        what: String,
    },
}

impl MemberError {
    /// Whether the job can be taken up again from what is durable.
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

/// A worker that is at work. Dropping it ends it as a crash would: what is durable stays.
pub struct Member {
    outcome: oneshot::Receiver<Result<Option<JobResult>, MemberError>>,
    task: JoinHandle<()>,
    cancel: watch::Sender<bool>,
    _opened: OpenEndpoint,
}

impl Member {
    /// Starts a worker; others reach it through `host`, which a server must serve.
    ///
    /// # Errors
    /// [`MemberError::Config`], before anything was begun.
    pub fn start(
        config: MemberConfig,
        ports: &Ports,
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
            // Nobody waits for the outcome of a member that was dropped.
            let _ = ended.send(part.run().await);
        });
        Ok(Self { outcome, task, cancel, _opened: opened })
    }

    /// Asks for the end of the job (at worker 0, whose scratch is then removed), or of this worker's
    /// part in it, which ends the job too but lets it be taken up again. A job that commits already
    /// goes on.
    pub fn cancel(&self) {
        self.cancel.send_replace(true);
    }

    /// Does what [`Member::cancel`] does, while somebody waits for the outcome.
    #[must_use]
    pub fn canceller(&self) -> Canceller {
        Canceller(self.cancel.clone())
    }

    /// Waits for the end: at worker 0 the result, unless an earlier start received it; elsewhere
    /// nothing.
    ///
    /// # Errors
    /// Why the job, or this worker's part in it, ended without a result.
    pub async fn outcome(mut self) -> Result<Option<JobResult>, MemberError> {
        let broken = || MemberError::Broken { what: "its task ended early".to_owned() };
        (&mut self.outcome).await.unwrap_or_else(|_| Err(broken()))
    }
}

/// See [`Member::canceller`].
#[derive(Clone)]
pub struct Canceller(watch::Sender<bool>);

impl Canceller {
    /// See [`Member::cancel`].
    pub fn cancel(&self) {
        self.0.send_replace(true);
    }
}

impl Drop for Member {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// Runs a worker on an address of its own until the job has ended: at worker 0 the result, elsewhere
/// nothing. Dropping the future ends the worker as a crash would.
///
/// # Errors
/// See [`MemberError`].
pub async fn run_member(
    config: MemberConfig,
    ports: &Ports,
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

/// How many workers a job has whose settings are possible.
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

/// How the job has ended, as an earlier process of this worker has marked.
fn known_end(marks: &[WorkerJournalRecord]) -> Option<Ending> {
    match marks.last()? {
        WorkerJournalRecord::Ended { failure: None } => Some(Ending::Finished),
        WorkerJournalRecord::Ended { failure: Some(cause) } => {
            Some(Ending::Aborted { cause: cause.clone(), resumable: false })
        }
        _ => None,
    }
}

/// What a member's task needs.
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
        let marks = match workshop.marks() {
            Ok(marks) => read_marks(&marks),
            Err(error) => Err(error),
        };
        let (of_worker, coordinating) = match marks {
            Ok((of_worker, of_coordinator)) => {
                let (rules, workers) = (self.config.rules, self.reach.identity.workers);
                let machine = JobCoordinator::new(rules, workers, &of_coordinator)
                    .map_err(|error| MemberError::Config { what: error.to_string() })?;
                let timeout = self.config.worker_timeout;
                let observer = Arc::clone(&self.observer);
                let workshop = Arc::clone(&workshop);
                (Ok(of_worker), Coordinating::new(machine, workers, timeout, workshop, observer))
            }
            // Without its marks the coordinator knows nothing; others must find it away.
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

    /// Hands the user's wish to end the job to the coordinator.
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

    /// The worker's part.
    async fn work(
        &self,
        marks: Result<Vec<WorkerJournalRecord>, WorkshopError>,
        coordinator: Option<mpsc::Sender<CoordinatorEvent>>,
    ) -> Ending {
        let (events, mut line) = mpsc::channel(WORDS_WAITING_MAX);
        let coordinates = coordinator.is_some();
        let keeper = LineKeeper {
            reach: self.reach.clone(),
            coordinator: coordinator.map_or(Coordinator::There, Coordinator::Here),
            patience: self.config.worker_timeout,
            events,
        };
        let mut tasks = tokio::task::JoinSet::new();
        tasks.spawn_on(keeper.run(), &self.runtime);
        let begun = marks.and_then(|marks| Ok((self.workshop.forecast()?, marks)));
        let (forecast, marks): (Forecast, Vec<WorkerJournalRecord>) = match begun {
            Ok(begun) => begun,
            Err(error) => {
                let words = send_failed(None, &mut line, &error).await;
                send_ended(words, &mut line).await;
                return Ending::Failed(error);
            }
        };
        let (events, received) = mpsc::unbounded_channel();
        let exchanger = Exchanger {
            reach: self.reach.clone(),
            workshop: Arc::clone(&self.workshop),
            observer: Arc::clone(&self.observer),
            runtime: self.runtime.clone(),
            cell_tasks: self.config.cell_tasks,
            inlet: Arc::clone(&self.inlet),
            events: events.clone(),
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
        let machine = JobWorker::new(forecast, &marks).adding(self.config.rules.adds);
        Working::new(machine, self.reach.identity.workers, exchanger).run(line, received).await
    }

    /// The end of a worker that does not coordinate.
    fn finish(&self, ending: Ending) -> Result<Option<JobResult>, MemberError> {
        let address = self.config.peers[0].clone();
        let outcome = match ending {
            Ending::Finished => Ok(None),
            Ending::Done => {
                // A coordinator that comes back must learn that this worker has done its part.
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

    /// The end of worker 0.
    fn conclude(
        &self,
        conclusion: Conclusion,
        ending: Ending,
    ) -> Result<Option<JobResult>, MemberError> {
        let outcome = match (conclusion, ending) {
            (Conclusion::Finished(result), _) => Ok(result.map(|result| *result)),
            // The same, but not in other words.
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
