//! External sorting of rows of a few words, in bounded memory.
//!
//! Rows are gathered and sorted in memory; when they fill it, they are written to the scratch file as a run. Reading merges
//! the runs, with one block of each in memory, and can be repeated.

use super::segments::SegmentFile;
use super::spill::ScratchFile;
use crate::error::Result;
use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::sync::Arc;

/// Least memory for rows: with less there would be many runs with small blocks.
const MEMORY_BYTES_MIN: u64 = 4 << 20;

/// Most bytes of a run that are read at once: enough for sequential speed on any disk.
const BLOCK_BYTES_MAX: usize = 256 << 10;

/// Fewest bytes of a run that are read at once: with less than a page, seeks dominate.
const BLOCK_BYTES_MIN: usize = 4 << 10;

/// Takes rows in any order.
pub(crate) struct RowSorter<const WORDS: usize> {
    rows: Vec<[u64; WORDS]>,
    memory_bytes: u64,
    runs: Vec<Run>,
    scratch: Arc<ScratchFile>,
}

/// Sorted rows in the scratch file.
#[derive(Clone, Copy)]
struct Run {
    offset: u64,
    bytes: u64,
}

impl<const WORDS: usize> RowSorter<WORDS> {
    const ROW_BYTES: usize = 8 * WORDS;

    /// A sorter that takes this much memory and writes further rows to the scratch file.
    pub(crate) fn new(memory_bytes: u64, scratch: &Arc<ScratchFile>) -> Self {
        let memory_bytes = memory_bytes.max(MEMORY_BYTES_MIN);
        Self { rows: Vec::new(), memory_bytes, runs: Vec::new(), scratch: Arc::clone(scratch) }
    }

    /// Adds a row.
    pub(crate) fn push(&mut self, row: [u64; WORDS]) -> Result<()> {
        self.rows.push(row);
        if (self.rows.len() * Self::ROW_BYTES) as u64 >= self.memory_bytes {
            self.spill()?;
        }
        Ok(())
    }

    fn spill(&mut self) -> Result<()> {
        self.rows.sort_unstable();
        let bytes: Vec<u8> =
            self.rows.iter().flatten().flat_map(|word| word.to_le_bytes()).collect();
        let offset = self.scratch.append(&bytes)?;
        self.runs.push(Run { offset, bytes: bytes.len() as u64 });
        self.rows.clear();
        Ok(())
    }

    /// Ends the input.
    pub(crate) fn finish(mut self) -> Result<SortedRows<WORDS>> {
        if self.runs.is_empty() {
            self.rows.sort_unstable();
        } else if !self.rows.is_empty() {
            self.spill()?;
            self.rows = Vec::new();
        }
        let Self { rows, memory_bytes, runs, scratch } = self;
        Ok(SortedRows { rows, memory_bytes, runs, scratch })
    }
}

/// Sorted rows, in memory or in runs on disk.
pub(crate) struct SortedRows<const WORDS: usize> {
    rows: Vec<[u64; WORDS]>,
    memory_bytes: u64,
    runs: Vec<Run>,
    scratch: Arc<ScratchFile>,
}

impl<const WORDS: usize> SortedRows<WORDS> {
    /// Reads all rows, from the first one.
    pub(crate) fn read(&self) -> Result<RowReader<'_, WORDS>> {
        let share =
            usize::try_from(self.memory_bytes).unwrap_or(usize::MAX) / self.runs.len().max(1);
        let row_bytes = RowSorter::<WORDS>::ROW_BYTES;
        let block_bytes = share.clamp(BLOCK_BYTES_MIN, BLOCK_BYTES_MAX) / row_bytes * row_bytes;
        let mut reader = RowReader {
            rows: self,
            next: 0,
            block_bytes,
            cursors: Vec::new(),
            heap: BinaryHeap::new(),
        };
        for (number, &rest) in self.runs.iter().enumerate() {
            reader.cursors.push(Cursor { rest, block: Vec::new(), at: 0 });
            reader.refill(number)?;
        }
        Ok(reader)
    }
}

/// The reading position in a run.
struct Cursor {
    rest: Run,
    block: Vec<u8>,
    at: usize,
}

/// Reads sorted rows one by one.
pub(crate) struct RowReader<'a, const WORDS: usize> {
    rows: &'a SortedRows<WORDS>,
    /// Index of the next row, if all rows are in memory.
    next: usize,
    block_bytes: usize,
    cursors: Vec<Cursor>,
    /// The next row of each run.
    heap: BinaryHeap<Reverse<([u64; WORDS], usize)>>,
}

impl<const WORDS: usize> RowReader<'_, WORDS> {
    /// The next row in ascending order.
    pub(crate) fn next(&mut self) -> Result<Option<[u64; WORDS]>> {
        if let Some(Reverse((row, run))) = self.heap.pop() {
            self.refill(run)?;
            return Ok(Some(row));
        }
        let row = self.rows.rows.get(self.next).copied();
        self.next += 1;
        Ok(row)
    }

    /// Pushes the next row of a run onto the heap.
    fn refill(&mut self, run: usize) -> Result<()> {
        let cursor = &mut self.cursors[run];
        if cursor.at == cursor.block.len() {
            let bytes = cursor.rest.bytes.min(self.block_bytes as u64);
            cursor.block.resize(usize::try_from(bytes).expect("at most a block"), 0);
            self.rows.scratch.read(cursor.rest.offset, &mut cursor.block)?;
            cursor.rest =
                Run { offset: cursor.rest.offset + bytes, bytes: cursor.rest.bytes - bytes };
            cursor.at = 0;
        }
        let (words, _) = cursor.block[cursor.at..].as_chunks::<8>();
        if let Some((row, _)) = words.split_first_chunk::<WORDS>() {
            cursor.at += RowSorter::<WORDS>::ROW_BYTES;
            self.heap.push(Reverse((row.map(u64::from_le_bytes), run)));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_come_back_in_order_from_memory_and_from_runs() {
        // At most 2^20 different first words, and three different second ones.
        for count in [0u64, 10, 600_000] {
            let scratch = Arc::new(ScratchFile::new(&std::env::temp_dir()));
            let mut sorter = RowSorter::<2>::new(0, &scratch);
            let row = |number: u64| [number.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 44, number % 3];
            (0..count).for_each(|number| sorter.push(row(number)).unwrap());
            let sorted = sorter.finish().unwrap();
            assert_eq!(scratch.bytes() > 0, count > 1000);
            let mut expected: Vec<_> = (0..count).map(row).collect();
            expected.sort_unstable();
            for _ in 0..2 {
                let mut reader = sorted.read().unwrap();
                for &row in &expected {
                    assert_eq!(reader.next().unwrap(), Some(row));
                }
                assert_eq!(reader.next().unwrap(), None);
            }
        }
    }
}
