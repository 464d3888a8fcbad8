//! Bytes on the wire: sends frames, counts them, and limits them.

use super::error::{Result, limit};
use super::event::{Out, SessionOutput};
use super::message::Message;
use super::meter::Meter;
use super::wire::put_frame;
use crate::limits::SEND_BYTES_MAX;
use umbel_step::planted::{self, Planted};

/// What a side has sent and received, and how much it may.
#[derive(Debug)]
pub(crate) struct Traffic {
    meter: Meter,
    bytes_max: u64,
    sent_since_pause: u64,
}

impl Traffic {
    pub(crate) fn new(bytes_max: u64) -> Self {
        Self { meter: Meter::default(), bytes_max, sent_since_pause: 0 }
    }

    pub(crate) const fn meter(&self) -> &Meter {
        &self.meter
    }

    /// Sends a message now, unless that exceeds the session's byte limit: then the next
    /// [`check`](Self::check) fails. An `Abort` is sent in any case.
    pub(crate) fn send(&mut self, message: &Message, out: &mut Out) {
        let mut bytes = Vec::new();
        put_frame(&mut bytes, message.frame_type(), &message.body());
        self.meter.count_sent(message, bytes.len() as u64);
        if self.check().is_err() && !matches!(message, Message::Abort { .. }) {
            return;
        }
        self.sent_since_pause += bytes.len() as u64;
        out.push(SessionOutput::Send(bytes));
    }

    /// Counts a message that arrived.
    ///
    /// # Errors
    /// If it exceeds the session's byte limit.
    pub(crate) fn receive(&mut self, message: &Message, wire_bytes: u64) -> Result<()> {
        self.meter.count_received(message, wire_bytes);
        self.check()
    }

    /// Checks that the bytes sent and received are within the session's limit.
    pub(crate) fn check(&self) -> Result<()> {
        if planted::on(Planted::ByteCapIgnored) {
            return Ok(());
        }
        let (got, max) = (self.meter.total(), self.bytes_max);
        if got > max { Err(limit("bytes on the wire", got, max)) } else { Ok(()) }
    }

    /// Whether so much was sent that the driver must write it first; then the count begins anew.
    pub(crate) const fn must_pause(&mut self) -> bool {
        let must_pause = self.sent_since_pause >= SEND_BYTES_MAX;
        if must_pause {
            self.sent_since_pause = 0;
        }
        must_pause
    }
}
