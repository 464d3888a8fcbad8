//! Replicated filters out of this node's copy, and into it: the exchange brings what other nodes have,
//! and sends it to them.

use std::sync::Arc;

use bytes::Bytes;
use tokio::sync::{OwnedSemaphorePermit, mpsc};
use tokio::time::{Instant, timeout_at};
use umbel_codec::{FilterAssembler, FrameView};
use umbel_engine::meta::FilterSettings;
use umbel_engine::placement::ShardRanges;
use umbel_engine::shard::{PartError, SliceShape};
use umbel_engine::{FilterId, Generation};
use umbel_filter::AnyFilter;

use crate::copy_failure::of_copy;
use crate::{Coordinator, LiveFilter, Result};
use umbel_node::cube;
use umbel_node::failure::CallFailure;

/// Frames of a copy as they become ready.
pub(super) type CopyFrames = mpsc::Receiver<Result<Bytes, String>>;

/// Replicated filters are copied as if they were cut for one shard.
#[expect(clippy::missing_panics_doc, reason = "one is a number of shards")]
pub fn one_shard() -> ShardRanges {
    ShardRanges::new(1, 1).expect("one is a number of shards")
}

impl Coordinator {
    /// The frames of this node's copy as it is now, coded or as words, and the filter as the catalogue has it.
    pub(super) async fn copy_frames(
        &self,
        filter: LiveFilter,
        is_raw: bool,
        deadline: Instant,
    ) -> Result<(LiveFilter, CopyFrames)> {
        let (mut filter, copy) = self.copies().own(filter, deadline).await?;
        filter.ranges = one_shard();
        match timeout_at(deadline, self.local()?.copies().frames(&copy, is_raw)).await {
            Ok((newest_slice, frames)) => {
                // Frames of a ring contain no times.
                if let SliceShape::Ring { newest, .. } = &mut filter.record.settings.shape {
                    *newest = newest_slice.unwrap_or_default();
                }
                Ok((filter, frames))
            }
            Err(_) => {
                Err(CallFailure::Overloaded { what: "too many copies are being exported".into() })
            }
        }
    }

    /// A permit for this node's memory, for a filter that is assembled from its frames.
    pub(crate) async fn import_room(&self, deadline: Instant) -> Result<OwnedSemaphorePermit> {
        let room = timeout_at(deadline, self.local()?.copies().import_room()).await;
        room.map_err(|_| {
            let what = "as many replicated filters as this node takes at once are being imported";
            CallFailure::Overloaded { what: format!("{what}: try again later") }
        })
    }

    /// ORs a filter, for which `room` was acquired, into this node's copy; returns how many positions
    /// were newly set, once that is on this node's disk. It completes even if the caller gives up. For a windowed
    /// filter, `newest_slice` is the newest time slice of `other`.
    pub(crate) async fn absorb(
        &self,
        filter: FilterId,
        generation: Generation,
        other: AnyFilter,
        newest_slice: Option<u64>,
        room: OwnedSemaphorePermit,
    ) -> Result<u64> {
        let local = Arc::clone(self.local()?);
        let work = async move {
            let absorbed = local.copies().absorb(filter, generation, &other, newest_slice).await;
            drop((other, room));
            absorbed
        };
        match tokio::spawn(work).await {
            Ok(outcome) => outcome.map_err(of_copy),
            Err(error) => Err(CallFailure::storage(error)),
        }
    }

    /// Waits until this node has its copy of a filter in the catalogue.
    pub(super) async fn wait_copy(&self, filter: FilterId, deadline: Instant) -> Result<()> {
        let copies = self.local()?.copies();
        let mut followed = copies.followed();
        let opened = followed.wait_for(|_| copies.get(filter).is_some());
        match timeout_at(deadline, opened).await {
            Ok(Ok(_)) => Ok(()),
            _ => {
                let (name, state) = (filter.to_string(), "not here yet".to_owned());
                Err(CallFailure::FilterBusy { name, state })
            }
        }
    }
}

/// A copy that is being assembled from its frames.
pub(super) struct Assembly {
    assembler: FilterAssembler,
    frame_count: u64,
    /// Only for a ring of slices of time.
    newest_slice: Option<u64>,
}

impl Assembly {
    pub(super) fn new(settings: &FilterSettings) -> Result<Self> {
        let assembler = cube::assembler(settings);
        let assembler = assembler.map_err(|what| PartError::ShapeMismatch { what })?;
        let newest_slice = match settings.shape {
            SliceShape::Ring { newest, .. } => Some(newest),
            _ => None,
        };
        Ok(Self { assembler, frame_count: 0, newest_slice })
    }

    /// Adds the next frame.
    pub(super) fn take(&mut self, frame: &[u8]) -> Result<()> {
        let number = self.frame_count;
        let bad = |error: &dyn std::fmt::Display| PartError::BadFrame {
            what: format!("frame {number}: {error}"),
        };
        let (view, length) = FrameView::parse(frame).map_err(|error| bad(&error))?;
        if length != frame.len() {
            return Err(bad(&format!("{} bytes behind it", frame.len() - length)).into());
        }
        self.assembler.push(&view).map_err(|error| bad(&error))?;
        self.frame_count += 1;
        Ok(())
    }

    /// The filter and its newest slice of time, if nothing of it is missing.
    pub(super) fn finish(self) -> Result<(AnyFilter, Option<u64>)> {
        let finished = self.assembler.finish();
        let whole = finished.map_err(|error| PartError::BadFrame { what: error.to_string() })?;
        Ok((whole, self.newest_slice))
    }
}
