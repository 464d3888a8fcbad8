//! A node with a full disk: shards that it leads refuse inserts and answer queries, and recover when
//! there is space again.

use std::fs::{self, File};
use std::io::Write;
use std::process::{Command, Stdio};
use std::time::Duration;

use tempfile::TempDir;
use tokio::time::Instant;
use umbel_client::{Client, ClientError, ClientOptions, ErrorCode, ReadLevel};

use crate::load::{contains, insert, item, sharp_filter};
use crate::servers::{Cluster, PATIENCE, options, until};

/// Size of each disk.
const DISK_MIB: u32 = 96;

/// A file system in memory, which is unmounted when the test ends.
struct SmallDisk(TempDir);

impl SmallDisk {
    /// Mounts one; prints a line and returns None if that is not allowed.
    fn mount() -> Option<Self> {
        let folder = tempfile::Builder::new().prefix("umbel-small-").tempdir().unwrap();
        let size = format!("size={DISK_MIB}m");
        let mut mount = Command::new("mount");
        mount.args(["-t", "tmpfs", "-o", &size, "umbel-test"]).arg(folder.path());
        match mount.stdin(Stdio::null()).output() {
            Ok(output) if output.status.success() => Some(Self(folder)),
            _ => {
                println!("skipped: needs root to mount a small disk");
                None
            }
        }
    }

    /// Writes a file that takes all free space.
    fn fill(&self) {
        let mut file = File::create(self.0.path().join("ballast")).unwrap();
        for piece_bytes in [1 << 20, 4096] {
            while file.write_all(&vec![0x55; piece_bytes]).is_ok() {}
        }
    }

    /// Removes that file.
    fn free(&self) {
        fs::remove_file(self.0.path().join("ballast")).unwrap();
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("-l").arg(self.0.path()).status();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_disk_below_its_reserve_refuses_inserts_until_there_is_room_again() {
    fills_and_frees("16777216").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_disk_without_a_free_byte_refuses_inserts_until_there_is_room_again() {
    fills_and_frees("0").await;
}

/// Fills the disk of a leader that reserves this many bytes, and frees it again.
async fn fills_and_frees(reserve_bytes: &str) {
    let disks: Vec<SmallDisk> = (0..3).map_while(|_| SmallDisk::mount()).collect();
    if disks.len() < 3 {
        return;
    }
    let mut folders = disks.iter().map(|disk| disk.0.path()).cycle();
    let cluster = Cluster::form_with(3, |node| {
        node.data = folders.next().unwrap().join(node.address.replace(':', "-"));
        node.set("UMBEL_DISK_RESERVE_BYTES", reserve_bytes);
    })
    .await;
    cluster.client().create("seen", &sharp_filter()).await.unwrap();
    let filter = cluster.client().filter("seen");
    let before: Vec<u64> = (0..1000).collect();
    assert_eq!(insert(&filter, &before).await.new_count(), before.len());

    let status = cluster
        .status_until("shard 0 is led by somebody", |status| status.shards[0].leader != 0)
        .await;
    let full = usize::try_from(status.shards[0].leader).unwrap() - 1;
    disks[full].fill();
    let addresses: Vec<&str> = cluster.nodes.iter().map(|node| node.address.as_str()).collect();
    let timeout = Duration::from_secs(3);
    let options = ClientOptions { timeout, attempt_timeout: timeout / 3, ..options() };
    let hasty = Client::connect_with(addresses, options).unwrap().filter("seen");
    let mut acknowledged = before;
    let mut refusal = None;
    let deadline = Instant::now() + PATIENCE;
    // One item per request, since a request for several shards may be applied in part, with another
    // error.
    for number in 10_000.. {
        match hasty.insert([item(number)]).await {
            Ok(_) => acknowledged.push(number),
            Err(
                ClientError::OutcomeUnknown { failure, .. }
                | ClientError::Unavailable(failure)
                | ClientError::Refused(failure),
            ) => {
                if failure.cause == ErrorCode::DiskFull {
                    break;
                }
                refusal = Some(failure);
            }
            Err(error) => panic!("{error}"),
        }
        assert!(Instant::now() < deadline, "DISK_FULL was not said, but {refusal:?}");
    }
    for node in &cluster.nodes {
        let filter = node.client().filter("seen");
        let found = contains(&filter, &acknowledged, ReadLevel::Linearizable).await;
        assert!(found.iter().all(|found| *found), "through {}", node.address);
    }

    // A new filter is refused before anything of it is written.
    let refusal = cluster.client().create("more", &sharp_filter()).await.unwrap_err();
    assert_eq!(refusal.failure().unwrap().cause, ErrorCode::DiskFull, "{refusal}");
    let listed = cluster.client().list("").await.unwrap();
    assert!(listed.iter().all(|filter| filter.name != "more"), "{listed:?}");

    disks[full].free();
    until("inserts are taken again", || async {
        hasty.insert([0, 1, 2, 3, 4, 5, 6, 7].map(|at| item(900_000 + at))).await.ok()
    })
    .await;
    let after: Vec<u64> = (1_000_000..1_001_000).collect();
    assert_eq!(insert(&filter, &after).await.new_count(), after.len());
    for node in &cluster.nodes {
        // Each was started only once.
        assert_eq!(node.log().matches("listening on ").count(), 1);
        let filter = node.client().filter("seen");
        let found = contains(&filter, &after, ReadLevel::Linearizable).await;
        assert!(found.iter().all(|found| *found), "through {}", node.address);
    }
}
