//! The writing thread of a connection.

use super::{Event, Writing};
use crate::journal::JournalWriter;
use crate::traffic::Traffic;
use std::io::{self, Write};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::sync::mpsc::{Receiver, SyncSender};
use umbel_reconcile_engine::SendWindow;

/// State of the writing thread.
pub(super) struct Writes {
    writer: Box<dyn Write + Send>,
    events: SyncSender<Event>,
    traffic: Arc<Traffic>,
    outcome: io::Result<()>,
    /// What has failed, once it is reported; nothing is written any more.
    failed: Option<io::ErrorKind>,
    /// Set for a resumable session; the journal records how much was sent.
    window: Option<(SendWindow, Arc<JournalWriter>)>,
    /// What the session waits for: that the window is sent, or that it is durable.
    waits: Option<Wait>,
    /// Whether the peer will acknowledge nothing more.
    is_peer_gone: bool,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Wait {
    Sent,
    Durable,
}

impl Writes {
    pub(super) fn new(
        writer: Box<dyn Write + Send>,
        events: SyncSender<Event>,
        traffic: Arc<Traffic>,
    ) -> Self {
        Self {
            writer,
            events,
            traffic,
            outcome: Ok(()),
            failed: None,
            window: None,
            waits: None,
            is_peer_gone: false,
        }
    }

    pub(super) fn run(&mut self, orders: &Receiver<Writing>) {
        for order in orders {
            match order {
                Writing::Bytes(bytes) => match &mut self.window {
                    Some((window, _)) => window.push(&bytes),
                    None => self.write(&bytes),
                },
                Writing::Frame(frame) => {
                    let bytes = frame.to_bytes();
                    self.traffic.sent.fetch_add(bytes.len() as u64, Ordering::Relaxed);
                    self.write(&bytes);
                }
                Writing::NotifyWritten => self.waits = Some(Wait::Sent),
                Writing::NotifyDurable => self.waits = Some(Wait::Durable),
                Writing::Resume(window, journal) => self.window = Some((window, journal)),
                Writing::Acknowledged(bytes) => {
                    let acknowledged = match &mut self.window {
                        Some((window, _)) => window.acknowledge(bytes).map_err(io::Error::other),
                        None => Err(io::Error::other("an Ack frame where none is expected")),
                    };
                    self.note(acknowledged);
                }
                Writing::PeerGone => self.is_peer_gone = true,
                Writing::End => return,
            }
            self.pump();
            if !self.answer() {
                return;
            }
        }
    }

    fn note(&mut self, outcome: io::Result<()>) {
        if self.outcome.is_ok() {
            self.outcome = outcome;
        }
    }

    fn is_working(&self) -> bool {
        self.outcome.is_ok() && self.failed.is_none()
    }

    fn write(&mut self, bytes: &[u8]) {
        if self.is_working() {
            self.outcome = self.writer.write_all(bytes).and_then(|()| self.writer.flush());
            self.traffic.moved.fetch_add(bytes.len() as u64, Ordering::Relaxed);
        }
    }

    /// Sends as much as the window allows.
    fn pump(&mut self) {
        while self.is_working() {
            let Some((window, journal)) = &mut self.window else { return };
            let before = window.sent();
            let Some(frame) = window.next_frame() else { return };
            let bytes = window.sent() - before;
            let noted = journal.note_sent(window.sent());
            self.note(noted.map_err(|error| io::Error::other(format!("{error:#}"))));
            self.traffic.sent.fetch_add(frame.len() as u64 - bytes, Ordering::Relaxed);
            self.write(&frame);
        }
    }

    /// Reports a fulfilled wait, and a failure at once: what the session waits for may never come after it.
    /// Returns false if nobody receives events any more.
    fn answer(&mut self) -> bool {
        let window = self.window.as_ref().map(|(window, _)| window);
        let is_done = match self.waits {
            None if self.outcome.is_ok() => return true,
            None => true,
            Some(Wait::Sent) => window.is_none_or(SendWindow::is_sent),
            Some(Wait::Durable) => window.is_none_or(SendWindow::is_acknowledged),
        };
        if let (Some(_), Some(failed)) = (self.waits, self.failed) {
            self.note(Err(failed.into()));
        } else if !is_done && self.is_peer_gone {
            self.note(Err(io::ErrorKind::BrokenPipe.into()));
        }
        if !is_done && self.outcome.is_ok() {
            return true;
        }
        self.waits = None;
        let outcome = std::mem::replace(&mut self.outcome, Ok(()));
        self.failed = outcome.as_ref().err().map(io::Error::kind).or(self.failed);
        self.events.send(Event::Written(outcome)).is_ok()
    }
}
