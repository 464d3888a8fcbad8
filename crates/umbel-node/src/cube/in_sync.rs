//! Decides whether copies that were made late have everything that a majority of the older copies have.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::join_all;
use futures_util::{StreamExt, stream};
use umbel_engine::NodeId;
use umbel_engine::meta::MetaState;

use super::copies::Copies;
use super::copy::Copy;
use crate::calls::{CopyAnswer, CopyRequest};

/// How long another node may take to report its copy's version.
const VERSION_TIMEOUT: Duration = Duration::from_secs(1);

/// Copies that are checked at once: a new node has to check all filters, and each check asks all
/// nodes.
const COPIES_AT_ONCE_MAX: usize = 16;

/// Checks whether copies that were made late have everything that a majority of the older copies have.
pub(super) async fn check_copies(copies: Arc<Copies>) {
    let mut others = copies.member.read_meta(MetaState::live_nodes);
    others.remove(&copies.member.node());
    // Reachability is checked once per node, so an absent node delays this once and not for every copy.
    let looks = others.iter().map(|&node| {
        let member = &copies.member;
        async move { member.is_reachable(node).await.then_some(node) }
    });
    let present: BTreeSet<NodeId> = join_all(looks).await.into_iter().flatten().collect();
    let other_count = others.len();
    let late = copies.all().into_iter().filter(|copy| !copy.is_in_sync());
    stream::iter(late)
        .for_each_concurrent(COPIES_AT_ONCE_MAX, |copy| {
            let (copies, present) = (&copies, &present);
            async move { check_copy(copies, &copy, present, other_count).await }
        })
        .await;
}

async fn check_copy(copies: &Copies, copy: &Copy, present: &BTreeSet<NodeId>, other_count: usize) {
    let generation = copy.generation();
    let request = CopyRequest::Version { generation };
    let asked = present.iter().map(|&node| {
        let request = &request;
        async move { copies.call(node, copy.group, request, VERSION_TIMEOUT).await }
    });
    let (mut counts, mut late_count) = (Vec::new(), 0);
    for answer in join_all(asked).await {
        match answer {
            Ok(CopyAnswer::Version { version, is_in_sync: true }) => counts.push(version),
            Ok(CopyAnswer::Version { .. }) => late_count += 1,
            // A node that gave no version may have acknowledged inserts; it counts as an older copy.
            _ => {}
        }
    }
    let old_count = other_count - late_count;
    copy.check_sync(generation, &counts, (old_count / 2 + 1).min(old_count));
}
