//! Answers that are none.

use umbel_engine::ShardId;

use crate::calls::ShardFailure;
use crate::failure::CallFailure;

/// A refusal that no other replica would answer otherwise.
pub(super) fn refused(shard: ShardId, failure: ShardFailure) -> CallFailure {
    match failure {
        ShardFailure::Part(error) => CallFailure::Part(error),
        ShardFailure::DiskFull { free_bytes } => {
            CallFailure::DiskFull { free_bytes, is_partial: false }
        }
        failure => CallFailure::Overloaded { what: format!("{shard}: {failure}") },
    }
}

/// An answer of another kind than the question: a bug of whoever answered.
pub(super) fn unexpected<T: std::fmt::Debug>(answer: &T) -> CallFailure {
    CallFailure::Storage { what: format!("a question of another kind was answered: {answer:?}") }
}
