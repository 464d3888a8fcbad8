//! Answers to a batch, one bit per item, in the order of the items.

use bytes::Bytes;
use umbel_proto::v1::{AckLevel, ReadLevel};

/// One bit per item; unused bits of the last byte are zero.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(crate) struct Bits {
    bytes: Bytes,
    bit_count: usize,
    one_count: usize,
}

impl Bits {
    /// The bits of a node's answer; None if their number is not that of the items.
    pub(crate) fn from_answer(bytes: Bytes, bit_count: usize) -> Option<Self> {
        let tail_bits = bit_count % 8;
        let is_clean = tail_bits == 0 || bytes.last().is_some_and(|last| last >> tail_bits == 0);
        if bytes.len() != bit_count.div_ceil(8) || !is_clean {
            return None;
        }
        let one_count = bytes.iter().map(|byte| byte.count_ones() as usize).sum();
        Some(Self { bytes, bit_count, one_count })
    }

    fn get(&self, index: usize) -> Option<bool> {
        (index < self.bit_count).then(|| self.bytes[index / 8] >> (index % 8) & 1 == 1)
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = bool> {
        (0..self.bit_count).map(|index| self.bytes[index / 8] >> (index % 8) & 1 == 1)
    }
}

/// Joins the bits of parts into the bits of their batch.
pub(crate) struct BitsJoin {
    bytes: Vec<u8>,
    bit_count: usize,
}

impl BitsJoin {
    pub(crate) fn new(bit_count: usize) -> Self {
        Self { bytes: vec![0; bit_count.div_ceil(8)], bit_count }
    }

    /// Puts a part's bits at consecutive positions from `start` on.
    pub(crate) fn put_from(&mut self, start: usize, part: &Bits) {
        let shift = start % 8;
        let bytes = &mut self.bytes[start / 8..];
        if shift == 0 {
            // Parts arrive in any order: the next one may have set bits of the last byte already.
            bytes.iter_mut().zip(&part.bytes).for_each(|(byte, new)| *byte |= new);
            return;
        }
        for (at, byte) in part.bytes.iter().enumerate() {
            bytes[at] |= byte << shift;
            // There may be no next byte if all bits of the last byte fit into this one.
            if let Some(next) = bytes.get_mut(at + 1) {
                *next |= byte >> (8 - shift);
            }
        }
    }

    /// Puts a part's bits at the given positions.
    pub(crate) fn put_at(&mut self, places: &[u32], part: &Bits) {
        for (at, &place) in places.iter().enumerate() {
            let bit = part.bytes[at / 8] >> (at % 8) & 1;
            self.bytes[place as usize / 8] |= bit << (place % 8);
        }
    }

    pub(crate) fn finish(self) -> Bits {
        let one_count = self.bytes.iter().map(|byte| byte.count_ones() as usize).sum();
        Bits { bytes: self.bytes.into(), bit_count: self.bit_count, one_count }
    }
}

/// The answer to a request, or to all requests of a batch.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(crate) struct Answer {
    pub(crate) bits: Bits,
    /// The level as the wire has it: an `AckLevel` for an insert, a `ReadLevel` for a query, 0 for a
    /// removal.
    pub(crate) level: i32,
}

macro_rules! answers {
    (
        $(#[$about:meta])* $name:ident,
        $ones:ident $ones_doc:literal, $zeros:ident $zeros_doc:literal, $is_one:ident $is_doc:literal
    ) => {
        $(#[$about])*
        #[derive(Clone, PartialEq, Eq, Debug, Default)]
        pub struct $name {
            answer: Answer,
        }

        impl $name {
            pub(crate) const fn new(answer: Answer) -> Self {
                Self { answer }
            }

            #[doc = $ones_doc]
            #[must_use]
            pub const fn $ones(&self) -> usize {
                self.answer.bits.one_count
            }

            #[doc = $zeros_doc]
            #[must_use]
            pub const fn $zeros(&self) -> usize {
                self.answer.bits.bit_count - self.answer.bits.one_count
            }

            #[doc = $is_doc]
            ///
            /// None after the last item.
            #[must_use]
            pub fn $is_one(&self, index: usize) -> Option<bool> {
                self.answer.bits.get(index)
            }

            /// The same for every item, in order.
            pub fn iter(&self) -> impl Iterator<Item = bool> {
                self.answer.bits.iter()
            }

            /// Number of items.
            #[must_use]
            pub const fn len(&self) -> usize {
                self.answer.bits.bit_count
            }

            /// Whether there were no items.
            #[must_use]
            pub const fn is_empty(&self) -> bool {
                self.answer.bits.bit_count == 0
            }

            /// The answers as bits: bit i is bit i mod 8, from the least significant, of byte i / 8.
            #[must_use]
            pub const fn as_bytes(&self) -> &Bytes {
                &self.answer.bits.bytes
            }
        }
    };
}

answers! {
    /// The result of an insert.
    Inserted,
    new_count "Items that were new.",
    present_count "Items that were present, truly or falsely.",
    is_new "Whether the item of this number was new."
}
answers! {
    /// The result of a query.
    Answers,
    present_count "Items that are present, truly or falsely.",
    absent_count "Items that are certainly absent.",
    is_present "Whether the item of this number is present."
}
answers! {
    /// The result of a removal.
    Removed,
    removed_count "Items that were taken out.",
    absent_count "Items that were certainly not there.",
    is_removed "Whether the item of this number was taken out."
}

impl Inserted {
    /// On how many nodes the items are durable, at least: the requested level; by default, a majority for
    /// a partitioned filter and the answering node for a replicated one.
    ///
    /// `Unspecified` if there were no items.
    #[must_use]
    pub fn level(&self) -> AckLevel {
        AckLevel::try_from(self.answer.level).unwrap_or_default()
    }
}

impl Answers {
    /// How far "absent" can be trusted: at level `Local` it does not cover inserts that other nodes
    /// acknowledged; at every other level it is final. "Present" is final at every level.
    ///
    /// `Unspecified` if there were no items.
    #[must_use]
    pub fn level(&self) -> ReadLevel {
        ReadLevel::try_from(self.answer.level).unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn packed(bools: &[bool]) -> Bits {
        let mut bytes = vec![0_u8; bools.len().div_ceil(8)];
        for (at, _) in bools.iter().enumerate().filter(|(_, one)| **one) {
            bytes[at / 8] |= 1 << (at % 8);
        }
        Bits::from_answer(bytes.into(), bools.len()).unwrap()
    }

    #[test]
    fn answers_of_another_length_are_refused() {
        assert!(Bits::from_answer(Bytes::from_static(&[1]), 9).is_none());
        assert!(Bits::from_answer(Bytes::from_static(&[1, 2]), 9).is_none());
        assert!(Bits::from_answer(Bytes::new(), 1).is_none());
        let bits = Bits::from_answer(Bytes::from_static(&[1, 1]), 9).unwrap();
        let inserted = Inserted::new(Answer { bits, level: 1 });
        assert_eq!((inserted.new_count(), inserted.present_count()), (2, 7));
        assert_eq!(inserted.is_new(8), Some(true));
        assert_eq!(inserted.is_new(9), None);
        assert_eq!(inserted.level(), AckLevel::Local);
        let later = Inserted::new(Answer { level: 99, ..Answer::default() });
        assert_eq!(later.level(), AckLevel::Unspecified, "of a later release");
    }

    proptest! {
        #[test]
        fn parts_join_in_any_order(
            parts in prop::collection::vec(prop::collection::vec(any::<bool>(), 1..30), 0..8),
            turn in 0_usize..8,
        ) {
            let all = parts.concat();
            let mut starts = Vec::new();
            let mut start = 0;
            for part in &parts {
                starts.push((start, packed(part)));
                start += part.len();
            }
            starts.rotate_left(turn % parts.len().max(1));
            let mut join = BitsJoin::new(all.len());
            starts.iter().rev().for_each(|(start, part)| join.put_from(*start, part));
            prop_assert_eq!(join.finish(), packed(&all));
        }

        #[test]
        fn places_join_in_order(marks in prop::collection::vec((any::<bool>(), 0_usize..4), 0..60)) {
            let all: Vec<bool> = marks.iter().map(|mark| mark.0).collect();
            let mut join = BitsJoin::new(all.len());
            for shard in 0..4 {
                let places: Vec<u32> =
                    (0..).zip(&marks).filter(|(_, m)| m.1 == shard).map(|(at, _)| at).collect();
                let bools: Vec<bool> = places.iter().map(|&at| all[at as usize]).collect();
                join.put_at(&places, &packed(&bools));
            }
            prop_assert_eq!(join.finish(), packed(&all));
        }
    }
}
