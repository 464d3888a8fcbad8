//! What must hold in every run, one file a promise.

pub(crate) mod acked_is_contained;
pub(crate) mod answers_linearize;
pub(crate) mod attempted_bounds_bits;
pub(crate) mod checked;
pub(crate) mod copies_converge;
pub(crate) mod copies_forget;
pub(crate) mod copies_hold_what_was_tried;
pub(crate) mod dedup_matches_reference;
pub(crate) mod errors_change_nothing;
pub(crate) mod every_call_returns;
pub(crate) mod flushed_is_everywhere;
pub(crate) mod identities_hold;
pub(crate) mod last_items_stay;
pub(crate) mod majority_finds_majority;
pub(crate) mod merged_is_contained;
pub(crate) mod nothing_ungranted_is_done;
pub(crate) mod one_new_per_item;
pub(crate) mod quotas_hold;
pub(crate) mod raft;
pub(crate) mod removed_stay_out;
pub(crate) mod reset_is_atomic;
pub(crate) mod retry_is_first_answer;
pub(crate) mod rotations_forget;
pub(crate) mod sessions_are_their_owners;
pub(crate) mod violation;
mod window_answers;
pub(crate) mod windows_forget;
