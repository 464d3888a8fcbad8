//! What a receiver of snapshots does with transfers that do not fit, or too many.

use std::time::Duration;

use bytes::Bytes;
use tempfile::TempDir;
use umbel_engine::NodeId;
use umbel_ports::encoding::encode;
use umbel_storage::types::Vote;

use super::network_test::{GROUP, begin_of, storage, vote};
use super::snapshot_receiver::{
    SNAPSHOT_IDLE, SNAPSHOT_TRANSFERS_MAX, SnapshotEnd, SnapshotReceiver, chunk_body,
};
use crate::peer::RefusalReason;

fn begin(transfer: u64, byte_count: u64) -> Bytes {
    begin_of(vote(), transfer, byte_count)
}

fn end(transfer: u64) -> Bytes {
    encode(&SnapshotEnd { transfer })
}

#[tokio::test]
async fn what_does_not_fit_ends_the_transfer() {
    let folder = TempDir::new().unwrap();
    let receiver = SnapshotReceiver::new(storage(&folder).await.snapshots(GROUP));
    let from = NodeId(1);
    for (offset, bytes, text) in [
        (1, &b"abc"[..], "3 bytes at 1 of a snapshot of 5 bytes that goes on at 0"),
        (0, b"abcdef", "6 bytes at 0 of a snapshot of 5 bytes that goes on at 0"),
        (0, b"", "0 bytes at 0 of a snapshot of 5 bytes that goes on at 0"),
        (u64::MAX, b"abc", "3 bytes at 18446744073709551615 of a snapshot of 5 bytes"),
    ] {
        receiver.begin(from, begin(1, 5)).await.unwrap();
        let refusal = receiver.chunk(from, chunk_body(1, offset, bytes)).await.unwrap_err();
        assert!(refusal.message.starts_with(text), "{refusal}");
        let refusal = receiver.chunk(from, chunk_body(1, 0, b"abc")).await.unwrap_err();
        assert_eq!(refusal.message, "snapshot transfer 1 of node 1 is not known");
    }
    receiver.begin(from, begin(2, 5)).await.unwrap();
    receiver.chunk(from, chunk_body(2, 0, b"abc")).await.unwrap();
    // The same transfer number from another sender is another transfer.
    assert!(receiver.chunk(NodeId(3), chunk_body(2, 3, b"de")).await.is_err());
    let refusal = receiver.end(from, end(2)).await.unwrap_err();
    assert_eq!(refusal.message, "the snapshot ends at byte 3 of 5");
    assert!(receiver.end(from, end(2)).await.is_err());
    for body in [&b""[..], b"\x01", &[0xff; 17], &[0xff; 40]] {
        let body = Bytes::copy_from_slice(body);
        let reasons = [
            receiver.begin(from, body.clone()).await.unwrap_err().reason,
            receiver.chunk(from, body.clone()).await.unwrap_err().reason,
            receiver.end(from, body).await.unwrap_err().reason,
        ];
        assert_eq!(reasons, [RefusalReason::BadBody; 3]);
    }
}

#[tokio::test]
async fn transfers_are_few() {
    let folder = TempDir::new().unwrap();
    let receiver = SnapshotReceiver::new(storage(&folder).await.snapshots(GROUP));
    let senders = SNAPSHOT_TRANSFERS_MAX as u64;
    // A sender's next transfer replaces its previous one.
    for transfer in 0..5 {
        for sender in 0..senders {
            receiver.begin(NodeId(sender), begin(transfer, 3)).await.unwrap();
        }
    }
    let late = NodeId(senders);
    let refusal = receiver.begin(late, begin(1, 3)).await.unwrap_err();
    assert_eq!(refusal.reason, RefusalReason::Overloaded);
    assert!(receiver.chunk(NodeId(0), chunk_body(3, 0, b"abc")).await.is_err());
    receiver.chunk(NodeId(0), chunk_body(4, 0, b"abc")).await.unwrap();
    receiver.end(NodeId(0), end(4)).await.unwrap();
    receiver.begin(late, begin(1, 3)).await.unwrap();
    assert!(receiver.begin(NodeId(0), begin(5, 3)).await.is_err());
    // All transfers are idle for too long.
    tokio::time::pause();
    tokio::time::advance(SNAPSHOT_IDLE + Duration::from_secs(1)).await;
    tokio::time::resume();
    receiver.begin(NodeId(0), begin(6, 3)).await.unwrap();
    assert!(receiver.chunk(late, chunk_body(1, 0, b"abc")).await.is_err());
}

#[tokio::test]
async fn a_later_leader_does_not_wait_for_transfers_of_earlier_ones() {
    let folder = TempDir::new().unwrap();
    let receiver = SnapshotReceiver::new(storage(&folder).await.snapshots(GROUP));
    let senders = SNAPSHOT_TRANSFERS_MAX as u64;
    for sender in 0..senders {
        receiver.begin(NodeId(sender), begin(1, 3)).await.unwrap();
    }
    let (earlier, later) = (Vote::new(4, NodeId(8)), Vote::new(6, NodeId(9)));
    let refusal = receiver.begin(NodeId(8), begin_of(earlier, 1, 3)).await.unwrap_err();
    assert_eq!(refusal.reason, RefusalReason::Overloaded);
    receiver.begin(NodeId(9), begin_of(later, 1, 3)).await.unwrap();
    assert!(receiver.chunk(NodeId(0), chunk_body(1, 0, b"abc")).await.is_err());
    receiver.chunk(NodeId(9), chunk_body(1, 0, b"abc")).await.unwrap();
}

#[tokio::test]
async fn a_transfer_that_nobody_continues_ends_without_another_call() {
    let folder = TempDir::new().unwrap();
    let receiver = SnapshotReceiver::new(storage(&folder).await.snapshots(GROUP));
    let from = NodeId(1);
    receiver.begin(from, begin(1, 3)).await.unwrap();
    receiver.drop_idle();
    receiver.chunk(from, chunk_body(1, 0, b"a")).await.unwrap();
    tokio::time::pause();
    tokio::time::advance(SNAPSHOT_IDLE + Duration::from_secs(1)).await;
    tokio::time::resume();
    receiver.drop_idle();
    let refusal = receiver.chunk(from, chunk_body(1, 1, b"b")).await.unwrap_err();
    assert_eq!(refusal.message, "snapshot transfer 1 of node 1 is not known");
}
