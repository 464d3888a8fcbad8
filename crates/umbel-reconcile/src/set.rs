//! What a session needs of a set of items.

use super::change::Change;
use super::delta::Basis;
use crate::error::Result;
use std::collections::{BTreeMap, BTreeSet};
use std::io::Read;
use umbel_reconcile_engine::{Item, ItemIndex, Kind, Pass, StoredSketch};

/// A set of items that changes only when changes are applied.
pub trait ItemSet: Send + Sync {
    /// How its items become symbols.
    fn kind(&self) -> Kind;

    /// How long its ids are, if it has ids; 0 if it does not.
    fn id_bytes(&self) -> usize {
        0
    }

    /// How many items it has.
    fn item_count(&self) -> u64;

    /// The stored sketch of the set, if one is kept with it.
    fn stored_sketch(&self) -> Option<&StoredSketch> {
        None
    }

    /// Adds every item to a pass.
    ///
    /// # Errors
    ///
    /// If an item cannot be read, or the set is not what it was.
    fn scan(&self, pass: &mut Pass) -> Result<()>;

    /// The items of these numbers, in this order.
    ///
    /// # Errors
    ///
    /// As for [`scan`](Self::scan); if there is no such item.
    fn items(&self, wanted: &[ItemIndex]) -> Result<Vec<Item>>;

    /// An item as people know it, in one line without its end.
    fn text(&self, item: &Item) -> Vec<u8>;

    /// What names an item that may have several versions.
    fn key<'i>(&self, item: &'i Item) -> Option<&'i [u8]> {
        match item {
            Item::Keyed { key, .. } => Some(key),
            _ => None,
        }
    }

    /// The difference as people read it, in any order.
    ///
    /// # Errors
    ///
    /// If an item makes no sense here.
    fn show(&self, ours: &[Item], theirs: &[Item]) -> Result<Vec<Shown>> {
        let ours = ours.iter().map(|item| Shown::OnlyHere(self.text(item)));
        let theirs = theirs.iter().map(|item| Shown::OnlyThere(self.text(item)));
        Ok(ours.chain(theirs).collect())
    }

    /// The contents of items, where those are more than the items.
    fn contents(&self) -> Option<&dyn Contents> {
        None
    }

    /// The items of these keys, where items have keys.
    ///
    /// # Errors
    ///
    /// As for [`scan`](Self::scan).
    fn find(&self, keys: &BTreeSet<&[u8]>) -> Result<BTreeMap<Vec<u8>, ItemIndex>> {
        let _ = keys;
        Ok(BTreeMap::new())
    }

    /// Whether the set can be changed; `Err` says why not.
    ///
    /// # Errors
    ///
    /// If it cannot.
    fn check_writable(&self) -> Result<()>;

    /// Whether a change can be made, before anything of it is.
    ///
    /// # Errors
    ///
    /// If something stands in its way.
    fn check_change(&self, change: &Change) -> Result<()> {
        let _ = change;
        Ok(())
    }

    /// Changes the set, all at once or not at all.
    ///
    /// # Errors
    ///
    /// If it cannot be written, or is not what it was.
    fn apply(&self, change: &Change) -> Result<()>;
}

/// A line of a difference.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Shown {
    /// Of this side.
    OnlyHere(Vec<u8>),
    /// Of the other side.
    OnlyThere(Vec<u8>),
    /// In two versions.
    Changed(Vec<u8>),
    /// The same under two names.
    Renamed {
        /// Its name on this side.
        here: Vec<u8>,
        /// Its name on the other side.
        there: Vec<u8>,
    },
}

/// Contents that items name by their hashes.
pub trait Contents {
    /// Those that a change needs and that are not here, each once, with older versions cut under this salt.
    ///
    /// # Errors
    ///
    /// If an item makes no sense here, or an older version cannot be read.
    fn wanted(&self, change: &Change, salt: u64) -> Result<Vec<Wanted>>;

    /// The length and the bytes of one of this side's contents, by the first bytes of its hash.
    ///
    /// # Errors
    ///
    /// If there is none, or it is not what it was.
    fn open(&self, prefix: [u8; 8]) -> Result<(u64, Box<dyn Read>)>;

    /// Keeps a content until the change is applied.
    ///
    /// # Errors
    ///
    /// If it is not what its hash says, or cannot be kept.
    fn stage(&self, hash: [u8; 32], bytes: u64, content: &mut dyn Read) -> Result<()>;
}

/// A content that is wanted.
pub struct Wanted {
    /// BLAKE3 of its bytes.
    pub hash: [u8; 32],
    /// Its length, as the item has it.
    pub(crate) bytes: u64,
    /// An older version of it.
    pub(crate) basis: Option<Basis>,
}
