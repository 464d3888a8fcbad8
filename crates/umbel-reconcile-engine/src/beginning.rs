//! What the first bytes of a connection are: a message of this protocol, or those of another program, such as the
//! greeting of a shell.

use std::ops::RangeInclusive;

use super::message::Message;
use super::resume::{OFFER, VERDICT};
use super::wire::{FrameBuffer, body_length};
use crate::limits::FIRST_BODY_BYTES_MAX;

/// The types of the frames that a side may send first, and how long their bodies may be. Text does not begin like
/// any of them, except where its second character is a blank; then its checksum is wrong.
const FIRST_FRAMES: [(u8, RangeInclusive<usize>); 5] = [
    (Message::HELLO, 0..=FIRST_BODY_BYTES_MAX),
    (Message::WELCOME, 0..=FIRST_BODY_BYTES_MAX),
    (Message::ABORT, 0..=FIRST_BODY_BYTES_MAX),
    (OFFER, 0..=FIRST_BODY_BYTES_MAX),
    // That a session is still served, in place of an offer.
    (VERDICT, 1..=1),
];

/// What the first bytes of a peer are.
///
/// ```
/// use umbel_reconcile_engine::{Beginning, ResumeFrame, ResumeOffer};
///
/// let offer = ResumeFrame::Offer(ResumeOffer::first(7)).to_bytes();
/// assert_eq!(Beginning::of(&offer[..9]), Beginning::Partial);
/// assert_eq!(Beginning::of(&offer), Beginning::Whole);
/// assert_eq!(Beginning::of(b"Welcome to this machine!"), Beginning::Foreign);
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Beginning {
    /// The start of a message, or too few bytes to tell.
    Partial,
    /// A whole message, whatever follows it.
    Whole,
    /// No message: the peer is another program, or something else writes to the connection, too.
    Foreign,
}

impl Beginning {
    /// What the bytes are that came first. It does not depend on what follows the first message.
    #[must_use]
    pub fn of(first: &[u8]) -> Self {
        let (body_bytes, length_bytes) = match body_length(first) {
            Ok(Some(lengths)) => lengths,
            Ok(None) => return Self::Partial,
            Err(_) => return Self::Foreign,
        };
        let Some(frame_type) = first.get(length_bytes) else { return Self::Partial };
        let is_first = |(known, bytes): &(u8, RangeInclusive<usize>)| {
            known == frame_type && bytes.contains(&body_bytes)
        };
        if !FIRST_FRAMES.iter().any(is_first) {
            return Self::Foreign;
        }
        let mut buffer = FrameBuffer::default();
        buffer.push(first);
        match buffer.next_frame() {
            Ok(None) => Self::Partial,
            Ok(Some(_)) => Self::Whole,
            Err(_) => Self::Foreign,
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::collection::vec;
    use proptest::prelude::*;

    use super::*;
    use crate::wire::put_frame;
    use crate::{ResumeFrame, ResumeOffer, ResumeVerdict};

    fn frame(frame_type: u8, body_bytes: usize) -> Vec<u8> {
        let mut bytes = Vec::new();
        put_frame(&mut bytes, frame_type, &vec![7; body_bytes]);
        bytes
    }

    #[test]
    fn first_frames_are_recognized_when_they_are_whole() {
        let firsts = [
            frame(Message::HELLO, 168),
            frame(Message::WELCOME, 25),
            frame(Message::ABORT, 40),
            ResumeFrame::Offer(ResumeOffer::first(7)).to_bytes(),
            ResumeFrame::Verdict(ResumeVerdict::Busy).to_bytes(),
        ];
        for mut bytes in firsts {
            for end in 0..bytes.len() {
                assert_eq!(Beginning::of(&bytes[..end]), Beginning::Partial, "{bytes:?}");
            }
            assert_eq!(Beginning::of(&bytes), Beginning::Whole);
            bytes.extend(b"what follows");
            assert_eq!(Beginning::of(&bytes), Beginning::Whole);
            bytes[4] ^= 1;
            assert_eq!(Beginning::of(&bytes), Beginning::Foreign);
        }
    }

    #[test]
    fn other_frames_and_long_ones_begin_nothing() {
        let others = [
            frame(Message::PLAN, 20),
            frame(Message::HELLO, FIRST_BODY_BYTES_MAX + 1),
            ResumeFrame::Data(vec![1; 20]).to_bytes(),
            frame(VERDICT, 40),
        ];
        for bytes in others {
            assert_eq!(Beginning::of(&bytes), Beginning::Foreign, "{bytes:?}");
            assert_eq!(Beginning::of(&bytes[..3]), Beginning::Foreign, "{bytes:?}");
        }
        assert_eq!(Beginning::of(&[0xff, 0xff, 0xff]), Beginning::Foreign);
    }

    #[test]
    fn greetings_of_shells_and_of_servers_are_not_taken_for_messages() {
        let texts = [
            "Welcome to Ubuntu 24.04 LTS\n",
            "This account is currently not available.\n",
            "bash: warning: setlocale: LC_ALL: cannot change locale\n",
            "\n*** authorized use only ***\n",
            "\u{1b}[2J\u{1b}[H",
            "été\n",
            "HTTP/1.1 400 Bad Request\r\n\r\n",
            "SSH-2.0-OpenSSH_9.6\r\n",
        ];
        for text in texts {
            assert_eq!(Beginning::of(text.as_bytes()), Beginning::Foreign, "{text}");
        }
        // A blank is the type of an offer, so this shows once it is as long as one.
        let text = "A new release is available: run do-release-upgrade to get it, or wait until tomorrow.\n";
        assert_eq!(Beginning::of(&text.as_bytes()[..20]), Beginning::Partial);
        assert_eq!(Beginning::of(text.as_bytes()), Beginning::Foreign);
    }

    proptest! {
        /// More bytes settle what is partial, and change nothing that is settled.
        #[test]
        fn what_is_settled_stays(bytes in vec(any::<u8>(), 0..200), end: prop::sample::Index) {
            let end = end.index(bytes.len() + 1);
            let before = Beginning::of(&bytes[..end]);
            prop_assert!(before == Beginning::Partial || before == Beginning::of(&bytes));
        }
    }
}
