//! Messages of the protocol, and their encoding. Reading checks every length against the bytes that are
//! left. Lists and sketches stay bytes here, because only the stage that they belong to knows their widths.

mod greeting;

use super::digest::SetDigest;
use super::error::SessionFrameError;
use super::plan::Plan;
use super::wire::{RawFrame, Reader, put_varint};
use crate::limits::ITEM_COUNT_MAX;

pub(crate) use greeting::{
    Estimate, HELLO_SYNDROMES, Hello, HelloSketch, StoredStart, WITH_STORED, Welcome, hello_bits,
};

use greeting::{put_hello, put_welcome, read_hello, read_welcome};

/// Longest text of an `Abort`.
const ABORT_TEXT_BYTES_MAX: usize = 256;

/// Selects the buckets of the last list that get more syndromes.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Extend {
    pub(crate) window: u64,
    /// Number of syndromes that they should have then; or [`Extend::COMPLETE`] or [`Extend::LIST`].
    pub(crate) to: u8,
    /// Their positions in the previous list, coded.
    pub(crate) places: Vec<u8>,
}

impl Extend {
    /// The window is decoded; the next one may follow.
    pub(crate) const COMPLETE: u8 = 0;
    /// Send the contents of these buckets.
    pub(crate) const LIST: u8 = 255;
}

/// What a request asks for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum RequestMode {
    /// The items.
    Contents,
    /// Only the sum of the items' hashes.
    Sum,
    /// Nothing: it only tells the other side which of its symbols the requester lacks.
    Hashes,
}

/// A message.
#[derive(Clone, PartialEq, Debug)]
pub(crate) enum Message {
    Hello(Box<Hello>),
    Welcome(Welcome),
    Plan(Plan),
    Filter(Vec<u8>),
    Sketch { window: u64, from: u8, to: u8, count: u64, bits: Vec<u8> },
    Extend(Extend),
    Coded { first: u64, count: u64, symbols: Vec<u8> },
    List(Vec<u8>),
    Request { mode: RequestMode, list: Vec<u8> },
    Items(ItemsBody),
    Done { attempt: u8, union: SetDigest },
    Credit { count: u64 },
    Retry { attempt: u8 },
    Abort { text: String },
    Buckets { window: u64, count: u64, bits: Vec<u8> },
}

/// Items, or what is sent in their place.
#[derive(Clone, PartialEq, Debug)]
pub(crate) enum ItemsBody {
    /// Count and sum of hashes.
    Sum(SetDigest),
    /// A list of symbols.
    Symbols(Vec<u8>),
    /// Items of one length: a list of their first eight bytes, then the rest of each.
    Fixed { item_bytes: u64, list: Vec<u8> },
    /// Lengths and items, split anywhere.
    Stream(Vec<u8>),
    /// The same, as a zstd frame.
    Packed(Vec<u8>),
}

impl ItemsBody {
    pub(crate) const SUM: u8 = 0;
    pub(crate) const SYMBOLS: u8 = 1;
    const FIXED: u8 = 2;
    const STREAM: u8 = 3;
    const PACKED: u8 = 4;
}

/// The body of the list that follows all items: an empty one, of no values.
pub(crate) const END_OF_WHOLE: [u8; 2] = [0, 0];

impl Message {
    pub(crate) const HELLO: u8 = 1;
    pub(crate) const WELCOME: u8 = 2;
    pub(crate) const PLAN: u8 = 3;
    pub(crate) const FILTER: u8 = 4;
    pub(crate) const SKETCH: u8 = 5;
    pub(crate) const EXTEND: u8 = 6;
    pub(crate) const CODED: u8 = 7;
    pub(crate) const LIST: u8 = 8;
    pub(crate) const REQUEST: u8 = 9;
    pub(crate) const ITEMS: u8 = 10;
    pub(crate) const DONE: u8 = 11;
    pub(crate) const CREDIT: u8 = 12;
    pub(crate) const RETRY: u8 = 13;
    pub(crate) const ABORT: u8 = 14;
    pub(crate) const BUCKETS: u8 = 16;

    /// Its type in frames, and its name in errors.
    const fn label(&self) -> (u8, &'static str) {
        match self {
            Self::Hello(_) => (Self::HELLO, "Hello"),
            Self::Welcome(_) => (Self::WELCOME, "Welcome"),
            Self::Plan(_) => (Self::PLAN, "Plan"),
            Self::Filter(_) => (Self::FILTER, "Filter"),
            Self::Sketch { .. } => (Self::SKETCH, "Sketch"),
            Self::Extend(_) => (Self::EXTEND, "Extend"),
            Self::Coded { .. } => (Self::CODED, "Coded"),
            Self::List(_) => (Self::LIST, "List"),
            Self::Request { .. } => (Self::REQUEST, "Request"),
            Self::Items(_) => (Self::ITEMS, "Items"),
            Self::Done { .. } => (Self::DONE, "Done"),
            Self::Credit { .. } => (Self::CREDIT, "Credit"),
            Self::Retry { .. } => (Self::RETRY, "Retry"),
            Self::Abort { .. } => (Self::ABORT, "Abort"),
            Self::Buckets { .. } => (Self::BUCKETS, "Buckets"),
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
            Self::Hello(hello) => put_hello(&mut body, hello),
            Self::Welcome(welcome) => put_welcome(&mut body, welcome),
            Self::Plan(plan) => plan.put(&mut body),
            Self::Filter(bytes) | Self::List(bytes) => body.extend_from_slice(bytes),
            Self::Sketch { window, from, to, count, bits } => {
                put_varint(&mut body, *window);
                body.extend_from_slice(&[*from, *to]);
                put_varint(&mut body, *count);
                body.extend_from_slice(bits);
            }
            Self::Extend(Extend { window, to, places }) => {
                put_varint(&mut body, *window);
                body.push(*to);
                body.extend_from_slice(places);
            }
            Self::Coded { first, count, symbols: bytes }
            | Self::Buckets { window: first, count, bits: bytes } => {
                put_varint(&mut body, *first);
                put_varint(&mut body, *count);
                body.extend_from_slice(bytes);
            }
            Self::Request { mode, list } => {
                body.push(code_in(&REQUEST_MODES, mode));
                body.extend_from_slice(list);
            }
            Self::Items(items) => put_items(&mut body, items),
            Self::Done { attempt, union } => {
                body.push(*attempt);
                put_digest(&mut body, *union);
            }
            Self::Credit { count } => put_varint(&mut body, *count),
            Self::Retry { attempt } => body.push(*attempt),
            Self::Abort { text } => {
                let cut = text.floor_char_boundary(ABORT_TEXT_BYTES_MAX);
                body.extend_from_slice(text.as_bytes().get(..cut).unwrap_or_default());
            }
        }
        body
    }

    pub(crate) fn read(frame: &RawFrame) -> Result<Self, SessionFrameError> {
        let mut reader = Reader::new(&frame.body);
        let message = Self::read_fields(frame.frame_type, &mut reader)?;
        reader.finish()?;
        Ok(message)
    }

    fn read_fields(frame_type: u8, reader: &mut Reader<'_>) -> Result<Self, SessionFrameError> {
        Ok(match frame_type {
            Self::HELLO => Self::Hello(Box::new(read_hello(reader)?)),
            Self::WELCOME => Self::Welcome(read_welcome(reader)?),
            Self::PLAN => Self::Plan(Plan::read(reader)?),
            Self::FILTER => Self::Filter(reader.rest().to_vec()),
            Self::SKETCH => Self::Sketch {
                window: reader.varint("window")?,
                from: reader.u8("syndromes before")?,
                to: reader.u8("syndromes")?,
                count: reader.varint("bucket count")?,
                bits: reader.rest().to_vec(),
            },
            Self::EXTEND => Self::Extend(Extend {
                window: reader.varint("window")?,
                to: reader.u8("syndromes")?,
                places: reader.rest().to_vec(),
            }),
            Self::CODED => Self::Coded {
                first: reader.varint("first index")?,
                count: reader.varint("coded symbol count")?,
                symbols: reader.rest().to_vec(),
            },
            Self::BUCKETS => Self::Buckets {
                window: reader.varint("window")?,
                count: reader.varint("bucket count")?,
                bits: reader.rest().to_vec(),
            },
            Self::LIST => Self::List(reader.rest().to_vec()),
            Self::REQUEST => {
                let code = reader.u8("request mode")?;
                let unknown = SessionFrameError::Field { field: "request mode", got: code.into() };
                let mode = *REQUEST_MODES.get(usize::from(code)).ok_or(unknown)?;
                Self::Request { mode, list: reader.rest().to_vec() }
            }
            Self::ITEMS => Self::Items(read_items(reader)?),
            Self::DONE => {
                Self::Done { attempt: reader.u8("attempt")?, union: read_digest(reader)? }
            }
            Self::CREDIT => Self::Credit { count: reader.varint("credit")? },
            Self::RETRY => Self::Retry { attempt: reader.u8("attempt")? },
            Self::ABORT => {
                let text = reader.rest();
                let text = text.get(..ABORT_TEXT_BYTES_MAX).unwrap_or(text);
                // Only printable characters, whatever the peer sent: it is shown on a terminal.
                let text = String::from_utf8_lossy(text);
                Self::Abort { text: text.chars().filter(|sign| !sign.is_control()).collect() }
            }
            got => return Err(SessionFrameError::Type { got }),
        })
    }
}

fn put_digest(body: &mut Vec<u8>, digest: SetDigest) {
    put_varint(body, digest.count);
    body.extend_from_slice(&digest.sum.to_le_bytes());
}

fn read_digest(reader: &mut Reader<'_>) -> Result<SetDigest, SessionFrameError> {
    // A digest may cover the union of two sets.
    let count = reader.varint_at_most("item count", 2 * ITEM_COUNT_MAX)?;
    Ok(SetDigest { count, sum: reader.u128("digest")? })
}

const REQUEST_MODES: [RequestMode; 3] =
    [RequestMode::Contents, RequestMode::Sum, RequestMode::Hashes];
fn code_in<T: PartialEq>(all: &[T], value: &T) -> u8 {
    let at = all.iter().position(|known| known == value).expect("all values are listed");
    u8::try_from(at).expect("a handful of values")
}

fn put_items(body: &mut Vec<u8>, items: &ItemsBody) {
    match items {
        ItemsBody::Sum(digest) => {
            body.push(ItemsBody::SUM);
            put_digest(body, *digest);
        }
        ItemsBody::Symbols(list) => {
            body.push(ItemsBody::SYMBOLS);
            body.extend_from_slice(list);
        }
        ItemsBody::Fixed { item_bytes, list } => {
            body.push(ItemsBody::FIXED);
            put_varint(body, *item_bytes);
            body.extend_from_slice(list);
        }
        ItemsBody::Stream(bytes) => {
            body.push(ItemsBody::STREAM);
            body.extend_from_slice(bytes);
        }
        ItemsBody::Packed(packed) => {
            body.push(ItemsBody::PACKED);
            body.extend_from_slice(packed);
        }
    }
}

fn read_items(reader: &mut Reader<'_>) -> Result<ItemsBody, SessionFrameError> {
    Ok(match reader.u8("items encoding")? {
        ItemsBody::SUM => ItemsBody::Sum(read_digest(reader)?),
        ItemsBody::SYMBOLS => ItemsBody::Symbols(reader.rest().to_vec()),
        ItemsBody::FIXED => {
            let item_bytes = reader.varint("item bytes")?;
            ItemsBody::Fixed { item_bytes, list: reader.rest().to_vec() }
        }
        ItemsBody::STREAM => ItemsBody::Stream(reader.rest().to_vec()),
        ItemsBody::PACKED => ItemsBody::Packed(reader.rest().to_vec()),
        got => return Err(SessionFrameError::Field { field: "items encoding", got: got.into() }),
    })
}

#[cfg(test)]
mod tests {
    use proptest::collection::vec;
    use proptest::prelude::*;

    use super::*;

    proptest! {
        /// A message that can be read has only one encoding.
        #[test]
        fn messages_have_one_form(frame_type in 0..18u8, mut body in vec(any::<u8>(), 0..200)) {
            if frame_type == Message::HELLO && body.len() > 3 {
                let [kind, flags] = [body[1] % 4, body[2] % 128];
                body[..4].copy_from_slice(&[1, kind, flags, 0]);
            }
            if let (Message::WELCOME | Message::ITEMS | Message::REQUEST, Some(first)) =
                (frame_type, body.first_mut())
            {
                *first %= 5;
            }
            let frame = RawFrame { frame_type, body, wire_bytes: 0 };
            if let Ok(message) = Message::read(&frame) {
                prop_assert_eq!(message.frame_type(), frame_type);
                // A text is truncated, and made valid UTF-8.
                if frame_type != Message::ABORT {
                    prop_assert_eq!(message.body(), frame.body);
                }
            }
        }
    }
}
