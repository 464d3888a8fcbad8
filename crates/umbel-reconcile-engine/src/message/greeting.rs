//! The first frame of each side, and its encoding.

use umbel_sketch::{Field, PinSketch};

use super::{code_in, put_digest, read_digest};
use crate::digest::SetDigest;
use crate::error::{Result, SessionFrameError, SessionRefusal, field};
use crate::keys::SessionKey;
use crate::limits::{HELLO_SYNDROMES_MAX, ITEM_COUNT_MAX, SKETCH_SYMBOLS_MAX};
use crate::options::{Aim, Direction, OnConflict, Optimize, SymbolKind};
use crate::wire::{Reader, put_varint};

const CODED_COUNT_MAX: u64 = SKETCH_SYMBOLS_MAX as u64;

/// Syndromes of the Hello: they decode up to fifteen differences.
pub(crate) const HELLO_SYNDROMES: u8 = 16;

/// Bits of a symbol in the Hello: a collision there has probability n·15·2^-48, and makes a plan necessary.
pub(crate) const fn hello_bits(kind: SymbolKind) -> u8 {
    match kind {
        SymbolKind::Hashed => 48,
        SymbolKind::Id64 | SymbolKind::Keyed => 64,
    }
}

/// The stored sketch that a Hello refers to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct StoredStart {
    pub(crate) salt: [u8; 16],
    pub(crate) symbol_bits: u8,
    pub(crate) coded_count: u64,
}

impl StoredStart {
    pub(crate) fn put(&self, body: &mut Vec<u8>) {
        body.extend_from_slice(&self.salt);
        body.push(self.symbol_bits);
        put_varint(body, self.coded_count);
    }

    pub(crate) fn read(reader: &mut Reader<'_>) -> Result<Self, SessionFrameError> {
        let salt = reader.u128("salt")?.to_le_bytes();
        let symbol_bits = reader.u8("symbol bits")?;
        let coded_count = reader.varint_at_most("coded symbols", CODED_COUNT_MAX)?;
        Ok(Self { salt, symbol_bits, coded_count })
    }
}

/// Version of the protocol.
const VERSION: u8 = 1;

/// The first frame of the initiator.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct Hello {
    pub(crate) kind: SymbolKind,
    pub(crate) aim: Aim,
    pub(crate) dataset_id: u64,
    pub(crate) nonce: u64,
    pub(crate) digest: SetDigest,
    /// Syndromes under K(0), unless an estimator is sent instead.
    pub(crate) sketch: Option<HelloSketch>,
    pub(crate) estimator: Option<Vec<u8>>,
    /// The stored sketch that digest and estimator come from, if there was no scan.
    pub(crate) stored: Option<StoredStart>,
}

/// The small sketch of the first frame.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct HelloSketch {
    pub(crate) field_bits: u8,
    pub(crate) syndrome_count: u8,
    pub(crate) has_zero: bool,
    pub(crate) syndromes: Vec<u8>,
}

impl HelloSketch {
    /// Decodes the difference to a sketch of this side; `None` if it is too large.
    pub(crate) fn decode(&self, key: &SessionKey, mut own: PinSketch) -> Result<Option<Vec<u64>>> {
        let malformed = || field("syndromes", self.syndrome_count.into());
        let known = Field::new(self.field_bits).map_err(|_| malformed())?;
        let capacity = usize::from(self.syndrome_count);
        let mut syndromes = self.syndromes.clone();
        key.mask_hello(&mut syndromes);
        let theirs = PinSketch::from_bytes(known, capacity, self.has_zero, &syndromes);
        own.merge(&theirs.map_err(|_| malformed())?).map_err(|_| malformed())?;
        Ok(own.decode(key.decode_seed()).filter(|symbols| !symbols.is_empty()))
    }
}

/// The responder's first frame.
#[derive(Clone, PartialEq, Debug)]
pub(crate) enum Welcome {
    /// Both sets are equal: the responder's own digest is the same.
    InSync {
        nonce: u64,
        digest: SetDigest,
    },
    /// The small sketch was enough.
    Resolved {
        nonce: u64,
        item_count: u64,
    },
    /// The small sketch was missing or not enough.
    Undecoded {
        nonce: u64,
        item_count: u64,
        mean_item_bytes: u64,
        /// Shows that both have K(1), or the key of both stored sketches.
        key_mark: u32,
        estimate: Estimate,
    },
    Refused(SessionRefusal),
}

/// What the responder knows of the size of the difference.
#[derive(Clone, PartialEq, Debug)]
pub(crate) enum Estimate {
    /// The responder's estimator under K(1).
    Estimator(Vec<u8>),
    /// The estimate itself, if the Hello contained the initiator's estimator.
    Count(u64),
    /// The same for two stored sketches, and how many coded symbols the responder has to decode the
    /// difference.
    Stored { count: u64, coded_count: u64 },
}

const OPTIMIZE_TIME: u16 = 4;
const WANT_ITEMS: u16 = 8;
const TELL_RESPONDER: u16 = 16;
const HAS_SKETCH: u16 = 32;
const HAS_ESTIMATOR: u16 = 64;
const IS_STORED: u16 = 128;
/// The rule for records that differ on both sides, and whose set is B. Without a rule none is set: peers
/// of earlier builds accept no further flags.
const A_WINS: u16 = 256;
const B_WINS: u16 = 512;
const INITIATOR_IS_B: u16 = 1024;
const FLAGS_ALL: u16 = 2047;

pub(super) fn put_hello(body: &mut Vec<u8>, hello: &Hello) {
    let flag = |is_set: bool, bit: u16| if is_set { bit } else { 0 };
    let flags = u16::from(code_in(&Direction::ALL, &hello.aim.direction))
        | flag(hello.aim.optimize == Optimize::Time, OPTIMIZE_TIME)
        | flag(hello.aim.want_items, WANT_ITEMS)
        | flag(hello.aim.notify_responder, TELL_RESPONDER)
        | flag(hello.sketch.is_some(), HAS_SKETCH)
        | flag(hello.estimator.is_some(), HAS_ESTIMATOR)
        | flag(hello.stored.is_some(), IS_STORED)
        | conflict_flags(&hello.aim);
    body.extend_from_slice(&[VERSION, hello.kind.code()]);
    body.extend_from_slice(&flags.to_le_bytes());
    body.extend_from_slice(&hello.dataset_id.to_le_bytes());
    body.extend_from_slice(&hello.nonce.to_le_bytes());
    put_digest(body, hello.digest);
    if let Some(stored) = &hello.stored {
        stored.put(body);
    }
    if let Some(sketch) = &hello.sketch {
        let has_zero = u8::from(sketch.has_zero);
        body.extend_from_slice(&[sketch.field_bits, sketch.syndrome_count, has_zero]);
        body.extend_from_slice(&sketch.syndromes);
    }
    if let Some(estimator) = &hello.estimator {
        body.extend_from_slice(estimator);
    }
}

fn conflict_flags(aim: &Aim) -> u16 {
    let whose = if aim.is_b { INITIATOR_IS_B } else { 0 };
    match (aim.direction, aim.on_conflict) {
        (Direction::TwoWay, OnConflict::A) => A_WINS | whose,
        (Direction::TwoWay, OnConflict::B) => B_WINS | whose,
        _ => 0,
    }
}

pub(super) fn read_hello(reader: &mut Reader<'_>) -> Result<Hello, SessionFrameError> {
    let field = |field: &'static str, got: u64| SessionFrameError::Field { field, got };
    let version = reader.u8("version")?;
    if version != VERSION {
        return Err(SessionFrameError::Version { got: version });
    }
    let kind = reader.u8("kind")?;
    let kind = SymbolKind::of_code(kind).ok_or(field("kind", kind.into()))?;
    let flags = reader.u16("flags")?;
    if flags & !FLAGS_ALL != 0 {
        return Err(field("flags", flags.into()));
    }
    let is_set = |bit: u16| flags & bit != 0;
    let optimize = if is_set(OPTIMIZE_TIME) { Optimize::Time } else { Optimize::Bytes };
    let direction = *Direction::ALL.get(usize::from(flags & 3)).expect("four directions");
    let on_conflict = match (is_set(A_WINS), is_set(B_WINS)) {
        (false, false) if !is_set(INITIATOR_IS_B) => OnConflict::Report,
        (true, false) => OnConflict::A,
        (false, true) => OnConflict::B,
        _ => return Err(field("flags", flags.into())),
    };
    let aim = Aim {
        direction,
        optimize,
        want_items: is_set(WANT_ITEMS),
        notify_responder: is_set(TELL_RESPONDER),
        expected_difference: None,
        on_conflict,
        is_b: is_set(INITIATOR_IS_B),
    };
    let (dataset_id, nonce) = (reader.u64("dataset id")?, reader.u64("nonce")?);
    let digest = read_digest(reader)?;
    let stored = if is_set(IS_STORED) { Some(StoredStart::read(reader)?) } else { None };
    if stored.is_some() && (is_set(HAS_SKETCH) || !is_set(HAS_ESTIMATOR)) {
        return Err(field("flags", flags.into()));
    }
    let sketch = if is_set(HAS_SKETCH) { Some(read_hello_sketch(reader)?) } else { None };
    let estimator = is_set(HAS_ESTIMATOR).then(|| reader.rest().to_vec());
    Ok(Hello { kind, aim, dataset_id, nonce, digest, sketch, estimator, stored })
}

fn read_hello_sketch(reader: &mut Reader<'_>) -> Result<HelloSketch, SessionFrameError> {
    let field_bits = reader.u8("field bits")?;
    let syndrome_count = reader.u8("syndrome count")?;
    if syndrome_count > HELLO_SYNDROMES_MAX {
        return Err(SessionFrameError::Field {
            field: "syndrome count",
            got: syndrome_count.into(),
        });
    }
    let has_zero = match reader.u8("zero bit")? {
        0 => false,
        1 => true,
        got => return Err(SessionFrameError::Field { field: "zero bit", got: got.into() }),
    };
    let bytes = (usize::from(field_bits) * usize::from(syndrome_count)).div_ceil(8);
    let syndromes = reader.bytes("syndromes", bytes)?.to_vec();
    Ok(HelloSketch { field_bits, syndrome_count, has_zero, syndromes })
}

const REFUSALS: [SessionRefusal; 6] = [
    SessionRefusal::Version,
    SessionRefusal::Kind,
    SessionRefusal::Dataset,
    SessionRefusal::ReadOnly,
    SessionRefusal::TooLarge,
    SessionRefusal::Conflict,
];

/// The verdicts of a Welcome; those named WITH are of a difference that was not decoded, and name the estimate.
const IN_SYNC: u8 = 0;
const RESOLVED: u8 = 1;
const WITH_ESTIMATOR: u8 = 2;
const REFUSED: u8 = 3;
const WITH_COUNT: u8 = 4;
pub(crate) const WITH_STORED: u8 = 5;

pub(super) fn put_welcome(body: &mut Vec<u8>, welcome: &Welcome) {
    match welcome {
        Welcome::InSync { nonce, digest } => {
            body.push(IN_SYNC);
            body.extend_from_slice(&nonce.to_le_bytes());
            put_digest(body, *digest);
        }
        Welcome::Resolved { nonce, item_count } => {
            body.push(RESOLVED);
            body.extend_from_slice(&nonce.to_le_bytes());
            put_varint(body, *item_count);
        }
        Welcome::Undecoded { nonce, item_count, mean_item_bytes, key_mark, estimate } => {
            body.push(match estimate {
                Estimate::Estimator(_) => WITH_ESTIMATOR,
                Estimate::Count(_) => WITH_COUNT,
                Estimate::Stored { .. } => WITH_STORED,
            });
            body.extend_from_slice(&nonce.to_le_bytes());
            put_varint(body, *item_count);
            put_varint(body, *mean_item_bytes);
            body.extend_from_slice(&key_mark.to_le_bytes());
            match estimate {
                Estimate::Count(count) => put_varint(body, *count),
                Estimate::Stored { count, coded_count } => {
                    put_varint(body, *count);
                    put_varint(body, *coded_count);
                }
                Estimate::Estimator(bytes) => body.extend_from_slice(bytes),
            }
        }
        Welcome::Refused(refusal) => {
            body.extend_from_slice(&[REFUSED, code_in(&REFUSALS, refusal)]);
        }
    }
}

pub(super) fn read_welcome(reader: &mut Reader<'_>) -> Result<Welcome, SessionFrameError> {
    let verdict = reader.u8("verdict")?;
    if verdict == REFUSED {
        let code = reader.u8("refusal")?;
        let unknown = SessionFrameError::Field { field: "refusal", got: code.into() };
        return Ok(Welcome::Refused(*REFUSALS.get(usize::from(code)).ok_or(unknown)?));
    }
    let nonce = reader.u64("nonce")?;
    if verdict == IN_SYNC {
        return Ok(Welcome::InSync { nonce, digest: read_digest(reader)? });
    }
    let item_count = reader.varint_at_most("item count", ITEM_COUNT_MAX)?;
    match verdict {
        RESOLVED => Ok(Welcome::Resolved { nonce, item_count }),
        WITH_ESTIMATOR | WITH_COUNT | WITH_STORED => {
            let mean_item_bytes = reader.varint("mean item bytes")?;
            let key_mark = reader.u32("key mark")?;
            let mut count = || reader.varint_at_most("estimate", 2 * ITEM_COUNT_MAX);
            let estimate = match verdict {
                WITH_COUNT => Estimate::Count(count()?),
                WITH_STORED => Estimate::Stored {
                    count: count()?,
                    coded_count: reader.varint_at_most("coded symbols", CODED_COUNT_MAX)?,
                },
                _ => Estimate::Estimator(reader.rest().to_vec()),
            };
            Ok(Welcome::Undecoded { nonce, item_count, mean_item_bytes, key_mark, estimate })
        }
        got => Err(SessionFrameError::Field { field: "verdict", got: got.into() }),
    }
}
