//! The frames of a repair.
//!
//! ```text
//! 1 Hello    u8 version, u8 policy, u64 shape, u64 bits, u64 nonce_I, u64 check of the key, u128 root
//! 2 Welcome  u8 verdict; 0 equal: nothing more; 1 differs: u64 nonce_R, u64 check, u128 root, estimator
//!            2 refused: u8 reason, u64 what the responder has
//! 3 Find     bytes of a reconciliation session over block numbers with their residues
//! 4 Window   u8 slot, list of blocks that the slot stands for from now on
//! 5 Ask      u8 slot, u8 what (0 syndromes, 1 hashes of groups, 2 hashes of blocks, 3 blocks), u8 from, u8 to, list of places in
//!            the window; answers come in the order of the questions
//! 6 Answer   varint place in that list of the first block here; 2·(to − from) bytes a block, 8 a group, 4 a block, or
//!            blocks: u8 0, 4096 bytes; u8 1, varint bytes, list of ones
//! 7 Push     list of bits to be set
//! 8 Done     u128 root that the responder should have now; and its answer
//! 9 Abort    text, at most 256 bytes
//! list       u8 form, varint first, varint count; in form 0 they follow one another, in form 1 there are u8 low bits,
//!            u8 ratio, and the gaps behind the first in the ANS code
//! ```
//!
//! They are framed like those of a reconciliation, `varint body_len │ u8 type │ body │ u32 CRC-32C`.

use umbel_bits::AnsGapCode;

use super::error::RepairRefusal;
use super::options::Policy;
use crate::limits::REPAIR_WINDOWS_MAX;
use umbel_reconcile_engine::SessionFrameError;
use umbel_reconcile_engine::wire::{RawFrame, Reader, put_varint};

/// Version of the protocol.
pub(crate) const VERSION: u8 = 2;

/// Most bytes of the text of an Abort frame.
const TEXT_BYTES_MAX: usize = 256;

/// What the initiator requests for blocks of a window.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Question {
    /// Syndromes with these numbers.
    Syndromes { from: u8, to: u8 },
    /// One 64-bit hash for each group of 64 listed blocks.
    GroupHashes,
    /// One 32-bit hash for each block.
    BlockHashes,
    /// All bits of each block.
    Raw,
}

/// Number of blocks under one group hash.
pub(crate) const GROUP_BLOCKS: usize = 64;

impl Question {
    /// Most bytes of the answer per block.
    pub(crate) const fn bytes_per_block(self) -> usize {
        match self {
            Self::Syndromes { from, to } => 2 * (to as usize - from as usize),
            Self::GroupHashes => 1,
            Self::BlockHashes => 4,
            Self::Raw => 4096 + 1,
        }
    }

    /// Most bytes that the initiator keeps per block of the answer: syndromes and the flips that they
    /// locate, or a mask.
    pub(crate) const fn held_bytes_per_block(self) -> usize {
        match self {
            Self::Syndromes { from, to } => 2 * (to as usize - from as usize) + 4 * to as usize,
            Self::GroupHashes | Self::BlockHashes => 0,
            Self::Raw => 4096,
        }
    }
}

/// A responder's reply to Hello.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Verdict {
    Equal,
    Differs { nonce: u64, check: u64, root: u128, estimator: Vec<u8> },
    Refused { reason: u8, theirs: u64 },
}

impl Verdict {
    const EQUAL: u8 = 0;
    const DIFFERS: u8 = 1;
    const REFUSED: u8 = 2;
}

/// The contents of a frame.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Message {
    Hello { version: u8, policy: u8, shape_id: u64, bits: u64, nonce: u64, check: u64, root: u128 },
    Welcome(Verdict),
    Find(Vec<u8>),
    Window { slot: u8, blocks: Vec<u64> },
    Ask { slot: u8, question: Question, places: Vec<u64> },
    Answer { first: u64, payload: Vec<u8> },
    Push(Vec<u64>),
    Done { root: u128 },
    Abort { text: String },
}

/// Limits of a list: values below `end`, and at most `count_max` of them.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ListLimits {
    pub(crate) end: u64,
    pub(crate) count_max: usize,
}

/// Limits of the lists in the frames that have one.
#[derive(Clone, Copy, Debug)]
pub(crate) struct MessageLimits {
    pub(crate) blocks: ListLimits,
    pub(crate) places: ListLimits,
    pub(crate) bits: ListLimits,
}

impl Message {
    const HELLO: u8 = 1;
    const WELCOME: u8 = 2;
    const FIND: u8 = 3;
    const WINDOW: u8 = 4;
    const ASK: u8 = 5;
    const ANSWER: u8 = 6;
    const PUSH: u8 = 7;
    const DONE: u8 = 8;
    const ABORT: u8 = 9;

    /// Its type in frames, and its name in errors.
    const fn label(&self) -> (u8, &'static str) {
        match self {
            Self::Hello { .. } => (Self::HELLO, "Hello"),
            Self::Welcome(_) => (Self::WELCOME, "Welcome"),
            Self::Find(_) => (Self::FIND, "Find"),
            Self::Window { .. } => (Self::WINDOW, "Window"),
            Self::Ask { .. } => (Self::ASK, "Ask"),
            Self::Answer { .. } => (Self::ANSWER, "Answer"),
            Self::Push(_) => (Self::PUSH, "Push"),
            Self::Done { .. } => (Self::DONE, "Done"),
            Self::Abort { .. } => (Self::ABORT, "Abort"),
        }
    }

    pub(crate) const fn frame_type(&self) -> u8 {
        self.label().0
    }

    pub(crate) const fn name(&self) -> &'static str {
        self.label().1
    }

    pub(crate) fn body(&self) -> Vec<u8> {
        let mut body = Vec::new();
        match self {
            Self::Hello { version, policy, shape_id, bits, nonce, check, root } => {
                body.extend([*version, *policy]);
                for word in [shape_id, bits, nonce, check] {
                    body.extend(word.to_le_bytes());
                }
                body.extend(root.to_le_bytes());
            }
            Self::Welcome(Verdict::Equal) => body.push(Verdict::EQUAL),
            Self::Welcome(Verdict::Differs { nonce, check, root, estimator }) => {
                body.push(Verdict::DIFFERS);
                body.extend(nonce.to_le_bytes());
                body.extend(check.to_le_bytes());
                body.extend(root.to_le_bytes());
                body.extend_from_slice(estimator);
            }
            Self::Welcome(Verdict::Refused { reason, theirs }) => {
                body.extend([Verdict::REFUSED, *reason]);
                body.extend(theirs.to_le_bytes());
            }
            Self::Find(bytes) => body.extend_from_slice(bytes),
            Self::Window { slot, blocks } => {
                body.push(*slot);
                put_list(&mut body, blocks);
            }
            Self::Push(bits) => put_list(&mut body, bits),
            Self::Ask { slot, question, places } => {
                let (what, from, to) = match *question {
                    Question::Syndromes { from, to } => (0, from, to),
                    Question::GroupHashes => (1, 0, 0),
                    Question::BlockHashes => (2, 0, 0),
                    Question::Raw => (3, 0, 0),
                };
                body.extend([*slot, what, from, to]);
                put_list(&mut body, places);
            }
            Self::Answer { first, payload } => {
                put_varint(&mut body, *first);
                body.extend_from_slice(payload);
            }
            Self::Done { root } => body.extend(root.to_le_bytes()),
            Self::Abort { text } => {
                let end = text.floor_char_boundary(TEXT_BYTES_MAX);
                body.extend_from_slice(text.get(..end).unwrap_or_default().as_bytes());
            }
        }
        body
    }

    pub(crate) fn read(
        frame: &RawFrame,
        limits: &MessageLimits,
    ) -> Result<Self, SessionFrameError> {
        let mut reader = Reader::new(&frame.body);
        let message = match frame.frame_type {
            Self::HELLO => Self::Hello {
                version: reader.u8("version")?,
                policy: reader.u8("policy")?,
                shape_id: reader.u64("shape")?,
                bits: reader.u64("bits")?,
                nonce: reader.u64("nonce")?,
                check: reader.u64("check")?,
                root: reader.u128("root")?,
            },
            Self::WELCOME => Self::Welcome(read_verdict(&mut reader)?),
            Self::FIND => Self::Find(reader.rest().to_vec()),
            Self::WINDOW => {
                let slot = read_slot(&mut reader)?;
                Self::Window { slot, blocks: read_list(&mut reader, limits.blocks)? }
            }
            Self::ASK => {
                let (slot, question) = (read_slot(&mut reader)?, read_question(&mut reader)?);
                Self::Ask { slot, question, places: read_list(&mut reader, limits.places)? }
            }
            Self::ANSWER => {
                Self::Answer { first: reader.varint("place")?, payload: reader.rest().to_vec() }
            }
            Self::PUSH => Self::Push(read_list(&mut reader, limits.bits)?),
            Self::DONE => Self::Done { root: reader.u128("root")? },
            Self::ABORT => {
                let text = reader.rest();
                let text = text.get(..text.len().min(TEXT_BYTES_MAX)).unwrap_or_default();
                // Only printable characters, whatever the peer sent.
                let text = String::from_utf8_lossy(text);
                Self::Abort { text: text.chars().filter(|sign| !sign.is_control()).collect() }
            }
            got => return Err(SessionFrameError::Type { got }),
        };
        reader.finish()?;
        Ok(message)
    }
}

fn read_verdict(reader: &mut Reader<'_>) -> Result<Verdict, SessionFrameError> {
    match reader.u8("verdict")? {
        Verdict::EQUAL => Ok(Verdict::Equal),
        Verdict::DIFFERS => Ok(Verdict::Differs {
            nonce: reader.u64("nonce")?,
            check: reader.u64("check")?,
            root: reader.u128("root")?,
            estimator: reader.rest().to_vec(),
        }),
        Verdict::REFUSED => {
            Ok(Verdict::Refused { reason: reader.u8("reason")?, theirs: reader.u64("theirs")? })
        }
        got => Err(SessionFrameError::Field { field: "verdict", got: got.into() }),
    }
}

fn read_slot(reader: &mut Reader<'_>) -> Result<u8, SessionFrameError> {
    let slot = reader.u8("slot")?;
    if usize::from(slot) < REPAIR_WINDOWS_MAX {
        Ok(slot)
    } else {
        Err(SessionFrameError::Field { field: "slot", got: slot.into() })
    }
}

fn read_question(reader: &mut Reader<'_>) -> Result<Question, SessionFrameError> {
    let (what, from, to) = (reader.u8("question")?, reader.u8("from")?, reader.u8("to")?);
    match (what, from, to) {
        (0, from, to) if from < to && usize::from(to) <= super::ladder::SYNDROMES_MAX => {
            Ok(Question::Syndromes { from, to })
        }
        (1, 0, 0) => Ok(Question::GroupHashes),
        (2, 0, 0) => Ok(Question::BlockHashes),
        (3, 0, 0) => Ok(Question::Raw),
        _ => Err(SessionFrameError::Field { field: "question", got: what.into() }),
    }
}

/// Appends a list of ascending values.
pub(crate) fn put_list(body: &mut Vec<u8>, values: &[u64]) {
    let (first, last) = (values.first().copied().unwrap_or(0), values.last().copied().unwrap_or(0));
    let count = values.len() as u64;
    let follow_one_another = count == 0 || last - first + 1 == count;
    body.push(u8::from(!follow_one_another));
    put_varint(body, first);
    put_varint(body, count);
    if follow_one_another {
        return;
    }
    // The position of the first value says nothing about the gaps.
    let behind = count - 1;
    let code = AnsGapCode::for_mean_gap((last - first - behind) as f64 / behind as f64);
    body.extend([u8::try_from(code.low_bits()).expect("at most 63"), code.ratio()]);
    code.encode_indexes(values.iter().skip(1).map(|value| value - first - 1), body);
}

/// Reads a list, which extends to the end of the input.
pub(crate) fn read_list(
    reader: &mut Reader<'_>,
    limits: ListLimits,
) -> Result<Vec<u64>, SessionFrameError> {
    let form = reader.u8("list form")?;
    let first = reader.varint("list begin")?;
    let count = reader.varint_at_most("list count", limits.count_max as u64)?;
    let (Some(rest), 0..=1) = (limits.end.checked_sub(first), form) else {
        return Err(match form {
            0..=1 => SessionFrameError::Field { field: "list begin", got: first },
            got => SessionFrameError::Field { field: "list form", got: got.into() },
        });
    };
    if form == 0 && count <= rest {
        return Ok((first..first + count).collect());
    }
    if form == 0 || count < 2 || rest < count {
        return Err(SessionFrameError::Field { field: "list count", got: count });
    }
    let (low_bits, ratio) = (reader.u8("low bits")?, reader.u8("ratio")?);
    let code = AnsGapCode::new(low_bits.into(), ratio)?;
    let mut values = vec![first];
    let mut behind = Vec::new();
    code.decode_indexes(reader.rest(), count - 1, rest - 1, &mut behind)?;
    values.extend(behind.iter().map(|value| first + 1 + value));
    Ok(values)
}

/// The byte that encodes a policy.
pub(crate) const fn policy_byte(policy: Policy) -> u8 {
    match policy {
        Policy::Compare => 0,
        Policy::Mirror => 1,
        Policy::Union => 2,
    }
}

// The reasons of a refusal in a Welcome frame.
const REASON_VERSION: u8 = 0;
const REASON_SHAPE: u8 = 1;
const REASON_BIT_COUNT: u8 = 2;
const REASON_KEY: u8 = 3;
const REASON_READ_ONLY: u8 = 4;

/// The byte that encodes a refusal, and the responder's value.
pub(crate) const fn refusal_parts(refusal: RepairRefusal) -> (u8, u64) {
    match refusal {
        RepairRefusal::Version => (REASON_VERSION, VERSION as u64),
        RepairRefusal::Shape { theirs, .. } => (REASON_SHAPE, theirs),
        RepairRefusal::BitCount { theirs, .. } => (REASON_BIT_COUNT, theirs),
        RepairRefusal::Key => (REASON_KEY, 0),
        RepairRefusal::ReadOnly => (REASON_READ_ONLY, 0),
    }
}

/// The refusal of [`refusal_parts`], for an initiator with this shape and number of bits.
pub(crate) const fn refusal_of(
    parts: (u8, u64),
    shape_id: u64,
    bits: u64,
) -> Option<RepairRefusal> {
    Some(match parts {
        (REASON_VERSION, _) => RepairRefusal::Version,
        (REASON_SHAPE, theirs) => RepairRefusal::Shape { ours: shape_id, theirs },
        (REASON_BIT_COUNT, theirs) => RepairRefusal::BitCount { ours: bits, theirs },
        (REASON_KEY, _) => RepairRefusal::Key,
        (REASON_READ_ONLY, _) => RepairRefusal::ReadOnly,
        _ => return None,
    })
}
