//! One chunk: built of its sorted hashes, and asked.

use umbel_codec::crc32c;
use umbel_filter::ItemHash;

use crate::cells::mask;
use crate::error::BuildError;
use crate::placement::fingerprint;
use crate::retrieval::{Table, TableShape, build, check_chunk};
use crate::{Role, StaticShape};

/// A chunk that was built, on its way into a file.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct BuiltChunk {
    pub(crate) tables: [TableShape; 2],
    pub(crate) checksum: u32,
    pub(crate) key_count: u64,
    pub(crate) other_count: u64,
    pub(crate) digest: u128,
    cells: Vec<u8>,
}

impl BuiltChunk {
    fn new(
        tables: [TableShape; 2],
        cells: Vec<u8>,
        [key_count, other_count]: [usize; 2],
        digest: u128,
    ) -> Self {
        let [key_count, other_count] = [key_count as u64, other_count as u64];
        Self { tables, checksum: crc32c(&[&cells]), key_count, other_count, digest, cells }
    }

    /// The bytes that belong into the file.
    #[must_use]
    pub fn cells(&self) -> &[u8] {
        &self.cells
    }

    /// Different keys; of an exact set its members.
    #[must_use]
    pub const fn key_count(&self) -> u64 {
        self.key_count
    }

    /// Different others of an exact set.
    #[must_use]
    pub const fn other_count(&self) -> u64 {
        self.other_count
    }
}

/// The sum of hashes modulo 2^128, whatever their order.
fn digest(hashes: &[ItemHash]) -> u128 {
    hashes.iter().fold(0, |sum: u128, hash| {
        sum.wrapping_add(u128::from(hash.hi()) << 64 | u128::from(hash.lo()))
    })
}

/// Building chunks. `chunk_bits` is how many bits of a hash choose its chunk, the same for all chunks of a file.
impl StaticShape {
    fn check_role(&self, actual: Role) -> Result<(), BuildError> {
        let expected = self.role();
        if expected == actual { Ok(()) } else { Err(BuildError::Role { expected, actual }) }
    }

    /// A chunk of a filter, of the sorted hashes of its keys, each once.
    ///
    /// # Errors
    ///
    /// Any [`BuildError`] but those of values and others.
    pub fn filter_chunk(
        &self,
        hashes: &[ItemHash],
        chunk_bits: u8,
    ) -> Result<BuiltChunk, BuildError> {
        self.check_role(Role::Filter)?;
        check_chunk(hashes, chunk_bits)?;
        let bits = self.check_bits();
        let mut cells = Vec::new();
        let value_of = |key: usize| fingerprint(hashes[key]);
        let table = build(hashes, chunk_bits, bits, value_of, &mut cells)?;
        let tables = [table, TableShape::empty(0)];
        Ok(BuiltChunk::new(tables, cells, [hashes.len(), 0], digest(hashes)))
    }

    /// A chunk of a map, of the sorted hashes of its keys, each once, and the value of each.
    ///
    /// # Errors
    ///
    /// Any [`BuildError`] but [`TwoValues`](BuildError::TwoValues) and those of others.
    pub fn map_chunk(
        &self,
        hashes: &[ItemHash],
        values: &[u64],
        chunk_bits: u8,
    ) -> Result<BuiltChunk, BuildError> {
        self.check_role(Role::Map)?;
        check_chunk(hashes, chunk_bits)?;
        let [key_count, value_count] = [hashes.len(), values.len()];
        if key_count != value_count {
            return Err(BuildError::ValueCount { key_count, value_count });
        }
        let (value_bits, check_bits) = (self.value_bits(), self.check_bits());
        let is_wide = |(_, value): &(&ItemHash, &u64)| **value >> value_bits != 0;
        if let Some((&hash, &value)) = hashes.iter().zip(values).find(is_wide) {
            return Err(BuildError::ValueTooWide { hash, value, value_bits });
        }
        let mut cells = Vec::new();
        let value_of = |key: usize| {
            let value: u64 = values[key];
            fingerprint(hashes[key]) << value_bits | value
        };
        let table = build(hashes, chunk_bits, value_bits + check_bits, value_of, &mut cells)?;
        let tables = [table, TableShape::empty(0)];
        Ok(BuiltChunk::new(tables, cells, [hashes.len(), 0], digest(hashes)))
    }

    /// Begins a chunk of an exact set, of the sorted hashes of its members, each once. Others follow.
    ///
    /// # Errors
    ///
    /// Any [`BuildError`] but those of values and others.
    pub fn exact_chunk(
        &self,
        members: Vec<ItemHash>,
        chunk_bits: u8,
    ) -> Result<ExactChunk, BuildError> {
        self.check_role(Role::Exact)?;
        check_chunk(&members, chunk_bits)?;
        let bits = self.check_bits();
        let mut cells = Vec::new();
        let value_of = |key: usize| fingerprint(members[key]);
        let shape = build(&members, chunk_bits, bits, value_of, &mut cells)?;
        let filter = (bits > 0).then(|| Table::new(&shape, chunk_bits));
        let digest = digest(&members);
        let (taken, other_count) = (Vec::new(), 0);
        Ok(ExactChunk { members, taken, filter, shape, cells, chunk_bits, other_count, digest })
    }
}

/// A chunk of an exact set whose members are known, and whose others come, as many at a time as one likes.
///
/// Of the others it keeps only those that the filter of the members takes for members.
#[derive(Debug)]
pub struct ExactChunk {
    members: Vec<ItemHash>,
    /// Others that the filter takes for members.
    taken: Vec<ItemHash>,
    /// `None` if it would have no bits, and take all.
    filter: Option<Table>,
    shape: TableShape,
    cells: Vec<u8>,
    chunk_bits: u8,
    other_count: usize,
    digest: u128,
}

impl ExactChunk {
    /// Takes others, which are sorted, each once, and above all that came before.
    ///
    /// # Errors
    ///
    /// [`BuildError::OnBothSides`] for one that is a member.
    pub fn take_others(&mut self, others: &[ItemHash]) -> Result<(), BuildError> {
        self.other_count += others.len();
        self.digest = self.digest.wrapping_add(digest(others));
        for &hash in others {
            let is_taken =
                self.filter.is_none_or(|filter| filter.is(&self.cells, hash, fingerprint(hash)));
            if is_taken {
                if self.members.binary_search(&hash).is_ok() {
                    return Err(BuildError::OnBothSides { hash });
                }
                self.taken.push(hash);
            }
        }
        Ok(())
    }

    /// The chunk, once all others came.
    ///
    /// # Errors
    ///
    /// Any [`BuildError`] but those of values.
    pub fn finish(mut self) -> Result<BuiltChunk, BuildError> {
        check_chunk(&self.taken, self.chunk_bits)?;
        let mut hashes = Vec::with_capacity(self.members.len() + self.taken.len());
        let mut taken = self.taken.iter().peekable();
        let mut is_member = Vec::with_capacity(hashes.capacity());
        for member in &self.members {
            while let Some(other) = taken.next_if(|other| *other < member) {
                hashes.push(*other);
                is_member.push(false);
            }
            hashes.push(*member);
            is_member.push(true);
        }
        hashes.extend(taken);
        is_member.resize(hashes.len(), false);
        check_chunk(&hashes, self.chunk_bits)?;
        let value_of = |key: usize| u64::from(is_member[key]);
        let second = build(&hashes, self.chunk_bits, 1, value_of, &mut self.cells)?;
        let counts = [self.members.len(), self.other_count];
        Ok(BuiltChunk::new([self.shape, second], self.cells, counts, self.digest))
    }
}

/// The tables of a chunk that is asked; its cells are elsewhere.
#[derive(Clone, Debug)]
pub(crate) struct ChunkTables {
    first: Table,
    second: Table,
    /// Bytes of the first table's cells, and of all.
    first_bytes: usize,
    bytes: usize,
}

impl ChunkTables {
    pub(crate) fn new(tables: &[TableShape; 2], chunk_bits: u8) -> Self {
        let first_bytes = tables[0].bytes();
        Self {
            first: Table::new(&tables[0], chunk_bits),
            second: Table::new(&tables[1], chunk_bits),
            first_bytes,
            bytes: first_bytes + tables[1].bytes(),
        }
    }

    /// Bytes of all cells.
    #[inline]
    pub(crate) const fn bytes(&self) -> usize {
        self.bytes
    }

    /// What a filter says of a hash. `cells` begins with those of the chunk; others may follow.
    #[inline]
    pub(crate) fn in_filter(&self, cells: &[u8], hash: ItemHash) -> bool {
        self.first.is(cells, hash, fingerprint(hash))
    }

    /// The same of many hashes: see [`Table::is_within`].
    #[inline(always)]
    pub(crate) fn in_filter_within<const BITS: u8>(
        &self,
        cells: &[u8],
        (hash, within): (ItemHash, u64),
    ) -> bool {
        self.first.is_within::<BITS>(cells, (hash, within), fingerprint(hash))
    }

    /// What a map says of a hash.
    #[inline]
    pub(crate) fn in_map(&self, cells: &[u8], hash: ItemHash, bits: [u8; 2]) -> Option<u64> {
        let [value_bits, check_bits] = bits;
        let word = self.first.word(cells, hash);
        let check = (word >> value_bits ^ fingerprint(hash)) & mask(check_bits);
        (check == 0 && !self.first.is_empty()).then_some(word & mask(value_bits))
    }

    /// What an exact set says of a hash.
    #[inline]
    pub(crate) fn in_exact(&self, cells: &[u8], hash: ItemHash, check_bits: u8) -> bool {
        // Without check bits there is no first table, and the second has all keys.
        let is_taken = check_bits == 0 || self.in_filter(cells, hash);
        let second = cells.get(self.first_bytes..).unwrap_or_default();
        is_taken && self.second.is(second, hash, 1)
    }
}

/// A chunk of a file, with its cells.
///
/// ```
/// use umbel_codec::FrameKey;
/// use umbel_filter::{HashFunction, ItemHasher};
/// use umbel_static::{StaticFile, build_map};
///
/// let hasher = ItemHasher::Xxh3 { seed: 0 };
/// let key = FrameKey { function: HashFunction::Xxh3Seeded, key_id: 0 };
/// let alice = hasher.hash(b"alice");
/// let bytes = build_map(vec![(alice, 7)], 3, 8, key)?;
/// let file = StaticFile::parse(&bytes)?;
/// let head = file.head();
/// let range = head.chunk_range(head.chunk_of(alice)).expect("it has this chunk");
/// assert_eq!(head.chunk(0, &bytes[range.start as usize..range.end as usize])?.value(alice), Some(7));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Copy, Debug)]
pub struct Chunk<'a> {
    pub(crate) shape: &'a StaticShape,
    pub(crate) tables: &'a ChunkTables,
    pub(crate) cells: &'a [u8],
}

impl Chunk<'_> {
    /// Whether the file says that a hash of this chunk is that of a key.
    #[inline]
    #[must_use]
    pub fn contains(&self, hash: ItemHash) -> bool {
        let check_bits = self.shape.check_bits();
        match self.shape.role() {
            Role::Filter => self.tables.in_filter(self.cells, hash),
            Role::Map => self.value(hash).is_some(),
            Role::Exact => self.tables.in_exact(self.cells, hash, check_bits),
        }
    }

    /// The value of a hash of this chunk, if the file says that it is that of a key; of a filter or an exact set 1.
    #[inline]
    #[must_use]
    pub fn value(&self, hash: ItemHash) -> Option<u64> {
        let bits = [self.shape.value_bits(), self.shape.check_bits()];
        match self.shape.role() {
            Role::Map => self.tables.in_map(self.cells, hash, bits),
            Role::Filter | Role::Exact => self.contains(hash).then_some(1),
        }
    }
}
