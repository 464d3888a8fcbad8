//! Transactions of the Redis protocol.

/// What `EXEC` does with commands that those of other clients could come between.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Transactions {
    /// Executes them in their order.
    Ordered,
    /// Refuses the transaction.
    Strict,
}

impl Transactions {
    /// The transactions with this name in settings.
    pub(super) fn of(name: &str) -> Option<Self> {
        match name {
            "ordered" => Some(Self::Ordered),
            "strict" => Some(Self::Strict),
            _ => None,
        }
    }
}
