//! Parts of a specification that exclude each other, whether options of a command name them or fields of
//! a message.

use umbel_dedup_engine::Exactness;
use umbel_records::Granularity;

use crate::scope::Scope;
use crate::spec::JobSpec;

/// Two parts that exclude each other.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Conflict {
    /// Exactness `bytes` compares items, and a filter of a cluster holds none.
    BytesWithFilter,
    /// Whole files are no items of a filter of a cluster.
    FilesWithFilter,
    /// A filter of a cluster has one set of items, not one for each scope.
    ScopeWithFilter,
    /// Jobs over many machines name scopes by whole paths, and indexes do not.
    ScopeWithIndex,
}

/// The conflicts in a specification. [`Conflict::ScopeWithIndex`] matters on many machines only.
pub(crate) fn conflicts(spec: &JobSpec) -> Vec<Conflict> {
    let has_online = !spec.online.is_empty();
    let has_filter = has_online || spec.add_to.is_some();
    let has_index = !spec.references.is_empty() || spec.save_index.is_some();
    let is_scoped = spec.scope != Scope::Global;
    let found = [
        (spec.exactness == Exactness::Bytes && has_online, Conflict::BytesWithFilter),
        (spec.granularity == Granularity::File && has_filter, Conflict::FilesWithFilter),
        (is_scoped && has_filter, Conflict::ScopeWithFilter),
        (is_scoped && has_index, Conflict::ScopeWithIndex),
    ];
    found.into_iter().filter(|(is_found, _)| *is_found).map(|(_, conflict)| conflict).collect()
}
