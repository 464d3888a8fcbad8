//! The workers of jobs in a process, and the service by which workers reach each other.

use std::collections::BTreeMap;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard};

use bytes::Bytes;
use tokio::sync::{mpsc, oneshot, watch};
use tokio::time::timeout;
use tonic::{Request, Response, Status, Streaming};
use umbel_dedup_engine::{Route, WorkerId};
use umbel_ports::PeerIdentity;
use umbel_ports::encoding::decode;
use umbel_proto::v1::job_control_server::{JobControl, JobControlServer};
use umbel_proto::v1::job_exchange_server::{JobExchange, JobExchangeServer};
use umbel_proto::v1::{JobFrames, JobFramesEnd, JobHello, JobOrder, JobWord};

use super::coordinating::{CoordinatorEvent, Line};
use super::incoming::{Inlet, accept};
use super::limits::{
    CONTROL_MESSAGE_BYTES_MAX, FRAMES_MESSAGE_BYTES_MAX, HEARTBEAT_INTERVAL, HEARTBEAT_TIMEOUT,
};
use super::observer::JobObserver;
use super::wire::{Carries, Identity, hello_of};

/// The stream of a call's responses.
type Answers<T> = Pin<Box<dyn tokio_stream::Stream<Item = Result<T, Status>> + Send>>;

/// The workers of a process, by job. A call for a job without a worker here is refused in such a way
/// that the caller retries: the worker may start soon.
///
/// A process with a server adds [`JobHost::control_service`] and [`JobHost::exchange_service`] to it;
/// all members of the process share the server.
#[derive(Default)]
pub struct JobHost {
    endpoints: Mutex<BTreeMap<u64, Arc<WorkerEndpoint>>>,
}

/// What is needed to pass other workers' calls to a worker.
pub(super) struct WorkerEndpoint {
    pub(super) identity: Arc<Identity>,
    pub(super) runtime: tokio::runtime::Handle,
    pub(super) inlet: Arc<watch::Sender<Inlet>>,
    pub(super) observer: Arc<dyn JobObserver>,
    /// The job's coordinator, if it runs in this process.
    pub(super) coordinator: Option<mpsc::Sender<CoordinatorEvent>>,
}

/// Keeps an endpoint open; dropping it closes the endpoint.
pub(super) struct OpenEndpoint {
    host: Arc<JobHost>,
    endpoint: Arc<WorkerEndpoint>,
}

impl Drop for OpenEndpoint {
    fn drop(&mut self) {
        let mut endpoints = self.host.lock();
        let job = self.endpoint.identity.job;
        if endpoints.get(&job).is_some_and(|endpoint| Arc::ptr_eq(endpoint, &self.endpoint)) {
            endpoints.remove(&job);
        }
    }
}

impl JobHost {
    /// Creates a host without members.
    #[must_use]
    pub fn new() -> Arc<Self> {
        Arc::default()
    }

    /// The service for words and orders, to be added to a server.
    #[must_use]
    pub fn control_service(self: &Arc<Self>) -> JobControlServer<JobService> {
        JobControlServer::new(JobService { host: Arc::clone(self) })
            .max_decoding_message_size(CONTROL_MESSAGE_BYTES_MAX)
            .max_encoding_message_size(CONTROL_MESSAGE_BYTES_MAX)
    }

    /// The service for frames, to be added to the same server.
    #[must_use]
    pub fn exchange_service(self: &Arc<Self>) -> JobExchangeServer<JobService> {
        JobExchangeServer::new(JobService { host: Arc::clone(self) })
            .max_decoding_message_size(FRAMES_MESSAGE_BYTES_MAX)
    }

    /// Makes a worker reachable; `None` if the process already has a worker of the job.
    pub(super) fn open(self: &Arc<Self>, endpoint: WorkerEndpoint) -> Option<OpenEndpoint> {
        let mut endpoints = self.lock();
        if endpoints.contains_key(&endpoint.identity.job) {
            return None;
        }
        let endpoint = Arc::new(endpoint);
        endpoints.insert(endpoint.identity.job, Arc::clone(&endpoint));
        Some(OpenEndpoint { host: Arc::clone(self), endpoint })
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<u64, Arc<WorkerEndpoint>>> {
        self.endpoints.lock().expect("nothing panics while it holds the table of jobs")
    }

    /// Checks a caller, and returns the endpoint that it calls.
    fn enter<T>(
        &self,
        request: &Request<T>,
    ) -> Result<(Arc<WorkerEndpoint>, JobHello, WorkerId), Status> {
        let hello = hello_of(request.metadata())?;
        let endpoint = self.lock().get(&hello.job).cloned();
        let endpoint = endpoint.ok_or_else(|| {
            Status::not_found(format!("no worker of job {:016x} is here", hello.job))
        })?;
        let connection = request.extensions().get::<PeerIdentity>();
        let from = endpoint.identity.check(&hello, connection).inspect_err(|status| {
            let cause = status.message();
            tracing::warn!(job = hello.job, worker = hello.worker, cause, "a worker was refused");
            endpoint.observer.refused(cause);
        })?;
        Ok((endpoint, hello, from))
    }
}

/// The gRPC services of a [`JobHost`].
pub struct JobService {
    host: Arc<JobHost>,
}

#[tonic::async_trait]
impl JobControl for JobService {
    type ControlStream = Answers<JobOrder>;

    async fn control(
        &self,
        request: Request<Streaming<JobWord>>,
    ) -> Result<Response<Self::ControlStream>, Status> {
        let (endpoint, hello, worker) = self.host.enter(&request)?;
        let coordinator = endpoint.coordinator.clone().ok_or_else(|| {
            let here = endpoint.identity.worker.0;
            Status::failed_precondition(format!("worker {here} is here, worker 0 coordinates"))
        })?;
        let line = connect(&coordinator, worker, hello.incarnation).await?;
        let words = request.into_inner();
        endpoint.runtime.spawn(read_words(words, worker, line.number, coordinator));
        let orders = beating(line.orders, |body| Ok(JobOrder { body }));
        Ok(Response::new(Box::pin(orders)))
    }
}

#[tonic::async_trait]
impl JobExchange for JobService {
    type FramesStream = Answers<JobFramesEnd>;

    async fn frames(
        &self,
        request: Request<Streaming<JobFrames>>,
    ) -> Result<Response<Self::FramesStream>, Status> {
        let (endpoint, hello, from) = self.host.enter(&request)?;
        let worker = endpoint.identity.worker;
        if !endpoint.identity.grid().are_neighbours(worker, from) {
            return Err(Status::failed_precondition(format!(
                "worker {} and worker {} have neither row nor column in common, and so no stream: \
                 bring all workers to one release",
                from.0, worker.0
            )));
        }
        let carries = if hello.passed_on { Carries::PassedOn } else { Carries::Own };
        if carries == Carries::PassedOn && endpoint.identity.route == Route::Direct {
            return Err(Status::failed_precondition(format!(
                "worker {} passes frames on to worker {} in a job without a grid: bring all workers \
                 to one release",
                from.0, worker.0
            )));
        }
        let frames = request.into_inner();
        let sender = (from, carries);
        let answer = accept(&endpoint.inlet, sender, hello.attempt, frames, &endpoint.runtime)?;
        let answers = futures_util::stream::unfold(answer, async |mut answer| {
            answer.recv().await.map(|item| (item, answer))
        });
        Ok(Response::new(Box::pin(answers)))
    }
}

/// Requests a line from the coordinator.
pub(super) async fn connect(
    coordinator: &mpsc::Sender<CoordinatorEvent>,
    worker: WorkerId,
    incarnation: u64,
) -> Result<Line, Status> {
    let ended = || Status::unavailable("the job's coordinator has ended");
    let (reply, answer) = oneshot::channel();
    let event = CoordinatorEvent::Connect { worker, incarnation, reply };
    coordinator.send(event).await.map_err(|_| ended())?;
    answer.await.map_err(|_| ended())?
}

/// Passes a worker's words to the coordinator until the stream ends or stays silent for too long.
async fn read_words(
    mut words: Streaming<JobWord>,
    worker: WorkerId,
    line: u64,
    coordinator: mpsc::Sender<CoordinatorEvent>,
) {
    loop {
        let body = match timeout(HEARTBEAT_TIMEOUT, words.message()).await {
            Ok(Ok(Some(JobWord { body }))) => body,
            Ok(Ok(None) | Err(_)) | Err(_) => break,
        };
        if body.is_empty() {
            continue;
        }
        match decode(&body) {
            Ok(word) => {
                if coordinator.send(CoordinatorEvent::Word { worker, line, word }).await.is_err() {
                    return;
                }
            }
            Err(error) => {
                tracing::warn!(worker = worker.0, %error, "a word of a worker is not understood");
                break;
            }
        }
    }
    // A coordinator that has ended has no lines.
    let _ = coordinator.send(CoordinatorEvent::Ended { worker, line }).await;
}

/// The messages of a control stream: bodies, and a heartbeat whenever there was no body for a while.
pub(super) fn beating<T>(
    bodies: mpsc::Receiver<Bytes>,
    message: fn(Bytes) -> T,
) -> impl tokio_stream::Stream<Item = T> + Send {
    futures_util::stream::unfold(bodies, move |mut bodies| async move {
        let body = match timeout(HEARTBEAT_INTERVAL, bodies.recv()).await {
            Ok(Some(body)) => body,
            Ok(None) => return None,
            Err(_) => Bytes::new(),
        };
        Some((message(body), bodies))
    })
}
