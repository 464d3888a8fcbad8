//! What unknown clients may send and leave unread, against a gateway of a node without a cluster.

use std::collections::VecDeque;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use axum::Router;
use axum::body::{Bytes, HttpBody};
use axum::http::{HeaderMap, Request, Response, StatusCode};
use axum::middleware::from_fn_with_state;
use http_body::Frame;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::task::JoinHandle;
use tokio::time::{Instant, Sleep, sleep, timeout};
use tonic::body::Body;
use tonic::service::Routes;
use tonic::transport::Channel;
use tonic::{Code, Status};
use tower::{Service, ServiceExt};
use umbel_coordinator::Coordinator;
use umbel_ports::channel::channel_to;
use umbel_ports::testing::MemoryNet;
use umbel_ports::{ConnectionHandle, Net};
use umbel_proto::v1::peer_server::PeerServer;
use umbel_proto::v1::{Applied, ErrorCode, ErrorDetail};

use super::answers::paced;
use super::body::AdmittedBody;
use super::{Budgets, admit};
use crate::gateway_test::Nobody;
use crate::limits::{STREAM_TIMEOUT_DEFAULT, UNREAD_TIMEOUT};
use crate::{Budget, Gateway, serve};

mod links_test;

const SECOND: Duration = Duration::from_secs(1);

/// Longer than anything here may take.
const PATIENCE: Duration = Duration::from_secs(120);

const KIB: usize = 1024;

/// Serves a gateway whose requests may hold this many bytes in all.
async fn serving(request_bytes_max: u64) -> (Arc<dyn Net>, JoinHandle<()>) {
    let net: Arc<dyn Net> = Arc::new(MemoryNet::default());
    let listener = net.listen("node:1").await.unwrap();
    let coordinator = Coordinator::without_cluster();
    coordinator.callers().skip_catch_up();
    let gateway = Gateway {
        coordinator: Arc::new(coordinator),
        routes: Routes::new(PeerServer::new(Nobody)),
        render_metrics: None,
        timeout_max: Duration::from_secs(10),
        budget: Budget::new(request_bytes_max),
        needs_member: false,
        local_hosts: None,
        console: None,
    };
    let server = tokio::spawn(async move {
        serve(listener, gateway, std::future::pending()).await.unwrap();
    });
    (net, server)
}

/// A body whose pieces arrive with pauses between them; `ends` tells whether it ever ends.
struct Slow {
    pieces: VecDeque<Bytes>,
    pause: Duration,
    waiting: Option<Pin<Box<Sleep>>>,
    ends: bool,
}

/// A message of `bytes` bytes in pieces of `piece` bytes, of which only the first `count` arrive.
fn message(bytes: usize, piece: usize, count: usize, pause: Duration) -> Slow {
    let head = [vec![0], u32::try_from(bytes).unwrap().to_be_bytes().to_vec()].concat();
    // One unknown field of bytes fills the message.
    let mut field = vec![0xfa, 0x7f];
    prost::encode_length_delimiter(bytes - 2 - 4, &mut field).unwrap();
    while field.len() < 6 {
        let last = field.len() - 1;
        field[last] |= 0x80;
        field.push(0);
    }
    let whole = Bytes::from([head, field, vec![7; bytes - 6]].concat());
    let pieces =
        whole.chunks(piece).take(count).map(Bytes::copy_from_slice).collect::<VecDeque<_>>();
    let ends = pieces.iter().map(Bytes::len).sum::<usize>() == whole.len();
    Slow { pieces, pause, waiting: None, ends }
}

impl HttpBody for Slow {
    type Data = Bytes;
    type Error = std::convert::Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Self::Error>>> {
        if let Some(waiting) = &mut self.waiting {
            std::task::ready!(waiting.as_mut().poll(cx));
            self.waiting = None;
        }
        match self.pieces.pop_front() {
            Some(piece) => {
                if !self.pause.is_zero() {
                    self.waiting = Some(Box::pin(sleep(self.pause)));
                }
                Poll::Ready(Some(Ok(Frame::data(piece))))
            }
            None if self.ends => Poll::Ready(None),
            None => Poll::Pending,
        }
    }
}

/// Calls a method of the service `Filters`; returns the status, its message, and the seconds until it arrived.
async fn call(channel: Channel, method: &str, body: Slow) -> (Code, String, u64) {
    call_of("Filters", channel, method, body).await
}

/// The same for a method of any service.
async fn call_of(
    service: &str,
    mut channel: Channel,
    method: &str,
    body: Slow,
) -> (Code, String, u64) {
    let began = Instant::now();
    let request = Request::post(format!("http://node:1/umbel.v1.{service}/{method}"))
        .header("content-type", "application/grpc")
        .header("te", "trailers")
        .body(Body::new(body))
        .unwrap();
    let channel = channel.ready().await.unwrap();
    let response: Response<Body> =
        timeout(PATIENCE, channel.call(request)).await.expect("an answer").unwrap();
    let text = |headers: &HeaderMap, name: &str| {
        headers.get(name).map(|value| value.to_str().unwrap().to_owned()).unwrap_or_default()
    };
    let code = text(response.headers(), "grpc-status").parse::<i32>().unwrap();
    (Code::from(code), text(response.headers(), "grpc-message"), began.elapsed().as_secs())
}

#[tokio::test(start_paused = true)]
async fn a_request_that_does_not_come_is_ended() {
    let (net, _server) = serving(0).await;
    let channel = || channel_to(&net, "node:1", None).unwrap();
    for (method, count) in [("Drop", 0), ("Insert", 1), ("Import", 1)] {
        let half = message(1000 * KIB, KIB, count, Duration::ZERO);
        let (code, message, seconds) = call(channel(), method, half).await;
        assert_eq!((code, seconds), (Code::DeadlineExceeded, 10), "{method}: {message}");
    }
    // Half of the minimum rate: the bytes earn half of the time that they take.
    let trickle = message(8000 * KIB, 32 * KIB, 250, SECOND);
    let (code, message_text, seconds) = call(channel(), "Drop", trickle).await;
    assert_eq!(code, Code::DeadlineExceeded, "{message_text}");
    assert!((18..=22).contains(&seconds), "{seconds}");
}

#[tokio::test(start_paused = true)]
async fn a_request_that_comes_steadily_may_take_its_time() {
    let (net, _server) = serving(0).await;
    let channel = channel_to(&net, "node:1", None).unwrap();
    let steady = message(4000 * KIB, 100 * KIB, 41, SECOND);
    let (code, message, seconds) = call(channel, "Drop", steady).await;
    // The message has no name, which the node finds only when all of it has arrived.
    assert_eq!(code, Code::InvalidArgument, "{message}");
    assert!((39..=42).contains(&seconds), "{seconds}");
}

#[tokio::test(start_paused = true)]
async fn a_request_that_cannot_be_read_is_no_fault_of_the_node() {
    let (net, _server) = serving(0).await;
    let too_large: &'static [u8] = &[0, 1, 0x20, 0, 0];
    let no_message: &'static [u8] = &[0, 0, 0, 0, 1, 0xff];
    for (bytes, code) in [(too_large, Code::ResourceExhausted), (no_message, Code::InvalidArgument)]
    {
        let pieces = [Bytes::from_static(bytes)].into();
        let body = Slow { pieces, pause: Duration::ZERO, waiting: None, ends: true };
        let channel = channel_to(&net, "node:1", None).unwrap();
        let (got, message, _) = call(channel, "Drop", body).await;
        assert_eq!(got, code, "{message}");
        assert!(message.starts_with("the%20request%20cannot%20be%20read"), "{message}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_compressed_request_is_refused_with_details() {
    let (net, _server) = serving(0).await;
    for method in ["Drop", "Import", "InsertStream"] {
        let request = Request::post(format!("http://node:1/umbel.v1.Filters/{method}"))
            .header("content-type", "application/grpc")
            .header("te", "trailers")
            .header("grpc-encoding", "gzip")
            .body(Body::empty())
            .unwrap();
        let mut channel = channel_to(&net, "node:1", None).unwrap();
        let channel = channel.ready().await.unwrap();
        let response: Response<Body> = channel.call(request).await.unwrap();
        let status = Status::from_header_map(response.headers()).unwrap();
        // As gRPC prescribes.
        let accepted = status.metadata().get("grpc-accept-encoding").unwrap().to_str().unwrap();
        assert_eq!((status.code(), accepted), (Code::Unimplemented, "identity"));
        let text = status.message();
        assert!(text.starts_with("requests must not be compressed: "), "{method}: {text}");
        let detail: ErrorDetail = umbel_proto::detail_of(&status).unwrap();
        assert_eq!((detail.code(), detail.applied()), (ErrorCode::Invalid, Applied::No));
    }
}

#[tokio::test(start_paused = true)]
async fn half_sent_requests_make_room_for_whole_ones() {
    let (net, _server) = serving(2000 * KIB as u64).await;
    let channel = channel_to(&net, "node:1", None).unwrap();
    let half = || message(1000 * KIB, KIB, 900, Duration::ZERO);
    let halves: Vec<_> =
        (0..8).map(|_| tokio::spawn(call(channel.clone(), "Drop", half()))).collect();
    // Requests without room end older ones, so at most two are left.
    let mut answered = Vec::new();
    for half in halves {
        let (code, message, seconds) = half.await.unwrap();
        answered.push((code, seconds));
        assert!(matches!(code, Code::Unavailable | Code::DeadlineExceeded), "{message}");
    }
    let refused = answered.iter().filter(|&&answer| answer == (Code::Unavailable, 0)).count();
    assert!(refused >= 6, "{answered:?}");
    // A whole request succeeds while others are half sent.
    let standing: Vec<_> =
        (0..2).map(|_| tokio::spawn(call(channel.clone(), "Drop", half()))).collect();
    sleep(SECOND).await;
    let whole = message(1000 * KIB, 100 * KIB, 11, Duration::ZERO);
    let (code, message_text, seconds) = call(channel.clone(), "Drop", whole).await;
    assert_eq!((code, seconds), (Code::InvalidArgument, 0), "{message_text}");
    for half in standing {
        half.await.unwrap();
    }
    // A request that is larger than the whole budget has no room.
    let large = message(3000 * KIB, 100 * KIB, 31, Duration::ZERO);
    let (code, message_text, _) = call(channel, "Drop", large).await;
    assert_eq!(code, Code::Unavailable, "{message_text}");
    assert!(message_text.contains("send%20again%20later"), "{message_text}");
}

/// Without TLS whoever reaches the node can make the calls of nodes.
#[tokio::test(start_paused = true)]
async fn calls_of_nodes_are_bounded_apart_from_those_of_clients() {
    // Clients could not call at all.
    let (net, _server) = serving(1).await;
    let channel = channel_to(&net, "node:1", None).unwrap();
    let call = |method, body| call_of("Peer", channel.clone(), method, body);
    for method in ["Adopt", "WhoAreYou"] {
        let half = message(1000 * KIB, KIB, 1, Duration::ZERO);
        let (code, message, seconds) = call(method, half).await;
        assert_eq!((code, seconds), (Code::DeadlineExceeded, 10), "{method}: {message}");
    }
    // Of 14 halves with 900 KiB each there is room for nine.
    let halves = (0..14).map(|_| message(1000 * KIB, KIB, 900, Duration::ZERO));
    let halves: Vec<_> = halves
        .map(|half| tokio::spawn(call_of("Peer", channel.clone(), "WhoAreYou", half)))
        .collect();
    sleep(SECOND).await;
    let whole = message(100 * KIB, 100 * KIB, 2, Duration::ZERO);
    let (code, message_text, seconds) = call("Adopt", whole).await;
    assert_eq!((code, seconds), (Code::Unavailable, 0), "{message_text}");
    assert!(message_text.contains("nobody"), "it came to the node's service: {message_text}");
    let mut refused = 0;
    for half in halves {
        let (code, message, _) = half.await.unwrap();
        match code {
            Code::Unavailable => refused += 1,
            code => assert_eq!(code, Code::DeadlineExceeded, "{message}"),
        }
    }
    assert!((5..14).contains(&refused), "{refused}");
}

#[tokio::test(start_paused = true)]
async fn a_connection_that_does_not_go_on_is_closed() {
    let (net, _server) = serving(0).await;
    let preface = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
    let settings = [0, 0, 0, 4, 0, 0, 0, 0, 0];
    // A header block that continues in another frame.
    let headers = [0, 0, 1, 1, 0, 0, 0, 0, 1, 0x82];
    let begun = [
        b"".to_vec(),
        b"PRI * HT".to_vec(),
        b"GET /livez HTTP/1.1\r\nhost:".to_vec(),
        [preface.to_vec(), settings.to_vec(), vec![0, 0]].concat(),
        [preface.to_vec(), settings.to_vec(), headers.to_vec()].concat(),
    ];
    for bytes in begun {
        let began = Instant::now();
        let mut stream = net.connect("node:1").await.unwrap();
        stream.write_all(&bytes).await.unwrap();
        let mut answer = Vec::new();
        let closed = timeout(PATIENCE, stream.read_to_end(&mut answer)).await;
        assert!(closed.is_ok(), "{bytes:?}");
        assert_eq!(began.elapsed().as_secs(), 10, "{bytes:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_connection_that_is_always_within_a_frame_goes_on() {
    let (net, _server) = serving(0).await;
    let mut stream = net.connect("node:1").await.unwrap();
    let ping = [0, 0, 8, 6, 0, 0, 0, 0, 0, 1, 2, 3, 4, 5, 6, 7, 8];
    let begun = [b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".as_slice(), &[0, 0, 0, 4, 0, 0, 0, 0, 0]];
    stream.write_all(&begun.concat()).await.unwrap();
    stream.write_all(&ping[..10]).await.unwrap();
    // Less time than the node takes to miss answers to its own pings.
    for _ in 0..5 {
        sleep(6 * SECOND).await;
        stream.write_all(&[&ping[10..], &ping[..10]].concat()).await.unwrap();
    }
    let mut answer = Vec::new();
    assert!(timeout(SECOND, stream.read_to_end(&mut answer)).await.is_err(), "it was closed");
}

/// An endless body with parts of one byte; `_kept` shows whether it was dropped.
struct Endless {
    _kept: Arc<()>,
}

impl HttpBody for Endless {
    type Data = Bytes;
    type Error = std::convert::Infallible;

    fn poll_frame(
        self: Pin<&mut Self>,
        _cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Self::Error>>> {
        Poll::Ready(Some(Ok(Frame::data(Bytes::from_static(b"x")))))
    }
}

async fn next(body: &mut axum::body::Body) -> Option<Frame<Bytes>> {
    std::future::poll_fn(|cx| Pin::new(&mut *body).poll_frame(cx)).await.map(Result::unwrap)
}

/// The second message began to arrive with the first one, on which the reader spends half a minute.
#[tokio::test(start_paused = true)]
async fn a_message_is_not_late_while_its_reader_is_busy() {
    let message = [&[0, 0, 0, 0, 4][..], b"1234"].concat();
    let begun = Bytes::from([&message[..], &message[..6]].concat());
    let pieces = [begun, Bytes::copy_from_slice(&message[6..])].into();
    let slow = Slow { pieces, pause: 35 * SECOND, waiting: None, ends: true };
    let lease = Budget::new(0).lease();
    let body = AdmittedBody::new(axum::body::Body::new(slow), lease, true, None);
    let mut body = axum::body::Body::new(body);
    assert!(next(&mut body).await.unwrap().is_data());
    sleep(30 * SECOND).await;
    assert!(next(&mut body).await.unwrap().is_data());
    assert!(next(&mut body).await.is_none());
}

#[tokio::test(start_paused = true)]
async fn open_streams_make_room_only_with_what_they_hold() {
    for (bytes, is_ended) in [(10 * KIB, false), (100 * KIB, true)] {
        let budget = Budget::new(200 * KIB as u64);
        let slow = Slow { ends: false, ..message(bytes, bytes + 5, 1, Duration::ZERO) };
        let body = AdmittedBody::new(axum::body::Body::new(slow), budget.lease(), true, None);
        let mut body = axum::body::Body::new(body);
        assert!(next(&mut body).await.unwrap().is_data());
        assert!(timeout(SECOND, next(&mut body)).await.is_err(), "nothing more comes");
        let mut other = axum::body::Body::new(AdmittedBody::new(
            axum::body::Body::new(message(150 * KIB, 150 * KIB + 5, 1, Duration::ZERO)),
            budget.lease(),
            false,
            None,
        ));
        assert!(next(&mut other).await.unwrap().is_data());
        let polled = std::future::poll_fn(|cx| Pin::new(&mut body).poll_frame(cx));
        let polled = timeout(SECOND, polled).await;
        assert_eq!(matches!(polled, Ok(Some(Err(_)))), is_ended, "{bytes} bytes");
    }
}

#[tokio::test(start_paused = true)]
async fn answers_that_nobody_reads_are_given_up() {
    let kept = Arc::new(());
    let connection = ConnectionHandle::default();
    let began = Instant::now();
    let body = axum::body::Body::new(Endless { _kept: Arc::clone(&kept) });
    let mut body = paced(body, Some(connection.clone()), None);
    for _ in 0..3 {
        assert!(next(&mut body).await.unwrap().is_data());
        // Slow, but not too slow.
        sleep(UNREAD_TIMEOUT - SECOND).await;
    }
    assert_eq!(Arc::strong_count(&kept), 2);
    let ended = std::future::poll_fn(|cx| connection.poll_ended(cx));
    timeout(PATIENCE, ended).await.unwrap();
    assert_eq!(Arc::strong_count(&kept), 1);
    assert_eq!(began.elapsed().as_secs(), 2 * (UNREAD_TIMEOUT - SECOND).as_secs() + 30);
}

#[tokio::test(start_paused = true)]
async fn answers_end_after_their_time() {
    let kept = Arc::new(());
    let began = Instant::now();
    let body = axum::body::Body::new(Endless { _kept: Arc::clone(&kept) });
    let mut body = paced(body, None, Some(began + STREAM_TIMEOUT_DEFAULT));
    let trailers = loop {
        match next(&mut body).await.unwrap().into_trailers() {
            Ok(trailers) => break trailers,
            Err(_) => sleep(SECOND).await,
        }
    };
    assert_eq!(trailers["grpc-status"], "4");
    assert!(next(&mut body).await.is_none());
    assert_eq!(Arc::strong_count(&kept), 1);
    let seconds = began.elapsed().as_secs();
    assert!((900..=901).contains(&seconds), "{seconds}");
}
