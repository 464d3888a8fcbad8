//! Selects the files of a directory to read by their names.

use glob::{MatchOptions, Pattern};
use std::path::Path;

/// As for globs among the inputs: `*` matches within a directory, and names may begin with a dot.
const MATCHING: MatchOptions = MatchOptions {
    case_sensitive: true,
    require_literal_separator: true,
    require_literal_leading_dot: false,
};

/// A pattern for the name of a file or directory, or with a `/` for its path below the directory that was named.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct NamePattern {
    pattern: Pattern,
    is_path: bool,
}

impl NamePattern {
    /// Parses a pattern.
    ///
    /// # Errors
    ///
    /// The error in it.
    pub fn parse(text: &str) -> Result<Self, String> {
        if text.is_empty() || text.starts_with('/') || text.ends_with('/') {
            return Err(
                "expected a name, or a path below a directory, like cache/** for all below cache"
                    .into(),
            );
        }
        let pattern = Pattern::new(text).map_err(|error| error.to_string())?;
        Ok(Self { pattern, is_path: text.contains('/') })
    }

    /// The pattern as it was given.
    pub(crate) fn text(&self) -> &str {
        self.pattern.as_str()
    }

    fn matches(&self, below: &Path) -> bool {
        let text =
            if self.is_path { below.as_os_str() } else { below.file_name().unwrap_or_default() };
        self.pattern.matches_with(&text.to_string_lossy(), MATCHING)
    }
}

/// Which files of a directory are read.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct NameFilter {
    /// One of these must match, unless there are none.
    pub include: Vec<NamePattern>,
    /// None of these may match the file, nor a directory that it is in.
    pub exclude: Vec<NamePattern>,
}

impl NameFilter {
    /// Whether all files are read.
    pub fn is_empty(&self) -> bool {
        self.include.is_empty() && self.exclude.is_empty()
    }

    /// Whether a directory at this path below the one that was named is entered.
    pub(crate) fn enters(&self, below: &Path) -> bool {
        !self.exclude.iter().any(|pattern| pattern.matches(below))
    }

    /// Whether a file at this path below the directory that was named is read.
    pub(crate) fn takes(&self, below: &Path) -> bool {
        let is_included =
            self.include.is_empty() || self.include.iter().any(|pattern| pattern.matches(below));
        let mut steps = below.ancestors().filter(|step| !step.as_os_str().is_empty());
        is_included && steps.all(|step| self.enters(step))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_match_anywhere_and_paths_from_the_directory_on() {
        let patterns = |texts: &[&str]| -> Vec<NamePattern> {
            texts.iter().map(|text| NamePattern::parse(text).unwrap()).collect()
        };
        let takes = |include: &[&str], exclude: &[&str], path: &str| {
            NameFilter { include: patterns(include), exclude: patterns(exclude) }
                .takes(Path::new(path))
        };
        assert!(takes(&[], &[], "a"));
        assert!(takes(&["*.txt"], &[], "d/e/a.txt") && !takes(&["*.txt"], &[], "a.txt.gz"));
        assert!(takes(&["*.gz", "*.txt"], &[], "a.txt"));
        assert!(takes(&["d/*.txt"], &[], "d/a.txt") && !takes(&["d/*.txt"], &[], "d/e/a.txt"));
        assert!(takes(&["d/**/*.txt"], &[], "d/e/f/a.txt") && !takes(&["d/*"], &[], "e/d/a"));
        assert!(!takes(&["*.txt"], &["a*"], "a.txt") && takes(&["*.txt"], &["a*"], "b.txt"));
        assert!(!takes(&[], &["cache"], "x/cache/y/z") && takes(&[], &["cache"], "x/cached"));
        assert!(!takes(&[], &["x/cache"], "x/cache/z") && takes(&[], &["x/cache"], "y/x/cache"));
        assert!(!takes(&[], &[".*"], ".git/config"));
        for wrong in ["", "/", "cache/", "/a", "[", "a**"] {
            assert!(NamePattern::parse(wrong).is_err(), "{wrong}");
        }
    }
}
