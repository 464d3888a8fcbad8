//! Parquet inputs: their row groups are chunks, their rows places.
//!
//! A job may have more files than a process may hold open, so only a few stay open; the others are opened again, and must
//! have the same footer.

use super::inputs::Source;
use super::turns::lock;
use crate::error::{Context, Result, bail};
use std::collections::VecDeque;
use std::sync::{Arc, Mutex};
use umbel_records::{ContentDigest, ParquetFile, ParquetSelection};

/// Files that stay open: several threads read neighbouring chunks, which are mostly of few files.
const OPEN_FILES: usize = 16;

/// What is known of a Parquet input from the start.
#[derive(Debug)]
pub(crate) struct RowGroups {
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
    /// Bytes once unpacked.
    pub(crate) unpacked_bytes: u64,
}

/// Files that were used last.
#[derive(Debug, Default)]
pub(super) struct RecentFiles(Mutex<VecDeque<(String, ParquetFile)>>);

impl RowGroups {
    /// Those of a file with this footer.
    pub(super) fn new(
        groups: Vec<RowGroup>,
        selection: ParquetSelection,
        footer: ContentDigest,
        recent: Arc<RecentFiles>,
    ) -> Self {
        Self { groups, selection, footer, recent }
    }

    /// The file, open.
    ///
    /// # Errors
    ///
    /// If it cannot be read, or is not the one that was there at the start.
    pub(crate) fn open(&self, source: &Source) -> Result<ParquetFile> {
        let recent = lock(&self.recent.0).iter().find(|(name, _)| *name == source.name).cloned();
        if let Some((_, file)) = recent {
            return Ok(file);
        }
        let file = ParquetFile::open(source.open()?).with_context(|| source.name.clone())?;
        if file.footer_digest() != self.footer {
            bail!("{}: the file was changed while it was read; run the job again", source.name);
        }
        self.remember(source, &file);
        Ok(file)
    }

    /// Keeps a file open, for it is read next.
    pub(super) fn remember(&self, source: &Source, file: &ParquetFile) {
        let mut recent = lock(&self.recent.0);
        if recent.len() == OPEN_FILES {
            recent.pop_front();
        }
        recent.push_back((source.name.clone(), file.clone()));
    }
}
