//! A principal that sends requests in a session which another principal has opened.

use std::time::Duration;

use tonic::Status;
use umbel_client::proto::filters_client::FiltersClient;
use umbel_client::proto::{InsertRequest, OpenSessionRequest, RequestId};

use crate::answer::{Answer, answer_of};
use crate::channel::{NodeChannel, node_channel};
use crate::invariants::sessions_are_their_owners::{self, Resent};
use crate::net::SimNet;
use crate::now::now_us;
use crate::trace;
use crate::workload::items_of;

/// The token of the principal that opens sessions; its rights do not change.
pub(super) const OWNER: &str = "owner.k0";

/// The token of the principal that sends requests in those sessions; it has the right to insert, too.
pub(super) const THIEF: &str = "thief.k0";

/// The filter that both insert into; it is never cleared or dropped.
pub(super) const FILTER: &str = "session";

/// How long a try may take.
const TRY_TIMEOUT: Duration = Duration::from_secs(2);

/// How often the owner tries, each time at the next node.
const TRY_COUNT: u32 = 6;

/// Pause between two of them.
const TRY_PAUSE: Duration = Duration::from_millis(100);

type Client = FiltersClient<NodeChannel>;

async fn insert(mut client: Client, item: u32, id: RequestId) -> Answer {
    let request = InsertRequest {
        filter: FILTER.to_owned(),
        items: Some(items_of(&[item])),
        request: Some(id),
        timeout_ms: u32::try_from(TRY_TIMEOUT.as_millis()).expect("it is two seconds"),
        at_ms: None,
        level: 0,
    };
    let new = |count: u32| vec![if count > 0 { "new" } else { "present" }.to_owned()];
    match tokio::time::timeout(TRY_TIMEOUT, client.insert(request)).await {
        Ok(done) => answer_of(done.map(|answer| new(answer.into_inner().new_count))),
        Err(_) => answer_of(Err(Status::deadline_exceeded("no answer"))),
    }
}

/// The owner sends a request, the thief sends two in the owner's session, and the owner repeats its own.
pub(super) async fn steal(net: &SimNet, addresses: &[String], machine: u32, item: u32) {
    let client = |token: &str, turn: u32| {
        let at = (machine + turn) as usize % addresses.len();
        Client::new(node_channel(net, addresses[at].clone(), Some(token)))
    };
    let mut session = None;
    for turn in 0..TRY_COUNT {
        let mut client = client(OWNER, turn);
        let asked = client.open_session(OpenSessionRequest::default());
        if let Ok(Ok(answer)) = tokio::time::timeout(TRY_TIMEOUT, asked).await {
            session = Some(answer.into_inner().session);
            break;
        }
        tokio::time::sleep(TRY_PAUSE).await;
    }
    let Some(session) = session else { return };
    let own = RequestId { session, sequence: 1, acknowledged_below: 1 };
    let owned = async || {
        let mut last = Answer::Open("not sent".to_owned());
        for turn in 0..TRY_COUNT {
            last = insert(client(OWNER, turn), item, own).await;
            if !matches!(last, Answer::Open(_)) {
                break;
            }
            tokio::time::sleep(TRY_PAUSE).await;
        }
        last
    };
    let first = owned().await;
    // The owner's request id, and a later one that acknowledges all requests before it.
    let later = RequestId { session, sequence: 900, acknowledged_below: 900 };
    let mut stolen = Vec::new();
    for (turn, id) in (0..).zip([own, later]) {
        stolen.push(insert(client(THIEF, turn), item, id).await);
    }
    let again = owned().await;
    trace::line(
        now_us(),
        "thief",
        "stole",
        format_args!("{session:x} {item} {first:?} {stolen:?} {again:?}"),
    );
    sessions_are_their_owners::check(&Resent { session, first, stolen, again });
}
