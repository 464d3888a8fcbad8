//! Decodes bytes from a client into requests. Total: any bytes yield a request, need more bytes, or are
//! an error, after which nothing is read. Incremental: the result does not depend on how the bytes are
//! split.
//!
//! A request that begins with `*` is an array of bulk strings, `*2\r\n$3\r\nfoo\r\n$3\r\nbar\r\n`;
//! anything else is a line. Memory grows with the bytes received, never with an announced length. As in
//! Redis, the byte after a `\r` and the two bytes after a bulk string are skipped without looking at
//! them.

use std::borrow::Cow;

use thiserror::Error;

use crate::arguments::is_word;
use crate::inline;
use crate::limits::{
    ARGUMENT_OVERHEAD_BYTES, ARGUMENTS_MAX, BULK_BYTES_MAX, LINE_BYTES_MAX, PIECE_BYTES_MAX,
    REQUEST_BYTES_MAX, STRANGER_ARGUMENTS_MAX, STRANGER_BULK_BYTES_MAX,
};
use crate::number::integer;
use crate::request::Request;

/// Index of the piece among the arguments of `BF.LOADCHUNK`, and of the payload among those of `RESTORE`.
const PIECE_AT: usize = 3;

/// The client violates the protocol, or exceeds a limit. Answer with this text after `-ERR ` and close
/// the connection, without reading further; the current request was not carried out.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Error)]
pub enum ProtocolError {
    /// A line of an inline request does not end within 64 KiB.
    #[error("Protocol error: too big inline request")]
    InlineTooBig,
    /// A quote is not closed, or text follows a closing quote directly.
    #[error("Protocol error: unbalanced quotes in request")]
    UnbalancedQuotes,
    /// The number of arguments does not end within 64 KiB.
    #[error("Protocol error: too big mbulk count string")]
    CountTooBig,
    /// The length of an argument does not end within 64 KiB.
    #[error("Protocol error: too big bulk count string")]
    LengthTooBig,
    /// The number of arguments is no integer, or above [`ARGUMENTS_MAX`].
    #[error("Protocol error: invalid multibulk length")]
    InvalidCount,
    /// The length of an argument is no integer, or negative.
    #[error("Protocol error: invalid bulk length")]
    InvalidLength,
    /// An argument has more bytes than [`BULK_BYTES_MAX`], or if it is a piece of a copy, than
    /// [`PIECE_BYTES_MAX`].
    #[error("Protocol error: invalid bulk length: {bytes}, expected at most {most}")]
    ArgumentTooLong {
        /// Its bytes.
        bytes: usize,
        /// As many as it may have.
        most: usize,
    },
    /// An argument is no bulk string. Contains the byte received instead of `$`, or a blank for a line
    /// end.
    #[error("Protocol error: expected '$', got '{}'", char::from(*.0))]
    ExpectedBulk(u8),
    /// More than [`STRANGER_ARGUMENTS_MAX`] arguments before the client has authenticated.
    #[error("Protocol error: unauthenticated multibulk length")]
    StrangerCount,
    /// An argument of more than [`STRANGER_BULK_BYTES_MAX`] bytes before the client has authenticated.
    #[error("Protocol error: unauthenticated bulk length")]
    StrangerLength,
    /// The arguments of the request have more than [`REQUEST_BYTES_MAX`] bytes.
    #[error("Protocol error: too big request")]
    RequestTooBig,
}

/// Decodes requests from bytes that arrive in pieces.
///
/// ```
/// let mut decoder = umbel_resp::Decoder::new(true);
/// let mut bytes = &b"PING\r\n*1\r\n$4\r\nPI"[..];
/// let first = decoder.decode(&mut bytes)?.expect("a whole line");
/// assert_eq!(first.get(0), Some(&b"PING"[..]));
/// assert_eq!(decoder.decode(&mut bytes)?, None);
/// let second = decoder.decode(&mut &b"NG\r\n"[..])?;
/// assert_eq!(second, Some(first));
/// # Ok::<(), umbel_resp::ProtocolError>(())
/// ```
#[derive(Debug)]
pub struct Decoder {
    is_known: bool,
    state: State,
    /// The beginning of a line whose end has not arrived.
    line: Vec<u8>,
    request: Request,
    failed: Option<ProtocolError>,
}

#[derive(Clone, Copy, Debug)]
enum State {
    /// Before the first byte of a request.
    Start,
    /// In an inline request.
    Inline,
    /// In the number of arguments.
    Count,
    /// In the length of an argument, with `left` arguments to come.
    Length { left: usize },
    /// In an argument of which `bytes` are to come; `left` counts this argument as well.
    Bulk { bytes: usize, left: usize },
    /// After an argument or a `\r`: this many bytes are skipped.
    Skip { bytes: usize, then: Then },
}

#[derive(Clone, Copy, Debug)]
enum Then {
    Length {
        left: usize,
    },
    Bulk {
        bytes: usize,
        left: usize,
    },
    /// The number of arguments was not positive.
    Nothing,
}

impl Decoder {
    /// A decoder for a new connection. `is_known` says whether the client has authenticated, or need not.
    #[must_use]
    pub fn new(is_known: bool) -> Self {
        let (line, request) = (Vec::new(), Request::default());
        Self { is_known, state: State::Start, line, request, failed: None }
    }

    /// Sets whether the client has authenticated; other clients may send less.
    pub const fn set_known(&mut self, is_known: bool) {
        self.is_known = is_known;
    }

    /// Bytes held of a request that is incomplete.
    #[must_use]
    pub fn pending_bytes(&self) -> usize {
        self.line.len() + self.request_bytes(0)
    }

    /// Decodes up to the end of the next request, and removes what it read from the front of `input`;
    /// None once all input is read and the request is incomplete. Requests without arguments are skipped.
    ///
    /// # Errors
    /// If the bytes are no request, or exceed a limit; every later call returns the same error.
    pub fn decode(&mut self, input: &mut &[u8]) -> Result<Option<Request>, ProtocolError> {
        if let Some(error) = self.failed {
            return Err(error);
        }
        loop {
            match self.step(input) {
                Ok(Step::Request(request)) if request.is_empty() => {}
                Ok(Step::Request(request)) => return Ok(Some(request)),
                Ok(Step::Further) => {}
                Ok(Step::Starved) => return Ok(None),
                Err(error) => {
                    self.failed = Some(error);
                    (self.line, self.request) = (Vec::new(), Request::default());
                    return Err(error);
                }
            }
        }
    }

    fn step(&mut self, input: &mut &[u8]) -> Result<Step, ProtocolError> {
        let Some(&first) = input.first() else { return Ok(Step::Starved) };
        match self.state {
            State::Start if first == b'*' => self.state = State::Count,
            State::Start => self.state = State::Inline,
            State::Inline => {
                let Some(line) = self.line(input, b'\n', ProtocolError::InlineTooBig)? else {
                    return Ok(Step::Starved);
                };
                self.state = State::Start;
                let line = line.strip_suffix(b"\r").unwrap_or(&line);
                let request = inline::split(line).map_err(|_| ProtocolError::UnbalancedQuotes)?;
                return Ok(Step::Request(request));
            }
            State::Count => {
                let Some(line) = self.line(input, b'\r', ProtocolError::CountTooBig)? else {
                    return Ok(Step::Starved);
                };
                let then = self.count(&line)?;
                self.request.reserve();
                self.state = State::Skip { bytes: 1, then };
            }
            State::Length { left } => {
                // Checked with the first byte, because the rest of the line may be long.
                if self.line.is_empty() && first != b'$' && first != b'\r' {
                    return Err(ProtocolError::ExpectedBulk(shown(first)));
                }
                let Some(line) = self.line(input, b'\r', ProtocolError::LengthTooBig)? else {
                    return Ok(Step::Starved);
                };
                let bytes = self.length(&line)?;
                self.state = State::Skip { bytes: 1, then: Then::Bulk { bytes, left } };
            }
            State::Bulk { bytes, left } => return Ok(self.bulk(input, bytes, left)),
            State::Skip { bytes, then } => {
                let skipped = bytes.min(input.len());
                *input = input.get(skipped..).unwrap_or_default();
                self.state = match (bytes - skipped, then) {
                    (0, Then::Nothing) => State::Start,
                    (0, Then::Length { left: 0 }) => {
                        self.state = State::Start;
                        return Ok(Step::Request(std::mem::take(&mut self.request)));
                    }
                    (0, Then::Length { left }) => State::Length { left },
                    (0, Then::Bulk { bytes: 0, left }) => self.ended(left),
                    (0, Then::Bulk { bytes, left }) => State::Bulk { bytes, left },
                    (bytes, then) => State::Skip { bytes, then },
                };
            }
        }
        Ok(Step::Further)
    }

    /// A line without its end, or None if the end has not arrived. Borrowed from the input if it arrived
    /// as a whole.
    fn line<'i>(
        &mut self,
        input: &mut &'i [u8],
        end: u8,
        too_big: ProtocolError,
    ) -> Result<Option<Cow<'i, [u8]>>, ProtocolError> {
        let room = LINE_BYTES_MAX - self.line.len();
        let at = input.iter().take(room + 1).position(|&byte| byte == end);
        let taken = at.unwrap_or(input.len());
        if taken > room {
            return Err(too_big);
        }
        let (line, rest) = input.split_at(taken);
        *input = rest.get(usize::from(at.is_some())..).unwrap_or_default();
        if at.is_some() && self.line.is_empty() {
            return Ok(Some(Cow::Borrowed(line)));
        }
        self.line.extend_from_slice(line);
        Ok(at.map(|_| Cow::Owned(std::mem::take(&mut self.line))))
    }

    fn count(&self, line: &[u8]) -> Result<Then, ProtocolError> {
        let count = integer(line.get(1..).unwrap_or_default());
        let count = count.ok_or(ProtocolError::InvalidCount)?;
        if count <= 0 {
            return Ok(Then::Nothing);
        }
        let left = usize::try_from(count).map_err(|_| ProtocolError::InvalidCount)?;
        match left {
            left if left > ARGUMENTS_MAX => Err(ProtocolError::InvalidCount),
            left if left > STRANGER_ARGUMENTS_MAX && !self.is_known => {
                Err(ProtocolError::StrangerCount)
            }
            left => Ok(Then::Length { left }),
        }
    }

    fn length(&self, line: &[u8]) -> Result<usize, ProtocolError> {
        let Some(digits) = line.strip_prefix(b"$") else {
            return Err(ProtocolError::ExpectedBulk(shown(*line.first().unwrap_or(&b'\r'))));
        };
        let bytes = integer(digits).and_then(|bytes| usize::try_from(bytes).ok());
        let (bytes, most) = (bytes.ok_or(ProtocolError::InvalidLength)?, self.bulk_bytes_max());
        if bytes > most {
            return Err(ProtocolError::ArgumentTooLong { bytes, most });
        }
        if bytes > STRANGER_BULK_BYTES_MAX && !self.is_known {
            return Err(ProtocolError::StrangerLength);
        }
        if self.request_bytes(bytes) > REQUEST_BYTES_MAX {
            return Err(ProtocolError::RequestTooBig);
        }
        Ok(bytes)
    }

    /// The limit of the next argument: a piece of a copy, or a payload, may be longer than others.
    fn bulk_bytes_max(&self) -> usize {
        let has_piece = |name| is_word(name, "BF.LOADCHUNK") || is_word(name, "RESTORE");
        let is_piece = self.request.len() == PIECE_AT && self.request.get(0).is_some_and(has_piece);
        if is_piece { PIECE_BYTES_MAX } else { BULK_BYTES_MAX }
    }

    /// The bytes that the request counts for with `more` further ones.
    fn request_bytes(&self, more: usize) -> usize {
        self.request.byte_count() + more + self.request.len() * ARGUMENT_OVERHEAD_BYTES
    }

    fn bulk(&mut self, input: &mut &[u8], bytes: usize, left: usize) -> Step {
        let (taken, rest) = input.split_at(bytes.min(input.len()));
        self.request.extend_last(taken);
        *input = rest;
        self.state = match bytes - taken.len() {
            0 => self.ended(left),
            bytes => State::Bulk { bytes, left },
        };
        Step::Further
    }

    /// Ends an argument after its last byte.
    fn ended(&mut self, left: usize) -> State {
        self.request.end_argument();
        State::Skip { bytes: 2, then: Then::Length { left: left - 1 } }
    }
}

enum Step {
    Request(Request),
    Further,
    Starved,
}

/// A byte for an error text, which is a single line.
const fn shown(byte: u8) -> u8 {
    match byte {
        b'\r' | b'\n' => b' ',
        other => other,
    }
}

#[cfg(test)]
#[path = "decode_test.rs"]
mod decode_test;
