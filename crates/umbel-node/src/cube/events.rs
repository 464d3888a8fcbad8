//! What the exchange is told: that a sweep should begin, that a copy was opened, that a partner asks.

use tokio::sync::{OwnedSemaphorePermit, mpsc};
use tonic::Status;
use umbel_engine::NodeId;
use umbel_proto::v1;

use super::wire::CopyQuestion;

/// Parts of an answer that wait to be sent: the next part is encoded while one is being sent.
pub(super) const PARTS_WAITING_MAX: usize = 2;

/// Events for the exchange.
pub(crate) enum ExchangeEvent {
    /// A sweep should begin as soon as possible.
    Wanted,
    /// A copy was opened.
    Opened,
    /// A partner asks.
    Asked(Asked),
}

/// A partner's step, and where its answer goes.
pub(crate) struct Asked {
    pub(super) from: NodeId,
    pub(super) step: v1::ExchangeStep,
    pub(super) questions: Vec<CopyQuestion>,
    pub(super) parts: mpsc::Sender<Result<v1::ExchangePart, Status>>,
    /// Permits for the memory of the questions.
    pub(super) _room: Option<OwnedSemaphorePermit>,
}
