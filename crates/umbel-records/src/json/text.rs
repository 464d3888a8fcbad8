//! JSON strings: found fast, unescaped, and escaped again in the shortest form.
//!
//! Most strings have no escapes and are copied as they are. Escapes are validated when a string is
//! scanned, so unescaping cannot fail.

/// A string as written in the text, without its quotes. Its escapes were validated.
#[derive(Debug, Clone, Copy)]
pub(crate) struct StringText<'a> {
    pub(crate) raw: &'a [u8],
    pub(crate) has_escapes: bool,
}

impl StringText<'_> {
    /// Appends the characters of the string to `target` as UTF-8.
    pub(crate) fn unescape_into(&self, target: &mut Vec<u8>) {
        if !self.has_escapes {
            target.extend_from_slice(self.raw);
            return;
        }
        let mut rest = self.raw;
        while let Some(at) = memchr::memchr(b'\\', rest) {
            target.extend_from_slice(&rest[..at]);
            rest = &rest[at..];
            let byte = match rest[1] {
                b'b' => 0x08,
                b'f' => 0x0c,
                b'n' => b'\n',
                b'r' => b'\r',
                b't' => b'\t',
                b'u' => {
                    let escape = unicode_escape(rest).expect("checked when it was scanned");
                    let char = escape.char.expect("checked when it was scanned");
                    target.extend_from_slice(char.encode_utf8(&mut [0; 4]).as_bytes());
                    rest = &rest[escape.bytes..];
                    continue;
                }
                itself => itself,
            };
            target.push(byte);
            rest = &rest[2..];
        }
        target.extend_from_slice(rest);
    }

    /// Appends the string with its quotes in canonical form. `scratch` is overwritten.
    pub(crate) fn write_canonical(&self, target: &mut Vec<u8>, scratch: &mut Vec<u8>) {
        target.push(b'"');
        if self.has_escapes {
            scratch.clear();
            self.unescape_into(scratch);
            escape_into(scratch, target);
        } else {
            target.extend_from_slice(self.raw);
        }
        target.push(b'"');
    }
}

/// Appends `plain`, which is UTF-8, as a string with its quotes in canonical form.
pub(crate) fn write_string(plain: &[u8], target: &mut Vec<u8>) {
    target.push(b'"');
    escape_into(plain, target);
    target.push(b'"');
}

/// Appends `plain` with the escapes that RFC 8785, 3.2.2.2 requires, and no others.
fn escape_into(plain: &[u8], target: &mut Vec<u8>) {
    const HEX: &[u8; 16] = b"0123456789abcdef";
    let mut rest = plain;
    loop {
        let (run, tail) = rest.split_at(plain_bytes(rest));
        target.extend_from_slice(run);
        let Some((&byte, tail)) = tail.split_first() else { return };
        match byte {
            b'"' | b'\\' => target.extend_from_slice(&[b'\\', byte]),
            0x08 => target.extend_from_slice(b"\\b"),
            0x0c => target.extend_from_slice(b"\\f"),
            b'\n' => target.extend_from_slice(b"\\n"),
            b'\r' => target.extend_from_slice(b"\\r"),
            b'\t' => target.extend_from_slice(b"\\t"),
            _ => {
                let (high, low) = (usize::from(byte >> 4), usize::from(byte & 15));
                target.extend_from_slice(&[b'\\', b'u', b'0', b'0', HEX[high], HEX[low]]);
            }
        }
        rest = tail;
    }
}

/// A `\u` escape, or a pair of them.
#[derive(Debug)]
pub(super) struct UnicodeEscape {
    /// The character; `None` for an unpaired surrogate.
    pub(super) char: Option<char>,
    /// Length of the escape: 6, or 12 for a pair.
    pub(super) bytes: usize,
}

/// The `\u` escape at the start of `text`, with the second half of its pair. `None` if four
/// hexadecimal digits are missing.
pub(super) fn unicode_escape(text: &[u8]) -> Option<UnicodeEscape> {
    let unit = code_unit(text)?;
    if let 0xd800..=0xdbff = unit
        && let Some(second @ 0xdc00..=0xdfff) = code_unit(&text[6..])
    {
        let code = 0x1_0000 + ((unit - 0xd800) << 10) + (second - 0xdc00);
        return Some(UnicodeEscape { char: char::from_u32(code), bytes: 12 });
    }
    Some(UnicodeEscape { char: char::from_u32(unit), bytes: 6 })
}

/// The UTF-16 code unit of a `\uXXXX` at the start of `text`.
fn code_unit(text: &[u8]) -> Option<u32> {
    let digits = text.get(..6)?.strip_prefix(b"\\u")?;
    digits.iter().try_fold(0, |unit, &digit| Some(unit << 4 | char::from(digit).to_digit(16)?))
}

/// The number of bytes at the start of `text` that need no escape in a JSON string: all up to a quote,
/// a backslash or a control character. Eight at a time, by the borrow trick of Mycroft (1987): the high
/// bit of a byte of `x - 01..01 & !x` is set where a byte of x is zero, and reliably so for the lowest
/// such byte.
#[inline]
pub(super) fn plain_bytes(text: &[u8]) -> usize {
    const ONES: u64 = 0x0101_0101_0101_0101;
    const HIGHS: u64 = 0x8080_8080_8080_8080;
    let mut at = 0;
    while let Some(word) = text[at..].first_chunk::<8>() {
        let word = u64::from_le_bytes(*word);
        let quote = word ^ (ONES * b'"' as u64);
        let backslash = word ^ (ONES * b'\\' as u64);
        let stops = (quote.wrapping_sub(ONES) & !quote)
            | (backslash.wrapping_sub(ONES) & !backslash)
            | (word.wrapping_sub(ONES * 0x20) & !word);
        let stops = stops & HIGHS;
        if stops != 0 {
            return at + stops.trailing_zeros() as usize / 8;
        }
        at += 8;
    }
    let tail = &text[at..];
    at + tail.iter().position(|&byte| is_stop(byte)).unwrap_or(tail.len())
}

/// The slow reference for [`plain_bytes`], for one byte.
fn is_stop(byte: u8) -> bool {
    byte == b'"' || byte == b'\\' || byte < 0x20
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn canonical(raw: &str) -> String {
        let text = StringText { raw: raw.as_bytes(), has_escapes: raw.contains('\\') };
        let mut out = Vec::new();
        text.write_canonical(&mut out, &mut Vec::new());
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn strings_are_escaped_as_rfc_8785_says() {
        assert_eq!(canonical(r"a\/b\u0041"), r#""a/bA""#);
        assert_eq!(
            canonical(r"\u20ac$\u000F\u000aA'\u0042\u0022\u005c\\\/"),
            "\"€$\\u000f\\nA'B\\\"\\\\\\\\/\""
        );
        assert_eq!(canonical(r"\b\f\n\r\t\u0000"), r#""\b\f\n\r\t\u0000""#);
        assert_eq!(canonical(r"\ud83d\uDE02"), "\"😂\"");
        assert_eq!(canonical(r"\ud800\udc00\uDBFF\uDFFF"), "\"\u{10000}\u{10ffff}\"");
        assert_eq!(canonical("\u{7f}é"), "\"\u{7f}é\"");
    }

    #[test]
    fn halves_of_pairs_are_no_characters() {
        assert!(unicode_escape(br"\ud800").unwrap().char.is_none());
        assert!(unicode_escape(br"\ud800\u0041").unwrap().char.is_none());
        assert!(unicode_escape(br"\udc00\ud800").unwrap().char.is_none());
        assert!(unicode_escape(br"\u12").is_none());
        assert!(unicode_escape(br"\u+123").is_none());
    }

    /// Bytes that are often a stop or next to one.
    fn any_byte() -> impl Strategy<Value = u8> {
        prop_oneof![8 => any::<u8>(), 1 => Just(b'"'), 1 => Just(b'\\'), 20 => 0x1e..0x24u8]
    }

    proptest! {
        #[test]
        fn words_find_what_bytes_find(text in proptest::collection::vec(any_byte(), 0..80)) {
            let expected = text.iter().position(|&b| is_stop(b)).unwrap_or(text.len());
            prop_assert_eq!(plain_bytes(&text), expected);
        }
    }
}
