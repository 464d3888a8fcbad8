//! The records of a journal, laid out as frames, one after another.
//!
//! ```text
//! Begin     │ u8 version │ u8 role │ u128 session │ u64 dataset │ u64 nonce │ 16 secret │ fingerprint │
//! Received  │ bytes of the other side's stream │
//! Sent      │ varint bytes of this side's stream that were sent by now │
//! Resumed   │ varint bytes that travel again because of it │
//! Ended     │ fingerprint of the set as it will be │ the end of this side's stream │
//! ```
//!
//! A torn or damaged record ends the journal: what followed it was never acknowledged, or is sent again.

use super::{ResumeError, StreamEnd, StreamHash};
use crate::error::SessionFrameError;
use crate::pass::Fingerprint;
use crate::wire::{FrameBuffer, Reader, put_frame, put_varint};

/// Version of these records.
const VERSION: u8 = 1;

const BEGIN: u8 = 48;
const RECEIVED: u8 = 49;
const SENT: u8 = 50;
const RESUMED: u8 = 51;
const ENDED: u8 = 52;

/// The parameters that a session began with and needs to be replayed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct JournalHeader {
    /// The session's id.
    pub session: u128,
    /// Whether this side is the initiator.
    pub is_initiator: bool,
    /// The dataset that is reconciled.
    pub dataset_id: u64,
    /// The nonce that this side drew for the session.
    pub nonce: u64,
    /// Key of the fingerprints; no peer learns it.
    pub secret: [u8; 16],
    /// Identifies the set.
    pub fingerprint: Fingerprint,
}

/// One record of a journal.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum JournalRecord {
    /// The first record.
    Begin(JournalHeader),
    /// Received bytes.
    Received(Vec<u8>),
    /// This many bytes were sent, or are about to be.
    Sent(u64),
    /// The session was resumed after a cut; this many bytes are sent again.
    Resumed(u64),
    /// The set is about to change, and the session cannot be replayed after that.
    Ended {
        /// Fingerprint of the set after the change.
        fingerprint: Fingerprint,
        /// The end of this side's stream, which can still be sent.
        end: StreamEnd,
    },
}

impl JournalRecord {
    /// The record's bytes in the journal.
    #[must_use]
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut body = Vec::new();
        let record_type = match self {
            Self::Begin(header) => {
                body.extend_from_slice(&[VERSION, u8::from(header.is_initiator)]);
                body.extend_from_slice(&header.session.to_le_bytes());
                body.extend_from_slice(&header.dataset_id.to_le_bytes());
                body.extend_from_slice(&header.nonce.to_le_bytes());
                body.extend_from_slice(&header.secret);
                put_fingerprint(&mut body, header.fingerprint);
                BEGIN
            }
            Self::Received(bytes) => {
                body.extend_from_slice(bytes);
                RECEIVED
            }
            Self::Sent(bytes) => {
                put_varint(&mut body, *bytes);
                SENT
            }
            Self::Resumed(again) => {
                put_varint(&mut body, *again);
                RESUMED
            }
            Self::Ended { fingerprint, end } => {
                put_fingerprint(&mut body, *fingerprint);
                body.extend_from_slice(&end.to_bytes());
                ENDED
            }
        };
        let mut bytes = Vec::new();
        put_frame(&mut bytes, record_type, &body);
        bytes
    }

    fn read(record_type: u8, body: &[u8]) -> Result<Self, ResumeError> {
        let mut reader = Reader::new(body);
        let record = match record_type {
            BEGIN => Self::Begin(read_header(&mut reader)?),
            RECEIVED => Self::Received(reader.rest().to_vec()),
            SENT => Self::Sent(reader.varint("sent")?),
            RESUMED => Self::Resumed(reader.varint("again")?),
            ENDED => {
                let fingerprint = read_fingerprint(&mut reader)?;
                Self::Ended { fingerprint, end: StreamEnd::from_bytes(reader.rest())? }
            }
            got => return Err(SessionFrameError::Type { got }.into()),
        };
        reader.finish()?;
        Ok(record)
    }
}

fn put_fingerprint(body: &mut Vec<u8>, fingerprint: Fingerprint) {
    body.extend_from_slice(&fingerprint.count.to_le_bytes());
    body.extend_from_slice(&fingerprint.sum.to_le_bytes());
}

fn read_fingerprint(reader: &mut Reader<'_>) -> Result<Fingerprint, SessionFrameError> {
    Ok(Fingerprint { count: reader.u64("item count")?, sum: reader.u128("fingerprint")? })
}

fn read_header(reader: &mut Reader<'_>) -> Result<JournalHeader, ResumeError> {
    let got = reader.u8("version")?;
    if got != VERSION {
        return Err(ResumeError::Version { got, expected: VERSION });
    }
    let is_initiator = match reader.u8("role")? {
        0 => false,
        1 => true,
        got => return Err(SessionFrameError::Field { field: "role", got: got.into() }.into()),
    };
    let session = reader.u128("session")?;
    let (dataset_id, nonce) = (reader.u64("dataset")?, reader.u64("nonce")?);
    let secret = reader.u128("secret")?.to_le_bytes();
    let fingerprint = read_fingerprint(reader)?;
    Ok(JournalHeader { session, is_initiator, dataset_id, nonce, secret, fingerprint })
}

/// Splits a journal into records.
#[derive(Default, Debug)]
pub struct JournalReader {
    buffer: FrameBuffer,
}

impl JournalReader {
    /// Appends the next bytes of the journal.
    pub fn push(&mut self, bytes: &[u8]) {
        self.buffer.push(bytes);
    }

    /// The next record and its length in bytes, once it is complete.
    ///
    /// # Errors
    /// If the bytes are not a record: the journal ends before them.
    pub fn next_record(&mut self) -> Result<Option<(JournalRecord, u64)>, ResumeError> {
        let Some(frame) = self.buffer.next_frame()? else { return Ok(None) };
        let record = JournalRecord::read(frame.frame_type, &frame.body)?;
        Ok(Some((record, frame.wire_bytes)))
    }
}

/// The state that a whole journal describes.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct JournalState {
    /// What the session began with.
    pub header: JournalHeader,
    /// The bytes received.
    pub received: StreamHash,
    /// Most bytes that were ever sent.
    pub sent: u64,
    /// How often the session was resumed.
    pub resumed_count: u64,
    /// Bytes that were sent again.
    pub again: u64,
    /// Fingerprint of the set after the change, and the end of this side's stream; once the set has
    /// changed.
    pub ended: Option<(Fingerprint, StreamEnd)>,
}

impl JournalState {
    /// The state of a journal with only its first record.
    #[must_use]
    pub fn new(header: JournalHeader) -> Self {
        let received = StreamHash::default();
        Self { header, received, sent: 0, resumed_count: 0, again: 0, ended: None }
    }

    /// Applies the next record. A second `Begin` is ignored.
    pub fn take(&mut self, record: JournalRecord) {
        match record {
            JournalRecord::Begin(_) => {}
            JournalRecord::Received(bytes) => self.received.update(&bytes),
            JournalRecord::Sent(bytes) => self.sent = self.sent.max(bytes),
            JournalRecord::Resumed(again) => {
                self.resumed_count += 1;
                self.again = self.again.saturating_add(again);
            }
            JournalRecord::Ended { fingerprint, end } => self.ended = Some((fingerprint, end)),
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::collection::vec;
    use proptest::prelude::*;

    use super::*;

    fn header() -> JournalHeader {
        JournalHeader {
            session: 3,
            is_initiator: true,
            dataset_id: 4,
            nonce: 5,
            secret: [6; 16],
            fingerprint: Fingerprint { count: 7, sum: 8 },
        }
    }

    fn journal() -> Vec<JournalRecord> {
        let mut end = StreamEnd::default();
        end.push(&[9; 70_000]);
        vec![
            JournalRecord::Begin(header()),
            JournalRecord::Received(vec![1; 300]),
            JournalRecord::Sent(1_000),
            JournalRecord::Resumed(20),
            JournalRecord::Received(vec![2; 30_000]),
            JournalRecord::Sent(900),
            JournalRecord::Resumed(30),
            JournalRecord::Ended { fingerprint: Fingerprint { count: 1, sum: 2 }, end },
        ]
    }

    /// The records before the first that is torn or damaged, and their bytes.
    fn read(bytes: &[u8]) -> (Vec<JournalRecord>, u64) {
        let mut reader = JournalReader::default();
        let (mut records, mut whole) = (Vec::new(), 0);
        for piece in bytes.chunks(1_000) {
            reader.push(piece);
            while let Ok(Some((record, record_bytes))) = reader.next_record() {
                records.push(record);
                whole += record_bytes;
            }
        }
        (records, whole)
    }

    #[test]
    fn a_journal_says_how_far_a_session_came() {
        let bytes: Vec<u8> = journal().iter().flat_map(JournalRecord::to_bytes).collect();
        assert_eq!(read(&bytes), (journal(), bytes.len() as u64));
        let mut state = JournalState::new(header());
        journal().into_iter().for_each(|record| state.take(record));
        assert_eq!(state.received.mark().bytes, 30_300);
        assert_eq!((state.sent, state.resumed_count, state.again), (1_000, 2, 50));
        assert!(state.ended.is_some());
    }

    proptest! {
        #[test]
        fn a_torn_or_damaged_record_ends_a_journal(at: prop::sample::Index, flip in 0..=255u8) {
            let records = journal();
            let mut bytes: Vec<u8> = records.iter().flat_map(JournalRecord::to_bytes).collect();
            let at = at.index(bytes.len());
            match flip {
                0 => bytes.truncate(at),
                flip => bytes[at] ^= flip,
            }
            let (found, whole) = read(&bytes);
            prop_assert!(found.len() < records.len());
            prop_assert_eq!(&found[..], &records[..found.len()]);
            prop_assert!(whole <= at as u64);
        }

        #[test]
        fn a_journal_may_be_anything(
            bytes in vec(any::<u8>(), 0..300), record_type in 46..54u8,
            body in vec(any::<u8>(), 0..200),
        ) {
            read(&bytes);
            let mut framed = Vec::new();
            put_frame(&mut framed, record_type, &body);
            let mut reader = JournalReader::default();
            reader.push(&framed);
            if let Ok(Some((record, _))) = reader.next_record() {
                prop_assert_eq!(record.to_bytes(), framed);
            }
        }
    }
}
