//! Exports whose reader stops at every moment: the node that holds a copy gives it up.

use std::future::poll_fn;
use std::pin::pin;
use std::task::Poll;

use umbel_engine::meta::{Distribution, FilterName};
use umbel_filter::Kind;
use umbel_node::limits::EXPORT_ANSWER_BYTES;

use super::node_test::{config, deadline, free_addresses, start};
use super::*;
use crate::catalogue::{FilterRequest, Hashing};
use crate::sizes::FilterSize;
use crate::transfers::{ExportWish, KnownFrames};
use umbel_node::failure::CallFailure;

/// Bytes of a slice: more than a node sends at once, so that its copy waits for its reader in between.
const SLICE_BYTES: u64 = EXPORT_ANSWER_BYTES as u64 * 3 / 2;

fn name() -> FilterName {
    FilterName::new("large").unwrap()
}

/// Creates a filter whose frames are written as words, however few items it has.
async fn create_large(coordinator: &Coordinator) {
    let new = FilterRequest::Planned {
        kind: Kind::Blocked,
        distribution: Distribution::Partitioned,
        capacity: 1_000_000,
        size: FilterSize::Bytes(SLICE_BYTES),
        hashing: Hashing::Keyed,
    };
    coordinator.create(&name(), &new, None, deadline()).await.unwrap();
}

async fn read_all(coordinator: &Arc<Coordinator>, is_snapshot: bool) -> Result<(), CallFailure> {
    let wish = ExportWish { known: Some(KnownFrames::default()), is_snapshot };
    let mut parts = coordinator.export(&name(), wish, deadline()).await?;
    while parts.next().await?.is_some() {}
    Ok(())
}

/// The output of a future that has to wait at most so often, or else None: it is dropped where it waits then.
async fn with_waits<T>(most: usize, future: impl Future<Output = T>) -> Option<T> {
    let (mut future, mut left) = (pin!(future), most);
    let polled = poll_fn(|cx| match future.as_mut().poll(cx) {
        Poll::Ready(output) => Poll::Ready(Some(output)),
        Poll::Pending if left == 0 => Poll::Ready(None),
        Poll::Pending => {
            left -= 1;
            Poll::Pending
        }
    });
    polled.await
}

/// Waits until no node holds a copy. No other export begins meanwhile, so that none is given up for being idle.
async fn all_are_given_up(nodes: &[Node], moment: &str) {
    let end = deadline();
    while nodes.iter().any(|node| node.export_count() > 0) {
        assert!(Instant::now() < end, "{moment}: a copy stays");
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
}

/// Of two nodes one leads the only shard, so that the other one reads its copies from afar.
#[tokio::test(flavor = "multi_thread")]
async fn a_copy_is_given_up_at_whatever_moment_its_reader_stops() {
    let folders = [(); 2].map(|()| tempfile::tempdir().unwrap());
    let addresses = free_addresses(2);
    let starts = folders.iter().zip(&addresses).map(|(folder, address)| {
        start(Config {
            listen: address.clone(),
            initial_cluster: addresses.clone(),
            shards: 1,
            ..config(folder.path())
        })
    });
    let nodes = futures_util::future::join_all(starts).await;
    let coordinators: Vec<_> = nodes.iter().map(Node::coordinator).collect();
    create_large(&coordinators[0]).await;
    for (coordinator, is_snapshot) in
        coordinators.iter().flat_map(|coordinator| [(coordinator, false), (coordinator, true)])
    {
        let end = deadline();
        for waits in 0.. {
            let read = with_waits(waits, read_all(coordinator, is_snapshot)).await;
            let moment = format!("snapshot {is_snapshot}, after {waits} waits");
            all_are_given_up(&nodes, &moment).await;
            match read {
                Some(Ok(())) => break,
                // Without a leader for a moment, as on a busy machine.
                Some(Err(failure)) => assert!(Instant::now() < end, "{moment}: {failure}"),
                None => {}
            }
        }
    }
    drop(coordinators);
    futures_util::future::join_all(nodes.into_iter().map(Node::shutdown)).await;
}
