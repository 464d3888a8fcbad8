//! Direct access to a node's copy of a replicated filter, without a socket, for programs that embed the
//! node.

use std::sync::Arc;

use thiserror::Error;
use umbel_engine::{FilterId, Generation};
use umbel_filter::{AnyFilter, ItemHash, ItemHasher};

use crate::cube::{Copy, CopyFailure};

/// A node's copy of a replicated filter, at one generation: after the filter was cleared, get a new
/// one.
///
/// ```no_run
/// # async fn example(node: umbel_node::Node, filter: umbel_engine::FilterId)
/// # -> Result<(), umbel_node::LocalCopyError> {
/// if let Some(copy) = node.local_copy(filter) {
///     let alice = copy.hasher().hash(b"alice");
///     copy.insert(&[alice]).await?;
///     let mut present = Vec::new();
///     copy.contains(&[alice], &mut present)?;
///     assert_eq!(present, [true]);
/// }
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct LocalCopy {
    copy: Arc<Copy>,
    generation: Generation,
}

/// Why a copy did not carry out a call.
#[derive(Clone, PartialEq, Eq, Debug, Error)]
pub enum LocalCopyError {
    /// The filter was cleared. Nothing was done; get its copy again.
    #[error("{filter} is at {ours} now, this copy is of {generation}")]
    Cleared {
        /// The filter.
        filter: FilterId,
        /// This copy's generation.
        generation: Generation,
        /// The filter's current generation.
        ours: Generation,
    },
    /// The disk is nearly full, or too many inserts wait for it. Nothing was done; retry later.
    #[error("{0}")]
    Busy(String),
    /// The filter was dropped, the node stops, or its log failed. Inserts may have been done.
    #[error("{0}")]
    Stopped(String),
    /// The copy has no room for the items. Nothing was done; use another filter.
    #[error("{0}")]
    Full(String),
}

impl LocalCopy {
    pub(crate) fn new(copy: Arc<Copy>) -> Self {
        Self { generation: copy.generation(), copy }
    }

    /// Hashes items for this filter. For a keyed filter, it contains the cluster's secret.
    #[must_use]
    pub fn hasher(&self) -> ItemHasher {
        self.copy.hasher()
    }

    /// The generation of the copy.
    #[must_use]
    pub const fn generation(&self) -> Generation {
        self.generation
    }

    /// Appends for each item whether it is present in this copy. "Present" is final, or wrong with the
    /// filter's false-positive rate; "absent" tells nothing about items that other nodes have and this
    /// one has not received.
    ///
    /// # Errors
    /// If the filter was cleared. Nothing was appended.
    pub fn contains(
        &self,
        hashes: &[ItemHash],
        present: &mut Vec<bool>,
    ) -> Result<(), LocalCopyError> {
        let asked = self.copy.contains_into(self.generation, hashes, present);
        asked.map_err(|failure| self.error(&failure))
    }

    /// Inserts items. Once all are on this node's disk, returns for each whether it was new here. The
    /// next sweeps send them to the other nodes.
    ///
    /// # Errors
    /// See [`LocalCopyError`].
    pub async fn insert(&self, hashes: &[ItemHash]) -> Result<Vec<bool>, LocalCopyError> {
        let inserted = self.copy.insert_arriving(self.generation, hashes).await;
        inserted.map_err(|failure| self.error(&failure))
    }

    /// The copy's current bits.
    #[must_use]
    pub fn bits(&self) -> AnyFilter {
        self.copy.bits().1
    }

    /// Changes that a partner may lack; the maximum over all partners. 0 if all have everything.
    #[must_use]
    pub fn lag(&self) -> u64 {
        self.copy.lag()
    }

    /// Bytes of memory for the changes to send to other nodes.
    #[must_use]
    pub fn log_bytes(&self) -> u64 {
        self.copy.log_bytes()
    }

    fn error(&self, failure: &CopyFailure) -> LocalCopyError {
        let generation = self.generation;
        match *failure {
            CopyFailure::StaleGeneration { filter, ours, .. } => {
                LocalCopyError::Cleared { filter, generation, ours }
            }
            CopyFailure::DiskFull { .. } | CopyFailure::Overloaded => {
                LocalCopyError::Busy(failure.to_string())
            }
            CopyFailure::Full { .. } => LocalCopyError::Full(failure.to_string()),
            CopyFailure::UnknownCopy { .. }
            | CopyFailure::StaleEpoch { .. }
            | CopyFailure::BadHashes(_)
            | CopyFailure::Unmergeable(_)
            | CopyFailure::NotSaved(_)
            | CopyFailure::Stopped(_) => LocalCopyError::Stopped(failure.to_string()),
        }
    }
}
