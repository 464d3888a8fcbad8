//! The bytes in flight to a peer that keeps a journal.

use std::collections::VecDeque;

use super::{ResumeError, ResumeFrame};
use crate::limits::{RESUME_PIECE_BYTES_MAX, RESUME_WINDOW_BYTES};
use umbel_step::planted::{self, Planted};

/// Smallest room in the window for which a frame is cut, unless fewer bytes are waiting: this keeps frames
/// long.
const ROOM_BYTES_MIN: u64 = RESUME_WINDOW_BYTES / 8;

/// Splits a stream into frames, and limits the bytes that are sent and not acknowledged to
/// [`RESUME_WINDOW_BYTES`]: these may have to be sent again.
#[derive(Clone, Debug)]
pub struct SendWindow {
    sent: u64,
    acked: u64,
    waiting: VecDeque<u8>,
}

impl SendWindow {
    /// A window at this offset of the stream: the peer has all bytes before it.
    #[must_use]
    pub const fn new(offset: u64) -> Self {
        Self { sent: offset, acked: offset, waiting: VecDeque::new() }
    }

    /// Appends bytes to the stream.
    pub fn push(&mut self, bytes: &[u8]) {
        self.waiting.extend(bytes);
    }

    /// The next frame, if there is room in the window.
    pub fn next_frame(&mut self) -> Option<Vec<u8>> {
        let under_way = self.sent - self.acked;
        let under_way = if planted::on(Planted::ResumeWindowIgnored) { 0 } else { under_way };
        let room = RESUME_WINDOW_BYTES.saturating_sub(under_way);
        let wanted = self.waiting.len().min(RESUME_PIECE_BYTES_MAX);
        if wanted == 0 || room < ROOM_BYTES_MIN.min(wanted as u64) {
            return None;
        }
        let count = usize::try_from(room).unwrap_or(usize::MAX).min(wanted);
        self.sent += count as u64;
        let piece: Vec<u8> = self.waiting.drain(..count).collect();
        Some(ResumeFrame::Data(piece).to_bytes())
    }

    /// The peer reports that the first `bytes` bytes of the stream are durable.
    ///
    /// # Errors
    /// If they were not sent, or it has acknowledged more before.
    pub const fn acknowledge(&mut self, bytes: u64) -> Result<(), ResumeError> {
        if bytes < self.acked || bytes > self.sent {
            let (acked, sent) = (self.acked, self.sent);
            return Err(ResumeError::Acknowledged { got: bytes, acked, sent });
        }
        self.acked = bytes;
        Ok(())
    }

    /// Number of bytes of the stream that were sent.
    #[must_use]
    pub const fn sent(&self) -> u64 {
        self.sent
    }

    /// Whether nothing waits to be sent.
    #[must_use]
    pub fn is_sent(&self) -> bool {
        self.waiting.is_empty()
    }

    /// Whether the peer has everything.
    #[must_use]
    pub fn is_acknowledged(&self) -> bool {
        self.is_sent() && self.acked == self.sent
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_more_is_on_its_way_than_the_window() {
        let mut window = SendWindow::new(100);
        window.push(&vec![7; 100_000]);
        let (mut sent, mut acked) = (100, 100);
        while !window.is_acknowledged() {
            let had_all = window.is_sent();
            while window.next_frame().is_some() {
                assert!(window.sent() - acked <= RESUME_WINDOW_BYTES);
            }
            assert!(window.sent() > sent || had_all, "it goes on");
            sent = window.sent();
            acked = sent.min(acked + 9_000);
            window.acknowledge(acked).unwrap();
        }
        assert_eq!((sent, window.is_sent()), (100_100, true));
    }

    #[test]
    fn acknowledgements_that_lie_are_errors() {
        let mut window = SendWindow::new(10);
        window.push(b"abc");
        assert!(window.acknowledge(11).is_err(), "not yet sent");
        window.next_frame().unwrap();
        window.acknowledge(12).unwrap();
        let error = window.acknowledge(11).unwrap_err();
        assert_eq!(error, ResumeError::Acknowledged { got: 11, acked: 12, sent: 13 });
        assert!(window.acknowledge(u64::MAX).is_err());
        assert!(!window.is_acknowledged());
        window.acknowledge(13).unwrap();
        assert!(window.is_acknowledged() && window.next_frame().is_none());
    }
}
