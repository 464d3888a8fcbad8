//! Routes of frames between workers: direct, or over a grid in at most two hops.
//!
//! With p workers a direct exchange has p − 1 connections per worker and p² streams. At a thousand workers that is a
//! thousand buffers per worker, and messages so short that they are mostly headers. The grid has rows of ⌈√p⌉ workers;
//! a worker has connections to the workers of its row and its column. Kurpicz, Mehnert, Sanders, Schimek, "Scalable
//! Distributed String Sorting", ESA 2024, arXiv:2404.16517, use the same exchange on 49,152 cores.
//!
//! ```text
//!         column 0  1  2  3        11 workers: the last row is ragged
//!  row 0         0  1  2  3        from 1 to 8:  along the row to 0, down the column to 8
//!  row 1         4  5  6  7        from 8 to 7:  row 2 has no column 3: up the column to 4, along the row to 7
//!  row 2         8  9 10
//! ```
//!
//! Cost: a relayed frame is sent twice, so the bytes on the wire nearly double. Gain: 2·(√p − 1) connections per
//! worker, and messages that contain the frames of a whole row or column.

use super::entry::WorkerId;
use crate::limits::DIRECT_WORKERS_MAX;

/// How frames reach their receivers.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Route {
    /// Every worker has a connection to every other worker.
    Direct,
    /// Over a grid, in at most two hops.
    Grid,
}

impl Route {
    /// The route of a job with this many workers: the grid above [`DIRECT_WORKERS_MAX`].
    ///
    /// ```
    /// use umbel_dedup_engine::Route;
    /// assert_eq!(Route::for_workers(256), Route::Direct);
    /// assert_eq!(Route::for_workers(257), Route::Grid);
    /// ```
    #[must_use]
    pub const fn for_workers(workers: u32) -> Self {
        if workers > DIRECT_WORKERS_MAX { Self::Grid } else { Self::Direct }
    }
}

/// The rows and columns of a job's workers. A direct exchange is a grid of one row.
///
/// ```
/// use umbel_dedup_engine::{Grid, Route, WorkerId};
/// let grid = Grid::new(11, Route::Grid);
/// assert_eq!(grid.next_hop(WorkerId(1), WorkerId(8)), WorkerId(0));
/// assert_eq!(grid.next_hop(WorkerId(8), WorkerId(7)), WorkerId(4)); // row 2 has no column 3
/// assert_eq!(grid.neighbours(WorkerId(5)).map(|w| w.0).collect::<Vec<_>>(), [1, 4, 6, 7, 9]);
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Grid {
    workers: u16,
    columns: u16,
}

impl Grid {
    /// The grid of a job with this many workers.
    ///
    /// # Panics
    ///
    /// If there is no worker, or more than [`DEDUP_WORKERS_MAX`](crate::limits::DEDUP_WORKERS_MAX): the job's shape
    /// was validated before.
    #[must_use]
    pub fn new(workers: u32, route: Route) -> Self {
        let workers = u16::try_from(workers).expect("a validated number of workers");
        assert!(workers > 0, "a job has a worker");
        let columns = match route {
            Route::Direct => workers,
            Route::Grid => {
                let root = workers.isqrt();
                if root * root < workers { root + 1 } else { root }
            }
        };
        Self { workers, columns }
    }

    /// Number of workers, at least 1.
    #[must_use]
    pub const fn workers(self) -> u32 {
        self.workers as u32
    }

    /// Row and column of a worker.
    const fn cell(self, worker: WorkerId) -> (u16, u16) {
        (worker.0 / self.columns, worker.0 % self.columns)
    }

    /// The worker in this row and column, if there is one: the last row may be short.
    fn at(self, row: u16, column: u16) -> Option<WorkerId> {
        let worker = row.checked_mul(self.columns)?.checked_add(column)?;
        (worker < self.workers).then_some(WorkerId(worker))
    }

    /// Whether two workers have a connection: they share a row or a column. A worker is its own neighbour.
    #[must_use]
    pub fn are_neighbours(self, a: WorkerId, b: WorkerId) -> bool {
        let (a, b) = (self.cell(a), self.cell(b));
        a.0 == b.0 || a.1 == b.1
    }

    /// The worker that forwards frames between two workers; `None` if they are neighbours. It is in the sender's row and
    /// the receiver's column, or, if the sender's row is too short for that, in the receiver's row and the sender's column.
    ///
    /// # Panics
    ///
    /// If there is no such worker, it may panic.
    #[must_use]
    pub fn relay(self, from: WorkerId, to: WorkerId) -> Option<WorkerId> {
        if self.are_neighbours(from, to) {
            return None;
        }
        let ((from_row, from_column), (to_row, to_column)) = (self.cell(from), self.cell(to));
        let relay = self.at(from_row, to_column).or_else(|| self.at(to_row, from_column));
        Some(relay.expect("only the last row is short, and two workers in it are neighbours"))
    }

    /// The worker to which `me` sends a frame for `to`.
    ///
    /// # Panics
    ///
    /// As [`Grid::relay`].
    #[must_use]
    pub fn next_hop(self, me: WorkerId, to: WorkerId) -> WorkerId {
        self.relay(me, to).unwrap_or(to)
    }

    /// The workers that a worker has connections to, ascending, without itself.
    pub fn neighbours(self, me: WorkerId) -> impl Iterator<Item = WorkerId> {
        let all = (0..self.workers).map(WorkerId);
        all.filter(move |&other| other != me && self.are_neighbours(me, other))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sizes() -> impl Iterator<Item = u32> {
        (1..=300).chain(1_000..=1_024)
    }

    fn ids(workers: u32) -> impl Iterator<Item = WorkerId> + Clone {
        (0..u16::try_from(workers).unwrap()).map(WorkerId)
    }

    /// Follows the routes from these senders to all workers: at most two hops, each of them a connection.
    /// Returns for each worker the number of pairs that it relays.
    fn walk(workers: u32, senders: impl Iterator<Item = WorkerId>) -> Vec<u32> {
        let grid = Grid::new(workers, Route::Grid);
        let mut relayed = vec![0u32; workers as usize];
        for from in senders {
            for to in ids(workers) {
                let hop = grid.next_hop(from, to);
                if hop != to {
                    assert_ne!(hop, from, "p = {workers}: {from:?} hands on to itself");
                    assert!(grid.are_neighbours(from, hop) && grid.are_neighbours(hop, to));
                    relayed[hop.index()] += 1;
                }
            }
        }
        relayed
    }

    #[test]
    fn every_pair_meets_in_two_hops() {
        for workers in sizes() {
            // Of the largest, every 13th sender: these are in all columns and all rows.
            walk(workers, ids(workers).step_by(if workers > 300 { 13 } else { 1 }));
        }
    }

    #[test]
    fn nobody_relays_much_more_than_others() {
        for workers in (1..=200).chain([257, 300, 1_000, 1_023]) {
            let relayed = walk(workers, ids(workers));
            let sum: u32 = relayed.iter().sum();
            let mean = f64::from(sum) / f64::from(workers);
            let max = f64::from(relayed.into_iter().max().unwrap());
            // A last row of one worker weighs on its column where there are few others.
            let allowed = if workers < 8 { 3.0 } else { 2.0 };
            assert!(max <= allowed * mean, "p = {workers}: {max} of {mean}");
        }
    }

    #[test]
    fn neighbours_are_mutual_and_few() {
        for workers in sizes() {
            let grid = Grid::new(workers, Route::Grid);
            for me in ids(workers).step_by(7) {
                let neighbours: Vec<_> = grid.neighbours(me).collect();
                assert!(
                    neighbours.len() as f64 <= 2.0 * f64::from(workers).sqrt(),
                    "p = {workers}"
                );
                assert!(neighbours.iter().all(|&other| grid.are_neighbours(other, me)));
            }
        }
    }

    #[test]
    fn a_direct_exchange_has_no_relay() {
        let grid = Grid::new(100, Route::Direct);
        assert_eq!(grid.next_hop(WorkerId(3), WorkerId(77)), WorkerId(77));
        assert_eq!(grid.neighbours(WorkerId(3)).count(), 99);
    }
}
