//! The planted bugs: how they are named, selected and switched on in plans.

use umbel_step::planted::Planted;

use crate::plan::Plan;
use crate::profile::{Profile, ProfileError};

/// There is no planted bug of this name.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("no planted bug {name:?}, expected one of {known}")]
pub(crate) struct UnknownBug {
    name: String,
    known: String,
}

/// The bug of this name.
pub(crate) fn named(name: &str) -> Result<Planted, UnknownBug> {
    Planted::ALL.iter().copied().find(|bug| bug.name() == name).ok_or_else(|| UnknownBug {
        name: name.to_owned(),
        known: Planted::ALL.iter().map(|bug| bug.name()).collect::<Vec<_>>().join(", "),
    })
}

/// The profile whose runs reveal a bug.
pub(crate) fn profile_of(bug: Planted) -> Result<Profile, ProfileError> {
    bug.profile().parse()
}

/// The `count` bugs of a turn. Successive turns get successive bugs, cyclically.
pub(crate) fn rotated(count: usize, turn: usize) -> Vec<Planted> {
    let all = Planted::ALL;
    let count = count.min(all.len());
    let first = turn.wrapping_mul(count) % all.len();
    all.iter().copied().cycle().skip(first).take(count).collect()
}

/// Switches a bug on in a plan, and adds to `provoked` what the bug needs to be revealed.
pub(crate) fn plant_in(plan: &mut Plan, bug: Planted) {
    plan.planted = Some(bug.name().to_owned());
    for &name in bug.provoked() {
        if !plan.provoked.iter().any(|known| known == name) {
            plan.provoked.push(name.to_owned());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn every_bug_has_its_own_name_and_a_profile_that_exists() {
        for &bug in Planted::ALL {
            assert_eq!(named(bug.name()), Ok(bug));
            assert!(profile_of(bug).is_ok(), "{}", bug.name());
        }
    }

    #[test]
    fn an_unknown_name_is_refused_with_the_known_ones() {
        let text = named("no_such_bug").unwrap_err().to_string();
        assert!(text.contains("\"no_such_bug\"") && text.contains("ack_before_sync"), "{text}");
    }

    #[test]
    fn turns_take_all_bugs() {
        let all: BTreeSet<Planted> = Planted::ALL.iter().copied().collect();
        let turn_count = Planted::ALL.len().div_ceil(4);
        let taken: BTreeSet<Planted> = (0..turn_count).flat_map(|turn| rotated(4, turn)).collect();
        assert_eq!(taken, all);
        assert_eq!(rotated(4, 1), Planted::ALL[4..8]);
        assert_eq!(rotated(1_000, 5).len(), all.len());
    }

    #[test]
    fn a_bug_in_a_plan_brings_what_it_needs_once() {
        for &bug in Planted::ALL {
            let mut plan = Plan::draw(1, Profile::Mixed, 1_000);
            plant_in(&mut plan, bug);
            let once = plan.clone();
            plant_in(&mut plan, bug);
            assert_eq!(plan, once);
            assert_eq!(plan.planted.as_deref(), Some(bug.name()));
            assert!(bug.provoked().iter().all(|&name| plan.provoked.iter().any(|p| p == name)));
        }
    }
}
