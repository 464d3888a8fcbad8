//! Copies of filters in pieces: `BF.SCANDUMP`, `BF.LOADCHUNK` and the same commands of `CF.*`.
//!
//! ```text
//! SCANDUMP k 0 → [i₁, piece]   SCANDUMP k i₁ → [i₂, piece]   …   SCANDUMP k iₙ → [0, ""]
//! LOADCHUNK k i₁ piece         LOADCHUNK k i₂ piece          …   the filter is there with the last one
//! ```
//!
//! Filters of RedisBloom's kind are copied in RedisBloom's own pieces: [`super::chain_dumps`] reads them,
//! and this module loads them if the first piece is a header of RedisBloom's. For all other kinds an
//! iterator contains the number of a copy, which its node keeps while it is read, and the number of a
//! piece. Any connection to the node may continue the copy, and may request, or send, the last piece again.
//! A copy that no client reads, or writes, is dropped.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, Weak};
use std::time::Duration;

use bytes::Bytes;
use tokio::sync::mpsc;
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep, sleep_until, timeout};
use tokio_stream::wrappers::ReceiverStream;
use umbel_coordinator::Coordinator;
use umbel_coordinator::transfers::{ExportParts, ExportWish, ImportPart};
use umbel_engine::meta::{FilterName, FilterState, FilterVerb, MetaState};
use umbel_filter::Kind;
use umbel_node::export_change::EXPORT_FILE_MAGIC;
use umbel_node::failure::CallFailure;
use umbel_node::limits::RETRY_WAIT_MIN;
use umbel_ports::locked;
use umbel_resp::{DumpCommand, Refusal, Reply};

use super::answers::refusal;
use super::chain_dumps;
use super::coming_pieces::{Coming, HEADER_ITERATOR, PIECE_NUMBER_BITS, split};
use super::dump_bytes::{PartReader, write_part};
use super::session::{NoFilter, Session};
use super::shared::Shared;
use crate::audit;
use crate::limits::RESP_BUSY_WAIT_MAX;
use crate::redis_bloom_dump::DumpReader;

/// Bytes of a piece; an argument of a command may be somewhat larger.
pub(super) const PIECE_BYTES: usize = 384 << 10;

/// Copies that a node keeps in each direction: each holds some megabytes here, and a slice on the node
/// from which it is read.
pub(super) const COPIES_MAX: usize = 16;

/// A copy that no client has used for this long is dropped.
pub(super) const IDLE_MAX: Duration = Duration::from_secs(60);

/// Copies in progress.
#[derive(Default)]
pub(super) struct Dumps {
    last: AtomicU64,
    read: Mutex<BTreeMap<u64, Arc<Reading>>>,
    /// By the names of the filters to create.
    written: Mutex<BTreeMap<FilterName, Arc<tokio::sync::Mutex<Writing>>>>,
}

/// A copy that a client is reading.
struct Reading {
    name: FilterName,
    used: Mutex<Instant>,
    state: tokio::sync::Mutex<Pieces>,
}

/// The pieces of a copy.
struct Pieces {
    parts: ExportParts,
    /// Bytes that do not fill a piece yet.
    ahead: Vec<u8>,
    has_ended: bool,
    /// Number of the piece that was sent last, and the piece.
    number: u64,
    piece: Bytes,
}

/// A copy that a client is loading.
struct Writing {
    coming: Coming,
    import: Import,
    /// Whether the import has the head, and the catalogue may not have the filter yet.
    is_beginning: bool,
}

/// The call that creates the filter.
enum Import {
    /// The way of the parts to it, until it is given up, and its task.
    Running(Option<PartSender>, JoinHandle<Result<(), CallFailure>>),
    /// When its outcome became known, and the outcome: its task tells it only once, and two connections, or a
    /// client that did not get the answer, may ask. Nothing else is held of it.
    Ended(Instant, Result<(), Refusal>),
}

type PartSender = mpsc::Sender<Result<ImportPart, CallFailure>>;

impl Drop for Writing {
    fn drop(&mut self) {
        // Ending the import call also drops the half-loaded filter.
        if let Import::Running(_, task) = &self.import {
            task.abort();
        }
    }
}

pub(super) async fn answer(session: &Session, command: DumpCommand<'_>) -> Result<Reply, Refusal> {
    match command {
        DumpCommand::Next { key, iterator, is_cuckoo } => {
            let name = match session.filter(FilterVerb::Export, key) {
                Err(NoFilter::NoName) => return Err(Refusal::NotFound),
                named => named?,
            };
            if !is_cuckoo && chain_dumps::is_chain(session, &name).await? {
                let piece = chain_dumps::next(session, name, iterator).await?;
                let (iterator, piece) = piece.unwrap_or_default();
                let piece = Reply::Bulk(piece.to_vec());
                return Ok(Reply::Array(vec![Reply::number(iterator), piece]));
            }
            let piece = match iterator {
                0 => Some(begin(session, name, is_cuckoo).await?),
                iterator => next(session, &name, iterator).await?,
            };
            let (iterator, piece) = match piece {
                Some((iterator, piece)) => (iterator, Reply::Bulk(piece.to_vec())),
                None if is_cuckoo => (0, Reply::Null),
                None => (0, Reply::Bulk(Vec::new())),
            };
            Ok(Reply::Array(vec![Reply::number(iterator), piece]))
        }
        DumpCommand::Load { key, iterator, data, is_cuckoo } => {
            let name = session.filter(FilterVerb::Manage, key)?;
            let loaded = load(session, name, iterator, data, is_cuckoo).await;
            loaded.map(|()| Reply::OK).map_err(|refusal| match refusal {
                Refusal::BadData if is_cuckoo => refusal_of_cuckoo(iterator),
                refusal => refusal,
            })
        }
    }
}

/// RedisBloom's refusal of a piece of a cuckoo filter: of its first piece, which has the header, or another one.
fn refusal_of_cuckoo(iterator: i64) -> Refusal {
    match split(iterator) {
        Some((_, 1)) => Refusal::CuckooHeader,
        _ => Refusal::CuckooChunk,
    }
}

/// Begins a copy and returns its first piece.
async fn begin(
    session: &Session,
    name: FilterName,
    is_cuckoo: bool,
) -> Result<(u64, Bytes), Refusal> {
    let (coordinator, dumps) = (&session.shared.coordinator, &session.shared.dumps);
    let deadline = session.shared.deadlines.of_long_command();
    let parts = coordinator
        .export(&name, ExportWish::default(), deadline)
        .await
        .map_err(|f| refusal(&f))?;
    if is_cuckoo && !parts.kind().is_some_and(Kind::tells_copies) {
        return Err(Refusal::WrongType);
    }
    let (used, state) = (Mutex::new(Instant::now()), tokio::sync::Mutex::new(Pieces::new(parts)));
    let reading = Arc::new(Reading { name, used, state });
    let id = dumps.last.fetch_add(1, Ordering::Relaxed) + 1;
    {
        let mut read = locked(&dumps.read);
        while read.len() >= COPIES_MAX {
            let longest = read.iter().min_by_key(|(_, reading)| *locked(&reading.used));
            let Some((&longest, _)) = longest else { break };
            read.remove(&longest);
        }
        read.insert(id, Arc::clone(&reading));
    }
    tokio::spawn(give_up_idle(Arc::downgrade(&session.shared), id));
    let piece = reading.state.lock().await.next(deadline).await?;
    let piece = piece.ok_or_else(gone)?;
    Ok((id << PIECE_NUMBER_BITS | 1, piece))
}

/// Drops a copy that has been idle for `IDLE_MAX`. Holds only a weak reference, so that a stopping node
/// can end.
async fn give_up_idle(shared: Weak<Shared>, id: u64) {
    loop {
        let used = {
            let Some(shared) = shared.upgrade() else { return };
            let mut read = locked(&shared.dumps.read);
            let Some(used) = read.get(&id).map(|reading| *locked(&reading.used)) else { return };
            if used.elapsed() >= IDLE_MAX {
                read.remove(&id);
                return;
            }
            used
        };
        sleep_until(used + IDLE_MAX).await;
    }
}

/// The piece after the one that an iterator names, also if it was the last one sent; None after the end.
async fn next(
    session: &Session,
    name: &FilterName,
    iterator: i64,
) -> Result<Option<(u64, Bytes)>, Refusal> {
    let Some((id, number)) = split(iterator) else { return Ok(None) };
    let dumps = &session.shared.dumps;
    let reading = locked(&dumps.read).get(&id).filter(|reading| reading.name == *name).cloned();
    let reading = reading.ok_or_else(gone)?;
    *locked(&reading.used) = Instant::now();
    let mut pieces = reading.state.lock().await;
    if number + 1 == pieces.number {
        return Ok(Some((id << PIECE_NUMBER_BITS | pieces.number, pieces.piece.clone())));
    }
    if number != pieces.number {
        return Err(gone());
    }
    let piece = pieces.next(session.shared.deadlines.of_long_command()).await?;
    Ok(piece.map(|piece| (id << PIECE_NUMBER_BITS | pieces.number, piece)))
}

/// The copy belongs to another node, or was dropped.
fn gone() -> Refusal {
    Refusal::Other("ERR this node holds no such copy any more: begin again with iterator 0".into())
}

/// Refuses to fetch more once the deadline has passed. What was fetched is kept, so that a repeated
/// request continues.
pub(super) fn check_in_time(deadline: Instant) -> Result<(), Refusal> {
    if Instant::now() < deadline {
        return Ok(());
    }
    Err(Refusal::Other("TRYAGAIN the piece did not come in time".into()))
}

impl Pieces {
    fn new(parts: ExportParts) -> Self {
        Self { parts, ahead: Vec::new(), has_ended: false, number: 0, piece: Bytes::new() }
    }

    /// The next piece; None after the last.
    async fn next(&mut self, deadline: Instant) -> Result<Option<Bytes>, Refusal> {
        while self.ahead.len() < PIECE_BYTES && !self.has_ended {
            check_in_time(deadline)?;
            match self.parts.next().await.map_err(|failure| refusal(&failure))? {
                Some(part) => write_part(part, &mut self.ahead),
                None => self.has_ended = true,
            }
        }
        if self.ahead.is_empty() {
            return Ok(None);
        }
        let rest = self.ahead.split_off(self.ahead.len().min(PIECE_BYTES));
        self.piece = std::mem::replace(&mut self.ahead, rest).into();
        self.number += 1;
        Ok(Some(self.piece.clone()))
    }
}

/// Loads a piece.
async fn load(
    session: &Session,
    name: FilterName,
    iterator: i64,
    data: &[u8],
    is_cuckoo: bool,
) -> Result<(), Refusal> {
    let dumps = &session.shared.dumps;
    let known = locked(&dumps.written).get(&name).cloned();
    let is_chain = match &known {
        Some(writing) => matches!(writing.lock().await.coming, Coming::Chain(_)),
        None => false,
    };
    let begins_chain = iterator == HEADER_ITERATOR && !data.starts_with(&EXPORT_FILE_MAGIC);
    if is_cuckoo && (begins_chain || is_chain) {
        // The data, or the copy under this name, which goes on, are of a Bloom filter.
        return Err(if begins_chain { Refusal::BadData } else { Refusal::WrongType });
    }
    let writing = if begins_chain {
        // Data that is not a header does not touch a copy under this name.
        let reader = DumpReader::new(data).map_err(|_| Refusal::BadData)?;
        begin_load(session, &name, Coming::Chain(Box::new(reader))).await?
    } else if is_chain {
        known.ok_or_else(not_loading)?
    } else {
        match split(iterator).map(|(_, number)| number).ok_or(Refusal::BadData)? {
            1 => {
                let reader = PartReader::default();
                begin_load(session, &name, Coming::Parts { reader, last: 0, is_cuckoo }).await?
            }
            _ => known.ok_or_else(not_loading)?,
        }
    };
    let mut ours = writing.lock().await;
    let taken = ours.take(&name, iterator, data).await;
    let outcome = match taken {
        Ok(false) => ours.begun(&session.shared.coordinator, &name).await,
        taken => taken.map(drop),
    };
    if outcome.is_err() {
        ours.give_up().await;
        let mut written = locked(&dumps.written);
        if written.get(&name).is_some_and(|ours| Arc::ptr_eq(ours, &writing)) {
            written.remove(&name);
        }
    }
    outcome
}

/// A piece that is not the first one of a copy of which this node has none.
fn not_loading() -> Refusal {
    Refusal::Other(
        "ERR this node is not loading the filter: send all pieces to one node, from the first one on".into(),
    )
}

/// Begins to load a copy; an incomplete copy of the same name is ended first.
async fn begin_load(
    session: &Session,
    name: &FilterName,
    coming: Coming,
) -> Result<Arc<tokio::sync::Mutex<Writing>>, Refusal> {
    let coordinator = Arc::clone(&session.shared.coordinator);
    let deadline = session.shared.deadlines.of_command();
    let before = locked(&session.shared.dumps.written).remove(name);
    if let Some(before) = before {
        before.lock().await.give_up().await;
    }
    let patience = Instant::now() + RESP_BUSY_WAIT_MAX;
    loop {
        coordinator.meta_refresh(deadline).await.map_err(|failure| refusal(&failure))?;
        let found = coordinator.read_meta(|state| {
            let (_, record) = state.filter_by_name(name.as_str())?;
            Some((record.state, record.settings.kind))
        });
        let Some((found, kind)) = found.map_err(|failure| refusal(&failure))? else { break };
        let is_passing = matches!(
            found,
            FilterState::Creating { .. } | FilterState::Importing | FilterState::Dropping
        );
        if !is_passing || Instant::now() >= patience {
            return Err(match coming {
                Coming::Parts { is_cuckoo: true, .. }
                    if Kind::from_id(kind).is_some_and(Kind::tells_copies) =>
                {
                    Refusal::ItemExists
                }
                Coming::Parts { is_cuckoo: true, .. } => Refusal::WrongType,
                Coming::Parts { .. } | Coming::Chain(_) => Refusal::BadData,
            });
        }
        sleep(RETRY_WAIT_MIN).await;
    }
    let mut written = locked(&session.shared.dumps.written);
    written.retain(|_, writing| writing.try_lock().map_or(true, |writing| writing.is_kept()));
    let is_loading = |writing: &&Arc<tokio::sync::Mutex<Writing>>| {
        writing.try_lock().map_or(true, |writing| matches!(writing.import, Import::Running(..)))
    };
    if written.values().filter(is_loading).count() >= COPIES_MAX {
        let what = format!("TRYAGAIN {COPIES_MAX} copies are being loaded on this node");
        return Err(Refusal::Other(what.into()));
    }
    let (parts, sent) = mpsc::channel(1);
    let (caller, wanted) = (session.caller.clone(), name.clone());
    let task = tokio::spawn(async move {
        let owner = caller.principal_name();
        let imported = coordinator.import(ReceiverStream::new(sent), owner).await.map(drop);
        imported.inspect_err(|failure| audit::import_failed(&caller, &wanted, failure))
    });
    let import = Import::Running(Some(parts), task);
    let writing = Writing { coming, import, is_beginning: false };
    let writing = Arc::new(tokio::sync::Mutex::new(writing));
    written.insert(name.clone(), Arc::clone(&writing));
    Ok(writing)
}

impl Writing {
    /// Takes a piece; returns whether it was the last one.
    async fn take(
        &mut self,
        name: &FilterName,
        iterator: i64,
        data: &[u8],
    ) -> Result<bool, Refusal> {
        let (parts, is_complete) = self.coming.take(name, iterator, data)?;
        for part in parts {
            self.is_beginning |= matches!(part, ImportPart::Head(_));
            let is_taken = match &self.import {
                Import::Running(Some(sender), _) => sender.send(Ok(part)).await.is_ok(),
                Import::Running(None, _) | Import::Ended(..) => false,
            };
            if !is_taken {
                return self.ended().await.map(|()| true);
            }
        }
        if !is_complete && matches!(self.import, Import::Running(..)) {
            return Ok(false);
        }
        self.ended().await.map(|()| true)
    }

    /// Waits until the catalogue has a filter whose head was taken, which would be answered absent before.
    async fn begun(&mut self, coordinator: &Coordinator, name: &FilterName) -> Result<(), Refusal> {
        if !std::mem::take(&mut self.is_beginning) {
            return Ok(());
        }
        let is_there = |state: &MetaState| {
            let (_, record) = state.filter_by_name(name.as_str())?;
            let importing = FilterState::Creating { importing: true };
            (record.state == importing || record.state == FilterState::Importing).then_some(())
        };
        let patience = Instant::now() + RESP_BUSY_WAIT_MAX;
        tokio::select! {
            biased;
            ended = self.ended() => ended,
            found = coordinator.wait_meta(patience, is_there) => {
                found.map_err(|failure| refusal(&failure))
            }
        }
    }

    /// Whether pieces may still come: of a copy whose import has not ended, as it does when none arrives for a
    /// while, or of a complete one the last piece again.
    fn is_kept(&self) -> bool {
        match &self.import {
            Import::Running(_, task) => !task.is_finished(),
            Import::Ended(at, outcome) => outcome.is_ok() && at.elapsed() < IDLE_MAX,
        }
    }

    /// Ends an incomplete import; what it created is removed before its client gets the answer.
    async fn give_up(&mut self) {
        if let Import::Running(sender, _) = &mut self.import {
            *sender = None;
        }
        let _ = timeout(RESP_BUSY_WAIT_MAX, self.ended()).await;
    }

    /// The outcome of the import.
    async fn ended(&mut self) -> Result<(), Refusal> {
        let task = match &mut self.import {
            Import::Running(_, task) => task,
            Import::Ended(_, outcome) => return outcome.clone(),
        };
        let outcome = match task.await {
            Ok(outcome) => outcome.map_err(|failure| refusal(&failure)),
            Err(error) => Err(Refusal::Other(format!("ERR {error}").into())),
        };
        self.import = Import::Ended(Instant::now(), outcome.clone());
        outcome
    }
}

#[cfg(test)]
mod tests {
    use tokio_stream::StreamExt as _;
    use umbel_filter::RedisBloomShape;

    use super::super::chain_dumps_test::{pieces_of, theirs};
    use super::super::dumps_test::exported;
    use super::super::resp_test::{Client, node};
    use super::*;

    /// A copy in pieces of RedisBloom's, whose import takes all parts and ends like this; and its pieces.
    fn loading(ends: Result<(), CallFailure>) -> (Writing, Vec<(i64, Vec<u8>)>) {
        let pieces = pieces_of(&theirs(RedisBloomShape::for_rate(10, 0.01).unwrap(), 9), 1 << 20);
        let coming = Coming::Chain(Box::new(DumpReader::new(&pieces[0].1).unwrap()));
        let (parts, sent) = mpsc::channel(1);
        let task = tokio::spawn(async move {
            let is_end =
                |part: &Result<ImportPart, CallFailure>| matches!(part, Ok(ImportPart::End(_)));
            let mut sent = ReceiverStream::new(sent);
            while sent.next().await.is_some_and(|part| !is_end(&part)) {}
            ends
        });
        let import = Import::Running(Some(parts), task);
        (Writing { coming, import, is_beginning: false }, pieces)
    }

    /// Another connection sends the last piece again, and has waited for the outcome of the first one.
    #[tokio::test]
    async fn a_last_piece_that_comes_twice_is_answered_twice() {
        let name = FilterName::new("k").unwrap();
        let busy = CallFailure::Overloaded { what: "w".to_owned() };
        let refused = Err(Refusal::Other("TRYAGAIN w".into()));
        for (ends, answer) in [(Ok(()), Ok(true)), (Err(busy), refused)] {
            let (mut writing, pieces) = loading(ends);
            let (last, first) = pieces.split_last().unwrap();
            for (iterator, data) in first {
                assert_eq!(writing.take(&name, *iterator, data).await, Ok(false));
            }
            for _ in 0..2 {
                assert_eq!(writing.take(&name, last.0, &last.1).await, answer);
            }
            writing.give_up().await;
            assert_eq!(writing.take(&name, last.0, &last.1).await, answer);
            // Only of a complete copy the last piece may come once more.
            assert_eq!(writing.is_kept(), answer.is_ok());
        }
        // Nor does it matter that the copy was given up meanwhile.
        let (mut writing, pieces) = loading(Err(CallFailure::NotFormed));
        assert_eq!(writing.take(&name, pieces[0].0, &pieces[0].1).await, Ok(false));
        writing.give_up().await;
        let late = writing.take(&name, pieces[1].0, &pieces[1].1).await;
        assert!(matches!(late, Err(Refusal::Other(_))), "{late:?}");
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn a_piece_that_is_late_is_asked_for_again() {
        let (_folder, node) = node().await;
        Client::new(&node).await.call("BF.RESERVE k 0.01 100", "+OK\r\n").await;
        let mut pieces = Pieces::new(exported(&node, "k").await);
        let late = Err(Refusal::Other("TRYAGAIN the piece did not come in time".into()));
        assert_eq!(pieces.next(Instant::now()).await, late);
        let piece = pieces.next(Instant::now() + IDLE_MAX).await.unwrap().unwrap();
        assert!(piece.starts_with(&EXPORT_FILE_MAGIC));
        // No part is left.
        assert_eq!(pieces.next(Instant::now()).await, Ok(None));
        node.shutdown().await;
    }
}
