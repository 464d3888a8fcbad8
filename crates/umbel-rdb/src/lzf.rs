//! Decompresses LZF (M. Lehmann's liblzf, `lzf_d.c`), piece by piece.
//!
//! ```text
//! 000nnnnn, n + 1 bytes               these bytes
//! nnnddddd dddddddd                   n + 2 bytes from d + 1 bytes before, n = 1 to 6
//! 111ddddd nnnnnnnn dddddddd          n + 9 bytes from there
//! ```
//!
//! Copies reach back at most 8,192 bytes, which is the window that is kept.

use std::io::Read;

use crate::error::{RdbCause, RdbError};
use crate::input::Input;

/// How far back copies reach.
const WINDOW_BYTES: usize = 1 << 13;

/// A text that is being decompressed.
pub(crate) struct Lzf {
    /// Compressed bytes that are not read yet.
    packed_left: u64,
    window: Vec<u8>,
    /// Bytes decompressed so far; modulo the window's length, the position of the next one.
    given: u64,
    run: Run,
}

/// What produces the next bytes.
#[derive(Clone, Copy)]
enum Run {
    Bytes { left: usize },
    Copy { distance: usize, left: usize },
}

impl Lzf {
    pub(crate) fn new(packed_bytes: u64) -> Self {
        let (window, run) = (vec![0; WINDOW_BYTES], Run::Bytes { left: 0 });
        Self { packed_left: packed_bytes, window, given: 0, run }
    }

    /// Fills the whole target with decompressed bytes.
    pub(crate) fn fill<R: Read>(
        &mut self,
        input: &mut Input<R>,
        target: &mut [u8],
    ) -> Result<(), RdbError> {
        let mut at = 0;
        while let Some(rest) = target.get_mut(at..).filter(|rest| !rest.is_empty()) {
            at += match self.run {
                Run::Bytes { left: 0 } | Run::Copy { left: 0, .. } => {
                    self.run = self.next_run(input)?;
                    0
                }
                Run::Bytes { left } => {
                    let count = left.min(rest.len());
                    let (front, _) = rest.split_at_mut(count);
                    self.packed(input, front)?;
                    front.iter().for_each(|&byte| self.keep(byte));
                    self.run = Run::Bytes { left: left - count };
                    count
                }
                Run::Copy { distance, left } => {
                    let count = left.min(rest.len());
                    for byte in rest.iter_mut().take(count) {
                        *byte = self.back(distance);
                        self.keep(*byte);
                    }
                    self.run = Run::Copy { distance, left: left - count };
                    count
                }
            };
        }
        Ok(())
    }

    /// Skips all compressed bytes without decompressing them.
    pub(crate) fn skip<R: Read>(&mut self, input: &mut Input<R>) -> Result<(), RdbError> {
        input.skip(std::mem::take(&mut self.packed_left))
    }

    /// Whether the compressed bytes are used up.
    pub(crate) fn is_done(&self) -> bool {
        let (Run::Bytes { left } | Run::Copy { left, .. }) = self.run;
        left == 0 && self.packed_left == 0
    }

    fn next_run<R: Read>(&mut self, input: &mut Input<R>) -> Result<Run, RdbError> {
        let offset = input.offset();
        let first = usize::from(self.packed_byte(input)?);
        if first < 32 {
            return Ok(Run::Bytes { left: first + 1 });
        }
        let mut left = (first >> 5) + 2;
        if left == 9 {
            left += usize::from(self.packed_byte(input)?);
        }
        let distance = ((first & 0x1f) << 8 | usize::from(self.packed_byte(input)?)) + 1;
        if distance as u64 > self.given {
            return Err(RdbCause::Packed("a copy of what is before the beginning").at(offset));
        }
        Ok(Run::Copy { distance, left })
    }

    fn packed_byte<R: Read>(&mut self, input: &mut Input<R>) -> Result<u8, RdbError> {
        let mut byte = [0];
        self.packed(input, &mut byte)?;
        let [byte] = byte;
        Ok(byte)
    }

    fn packed<R: Read>(&mut self, input: &mut Input<R>, target: &mut [u8]) -> Result<(), RdbError> {
        let left = self.packed_left.checked_sub(target.len() as u64);
        let left = left.ok_or_else(|| input.error(RdbCause::Packed("it ends before its text")))?;
        input.fill(target)?;
        self.packed_left = left;
        Ok(())
    }

    fn back(&self, distance: usize) -> u8 {
        let at = self.place(WINDOW_BYTES - distance);
        self.window.get(at).copied().unwrap_or_default()
    }

    fn keep(&mut self, byte: u8) {
        let at = self.place(0);
        if let Some(place) = self.window.get_mut(at) {
            *place = byte;
        }
        self.given += 1;
    }

    /// The position in the window that is `ahead` bytes after the next one, modulo the window's length.
    #[expect(clippy::cast_possible_truncation, reason = "less than the window")]
    fn place(&self, ahead: usize) -> usize {
        ((self.given + ahead as u64) % WINDOW_BYTES as u64) as usize
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn unpacked(packed: &[u8], byte_count: usize, piece: usize) -> Result<Vec<u8>, RdbError> {
        let mut input = Input::new(packed);
        let mut lzf = Lzf::new(packed.len() as u64);
        let mut text = vec![0; byte_count];
        for piece in text.chunks_mut(piece) {
            lzf.fill(&mut input, piece)?;
        }
        assert!(lzf.is_done());
        Ok(text)
    }

    #[test]
    fn bytes_and_copies_come_out() {
        // "abc", then 6 bytes from 3 before, then 9 + 255 from 1 before.
        let packed = [2, b'a', b'b', b'c', 0x80, 2, 0xe0, 255, 0];
        let text = [b"abcabcabc".to_vec(), vec![b'c'; 264]].concat();
        for piece in [1, 2, 7, 1_000] {
            assert_eq!(unpacked(&packed, text.len(), piece).unwrap(), text);
        }
    }

    #[test]
    fn the_furthest_copy_is_of_8192_bytes_before() {
        let noise = (0..WINDOW_BYTES).map(|at| u8::try_from(at * at / 7 % 251).unwrap());
        let noise: Vec<u8> = noise.collect();
        let mut packed = Vec::new();
        for run in noise.chunks(32) {
            packed.push(31);
            packed.extend(run);
        }
        packed.extend([0xff, 0, 0xff]);
        let text = unpacked(&packed, WINDOW_BYTES + 9, 100).unwrap();
        assert_eq!(text[WINDOW_BYTES..], noise[..9]);
    }

    #[test]
    fn what_does_not_fit_is_an_error() {
        let message = |packed: &[u8]| unpacked(packed, 10, 3).unwrap_err().to_string();
        assert_eq!(
            message(&[0x20, 0]),
            "byte 0: packed text: a copy of what is before the beginning"
        );
        assert_eq!(message(&[2, b'a']), "byte 1: packed text: it ends before its text");
        assert_eq!(message(&[0, b'a']), "byte 2: packed text: it ends before its text");
    }
}
