//! Opens files and directories as sets, according to their form.

use super::form::Form;
use super::ids::{HexIds, RawIds};
use super::keyed::{JsonRecords, TabRecords};
use super::lines::Lines;
use super::records::{RecordItems as _, RecordSet};
use super::set::ItemSet;
use super::tree::Tree;
use crate::error::Result;
use std::path::Path;

impl Form {
    /// The same form, with the length of its ids if one of these files shows it.
    ///
    /// # Errors
    ///
    /// If a file that exists cannot be read.
    pub fn with_id_bytes_of(&self, paths: &[&Path]) -> Result<Self> {
        if *self == Self::HexIds(None) {
            for path in paths {
                if std::fs::metadata(path).is_ok()
                    && let Some(bytes) = HexIds::length_in(path)?
                {
                    return Ok(Self::HexIds(Some(bytes)));
                }
            }
        }
        Ok(self.clone())
    }
}

/// Length of a file's ids in bytes; 0 if its items are not ids.
///
/// # Errors
///
/// If the file cannot be read.
pub(super) fn id_bytes_of(path: &Path, form: &Form) -> Result<usize> {
    Ok(match form {
        Form::HexIds(expected) => HexIds::of_file(path, *expected)?.id_bytes(),
        Form::RawIds(bytes) => *bytes,
        _ => 0,
    })
}

/// Opens a file or directory as a set, and records its state to detect changes.
///
/// # Errors
///
/// If it cannot be read, an item is invalid, or an item that must be unique occurs twice.
pub fn open_set(path: &Path, form: &Form) -> Result<Box<dyn ItemSet>> {
    Ok(match form {
        Form::Lines => Box::new(RecordSet::open(path, Lines)?),
        Form::HexIds(expected) => {
            Box::new(RecordSet::open(path, HexIds::of_file(path, *expected)?)?)
        }
        Form::RawIds(bytes) => Box::new(RawIds::open(path, *bytes)?),
        Form::Tree => Box::new(Tree::open(path)?),
        Form::TabKeyed => Box::new(RecordSet::open(path, TabRecords)?),
        Form::JsonKeyed(paths) => Box::new(RecordSet::open(path, JsonRecords::new(paths)?)?),
    })
}
