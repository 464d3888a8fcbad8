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

/// Parses whole seconds, as a plain number or as a time with a unit: `90`, `90s`, `10m`, `2h`.
///
/// # Errors
///
/// What is expected, if the text is neither.
pub(crate) fn seconds(text: &str) -> Result<u64, String> {
    let is_plain = text.bytes().all(|byte| byte.is_ascii_digit());
    let plain: Option<u64> = is_plain.then(|| text.parse().ok()).flatten();
    let number = plain.or_else(|| Some(time(text, "smh")?.as_secs()));
    number.ok_or_else(|| "expected a number of seconds, or a time like 90s, 10m or 2h".to_owned())
}

/// Parses whole seconds as [`seconds`] does, at least one.
///
/// # Errors
///
/// What is expected, if the text is something else.
pub(crate) fn some_seconds(text: &str) -> Result<u64, String> {
    match seconds(text)? {
        0 => Err("expected at least one second".to_owned()),
        number => Ok(number),
    }
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
    fn seconds_are_plain_numbers_or_times() {
        for (text, number) in [("0", 0), ("3", 3), ("3s", 3), ("5m", 300), ("2h", 7_200)] {
            assert_eq!(seconds(text), Ok(number));
        }
        for text in ["", "s", "x", "3x", "+3", "-3", "1.5", "1.5h", "18446744073709551616", "3é"] {
            let error = seconds(text).unwrap_err();
            assert!(error.contains("expected a number of seconds"), "{text}: {error}");
        }
        assert_eq!(some_seconds("1"), Ok(1));
        assert!(some_seconds("0").unwrap_err().contains("at least one"));
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
