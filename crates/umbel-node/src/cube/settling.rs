//! Copies that came late: whether they have what a majority of the others had.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::join_all;
use futures_util::{StreamExt, stream};
use umbel_engine::NodeId;
use umbel_engine::meta::MetaState;

use super::copy::Copy;
use crate::calls::{CopyAnswer, CopyRequest};
use crate::local::Local;

/// How long another node may take to say what its copy has.
const VERSION_TIMEOUT: Duration = Duration::from_secs(1);

/// Copies about which others are asked at once: a new node has all filters to settle, and each asks
/// all nodes.
const COPIES_AT_ONCE_MAX: usize = 16;

/// Finds out whether copies that came late have what a majority of the others had.
pub(super) async fn settle(local: Arc<Local>) {
    let mut others = local.meta().replica().read_meta(MetaState::live_nodes);
    others.remove(&local.node());
    // Who is away is waited for once, and not for each copy.
    let looks = others.iter().map(|&node| {
        let local = &local;
        async move { local.is_reachable(node).await.then_some(node) }
    });
    let present: BTreeSet<NodeId> = join_all(looks).await.into_iter().flatten().collect();
    let other_count = others.len();
    let unsettled = local.copies().all().into_iter().filter(|copy| !copy.is_settled());
    stream::iter(unsettled)
        .for_each_concurrent(COPIES_AT_ONCE_MAX, |copy| {
            let (local, present) = (&local, &present);
            async move { settle_one(local, &copy, present, other_count).await }
        })
        .await;
}

async fn settle_one(local: &Local, copy: &Copy, present: &BTreeSet<NodeId>, other_count: usize) {
    let generation = copy.generation();
    let request = CopyRequest::Version { generation };
    let asked = present.iter().map(|&node| {
        let request = &request;
        async move { local.copy_call(node, copy.group, request, VERSION_TIMEOUT).await }
    });
    let (mut counts, mut late_count) = (Vec::new(), 0);
    for answer in join_all(asked).await {
        match answer {
            Ok(CopyAnswer::Version { version, is_settled: true }) => counts.push(version),
            Ok(CopyAnswer::Version { .. }) => late_count += 1,
            // It may have what was acknowledged.
            _ => {}
        }
    }
    let old_count = other_count - late_count;
    copy.settle(generation, &counts, (old_count / 2 + 1).min(old_count));
}
