//! Compares the traces of two runs of one seed, byte for byte.

use std::collections::VecDeque;
use std::io::{self, BufRead};

/// Equal lines that are shown before the first different one.
const CONTEXT_LINES: usize = 3;

/// Characters of a line that are shown.
const SHOWN_CHARS: usize = 300;

/// The result of a comparison of two traces.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Comparison {
    /// Number of equal lines from the start.
    pub(crate) line_count: u64,
    /// Number of their bytes.
    pub(crate) byte_count: u64,
    /// The first difference; `None` if they are equal.
    pub(crate) difference: Option<Difference>,
}

/// The first difference of two traces.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Difference {
    /// Number of the first different line, from 1.
    pub(crate) line: u64,
    /// The equal lines before it.
    pub(crate) before: Vec<String>,
    /// The line in the first trace; `None` if that ended.
    pub(crate) first: Option<String>,
    /// The line in the second trace.
    pub(crate) second: Option<String>,
}

/// Compares two traces up to their first difference.
pub(crate) fn compare(mut first: impl BufRead, mut second: impl BufRead) -> io::Result<Comparison> {
    let mut same = Comparison { line_count: 0, byte_count: 0, difference: None };
    let mut before: VecDeque<Vec<u8>> = VecDeque::new();
    let (mut one, mut other) = (Vec::new(), Vec::new());
    loop {
        one.clear();
        other.clear();
        first.read_until(b'\n', &mut one)?;
        second.read_until(b'\n', &mut other)?;
        if one != other {
            same.difference = Some(Difference {
                line: same.line_count + 1,
                before: before.iter().filter_map(|line| shown(line)).collect(),
                first: shown(&one),
                second: shown(&other),
            });
            return Ok(same);
        }
        if one.is_empty() {
            return Ok(same);
        }
        same.line_count += 1;
        same.byte_count += one.len() as u64;
        let mut oldest = if before.len() < CONTEXT_LINES { None } else { before.pop_front() }
            .unwrap_or_default();
        oldest.clone_from(&one);
        before.push_back(oldest);
    }
}

/// A line as it is shown; `None` at the end of a trace.
fn shown(line: &[u8]) -> Option<String> {
    if line.is_empty() {
        return None;
    }
    Some(String::from_utf8_lossy(line).trim_end().chars().take(SHOWN_CHARS).collect())
}

impl std::fmt::Display for Difference {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        for line in &self.before {
            writeln!(f, "    {line}")?;
        }
        let ended = "(the trace ended)";
        writeln!(f, "  1 {}", self.first.as_deref().unwrap_or(ended))?;
        write!(f, "  2 {}", self.second.as_deref().unwrap_or(ended))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn compared(one: &str, other: &str) -> Comparison {
        compare(one.as_bytes(), other.as_bytes()).unwrap()
    }

    #[test]
    fn equal_traces_are_counted() {
        let same = compared("a\nbc\n", "a\nbc\n");
        assert_eq!(same, Comparison { line_count: 2, byte_count: 5, difference: None });
    }

    #[test]
    fn the_first_different_line_is_shown_with_those_before_it() {
        let difference = compared("a\nb\nc\nd\ne\nf\n", "a\nb\nc\nd\nE\nf\n").difference.unwrap();
        assert_eq!(difference.line, 5);
        assert_eq!(difference.to_string(), "    b\n    c\n    d\n  1 e\n  2 E");
    }

    #[test]
    fn a_trace_that_ends_early_differs() {
        let difference = compared("a\n", "a\nb\n").difference.unwrap();
        assert_eq!((difference.line, difference.first.as_deref()), (2, None));
        assert_eq!(difference.to_string(), "    a\n  1 (the trace ended)\n  2 b");
        // A last line without its end differs too.
        assert!(compared("a\nb", "a\nb\n").difference.is_some());
    }

    proptest! {
        #[test]
        fn finds_a_difference_just_where_there_is_one(
            one in "[ab\n]{0,12}",
            other in "[ab\n]{0,12}",
        ) {
            let comparison = compared(&one, &other);
            prop_assert_eq!(comparison.difference.is_none(), one == other);
            let equal = one.split_inclusive('\n').zip(other.split_inclusive('\n'));
            let equal_count = equal.take_while(|(one, other)| one == other).count();
            prop_assert_eq!(comparison.line_count, equal_count as u64);
        }
    }
}
