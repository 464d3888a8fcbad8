//! What names a side of a session.

/// A side of a session: its number, and whether it is the initiator's.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Place {
    pub(super) scenario: usize,
    pub(super) first: bool,
}
