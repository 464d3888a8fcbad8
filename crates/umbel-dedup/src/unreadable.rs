//! Inputs that were found and cannot be opened.

use std::io;
use umbel_records::{ByteSpan, RemoteBytes, RemoteReader};

/// A file that was found and cannot be opened. Reading it returns the error.
#[derive(Debug)]
pub(crate) struct Unreadable {
    pub(super) kind: io::ErrorKind,
    pub(super) text: String,
}

impl RemoteBytes for Unreadable {
    fn bytes(&self) -> u64 {
        0
    }

    fn open(&self, _: ByteSpan) -> Box<dyn RemoteReader> {
        Box::new(Self { kind: self.kind, text: self.text.clone() })
    }
}

impl RemoteReader for Unreadable {
    fn read_at(&mut self, _: &mut [u8], _: u64) -> io::Result<usize> {
        Err(io::Error::new(self.kind, self.text.clone()))
    }
}
