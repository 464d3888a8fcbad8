//! Numbers in arguments and lengths, parsed like Redis.

/// Parses an integer: an optional minus and digits without a leading zero, in the range of i64.
///
/// ```
/// use umbel_resp::number::integer;
/// assert_eq!((integer(b"-12"), integer(b"0")), (Some(-12), Some(0)));
/// assert_eq!((integer(b"+5"), integer(b"007"), integer(b"1e3")), (None, None, None));
/// ```
#[must_use]
pub fn integer(text: &[u8]) -> Option<i64> {
    let digits = text.strip_prefix(b"-").unwrap_or(text);
    let is_plain = match digits {
        [b'0'] => text.len() == 1,
        [b'1'..=b'9', rest @ ..] => rest.iter().all(u8::is_ascii_digit),
        _ => false,
    };
    std::str::from_utf8(text).ok().filter(|_| is_plain)?.parse().ok()
}

/// Parses digits without a sign, in the range of u64: a cursor, or the number of a session or request.
///
/// ```
/// use umbel_resp::number::natural;
/// assert_eq!((natural(b"007"), natural(b"18446744073709551615")), (Some(7), Some(u64::MAX)));
/// assert_eq!((natural(b"+5"), natural(b"-1"), natural(b"")), (None, None, None));
/// ```
#[must_use]
pub fn natural(text: &[u8]) -> Option<u64> {
    let is_plain = !text.is_empty() && text.iter().all(u8::is_ascii_digit);
    std::str::from_utf8(text).ok().filter(|_| is_plain)?.parse().ok()
}

/// Parses a float: digits with an optional sign, point and exponent; neither infinite nor NaN, and not so
/// small that it becomes 0.
///
/// ```
/// use umbel_resp::number::float;
/// assert_eq!((float(b"0.01"), float(b"1e-3"), float(b".5")), (Some(0.01), Some(0.001), Some(0.5)));
/// assert_eq!((float(b" 1"), float(b"nan"), float(b"1e999"), float(b"1e-999")), (None, None, None, None));
/// ```
#[must_use]
pub fn float(text: &[u8]) -> Option<f64> {
    let is_plain = |byte: &u8| byte.is_ascii_digit() || b"+-.eE".contains(byte);
    let text = std::str::from_utf8(text).ok().filter(|text| text.bytes().all(|b| is_plain(&b)))?;
    let value: f64 = text.parse().ok()?;
    let mantissa = text.split(['e', 'E']).next().unwrap_or_default();
    let is_zero = !mantissa.bytes().any(|digit| matches!(digit, b'1'..=b'9'));
    (value.is_finite() && (value != 0.0 || is_zero)).then_some(value)
}

/// Significant digits of `%g`.
const DIGITS: i32 = 6;

/// Formats a float like C's `%g`: six significant digits without trailing zeros, with an exponent if that
/// is below -4 or above 5. RedisBloom formats rates like this.
///
/// ```
/// use umbel_resp::number::general;
/// assert_eq!([0.005, 1.0 / 3.0, 100.0].map(general), ["0.005", "0.333333", "100"]);
/// assert_eq!([1.5625e-5, 0.0001, 2.5e120].map(general), ["1.5625e-05", "0.0001", "2.5e+120"]);
/// // Rounded before the exponent is looked at.
/// assert_eq!([999_999.5, 0.000_099_999_99].map(general), ["1e+06", "0.0001"]);
/// assert_eq!([0.0, -0.5].map(general), ["0", "-0.5"]);
/// ```
#[must_use]
pub fn general(value: f64) -> String {
    let scientific = format!("{:.*e}", 5, value);
    let Some((mantissa, exponent)) = scientific.split_once('e') else { return scientific };
    // A double's exponent has at most three digits.
    let exponent: i32 = exponent.parse().unwrap_or_default();
    if (-4..DIGITS).contains(&exponent) {
        let decimals = usize::try_from(DIGITS - 1 - exponent).unwrap_or_default();
        return without_zeros(&format!("{value:.decimals$}")).to_owned();
    }
    let sign = if exponent < 0 { '-' } else { '+' };
    format!("{}e{sign}{:02}", without_zeros(mantissa), exponent.unsigned_abs())
}

/// Removes trailing zeros after a decimal point, and the point if no digit is left after it.
fn without_zeros(digits: &str) -> &str {
    if digits.contains('.') { digits.trim_end_matches('0').trim_end_matches('.') } else { digits }
}
