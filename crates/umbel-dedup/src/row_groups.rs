//! Parquet inputs. Each row group is a chunk, each row a record.
//!
//! A job may have more files than a process may have open, so a few remain open, and the others are opened
//! again when they are read. Their footers must then be unchanged.

use super::inputs::Source;
use super::turns::lock;
use crate::error::{Context, Result, bail};
use std::collections::VecDeque;
use std::sync::{Arc, Mutex};
use umbel_records::{ContentDigest, ParquetFile, ParquetSelection};

/// Most files that remain open: threads read neighbouring chunks, which mostly belong to few files.
const OPEN_FILES: usize = 16;

/// A Parquet input, as opened at the start of the job.
#[derive(Debug)]
pub(crate) struct RowGroups {
    /// The number of the input, by which its open file is known: names in messages, which are UTF-8, may be equal for
    /// different files, and a pipe has no path.
    input: usize,
    /// Its row groups in order.
    pub(crate) groups: Vec<RowGroup>,
    /// The columns that items are made of, and that rows are ranked by.
    pub(crate) selection: ParquetSelection,
    footer: ContentDigest,
    recent: Arc<RecentFiles>,
}

/// Sizes of a row group.
#[derive(Debug, Clone, Copy)]
pub(crate) struct RowGroup {
    /// Rows.
    pub(crate) rows: u64,
    /// Bytes in the file.
    pub(crate) stored_bytes: u64,
    /// Bytes after decompression.
    pub(crate) unpacked_bytes: u64,
}

/// The files that were used most recently, open, each with the number of its input.
#[derive(Debug, Default)]
pub(super) struct RecentFiles(Mutex<VecDeque<(usize, ParquetFile)>>);

impl RowGroups {
    /// The open files of the input with this number and footer.
    pub(super) fn new(
        input: usize,
        groups: Vec<RowGroup>,
        selection: ParquetSelection,
        footer: ContentDigest,
        recent: Arc<RecentFiles>,
    ) -> Self {
        Self { input, groups, selection, footer, recent }
    }

    /// The file, open.
    ///
    /// # Errors
    ///
    /// If it cannot be read, or is not the same file as at the start.
    pub(crate) fn open(&self, source: &Source) -> Result<ParquetFile> {
        let recent = lock(&self.recent.0).iter().find(|(input, _)| *input == self.input).cloned();
        if let Some((_, file)) = recent {
            return Ok(file);
        }
        let file = ParquetFile::open(source.open()?).with_context(|| source.name.clone())?;
        if file.footer_digest() != self.footer {
            bail!("{}: the file was changed while it was read; run the job again", source.name);
        }
        self.remember(&file);
        Ok(file)
    }

    /// Keeps a file open, because it is read next.
    pub(super) fn remember(&self, file: &ParquetFile) {
        let mut recent = lock(&self.recent.0);
        if recent.len() == OPEN_FILES {
            recent.pop_front();
        }
        recent.push_back((self.input, file.clone()));
    }
}
