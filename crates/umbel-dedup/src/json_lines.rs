//! Writes JSON objects to an output, one per line.

use super::sink::{Complete, Sink};
use crate::error::{Context, Result};
use serde::Serialize;

/// Bytes of lines that are buffered before a write.
const WRITE_BYTES: usize = 256 << 10;

/// Writes lines, with a buffer.
pub(crate) struct JsonLines {
    sink: Sink,
    /// The buffered lines.
    lines: Vec<u8>,
}

impl JsonLines {
    /// No line so far.
    pub(crate) const fn new(sink: Sink) -> Self {
        Self { sink, lines: Vec::new() }
    }

    /// Adds a line.
    ///
    /// # Errors
    ///
    /// If it cannot be written.
    pub(crate) fn add(&mut self, line: &impl Serialize) -> Result<()> {
        serde_json::to_writer(&mut self.lines, line).context("line of JSON")?;
        self.lines.push(b'\n');
        if self.lines.len() >= WRITE_BYTES {
            self.sink.write(&self.lines)?;
            self.lines.clear();
        }
        Ok(())
    }

    /// Fails if the reader of a direct output has closed it; see [`Sink::check_reader`].
    ///
    /// # Errors
    ///
    /// [`DedupError::ClosedPipe`](crate::DedupError::ClosedPipe).
    pub(crate) fn check_reader(&self) -> Result<()> {
        self.sink.check_reader()
    }

    /// Writes the buffered lines, and completes the output.
    ///
    /// # Errors
    ///
    /// If it cannot be written and made durable.
    pub(crate) fn complete(mut self) -> Result<Complete> {
        self.sink.write(&self.lines)?;
        self.sink.complete()
    }
}
