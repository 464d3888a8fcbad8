//! The AND of rows, and in how many answers each set was.
//!
//! Counts are written by row, too: plane i has bit i of every set's count. Adding an answer of 64 sets is a carry that
//! moves up the planes until it is gone, after two of them on average, so a question of a thousand items and a
//! thousand sets counts in some 32,000 steps, and not in as many as there are ones.

// Input is hostile here: an index out of bounds must be an error, not a panic.
#![deny(clippy::indexing_slicing)]

use super::groups::SizeGroup;

/// A question of one item or of many, and its answers so far.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Question {
    /// The last answer: a bit a set, those of a group from a new word on.
    pub(super) found: Vec<u64>,
    planes: Vec<Vec<u64>>,
    asked: u32,
}

impl Question {
    pub(super) fn new(word_count: usize) -> Self {
        Self { found: vec![0; word_count], planes: Vec::new(), asked: 0 }
    }

    /// How many items were asked.
    #[must_use]
    pub const fn asked(&self) -> u32 {
        self.asked
    }

    /// The words of a group.
    pub(super) fn words_of(&mut self, group: &SizeGroup) -> &mut [u64] {
        let words = self.found.get_mut(group.first_word..).unwrap_or_default();
        words.get_mut(..group.words()).unwrap_or_default()
    }

    /// Adds the last answer to the counts.
    pub(super) fn count(&mut self) {
        self.asked = self.asked.saturating_add(1);
        for (at, word) in self.found.iter().enumerate() {
            let mut carry = *word;
            for plane in &mut self.planes {
                if carry == 0 {
                    break;
                }
                if let Some(sum) = plane.get_mut(at) {
                    (*sum, carry) = (*sum ^ carry, *sum & carry);
                }
            }
            if carry != 0 {
                let mut plane = vec![0; self.found.len()];
                if let Some(sum) = plane.get_mut(at) {
                    *sum = carry;
                }
                self.planes.push(plane);
            }
        }
    }

    /// In how many answers the set of this bit was.
    pub(super) fn count_of(&self, group: &SizeGroup, column: usize) -> u32 {
        let bit = |plane: &Vec<u64>| {
            let word = plane.get(group.first_word + column / 64).copied().unwrap_or_default();
            (word >> (column % 64) & 1) as u32
        };
        self.planes.iter().rev().fold(0, |count, plane| count << 1 | bit(plane))
    }
}

/// As if every set were found.
pub(super) fn fill(words: &mut [u64], set_count: usize) {
    words.fill(u64::MAX);
    let rest = set_count % 64;
    if let Some(last) = words.last_mut().filter(|_| rest > 0) {
        *last = (1 << rest) - 1;
    }
}

/// ANDs a row into words; says whether a set is left. `bits` are those of a row, `shift` where it begins in its byte.
#[inline]
pub(super) fn and_row(words: &mut [u64], row: &[u8], bits: u64, shift: u32) -> bool {
    let mut left = 0;
    if bits < 8 {
        for word in words {
            *word &= u64::from(row.first().copied().unwrap_or_default() >> shift);
            left |= *word;
        }
        return left != 0;
    }
    let (chunks, tail) = row.as_chunks::<8>();
    let mut words = words.iter_mut();
    for (chunk, word) in chunks.iter().zip(&mut words) {
        *word &= u64::from_le_bytes(*chunk);
        left |= *word;
    }
    if let Some(word) = words.next() {
        let mut last = [0; 8];
        for (to, from) in last.iter_mut().zip(tail) {
            *to = *from;
        }
        *word &= u64::from_le_bytes(last);
        left |= *word;
    }
    left != 0
}
