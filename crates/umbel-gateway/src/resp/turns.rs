//! Commands that look first and change then, and take turns for that: of those that come to this node, none changes what
//! another one has looked at. Commands of other nodes may still come between.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard};

use tokio::sync::{Mutex as Gate, MutexGuard as Turn};
use tokio::time::{Instant, timeout_at};
use umbel_engine::meta::FilterName;
use umbel_filter::ItemHash;
use umbel_node::failure::CallFailure;
use umbel_ports::locked;

/// What commands look at and change: a filter, or with a hash an item of it. Items of equal hashes wait for each other,
/// which does no harm.
pub(super) type Subject = (FilterName, Option<ItemHash>);

/// What commands of this node are about that take turns. A command has one place at a time, so there are at most as many
/// subjects as connections, and no command waits for one that waits for it.
#[derive(Default)]
pub(super) struct Turns(Mutex<BTreeMap<Subject, Line>>);

/// The commands of a subject.
#[derive(Default)]
struct Line {
    /// Its lock goes to the commands in the order in which they asked for it.
    gate: Arc<Gate<()>>,
    place_count: usize,
}

/// A command among those of a subject. The subject is forgotten with the last of them, also if it is cut off.
pub(super) struct Place<'a> {
    turns: &'a Turns,
    subject: Subject,
    gate: Arc<Gate<()>>,
}

impl Turns {
    /// A place among the commands of this subject.
    pub(super) fn line_up(&self, subject: Subject) -> Place<'_> {
        let mut lines = self.lock();
        let line = lines.entry(subject.clone()).or_default();
        line.place_count += 1;
        Place { turns: self, subject, gate: Arc::clone(&line.gate) }
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<Subject, Line>> {
        // No holder of the lock panics, and the map is consistent after every call.
        locked(&self.0)
    }
}

impl Place<'_> {
    /// The turn, if no other command has it.
    pub(super) fn try_turn(&self) -> Option<Turn<'_, ()>> {
        self.gate.try_lock().ok()
    }

    /// Waits for the turn. Until then the command has changed nothing.
    pub(super) async fn turn(&self, deadline: Instant) -> Result<Turn<'_, ()>, CallFailure> {
        timeout_at(deadline, self.gate.lock()).await.map_err(|_| {
            let (name, _) = &self.subject;
            let what = format!("other commands about {:?} take too long: try again", name.as_str());
            CallFailure::Overloaded { what }
        })
    }
}

impl Drop for Place<'_> {
    fn drop(&mut self) {
        let mut lines = self.turns.lock();
        // The references to the gate do not tell who is last: this one goes after the lock.
        if let Some(line) = lines.get_mut(&self.subject) {
            line.place_count -= 1;
            if line.place_count == 0 {
                lines.remove(&self.subject);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use futures_util::FutureExt as _;

    use super::*;

    fn subject(name: &str) -> Subject {
        (FilterName::new(name).unwrap(), None)
    }

    #[tokio::test(start_paused = true)]
    async fn one_command_of_a_subject_has_the_turn() {
        let turns = Turns::default();
        let soon = || Instant::now() + Duration::from_secs(1);
        let (first, second, other) =
            (turns.line_up(subject("a")), turns.line_up(subject("a")), turns.line_up(subject("b")));
        let turn = first.try_turn().expect("nobody has it");
        assert!(second.try_turn().is_none());
        assert!(other.try_turn().is_some(), "another subject");
        let failure = second.turn(soon()).await.err();
        assert!(matches!(failure, Some(CallFailure::Overloaded { .. })));
        drop(turn);
        drop(first);
        assert!(second.turn(soon()).await.is_ok());
        assert_eq!(turns.lock().len(), 2);
        drop((second, other));
        assert!(turns.lock().is_empty());
    }

    /// Also if the last commands of a subject end at the same moment.
    #[test]
    fn subjects_are_forgotten() {
        let turns = Turns::default();
        std::thread::scope(|scope| {
            for _ in 0..2 {
                scope.spawn(|| {
                    for number in 0..1_000 {
                        drop(turns.line_up(subject(&number.to_string())));
                    }
                });
            }
        });
        assert!(turns.lock().is_empty());
    }

    /// A command that is cut off while it waits, or has the turn, holds up nobody.
    #[tokio::test(start_paused = true)]
    async fn a_command_that_is_cut_off_gives_its_turn_on() {
        let turns = Turns::default();
        let soon = || Instant::now() + Duration::from_secs(1);
        let command = || async {
            let place = turns.line_up(subject("a"));
            let _turn = place.turn(soon()).await;
            std::future::pending::<()>().await;
        };
        let (mut first, mut second) = (Box::pin(command()), Box::pin(command()));
        assert!(first.as_mut().now_or_never().is_none());
        assert!(second.as_mut().now_or_never().is_none());
        let third = turns.line_up(subject("a"));
        assert!(third.try_turn().is_none());
        drop(first);
        assert!(third.try_turn().is_none(), "the second one comes before it");
        drop(second);
        assert!(third.turn(soon()).await.is_ok());
        drop(third);
        assert!(turns.lock().is_empty());
    }
}
