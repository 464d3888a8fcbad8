//! JSON with one operation or fault per line, so that line-by-line diffs of plans are readable.

use std::io;

use serde::Serialize;
use serde_json::ser::Formatter;

/// The value as JSON. Members of the outermost object, and elements of arrays that are such members, have
/// a line each; everything deeper is on the line of its parent.
///
/// # Errors
/// If the value cannot be represented as JSON.
pub(super) fn to_lines<T: Serialize>(value: &T) -> serde_json::Result<String> {
    let mut bytes = Vec::new();
    let mut serializer = serde_json::Serializer::with_formatter(
        &mut bytes,
        LineFormatter { depth: 0, is_empty: true },
    );
    value.serialize(&mut serializer)?;
    bytes.push(b'\n');
    Ok(String::from_utf8(bytes).expect("JSON is UTF-8"))
}

/// Breaks lines by depth.
struct LineFormatter {
    /// Number of open arrays and objects.
    depth: usize,
    /// Whether the innermost of them is still empty.
    is_empty: bool,
}

impl LineFormatter {
    /// Writes what precedes an element or key: a comma unless it is the first, and a line break down to
    /// `depth_max`.
    fn lead<W: io::Write + ?Sized>(
        &mut self,
        writer: &mut W,
        is_first: bool,
        depth_max: usize,
    ) -> io::Result<()> {
        self.is_empty = false;
        if !is_first {
            writer.write_all(b",")?;
        }
        if self.depth <= depth_max {
            self.new_line(writer)
        } else if is_first {
            Ok(())
        } else {
            writer.write_all(b" ")
        }
    }

    fn close<W: io::Write + ?Sized>(
        &mut self,
        writer: &mut W,
        depth_max: usize,
        bracket: &[u8],
    ) -> io::Result<()> {
        self.depth -= 1;
        if self.depth < depth_max && !self.is_empty {
            self.new_line(writer)?;
        }
        self.is_empty = false;
        writer.write_all(bracket)
    }

    fn new_line<W: io::Write + ?Sized>(&self, writer: &mut W) -> io::Result<()> {
        writer.write_all(b"\n")?;
        (0..self.depth).try_for_each(|_| writer.write_all(b"  "))
    }
}

/// Greatest depth at which elements of arrays have lines of their own.
const ARRAY_DEPTH_MAX: usize = 2;

/// Greatest depth at which members of objects have lines of their own.
const OBJECT_DEPTH_MAX: usize = 1;

impl Formatter for LineFormatter {
    fn begin_array<W: io::Write + ?Sized>(&mut self, writer: &mut W) -> io::Result<()> {
        self.depth += 1;
        self.is_empty = true;
        writer.write_all(b"[")
    }

    fn end_array<W: io::Write + ?Sized>(&mut self, writer: &mut W) -> io::Result<()> {
        self.close(writer, ARRAY_DEPTH_MAX, b"]")
    }

    fn begin_array_value<W: io::Write + ?Sized>(
        &mut self,
        writer: &mut W,
        is_first: bool,
    ) -> io::Result<()> {
        self.lead(writer, is_first, ARRAY_DEPTH_MAX)
    }

    fn begin_object<W: io::Write + ?Sized>(&mut self, writer: &mut W) -> io::Result<()> {
        self.depth += 1;
        self.is_empty = true;
        writer.write_all(b"{")
    }

    fn end_object<W: io::Write + ?Sized>(&mut self, writer: &mut W) -> io::Result<()> {
        self.close(writer, OBJECT_DEPTH_MAX, b"}")
    }

    fn begin_object_key<W: io::Write + ?Sized>(
        &mut self,
        writer: &mut W,
        is_first: bool,
    ) -> io::Result<()> {
        self.lead(writer, is_first, OBJECT_DEPTH_MAX)
    }

    fn begin_object_value<W: io::Write + ?Sized>(&mut self, writer: &mut W) -> io::Result<()> {
        writer.write_all(b": ")
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn elements_have_a_line_each() {
        let value = json!({ "a": 1, "b": { "c": [1, 2], "d": 2 }, "e": [{ "f": [] }, { "g": {} }], "h": [] });
        let text = to_lines(&value).unwrap();
        assert_eq!(
            text,
            r#"{
  "a": 1,
  "b": {"c": [1, 2], "d": 2},
  "e": [
    {"f": []},
    {"g": {}}
  ],
  "h": []
}
"#
        );
        assert_eq!(serde_json::from_str::<serde_json::Value>(&text).unwrap(), value);
    }
}
