//! Pages between the crate's page reader and its decoders: checks the sizes by which decoders allocate,
//! and passes over pages without values.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use parquet::basic::Encoding;
use parquet::column::page::{Page, PageMetadata, PageReader};
use parquet::errors::{ParquetError as CrateError, Result as CrateResult};
use parquet::file::metadata::ColumnChunkMetaData;
use parquet::file::serialized_reader::SerializedPageReader;

use super::page_head::PAGE_BYTES_MAX;
use super::stored_column::StoredColumn;
use super::thrift::varint;

/// Most bytes of pages that one batch of rows may take: a dictionary and a data page, each of the
/// largest size. Batches are so small that ordinary columns stay far below.
const BATCH_PAGE_BYTES_MAX: u64 = 2 * PAGE_BYTES_MAX;

/// Most levels that one batch of rows may take if rows are lists: 2^26, which is 256 MiB of levels.
/// Runs of equal levels take almost no bytes in a page, so the page's size does not limit them.
const BATCH_LEVELS_MAX: u64 = 1 << 26;

/// Most values of a page whose lengths are decoded at once: 2^24, which is 64 MiB of lengths. Writers
/// end a page at 20,000 rows or one mebibyte.
const DELTA_VALUES_MAX: u32 = 1 << 24;

/// Largest page of values that share a prefix with the previous value: 16 MiB. Each value may take as
/// much memory as the whole page.
const PREFIX_PAGE_BYTES_MAX: usize = 16 << 20;

/// What the current batch has taken so far; shared by a column and its pages.
#[derive(Debug, Default)]
pub(super) struct BatchUse {
    page_bytes: AtomicU64,
    levels: AtomicU64,
}

impl BatchUse {
    /// Begins a new batch.
    pub(super) fn reset(&self) {
        self.page_bytes.store(0, Ordering::Relaxed);
        self.levels.store(0, Ordering::Relaxed);
    }
}

/// The pages of a column chunk.
pub(super) struct CheckedPages {
    pages: SerializedPageReader<StoredColumn>,
    levels: (i16, i16),
    /// Whether, according to the footer, values may share a prefix with the previous one.
    has_prefixes: bool,
    batch: Arc<BatchUse>,
}

impl CheckedPages {
    pub(super) fn new(
        stored: StoredColumn,
        chunk: &ColumnChunkMetaData,
        rows: usize,
        batch: Arc<BatchUse>,
    ) -> CrateResult<Self> {
        let pages = SerializedPageReader::new(Arc::new(stored), chunk, rows, None)?;
        let column = chunk.column_descr();
        let levels = (column.max_rep_level(), column.max_def_level());
        Ok(Self { pages, levels, has_prefixes: has_prefixes(chunk), batch })
    }

    fn check(&self, page: &Page) -> CrateResult<()> {
        let page_bytes = page.buffer().len() as u64;
        let total = self.batch.page_bytes.fetch_add(page_bytes, Ordering::Relaxed) + page_bytes;
        if total > BATCH_PAGE_BYTES_MAX {
            return Err(refused("few rows take more pages than any honest file needs"));
        }
        let values = page.num_values();
        if !page.is_data_page() {
            // Every value of a dictionary takes at least one byte, except for a single empty value.
            let is_sound = u64::from(values) <= page_bytes.max(1);
            return if is_sound {
                Ok(())
            } else {
                Err(refused("the dictionary is shorter than it claims"))
            };
        }
        if self.levels.0 > 0 {
            let levels = u64::from(values);
            let total = self.batch.levels.fetch_add(levels, Ordering::Relaxed) + levels;
            if total > BATCH_LEVELS_MAX {
                return Err(refused("few rows hold more list elements than any honest file has"));
            }
        }
        match page.encoding() {
            Encoding::DELTA_LENGTH_BYTE_ARRAY | Encoding::DELTA_BYTE_ARRAY => {
                self.check_delta(page)
            }
            _ => Ok(()),
        }
    }

    /// Lengths are decoded at once, and their number is written inside the page.
    fn check_delta(&self, page: &Page) -> CrateResult<()> {
        let values = page.num_values();
        if values > DELTA_VALUES_MAX {
            return Err(refused("a page claims more values than any honest page has"));
        }
        let lying = || refused("the lengths of values do not fit their page");
        let data = value_bytes(page, self.levels).ok_or_else(lying)?;
        let has_prefixes = page.encoding() == Encoding::DELTA_BYTE_ARRAY;
        let first = delta_bytes(data, values).ok_or_else(lying)?;
        if has_prefixes {
            if !self.has_prefixes || page.buffer().len() > PREFIX_PAGE_BYTES_MAX {
                return Err(refused("a page of shared beginnings is unannounced or too large"));
            }
            delta_bytes(&data[first..], values).ok_or_else(lying)?;
        }
        Ok(())
    }
}

fn refused(detail: &str) -> CrateError {
    CrateError::General(detail.to_owned())
}

/// Whether a column chunk may have values that share a prefix with the previous one.
pub(super) fn has_prefixes(chunk: &ColumnChunkMetaData) -> bool {
    chunk.encodings().any(|encoding| encoding == Encoding::DELTA_BYTE_ARRAY)
}

/// The values of a data page, behind its levels.
fn value_bytes(page: &Page, (max_rep, max_def): (i16, i16)) -> Option<&[u8]> {
    let mut data: &[u8] = page.buffer();
    match page {
        Page::DataPage { num_values, def_level_encoding, rep_level_encoding, .. } => {
            for (max, encoding) in [(max_rep, rep_level_encoding), (max_def, def_level_encoding)] {
                if max == 0 {
                    continue;
                }
                if *encoding == Encoding::RLE {
                    let length = u32::from_le_bytes(*data.split_off(..4)?.first_chunk()?);
                    data.split_off(..usize::try_from(length).ok()?)?;
                } else {
                    let bits = u64::from(16 - max.cast_unsigned().leading_zeros());
                    let bytes = (bits * u64::from(*num_values)).div_ceil(8);
                    data.split_off(..usize::try_from(bytes).ok()?)?;
                }
            }
        }
        Page::DataPageV2 { def_levels_byte_len, rep_levels_byte_len, .. } => {
            let levels = u64::from(*def_levels_byte_len) + u64::from(*rep_levels_byte_len);
            data.split_off(..usize::try_from(levels).ok()?)?;
        }
        Page::DictionaryPage { .. } => {}
    }
    Some(data)
}

/// Length in bytes of the packed integers at the start of `data`; `None` if there are more than
/// `count_max`, or if they exceed `data`.
///
/// ```text
/// block size | miniblocks a block | count | first | blocks: least delta, a width a miniblock, bits
///    vlq     |        vlq         |  vlq  |  vlq  |             vlq      ,        u8
/// ```
fn delta_bytes(data: &[u8], count_max: u32) -> Option<usize> {
    let mut rest = data;
    let block_values = varint(&mut rest)?;
    let blocks = varint(&mut rest)?;
    let count = varint(&mut rest)?;
    varint(&mut rest)?;
    if count > u64::from(count_max) || blocks == 0 || !block_values.is_multiple_of(blocks) {
        return None;
    }
    let values = block_values / blocks;
    let mut left = count.saturating_sub(1);
    if left > 0 && values == 0 {
        return None;
    }
    while left > 0 {
        varint(&mut rest)?;
        let widths = rest.split_off(..usize::try_from(blocks).ok()?)?;
        for &width in widths {
            if left == 0 {
                break;
            }
            let bytes = values.checked_mul(u64::from(width))? / 8;
            // The last miniblock may end directly behind its last value.
            let bytes = usize::try_from(bytes).ok()?.min(rest.len());
            rest.split_off(..bytes)?;
            left = left.saturating_sub(values);
        }
    }
    Some(data.len() - rest.len())
}

impl PageReader for CheckedPages {
    fn get_next_page(&mut self) -> CrateResult<Option<Page>> {
        while let Some(page) = self.pages.get_next_page()? {
            self.check(&page)?;
            // The decoder takes a page without values for the end of the column. Arrow's writer makes
            // them in front of the last page of a list.
            if !page.is_data_page() || page.num_values() > 0 {
                return Ok(Some(page));
            }
        }
        Ok(None)
    }

    fn peek_next_page(&mut self) -> CrateResult<Option<PageMetadata>> {
        let is_empty = |page: &PageMetadata| !page.is_dict && page.num_levels == Some(0);
        loop {
            match self.pages.peek_next_page()? {
                Some(page) if is_empty(&page) => self.pages.skip_next_page()?,
                other => return Ok(other),
            }
        }
    }

    fn skip_next_page(&mut self) -> CrateResult<()> {
        self.pages.skip_next_page()
    }
}

impl Iterator for CheckedPages {
    type Item = CrateResult<Page>;

    fn next(&mut self) -> Option<Self::Item> {
        self.get_next_page().transpose()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn packed_integers_are_measured() {
        // 128 values a block, 4 miniblocks, 3 values, first 5; least delta 1, widths 2 0 0 0
        let data = [0x80, 1, 4, 3, 10, 2, 2, 0, 0, 0, 1, 2, 3, 4, 5, 6, 7, 8, 99];
        assert_eq!(delta_bytes(&data, 3), Some(18));
        assert_eq!(delta_bytes(&data, 2), None);
        assert_eq!(delta_bytes(&[0x80, 1, 4, 1, 10, 7], 9), Some(5));
        assert_eq!(delta_bytes(&[0x80, 1, 0, 1, 10, 7], 9), None);
    }
}
