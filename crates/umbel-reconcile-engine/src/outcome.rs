//! What a session found and what it cost.

use super::options::Direction;

/// Bytes on the wire, both ways together, frame headers included, by what they were for.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct BytesByPhase {
    /// The first frame of each side.
    pub hello: u64,
    /// Estimators in them.
    pub estimator: u64,
    /// One-hash filters.
    pub filter: u64,
    /// Syndromes and coded symbols.
    pub sketch: u64,
    /// Lists of all symbols or items.
    pub list: u64,
    /// Requests for what one side lacks.
    pub request: u64,
    /// Items, and symbols and sums in place of them.
    pub items: u64,
    /// Plans, extensions, credits, digests.
    pub control: u64,
}

impl BytesByPhase {
    /// All of them.
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

/// How a session ended well: both sides computed the same digest.
#[derive(Clone, PartialEq, Debug)]
pub struct Outcome {
    /// What was done with the difference.
    pub direction: Direction,
    /// Whether the initiator wanted the responder to get the difference: see
    /// [`notify_responder`](super::Aim::notify_responder).
    pub notifies_responder: bool,
    /// Items here before the session.
    pub here_count: u64,
    /// Items there before the session.
    pub there_count: u64,
    /// Items that only this side had.
    pub only_here_count: u64,
    /// Items that only the other side had.
    pub only_there_count: u64,
    /// Whether count and 128-bit digest of the union were the same on both sides. Always true in an outcome; what
    /// could not be verified is an error.
    pub verified: bool,
    /// Keys that were tried: 1, and one more for each time that symbols collided.
    pub attempt_count: u32,
    /// Times that this side sent something and then waited for the other.
    pub round_count: u32,
    /// The plan in words, such as `part q=5 h=64 t=26`.
    pub plan: String,
    /// Bytes by what they were for.
    pub bytes: BytesByPhase,
    /// Bytes that this side sent.
    pub sent_bytes: u64,
    /// Bytes that it received.
    pub received_bytes: u64,
    /// The difference as estimated before it was known; 0 if it never was.
    pub estimated_count: u64,
    /// What the plan was expected to cost, hello and all; 0 without a plan.
    pub predicted_bytes: u64,
    /// Fewest bytes that can give both sides what they lack: k of all w-bit items are k·(w − log2 k + 1.4427) bits.
    /// Of items of other than eight bytes w is their mean length here; on a side without items that of what came, or
    /// what the peer said.
    pub lower_bound_bytes: u64,
}
