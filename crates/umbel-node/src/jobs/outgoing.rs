//! Frames to other workers: a queue and a stream for each.

use std::sync::Arc;

use bytes::Bytes;
use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, timeout_at};
use tonic::Streaming;
use tonic::transport::Channel;
use umbel_engine::dedup::{Grid, Passage, RelayError, Route, WorkerId};
use umbel_engine::planted::{self, Planted};
use umbel_proto::v1::JobFramesEnd;
use umbel_proto::v1::job_exchange_client::JobExchangeClient;

use super::lane::LaneEvent;
use super::limits::{BACKOFF_MAX, BACKOFF_MIN, FRAMES_MESSAGE_BYTES_MAX, FRAMES_PATIENCE};
use super::packing::Outgoing;
use super::wire::{Identity, is_final, status_text};
use crate::peer::channel::channel;
use crate::ports::Net;

/// What it takes to reach the other workers.
#[derive(Clone)]
pub(super) struct Reach {
    pub(super) identity: Arc<Identity>,
    /// By worker.
    pub(super) addresses: Arc<Vec<String>>,
    pub(super) net: Arc<dyn Net>,
}

impl Reach {
    /// A channel to a worker's process, which connects when it is first used.
    pub(super) fn channel(&self, to: WorkerId) -> Result<Channel, String> {
        let address = self.addresses.get(to.index()).map_or("", String::as_str);
        channel(&self.net, address).map_err(|error| error.to_string())
    }
}

/// The queues of an attempt. What waits in them is bounded by the windows in which cells are opened:
/// a sender has few cells under way, and an owner answers only those.
///
/// Every pair of neighbours has a stream of its own: all workers, or those of one row or column of the
/// grid. A frame for another one goes by the relay of the pair, which puts it behind its own.
pub(super) struct PeerQueues {
    me: WorkerId,
    route: Route,
    grid: Grid,
    queues: Vec<Option<mpsc::UnboundedSender<Bytes>>>,
}

/// What came from a neighbour.
pub(super) enum Arrival {
    /// A frame of that worker for this one.
    Here(WorkerId, Vec<u8>),
    /// A frame for another one, which has it next.
    PassedOn,
}

impl PeerQueues {
    /// Opens a stream to every neighbour, each in a task of `tasks`.
    pub(super) fn open(
        reach: &Reach,
        attempt: u32,
        events: &mpsc::UnboundedSender<LaneEvent>,
        tasks: &mut JoinSet<()>,
        runtime: &tokio::runtime::Handle,
    ) -> Self {
        let (me, route, grid) =
            (reach.identity.worker, reach.identity.route, reach.identity.grid());
        let mut queues: Vec<_> = (0..grid.workers()).map(|_| None).collect();
        for peer in grid.neighbours(me) {
            let (sender, frames) = mpsc::unbounded_channel();
            let (reach, events) = (reach.clone(), events.clone());
            let feed = async move {
                let cause = feed(&reach, attempt, peer, frames).await;
                let _ = events.send(LaneEvent::Trouble { peer, cause });
            };
            tasks.spawn_on(feed, runtime);
            if let Some(queue) = queues.get_mut(peer.index()) {
                *queue = Some(sender);
            }
        }
        Self { me, route, grid, queues }
    }

    /// Puts a frame behind those that wait for a worker.
    pub(super) fn send(&self, to: WorkerId, frame: Vec<u8>) {
        let bytes = match self.route {
            Route::Direct => frame,
            Route::Grid => Passage { from: self.me, to, frame: &frame }.to_bytes(),
        };
        self.queue(self.grid.next_hop(self.me, to), bytes);
    }

    /// Takes what came from a neighbour, and hands on what is another's.
    ///
    /// # Errors
    /// If it has no business here.
    pub(super) fn arrived(
        &self,
        neighbour: WorkerId,
        mut bytes: Vec<u8>,
    ) -> Result<Arrival, RelayError> {
        if self.route == Route::Direct {
            return Ok(Arrival::Here(neighbour, bytes));
        }
        let Passage { from, to, frame } = Passage::read(&bytes, self.grid, self.me, neighbour)?;
        if to == self.me {
            let head_bytes = bytes.len() - frame.len();
            bytes.drain(..head_bytes);
            let from = if planted::on(Planted::RelayedAsOwn) { neighbour } else { from };
            return Ok(Arrival::Here(from, bytes));
        }
        self.queue(to, bytes);
        Ok(Arrival::PassedOn)
    }

    fn queue(&self, hop: WorkerId, bytes: Vec<u8>) {
        if let Some(Some(queue)) = self.queues.get(hop.index()) {
            // A stream that has ended has told of its trouble.
            let _ = queue.send(bytes.into());
        }
    }
}

/// Sends frames until the stream ends, which an attempt does not want. Returns why it did.
async fn feed(
    reach: &Reach,
    attempt: u32,
    to: WorkerId,
    frames: mpsc::UnboundedReceiver<Bytes>,
) -> String {
    let (_client, mut answers) = match connect(reach, attempt, to, frames).await {
        Ok(connected) => connected,
        Err(cause) => return cause,
    };
    match answers.message().await {
        Ok(_) => "it takes no more frames".to_owned(),
        Err(status) => status_text(&status),
    }
}

type Connected = (JobExchangeClient<Channel>, Streaming<JobFramesEnd>);

async fn connect(
    reach: &Reach,
    attempt: u32,
    to: WorkerId,
    frames: mpsc::UnboundedReceiver<Bytes>,
) -> Result<Connected, String> {
    let deadline = Instant::now() + FRAMES_PATIENCE;
    let mut pause = BACKOFF_MIN;
    let mut client = JobExchangeClient::new(reach.channel(to)?)
        .max_encoding_message_size(FRAMES_MESSAGE_BYTES_MAX);
    loop {
        let (accept, accepted) = oneshot::channel();
        let request = reach.identity.request(Outgoing::new(accepted), to, attempt);
        match timeout_at(deadline, client.frames(request)).await {
            Ok(Ok(response)) => {
                // If the stream has gone already, its answers say so.
                let _ = accept.send(frames);
                return Ok((client, response.into_inner()));
            }
            Ok(Err(status)) if is_final(&status) || Instant::now() + pause >= deadline => {
                return Err(status_text(&status));
            }
            Ok(Err(_)) => sleep(pause).await,
            Err(_) => {
                let seconds = FRAMES_PATIENCE.as_secs();
                return Err(format!("it accepted no frames within {seconds} s"));
            }
        }
        pause = (2 * pause).min(BACKOFF_MAX);
    }
}
