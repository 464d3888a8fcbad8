//! Frames that are changed on their way.

use rand::RngExt;
use rand::rngs::ChaCha8Rng;
use umbel_codec::crc32c;

use crate::plan::scenario::Lie;

/// Bytes of the checksum at the end of a frame.
const CRC_BYTES: usize = 4;

/// Bytes at the start of a body that may contain counts.
const COUNT_BYTES: usize = 40;

/// Bytes at the end of a body: a digest.
const END_BYTES: usize = 24;

/// Changes one frame of a side.
pub(super) struct Liar {
    how: Lie,
    /// Number of frames before that one.
    left: u32,
    is_done: bool,
    held: Vec<u8>,
    dice: ChaCha8Rng,
}

impl Liar {
    /// Changes the frame of this number, counted from 0.
    pub(super) const fn new(how: Lie, frame: u32, dice: ChaCha8Rng) -> Self {
        Self { how, left: frame, is_done: false, held: Vec::new(), dice }
    }

    /// The bytes to send in place of a frame, and whether the change was made in this call.
    pub(super) fn pass(&mut self, frame: Vec<u8>) -> (Vec<u8>, bool) {
        if self.left > 0 {
            self.left -= 1;
            return (frame, false);
        }
        if self.is_done {
            return ([frame, std::mem::take(&mut self.held)].concat(), false);
        }
        self.is_done = true;
        (self.change(frame), true)
    }

    fn change(&mut self, mut frame: Vec<u8>) -> Vec<u8> {
        match self.how {
            Lie::Flip => {
                let bit = self.dice.random_range(0..8 * frame.len());
                frame[bit / 8] ^= 1 << (bit % 8);
                frame
            }
            Lie::Cut => {
                frame.truncate(self.dice.random_range(0..frame.len()));
                frame
            }
            Lie::Drop => Vec::new(),
            Lie::Repeat => frame.repeat(2),
            Lie::Swap => {
                self.held = frame;
                Vec::new()
            }
            Lie::Body => self.with_body(&frame, |dice, length| {
                (dice.random_range(0..length), 1 << dice.random_range(0..8))
            }),
            Lie::Count => self.with_body(&frame, |dice, length| {
                (dice.random_range(0..length.min(COUNT_BYTES)), dice.random_range(1..=255))
            }),
            Lie::End => self.with_body(&frame, |dice, length| {
                (
                    length - 1 - dice.random_range(0..length.min(END_BYTES)),
                    dice.random_range(1..=255),
                )
            }),
        }
    }

    /// The frame with one byte of its body changed and a valid checksum.
    fn with_body(
        &mut self,
        frame: &[u8],
        choose: impl FnOnce(&mut ChaCha8Rng, usize) -> (usize, u8),
    ) -> Vec<u8> {
        // The frame begins with the body's length, in groups of seven bits; the body begins with its
        // type.
        let begin = frame.iter().take_while(|&&byte| byte & 0x80 != 0).count() + 1;
        let end = frame.len() - CRC_BYTES;
        let mut lie = frame[..end].to_vec();
        if end > begin + 1 {
            let (at, change) = choose(&mut self.dice, end - begin - 1);
            lie[begin + 1 + at] ^= change;
        }
        let crc = crc32c(&[&lie[begin..]]);
        lie.extend_from_slice(&crc.to_le_bytes());
        lie
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::seed::stream;

    /// A frame whose body has `body_bytes` bytes.
    fn frame(body_bytes: usize) -> Vec<u8> {
        let mut frame = vec![u8::try_from(body_bytes).unwrap(), 7];
        frame.extend((0..body_bytes).map(|byte| u8::try_from(byte).unwrap()));
        let crc = crc32c(&[&frame[1..]]);
        frame.extend(crc.to_le_bytes());
        frame
    }

    #[test]
    fn a_plausible_lie_is_another_body_under_its_own_checksum() {
        for how in Lie::PLAUSIBLE {
            let honest = frame(90);
            let (lie, is_now) = Liar::new(how, 0, stream(1, "lie")).pass(honest.clone());
            assert!(is_now && lie != honest && lie.len() == honest.len(), "{how:?}");
            let (text, crc) = lie.split_at(lie.len() - CRC_BYTES);
            assert_eq!(crc, crc32c(&[&text[1..]]).to_le_bytes(), "{how:?}");
            assert_eq!(text[..2], honest[..2], "{how:?}");
        }
    }

    #[test]
    fn one_frame_is_meant_and_the_others_pass() {
        let mut liar = Liar::new(Lie::Swap, 1, stream(1, "lie"));
        assert_eq!(liar.pass(frame(1)), (frame(1), false));
        assert_eq!(liar.pass(frame(2)), (Vec::new(), true));
        assert_eq!(liar.pass(frame(3)), ([frame(3), frame(2)].concat(), false));
        assert_eq!(liar.pass(frame(4)), (frame(4), false));
        // An empty body has nothing to change, so the frame stays as it is.
        assert_eq!(Liar::new(Lie::Body, 0, stream(1, "lie")).pass(frame(0)), (frame(0), true));
    }
}
