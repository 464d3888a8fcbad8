//! Selects the columns that items are made of.

use parquet::schema::types::ColumnDescriptor;

use super::file::ParquetFile;
use super::form::{Form, is_text};
use super::score::DECIMAL_DIGITS_MAX;
use crate::KeyPath;
use crate::key_group::is_empty_key;

/// Column names that an error lists.
const LISTED_COLUMNS: usize = 20;

/// The columns of a file that items are made of, and optionally one by which rows are ranked.
///
/// A key path names one column: the fields of its structs, then the column itself. Columns inside lists
/// and maps have several values per row and cannot be keys.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ParquetSelection {
    /// The columns of the items in their order, then the column of the score, unless it is among them.
    pub(super) columns: Vec<Selected>,
    pub(super) item_columns: usize,
    pub(super) item: ItemKind,
    /// Index in `columns` of the column with the scores.
    pub(super) score: Option<usize>,
}

/// How items are made of their columns.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ItemKind {
    /// All columns with their levels.
    Record,
    /// The only value of each column.
    Key,
    /// The bytes of one column, as they are.
    Text,
}

/// A column that is read.
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
        let columns = (0..count).map(|index| Selected::new(file, index)).collect();
        Self::of(columns, ItemKind::Record)
    }

    /// The columns of `file` that the paths name, in this order.
    ///
    /// # Errors
    /// [`SelectionError`] if the file has no such column, or it cannot be a key.
    pub fn key(file: &ParquetFile, paths: &[KeyPath]) -> Result<Self, SelectionError> {
        let columns: Result<_, _> =
            paths.iter().map(|path| Ok(Selected::new(file, find(file, path)?))).collect();
        Self::of(columns?, ItemKind::Key)
    }

    /// The column of texts that the path names: an item is the bytes of its text, empty for null.
    ///
    /// # Errors
    /// [`SelectionError`] if the file has no such column, or the column does not contain text.
    pub fn text(file: &ParquetFile, path: &KeyPath) -> Result<Self, SelectionError> {
        let index = find(file, path)?;
        let column = Selected::new(file, index);
        if !is_text(&file.columns()[index]) {
            let kind = match column.form {
                Form::Bytes => "bytes that are no text",
                form => form.kind(),
            };
            return Err(SelectionError::NoText { path: path.clone(), kind });
        }
        Self::of(vec![column], ItemKind::Text)
    }

    fn of(columns: Vec<Selected>, item: ItemKind) -> Result<Self, SelectionError> {
        if columns.is_empty() {
            return Err(SelectionError::NoColumn);
        }
        Ok(Self { item_columns: columns.len(), columns, item, score: None })
    }

    /// The same, and in addition the numbers of this column of `file`.
    ///
    /// # Errors
    /// [`SelectionError`] if the file has no such column, or its values cannot be ordered.
    pub fn scored(mut self, file: &ParquetFile, path: &KeyPath) -> Result<Self, SelectionError> {
        let index = find(file, path)?;
        let column = Selected::new(file, index);
        let is_printed = file.columns()[index].type_precision() <= DECIMAL_DIGITS_MAX;
        if column.form.measure().is_none() || !is_printed {
            let kind = if is_printed { column.form.kind() } else { "decimal of too many digits" };
            return Err(SelectionError::NoNumber { path: path.clone(), kind });
        }
        let known = self.columns.iter().position(|column| column.index == index);
        self.score = Some(known.unwrap_or(self.columns.len()));
        if known.is_none() {
            self.columns.push(column);
        }
        Ok(self)
    }

    /// Returns a function that tells whether an item is empty: all its columns are null or the empty
    /// string. A whole row is never empty.
    pub fn emptiness(&self) -> fn(&[u8]) -> bool {
        match self.item {
            ItemKind::Record => |_| false,
            ItemKind::Key => is_empty_key,
            ItemKind::Text => <[u8]>::is_empty,
        }
    }

    /// Why items or scores of the two files cannot be compared: the first column whose kinds differ.
    /// `None` if they can.
    pub fn difference(&self, other: &Self) -> Option<String> {
        let is_record = self.item == ItemKind::Record;
        let (here, there) = (self.item_columns, other.item_columns);
        if is_record && here != there {
            return Some(format!("there are {there} columns there and {here} here"));
        }
        for (ours, theirs) in self.columns[..here].iter().zip(&other.columns[..there]) {
            if ours.form.kind() != theirs.form.kind() {
                return Some(ours.other_kind(theirs));
            }
            if is_record && ours.path != theirs.path {
                let (our, their) = (&ours.path, &theirs.path);
                return Some(format!("column `{their}` there stands where `{our}` is here"));
            }
            if is_record && ours.levels != theirs.levels {
                let path = &ours.path;
                return Some(format!(
                    "column `{path}` is optional or repeated in only one of them"
                ));
            }
        }
        let (ours, theirs) = (self.score_column()?, other.score_column()?);
        (ours.form.measure() != theirs.form.measure()).then(|| ours.other_kind(theirs))
    }

    fn score_column(&self) -> Option<&Selected> {
        self.columns.get(self.score?)
    }
}

impl Selected {
    fn new(file: &ParquetFile, index: usize) -> Self {
        let column = &file.columns()[index];
        let levels = (column.max_rep_level(), column.max_def_level());
        Self { index, form: Form::of(column), path: column.path().string(), levels }
    }

    /// The text that says that a column has another kind in the other file.
    fn other_kind(&self, there: &Self) -> String {
        let (our, their) = (self.form.kind(), there.form.kind());
        format!("column `{}` is {their} there and {our} here", self.path)
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
    let mut below = below.peekable();
    if below.peek().is_some() {
        let single = below.filter(|column| column.max_rep_level() == 0);
        let columns = listed(single.map(|column| column.path().string()));
        let path = path.clone();
        return Err(if columns.is_empty() {
            SelectionError::Repeated { path }
        } else {
            SelectionError::Group { path, columns }
        });
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
    /// The path leads to a struct with columns of one value per row.
    #[error("`{path}` is a group of columns; name one of them: {columns}")]
    Group {
        /// The path.
        path: KeyPath,
        /// Columns in the group with one value per row.
        columns: String,
    },
    /// The column is a list or map, or in one, and has several values per row.
    #[error(
        "column `{path}` is a list or map, or in one: a row has many of its values; name another"
    )]
    Repeated {
        /// The path.
        path: KeyPath,
    },
    /// Rows cannot be ranked by values of this kind.
    #[error(
        "column `{path}` is {kind}, which has no number; name one of integers, floats, decimals, \
         dates, times or timestamps"
    )]
    NoNumber {
        /// The path.
        path: KeyPath,
        /// Kind of its values.
        kind: &'static str,
    },
    /// The column has no texts from which pieces could be removed.
    #[error("column `{path}` is {kind}; name one of strings")]
    NoText {
        /// The path.
        path: KeyPath,
        /// Kind of its values.
        kind: &'static str,
    },
}
