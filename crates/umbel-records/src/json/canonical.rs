//! Values in canonical form.
//!
//! Fields are written in the order of the input and sorted when the object closes: most writers sort
//! them or always use the same order, and a sorted object is left as it is. Each buffer is a stack for
//! all levels.

use std::cmp::Ordering;
use std::ops::Range;

use super::cursor::Cursor;
use super::text::write_string;
use crate::Normalisers;
use crate::json::Result;

/// Writes values in canonical form. Reuses its buffers for every value.
#[derive(Debug, Default)]
pub(crate) struct Canonical {
    /// Fields of the open objects.
    fields: Vec<Field>,
    /// The unescaped names of these fields.
    names: Vec<u8>,
    scratch: Vec<u8>,
    normalisers: Normalisers,
}

#[derive(Debug)]
struct Field {
    /// Range in `names`.
    name: Range<usize>,
    /// Range of `"name":value` in the target.
    text: Range<usize>,
}

impl Canonical {
    /// A writer that normalises string values, but not names.
    pub(crate) fn new(normalisers: Normalisers) -> Self {
        Self { normalisers, ..Self::default() }
    }

    /// Validates the value at the cursor and appends its canonical form to `target`. After an error,
    /// the end of `target` is undefined.
    pub(crate) fn write(&mut self, cursor: &mut Cursor<'_>, target: &mut Vec<u8>) -> Result<()> {
        // An earlier call may have returned an error and left them filled.
        self.fields.clear();
        self.names.clear();
        self.value(cursor, 0, target)
    }

    fn value(&mut self, cursor: &mut Cursor<'_>, depth: usize, target: &mut Vec<u8>) -> Result<()> {
        match cursor.peek() {
            Some(b'"') if self.normalisers.is_empty() => {
                cursor.string()?.write_canonical(target, &mut self.scratch);
            }
            Some(b'"') => {
                self.scratch.clear();
                cursor.string()?.unescape_into(&mut self.scratch);
                write_string(self.normalisers.apply(&self.scratch), target);
            }
            Some(b'{') => self.object(cursor, depth, target)?,
            Some(b'[') => self.array(cursor, depth, target)?,
            Some(b'-' | b'0'..=b'9') => cursor.number()?.write_canonical(target),
            _ => target.extend_from_slice(cursor.literal()?.as_bytes()),
        }
        Ok(())
    }

    fn array(&mut self, cursor: &mut Cursor<'_>, depth: usize, target: &mut Vec<u8>) -> Result<()> {
        let depth = cursor.enter(depth)?;
        target.push(b'[');
        let body = target.len();
        let mut is_first = true;
        while cursor.next_element(&mut is_first)? {
            if target.len() > body {
                target.push(b',');
            }
            self.value(cursor, depth, target)?;
        }
        target.push(b']');
        Ok(())
    }

    fn object(
        &mut self,
        cursor: &mut Cursor<'_>,
        depth: usize,
        target: &mut Vec<u8>,
    ) -> Result<()> {
        let depth = cursor.enter(depth)?;
        target.push(b'{');
        let body = target.len();
        let (fields_below, names_below) = (self.fields.len(), self.names.len());
        let mut is_sorted = true;
        let mut is_first = true;
        while let Some(name_text) = cursor.next_field(&mut is_first)? {
            let name_start = self.names.len();
            name_text.unescape_into(&mut self.names);
            let name = name_start..self.names.len();
            if let Some(last) = self.fields[fields_below..].last() {
                target.push(b',');
                let (before, after) = (&self.names[last.name.clone()], &self.names[name.clone()]);
                is_sorted &= utf16_cmp(before, after) == Ordering::Less;
            }
            let text_start = target.len();
            name_text.write_canonical(target, &mut self.scratch);
            target.push(b':');
            self.value(cursor, depth, target)?;
            self.fields.push(Field { name, text: text_start..target.len() });
        }
        if !is_sorted {
            self.sort(fields_below, body, target);
        }
        self.fields.truncate(fields_below);
        self.names.truncate(names_below);
        target.push(b'}');
        Ok(())
    }

    /// Sorts the fields from index `fields_below` on, whose texts begin at `body` in `target`. Of equal
    /// names, the last one in the input is kept.
    fn sort(&mut self, fields_below: usize, body: usize, target: &mut Vec<u8>) {
        let fields = &mut self.fields[fields_below..];
        let name_of = |field: &Field| &self.names[field.name.clone()];
        fields.sort_unstable_by(|a, b| {
            utf16_cmp(name_of(a), name_of(b)).then(a.text.start.cmp(&b.text.start))
        });
        self.scratch.clear();
        for (index, field) in fields.iter().enumerate() {
            if fields.get(index + 1).is_some_and(|next| name_of(next) == name_of(field)) {
                continue;
            }
            if !self.scratch.is_empty() {
                self.scratch.push(b',');
            }
            self.scratch.extend_from_slice(&target[field.text.clone()]);
        }
        target.truncate(body);
        target.extend_from_slice(&self.scratch);
    }
}

/// Compares UTF-8 texts by their UTF-16 code units, as RFC 8785, 3.2.3 sorts them. The order of bytes
/// is the order of code points, with one difference: characters above U+FFFF (first byte F0 and up),
/// which are surrogates in UTF-16, sort before U+E000 to U+FFFF (first bytes EE and EF).
fn utf16_cmp(a: &[u8], b: &[u8]) -> Ordering {
    match a.iter().zip(b).find(|(a, b)| a != b) {
        None => a.len().cmp(&b.len()),
        Some((&a, &b)) if a >= 0xee && b >= 0xee => (a < 0xf0).cmp(&(b < 0xf0)).then(a.cmp(&b)),
        Some((a, b)) => a.cmp(b),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn canonical(text: &str) -> String {
        let mut out = Vec::new();
        Canonical::default().write(&mut Cursor::new(text.as_bytes()), &mut out).unwrap();
        String::from_utf8(out).unwrap()
    }

    /// RFC 8785, 3.2.2 and 3.2.3.
    #[test]
    fn the_examples_of_rfc_8785() {
        let sample = r#"{
            "numbers": [333333333.33333329, 1E30, 4.50, 2e-3, 0.000000000000000000000000001],
            "string": "\u20ac$\u000F\u000aA'\u0042\u0022\u005c\\\"\/",
            "literals": [null, true, false]
        }"#;
        let expected = concat!(
            r#"{"literals":[null,true,false],"#,
            r#""numbers":[333333333.3333333,1e+30,4.5,0.002,1e-27],"#,
            r#""string":"€$\u000f\nA'B\"\\\\\"/"}"#
        );
        assert_eq!(canonical(sample), expected);
        let sample = concat!(
            r#"{"\u20ac":"Euro Sign","\r":"Carriage Return","\ufb33":"Hebrew Letter Dalet","#,
            r#""1":"One","\ud83d\ude00":"Emoji: Grinning Face","\u0080":"Control","#,
            r#""\u00f6":"Latin Small Letter O With Diaeresis"}"#
        );
        let sorted = canonical(sample);
        let values = sorted.split("\":\"").skip(1);
        let order: Vec<&str> =
            values.map(|value| value.split(['"', ' ', ':']).next().unwrap()).collect();
        assert_eq!(order, ["Carriage", "One", "Control", "Latin", "Euro", "Emoji", "Hebrew"]);
    }

    #[test]
    fn of_equal_names_the_last_stays() {
        assert_eq!(canonical(r#"{"a":1,"a":2}"#), r#"{"a":2}"#);
        assert_eq!(
            canonical(r#"{"b":1,"\u0061":{"y":1,"x":2},"b":[],"a":0}"#),
            r#"{"a":0,"b":[]}"#
        );
    }

    #[test]
    fn large_integers_stay_exact() {
        assert_eq!(
            canonical("[9007199254740993, -123456789012345678901234567890, 9007199254740993.0]"),
            "[9007199254740993,-123456789012345678901234567890,9007199254740992]"
        );
    }

    /// Names of characters from both sides of each boundary.
    const NAME: &str = "[a\u{7f}é€\u{d7ff}\u{e000}\u{ffff}😂\u{10ffff}]{0,4}";

    proptest! {
        #[test]
        fn order_equals_that_of_code_units(a in NAME, b in NAME) {
            let expected = a.encode_utf16().cmp(b.encode_utf16());
            prop_assert_eq!(utf16_cmp(a.as_bytes(), b.as_bytes()), expected);
        }
    }
}
