//! Frames that workers forward over the [`Grid`].
//!
//! A pair of workers always uses the same relay, so its frames arrive in order if connections preserve order.
//! A frame's checksum covers its sender and receiver, so the receiver notices if a relay mixes them up.
//! [`Passage::read`] checks that the frame's path leads through this worker; it does not check the frame
//! itself.

#![cfg_attr(not(test), deny(clippy::indexing_slicing))]

use super::entry::WorkerId;
use super::error::RelayError;
use super::frame::HeaderReader;
use super::grid::Grid;
use crate::FrameResult;
use umbel_bits::put_leb128;

/// A frame with its sender and receiver: `| from | to | frame |`, both LEB128 in the shortest form; the frame is unchanged.
///
/// ```
/// use umbel_dedup_engine::{Grid, Passage, Route, WorkerId};
/// let grid = Grid::new(4, Route::Grid);
/// let bytes = Passage { from: WorkerId(0), to: WorkerId(3), frame: b"hello" }.to_bytes();
/// assert_eq!(bytes, b"\x00\x03hello");
/// // Worker 1 is their relay, and takes this frame from worker 0.
/// let passage = Passage::read(&bytes, grid, WorkerId(1), WorkerId(0)).unwrap();
/// assert_eq!(grid.next_hop(WorkerId(1), passage.to), WorkerId(3));
/// assert!(Passage::read(&bytes, grid, WorkerId(1), WorkerId(3)).is_err());
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Passage<'a> {
    /// The sender.
    pub from: WorkerId,
    /// The receiver.
    pub to: WorkerId,
    /// The frame, undecoded.
    pub frame: &'a [u8],
}

impl<'a> Passage<'a> {
    /// The most bytes before the frame.
    pub const HEAD_BYTES_MAX: usize = 6;

    /// The bytes to send to the next worker.
    #[must_use]
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(Self::HEAD_BYTES_MAX + self.frame.len());
        put_leb128(&mut bytes, self.from.0.into());
        put_leb128(&mut bytes, self.to.0.into());
        bytes.extend_from_slice(self.frame);
        bytes
    }

    /// Reads a message that a neighbour sent to worker `me`.
    ///
    /// # Errors
    ///
    /// [`RelayError`] if it is malformed, or its path does not lead from `neighbour` to `me`: drop the connection.
    pub fn read(
        bytes: &'a [u8],
        grid: Grid,
        me: WorkerId,
        neighbour: WorkerId,
    ) -> Result<Self, RelayError> {
        let mut reader = HeaderReader { bytes, at: 0 };
        let pair = read_pair(&mut reader, grid);
        let (from, to) = pair.map_err(|source| RelayError::Message { neighbour, source })?;
        let frame = bytes.get(reader.at..).unwrap_or_default();
        let passage = Self { from, to, frame };
        passage.check(grid, me, neighbour)?;
        Ok(passage)
    }

    /// Whether the path from sender to receiver leads from this neighbour to `me`.
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

/// Sender and receiver.
fn read_pair(reader: &mut HeaderReader<'_>, grid: Grid) -> FrameResult<(WorkerId, WorkerId)> {
    let mut worker = |field| -> FrameResult<WorkerId> {
        let id = reader.varint(field, grid.workers() - 1)?;
        Ok(WorkerId(u16::try_from(id).expect("below the number of workers")))
    };
    Ok((worker("from")?, worker("to")?))
}

#[cfg(test)]
mod tests {
    use std::collections::{BTreeMap, VecDeque};

    use proptest::prelude::*;

    use super::super::grid::Route;
    use super::*;

    /// Frames by sender and receiver, in order of arrival.
    type Arrived = BTreeMap<(WorkerId, WorkerId), Vec<Vec<u8>>>;

    /// Sends all frames over connections that preserve order but are served in any order.
    fn over_the_grid(
        workers: u32,
        frames: &[(WorkerId, WorkerId, Vec<u8>)],
        dice: &mut [u8],
    ) -> Arrived {
        let grid = Grid::new(workers, Route::Grid);
        let mut links: BTreeMap<(WorkerId, WorkerId), VecDeque<Vec<u8>>> = BTreeMap::new();
        for &(from, to, ref frame) in frames {
            let bytes = Passage { from, to, frame }.to_bytes();
            links.entry((from, grid.next_hop(from, to))).or_default().push_back(bytes);
        }
        let (mut arrived, mut turn) = (Arrived::new(), 0);
        while !links.is_empty() {
            dice.rotate_left(1);
            turn += usize::from(dice[0]);
            let &(neighbour, me) = links.keys().nth(turn % links.len()).unwrap();
            let bytes = links.get_mut(&(neighbour, me)).and_then(VecDeque::pop_front);
            let Some(bytes) = bytes else {
                links.remove(&(neighbour, me));
                continue;
            };
            let Passage { from, to, frame } = Passage::read(&bytes, grid, me, neighbour).unwrap();
            if to == me {
                arrived.entry((from, to)).or_default().push(frame.to_vec());
            } else {
                links.entry((me, grid.next_hop(me, to))).or_default().push_back(bytes);
            }
        }
        arrived
    }

    proptest! {
        #[test]
        fn what_is_relayed_arrives_as_if_it_were_sent_directly(
            workers in 2_u32..40,
            drawn in proptest::collection::vec((any::<u16>(), any::<u16>(), 0_usize..200), 0..150),
            mut dice in proptest::collection::vec(any::<u8>(), 1..20),
        ) {
            let limit = u16::try_from(workers).unwrap();
            let frames: Vec<_> = drawn
                .iter()
                .zip(0_u32..)
                .map(|(&(from, to, length), number)| {
                    let mut frame = vec![7; length];
                    frame.extend(number.to_le_bytes());
                    (WorkerId(from % limit), WorkerId(to % limit), frame)
                })
                .filter(|(from, to, _)| from != to)
                .collect();
            let mut direct = Arrived::new();
            for &(from, to, ref frame) in &frames {
                direct.entry((from, to)).or_default().push(frame.clone());
            }
            prop_assert_eq!(over_the_grid(workers, &frames, &mut dice), direct);
        }

        #[test]
        fn any_bytes_are_read_or_refused(
            bytes in proptest::collection::vec(any::<u8>(), 0..60),
            small in any::<bool>(),
        ) {
            let bytes: Vec<u8> = bytes.iter().map(|byte| if small { byte % 11 } else { *byte }).collect();
            let grid = Grid::new(11, Route::Grid);
            if let Ok(passage) = Passage::read(&bytes, grid, WorkerId(4), WorkerId(6)) {
                prop_assert_eq!(passage.to_bytes(), bytes);
            }
        }
    }

    #[test]
    fn what_has_no_business_here_is_refused() {
        let read = |me, neighbour, bytes: &[u8]| {
            let grid = Grid::new(11, Route::Grid);
            Passage::read(bytes, grid, WorkerId(me), WorkerId(neighbour)).map(drop)
        };
        // The path from 1 to 8 leads through 0.
        assert_eq!(read(0, 1, &[1, 8, 0]), Ok(()));
        assert_eq!(read(8, 0, &[1, 8, 0]), Ok(()));
        let path = |neighbour, me| {
            let (neighbour, me) = (WorkerId(neighbour), WorkerId(me));
            Err(RelayError::Path { from: WorkerId(1), to: WorkerId(8), neighbour, me })
        };
        assert_eq!(read(9, 1, &[1, 8, 0]), path(1, 9)); // not on the path: the other corner of the grid
        assert_eq!(read(0, 2, &[1, 8, 0]), path(2, 0)); // 2 is not its sender
        assert_eq!(read(8, 4, &[1, 8, 0]), path(4, 8)); // 4 is not its relay
        for bytes in [&[1][..], &[1, 11, 0], &[0x81, 0, 8, 0], &[1, 255, 255, 255, 255, 255, 9]] {
            assert!(matches!(read(0, 1, bytes), Err(RelayError::Message { .. })), "{bytes:?}");
        }
    }
}
