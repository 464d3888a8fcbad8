//! Every call ends by its deadline, with one answer per item.

use super::checked::Checked;
use crate::history::{Call, Outcome};
use crate::oracle::view::View;

/// Name of the invariant.
pub(crate) const NAME: &str = "every_call_returns";

/// How late an answer may be, to allow for work of the host.
const SLACK_US: u64 = 500_000;

/// Checks a complete history: a call that has not ended by now never will.
pub(crate) fn check(view: &View<'_>) -> Checked {
    let mut checked = Checked::new(NAME);
    for call in view.calls {
        checked.record(call.end_us.unwrap_or(call.deadline_us), broken(call));
    }
    checked
}

fn broken(call: &Call) -> Option<String> {
    let Call { id, verb, start_us, deadline_us, .. } = call;
    let asked = format!("call {id} ({verb:?} of {}) began at {start_us} us", call.filter);
    let Some(end_us) = call.end_us else {
        return Some(format!("{asked} and never ended, expected an end by {deadline_us} us"));
    };
    if end_us > deadline_us.saturating_add(SLACK_US) {
        return Some(format!("{asked} and ended at {end_us} us, expected by {deadline_us} us"));
    }
    let expected = verb.answer_count(call.items.len());
    match &call.outcome {
        Outcome::Done(bits) if bits.len() != expected => {
            Some(format!("{asked} and got {} answers, expected {expected}", bits.len()))
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::history::Verb;
    use crate::oracle::fixture::History;
    use crate::oracle::reference::Reference;
    use crate::plan::FilterKind;

    fn found(history: &History) -> usize {
        let reference = Reference::new();
        let checked = check(&View::new(&history.calls, &history.facts, &reference));
        assert_eq!(checked.count, history.calls.len() as u64);
        checked.violations.len()
    }

    #[test]
    fn late_lost_and_cut_answers_are_found() {
        let mut history = History::of(FilterKind::Classic);
        history.insert("f", &[1], 10, 20, &[true]).deadline_us = 15;
        history.unknown(Verb::Insert, "f", &[1], 10, 500_020).deadline_us = 20;
        history.done(Verb::Clear, "f", &[], 10, 20, &[]);
        assert_eq!(found(&history), 0);
        history.unknown(Verb::Insert, "f", &[1], 10, 500_021).deadline_us = 20;
        assert_eq!(found(&history), 1);
        history.unknown(Verb::Insert, "f", &[1], 10, 20).end_us = None;
        assert_eq!(found(&history), 2);
        history.insert("f", &[1, 2], 10, 20, &[true]);
        assert_eq!(found(&history), 3);
    }
}
