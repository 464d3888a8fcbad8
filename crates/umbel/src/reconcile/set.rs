//! What a session needs of a set of items.

use super::apply::Change;
use super::contents::Wanted;
use super::ids::{HexIds, RawIds};
use super::keyed::{JsonRecords, TabRecords};
use super::lines::Lines;
use super::records::{RecordItems as _, RecordSet};
use super::tree::Tree;
use anyhow::Result;
use std::collections::{BTreeMap, BTreeSet};
use std::io::Read;
use std::path::Path;
use umbel_engine::reconcile::{Item, ItemIndex, Kind, Pass, StoredSketch};
use umbel_filter::ItemHasher;

/// A set of items that does not change until it is told to.
pub(crate) trait ItemSet: Send + Sync {
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
pub(crate) enum Shown {
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
pub(crate) trait Contents {
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

/// What the items of a set are.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Form {
    /// Lines, each as often as it occurs.
    Lines,
    /// Ids in hexadecimal digits, one a line. Where a file is empty they have so many bytes, if that is known.
    HexIds(Option<usize>),
    /// Ids of so many bytes, one behind the other.
    RawIds(usize),
    /// Lines `key<TAB>value`.
    TabKeyed,
    /// JSON Lines with a key of these paths.
    JsonKeyed(Vec<String>),
    /// Files of a directory.
    Tree,
}

impl Form {
    /// What both sides must agree on beside the kind of their items, as a number.
    pub(crate) fn dataset_id(&self, set: &dyn ItemSet) -> u64 {
        self.dataset_id_of(set.id_bytes())
    }

    /// The same of a set whose ids, if it has ids, are of so many bytes.
    pub(super) fn dataset_id_of(&self, id_bytes: usize) -> u64 {
        let name = match self {
            Self::Lines => "lines".to_owned(),
            Self::HexIds(_) | Self::RawIds(_) => format!("ids:{id_bytes}"),
            Self::TabKeyed => "kv".to_owned(),
            Self::Tree => "dir".to_owned(),
            Self::JsonKeyed(paths) => format!("kv:{}", paths.join(",")),
        };
        ItemHasher::Xxh3 { seed: 0 }.hash(name.as_bytes()).hi()
    }

    /// The same form, which knows how long ids are if that can be told by one of these files.
    ///
    /// # Errors
    ///
    /// If one that is there cannot be read.
    pub(crate) fn with_id_bytes_of(&self, paths: &[&Path]) -> Result<Self> {
        if *self == Self::HexIds(None) {
            for path in paths {
                if std::fs::metadata(path).is_ok_and(|metadata| metadata.len() > 0) {
                    return Ok(Self::HexIds(Some(id_bytes_of(path, self)?)));
                }
            }
        }
        Ok(self.clone())
    }

    /// The arguments that make another `umbel reconcile` read its file so.
    pub(crate) fn arguments(&self) -> Vec<String> {
        match self {
            Self::Lines => vec!["--lines".into()],
            Self::HexIds(None) => vec!["--ids".into()],
            Self::HexIds(Some(bytes)) => vec![format!("--ids={}", 8 * bytes)],
            Self::RawIds(bytes) => vec!["--id-bytes".into(), bytes.to_string()],
            Self::TabKeyed => vec!["--kv".into()],
            Self::Tree => vec!["--dir".into()],
            Self::JsonKeyed(paths) => {
                let keys = paths.iter().flat_map(|path| ["--key".into(), path.clone()]);
                std::iter::once("--kv".into()).chain(keys).collect()
            }
        }
    }
}

/// How long the ids of a file are, if its items are ids; 0 if they are not.
///
/// # Errors
///
/// If it cannot be read.
pub(super) fn id_bytes_of(path: &Path, form: &Form) -> Result<usize> {
    Ok(match form {
        Form::HexIds(empty) => HexIds::of_file(path, *empty)?.id_bytes(),
        Form::RawIds(bytes) => *bytes,
        _ => 0,
    })
}

/// Opens a file or directory as a set, and freezes it.
///
/// # Errors
///
/// If it cannot be read, or an item of it is bad or stands twice where that may not be.
pub(crate) fn open_set(path: &Path, form: &Form) -> Result<Box<dyn ItemSet>> {
    Ok(match form {
        Form::Lines => Box::new(RecordSet::open(path, Lines)?),
        Form::HexIds(empty) => Box::new(RecordSet::open(path, HexIds::of_file(path, *empty)?)?),
        Form::RawIds(bytes) => Box::new(RawIds::open(path, *bytes)?),
        Form::Tree => Box::new(Tree::open(path)?),
        Form::TabKeyed => Box::new(RecordSet::open(path, TabRecords)?),
        Form::JsonKeyed(paths) => Box::new(RecordSet::open(path, JsonRecords::new(paths)?)?),
    })
}
