//! Tests of streams: their order, bounds and ends with requests that take a given time, and what they share with
//! calls of their own on a node.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use futures_util::stream;
use tokio::time::sleep;
use tonic::Code;
use tonic::transport::Channel;
use umbel_engine::meta::{
    ClusterVerb, FilterVerb, MetaCommand, PrincipalName, Quota, Rates, Rights,
};
use umbel_filter::Kind;
use umbel_ports::channel::channel_to;
use umbel_ports::{Net, PeerIdentity, RealNet};
use umbel_proto::v1::filters_client::FiltersClient;
use umbel_proto::v1::insert_answer::Outcome;

use super::*;
use crate::caller::Need;
use crate::test_node::{Node, SECRET, create, deadline, grant, put, start_alone};

/// More than enough for the streams of these tests.
const ROOM: u64 = 4 << 20;

/// Longer than everything that waits for a time takes.
const LONG: Duration = Duration::from_secs(3600);

/// A request that fails.
const FAILS: u32 = u32::MAX;

/// A request that takes so many seconds.
#[derive(Clone, PartialEq, prost::Message)]
struct Takes {
    #[prost(uint32, tag = "1")]
    seconds: u32,
    #[prost(message, optional, tag = "2")]
    items: Option<v1::Items>,
}

impl ItemRequest for Takes {
    const METHOD: &'static str = "takes";
    type Response = u32;
    type Answer = Result<u32, Code>;

    fn items_mut(&mut self) -> Option<&mut v1::Items> {
        self.items.as_mut()
    }

    fn timeout_ms(&self) -> u32 {
        0
    }

    async fn carry_out(
        self,
        _coordinator: Arc<Coordinator>,
        _caller: Caller,
        _deadline: Instant,
    ) -> Result<u32, CallFailure> {
        if self.seconds == FAILS {
            return Err(CallFailure::Invalid { what: "it fails".to_owned() });
        }
        sleep(Duration::from_secs(self.seconds.into())).await;
        Ok(self.seconds)
    }

    fn answer(outcome: Result<u32, Status>) -> Result<u32, Code> {
        outcome.map_err(|status| status.code())
    }
}

/// A node whose requests may hold this many bytes, and what makes it stop.
fn streams(bytes_max: u64) -> (ItemStreams, watch::Sender<bool>) {
    let (stop, is_stopping) = watch::channel(false);
    (ItemStreams { budget: Budget::new(bytes_max), is_stopping }, stop)
}

/// The answers that another node gets.
fn open_to_node<R>(
    requests: R,
    streams: &ItemStreams,
) -> Result<BoxStream<Result<u32, Code>>, Status>
where
    R: Stream<Item = Result<Takes, Status>> + Send + Unpin + 'static,
{
    let coordinator = Arc::new(Coordinator::without_cluster());
    let entrance = Entrance {
        coordinator: Arc::clone(&coordinator),
        needs_member: false,
        connection: PeerIdentity::Node,
        from: None,
        shown: None,
        path: "".into(),
        need: Need::Filter(FilterVerb::Insert),
    };
    let deadlines = Deadlines::new(Duration::from_secs(10));
    Ok(Box::pin(answers(requests, streams, Terms { coordinator, deadlines, entrance })?))
}

/// Requests that take these times.
fn taking<const N: usize>(
    seconds: [u32; N],
) -> impl Stream<Item = Result<Takes, Status>> + Send + Unpin + 'static {
    stream::iter(seconds.map(|seconds| Ok(Takes { seconds, items: None })))
}

async fn next(answers: &mut BoxStream<Result<u32, Code>>) -> Result<u32, Code> {
    answers.next().await.expect("an answer").expect("no end")
}

#[tokio::test(start_paused = true)]
async fn answers_come_in_order_and_a_failure_is_that_of_one_request() {
    let (streams, _stop) = streams(ROOM);
    let began = Instant::now();
    let answers = open_to_node(taking([5, 0, 3, FAILS, 1]), &streams).unwrap();
    let answers: Vec<_> = answers.map(Result::unwrap).collect().await;
    assert_eq!(answers, [Ok(5), Ok(0), Ok(3), Err(Code::InvalidArgument), Ok(1)]);
    assert_eq!(began.elapsed().as_secs(), 5, "they are carried out at the same time");
}

#[tokio::test(start_paused = true)]
async fn a_request_that_cannot_be_read_ends_its_stream_with_details() {
    let (streams, _stop) = streams(ROOM);
    let requests = [Ok(Takes { seconds: 1, items: None }), Err(Status::out_of_range("too long"))];
    let mut answers = open_to_node(stream::iter(requests), &streams).unwrap();
    assert_eq!(next(&mut answers).await, Ok(1));
    let end = answers.next().await.expect("a status").unwrap_err();
    assert_eq!(end.code(), Code::ResourceExhausted);
    let detail: v1::ErrorDetail = umbel_proto::detail_of(&end).unwrap();
    assert_eq!((detail.code(), detail.applied()), (v1::ErrorCode::Invalid, v1::Applied::No));
    assert!(answers.next().await.is_none());
}

#[tokio::test(start_paused = true)]
async fn from_a_client_that_does_not_read_no_more_is_read() {
    let (streams, _stop) = streams(ROOM);
    let taken = Arc::new(AtomicUsize::new(0));
    let counter = Arc::clone(&taken);
    let endless = (0..).map(move |_: u64| {
        counter.fetch_add(1, Ordering::Relaxed);
        Ok(Takes { seconds: 0, items: None })
    });
    let mut answers = open_to_node(stream::iter(endless), &streams).unwrap();
    sleep(LONG).await;
    assert_eq!(taken.load(Ordering::Relaxed), ITEM_STREAM_REQUESTS_MAX);
    for _ in 0..10 {
        assert_eq!(next(&mut answers).await, Ok(0));
    }
    sleep(LONG).await;
    assert_eq!(taken.load(Ordering::Relaxed), ITEM_STREAM_REQUESTS_MAX + 10);
    assert!(streams.budget.hold(ROOM).is_err(), "requests hold some of it");
    drop(answers);
    sleep(LONG).await;
    assert!(streams.budget.hold(ROOM).is_ok(), "nothing is held any more");
}

#[tokio::test(start_paused = true)]
async fn a_request_without_room_is_refused_alone_and_a_stream_is_not_opened() {
    // Two requests do not fit, because of their own bytes.
    let (tight, _stop) = streams(ITEM_STREAM_BYTES + 2 * ITEM_STREAM_REQUEST_BYTES);
    let mut answers = open_to_node(taking([2, 3]), &tight).unwrap();
    assert_eq!(next(&mut answers).await, Ok(2));
    assert_eq!(next(&mut answers).await, Err(Code::Unavailable));
    assert!(answers.next().await.is_none());
    let (none, _stop) = streams(ITEM_STREAM_BYTES - 1);
    let refused = open_to_node(taking([1]), &none).err().map(|status| status.code());
    assert_eq!(refused, Some(Code::Unavailable));
}

/// Items count with the memory that they take, or with their bytes where these are more.
#[tokio::test(start_paused = true)]
async fn a_request_holds_what_its_items_take() {
    for (item, byte_count) in [(&b""[..], 64_000), (&[7; 100], 102_000)] {
        let items = vec![Bytes::from_static(item); 1000];
        let items = Some(v1::Items { items, ..v1::Items::default() });
        let request = |seconds| Ok(Takes { seconds, items: items.clone() });
        // Some bytes for the fields around the items, and no room for a second request.
        let room = ITEM_STREAM_BYTES + ITEM_STREAM_REQUEST_BYTES + byte_count;
        for (room, first) in [(room + 32, Ok(1)), (room - 1, Err(Code::Unavailable))] {
            let (streams, _stop) = streams(room);
            let requests = stream::iter([request(1), request(2)]);
            let mut answers = open_to_node(requests, &streams).unwrap();
            assert_eq!(next(&mut answers).await, first);
            assert_eq!(next(&mut answers).await, Err(Code::Unavailable));
        }
    }
}

#[tokio::test(start_paused = true)]
async fn what_was_read_is_answered_before_a_stream_ends() {
    for is_stop in [true, false] {
        let (streams, stop) = streams(ROOM);
        let broken = stream::once(async { Err::<Takes, _>(Status::out_of_range("too long")) });
        let rest = if is_stop {
            stream::pending::<Result<Takes, Status>>().left_stream()
        } else {
            broken.right_stream()
        };
        let requests = Box::pin(taking([5]).chain(rest));
        let mut answers = open_to_node(requests, &streams).unwrap();
        sleep(Duration::from_secs(1)).await;
        if is_stop {
            stop.send_replace(true);
        }
        assert_eq!(next(&mut answers).await, Ok(5));
        let end = answers.next().await.unwrap().unwrap_err();
        let expected = if is_stop { Code::Unavailable } else { Code::ResourceExhausted };
        assert_eq!(end.code(), expected, "{end}");
        assert!(answers.next().await.is_none());
    }
}

/// A short item in progress must not keep the memory of what came with it.
#[test]
fn items_leave_the_buffer_in_which_they_came() {
    let buffer = Bytes::from(vec![7; 1000]);
    let packed = v1::PackedItems { data: buffer.slice(10..20), item_bytes: vec![10] };
    let mut items = v1::Items {
        items: vec![buffer.slice(..3), buffer.slice(5..5)],
        packed: Some(packed),
        hashes: buffer.slice(100..116),
        hash_seed: 9,
    };
    let before = items.clone();
    detach(&mut items);
    assert_eq!(items, before);
    drop(before);
    assert!(buffer.is_unique());
}

/// A stream of inserts, at its client.
struct Inserts {
    requests: mpsc::Sender<v1::InsertRequest>,
    answers: Streaming<v1::InsertAnswer>,
}

impl Inserts {
    async fn open(filters: &mut FiltersClient<Channel>, token: Option<&str>) -> Self {
        let (requests, receiver) = mpsc::channel(1);
        let mut request = Request::new(ReceiverStream::new(receiver));
        if let Some(token) = token {
            let shown = format!("Bearer {token}").parse().unwrap();
            request.metadata_mut().insert("authorization", shown);
        }
        let answers = filters.insert_stream(request).await.unwrap().into_inner();
        Self { requests, answers }
    }

    /// How many items of a request were new, or the status of that request.
    async fn call(&mut self, request: v1::InsertRequest) -> Result<u32, (Code, v1::ErrorCode)> {
        self.requests.send(request).await.unwrap();
        match self.answers.message().await.unwrap().unwrap().outcome.unwrap() {
            Outcome::Response(response) => Ok(response.new_count),
            Outcome::Status(status) => {
                assert!(!status.message.is_empty());
                Err((Code::from(status.code), status.detail.unwrap().code()))
            }
        }
    }
}

/// An insert of one item, under a request id if one is given.
fn insert(filter: &str, item: &str, request: Option<v1::RequestId>) -> v1::InsertRequest {
    let items = vec![item.to_owned().into_bytes().into()];
    v1::InsertRequest {
        filter: filter.to_owned(),
        items: Some(v1::Items { items, ..v1::Items::default() }),
        request,
        ..v1::InsertRequest::default()
    }
}

fn client(node: &Node) -> FiltersClient<Channel> {
    let net: Arc<dyn Net> = Arc::new(RealNet);
    FiltersClient::new(channel_to(&net, node.address(), None).unwrap())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_request_is_repeated_in_streams_and_by_calls_alike() {
    let folder = tempfile::tempdir().unwrap();
    let node = start_alone(folder.path()).await;
    create(&node.coordinator(), "seen", Kind::Blocked).await;
    let mut filters = client(&node);
    let opened =
        filters.open_session(v1::OpenSessionRequest::default()).await.unwrap().into_inner();
    let session = opened.session;
    let id = |sequence| Some(v1::RequestId { session, sequence, acknowledged_below: 1 });
    let mut stream = Inserts::open(&mut filters, None).await;
    assert_eq!(stream.call(insert("seen", "a", id(1))).await, Ok(1));
    let again = filters.insert(insert("seen", "a", id(1))).await.unwrap().into_inner();
    assert_eq!(again.new_count, 1);
    let first = filters.insert(insert("seen", "b", id(2))).await.unwrap().into_inner();
    assert_eq!(first.new_count, 1);
    assert_eq!(stream.call(insert("seen", "b", id(2))).await, Ok(1));
    assert_eq!(stream.call(insert("seen", "b", None)).await, Ok(0));
    let unknown = Err((Code::NotFound, v1::ErrorCode::UnknownFilter));
    assert_eq!(stream.call(insert("none", "a", None)).await, unknown);
    assert_eq!(stream.call(insert("seen", "b", id(2))).await, Ok(1), "the stream goes on");
    drop((stream, filters));
    node.shutdown().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn all_questions_are_answered_after_the_clients_end() {
    let folder = tempfile::tempdir().unwrap();
    let node = start_alone(folder.path()).await;
    create(&node.coordinator(), "seen", Kind::Blocked).await;
    let mut filters = client(&node);
    for item in ["a", "b"] {
        filters.insert(insert("seen", item, None)).await.unwrap();
    }
    let call = |item: &str| {
        let v1::InsertRequest { filter, items, .. } = insert("seen", item, None);
        v1::ContainsRequest { filter, items, ..v1::ContainsRequest::default() }
    };
    let questions = stream::iter(["a", "c", "b"].map(call));
    let mut answers = filters.contains_stream(questions).await.unwrap().into_inner();
    for present_count in [1, 0, 1] {
        let answer = answers.message().await.unwrap().unwrap().outcome;
        let Some(v1::contains_answer::Outcome::Response(response)) = answer else {
            panic!("{answer:?}")
        };
        assert_eq!(response.present_count, present_count);
    }
    assert_eq!(answers.message().await.unwrap(), None);
    drop((answers, filters));
    node.shutdown().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn rights_and_rates_are_those_of_the_moment_of_each_request() {
    use FilterVerb::{Insert, Read};
    let folder = tempfile::tempdir().unwrap();
    let node = start_alone(folder.path()).await;
    for name in ["a-seen", "b-seen"] {
        create(&node.coordinator(), name, Kind::Blocked).await;
    }
    let mut filters = client(&node);
    let mut early = Inserts::open(&mut filters, None).await;
    assert_eq!(early.call(insert("b-seen", "x", None)).await, Ok(1));
    put(&node, "root", Rights { cluster: [ClusterVerb::Admin].into(), ..Rights::default() }).await;
    put(&node, "alice", grant("a-*", &[Insert, Read])).await;
    // Whoever opened a stream before there were principals has no proof now.
    let stranger = Err((Code::Unauthenticated, v1::ErrorCode::Denied));
    assert_eq!(early.call(insert("b-seen", "y", None)).await, stranger);

    let mut alice = Inserts::open(&mut filters, Some(&format!("alice.{SECRET}"))).await;
    let denied = Err((Code::PermissionDenied, v1::ErrorCode::Denied));
    assert_eq!(alice.call(insert("a-seen", "x", None)).await, Ok(1));
    assert_eq!(alice.call(insert("b-seen", "x", None)).await, denied);
    put(&node, "alice", grant("a-*", &[Read])).await;
    assert_eq!(alice.call(insert("a-seen", "y", None)).await, denied);
    put(&node, "alice", grant("b-*", &[Insert])).await;
    assert_eq!(alice.call(insert("b-seen", "z", None)).await, Ok(1));

    // Whoever owes nothing may take any amount, and owes it afterwards.
    let rates = Rates { items: Some(1), ..Rates::default() };
    let (of, change) = (PrincipalName::new("alice"), Quota { rates, ..Quota::default() });
    let command = MetaCommand::SetQuota { of, change, from_none: false };
    node.coordinator().meta_propose(command, deadline()).await.unwrap();
    let mut many = insert("b-seen", "m", None);
    many.items.as_mut().unwrap().items = (0..100u8).map(|item| vec![item].into()).collect();
    assert!(alice.call(many).await.is_ok());
    let overloaded = Err((Code::Unavailable, v1::ErrorCode::Overloaded));
    assert_eq!(alice.call(insert("b-seen", "n", None)).await, overloaded);

    let command = MetaCommand::DropPrincipal { name: PrincipalName::new("alice").unwrap() };
    node.coordinator().meta_propose(command, deadline()).await.unwrap();
    assert_eq!(alice.call(insert("b-seen", "z", None)).await, stranger);
    drop((early, alice, filters));
    node.shutdown().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_idle_stream_ends_with_its_node() {
    let folder = tempfile::tempdir().unwrap();
    let node = start_alone(folder.path()).await;
    create(&node.coordinator(), "seen", Kind::Blocked).await;
    let mut filters = client(&node);
    let mut stream = Inserts::open(&mut filters, None).await;
    assert_eq!(stream.call(insert("seen", "a", None)).await, Ok(1));
    node.shutdown().await;
    let end = stream.answers.message().await.unwrap_err();
    assert_eq!(end.code(), Code::Unavailable, "{end}");
    assert!(end.message().contains("stopping"), "{end}");
}
