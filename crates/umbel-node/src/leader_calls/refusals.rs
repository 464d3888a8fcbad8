//! Errors for refusals, and for unexpected answers.

use umbel_engine::ShardId;

use crate::calls::ShardFailure;
use crate::failure::CallFailure;

/// The error for a refusal that every other replica would repeat.
pub(crate) fn refused(shard: ShardId, failure: ShardFailure) -> CallFailure {
    match failure {
        ShardFailure::Part(error) => CallFailure::Part(error),
        ShardFailure::DiskFull { free_bytes } => {
            CallFailure::DiskFull { free_bytes, is_partial: false }
        }
        failure => CallFailure::Overloaded { what: format!("{shard}: {failure}") },
    }
}

/// The error for an answer of another kind than the request: a bug of the node that answered.
pub fn unexpected<T: std::fmt::Debug>(answer: &T) -> CallFailure {
    CallFailure::Storage { what: format!("a question of another kind was answered: {answer:?}") }
}
