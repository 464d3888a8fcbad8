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
    const ALL: [Self; 2] = [Self::Ordered, Self::Strict];

    /// The name in settings.
    const fn name(self) -> &'static str {
        match self {
            Self::Ordered => "ordered",
            Self::Strict => "strict",
        }
    }

    /// The transactions with this name.
    pub(super) fn of(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|transactions| transactions.name() == name)
    }
}
