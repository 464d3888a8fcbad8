//! The format of a file: as given by the user, else by its content, else by its name; and the dialect of tables.

use umbel_records::Format;

/// The rule by which formats of files are determined.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct FormatRule {
    /// The format that the user has given for all files; `None`: by content or name.
    pub given: Option<Format>,
    /// The delimiter of tables; `None`: that of their format.
    pub delimiter: Option<u8>,
    /// Whether tables have no header row.
    pub is_headless: bool,
}

impl From<Format> for FormatRule {
    fn from(format: Format) -> Self {
        Self { given: Some(format), ..Self::default() }
    }
}

impl FormatRule {
    /// The format of a file, given what content and name show. If the user has given a dialect of tables, text is a table.
    #[must_use]
    pub fn format_of(self, by_content: Option<Format>, by_name: Format) -> Format {
        let has_dialect = self.delimiter.is_some() || self.is_headless;
        let format = match self.given.or(by_content).unwrap_or(by_name) {
            Format::Text if has_dialect && self.given.is_none() => Format::CSV,
            format => format,
        };
        match format {
            Format::Table { delimiter, has_header } => Format::Table {
                delimiter: self.delimiter.unwrap_or(delimiter),
                has_header: has_header && !self.is_headless,
            },
            other => other,
        }
    }

    /// The byte that ends a record.
    pub(crate) fn record_end(self) -> u8 {
        self.given.map_or(b'\n', Format::record_end)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_dialect_makes_tables_of_texts_and_of_nothing_else() {
        let (given, delimiter) = (None, Some(b';'));
        let rule = FormatRule { given, delimiter, is_headless: false };
        let table = Format::Table { delimiter: b';', has_header: true };
        for by_name in [Format::Text, Format::CSV, Format::TSV] {
            assert_eq!(rule.format_of(None, by_name), table);
        }
        assert_eq!(rule.format_of(None, Format::JsonLines), Format::JsonLines);
        assert_eq!(rule.format_of(Some(Format::Parquet), Format::Text), Format::Parquet);
        let rule = FormatRule { given, delimiter: None, is_headless: true };
        let table = Format::Table { delimiter: b'\t', has_header: false };
        assert_eq!(rule.format_of(None, Format::TSV), table);
        assert_eq!(FormatRule::default().format_of(None, Format::Text), Format::Text);
        assert_eq!(FormatRule::from(Format::Text).format_of(None, Format::CSV), Format::Text);
    }
}
