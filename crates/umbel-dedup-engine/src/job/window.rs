//! Which cells a worker has under way.
//!
//! All workers take the cells in one order: the first segment of every owner, then the second of every owner. A worker
//! opens a cell only if its segment is near that of the first cell that it still has under way, and a cell that it owns
//! itself is under way until all workers have sent theirs. So all workers stay within a window of each other, even one
//! that has nothing to send, and what an owner must hold of cells that it has not come to itself is bounded. Nobody
//! waits for ever: the first unsettled cell in the order is open, or opens next, at everybody.

use super::super::plan::JobShape;
use super::cell_set::CellSet;
use std::collections::BTreeSet;

/// Segments of every owner that a window spans: one that is settled while the next one is sent.
const SEGMENTS_OPEN: u64 = 2;

/// The window of one lane: a lane takes every `lanes`-th segment.
///
/// ```
/// use umbel_dedup_engine::{JobShape, Keep, Level, job::{CellSet, CellWindow}};
/// let shape = JobShape { workers: 2, cells_per_owner: 4, level: Level::Fingerprint, keep: Keep::First,
///                        report_kept: false, item_bytes_mean: 0.0 };
/// let mut window = CellWindow::new(shape, 0, 1, &CellSet::new(8));
/// // Owner 0 has cells 0 to 3, owner 1 cells 4 to 7.
/// let first: Vec<_> = std::iter::from_fn(|| window.open()).collect();
/// assert_eq!(first, [0, 4, 1, 5]);
/// window.close(4);
/// assert_eq!(window.open(), None); // cell 0 is still under way
/// window.close(0);
/// assert_eq!(window.open(), Some(2));
/// ```
#[derive(Debug)]
pub struct CellWindow {
    shape: JobShape,
    settled: CellSet,
    /// Step in the order, counted over the lane's own segments.
    next: u64,
    lane: u32,
    lanes: u32,
    /// Segment and cell.
    open: BTreeSet<(u64, u32)>,
}

impl CellWindow {
    /// The window of lane `lane` of `lanes` (at least 1), which passes over the settled cells.
    #[must_use]
    pub fn new(shape: JobShape, lane: u32, lanes: u32, settled: &CellSet) -> Self {
        let (settled, open) = (settled.clone(), BTreeSet::new());
        Self { shape, settled, next: 0, lane, lanes: lanes.max(1), open }
    }

    /// The lane that a cell belongs to, of `lanes`.
    #[must_use]
    pub fn lane_of(shape: JobShape, cell: u32, lanes: u32) -> u32 {
        cell % shape.cells_per_owner % lanes.max(1)
    }

    /// The next cell to begin; `None` while enough are under way, or if all have begun.
    pub fn open(&mut self) -> Option<u32> {
        let workers = u64::from(self.shape.workers);
        loop {
            let round = self.next / workers;
            let segment = round * u64::from(self.lanes) + u64::from(self.lane);
            let oldest = self.open.first().map_or(segment, |&(segment, _)| segment);
            let end = oldest.saturating_add(SEGMENTS_OPEN * u64::from(self.lanes));
            if segment >= end.min(u64::from(self.shape.cells_per_owner)) {
                return None;
            }
            let owner = self.next % workers;
            self.next += 1;
            let cell = owner * u64::from(self.shape.cells_per_owner) + segment;
            let cell = u32::try_from(cell).unwrap_or(u32::MAX); // A job has at most 2^20 cells.
            if !self.settled.contains(cell) {
                self.open.insert((segment, cell));
                return Some(cell);
            }
        }
    }

    /// A cell is under way no more: it is settled or waits for something else, and if it is the worker's own, all
    /// workers have sent theirs.
    pub fn close(&mut self, cell: u32) {
        let segment = u64::from(cell % self.shape.cells_per_owner);
        self.open.remove(&(segment, cell));
    }

    /// Whether all cells have begun and none is under way.
    #[must_use]
    pub fn is_done(&self) -> bool {
        let rounds = u64::from(self.shape.cells_per_owner)
            .saturating_sub(u64::from(self.lane))
            .div_ceil(u64::from(self.lanes));
        self.open.is_empty() && self.next >= rounds * u64::from(self.shape.workers)
    }
}

#[cfg(test)]
mod tests {
    use super::super::super::entry::Keep;
    use super::super::super::plan::Level;
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn lanes_together_open_every_unsettled_cell_once(
            workers in 1u32..6,
            cells_per_owner in 1u32..20,
            lanes in 1u32..5,
            settled in proptest::collection::btree_set(0u32..100, 0..40),
        ) {
            let shape = JobShape {
                workers, cells_per_owner, level: Level::Fingerprint, keep: Keep::First,
                report_kept: false, item_bytes_mean: 0.0,
            };
            let cells = workers * cells_per_owner;
            let mut skip = CellSet::new(cells);
            settled.iter().for_each(|&cell| skip.insert(cell));
            let mut seen = Vec::new();
            for lane in 0..lanes {
                let mut window = CellWindow::new(shape, lane, lanes, &skip);
                while let Some(cell) = window.open() {
                    prop_assert_eq!(CellWindow::lane_of(shape, cell, lanes), lane);
                    prop_assert!(!window.is_done());
                    window.close(cell);
                    seen.push(cell);
                }
                prop_assert!(window.is_done());
            }
            seen.sort_unstable();
            let expected: Vec<u32> = (0..cells).filter(|&cell| !skip.contains(cell)).collect();
            prop_assert_eq!(seen, expected);
        }
    }
}
