//! What a session needs of a set of items.

use super::change::Change;
use super::delta::Basis;
use crate::error::Result;
use std::collections::{BTreeMap, BTreeSet};
use std::io::Read;
use umbel_reconcile_engine::{Item, ItemIndex, Pass, StoredSketch, SymbolKind};

/// A set of items that changes only when `apply` changes it.
pub trait ItemSet: Send + Sync {
    /// How items become symbols.
    fn kind(&self) -> SymbolKind;

    /// Length of its ids in bytes; 0 if its items are not ids.
    fn id_bytes(&self) -> usize {
        0
    }

    /// Number of items.
    fn item_count(&self) -> u64;

    /// The sketch that is stored with the set, if there is one.
    fn stored_sketch(&self) -> Option<&StoredSketch> {
        None
    }

    /// Adds every item to a pass.
    ///
    /// # Errors
    ///
    /// If an item cannot be read, or the set has changed since it was opened.
    fn scan(&self, pass: &mut Pass) -> Result<()>;

    /// The items with these indices, in this order.
    ///
    /// # Errors
    ///
    /// As for [`scan`](Self::scan); if there is no such item.
    fn items(&self, wanted: &[ItemIndex]) -> Result<Vec<Item>>;

    /// Checks that these items, which have these indices, are not longer than those that a session carries.
    ///
    /// # Errors
    ///
    /// If one is; the error names the set and the record.
    fn check_lengths(&self, wanted: &[ItemIndex], items: &[Item]) -> Result<()> {
        let _ = (wanted, items);
        Ok(())
    }

    /// An item in human-readable form: one line, without its end.
    fn text(&self, item: &Item) -> Vec<u8>;

    /// The key of an item that may have several versions.
    fn key<'i>(&self, item: &'i Item) -> Option<&'i [u8]> {
        match item {
            Item::Keyed { key, .. } => Some(key),
            _ => None,
        }
    }

    /// The difference in human-readable form, in any order.
    ///
    /// # Errors
    ///
    /// If an item is invalid for this set.
    fn show(&self, ours: &[Item], theirs: &[Item]) -> Result<Vec<Shown>> {
        let ours = ours.iter().map(|item| Shown::OnlyHere(self.text(item)));
        let theirs = theirs.iter().map(|item| Shown::OnlyThere(self.text(item)));
        Ok(ours.chain(theirs).collect())
    }

    /// The contents that items name, if items do not hold everything themselves.
    fn contents(&self) -> Option<&dyn Contents> {
        None
    }

    /// The items with these keys, if items have keys.
    ///
    /// # Errors
    ///
    /// As for [`scan`](Self::scan).
    fn find(&self, keys: &BTreeSet<&[u8]>) -> Result<BTreeMap<Vec<u8>, ItemIndex>> {
        let _ = keys;
        Ok(BTreeMap::new())
    }

    /// Checks whether the set can be changed at all.
    ///
    /// # Errors
    ///
    /// The reason why it cannot.
    fn check_writable(&self) -> Result<()>;

    /// Checks a change before any of it is applied.
    ///
    /// # Errors
    ///
    /// If something prevents the change.
    fn check_change(&self, change: &Change) -> Result<()> {
        let _ = change;
        Ok(())
    }

    /// Applies a change: all of it, or nothing.
    ///
    /// # Errors
    ///
    /// If the set cannot be written, or has changed since it was opened.
    fn apply(&self, change: &Change) -> Result<()>;
}

/// One line of a difference.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Shown {
    /// Only this side has it.
    OnlyHere(Vec<u8>),
    /// Only the other side has it.
    OnlyThere(Vec<u8>),
    /// Both sides have it, in different versions.
    Changed(Vec<u8>),
    /// The same content under two names.
    Renamed {
        /// Its name on this side.
        here: Vec<u8>,
        /// Its name on the other side.
        there: Vec<u8>,
    },
}

/// Contents that items name by their hashes.
pub trait Contents {
    /// The contents that a change needs and that this side lacks, each once, with older versions cut into
    /// chunks under this salt.
    ///
    /// # Errors
    ///
    /// If an item is invalid for this set, or an older version cannot be read.
    fn wanted(&self, change: &Change, salt: u64) -> Result<Vec<Wanted>>;

    /// One of this side's contents, by the first bytes of its hash.
    ///
    /// # Errors
    ///
    /// If there is none, or it has changed since the set was opened.
    fn open(&self, prefix: [u8; 8]) -> Result<OpenedContent>;

    /// Stores a content until the change is applied.
    ///
    /// # Errors
    ///
    /// If it does not match its hash, or it or one before it cannot be stored.
    fn stage(&self, hash: [u8; 32], bytes: u64, content: &mut dyn Read) -> Result<()>;

    /// Makes all contents durable that were stored.
    ///
    /// # Errors
    ///
    /// If one of them could not be written.
    fn sync(&self) -> Result<()>;
}

/// A content that the other side has requested, and that is to be read.
pub struct OpenedContent {
    /// The path of the file, for messages.
    pub name: String,
    /// Its length when the set was opened.
    pub bytes: u64,
    /// Its bytes.
    pub content: Box<dyn Read>,
}

/// A content that this side requests.
pub struct Wanted {
    /// BLAKE3 of its bytes.
    pub hash: [u8; 32],
    /// Its length as its item states it.
    pub(crate) bytes: u64,
    /// An older version of it.
    pub(crate) basis: Option<Basis>,
}
