//! Bit-by-bit comparisons of copies, on whole nodes.

use futures_util::StreamExt;
use tokio_stream::wrappers::ReceiverStream;
use umbel_engine::meta::Distribution;
use umbel_engine::{Generation, GroupId};
use umbel_filter::Kind;
use umbel_proto::v1;
use umbel_proto::v1::scrub_part::Part;
use umbel_replicated_engine::repair::{
    FilterBits, Policy, RepairInput, RepairLimits, RepairOptions, RepairOutput, RepairSession,
};
use umbel_step::Outbox;

use super::node_test::{deadline, start};
use super::replicated_test::{
    KINDS, confirmed, flush_all, insert, name, present, start_quiet, stop,
};
use super::*;
use crate::ReadLevel;
use crate::catalogue::{FilterRequest, Hashing};
use crate::replicated::scrub::ScrubbedPair;
use crate::scrub::Scrubbed;
use crate::sizes::FilterSize;
use umbel_node::failure::CallFailure;
use umbel_node::peer::peer_client;
use umbel_node::peer::{LocalIdentity, add_hello};

/// Creates a filter with an array that is small enough for unoptimised builds.
async fn create(coordinator: &Coordinator, filter: &str, kind: Kind) -> FilterId {
    let new = FilterRequest::Planned {
        kind,
        distribution: Distribution::Replicated,
        capacity: 10_000,
        size: FilterSize::Rate(1e-3),
        hashing: Hashing::Keyed,
    };
    let (id, _) = coordinator.create(&name(filter), &new, None, deadline()).await.unwrap();
    confirmed(coordinator).await;
    id
}

async fn scrub(coordinator: &Arc<Coordinator>, filter: &str) -> Vec<ScrubbedPair> {
    let reports = coordinator.scrub(Some(filter), deadline()).await.unwrap();
    let pair = |report| match report {
        Scrubbed::Pair(pair) => pair,
        Scrubbed::Slice(slice) => panic!("{slice:?}"),
    };
    let mut pairs: Vec<ScrubbedPair> = reports.map(pair).collect().await;
    pairs.sort_by_key(|pair| (pair.node, pair.partner));
    pairs
}

/// Lost bits and news, summed over all pairs.
fn sums(pairs: &[ScrubbedPair]) -> (u64, u64) {
    let mut sums = (0, 0);
    for pair in pairs {
        let compared = pair.compared.as_ref().unwrap();
        sums.0 += compared.ours.lost_count + compared.theirs.lost_count;
        sums.1 += compared.ours.news_count + compared.theirs.news_count;
    }
    sums
}

fn are_equal(nodes: &[Node], filter: FilterId) -> bool {
    let first = nodes[0].copy(filter);
    nodes.iter().all(|node| node.copy(filter) == first)
}

/// Waits until all copies are equal, without any sweep.
async fn wait_until_equal(nodes: &[Node], filter: FilterId) {
    let end = deadline();
    while !are_equal(nodes, filter) {
        assert!(Instant::now() < end, "the copies of {filter} stay different");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_memory_lost_is_found_and_set_again_by_comparing_alone() {
    let folders = [(); 4].map(|()| tempfile::tempdir().unwrap());
    let (_, nodes) = start_quiet(&folders).await;
    let coordinator = nodes[0].coordinator();
    for kind in KINDS {
        let filter = kind.to_string();
        let id = create(&coordinator, &filter, kind).await;
        insert(&coordinator, &filter, 0..2000).await;
        flush_all(&coordinator, &filter).await;
        let whole = nodes[0].copy(id);
        // Two nodes lose different bits of the same copies.
        let lost_count = nodes[1].rot_copy(id, 7) + nodes[3].rot_copy(id, 5);
        assert!(lost_count > 100);
        flush_all(&nodes[3].coordinator(), &filter).await;
        assert!(!are_equal(&nodes, id), "{kind}: an exchange cannot find it");
        let missing = present(&nodes[3].coordinator(), &filter, 0..2000, ReadLevel::Local).await;
        assert!(missing < 2000, "{kind}");

        let pairs = scrub(&coordinator, &filter).await;
        let numbers: Vec<_> = pairs.iter().map(|pair| (pair.node.0, pair.partner.0)).collect();
        assert_eq!(numbers, [(1, 2), (1, 3), (2, 4), (3, 4)]);
        let (lost, news) = sums(&pairs);
        // Bits that a pair still lacked when it was compared may have been set by an automatic
        // follow-up comparison, and are counted there.
        assert!(lost > 0 && lost <= lost_count && news == 0, "{kind}: {pairs:?}");
        wait_until_equal(&nodes, id).await;
        assert!(nodes[1].copy(id) == whole, "{kind}");
        assert_eq!(sums(&scrub(&coordinator, &filter).await), (0, 0));
    }
    drop(coordinator);
    stop(nodes).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn changes_under_way_are_news_and_are_forwarded() {
    let folders = [(); 3].map(|()| tempfile::tempdir().unwrap());
    let (_, nodes) = start_quiet(&folders).await;
    let (one, two) = (nodes[0].coordinator(), nodes[1].coordinator());
    for kind in KINDS {
        let filter = kind.to_string();
        let id = create(&one, &filter, kind).await;
        insert(&one, &filter, 0..500).await;
        insert(&two, &filter, 300..900).await;
        let (lost, news) = sums(&scrub(&one, &filter).await);
        assert!(lost == 0 && news > 0, "{kind}: {lost} lost, {news} news");
        // An item that is present only through bits that the version does not cover still counts as an
        // insert.
        assert_eq!(insert(&nodes[2].coordinator(), &filter, 100..200).await, 0);
        insert(&nodes[2].coordinator(), &filter, 900..1000).await;
        flush_all(&two, &filter).await;
        assert!(are_equal(&nodes, id), "{kind}");
        for node in &nodes {
            let found = present(&node.coordinator(), &filter, 0..1000, ReadLevel::Local).await;
            assert_eq!(found, 1000, "{kind}");
        }
        assert_eq!(sums(&scrub(&two, &filter).await), (0, 0));
    }
    drop((one, two));
    stop(nodes).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn copies_are_compared_in_turn_without_being_asked() {
    let folders = [(); 2].map(|()| tempfile::tempdir().unwrap());
    let (configs, nodes) = start_quiet(&folders).await;
    let id = create(&nodes[0].coordinator(), "seen", Kind::Blocked).await;
    insert(&nodes[0].coordinator(), "seen", 0..1000).await;
    flush_all(&nodes[0].coordinator(), "seen").await;
    stop(nodes).await;
    let often = configs.into_iter().map(|config| start(Config { scrub_interval_s: 1, ..config }));
    let nodes = futures_util::future::join_all(often).await;
    flush_all(&nodes[0].coordinator(), "seen").await;
    // A comparison may come right behind the damage.
    wait_until_equal(&nodes, id).await;
    assert!(nodes[1].rot_copy(id, 3) > 0);
    wait_until_equal(&nodes, id).await;
    stop(nodes).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_cannot_be_compared_is_refused_by_name() {
    let folders = [(); 2].map(|()| tempfile::tempdir().unwrap());
    let (_, mut nodes) = start_quiet(&folders).await;
    let coordinator = nodes[0].coordinator();
    let id = create(&coordinator, "seen", Kind::Blocked).await;
    let unknown = coordinator.scrub(Some("unknown"), deadline()).await.map(|_| ());
    assert!(matches!(unknown, Err(CallFailure::UnknownFilter { .. })));

    let (local, partner) = (nodes[0].local(), nodes[1].id());
    let group = GroupId::of_copy(id).unwrap();
    let compare = async |generation| {
        let generation = Generation(generation);
        let request = umbel_node::calls::CopyRequest::Scrub { generation, partner };
        let patience = deadline().saturating_duration_since(Instant::now());
        match local.copies().call(nodes[0].id(), group, &request, patience).await {
            Ok(umbel_node::calls::CopyAnswer::Compared(compared)) => compared.map(|_| ()),
            other => panic!("{other:?}"),
        }
    };
    assert_eq!(compare(1).await, Ok(()));
    let refused = compare(2).await.unwrap_err();
    assert!(refused.contains("is at generation 1"), "{refused}");
    let gone = nodes.pop().unwrap();
    let who = format!("node {} at {} did not compare its copy: ", partner.0, gone.address());
    gone.shutdown().await;
    let pairs = scrub(&coordinator, "seen").await;
    assert_eq!(pairs.len(), 1);
    let failure = pairs[0].compared.clone().unwrap_err();
    assert!(failure.starts_with(&who), "{failure}");
    drop(coordinator);
    stop(nodes).await;
}

/// A partner that sends a false claim to a node's copy of a filter, until the node ends the comparison.
async fn lie(nodes: &[Node], filter: FilterId, claim: v1::ScrubClaim, full: bool) -> String {
    let (liar, victim) = (&nodes[1], &nodes[0]);
    let mut client = peer_client(liar.local().net(), victim.address()).unwrap();
    let (out, messages) = tokio::sync::mpsc::channel(64);
    // A node that has ended the comparison takes no more; its reason is among what it sent.
    let send = async |part| drop(out.send(v1::ScrubPart { part: Some(part) }).await);
    send(Part::Open(v1::ScrubOpen { filter: filter.0, generation: 1 })).await;
    let mut request = tonic::Request::new(ReceiverStream::new(messages));
    let identity = LocalIdentity { cluster: liar.cluster(), node: liar.id() };
    add_hello(&mut request, identity, victim.id());
    let mut parts = client.scrub(request).await.unwrap().into_inner();
    assert!(matches!(parts.message().await.unwrap().unwrap().part, Some(Part::Claim(_))));
    send(Part::Claim(claim)).await;
    if !full {
        send(Part::Frames(bytes::Bytes::from_static(&[9; 400]))).await;
    }
    let (_, AnyFilter::Blocked(mut bits)) = liar.copy(filter).unwrap() else {
        panic!("a blocked filter")
    };
    bits.words_mut().fill(u64::MAX);
    let bits = FilterBits::of(bits.into()).unwrap();
    let table = bits.table().unwrap();
    let copy = liar.local().copies().get(filter).unwrap();
    let shape_id = umbel_node::testing::shape_id(&copy, Generation(1), None, &table);
    let limits = RepairLimits { bytes_max: u64::MAX, block_reads_max: u64::MAX };
    let domain = liar.cluster().to_le_bytes();
    let options = RepairOptions { shape_id, domain, nonce: 1, limits };
    let mut session = RepairSession::initiator(options, Policy::Union, table);
    let (mut input, mut outbox) = (RepairInput::Start, Outbox::new());
    loop {
        session.step(input, &bits, &mut outbox);
        for output in outbox.take() {
            match output {
                RepairOutput::Send(bytes) => send(Part::Frames(bytes.into())).await,
                RepairOutput::Differs(_) => {}
                RepairOutput::Finish(outcome) => return format!("{outcome:?}"),
            }
        }
        input = match parts.message().await {
            Ok(Some(v1::ScrubPart { part: Some(Part::Frames(bytes)) })) => {
                RepairInput::Received(bytes.into())
            }
            Ok(other) => return format!("{other:?}"),
            Err(status) => return status.message().to_owned(),
        };
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_partner_that_lies_changes_nothing() {
    let folders = [(); 2].map(|()| tempfile::tempdir().unwrap());
    let (_, nodes) = start_quiet(&folders).await;
    let coordinator = nodes[0].coordinator();
    let id = create(&coordinator, "seen", Kind::Blocked).await;
    insert(&coordinator, "seen", 0..1000).await;
    let before = nodes[0].copy(id);
    let nothing = v1::ScrubClaim::default();
    let says = lie(&nodes, id, nothing.clone(), true).await;
    assert!(says.starts_with("more than ") && says.ends_with("bits are lacking here"), "{says}");
    let says = lie(&nodes, id, nothing, false).await;
    assert!(says.contains("malformed frame") || says.contains("gave up"), "{says}");
    let of_us = v1::NodeCount { node: nodes[0].id().0, count: 1_001 };
    let coverage_ahead = v1::ScrubClaim { knows: Vec::new(), may_have: vec![of_us] };
    let says = lie(&nodes, id, coverage_ahead, true).await;
    assert!(says.contains("1001"), "{says}");
    assert!(nodes[0].copy(id) == before);
    // No permit for comparisons was lost.
    assert_eq!(sums(&scrub(&coordinator, "seen").await).0, 0);
    drop(coordinator);
    stop(nodes).await;
}
