//! The content of xz and bzip2 files: concatenated streams, with decoders that are called with input
//! and output buffers.
//!
//! `cat a.xz b.xz` and tools that compress in parallel write files of many streams, whose contents are
//! concatenated. The decoders are called directly and not through a reader, because then they report
//! how many bytes they wrote before an error, and these are still delivered.

use crate::Compression;
use crate::decode::{Decode, Progress};
use crate::error::ReadError;
use crate::stored::{StoredBuffer, StoredFile};

/// Memory that an xz decoder may take: a dictionary of 128 MiB, as large as the window of zstd, and 2
/// MiB for the rest of its state. `xz -9` takes 65 MiB.
const XZ_MEMORY_BYTES_MAX: u64 = (128 << 20) + (2 << 20);

/// Decodes an xz file from its start.
pub(crate) fn xz(stored: StoredFile) -> Result<Box<dyn Decode>, ReadError> {
    Ok(Box::new(Streams::<Xz>::new(stored)?))
}

/// Decodes a bzip2 file from its start.
pub(crate) fn bzip2(stored: StoredFile) -> Result<Box<dyn Decode>, ReadError> {
    Ok(Box::new(Streams::<Bzip2>::new(stored)?))
}

/// The result of one step of a decoder.
enum Step {
    /// The stream continues.
    More,
    /// A stream ends, and another one may follow.
    StreamEnd,
    /// The content ends.
    End,
}

/// The decoder of one of the formats.
trait StreamFormat: Send + Sized {
    /// The compression that it decodes.
    const COMPRESSION: Compression;

    /// A decoder at the start of a stream.
    fn begin() -> Result<Self, &'static str>;

    /// Decodes some bytes. Empty input means the end of the file.
    fn step(&mut self, input: &[u8], target: &mut [u8]) -> Result<Step, StepError>;

    /// Bytes consumed and written since the start, including those of a step that failed.
    fn totals(&self) -> (u64, u64);
}

enum StepError {
    Corrupt(&'static str),
    TooLarge,
}

/// An xz decoder without input and output, which handles concatenated streams and their padding.
struct Xz(liblzma::stream::Stream);

impl StreamFormat for Xz {
    const COMPRESSION: Compression = Compression::Xz;

    fn begin() -> Result<Self, &'static str> {
        let flags = liblzma::stream::CONCATENATED;
        let stream = liblzma::stream::Stream::new_stream_decoder(XZ_MEMORY_BYTES_MAX, flags);
        stream.map(Self).map_err(|_| "no memory for the decoder")
    }

    fn step(&mut self, input: &[u8], target: &mut [u8]) -> Result<Step, StepError> {
        use liblzma::stream::{Action, Error, Status};
        let action = if input.is_empty() { Action::Finish } else { Action::Run };
        match self.0.process(input, target, action) {
            Ok(Status::StreamEnd) => Ok(Step::End),
            Ok(_) => Ok(Step::More),
            Err(Error::MemLimit) => Err(StepError::TooLarge),
            Err(Error::Format) => Err(StepError::Corrupt("no xz stream where one should be")),
            Err(Error::Options) => Err(StepError::Corrupt("filters that are not known")),
            Err(_) => Err(StepError::Corrupt("wrong header, code or checksum")),
        }
    }

    fn totals(&self) -> (u64, u64) {
        (self.0.total_in(), self.0.total_out())
    }
}

/// The same for bzip2, which handles only one stream.
struct Bzip2(bzip2::Decompress);

impl StreamFormat for Bzip2 {
    const COMPRESSION: Compression = Compression::Bzip2;

    fn begin() -> Result<Self, &'static str> {
        Ok(Self(bzip2::Decompress::new(false)))
    }

    fn step(&mut self, input: &[u8], target: &mut [u8]) -> Result<Step, StepError> {
        match self.0.decompress(input, target) {
            Ok(bzip2::Status::StreamEnd) => Ok(Step::StreamEnd),
            Ok(_) => Ok(Step::More),
            Err(bzip2::Error::DataMagic) => {
                Err(StepError::Corrupt("bytes behind the last stream that are not bzip2"))
            }
            Err(_) => Err(StepError::Corrupt("wrong header, code or checksum")),
        }
    }

    fn totals(&self) -> (u64, u64) {
        (self.0.total_in(), self.0.total_out())
    }
}

/// Decodes a file from its start.
struct Streams<D> {
    stored: StoredBuffer,
    /// `None` between two streams.
    decoder: Option<D>,
    is_over: bool,
    content_offset: u64,
}

impl<D: StreamFormat> Streams<D> {
    fn new(stored: StoredFile) -> Result<Self, ReadError> {
        let Ok(decoder) = D::begin() else { return Err(stored.out_of_memory()) };
        let stored = StoredBuffer::new(stored);
        Ok(Self { stored, decoder: Some(decoder), is_over: false, content_offset: 0 })
    }

    /// One call of the decoder: the number of bytes written, and the error that follows them.
    fn step(&mut self, target: &mut [u8]) -> Result<usize, (usize, ReadError)> {
        let input = self.stored.bytes().map_err(|error| (0, error))?;
        let is_at_end = input.is_empty();
        if self.decoder.is_none() && is_at_end {
            self.is_over = true;
            return Ok(0);
        }
        let decoder = match &mut self.decoder {
            Some(decoder) => decoder,
            none => match D::begin() {
                Ok(fresh) => none.insert(fresh),
                Err(detail) => return Err((0, self.progress().corrupt(detail))),
            },
        };
        let (in_before, out_before) = decoder.totals();
        let outcome = decoder.step(input, target);
        let (in_after, out_after) = decoder.totals();
        let consumed = usize::try_from(in_after - in_before).expect("not more than was at hand");
        let produced = out_after - out_before;
        self.stored.consume(consumed);
        self.content_offset += produced;
        let count = usize::try_from(produced).expect("not more than fits the target");
        match outcome {
            // The decoder may hold back content; the file is truncated only if the decoder writes
            // nothing at its end.
            Ok(Step::More) if is_at_end && count == 0 => Err((0, self.progress().truncated())),
            Ok(Step::More) => Ok(count),
            Ok(Step::StreamEnd) => {
                self.decoder = None;
                Ok(count)
            }
            Ok(Step::End) => {
                self.is_over = true;
                Ok(count)
            }
            Err(StepError::Corrupt(detail)) => Err((count, self.progress().corrupt(detail))),
            Err(StepError::TooLarge) => {
                Err((count, self.progress().window_too_large(XZ_MEMORY_BYTES_MAX)))
            }
        }
    }
}

impl<D: StreamFormat> Decode for Streams<D> {
    fn read(&mut self, target: &mut [u8]) -> (usize, Option<ReadError>) {
        while !self.is_over {
            match self.step(target) {
                Ok(0) => {}
                Ok(count) => return (count, None),
                Err((count, error)) => return (count, Some(error)),
            }
        }
        (0, None)
    }

    fn progress(&self) -> Progress {
        let (content_offset, stored_offset) = (self.content_offset, self.stored.offset());
        Progress { compression: D::COMPRESSION, content_offset, stored_offset }
    }
}
