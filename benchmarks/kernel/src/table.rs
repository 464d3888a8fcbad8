//! Rows, and the two ways they are written: CSV for programs, Markdown for readers.

use std::fmt::Write;
use std::path::PathBuf;
use std::{fs, io};

use crate::measure::{Facts, Sample};
use crate::structure::Case;

/// Columns of the file; programs read them by these names.
pub const CSV_HEADER: &str =
    "structure,items,rate,operation,threads,nanoseconds,measured_rate,bits_per_item";

/// The structure whose rows the others are divided by.
pub const LIMIT: &str = "limit";

/// One line of the table.
#[derive(Clone, PartialEq, Debug)]
pub struct Row {
    /// Who.
    pub structure: &'static str,
    /// With how many items, at which rate.
    pub case: Case,
    /// What, and how long it took.
    pub sample: Sample,
    /// Share of fresh keys that were taken for inserted; None for what has no answers.
    pub measured_rate: Option<f64>,
    /// Bits of memory an item.
    pub bits_per_item: Option<f64>,
}

impl Row {
    /// A structure's row.
    #[must_use]
    pub fn new(structure: &'static str, case: Case, sample: Sample, facts: Option<Facts>) -> Self {
        let measured_rate = facts.map(|facts| facts.measured_rate);
        let bits_per_item = facts.map(|facts| facts.bits_per_item);
        Self { structure, case, sample, measured_rate, bits_per_item }
    }
}

/// The rows as CSV; what a row does not have is empty.
#[must_use]
pub fn csv(rows: &[Row]) -> String {
    let mut text = format!("{CSV_HEADER}\n");
    for Row { structure, case, sample, measured_rate, bits_per_item } in rows {
        let Case { items, rate } = case;
        let Sample { operation, threads, nanoseconds } = sample;
        let measured_rate = measured_rate.map_or(String::new(), |rate| format!("{rate:.6}"));
        let bits_per_item = bits_per_item.map_or(String::new(), |bits| format!("{bits:.3}"));
        writeln!(
            text,
            "{structure},{items},{rate},{operation},{threads},{nanoseconds:.3},{measured_rate},\
             {bits_per_item}"
        )
        .expect("a string takes everything");
    }
    text
}

/// The rows of a case as a Markdown table, each divided by its limit among `rows`.
#[must_use]
pub fn markdown(rows: &[Row]) -> String {
    let mut text = String::from(
        "| structure | items | rate | operation | threads | ns | ÷ limit | measured rate | \
         bits an item |\n|---|--:|--:|---|--:|--:|--:|--:|--:|\n",
    );
    for row in rows {
        let Row { structure, case: Case { items, rate }, sample, measured_rate, bits_per_item } =
            row;
        let Sample { operation, threads, nanoseconds } = sample;
        let dash = || String::from("–");
        let ratio =
            limit_of(row, rows).map_or_else(dash, |limit| format!("{:.2}", nanoseconds / limit));
        let measured_rate =
            measured_rate.map_or_else(dash, |rate| format!("{:.3} %", 100.0 * rate));
        let bits_per_item = bits_per_item.map_or_else(dash, |bits| format!("{bits:.2}"));
        writeln!(
            text,
            "| {structure} | {items} | {rate} | {operation} | {threads} | {nanoseconds:.2} | \
             {ratio} | {measured_rate} | {bits_per_item} |"
        )
        .expect("a string takes everything");
    }
    text
}

/// Nanoseconds of the limit of a row: what memory allows for the same case and threads.
fn limit_of(row: &Row, rows: &[Row]) -> Option<f64> {
    let operation = match row.sample.operation {
        "contains" | "contains_batch" => "random_line_read",
        "insert" | "insert_batch" => "random_line_write",
        "or_merge" | "popcount" => "memcpy",
        _ => return None,
    };
    let is_limit = |other: &&Row| {
        other.structure == LIMIT
            && other.case == row.case
            && other.sample.operation == operation
            && other.sample.threads == row.sample.threads
    };
    rows.iter().find(is_limit).map(|limit| limit.sample.nanoseconds)
}

/// Writes a file of results below `target/bench` of the repository.
///
/// # Errors
/// If the file cannot be written.
pub fn save(name: &str, text: &str) -> io::Result<()> {
    let directory: PathBuf =
        [env!("CARGO_MANIFEST_DIR"), "..", "..", "target", "bench"].iter().collect();
    fs::create_dir_all(&directory)?;
    fs::write(directory.join(name), text)
}

/// The middle one, or the mean of the middle two. 0 of none.
#[must_use]
pub fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    let middle = values.len() / 2;
    match values.len() {
        0 => 0.0,
        len if len % 2 == 1 => values[middle],
        _ => (values[middle - 1] + values[middle]) / 2.0,
    }
}
