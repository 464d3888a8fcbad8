//! Numbers with their units, and names of bounded length.

/// Most characters shown of a name. A page shows some two hundred names, so its size stays bounded.
const NAME_CHARS_MAX: usize = 120;

/// A number with commas between groups of three digits.
pub(crate) fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::new();
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// A count with its noun: `1 file`, `2,000 files`.
pub(crate) fn number_of(count: u64, one: &str, many: &str) -> String {
    format!("{} {}", grouped(count), if count == 1 { one } else { many })
}

/// A share in per cent. A share above 0 never rounds to 0 %, and a share below the whole never to 100 %.
pub(crate) fn share(part: u64, whole: u64) -> String {
    if whole == 0 {
        return "–".to_owned();
    }
    let percent = 100.0 * part as f64 / whole as f64;
    match percent {
        _ if part == 0 => "0 %".to_owned(),
        _ if part == whole => "100 %".to_owned(),
        ..0.01 => "< 0.01 %".to_owned(),
        99.99.. if part < whole => "> 99.99 %".to_owned(),
        _ => format!("{percent:.2} %"),
    }
}

/// A number of seconds or bits in whole ten-thousandths, the resolution of bars and shares; summaries
/// have no more digits.
#[expect(clippy::cast_possible_truncation, reason = "what is cut off is far below a pixel")]
pub(crate) fn ten_thousandths(number: f64) -> u64 {
    (number.max(0.0) * 1e4).round() as u64
}

/// A time in the unit that fits.
pub(crate) fn duration(seconds: f64) -> String {
    match seconds {
        ..1.0 => format!("{:.1} ms", seconds * 1000.0),
        ..100.0 => format!("{seconds:.2} s"),
        ..7200.0 => format!("{seconds:.0} s"),
        _ => format!("{:.1} h", seconds / 3600.0),
    }
}

/// A name without its middle if it is long: both ends help to tell files apart.
pub(crate) fn shortened(name: &str) -> String {
    shortened_to(name, NAME_CHARS_MAX)
}

/// The same with at most `chars_max` characters.
pub(super) fn shortened_to(name: &str, chars_max: usize) -> String {
    let chars: Vec<char> = name.chars().collect();
    if chars.len() <= chars_max {
        return name.to_owned();
    }
    let head = (chars_max - 1) / 3;
    let tail = chars_max - 1 - head;
    let (head, tail) = (&chars[..head], &chars[chars.len() - tail..]);
    head.iter().chain(&['…']).chain(tail).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_grouped_by_thousands() {
        let groups = [0, 7, 999, 1000, 12_345, 1_234_567].map(grouped);
        assert_eq!(groups, ["0", "7", "999", "1,000", "12,345", "1,234,567"]);
        assert_eq!(number_of(1, "file", "files"), "1 file");
        assert_eq!(number_of(1000, "file", "files"), "1,000 files");
    }

    #[test]
    fn shares_do_not_round_to_nothing_or_to_all() {
        let shares = [(0, 0), (0, 9), (1, 1_000_000), (1, 3), (999_999, 1_000_000), (9, 9)];
        let shares = shares.map(|(part, whole)| share(part, whole));
        assert_eq!(shares, ["–", "0 %", "< 0.01 %", "33.33 %", "> 99.99 %", "100 %"]);
    }

    #[test]
    fn times_are_in_units_that_suit() {
        let times = [0.0, 0.0123, 1.0, 99.5, 6000.0, 9000.0].map(duration);
        assert_eq!(times, ["0.0 ms", "12.3 ms", "1.00 s", "99.50 s", "6000 s", "2.5 h"]);
    }

    #[test]
    fn long_names_keep_both_ends() {
        assert_eq!(shortened("in/a.txt"), "in/a.txt");
        assert_eq!(shortened_to("in/äbcdefgh.txt", 9), "in…gh.txt");
        assert_eq!(shortened(&"é".repeat(5000)).chars().count(), NAME_CHARS_MAX);
    }
}
