//! Whether answers are right: a server that answers nonsense fast fails the benchmark.

use anyhow::{Result, ensure};

/// What a server said of the items of a batch.
pub(crate) enum Answers {
    /// Of each item whether it was present.
    Each(Vec<bool>),
    /// How many were present.
    PresentCount(usize),
}

/// Wrong answers that are allowed: items that were never inserted and are called present.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Falses {
    /// Items that were not inserted before.
    pub(crate) absent_count: u64,
    /// Those of them that were called present.
    pub(crate) present_count: u64,
}

impl Falses {
    /// Compares answers with what was inserted before (true: it was).
    ///
    /// # Errors
    /// If an inserted item is called absent, or the answers are not as many as the items.
    pub(crate) fn add(&mut self, inserted: &[bool], answers: &Answers) -> Result<()> {
        let absent_count = inserted.iter().filter(|&&is_there| !is_there).count();
        let present_count = match answers {
            Answers::PresentCount(count) => {
                let least = inserted.len() - absent_count;
                ensure!(
                    (least..=inserted.len()).contains(count),
                    "wrong answer: {count} of {} items present, {least} were inserted",
                    inserted.len()
                );
                count - least
            }
            Answers::Each(answers) => {
                ensure!(
                    answers.len() == inserted.len(),
                    "wrong answer: {} items were sent, {} are answered",
                    inserted.len(),
                    answers.len()
                );
                let denied =
                    inserted.iter().zip(answers).filter(|(was, is)| **was && !**is).count();
                ensure!(denied == 0, "wrong answer: {denied} inserted items are called absent");
                inserted.iter().zip(answers).filter(|(was, is)| !**was && **is).count()
            }
        };
        self.absent_count += absent_count as u64;
        self.present_count += present_count as u64;
        Ok(())
    }

    pub(crate) fn join(&mut self, other: Self) {
        self.absent_count += other.absent_count;
        self.present_count += other.present_count;
    }

    /// Holds the false positives to the rate that the filter promises, with five standard
    /// deviations and a tenth for its shape.
    ///
    /// # Errors
    /// If there are more.
    pub(crate) fn hold_to(self, rate: f64) -> Result<()> {
        let expected = self.absent_count as f64 * rate;
        let most = expected * 1.1 + 5.0 * expected.sqrt();
        ensure!(
            self.present_count as f64 <= most,
            "wrong answers: {} of {} items that were never inserted are called present, at rate \
             {rate} at most {most:.0} should be",
            self.present_count,
            self.absent_count
        );
        Ok(())
    }

    /// Share of false positives; None if nothing absent was asked for.
    pub(crate) fn share(self) -> Option<f64> {
        (self.absent_count > 0).then(|| self.present_count as f64 / self.absent_count as f64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn false_positives_are_counted() {
        let mut falses = Falses::default();
        let inserted = [true, false, false, true];
        falses.add(&inserted, &Answers::Each(vec![true, false, true, true])).unwrap();
        falses.add(&inserted, &Answers::PresentCount(2)).unwrap();
        assert_eq!(falses, Falses { absent_count: 4, present_count: 1 });
        assert_eq!(falses.share(), Some(0.25));
    }

    #[test]
    fn denied_items_and_missing_answers_are_errors() {
        let inserted = [true, false];
        for answers in [
            Answers::Each(vec![false, false]),
            Answers::Each(vec![true]),
            Answers::PresentCount(0),
            Answers::PresentCount(3),
        ] {
            assert!(Falses::default().add(&inserted, &answers).is_err());
        }
    }

    #[test]
    fn the_rate_is_held() {
        let falses = |present_count| Falses { absent_count: 10_000, present_count };
        falses(160).hold_to(0.01).unwrap(); // 100 × 1.1 + 5 × 10
        falses(161).hold_to(0.01).unwrap_err();
        falses(0).hold_to(0.0).unwrap();
        falses(1).hold_to(0.0).unwrap_err();
    }
}
