//! Which requests are retried, and with which request ids.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use umbel_client::{
    Applied, Client, ClientError, ClientOptions, Code, ErrorCode, Filter, Hashing, Outcome,
    ReadLevel,
};
use umbel_proto::v1::ErrorDetail;

use crate::fake::{Cluster, Fault, detail};
use crate::{client, numbers, options};

async fn start(node_count: usize, options: ClientOptions) -> (Cluster, Client, Filter) {
    let cluster = Cluster::start(node_count).await;
    cluster.put("seen", Hashing::Keyed, 0);
    let client = client(&cluster, options);
    let seen = client.filter("seen");
    (cluster, client, seen)
}

fn unknown() -> Fault {
    let detail = detail(ErrorCode::OutcomeUnknown, Applied::Unknown);
    Fault::DoAndRefuse(Code::Aborted, detail)
}

fn no_quorum() -> Fault {
    Fault::Refuse(Code::Unavailable, detail(ErrorCode::NoQuorum, Applied::No))
}

#[tokio::test]
async fn a_lost_answer_is_sent_again() {
    let (cluster, _, seen) = start(2, options()).await;
    cluster.fail([no_quorum(), unknown(), unknown()]);
    let inserted = seen.insert(["a", "b"]).await.unwrap();
    assert_eq!(inserted.new_count(), 2, "not present from the first try");
    let tries = cluster.seen();
    assert_eq!(tries.len(), 4);
    assert!(tries.iter().all(|seen| seen.request.sequence == 1 && seen.request.session == 1));
    assert!(tries.windows(2).all(|pair| pair[0].items == pair[1].items));
}

#[tokio::test]
async fn silence_and_broken_connections_are_tried_again() {
    // A slow machine may need more attempts.
    let quick = ClientOptions {
        attempt_timeout: Duration::from_millis(20),
        attempt_count_max: 1000,
        ..options()
    };
    let (cluster, _, seen) = start(2, quick).await;
    cluster.fail([Fault::DoAndHang, Fault::Break]);
    let inserted = seen.insert(["a", "b"]).await.unwrap();
    assert_eq!(inserted.new_count(), 2);
    assert!(cluster.seen().len() >= 3);
}

#[tokio::test]
async fn refusals_are_final() {
    let (cluster, client, seen) = start(1, options()).await;
    let error = client.filter("none").insert(["a"]).await.unwrap_err();
    let ClientError::Refused(failure) = &error else { panic!("{error}") };
    assert_eq!((failure.cause, failure.applied), (ErrorCode::UnknownFilter, Applied::No));
    let text = error.to_string();
    assert!(text.contains("filter \"none\"") && text.contains(&cluster.addresses[0]), "{text}");

    let aborted = Fault::Refuse(Code::Aborted, detail(ErrorCode::RequestReused, Applied::No));
    cluster.fail([aborted]);
    assert!(matches!(seen.insert(["a"]).await, Err(ClientError::Refused(_))));
    assert_eq!(cluster.seen().len(), 2);
    cluster.fail([Fault::Shorten]);
    assert!(matches!(seen.insert(["a"]).await, Err(ClientError::BadAnswer(_))));
}

/// A node that starts: it asks for a longer pause than a call may take.
fn not_ready() -> Fault {
    let of_ten_minutes =
        ErrorDetail { retry_after_ms: 600_000, ..detail(ErrorCode::NotFormed, Applied::No) };
    Fault::Refuse(Code::Unavailable, of_ten_minutes)
}

#[tokio::test]
async fn a_node_that_is_not_ready_asks_for_a_pause_for_itself_alone() {
    let (cluster, _, seen) = start(2, options()).await;
    cluster.fail([not_ready()]);
    assert_eq!(
        seen.insert(["a"]).await.unwrap().new_count(),
        1,
        "by the other node, without the pause"
    );
    let nodes: Vec<usize> = cluster.seen().iter().map(|seen| seen.node).collect();
    assert!(nodes.len() == 2 && nodes[0] != nodes[1], "{nodes:?}");

    let (cluster, _, seen) = start(2, options()).await;
    cluster.fail([not_ready(), not_ready()]);
    let error = seen.insert(["a"]).await.unwrap_err();
    assert!(matches!(error, ClientError::Unavailable(_)), "no node is ready: {error}");
    assert_eq!(cluster.seen().len(), 2);
}

#[tokio::test]
async fn a_wait_for_a_majority_or_for_nodes_none_of_which_is_ready_is_told() {
    let answers = |cause| Fault::Refuse(Code::Unavailable, detail(cause, Applied::No));
    let told = async |node_count, causes: &[ErrorCode]| {
        let (cluster, client, seen) = start(node_count, options()).await;
        let heard = Arc::<Mutex<Vec<(ErrorCode, String)>>>::default();
        let hears = Arc::clone(&heard);
        client.tell_waits(move |failure| {
            hears.lock().unwrap().push((failure.cause, failure.node.clone()));
        });
        cluster.fail(causes.iter().map(|&cause| answers(cause)));
        assert_eq!(seen.insert(["a"]).await.unwrap().new_count(), 1);
        let heard = heard.lock().unwrap().clone();
        let known = heard.iter().all(|(_, node)| cluster.addresses.contains(node));
        assert!(known, "{heard:?}");
        heard.into_iter().map(|(cause, _)| cause).collect::<Vec<_>>()
    };
    let [not_formed, no_quorum] = [ErrorCode::NotFormed, ErrorCode::NoQuorum];
    assert_eq!(told(1, &[not_formed, ErrorCode::FilterBusy]).await, [not_formed]);
    assert_eq!(told(2, &[not_formed]).await, [], "the other node is asked");
    assert_eq!(told(2, &[no_quorum]).await, [no_quorum]);
}

#[tokio::test]
async fn nothing_is_acknowledged_before_it_is_answered() {
    let (cluster, _, seen) = start(1, options()).await;
    for _ in 0..3 {
        seen.insert(["a"]).await.unwrap();
    }
    seen.contains(["a"], ReadLevel::Linearizable).await.unwrap();
    let names: Vec<(u64, u64)> = cluster.seen()[..3]
        .iter()
        .map(|seen| (seen.request.sequence, seen.request.acknowledged_below))
        .collect();
    assert_eq!(names, [(1, 1), (2, 2), (3, 3)]);
}

#[tokio::test]
async fn an_expired_session_is_renewed_on_a_first_try_only() {
    let (cluster, _, seen) = start(1, options()).await;
    seen.insert(["a"]).await.unwrap();
    cluster.world().forgotten.insert(1);
    cluster.fail([no_quorum()]);
    assert_eq!(seen.insert(["b"]).await.unwrap().new_count(), 1);
    assert_eq!(cluster.seen().last().unwrap().request.session, 2);

    cluster.fail([unknown()]);
    cluster.fail([Fault::Refuse(
        Code::FailedPrecondition,
        detail(ErrorCode::SessionExpired, Applied::Unknown),
    )]);
    let error = seen.insert(["c"]).await.unwrap_err();
    assert!(matches!(error, ClientError::FirstAnswerLost(_)), "{error}");
    assert!(error.to_string().contains("outcome of this request is unknown"));
}

#[tokio::test]
async fn a_merge_renews_an_expired_session() {
    let cluster = Cluster::start(1).await;
    let client = client(&cluster, options());
    assert_eq!(client.merge("a", &["b"]).await.unwrap(), 1);
    cluster.world().forgotten.insert(1);
    for _ in 0..2 {
        assert_eq!(client.merge("a", &["b"]).await.unwrap(), 1);
    }
    let world = cluster.world();
    assert_eq!((world.session_count, world.calls["merge"]), (2, 4));
}

#[tokio::test]
async fn filters_that_may_have_been_put_together_are_not_told_as_unavailable() {
    let once = ClientOptions { attempt_count_max: 2, ..options() };
    let (cluster, client, _) = start(1, once).await;
    cluster.fail([unknown(), no_quorum()]);
    let error = client.merge("a", &["b"]).await.unwrap_err();
    let ClientError::ChangeUnknown(failure) = &error else { panic!("{error}") };
    assert_eq!((failure.cause, failure.attempt_count), (ErrorCode::OutcomeUnknown, 2));
    cluster.fail([unknown(), no_quorum()]);
    let error = client.intersect("a", &["b", "c"]).await.unwrap_err();
    assert!(matches!(error, ClientError::OrderUnknown(_)), "{error}");
    // They are sent again all the same, and what was not begun is told so.
    cluster.fail([unknown()]);
    assert_eq!(client.merge("a", &["b"]).await.unwrap(), 1);
    cluster.fail([no_quorum(), no_quorum()]);
    let error = client.intersect("a", &["b", "c"]).await.unwrap_err();
    assert!(matches!(error, ClientError::Unavailable(_)), "{error}");
}

#[tokio::test]
async fn sessions_that_are_unknown_again_and_again_end_as_a_refusal() {
    let (cluster, _, seen) = start(1, options()).await;
    cluster.world().forgotten.extend(1..=9);
    let error = seen.insert(["a"]).await.unwrap_err();
    let ClientError::Refused(failure) = &error else { panic!("{error}") };
    assert_eq!(
        (failure.code, failure.cause, failure.applied),
        (Code::FailedPrecondition, ErrorCode::SessionExpired, Applied::No)
    );
    assert!(failure.message.contains("nodes of one cluster"), "{error}");
    assert_eq!(cluster.world().session_count, 3);
    assert_eq!(cluster.seen().len(), 3, "no attempt beyond the last session");
}

#[tokio::test]
async fn an_unknown_outcome_can_be_sent_again_and_holds_its_name() {
    let (cluster, _, seen) = start(1, ClientOptions { attempt_count_max: 2, ..options() }).await;
    cluster.fail([unknown(), unknown()]);
    let error = seen.insert(["a", "b"]).await.unwrap_err();
    let ClientError::OutcomeUnknown { request, failure } = error else { panic!("{error}") };
    assert_eq!((failure.attempt_count, failure.applied), (2, Applied::Unknown));

    seen.insert(["c"]).await.unwrap();
    let id = cluster.seen().last().unwrap().request;
    assert_eq!((id.sequence, id.acknowledged_below), (2, 1), "the first is still wanted");

    let Outcome::Inserted(inserted) = request.resend().await.unwrap() else { panic!() };
    assert_eq!(inserted.new_count(), 2);
    seen.insert(["d"]).await.unwrap();
    assert_eq!(cluster.seen().last().unwrap().request.acknowledged_below, 3);
}

#[tokio::test]
async fn only_unanswered_parts_of_a_batch_are_sent_again() {
    let options = ClientOptions { attempt_count_max: 1, parallel_requests: 1, ..options() };
    let (cluster, _, seen) = start(1, options).await;
    seen.insert(["x"]).await.unwrap();
    // The second of three parts fails, with nothing applied; the third is not sent.
    let ok = Fault::Refuse(Code::Unavailable, detail(ErrorCode::NoQuorum, Applied::No));
    cluster.fail([ok]);
    let error = seen.insert(numbers(0..150_000)).await.unwrap_err();
    assert!(matches!(error, ClientError::Unavailable(_)), "nothing was applied: {error}");
    assert_eq!(cluster.seen().len(), 2);

    cluster.fail([unknown()]);
    let error = seen.insert(numbers(0..150_000)).await.unwrap_err();
    let ClientError::OutcomeUnknown { request, .. } = error else { panic!("{error}") };
    assert_eq!(cluster.seen().len(), 3);
    let Outcome::Inserted(inserted) = request.resend().await.unwrap() else { panic!() };
    assert_eq!(inserted.new_count(), 150_000);
    assert_eq!(cluster.seen().len(), 6);
}

#[tokio::test]
async fn nothing_applied_is_unavailable() {
    let (cluster, _, seen) = start(1, ClientOptions { attempt_count_max: 3, ..options() }).await;
    cluster.fail([no_quorum(), no_quorum(), no_quorum()]);
    let error = seen.insert(["a"]).await.unwrap_err();
    let ClientError::Unavailable(failure) = &error else { panic!("{error}") };
    assert_eq!((failure.applied, failure.attempt_count), (Applied::No, 3));

    let nobody =
        Client::connect_with("127.0.0.1:1", ClientOptions { attempt_count_max: 2, ..options() });
    let error = nobody.unwrap().filter("seen").insert(["a"]).await.unwrap_err();
    assert!(matches!(error, ClientError::Unavailable(_)), "{error}");
    assert_eq!(error.failure().unwrap().applied, Applied::No, "{error}");
}

#[tokio::test]
async fn a_client_that_never_reached_a_node_gives_up_once_all_were_tried() {
    let impatient = ClientOptions { first_contact_timeout: Duration::ZERO, ..options() };
    let nobody = Client::connect_with("127.0.0.1:1,127.0.0.1:2", impatient.clone()).unwrap();
    let error = nobody.filter("seen").insert(["a"]).await.unwrap_err();
    assert!(matches!(error, ClientError::Unavailable(_)), "{error}");
    let failure = error.failure().unwrap();
    assert_eq!((failure.attempt_count, failure.applied), (2, Applied::No), "{error}");

    // A node that hangs up ends the call as well, like a node whose port speaks TLS.
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap().to_string();
    let hanging_up = tokio::spawn(async move { while listener.accept().await.is_ok() {} });
    let unwilling = Client::connect_with(address.as_str(), impatient.clone()).unwrap();
    let error = unwilling.filter("seen").insert(["a"]).await.unwrap_err();
    assert!(matches!(error, ClientError::Unavailable(_)), "{error}");
    assert_eq!(error.failure().unwrap().attempt_count, 1, "{error}");
    hanging_up.abort();

    // The client retries at a node that answers but cannot serve it yet.
    let (cluster, _, seen) = start(1, impatient).await;
    cluster.fail([no_quorum()]);
    assert_eq!(seen.insert(["a"]).await.unwrap().new_count(), 1);
}

#[tokio::test]
async fn clearing_is_sent_again_only_if_nothing_happened() {
    let (cluster, client, _) = start(1, options()).await;
    cluster.fail([no_quorum()]);
    assert_eq!(client.clear("seen").await.unwrap().generation, 2);
    assert_eq!(cluster.world().calls["clear"], 2);
    let unknown =
        || Fault::Refuse(Code::Unavailable, detail(ErrorCode::OutcomeUnknown, Applied::Unknown));
    cluster.fail([unknown()]);
    assert!(matches!(client.clear("seen").await, Err(ClientError::ChangeUnknown(_))));
    assert_eq!(cluster.world().calls["clear"], 3);
    cluster.fail([no_quorum(), unknown()]);
    assert!(matches!(client.rotate("seen").await, Err(ClientError::ChangeUnknown(_))));
    assert_eq!(cluster.world().calls["rotate"], 2);
}

/// A client of these nodes alone, which knows all of them from the beginning.
fn client_of_all(cluster: &Cluster) -> Client {
    let named = ClientOptions { learns_nodes: false, ..options() };
    Client::connect_with(cluster.addresses.join(",").as_str(), named).unwrap()
}

/// The node that is not ready has said more, but nothing of the change.
#[tokio::test]
async fn a_change_that_broke_off_is_told_by_the_node_that_may_have_made_it() {
    let cluster = Cluster::start(2).await;
    cluster.fail([not_ready(), Fault::Break]);
    let error = client_of_all(&cluster).clear("seen").await.unwrap_err();
    let ClientError::ChangeUnknown(failure) = &error else { panic!("{error}") };
    assert_eq!((failure.applied, failure.attempt_count), (Applied::Unknown, 2), "{error}");
    assert_eq!(failure.cause, ErrorCode::Unspecified, "of the node that broke off: {error}");
    assert_eq!(cluster.world().calls["clear"], 2);
}

/// A client of this node and of an address where nobody listens, which gives each of them one attempt.
fn beside_a_dead_address(cluster: &Cluster) -> Client {
    let addresses = format!("{},127.0.0.1:1", cluster.addresses[0]);
    let once = ClientOptions { attempt_count_max: 2, learns_nodes: false, ..options() };
    Client::connect_with(addresses.as_str(), once).unwrap()
}

#[tokio::test]
async fn an_order_that_may_still_be_carried_out_is_not_told_as_a_dead_address() {
    let (cluster, _, _) = start(1, options()).await;
    for _ in 0..2 {
        cluster.fail([unknown()]);
        let error = beside_a_dead_address(&cluster).drain(3, false).await.unwrap_err();
        let ClientError::OrderUnknown(failure) = &error else { panic!("{error}") };
        assert_eq!((failure.cause, failure.applied), (ErrorCode::OutcomeUnknown, Applied::Unknown));
        assert_eq!((&failure.node, failure.attempt_count), (&cluster.addresses[0], 2));
        assert!(error.to_string().starts_with("outcome unknown, it may still be carried out"));

        cluster.fail([no_quorum()]);
        let error = beside_a_dead_address(&cluster).drain(3, false).await.unwrap_err();
        let ClientError::Unavailable(failure) = &error else { panic!("{error}") };
        assert_eq!((failure.cause, failure.applied), (ErrorCode::NoQuorum, Applied::No));
        assert_eq!((&failure.node, failure.attempt_count), (&cluster.addresses[0], 2));
    }
}

#[tokio::test]
async fn a_refusal_after_an_order_that_may_be_carried_out_does_not_hide_it() {
    let cluster = Cluster::start(2).await;
    let client = client_of_all(&cluster);
    let refused = |code, applied| Fault::Refuse(code, detail(ErrorCode::Unspecified, applied));
    cluster.fail([unknown(), refused(Code::PermissionDenied, Applied::No)]);
    let error = client.drain(3, false).await.unwrap_err();
    let ClientError::OrderUnknown(failure) = &error else { panic!("{error}") };
    assert_eq!((failure.cause, failure.applied), (ErrorCode::OutcomeUnknown, Applied::Unknown));
    assert_eq!(failure.attempt_count, 2, "{error}");

    cluster.fail([refused(Code::Internal, Applied::Unknown)]);
    let error = client.drain(3, false).await.unwrap_err();
    assert!(matches!(error, ClientError::OrderUnknown(_)), "{error}");

    for before in [None, Some(no_quorum())] {
        cluster.fail(before.into_iter().chain([refused(Code::PermissionDenied, Applied::No)]));
        let error = client.drain(3, false).await.unwrap_err();
        let ClientError::Refused(failure) = &error else { panic!("{error}") };
        assert_eq!((failure.code, failure.applied), (Code::PermissionDenied, Applied::No));
    }
}
