//! The frames of a resumable connection. They enclose those of the session, and have the same layout.
//!
//! ```text
//! Offer    │ u8 version │ u128 session │ u128 new session │ varint bytes that came │ u128 hash │ varint bytes sent │
//! Verdict  │ u8 │
//! Data     │ bytes of the session's stream │
//! Ack      │ varint bytes of the stream that are durable │
//! ```

use super::{ResumeError, ResumeVerdict, StreamMark};
use crate::error::SessionFrameError;
use crate::wire::{FrameBuffer, Reader, put_frame, put_varint};

/// Version of these frames, and of everything that determines the bytes which a journal regenerates.
const VERSION: u8 = 1;

/// Type of the first frame; no frame of a session has it.
pub(crate) const OFFER: u8 = 32;
pub(crate) const VERDICT: u8 = 33;
const DATA: u8 = 34;
const ACK: u8 = 35;

/// In the order of their codes.
const VERDICTS: [ResumeVerdict; 5] = [
    ResumeVerdict::Same,
    ResumeVerdict::Changed,
    ResumeVerdict::Lost,
    ResumeVerdict::Complete,
    ResumeVerdict::Busy,
];

/// What a side has of a session.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ResumeOffer {
    /// The session to resume.
    pub session: u128,
    /// The session to begin if that one cannot be resumed; drawn by the initiator.
    pub fresh: u128,
    /// How much of the other side's stream is durable here.
    pub received: StreamMark,
    /// Most bytes of its own stream that this side ever sent.
    pub sent: u64,
}

/// A frame of a resumable connection.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum ResumeFrame {
    /// The first frame of each side.
    Offer(ResumeOffer),
    /// Whether the session can go on.
    Verdict(ResumeVerdict),
    /// Bytes of the stream.
    Data(Vec<u8>),
    /// This many bytes of the stream are durable.
    Ack(u64),
}

impl ResumeFrame {
    /// Its name, for errors.
    #[must_use]
    pub const fn name(&self) -> &'static str {
        match self {
            Self::Offer(_) => "Offer",
            Self::Verdict(_) => "Verdict",
            Self::Data(_) => "Data",
            Self::Ack(_) => "Ack",
        }
    }

    /// Its bytes on the wire.
    #[must_use]
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut body = Vec::new();
        let frame_type = match self {
            Self::Offer(offer) => {
                body.push(VERSION);
                body.extend_from_slice(&offer.session.to_le_bytes());
                body.extend_from_slice(&offer.fresh.to_le_bytes());
                put_varint(&mut body, offer.received.bytes);
                body.extend_from_slice(&offer.received.hash.to_le_bytes());
                put_varint(&mut body, offer.sent);
                OFFER
            }
            Self::Verdict(verdict) => {
                body.push(*verdict as u8);
                VERDICT
            }
            Self::Data(bytes) => {
                body.extend_from_slice(bytes);
                DATA
            }
            Self::Ack(bytes) => {
                put_varint(&mut body, *bytes);
                ACK
            }
        };
        let mut bytes = Vec::new();
        put_frame(&mut bytes, frame_type, &body);
        bytes
    }

    fn read(frame_type: u8, body: &[u8]) -> Result<Self, ResumeError> {
        let mut reader = Reader::new(body);
        let frame = match frame_type {
            OFFER => {
                let got = reader.u8("version")?;
                if got != VERSION {
                    return Err(ResumeError::Version { got, expected: VERSION });
                }
                let (session, fresh) = (reader.u128("session")?, reader.u128("new session")?);
                let (bytes, hash) = (reader.varint("bytes that came")?, reader.u128("hash")?);
                let received = StreamMark { bytes, hash };
                Self::Offer(ResumeOffer { session, fresh, received, sent: reader.varint("sent")? })
            }
            VERDICT => {
                let got = reader.u8("verdict")?;
                let unknown = SessionFrameError::Field { field: "verdict", got: got.into() };
                Self::Verdict(*VERDICTS.get(usize::from(got)).ok_or(unknown)?)
            }
            DATA => Self::Data(reader.rest().to_vec()),
            ACK => Self::Ack(reader.varint("bytes")?),
            got => return Err(SessionFrameError::Type { got }.into()),
        };
        reader.finish()?;
        Ok(frame)
    }
}

/// Splits the bytes of a resumable connection into frames.
///
/// ```
/// use umbel_reconcile_engine::{ResumeFrame, ResumeReader};
///
/// let bytes = ResumeFrame::Ack(300).to_bytes();
/// let mut reader = ResumeReader::default();
/// reader.push(&bytes[..4]);
/// assert_eq!(reader.next_frame(), Ok(None));
/// reader.push(&bytes[4..]);
/// assert_eq!(reader.next_frame(), Ok(Some(ResumeFrame::Ack(300))));
/// ```
#[derive(Default, Debug)]
pub struct ResumeReader {
    buffer: FrameBuffer,
}

impl ResumeReader {
    /// Appends received bytes, split anywhere. The caller should read all frames before it pushes more:
    /// then at most one frame is buffered.
    pub fn push(&mut self, bytes: &[u8]) {
        self.buffer.push(bytes);
    }

    /// The next frame, once it is complete.
    ///
    /// # Errors
    /// If the bytes are not a frame.
    pub fn next_frame(&mut self) -> Result<Option<ResumeFrame>, ResumeError> {
        match self.buffer.next_frame()? {
            Some(frame) => ResumeFrame::read(frame.frame_type, &frame.body).map(Some),
            None => Ok(None),
        }
    }

    /// Whether a peer's first bytes begin a resumable connection rather than a plain session; `None` if
    /// there are too few bytes to tell.
    #[must_use]
    pub fn is_resumable(first: &[u8]) -> Option<bool> {
        // The length comes first, in groups of seven bits, then the type.
        let length_bytes = first.iter().take_while(|&&byte| byte & 0x80 != 0).count() + 1;
        first
            .get(length_bytes)
            .map(|&frame_type| frame_type == OFFER)
            .or((length_bytes > 3).then_some(false))
    }
}

#[cfg(test)]
mod tests {
    use proptest::collection::vec;
    use proptest::prelude::*;

    use super::*;

    proptest! {
        /// A frame that can be read has only one encoding, and nothing panics.
        #[test]
        fn frames_have_one_form(frame_type in 30..37u8, mut body in vec(any::<u8>(), 0..90)) {
            if let (Some(first), OFFER | VERDICT) = (body.first_mut(), frame_type) {
                *first %= 6;
            }
            let mut bytes = Vec::new();
            put_frame(&mut bytes, frame_type, &body);
            let mut reader = ResumeReader::default();
            reader.push(&bytes);
            if let Ok(Some(frame)) = reader.next_frame() {
                prop_assert_eq!(frame.to_bytes(), bytes);
            }
        }

        #[test]
        fn anything_may_come(bytes in vec(any::<u8>(), 0..300), cut in 1..40usize) {
            let mut reader = ResumeReader::default();
            for piece in bytes.chunks(cut) {
                reader.push(piece);
                while let Ok(Some(_)) = reader.next_frame() {}
            }
            let _ = ResumeReader::is_resumable(&bytes);
        }
    }

    #[test]
    fn offers_are_distinguished_from_first_frames_of_sessions() {
        let offer = ResumeFrame::Offer(ResumeOffer::first(7)).to_bytes();
        assert_eq!(offer.len(), 1 + 1 + (1 + 16 + 16 + 1 + 16 + 1) + 4);
        assert_eq!(ResumeReader::is_resumable(&offer[..1]), None);
        assert_eq!(ResumeReader::is_resumable(&offer), Some(true));
        let mut hello = Vec::new();
        put_frame(&mut hello, 1, &[0; 168]);
        assert_eq!(ResumeReader::is_resumable(&hello), Some(false));
        assert_eq!(ResumeReader::is_resumable(&[0xff; 9]), Some(false));
    }

    #[test]
    fn verdicts_are_distinguished() {
        for verdict in VERDICTS {
            let mut reader = ResumeReader::default();
            reader.push(&ResumeFrame::Verdict(verdict).to_bytes());
            assert_eq!(reader.next_frame(), Ok(Some(ResumeFrame::Verdict(verdict))));
        }
    }

    #[test]
    fn another_version_is_named() {
        let mut body = vec![9];
        body.extend([0; 50]);
        let mut bytes = Vec::new();
        put_frame(&mut bytes, OFFER, &body);
        let mut reader = ResumeReader::default();
        reader.push(&bytes);
        assert_eq!(reader.next_frame(), Err(ResumeError::Version { got: 9, expected: 1 }));
    }
}
