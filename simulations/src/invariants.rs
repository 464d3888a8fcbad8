//! What must hold in every run, one file a promise.

pub(crate) mod acked_is_contained;
pub(crate) mod answers_linearize;
pub(crate) mod attempted_bounds_bits;
pub(crate) mod checked;
pub(crate) mod errors_change_nothing;
pub(crate) mod every_call_returns;
pub(crate) mod one_new_per_item;
pub(crate) mod raft;
pub(crate) mod retry_is_first_answer;
pub(crate) mod violation;
