//! What is not granted is denied on every node, with the same text whether or not the target exists
//! (Saltzer and Schroeder, The protection of information in computer systems, Proc. IEEE 63(9), 1975,
//! DOI 10.1109/PROC.1975.9939: fail-safe defaults, complete mediation); what is granted is not denied.

use crate::answer::Answer;
use crate::counters;
use crate::oracle::rights::{Shown, Verdict, may_list, verdicts};
use crate::plan::access::{ACCESS_FILTERS, AccessCall, access_filter};
use crate::watch;

/// Name of the invariant: what is not granted is not done.
pub(crate) const NAME: &str = "nothing_ungranted_is_done";

/// Name of the invariant: a refusal reveals nothing but the lack of a right.
pub(crate) const SILENT: &str = "refusals_tell_nothing";

/// Name of the invariant: what is granted is not denied.
pub(crate) const SERVED: &str = "granted_is_not_denied";

/// A call and its result.
#[derive(Clone, Debug)]
pub(crate) struct ObservedCall {
    /// The credentials that the caller presented.
    pub(crate) shown: Shown,
    /// The machine whose node received the call.
    pub(crate) machine: u32,
    /// What was asked for.
    pub(crate) ask: AccessCall,
    /// Start and end, in simulated microseconds.
    pub(crate) us: (u64, u64),
    /// The same by the wall clocks, in milliseconds.
    pub(crate) wall_ms: (u64, u64),
    /// The answer.
    pub(crate) answer: Answer,
}

/// Checks an answer against what the node may have known.
pub(crate) fn check(observed: &ObservedCall) {
    let found = watch::with(|checks| {
        let possible = checks.rights.possible(observed.machine, observed.us.0, observed.us.1);
        let surely = possible.map(|versions| {
            let named = match &observed.answer {
                Answer::Done(names) => {
                    names.iter().find(|name| !may_list(versions, &observed.shown, name)).cloned()
                }
                _ => None,
            };
            let wall_ms = checks.rights.shown_ms(observed.wall_ms);
            (verdicts(versions, &observed.shown, observed.ask, wall_ms), named)
        });
        if let AccessCall::Insert { item, .. } = observed.ask {
            let may = surely.as_ref().is_none_or(|(all, _)| all.contains(&Verdict::Granted));
            checks.seen.inserted(item, may);
        }
        let (all, named) = surely?;
        let first = *all.first()?;
        let is_denied = !all.contains(&Verdict::Granted);
        let is_granted = all.len() == 1 && !is_denied;
        if is_denied {
            counters::checked(NAME, 1);
            counters::checked(SILENT, 1);
        } else if is_granted {
            counters::checked(SERVED, 1);
        }
        let ObservedCall { machine, ask, answer, .. } = observed;
        let call = || format!("{ask:?} of {:?} on machine {machine}", name_of(&observed.shown));
        match answer {
            Answer::Done(_) if is_denied => {
                Some((NAME, format!("{} was carried out, expected {first:?}", call())))
            }
            Answer::Done(_) if named.is_some() => {
                Some((SILENT, format!("{} showed the name {named:?}", call())))
            }
            Answer::Refused(text) if is_denied => {
                Some((SILENT, format!("{} heard {text:?}, expected {first:?}", call())))
            }
            Answer::Denied(text) if is_granted => {
                Some((SERVED, format!("{} heard {text:?}, expected an answer", call())))
            }
            // A refused merge says which of its two filters it is about.
            Answer::Denied(text) if all.len() == 1 && !matches!(ask, AccessCall::Merge { .. }) => {
                let words = without_names(text, observed);
                let other = checks.seen.other_words(*ask, first, &words)?;
                let what = format!("{} heard {words:?}, another call {other:?}", call());
                Some((SILENT, what))
            }
            _ => None,
        }
    });
    if let Some((invariant, what)) = found {
        watch::violated(invariant, what);
    }
}

fn name_of(shown: &Shown) -> Option<&str> {
    shown.token.as_ref().map(|(name, _)| &**name)
}

/// The text of a refusal without the names that the caller itself supplied.
fn without_names(text: &str, observed: &ObservedCall) -> String {
    let mut text = text.to_owned();
    if let Some(name) = name_of(&observed.shown) {
        text = text.replace(name, "PRINCIPAL");
    }
    for filter in 0..=ACCESS_FILTERS {
        text = text.replace(&format!("{:?}", access_filter(filter)), "FILTER");
    }
    text
}
