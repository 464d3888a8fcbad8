//! A position in a JSON text, and a parser of the grammar of RFC 8259 there.
//!
//! The caller has checked that the text is UTF-8. Every function leaves the position behind what it
//! read, and reports an error at the first invalid byte.

use super::number::{NumberText, is_finite};
use super::text::{StringText, plain_bytes, unicode_escape};
use super::{JSON_DEPTH_MAX, Result};
use crate::RecordItemError;

/// U+FEFF in UTF-8.
pub(super) const BYTE_ORDER_MARK: &[u8] = b"\xef\xbb\xbf";

/// A position in a JSON text.
#[derive(Debug)]
pub(crate) struct Cursor<'a> {
    text: &'a [u8],
    at: usize,
}

impl<'a> Cursor<'a> {
    /// The start of `text`, behind a byte order mark: files of some editors begin with one (RFC 8259,
    /// part 8.1), and in concatenated files, later records begin with one.
    pub(crate) fn new(text: &'a [u8]) -> Self {
        let at = if text.starts_with(BYTE_ORDER_MARK) { BYTE_ORDER_MARK.len() } else { 0 };
        Self { text, at }
    }

    /// Offset of the next byte.
    pub(crate) fn at(&self) -> usize {
        self.at
    }

    /// The next byte.
    #[inline]
    pub(crate) fn peek(&self) -> Option<u8> {
        self.text.get(self.at).copied()
    }

    /// Skips white space.
    #[inline]
    pub(crate) fn skip_space(&mut self) {
        while let Some(b' ' | b'\n' | b'\r' | b'\t') = self.peek() {
            self.at += 1;
        }
    }

    /// Checks that only white space is left.
    pub(crate) fn finish(&mut self) -> Result<()> {
        self.skip_space();
        match self.peek() {
            None => Ok(()),
            Some(_) => Err(self.invalid("expected the end of the record")),
        }
    }

    /// Skips a value of any kind and validates it. `depth` is the number of open brackets.
    pub(crate) fn skip_value(&mut self, depth: usize) -> Result<()> {
        match self.peek() {
            Some(b'"') => self.string().map(drop),
            Some(b'{') => {
                let depth = self.enter(depth)?;
                let mut is_first = true;
                while self.next_field(&mut is_first)?.is_some() {
                    self.skip_value(depth)?;
                }
                Ok(())
            }
            Some(b'[') => {
                let depth = self.enter(depth)?;
                let mut is_first = true;
                while self.next_element(&mut is_first)? {
                    self.skip_value(depth)?;
                }
                Ok(())
            }
            Some(b'-' | b'0'..=b'9') => self.number().map(drop),
            _ => self.literal().map(drop),
        }
    }

    /// Skips the bracket at the cursor and returns the depth inside.
    pub(crate) fn enter(&mut self, depth: usize) -> Result<usize> {
        if depth >= JSON_DEPTH_MAX {
            return Err(RecordItemError::NestedTooDeep { offset: self.at, limit: JSON_DEPTH_MAX });
        }
        self.at += 1;
        Ok(depth + 1)
    }

    /// In an object: the name of the next field, with the cursor at its value, or `None` behind the
    /// closing bracket.
    #[inline]
    pub(crate) fn next_field(&mut self, is_first: &mut bool) -> Result<Option<StringText<'a>>> {
        if !self.next_entry(is_first, b'}', "expected `,` or `}`")? {
            return Ok(None);
        }
        if self.peek() != Some(b'"') {
            return Err(self.invalid("expected a field name"));
        }
        let name = self.string()?;
        self.skip_space();
        if self.peek() != Some(b':') {
            return Err(self.invalid("expected `:`"));
        }
        self.at += 1;
        self.skip_space();
        Ok(Some(name))
    }

    /// In an array: true if the cursor is at another element, false if it is behind the closing
    /// bracket.
    pub(crate) fn next_element(&mut self, is_first: &mut bool) -> Result<bool> {
        self.next_entry(is_first, b']', "expected `,` or `]`")
    }

    #[inline]
    fn next_entry(
        &mut self,
        is_first: &mut bool,
        close: u8,
        expected: &'static str,
    ) -> Result<bool> {
        self.skip_space();
        match self.peek() {
            Some(byte) if byte == close => {
                self.at += 1;
                return Ok(false);
            }
            _ if *is_first => *is_first = false,
            Some(b',') => {
                self.at += 1;
                self.skip_space();
            }
            _ => return Err(self.invalid(expected)),
        }
        Ok(true)
    }

    /// The string at the cursor, which is at its opening quote.
    #[inline]
    pub(crate) fn string(&mut self) -> Result<StringText<'a>> {
        self.at += 1;
        let start = self.at;
        let mut has_escapes = false;
        loop {
            self.at += plain_bytes(&self.text[self.at..]);
            match self.peek() {
                Some(b'"') => {
                    let raw = &self.text[start..self.at];
                    self.at += 1;
                    return Ok(StringText { raw, has_escapes });
                }
                Some(b'\\') => {
                    has_escapes = true;
                    self.escape()?;
                }
                Some(_) => return Err(self.invalid("control character in a string")),
                None => return Err(self.invalid("the string does not end")),
            }
        }
    }

    /// Skips the escape at the cursor.
    fn escape(&mut self) -> Result<()> {
        let rest = &self.text[self.at..];
        self.at += match rest.get(1) {
            Some(b'"' | b'\\' | b'/' | b'b' | b'f' | b'n' | b'r' | b't') => 2,
            Some(b'u') => {
                let offset = self.at;
                let escape = unicode_escape(rest)
                    .ok_or_else(|| self.invalid("expected four hexadecimal digits"))?;
                escape.char.ok_or(RecordItemError::LoneSurrogate { offset })?;
                escape.bytes
            }
            _ => return Err(self.invalid("unknown escape in a string")),
        };
        Ok(())
    }

    /// The number at the cursor, which is at its sign or first digit.
    pub(crate) fn number(&mut self) -> Result<NumberText<'a>> {
        let start = self.at;
        if self.peek() == Some(b'-') {
            self.at += 1;
        }
        match self.peek() {
            // No digit may follow: `01` is parsed as two numbers, and the second one is an error.
            Some(b'0') => self.at += 1,
            _ => self.digits()?,
        }
        let is_integer = !matches!(self.peek(), Some(b'.' | b'e' | b'E'));
        if self.peek() == Some(b'.') {
            self.at += 1;
            self.digits()?;
        }
        if let Some(b'e' | b'E') = self.peek() {
            self.at += 1;
            if let Some(b'+' | b'-') = self.peek() {
                self.at += 1;
            }
            self.digits()?;
        }
        let number = NumberText { raw: &self.text[start..self.at], is_integer };
        if !is_integer && !is_finite(number) {
            return Err(RecordItemError::NumberOutOfRange { offset: start });
        }
        Ok(number)
    }

    #[inline]
    fn digits(&mut self) -> Result<()> {
        let start = self.at;
        while let Some(b'0'..=b'9') = self.peek() {
            self.at += 1;
        }
        if self.at == start { Err(self.invalid("expected a digit")) } else { Ok(()) }
    }

    /// The word at the cursor: `true`, `false` or `null`.
    pub(crate) fn literal(&mut self) -> Result<&'static str> {
        let rest = &self.text[self.at..];
        let found = ["true", "false", "null"].iter().find(|word| rest.starts_with(word.as_bytes()));
        match found {
            Some(word) => {
                self.at += word.len();
                Ok(word)
            }
            None if rest.is_empty() => Err(self.invalid("expected a value, found the end")),
            None if rest.starts_with("\u{feff}".as_bytes()) => {
                Err(self.invalid("expected a value, found a byte order mark"))
            }
            None => Err(self.invalid("expected a value")),
        }
    }

    #[cold]
    fn invalid(&self, detail: &'static str) -> RecordItemError {
        RecordItemError::InvalidJson { offset: self.at, detail }
    }
}
