//! The questions of a step while they are read and wait for their turn: how many a node holds.

use std::sync::Arc;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use umbel_engine::limits::FILTER_COUNT_MAX;
use umbel_proto::v1;

use super::wire::{self, CopyQuestion};

/// Counts of one step's questions, at most: those of 10,000 filters on 200 nodes. Each takes about 30
/// bytes of memory. Who has more asks about some of its filters in one sweep, and about others in the
/// next.
pub(super) const STEP_COUNTS_MAX: usize = 4 << 20;

/// What a question takes beside its counts, in counts.
const QUESTION_COUNTS: usize = 8;

/// Counts of all questions that a node holds: of two partners that ask about as much as they may.
const COUNTS_MAX: usize = 2 * STEP_COUNTS_MAX;

/// Steps whose questions are read at once: of more than five times as many partners as a node of the
/// largest cluster has, for the connections of partners that were broken may be there still.
const STEPS_READ_MAX: usize = 64;

/// Room for the questions that a node holds.
pub(super) struct QuestionRooms {
    /// One permit a step that is being read.
    pub(super) reading: Semaphore,
    /// One permit a count.
    counts: Arc<Semaphore>,
}

impl QuestionRooms {
    pub(super) fn new() -> Self {
        let counts = Arc::new(Semaphore::new(COUNTS_MAX));
        Self { reading: Semaphore::new(STEPS_READ_MAX), counts }
    }
}

/// Why a question is not taken.
#[derive(PartialEq, Eq, Debug)]
pub(super) enum QuestionError {
    /// No partner asks so.
    Nonsense(String),
    /// Too many questions wait already.
    NoRoom,
}

/// The questions of a step.
pub(super) struct Questions<'r> {
    rooms: &'r QuestionRooms,
    pub(super) list: Vec<CopyQuestion>,
    count: usize,
    /// Room for all of them.
    pub(super) taken: Option<OwnedSemaphorePermit>,
}

impl<'r> Questions<'r> {
    pub(super) const fn new(rooms: &'r QuestionRooms) -> Self {
        Self { rooms, list: Vec::new(), count: 0, taken: None }
    }

    /// Takes the next question.
    ///
    /// # Errors
    /// If it makes no sense, or there are too many: nothing was taken.
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

/// What a question takes of the counts of a step.
pub(super) fn counts_of(question: &v1::CopyQuestion) -> usize {
    QUESTION_COUNTS + question.knows.len() + question.samples.len()
}

#[cfg(test)]
mod tests {
    use umbel_engine::limits::VERSION_NODES_MAX;

    use super::*;

    /// As large as one may be.
    fn large() -> v1::CopyQuestion {
        // All of one node: what is kept of it is small, and that is not known before it is read.
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
        // Small ones fit still.
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
        // As when it was answered.
        let Questions { taken, .. } = one;
        assert_eq!(three.add(&large()), Err(QuestionError::NoRoom));
        drop(taken);
        assert_eq!(three.add(&large()), Ok(()));
    }
}
