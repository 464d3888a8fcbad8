//! The order in which a worker exchanges cells, and how many are open at a time.
//!
//! *Segment* s consists of cell number s of every owner. All workers open the cells in the same order: the
//! first segment, then the second, and so on. A worker opens a cell if its segment is at most a few segments
//! after that of its oldest open cell; a cell that the worker owns is open until all workers have sent their
//! entries. So all workers, even one without entries, are within a few segments of each other, which bounds
//! what an owner must store of cells that it has not opened itself. There is no deadlock: the first undecided
//! cell in the order is open, or is the next one to open, at every worker.

use super::super::plan::JobShape;
use super::cell_set::CellSet;
use std::collections::BTreeSet;

/// Segments that a window spans: entries of one are sent while the one before is decided.
const SEGMENTS_OPEN: u64 = 2;

/// The window of one task. Several tasks of a worker exchange cells at the same time; of n tasks, task t
/// exchanges the segments s with s mod n = t.
///
/// ```
/// use umbel_dedup_engine::{JobShape, Exactness, Keep, job::{CellSet, CellWindow}};
/// let shape = JobShape { workers: 2, cells_per_owner: 4, exactness: Exactness::Fingerprint, keep: Keep::First,
///                        report_kept: false, item_bytes_mean: 0.0 };
/// let mut window = CellWindow::new(shape, 0, 1, &CellSet::new(8));
/// // Owner 0 has cells 0 to 3, owner 1 cells 4 to 7.
/// let first: Vec<_> = std::iter::from_fn(|| window.open()).collect();
/// assert_eq!(first, [0, 4, 1, 5]);
/// window.close(4);
/// assert_eq!(window.open(), None); // cell 0 is still open
/// window.close(0);
/// assert_eq!(window.open(), Some(2));
/// ```
#[derive(Debug)]
pub struct CellWindow {
    shape: JobShape,
    decided: CellSet,
    /// Index of the next cell in the order of this task's cells.
    next: u64,
    task: u32,
    task_count: u32,
    /// Segment and number of the open cells.
    open: BTreeSet<(u64, u32)>,
}

impl CellWindow {
    /// The window of task `task` of `task_count` (at least 1), which skips the decided cells.
    #[must_use]
    pub fn new(shape: JobShape, task: u32, task_count: u32, decided: &CellSet) -> Self {
        let (decided, open) = (decided.clone(), BTreeSet::new());
        Self { shape, decided, next: 0, task, task_count: task_count.max(1), open }
    }

    /// The task, of `task_count`, that exchanges a cell.
    #[must_use]
    pub fn task_of(shape: JobShape, cell: u32, task_count: u32) -> u32 {
        cell % shape.cells_per_owner % task_count.max(1)
    }

    /// Opens the next cell; `None` while enough are open, or after the last one.
    pub fn open(&mut self) -> Option<u32> {
        let workers = u64::from(self.shape.workers);
        loop {
            let round = self.next / workers;
            let segment = round * u64::from(self.task_count) + u64::from(self.task);
            let oldest = self.open.first().map_or(segment, |&(segment, _)| segment);
            let end = oldest.saturating_add(SEGMENTS_OPEN * u64::from(self.task_count));
            if segment >= end.min(u64::from(self.shape.cells_per_owner)) {
                return None;
            }
            let owner = self.next % workers;
            self.next += 1;
            let cell = owner * u64::from(self.shape.cells_per_owner) + segment;
            let cell = u32::try_from(cell).unwrap_or(u32::MAX); // A job has at most 2^20 cells.
            if !self.decided.contains(cell) {
                self.open.insert((segment, cell));
                return Some(cell);
            }
        }
    }

    /// Closes a cell: it is decided or waits for items, and if the worker owns it, all workers have sent their entries.
    pub fn close(&mut self, cell: u32) {
        let segment = u64::from(cell % self.shape.cells_per_owner);
        self.open.remove(&(segment, cell));
    }

    /// Whether all cells were opened and none is open.
    #[must_use]
    pub fn is_done(&self) -> bool {
        let rounds = u64::from(self.shape.cells_per_owner)
            .saturating_sub(u64::from(self.task))
            .div_ceil(u64::from(self.task_count));
        self.open.is_empty() && self.next >= rounds * u64::from(self.shape.workers)
    }
}

#[cfg(test)]
mod tests {
    use super::super::super::entry::Keep;
    use super::super::super::plan::Exactness;
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn tasks_together_open_every_undecided_cell_once(
            workers in 1u32..6,
            cells_per_owner in 1u32..20,
            task_count in 1u32..5,
            decided in proptest::collection::btree_set(0u32..100, 0..40),
        ) {
            let shape = JobShape {
                workers, cells_per_owner, exactness: Exactness::Fingerprint, keep: Keep::First,
                report_kept: false, item_bytes_mean: 0.0,
            };
            let cells = workers * cells_per_owner;
            let mut skip = CellSet::new(cells);
            decided.iter().for_each(|&cell| skip.insert(cell));
            let mut seen = Vec::new();
            for task in 0..task_count {
                let mut window = CellWindow::new(shape, task, task_count, &skip);
                while let Some(cell) = window.open() {
                    prop_assert_eq!(CellWindow::task_of(shape, cell, task_count), task);
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
