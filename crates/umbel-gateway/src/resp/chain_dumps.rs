//! `BF.SCANDUMP` of filters of RedisBloom's kind, in the pieces that RedisBloom itself sends and accepts.
//!
//! An iterator is one more than the bytes of all pieces before it, so any node can continue at any
//! iterator. The copy that a connection has begun to read is kept for it, in the state of the first
//! piece. A client that continues at another node, or after a long pause, gets the rest of the filter's
//! state at that time: bits only rise, so no item that the header counts is lost.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, Weak};

use bytes::Bytes;
use tokio::time::{Instant, sleep_until};
use umbel_coordinator::transfers::{ExportPart, ExportParts, ExportWish};
use umbel_engine::meta::FilterName;
use umbel_filter::Kind;
use umbel_ports::locked;
use umbel_resp::Refusal;

use super::answers::refusal;
use super::dumps::{COPIES_MAX, IDLE_MAX, PIECE_BYTES, check_in_time};
use super::session::Session;
use super::shared::Shared;
use crate::redis_bloom_dump::DumpWriter;

/// The reader of a copy: the connection's number, and the filter's name.
type Reader = (u64, FilterName);

/// A piece and its iterator; None after the last one.
type Piece = Option<(i64, Bytes)>;

/// Copies that clients are reading.
#[derive(Default)]
pub(super) struct ChainDumps {
    read: Mutex<BTreeMap<Reader, Arc<ChainReading>>>,
}

impl ChainDumps {
    /// Drops the copies of a connection that is gone: no other one can continue them.
    pub(super) fn leave(&self, connection: u64) {
        locked(&self.read).retain(|&(reader, _), _| reader != connection);
    }

    /// The number of copies.
    #[cfg(test)]
    pub(super) fn count(&self) -> usize {
        locked(&self.read).len()
    }
}

/// A copy that a client is reading.
struct ChainReading {
    used: Mutex<Instant>,
    pieces: tokio::sync::Mutex<ChainPieces>,
}

/// The pieces of a copy.
struct ChainPieces {
    parts: ExportParts,
    writer: DumpWriter,
    has_ended: bool,
    /// The last requested iterator and its answer, which the client may request again.
    last: Option<(i64, Piece)>,
}

/// Whether a filter is of RedisBloom's kind.
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
    // This node may not know the filter yet.
    let deadline = session.shared.deadlines.of_command();
    let refreshed = coordinator.meta_refresh(deadline).await;
    let found = refreshed.and_then(|()| look()).map_err(|failure| refusal(&failure))?;
    Ok(found == Some(true))
}

/// The piece that follows an iterator; the header for iterator 0.
pub(super) async fn next(
    session: &Session,
    name: FilterName,
    iterator: i64,
) -> Result<Piece, Refusal> {
    // An iterator minus one is the number of bytes before it; nothing follows a negative one.
    let Ok(offset) = u64::try_from(iterator).map(|iterator| iterator.saturating_sub(1)) else {
        return Ok(None);
    };
    let deadline = session.shared.deadlines.of_long_command();
    let reader = (session.client.id, name);
    let dumps = &session.shared.chain_dumps;
    let known = locked(&dumps.read).get(&reader).filter(|_| iterator > 0).cloned();
    if let Some(reading) = known {
        *locked(&reading.used) = Instant::now();
        let mut pieces = reading.pieces.lock().await;
        if let Some(piece) = pieces.go_on(iterator, offset, deadline).await? {
            return Ok(piece);
        }
    }
    let coordinator = &session.shared.coordinator;
    let parts = coordinator.export(&reader.1, ExportWish::default(), deadline).await;
    let mut pieces = ChainPieces::new(parts.map_err(|failure| refusal(&failure))?);
    if iterator > 0 && !pieces.skip(offset, deadline).await? {
        return Ok(None);
    }
    let piece = pieces.take(iterator, deadline).await?;
    let used = Mutex::new(Instant::now());
    let reading = Arc::new(ChainReading { used, pieces: tokio::sync::Mutex::new(pieces) });
    {
        let mut read = locked(&dumps.read);
        while read.len() >= COPIES_MAX && !read.contains_key(&reader) {
            let longest = read.iter().min_by_key(|(_, reading)| *locked(&reading.used));
            let Some(longest) = longest.map(|(reader, _)| reader.clone()) else { break };
            read.remove(&longest);
        }
        read.insert(reader.clone(), Arc::clone(&reading));
    }
    tokio::spawn(give_up_idle(Arc::downgrade(&session.shared), reader, Arc::downgrade(&reading)));
    Ok(piece)
}

/// Drops a copy that has been idle for `IDLE_MAX`. Holds only weak references, so that a stopping node can end.
async fn give_up_idle(shared: Weak<Shared>, reader: Reader, ours: Weak<ChainReading>) {
    loop {
        let used = {
            let (Some(shared), Some(ours)) = (shared.upgrade(), ours.upgrade()) else { return };
            let mut read = locked(&shared.chain_dumps.read);
            // Another copy may have replaced this one.
            if !read.get(&reader).is_some_and(|reading| Arc::ptr_eq(reading, &ours)) {
                return;
            }
            let used = *locked(&ours.used);
            if used.elapsed() >= IDLE_MAX {
                read.remove(&reader);
                return;
            }
            used
        };
        sleep_until(used + IDLE_MAX).await;
    }
}

impl ChainPieces {
    fn new(parts: ExportParts) -> Self {
        Self { parts, writer: DumpWriter::default(), has_ended: false, last: None }
    }

    /// The piece after an iterator, or the last piece again; None if this copy is at another position.
    async fn go_on(
        &mut self,
        iterator: i64,
        offset: u64,
        deadline: Instant,
    ) -> Result<Option<Piece>, Refusal> {
        match &self.last {
            Some((asked, piece)) if *asked == iterator => Ok(Some(piece.clone())),
            _ if self.writer.given_bytes() == offset => {
                self.take(iterator, deadline).await.map(Some)
            }
            _ => Ok(None),
        }
    }

    /// The next piece.
    async fn take(&mut self, iterator: i64, deadline: Instant) -> Result<Piece, Refusal> {
        let piece = loop {
            let piece = match iterator {
                0 => self.writer.header().map(|header| (1, header.to_bytes())),
                _ => self.writer.next_piece(PIECE_BYTES),
            };
            match piece {
                Some((iterator, piece)) => break Some((iterator, Bytes::from(piece))),
                None if self.has_ended => break None,
                None => self.fetch(deadline).await?,
            }
        };
        self.last = Some((iterator, piece.clone()));
        Ok(piece)
    }

    /// Skips this many bytes, a number that the client may have made up; returns whether data follows.
    /// The first frame tells how many bytes there are.
    async fn skip(&mut self, byte_count: u64, deadline: Instant) -> Result<bool, Refusal> {
        let mut left = byte_count;
        loop {
            if self.writer.header().is_some_and(|header| byte_count >= header.data_bytes()) {
                return Ok(false);
            }
            left -= self.writer.skip(left);
            if left == 0 || self.has_ended {
                return Ok(left == 0);
            }
            self.fetch(deadline).await?;
        }
    }

    /// Fetches the next frame, unless the deadline has passed.
    async fn fetch(&mut self, deadline: Instant) -> Result<(), Refusal> {
        check_in_time(deadline)?;
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

#[cfg(test)]
mod tests {
    use super::super::dumps_test::{add, exported};
    use super::super::resp_test::{Client, node};
    use super::*;

    /// In a filter of several frames a made-up iterator costs only the first frame, and nothing if no
    /// time is left.
    #[tokio::test(flavor = "multi_thread")]
    async fn bytes_that_are_not_there_are_not_looked_for() {
        let (_folder, node) = node().await;
        let mut client = Client::new(&node).await;
        client.call("UMBEL.CREATE k KIND redisbloom CAPACITY 2000000 ERROR 0.01", "+OK\r\n").await;
        add(&mut client, "k", 0..100).await;
        let later = Instant::now() + IDLE_MAX;
        let mut pieces = ChainPieces::new(exported(&node, "k").await);
        assert!(matches!(pieces.skip(1 << 40, Instant::now()).await, Err(Refusal::Other(_))));
        assert!(pieces.writer.header().is_none());
        assert_eq!(pieces.skip(1 << 40, later).await, Ok(false));
        let data_bytes = pieces.writer.header().unwrap().data_bytes();
        assert_eq!(pieces.skip(data_bytes, later).await, Ok(false));
        assert!(!pieces.writer.is_complete() && pieces.writer.given_bytes() == 0);
        // Existing bytes are found as before.
        assert_eq!(pieces.skip(data_bytes - 1, later).await, Ok(true));
        let end = i64::try_from(data_bytes).unwrap() + 1;
        let (iterator, piece) = pieces.take(end - 1, later).await.unwrap().unwrap();
        assert_eq!((iterator, piece.len()), (end, 1));
        let made_up = format!("BF.SCANDUMP k {}", end + 1);
        client.call(&made_up, "*2\r\n:0\r\n$0\r\n\r\n").await;
        node.shutdown().await;
    }
}
