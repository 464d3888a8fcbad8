//! Encodes items as bodies of frames, and decodes them.
//!
//! Items of one length of eight bytes or more are sorted, and their first eight bytes are coded as gaps,
//! which saves about log2 k − 1.4 bits per item in a batch of k. Others are sorted and sent as length and
//! bytes, compressed with zstd if that saves a twentieth, and split wherever a frame is full.

use super::error::{Result, SessionError, SessionFrameError};
use super::item::Item;
use super::lists::{ListReader, ListWriter, range_of_bits};
use super::message::ItemsBody;
use super::options::SymbolKind;
use super::wire::{Reader, put_varint};
use crate::limits::{FETCH_ITEMS_MAX, FRAME_BODY_BYTES_CUT};

/// Bytes of an item that are coded as gaps.
const GAP_BYTES: usize = 8;

/// Longest item for the sorted form: longer ones gain nothing.
const FIXED_BYTES_MAX: usize = 1 << 12;

/// Bytes of a stream that are compressed together: zstd finds most repetitions within a quarter of a
/// mebibyte, and no frame expands to more than this when it is read.
const PACKED_BYTES_MAX: usize = 256 << 10;

/// zstd level of items: at 100 MB/s it is no slower than the search for them.
const ZSTD_LEVEL: i32 = 9;

/// Encodes a batch of items into frame bodies.
pub(crate) fn bodies_of(items: &[Item]) -> Vec<ItemsBody> {
    let mut items: Vec<Vec<u8>> = items.iter().map(Item::to_bytes).collect();
    let length = items.first().map_or(0, Vec::len);
    let is_fixed = (GAP_BYTES..=FIXED_BYTES_MAX).contains(&length)
        && items.len() > 1
        && items.len() <= FETCH_ITEMS_MAX
        && items.iter().all(|item| item.len() == length);
    if is_fixed {
        items.sort_unstable();
        return fixed(&items, length);
    }
    items.sort_unstable();
    let mut stream = Vec::new();
    for item in &items {
        put_varint(&mut stream, item.len() as u64);
        stream.extend_from_slice(item);
    }
    stream.chunks(PACKED_BYTES_MAX).flat_map(pack).collect()
}

fn pack(stream: &[u8]) -> Vec<ItemsBody> {
    match zstd::bulk::compress(stream, ZSTD_LEVEL) {
        Ok(packed) if packed.len() < stream.len() - stream.len() / 20 => {
            vec![ItemsBody::Packed(packed)]
        }
        _ => stream
            .chunks(FRAME_BODY_BYTES_CUT)
            .map(|part| ItemsBody::Stream(part.to_vec()))
            .collect(),
    }
}

/// Decompresses a part of a stream.
///
/// # Errors
/// If it is not a zstd frame, or expands to more than `PACKED_BYTES_MAX` bytes.
pub(crate) fn unpack(packed: &[u8]) -> Result<Vec<u8>, SessionFrameError> {
    let wrong = SessionFrameError::Field { field: "packed items", got: packed.len() as u64 };
    zstd::bulk::decompress(packed, PACKED_BYTES_MAX).map_err(|_| wrong)
}

fn fixed(items: &[Vec<u8>], length: usize) -> Vec<ItemsBody> {
    let mut writer = ListWriter::new(range_of_bits(64), items.len() as u64);
    let chunks = items.chunks((FRAME_BODY_BYTES_CUT / length).max(1));
    let body_of = |chunk: &[Vec<u8>]| {
        let heads: Vec<u64> = chunk
            .iter()
            .filter_map(|item| item.first_chunk::<GAP_BYTES>())
            .map(|head| u64::from_be_bytes(*head))
            .collect();
        let mut list = Vec::new();
        writer.put(&mut list, &heads, usize::MAX / 8);
        for item in chunk {
            list.extend_from_slice(item.get(GAP_BYTES..).unwrap_or_default());
        }
        ItemsBody::Fixed { item_bytes: length as u64, list }
    };
    chunks.map(body_of).collect()
}

/// Reassembles items from frames.
#[derive(Debug)]
pub(crate) struct ItemsReader {
    kind: SymbolKind,
    item_bytes_max: usize,
    stream: Vec<u8>,
    fixed: Option<(usize, ListReader)>,
}

impl ItemsReader {
    pub(crate) const fn new(kind: SymbolKind, item_bytes_max: usize) -> Self {
        Self { kind, item_bytes_max, stream: Vec::new(), fixed: None }
    }

    /// Whether no item is incomplete.
    pub(crate) const fn is_at_end(&self) -> bool {
        self.stream.is_empty() && self.fixed.is_none()
    }

    /// Appends bytes of the stream and returns the items that are complete with them.
    pub(crate) fn take_stream(&mut self, bytes: &[u8]) -> Result<Vec<Item>> {
        self.stream.extend_from_slice(bytes);
        let mut items = Vec::new();
        let mut reader = Reader::new(&self.stream);
        let mut taken = 0;
        loop {
            let length = match reader.varint("item length") {
                Ok(length) => length,
                Err(SessionFrameError::Truncated { .. }) => break,
                Err(error) => return Err(error.into()),
            };
            let length = self.check_length(length)?;
            let Ok(item) = reader.bytes("item", length) else { break };
            items.push(self.item(item)?);
            taken = self.stream.len() - reader.clone().rest().len();
        }
        self.stream.drain(..taken);
        Ok(items)
    }

    /// The items of a frame with items of one length.
    pub(crate) fn take_fixed(&mut self, item_bytes: u64, bytes: &[u8]) -> Result<Vec<Item>> {
        let length = self.check_length(item_bytes)?;
        let wrong = SessionFrameError::Field { field: "item bytes", got: item_bytes };
        let rest_bytes = length.checked_sub(GAP_BYTES).ok_or(wrong.clone())?;
        let begin = || (length, ListReader::new(range_of_bits(64), FETCH_ITEMS_MAX as u64));
        let (expected, mut list) = self.fixed.take().unwrap_or_else(begin);
        if expected != length {
            return Err(wrong.into());
        }
        let (heads, rests) = list.read(&mut Reader::new(bytes), rest_bytes)?;
        let mut rests = rests.chunks_exact(rest_bytes.max(1));
        let mut items = Vec::with_capacity(heads.len());
        for head in heads {
            let rest = rests.next().unwrap_or_default();
            items.push(self.item(&[&head.to_be_bytes(), rest].concat())?);
        }
        if !list.is_complete() {
            self.fixed = Some((length, list));
        }
        Ok(items)
    }

    fn check_length(&self, length: u64) -> Result<usize> {
        let max = self.item_bytes_max;
        let checked = usize::try_from(length).ok().filter(|&length| length <= max);
        checked.ok_or(SessionError::LimitExceeded {
            limit: "bytes of an item that came",
            got: length,
            max: max as u64,
        })
    }

    fn item(&self, bytes: &[u8]) -> Result<Item, SessionFrameError> {
        let wrong = SessionFrameError::Field { field: "item", got: bytes.len() as u64 };
        Item::from_bytes(self.kind, bytes).ok_or(wrong)
    }
}

#[cfg(test)]
mod tests {
    use proptest::collection::{btree_set, vec};
    use proptest::prelude::*;

    use super::*;

    fn there_and_back(items: &[Item]) -> Vec<Item> {
        let mut reader = ItemsReader::new(SymbolKind::Hashed, 1 << 20);
        let mut found = Vec::new();
        for body in bodies_of(items) {
            found.extend(match body {
                ItemsBody::Stream(bytes) => reader.take_stream(&bytes).unwrap(),
                ItemsBody::Packed(packed) => reader.take_stream(&unpack(&packed).unwrap()).unwrap(),
                ItemsBody::Fixed { item_bytes, list } => {
                    reader.take_fixed(item_bytes, &list).unwrap()
                }
                _ => panic!("no items"),
            });
        }
        assert!(reader.is_at_end());
        found.sort();
        found
    }

    proptest! {
        #[test]
        fn items_return(items in btree_set(vec(any::<u8>(), 0..40), 0..60)) {
            let items: Vec<Item> = items.into_iter().map(Item::Bytes).collect();
            prop_assert_eq!(there_and_back(&items), items);
        }

        #[test]
        fn items_of_one_length_return(
            items in btree_set(vec(any::<u8>(), 32), 0..60), length in 0..=32usize,
        ) {
            let mut items: Vec<Item> =
                items.iter().map(|item| Item::Bytes(item[..length].to_vec())).collect();
            items.sort();
            prop_assert_eq!(there_and_back(&items), items);
        }
    }

    /// Incompressible bytes.
    fn noise(seed: u8) -> Vec<u8> {
        let step = |state: &mut u64| {
            *state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            Some(state.to_be_bytes()[0])
        };
        let mut state = u64::from(seed) << 32;
        (0..100_000).map_while(|_| step(&mut state)).collect()
    }

    #[test]
    fn items_that_are_alike_are_packed_and_bombs_are_refused() {
        let items: Vec<Item> =
            (0..9000).map(|at| Item::Bytes(format!("line number {at} of 9000").into())).collect();
        let bodies = bodies_of(&items);
        let [ItemsBody::Packed(packed)] = &bodies[..] else { panic!("not packed: {bodies:?}") };
        assert!(packed.len() < 40_000);
        let mut sorted = items.clone();
        sorted.sort();
        assert_eq!(there_and_back(&items), sorted);
        let bomb = zstd::bulk::compress(&vec![0; PACKED_BYTES_MAX + 1], 1).unwrap();
        assert!(unpack(&bomb).is_err());
        assert!(unpack(b"no zstd").is_err());
    }

    #[test]
    fn long_items_are_cut_and_return() {
        let items: Vec<Item> = (0..3u8).map(|at| Item::Bytes(noise(at))).collect();
        assert!(bodies_of(&items).len() > 3);
        let mut sorted = items.clone();
        sorted.sort();
        assert_eq!(there_and_back(&items), sorted);
        let many: Vec<Item> =
            (0..5000u64).map(|at| Item::Bytes(at.to_be_bytes().repeat(4))).collect();
        assert!(bodies_of(&many).len() > 1);
        assert_eq!(there_and_back(&many), many);
    }
}
