//! While a node can open no links to others, or they none to it, each group soon has a leader that can open links to
//! a majority of its voters: entries and reads go over these.

use std::collections::BTreeMap;

use umbel_engine::GroupId;

use crate::counters;
use crate::violation::Violation;

/// Name of the invariant.
pub(crate) const NAME: &str = "leaders_reach_voters";

/// Simulated microseconds for which a group may lack such a leader. A leader that is not answered gives up its claim
/// after 140 ms, and another replica stands after 260 ms; the rest is room for elections that nobody wins.
const LACK_MAX_US: u64 = 1_500_000;

/// When links were closed, and what has come of it.
#[derive(Default, Debug)]
pub(crate) struct LeadersReach {
    /// From when until when, in simulated microseconds.
    closed_us: Vec<(u64, u64)>,
    /// The groups that lack such a leader, and since when.
    lacking: BTreeMap<GroupId, u64>,
}

impl LeadersReach {
    /// Links are closed from the first of these times to the second.
    pub(crate) fn closed(&mut self, us: (u64, u64)) {
        self.closed_us.push(us);
    }

    /// When links were closed.
    pub(crate) fn closed_us(&self) -> &[(u64, u64)] {
        &self.closed_us
    }

    /// Groups are not judged now: no links are closed, or something else is wrong as well.
    pub(crate) fn pause(&mut self) {
        self.lacking.clear();
    }

    /// Checks the groups while links are closed; of each, `led` says whether it has such a leader.
    pub(crate) fn look(&mut self, now_us: u64, led: &BTreeMap<GroupId, bool>) -> Vec<Violation> {
        let mut found = Vec::new();
        for (&group, &is_led) in led {
            counters::checked(NAME, 1);
            if is_led {
                self.lacking.remove(&group);
                continue;
            }
            let since_us = *self.lacking.entry(group).or_insert(now_us);
            if now_us > since_us + LACK_MAX_US {
                let what = format!(
                    "{group:#} has had no leader that can call a majority since {since_us} us, expected {LACK_MAX_US} us at most"
                );
                found.push(Violation { invariant: NAME, at_us: now_us, what });
            }
        }
        found
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_group_that_lacks_a_leader_for_long_is_found() {
        let mut reach = LeadersReach::default();
        let look = |reach: &mut LeadersReach, now_us, is_led| {
            reach.look(now_us, &BTreeMap::from([(GroupId::META, is_led)])).len()
        };
        assert_eq!(look(&mut reach, 10, false), 0);
        assert_eq!(look(&mut reach, 10 + LACK_MAX_US, false), 0);
        assert_eq!(look(&mut reach, 11 + LACK_MAX_US, false), 1);
        assert_eq!(look(&mut reach, 12 + LACK_MAX_US, true), 0);
        assert_eq!(look(&mut reach, 13 + LACK_MAX_US, false), 0, "since then");
        reach.pause();
        assert_eq!(look(&mut reach, 20 + 2 * LACK_MAX_US, false), 0);
    }
}
