//! A static file that is queried: read as a whole for many queries, or only its needed chunks for a few.

use anyhow::{Context, Result};
use std::collections::BTreeMap;
use std::fs::File;
use std::io::Read;
use std::os::unix::fs::FileExt;
use std::path::Path;
use umbel_filter::ItemHash;
use umbel_static::{FileError, Head, STATIC_HEADER_BYTES, StaticFile};

/// The answer for an item: the number of a map, else 1; `None` if the item is no key.
pub(super) type Answer = Option<u64>;

/// An open static file.
pub(super) enum OpenFile {
    /// The whole file in memory.
    Whole(Box<StaticFile<Vec<u8>>>),
    /// The head, and the chunks read so far.
    Parts(Box<Parts>),
}

/// A file of which only the needed chunks are read.
pub(super) struct Parts {
    name: String,
    file: File,
    head: Head,
    chunks: BTreeMap<usize, Vec<u8>>,
}

/// Reads and checks a whole file.
///
/// # Errors
///
/// If it cannot be read or is damaged.
pub(super) fn read_whole(path: &Path) -> Result<StaticFile<Vec<u8>>> {
    let name = path.display();
    let mut file = File::open(path).with_context(|| format!("{name}: cannot open"))?;
    // The header is checked first, so that a file of another kind is not read as a whole.
    let mut bytes = Vec::new();
    let cannot = || format!("{name}: cannot read");
    let mut header = file.by_ref().take(STATIC_HEADER_BYTES as u64);
    header.read_to_end(&mut bytes).with_context(cannot)?;
    Head::bytes_needed(&bytes).with_context(|| name.to_string())?;
    file.read_to_end(&mut bytes).with_context(cannot)?;
    StaticFile::parse(bytes).with_context(|| name.to_string())
}

impl OpenFile {
    /// Opens a file for a few queries, or for many.
    ///
    /// # Errors
    ///
    /// If it cannot be read or is damaged; for a few queries, only its head is checked.
    pub(super) fn open(path: &Path, is_for_few: bool) -> Result<Self> {
        let name = path.display().to_string();
        let file = File::open(path).with_context(|| format!("{name}: cannot open"))?;
        let metadata = file.metadata().with_context(|| format!("{name}: cannot read"))?;
        if !is_for_few || !metadata.is_file() {
            return Ok(Self::Whole(Box::new(read_whole(path)?)));
        }
        let available = metadata.len();
        let mut head = vec![0; usize::try_from(available.min(STATIC_HEADER_BYTES as u64))?];
        let cannot = || format!("{name}: cannot read");
        file.read_exact_at(&mut head, 0).with_context(cannot)?;
        let needed = Head::bytes_needed(&head).with_context(|| name.clone())?;
        if (needed as u64) > available {
            let needed = needed as u64;
            return Err(FileError::Truncated { needed, available }).context(name);
        }
        head.resize(needed, 0);
        file.read_exact_at(&mut head, 0).with_context(cannot)?;
        let head = Head::parse(&head, available).with_context(|| name.clone())?;
        Ok(Self::Parts(Box::new(Parts { name, file, head, chunks: BTreeMap::new() })))
    }

    /// The head of the file.
    pub(super) fn head(&self) -> &Head {
        match self {
            Self::Whole(file) => file.head(),
            Self::Parts(parts) => &parts.head,
        }
    }

    /// The answers for items, in order.
    ///
    /// # Errors
    ///
    /// If a chunk cannot be read or is damaged.
    pub(super) fn answers(&mut self, hashes: &[ItemHash], answers: &mut Vec<Answer>) -> Result<()> {
        match self {
            Self::Whole(file) => file.value_batch(hashes, answers),
            Self::Parts(parts) => {
                answers.clear();
                for hash in hashes {
                    answers.push(parts.answer(*hash)?);
                }
            }
        }
        Ok(())
    }
}

impl Parts {
    fn answer(&mut self, hash: ItemHash) -> Result<Answer> {
        let chunk = self.head.chunk_of(hash);
        if let Some(bytes) = self.chunks.get(&chunk) {
            return Ok(self.head.checked_before(chunk, bytes)?.value(hash));
        }
        let range = self.head.chunk_range(chunk).context("the head has every chunk")?;
        // The allocation is bounded: the head was checked against the length of the file.
        let mut bytes = vec![0; usize::try_from(range.end - range.start)?];
        let name = &self.name;
        self.file
            .read_exact_at(&mut bytes, range.start)
            .with_context(|| format!("{name}: cannot read"))?;
        let answer = self.head.chunk(chunk, &bytes).with_context(|| name.clone())?.value(hash);
        self.chunks.insert(chunk, bytes);
        Ok(answer)
    }
}
