//! Extracts items from the values of a container, one at a time.

use std::io::Read;

use crate::error::RdbError;
use crate::string::StringReader;

/// Receives the values of a container and passes every `stride`th one on as an item: in hashes and sorted
/// sets, other values stand between items.
pub(crate) struct Items<'v, E> {
    visit: &'v mut dyn FnMut(&[u8]) -> Result<(), E>,
    /// Number of values per item, with the item itself.
    stride: usize,
    /// Number of values of the current item so far.
    at: usize,
    buffer: Vec<u8>,
}

impl<'v, E: From<RdbError>> Items<'v, E> {
    pub(crate) fn new(stride: usize, visit: &'v mut dyn FnMut(&[u8]) -> Result<(), E>) -> Self {
        Self { visit, stride, at: 0, buffer: Vec::new() }
    }

    /// Takes the next bytes of a string as a value.
    pub(crate) fn bytes<R: Read>(
        &mut self,
        string: &mut StringReader<'_, R>,
        byte_count: u64,
    ) -> Result<(), E> {
        if !self.is_item() {
            return Ok(string.pass(byte_count)?);
        }
        self.buffer.clear();
        string.append(byte_count, &mut self.buffer)?;
        (self.visit)(&self.buffer)
    }

    /// Takes a number as a value; as an item it becomes its decimal digits.
    pub(crate) fn number(&mut self, number: i64) -> Result<(), E> {
        if self.is_item() { (self.visit)(number.to_string().as_bytes()) } else { Ok(()) }
    }

    /// Whether the last item is complete with its other values.
    pub(crate) fn is_even(&self) -> bool {
        self.at == 0
    }

    /// Whether the next value is an item; advances to that value.
    fn is_item(&mut self) -> bool {
        let is_item = self.at == 0;
        self.at = (self.at + 1) % self.stride.max(1);
        is_item
    }
}
