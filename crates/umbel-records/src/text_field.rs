//! One string field of a record, which can be read and replaced by another text.
//!
//! Only that field of the record is changed: the bytes around it stay as they were read.

use std::ops::Range;

use crate::json::{Cursor, PathTree, write_string};
use crate::table::TableText;
use crate::{ExtractorError, KeyPath, RecordItemError, TableHeader};

/// Finds one string field in the records of a file. Has buffers that it reuses for every record.
///
/// ```
/// use umbel_records::TextField;
///
/// let mut field = TextField::of_json("doc.text".to_owned())?;
/// let record = br#"{"doc": {"text": "one\ntwo"}, "n": 1.0}"#;
/// assert_eq!(field.find(record)?, b"one\ntwo");
/// let mut changed = Vec::new();
/// field.replace(record, b"\"two\"", &mut changed);
/// assert_eq!(changed, br#"{"doc": {"text": "\"two\""}, "n": 1.0}"#);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct TextField {
    place: Place,
    /// The span of the field, with its quotes, in the record in which it was found last.
    span: Range<usize>,
    text: Vec<u8>,
}

#[derive(Debug)]
enum Place {
    Json { path: KeyPath, tree: PathTree, found: [Option<Range<usize>>; 1] },
    Table(Box<TableText>),
}

impl TextField {
    /// The field of JSON Lines records that this [`KeyPath`] leads to.
    ///
    /// # Errors
    /// [`ExtractorError::BadKeyPath`].
    pub fn of_json(key: String) -> Result<Self, ExtractorError> {
        let path: KeyPath = match key.parse() {
            Ok(path) => path,
            Err(error) => return Err(ExtractorError::BadKeyPath { key, error }),
        };
        let tree = PathTree::new(std::slice::from_ref(&path));
        let place = Place::Json { path, tree, found: [None] };
        Ok(Self { place, span: 0..0, text: Vec::new() })
    }

    /// The column of a table with this name.
    ///
    /// # Errors
    /// [`ExtractorError::NoSuchColumn`] and [`ExtractorError::AmbiguousColumn`].
    pub fn of_table(header: &TableHeader, name: String) -> Result<Self, ExtractorError> {
        let place = Place::Table(Box::new(TableText::new(header, name)?));
        Ok(Self { place, span: 0..0, text: Vec::new() })
    }

    /// The text of the field in `record`, valid until the next call.
    ///
    /// # Errors
    /// As [`ItemExtractor::item`](crate::ItemExtractor::item), and [`RecordItemError::NoText`] if the
    /// field is not a string.
    pub fn find(&mut self, record: &[u8]) -> Result<&[u8], RecordItemError> {
        self.text.clear();
        match &mut self.place {
            Place::Json { path, tree, found } => {
                if let Err(error) = str::from_utf8(record) {
                    return Err(RecordItemError::InvalidUtf8 { offset: error.valid_up_to() });
                }
                let mut cursor = Cursor::new(record);
                cursor.skip_space();
                tree.find(&mut cursor, found)?;
                cursor.finish()?;
                let [Some(span)] = found else {
                    return Err(RecordItemError::MissingKey { path: path.clone() });
                };
                let mut cursor = Cursor::new(&record[span.clone()]);
                if cursor.peek() != Some(b'"') {
                    return Err(RecordItemError::NoText { path: path.clone() });
                }
                cursor.string()?.unescape_into(&mut self.text);
                self.span = span.clone();
            }
            Place::Table(table) => self.span = table.find(record, &mut self.text)?,
        }
        Ok(&self.text)
    }

    /// Appends `record`, in which the field was [found](Self::find) last, to `target`, with `text` in
    /// the field. For JSON, `text` must be UTF-8.
    pub fn replace(&self, record: &[u8], text: &[u8], target: &mut Vec<u8>) {
        target.extend_from_slice(&record[..self.span.start]);
        match &self.place {
            Place::Json { .. } => write_string(text, target),
            Place::Table(table) => table.write(&record[self.span.clone()], text, target),
        }
        target.extend_from_slice(&record[self.span.end..]);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Compression, ReadLimits};
    use proptest::prelude::*;
    use std::io::Write;

    fn header(content: &[u8]) -> TableHeader {
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(content).unwrap();
        let (file, plain) = (std::sync::Arc::new(file), Compression::Plain);
        TableHeader::read(file, plain, b',', ReadLimits::default()).unwrap().unwrap()
    }

    #[test]
    fn faults_are_named() {
        let mut field = TextField::of_json("a.b".into()).unwrap();
        let path: KeyPath = "a.b".parse().unwrap();
        assert_eq!(field.find(b"{}"), Err(RecordItemError::MissingKey { path: path.clone() }));
        assert_eq!(field.find(b"{\"a\":{\"b\":1}}"), Err(RecordItemError::NoText { path }));
        assert!(matches!(field.find(b"{"), Err(RecordItemError::InvalidJson { .. })));
        assert!(TextField::of_json("a..b".into()).is_err());
        assert!(TextField::of_table(&header(b"a,b\n"), "c".into()).is_err());
        let mut field = TextField::of_table(&header(b"a,b\n"), "b".into()).unwrap();
        assert_eq!(field.find(b"1\n"), Err(RecordItemError::FieldCount { found: 1, expected: 2 }));
    }

    proptest! {
        #[test]
        fn what_is_put_back_is_found_again(
            old in "[ab\\n,\"\\\\é\\r]{0,6}", new in "[ab\\n,\"\\\\é\\r]{0,6}"
        ) {
            let json = format!("{{\"n\": 1.0, \"t\" : {} , \"z\":0}}\n", serde_json::json!(old));
            let mut field = TextField::of_json("t".into()).unwrap();
            let mut changed = Vec::new();
            prop_assert_eq!(field.find(json.as_bytes()).unwrap(), old.as_bytes());
            field.replace(json.as_bytes(), new.as_bytes(), &mut changed);
            let value: serde_json::Value = serde_json::from_slice(&changed).unwrap();
            prop_assert_eq!(value["t"].as_str().unwrap(), &new);
            prop_assert!(changed.starts_with(b"{\"n\": 1.0, \"t\" : \""), "start");
            prop_assert!(changed.ends_with(b"\" , \"z\":0}\n"), "end");

            let row = format!("\"1\",\"{}\",3\r\n", old.replace('"', "\"\""));
            let mut field = TextField::of_table(&header(b"a,t,c\n"), "t".into()).unwrap();
            let mut changed = Vec::new();
            prop_assert_eq!(field.find(row.as_bytes()).unwrap(), old.as_bytes());
            field.replace(row.as_bytes(), new.as_bytes(), &mut changed);
            prop_assert_eq!(field.find(&changed).unwrap(), new.as_bytes());
            prop_assert!(changed.starts_with(b"\"1\",") && changed.ends_with(b",3\r\n"));

            // An unquoted field is quoted if its new text needs quotes, also if it is the last field.
            let mut changed_more = Vec::new();
            let row = b"1,2,x\r\n";
            let mut field = TextField::of_table(&header(b"a,b,t\n"), "t".into()).unwrap();
            field.find(row).unwrap();
            field.replace(row, new.as_bytes(), &mut changed_more);
            prop_assert_eq!(field.find(&changed_more).unwrap(), new.as_bytes());
        }
    }
}
