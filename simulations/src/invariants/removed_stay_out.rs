//! A node that knows that another node was removed from the cluster serves no call of it (the committed
//! configuration defines the membership: Ongaro, Consensus: bridging theory and practice, 2014, section
//! 4.2.3).

use umbel_engine::NodeId;

use crate::counters;
use crate::watch;

/// Name of the invariant.
pub(crate) const NAME: &str = "removed_stay_out";

/// Checks the result of a call in the name of a removed node against what the called machine certainly
/// knew.
pub(crate) fn check(machine: u32, from: NodeId, us: (u64, u64), call: &str, is_admitted: bool) {
    let found = watch::with(|checks| {
        checks.rights.knows_removed(machine, from, us).then_some(())?;
        counters::checked(NAME, 1);
        is_admitted.then(|| {
            format!(
                "machine {machine} served the {call} of {from}, expected a refusal: it was removed"
            )
        })
    });
    if let Some(what) = found {
        watch::violated(NAME, what);
    }
}
