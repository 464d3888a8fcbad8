//! Counts bytes on the wire by purpose.

use super::message::{Estimate, Message, Welcome};
use super::outcome::BytesByPhase;

/// Bytes of a session so far.
#[derive(Default, Debug)]
pub(crate) struct Meter {
    pub(crate) bytes: BytesByPhase,
    pub(crate) sent: u64,
    pub(crate) received: u64,
    pub(crate) rounds: u32,
    has_sent: bool,
}

impl Meter {
    pub(crate) fn count_sent(&mut self, message: &Message, wire_bytes: u64) {
        self.sent += wire_bytes;
        self.has_sent = true;
        self.count(message, wire_bytes);
    }

    pub(crate) fn count_received(&mut self, message: &Message, wire_bytes: u64) {
        self.received += wire_bytes;
        self.rounds += u32::from(std::mem::take(&mut self.has_sent));
        self.count(message, wire_bytes);
    }

    pub(crate) const fn total(&self) -> u64 {
        self.sent + self.received
    }

    fn count(&mut self, message: &Message, wire_bytes: u64) {
        let bytes = &mut self.bytes;
        let estimator = match message {
            Message::Hello(hello) => hello.estimator.as_ref().map_or(0, Vec::len),
            Message::Welcome(Welcome::Undecoded {
                estimate: Estimate::Estimator(estimator),
                ..
            }) => estimator.len(),
            _ => 0,
        } as u64;
        bytes.estimator += estimator;
        let slot = match message {
            Message::Hello(_) | Message::Welcome(_) => &mut bytes.hello,
            Message::Filter(_) => &mut bytes.filter,
            Message::Sketch { .. } | Message::Coded { .. } | Message::Buckets { .. } => {
                &mut bytes.sketch
            }
            Message::List(_) => &mut bytes.list,
            Message::Request { .. } => &mut bytes.request,
            Message::Items(_) => &mut bytes.items,
            _ => &mut bytes.control,
        };
        *slot += wire_bytes - estimator;
    }
}
