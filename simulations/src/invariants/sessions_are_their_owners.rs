//! A session is useless to anybody but its owner, and nobody else can take its protection away
//! (sessions: Ongaro, Consensus: bridging theory and practice, 2014, section 6.3; unguessable numbers:
//! RFC 6896, section 8).

use crate::answer::Answer;
use crate::counters;
use crate::watch;

/// Name of the invariant.
pub(crate) const NAME: &str = "sessions_are_their_owners";

/// A request that its owner sent, another principal used, and its owner sent again.
#[derive(Clone, Debug)]
pub(crate) struct Resent {
    /// The session's number.
    pub(crate) session: u64,
    /// The first answer to its owner.
    pub(crate) first: Answer,
    /// The answers to the other principal, which has the right to insert as well.
    pub(crate) stolen: Vec<Answer>,
    /// The last answer to its owner.
    pub(crate) again: Answer,
}

/// Checks the invariant for one such request.
pub(crate) fn check(resent: &Resent) {
    counters::checked(NAME, 1);
    if let Some(what) = broken(resent) {
        watch::violated(NAME, what);
    }
}

fn broken(resent: &Resent) -> Option<String> {
    let Resent { session, first, stolen, again } = resent;
    if let Some(done) = stolen.iter().find(|answer| matches!(answer, Answer::Done(_))) {
        return Some(format!(
            "a request of another principal in session {session:x} was carried out: {done:?}"
        ));
    }
    let is_lost = match (first, again) {
        (Answer::Done(first), Answer::Done(again)) => first != again,
        (Answer::Done(_), Answer::Refused(_)) => true,
        _ => false,
    };
    is_lost.then(|| {
        format!(
            "the owner of session {session:x} heard {first:?}, and when it asked again {again:?}"
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(first: Answer, stolen: Answer, again: Answer) -> bool {
        broken(&Resent { session: 1, first, stolen: vec![stolen], again }).is_some()
    }

    #[test]
    fn a_thief_gets_nothing_and_takes_nothing() {
        let done = |text: &str| Answer::Done(vec![text.to_owned()]);
        let refused = || Answer::Refused("session expired".to_owned());
        let open = || Answer::Open("no answer".to_owned());
        assert!(!found(done("new"), refused(), done("new")));
        assert!(!found(done("new"), open(), open()));
        assert!(!found(open(), refused(), done("new")));
        assert!(found(done("new"), done("new"), done("new")));
        assert!(found(done("new"), refused(), done("present")));
        assert!(found(done("new"), refused(), refused()));
    }
}
