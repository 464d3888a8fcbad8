//! Transfer of contents after a session: the file contents that items name but do not hold.
//!
//! ```text
//!   initiator                               responder
//!     │  wanted                              ──►   (what it takes and does not have)
//!     │  ◄── wanted
//!     │  ◄── contents, if the initiator wants some
//!     │  contents, if the responder does     ──►
//! ```
//!
//! `wanted` is a count of 4 bytes. If it is not 0, a salt of 8 bytes follows, and for each content 8
//! bytes of its hash and the chunks of the requester's older version: average chunk size and number of
//! chunks (LEB128), and 5 bytes of hash for each chunk.
//!
//! Contents are one zstd stream, cut into pieces: 4 bytes of length and that many bytes of the stream; an
//! empty piece ends it. Inside the stream each content is its length in 8 bytes and its differences from
//! the older version (see [`delta`]), in the order in which the contents were requested.
//!
//! In the place of `wanted`, or of a length, a responder that cannot go on sends a refusal.

use super::change::Change;
use super::delta::{self, HASH_BYTES, Patched};
use super::drive::{Drive, REFUSED};
use super::set::{Contents, OpenedContent, Wanted};
use crate::error::{Context, Result, ensure};
use std::io::{self, Read, Write};

/// Longest piece of a stream.
const PIECE_BYTES_MAX: usize = 128 << 10;

/// Maximum number of contents that one side may request: bounds the memory for a peer's list.
const WANTED_MAX: usize = 1 << 24;

/// zstd level of contents: source text is a fifth smaller than at level 3, at 20 MB/s.
const ZSTD_LEVEL: i32 = 12;

/// A content that the peer requests.
struct RequestedContent {
    prefix: [u8; 8],
    average: u32,
    hashes: Vec<[u8; HASH_BYTES]>,
}

/// Sends the peer the contents that it lacks and receives those that this side lacks. The salt must be
/// new in each session.
///
/// # Errors
///
/// If the connection or a file fails, or the peer sends something other than what was requested.
pub(super) fn exchange(
    drive: &mut Drive<'_>,
    contents: &dyn Contents,
    change: &Change,
    salt: u64,
    is_initiator: bool,
) -> Result<()> {
    let wanted = contents.wanted(change, salt)?;
    if is_initiator {
        send_wanted(drive, &wanted, salt)?;
        let theirs = receive_wanted(drive)?;
        receive(drive, contents, &wanted)?;
        send(drive, contents, &theirs)
    } else {
        let theirs = receive_wanted(drive)?;
        send_wanted(drive, &wanted, salt)?;
        send(drive, contents, &theirs)?;
        receive(drive, contents, &wanted)
    }
}

fn send_wanted(drive: &mut Drive<'_>, wanted: &[Wanted], salt: u64) -> Result<()> {
    let count = u32::try_from(wanted.len()).expect("fewer than memory holds");
    let mut message = count.to_le_bytes().to_vec();
    if count > 0 {
        message.extend(salt.to_le_bytes());
    }
    for Wanted { hash, basis, .. } in wanted {
        message.extend(&hash[..8]);
        let (average, hashes) =
            basis.as_ref().map_or((0, &[][..]), |basis| (basis.average, &basis.hashes[..]));
        delta::write_number(average.into(), &mut message)?;
        delta::write_number(hashes.len() as u64, &mut message)?;
        message.extend(hashes.as_flattened());
    }
    drive.send(message)
}

fn receive_wanted(drive: &mut Drive<'_>) -> Result<(u64, Vec<RequestedContent>)> {
    let (mut count, mut salt) = ([0; 4], [0; 8]);
    drive.read_exact(&mut count)?;
    if count == REFUSED {
        return Err(drive.receive_refusal());
    }
    let count = u32::from_le_bytes(count) as usize;
    ensure!(count <= WANTED_MAX, "{count} contents are asked for, at most {WANTED_MAX} may be");
    if count > 0 {
        drive.read_exact(&mut salt)?;
    }
    let (mut asked, mut chunks_left) = (Vec::new(), delta::CHUNKS_MAX);
    for _ in 0..count {
        let mut prefix = [0; 8];
        drive.read_exact(&mut prefix)?;
        let average = u32::try_from(delta::read_number(drive)?).unwrap_or(u32::MAX);
        let chunks = delta::read_number(drive)?;
        chunks_left = chunks_left.checked_sub(chunks).context("too many chunks")?;
        ensure!(chunks == 0 || delta::is_average(average), "chunks of {average} bytes");
        let mut hashes = Vec::new();
        for _ in 0..chunks {
            let mut hash = [0; HASH_BYTES];
            drive.read_exact(&mut hash)?;
            hashes.push(hash);
        }
        asked.push(RequestedContent { prefix, average, hashes });
    }
    Ok((u64::from_le_bytes(salt), asked))
}

fn send(
    drive: &mut Drive<'_>,
    contents: &dyn Contents,
    (salt, asked): &(u64, Vec<RequestedContent>),
) -> Result<()> {
    if asked.is_empty() {
        return Ok(());
    }
    drive.enter("contents of files");
    let mut encoder = zstd::Encoder::new(Pieces { drive, piece: Vec::new() }, ZSTD_LEVEL)?;
    encoder.long_distance_matching(true)?;
    for (RequestedContent { prefix, average, hashes }, done_count) in asked.iter().zip(1..) {
        let OpenedContent { name, bytes, content } = contents.open(*prefix)?;
        encoder.write_all(&bytes.to_le_bytes())?;
        let mut content = content.take(bytes);
        delta::write(&mut content, (*average, *salt), hashes, &mut encoder)?;
        ensure!(content.limit() == 0, "{name}: became shorter while it was sent: run it again");
        encoder.get_ref().drive.note_contents(done_count, asked.len());
    }
    let mut pieces = encoder.finish()?;
    pieces.cut()?;
    pieces.drive.send(vec![0; 4])
}

fn receive(drive: &mut Drive<'_>, contents: &dyn Contents, wanted: &[Wanted]) -> Result<()> {
    if wanted.is_empty() {
        return Ok(());
    }
    drive.enter("contents of files");
    let stream = Stream { drive, left: 0, has_ended: false };
    let mut decoder = zstd::Decoder::new(stream)?;
    for (Wanted { hash, bytes: announced, basis }, done_count) in wanted.iter().zip(1..) {
        let mut bytes = [0; 8];
        decoder.read_exact(&mut bytes).context("a content did not come")?;
        let bytes = u64::from_le_bytes(bytes);
        check_length(bytes, *announced)?;
        let mut content = Patched::new(&mut decoder, basis.as_ref(), bytes);
        contents.stage(*hash, bytes, &mut content)?;
        decoder.get_ref().get_ref().drive.note_contents(done_count, wanted.len());
    }
    // Reads one byte more, which is enough to detect an excess: a few compressed bytes may expand without
    // end.
    let rest = io::copy(&mut decoder.by_ref().take(1), &mut io::sink())?;
    ensure!(rest == 0, "more bytes came than were asked for");
    // Before either side changes its set: a disk that fails now leaves both as they are.
    contents.sync()
}

/// Checks that a content is as long as its item said: the check for free disk space relied on that
/// length.
fn check_length(bytes: u64, announced: u64) -> Result<()> {
    ensure!(bytes == announced, "a content of {bytes} bytes came, its item says {announced}");
    Ok(())
}

/// Cuts a stream into pieces and sends them, at most one piece ahead of the connection.
struct Pieces<'d, 's> {
    drive: &'d mut Drive<'s>,
    piece: Vec<u8>,
}

impl Pieces<'_, '_> {
    fn cut(&mut self) -> io::Result<()> {
        if self.piece.is_empty() {
            return Ok(());
        }
        let piece = std::mem::take(&mut self.piece);
        let length = u32::try_from(piece.len()).expect("a short piece");
        let mut message = length.to_le_bytes().to_vec();
        message.extend(piece);
        let sent = self.drive.send(message).and_then(|()| self.drive.wait_written());
        sent.map_err(io::Error::other)
    }
}

impl Write for Pieces<'_, '_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let room = PIECE_BYTES_MAX - self.piece.len();
        let taken = bytes.len().min(room);
        self.piece.extend_from_slice(&bytes[..taken]);
        if self.piece.len() == PIECE_BYTES_MAX {
            self.cut()?;
        }
        Ok(taken)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Reassembles the stream from its pieces.
struct Stream<'d, 's> {
    drive: &'d mut Drive<'s>,
    left: usize,
    has_ended: bool,
}

impl Read for Stream<'_, '_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if self.left == 0 && !self.has_ended {
            let mut length = [0; 4];
            self.drive.read_exact(&mut length).map_err(io::Error::other)?;
            if length == REFUSED {
                return Err(io::Error::other(self.drive.receive_refusal()));
            }
            self.left = u32::from_le_bytes(length) as usize;
            self.has_ended = self.left == 0;
            if self.left > PIECE_BYTES_MAX {
                return Err(io::Error::other(format!("a piece of {} bytes", self.left)));
            }
        }
        let count = buffer.len().min(self.left);
        self.drive.read_exact(&mut buffer[..count]).map_err(io::Error::other)?;
        self.left -= count;
        Ok(count)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        Driving, Form, Initiative, ItemSet, PeerConnection, SessionObserver, Timeouts, answer,
        open_set, reconcile,
    };
    use std::fmt;
    use std::sync::Mutex;
    use std::time::Duration;
    use umbel_reconcile_engine::{Aim, Direction, Limits, OnConflict, Options, SessionRole};

    /// How many contents of how many are reported to have gone over.
    #[derive(Default)]
    struct Counted(Mutex<Vec<(usize, usize)>>);

    impl SessionObserver for Counted {
        fn notice(&self, _: fmt::Arguments<'_>) {}

        fn contents(&self, done_count: usize, all_count: usize) {
            self.0.lock().unwrap().push((done_count, all_count));
        }
    }

    fn driving(observer: &dyn SessionObserver) -> Driving<'_> {
        let initiative = Initiative { delete: false };
        let timeouts = Timeouts { idle: Duration::from_secs(3600), whole: None };
        Driving { initiative, timeouts, journal: None, observer, draw: || 7 }
    }

    fn options(set: &dyn ItemSet, role: SessionRole) -> Options {
        let (dataset_id, limits) = (Form::Tree.dataset_id(set), Limits::default());
        Options { role, kind: set.kind(), dataset_id, domain: [0; 16], nonce: 5, limits }
    }

    #[test]
    fn both_sides_are_told_of_each_content_that_goes_over() {
        let folders = [(); 2].map(|()| tempfile::tempdir().unwrap());
        for name in ["x", "y", "z"] {
            std::fs::write(folders[1].path().join(name), name).unwrap();
        }
        let sets = folders.each_ref().map(|folder| open_set(folder.path(), &Form::Tree).unwrap());
        let [here, there] = sets;
        let [to_there, to_here] = PeerConnection::pair(["b", "a"].map(str::to_owned)).unwrap();
        let told = [Counted::default(), Counted::default()];
        std::thread::scope(|scope| {
            let answering = scope.spawn(|| {
                let on_conflict = OnConflict::Report;
                let role = SessionRole::Responder { accept_items: false, on_conflict };
                answer(&*there, options(&*there, role), to_here, driving(&told[1])).map(drop)
            });
            let role = SessionRole::Initiator(Aim::new(Direction::Pull));
            reconcile(&*here, options(&*here, role), to_there, driving(&told[0]))
                .map(drop)
                .unwrap();
            answering.join().unwrap().unwrap();
        });
        for told in told {
            assert_eq!(told.0.into_inner().unwrap(), [(1, 3), (2, 3), (3, 3)]);
        }
        assert_eq!(std::fs::read(folders[0].path().join("z")).unwrap(), b"z");
    }

    #[test]
    fn a_content_is_as_long_as_its_item_said() {
        assert!(check_length(3, 3).is_ok());
        let error = check_length(1 << 40, 3).unwrap_err().to_string();
        assert!(error.contains("1099511627776 bytes came, its item says 3"), "{error}");
    }
}
