//! Handshakes between both ends of a connection in memory.

use super::*;
use crate::certificate::FOREIGN_AUTHORITY;

const MEMBER: NodeIdentity = NodeIdentity { cluster: 7, node: 3 };

fn papers(shown: Option<Certificate>, offset_ms: i64) -> Arc<Papers> {
    Papers::new(1, shown, 3_000, Arc::new(AtomicI64::new(offset_ms)))
}

/// The identity that the callee finds for the caller (None if it refuses), and whether the caller accepts
/// the callee.
async fn meet(
    caller: &Papers,
    callee: &Papers,
    wanted: Option<NodeIdentity>,
) -> (Option<PeerIdentity>, bool) {
    crate::watch::begin();
    let (mut here, mut there) = tokio::io::duplex(4096);
    let took = async move {
        let taken = callee.take(&mut there).await.ok();
        drop(there);
        taken
    };
    let (called, taken) = tokio::join!(caller.call(&mut here, wanted), took);
    crate::watch::end();
    (taken, called.is_ok())
}

#[tokio::test]
async fn each_end_is_whom_its_certificate_names() {
    crate::now::set_now_us(60_000_000);
    let node = papers(Some(Certificate::member(MEMBER, 1_000)), 0);
    let client = papers(Some(Certificate::client("a")), 0);
    let nobody = papers(None, 0);
    let member = Some(PeerIdentity::Member(MEMBER));
    assert_eq!(meet(&node, &node, Some(MEMBER)).await, (member.clone(), true));
    let other = NodeIdentity { node: 4, ..MEMBER };
    assert_eq!(meet(&node, &node, Some(other)).await, (member, false));
    let named = Some(PeerIdentity::Client("a".into()));
    assert_eq!(meet(&client, &node, None).await, (named.clone(), true));
    assert_eq!(meet(&client, &client, None).await, (named, false), "a client is no server");
    assert_eq!(meet(&nobody, &node, None).await, (Some(PeerIdentity::Anonymous), true));
}

#[tokio::test]
async fn lives_are_checked_by_the_clock_of_who_looks() {
    crate::now::set_now_us(60_000_000);
    let node = |offset_ms| papers(Some(Certificate::member(MEMBER, 1_000)), offset_ms);
    assert!(meet(&node(0), &node(999), None).await.0.is_some());
    assert_eq!(meet(&node(0), &node(1_000), None).await, (None, false), "it has expired there");
    assert!(meet(&node(0), &node(-10_000), None).await.0.is_some());
    assert_eq!(meet(&node(0), &node(-10_001), None).await, (None, false), "it is to come there");
    // The callee accepts the caller, which refuses the callee.
    assert!(matches!(meet(&node(1_000), &node(0), None).await, (Some(_), false)));
    let foreign = Certificate { authority: FOREIGN_AUTHORITY, ..Certificate::generic() };
    assert_eq!(meet(&papers(Some(foreign), 0), &node(0), None).await, (None, false));
    let lapsed = node(0);
    lapsed.lapse();
    assert_eq!(meet(&lapsed, &node(0), None).await, (None, false));
}
