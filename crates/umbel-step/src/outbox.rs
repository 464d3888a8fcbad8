//! The queue of orders that a state machine outputs.

/// The orders of one or more steps, in the order in which they must be carried out.
///
/// ```
/// let mut outbox = umbel_step::Outbox::new();
/// outbox.push("send");
/// outbox.push("journal");
/// assert_eq!(outbox.take(), ["send", "journal"]);
/// assert!(outbox.take().is_empty());
/// ```
#[derive(Debug)]
pub struct Outbox<Output> {
    orders: Vec<Output>,
}

impl<Output> Default for Outbox<Output> {
    fn default() -> Self {
        Self::new()
    }
}

impl<Output> Outbox<Output> {
    /// An outbox without orders.
    #[must_use]
    pub const fn new() -> Self {
        Self { orders: Vec::new() }
    }

    /// Appends an order.
    pub fn push(&mut self, order: Output) {
        self.orders.push(order);
    }

    /// Returns all orders, oldest first, and leaves the outbox empty.
    #[must_use]
    pub fn take(&mut self) -> Vec<Output> {
        std::mem::take(&mut self.orders)
    }
}
