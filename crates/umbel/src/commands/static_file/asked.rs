//! A file that is asked: all of it in memory for many questions, or the chunks that are needed for a few.

use anyhow::{Context, Result};
use std::collections::BTreeMap;
use std::fs::File;
use std::io::Read;
use std::os::unix::fs::FileExt;
use std::path::Path;
use umbel_filter::ItemHash;
use umbel_static::{FileError, Head, STATIC_HEADER_BYTES, StaticFile};

/// What a file says of an item: its number if it is a map, else 1; `None` if it is no key.
pub(super) type Answer = Option<u64>;

/// A file that is asked.
pub(super) enum Asked {
    /// All of it.
    Whole(Box<StaticFile<Vec<u8>>>),
    /// Its head, and the chunks that were needed so far.
    Parts(Box<Parts>),
}

/// A file of which only what is needed is read.
pub(super) struct Parts {
    name: String,
    file: File,
    head: Head,
    chunks: BTreeMap<usize, Vec<u8>>,
}

/// Reads all of a file and checks it.
///
/// # Errors
///
/// If it cannot be read, or is damaged.
pub(super) fn read_whole(path: &Path) -> Result<StaticFile<Vec<u8>>> {
    let name = path.display();
    let mut file = File::open(path).with_context(|| format!("{name}: cannot open"))?;
    // Before all of something else is read: the header says what it is.
    let mut bytes = Vec::new();
    let cannot = || format!("{name}: cannot read");
    let mut header = file.by_ref().take(STATIC_HEADER_BYTES as u64);
    header.read_to_end(&mut bytes).with_context(cannot)?;
    Head::bytes_needed(&bytes).with_context(|| name.to_string())?;
    file.read_to_end(&mut bytes).with_context(cannot)?;
    StaticFile::parse(bytes).with_context(|| name.to_string())
}

impl Asked {
    /// Opens a file for few questions, or for many.
    ///
    /// # Errors
    ///
    /// If it cannot be read, or is damaged; for few questions, if its head is.
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

    /// What stands in front of the chunks.
    pub(super) fn head(&self) -> &Head {
        match self {
            Self::Whole(file) => file.head(),
            Self::Parts(parts) => &parts.head,
        }
    }

    /// What the file says of items, in order.
    ///
    /// # Errors
    ///
    /// If a chunk cannot be read, or is damaged.
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
        // The head was checked against the length of the file, which pays for this.
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
