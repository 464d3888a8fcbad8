//! The stored bytes of one column chunk, as the page reader requests them.
//!
//! Pages are requested from first to last: headers a few bytes at a time, bodies as a whole. All bytes
//! of the chunk are added to one running checksum, so that two readings can be compared.

use std::io::{self, Read};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bytes::Bytes;
use parquet::basic::Compression;
use parquet::errors::{ParquetError as CrateError, Result as CrateResult};
use parquet::file::reader::{ChunkReader, Length};

use super::footer::read_exactly;
use super::page_head::{GZIP_TRIED_BYTES, PAGE_BYTES_MAX, PageHead};
use crate::digest::RunningDigest;
use crate::stored::StoredReader;
use crate::{ByteSpan, ContentDigest, Stored};

/// Bytes of a header that are read at once; a header without statistics takes 20 to 40.
const HEADER_BYTES: usize = 256;

/// Bytes read at once that are only added to the checksum.
const REST_BYTES: usize = 128 << 10;

/// A column chunk in a file. Clones share the reader and the checksum.
#[derive(Debug, Clone)]
pub(super) struct StoredColumn {
    end: u64,
    codec: Compression,
    state: Arc<Mutex<State>>,
}

#[derive(Debug)]
struct State {
    reader: StoredReader,
    /// All bytes of the chunk before this offset are in the digest.
    seen: u64,
    digest: RunningDigest,
    /// Bytes of the levels of the page whose header was read last.
    level_bytes: u64,
}

impl StoredColumn {
    /// The bytes `start..end` of a file, whose pages have this compression.
    pub(super) fn new(stored: &Stored, (start, end): (u64, u64), codec: Compression) -> Self {
        let reader = StoredReader::new(stored, ByteSpan { start, end });
        let state = State { reader, seen: start, digest: RunningDigest::new(), level_bytes: 0 };
        Self { end, codec, state: Arc::new(Mutex::new(state)) }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Offset in the file behind the last byte that was read.
    pub(super) fn seen(&self) -> u64 {
        self.state().seen
    }

    /// Adds the rest of the chunk to the checksum, and returns it.
    pub(super) fn finish(&self) -> Result<ContentDigest, super::ParquetError> {
        let mut state = self.state();
        let state = &mut *state;
        let mut buffer = Vec::new();
        while state.seen < self.end {
            let left = usize::try_from(self.end - state.seen).unwrap_or(usize::MAX);
            buffer.resize(left.min(REST_BYTES), 0);
            read_exactly(&mut state.reader, &mut buffer, state.seen)?;
            state.digest.update(&buffer);
            state.seen += buffer.len() as u64;
        }
        Ok(state.digest.value())
    }

    /// Reads `length` bytes from `start` on. Adds them, and all unread bytes before them, to the
    /// checksum.
    fn take(&self, start: u64, length: usize) -> CrateResult<Bytes> {
        let mut state = self.state();
        let end = start.checked_add(length as u64).filter(|&end| end <= self.end);
        let end = end.ok_or_else(|| damaged("a page reaches beyond its column chunk"))?;
        let from = state.seen.min(start);
        let count = usize::try_from(end - from).map_err(|error| damaged(&error.to_string()))?;
        let mut bytes = vec![0; count];
        read_exactly(&mut state.reader, &mut bytes, from)
            .map_err(|error| CrateError::External(Box::new(error)))?;
        if end > state.seen {
            let news = usize::try_from(state.seen - from).expect("inside the bytes read");
            state.digest.update(&bytes[news..]);
            state.seen = end;
        }
        Ok(Bytes::from(bytes).slice(count - length..))
    }
}

fn damaged(detail: &str) -> CrateError {
    CrateError::General(detail.to_owned())
}

impl Length for StoredColumn {
    fn len(&self) -> u64 {
        self.end
    }
}

impl ChunkReader for StoredColumn {
    type T = HeaderReader;

    fn get_read(&self, start: u64) -> CrateResult<HeaderReader> {
        // Nothing is read yet: the crate also requests a reader when it has the header already.
        let stored = self.clone();
        Ok(HeaderReader { stored, offset: start, is_begun: false, buffer: Vec::new(), at: 0 })
    }

    fn get_bytes(&self, start: u64, length: usize) -> CrateResult<Bytes> {
        let bytes = self.take(start, length)?;
        if matches!(self.codec, Compression::GZIP(_)) && length > GZIP_TRIED_BYTES {
            let levels = usize::try_from(self.state().level_bytes).unwrap_or(usize::MAX);
            let packed = bytes.get(levels..).unwrap_or_default();
            let mut unpacked = flate2::read::MultiGzDecoder::new(packed).take(PAGE_BYTES_MAX + 1);
            if io::copy(&mut unpacked, &mut io::sink())? > PAGE_BYTES_MAX {
                return Err(damaged("a page unpacks to more than its limit"));
            }
        }
        Ok(bytes)
    }
}

/// Reads a page header, and rejects one that announces implausible sizes.
#[derive(Debug)]
pub(super) struct HeaderReader {
    stored: StoredColumn,
    offset: u64,
    is_begun: bool,
    buffer: Vec<u8>,
    at: usize,
}

impl HeaderReader {
    /// Reads more bytes, up to the end of the column chunk.
    fn fill(&mut self) -> io::Result<()> {
        let left = self.stored.end.saturating_sub(self.offset);
        let count = usize::try_from(left).unwrap_or(usize::MAX);
        self.buffer.resize(count.min(HEADER_BYTES), 0);
        self.at = 0;
        read_exactly(&mut self.stored.state().reader, &mut self.buffer, self.offset)
            .map_err(io::Error::other)?;
        self.offset += self.buffer.len() as u64;
        if !self.is_begun {
            self.is_begun = true;
            self.check().map_err(io::Error::other)?;
        }
        Ok(())
    }

    fn check(&self) -> Result<(), String> {
        let head = PageHead::read(&self.buffer).ok_or("expected a page header")?;
        if !head.is_plausible(self.stored.codec) {
            let PageHead { stored_bytes, page_bytes, .. } = head;
            return Err(format!("a page of {stored_bytes} bytes claims to unpack to {page_bytes}"));
        }
        self.stored.state().level_bytes = head.level_bytes;
        Ok(())
    }
}

impl Read for HeaderReader {
    fn read(&mut self, target: &mut [u8]) -> io::Result<usize> {
        if self.at == self.buffer.len() {
            self.fill()?;
        }
        let rest = &self.buffer[self.at..];
        let count = rest.len().min(target.len());
        target[..count].copy_from_slice(&rest[..count]);
        self.at += count;
        Ok(count)
    }
}

/// A column chunk that is copied as it is stored.
#[derive(Debug, Clone)]
pub(super) struct Spliced(pub(super) StoredColumn);

impl Length for Spliced {
    fn len(&self) -> u64 {
        self.0.end
    }
}

impl ChunkReader for Spliced {
    type T = SpliceReader;

    fn get_read(&self, start: u64) -> CrateResult<SpliceReader> {
        Ok(SpliceReader { stored: self.0.clone(), at: start, piece: Bytes::new() })
    }

    fn get_bytes(&self, start: u64, length: usize) -> CrateResult<Bytes> {
        self.0.take(start, length)
    }
}

/// Reads stored bytes in pieces.
#[derive(Debug)]
pub(super) struct SpliceReader {
    stored: StoredColumn,
    at: u64,
    piece: Bytes,
}

impl Read for SpliceReader {
    fn read(&mut self, target: &mut [u8]) -> io::Result<usize> {
        if self.piece.is_empty() {
            let left = usize::try_from(self.stored.end - self.at).unwrap_or(usize::MAX);
            self.piece =
                self.stored.take(self.at, left.min(REST_BYTES)).map_err(io::Error::other)?;
            self.at += self.piece.len() as u64;
        }
        let count = self.piece.len().min(target.len());
        target[..count].copy_from_slice(&self.piece.split_to(count));
        Ok(count)
    }
}
