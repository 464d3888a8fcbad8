//! Frames to other workers: a queue and a stream for each.

use std::sync::Arc;

use bytes::Bytes;
use tokio::sync::{Semaphore, mpsc, oneshot};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, timeout_at};
use tonic::Streaming;
use tonic::transport::Channel;
use umbel_dedup_engine::{Grid, Passage, RelayError, Route, WorkerId};
use umbel_ports::Net;
use umbel_ports::channel::channel;
use umbel_proto::v1::JobFramesEnd;
use umbel_proto::v1::job_exchange_client::JobExchangeClient;
use umbel_step::planted::{self, Planted};

use super::cell_task::CellTaskEvent;
use super::limits::{
    BACKOFF_MAX, BACKOFF_MIN, FRAMES_MESSAGE_BYTES_MAX, FRAMES_PATIENCE, PASSED_ON_BYTES_MAX,
};
use super::packing::{Outgoing, Waiting};
use super::wire::{Carries, Identity, is_final, status_text};

/// What is needed to reach the other workers.
#[derive(Clone)]
pub(super) struct Reach {
    pub(super) identity: Arc<Identity>,
    /// Addresses, by worker.
    pub(super) addresses: Arc<Vec<String>>,
    pub(super) net: Arc<dyn Net>,
}

impl Reach {
    /// A channel to a worker's process, which connects when first used.
    pub(super) fn channel(&self, to: WorkerId) -> Result<Channel, String> {
        let address = self.addresses.get(to.index()).map_or("", String::as_str);
        channel(&self.net, address).map_err(|error| error.to_string())
    }
}

/// The queues of an attempt. The windows in which cells are opened bound how many of this worker's own
/// frames wait: a sender has few cells open, and an owner answers only those. Before that, it is this worker's sample, and
/// after it, while groups are counted, its claims on one range of each owner, which asks for the next range once all
/// workers have answered; an owner that does not wait gets each claim once nevertheless.
///
/// Every pair of neighbours has a stream: all workers, or the workers in the same row or column of the
/// grid. A frame for another worker travels over the pair's relay, in the relay's separate stream for
/// frames that it passes on.
pub(super) struct PeerQueues {
    me: WorkerId,
    route: Route,
    grid: Grid,
    own: Vec<Option<mpsc::UnboundedSender<Waiting>>>,
    passed_on: Vec<Option<PassOn>>,
}

/// Relayed frames that wait for a neighbour. This worker does not limit their senders, so the room is
/// bounded: [`PASSED_ON_BYTES_MAX`], or one frame.
struct PassOn {
    frames: mpsc::UnboundedSender<Waiting>,
    room: Arc<Semaphore>,
}

impl PassOn {
    fn new(frames: mpsc::UnboundedSender<Waiting>) -> Self {
        Self { frames, room: Arc::new(Semaphore::new(PASSED_ON_BYTES_MAX)) }
    }

    /// Appends a frame once there is room.
    async fn send(&self, frame: Bytes) {
        // For short frames, the place in the queue dominates the cost.
        let bytes = (frame.len() + size_of::<Waiting>()).min(PASSED_ON_BYTES_MAX);
        let bytes = u32::try_from(bytes).expect("the limit is less");
        let room = Arc::clone(&self.room).acquire_many_owned(bytes).await;
        let room = Some(room.expect("nobody closes it"));
        // A stream that has ended has reported its trouble, and freed its room.
        let _ = self.frames.send(Waiting { frame, room });
    }
}

/// A frame that arrived from a neighbour.
pub(super) enum Arrival {
    /// A frame from that worker for this one.
    Here(WorkerId, Vec<u8>),
    /// A frame to be passed on to that worker, a neighbour.
    Elsewhere(WorkerId, Vec<u8>),
}

impl PeerQueues {
    /// Opens streams to all neighbours, each in a task of `tasks`.
    pub(super) fn open(
        reach: &Reach,
        attempt: u32,
        events: &mpsc::UnboundedSender<CellTaskEvent>,
        tasks: &mut JoinSet<()>,
        runtime: &tokio::runtime::Handle,
    ) -> Self {
        let (me, route, grid) =
            (reach.identity.worker, reach.identity.route, reach.identity.grid());
        let mut stream = |peer, carries| {
            // Bounded by what is put into it: see `PeerQueues` and `PassOn`.
            let (sender, frames) = mpsc::unbounded_channel();
            let (reach, events) = (reach.clone(), events.clone());
            let feed = async move {
                let cause = feed(&reach, attempt, peer, carries, frames).await;
                let _ = events.send(CellTaskEvent::Trouble { peer, cause });
            };
            tasks.spawn_on(feed, runtime);
            sender
        };
        let mut own: Vec<_> = (0..grid.workers()).map(|_| None).collect();
        let mut passed_on: Vec<_> = (0..grid.workers()).map(|_| None).collect();
        for peer in grid.neighbours(me) {
            own[peer.index()] = Some(stream(peer, Carries::Own));
            if route == Route::Grid {
                passed_on[peer.index()] = Some(PassOn::new(stream(peer, Carries::PassedOn)));
            }
        }
        Self { me, route, grid, own, passed_on }
    }

    /// Appends a frame to the queue of a worker.
    pub(super) fn send(&self, to: WorkerId, frame: Vec<u8>) {
        let bytes = match self.route {
            Route::Direct => frame,
            Route::Grid => Passage { from: self.me, to, frame: &frame }.to_bytes(),
        };
        let hop = self.grid.next_hop(self.me, to);
        if let Some(Some(queue)) = self.own.get(hop.index()) {
            // A stream that has ended has reported its trouble.
            let _ = queue.send(Waiting { frame: bytes.into(), room: None });
        }
    }

    /// Decides where a frame from a neighbour goes.
    ///
    /// # Errors
    /// If the frame does not belong here, or not into this stream.
    pub(super) fn arrived(
        &self,
        neighbour: WorkerId,
        carries: Carries,
        mut bytes: Vec<u8>,
    ) -> Result<Arrival, RelayError> {
        if self.route == Route::Direct {
            return Ok(Arrival::Here(neighbour, bytes));
        }
        let me = self.me;
        let Passage { from, to, frame } = Passage::read(&bytes, self.grid, me, neighbour)?;
        if (from == neighbour) != (carries == Carries::Own) {
            return Err(RelayError::Path { from, to, neighbour, me });
        }
        if to == me {
            let head_bytes = bytes.len() - frame.len();
            bytes.drain(..head_bytes);
            let from = if planted::on(Planted::RelayedAsOwn) { neighbour } else { from };
            return Ok(Arrival::Here(from, bytes));
        }
        Ok(Arrival::Elsewhere(to, bytes))
    }

    /// Passes another worker's frame on to a neighbour, once there is room.
    pub(super) async fn pass_on(&self, to: WorkerId, bytes: Vec<u8>) {
        if let Some(Some(queue)) = self.passed_on.get(to.index()) {
            queue.send(bytes.into()).await;
        }
    }
}

/// Sends frames until the stream ends, which must not happen during an attempt. Returns the reason.
async fn feed(
    reach: &Reach,
    attempt: u32,
    to: WorkerId,
    carries: Carries,
    frames: mpsc::UnboundedReceiver<Waiting>,
) -> String {
    let (_client, mut answers) = match connect(reach, attempt, to, carries, frames).await {
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
    carries: Carries,
    frames: mpsc::UnboundedReceiver<Waiting>,
) -> Result<Connected, String> {
    let deadline = Instant::now() + FRAMES_PATIENCE;
    let mut pause = BACKOFF_MIN;
    let mut client = JobExchangeClient::new(reach.channel(to)?)
        .max_encoding_message_size(FRAMES_MESSAGE_BYTES_MAX);
    loop {
        let (accept, accepted) = oneshot::channel();
        let request = reach.identity.request(Outgoing::new(accepted), to, attempt, carries);
        match timeout_at(deadline, client.frames(request)).await {
            Ok(Ok(response)) => {
                // If the stream has ended already, its responses tell.
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

#[cfg(test)]
mod tests {
    use futures_util::FutureExt;
    use tokio_stream::StreamExt;

    use super::*;

    #[tokio::test]
    async fn who_passes_frames_on_waits_for_room() {
        let (sender, frames) = mpsc::unbounded_channel();
        let queue = PassOn::new(sender);
        let frame = |bytes| Bytes::from(vec![7; bytes]);
        // A frame larger than the whole room waits alone.
        assert!(queue.send(frame(PASSED_ON_BYTES_MAX + 1)).now_or_never().is_some());
        let mut second = std::pin::pin!(queue.send(frame(1)));
        assert!(second.as_mut().now_or_never().is_none());
        let (accept, accepted) = oneshot::channel();
        let mut outgoing = Outgoing::new(accepted);
        accept.send(frames).unwrap_or_else(|_| panic!("somebody waits"));
        // It frees its room once its first part is being sent.
        assert!(outgoing.next().await.is_some_and(|message| message.is_cut));
        assert!(second.now_or_never().is_some());
        let share = PASSED_ON_BYTES_MAX / 10 - 2 * size_of::<Waiting>();
        for _ in 0..10 {
            assert!(queue.send(frame(share)).now_or_never().is_some());
        }
        assert!(queue.send(frame(share)).now_or_never().is_none());
        // A stream that is gone accepts everything and keeps nothing.
        drop(outgoing);
        for _ in 0..20 {
            assert!(queue.send(frame(share)).now_or_never().is_some());
        }
    }

    #[test]
    fn frames_come_in_the_stream_of_their_kind() {
        // 0 reaches 3 through 1, whose own frames travel in another stream.
        let (me, grid) = (WorkerId(3), Grid::new(4, Route::Grid));
        let queues = PeerQueues { me, route: Route::Grid, grid, own: vec![], passed_on: vec![] };
        for (from, kind, other) in [
            (WorkerId(0), Carries::PassedOn, Carries::Own),
            (WorkerId(1), Carries::Own, Carries::PassedOn),
        ] {
            let bytes = Passage { from, to: me, frame: b"hello" }.to_bytes();
            match queues.arrived(WorkerId(1), kind, bytes.clone()) {
                Ok(Arrival::Here(maker, frame)) => {
                    assert_eq!((maker, &frame[..]), (from, &b"hello"[..]));
                }
                _ => panic!("a frame of {from:?}"),
            }
            assert!(queues.arrived(WorkerId(1), other, bytes).is_err());
        }
    }
}
