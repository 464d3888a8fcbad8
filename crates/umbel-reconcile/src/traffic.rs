//! What a connection has sent and received.

use crate::foreign::Heard;
use std::sync::atomic::{AtomicU64, Ordering};

/// Framing bytes around the stream of a resumable session; and for any session, how many bytes were read and written in
/// all, and what came first.
#[derive(Default)]
pub(super) struct Traffic {
    pub(super) sent: AtomicU64,
    pub(super) received: AtomicU64,
    pub(super) moved: AtomicU64,
    pub(super) heard: Heard,
}

impl Traffic {
    /// Bytes sent and received.
    pub(super) fn bytes(&self) -> [u64; 2] {
        [&self.sent, &self.received].map(|bytes| bytes.load(Ordering::Relaxed))
    }
}
