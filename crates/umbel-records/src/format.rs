//! How the content of a file is split into records, and whether records have fields.
//!
//! Text and JSON Lines end records at `\n`, zero-terminated text at zero bytes. A text line is only
//! bytes, a JSON line has fields. Tables have fields that may contain line ends, and most tables have a
//! header row.

use std::path::Path;

/// How records are cut and whether they have fields.
///
/// ```
/// use std::path::Path;
/// use umbel_records::Format;
///
/// assert_eq!(Format::from_name(Path::new("part-0.jsonl.zst")), Format::JsonLines);
/// assert_eq!(Format::from_name(Path::new("words.txt")), Format::Text);
/// assert_eq!(Format::from_name(Path::new("users.csv.gz")).delimiter(), Some(b','));
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Format {
    /// Lines of any bytes.
    Text,
    /// Texts of any bytes but zero, each terminated by a zero byte, as `find -print0` and `sort -z`
    /// write them. No file name implies this format.
    ZeroTerminated,
    /// One JSON value (RFC 8259) per line.
    JsonLines,
    /// Records of fields (RFC 4180), with or without a header row: [`CSV`](Self::CSV),
    /// [`TSV`](Self::TSV) and their dialects.
    Table {
        /// The byte between fields.
        delimiter: u8,
        /// Whether the first row names the columns; then it is no record.
        has_header: bool,
    },
    /// Rows in columns (Apache Parquet), detected by content: see [`ParquetFile`](crate::ParquetFile).
    Parquet,
}

impl Format {
    /// A header row and records of fields separated by commas.
    pub const CSV: Self = Self::Table { delimiter: b',', has_header: true };

    /// The same with tabs instead of commas; fields may be quoted, too.
    pub const TSV: Self = Self::Table { delimiter: b'\t', has_header: true };

    /// Derives the format from the file name: `.jsonl`, `.ndjson` and `.jsonlines` mean
    /// [`JsonLines`](Self::JsonLines), `.csv` means [`CSV`](Self::CSV), `.tsv` means
    /// [`TSV`](Self::TSV), also in front of `.gz`, `.gzip`, `.zst`, `.zstd`, `.xz`, `.bz2` or `.lz4`,
    /// in upper or lower case; every other name means [`Text`](Self::Text).
    pub fn from_name(path: &Path) -> Self {
        let Some(name) = path.file_name() else { return Self::Text };
        let name = name.to_string_lossy().to_ascii_lowercase();
        let unpacked = [".gz", ".gzip", ".zst", ".zstd", ".xz", ".bz2", ".lz4"]
            .iter()
            .find_map(|suffix| name.strip_suffix(suffix))
            .unwrap_or(&name);
        match unpacked.rsplit_once('.').map(|(_, extension)| extension) {
            Some("jsonl" | "ndjson" | "jsonlines") => Self::JsonLines,
            Some("csv") => Self::CSV,
            Some("tsv") => Self::TSV,
            _ => Self::Text,
        }
    }

    /// The byte between the fields of a table; `None` for other formats.
    pub fn delimiter(self) -> Option<u8> {
        match self {
            Self::Text | Self::ZeroTerminated | Self::JsonLines | Self::Parquet => None,
            Self::Table { delimiter, .. } => Some(delimiter),
        }
    }

    /// The byte that ends a record: zero for `ZeroTerminated`, `\n` for all
    /// other formats.
    pub fn record_end(self) -> u8 {
        if self == Self::ZeroTerminated { 0 } else { b'\n' }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_distinguished() {
        let of = |name: &str| Format::from_name(Path::new(name));
        for name in
            ["a.jsonl", "a.ndjson", "d/a.jsonlines", "A.JSONL.GZ", "a.b.jsonl.zstd", "x.jsonl.xz"]
        {
            assert_eq!(of(name), Format::JsonLines, "{name}");
        }
        for name in
            ["a", "", "a.json", "jsonl", "a.jsonl.Z", "a.jsonl.gz.gz", "a.jsonl/b.txt", "a.zst"]
        {
            assert_eq!(of(name), Format::Text, "{name}");
        }
        for (name, format) in [
            ("a.csv", Format::CSV),
            ("A.CSV.ZST", Format::CSV),
            ("a.tsv.gz", Format::TSV),
            ("csv", Format::Text),
            ("a.csv.bak", Format::Text),
        ] {
            assert_eq!(of(name), format, "{name}");
        }
    }
}
