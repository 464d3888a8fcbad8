//! Which columns items are made of.

use parquet::schema::types::ColumnDescriptor;

use super::file::ParquetFile;
use super::form::Form;
use crate::KeyPath;
use crate::key_group::is_empty_key;

/// Column names that an error lists.
const LISTED_COLUMNS: usize = 20;

/// The columns of a file that items are made of.
///
/// A key path names one column: the fields of its structs, then itself. Columns inside of lists and
/// maps have several values a row and are no keys.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ParquetSelection {
    pub(super) columns: Vec<Selected>,
    /// Items are all columns with their levels.
    pub(super) is_record: bool,
}

/// A column that items are made of.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Selected {
    pub(super) index: usize,
    pub(super) form: Form,
    path: String,
    levels: (i16, i16),
}

impl ParquetSelection {
    /// All columns of `file`: items are whole rows.
    ///
    /// # Errors
    /// [`SelectionError::NoColumn`] if it has none.
    pub fn record(file: &ParquetFile) -> Result<Self, SelectionError> {
        let count = file.columns().len();
        Self::of((0..count).map(|index| Selected::new(file, index)).collect(), true)
    }

    /// The columns of `file` that the paths name, in this order.
    ///
    /// # Errors
    /// [`SelectionError`] if the file has no such column, or it cannot be a key.
    pub fn key(file: &ParquetFile, paths: &[KeyPath]) -> Result<Self, SelectionError> {
        let columns: Result<_, _> =
            paths.iter().map(|path| Ok(Selected::new(file, find(file, path)?))).collect();
        Self::of(columns?, false)
    }

    fn of(columns: Vec<Selected>, is_record: bool) -> Result<Self, SelectionError> {
        if columns.is_empty() {
            Err(SelectionError::NoColumn)
        } else {
            Ok(Self { columns, is_record })
        }
    }

    /// What tells whether an item is empty: has nothing but columns that are null or the empty
    /// string. A whole row never is.
    pub fn emptiness(&self) -> fn(&[u8]) -> bool {
        if self.is_record { |_| false } else { is_empty_key }
    }

    /// Why items of the two files cannot be compared: the first column that is not of the same kind.
    /// `None` if they can.
    pub fn difference(&self, other: &Self) -> Option<String> {
        if self.is_record && self.columns.len() != other.columns.len() {
            let (here, there) = (self.columns.len(), other.columns.len());
            return Some(format!("there are {there} columns there and {here} here"));
        }
        for (ours, theirs) in self.columns.iter().zip(&other.columns) {
            let (our, their) = (ours.form.kind(), theirs.form.kind());
            if our != their {
                return Some(format!("column `{}` is {their} there and {our} here", ours.path));
            }
            if self.is_record && ours.path != theirs.path {
                let (our, their) = (&ours.path, &theirs.path);
                return Some(format!("column `{their}` there stands where `{our}` is here"));
            }
            if self.is_record && ours.levels != theirs.levels {
                let path = &ours.path;
                return Some(format!(
                    "column `{path}` is optional or repeated in only one of them"
                ));
            }
        }
        None
    }
}

impl Selected {
    fn new(file: &ParquetFile, index: usize) -> Self {
        let column = &file.columns()[index];
        let levels = (column.max_rep_level(), column.max_def_level());
        Self { index, form: Form::of(column), path: column.path().string(), levels }
    }
}

/// The column that a path names.
fn find(file: &ParquetFile, path: &KeyPath) -> Result<usize, SelectionError> {
    let columns = file.columns();
    let matches = |column: &ColumnDescriptor| column.path().parts() == path.fields();
    if let Some(index) = columns.iter().position(|column| matches(column)) {
        if columns[index].max_rep_level() > 0 {
            return Err(SelectionError::Repeated { path: path.clone() });
        }
        return Ok(index);
    }
    let below = columns.iter().filter(|column| column.path().parts().starts_with(path.fields()));
    let below = listed(below.map(|column| column.path().string()));
    if !below.is_empty() {
        return Err(SelectionError::Group { path: path.clone(), columns: below });
    }
    let columns = listed(columns.iter().map(|column| column.path().string()));
    Err(SelectionError::Missing { path: path.clone(), columns })
}

fn listed(mut names: impl Iterator<Item = String>) -> String {
    let mut text = names.by_ref().take(LISTED_COLUMNS).collect::<Vec<_>>().join(", ");
    if names.next().is_some() {
        text.push_str(", …");
    }
    text
}

/// Why a file has no items of this kind. Change the request; no row was read.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SelectionError {
    /// The schema or the key is empty.
    #[error("there is no column to compare; name at least one")]
    NoColumn,
    /// No column has this path.
    #[error("no column `{path}`; there are: {columns}")]
    Missing {
        /// The path.
        path: KeyPath,
        /// Columns that there are.
        columns: String,
    },
    /// The path leads to a struct, list or map.
    #[error("`{path}` is a group of columns; name one of them: {columns}")]
    Group {
        /// The path.
        path: KeyPath,
        /// Columns in the group.
        columns: String,
    },
    /// The column has several values a row.
    #[error("column `{path}` is inside of a list or map, of which a row has many; name another")]
    Repeated {
        /// The path.
        path: KeyPath,
    },
}
