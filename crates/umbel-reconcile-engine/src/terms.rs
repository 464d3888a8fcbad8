//! What the session is to do: this side's options, and the aim that the initiator's first frame states.

use super::error::{Result, SessionRefusal, limit};
use super::message::{Hello, RequestMode};
use super::options::{Aim, Direction, OnConflict, Options, SessionRole, SymbolKind};
use super::plan::SYMBOL_BITS_MIN;

/// What one side sends of the items that only it has.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Flow {
    Contents,
    /// Symbols, and the sum of the hashes.
    Symbols,
    /// Only the sum of the hashes, so that the digest of the union can be computed.
    Sum,
}

/// Options and aim of one side.
#[derive(Debug)]
pub(crate) struct Terms {
    pub(crate) options: Options,
    pub(crate) aim: Aim,
    pub(crate) is_initiator: bool,
    /// Fewest bits of a symbol: 32; tests use fewer to force collisions.
    pub(crate) symbol_bits_min: u8,
}

impl Terms {
    pub(crate) const fn new(options: Options, aim: Aim, is_initiator: bool) -> Self {
        Self { options, aim, is_initiator, symbol_bits_min: SYMBOL_BITS_MIN }
    }

    pub(crate) const fn kind(&self) -> SymbolKind {
        self.options.kind
    }

    /// Why this side, as a responder, refuses what a Hello asks for; `None` if it accepts it.
    pub(crate) fn refusal(&self, hello: &Hello) -> Option<SessionRefusal> {
        let (accepts, rule) = match self.options.role {
            SessionRole::Responder { accept_items, on_conflict } => (accept_items, on_conflict),
            SessionRole::Initiator(_) => (false, OnConflict::Report),
        };
        if hello.kind != self.kind() {
            Some(SessionRefusal::Kind)
        } else if hello.dataset_id != self.options.dataset_id {
            Some(SessionRefusal::Dataset)
        } else if hello.aim.direction.to_responder() && !accepts {
            Some(SessionRefusal::ReadOnly)
        } else if hello.aim.direction == Direction::TwoWay
            && ![OnConflict::Report, hello.aim.on_conflict].contains(&rule)
        {
            Some(SessionRefusal::Conflict)
        } else {
            None
        }
    }

    /// What is sent to the initiator, which always gets the difference.
    const fn flow_to_initiator(&self) -> Flow {
        let wants = matches!(self.aim.direction, Direction::Compare) && self.aim.want_items;
        if self.aim.direction.to_initiator() || wants { Flow::Contents } else { Flow::Symbols }
    }

    /// What is sent to the responder.
    const fn flow_to_responder(&self) -> Flow {
        match self.aim.direction {
            Direction::Push | Direction::TwoWay => Flow::Contents,
            Direction::Compare if self.aim.notify_responder => Flow::Symbols,
            Direction::Compare | Direction::Pull => Flow::Sum,
        }
    }

    /// What this side receives.
    pub(crate) const fn flow_here(&self) -> Flow {
        if self.is_initiator { self.flow_to_initiator() } else { self.flow_to_responder() }
    }

    /// What this side sends.
    pub(crate) const fn flow_there(&self) -> Flow {
        if self.is_initiator { self.flow_to_responder() } else { self.flow_to_initiator() }
    }

    /// Whether this side's set grows.
    pub(crate) const fn changes_here(&self) -> bool {
        let Self { aim: Aim { direction, .. }, is_initiator, .. } = self;
        if *is_initiator { direction.to_initiator() } else { direction.to_responder() }
    }

    /// Whether the other side's set grows.
    pub(crate) const fn changes_there(&self) -> bool {
        let Self { aim: Aim { direction, .. }, is_initiator, .. } = self;
        if *is_initiator { direction.to_responder() } else { direction.to_initiator() }
    }

    /// What a request for symbols should return; `None` if no request is needed.
    pub(crate) fn request_mode(&self) -> Option<RequestMode> {
        match (self.kind(), self.flow_here()) {
            // The decoding side has the ids. The other side is told which of its ids are missing here if it
            // is to know.
            (SymbolKind::Id64, _) => {
                let other_is_initiator = !self.is_initiator;
                (other_is_initiator || self.notifies_peer()).then_some(RequestMode::Hashes)
            }
            (_, Flow::Contents) => Some(RequestMode::Contents),
            _ => Some(RequestMode::Sum),
        }
    }

    /// Whether the peer is to learn which of its items are missing here.
    pub(crate) fn notifies_peer(&self) -> bool {
        let shows = self.flow_to_responder() == Flow::Symbols;
        let removes = self.aim.notify_responder && self.aim.direction == Direction::Push;
        self.is_initiator && (shows || removes)
    }

    /// Whether an initiator without items has this side remove all that it has. Which items these are only this side
    /// has to know.
    pub(crate) fn empties_responder(&self, initiator_count: u64) -> bool {
        let removes = self.aim.notify_responder && self.aim.direction == Direction::Push;
        !self.is_initiator && removes && initiator_count == 0
    }

    /// Checks a number of differences against this side's limit.
    pub(crate) fn check_difference(&self, count: u64) -> Result<()> {
        let max = self.options.limits.diff_max;
        if count > max { Err(limit("differences", count, max)) } else { Ok(()) }
    }
}
