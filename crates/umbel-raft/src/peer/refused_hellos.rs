//! Which refused hellos of a link an operator is warned of. A node that is about to join a cluster refuses as one
//! whose data was replaced does: it belongs to none. Only the latter goes on doing so, or was a member before.

use super::limits::JOINING_REFUSALS_MAX;

/// What a node that belongs to no cluster says first when it refuses a hello.
pub(super) const NO_CLUSTER_YET: &str = "this node belongs to no cluster yet";

/// The refusals of one peer.
#[derive(Default)]
pub(super) struct RefusedHellos {
    /// Refusals since the last session that ended otherwise.
    in_a_row: u32,
    /// Whether one of them was a reason for a warning.
    is_warned: bool,
    /// Whether the peer has answered a call, so that it was a member.
    was_member: bool,
}

impl RefusedHellos {
    /// Takes the end of a session: the refusal, if that was it, and whether the peer had answered before. Returns
    /// whether to warn.
    pub(super) fn warns(&mut self, refusal: Option<&str>, was_answered: bool) -> bool {
        self.was_member |= was_answered;
        let Some(refusal) = refusal else {
            (self.in_a_row, self.is_warned) = (0, false);
            return false;
        };
        self.in_a_row = self.in_a_row.saturating_add(1);
        let is_joining = refusal.starts_with(NO_CLUSTER_YET)
            && !self.was_member
            && self.in_a_row < JOINING_REFUSALS_MAX;
        let warns = !is_joining && !self.is_warned;
        self.is_warned |= warns;
        warns
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const OTHER: &str = "this is node 4 of another cluster";

    #[test]
    fn a_node_that_is_about_to_join_is_no_reason_for_a_warning() {
        let mut refused = RefusedHellos::default();
        for _ in 1..JOINING_REFUSALS_MAX {
            assert!(!refused.warns(Some(NO_CLUSTER_YET), false));
        }
        // It has joined; later its machine is down.
        assert!(!refused.warns(None, true));
        assert!(!refused.warns(None, false));
    }

    #[test]
    fn one_that_never_joins_is_warned_of_once() {
        let mut refused = RefusedHellos::default();
        let warnings = (0..3 * JOINING_REFUSALS_MAX)
            .filter(|_| refused.warns(Some(NO_CLUSTER_YET), false))
            .count();
        assert_eq!(warnings, 1);
    }

    #[test]
    fn a_member_whose_data_was_replaced_is_warned_of_at_once() {
        let mut refused = RefusedHellos::default();
        assert!(!refused.warns(None, true));
        assert!(refused.warns(Some(NO_CLUSTER_YET), false));
        assert!(!refused.warns(Some(NO_CLUSTER_YET), false));
    }

    #[test]
    fn other_refusals_are_warned_of_at_once_and_again_after_another_end() {
        let mut refused = RefusedHellos::default();
        assert!(!refused.warns(Some(NO_CLUSTER_YET), false));
        assert!(refused.warns(Some(OTHER), false));
        assert!(!refused.warns(Some(OTHER), false));
        assert!(!refused.warns(None, false));
        assert!(refused.warns(Some(OTHER), false));
    }
}
