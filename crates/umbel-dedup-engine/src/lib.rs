//! Cluster-wide duplicate detection by an exchange of single-shot Bloom filters.
//!
//! Input: p workers, each with the records of its part of the input. Output: for each worker, the ids of the
//! records that it drops, so that one record is kept of all that have equal items. One or two bytes are sent
//! per item.
//!
//! Each worker hashes its items once and drops repeats among its own. For every *cell* of the hash space, it
//! sends the sorted positions of its entries there to the cell's owner, as gaps in a Rice code. The owner
//! finds the positions that two workers share and answers with *verdicts*: indexes into the sender's list.
//! For entries that collided (candidates), the workers send a few more hash bits; for those that still
//! collide (survivors), the rest of the 128-bit hash. Sanders, Schlag, Müller, "Communication Efficient
//! Algorithms for Fundamental Big Data Problems", IEEE BigData 2013, doi:10.1109/BigData.2013.6691549; the
//! positional refinement and the residue coding are Umbel's.
//!
//! ```text
//!   sender                                    owner of the cell
//!     │  Positions  (gaps of pos = H·m)  ──►   positions that two workers share
//!     │  ◄── Verdict 1: candidates
//!     │  Refine     (r more bits each)   ──►   (position, bits) that two workers share
//!     │  ◄── Verdict 2: survivors
//!     │  Residues   (rest of the hash)   ──►   equal hashes: keep the best, drop the others
//!     │  ◄── Verdict 3: drops
//!     │  Items      (exactness bytes)    ──►   equal bytes: keep the best, drop the others
//!     │  ◄── Verdict 4: drops
//! ```
//!
//! [`ExchangeCoordinator`] adds up the workers' counts, orders a sample and chooses the [`Plan`]; [`Worker`] is
//! sender and owner. A missing verdict never causes an entry to be kept: a worker keeps an entry only after a
//! verdict that covers its index. With hundreds of workers, frames are routed over a [`Grid`], in which a
//! worker has about 2·√p neighbours, which forward the frames of others. [`job`] runs the exchange as one
//! phase of a job that survives crashes; [`GroupCounter`] counts, after the exchange, how many records each
//! kept one stands for; [`IndexWriter`] stores kept hashes for later jobs.

#![cfg_attr(test, allow(clippy::unwrap_used, clippy::cast_possible_truncation))]

mod collide;
mod coordinator;
mod cost;
#[cfg(test)]
mod drawn_test;
mod drops;
mod entry;
mod error;
mod frame;
mod grid;
mod group_count;
mod index;
mod items;
pub mod job;
mod known;
pub mod limits;
mod list;
mod mailbox;
mod owner;
mod payload;
mod plan;
pub mod reference;
mod relay;
mod report;
mod sample;
mod sender;
mod worker;
#[cfg(test)]
mod worker_test;

pub use coordinator::{CoordinatorInput, CoordinatorOutput, ExchangeCoordinator, FilterChoice};
pub use cost::{Cost, CostQuestion, cheapest};
pub use drops::Drops;
pub use entry::{Entry, Keep, Rank, RecordId, Suspect, SuspectItem, WorkerId};
pub use error::{ExchangeError, ExchangeFrameError, RelayError};
pub use frame::{Frame, FrameKind, FrameLink};
pub use grid::{Grid, Route};
pub use group_count::{
    Claim, GroupCountInput, GroupCountOutput, GroupCountShape, GroupCounter, GroupSize, KeptGroup,
    RecordPart, RecordRange, group_count_bits_per_entry,
};
pub use index::{
    INDEX_DIRECTORY_ENTRY_BYTES, INDEX_HEADER_BYTES, IndexBits, IndexDirectory, IndexError,
    IndexExtent, IndexHeader, IndexSpec, IndexWriter, SpecDigest,
};
pub use list::LocalList;
pub use mailbox::Mailbox;
pub use plan::{
    Exactness, JobShape, Mode, Plan, RecordIdBits, ReferenceShape, SampleOrder, Truncation,
};
pub use relay::Passage;
pub use report::ExchangeReport;
pub use worker::{ExchangeInput, ExchangeOutput, Worker};

/// The result of most functions that read frames.
pub(crate) type FrameResult<T> = Result<T, ExchangeFrameError>;
