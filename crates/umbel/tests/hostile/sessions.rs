//! Sessions that were never opened, or that were opened by another principal.

use std::sync::Arc;

use bytes::Bytes;
use prost::Message;
use tokio::task::JoinSet;
use umbel_client::proto::{
    InsertRequest, InsertResponse, Items, OpenSessionRequest, OpenSessionResponse, RequestId,
};
use umbel_engine::limits::REPLAY_SESSIONS_MAX;

use crate::calls::{Answer, Caller, framed};
use crate::honest::FILTER;
use crate::identities::{guard, secure};
use crate::siege::{Bounds, Siege, scaled};

const BOUNDS: Bounds = Bounds { memory_mib: 48, descriptors: 16 };

/// Replay tables take up to 32 MiB per shard, beside the inserted items and the log.
const SESSIONS_BOUNDS: Bounds = Bounds { memory_mib: 192, descriptors: 16 };

const INSERT: &str = "/umbel.v1.Filters/Insert";

fn insert(item: &str, session: u64, sequence: u64, acknowledged_below: u64) -> InsertRequest {
    let items = vec![Bytes::from(item.to_owned())];
    InsertRequest {
        filter: FILTER.to_owned(),
        items: Some(Items { items, ..Items::default() }),
        request: Some(RequestId { session, sequence, acknowledged_below }),
        ..InsertRequest::default()
    }
}

/// More sessions than a shard remembers.
const SESSIONS_OF_MALLORY: usize = REPLAY_SESSIONS_MAX + 500;

/// Most concurrent calls of a principal.
const CALLS_UNDER_WAY: usize = 64;

/// Numbers that resemble those of sessions.
fn invented(number: u64) -> u64 {
    match number % 5 {
        0 => u64::MAX - number,
        1 => number,
        // The upper half is a plausible position of the log, but the lower one of real sessions is
        // random.
        2 => (number << 32) | number,
        3 => u64::from(u32::MAX) << 32,
        _ => number.wrapping_mul(0x9e37_79b9_7f4a_7c15),
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn invented_sessions_take_nobodys_place() {
    let siege = Siege::begin().await;
    let caller = Caller::open(&siege.address()).await;
    // A shard remembers 65,536 sessions; the long form sends more than that.
    for number in 0..scaled(1500) as u64 * crate::siege::scale() * 3 {
        let request = insert(&format!("invented {number}"), invented(number), 1, u64::MAX);
        let answer = caller.call(INSERT, &request).await;
        assert!(!answer.is_success(), "session {}: {answer:?}", invented(number));
        assert!(matches!(answer, Answer::Status { .. }), "{answer:?}");
    }
    siege.holds("invented sessions", BOUNDS).await;
    // Nothing was inserted, and sessions still work.
    let client = siege.honest.client();
    let filter = client.filter(FILTER);
    let found = filter.contains(["invented 0"], umbel_client::ReadLevel::Linearizable).await;
    assert_eq!(found.unwrap().is_present(0), Some(false));
    assert_eq!(filter.insert(["after the invented ones"]).await.unwrap().new_count(), 1);
    drop(caller);
    siege.recovers("invented sessions").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn nobody_acknowledges_the_requests_of_others() {
    let (siege, certificates) = secure().await;
    guard(&siege).await;
    let alice = certificates.client("alice");
    let alice = Caller::over(certificates.connect(&siege.address(), Some(&alice)).await).await;
    let mallory = Caller::over(certificates.connect(&siege.address(), None).await).await;
    let opened = alice.call("/umbel.v1.Filters/OpenSession", &OpenSessionRequest::default()).await;
    let session = opened.message::<OpenSessionResponse>().session;
    let first: InsertResponse = alice.call(INSERT, &insert("one", session, 1, 0)).await.message();
    assert_eq!(first.new_count, 1);

    let token = [("authorization", "Bearer mallory.mallory")];
    for sequence in 1..scaled(50) as u64 {
        for acknowledged in [0, sequence, u64::MAX] {
            let request =
                insert(&format!("of mallory {sequence}"), session, sequence, acknowledged);
            let answer = mallory.send(INSERT, &token, framed(&request.encode_to_vec())).await;
            assert!(!answer.is_success(), "{answer:?}");
        }
    }
    // The retry gets the first answer: the item was new then, though it is present now.
    let again: InsertResponse = alice.call(INSERT, &insert("one", session, 1, 0)).await.message();
    assert_eq!(again, first);
    let next: InsertResponse = alice.call(INSERT, &insert("two", session, 2, 0)).await.message();
    assert_eq!(next.new_count, 1);
    drop((alice, mallory));
    siege.holds("others' sessions", BOUNDS).await;
    siege.recovers("others' sessions").await;
}

/// Opens a session and uses it; the node has one shard.
async fn take_a_place(mallory: &Caller, number: usize) {
    let token = [("authorization", "Bearer mallory.mallory")];
    let open = framed(&OpenSessionRequest::default().encode_to_vec());
    let opened = mallory.send("/umbel.v1.Filters/OpenSession", &token, open).await;
    let session = opened.message::<OpenSessionResponse>().session;
    let request = insert(&format!("of mallory {number}"), session, 1, 0);
    let answer = mallory.send(INSERT, &token, framed(&request.encode_to_vec())).await;
    assert!(answer.is_success(), "session {number}: {answer:?}");
}

/// Opens this many sessions over one connection, many concurrently.
async fn take_places(mallory: Caller, count: usize) {
    let mallory = Arc::new(mallory);
    let mut taking = JoinSet::new();
    for number in 0..count {
        if taking.len() == CALLS_UNDER_WAY {
            taking.join_next().await.unwrap().unwrap();
        }
        let mallory = Arc::clone(&mallory);
        taking.spawn(async move { take_a_place(&mallory, number).await });
    }
    taking.join_all().await;
}

/// A principal that has rights, and uses them to fill the memory of shards for sessions.
#[tokio::test(flavor = "multi_thread")]
#[ignore = "the long form: makes 132,000 calls"]
async fn sessions_of_one_principal_push_out_its_own() {
    let (siege, certificates) = secure().await;
    guard(&siege).await;
    let alice = certificates.client("alice");
    let alice = Caller::over(certificates.connect(&siege.address(), Some(&alice)).await).await;
    let opened = alice.call("/umbel.v1.Filters/OpenSession", &OpenSessionRequest::default()).await;
    let session = opened.message::<OpenSessionResponse>().session;
    let request = insert("one", session, 1, 0);
    let first: InsertResponse = alice.call(INSERT, &request).await.message();
    assert_eq!(first.new_count, 1);

    let mallory = Caller::over(certificates.connect(&siege.address(), None).await).await;
    take_places(mallory, SESSIONS_OF_MALLORY).await;
    // The retry gets the first answer, although mallory has had more sessions than a shard remembers.
    let again: InsertResponse = alice.call(INSERT, &request).await.message();
    assert_eq!(again, first);
    drop(alice);
    siege.holds("a principal's sessions", SESSIONS_BOUNDS).await;
    siege.recovers("a principal's sessions").await;
}
