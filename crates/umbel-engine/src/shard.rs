//! A shard: the slices of all filters in one hash range, replicated by one Raft group.
//!
//! | file | what it does |
//! |---|---|
//! | `command` | the commands of the group's log, and the replies of applying them |
//! | `state` | the state of a replica: slices and replay table; `apply` |
//! | `prepare` | what the leader does before it proposes: answer what it can, leave out items already present |
//! | `absent` | inserts of items that are absent alone |
//! | `slice` | one filter's part in the shard, and what its kind can do |
//! | `slice_growth` | how a slice grows beyond the item count that it was planned for |
//! | `slice_shape`, `slice_plan` | the parameters of a slice, and how they are chosen |
//! | `replay` | deduplication of retried requests |
//! | `sum` | adding the counts of several slices to another slice |
//! | `overlap` | what two slices have in common |
//! | `windowed` | filters that forget, driven by timestamps in log entries |
//! | `blocks`, `scrub` | a slice block by block: how a replica reports and repairs blocks |
//! | `vote`, `scrubber` | which bits the replicas agree on, and how the leader has them compared |
//! | `snapshot` | transfer of one replica's state to another |
//! | `slice_copy`, `positions` | a slice at one point in time, read while it changes |
//! | `undo_log`, `kept_positions`, `changed_positions` | what is kept for readers of a slice: positions, as they were |
//! | `split`, `absorb`, `merge_marks` | a shard in two, and two shards in one |
//! | `recut` | a copy of a slice that was cut for fewer shards |
//!
//! ```
//! use umbel_engine::shard::{
//!     HashList, KeyName, PreparedInsert, ShardCommand, ShardReply, ShardState, SliceGrowth, SliceShape,
//!     SliceSpec,
//! };
//! use umbel_engine::{FilterId, Generation, ShardId};
//! use umbel_filter::{CellCount, HashRange, ItemHasher, Kind};
//!
//! let (filter, generation) = (FilterId(1), Generation(1));
//! let shape = SliceShape::plan(Kind::Blocked, 1_000, 0.01, CellCount::new(1)?)?;
//! let spec = SliceSpec { filter, generation, shape, key: KeyName { function: 1, key_id: 7 } };
//! let mut state = ShardState::new(ShardId(0), HashRange::WHOLE);
//! state.apply(&ShardCommand::CreateSlice(spec));
//!
//! // The leader prepares, the log carries, every replica applies.
//! let hasher = ItemHasher::Xxh3 { seed: 7 };
//! let hashes = HashList::from_hashes(&[hasher.hash(b"alice"), hasher.hash(b"bob")]);
//! let prepared = state.prepare_insert(filter, generation, None, hashes.clone(), SliceGrowth::ANY)?;
//! let PreparedInsert::Propose(part) = prepared else { panic!("both are new") };
//! let reply = state.apply(&ShardCommand::Insert(vec![part]));
//! let ShardReply::Inserted(answers) = reply else { panic!("inserts answer inserts") };
//! assert_eq!(answers[0].as_ref().map(|answer| answer.count_ones()), Ok(2));
//!
//! let prepared = state.prepare_insert(filter, generation, None, hashes, SliceGrowth::ANY)?;
//! assert_eq!(prepared, PreparedInsert::AllPresent { item_count: 2 });
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod absent;
mod absorb;
mod bitmap;
mod blocks;
mod changed_positions;
mod command;
mod digest;
mod hash_list;
mod kept_positions;
mod merge_marks;
mod overlap;
mod part_error;
mod positions;
mod prepare;
mod probes;
mod recut;
mod replay;
mod scrub;
mod scrub_parts;
mod scrubber;
mod shared_slice;
mod slice;
mod slice_copy;
mod slice_digest;
mod slice_growth;
mod slice_plan;
mod slice_shape;
mod snapshot;
mod split;
mod state;
mod sum;
mod undo_log;
mod vote;
mod window_rules;
mod windowed;

#[cfg(test)]
mod absent_test;
#[cfg(test)]
mod absorb_test;
#[cfg(test)]
mod changed_positions_test;
#[cfg(test)]
mod cuckoo_test;
#[cfg(test)]
mod drawn_test;
#[cfg(test)]
mod growth_test;
#[cfg(test)]
mod hostile_test;
#[cfg(test)]
mod paced_test;
#[cfg(test)]
mod quotient_test;
#[cfg(test)]
mod recut_test;
#[cfg(test)]
mod redis_bloom_test;
#[cfg(test)]
mod replay_merge_test;
#[cfg(test)]
mod replay_test;
#[cfg(test)]
mod reshard_test;
#[cfg(test)]
mod scrub_test;
#[cfg(test)]
mod shape_test;
#[cfg(test)]
mod shard_test;
#[cfg(test)]
mod slices_test;
#[cfg(test)]
mod snapshot_test;
#[cfg(test)]
mod split_test;
#[cfg(test)]
mod sum_test;
#[cfg(test)]
mod undo_log_test;
#[cfg(test)]
mod windowed_test;

pub use bitmap::{Bitmap, BitmapError};
pub use command::{
    InsertPart, KeyName, RemovePart, RequestStamp, SetOperation, ShardCommand, ShardReply,
    SliceSpec, SumTerms, TimedInsert,
};
pub(crate) use hash_list::{HASH_BYTES, to_bytes as hash_to_bytes};
pub use hash_list::{HashList, HashListError};
pub use merge_marks::{Fence, MergeMarks};
pub use overlap::OverlapCount;
pub use part_error::PartError;
pub use prepare::{PreparedInsert, PreparedRemove, SliceGrowth};
pub use probes::probe_hashes;
pub use recut::{Recut, RecutSlice, SlicePart};
pub use scrub_parts::{
    BlockContents, RepairPart, SCRUB_PIECE_BLOCKS, SCRUB_READ_WORDS, ScrubPart, ScrubbedPiece,
};
pub use scrubber::{
    ReplicaAnswer, ReplicaBits, ReplicaQuestion, ScrubInput, ScrubOutput, Scrubber, SliceScrubbed,
};
pub use shared_slice::{CopiedSlice, SharedSlice};
pub use slice::{SliceDescription, SliceSummary};
pub use slice_copy::{ShardOwner, SliceCopy, SliceFrames, SliceReadError};
pub use slice_plan::PlanError;
pub use slice_shape::{SliceShape, SliceShapeError, single_shot_bytes};
pub use snapshot::{ShardSnapshot, ShardSnapshotHead, SnapshotError, SnapshotLoader};
pub use state::ShardState;
pub use sum::PreparedSum;
pub use window_rules::{
    LateItems, SLICE_MS_MAX, SLICE_MS_MIN, WINDOW_SLICE_COUNT_MAX, WindowRules, WindowTime,
};

/// The result of most functions of this module.
pub(crate) type PartResult<T> = Result<T, PartError>;
