//! A set with a sketch stored next to it: the set is read only when a session needs its items.

use super::change::Change;
use super::form::Form;
use super::frozen::FrozenFile;
use super::offline::{SketchFile, check_form};
use super::open::{id_bytes_of, open_set};
use super::records::check_plain;
use super::set::{Contents, ItemSet, Shown};
use crate::error::{Context, Result, bail, ensure};
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, OnceLock};
use umbel_files::UsageError;
use umbel_reconcile_engine::{Item, ItemIndex, Pass, StoredSketch, SymbolKind};
use umbel_records::Compression;

/// A set and its sketch.
pub struct KeptSet {
    path: PathBuf,
    form: Form,
    id_bytes: usize,
    file: FrozenFile,
    sketch: SketchFile,
    opened: OnceLock<Box<dyn ItemSet>>,
    /// Held while the set is being opened.
    opening: Mutex<()>,
}

impl KeptSet {
    /// Opens a set by its sketch; of the set itself, only its metadata and the length of its ids are
    /// read.
    ///
    /// # Errors
    ///
    /// If one of the two cannot be read, the set was modified after the sketch, or the sketch is of items
    /// of another form.
    pub fn open(path: &Path, form: &Form, sketch: &Path) -> Result<Self> {
        if *form == Form::Tree {
            let text = "--sketch: of a directory nobody sees without a scan whether it has changed";
            return Err(UsageError(text.into()).into());
        }
        let file = FrozenFile::open(path)?;
        let id_bytes = id_bytes_of(path, form)?;
        let sketch = SketchFile::open(sketch)?;
        let name = sketch.file.path().display().to_string();
        check_form(&name, &sketch.sketch.spec(), (sketch.sketch.spec().kind(), id_bytes), form)?;
        if sketch.file.modified() < file.modified() {
            bail!(
                "{name}: is older than {shown}, and may lack what has changed in it: tell it by `umbel sketch add` and \
                 `remove`, or build it again",
                shown = path.display()
            );
        }
        let (path, form) = (path.to_owned(), form.clone());
        let (opened, opening) = (OnceLock::new(), Mutex::new(()));
        Ok(Self { path, form, id_bytes, file, sketch, opened, opening })
    }

    /// The set, opened now if it was not before.
    fn set(&self) -> Result<&dyn ItemSet> {
        // A thread that held the lock before has opened the set, or failed.
        let _one = self.opening.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        if let Some(set) = self.opened.get() {
            return Ok(&**set);
        }
        let set = open_set(&self.path, &self.form)?;
        self.file.check()?;
        let (have, kept) = (set.item_count(), self.item_count());
        ensure!(
            have == kept,
            "{}: is of {kept} items, {} has {have}: build it again; nothing was applied",
            self.sketch.file.path().display(),
            self.path.display()
        );
        Ok(&**self.opened.get_or_init(|| set))
    }

    /// The sketch of items that are held in memory.
    fn sketch_of(&self, items: &[Item]) -> Result<StoredSketch> {
        let sketch = &self.sketch.sketch;
        let mut pass = sketch.spec().pass(sketch.coded_count() as u64)?;
        items.iter().for_each(|item| pass.add(ItemIndex(0), item.as_item_ref()));
        Ok(StoredSketch::of_pass(sketch.spec(), pass)?)
    }
}

impl ItemSet for KeptSet {
    fn kind(&self) -> SymbolKind {
        self.sketch.sketch.spec().kind()
    }

    fn id_bytes(&self) -> usize {
        self.id_bytes
    }

    fn item_count(&self) -> u64 {
        self.sketch.sketch.item_count()
    }

    fn stored_sketch(&self) -> Option<&StoredSketch> {
        Some(&self.sketch.sketch)
    }

    fn scan(&self, pass: &mut Pass) -> Result<()> {
        self.set()?.scan(pass)
    }

    fn items(&self, wanted: &[ItemIndex]) -> Result<Vec<Item>> {
        if wanted.is_empty() { Ok(Vec::new()) } else { self.set()?.items(wanted) }
    }

    fn check_lengths(&self, wanted: &[ItemIndex], items: &[Item]) -> Result<()> {
        if wanted.is_empty() { Ok(()) } else { self.set()?.check_lengths(wanted, items) }
    }

    /// If the set is not open, the item in its wire form; [`show`](Self::show) opens the set.
    fn text(&self, item: &Item) -> Vec<u8> {
        let travels = || item.to_bytes();
        self.opened.get().map_or_else(travels, |set| set.text(item))
    }

    fn show(&self, ours: &[Item], theirs: &[Item]) -> Result<Vec<Shown>> {
        if ours.is_empty() && theirs.is_empty() {
            return Ok(Vec::new());
        }
        self.set()?.show(ours, theirs)
    }

    fn contents(&self) -> Option<&dyn Contents> {
        None
    }

    fn find(&self, keys: &BTreeSet<&[u8]>) -> Result<BTreeMap<Vec<u8>, ItemIndex>> {
        if keys.is_empty() { Ok(BTreeMap::new()) } else { self.set()?.find(keys) }
    }

    /// Checked before the session, because the other side changes its set first.
    fn check_writable(&self) -> Result<()> {
        if matches!(self.form, Form::RawIds(_)) {
            return Ok(());
        }
        let shown = || self.path.display().to_string();
        let compression = Compression::of_file(self.file.file(), &self.path).with_context(shown)?;
        check_plain(compression, &self.path)
    }

    /// Changes the set, then the sketch. A process that is killed in between leaves a sketch older than
    /// its set, which `open` refuses.
    fn apply(&self, change: &Change) -> Result<()> {
        let set = self.set()?;
        let gone: Vec<ItemIndex> =
            change.removed.iter().chain(change.replaced.keys()).copied().collect();
        let gone = self.sketch_of(&set.items(&gone)?)?;
        let come: Vec<Item> =
            change.added.iter().chain(change.replaced.values()).cloned().collect();
        let come = self.sketch_of(&come)?;
        let shown = || self.sketch.file.path().display().to_string();
        let mut sketch = self.sketch.sketch.clone();
        sketch.remove(&gone).and_then(|()| sketch.add(&come)).with_context(shown)?;
        set.apply(change)?;
        self.sketch.replace(&sketch).with_context(|| {
            format!("{} was changed, its sketch was not: build it again", self.path.display())
        })
    }
}
