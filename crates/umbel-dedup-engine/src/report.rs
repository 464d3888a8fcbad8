//! Counters of what an exchange has sent and found. They can be added up over cells, workers and threads.

use super::frame::{Frame, FrameKind};
use serde::{Deserialize, Serialize};
use std::ops::AddAssign;

/// Entropies are summed as integers in this fraction of a bit, so that the sum does not depend on the order.
const ENTROPY_UNITS_PER_BIT: f64 = 1024.0;

/// The counters of a worker, or, added up, of a job.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct ExchangeReport {
    /// Items that entered the exchange.
    pub items: u64,
    /// Locally distinct entries, n.
    pub entries: u64,
    /// Items dropped because the same worker has an equal one.
    pub local_drops: u64,
    /// Items dropped because another worker has an equal one.
    pub cross_drops: u64,
    /// Items dropped because a reference equals them.
    pub reference_drops: u64,
    /// Entries that collided in the filter.
    pub candidates: u64,
    /// Entries that still collided after the refinement.
    pub survivors: u64,
    /// Entries whose whole hash another worker has too; δ is this divided by `entries`.
    pub shared: u64,
    /// At exactness `bytes`: different items with the same hash, beyond the first of each hash.
    pub collisions: u64,
    /// Frames sent to other workers.
    pub network_frames: u64,
    /// Bytes of those frames, headers included.
    pub network_bytes: u64,
    /// Bytes of frames from a worker to itself.
    pub self_bytes: u64,
    /// Bytes of headers and checksums of all frames.
    pub header_bytes: u64,
    payload_bytes: [u64; FrameKind::ALL.len()],
    entropy_units: [u64; FrameKind::ALL.len()],
}

impl ExchangeReport {
    /// Bits of all payloads of a kind, including frames from a worker to itself.
    #[must_use]
    pub fn payload_bits(&self, kind: FrameKind) -> u64 {
        8 * self.payload_bytes[kind.row()]
    }

    /// Entropy in bits of the content of those payloads, where it is known: positions and verdicts of filter passes.
    #[must_use]
    pub fn entropy_bits(&self, kind: FrameKind) -> f64 {
        self.entropy_units[kind.row()] as f64 / ENTROPY_UNITS_PER_BIT
    }

    /// Counts a frame that was sent.
    pub(super) fn sent(&mut self, frame: &Frame<'_>, frame_bytes: usize, to_self: bool) {
        self.payload_bytes[frame.kind.row()] += frame.payload.len() as u64;
        self.header_bytes += frame.header_bytes(frame_bytes) as u64;
        if to_self {
            self.self_bytes += frame_bytes as u64;
        } else {
            self.network_bytes += frame_bytes as u64;
            self.network_frames += 1;
        }
    }

    /// Adds to the entropy of a kind.
    pub(super) fn add_entropy(&mut self, kind: FrameKind, bits: f64) {
        #[expect(clippy::cast_possible_truncation, reason = "saturating")]
        let units = (bits * ENTROPY_UNITS_PER_BIT).round() as u64;
        self.entropy_units[kind.row()] += units;
    }
}

impl AddAssign for ExchangeReport {
    fn add_assign(&mut self, other: Self) {
        let pairs = [
            (&mut self.items, other.items),
            (&mut self.entries, other.entries),
            (&mut self.local_drops, other.local_drops),
            (&mut self.cross_drops, other.cross_drops),
            (&mut self.reference_drops, other.reference_drops),
            (&mut self.candidates, other.candidates),
            (&mut self.survivors, other.survivors),
            (&mut self.shared, other.shared),
            (&mut self.collisions, other.collisions),
            (&mut self.network_frames, other.network_frames),
            (&mut self.network_bytes, other.network_bytes),
            (&mut self.self_bytes, other.self_bytes),
            (&mut self.header_bytes, other.header_bytes),
        ];
        for (sum, part) in pairs {
            *sum = sum.saturating_add(part);
        }
        let ours = self.payload_bytes.iter_mut().chain(&mut self.entropy_units);
        let theirs = other.payload_bytes.into_iter().chain(other.entropy_units);
        ours.zip(theirs).for_each(|(sum, part)| *sum = sum.saturating_add(part));
    }
}
