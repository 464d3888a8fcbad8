//! Prints to standard output: tables for people, tab-separated lines or JSON for programs.

use anyhow::{Context, Result};
use comfy_table::{CellAlignment, ContentArrangement, Table, presets};
use serde_json::Value;
use std::io::{self, BufWriter, ErrorKind, IsTerminal, Stdout, Write};
use umbel_filter::Hex;

/// Standard output. Once its reader has closed the pipe, output is discarded without an error.
pub(crate) struct Printer {
    out: BufWriter<Stdout>,
    is_closed: bool,
}

impl Printer {
    /// Standard output.
    pub(crate) fn new() -> Self {
        Self { out: BufWriter::with_capacity(1 << 16, io::stdout()), is_closed: false }
    }

    /// Whether the reader has closed the pipe.
    pub(crate) fn is_closed(&self) -> bool {
        self.is_closed
    }

    /// Prints bytes.
    ///
    /// # Errors
    ///
    /// If they cannot be written, unless the reader has closed the pipe.
    pub(crate) fn write(&mut self, bytes: &[u8]) -> Result<()> {
        let outcome = self.out.write_all(bytes);
        self.check(outcome)
    }

    /// Prints a JSON value on a line of its own.
    ///
    /// # Errors
    ///
    /// As [`Printer::write`].
    pub(crate) fn json(&mut self, value: &Value) -> Result<()> {
        self.write(format!("{value}\n").as_bytes())
    }

    /// Flushes the buffer.
    ///
    /// # Errors
    ///
    /// As [`Printer::write`].
    pub(crate) fn flush(&mut self) -> Result<()> {
        let outcome = self.out.flush();
        self.check(outcome)
    }

    fn check(&mut self, outcome: io::Result<()>) -> Result<()> {
        match outcome {
            Err(error) if error.kind() == ErrorKind::BrokenPipe => {
                self.is_closed = true;
                Ok(())
            }
            _ if self.is_closed => Ok(()),
            outcome => outcome.context("cannot write to standard output"),
        }
    }
}

/// Prints a JSON value, or the text that `text` makes.
///
/// # Errors
///
/// As [`Printer::write`].
pub(crate) fn print(as_json: bool, value: &Value, text: impl FnOnce() -> String) -> Result<()> {
    let mut printer = Printer::new();
    if as_json {
        printer.json(value)?;
    } else {
        printer.write(text().as_bytes())?;
    }
    printer.flush()
}

/// Rows of a table, with a heading.
pub(crate) struct Rows {
    heading: &'static [&'static str],
    /// Columns of numbers, which are right-aligned.
    numbers: &'static [usize],
    rows: Vec<Vec<String>>,
}

impl Rows {
    /// An empty table; `numbers` are the indices of the columns that hold numbers.
    pub(crate) fn new(heading: &'static [&'static str], numbers: &'static [usize]) -> Self {
        Self { heading, numbers, rows: Vec::new() }
    }

    /// Adds a row, one text per column.
    pub(crate) fn push(&mut self, row: Vec<String>) {
        self.rows.push(row);
    }

    /// A table with a heading if standard output is a terminal, else tab-separated lines without a
    /// heading.
    pub(crate) fn text(&self) -> String {
        self.text_for(io::stdout().is_terminal())
    }

    /// A table with a heading, at most as wide as the terminal, for people; or tab-separated lines for
    /// programs.
    pub(crate) fn text_for(&self, people: bool) -> String {
        let width = terminal_size::terminal_size().map(|(width, _)| width.0);
        if people { self.table(width) } else { self.lines() }
    }

    /// A table of at most `width` columns; texts that would exceed it are wrapped.
    fn table(&self, width: Option<u16>) -> String {
        let mut table = Table::new();
        table.load_style(presets::NOTHING).set_header(self.heading.to_vec());
        if let Some(width) = width {
            table.set_content_arrangement(ContentArrangement::Dynamic).set_width(width);
        }
        for row in &self.rows {
            table.add_row(row.clone());
        }
        for &column in self.numbers {
            if let Some(column) = table.column_mut(column) {
                column.set_cell_alignment(CellAlignment::Right);
            }
        }
        format!("{table}\n")
    }

    /// Tab-separated lines without a heading.
    pub(crate) fn lines(&self) -> String {
        self.rows.iter().map(|row| format!("{}\n", row.join("\t"))).collect()
    }
}

/// Names with their values, one per line.
pub(crate) fn facts(facts: &[(&str, String)]) -> String {
    facts_for(io::stdout().is_terminal(), facts)
}

/// Names with their values, one per line, aligned in columns for people.
pub(crate) fn facts_for(people: bool, facts: &[(&str, String)]) -> String {
    let width = facts.iter().map(|(name, _)| name.len()).max().unwrap_or(0);
    let line = |(name, value): &(&str, String)| {
        if people { format!("{name:width$}  {value}\n") } else { format!("{name}\t{value}\n") }
    };
    facts.iter().map(line).collect()
}

/// Numbers of nodes, separated by commas; a dash if there are none.
pub(crate) fn numbers(nodes: &[u64]) -> String {
    if nodes.is_empty() {
        return "-".to_owned();
    }
    nodes.iter().map(u64::to_string).collect::<Vec<_>>().join(",")
}

/// A name and value for an item in a JSON object: its text if it is UTF-8, else its hexadecimal digits.
pub(crate) fn item_member(item: &[u8]) -> (&'static str, String) {
    match std::str::from_utf8(item) {
        Ok(text) => ("item", text.to_owned()),
        Err(_) => ("item_hex", Hex(item).to_string()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_are_tables_or_lines() {
        let mut rows = Rows::new(&["name", "count"], &[1]);
        rows.push(vec!["a".into(), "1000".into()]);
        rows.push(vec!["bcdef".into(), "2".into()]);
        assert_eq!(rows.lines(), "a\t1000\nbcdef\t2\n");
        let table: Vec<String> = rows.table(None).lines().map(|l| l.trim().to_owned()).collect();
        assert_eq!(table, ["name   count", "a       1000", "bcdef      2"]);
    }

    #[test]
    fn tables_are_no_wider_than_the_terminal() {
        let mut rows = Rows::new(&["shard", "replicas", "cause"], &[0]);
        let cause =
            "worker 1: /data/of/a/long/name/of/a/folder/file.jsonl: no space left on the device";
        rows.push(vec!["1000".into(), "1,2,3".into(), cause.into()]);
        for width in [40, 80, 120] {
            let table = rows.table(Some(width));
            assert!(table.lines().all(|line| line.trim_end().len() <= width.into()), "{table}");
            let cells: String = table.split_whitespace().collect();
            let words: String = cause.split_whitespace().collect();
            assert!(width < 80 || cells.contains(&words), "{table}");
        }
        assert_eq!(rows.table(Some(200)).lines().count(), 2);
    }

    #[test]
    fn items_that_are_no_text_are_hexadecimal() {
        assert_eq!(item_member("é".as_bytes()), ("item", "é".to_owned()));
        assert_eq!(item_member(&[0xff, 0x0a]), ("item_hex", "ff0a".to_owned()));
    }
}
