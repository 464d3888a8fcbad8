//! Bundles frames that go the same way into one message, and passes on those that are meant for others.
//!
//! A message between neighbours of the [`Grid`] is a list of
//!
//! ```text
//! | from | to | bytes | frame |      LEB128 each, shortest form; then the frame as its sender has made it
//! ```
//!
//! Frames for one next hop keep their order, and a pair of workers always has the same relay, so a stream's frames
//! arrive as they were sent wherever connections keep order. A frame's checksum covers its sender and receiver, so a
//! relay that mixes them up is found out; the relay checks only that the frame may pass here at all.

#![cfg_attr(not(test), deny(clippy::indexing_slicing))]

use super::entry::WorkerId;
use super::error::{FrameError, RelayError};
use super::frame::{FRAME_BYTES_MAX, HeaderReader, push_varint};
use super::grid::{Grid, Route};
use crate::Outbox;
use crate::limits::RELAY_MESSAGE_BYTES_CUT;
use std::collections::BTreeMap;

/// What a relay wants done.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum RelayOutput {
    /// This message to that neighbour, behind all earlier ones.
    Send {
        /// The neighbour.
        to: WorkerId,
        /// Frames for it and for others behind it.
        message: Vec<u8>,
    },
    /// This frame has arrived: the worker here gets it.
    Deliver {
        /// Who made it.
        from: WorkerId,
        /// The frame, undecoded.
        frame: Vec<u8>,
    },
}

/// One worker's end of the exchange's connections.
///
/// Four workers in a square; 0 tells 3 something, and 1 or 2 pass it on:
///
/// ```
/// use umbel_engine::Outbox;
/// use umbel_engine::dedup::{Relay, RelayOutput, Route, WorkerId};
/// let [mut a, mut b, mut d] = [0, 1, 3].map(|id| Relay::new(WorkerId(id), 4, Route::Grid));
/// let mut outbox = Outbox::new();
/// a.send(WorkerId(3), b"hello".to_vec(), &mut outbox);
/// a.flush(&mut outbox);
/// let [RelayOutput::Send { to: WorkerId(1), ref message }] = outbox.take()[..] else { panic!() };
/// assert_eq!(message[..], *b"\x00\x03\x05hello");
/// b.hear(WorkerId(0), message, &mut outbox).unwrap();
/// b.flush(&mut outbox);
/// let [RelayOutput::Send { to: WorkerId(3), ref message }] = outbox.take()[..] else { panic!() };
/// d.hear(WorkerId(1), message, &mut outbox).unwrap();
/// let arrived = RelayOutput::Deliver { from: WorkerId(0), frame: b"hello".to_vec() };
/// assert_eq!(outbox.take(), [arrived]);
/// ```
#[derive(Debug)]
pub struct Relay {
    me: WorkerId,
    grid: Grid,
    /// Messages that grow, by next hop.
    pending: BTreeMap<WorkerId, Vec<u8>>,
    relayed_frames: u64,
    relayed_bytes: u64,
}

/// A frame on its way, where links keep frames apart: `| from | to | frame |`, LEB128 in the shortest form before the
/// frame as its sender has made it. Between the same two workers frames keep their order, for they have one path.
///
/// ```
/// use umbel_engine::dedup::{Grid, Passage, Route, WorkerId};
/// let grid = Grid::new(4, Route::Grid);
/// let bytes = Passage { from: WorkerId(0), to: WorkerId(3), frame: b"hello" }.to_bytes();
/// assert_eq!(bytes, b"\x00\x03hello");
/// // 1 stands between them, and hears it from nobody but 0.
/// let passage = Passage::read(&bytes, grid, WorkerId(1), WorkerId(0)).unwrap();
/// assert_eq!(grid.next_hop(WorkerId(1), passage.to), WorkerId(3));
/// assert!(Passage::read(&bytes, grid, WorkerId(1), WorkerId(3)).is_err());
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Passage<'a> {
    /// Who made the frame.
    pub from: WorkerId,
    /// Who gets it.
    pub to: WorkerId,
    /// The frame, undecoded.
    pub frame: &'a [u8],
}

impl<'a> Passage<'a> {
    /// Most bytes before the frame.
    pub const HEAD_BYTES_MAX: usize = 6;

    /// The bytes that travel.
    #[must_use]
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(Self::HEAD_BYTES_MAX + self.frame.len());
        push_varint(&mut bytes, self.from.0.into());
        push_varint(&mut bytes, self.to.0.into());
        bytes.extend_from_slice(self.frame);
        bytes
    }

    /// What a neighbour has sent to worker `me`.
    ///
    /// # Errors
    ///
    /// [`RelayError`] if it is malformed or has no business here: drop the connection.
    pub fn read(
        bytes: &'a [u8],
        grid: Grid,
        me: WorkerId,
        neighbour: WorkerId,
    ) -> Result<Self, RelayError> {
        let mut reader = HeaderReader { bytes, at: 0 };
        let refuse = |source| RelayError::Message { neighbour, source };
        let (from, to) = read_pair(&mut reader, grid).map_err(refuse)?;
        let frame = bytes.get(reader.at..).unwrap_or_default();
        let passage = Self { from, to, frame };
        passage.check(grid, me, neighbour)?;
        Ok(passage)
    }

    /// Whether the one path of a pair leads from this neighbour to here.
    fn check(&self, grid: Grid, me: WorkerId, neighbour: WorkerId) -> Result<(), RelayError> {
        let Passage { from, to, .. } = *self;
        let may_pass = match grid.relay(from, to) {
            _ if from == to => false,
            None => neighbour == from && me == to,
            Some(relay) if me == to => neighbour == relay,
            Some(relay) => neighbour == from && me == relay,
        };
        if may_pass { Ok(()) } else { Err(RelayError::Path { from, to, neighbour, me }) }
    }
}

/// Who made a frame, and who gets it.
fn read_pair(
    reader: &mut HeaderReader<'_>,
    grid: Grid,
) -> Result<(WorkerId, WorkerId), FrameError> {
    let mut worker = |field| -> Result<WorkerId, FrameError> {
        let id = reader.varint(field, grid.workers() - 1)?;
        Ok(WorkerId(u16::try_from(id).expect("below the number of workers")))
    };
    Ok((worker("from")?, worker("to")?))
}

impl Relay {
    /// The end of worker `me` among so many.
    ///
    /// # Panics
    ///
    /// As [`Grid::new`].
    #[must_use]
    pub fn new(me: WorkerId, workers: u32, route: Route) -> Self {
        let grid = Grid::new(workers, route);
        let pending = BTreeMap::new();
        Self { me, grid, pending, relayed_frames: 0, relayed_bytes: 0 }
    }

    /// Takes a frame of the worker here. It travels with the next message that way: at once if that is full, else by
    /// [`Relay::flush`].
    pub fn send(&mut self, to: WorkerId, frame: Vec<u8>, out: &mut Outbox<RelayOutput>) {
        if to == self.me {
            out.push(RelayOutput::Deliver { from: self.me, frame });
        } else {
            self.enqueue(&Passage { from: self.me, to, frame: &frame }, out);
        }
    }

    /// Takes a neighbour's message: delivers what is meant for the worker here and enqueues the rest.
    ///
    /// # Errors
    ///
    /// [`RelayError`] if any part of it is malformed or has no business here; nothing of it was taken. The neighbour
    /// is broken or hostile: drop the connection and fail the job.
    pub fn hear(
        &mut self,
        neighbour: WorkerId,
        message: &[u8],
        out: &mut Outbox<RelayOutput>,
    ) -> Result<(), RelayError> {
        let passages = self.read(neighbour, message)?;
        for passage in passages {
            if passage.to == self.me {
                let Passage { from, frame, .. } = passage;
                out.push(RelayOutput::Deliver { from, frame: frame.to_vec() });
            } else {
                self.relayed_frames += 1;
                self.relayed_bytes += passage.frame.len() as u64;
                self.enqueue(&passage, out);
            }
        }
        Ok(())
    }

    /// Sends all that waits. To be called when the worker has nothing more to say for now.
    pub fn flush(&mut self, out: &mut Outbox<RelayOutput>) {
        for (to, message) in std::mem::take(&mut self.pending) {
            out.push(RelayOutput::Send { to, message });
        }
    }

    /// Frames of others that were passed on, and their bytes.
    #[must_use]
    pub const fn relayed(&self) -> (u64, u64) {
        (self.relayed_frames, self.relayed_bytes)
    }

    /// Bytes that wait to be sent; at most [`RELAY_MESSAGE_BYTES_CUT`] a neighbour.
    #[must_use]
    pub fn held_bytes(&self) -> u64 {
        self.pending.values().map(|message| message.len() as u64).sum()
    }

    fn enqueue(&mut self, passage: &Passage<'_>, out: &mut Outbox<RelayOutput>) {
        let Passage { from, to, frame } = *passage;
        let hop = self.grid.next_hop(self.me, to);
        let message = self.pending.entry(hop).or_default();
        if !message.is_empty() && message.len() + frame.len() > RELAY_MESSAGE_BYTES_CUT {
            out.push(RelayOutput::Send { to: hop, message: std::mem::take(message) });
        }
        push_varint(message, from.0.into());
        push_varint(message, to.0.into());
        push_varint(message, frame.len() as u64);
        message.extend_from_slice(frame);
        if message.len() >= RELAY_MESSAGE_BYTES_CUT {
            out.push(RelayOutput::Send { to: hop, message: std::mem::take(message) });
            self.pending.remove(&hop);
        }
    }

    /// Cuts a message and checks every part of it, before anything is done.
    fn read<'a>(
        &self,
        neighbour: WorkerId,
        message: &'a [u8],
    ) -> Result<Vec<Passage<'a>>, RelayError> {
        let refuse = |source| RelayError::Message { neighbour, source };
        let mut reader = HeaderReader { bytes: message, at: 0 };
        let mut passages = Vec::new();
        while reader.at < message.len() {
            let (from, to) = read_pair(&mut reader, self.grid).map_err(refuse)?;
            let length = reader.varint("bytes", FRAME_BYTES_MAX).map_err(refuse)? as usize;
            let (start, end) = (reader.at, reader.at + length);
            let truncated = FrameError::Truncated { needed: end, got: message.len() };
            let frame = message.get(start..end).ok_or(truncated).map_err(refuse)?;
            reader.at = end;
            let passage = Passage { from, to, frame };
            passage.check(self.grid, self.me, neighbour)?;
            passages.push(passage);
        }
        Ok(passages)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::VecDeque;

    type Arrived = BTreeMap<(u16, u16), Vec<Vec<u8>>>;

    fn deliver(arrived: &mut Arrived, me: usize, output: RelayOutput) {
        let RelayOutput::Deliver { from, frame } = output else { panic!("not for the worker") };
        arrived.entry((from.0, u16::try_from(me).unwrap())).or_default().push(frame);
    }

    /// Sends everything over relays, whose links keep order but are served in any order.
    fn over_the_grid(workers: u32, frames: &[(u16, u16, Vec<u8>)], dice: &mut [u8]) -> Arrived {
        let ids = 0..u16::try_from(workers).unwrap();
        let mut relays: Vec<_> =
            ids.map(|id| Relay::new(WorkerId(id), workers, Route::Grid)).collect();
        let mut links: BTreeMap<(usize, usize), VecDeque<Vec<u8>>> = BTreeMap::new();
        let mut arrived = Arrived::new();
        let mut outbox = Outbox::new();
        let mut carry =
            |me: usize, outbox: &mut Outbox<RelayOutput>, links: &mut BTreeMap<_, _>| {
                for output in outbox.take() {
                    if let RelayOutput::Send { to, message } = output {
                        let link: &mut VecDeque<_> = links.entry((me, to.index())).or_default();
                        link.push_back(message);
                    } else {
                        deliver(&mut arrived, me, output);
                    }
                }
            };
        for (number, (from, to, frame)) in frames.iter().enumerate() {
            let me = usize::from(*from);
            relays[me].send(WorkerId(*to), frame.clone(), &mut outbox);
            if dice[number % dice.len()].is_multiple_of(3) {
                relays[me].flush(&mut outbox);
            }
            carry(me, &mut outbox, &mut links);
        }
        for (me, relay) in relays.iter_mut().enumerate() {
            relay.flush(&mut outbox);
            carry(me, &mut outbox, &mut links);
        }
        let mut turn = 0;
        while !links.is_empty() {
            dice.rotate_left(1);
            turn += usize::from(dice[0]);
            let (&(from, me), _) = links.iter().nth(turn % links.len()).unwrap();
            let message = links.get_mut(&(from, me)).and_then(VecDeque::pop_front);
            if let Some(message) = message {
                let from = WorkerId(u16::try_from(from).unwrap());
                relays[me].hear(from, &message, &mut outbox).unwrap();
                relays[me].flush(&mut outbox);
                carry(me, &mut outbox, &mut links);
            } else {
                links.remove(&(from, me));
            }
        }
        assert!(relays.iter().all(|relay| relay.held_bytes() == 0));
        arrived
    }

    proptest! {
        #[test]
        fn what_is_relayed_arrives_as_if_it_were_sent_directly(
            workers in 1u32..40,
            drawn in proptest::collection::vec((any::<u16>(), any::<u16>(), 0usize..200), 0..150),
            mut dice in proptest::collection::vec(any::<u8>(), 1..20),
        ) {
            let limit = u16::try_from(workers).unwrap();
            let frames: Vec<_> = drawn
                .iter()
                .zip(0u32..)
                .map(|(&(from, to, length), number)| {
                    // Some frames are longer than a message may grow.
                    let length = if length == 199 { RELAY_MESSAGE_BYTES_CUT + 5 } else { length };
                    let mut frame = vec![7; length];
                    frame.extend(number.to_le_bytes());
                    (from % limit, to % limit, frame)
                })
                .collect();
            let mut direct = Arrived::new();
            for (from, to, frame) in &frames {
                direct.entry((*from, *to)).or_default().push(frame.clone());
            }
            prop_assert_eq!(over_the_grid(workers, &frames, &mut dice), direct);
        }

        #[test]
        fn any_bytes_are_read_or_refused(
            bytes in proptest::collection::vec(any::<u8>(), 0..60),
            small in any::<bool>(),
        ) {
            let bytes: Vec<u8> = bytes.iter().map(|byte| if small { byte % 11 } else { *byte }).collect();
            let mut relay = Relay::new(WorkerId(4), 11, Route::Grid);
            let mut outbox = Outbox::new();
            if relay.hear(WorkerId(6), &bytes, &mut outbox).is_err() {
                prop_assert!(outbox.take().is_empty() && relay.held_bytes() == 0);
            }
        }
    }

    #[test]
    fn what_has_no_business_here_is_refused() {
        let hear = |me, neighbour, message: &[u8]| {
            let mut relay = Relay::new(WorkerId(me), 11, Route::Grid);
            relay.hear(WorkerId(neighbour), message, &mut Outbox::new())
        };
        // 1 -> 8 goes by 0.
        assert_eq!(hear(0, 1, &[1, 8, 0]), Ok(()));
        assert_eq!(hear(8, 0, &[1, 8, 0]), Ok(()));
        let path = |neighbour, me| {
            let (neighbour, me) = (WorkerId(neighbour), WorkerId(me));
            Err(RelayError::Path { from: WorkerId(1), to: WorkerId(8), neighbour, me })
        };
        assert_eq!(hear(9, 1, &[1, 8, 0]), path(1, 9)); // the other corner
        assert_eq!(hear(0, 2, &[1, 8, 0]), path(2, 0)); // not its sender
        assert_eq!(hear(8, 4, &[1, 8, 0]), path(4, 8)); // not its relay
        for bytes in [
            &[1, 8][..],
            &[1, 8, 5, 0],
            &[1, 11, 0],
            &[0x81, 0, 8, 0],
            &[1, 8, 255, 255, 255, 255, 9],
        ] {
            assert!(matches!(hear(0, 1, bytes), Err(RelayError::Message { .. })), "{bytes:?}");
        }
    }
}
