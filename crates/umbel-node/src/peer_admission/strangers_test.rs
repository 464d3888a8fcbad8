//! Callers that claim to be nodes but are not, and nodes that make impossible claims.

use std::sync::Arc;

use tokio::time::Instant;
use umbel_engine::meta::{MetaCommand, MetaReply};
use umbel_engine::{GroupId, NodeId};
use umbel_ports::encoding::encode;
use umbel_ports::{RealNet, RealSeed};
use umbel_raft::peer::{CallError, CallKind, Links, LocalIdentity};
use umbel_storage::types::{LogEntry, LogId, Vote};

use crate::node::Node;
use crate::testing::{deadline, start_alone};

/// Links of a caller that claims to be this node of the cluster.
fn links_of(node: &Node, number: u64) -> Links {
    let identity = LocalIdentity { cluster: node.cluster(), node: NodeId(number) };
    Links::new(Arc::new(RealNet), Arc::new(RealSeed), identity)
}

async fn send(
    links: &Links,
    to: &Node,
    kind: CallKind,
    body: bytes::Bytes,
) -> Result<bytes::Bytes, CallError> {
    let patience = deadline().saturating_duration_since(Instant::now());
    links.call(to.id(), to.address(), kind, GroupId::META, body, patience).await
}

#[tokio::test(flavor = "multi_thread")]
async fn who_was_removed_or_never_was_opens_no_link() {
    let folder = tempfile::tempdir().unwrap();
    let node = start_alone(folder.path()).await;
    let calls = node.leader_calls(Arc::new(RealSeed));
    let add = MetaCommand::AddNode { address: "127.0.0.1:1".to_owned(), nonce: 7 };
    let added = calls.meta_propose(add, deadline()).await.unwrap();
    let MetaReply::Node(removed) = added else { panic!("{added:?}") };
    let view = encode(&crate::calls::GroupRequest::View);
    let links = links_of(&node, removed.0);
    send(&links, &node, CallKind::Group, view.clone()).await.unwrap();

    calls.meta_propose(MetaCommand::RemoveNode { node: removed }, deadline()).await.unwrap();
    // The open link is refused from now on, and a new one is not admitted.
    let refused = send(&links, &node, CallKind::Group, view.clone()).await.unwrap_err();
    assert!(refused.to_string().contains("was removed from the cluster"), "{refused}");
    for number in [removed.0, 0] {
        let links = links_of(&node, number);
        let refused = send(&links, &node, CallKind::Group, view.clone()).await.unwrap_err();
        assert!(refused.is_removal(), "{number}: {refused}");
    }
    node.shutdown().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_term_that_no_election_leads_to_ends_none() {
    let folder = tempfile::tempdir().unwrap();
    let node = start_alone(folder.path()).await;
    let links = links_of(&node, 99);
    let term = node.local().meta().term();
    let leader = Vote::new_committed(u64::MAX, NodeId(99));
    // The entry before, the entries, and the last one that is committed.
    let append = (leader, None::<LogId>, Vec::<LogEntry>::new(), None::<LogId>);
    // The last entry of the candidate, and whether it was told to stand.
    let vote = (Vote::new(u64::MAX, NodeId(99)), None::<LogId>, false);
    let absurd = [
        (CallKind::Append, encode(&append)),
        (CallKind::Vote, encode(&vote)),
        (CallKind::PreVote, encode(&vote)),
    ];
    for (kind, body) in absurd {
        let refused = send(&links, &node, kind, body).await.unwrap_err();
        assert!(refused.to_string().contains("no election leads there"), "{kind:?}: {refused}");
    }
    assert_eq!(node.local().meta().term(), term);
    let add = MetaCommand::AddNode { address: "127.0.0.1:1".to_owned(), nonce: 7 };
    node.leader_calls(Arc::new(RealSeed)).meta_propose(add, deadline()).await.unwrap();
    node.shutdown().await;
}
