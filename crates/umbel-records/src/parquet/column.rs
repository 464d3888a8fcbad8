//! Reads one column chunk, a batch of rows at a time.
//!
//! ```text
//! levels  rep 0 1 1 | 0 | 0 1 |     a row begins where the repetition level is 0
//!         def 3 3 2 | 1 | 3 3 |     a value is there where the definition level is the largest
//! values      a b         c d
//! ```

use std::sync::Arc;

use parquet::basic::Type;
use parquet::column::reader::{ColumnReaderImpl, get_column_reader, get_typed_column_reader};
use parquet::data_type::{
    AsBytes, BoolType, ByteArrayType, DataType, DoubleType, FixedLenByteArrayType, FloatType,
    Int32Type, Int64Type, Int96Type,
};
use parquet::file::metadata::ColumnChunkMetaData;
use parquet::file::writer::SerializedColumnWriter;

use super::form::Form;
use super::pages::{BatchUse, CheckedPages, has_prefixes};
use super::panics::caught;
use super::score::ScoredValue;
use super::stored_column::StoredColumn;
use super::value::{CanonicalValue, write_null};
use crate::key_group::{read_group, write_group, write_length};
use crate::{Normalisers, Score, Stored};

/// Most rows of a batch: enough that the calls cost little compared with decoding.
const BATCH_ROWS: u64 = 1024;

/// Target for the decompressed bytes of a batch: 4 MiB, so that a column of documents takes as much
/// memory as a column of numbers.
const BATCH_BYTES: u64 = 4 << 20;

/// Target for the levels of a batch, for columns of long lists.
const BATCH_LEVELS: u64 = 1 << 16;

/// Most rows of a batch if each value may take as much memory as a page.
const BATCH_PREFIX_ROWS: u64 = 16;

/// A column chunk of any type.
pub(super) trait Column: Send {
    /// Reads the next batch and returns its number of rows; 0 at the end.
    fn fill(&mut self) -> Result<usize, String>;

    /// Rows of the batch that were not taken yet.
    fn rows_left(&self) -> usize;

    /// Takes the next row of the batch, and appends its only value.
    fn take_value(&mut self, item: &mut Vec<u8>);

    /// Takes the next row of the batch, and appends all its levels and values.
    fn take_levels(&mut self, item: &mut Vec<u8>);

    /// Takes the next row of the batch, and appends the bytes of its only value; nothing for null.
    fn take_text(&mut self, item: &mut Vec<u8>);

    /// Takes the next row of the batch, which has at most one value, and appends nothing.
    fn pass_row(&mut self);

    /// The number of the only value of the next row of the batch; does not take the row.
    fn score(&self) -> Option<Score>;

    /// From now on, applies normalisers to values that are written as strings.
    fn set_normalisers(&mut self, normalisers: Normalisers);

    /// Writes the rows of the batch for which `stays` returns true; it is called once for each row, in
    /// order.
    fn copy_batch(
        &mut self,
        writer: &mut SerializedColumnWriter<'_>,
        stays: &mut dyn FnMut() -> bool,
    ) -> Result<(), String>;

    /// Writes the rows of the batch, each of which is one text or null, as `edit` decides. It is called
    /// once for each row, in order, with an empty text for null.
    fn copy_texts(
        &mut self,
        writer: &mut SerializedColumnWriter<'_>,
        edit: &mut dyn FnMut(&[u8]) -> TextFate,
    ) -> Result<(), String>;
}

/// What `edit` decides about a row and its text.
pub(super) enum TextFate {
    /// Row and text are kept.
    Stays,
    /// The row is kept, with this text.
    Becomes(Vec<u8>),
    /// The row is dropped.
    Goes,
}

/// Opens a column chunk of `rows` rows, whose stored bytes end at `end`.
pub(super) fn open(
    stored: &Stored,
    chunk: &ColumnChunkMetaData,
    rows: u64,
    form: Form,
) -> Result<(Box<dyn Column>, StoredColumn), String> {
    caught(|| {
        let (start, length) = chunk.byte_range();
        let end = start.checked_add(length).ok_or("its place is beyond any file")?;
        let stored = StoredColumn::new(stored, (start, end), chunk.compression());
        let batch = Arc::new(BatchUse::default());
        let rows_hint = usize::try_from(rows).unwrap_or(usize::MAX);
        let pages = CheckedPages::new(stored.clone(), chunk, rows_hint, Arc::clone(&batch))
            .map_err(|error| text(&error))?;
        let opening = Opening { pages, chunk, form, batch, batch_rows: batch_rows(chunk, rows) };
        let column = match chunk.column_type() {
            Type::BOOLEAN => opening.column::<BoolType>(),
            Type::INT32 => opening.column::<Int32Type>(),
            Type::INT64 => opening.column::<Int64Type>(),
            Type::INT96 => opening.column::<Int96Type>(),
            Type::FLOAT => opening.column::<FloatType>(),
            Type::DOUBLE => opening.column::<DoubleType>(),
            Type::BYTE_ARRAY => opening.column::<ByteArrayType>(),
            Type::FIXED_LEN_BYTE_ARRAY => opening.column::<FixedLenByteArrayType>(),
        };
        Ok((column, stored))
    })
}

/// Rows of a batch, so that it takes little memory if the sizes in the footer are true.
fn batch_rows(chunk: &ColumnChunkMetaData, rows: u64) -> usize {
    let mean = |total: i64| u64::try_from(total).unwrap_or(0) / rows.max(1) + 1;
    let by_bytes = BATCH_BYTES / mean(chunk.uncompressed_size());
    let by_levels = BATCH_LEVELS / mean(chunk.num_values());
    let most = if has_prefixes(chunk) { BATCH_PREFIX_ROWS } else { BATCH_ROWS };
    let count = by_bytes.min(by_levels).clamp(1, most);
    usize::try_from(count).expect("at most 1,024")
}

/// The crate's description of an error.
pub(super) fn text(error: &parquet::errors::ParquetError) -> String {
    use parquet::errors::ParquetError as CrateError;
    match error {
        CrateError::General(detail) | CrateError::EOF(detail) | CrateError::NYI(detail) => {
            detail.clone()
        }
        // What could not be read, and why.
        CrateError::External(error) => {
            let causes = std::iter::successors(error.source(), |cause| cause.source());
            causes.fold(error.to_string(), |text, cause| format!("{text}: {cause}"))
        }
        other => other.to_string(),
    }
}

struct Opening<'a> {
    pages: CheckedPages,
    chunk: &'a ColumnChunkMetaData,
    form: Form,
    batch: Arc<BatchUse>,
    batch_rows: usize,
}

impl Opening<'_> {
    fn column<T: DataType>(self) -> Box<dyn Column>
    where
        T::T: CanonicalValue,
    {
        let descriptor = self.chunk.column_descr_ptr();
        let (max_rep, max_def) = (descriptor.max_rep_level(), descriptor.max_def_level());
        let reader = get_column_reader(descriptor, Box::new(self.pages));
        Box::new(TypedColumn::<T> {
            reader: get_typed_column_reader(reader),
            form: self.form,
            normalisers: Normalisers::default(),
            string: Vec::new(),
            max_rep,
            max_def,
            batch: self.batch,
            batch_rows: self.batch_rows,
            rep: Vec::new(),
            def: Vec::new(),
            values: Vec::new(),
            rows: 0,
            level_at: 0,
            value_at: 0,
            levels: 0,
        })
    }
}

struct TypedColumn<T: DataType> {
    reader: ColumnReaderImpl<T>,
    form: Form,
    normalisers: Normalisers,
    /// The string that is normalised.
    string: Vec<u8>,
    max_rep: i16,
    max_def: i16,
    batch: Arc<BatchUse>,
    batch_rows: usize,
    /// Levels of the batch; empty if they are all 0.
    rep: Vec<i16>,
    def: Vec<i16>,
    values: Vec<T::T>,
    /// Levels in the batch.
    levels: usize,
    /// Rows of the batch that were not taken yet.
    rows: usize,
    level_at: usize,
    value_at: usize,
}

impl<T: DataType> TypedColumn<T>
where
    T::T: CanonicalValue,
{
    /// The end of the next row's levels.
    fn row_end(&self) -> usize {
        let rest = self.rep.get(self.level_at + 1..).unwrap_or_default();
        if self.max_rep == 0 {
            self.level_at + 1
        } else {
            let length = rest.iter().position(|&level| level == 0).unwrap_or(rest.len());
            self.level_at + 1 + length
        }
    }

    fn has_value(&self, level: usize) -> bool {
        self.max_def == 0 || self.def[level] == self.max_def
    }

    /// The value of the next level, if there is one.
    fn next_value(&self) -> Option<&T::T> {
        self.has_value(self.level_at).then(|| &self.values[self.value_at])
    }

    /// Skips the next level.
    fn pass(&mut self) {
        self.value_at += usize::from(self.has_value(self.level_at));
        self.level_at += 1;
    }

    fn take_one(&mut self, item: &mut Vec<u8>) {
        let start = item.len();
        match self.next_value() {
            Some(value) => value.write(self.form, item),
            None => write_null(item),
        }
        self.pass();
        if !self.normalisers.is_empty() {
            self.normalise(start, item);
        }
    }

    /// Normalises the group from `start` to the end of the item, if it is a string.
    fn normalise(&mut self, start: usize, item: &mut Vec<u8>) {
        let Some((b's', string)) = read_group(&item[start..]) else { return };
        self.string.clear();
        self.string.extend_from_slice(string);
        item.truncate(start);
        write_group(b's', self.normalisers.apply(&self.string), item);
    }

    /// Writes these levels and values.
    fn write(
        &self,
        writer: &mut SerializedColumnWriter<'_>,
        (rep, def, values): (&[i16], &[i16], &[T::T]),
    ) -> Result<(), String> {
        let def = (self.max_def > 0).then_some(def);
        let rep = (self.max_rep > 0).then_some(rep);
        caught(|| {
            let written = writer.typed::<T>().write_batch(values, def, rep);
            written.map(|_| ()).map_err(|error| text(&error))
        })
    }

    /// The code below iterates over levels, so these must be within their bounds.
    fn check_batch(&self) -> Result<(), String> {
        let is_out =
            |levels: &[i16], max: i16| levels.iter().any(|level| !(0..=max).contains(level));
        if is_out(&self.rep, self.max_rep) || is_out(&self.def, self.max_def) {
            return Err("a level is larger than the schema allows".to_owned());
        }
        let values = match self.max_def {
            0 => self.levels,
            max => self.def.iter().filter(|&&level| level == max).count(),
        };
        let rows = match self.max_rep {
            0 => self.levels,
            _ => self.rep.iter().filter(|&&level| level == 0).count(),
        };
        let starts = self.max_rep == 0 || self.rep.first() == Some(&0);
        let has_levels = (self.max_rep == 0 || self.rep.len() == self.levels)
            && (self.max_def == 0 || self.def.len() == self.levels);
        if values == self.values.len() && rows == self.rows && starts && has_levels {
            Ok(())
        } else {
            Err("levels, values and rows do not fit each other".to_owned())
        }
    }
}

impl<T: DataType> Column for TypedColumn<T>
where
    T::T: CanonicalValue,
{
    fn fill(&mut self) -> Result<usize, String> {
        self.rep.clear();
        self.def.clear();
        self.values.clear();
        (self.level_at, self.value_at, self.rows) = (0, 0, 0);
        self.batch.reset();
        let (rows, _, levels) = caught(|| {
            let (def, rep) = (Some(&mut self.def), Some(&mut self.rep));
            let read = self.reader.read_records(self.batch_rows, def, rep, &mut self.values);
            read.map_err(|error| text(&error))
        })?;
        (self.rows, self.levels) = (rows, levels);
        if rows > 0 {
            self.check_batch()?;
        }
        Ok(rows)
    }

    fn rows_left(&self) -> usize {
        self.rows
    }

    fn take_value(&mut self, item: &mut Vec<u8>) {
        self.take_one(item);
        self.rows -= 1;
    }

    fn take_text(&mut self, item: &mut Vec<u8>) {
        item.extend_from_slice(self.next_value().map_or(&[][..], |value| value.as_bytes()));
        self.pass();
        self.rows -= 1;
    }

    fn pass_row(&mut self) {
        self.pass();
        self.rows -= 1;
    }

    fn score(&self) -> Option<Score> {
        self.next_value()?.score(self.form)
    }

    fn set_normalisers(&mut self, normalisers: Normalisers) {
        self.normalisers = normalisers;
    }

    fn take_levels(&mut self, item: &mut Vec<u8>) {
        let end = self.row_end();
        write_length(end - self.level_at, item);
        while self.level_at < end {
            for levels in [&self.rep, &self.def] {
                let level = levels.get(self.level_at).copied().unwrap_or(0);
                item.extend_from_slice(&level.to_le_bytes());
            }
            self.take_one(item);
        }
        self.rows -= 1;
    }

    fn copy_batch(
        &mut self,
        writer: &mut SerializedColumnWriter<'_>,
        stays: &mut dyn FnMut() -> bool,
    ) -> Result<(), String> {
        let (mut rep, mut def, mut values) = (Vec::new(), Vec::new(), Vec::new());
        for _ in 0..self.rows {
            let end = self.row_end();
            let count = (self.level_at..end).filter(|&level| self.has_value(level)).count();
            if stays() {
                rep.extend_from_slice(self.rep.get(self.level_at..end).unwrap_or_default());
                def.extend_from_slice(self.def.get(self.level_at..end).unwrap_or_default());
                values.extend_from_slice(&self.values[self.value_at..self.value_at + count]);
            }
            self.level_at = end;
            self.value_at += count;
        }
        self.rows = 0;
        self.write(writer, (&rep, &def, &values))
    }

    fn copy_texts(
        &mut self,
        writer: &mut SerializedColumnWriter<'_>,
        edit: &mut dyn FnMut(&[u8]) -> TextFate,
    ) -> Result<(), String> {
        let (mut def, mut values) = (Vec::new(), Vec::new());
        for _ in 0..self.rows {
            let value = self.next_value();
            let fate = edit(value.map_or(&[][..], |value| value.as_bytes()));
            if !matches!(fate, TextFate::Goes) {
                def.extend(self.def.get(self.level_at));
                let text = match fate {
                    TextFate::Becomes(text) => Some(text),
                    TextFate::Stays | TextFate::Goes => None,
                };
                match (value, text) {
                    (Some(_), Some(text)) => {
                        values.push(<T::T>::of_text(text).ok_or("it is no column of texts")?);
                    }
                    (Some(value), None) => values.push(value.clone()),
                    (None, _) => {}
                }
            }
            self.pass();
        }
        self.rows = 0;
        self.write(writer, (&[], &def, &values))
    }
}
