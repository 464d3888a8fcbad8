//! Parses Thrift's compact protocol without building values.
//!
//! The `parquet` crate decodes headers and footers; this module only checks numbers in them that the
//! crate would trust. `None` means that the bytes are not a valid message.

/// Deepest nesting that is parsed. Footers of the format have ten levels.
const DEPTH_MAX: usize = 32;

/// Types as numbered on the wire.
pub(super) const I32: u8 = 5;
pub(super) const LIST: u8 = 9;
pub(super) const STRUCT: u8 = 12;

/// Takes a LEB128 number from the front, as the format has it in messages and in pages: padding is allowed,
/// and bits beyond 64 are dropped.
pub(super) fn varint(bytes: &mut &[u8]) -> Option<u64> {
    let mut value = 0;
    for shift in (0..64).step_by(7) {
        let byte = *bytes.split_off_first()?;
        value |= u64::from(byte & 0x7f) << shift;
        if byte < 0x80 {
            return Some(value);
        }
    }
    None
}

/// A cursor in a message.
#[derive(Debug, Clone, Copy)]
pub(super) struct Thrift<'a>(&'a [u8]);

impl<'a> Thrift<'a> {
    pub(super) fn new(bytes: &'a [u8]) -> Self {
        Self(bytes)
    }

    fn byte(&mut self) -> Option<u8> {
        self.0.split_off_first().copied()
    }

    fn varint(&mut self) -> Option<u64> {
        varint(&mut self.0)
    }

    /// An integer of any width.
    pub(super) fn integer(&mut self) -> Option<i64> {
        let value = self.varint()?;
        Some((value >> 1).cast_signed() ^ -(value & 1).cast_signed())
    }

    /// The next field of a struct, its number and type; inner `None` at the end of the struct.
    /// `last` is the number of the field before it, 0 at first.
    pub(super) fn field(&mut self, last: &mut i64) -> Option<Option<(i64, u8)>> {
        let head = self.byte()?;
        if head == 0 {
            return Some(None);
        }
        *last = match head >> 4 {
            0 => self.integer()?,
            delta => last.checked_add(i64::from(delta))?,
        };
        Some(Some((*last, head & 0x0f)))
    }

    /// The header of a list: type and number of the elements.
    pub(super) fn list(&mut self) -> Option<(u8, u64)> {
        let head = self.byte()?;
        let count = match head >> 4 {
            15 => self.varint()?,
            count => u64::from(count),
        };
        Some((head & 0x0f, count))
    }

    /// Skips a value.
    pub(super) fn skip(&mut self, kind: u8) -> Option<()> {
        self.skip_nested(kind, DEPTH_MAX)
    }

    fn skip_bytes(&mut self, count: u64) -> Option<()> {
        let count = usize::try_from(count).ok()?;
        self.0.split_off(..count).map(|_| ())
    }

    fn skip_nested(&mut self, kind: u8, depth: usize) -> Option<()> {
        let depth = depth.checked_sub(1)?;
        match kind {
            1 | 2 => Some(()), // A boolean: its type is the value.
            3 => self.skip_bytes(1),
            4..=6 => self.varint().map(|_| ()),
            7 => self.skip_bytes(8),
            8 => {
                let bytes = self.varint()?;
                self.skip_bytes(bytes)
            }
            LIST | 10 => {
                let (kind, count) = self.list()?;
                (0..count).try_for_each(|_| self.skip_element(kind, depth))
            }
            11 => {
                let count = self.varint()?;
                let kinds = if count > 0 { self.byte()? } else { 0 };
                (0..count).try_for_each(|_| {
                    self.skip_element(kinds >> 4, depth)?;
                    self.skip_element(kinds & 0x0f, depth)
                })
            }
            STRUCT => {
                let mut last = 0;
                while let Some((_, kind)) = self.field(&mut last)? {
                    self.skip_nested(kind, depth)?;
                }
                Some(())
            }
            13 => self.skip_bytes(16),
            _ => None,
        }
    }

    /// Skips an element, like a field, except that a boolean element takes one byte. So every element
    /// takes at least one byte, and a count beyond the end of the message ends the parsing.
    fn skip_element(&mut self, kind: u8, depth: usize) -> Option<()> {
        if kind == 1 || kind == 2 { self.skip_bytes(1) } else { self.skip_nested(kind, depth) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_are_found_by_number() {
        // field 1, i32 -3; field 3, list of two i32; field 20, binary "ab"; stop
        let message = [0x15, 5, 0x29, 0x25, 2, 4, 0x08, 40, 2, b'a', b'b', 0];
        let mut thrift = Thrift::new(&message);
        let mut last = 0;
        assert_eq!(thrift.field(&mut last), Some(Some((1, I32))));
        assert_eq!(thrift.integer(), Some(-3));
        assert_eq!(thrift.field(&mut last), Some(Some((3, LIST))));
        thrift.skip(LIST).unwrap();
        assert_eq!(thrift.field(&mut last), Some(Some((20, 8))));
        thrift.skip(8).unwrap();
        assert_eq!(thrift.field(&mut last), Some(None));
        assert_eq!(thrift.field(&mut last), None);
    }

    #[test]
    fn absurd_messages_end() {
        assert_eq!(Thrift::new(&[0xf5, 0xff, 0xff, 0xff, 0xff, 0x0f]).skip(LIST), None);
        assert_eq!(Thrift::new(&[0x1c; 1000]).skip(STRUCT), None);
        assert_eq!(Thrift::new(&[0xff; 20]).integer(), None);
    }
}
