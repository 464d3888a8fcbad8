//! The codec of all services: Protocol Buffers, with a limit on how many numbers a message may have.
//!
//! The limit on the bytes of a message does not limit its memory: an empty element of a list has two bytes on the
//! wire, its field and its length, and takes up to 64 in memory. So the numbers that are read are counted: fields,
//! lengths, and values. They are counted in the buffer, which each of them passes through, whatever message
//! it belongs to.

use std::any::TypeId;
use std::marker::PhantomData;

use prost::Message;
use prost::bytes::{Buf, Bytes};
use tonic::Status;
use tonic::codec::{Codec, DecodeBuf, Decoder};
use tonic_prost::ProstCodec;

use crate::v1;

/// Most numbers of a message. The largest request has 65,536 items of its own, with a field and a length each, and the
/// longest part of an exchange between nodes has 180,000 numbers: what a copy knows, what it may have, and samples, each
/// about 8,192 nodes. Several times as many, for what later releases add; so many empty elements take 32 MiB.
const NUMBERS_MAX: usize = 1 << 20;

/// Most numbers of a message of a link: twice as many as a full batch has, of 256 KiB with 48 bytes for the head of each
/// call, so 5,461 calls of twelve numbers at most (`umbel-raft`, `LINK_BATCH_BYTES`). Lower than the others, because a
/// node has many links; so many empty calls take 4 MiB.
const NUMBERS_OF_LINKS_MAX: usize = 1 << 17;

/// Most numbers of a list of principals: 4,096 of them with 64 grants each, whose fields, lengths and verbs are a dozen
/// numbers. Only clients read it, and they trust the nodes that they ask.
const NUMBERS_OF_PRINCIPALS_MAX: usize = 4 << 20;

/// What is read in place of a number that is one too many: no number ends there.
const ENDLESS: [u8; 16] = [0xff; 16];

/// Encodes as tonic's own codec does, and decodes messages of a bounded number of numbers.
#[derive(Debug)]
pub struct BoundedCodec<T, U>(PhantomData<(T, U)>);

/// Decodes messages of a bounded number of numbers.
#[derive(Debug)]
pub struct BoundedDecoder<U>(PhantomData<U>);

impl<T, U> Default for BoundedCodec<T, U> {
    fn default() -> Self {
        Self(PhantomData)
    }
}

impl<T, U> Codec for BoundedCodec<T, U>
where
    T: Message + Send + 'static,
    U: Message + Default + Send + 'static,
{
    type Encode = T;
    type Decode = U;
    type Encoder = <ProstCodec<T, U> as Codec>::Encoder;
    type Decoder = BoundedDecoder<U>;

    fn encoder(&mut self) -> Self::Encoder {
        ProstCodec::<T, U>::default().encoder()
    }

    fn decoder(&mut self) -> Self::Decoder {
        BoundedDecoder(PhantomData)
    }
}

impl<U: Message + Default + 'static> Decoder for BoundedDecoder<U> {
    type Item = U;
    type Error = Status;

    fn decode(&mut self, bytes: &mut DecodeBuf<'_>) -> Result<Option<U>, Status> {
        decode(bytes, numbers_max_of::<U>()).map(Some)
    }
}

/// Most numbers of a message of this type.
fn numbers_max_of<U: 'static>() -> usize {
    let message = TypeId::of::<U>();
    let of_links = [TypeId::of::<v1::LinkCalls>(), TypeId::of::<v1::LinkAnswers>()];
    if of_links.contains(&message) {
        NUMBERS_OF_LINKS_MAX
    } else if message == TypeId::of::<v1::ListPrincipalsResponse>() {
        NUMBERS_OF_PRINCIPALS_MAX
    } else {
        NUMBERS_MAX
    }
}

/// Decodes a message of at most so many numbers.
fn decode<U: Message + Default>(bytes: impl Buf, numbers_max: usize) -> Result<U, Status> {
    let mut counted = Counted { bytes, left: numbers_max, is_over: false };
    let decoded = U::decode(&mut counted);
    // Where a message ends at one number too many, it was decoded in spite of it.
    if counted.is_over {
        let what = format!(
            "the message has more than {numbers_max} fields, lengths and values: divide it into several"
        );
        return Err(Status::out_of_range(what));
    }
    // As tonic's own codec.
    decoded.map_err(|error| Status::internal(error.to_string()))
}

/// A buffer that counts how often something was read from it. Bytes that are taken as a whole take no memory, and have
/// a length, which counts.
struct Counted<B> {
    bytes: B,
    left: usize,
    is_over: bool,
}

impl<B: Buf> Buf for Counted<B> {
    #[inline]
    fn remaining(&self) -> usize {
        self.bytes.remaining()
    }

    #[inline]
    fn chunk(&self) -> &[u8] {
        // A buffer cannot fail, so it has no number any more.
        if self.is_over { &ENDLESS } else { self.bytes.chunk() }
    }

    #[inline]
    fn advance(&mut self, byte_count: usize) {
        match self.left.checked_sub(1) {
            Some(left) => self.left = left,
            None => self.is_over = true,
        }
        self.bytes.advance(byte_count);
    }

    #[inline]
    fn copy_to_bytes(&mut self, byte_count: usize) -> Bytes {
        self.bytes.copy_to_bytes(byte_count)
    }
}

#[cfg(test)]
mod tests {
    use tonic::Code;

    use super::*;

    /// Fields of a list whose elements are empty.
    fn empty_elements(field: u8, count: usize) -> Bytes {
        [field << 3 | 2, 0].repeat(count).into()
    }

    #[track_caller]
    fn refused<U: Message + Default + std::fmt::Debug + 'static>(bytes: Bytes) {
        let numbers_max = numbers_max_of::<U>();
        let status = decode::<U>(bytes, numbers_max).unwrap_err();
        assert_eq!(status.code(), Code::OutOfRange, "{status}");
        assert!(status.message().contains(&format!("{numbers_max} fields")), "{status}");
    }

    #[test]
    fn lists_of_empty_elements_are_limited() {
        const { assert!(size_of::<v1::LinkCall>() <= 64 && size_of::<v1::LinkAnswer>() <= 64) };
        assert_eq!(numbers_max_of::<v1::LinkCalls>(), 131_072);
        assert_eq!(numbers_max_of::<v1::LinkAnswers>(), 131_072);
        assert_eq!(numbers_max_of::<v1::ListPrincipalsResponse>(), 4_194_304);
        assert_eq!(numbers_max_of::<v1::JobFrames>(), 1_048_576);
        let most = NUMBERS_OF_LINKS_MAX / 2;
        let calls: v1::LinkCalls = decode(empty_elements(1, most), NUMBERS_OF_LINKS_MAX).unwrap();
        assert_eq!(calls.calls.len(), most);
        refused::<v1::LinkCalls>(empty_elements(1, most + 1));
        refused::<v1::LinkAnswers>(empty_elements(1, most + 1));
        let most = NUMBERS_MAX / 2;
        let frames: v1::JobFrames = decode(empty_elements(1, most), NUMBERS_MAX).unwrap();
        assert_eq!(frames.frames.len(), most);
        // As large as a link allows: these would take 2 GB.
        let largest = empty_elements(1, 32 << 20);
        refused::<v1::LinkCalls>(largest.clone());
        refused::<v1::LinkAnswers>(largest);
        refused::<v1::JobFrames>(empty_elements(1, most + 1));
        refused::<v1::CopyQuestion>(empty_elements(4, most + 1));
        let items = v1::Items { items: vec![Bytes::new(); most], ..v1::Items::default() };
        let insert = v1::InsertRequest { items: Some(items), ..v1::InsertRequest::default() };
        refused::<v1::InsertRequest>(insert.encode_to_vec().into());
        // Numbers of a list of their own take more memory than bytes, too.
        let item_bytes = vec![0; 2 << 20];
        let packed = v1::PackedItems { item_bytes, ..v1::PackedItems::default() };
        refused::<v1::PackedItems>(packed.encode_to_vec().into());
        // And so do fields that are not known.
        refused::<v1::ListRequest>(empty_elements(15, most + 1));
    }

    #[test]
    fn the_largest_requests_pass() {
        let most = 65_536;
        let forms = [
            v1::Items { items: vec![Bytes::from_static(b"item"); most], ..v1::Items::default() },
            v1::Items {
                packed: Some(v1::PackedItems {
                    data: vec![7; 4 * most].into(),
                    item_bytes: vec![4; most],
                }),
                ..v1::Items::default()
            },
            v1::Items { hashes: vec![7; 16 * most].into(), ..v1::Items::default() },
            v1::Items { items: vec![vec![7; 16 << 20].into()], ..v1::Items::default() },
        ];
        for items in forms {
            let request = v1::InsertRequest {
                filter: "filter".to_owned(),
                items: Some(items),
                at_ms: Some(7),
                ..v1::InsertRequest::default()
            };
            passes(&request);
        }
    }

    /// Of a whole replicated filter, in a cluster that has had 8,192 nodes.
    #[test]
    fn the_longest_part_of_an_exchange_passes() {
        let count = v1::NodeCount { node: u64::MAX, count: u64::MAX };
        let hashes = Bytes::from_static(&[7; 8]);
        let sample =
            v1::NodeSample { node: u64::MAX, since: u64::MAX - 1, count: u64::MAX, hashes };
        passes(&v1::CopyDelta {
            filter: u64::MAX,
            is_whole: true,
            knows: vec![count; 8192],
            may_have: vec![count; 8192],
            samples: vec![sample; 8192],
            newest_slice: Some(u64::MAX),
            ..v1::CopyDelta::default()
        });
        passes(&v1::CopyQuestion {
            filter: u64::MAX,
            knows: vec![count; 8192],
            samples: vec![count; 8192],
            ..v1::CopyQuestion::default()
        });
    }

    /// As many calls, and refusals, as one message of a link may take by their heads.
    #[test]
    fn a_full_batch_of_a_link_passes() {
        let most = (256 << 10) / 48;
        let call = v1::LinkCall {
            id: u64::MAX,
            kind: u32::MAX,
            group: u32::MAX,
            timeout_ms: u32::MAX,
            body: Bytes::from_static(b"b"),
        };
        passes(&v1::LinkCalls { calls: vec![call; most] });
        let refusal = v1::LinkRefusal { reason: 3, message: "m".to_owned() };
        let outcome = Some(v1::link_answer::Outcome::Refusal(refusal));
        let answer = v1::LinkAnswer { id: u64::MAX, outcome };
        passes(&v1::LinkAnswers { answers: vec![answer; most] });
    }

    #[track_caller]
    fn passes<U: Message + Default + PartialEq + 'static>(message: &U) {
        let bytes = Bytes::from(message.encode_to_vec());
        assert!(decode::<U>(bytes, numbers_max_of::<U>()).unwrap() == *message);
    }

    /// 4,096 principals, as many as a cluster has, with 64 grants each.
    #[test]
    fn the_longest_list_of_principals_passes() {
        let verbs = vec![1, 2, 3, 4, 5];
        let grant = v1::Grant { pattern: "a*".to_owned(), verbs };
        let principal = v1::Principal {
            name: "principal".to_owned(),
            grants: vec![grant; 64],
            cluster_verbs: vec![1, 2, 3, 4],
            ..v1::Principal::default()
        };
        let list = v1::ListPrincipalsResponse { principals: vec![principal; 4096] };
        let bytes = Bytes::from(list.encode_to_vec());
        let decoded: v1::ListPrincipalsResponse = decode(bytes, NUMBERS_OF_PRINCIPALS_MAX).unwrap();
        assert!(decoded == list);
    }

    /// Wherever the limit is reached, the message is refused, and nothing panics.
    #[test]
    fn a_limit_at_any_place_refuses() {
        let body = Bytes::from_static(b"body");
        let refusal = v1::LinkRefusal { reason: 3, message: "a message".to_owned() };
        let outcomes = [
            None,
            Some(v1::link_answer::Outcome::Body(body)),
            Some(v1::link_answer::Outcome::Refusal(refusal)),
        ];
        let answers = outcomes.map(|outcome| v1::LinkAnswer { id: u64::MAX, outcome });
        let answers = v1::LinkAnswers { answers: answers.to_vec() };
        let create = v1::CreateRequest {
            name: "a name".to_owned(),
            capacity: u64::MAX,
            false_positive_rate: 0.5,
            ..v1::CreateRequest::default()
        };
        check_every_limit(&answers);
        check_every_limit(&create);
        let nodes = vec![u64::MAX, 1, u64::MAX];
        check_every_limit(&v1::FlushResponse { nodes, ..v1::FlushResponse::default() });
        // A number that does not end where the message does is read byte by byte.
        for numbers_max in 0..20 {
            let bytes = Bytes::from([&[0x08][..], &[0xff; 9]].concat());
            assert!(decode::<v1::LinkAnswer>(bytes, numbers_max).is_err());
        }
    }

    fn check_every_limit<U: Message + Default + PartialEq>(message: &U) {
        let bytes = Bytes::from(message.encode_to_vec());
        let mut refused = 0;
        for numbers_max in 0..=2 * bytes.len() {
            match decode::<U>(bytes.clone(), numbers_max) {
                Ok(decoded) => assert!(decoded == *message, "{numbers_max}"),
                Err(status) => {
                    assert_eq!((status.code(), refused), (Code::OutOfRange, numbers_max));
                    refused += 1;
                }
            }
        }
        assert!(refused > 1 && refused <= bytes.len());
    }
}
