//! Calls over the Redis protocol: `BF.ADD`, `BF.MADD`, `BF.EXISTS` and `BF.MEXISTS`, some of them as a pipeline of
//! one command an item. Inserts without a name are sent again only after an error that says that nothing was
//! applied, as clients of Redis do; those with a name (`UMBEL.REQUEST`) to other nodes until they are answered
//! or refused for good.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::rc::Rc;

use tokio::time::Instant;
use umbel_resp::{Reply, Request};

use self::wire::{REPLIES, RespConnection};
use super::copies::{TRY_PAUSE, TRY_TIMEOUT, pause_after, reused_text};
use super::{Clients, REQUEST_TIMEOUT, item_text};
use crate::counters;
use crate::history::Outcome;
use crate::names::resp_address_of;
use crate::plan::Op;
use crate::plan::access::ROOT;
use crate::watch;

mod races;
mod wire;

#[cfg(test)]
#[path = "resp/resp_test.rs"]
mod resp_test;

/// Codes of errors after which clients send the same command again by themselves: nothing was applied.
const AGAIN: [&str; 3] = ["TRYAGAIN ", "LOADING ", "CLUSTERDOWN "];

/// Codes of other errors that say that nothing was applied.
const REFUSED: [&str; 4] = ["OOM ", "NOAUTH ", "WRONGPASS ", "NOPERM "];

/// What is sent before and after queries of any replica: which replicas a connection reads from.
const FRAME: [&str; 2] = ["READONLY", "READWRITE"];

/// What clients of the Redis protocol keep from one call to the next.
#[derive(Default)]
pub(super) struct RespState {
    /// Connections on which no reply is awaited, by client and machine.
    idle: RefCell<BTreeMap<(u32, u32), Vec<RespConnection>>>,
    /// The session of each client that has named requests.
    sessions: RefCell<BTreeMap<u32, RespSession>>,
}

/// A session for the names of requests.
struct RespSession {
    number: u64,
    /// The last sequence number that was used.
    last: u64,
    /// Sequence numbers of requests that still wait for an answer.
    open: BTreeSet<u64>,
}

/// Names for the commands of a call, with successive sequence numbers.
#[derive(Clone, Copy)]
struct Names {
    session: u64,
    first: u64,
    /// The client has the answers of all requests with lower numbers.
    below: u64,
}

/// The commands of a call, which are sent at once, and how.
struct Batch {
    /// The words of each command, and how many items it is about.
    commands: Vec<(Vec<String>, usize)>,
    manner: Manner,
    /// Whether the client drops the connection of the first try as soon as the commands are sent.
    breaks_off: bool,
    /// Whether all tries go to one node.
    stays: bool,
}

#[derive(Clone, Copy)]
enum Manner {
    /// Queries, of any replica if so chosen.
    Queries { any: bool },
    /// Inserts without a name.
    Plain,
    /// Inserts with names.
    Named(Names),
}

/// What is known of a call so far.
struct Progress {
    /// The answers of each command that has some.
    answers: Vec<Option<Vec<bool>>>,
    /// Whether a command without an answer may have been applied.
    may_be_applied: bool,
    /// Whether the call ends without further tries.
    is_final: bool,
    /// The last error.
    text: String,
}

impl Clients {
    /// Makes one insert or query of a client that speaks the Redis protocol.
    pub(super) async fn call_resp(&self, client: u32, via: u32, op: &Op) -> Outcome {
        let (word, filter, items) = match op {
            Op::Insert { filter, items, .. } => (["BF.ADD", "BF.MADD"], filter, items),
            Op::Contains { filter, items, .. } => (["BF.EXISTS", "BF.MEXISTS"], filter, items),
            _ => unreachable!("its caller makes only these two over the Redis protocol"),
        };
        let commands = commands(word, filter, items);
        let batch = |manner, breaks_off| {
            let commands = commands.clone();
            Batch { commands, manner, breaks_off, stays: false }
        };
        match op {
            Op::Contains { any, .. } => {
                self.tried(client, via, &batch(Manner::Queries { any: *any }, false)).await
            }
            _ if items[0].is_multiple_of(3) => {
                self.tried(client, via, &batch(Manner::Plain, false)).await
            }
            _ => {
                let Some(names) = self.names(client, via, commands.len()).await else {
                    return Outcome::NotApplied("no session".to_owned());
                };
                let breaks_off = items[0] % 3 == 2;
                let outcome =
                    self.tried(client, via, &batch(Manner::Named(names), breaks_off)).await;
                self.give_up_names(client, names, commands.len(), &outcome);
                outcome
            }
        }
    }

    /// Sends `copies` copies of one named insert at the same time, each to a different node first. The connection of
    /// the first one may break at once.
    pub(super) async fn insert_copies_resp(
        self: &Rc<Self>,
        client: u32,
        via: u32,
        filter: &str,
        items: &[u32],
        copies: u32,
    ) {
        let commands = commands(["BF.ADD", "BF.MADD"], filter, items);
        let count = commands.len();
        let Some(names) = self.names(client, via, count).await else { return };
        let outcomes = self.at_once((client, filter, items), copies, |copy| {
            let batch = Batch {
                commands: commands.clone(),
                manner: Manner::Named(names),
                breaks_off: copy == 0 && items[0] % 3 == 2,
                stays: false,
            };
            let clients = Rc::clone(self);
            async move { clients.tried(client, via + copy, &batch).await }
        });
        // The names of the call are free when all copies are answered.
        let mut unanswered = outcomes.await.into_iter();
        let unanswered = unanswered.find(|outcome| !matches!(outcome, Outcome::Done(_)));
        self.give_up_names(client, names, count, &unanswered.unwrap_or(Outcome::Done(Vec::new())));
    }

    /// Names for so many requests; None if no node opens a session within `REQUEST_TIMEOUT`.
    async fn names(&self, client: u32, via: u32, count: usize) -> Option<Names> {
        let is_known = self.resp.sessions.borrow().contains_key(&client);
        if !is_known {
            let number = self.resp_session(client, via).await?;
            let session = RespSession { number, last: 0, open: BTreeSet::new() };
            // A call at the same time may have opened another one.
            self.resp.sessions.borrow_mut().entry(client).or_insert(session);
        }
        let mut sessions = self.resp.sessions.borrow_mut();
        let session = sessions.get_mut(&client)?;
        let first = session.last + 1;
        session.last += count as u64;
        session.open.extend(first..=session.last);
        let below = session.open.first().copied().unwrap_or(first);
        Some(Names { session: session.number, first, below })
    }

    /// The requests with these names are over. After one without an answer the session is not used again: the cluster
    /// may have dropped it.
    fn give_up_names(&self, client: u32, names: Names, count: usize, outcome: &Outcome) {
        let mut sessions = self.resp.sessions.borrow_mut();
        let Some(session) = sessions.get_mut(&client) else { return };
        if session.number != names.session {
            return;
        }
        if matches!(outcome, Outcome::Done(_)) {
            let end = names.first + count as u64;
            session.open.retain(|number| !(names.first..end).contains(number));
        } else {
            sessions.remove(&client);
        }
    }

    /// Asks one node after the other until one opens a session.
    async fn resp_session(&self, client: u32, via: u32) -> Option<u64> {
        let deadline = Instant::now() + REQUEST_TIMEOUT;
        let request: Request = ["UMBEL.SESSION"].iter().collect();
        for turn in 0.. {
            let requests = std::slice::from_ref(&request);
            let (replies, _) =
                self.exchange((client, self.machine(via + turn)), requests, false).await;
            if let Some(Reply::Integer(number)) = replies.first() {
                return u64::try_from(*number).ok();
            }
            if Instant::now() > deadline {
                break;
            }
            tokio::time::sleep(TRY_PAUSE).await;
        }
        None
    }

    /// Sends the commands of a call to one node after the other, or again and again to one, until all are answered, one is
    /// refused, an unnamed one may have been applied, or `REQUEST_TIMEOUT` is over.
    async fn tried(&self, client: u32, via: u32, batch: &Batch) -> Outcome {
        let deadline = Instant::now() + REQUEST_TIMEOUT;
        let mut progress = Progress::of(batch);
        let mut turn = 0;
        loop {
            let waiting = progress.waiting();
            let requests: Vec<Request> = batch.requests(&waiting);
            let breaks_off = batch.breaks_off && turn == 0;
            let place = (client, self.machine(if batch.stays { via } else { via + turn }));
            let (replies, was_sent) = self.exchange(place, &requests, breaks_off).await;
            let expected = requests.len();
            if let Some(reused) = progress.take(batch, &waiting, replies, (expected, was_sent)) {
                return Outcome::Reused(reused);
            }
            let is_over = progress.is_final || Instant::now() > deadline;
            if is_over || progress.waiting().is_empty() {
                break;
            }
            tokio::time::sleep(pause_after(turn)).await;
            turn += 1;
        }
        let outcome = progress.outcome(batch.manner);
        if matches!(outcome, Outcome::Done(_)) {
            count_states(batch.manner, turn > 0);
        }
        outcome
    }

    /// Sends requests to a client's connection with a machine, and returns the replies, fewer if the connection broke
    /// or `TRY_TIMEOUT` was over, and whether anything was sent.
    async fn exchange(
        &self,
        (client, machine): (u32, u32),
        requests: &[Request],
        breaks_off: bool,
    ) -> (Vec<Reply>, bool) {
        let (mut replies, mut was_sent) = (Vec::new(), false);
        let exchanging = async {
            let idle = self.resp.idle.borrow_mut().get_mut(&(client, machine)).and_then(Vec::pop);
            let mut connection = match idle {
                Some(connection) => connection,
                None => {
                    let token = self.token.as_ref().map(|_| ROOT);
                    let address = resp_address_of(machine);
                    RespConnection::open(&self.net, &address, client % 2 == 1, token).await?
                }
            };
            was_sent = true;
            connection.send(requests).await?;
            if breaks_off {
                counters::state("resp_broken_off");
                return Ok(());
            }
            while replies.len() < requests.len() {
                replies.push(connection.reply().await?);
            }
            if is_reusable(&connection, requests, &replies) {
                let mut idle = self.resp.idle.borrow_mut();
                idle.entry((client, machine)).or_default().push(connection);
            }
            Ok::<_, io::Error>(())
        };
        // Replies are missing if this failed.
        let _ = tokio::time::timeout(TRY_TIMEOUT, exchanging).await;
        (replies, was_sent)
    }
}

/// Counts the states that a call with an answer has reached.
fn count_states(manner: Manner, was_sent_again: bool) {
    counters::state("resp_answered");
    match manner {
        Manner::Queries { any: true } => counters::state("resp_any_replica"),
        Manner::Named(_) if was_sent_again => counters::state("resp_named_retried"),
        _ => {}
    }
}

/// Checks what a connection has brought beside the answers for items: that no more came than was asked for, and
/// what answers `READONLY` and `READWRITE`. Returns whether further calls may use the connection.
fn is_reusable(connection: &RespConnection, requests: &[Request], replies: &[Reply]) -> bool {
    let surplus = connection.unread();
    if !surplus.is_empty() {
        let what = format!("{:?} answers no request", String::from_utf8_lossy(surplus));
        watch::violated(REPLIES, what);
    }
    let is_framed = frames_answered(requests, replies).unwrap_or_else(|what| {
        watch::violated(REPLIES, what);
        false
    });
    is_framed && surplus.is_empty()
}

/// Whether `READONLY` and `READWRITE` were answered with `OK` where they were sent. If not, the connection may still
/// read from any replica.
///
/// # Errors
/// If one of them has another answer, but not an error after which clients send it again.
fn frames_answered(requests: &[Request], replies: &[Reply]) -> Result<bool, String> {
    let mut is_done = true;
    for (request, reply) in requests.iter().zip(replies) {
        let word = FRAME.iter().find(|word| request.iter().eq([word.as_bytes()]));
        let Some(word) = word.filter(|_| *reply != Reply::OK) else { continue };
        let is_again = |text: &str| AGAIN.iter().any(|code| text.starts_with(code));
        if !matches!(reply, Reply::Error(text) if is_again(text)) {
            return Err(format!("{reply:?} answers {word}"));
        }
        is_done = false;
    }
    Ok(is_done)
}

/// The commands for items: one of the second word for all of them, or one of the first word for each.
fn commands([one, several]: [&str; 2], filter: &str, items: &[u32]) -> Vec<(Vec<String>, usize)> {
    let of = |word: &str, items: &[u32]| {
        let head = [word.to_owned(), filter.to_owned()];
        let words = head.into_iter().chain(items.iter().map(|&item| item_text(item)));
        (words.collect(), items.len())
    };
    match items {
        // Half of the calls of several items are pipelines.
        [_, .., last] if last % 2 == 0 => vec![of(several, items)],
        _ => items.chunks(1).map(|item| of(one, item)).collect(),
    }
}

impl Batch {
    /// The requests for the commands with these indexes, as they are sent.
    fn requests(&self, waiting: &[usize]) -> Vec<Request> {
        let is_any = matches!(self.manner, Manner::Queries { any: true });
        let [before, after] = FRAME.map(|word| is_any.then(|| [word].iter().collect::<Request>()));
        let commands = waiting.iter().map(|&index| {
            let (words, _) = &self.commands[index];
            let name = match self.manner {
                Manner::Named(Names { session, first, below }) => vec![
                    "UMBEL.REQUEST".to_owned(),
                    format!("{session}:{}", first + index as u64),
                    "BELOW".to_owned(),
                    below.to_string(),
                ],
                _ => Vec::new(),
            };
            name.iter().chain(words).collect()
        });
        before.into_iter().chain(commands).chain(after).collect()
    }

    /// The error text with which a shard refuses a command whose name another request has used.
    fn reused_text(&self, index: usize) -> Option<String> {
        let Manner::Named(Names { session, first, .. }) = self.manner else { return None };
        Some(reused_text(session, first + index as u64))
    }
}

impl Progress {
    /// Of a call that has not been sent yet.
    fn of(batch: &Batch) -> Self {
        Self {
            answers: vec![None; batch.commands.len()],
            may_be_applied: false,
            is_final: false,
            text: String::new(),
        }
    }

    /// The indexes of the commands that have no answer yet.
    fn waiting(&self) -> Vec<usize> {
        let all = self.answers.iter().enumerate();
        all.filter(|(_, answer)| answer.is_none()).map(|(index, _)| index).collect()
    }

    /// Takes the replies to the commands that waited. Some with the error if a command was taken for another request.
    fn take(
        &mut self,
        batch: &Batch,
        waiting: &[usize],
        replies: Vec<Reply>,
        (expected, was_sent): (usize, bool),
    ) -> Option<String> {
        let is_framed = expected > waiting.len();
        if replies.len() < expected {
            self.text = if was_sent { "no answer" } else { "no connection" }.to_owned();
            self.may_be_applied |= was_sent;
            self.is_final |= was_sent && matches!(batch.manner, Manner::Plain);
        }
        let of_commands = replies.into_iter().skip(usize::from(is_framed));
        for (&index, reply) in waiting.iter().zip(of_commands) {
            let (_, item_count) = batch.commands[index];
            match (bits_of(&reply, item_count), reply) {
                (Some(bits), _) => self.answers[index] = Some(bits),
                (None, Reply::Error(text)) => {
                    let reused = batch.reused_text(index);
                    if reused.is_some_and(|reused| text.contains(&reused)) {
                        return Some(text.into_owned());
                    }
                    self.refused(&text, batch.manner);
                }
                (None, Reply::Array(list)) if list.iter().any(is_error) => {
                    // The last element: the filter is full, or items before had answers.
                    self.refused(&format!("{list:?}"), batch.manner);
                }
                (None, other) => {
                    let what = format!("{other:?} answers for {item_count} items");
                    self.refused(&what, batch.manner);
                    watch::violated(REPLIES, what);
                }
            }
        }
        None
    }

    /// A command got an error.
    fn refused(&mut self, text: &str, manner: Manner) {
        text.clone_into(&mut self.text);
        let has_code = |codes: &[&str]| codes.iter().any(|code| text.starts_with(code));
        let is_uncertain = text.starts_with("UNCERTAIN ");
        self.may_be_applied |= !has_code(&AGAIN) && !has_code(&REFUSED);
        let is_retried = has_code(&AGAIN) || is_uncertain && !matches!(manner, Manner::Plain);
        self.is_final |= !is_retried;
    }

    fn outcome(self, manner: Manner) -> Outcome {
        let is_answered = |answer: &Option<Vec<bool>>| answer.is_some();
        if self.answers.iter().all(is_answered) {
            return Outcome::Done(self.answers.into_iter().flatten().flatten().collect());
        }
        let is_touched = self.may_be_applied || self.answers.iter().any(is_answered);
        if is_touched && !matches!(manner, Manner::Queries { .. }) {
            Outcome::Unknown(self.text)
        } else {
            Outcome::NotApplied(self.text)
        }
    }
}

const fn is_error(reply: &Reply) -> bool {
    matches!(reply, Reply::Error(_))
}

/// The answers for so many items; None if the reply is no such list.
fn bits_of(reply: &Reply, item_count: usize) -> Option<Vec<bool>> {
    let bit = |reply: &Reply| match reply {
        Reply::Integer(0) | Reply::Boolean(false) => Some(false),
        Reply::Integer(1) | Reply::Boolean(true) => Some(true),
        _ => None,
    };
    match reply {
        Reply::Array(list) if list.len() == item_count => list.iter().map(bit).collect(),
        single if item_count == 1 => bit(single).map(|bit| vec![bit]),
        _ => None,
    }
}
