//! The transport of a resumable session over successive connections.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::rc::Rc;

use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use umbel_reconcile_engine::{
    Item, Regenerated, ResumeError, ResumeFrame, ResumeOffer, ResumeReader, ResumeVerdict,
    Resumption, SendWindow, StreamHash, StreamMark,
};

use super::failure::{Failure, IDLE};
use super::oracle::Oracle;
use super::place::Place;

/// The state of a running session that survives a crash.
#[derive(Default)]
pub(super) struct Journal {
    /// The session id.
    pub(super) session: u128,
    pub(super) nonce: u64,
    pub(super) symbol_bits: Option<u8>,
    /// The set at the start of the session.
    pub(super) frozen: Rc<Vec<Item>>,
    /// All bytes of the session that were received.
    pub(super) received: Vec<u8>,
    /// Number of bytes of the session that were ever sent.
    pub(super) sent: u64,
}

impl Journal {
    fn mark(&self) -> StreamMark {
        let mut hash = StreamHash::default();
        hash.update(&self.received);
        hash.mark()
    }
}

/// A journal that a side and its host share.
pub(super) type SharedJournal = Rc<RefCell<Journal>>;

/// One connection of a session.
pub(super) struct Transport {
    journal: SharedJournal,
    reader: ResumeReader,
    window: SendWindow,
    /// While a resumed session is regenerated: compares its bytes with what the peer has received. None
    /// once both verdicts are known.
    regenerated: Option<(Regenerated, StreamMark)>,
    has_sent_verdict: bool,
    received: Option<ResumeVerdict>,
    /// Number of the journal's received bytes that were passed to the session.
    fed: usize,
    frames: VecDeque<u8>,
}

impl Transport {
    /// Exchanges offers at the start of a connection. Returns the transport, and whether a session is
    /// resumed or begins anew.
    pub(super) async fn greet(
        place: Place,
        own: Option<SharedJournal>,
        fresh: Option<u128>,
        find: impl FnOnce(u128) -> Option<SharedJournal>,
        reader: &mut (impl AsyncRead + Unpin),
        writer: &mut (impl AsyncWrite + Unpin),
    ) -> Result<(Self, Resumption), Failure> {
        let mut frames = ResumeReader::default();
        let known = |journal: &SharedJournal| {
            let journal = journal.borrow();
            (journal.mark(), journal.sent)
        };
        let (journal, ours, theirs) = match fresh {
            Some(fresh) => {
                let first = ResumeOffer::first(fresh);
                let ours = own.as_ref().map_or(first, |journal| {
                    let session = journal.borrow().session;
                    ResumeOffer { session, ..first }.answer(Some(known(journal)))
                });
                send_offer(writer, ours).await?;
                (own, ours, receive(reader, &mut frames).await?)
            }
            None => {
                let theirs = receive(reader, &mut frames).await?;
                let journal =
                    if theirs.session == theirs.fresh { None } else { find(theirs.session) };
                let ours = theirs.answer(journal.as_ref().map(known));
                send_offer(writer, ours).await?;
                (journal, ours, theirs)
            }
        };
        let resumption = ours.with(&theirs).map_err(Failure::Resume)?;
        let (journal, mark) = match (resumption, journal) {
            (Resumption::Rejoin { theirs: mark, .. }, Some(journal)) => {
                // Per direction, because each direction has its own window.
                let lost = [
                    ours.sent.saturating_sub(mark.bytes),
                    theirs.sent.saturating_sub(ours.received.bytes),
                ];
                Oracle::resume(place, lost);
                (journal, Some(mark))
            }
            _ => {
                (Rc::new(RefCell::new(Journal { session: ours.fresh, ..Journal::default() })), None)
            }
        };
        let transport = Self {
            journal,
            reader: frames,
            window: SendWindow::new(mark.map_or(0, |mark| mark.bytes)),
            regenerated: mark.map(|mark| (Regenerated::new(mark), mark)),
            has_sent_verdict: false,
            received: None,
            fed: 0,
            frames: VecDeque::new(),
        };
        Ok((transport, resumption))
    }

    pub(super) fn journal(&self) -> SharedJournal {
        Rc::clone(&self.journal)
    }

    /// Whether a resumed session is still being compared, because not both verdicts are known.
    pub(super) const fn is_checked(&self) -> bool {
        self.regenerated.is_some()
    }

    /// Whether it is this side that cannot resume.
    pub(super) fn is_refuted(&self) -> bool {
        let verdict = self.regenerated.as_ref().and_then(|(regenerated, _)| regenerated.verdict());
        verdict != Some(ResumeVerdict::Same)
    }

    /// Queues bytes of the session, except those that the peer has already received.
    pub(super) fn send(&mut self, bytes: &[u8]) {
        let known = self.regenerated.as_mut().map_or(0, |(regenerated, _)| regenerated.skip(bytes));
        self.window.push(&bytes[known..]);
    }

    /// The next bytes of the journal for the session; None if it has got all of them.
    pub(super) fn feed(&mut self) -> Option<Vec<u8>> {
        let journal = self.journal.borrow();
        let left = &journal.received[self.fed..];
        let piece = left[..left.len().min(4 << 10)].to_vec();
        self.fed += piece.len();
        (!piece.is_empty()).then_some(piece)
    }

    /// Records that the session has processed all bytes of the journal.
    pub(super) fn journal_ended(&mut self) {
        if let Some((regenerated, _)) = &mut self.regenerated {
            regenerated.journal_ended();
        }
    }

    /// The bytes of the frames that may be sent now.
    pub(super) fn frames(&mut self) -> Result<Vec<u8>, Failure> {
        if let Some((regenerated, _)) = &self.regenerated {
            if let (Some(verdict), false) = (regenerated.verdict(), self.has_sent_verdict) {
                self.has_sent_verdict = true;
                self.frames.extend(ResumeFrame::Verdict(verdict).to_bytes());
            }
            if let (true, Some(received)) = (self.has_sent_verdict, self.received) {
                let verdicts = [regenerated.verdict(), Some(received)];
                if verdicts != [Some(ResumeVerdict::Same); 2] {
                    return Err(Failure::Stale);
                }
                self.regenerated = None;
            }
        }
        if self.regenerated.is_none() {
            while let Some(frame) = self.window.next_frame() {
                self.frames.extend(frame);
            }
            let mut journal = self.journal.borrow_mut();
            journal.sent = journal.sent.max(self.window.sent());
        }
        Ok(self.frames.drain(..).collect())
    }

    /// Handles bytes that the connection has received.
    pub(super) fn receive(&mut self, bytes: &[u8]) -> Result<(), Failure> {
        self.reader.push(bytes);
        self.take().map_err(Failure::Resume)
    }

    fn take(&mut self) -> Result<(), ResumeError> {
        while let Some(frame) = self.reader.next_frame()? {
            match frame {
                ResumeFrame::Verdict(verdict) => self.received = Some(verdict),
                ResumeFrame::Data(bytes) => {
                    let mut journal = self.journal.borrow_mut();
                    journal.received.extend(bytes);
                    let ack = ResumeFrame::Ack(journal.received.len() as u64);
                    self.frames.extend(ack.to_bytes());
                }
                ResumeFrame::Ack(bytes) => self.window.acknowledge(bytes)?,
                offer @ ResumeFrame::Offer(_) => {
                    return Err(ResumeError::OutOfOrder { frame: offer.name() });
                }
            }
        }
        Ok(())
    }

    pub(super) fn is_sent(&self) -> bool {
        self.regenerated.is_none() && self.window.is_sent()
    }

    pub(super) fn is_acknowledged(&self) -> bool {
        self.window.is_acknowledged()
    }
}

async fn send_offer(
    writer: &mut (impl AsyncWrite + Unpin),
    offer: ResumeOffer,
) -> Result<(), Failure> {
    let bytes = ResumeFrame::Offer(offer).to_bytes();
    writer.write_all(&bytes).await.map_err(|_| Failure::Broken)
}

async fn receive(
    reader: &mut (impl AsyncRead + Unpin),
    frames: &mut ResumeReader,
) -> Result<ResumeOffer, Failure> {
    loop {
        match frames.next_frame().map_err(Failure::Resume)? {
            Some(ResumeFrame::Offer(offer)) => return Ok(offer),
            Some(frame) => {
                return Err(Failure::Resume(ResumeError::OutOfOrder { frame: frame.name() }));
            }
            None => {}
        }
        let mut buffer = [0; 256];
        let read = tokio::time::timeout(IDLE, reader.read(&mut buffer)).await;
        match read.map_err(|_| Failure::Silent)? {
            Ok(count @ 1..) => frames.push(&buffer[..count]),
            _ => return Err(Failure::Broken),
        }
    }
}
