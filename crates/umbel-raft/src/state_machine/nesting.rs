//! Finds reads of a replica within a read of the same one, in builds with debug assertions.
//!
//! Such a read waits for ever if the task that applies entries waits between the two: the lock lets no
//! reader pass a writer that waits, and this writer waits for the first read. It happens seldom, so a test
//! would seldom meet it; this check finds each such read whenever it is made.

use std::cell::RefCell;

use super::GroupReplica;

thread_local! {
    /// Addresses of the replicas whose state a caller of this thread reads.
    static READ_HERE: RefCell<Vec<usize>> = const { RefCell::new(Vec::new()) };
}

/// A read by a caller, while the value lives.
pub(super) struct Reading;

impl Reading {
    pub(super) fn begin(replica: &GroupReplica) -> Self {
        if cfg!(debug_assertions) {
            READ_HERE.with_borrow_mut(|read| read.push(address(replica)));
        }
        Self
    }
}

impl Drop for Reading {
    fn drop(&mut self) {
        if cfg!(debug_assertions) {
            READ_HERE.with_borrow_mut(Vec::pop);
        }
    }
}

/// # Panics
/// If this thread reads the replica already.
pub(super) fn check_not_nested(replica: &GroupReplica) {
    if cfg!(debug_assertions) {
        let is_nested = READ_HERE.with_borrow(|read| read.contains(&address(replica)));
        assert!(!is_nested, "{} is read within a read of it", replica.group);
    }
}

fn address(replica: &GroupReplica) -> usize {
    std::ptr::from_ref(replica).addr()
}

#[cfg(test)]
mod tests {
    use umbel_engine::meta::{ClusterVersion, VersionRange};

    use super::*;

    fn replica() -> GroupReplica {
        let oldest = ClusterVersion::FIRST;
        GroupReplica::meta(VersionRange { oldest, newest: ClusterVersion::NEWEST })
    }

    #[test]
    fn reads_may_follow_each_other_and_be_of_two_replicas() {
        let (one, other) = (replica(), replica());
        one.read_meta(|_| other.read_meta(|_| ()));
        one.read_meta(|_| ());
    }

    #[test]
    #[should_panic(expected = "meta group is read within a read of it")]
    fn a_read_within_a_read_is_found() {
        let replica = replica();
        replica.read_meta(|_| replica.first_unapplied());
    }
}
