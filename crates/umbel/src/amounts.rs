//! Parses numbers of items and of bytes in the forms that people write.

/// Parses a number of items: `1000000`, `1e6`, `2.5e9`, `10M`, `1.5G`. K, M, G and T are powers of 1,000.
///
/// # Errors
///
/// If the text is no number in such a form, no whole number, or above 2^64 - 1.
pub(crate) fn parse_count(text: &str) -> Result<u64, String> {
    exact(text).ok_or_else(|| {
        format!("`{text}` is not a number of items: write 1000000, 1e6 or 1M, at most 2^64 - 1")
    })
}

fn exact(text: &str) -> Option<u64> {
    let (text, unit) = match text.chars().last()?.to_ascii_uppercase() {
        'K' => (&text[..text.len() - 1], 3),
        'M' => (&text[..text.len() - 1], 6),
        'G' => (&text[..text.len() - 1], 9),
        'T' => (&text[..text.len() - 1], 12),
        _ => (text, 0),
    };
    let (mantissa, exponent) = match text.split_once(['e', 'E']) {
        Some((mantissa, digits)) => (mantissa, number(digits.strip_prefix('+').unwrap_or(digits))?),
        None => (text, 0),
    };
    let (whole, fraction) = mantissa.split_once('.').unwrap_or((mantissa, ""));
    // A decimal point needs digits on both sides.
    if whole.is_empty() || (fraction.is_empty() && mantissa.ends_with('.')) {
        return None;
    }
    let fraction = fraction.trim_end_matches('0');
    let shift = u32::try_from(exponent).ok()?.checked_add(unit)?;
    let shift = shift.checked_sub(u32::try_from(fraction.len()).ok()?)?;
    let digits = number(&format!("{whole}{fraction}"))?;
    if digits == 0 { Some(0) } else { digits.checked_mul(10_u64.checked_pow(shift)?) }
}

/// Parses digits; `str::parse` would accept a sign too.
fn number(digits: &str) -> Option<u64> {
    digits.bytes().all(|byte| byte.is_ascii_digit()).then(|| digits.parse().ok())?
}

/// Parses a size: a number with an optional K, M, G or T (powers of 1,024), optionally followed by `B` or `iB`.
///
/// # Errors
///
/// If it is not a size, or does not fit into 64 bits.
pub(crate) fn parse_bytes(text: &str) -> Result<u64, String> {
    let digits = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let (number, unit) = text.split_at(digits);
    let unit = unit.trim().to_ascii_uppercase();
    let shift = match unit.trim_end_matches('B').trim_end_matches('I') {
        "" => Some(0),
        "K" => Some(10),
        "M" => Some(20),
        "G" => Some(30),
        "T" => Some(40),
        _ => None,
    };
    let (Some(shift), Ok(number)) = (shift, number.parse::<u64>()) else {
        return Err(format!("`{text}` is not a size: write 512M, 2G or a number of bytes"));
    };
    number.checked_mul(1 << shift).ok_or_else(|| format!("`{text}` is more than 2^64 bytes"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_read_exactly() {
        for (text, count) in [
            ("0", 0),
            ("1000000", 1_000_000),
            ("1e6", 1_000_000),
            ("1E+6", 1_000_000),
            ("2.5e9", 2_500_000_000),
            ("10M", 10_000_000),
            ("1g", 1_000_000_000),
            ("1.5K", 1500),
            ("1.50", 0),
            ("12.0", 12),
            ("0e999", 0),
            ("18446744073709551615", u64::MAX),
            ("18446744073709551616", 0),
            ("1e20", 0),
            ("1.5", 0),
            ("1.2345K", 0),
            ("-1", 0),
            ("+1", 0),
            ("1e-3", 0),
            ("1.", 0),
            (".5M", 0),
            ("M", 0),
            ("", 0),
            ("1é", 0),
            ("1Mi", 0),
            ("many", 0),
        ] {
            let expected = if count > 0 || text.starts_with("0") { Some(count) } else { None };
            assert_eq!(parse_count(text).ok(), expected, "{text}");
        }
    }

    #[test]
    fn sizes_are_read_with_their_units() {
        for (text, bytes) in [
            ("0", 0),
            ("77", 77),
            ("128M", 128 << 20),
            ("2g", 2 << 30),
            ("1KiB", 1024),
            ("3MB", 3 << 20),
        ] {
            assert_eq!(parse_bytes(text).unwrap(), bytes, "{text}");
        }
        for text in ["", "M", "1X", "-1", "1.5G", "99999999999T"] {
            assert!(parse_bytes(text).is_err(), "{text}");
        }
    }
}
