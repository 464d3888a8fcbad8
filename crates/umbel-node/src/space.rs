//! Free space of the disk: inserts are refused before the log runs out of room.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use umbel_ports::Disk;
use umbel_storage::{Storage, WalHealth};

use crate::metrics;

/// How often the free bytes are read. At a gigabyte a second, the fastest growth of a log, the default
/// reserve lasts that long.
const LOOK_INTERVAL: Duration = Duration::from_secs(1);

/// Free bytes, as last read.
pub(crate) struct Space {
    free_bytes: AtomicU64,
    is_log_full: AtomicBool,
    is_folder_gone: AtomicBool,
    reserve_bytes: u64,
}

impl Space {
    pub(crate) fn new(reserve_bytes: u64) -> Arc<Self> {
        let free_bytes = AtomicU64::new(u64::MAX);
        let (is_log_full, is_folder_gone) = (AtomicBool::new(false), AtomicBool::new(false));
        Arc::new(Self { free_bytes, is_log_full, is_folder_gone, reserve_bytes })
    }

    /// The free bytes, as last read; None before the first time.
    pub(crate) fn free_bytes(&self) -> Option<u64> {
        let free_bytes = self.free_bytes.load(Ordering::Relaxed);
        (free_bytes != u64::MAX).then_some(free_bytes)
    }

    /// The free bytes, if they are too few for inserts.
    pub(crate) fn shortage(&self) -> Option<u64> {
        let free_bytes = self.free_bytes.load(Ordering::Relaxed);
        let is_short = free_bytes < self.reserve_bytes || self.is_log_full.load(Ordering::Relaxed);
        is_short.then_some(free_bytes)
    }

    /// Whether the data folder was found missing at the last look: somebody removed it, or its disk.
    pub(crate) fn is_folder_gone(&self) -> bool {
        self.is_folder_gone.load(Ordering::Relaxed)
    }

    /// Notes why the free bytes could not be read, None if they were. Tells operators of each reason once, until it ends.
    fn note(&self, failure: Option<io::Error>, last: &mut Option<io::ErrorKind>) {
        let kind = failure.as_ref().map(io::Error::kind);
        let is_gone = kind == Some(io::ErrorKind::NotFound);
        self.is_folder_gone.store(is_gone, Ordering::Relaxed);
        if kind != *last {
            match failure {
                Some(_) if is_gone => tracing::error!(
                    "the data folder is gone: what this node confirms from now on is lost when it ends. Put the folder \
                     back if it was moved; otherwise stop this node, remove it from the cluster, and let it join again"
                ),
                Some(error) => tracing::warn!(%error, "cannot tell the disk's free bytes"),
                None => tracing::info!("the disk's free bytes can be told again"),
            }
        }
        *last = kind;
    }

    /// Reads the free bytes periodically, for ever.
    pub(crate) async fn watch(self: Arc<Self>, disk: Arc<dyn Disk>, storage: Storage) {
        let (mut was_short, mut last_failure) = (false, None);
        loop {
            let free_bytes = disk.free_bytes().await;
            if let Ok(free_bytes) = free_bytes {
                self.free_bytes.store(free_bytes, Ordering::Relaxed);
            }
            self.note(free_bytes.err(), &mut last_failure);
            let is_full = *storage.health().borrow() == WalHealth::Full;
            self.is_log_full.store(is_full, Ordering::Relaxed);
            let shortage = self.shortage();
            if shortage.is_some() != was_short {
                was_short = shortage.is_some();
                let free_bytes = self.free_bytes.load(Ordering::Relaxed);
                if was_short {
                    tracing::warn!(
                        free_bytes,
                        disk_reserve_bytes = self.reserve_bytes,
                        "disk is nearly full: inserts are refused until there is room"
                    );
                } else {
                    tracing::info!(free_bytes, "disk has room again: inserts are taken");
                }
            }
            metrics::disk_free(self.free_bytes.load(Ordering::Relaxed), was_short);
            tokio::time::sleep(LOOK_INTERVAL).await;
        }
    }
}
