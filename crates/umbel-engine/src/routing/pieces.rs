//! A part of a request that is asked piece by piece, because some of it was answered before shards were
//! split or merged.
//!
//! ```text
//! the part               ├───────────────────────────┤
//! answered before              ├─────┤      ├────────────┤
//! pieces, as asked for   ├──2──┤──1──├──4───┤─────3──────┤
//! ```
//!
//! A shard refuses a part that overlaps recorded answers, and names the lowest of their cuts
//! ([`PartError::CutBefore`](crate::shard::PartError::CutBefore)). The piece for exactly that cut has a
//! recorded answer. What is left below it was never answered; what is left above it may overlap the next
//! one.
//!
//! *Law.* The answered pieces do not overlap, and together they cover the part. Each is
//! asked for under its own cut, so that its record says what it was about.

use thiserror::Error;
use umbel_filter::HashRange;

use crate::limits::SHARD_COUNT_MAX;
use crate::shard::Bitmap;

/// Most ranges for which a request may have been answered within a part: the narrowest ranges of shards are
/// half as wide as if there were one for each of the most shards.
const CUT_COUNT_MAX: u32 = 2 * SHARD_COUNT_MAX;

/// Which pieces of a part are still to be asked for, and the answers of the others.
///
/// ```
/// use umbel_engine::routing::Pieces;
/// use umbel_filter::HashRange;
///
/// let range = |start, end| HashRange::new(start, end);
/// let mut pieces = Pieces::of(range(0, 100)?);
/// assert_eq!(pieces.next_piece(), Some(range(0, 100)?));
/// // The shard has answered for the upper half before, and not for the lower one.
/// pieces.cut_before(range(50, 100)?)?;
/// assert_eq!(pieces.next_piece(), Some(range(50, 100)?));
/// pieces.answered("recorded");
/// assert_eq!(pieces.next_piece(), Some(range(0, 50)?));
/// pieces.answered("applied now");
/// assert_eq!(pieces.next_piece(), None);
/// assert_eq!(pieces.answers(), [(range(50, 100)?, "recorded"), (range(0, 50)?, "applied now")]);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug)]
pub struct Pieces<A> {
    cut: HashRange,
    /// The next one is the last.
    todo: Vec<HashRange>,
    answers: Vec<(HashRange, A)>,
    refused_count: u32,
}

/// The shard named a range for which it cannot have answered. Report it: the shard has a bug, or the part
/// was sent to many shards in turn.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Error)]
#[error(
    "asked for the hashes {} to {}, the shard says that it answered for {} to {} before, after {count} such answers",
    asked.start(), asked.last(), named.start(), named.last()
)]
pub struct PieceError {
    /// The piece for which the shard was asked.
    pub asked: HashRange,
    /// The range that it named.
    pub named: HashRange,
    /// How often it named one.
    pub count: u32,
}

impl<A> Pieces<A> {
    /// The whole part is to be asked for.
    #[must_use]
    pub fn of(cut: HashRange) -> Self {
        Self { cut, todo: vec![cut], answers: Vec::new(), refused_count: 0 }
    }

    /// The piece to ask for now, with all of the request's items in it and with itself as its cut. None if
    /// all are answered.
    #[must_use]
    pub fn next_piece(&self) -> Option<HashRange> {
        self.todo.last().copied()
    }

    /// Takes the answer for the next piece.
    pub fn answered(&mut self, answer: A) {
        if let Some(piece) = self.todo.pop() {
            self.answers.push((piece, answer));
        }
    }

    /// Takes the refusal of the next piece because of an answer for this range.
    ///
    /// # Errors
    /// If no shard can have answered so. The piece stays the next one.
    pub fn cut_before(&mut self, named: HashRange) -> Result<(), PieceError> {
        let Some(asked) = self.next_piece() else { return Ok(()) };
        let count = self.refused_count;
        if named == asked || !named.overlaps(asked) || count >= CUT_COUNT_MAX {
            return Err(PieceError { asked, named, count });
        }
        self.refused_count += 1;
        self.todo.pop();
        let above = HashRange::new(named.last().saturating_add(1), asked.end());
        let below = HashRange::new(asked.start(), named.start().into());
        let is_left = |piece: &HashRange| !piece.overlaps(named);
        self.todo.extend(above.ok().filter(is_left));
        self.todo.extend(below.ok().filter(is_left));
        self.todo.push(named);
        Ok(())
    }

    /// The pieces that are answered, each with its answer.
    #[must_use]
    pub fn answers(self) -> Vec<(HashRange, A)> {
        self.answers
    }
}

impl Pieces<Bitmap> {
    /// The answers for the part's items, in their order. `positions` are those of all of the request's
    /// items in the hash space, in their order: a named range may have more of them than the part. None if
    /// an answer is missing: not all pieces are answered, or a shard has a bug.
    ///
    /// ```
    /// use umbel_engine::{routing::Pieces, shard::Bitmap};
    /// use umbel_filter::HashRange;
    ///
    /// // The part for 50 to 99 was answered as part of a larger one.
    /// let mut pieces = Pieces::of(HashRange::new(50, 100)?);
    /// pieces.cut_before(HashRange::new(0, 100)?)?;
    /// pieces.answered(Bitmap::from_ones(3, [1]));
    /// assert_eq!(pieces.join([10, 60, 70, 200]), Some(Bitmap::from_ones(2, [0])));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[must_use]
    pub fn join(self, positions: impl IntoIterator<Item = u64>) -> Option<Bitmap> {
        let Self { cut, mut answers, .. } = self;
        answers.sort_unstable_by_key(|&(piece, _)| piece);
        let mut answers: Vec<_> =
            answers.iter().map(|(piece, bits)| (*piece, bits.iter())).collect();
        let mut joined = Vec::new();
        for position in positions {
            let above = answers.partition_point(|(piece, _)| piece.start() <= position);
            let piece = above.checked_sub(1).and_then(|at| answers.get_mut(at));
            let bit = match piece {
                Some((piece, bits)) if piece.contains(position) => bits.next(),
                _ => None,
            };
            if cut.contains(position) {
                joined.push(bit?);
            }
        }
        Some(Bitmap::from_bools(joined))
    }
}

#[cfg(test)]
mod tests {
    use proptest::collection::vec;
    use proptest::prelude::*;

    use super::*;

    fn range(start: u64, end: u64) -> HashRange {
        HashRange::new(start, end.into()).unwrap()
    }

    #[test]
    fn a_range_that_no_shard_can_have_named_is_refused() {
        let mut pieces: Pieces<()> = Pieces::of(range(10, 20));
        for named in [range(10, 20), range(0, 10), range(20, 30)] {
            let error = pieces.cut_before(named).unwrap_err();
            assert_eq!((error.asked, error.named), (range(10, 20), named));
        }
        assert_eq!(pieces.next_piece(), Some(range(10, 20)));
        // A shard that names one range after the other comes to an end.
        let mut pieces: Pieces<()> = Pieces::of(HashRange::WHOLE);
        let refused = (0..).map(|at| pieces.cut_before(range(at % 2, at % 2 + 2)));
        assert!(refused.take(10_000).any(|refused| refused.is_err()));
    }

    #[test]
    fn the_ends_of_the_hash_space_are_ends_of_pieces() {
        let mut pieces = Pieces::of(HashRange::WHOLE);
        let upper = HashRange::new(1 << 63, 1 << 64).unwrap();
        pieces.cut_before(upper).unwrap();
        pieces.answered(Bitmap::ones(1));
        let lower = range(0, 1 << 63);
        assert_eq!(pieces.next_piece(), Some(lower));
        pieces.answered(Bitmap::zeros(1));
        assert_eq!(pieces.next_piece(), None);
        assert_eq!(pieces.join([u64::MAX, 0]), Some(Bitmap::from_ones(2, [0])));
        let missing = Pieces::of(lower);
        assert_eq!(missing.join([5]), None);
    }

    proptest! {
        /// The shard has answered for ranges that do not overlap; the answer to each item is its parity.
        #[test]
        fn pieces_cover_the_part_and_ask_for_each_answer_as_it_is(
            borders in vec(0..200_u64, 2..12), start in 0..200_u64, width in 1..100_u64,
            positions in vec(0..320_u64, 0..60),
        ) {
            let mut borders = borders;
            borders.sort_unstable();
            borders.dedup();
            let recorded: Vec<HashRange> = borders
                .windows(2)
                .step_by(2)
                .map(|ends| range(ends[0], ends[1]))
                .collect();
            let part = range(start, start + width);
            let mut pieces = Pieces::of(part);
            let mut asked = Vec::new();
            while let Some(piece) = pieces.next_piece() {
                match recorded.iter().find(|recorded| recorded.overlaps(piece)) {
                    Some(&named) if named != piece => pieces.cut_before(named).unwrap(),
                    _ => {
                        asked.push(piece);
                        let items = positions.iter().filter(|&&at| piece.contains(at));
                        let answer = items.map(|at| at % 2 == 1).collect::<Vec<_>>();
                        pieces.answered(Bitmap::from_bools(answer));
                    }
                }
            }
            for (number, piece) in asked.iter().enumerate() {
                prop_assert!(asked[..number].iter().all(|other| !other.overlaps(*piece)));
                let is_left = recorded.iter().all(|recorded| !recorded.overlaps(*piece));
                prop_assert!(recorded.contains(piece) || is_left && part.covers(*piece));
            }
            let own = positions.iter().filter(|&&at| part.contains(at));
            let expected = Bitmap::from_bools(own.map(|at| at % 2 == 1).collect::<Vec<_>>());
            prop_assert_eq!(pieces.join(positions), Some(expected));
        }
    }
}
