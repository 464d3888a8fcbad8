//! Encoding a table as bytes, for the node's own disk.
//!
//! ```text
//! 0         1        9            17             21
//! │ version │ node   │ own count  │ sample count │ samples, by rising node …
//! │ 1       │ u64    │ u64        │ u32          │
//!
//! 0        8        16           18
//! │ node   │ count  │ hash count │ hashes, rising, 8 bytes each │
//! │ u64    │ u64    │ u16        │                              │
//! ```
//!
//! All numbers are little-endian. The dates of hashes are not stored: a node that asks after a restart
//! lacks nothing, or gets a complete sample.

use std::collections::BTreeMap;

use thiserror::Error;

use super::SampleTable;
use super::dated_sample::DatedSample;
use crate::hypercube::{DistinctSample, SampleBytesError};
use crate::limits::VERSION_NODES_MAX;
use umbel_engine::NodeId;

/// The version that is written, and the only one that can be read.
const VERSION: u8 = 1;

/// The bytes are not a table. Start with an empty one: other nodes send the samples back.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Error)]
pub enum SampleTableBytesError {
    /// The table was written by another release.
    #[error("a table of version {got}, expected {VERSION}")]
    Version {
        /// The version.
        got: u8,
    },
    /// The bytes end too early.
    #[error("{got} bytes at byte {at} of a table, expected {expected}")]
    Truncated {
        /// Position of the incomplete field.
        at: usize,
        /// Bytes from there to the end.
        got: usize,
        /// Bytes that the field needs.
        expected: usize,
    },
    /// There are bytes after the end of the table.
    #[error("a table of {expected} bytes in {got}")]
    Trailing {
        /// Number of bytes received.
        got: usize,
        /// Number of bytes of the table.
        expected: usize,
    },
    /// There are samples of more nodes than a cluster can have.
    #[error("samples of {got} nodes, expected at most {VERSION_NODES_MAX}")]
    TooManyNodes {
        /// Number of samples.
        got: u32,
    },
    /// The nodes are not in ascending order.
    #[error("{after} behind {before} in a table, expected a higher number")]
    NotRising {
        /// A node.
        before: NodeId,
        /// The node after it.
        after: NodeId,
    },
    /// A sample has count 0.
    #[error("a sample of {node} at count 0, expected 1 at least")]
    NoCount {
        /// The node.
        node: NodeId,
    },
    /// The own sample's count is above the own count.
    #[error("own sample at count {sample}, expected {own} at most")]
    OwnCount {
        /// The sample's count.
        sample: u64,
        /// The own count.
        own: u64,
    },
    /// A sample is invalid.
    #[error("sample of {node}: {source}")]
    Sample {
        /// The node.
        node: NodeId,
        /// What is wrong with it.
        source: SampleBytesError,
    },
}

impl SampleTable {
    /// The table as bytes.
    ///
    /// ```
    /// use umbel_engine::NodeId;
    /// use umbel_replicated_engine::hypercube::SampleTable;
    /// use umbel_filter::ItemHash;
    ///
    /// let mut table = SampleTable::new(NodeId(1));
    /// table.insert(&[ItemHash::new(0, 5)]);
    /// let bytes = table.to_bytes();
    /// assert_eq!(bytes.len(), 21 + 18 + 8);
    /// assert_eq!(SampleTable::from_bytes(&bytes), Ok(table));
    /// ```
    ///
    /// # Panics
    /// Never: a table has at most [`VERSION_NODES_MAX`] samples of at most
    /// [`SAMPLE_HASHES_MAX`](crate::limits::SAMPLE_HASHES_MAX) hashes.
    #[must_use]
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut bytes = vec![VERSION];
        bytes.extend(self.node.0.to_le_bytes());
        bytes.extend(self.own_count.to_le_bytes());
        let sample_count = u32::try_from(self.samples.len()).expect("a cluster has fewer nodes");
        bytes.extend(sample_count.to_le_bytes());
        for (node, count, sample) in self.samples() {
            bytes.extend(node.0.to_le_bytes());
            bytes.extend(count.to_le_bytes());
            let hash_count = u16::try_from(sample.len()).expect("a sample has fewer hashes");
            bytes.extend(hash_count.to_le_bytes());
            bytes.extend(sample.to_bytes());
        }
        bytes
    }

    /// The table in these bytes.
    ///
    /// # Errors
    /// If the bytes are not a table.
    pub fn from_bytes(bytes: &[u8]) -> Result<Self, SampleTableBytesError> {
        let mut reader = Reader { bytes, at: 0 };
        let [version] = reader.array()?;
        if version != VERSION {
            return Err(SampleTableBytesError::Version { got: version });
        }
        let node = NodeId(u64::from_le_bytes(reader.array()?));
        let own_count = u64::from_le_bytes(reader.array()?);
        let sample_count = u32::from_le_bytes(reader.array()?);
        if sample_count as usize > VERSION_NODES_MAX {
            return Err(SampleTableBytesError::TooManyNodes { got: sample_count });
        }
        let mut samples = BTreeMap::new();
        for _ in 0..sample_count {
            let (of, dated) = reader.sample()?;
            if let Some((&before, _)) = samples.last_key_value().filter(|(last, _)| **last >= of) {
                return Err(SampleTableBytesError::NotRising { before, after: of });
            }
            if of == node && dated.count() > own_count {
                let sample = dated.count();
                return Err(SampleTableBytesError::OwnCount { sample, own: own_count });
            }
            samples.insert(of, dated);
        }
        if reader.at < bytes.len() {
            let (got, expected) = (bytes.len(), reader.at);
            return Err(SampleTableBytesError::Trailing { got, expected });
        }
        Ok(Self { node, own_count, samples })
    }
}

/// A cursor over bytes.
struct Reader<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl<'a> Reader<'a> {
    fn slice(&mut self, byte_count: usize) -> Result<&'a [u8], SampleTableBytesError> {
        let rest = self.bytes.get(self.at..).unwrap_or_default();
        let truncated =
            SampleTableBytesError::Truncated { at: self.at, got: rest.len(), expected: byte_count };
        let read = rest.get(..byte_count).ok_or(truncated)?;
        self.at += byte_count;
        Ok(read)
    }

    fn array<const BYTES: usize>(&mut self) -> Result<[u8; BYTES], SampleTableBytesError> {
        let mut array = [0; BYTES];
        array.copy_from_slice(self.slice(BYTES)?);
        Ok(array)
    }

    fn sample(&mut self) -> Result<(NodeId, DatedSample), SampleTableBytesError> {
        let node = NodeId(u64::from_le_bytes(self.array()?));
        let count = u64::from_le_bytes(self.array()?);
        if count == 0 {
            return Err(SampleTableBytesError::NoCount { node });
        }
        let hash_count = u16::from_le_bytes(self.array()?);
        let hashes = self.slice(usize::from(hash_count) * size_of::<u64>())?;
        let sample = DistinctSample::from_bytes(hashes)
            .map_err(|source| SampleTableBytesError::Sample { node, source })?;
        Ok((node, DatedSample::new(sample, count)))
    }
}
