//! Replies, and their encoding in both versions of the protocol.

use std::borrow::Cow;

/// Digits of the largest 64-bit number.
const DIGITS_MAX: usize = 20;

/// The version of the protocol on a connection. It begins with RESP2; `HELLO` changes it.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub enum Protocol {
    /// RESP2: statuses, errors, integers, bulk strings, arrays.
    #[default]
    Two,
    /// RESP3: also null, booleans, doubles, maps, sets and verbatim strings.
    Three,
}

/// A reply. In RESP2, values of types that it lacks are encoded as the types in parentheses.
#[derive(Clone, PartialEq, Debug)]
pub enum Reply {
    /// A short text without line breaks, like `OK`.
    Status(Cow<'static, str>),
    /// An error, with its code in front, like `ERR not found`; line breaks are replaced by blanks.
    Error(Cow<'static, str>),
    /// A whole number.
    Integer(i64),
    /// True or false (1 or 0).
    Boolean(bool),
    /// Any bytes.
    Bulk(Vec<u8>),
    /// A text for people (a bulk string).
    Verbatim(String),
    /// A floating-point number (a bulk string).
    Double(f64),
    /// No value (a null bulk string).
    Null,
    /// No list (a null array).
    NullArray,
    /// Several values.
    Array(Vec<Reply>),
    /// Keys with their values (an array in which they alternate).
    Map(Vec<(Reply, Reply)>),
    /// Values without an order (an array).
    Set(Vec<Reply>),
}

impl Reply {
    /// The reply of a command that succeeded and has no result.
    pub const OK: Self = Self::Status(Cow::Borrowed("OK"));

    /// Any bytes as a bulk string.
    #[must_use]
    pub fn bulk(bytes: impl AsRef<[u8]>) -> Self {
        Self::Bulk(bytes.as_ref().to_vec())
    }

    /// An integer; numbers beyond the protocol's integers become the largest of these.
    ///
    /// ```
    /// use umbel_resp::Reply;
    /// assert_eq!(Reply::number(7_u64), Reply::Integer(7));
    /// assert_eq!(Reply::number(u64::MAX), Reply::Integer(i64::MAX));
    /// ```
    #[must_use]
    pub fn number(value: impl TryInto<i64>) -> Self {
        Self::Integer(value.try_into().unwrap_or(i64::MAX))
    }

    /// A name and its value, for a map.
    #[must_use]
    pub fn entry(name: &str, value: Self) -> (Self, Self) {
        (Self::bulk(name), value)
    }

    /// Appends the encoded reply to `out`.
    ///
    /// ```
    /// use umbel_resp::{Protocol, Reply};
    /// let map = Reply::Map(vec![(Reply::Status("Size".into()), Reply::Boolean(true))]);
    /// let (mut two, mut three) = (Vec::new(), Vec::new());
    /// map.encode(Protocol::Two, &mut two);
    /// map.encode(Protocol::Three, &mut three);
    /// assert_eq!(two, b"*2\r\n+Size\r\n:1\r\n");
    /// assert_eq!(three, b"%1\r\n+Size\r\n#t\r\n");
    /// ```
    pub fn encode(&self, protocol: Protocol, out: &mut Vec<u8>) {
        let is_three = protocol == Protocol::Three;
        match self {
            Self::Status(text) => line(b'+', text, out),
            Self::Error(text) => line(b'-', text, out),
            Self::Integer(number) => number_line(b':', *number, out),
            Self::Boolean(value) => out.extend_from_slice(match (is_three, value) {
                (true, true) => b"#t\r\n",
                (true, false) => b"#f\r\n",
                (false, true) => b":1\r\n",
                (false, false) => b":0\r\n",
            }),
            Self::Bulk(bytes) => bulk(bytes, out),
            Self::Verbatim(text) if is_three => {
                length_line(b'=', text.len() + 4, out);
                out.extend_from_slice(b"txt:");
                out.extend_from_slice(text.as_bytes());
                out.extend_from_slice(b"\r\n");
            }
            Self::Verbatim(text) => bulk(text.as_bytes(), out),
            Self::Double(value) if is_three => line(b',', &double(*value), out),
            Self::Double(value) => bulk(double(*value).as_bytes(), out),
            Self::Null if is_three => out.extend_from_slice(b"_\r\n"),
            Self::NullArray if is_three => out.extend_from_slice(b"_\r\n"),
            Self::Null => out.extend_from_slice(b"$-1\r\n"),
            Self::NullArray => out.extend_from_slice(b"*-1\r\n"),
            Self::Array(values) => list(b'*', values, protocol, out),
            Self::Set(values) => list(if is_three { b'~' } else { b'*' }, values, protocol, out),
            Self::Map(pairs) => {
                if is_three {
                    length_line(b'%', pairs.len(), out);
                } else {
                    length_line(b'*', pairs.len() * 2, out);
                }
                for (key, value) in pairs {
                    key.encode(protocol, out);
                    value.encode(protocol, out);
                }
            }
        }
    }
}

fn list(sign: u8, values: &[Reply], protocol: Protocol, out: &mut Vec<u8>) {
    length_line(sign, values.len(), out);
    for value in values {
        value.encode(protocol, out);
    }
}

/// A line of text; line breaks in the text become blanks.
fn line(sign: u8, text: &str, out: &mut Vec<u8>) {
    out.push(sign);
    out.extend(text.bytes().map(|byte| if matches!(byte, b'\r' | b'\n') { b' ' } else { byte }));
    out.extend_from_slice(b"\r\n");
}

/// A number after the sign of its type, or a length after the sign of a list's type.
pub(crate) fn number_line(sign: u8, number: i64, out: &mut Vec<u8>) {
    out.push(sign);
    if number < 0 {
        out.push(b'-');
    }
    let mut left = number.unsigned_abs();
    let mut digits = [0; DIGITS_MAX];
    let mut length = 0;
    for digit in digits.iter_mut().rev() {
        *digit = b'0' + u8::try_from(left % 10).unwrap_or_default();
        left /= 10;
        length += 1;
        if left == 0 {
            break;
        }
    }
    out.extend_from_slice(digits.get(DIGITS_MAX - length..).unwrap_or_default());
    out.extend_from_slice(b"\r\n");
}

/// A length after the sign of a type.
pub(crate) fn length_line(sign: u8, length: usize, out: &mut Vec<u8>) {
    number_line(sign, i64::try_from(length).unwrap_or(i64::MAX), out);
}

/// Begins an array of `count` replies, which the caller must encode after it.
///
/// ```
/// let mut bytes = Vec::new();
/// umbel_resp::encode_array_head(2, &mut bytes);
/// assert_eq!(bytes, b"*2\r\n");
/// ```
pub fn encode_array_head(count: usize, out: &mut Vec<u8>) {
    length_line(b'*', count, out);
}

/// Bytes after their length.
pub(crate) fn bulk(bytes: &[u8], out: &mut Vec<u8>) {
    length_line(b'$', bytes.len(), out);
    out.extend_from_slice(bytes);
    out.extend_from_slice(b"\r\n");
}

/// A double as the protocol spells it: `inf`, `-inf`, `nan`, else the shortest digits that identify the
/// number.
fn double(value: f64) -> String {
    if value.is_nan() { "nan".to_owned() } else { value.to_string() }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn both(reply: &Reply) -> [String; 2] {
        [Protocol::Two, Protocol::Three].map(|protocol| {
            let mut bytes = Vec::new();
            reply.encode(protocol, &mut bytes);
            String::from_utf8(bytes).unwrap().replace("\r\n", "|")
        })
    }

    #[test]
    fn every_type_is_written_for_both_versions() {
        let array = || vec![Reply::Integer(-5), Reply::Error("ERR full".into())];
        let table = [
            (Reply::OK, "+OK|", "+OK|"),
            (Reply::Error("ERR a\r\nb".into()), "-ERR a  b|", "-ERR a  b|"),
            (Reply::Integer(i64::MIN), ":-9223372036854775808|", ":-9223372036854775808|"),
            (Reply::Boolean(true), ":1|", "#t|"),
            (Reply::Boolean(false), ":0|", "#f|"),
            (Reply::bulk(""), "$0||", "$0||"),
            (Reply::Verbatim("a".into()), "$1|a|", "=5|txt:a|"),
            (Reply::Double(0.5), "$3|0.5|", ",0.5|"),
            (Reply::Double(f64::NEG_INFINITY), "$4|-inf|", ",-inf|"),
            (Reply::Double(f64::NAN), "$3|nan|", ",nan|"),
            (Reply::Null, "$-1|", "_|"),
            (Reply::NullArray, "*-1|", "_|"),
            (Reply::Array(array()), "*2|:-5|-ERR full|", "*2|:-5|-ERR full|"),
            (Reply::Set(array()), "*2|:-5|-ERR full|", "~2|:-5|-ERR full|"),
            (Reply::Map(vec![(Reply::bulk("k"), Reply::Null)]), "*2|$1|k|$-1|", "%1|$1|k|_|"),
        ];
        for (reply, two, three) in table {
            assert_eq!(both(&reply), [two, three], "{reply:?}");
        }
    }
}
