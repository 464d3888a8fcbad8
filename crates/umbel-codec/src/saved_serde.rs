//! A saved filter for serde: its bytes, as one value.
//!
//! Formats with a type for bytes store them as bytes; others, such as JSON, as a list of numbers. A filter is
//! accepted up to [`FRAME_FILTER_BYTES_MAX`], in both directions, and no list longer than the frames of such a filter is read.

use std::fmt;

use serde::de::{Deserialize, Deserializer, Error as _, SeqAccess, Visitor};
use serde::ser::{Error as _, Serialize, Serializer};
use umbel_filter::{Describe, Shape};

use crate::error::FrameError;
use crate::limits::FRAME_FILTER_BYTES_MAX;
use crate::saved::SavedFilter;

/// Most bytes that are allocated for a length that the format announces, before the bytes have
/// arrived.
const ANNOUNCED_BYTES_MAX: usize = 64 << 10;

impl Serialize for SavedFilter {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let bytes = bytes_within(self, FRAME_FILTER_BYTES_MAX).map_err(S::Error::custom)?;
        serializer.serialize_bytes(&bytes)
    }
}

/// The bytes of a filter that is read where it may take this much memory.
fn bytes_within(saved: &SavedFilter, filter_bytes_max: u64) -> Result<Vec<u8>, FrameError> {
    let check = |filter_bytes: u64| {
        let is_larger = filter_bytes > filter_bytes_max;
        let refused = FrameError::FilterTooLarge { filter_bytes, filter_bytes_max };
        if is_larger { Err(refused) } else { Ok(()) }
    };
    match saved.filter.shape() {
        Shape::Blocks(shape) => check(shape.memory_bytes())?,
        Shape::Scalable(_) | Shape::RedisBloom(_) => check(saved.filter.describe().memory_bytes)?,
        // Its codes are what a reader keeps.
        Shape::SingleShot(_) => {}
    }
    let bytes = saved.to_bytes()?;
    if let Shape::SingleShot(_) = saved.filter.shape() {
        check(bytes.len() as u64)?;
    }
    Ok(bytes)
}

impl<'de> Deserialize<'de> for SavedFilter {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_bytes(SavedVisitor { bytes_max: FRAME_FILTER_BYTES_MAX })
    }
}

/// Takes the bytes of a filter that takes this much memory at most.
struct SavedVisitor {
    bytes_max: u64,
}

impl<'de> Visitor<'de> for SavedVisitor {
    type Value = SavedFilter;

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("the bytes of a saved filter")
    }

    fn visit_bytes<E: serde::de::Error>(self, bytes: &[u8]) -> Result<SavedFilter, E> {
        // The text includes the causes, because formats keep only the text of an error.
        SavedFilter::from_bytes(bytes, self.bytes_max).map_err(|error| {
            let cause = std::error::Error::source(&error);
            E::custom(match cause {
                Some(cause) => format!("{error}: {cause}"),
                None => error.to_string(),
            })
        })
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut numbers: A) -> Result<SavedFilter, A::Error> {
        // Frames are never longer than their filter's memory by more than heads.
        let length_max = 2 * self.bytes_max;
        let announced = numbers.size_hint().unwrap_or(0).min(ANNOUNCED_BYTES_MAX);
        let mut bytes = Vec::with_capacity(announced);
        while let Some(byte) = numbers.next_element()? {
            if bytes.len() as u64 == length_max {
                return Err(A::Error::custom(format_args!("more than {length_max} bytes")));
            }
            bytes.push(byte);
        }
        self.visit_bytes(&bytes)
    }
}

#[cfg(test)]
mod tests {
    use serde::de::value::{BytesDeserializer, Error, SeqDeserializer};
    use umbel_filter::{
        AnyFilter, Blocked, Contains, FilterPlan, HashFunction, HashRange, Insert, ItemHasher, Kind,
    };

    use super::*;
    use crate::frame::FrameKey;

    const KEY: FrameKey = FrameKey { function: HashFunction::Xxh3Seeded, key_id: 7 };

    fn saved() -> SavedFilter {
        let hasher = ItemHasher::Xxh3 { seed: 7 };
        let mut filter = Blocked::for_rate(HashRange::WHOLE, 1_000, 0.01).unwrap();
        filter.insert(hasher.hash(b"alice")).unwrap();
        SavedFilter { key: KEY, filter: filter.into() }
    }

    #[test]
    fn a_filter_comes_back_from_a_list_of_numbers() {
        let text = serde_json::to_string(&saved()).unwrap();
        assert!(text.starts_with("[85,77,66,70,1,"), "{text}");
        let loaded: SavedFilter = serde_json::from_str(&text).unwrap();
        assert_eq!(loaded, saved());
        assert!(loaded.filter.contains(ItemHasher::Xxh3 { seed: 7 }.hash(b"alice")));
    }

    #[test]
    fn a_filter_comes_back_from_bytes() {
        let bytes = saved().to_bytes().unwrap();
        let deserializer = BytesDeserializer::<Error>::new(&bytes);
        assert_eq!(SavedFilter::deserialize(deserializer), Ok(saved()));
    }

    #[test]
    fn what_is_wrong_is_said() {
        let refused =
            |text: &str| serde_json::from_str::<SavedFilter>(text).unwrap_err().to_string();
        let said = r"begins with `\x01\x02\x00\x00`, expected `UMBF` (a saved filter)";
        assert!(refused("[1,2]").starts_with(&format!("not a saved filter: {said}")));
        assert!(refused("\"filter\"").starts_with("not a saved filter: begins with"));
        assert!(refused("true").contains("expected the bytes of a saved filter"));
        assert!(refused("[256]").contains("256"));
        let mut bytes = saved().to_bytes().unwrap();
        *bytes.last_mut().unwrap() ^= 1;
        let error = SavedFilter::deserialize(BytesDeserializer::<Error>::new(&bytes)).unwrap_err();
        assert!(error.to_string().starts_with("frame at byte 36 is not valid: "), "{error}");
    }

    #[test]
    fn a_list_without_end_is_refused() {
        let endless = SeqDeserializer::<_, Error>::new(std::iter::repeat(0_u8));
        let refused = SavedVisitor { bytes_max: 1_000 }.visit_seq(endless).unwrap_err();
        assert_eq!(refused.to_string(), "more than 2000 bytes");
    }

    #[test]
    fn a_filter_that_nobody_would_read_is_not_written() {
        for kind in Kind::ALL {
            let (range, item_count) = (HashRange::WHOLE, 1_000);
            let plan = FilterPlan { kind, range, item_count, false_positive_rate: 0.01 };
            let mut filter = AnyFilter::create(&plan).unwrap();
            filter.insert(ItemHasher::Xxh3 { seed: 7 }.hash(b"alice")).unwrap();
            let saved = SavedFilter { key: KEY, filter };
            let is_written = |bytes_max| match bytes_within(&saved, bytes_max) {
                Ok(bytes) => {
                    let read = SavedVisitor { bytes_max }.visit_bytes::<Error>(&bytes);
                    assert!(read == Ok(saved.clone()), "{kind} in {bytes_max} bytes");
                    true
                }
                Err(error) => {
                    assert!(matches!(error, FrameError::FilterTooLarge { .. }), "{kind}: {error}");
                    false
                }
            };
            let fits: Vec<bool> = (0..18).map(|bits| is_written(1 << bits)).collect();
            assert!(!fits[0] && fits[17] && fits.is_sorted(), "{kind}: {fits:?}");
        }
    }

    #[test]
    fn a_filter_that_takes_more_memory_is_refused() {
        let bytes = saved().to_bytes().unwrap();
        let refused = SavedVisitor { bytes_max: 64 }.visit_bytes::<Error>(&bytes).unwrap_err();
        assert!(refused.to_string().starts_with("frames do not make the filter"), "{refused}");
    }
}
