//! Tables and numbers for people.

/// Rows under headings. The first column is flush left, the others flush right.
pub(crate) struct Table {
    rows: Vec<Vec<String>>,
}

impl Table {
    /// A table with these headings and no rows.
    pub(crate) fn new(headings: &[&str]) -> Self {
        Self { rows: vec![headings.iter().map(|&heading| heading.to_owned()).collect()] }
    }

    /// Adds a row.
    pub(crate) fn row<const N: usize>(&mut self, cells: [String; N]) {
        self.rows.push(cells.into());
    }

    /// Whether it has no rows below its headings.
    pub(crate) fn is_empty(&self) -> bool {
        self.rows.len() == 1
    }
}

impl std::fmt::Display for Table {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let column_count = self.rows.iter().map(Vec::len).max().unwrap_or(0);
        let widths: Vec<usize> = (0..column_count)
            .map(|column| {
                let cells = self.rows.iter().filter_map(|row| row.get(column));
                cells.map(|cell| cell.chars().count()).max().unwrap_or(0)
            })
            .collect();
        for row in &self.rows {
            let mut line = String::from(" ");
            for (column, (cell, width)) in row.iter().zip(&widths).enumerate() {
                line += &match column {
                    0 => format!(" {cell:<width$}"),
                    _ => format!("  {cell:>width$}"),
                };
            }
            writeln!(f, "{}", line.trim_end())?;
        }
        Ok(())
    }
}

/// A number with a comma after every third digit.
pub(crate) fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::with_capacity(digits.len() + digits.len() / 3);
    for (place, digit) in digits.chars().enumerate() {
        if place > 0 && (digits.len() - place).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// A number and its noun, in the plural unless it is one.
pub(crate) fn count(number: u64, noun: &str) -> String {
    let ending = if number == 1 { "" } else { "s" };
    format!("{} {noun}{ending}", grouped(number))
}

/// The ratio of two numbers with one decimal; `-` if `of` is 0.
pub(crate) fn per(amount: u64, of: u64) -> String {
    if of == 0 {
        return "-".to_owned();
    }
    let tenths = (u128::from(amount) * 10 + u128::from(of) / 2) / u128::from(of);
    format!("{}.{}", tenths / 10, tenths % 10)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_line_up() {
        let mut table = Table::new(&["fault", "fired"]);
        assert!(table.is_empty());
        table.row(["crash".to_owned(), grouped(12_345)]);
        table.row(["power_loss".to_owned(), grouped(7)]);
        let expected = "  fault        fired\n  crash       12,345\n  power_loss       7\n";
        assert_eq!(table.to_string(), expected);
        assert!(!table.is_empty());
    }

    #[test]
    fn numbers_are_readable() {
        let texts = [0, 999, 1_000, 1_234_567].map(grouped);
        assert_eq!(texts, ["0", "999", "1,000", "1,234,567"]);
        assert_eq!(count(1, "seed"), "1 seed");
        assert_eq!(count(2_000, "seed"), "2,000 seeds");
        assert_eq!(count(0, "seed"), "0 seeds");
    }

    #[test]
    fn a_ratio_is_rounded_and_one_of_nothing_is_no_number() {
        assert_eq!(per(62_000, 1_800), "34.4");
        assert_eq!(per(1, 3), "0.3");
        assert_eq!(per(2, 3), "0.7");
        assert_eq!(per(5, 0), "-");
    }
}
