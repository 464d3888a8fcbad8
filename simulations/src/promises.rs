//! The names of all promises, which plans may expect to be broken.

/// Kind of failure of a run that used up its memory or time. It stands where else the name of a promise does.
pub(crate) const EXCEEDED: &str = "exceeded";

/// Every promise by its name. A name that is missing here would be refused in the plan of its own failure.
pub(crate) const PROMISES: [&str; 73] = [
    "absent_is_added_once",
    "acked_is_contained",
    "answers_are_replies",
    "answers_linearize",
    "attempted_bounds_bits",
    "byte_cap_holds",
    "changes_count_within_a_second",
    "committed_is_immutable",
    "committed_on_quorum",
    "copies_are_counted",
    "copies_converge",
    "copies_forget",
    "copies_hold_what_was_tried",
    "dedup_matches_reference",
    "difference_is_exact",
    "drained_gets_none",
    "election_safety",
    "entries_are_known",
    "epoch_rises",
    "errors_change_nothing",
    "every_call_returns",
    "expired_filter_takes_nothing",
    "expiry_is_set_once",
    "failover_is_short",
    "filter_is_taken_once",
    "flushed_is_everywhere",
    "generation_is_checked",
    "good_certificates_serve",
    "granted_is_not_denied",
    "heals_and_agrees",
    "heals_and_serves",
    "honest_sessions_succeed",
    "identities_hold",
    "identity_holds",
    "jobs_end",
    "jobs_leave_nothing",
    "last_items_stay",
    "leader_completeness",
    "leaders_reach_voters",
    "little_travels_again",
    "majority_finds_majority",
    "membership",
    "merged_is_contained",
    "misses_are_few",
    "monotone",
    "new_tokens_count_at_once",
    "no_panic",
    "nothing_ungranted_is_done",
    "one_log_id_one_payload",
    "one_new_per_item",
    "order",
    "quotas_hold",
    "ranges_tile",
    "recovered_prefix",
    "refusals_tell_nothing",
    "removed_stay_out",
    "replicas_agree",
    "reset_is_atomic",
    "retry_is_first_answer",
    "room_is_given",
    "rotations_forget",
    "sessions_are_their_owners",
    "sessions_end",
    "sets_end_equal",
    "shape_is_checked",
    "snapshots_are_one_moment",
    "state_machine_safety",
    "strangers_part",
    "success_means_both",
    "told_when_verified",
    "usage_adds_up",
    "windows_forget",
    "zones_apart",
];

/// Whether a failed run can be of this kind.
pub(crate) fn is_kind(name: &str) -> bool {
    name == EXCEEDED || PROMISES.contains(&name)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::path::{Path, PathBuf};

    fn sources(folder: &Path, found: &mut Vec<PathBuf>) {
        for entry in fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                sources(&path, found);
            } else if path.extension().is_some_and(|ending| ending == "rs") {
                found.push(path);
            }
        }
    }

    /// The texts that follow a mark, up to the next quotation mark.
    fn quoted<'a>(text: &'a str, mark: &'a str) -> impl Iterator<Item = &'a str> {
        text.split(mark).skip(1).filter_map(|rest| rest.split('"').next())
    }

    #[test]
    fn every_name_that_the_checks_use_is_in_the_list() {
        let mut paths = Vec::new();
        sources(&Path::new(env!("CARGO_MANIFEST_DIR")).join("src"), &mut paths);
        paths.retain(|path| !path.ends_with("promises.rs"));
        let texts: Vec<String> =
            paths.iter().map(|path| fs::read_to_string(path).unwrap()).collect();
        let marks = &[" NAME: &str = \"", "watch::violated(\"", "invariant: \"", "invariant = \""];
        let names =
            texts.iter().flat_map(|text| marks.iter().flat_map(move |mark| quoted(text, mark)));
        let mut count = 0;
        for name in names {
            assert!(PROMISES.contains(&name), "{name}");
            count += 1;
        }
        assert!(count > 40, "{count} names were found");
    }

    #[test]
    fn every_promise_is_explained() {
        let text = include_str!("../README.md");
        for name in PROMISES {
            assert!(text.contains(&format!("`{name}`")), "{name}");
        }
        assert!(PROMISES.is_sorted());
    }
}
