//! What a session found, and what it cost.

use super::options::{Direction, OnConflict};

/// Bytes on the wire of both directions, frame headers included, by purpose.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct BytesByPhase {
    /// The first frame of each side.
    pub hello: u64,
    /// Estimators in those frames.
    pub estimator: u64,
    /// One-hash filters.
    pub filter: u64,
    /// Syndromes and coded symbols.
    pub sketch: u64,
    /// Lists of all symbols or items.
    pub list: u64,
    /// Requests for what one side lacks.
    pub request: u64,
    /// Items, and symbols and sums sent in place of them.
    pub items: u64,
    /// Plans, extensions, credits, digests.
    pub control: u64,
}

impl BytesByPhase {
    /// The sum of all.
    ///
    /// ```
    /// use umbel_reconcile_engine::BytesByPhase;
    ///
    /// let bytes = BytesByPhase { hello: 211, control: 52, ..BytesByPhase::default() };
    /// assert_eq!(bytes.total(), 263);
    /// ```
    #[must_use]
    pub const fn total(&self) -> u64 {
        self.hello
            + self.estimator
            + self.filter
            + self.sketch
            + self.list
            + self.request
            + self.items
            + self.control
    }
}

/// The result of a successful session: both sides computed the same digest.
#[derive(Clone, PartialEq, Debug)]
pub struct SessionOutcome {
    /// What happened with the difference.
    pub direction: Direction,
    /// Whether the initiator wanted the responder to get the difference: see
    /// [`notify_responder`](super::Aim::notify_responder).
    pub notifies_responder: bool,
    /// Which version of a record that differs on both sides wins, if both take what they lack.
    pub on_conflict: OnConflict,
    /// Whether the initiator's set is B; it matters only for that rule.
    pub initiator_is_b: bool,
    /// Items here before the session.
    pub here_count: u64,
    /// Items there before the session.
    pub there_count: u64,
    /// Items that only this side had.
    pub only_here_count: u64,
    /// Items that only the other side had.
    pub only_there_count: u64,
    /// Whether count and 128-bit digest of the union were the same on both sides. Always true in an
    /// outcome; a session that cannot verify this ends with an error.
    pub verified: bool,
    /// Keys that were tried: 1, and one more for each failed attempt.
    pub attempt_count: u32,
    /// How often this side sent something and then waited for the other.
    pub round_count: u32,
    /// The plan as text, such as `part q=5 h=64 t=26`.
    pub plan: String,
    /// Bytes by purpose.
    pub bytes: BytesByPhase,
    /// Bytes that this side sent.
    pub sent_bytes: u64,
    /// Bytes that this side received.
    pub received_bytes: u64,
    /// The estimated difference; 0 if there was no estimate.
    pub estimated_count: u64,
    /// Expected cost of the plan, including the hello; 0 without a plan.
    pub predicted_bytes: u64,
    /// Fewest bytes that can give both sides what they lack: k of all w-bit items are k·(w − log2 k +
    /// 1.4427) bits. For items other than 64-bit ids, w is their mean length here; on a side without items
    /// that of the received items, or the one that the peer stated.
    pub lower_bound_bytes: u64,
}
