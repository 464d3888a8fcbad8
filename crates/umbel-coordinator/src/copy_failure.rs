//! What a client hears when this node's own copy of a replicated filter fails.

use umbel_engine::shard::PartError;
use umbel_node::cube::CopyFailure;
use umbel_node::failure::CallFailure;

/// The client's error for a failure of this node's own copy.
pub(crate) fn of_copy(failure: CopyFailure) -> CallFailure {
    match failure {
        CopyFailure::DiskFull { free_bytes } => {
            CallFailure::DiskFull { free_bytes, is_partial: false }
        }
        CopyFailure::Overloaded => CallFailure::Overloaded { what: failure.to_string() },
        CopyFailure::BadHashes(what) => CallFailure::Invalid { what },
        CopyFailure::Stopped(why) | CopyFailure::NotSaved(why) => {
            CallFailure::OutcomeUnknown { what: why }
        }
        CopyFailure::Full { filter, what } => PartError::Full { filter, what }.into(),
        CopyFailure::Unmergeable(what) => PartError::ShapeMismatch { what }.into(),
        CopyFailure::UnknownCopy { .. }
        | CopyFailure::StaleGeneration { .. }
        | CopyFailure::StaleEpoch { .. } => {
            let (name, state) = (failure.to_string(), "not here yet".to_owned());
            CallFailure::FilterBusy { name, state }
        }
    }
}
