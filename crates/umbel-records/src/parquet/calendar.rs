//! Days and times of day as ISO 8601 writes them; years of more than four digits have a sign.

use std::io::Write as _;

/// Appends the date that is `days` days after 1970-01-01.
pub(super) fn write_day(days: i64, target: &mut Vec<u8>) {
    // Proleptic Gregorian calendar, in eras of 400 years that start on 1 March (H. Hinnant,
    // "chrono-Compatible Low-Level Date Algorithms", civil_from_days).
    let shifted = days + 719_468;
    let era = shifted.div_euclid(146_097);
    let day_of_era = shifted.rem_euclid(146_097);
    let year_of_era =
        (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let shifted_month = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * shifted_month + 2) / 5 + 1;
    let month = if shifted_month < 10 { shifted_month + 3 } else { shifted_month - 9 };
    let year = era * 400 + year_of_era + i64::from(month <= 2);
    let written = if (0..=9999).contains(&year) {
        write!(target, "{year:04}-{month:02}-{day:02}")
    } else {
        write!(target, "{year:+05}-{month:02}-{day:02}")
    };
    written.expect("a vector takes all");
}

/// Appends a time of day, in nanoseconds since midnight, with as many digits of the second as
/// necessary. A value that is not a time of day is written with a minus sign or more than 24 hours.
pub(super) fn write_clock(nanos: i128, target: &mut Vec<u8>) {
    if nanos < 0 {
        target.push(b'-');
    }
    let nanos = nanos.unsigned_abs();
    let (seconds, fraction) = (nanos / 1_000_000_000, nanos % 1_000_000_000);
    let (hours, minutes, seconds) = (seconds / 3600, seconds / 60 % 60, seconds % 60);
    write!(target, "{hours:02}:{minutes:02}:{seconds:02}").expect("a vector takes all");
    if fraction > 0 {
        write!(target, ".{fraction:09}").expect("a vector takes all");
        while target.last() == Some(&b'0') {
            target.pop();
        }
    }
}

/// Appends the time `nanos` nanoseconds after 1970-01-01T00:00:00.
pub(super) fn write_moment(nanos: i128, target: &mut Vec<u8>) {
    const DAY: i128 = 86_400_000_000_000;
    let days =
        i64::try_from(nanos.div_euclid(DAY)).expect("64 bits of milliseconds are fewer days");
    write_day(days, target);
    target.push(b'T');
    write_clock(nanos.rem_euclid(DAY), target);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(write: impl Fn(&mut Vec<u8>)) -> String {
        let mut target = Vec::new();
        write(&mut target);
        String::from_utf8(target).unwrap()
    }

    #[test]
    fn days_are_those_of_the_calendar() {
        for (days, expected) in [
            (0, "1970-01-01"),
            (-1, "1969-12-31"),
            (11_016, "2000-02-29"),
            (19_782, "2024-02-29"),
            (19_783, "2024-03-01"),
            (-719_528, "0000-01-01"),
            (-719_529, "-0001-12-31"),
            (2_932_897, "+10000-01-01"),
        ] {
            assert_eq!(text(|target| write_day(days, target)), expected);
        }
    }

    #[test]
    fn moments_have_the_digits_they_need() {
        for (nanos, expected) in [
            (0, "1970-01-01T00:00:00"),
            (-1, "1969-12-31T23:59:59.999999999"),
            (1_500_000_000, "1970-01-01T00:00:01.5"),
            (86_399_000_000_000, "1970-01-01T23:59:59"),
        ] {
            assert_eq!(text(|target| write_moment(nanos, target)), expected);
        }
        assert_eq!(text(|target| write_clock(-90_000_000_000_000, target)), "-25:00:00");
        text(|target| write_moment(i128::from(i64::MIN) * 1_000_000, target));
    }
}
