//! A quota is never exceeded, however many nodes receive requests at the same time, and no request is
//! refused for a quota that had room.

use std::collections::{BTreeMap, BTreeSet};

use crate::counters;
use crate::oracle::quotas::{NAME, SERVED};
use crate::watch;

/// What holders certainly have: filters whose creation was acknowledged, and whose drop has not begun.
#[derive(Default, Debug)]
pub(crate) struct Acknowledged {
    by_holder: BTreeMap<String, BTreeSet<String>>,
}

impl Acknowledged {
    /// A drop of a filter begins.
    pub(crate) fn dropping(&mut self, holder: &str, filter: &str) {
        if let Some(held) = self.by_holder.get_mut(holder) {
            held.remove(filter);
        }
    }
}

/// A create call of a holder, with its start and end.
pub(crate) struct Made<'a> {
    pub(crate) holder: &'a str,
    pub(crate) filter: &'a str,
    /// A filter of the same size.
    pub(crate) sample: &'a str,
    pub(crate) machine: u32,
    pub(crate) us: (u64, u64),
    /// Whether a drop of this filter was or may still be in progress: the created filter may be gone.
    pub(crate) is_contested: bool,
}

/// A create was acknowledged.
pub(crate) fn acknowledged(made: &Made<'_>) {
    if made.is_contested {
        return;
    }
    let found = watch::with(|checks| {
        let held = checks.acknowledged.by_holder.entry(made.holder.to_owned()).or_default();
        held.insert(made.filter.to_owned());
        // Whichever of them was decided on last, that was while this call lasted, with all others there.
        let count = held.len() as u64;
        let versions = checks.quotas.between(made.us.0, made.us.1);
        let limits = versions.iter().map(|(_, version)| version.count_limit(made.holder));
        let most = limits.map(|limit| limit.unwrap_or(u64::MAX)).max()?;
        counters::checked(NAME, 1);
        (count > most).then(|| {
            format!(
                "machine {} acknowledged {}, so {} surely has {count} filters, expected {most} at most",
                made.machine, made.filter, made.holder
            )
        })
    });
    if let Some(what) = found {
        watch::violated(NAME, what);
    }
}

/// A create was refused for a quota, with this text.
pub(crate) fn refused(made: &Made<'_>, text: &str) {
    let is_right =
        watch::with(|checks| checks.quotas.may_be_full(made.us, made.holder, made.sample));
    counters::checked(SERVED, 1);
    if !is_right {
        let Made { holder, filter, machine, .. } = made;
        let what = format!(
            "machine {machine} refused {filter} of {holder}, with room for it at every moment: {text}"
        );
        watch::violated(SERVED, what);
    }
}
