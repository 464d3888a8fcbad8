//! A part of a plain file, so that several workers can read one file.
//!
//! ```text
//! bytes    a a \n b b b b \n c \n d d
//! spans    [------)[------)[-----------)     cut anywhere
//! records   aa      bbbb       c, dd          each belongs to the span it starts in
//! ```
//!
//! Spans that tile a file deliver every record exactly once and in order, wherever the cuts fall.

/// A half-open span `[start, end)` of a plain file's bytes. A reader of a span delivers the records
/// that *start* in it, reading past `end` to finish the last one.
///
/// ```
/// use umbel_records::ByteSpan;
///
/// let span = ByteSpan { start: 10, end: 30 };
/// assert_eq!(span.byte_count(), 20);
/// assert_eq!(ByteSpan { start: 5, end: 5 }.byte_count(), 0);
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ByteSpan {
    /// Offset of the first byte. A record that starts here belongs to the span.
    pub start: u64,
    /// Offset behind the last byte; may lie behind the end of the file. Not above `start` means an
    /// empty span.
    pub end: u64,
}

impl ByteSpan {
    /// The whole of any file.
    pub const ALL: Self = Self { start: 0, end: u64::MAX };

    /// Bytes in the span, 0 if it is empty.
    pub fn byte_count(self) -> u64 {
        self.end.saturating_sub(self.start)
    }
}
