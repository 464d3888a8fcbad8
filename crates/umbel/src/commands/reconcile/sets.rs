//! Opens the sets of this machine, and begins those that do not exist yet.

use super::ReconcileArgs;
use crate::interrupt::BegunEmpty;
use crate::stderr::eprint_line;
use anyhow::{Context, Result};
use std::io::ErrorKind;
use std::path::Path;
use umbel_reconcile::{Form, ItemSet, KeptSet, ReconcileError, open_set};

/// Whether nothing has this name.
fn is_missing(path: &Path) -> bool {
    std::fs::symlink_metadata(path).is_err_and(|error| error.kind() == ErrorKind::NotFound)
}

impl ReconcileArgs {
    /// Creates an empty set at a path that does not exist, if items are to be written there. A message
    /// reports it, so that a mistyped path is noticed.
    pub(super) fn begin(
        &self,
        path: &Path,
        form: &Form,
        is_changed: bool,
    ) -> Result<Option<BegunEmpty>> {
        if !is_missing(path) || !is_changed || self.stored_sketch().is_some() {
            return Ok(None);
        }
        let shown = path.display();
        let begun = BegunEmpty::new(path, *form == Form::Tree)
            .with_context(|| format!("{shown}: is not there, and cannot be created"))?;
        eprint_line(format_args!("{shown} does not exist: begun as an empty set"));
        Ok(Some(begun))
    }

    /// Opens a set, by its stored sketch if it has one.
    pub(super) fn open(
        &self,
        path: &Path,
        form: &Form,
    ) -> Result<Box<dyn ItemSet>, ReconcileError> {
        if let Some(sketch) = self.stored_sketch() {
            return Ok(Box::new(KeptSet::open(path, form, sketch)?));
        }
        if let Some(sketch) = &self.sketch_if_any {
            eprint_line(format_args!(
                "{} is not there: the session continues with a scan",
                sketch.display()
            ));
        }
        open_set(path, form)
    }

    /// The sketch of the set. Who has named it insists on it; who begins a session over ssh does not know whether there
    /// is one on the other side.
    fn stored_sketch(&self) -> Option<&Path> {
        let beside = self.sketch_if_any.as_deref().filter(|path| !is_missing(path));
        self.sketch.as_deref().or(beside)
    }
}
