//! A node's copy of a replicated filter, for programs that run the node themselves: without a socket
//! between.

use std::sync::Arc;

use thiserror::Error;
use umbel_engine::{FilterId, Generation};
use umbel_filter::{AnyFilter, ItemHash, ItemHasher};

use crate::cube::{Copy, CopyFailure};

/// A node's copy of a replicated filter. It is of one generation: when the filter is cleared, get
/// another one.
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

/// Why a copy did not do what it was asked.
#[derive(Clone, PartialEq, Eq, Debug, Error)]
pub enum LocalCopyError {
    /// The filter was cleared. Nothing was done; get its copy anew.
    #[error("{filter} is at {ours} now, this copy is of {generation}")]
    Cleared {
        /// The filter.
        filter: FilterId,
        /// This copy's generation.
        generation: Generation,
        /// The filter's.
        ours: Generation,
    },
    /// The disk is nearly full, or too much waits for it. Nothing was done; try again later.
    #[error("{0}")]
    Busy(String),
    /// The filter was dropped, the node stops, or its log failed. Inserts may have been done.
    #[error("{0}")]
    Stopped(String),
}

impl LocalCopy {
    pub(crate) fn new(copy: Arc<Copy>) -> Self {
        Self { generation: copy.generation(), copy }
    }

    /// What hashes items for this filter. With a keyed filter it holds the cluster's secret.
    #[must_use]
    pub fn hasher(&self) -> ItemHasher {
        self.copy.hasher()
    }

    /// Its generation.
    #[must_use]
    pub const fn generation(&self) -> Generation {
        self.generation
    }

    /// Appends of each item whether it is present in this copy. "Present" is final, or false with the
    /// filter's rate; "absent" says nothing of what other nodes have and this one does not know of.
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

    /// Inserts items, and says of each whether it was new here, once all are on this node's disk. They
    /// come to the other nodes with the next sweeps.
    ///
    /// # Errors
    /// [`LocalCopyError`] says what to do.
    pub async fn insert(&self, hashes: &[ItemHash]) -> Result<Vec<bool>, LocalCopyError> {
        let inserted = self.copy.insert_arriving(self.generation, hashes).await;
        inserted.map_err(|failure| self.error(&failure))
    }

    /// The copy's bits as they are now.
    #[must_use]
    pub fn bits(&self) -> AnyFilter {
        self.copy.bits().1
    }

    /// Changes that a partner may lack, the most of all partners: none when all have everything.
    #[must_use]
    pub fn lag(&self) -> u64 {
        self.copy.lag()
    }

    /// Bytes of memory for what it has to send to others.
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
            CopyFailure::UnknownCopy { .. }
            | CopyFailure::StaleEpoch { .. }
            | CopyFailure::BadHashes(_)
            | CopyFailure::Unmergeable(_)
            | CopyFailure::NotSaved(_)
            | CopyFailure::Stopped(_) => LocalCopyError::Stopped(failure.to_string()),
        }
    }
}
