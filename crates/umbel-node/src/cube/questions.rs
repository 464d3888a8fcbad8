//! Bounds the questions that a node holds while they are read and wait for their turn.

use std::sync::Arc;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use umbel_engine::limits::FILTER_COUNT_MAX;
use umbel_proto::v1;

use super::wire::{self, CopyQuestion};

/// Most counts in one step's questions: those of 10,000 filters on 200 nodes. Each takes about 30 bytes
/// of memory. A node with more asks about some of its filters in one sweep, and about others in the
/// next.
pub(super) const STEP_COUNTS_MAX: usize = 4 << 20;

/// The cost of a question besides its counts, measured in counts.
const QUESTION_COUNTS: usize = 8;

/// Most counts of all questions that a node holds: those of two partners with the largest steps.
const COUNTS_MAX: usize = 2 * STEP_COUNTS_MAX;

/// Steps whose questions are read at once: more than five times the number of partners in the largest
/// cluster, because broken connections of partners may still exist.
const STEPS_READ_MAX: usize = 64;

/// Permits for the questions that a node holds.
pub(super) struct QuestionRooms {
    /// One permit per step that is being read.
    pub(super) reading: Semaphore,
    /// One permit per count.
    counts: Arc<Semaphore>,
}

impl QuestionRooms {
    pub(super) fn new() -> Self {
        let counts = Arc::new(Semaphore::new(COUNTS_MAX));
        Self { reading: Semaphore::new(STEPS_READ_MAX), counts }
    }
}

/// Why a question is not accepted.
#[derive(PartialEq, Eq, Debug)]
pub(super) enum QuestionError {
    /// The question is malformed: no partner sends such a one.
    Nonsense(String),
    /// Too many questions wait already.
    NoRoom,
}

/// The questions of a step.
pub(super) struct Questions<'r> {
    rooms: &'r QuestionRooms,
    pub(super) list: Vec<CopyQuestion>,
    /// What they cost together, in counts.
    pub(super) count: usize,
    /// The permits for all of them.
    pub(super) taken: Option<OwnedSemaphorePermit>,
}

impl<'r> Questions<'r> {
    pub(super) const fn new(rooms: &'r QuestionRooms) -> Self {
        Self { rooms, list: Vec::new(), count: 0, taken: None }
    }

    /// Adds the next question.
    ///
    /// # Errors
    /// If it is malformed, or there are too many; it was not added then.
    pub(super) fn add(&mut self, question: &v1::CopyQuestion) -> Result<(), QuestionError> {
        if self.list.len() >= FILTER_COUNT_MAX {
            let what = format!("more than {FILTER_COUNT_MAX} questions");
            return Err(QuestionError::Nonsense(what));
        }
        let count = counts_of(question);
        if self.count + count > STEP_COUNTS_MAX {
            let what = format!("questions with more than {STEP_COUNTS_MAX} counts");
            return Err(QuestionError::Nonsense(what));
        }
        let asked = wire::question_of(question).map_err(QuestionError::Nonsense)?;
        let permits = u32::try_from(count).map_err(|_| QuestionError::NoRoom)?;
        let room = Arc::clone(&self.rooms.counts).try_acquire_many_owned(permits);
        let room = room.map_err(|_| QuestionError::NoRoom)?;
        match &mut self.taken {
            Some(taken) => taken.merge(room),
            None => self.taken = Some(room),
        }
        self.count += count;
        self.list.push(asked);
        Ok(())
    }
}

/// The cost of a question, in counts.
pub(super) fn counts_of(question: &v1::CopyQuestion) -> usize {
    QUESTION_COUNTS + question.knows.len() + question.samples.len()
}

#[cfg(test)]
mod tests {
    use umbel_replicated_engine::limits::VERSION_NODES_MAX;

    use super::*;

    /// A question of the largest size.
    fn large() -> v1::CopyQuestion {
        // All counts are of one node: little of it is kept, but that is not known before it is read.
        let counts = vec![v1::NodeCount { node: 1, count: 1 }; VERSION_NODES_MAX];
        v1::CopyQuestion { knows: counts.clone(), samples: counts, ..Default::default() }
    }

    fn fill(questions: &mut Questions<'_>) -> QuestionError {
        let question = large();
        loop {
            if let Err(error) = questions.add(&question) {
                return error;
            }
        }
    }

    #[test]
    fn the_questions_of_a_step_are_bounded_together() {
        let rooms = QuestionRooms::new();
        let mut questions = Questions::new(&rooms);
        let expected = "questions with more than 4194304 counts".to_owned();
        assert_eq!(fill(&mut questions), QuestionError::Nonsense(expected));
        assert_eq!(questions.list.len(), STEP_COUNTS_MAX / (2 * VERSION_NODES_MAX + 8));
        // Small questions still fit.
        assert_eq!(questions.add(&v1::CopyQuestion::default()), Ok(()));
    }

    #[test]
    fn what_waits_is_bounded_and_gives_its_room_back() {
        let rooms = QuestionRooms::new();
        let (mut one, mut two, mut three) =
            (Questions::new(&rooms), Questions::new(&rooms), Questions::new(&rooms));
        fill(&mut one);
        fill(&mut two);
        while three.add(&large()).is_ok() {}
        assert_eq!(three.add(&large()), Err(QuestionError::NoRoom));
        // As after the answer.
        let Questions { taken, .. } = one;
        assert_eq!(three.add(&large()), Err(QuestionError::NoRoom));
        drop(taken);
        assert_eq!(three.add(&large()), Ok(()));
    }
}
