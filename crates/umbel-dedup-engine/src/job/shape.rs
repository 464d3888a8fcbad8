//! The number of cells of a job, from its workers' forecasts.

use super::super::entry::Keep;
use super::super::plan::{Exactness, JobShape};
use super::coordinator::JobRules;
use super::messages::Forecast;
use crate::limits::DEDUP_CELLS_MAX;

/// Target number of entries of all workers in one cell: a few megabytes, which fit into the cache.
const CELL_ENTRIES: u64 = 1 << 16;

/// Fewest entries of one worker in one cell: with fewer, frame headers would be a notable part of the bytes.
const STREAM_ENTRIES_MIN: u64 = 1 << 12;

/// Most cells, unless memory requires more: a run has 2^18 entries, and parts of fewer than 64 entries per cell would be
/// slow to read from disk.
const CELLS_MAX: u64 = 1 << 12;

/// Bytes of memory per entry during the exchange of its cell: read, sorted, encoded and compared.
const CELL_BYTES_PER_ENTRY: u64 = 96;

/// The same for entries with ranks: a third more.
const RANKED_CELL_BYTES_PER_ENTRY: u64 = 128;

/// Copies of an item's content while its cell is compared: as read, in a frame, and as an item.
const ITEM_COPIES: u64 = 3;

/// Further bytes that an item takes there besides its content: hash, record id, rank, spare capacity of a
/// list, two allocations.
const ITEM_BYTES_BESIDE_CONTENT: u64 = 128;

/// One cell may take a worker's memory divided by this.
const CELL_MEMORY_SHARE: u64 = 16;

/// What the number of cells of a job depends on.
///
/// ```
/// use umbel_dedup_engine::{Keep, job::CellLoad};
/// let (records, keep) = (1 << 21, Keep::First);
/// let load = CellLoad { records, compared: records, items_bytes: 0, memory_bytes: 1 << 30, keep };
/// // Cells of 2^16 records.
/// assert_eq!(load.cells_per_owner(2), 16);
/// // 96 bytes a record in cells of 4 MiB.
/// assert_eq!(CellLoad { memory_bytes: 64 << 20, ..load }.cells_per_owner(2), 32);
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct CellLoad {
    /// Records of all workers.
    pub records: u64,
    /// Records and references.
    pub compared: u64,
    /// Bytes of the items that are compared, with what holds them; 0 below exactness `bytes`.
    pub items_bytes: u64,
    /// Memory of the worker that has the least.
    pub memory_bytes: u64,
    /// Which one is kept of equal records: for the best, entries have ranks.
    pub keep: Keep,
}

impl CellLoad {
    /// Cells of each worker: small enough for the cache and the memory, large enough for frames.
    #[must_use]
    pub fn cells_per_owner(self, workers: u32) -> u32 {
        let wanted = u64::from(workers.max(1));
        let by_stream = self.records / (wanted * STREAM_ENTRIES_MIN);
        let mut cells = (self.records / CELL_ENTRIES).min(by_stream).min(CELLS_MAX);
        // More cells if these would be too large for the memory.
        let cell_bytes_max = (self.memory_bytes / CELL_MEMORY_SHARE).max(1);
        let per_entry = match self.keep {
            Keep::Best => RANKED_CELL_BYTES_PER_ENTRY,
            Keep::First | Keep::Last => CELL_BYTES_PER_ENTRY,
        };
        cells = cells.max(self.compared.saturating_mul(per_entry) / cell_bytes_max);
        cells = cells.max(self.items_bytes / cell_bytes_max);
        let cells_max = u64::from(DEDUP_CELLS_MAX);
        let per_owner = (cells / wanted).max(1).min(cells_max).next_power_of_two();
        u32::try_from(per_owner.min((cells_max / wanted).max(1))).unwrap_or(u32::MAX)
    }
}

/// The shape of a job with these forecasts: cells are small enough for the cache and for the worker with the
/// least memory; at exactness `bytes`, together with the items to compare.
///
/// ```
/// use umbel_dedup_engine::{FilterChoice, Exactness, Keep, job::{Forecast, JobRules, shape_for}};
/// let rules = JobRules { exactness: Exactness::Fingerprint, keep: Keep::First, report_kept: false,
///                        report_sizes: false, names_parts: false,
///                        choice: FilterChoice::Auto, bad_max: 0, adds: false };
/// let forecast = Forecast { records: 1 << 20, memory_bytes: 1 << 30, ..Forecast::default() };
/// // 2^21 records in cells of 2^16 are 32 cells, 16 per owner.
/// assert_eq!(shape_for(rules, &[forecast; 2]).cells_per_owner, 16);
/// ```
#[must_use]
pub fn shape_for(rules: JobRules, forecasts: &[Forecast]) -> JobShape {
    let workers = u32::try_from(forecasts.len()).unwrap_or(u32::MAX).max(1);
    let sum = |part: fn(&Forecast) -> u64| forecasts.iter().map(part).fold(0, u64::saturating_add);
    let (records, content_bytes) = (sum(|f| f.records), sum(|f| f.content_bytes));
    let memory_bytes = forecasts.iter().map(|f| f.memory_bytes).min().unwrap_or(0);
    let known = forecasts.first().and_then(|forecast| forecast.references);
    let compared = records.saturating_add(known.map_or(0, |known| known.shape.entries));
    let copies_bytes = content_bytes.saturating_mul(ITEM_COPIES);
    let items_bytes = match rules.exactness {
        Exactness::Bytes => {
            records.saturating_mul(ITEM_BYTES_BESIDE_CONTENT).saturating_add(copies_bytes)
        }
        Exactness::Fingerprint | Exactness::Approximate { .. } => 0,
    };
    let load = CellLoad { records, compared, items_bytes, memory_bytes, keep: rules.keep };
    JobShape {
        workers,
        cells_per_owner: load.cells_per_owner(workers),
        exactness: rules.exactness,
        keep: rules.keep,
        report_kept: rules.report_kept,
        item_bytes_mean: content_bytes as f64 / records.max(1) as f64,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::FilterChoice;

    /// The cells per owner of two workers, each with a million records of 67 bytes and 64 MiB of memory.
    fn cells_per_owner(exactness: Exactness) -> u32 {
        let rules = JobRules {
            exactness,
            keep: Keep::First,
            report_kept: false,
            report_sizes: false,
            names_parts: false,
            choice: FilterChoice::Auto,
            bad_max: 0,
            adds: false,
        };
        let records = 1 << 20;
        let forecast = Forecast {
            records,
            content_bytes: 67 * records,
            memory_bytes: 64 << 20,
            ..Forecast::default()
        };
        shape_for(rules, &[forecast; 2]).cells_per_owner
    }

    #[test]
    fn items_that_are_compared_are_counted_with_what_holds_them() {
        // 96 bytes an entry, 2^21 entries: 192 MiB in cells of 4 MiB are 48, 24 an owner, rounded up to a
        // power of two.
        assert_eq!(cells_per_owner(Exactness::Fingerprint), 32);
        // 3 * 67 + 128 bytes an item: 658 MiB in cells of 4 MiB are 164, 82 an owner, rounded up likewise.
        assert_eq!(cells_per_owner(Exactness::Bytes), 128);
    }
}
