//! Sets whose items are the records of a text file.

use super::apply;
use super::change::Change;
use super::frozen::FrozenFile;
use super::set::ItemSet;
use crate::error::{Context, ReconcileError, Result, bail, ensure};
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::Arc;
use umbel_filter::{ItemHash, ItemHasher};
use umbel_reconcile_engine::limits::ITEM_BYTES_MAX;
use umbel_reconcile_engine::{Item, ItemIndex, ItemRef, Pass, SymbolKind};
use umbel_records::{Compression, ReadLimits, RecordReader, line_item};

/// Checks that a file of records can be changed.
///
/// # Errors
///
/// If it is compressed.
pub(super) fn check_plain(compression: Compression, path: &Path) -> Result<()> {
    ensure!(
        compression == Compression::Plain,
        "{}: a packed file is not changed: unpack it first",
        path.display()
    );
    Ok(())
}

/// How the records of a file become items.
pub(crate) trait RecordItems: Send + Sync {
    /// How items become symbols.
    fn kind(&self) -> SymbolKind;

    /// What messages call an item.
    fn name(&self) -> &'static str;

    /// Length of ids in bytes; 0 if the records are not ids.
    fn id_bytes(&self) -> usize {
        0
    }

    /// Whether equal records may occur: they are then numbered.
    fn may_repeat(&self) -> bool {
        false
    }

    /// Appends to `target` the bytes that two equal records share.
    ///
    /// # Errors
    ///
    /// If the record is not an item.
    fn identity(&self, line: &[u8], target: &mut Vec<u8>) -> Result<()>;

    /// Passes the item of a record to `visit`; `occurrence` equal records come before it.
    ///
    /// # Errors
    ///
    /// If the record is not an item.
    fn with_item(
        &self,
        line: &[u8],
        occurrence: u32,
        visit: &mut dyn FnMut(ItemRef<'_>),
    ) -> Result<()>;

    /// Checks that a received item can be a record of this file.
    ///
    /// # Errors
    ///
    /// If it cannot.
    fn check(&self, item: &Item) -> Result<()> {
        let _ = item;
        Ok(())
    }

    /// The line of an item.
    fn text(&self, item: &Item) -> Vec<u8>;
}

/// Receives a record's index, its line, and the number of equal records before it.
type VisitNumbered<'v> = dyn FnMut(u64, &[u8], u32) -> Result<()> + 'v;

/// The records of a file, plain or compressed.
pub(crate) struct RecordSet<Items> {
    file: FrozenFile,
    compression: Compression,
    items: Items,
    item_count: u64,
    /// Hashes of identities that more than one record has, sorted.
    repeated: Vec<u64>,
}

impl<Items: RecordItems> RecordSet<Items> {
    /// Opens a file, and reads it once.
    ///
    /// # Errors
    ///
    /// If the file cannot be read, a record is not an item, or a record that must be unique occurs twice.
    pub(crate) fn open(path: &Path, items: Items) -> Result<Self> {
        let file = FrozenFile::open(path)?;
        let compression = Compression::of_file(file.file(), path);
        let compression = compression.with_context(|| path.display().to_string())?;
        let mut set = Self { file, compression, items, item_count: 0, repeated: Vec::new() };
        let mut hashes = Vec::new();
        set.visit_identities(&mut |_, identity| {
            hashes.push(hash(identity).hi());
            Ok(())
        })?;
        set.item_count = hashes.len() as u64;
        hashes.sort_unstable();
        let twice = hashes.windows(2).filter(|pair| pair[0] == pair[1]).map(|pair| pair[0]);
        set.repeated = twice.collect();
        set.repeated.dedup();
        if !set.items.may_repeat() {
            set.refuse_repeated()?;
        }
        Ok(set)
    }

    fn refuse_repeated(&self) -> Result<()> {
        if self.repeated.is_empty() {
            return Ok(());
        }
        let mut seen = BTreeMap::new();
        self.visit_identities(&mut |index, identity| {
            if self.is_repeated(hash(identity))
                && let Some(first) = seen.insert(identity.to_vec(), index)
            {
                let name = self.items.name();
                bail!("the {name} is that of line {}: a set has each once", first + 1);
            }
            Ok(())
        })
    }

    fn is_repeated(&self, hash: ItemHash) -> bool {
        self.repeated.binary_search(&hash.hi()).is_ok()
    }

    fn visit_identities(&self, visit: &mut dyn FnMut(u64, &[u8]) -> Result<()>) -> Result<()> {
        let mut identity = Vec::new();
        self.visit(&mut |index, record| {
            identity.clear();
            self.items.identity(line_item(record), &mut identity)?;
            visit(index, &identity)
        })
    }

    /// Passes all records with their line ends to `visit`, in order. An error names the line.
    fn visit(&self, visit: &mut dyn FnMut(u64, &[u8]) -> Result<()>) -> Result<()> {
        let shown = || self.file.path().display().to_string();
        let file = Arc::clone(self.file.file());
        let reader = RecordReader::open(file, self.compression, None, ReadLimits::default());
        let mut reader = reader.with_context(shown)?;
        let mut index = 0;
        while let Some(block) = reader.next_block().with_context(shown)? {
            for record in umbel_records::records(block) {
                let place = |error: ReconcileError| {
                    error.context(format!("{}: line {}", shown(), index + 1))
                };
                visit(index, record).map_err(place)?;
                index += 1;
            }
        }
        Ok(())
    }

    /// Passes all records to `visit`, each with the number of equal ones before it.
    fn visit_numbered(&self, visit: &mut VisitNumbered<'_>) -> Result<()> {
        let mut seen: BTreeMap<(u64, u64), u32> = BTreeMap::new();
        let mut identity = Vec::new();
        self.visit(&mut |index, record| {
            let line = line_item(record);
            let mut occurrence = 0;
            if !self.repeated.is_empty() {
                identity.clear();
                self.items.identity(line, &mut identity)?;
                let hash = hash(&identity);
                if self.is_repeated(hash) {
                    let count = seen.entry((hash.hi(), hash.lo())).or_default();
                    occurrence = *count;
                    *count = count.checked_add(1).context("more than 2^32 equal lines")?;
                }
            }
            visit(index, line, occurrence)
        })
    }

    fn write_records(&self, change: &Change, target: &mut apply::Target) -> Result<()> {
        let removed: BTreeSet<u64> = change.removed.iter().map(|index| index.0).collect();
        self.visit(&mut |index, record| match change.replaced.get(&ItemIndex(index)) {
            Some(item) => target.write_line(&self.items.text(item)),
            None if removed.contains(&index) => Ok(()),
            None => target.write_record(record),
        })?;
        change.added.iter().try_for_each(|item| target.write_line(&self.items.text(item)))
    }
}

fn hash(identity: &[u8]) -> ItemHash {
    ItemHasher::Xxh3 { seed: 0 }.hash(identity)
}

fn owned(item: ItemRef<'_>) -> Item {
    match item {
        ItemRef::Bytes(bytes) => Item::Bytes(bytes.to_vec()),
        ItemRef::Id(id) => Item::Id(id),
        ItemRef::Keyed { key, value } => Item::Keyed { key: key.to_vec(), value: value.to_vec() },
    }
}

impl<Items: RecordItems> ItemSet for RecordSet<Items> {
    fn kind(&self) -> SymbolKind {
        self.items.kind()
    }

    fn id_bytes(&self) -> usize {
        self.items.id_bytes()
    }

    fn item_count(&self) -> u64 {
        self.item_count
    }

    fn scan(&self, pass: &mut Pass) -> Result<()> {
        self.visit_numbered(&mut |index, line, occurrence| {
            self.items.with_item(line, occurrence, &mut |item| pass.add(ItemIndex(index), item))
        })?;
        self.file.check()
    }

    fn items(&self, wanted: &[ItemIndex]) -> Result<Vec<Item>> {
        let mut places: Vec<(ItemIndex, usize)> = wanted.iter().copied().zip(0..).collect();
        places.sort_unstable();
        let mut next = places.iter().peekable();
        let mut found: Vec<Option<Item>> = wanted.iter().map(|_| None).collect();
        self.visit_numbered(&mut |index, line, occurrence| {
            while let Some((_, place)) = next.next_if(|(wanted, _)| wanted.0 == index) {
                let slot = &mut found[*place];
                let mut keep = |item: ItemRef<'_>| *slot = Some(owned(item));
                self.items.with_item(line, occurrence, &mut keep)?;
            }
            Ok(())
        })?;
        self.file.check()?;
        let found: Option<Vec<Item>> = found.into_iter().collect();
        found.with_context(|| format!("{}: a record is gone", self.file.path().display()))
    }

    fn check_lengths(&self, wanted: &[ItemIndex], items: &[Item]) -> Result<()> {
        for (index, item) in wanted.iter().zip(items) {
            let bytes = item.as_item_ref().bytes_len();
            ensure!(
                bytes <= ITEM_BYTES_MAX,
                "{}: line {}: an item of {bytes} bytes, at most {ITEM_BYTES_MAX} are sent; nothing was applied",
                self.file.path().display(),
                index.0 + 1
            );
        }
        Ok(())
    }

    fn text(&self, item: &Item) -> Vec<u8> {
        self.items.text(item)
    }

    fn find(&self, keys: &BTreeSet<&[u8]>) -> Result<BTreeMap<Vec<u8>, ItemIndex>> {
        let mut found = BTreeMap::new();
        if !keys.is_empty() {
            self.visit_identities(&mut |index, key| {
                if keys.contains(key) {
                    found.insert(key.to_vec(), ItemIndex(index));
                }
                Ok(())
            })?;
        }
        Ok(found)
    }

    fn check_writable(&self) -> Result<()> {
        check_plain(self.compression, self.file.path())
    }

    fn apply(&self, change: &Change) -> Result<()> {
        self.check_writable()?;
        for item in change.added.iter().chain(change.replaced.values()) {
            let checked = self.items.check(item).and_then(|()| {
                ensure!(!self.items.text(item).contains(&b'\n'), "it has more than one line");
                Ok(())
            });
            checked.with_context(|| {
                let name = self.items.name();
                format!("{}: what came is no {name} of this file", self.file.path().display())
            })?;
        }
        apply::replace(&self.file, |target| self.write_records(change, target))
    }
}
