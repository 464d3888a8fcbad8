//! Words for the short values of a summary.

use crate::picture::{JsonView, number_of};

/// The noun for what was compared, in singular and plural.
#[derive(Clone, Copy)]
pub(super) struct Noun {
    pub(super) one: &'static str,
    pub(super) many: &'static str,
}

impl Noun {
    pub(super) fn of(summary: JsonView<'_>) -> Self {
        let (one, many) = match summary.text("/spec/granularity") {
            "line" => ("line", "lines"),
            "paragraph" => ("paragraph", "paragraphs"),
            "file" => ("file", "files"),
            _ => ("record", "records"),
        };
        Self { one, many }
    }

    /// A count with the noun.
    pub(super) fn number(self, count: u64) -> String {
        number_of(count, self.one, self.many)
    }
}

/// Which of equal records is kept.
pub(super) fn kept_rule(keep: &str) -> &'static str {
    match keep {
        "first" => "The first",
        "last" => "The last",
        _ => "The best",
    }
}

/// What must be equal in equal items.
pub(super) fn compared_by(level: &str) -> &'static str {
    match level {
        "approximate" => "a part of the bits of their hashes",
        "bytes" => "all their bytes",
        _ => "all 128 bits of their hashes",
    }
}

/// The description of a phase.
pub(super) fn phase(name: &str) -> &'static str {
    match name {
        "open" => "Finding the inputs",
        "local" => "Reading and hashing",
        "exchange" => "Comparing hashes",
        "compare" => "Comparing bytes",
        "ask" => "Asking filters",
        "output" => "Reading again and writing",
        _ => "Something else",
    }
}
