//! Formats and parses sizes, counts and times in units for people.

use std::time::Duration;

/// Formats bytes in the unit that fits, in powers of 1,024.
pub(crate) fn size(bytes: f64) -> String {
    scaled(bytes, 1024.0, ["bytes", "KiB", "MiB", "GiB", "TiB"], " ")
}

/// Formats a number in the form that `--queries` takes, in powers of 1,000.
pub(crate) fn count(number: f64) -> String {
    scaled(number, 1000.0, ["", "K", "M", "G", "T"], "")
}

/// Parses a time: a whole number above 0 and a unit that `units` contains, of `s`, `m`, `h` and `d`.
pub(crate) fn time(text: &str, units: &str) -> Option<Duration> {
    let unit = text.chars().last().filter(|unit| units.contains(*unit))?;
    let unit_s = match unit {
        's' => 1,
        'm' => 60,
        'h' => 3_600,
        'd' => 86_400,
        _ => return None,
    };
    let number = text.strip_suffix(unit)?;
    let is_whole = !number.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit());
    let number: u64 = is_whole.then(|| number.parse().ok()).flatten()?;
    number.checked_mul(unit_s).filter(|seconds| *seconds > 0).map(Duration::from_secs)
}

/// Formats a number in the largest unit in which it is at least 1, with at least three digits above the
/// smallest unit.
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
    fn times_have_one_of_the_units_that_are_asked_for() {
        assert_eq!(time("2d", "smhd"), Some(Duration::from_secs(172_800)));
        for text in ["2d", "", "m", "10", "+5s", "0s", "1.5h", "18446744073709551615h", "3é"] {
            assert_eq!(time(text, "smh"), None, "{text}");
        }
    }

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
