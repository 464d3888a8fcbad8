//! Rows, and the two ways they are written: CSV for programs, Markdown for readers.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::path::Path;

use anyhow::{Context, Result};

use crate::load::{Cell, Measured, Operation};
use crate::system::{Request, System};

/// Columns of the file; programs read them by these names.
const CSV_HEADER: &str = "round,system,server,request,operation,batch_items,in_flight,seconds,\
    items,items_per_s,server_ns_per_item,client_ns_per_item,p50_us,p99_us,rss_mb,false_positives";

/// One measured cell of one round.
#[derive(Clone, Debug)]
pub(crate) struct Row {
    pub(crate) round: usize,
    pub(crate) system: System,
    pub(crate) request: Request,
    pub(crate) cell: Cell,
    pub(crate) figures: Figures,
}

/// What the columns hold.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(crate) struct Figures {
    pub(crate) seconds: f64,
    pub(crate) items: f64,
    pub(crate) items_per_s: f64,
    pub(crate) server_ns: f64,
    pub(crate) client_ns: f64,
    pub(crate) p50_us: f64,
    pub(crate) p99_us: f64,
    pub(crate) rss_mb: f64,
    /// Share of items that were never inserted; NaN if there were none.
    pub(crate) false_positives: f64,
}

impl Figures {
    pub(crate) fn of(measured: &Measured) -> Self {
        let (items, seconds) = (measured.item_count as f64, measured.elapsed.as_secs_f64());
        let quantile = |share| measured.latency.value_at_quantile(share) as f64 / 1e3;
        Self {
            seconds,
            items,
            items_per_s: items / seconds,
            server_ns: measured.server_time.as_nanos() as f64 / items,
            client_ns: measured.client_time.as_nanos() as f64 / items,
            p50_us: quantile(0.5),
            p99_us: quantile(0.99),
            rss_mb: measured.rss_bytes as f64 / 1e6,
            false_positives: measured.falses.share().unwrap_or(f64::NAN),
        }
    }
}

/// The middle one, or the mean of the two middle ones; NaN of nothing.
pub(crate) fn median(values: impl IntoIterator<Item = f64>) -> f64 {
    let mut sorted: Vec<f64> = values.into_iter().collect();
    sorted.sort_by(f64::total_cmp);
    match sorted.len() {
        0 => f64::NAN,
        count => f64::midpoint(sorted[(count - 1) / 2], sorted[count / 2]),
    }
}

/// The rows as CSV; what a row does not have is empty.
pub(crate) fn csv(rows: &[Row]) -> String {
    let mut text = format!("{CSV_HEADER}\n");
    for Row { round, system, request, cell, figures } in rows {
        let Cell { operation, batch_items, in_flight } = cell;
        let falses = match figures.false_positives {
            share if share.is_nan() => String::new(),
            share => format!("{share:.6}"),
        };
        writeln!(
            text,
            "{round},{},{},{},{},{batch_items},{in_flight},{:.3},{:.0},{:.0},{:.1},{:.1},{:.1},\
             {:.1},{:.1},{falses}",
            system.name,
            quoted(&system.command()),
            request.name(operation.verb()),
            operation.name(),
            figures.seconds,
            figures.items,
            figures.items_per_s,
            figures.server_ns,
            figures.client_ns,
            figures.p50_us,
            figures.p99_us,
            figures.rss_mb,
        )
        .expect("a string takes everything");
    }
    text
}

fn quoted(text: &str) -> String {
    if text.contains(',') { format!("\"{text}\"") } else { text.to_owned() }
}

/// Medians over the rounds: a table for each operation and size of batch, systems in the order in
/// which they came first.
pub(crate) fn markdown(rows: &[Row]) -> String {
    let mut tables: BTreeMap<(usize, Operation), Vec<Vec<&Row>>> = BTreeMap::new();
    for row in rows {
        let groups = tables.entry((row.cell.batch_items, row.cell.operation)).or_default();
        let key = |row: &Row| (row.system, row.request, row.cell);
        match groups.iter_mut().find(|group| key(group[0]) == key(row)) {
            Some(group) => group.push(row),
            None => groups.push(vec![row]),
        }
    }
    let mut text = String::new();
    for ((batch_items, operation), groups) in tables {
        let batch = match batch_items {
            1 => "single items".to_owned(),
            count => format!("batches of {}", grouped(count as f64)),
        };
        write!(
            text,
            "### {}, {batch}\n\n\
             | system | server | request | in flight | items/s | least–most | server ns/item | \
             client ns/item | p50 µs | p99 µs | RSS MB |\n\
             |---|---|---|--:|--:|--:|--:|--:|--:|--:|--:|\n",
            operation.name()
        )
        .expect("a string takes everything");
        groups.iter().for_each(|group| text.push_str(&line(group)));
        text.push('\n');
    }
    text
}

fn line(group: &[&Row]) -> String {
    let first = group[0];
    let middle = |pick: fn(&Figures) -> f64| median(group.iter().map(|row| pick(&row.figures)));
    let rates = || group.iter().map(|row| row.figures.items_per_s);
    let (least, most) = (rates().fold(f64::MAX, f64::min), rates().fold(0.0, f64::max));
    format!(
        "| {} | `{}` | `{}` | {} | {} | {}–{} | {} | {} | {} | {} | {} |\n",
        first.system.name,
        first.system.command(),
        first.request.name(first.cell.operation.verb()),
        first.cell.in_flight,
        grouped(middle(|figures| figures.items_per_s)),
        grouped(least),
        grouped(most),
        grouped(middle(|figures| figures.server_ns)),
        grouped(middle(|figures| figures.client_ns)),
        grouped(middle(|figures| figures.p50_us)),
        grouped(middle(|figures| figures.p99_us)),
        grouped(middle(|figures| figures.rss_mb)),
    )
}

/// A number for readers: with three digits at least, thousands apart.
pub(crate) fn grouped(value: f64) -> String {
    if value.abs() < 99.95 || !value.is_finite() {
        return format!("{value:.1}");
    }
    let digits = format!("{value:.0}");
    let mut text = String::new();
    for (place, digit) in digits.char_indices() {
        let rest = digits.len() - place;
        if place > 0 && rest % 3 == 0 && !text.ends_with('-') {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// Writes a file and says so.
pub(crate) fn save(folder: &Path, name: &str, text: &str) -> Result<()> {
    std::fs::create_dir_all(folder).with_context(|| folder.display().to_string())?;
    let path = folder.join(name);
    std::fs::write(&path, text).with_context(|| path.display().to_string())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::system::SYSTEMS;

    fn row(round: usize, items_per_s: f64) -> Row {
        let figures = Figures {
            seconds: 5.0,
            items: 5.0 * items_per_s,
            items_per_s,
            server_ns: 123.44,
            client_ns: 50.0,
            p50_us: 1234.0,
            p99_us: 99_999.0,
            rss_mb: 12.34,
            false_positives: f64::NAN,
        };
        let cell = Cell { operation: Operation::InsertNew, batch_items: 1000, in_flight: 8 };
        Row { round, system: SYSTEMS[4], request: Request::Keyed, cell, figures }
    }

    #[test]
    fn medians() {
        assert_eq!(median([3.0, 1.0, 2.0]), 2.0);
        assert_eq!(median([4.0, 1.0, 2.0, 3.0]), 2.5);
        assert_eq!(median([7.0]), 7.0);
        assert!(median([]).is_nan());
    }

    #[test]
    fn numbers_are_grouped() {
        let texts = [0.0, 12.34, 99.96, 1234.5, 1_234_567.0, -1_000.0].map(grouped);
        assert_eq!(texts, ["0.0", "12.3", "100", "1,234", "1,234,567", "-1,000"]);
    }

    #[test]
    fn csv_has_as_many_fields_as_columns() {
        let text = csv(&[row(1, 2e6)]);
        let mut lines = text.lines();
        assert_eq!(lines.next().unwrap().split(',').count(), 16);
        let expected = "1,umbel-3,\"umbel serve --initial-cluster A,B,C --no-fsync\",\
                        Insert items (keyed),insert-new,1000,8,5.000,10000000,2000000,123.4,50.0,\
                        1234.0,99999.0,12.3,";
        assert_eq!(lines.next(), Some(expected));
    }

    #[test]
    fn markdown_has_medians_of_rounds() {
        let text = markdown(&[row(1, 1e6), row(2, 4e6), row(3, 2e6)]);
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines[0], "### insert-new, batches of 1,000");
        assert_eq!(lines.len(), 5 + 1);
        assert!(lines[4].contains("| 8 | 2,000,000 | 1,000,000–4,000,000 | 123 | 50.0 | 1,234 |"));
    }
}
