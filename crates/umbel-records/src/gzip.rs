//! The content of a gzip file: one member or several in a row (RFC 1952).
//!
//! `gzip(1)` and tools that write blocks (`bgzip`, `pigz -i`, `cat a.gz b.gz`) write files of many
//! members, whose contents are concatenated. Zero bytes behind the last member are padding of tapes and
//! block devices, and are ignored; anything else there is damage. The inflater is called directly and
//! not through a reader, because then it reports how many bytes it wrote before an error, and these are
//! still delivered.

use flate2::{Decompress, FlushDecompress, Status};

use crate::Compression;
use crate::decode::{Decode, Progress};
use crate::error::ReadError;
use crate::stored::{StoredBuffer, StoredFile};

/// Log2 of the largest window of deflate, 32 KiB.
const WINDOW_BITS: u8 = 15;

/// Decodes a gzip file from its start.
pub(crate) struct GzipSource {
    stored: StoredBuffer,
    inflater: Decompress,
    stage: Stage,
    content_offset: u64,
}

#[derive(Clone, Copy)]
enum Stage {
    /// Inside a member, including its header and trailer.
    Member,
    /// Behind a member: another member, padding, or the end of the file follows.
    Between,
    /// Behind a zero byte: only zero bytes or the end of the file may follow.
    Padding,
}

impl GzipSource {
    pub(crate) fn new(stored: StoredFile) -> Self {
        Self {
            stored: StoredBuffer::new(stored),
            inflater: Decompress::new_gzip(WINDOW_BITS),
            stage: Stage::Member,
            content_offset: 0,
        }
    }

    /// One call of the inflater. If it writes nothing and returns no error, call it again.
    fn inflate(&mut self, target: &mut [u8]) -> (usize, Option<ReadError>) {
        let input = match self.stored.bytes() {
            Ok(input) => input,
            Err(error) => return (0, Some(error)),
        };
        let at_end = input.is_empty();
        let (in_before, out_before) = (self.inflater.total_in(), self.inflater.total_out());
        let status = self.inflater.decompress(input, target, FlushDecompress::None);
        let consumed = self.inflater.total_in() - in_before;
        let produced = self.inflater.total_out() - out_before;
        self.stored.consume(usize::try_from(consumed).expect("not more than was at hand"));
        self.content_offset += produced;
        let error = match status {
            Ok(Status::StreamEnd) => {
                self.stage = Stage::Between;
                None
            }
            // If `target` is full, the inflater may hold back content; the file is truncated only if
            // the inflater writes nothing at its end.
            Ok(Status::Ok | Status::BufError) if at_end && produced == 0 => {
                Some(self.progress().truncated())
            }
            Ok(Status::Ok | Status::BufError) => None,
            Err(_) => Some(self.progress().corrupt("wrong header, code or checksum")),
        };
        (usize::try_from(produced).expect("not more than fits the target"), error)
    }

    /// Determines what follows a member; false at the end of the file.
    fn next_member(&mut self) -> Result<bool, ReadError> {
        match self.stored.bytes()?.first() {
            None => return Ok(false),
            Some(0) => self.stage = Stage::Padding,
            Some(0x1f) => {
                self.inflater = Decompress::new_gzip(WINDOW_BITS);
                self.stage = Stage::Member;
            }
            Some(_) => {
                let detail = "bytes behind the last member that are not gzip";
                return Err(self.progress().corrupt(detail));
            }
        }
        Ok(true)
    }

    /// Skips zero bytes; false at the end of the file.
    fn padding(&mut self) -> Result<bool, ReadError> {
        let bytes = self.stored.bytes()?;
        let count = bytes.len();
        if count == 0 {
            return Ok(false);
        }
        if bytes.iter().any(|&byte| byte != 0) {
            return Err(self.progress().corrupt("bytes behind the zero padding"));
        }
        self.stored.consume(count);
        Ok(true)
    }
}

impl Decode for GzipSource {
    fn read(&mut self, target: &mut [u8]) -> (usize, Option<ReadError>) {
        loop {
            let step = match self.stage {
                Stage::Member => match self.inflate(target) {
                    (0, None) => continue,
                    produced => return produced,
                },
                Stage::Between => self.next_member(),
                Stage::Padding => self.padding(),
            };
            match step {
                Ok(true) => {}
                Ok(false) => return (0, None),
                Err(error) => return (0, Some(error)),
            }
        }
    }

    fn progress(&self) -> Progress {
        let (content_offset, stored_offset) = (self.content_offset, self.stored.offset());
        Progress { compression: Compression::Gzip, content_offset, stored_offset }
    }
}
