//! Sizes and counts in units that people read.

/// Bytes in the unit that suits them, powers of 1,024.
pub(crate) fn size(bytes: f64) -> String {
    scaled(bytes, 1024.0, ["bytes", "KiB", "MiB", "GiB", "TiB"], " ")
}

/// A number as `--queries` takes it, powers of 1,000.
pub(crate) fn count(number: f64) -> String {
    scaled(number, 1000.0, ["", "K", "M", "G", "T"], "")
}

/// A number in the largest unit of which it has one, with three digits or more.
fn scaled(mut number: f64, base: f64, units: [&str; 5], blank: &str) -> String {
    let mut power = 0;
    while number >= base && power + 1 < units.len() {
        number /= base;
        power += 1;
    }
    let digits = match number {
        _ if power == 0 => 0,
        10.0.. if number >= 100.0 => 0,
        10.0.. => 1,
        _ => 2,
    };
    format!("{number:.digits$}{blank}{}", units[power])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_and_counts_are_in_units_that_suit() {
        let sizes = [0.0, 999.0, 1024.0, 12.5 * 1024.0, 300.0 * 1048576.0, 1e18].map(size);
        assert_eq!(
            sizes,
            ["0 bytes", "999 bytes", "1.00 KiB", "12.5 KiB", "300 MiB", "909495 TiB"]
        );
        assert_eq!([12.0, 1.5e6, 20e9].map(count), ["12", "1.50M", "20.0G"]);
    }
}
