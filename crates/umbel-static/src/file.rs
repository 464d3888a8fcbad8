//! A whole file in memory.

use umbel_filter::ItemHash;

use crate::chunk::ChunkTables;
use crate::error::FileError;
use crate::placement::{chunk_among, place_among};
use crate::retrieval::ANY_BITS;
use crate::{Head, Role};

/// A file whose bytes are all in memory, checked from end to end. What the bytes are in is the caller's: a slice, a
/// vector, a map of the file. If they change afterwards, answers may be wrong, and nothing else.
///
/// ```
/// use umbel_codec::FrameKey;
/// use umbel_filter::{HashFunction, ItemHasher};
/// use umbel_static::{StaticFile, build_filter};
///
/// let hasher = ItemHasher::Xxh3 { seed: 0 };
/// let key = FrameKey { function: HashFunction::Xxh3Seeded, key_id: 0 };
/// let hashes = (0..1000u32).map(|item| hasher.hash(&item.to_le_bytes())).collect();
/// let bytes = build_filter(hashes, 8, key)?;
/// // 1,408 cells of a byte, 8 bytes behind them, 64 bytes of header and a row of 36.
/// assert_eq!(bytes.len(), 1408 + 8 + 64 + 36);
/// let file = StaticFile::parse(&bytes)?;
/// assert!((0..1000u32).all(|item| file.contains(hasher.hash(&item.to_le_bytes()))));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug)]
pub struct StaticFile<Bytes> {
    head: Head,
    /// Where the cells of each chunk begin in the bytes, and how they are asked.
    chunks: Vec<(usize, ChunkTables)>,
    bytes: Bytes,
}

impl<Bytes: AsRef<[u8]>> StaticFile<Bytes> {
    /// Reads a file.
    ///
    /// # Errors
    ///
    /// Any [`FileError`] but [`Key`](FileError::Key).
    pub fn parse(bytes: Bytes) -> Result<Self, FileError> {
        let all = bytes.as_ref();
        let head = Head::parse(all, all.len() as u64)?;
        let mut chunks = Vec::with_capacity(head.chunk_count());
        let mut start = head.head_bytes();
        for (chunk, tables) in head.tables.iter().enumerate() {
            // The head has checked that chunks follow each other up to the end.
            let end = start + tables.bytes();
            head.chunk(chunk, all.get(start..end).unwrap_or_default())?;
            chunks.push((start, tables.clone()));
            start = end;
        }
        Ok(Self { head, chunks, bytes })
    }

    /// The chunk of a hash; all of them are there.
    #[inline]
    fn chunk_of(&self, hash: ItemHash) -> (&ChunkTables, &[u8]) {
        let (start, tables) = &self.chunks[chunk_among(hash, self.chunks.len() as u64)];
        (tables, self.bytes.as_ref().get(*start..).unwrap_or_default())
    }

    #[inline(always)]
    fn in_filter<const BITS: u8>(&self, hash: ItemHash) -> bool {
        let (chunk, within) = place_among(hash, self.chunks.len() as u64);
        let (start, tables) = &self.chunks[chunk];
        let cells = self.bytes.as_ref().get(*start..).unwrap_or_default();
        tables.in_filter_within::<BITS>(cells, (hash, within))
    }

    #[inline]
    fn in_map(&self, hash: ItemHash, bits: [u8; 2]) -> Option<u64> {
        let (tables, cells) = self.chunk_of(hash);
        tables.in_map(cells, hash, bits)
    }

    #[inline]
    fn in_exact(&self, hash: ItemHash, check_bits: u8) -> bool {
        let (tables, cells) = self.chunk_of(hash);
        tables.in_exact(cells, hash, check_bits)
    }

    /// What stands in front of the chunks.
    pub fn head(&self) -> &Head {
        &self.head
    }

    /// The bytes.
    pub fn as_bytes(&self) -> &[u8] {
        self.bytes.as_ref()
    }

    /// Whether the file says that a hash is that of a key; of a member, if it is an exact set.
    #[inline]
    pub fn contains(&self, hash: ItemHash) -> bool {
        let bits = self.bits();
        let [_, check_bits] = bits;
        match self.head.shape.role() {
            Role::Filter => match check_bits {
                8 => self.in_filter::<8>(hash),
                16 => self.in_filter::<16>(hash),
                _ => self.in_filter::<ANY_BITS>(hash),
            },
            Role::Map => self.in_map(hash, bits).is_some(),
            Role::Exact => self.in_exact(hash, check_bits),
        }
    }

    /// The value of a hash, if the file says that it is that of a key; of a filter or an exact set 1.
    #[inline]
    pub fn value(&self, hash: ItemHash) -> Option<u64> {
        match self.head.shape.role() {
            Role::Map => self.in_map(hash, self.bits()),
            Role::Filter | Role::Exact => self.contains(hash).then_some(1),
        }
    }

    /// [`contains`](Self::contains) of each hash, in order, in place of what `answers` held.
    pub fn contains_batch(&self, hashes: &[ItemHash], answers: &mut Vec<bool>) {
        answers.clear();
        let bits = self.bits();
        let [_, check_bits] = bits;
        let hashes = hashes.iter().copied();
        // A loop a role: no answer depends on the one before, so the processor reads the cells of several items at once.
        match self.head.shape.role() {
            Role::Filter => match check_bits {
                8 => answers.extend(hashes.map(|hash| self.in_filter::<8>(hash))),
                16 => answers.extend(hashes.map(|hash| self.in_filter::<16>(hash))),
                _ => answers.extend(hashes.map(|hash| self.in_filter::<ANY_BITS>(hash))),
            },
            Role::Map => answers.extend(hashes.map(|hash| self.in_map(hash, bits).is_some())),
            Role::Exact => answers.extend(hashes.map(|hash| self.in_exact(hash, check_bits))),
        }
    }

    /// [`value`](Self::value) of each hash, in order, in place of what `values` held.
    pub fn value_batch(&self, hashes: &[ItemHash], values: &mut Vec<Option<u64>>) {
        values.clear();
        values.extend(hashes.iter().map(|hash| self.value(*hash)));
    }

    /// Bits of values and of fingerprints.
    #[inline]
    fn bits(&self) -> [u8; 2] {
        [self.head.shape.value_bits(), self.head.shape.check_bits()]
    }
}
