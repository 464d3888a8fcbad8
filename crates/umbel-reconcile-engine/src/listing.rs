//! Merges the responder's whole list of symbols with this side's table while it arrives.

use super::difference::Difference;
use super::lists::{ListReader, range_of_bits};
use super::table::{Entry, Table};
use super::wire::Reader;
use crate::error::Result;

/// A merge that continues from frame to frame.
#[derive(Debug)]
pub(crate) struct Listing {
    reader: ListReader,
    /// Number of entries of the table that were passed.
    cursor: usize,
    /// The last symbol found on both sides; the peer may have it twice.
    matched: Option<u64>,
    here: Vec<Entry>,
    there: Vec<u64>,
}

impl Listing {
    pub(crate) const fn new(bits: u8, there_count: u64) -> Self {
        let reader = ListReader::new(range_of_bits(bits as u32), there_count);
        Self { reader, cursor: 0, matched: None, here: Vec::new(), there: Vec::new() }
    }

    /// Number of differences so far.
    pub(crate) const fn found(&self) -> usize {
        self.here.len() + self.there.len()
    }

    pub(crate) fn take(&mut self, table: &Table, bits: u8, body: &[u8]) -> Result<()> {
        let (symbols, _) = self.reader.read(&mut Reader::new(body), 0)?;
        for symbol in symbols {
            while let Some(entry) = table.entries().get(self.cursor)
                && entry.symbol(bits) <= symbol
            {
                if entry.symbol(bits) == symbol {
                    self.matched = Some(symbol);
                } else {
                    self.here.push(*entry);
                }
                self.cursor += 1;
            }
            if self.matched != Some(symbol) && self.there.last() != Some(&symbol) {
                self.there.push(symbol);
            }
        }
        Ok(())
    }

    pub(crate) fn is_complete(&self) -> bool {
        self.reader.is_complete()
    }

    /// What only one side has; entries after the end of the list are only here.
    pub(crate) fn finish(&mut self, table: &Table) -> Difference {
        let mut here = std::mem::take(&mut self.here);
        here.extend_from_slice(table.entries().get(self.cursor..).unwrap_or_default());
        Difference { here, there: std::mem::take(&mut self.there), doubtful_count: 0 }
    }
}
