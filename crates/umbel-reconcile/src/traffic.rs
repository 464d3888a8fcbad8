//! What a connection has sent and received.

use crate::foreign::Heard;
use std::sync::atomic::{AtomicU64, Ordering};

/// Bytes of both directions.
#[derive(Clone, Copy, Default, Debug)]
pub struct WireBytes {
    /// What this side sent.
    pub sent: u64,
    /// What it received.
    pub received: u64,
}

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
    /// Framing bytes around the stream of a resumable session.
    pub(super) fn framing(&self) -> WireBytes {
        let [sent, received] =
            [&self.sent, &self.received].map(|bytes| bytes.load(Ordering::Relaxed));
        WireBytes { sent, received }
    }
}
