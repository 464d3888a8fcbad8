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
        Self { todo: vec![cut], answers: Vec::new(), refused_count: 0 }
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
