//! An index that is queried: its head, and a cache of pages with rows.

use anyhow::{Context, Result};
use std::collections::BTreeMap;
use std::fs::File;
use std::io::Read;
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::path::Path;
use umbel_filter::ItemHash;
use umbel_static::sliced::{
    Question, SLICED_HEADER_BYTES, SLICED_MAGIC, SLICED_PAGE_BYTES, SlicedHead,
};

/// Most pages in the cache: 256 MiB.
const PAGES_MAX: usize = 4096;

/// An open index of files.
pub(super) struct OpenIndex {
    name: String,
    file: File,
    head: SlicedHead,
    pages: BTreeMap<u64, Vec<u8>>,
}

/// Whether a file begins with the magic of an index of files; false if it cannot be read.
pub(super) fn is_sliced(path: &Path) -> bool {
    let mut magic = [0; 4];
    let read = File::open(path).and_then(|mut file| file.read_exact(&mut magic));
    read.is_ok() && magic == SLICED_MAGIC
}

impl OpenIndex {
    /// Opens an index and reads its head.
    ///
    /// # Errors
    ///
    /// If it cannot be read, or its head is damaged.
    pub(super) fn open(path: &Path) -> Result<Self> {
        let name = path.display().to_string();
        let file = File::open(path).with_context(|| format!("{name}: cannot open"))?;
        let cannot = || format!("{name}: cannot read");
        let file_bytes = file.metadata().with_context(cannot)?.len();
        let mut head = vec![0; usize::try_from(file_bytes.min(SLICED_HEADER_BYTES as u64))?];
        file.read_exact_at(&mut head, 0).with_context(cannot)?;
        // At most the length of the file.
        let needed = SlicedHead::bytes_needed(&head, file_bytes).with_context(|| name.clone())?;
        head.resize(needed, 0);
        file.read_exact_at(&mut head, 0).with_context(cannot)?;
        let head = SlicedHead::parse(&head, file_bytes).with_context(|| name.clone())?;
        Ok(Self { name, file, head, pages: BTreeMap::new() })
    }

    /// The head of the index.
    pub(super) fn head(&self) -> &SlicedHead {
        &self.head
    }

    /// Reads and checks every page.
    ///
    /// # Errors
    ///
    /// If a page cannot be read or is damaged.
    pub(super) fn check(&self) -> Result<()> {
        let page_count = self.head.matrix_bytes().div_ceil(SLICED_PAGE_BYTES);
        (0..page_count)
            .try_for_each(|page| read_page(&self.file, &self.name, &self.head, page).map(drop))
    }

    /// Queries the index for some items.
    ///
    /// # Errors
    ///
    /// If a page cannot be read or is damaged.
    pub(super) fn query(&mut self, hashes: &[ItemHash]) -> Result<Question> {
        let Self { name, file, head, pages } = self;
        let mut question = head.question();
        let mut row = Vec::new();
        for hash in hashes {
            let rows = |range: Range<u64>, take: &mut dyn FnMut(&[u8])| -> Result<()> {
                row.clear();
                let [first, last] = [range.start, range.end - 1].map(|at| at / SLICED_PAGE_BYTES);
                for page in first..=last {
                    if !pages.contains_key(&page) {
                        if pages.len() >= PAGES_MAX {
                            pages.clear();
                        }
                        pages.insert(page, read_page(file, name, head, page)?);
                    }
                    let bytes = pages.get(&page).context("it was read")?;
                    let start = page * SLICED_PAGE_BYTES;
                    let end = start + bytes.len() as u64;
                    let within = |at: u64| usize::try_from(at.clamp(start, end) - start);
                    row.extend(&bytes[within(range.start)?..within(range.end)?]);
                }
                take(&row);
                Ok(())
            };
            head.ask(&mut question, *hash, rows)?;
        }
        Ok(question)
    }
}

/// Reads and checks a page.
fn read_page(file: &File, name: &str, head: &SlicedHead, page: u64) -> Result<Vec<u8>> {
    let range = head.page_range(page).context("the head has every page")?;
    let mut bytes = vec![0; usize::try_from(range.end - range.start)?];
    file.read_exact_at(&mut bytes, range.start).with_context(|| format!("{name}: cannot read"))?;
    head.check_page(page, &bytes).with_context(|| name.to_owned())?;
    Ok(bytes)
}
