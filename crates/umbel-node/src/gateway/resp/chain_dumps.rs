//! `BF.SCANDUMP` of RedisBloom's filters, in the pieces that RedisBloom itself sends and takes.
//!
//! An iterator is one more than the bytes of all pieces before, so any node can go on anywhere. What a connection has begun
//! to read is kept for it, as it was at the first piece. Who goes on at another node, or after a while, gets the rest as it
//! is by then: bits only rise, so no item is lost that the header counts.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use bytes::Bytes;
use tokio::time::{Instant, sleep_until};
use umbel_engine::meta::FilterName;
use umbel_filter::Kind;
use umbel_resp::Refusal;

use super::answers::refusal;
use super::dumps::{COPIES_MAX, IDLE_MAX, PIECE_BYTES};
use super::session::Session;
use super::shared::Shared;
use crate::coordinator::copies::{ExportPart, ExportParts, ExportWish};
use crate::redis_bloom_dump::DumpWriter;

/// Whose copy it is: the connection's number, and the filter's name.
type Reader = (u64, FilterName);

/// A piece and its iterator; None behind the last one.
type Piece = Option<(i64, Bytes)>;

/// Copies that are being read.
#[derive(Default)]
pub(super) struct ChainDumps {
    read: Mutex<BTreeMap<Reader, Arc<Reading>>>,
}

/// A copy that is read.
struct Reading {
    used: Mutex<Instant>,
    pieces: tokio::sync::Mutex<Pieces>,
}

/// Pieces of a copy.
struct Pieces {
    parts: ExportParts,
    writer: DumpWriter,
    has_ended: bool,
    /// The iterator that was asked for last, and the answer, which may be asked for once more.
    last: Option<(i64, Piece)>,
}

/// Whether a filter is RedisBloom's.
pub(super) async fn is_chain(session: &Session, name: &FilterName) -> Result<bool, Refusal> {
    let coordinator = &session.shared.coordinator;
    let look = || {
        coordinator.read_meta(|state| {
            let (_, record) = state.filter_by_name(name.as_str())?;
            Some(record.settings.kind == Kind::RedisBloom.id())
        })
    };
    if let Ok(Some(found)) = look() {
        return Ok(found);
    }
    // This node may not have heard of it yet.
    let deadline = session.shared.deadlines.of_command();
    let refreshed = coordinator.meta_refresh(deadline).await;
    let found = refreshed.and_then(|()| look()).map_err(|failure| refusal(&failure))?;
    Ok(found == Some(true))
}

/// The piece that follows an iterator; of 0 the header.
pub(super) async fn next(
    session: &Session,
    name: FilterName,
    iterator: i64,
) -> Result<Piece, Refusal> {
    // One less than an iterator is the number of bytes before it; there is nothing behind a negative one.
    let Ok(offset) = u64::try_from(iterator).map(|iterator| iterator.saturating_sub(1)) else {
        return Ok(None);
    };
    let reader = (session.client.id, name);
    let dumps = &session.shared.chain_dumps;
    let known = lock(&dumps.read).get(&reader).filter(|_| iterator > 0).cloned();
    if let Some(reading) = known {
        *lock(&reading.used) = Instant::now();
        let mut pieces = reading.pieces.lock().await;
        if let Some(piece) = pieces.go_on(iterator, offset).await? {
            return Ok(piece);
        }
    }
    let mut pieces = Pieces::begin(session, &reader.1).await?;
    if iterator > 0 {
        pieces.skip(offset).await?;
    }
    let piece = pieces.take(iterator).await?;
    let used = Mutex::new(Instant::now());
    let reading = Arc::new(Reading { used, pieces: tokio::sync::Mutex::new(pieces) });
    {
        let mut read = lock(&dumps.read);
        while read.len() >= COPIES_MAX && !read.contains_key(&reader) {
            let longest = read.iter().min_by_key(|(_, reading)| *lock(&reading.used));
            let Some(longest) = longest.map(|(reader, _)| reader.clone()) else { break };
            read.remove(&longest);
        }
        read.insert(reader.clone(), Arc::clone(&reading));
    }
    tokio::spawn(give_up_idle(Arc::downgrade(&session.shared), reader, Arc::downgrade(&reading)));
    Ok(piece)
}

/// Lets go of a copy that nobody asks for. Holds nothing of a node that stops.
async fn give_up_idle(shared: Weak<Shared>, reader: Reader, ours: Weak<Reading>) {
    loop {
        let used = {
            let (Some(shared), Some(ours)) = (shared.upgrade(), ours.upgrade()) else { return };
            let mut read = lock(&shared.chain_dumps.read);
            // Another one may have taken its place.
            if !read.get(&reader).is_some_and(|reading| Arc::ptr_eq(reading, &ours)) {
                return;
            }
            let used = *lock(&ours.used);
            if used.elapsed() >= IDLE_MAX {
                read.remove(&reader);
                return;
            }
            used
        };
        sleep_until(used + IDLE_MAX).await;
    }
}

impl Pieces {
    async fn begin(session: &Session, name: &FilterName) -> Result<Self, Refusal> {
        let deadline = session.shared.deadlines.of_long_command();
        let parts = session.shared.coordinator.export(name, ExportWish::default(), deadline).await;
        let parts = parts.map_err(|failure| refusal(&failure))?;
        Ok(Self { parts, writer: DumpWriter::default(), has_ended: false, last: None })
    }

    /// The piece behind an iterator, or the last one again; None if this copy is at another place.
    async fn go_on(&mut self, iterator: i64, offset: u64) -> Result<Option<Piece>, Refusal> {
        match &self.last {
            Some((asked, piece)) if *asked == iterator => Ok(Some(piece.clone())),
            _ if self.writer.given_bytes() == offset => self.take(iterator).await.map(Some),
            _ => Ok(None),
        }
    }

    /// The next piece.
    async fn take(&mut self, iterator: i64) -> Result<Piece, Refusal> {
        let piece = loop {
            let piece = match iterator {
                0 => self.writer.header().map(|header| (1, header.to_bytes())),
                _ => self.writer.next_piece(PIECE_BYTES),
            };
            match piece {
                Some((iterator, piece)) => break Some((iterator, Bytes::from(piece))),
                None if self.has_ended => break None,
                None => self.fetch().await?,
            }
        };
        self.last = Some((iterator, piece.clone()));
        Ok(piece)
    }

    /// Passes over so many bytes, or all that there are.
    async fn skip(&mut self, byte_count: u64) -> Result<(), Refusal> {
        let mut left = byte_count;
        loop {
            left -= self.writer.skip(left);
            if left == 0 || self.has_ended {
                return Ok(());
            }
            self.fetch().await?;
        }
    }

    /// Fetches the next frame.
    async fn fetch(&mut self) -> Result<(), Refusal> {
        match self.parts.next().await.map_err(|failure| refusal(&failure))? {
            Some(ExportPart::Frame(frame)) => self
                .writer
                .push(&frame.frame)
                .map_err(|error| Refusal::Other(format!("ERR {error}").into())),
            Some(_) => Ok(()),
            None => {
                self.has_ended = true;
                Ok(())
            }
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // Nothing panics while it holds one of these.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
