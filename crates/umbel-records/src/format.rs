//! How the content of a file is cut into records and what a record means.
//!
//! Both formats cut at `\n`; they differ in what may be asked of a record: a text line is only
//! bytes, a JSON line has fields.

use std::path::Path;

/// How records are cut and whether they have fields.
///
/// ```
/// use std::path::Path;
/// use umbel_records::Format;
///
/// assert_eq!(Format::from_name(Path::new("part-0.jsonl.zst")), Format::JsonLines);
/// assert_eq!(Format::from_name(Path::new("words.txt")), Format::Text);
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Format {
    /// Lines of any bytes.
    Text,
    /// One JSON value (RFC 8259) per line.
    JsonLines,
}

impl Format {
    /// Guesses the format by the file name: `.jsonl`, `.ndjson` and `.jsonlines`, also before
    /// `.gz`, `.gzip`, `.zst` or `.zstd`, in upper or lower case, are
    /// [`JsonLines`](Self::JsonLines); every other name is [`Text`](Self::Text).
    pub fn from_name(path: &Path) -> Self {
        let Some(name) = path.file_name() else { return Self::Text };
        let name = name.to_string_lossy().to_ascii_lowercase();
        let unpacked = [".gz", ".gzip", ".zst", ".zstd"]
            .iter()
            .find_map(|suffix| name.strip_suffix(suffix))
            .unwrap_or(&name);
        let is_json = [".jsonl", ".ndjson", ".jsonlines"].iter().any(|s| unpacked.ends_with(s));
        if is_json { Self::JsonLines } else { Self::Text }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_told_apart() {
        let of = |name: &str| Format::from_name(Path::new(name));
        for name in
            ["a.jsonl", "a.ndjson", "d/a.jsonlines", "A.JSONL.GZ", "a.b.jsonl.zstd", "x.jsonl.gzip"]
        {
            assert_eq!(of(name), Format::JsonLines, "{name}");
        }
        for name in
            ["a", "", "a.json", "jsonl", "a.jsonl.bz2", "a.jsonl.gz.gz", "a.jsonl/b.txt", "a.zst"]
        {
            assert_eq!(of(name), Format::Text, "{name}");
        }
    }
}
