//! Bytes behind the port, compared with the same bytes in a file: however they are split into pieces,
//! records, items and errors are the same.

use std::io::{self, Write};
use std::sync::Arc;

use proptest::collection::vec;
use proptest::prelude::*;

use crate::reader::packed_test::{PACKED, pack};
use crate::{
    ByteSpan, Compression, ContentReader, ReadLimits, RecordReader, RemoteBytes, RemoteReader,
    Stored,
};

/// Bytes that are read in pieces of one byte, two, and so on up to `piece_bytes_max`, then one again.
#[derive(Debug)]
struct Pieces {
    bytes: Vec<u8>,
    piece_bytes_max: usize,
}

#[derive(Debug)]
struct PieceReader {
    pieces: Arc<Pieces>,
    reads: usize,
}

/// The `RemoteBytes` port in front of [`Pieces`].
#[derive(Debug)]
struct Remote(Arc<Pieces>);

impl RemoteBytes for Remote {
    fn bytes(&self) -> u64 {
        self.0.bytes.len() as u64
    }

    fn open(&self, span: ByteSpan) -> Box<dyn RemoteReader> {
        assert!(span.start <= self.bytes(), "what will be read begins within the bytes");
        Box::new(PieceReader { pieces: Arc::clone(&self.0), reads: 0 })
    }
}

impl RemoteReader for PieceReader {
    fn read_at(&mut self, target: &mut [u8], offset: u64) -> io::Result<usize> {
        assert!(!target.is_empty(), "somebody wants bytes");
        let rest = usize::try_from(offset).ok().and_then(|at| self.pieces.bytes.get(at..));
        let rest = rest.unwrap_or_default();
        let count =
            (self.reads % self.pieces.piece_bytes_max + 1).min(rest.len()).min(target.len());
        self.reads += 1;
        target[..count].copy_from_slice(&rest[..count]);
        Ok(count)
    }
}

/// These bytes behind the port.
pub(crate) fn remote(bytes: Vec<u8>, piece_bytes_max: usize) -> Stored {
    Stored::Remote(Arc::new(Remote(Arc::new(Pieces { bytes, piece_bytes_max }))))
}

fn local(bytes: &[u8]) -> Stored {
    let mut file = tempfile::tempfile().unwrap();
    file.write_all(bytes).unwrap();
    Stored::from(Arc::new(file))
}

/// All content that a reader delivers, and the error that follows it.
fn records_of(stored: Stored, packing: Compression, span: Option<ByteSpan>) -> (Vec<u8>, String) {
    let limits = ReadLimits { block_bytes: 64, record_bytes_max: 4096 };
    let mut reader = RecordReader::open(stored, packing, span, limits).unwrap();
    let mut content = Vec::new();
    loop {
        match reader.next_block() {
            Ok(Some(block)) => content.extend_from_slice(block),
            Ok(None) => return (content, String::new()),
            Err(error) => return (content, error.to_string()),
        }
    }
}

proptest! {
    #[test]
    fn records_are_those_of_a_file(
        lines in vec("[a-c]{0,40}\n", 0..40),
        packing in 0..=PACKED.len(),
        piece_bytes_max in 1..200_usize,
        cut in 0..4_usize,
        (start, length) in (0..500_u64, 0..500_u64),
    ) {
        let packing = PACKED.get(packing).copied().unwrap_or(Compression::Plain);
        let mut bytes = pack(packing, lines.concat().as_bytes());
        bytes.truncate(bytes.len().saturating_sub(cut));
        let there = remote(bytes.clone(), piece_bytes_max);
        prop_assert_eq!(there.bytes().unwrap(), local(&bytes).bytes().unwrap());
        let start = start.min(bytes.len() as u64);
        let span = Some(ByteSpan { start, end: start + length }).filter(|_| packing == Compression::Plain);
        for span in [None, span] {
            let here = records_of(local(&bytes), packing, span);
            prop_assert_eq!(records_of(there.clone(), packing, span), here);
        }
        let whole = |stored: Stored| {
            let mut reader = ContentReader::open(stored, packing).unwrap();
            while let Ok(Some(_)) = reader.next_block() {}
            reader.digest()
        };
        prop_assert_eq!(whole(there), whole(local(&bytes)));
    }
}
