//! The head of a file: header, text and directory, checked as a whole; what is needed to ask one chunk.

// Input is hostile here: an index out of bounds must be an error, not a panic.
#![deny(clippy::indexing_slicing)]

use std::ops::Range;

use umbel_codec::{FrameKey, crc32c};
use umbel_filter::{HashFunction, ItemHash};

use crate::chunk::{BuiltChunk, Chunk, ChunkTables};
use crate::error::FileError;
use crate::fields::Fields;
use crate::limits::{CHUNK_BITS_MAX, CHUNK_KEYS_MAX, FORM_BYTES_MAX};
use crate::retrieval::TableShape;
use crate::{Geometry, Role, StaticShape, chunk_of};

/// The first bytes of every file.
pub const STATIC_MAGIC: [u8; 4] = *b"UMBS";

/// The version that this release writes and reads.
pub const STATIC_VERSION: u8 = 1;

/// Bytes of the header, in front of the text and the directory.
pub const STATIC_HEADER_BYTES: usize = 64;

/// Bytes of a row of the directory.
const ROW_BYTES: usize = 36;

/// Bytes of the header in front of the checksum, and those with it.
const BEFORE_CHECKSUM: usize = 12;
const WITH_CHECKSUM: usize = 16;

/// What the directory says of a chunk.
#[derive(Clone, Debug)]
pub(crate) struct Row {
    pub(crate) offset: u64,
    pub(crate) checksum: u32,
    pub(crate) tables: [TableShape; 2],
}

/// Header, text and directory of a file, valid as a whole.
///
/// Whoever reads a file by parts reads [`STATIC_HEADER_BYTES`] bytes, then what [`Head::bytes_needed`] says, then the
/// chunks that are asked.
#[derive(Clone, Debug)]
pub struct Head {
    pub(crate) shape: StaticShape,
    pub(crate) chunk_bits: u8,
    pub(crate) key_count: u64,
    pub(crate) other_count: u64,
    pub(crate) digest: u128,
    pub(crate) file_bytes: u64,
    pub(crate) rows: Vec<Row>,
    pub(crate) tables: Vec<ChunkTables>,
}

/// What a header says before anything behind it is read.
struct Header {
    role: Role,
    value_bits: u8,
    check_bits: u8,
    key: FrameKey,
    chunk_bits: u8,
    form_bytes: usize,
    checksum: u32,
    key_count: u64,
    other_count: u64,
    digest: u128,
    file_bytes: u64,
}

/// The function that a file's items are hashed by. RedisBloom's pair is of its filters alone: files are of items.
pub(crate) fn hash_function(id: u8) -> Result<HashFunction, FileError> {
    HashFunction::from_id(id)
        .filter(|&function| function != HashFunction::RedisBloomPair)
        .ok_or(FileError::HashFunction { actual: id })
}

impl Header {
    fn parse(bytes: &[u8]) -> Result<Self, FileError> {
        let mut fields = Fields::new(bytes);
        let magic = fields.bytes()?;
        if magic != STATIC_MAGIC {
            return Err(FileError::Magic { expected: STATIC_MAGIC, actual: magic });
        }
        let version = fields.u8()?;
        if version != STATIC_VERSION {
            return Err(FileError::Version { actual: version });
        }
        let role = fields.u8()?;
        let role = Role::from_id(role).ok_or(FileError::Role { actual: role })?;
        let (value_bits, check_bits) = (fields.u8()?, fields.u8()?);
        let function = fields.u8()?;
        let function = hash_function(function)?;
        let chunk_bits = fields.u8()?;
        if chunk_bits > CHUNK_BITS_MAX {
            let actual = chunk_bits.into();
            return Err(FileError::Field { field: "number of chunk bits", actual });
        }
        let form_bytes = usize::from(fields.u16()?);
        if form_bytes > FORM_BYTES_MAX {
            let actual = form_bytes as u64;
            return Err(FileError::Field { field: "length of the text", actual });
        }
        let checksum = fields.u32()?;
        let key = FrameKey { function, key_id: fields.u64()? };
        let (key_count, other_count) = (fields.u64()?, fields.u64()?);
        let (digest, file_bytes) = (fields.u128()?, fields.u64()?);
        Ok(Self {
            role,
            value_bits,
            check_bits,
            key,
            chunk_bits,
            form_bytes,
            checksum,
            key_count,
            other_count,
            digest,
            file_bytes,
        })
    }

    fn head_bytes(&self) -> usize {
        STATIC_HEADER_BYTES + self.form_bytes + (ROW_BYTES << self.chunk_bits)
    }
}

impl Head {
    /// Bytes that the head has, given the first [`STATIC_HEADER_BYTES`] of the file: at most some 150,000.
    ///
    /// # Errors
    ///
    /// [`FileError`] if the header is none; nothing behind it was looked at.
    pub fn bytes_needed(header: &[u8]) -> Result<usize, FileError> {
        Header::parse(header).map(|header| header.head_bytes())
    }

    /// Reads a head from the front of a file of so many bytes; what follows the head is not looked at.
    ///
    /// # Errors
    ///
    /// Any [`FileError`] but [`ChunkChecksum`](FileError::ChunkChecksum) and [`Key`](FileError::Key).
    pub fn parse(bytes: &[u8], file_bytes: u64) -> Result<Self, FileError> {
        let header = Header::parse(bytes)?;
        let head_bytes = header.head_bytes();
        let Some(head) = bytes.get(..head_bytes) else {
            let (needed, available) = (head_bytes as u64, bytes.len() as u64);
            return Err(FileError::Truncated { needed, available });
        };
        let (before, rest) = head.split_at(WITH_CHECKSUM);
        let checksum = crc32c(&[before.get(..BEFORE_CHECKSUM).unwrap_or_default(), rest]);
        if checksum != header.checksum {
            let (expected, actual) = (header.checksum, checksum);
            return Err(FileError::HeadChecksum { expected, actual });
        }
        let (form, directory) = head
            .get(STATIC_HEADER_BYTES..)
            .and_then(|rest| rest.split_at_checked(header.form_bytes))
            .unwrap_or_default();
        let parsed = Self::from_parts(&header, form, directory)?;
        parsed.check_length(head_bytes, file_bytes)?;
        Ok(parsed)
    }

    fn from_parts(header: &Header, form: &[u8], directory: &[u8]) -> Result<Self, FileError> {
        let Header { role, value_bits, check_bits, .. } = *header;
        let bits = || u64::from(value_bits) << 8 | u64::from(check_bits);
        let shape = StaticShape::new(role, value_bits, check_bits, header.key)
            .map_err(|_| FileError::Field { field: "number of bits", actual: bits() })?;
        let form = str::from_utf8(form).map_err(|error| FileError::Field {
            field: "offset of the text's first byte that is no UTF-8",
            actual: error.valid_up_to() as u64,
        })?;
        let shape = shape.with_form(form).map_err(|_| FileError::Field {
            field: "length of the text",
            actual: form.len() as u64,
        })?;
        let mut fields = Fields::new(directory);
        let rows: Vec<Row> = (0..1usize << header.chunk_bits)
            .map(|_| Row::parse(&mut fields, &shape))
            .collect::<Result<_, _>>()?;
        let tables = rows.iter().map(|row| ChunkTables::new(&row.tables, header.chunk_bits));
        Ok(Self {
            shape,
            chunk_bits: header.chunk_bits,
            key_count: header.key_count,
            other_count: header.other_count,
            digest: header.digest,
            file_bytes: header.file_bytes,
            tables: tables.collect(),
            rows,
        })
    }

    /// Chunks follow the head and each other up to the end of the file, and have the keys that the header counts.
    fn check_length(&self, head_bytes: usize, file_bytes: u64) -> Result<(), FileError> {
        let mut end = head_bytes as u64;
        for (row, tables) in self.rows.iter().zip(&self.tables) {
            if row.offset != end {
                return Err(FileError::Field { field: "offset of a chunk", actual: row.offset });
            }
            // At most 2^12 chunks of 2 tables of 12 million cells of 7 bytes.
            end += tables.bytes() as u64;
        }
        if end != self.file_bytes {
            return Err(FileError::Field { field: "length of the file", actual: self.file_bytes });
        }
        let is_left_out = self.shape.role() == Role::Exact && self.shape.check_bits() == 0;
        let keys: u64 = self.rows.iter().map(|row| u64::from(row.tables[0].key_count)).sum();
        let has_others = self.shape.role() == Role::Exact || self.other_count == 0;
        if !has_others || (!is_left_out && keys != self.key_count) {
            return Err(FileError::Field { field: "number of keys", actual: self.key_count });
        }
        match file_bytes {
            actual if actual < end => Err(FileError::Truncated { needed: end, available: actual }),
            actual if actual > end => Err(FileError::Length { expected: end, actual }),
            _ => Ok(()),
        }
    }

    /// Refuses questions under another hash function, seed or key.
    ///
    /// # Errors
    ///
    /// [`FileError::Key`].
    pub fn check_key(&self, actual: FrameKey) -> Result<(), FileError> {
        let expected = self.shape.key();
        if expected == actual { Ok(()) } else { Err(FileError::Key { expected, actual }) }
    }

    /// What the file is.
    #[must_use]
    pub const fn shape(&self) -> &StaticShape {
        &self.shape
    }

    /// Different keys; of an exact set its members.
    #[must_use]
    pub const fn key_count(&self) -> u64 {
        self.key_count
    }

    /// Different others of an exact set; of other roles 0.
    #[must_use]
    pub const fn other_count(&self) -> u64 {
        self.other_count
    }

    /// The sum of the hashes of all keys and others modulo 2^128: what tells one universe from another.
    #[must_use]
    pub const fn digest(&self) -> u128 {
        self.digest
    }

    /// Length of the file in bytes.
    #[must_use]
    pub const fn file_bytes(&self) -> u64 {
        self.file_bytes
    }

    /// Number of chunks, a power of 2.
    #[must_use]
    pub const fn chunk_count(&self) -> usize {
        self.rows.len()
    }

    /// The largest seed that a table needed: 0 in most files.
    #[must_use]
    pub fn seed_max(&self) -> u16 {
        self.rows.iter().flat_map(|row| &row.tables).map(|table| table.seed).max().unwrap_or(0)
    }

    /// Which chunk a hash belongs to.
    #[inline]
    #[must_use]
    pub fn chunk_of(&self, hash: ItemHash) -> usize {
        chunk_of(hash, self.chunk_bits)
    }

    /// Where a chunk is in the file, in bytes; `None` if there is no such chunk.
    #[must_use]
    pub fn chunk_range(&self, chunk: usize) -> Option<Range<u64>> {
        let (row, tables) = (self.rows.get(chunk)?, self.tables.get(chunk)?);
        Some(row.offset..row.offset + tables.bytes() as u64)
    }

    /// A chunk whose bytes are these: they are all there, and undamaged.
    ///
    /// # Errors
    ///
    /// [`FileError::Truncated`], [`FileError::Length`] or [`FileError::ChunkChecksum`].
    pub fn chunk<'a>(&'a self, chunk: usize, bytes: &'a [u8]) -> Result<Chunk<'a>, FileError> {
        let checked = self.checked_before(chunk, bytes)?;
        let (expected, actual) =
            (self.rows.get(chunk).map_or(0, |row| row.checksum), crc32c(&[bytes]));
        if expected != actual {
            return Err(FileError::ChunkChecksum { chunk, expected, actual });
        }
        Ok(checked)
    }

    /// The same for bytes that [`Head::chunk`] has found undamaged before.
    ///
    /// # Errors
    ///
    /// [`FileError::Truncated`] or [`FileError::Length`].
    pub fn checked_before<'a>(
        &'a self,
        chunk: usize,
        bytes: &'a [u8],
    ) -> Result<Chunk<'a>, FileError> {
        let Some(tables) = self.tables.get(chunk) else {
            return Err(FileError::Field { field: "number of a chunk", actual: chunk as u64 });
        };
        let (expected, actual) = (tables.bytes() as u64, bytes.len() as u64);
        match actual {
            _ if actual < expected => {
                Err(FileError::Truncated { needed: expected, available: actual })
            }
            _ if actual > expected => Err(FileError::Length { expected, actual }),
            _ => Ok(Chunk { shape: &self.shape, tables, cells: bytes }),
        }
    }

    /// Bytes in front of the first chunk.
    #[must_use]
    pub fn head_bytes(&self) -> usize {
        STATIC_HEADER_BYTES + self.shape.form().len() + (ROW_BYTES << self.chunk_bits)
    }

    /// The head as bytes.
    #[must_use]
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut bytes = Vec::new();
        let shape = &self.shape;
        bytes.extend(STATIC_MAGIC);
        let key = shape.key();
        let (value_bits, check_bits) = (shape.value_bits(), shape.check_bits());
        let role = shape.role().id();
        bytes.extend([STATIC_VERSION, role, value_bits, check_bits, key.function.id()]);
        bytes.push(self.chunk_bits);
        #[expect(clippy::cast_possible_truncation, reason = "a text of 4,096 bytes at most")]
        let form_bytes = shape.form().len() as u16;
        bytes.extend(form_bytes.to_le_bytes());
        let mut rest = Vec::new();
        for number in [key.key_id, self.key_count, self.other_count] {
            rest.extend(number.to_le_bytes());
        }
        rest.extend(self.digest.to_le_bytes());
        rest.extend(self.file_bytes.to_le_bytes());
        rest.extend(shape.form().as_bytes());
        self.rows.iter().for_each(|row| row.write(&mut rest));
        bytes.extend(crc32c(&[&bytes, &rest]).to_le_bytes());
        bytes.extend(rest);
        bytes
    }
}

impl Row {
    fn parse(fields: &mut Fields<'_>, shape: &StaticShape) -> Result<Self, FileError> {
        let (offset, checksum) = (fields.u64()?, fields.u32()?);
        let [first_bits, second_bits] = match shape.role() {
            Role::Exact => [shape.check_bits(), 1],
            Role::Filter | Role::Map => [shape.value_bits() + shape.check_bits(), 0],
        };
        let first = parse_table(fields, first_bits)?;
        Ok(Self { offset, checksum, tables: [first, parse_table(fields, second_bits)?] })
    }

    fn write(&self, bytes: &mut Vec<u8>) {
        bytes.extend(self.offset.to_le_bytes());
        bytes.extend(self.checksum.to_le_bytes());
        for TableShape { key_count, geometry, seed, .. } in self.tables {
            bytes.extend(key_count.to_le_bytes());
            bytes.extend(geometry.segment_count().to_le_bytes());
            bytes.extend(seed.to_le_bytes());
            bytes.extend([geometry.segment_bits(), 0]);
        }
    }
}

fn parse_table(fields: &mut Fields<'_>, bits: u8) -> Result<TableShape, FileError> {
    let (key_count, segment_count) = (fields.u32()?, fields.u32()?);
    let (seed, segment_bits, blank) = (fields.u16()?, fields.u8()?, fields.u8()?);
    let geometry = Geometry::from_parts(segment_bits, segment_count)
        .ok_or(FileError::Field { field: "number of segments", actual: segment_count.into() })?;
    let is_possible = key_count as usize <= CHUNK_KEYS_MAX
        && (key_count == 0) == (geometry == Geometry::EMPTY)
        && (bits > 0 || key_count == 0)
        && (key_count > 0 || seed == 0);
    if !is_possible || blank != 0 {
        return Err(FileError::Field {
            field: "number of keys of a table",
            actual: key_count.into(),
        });
    }
    Ok(TableShape { key_count, geometry, seed, bits })
}

/// Makes the head of a file whose chunks are written one after the other.
///
/// ```text
/// head_bytes    zeros, so many
/// push          the chunk's cells, for chunks 0, 1, 2, …
/// finish        the head, in place of the zeros
/// ```
///
/// ```
/// use umbel_codec::FrameKey;
/// use umbel_filter::HashFunction;
/// use umbel_static::{HeadBuilder, StaticFile, StaticShape};
///
/// let key = FrameKey { function: HashFunction::Xxh3Seeded, key_id: 0 };
/// let shape = StaticShape::filter(8, key)?;
/// let mut head = HeadBuilder::new(shape.clone(), 1);
/// assert_eq!(head.head_bytes(), 64 + 2 * 36);
/// let mut cells = Vec::new();
/// for _ in 0..2 {
///     let chunk = shape.filter_chunk(&[], 1)?;
///     head.push(&chunk);
///     cells.extend(chunk.cells());
/// }
/// let file = [head.finish().to_bytes(), cells].concat();
/// assert_eq!(StaticFile::parse(&file)?.head().key_count(), 0);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug)]
pub struct HeadBuilder {
    head: Head,
}

impl HeadBuilder {
    /// Of a file whose chunks 2^`chunk_bits` are.
    ///
    /// # Panics
    ///
    /// Above [`CHUNK_BITS_MAX`](crate::CHUNK_BITS_MAX).
    #[must_use]
    pub fn new(shape: StaticShape, chunk_bits: u8) -> Self {
        assert!(chunk_bits <= CHUNK_BITS_MAX, "{chunk_bits} bits of a chunk");
        let mut head = Head {
            shape,
            chunk_bits,
            key_count: 0,
            other_count: 0,
            digest: 0,
            file_bytes: 0,
            rows: Vec::new(),
            tables: Vec::new(),
        };
        head.file_bytes = head.head_bytes() as u64;
        Self { head }
    }

    /// Bytes in front of the first chunk.
    #[must_use]
    pub fn head_bytes(&self) -> usize {
        self.head.head_bytes()
    }

    /// Takes note of the next chunk.
    ///
    /// # Panics
    ///
    /// If all chunks came before.
    pub fn push(&mut self, chunk: &BuiltChunk) {
        let head = &mut self.head;
        assert!(head.rows.len() < 1 << head.chunk_bits, "all chunks are there");
        let (offset, checksum, tables) = (head.file_bytes, chunk.checksum, chunk.tables);
        head.file_bytes += chunk.cells().len() as u64;
        head.key_count += chunk.key_count;
        head.other_count += chunk.other_count;
        head.digest = head.digest.wrapping_add(chunk.digest);
        head.rows.push(Row { offset, checksum, tables });
        head.tables.push(ChunkTables::new(&tables, head.chunk_bits));
    }

    /// The head.
    ///
    /// # Panics
    ///
    /// If chunks are missing.
    #[must_use]
    pub fn finish(self) -> Head {
        assert_eq!(self.head.rows.len(), 1 << self.head.chunk_bits, "every chunk has a row");
        self.head
    }
}
