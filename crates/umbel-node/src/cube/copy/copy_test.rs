//! What a copy saves, and what it does not.

use std::sync::Arc;

use umbel_engine::NodeId;
use umbel_engine::meta::Distribution;
use umbel_replicated_engine::hypercube::{DeltaContent, Replica, ReplicaOptions};

use super::Copy;
use crate::testing::{create_filter, start_alone};

/// An empty copy of the same filter on another node, which sends it whole in small frames.
pub(in crate::cube) fn partner_of(copy: &Copy, node: NodeId) -> Replica {
    let options = ReplicaOptions {
        node,
        filter: copy.filter,
        generation: copy.generation(),
        log: 7,
        key: copy.settings.frame_key(),
        log_bytes_max: 0,
        payload_bytes_max: 1 << 10,
    };
    Replica::new(options, copy.settings.shape.create_copy().unwrap()).unwrap()
}

/// A save in the middle of a whole filter contains only the frames before it.
#[tokio::test]
async fn what_comes_behind_a_save_is_on_no_disk() {
    let folder = tempfile::tempdir().unwrap();
    let node = start_alone(folder.path()).await;
    let id = create_filter(&node, Distribution::Replicated, (10_000, 1e-6)).await;
    let copies = Arc::clone(node.local());
    let copy = copies.copies().get(id).unwrap();
    let (own, partner) = (copies.node(), NodeId(99));
    let empty = copy.settings.shape.create_copy().unwrap();
    let mut other = partner_of(&copy, partner);
    let hashes: Vec<_> =
        (0..1000_u32).map(|item| copy.hasher().hash(&item.to_le_bytes())).collect();
    other.insert(&hashes, &mut Vec::new()).unwrap();
    other.begin_sweep();
    let delta = other.reply(own, &copy.ask(partner)).unwrap().delta;
    assert_eq!(delta.content, DeltaContent::Whole);
    let ReplicaOptions { key, payload_bytes_max, .. } = *other.options();
    let mut frames = umbel_codec::frames(other.filter(), key, payload_bytes_max);

    copy.begin_whole(partner, &delta).unwrap();
    assert!(copy.merge_whole_frame(partner, &delta, &frames.next().unwrap().unwrap()).unwrap() > 0);
    assert!(copy.is_volatile());
    copies.copies().absorb(id, copy.generation(), &empty, None).await.unwrap();
    assert!(!copy.is_volatile());
    assert!(copy.merge_whole_frame(partner, &delta, &frames.next().unwrap().unwrap()).unwrap() > 0);
    assert!(copy.is_volatile());
    drop((copies, copy));
    node.shutdown().await;
}
