//! Carries out the commands of a connection in order; adjacent ones about items of one filter go to the
//! cluster together.
//!
//! The answers are the same as one by one: a batch is applied in its order, and of two equal items the
//! second is present. A batch is refused as a whole if there is no room for one of its items, so commands that
//! insert into a filter of a kind that is full at some point are sent one by one, or in batches that have room.

use std::collections::BTreeSet;

use futures_util::future::join_all;
use umbel_engine::limits::REQUEST_ITEMS_MAX;
use umbel_engine::meta::MetaState;
use umbel_engine::shard::SliceShape;
use umbel_filter::Kind;
use umbel_resp::table::CommandSpec;
use umbel_resp::{
    Arguments, Command, InsertItems, Items, NewBloom, Refusal, Reply, Request, RequestName,
    Transaction, encode_array_head, table,
};

use super::answers::refusal;
use super::filters::{self, ItemAnswers};
use super::packed::Packed;
use super::session::{Executing, Queue, Session, name_of, outcome_of};
use super::{chain_debug, cluster, cuckoo, dumps, expiry, keys, payloads, server, umbel};
use crate::audit::line_about;

/// Names of commands that browsers send when a page makes them connect to this port. Such connections are
/// closed.
const BROWSER_WORDS: [&[u8]; 2] = [b"post", b"host:"];

/// Bytes of items that are joined, beyond those of the first command: what one read brings, and more if a
/// node is slow.
const JOINED_BYTES_MAX: usize = 1 << 20;

/// Commands of one connection that go to the cluster one by one and are in flight at once, as the items of
/// `CF.INSERT` are.
const COMMANDS_AT_ONCE: usize = 64;

/// Commands that a transaction carries out at once instead of queueing them.
const RUN_AT_ONCE: [&str; 6] = ["multi", "exec", "discard", "watch", "quit", "reset"];

/// Carries out the first of these commands, and some that follow it; returns how many. A transaction to
/// execute is left in the session.
pub(super) async fn run_some(
    session: &mut Session,
    requests: &[Request],
    out: &mut Vec<u8>,
) -> usize {
    let Some(request) = requests.first() else { return 0 };
    session.note_command(request);
    let begin = out.len();
    // Answers that are not sent are counted one by one, so their commands are not joined.
    let joined = if session.replies_to_all() { requests } else { std::slice::from_ref(request) };
    let group = session.queue.is_none().then(|| Group::of(session, joined)).flatten();
    let count = match group {
        Some(group) => group.run(session, out).await,
        None => {
            run_one(session, request, out).await;
            1
        }
    };
    session.drop_unwanted_answer(begin, out);
    count
}

/// What a group does with its items.
#[derive(Clone, Copy, PartialEq, Debug)]
enum ItemVerb {
    Insert(Option<NewBloom>, Option<RequestName>),
    Contains,
}

/// Adjacent commands about items of one filter.
struct Group<'a> {
    key: &'a [u8],
    verb: ItemVerb,
    members: Vec<CommandItems<'a>>,
}

/// The items of a command, or why it is refused.
type CommandItems<'a> = Result<Items<'a>, Refusal>;

/// How adjacent commands go to the cluster.
#[derive(Clone, Copy)]
enum GroupManner {
    /// As one batch.
    Joined,
    /// As one batch until an item finds no room, and those behind its command again so: a chain that does not grow
    /// has room for the first ones, in order.
    Fitting,
    /// One by one, because the filter may have no room for some of them.
    Apart,
    /// This node knows no such filter.
    Unknown,
}

/// The items of a command, and what it does with them; None if it is not about items.
fn about_items(request: &Request) -> Option<(&'static CommandSpec, ItemVerb, Items<'_>)> {
    let arguments = Arguments::new(request);
    let spec = table::find(arguments).ok()?;
    let (verb, items) = verb_of(&spec.parse(arguments).ok()?)?;
    Some((spec, verb, items))
}

fn verb_of<'a>(command: &Command<'a>) -> Option<(ItemVerb, Items<'a>)> {
    match *command {
        Command::Insert(InsertItems { items, new, request }) => {
            Some((ItemVerb::Insert(new, request), items))
        }
        Command::Contains(items) => Some((ItemVerb::Contains, items)),
        _ => None,
    }
}

impl<'a> Group<'a> {
    /// The first command and those adjacent to it; None if the first is not about items, or the caller
    /// may not send it. A refused command is carried out, and answered, alone.
    fn of(session: &Session, requests: &'a [Request]) -> Option<Self> {
        let (first, behind) = requests.split_first()?;
        let (spec, verb, items) = about_items(first)?;
        session.permit(spec).ok()?;
        let charge = |spec, request, items| {
            session.admit(spec).and_then(|()| charged(session, request, items))
        };
        let mut group = Self { key: items.key, verb, members: vec![charge(spec, first, items)] };
        let is_alone = matches!(verb, ItemVerb::Insert(_, Some(_)));
        let (mut item_count, mut byte_count) = (items.items.len(), 0);
        for request in behind.iter().take_while(|_| !is_alone) {
            let Some((spec, other, items)) = about_items(request) else { break };
            item_count += items.items.len();
            byte_count += request.byte_count();
            if other != verb
                || items.key != group.key
                || item_count > REQUEST_ITEMS_MAX
                || byte_count > JOINED_BYTES_MAX
                || session.permit(spec).is_err()
            {
                break;
            }
            group.members.push(charge(spec, request, items));
        }
        Some(group)
    }

    /// A single command that has been admitted.
    fn alone(session: &Session, request: &Request, verb: ItemVerb, items: Items<'a>) -> Self {
        Self { key: items.key, verb, members: vec![charged(session, request, items)] }
    }

    async fn run(self, session: &Session, out: &mut Vec<u8>) -> usize {
        let mut left = &self.members[..];
        while !left.is_empty() {
            let manner = if left.len() > 1 { self.manner(session) } else { GroupManner::Joined };
            let count = match manner {
                GroupManner::Joined => left.len(),
                GroupManner::Fitting => left.len().min(COMMANDS_AT_ONCE),
                GroupManner::Apart => distinct_count(left),
                // The first of them may create the filter.
                GroupManner::Unknown if left.len() == self.members.len() => 1,
                GroupManner::Unknown => left.len(),
            };
            let some = &left[..count];
            let answered_count = match manner {
                GroupManner::Apart => self.run_apart(session, some, out).await,
                GroupManner::Fitting => self.run_joined(session, some, true, out).await,
                GroupManner::Joined | GroupManner::Unknown => {
                    self.run_joined(session, some, false, out).await
                }
            };
            left = &left[answered_count..];
        }
        self.members.len()
    }

    fn manner(&self, session: &Session) -> GroupManner {
        match self.verb {
            ItemVerb::Contains => GroupManner::Joined,
            ItemVerb::Insert(..) => manner_of_inserts(session, self.key),
        }
    }

    /// Carries out commands as one batch, and returns how many were answered: all, or with `ends_when_full` those up to
    /// the first one that found no room.
    async fn run_joined(
        &self,
        session: &Session,
        some: &[CommandItems<'a>],
        ends_when_full: bool,
        out: &mut Vec<u8>,
    ) -> usize {
        let mut packed = Packed::default();
        for items in some.iter().flatten() {
            items.items.pack(&mut packed.data, &mut packed.lengths);
        }
        let answered = self.call(session, packed).await;
        let ends_early = ends_when_full && answered.refusal == Some(Refusal::Full);
        let mut at = 0;
        for (count, member) in (1..).zip(some) {
            match member {
                Ok(items) => {
                    let end = at + items.items.len();
                    answered.encode(session, at..end, items.form, out);
                    if ends_early && end > answered.bits.len() {
                        return count;
                    }
                    at = end;
                }
                Err(refusal) => session.answer(refusal.clone(), out),
            }
        }
        some.len()
    }

    /// Sends each command alone, all at once: those for which there is room are not refused with the others. Returns
    /// how many there are.
    async fn run_apart(
        &self,
        session: &Session,
        some: &[CommandItems<'a>],
        out: &mut Vec<u8>,
    ) -> usize {
        let each = some.iter().map(|member| async move {
            let items = member.as_ref().map_err(Refusal::clone)?;
            let mut packed = Packed::default();
            items.items.pack(&mut packed.data, &mut packed.lengths);
            Ok::<_, Refusal>((items, self.call(session, packed).await))
        });
        for answered in join_all(each).await {
            match answered {
                Ok((items, answered)) => {
                    answered.encode(session, 0..items.items.len(), items.form, out);
                }
                Err(refusal) => session.answer(refusal, out),
            }
        }
        some.len()
    }

    async fn call(&self, session: &Session, packed: Packed) -> ItemAnswers {
        match self.verb {
            ItemVerb::Insert(new, request) => {
                filters::insert(session, self.key, new, packed, request).await
            }
            ItemVerb::Contains => filters::contains(session, self.key, packed).await,
        }
    }
}

/// How adjacent inserts go to a filter: a shard may have no room for some items of a batch, and then refuses others
/// with them. Growing filters count as having room: only at their largest size, or a quota, they have none.
fn manner_of_inserts(session: &Session, key: &[u8]) -> GroupManner {
    let Some(name) = name_of(session.database, key) else { return GroupManner::Unknown };
    let look = |state: &MetaState| {
        let (_, record) = state.filter_by_name(&name)?;
        Some(match record.settings.shape {
            SliceShape::RedisBloom { is_fixed: true, .. } => GroupManner::Fitting,
            // Replicated windows are bits.
            SliceShape::RedisBloom { .. } | SliceShape::Ring { .. } => GroupManner::Joined,
            _ => match Kind::from_id(record.settings.kind) {
                Some(kind) if kind.has_fingerprints() => GroupManner::Apart,
                _ => GroupManner::Joined,
            },
        })
    };
    session.shared.coordinator.read_meta(look).ok().flatten().unwrap_or(GroupManner::Unknown)
}

/// How many of the first commands may be in flight at once: of two equal items the second is present, so it waits
/// for the first.
fn distinct_count(members: &[CommandItems<'_>]) -> usize {
    let mut seen = BTreeSet::new();
    let of_others = members.iter().take(COMMANDS_AT_ONCE).take_while(|member| {
        let Ok(items) = member else { return true };
        // Equal items of one command are no matter.
        let own: BTreeSet<&[u8]> = items.items.iter().collect();
        let is_distinct = own.is_disjoint(&seen);
        seen.extend(own);
        is_distinct
    });
    of_others.count()
}

/// Takes the items from the caller's rates, and returns them.
fn charged<'a>(
    session: &Session,
    request: &Request,
    items: Items<'a>,
) -> Result<Items<'a>, Refusal> {
    let amounts = [0, items.items.len() as u64, request.byte_count() as u64];
    session.caller.take(amounts).map(|()| items).map_err(|failure| refusal(&failure))
}

/// What a refused command does to a transaction: it is broken, and if the command was `EXEC`, it is over. A client
/// whose `EXEC` failed gives the connection to somebody else, whose commands must not be queued.
fn refused_in_transaction(
    session: &mut Session,
    arguments: Arguments<'_>,
    refusal: Refusal,
) -> Refusal {
    let is_exec = arguments.get(0).is_some_and(|name| name.eq_ignore_ascii_case(b"exec"));
    match &mut session.queue {
        // Without a transaction, too, as in Redis.
        _ if is_exec => {
            session.queue = None;
            let text = refusal.to_string();
            let why = text.strip_prefix("ERR ").unwrap_or(&text).to_owned();
            Refusal::ExecRefused { why }
        }
        Some(queue) => {
            queue.is_broken = true;
            refusal
        }
        None => refusal,
    }
}

/// Carries out one command, or queues it.
async fn run_one(session: &mut Session, request: &Request, out: &mut Vec<u8>) {
    let arguments = Arguments::new(request);
    let found = table::find(arguments);
    if matches!(found, Err(Refusal::UnknownCommand { .. }))
        && BROWSER_WORDS
            .iter()
            .any(|word| arguments.get(0).is_some_and(|n| n.eq_ignore_ascii_case(word)))
    {
        let lines = &session.caller.stranger_log().browsers;
        if let Some(left_out) = line_about(&session.caller, lines) {
            let (from, left_out) = (session.client.from.as_str(), left_out.count());
            tracing::warn!(from, left_out, "a browser was made to speak to this port");
        }
        session.is_ending = true;
        return;
    }
    // A queued command is taken from the rates when it is carried out.
    let is_queued =
        |spec: &CommandSpec| session.queue.is_some() && !RUN_AT_ONCE.contains(&spec.name);
    let admitted = found.and_then(|spec| {
        let is_admitted =
            if is_queued(spec) { session.check(spec).map(drop) } else { session.admit(spec) };
        is_admitted.map(|()| (spec, is_queued(spec)))
    });
    let (spec, is_queued) = match admitted {
        Ok(admitted) => admitted,
        Err(refusal) => {
            let refusal = refused_in_transaction(session, arguments, refusal);
            return session.answer(refusal, out);
        }
    };
    if let Some(queue) = session.queue.as_mut().filter(|_| is_queued) {
        let queued = queue.push(request);
        queue.is_broken |= queued.is_err();
        return match queued {
            Ok(()) => session.answer(Reply::Status("QUEUED".into()), out),
            Err(refusal) => session.answer(refusal, out),
        };
    }
    let line = session.audit_line(spec);
    let Some(answer) = carry_out(session, spec, request, out).await else { return };
    if let Some(line) = line {
        line.answered(outcome_of(&answer));
    }
    match answer {
        Ok(reply) => session.answer(reply, out),
        Err(refusal) => session.answer(refusal, out),
    }
}

/// Carries out one command; None if it has been answered.
async fn carry_out(
    session: &mut Session,
    spec: &'static CommandSpec,
    request: &Request,
    out: &mut Vec<u8>,
) -> Option<Result<Reply, Refusal>> {
    Some(match spec.parse(Arguments::new(request)) {
        Err(refusal) => Err(refusal),
        Ok(Command::Transaction(transaction)) => {
            run_transaction(session, transaction, out);
            return None;
        }
        Ok(command @ (Command::Insert(_) | Command::Contains(_))) => {
            if let Some((verb, items)) = verb_of(&command) {
                Group::alone(session, request, verb, items).run(session, out).await;
            }
            return None;
        }
        Ok(Command::Cuckoo(command)) => {
            let items = cuckoo::items_of(&command);
            match items.map_or(Ok(()), |items| charged(session, request, items).map(drop)) {
                Ok(()) => Box::pin(cuckoo::answer(session, command)).await,
                Err(refusal) => Err(refusal),
            }
        }
        Ok(Command::Umbel(command)) => {
            let items = umbel::items_of(&command);
            match items.map_or(Ok(()), |items| charged(session, request, items).map(drop)) {
                Ok(()) => Box::pin(umbel::answer(session, command)).await,
                Err(refusal) => Err(refusal),
            }
        }
        // Boxed, as the two above: the task of every connection would reserve room for the largest of them.
        Ok(command) => Box::pin(answer(session, command)).await,
    })
}

async fn answer(session: &mut Session, command: Command<'_>) -> Result<Reply, Refusal> {
    match command {
        Command::Reserve { key, new } => filters::reserve(session, key, new).await,
        Command::Cardinality { key } => filters::cardinality(session, key).await,
        Command::BloomInfo { key, field } => filters::bloom_info(session, key, field).await,
        Command::BloomDebug { key } => chain_debug::answer(session, key).await,
        Command::Session => filters::open_session(session).await,
        Command::Dump(command) => dumps::answer(session, command).await,
        Command::Payload(command) => payloads::answer(session, command).await,
        Command::Keys(command) => keys::answer(session, command).await,
        Command::Expiry(command) => expiry::answer(session, command).await,
        Command::Connection(command) => server::answer(session, command).await,
        Command::Commands(query) => Ok(query.answer()),
        Command::Cluster(query) => cluster::answer(session, query).await,
        Command::Insert(_)
        | Command::Contains(_)
        | Command::Cuckoo(_)
        | Command::Umbel(_)
        | Command::Transaction(_) => {
            unreachable!("these have been carried out")
        }
    }
}

fn run_transaction(session: &mut Session, transaction: Transaction, out: &mut Vec<u8>) {
    let reply = match (transaction, session.queue.take()) {
        (Transaction::Begin, None) => {
            session.queue = Some(Queue::default());
            Reply::OK
        }
        (Transaction::Begin, queue) => {
            session.queue = queue;
            Refusal::NestedMulti.into()
        }
        (Transaction::Discard, Some(_)) => Reply::OK,
        (Transaction::Discard, None) => Refusal::DiscardWithoutMulti.into(),
        (Transaction::Execute, None) => Refusal::ExecWithoutMulti.into(),
        (Transaction::Execute, Some(queue)) if queue.is_broken => Refusal::ExecAbort.into(),
        (Transaction::Execute, Some(queue)) if session.shared.is_strict && !queue.is_isolated() => {
            let why = "other clients' commands could come between, and resp_multi is strict: send the commands \
                       without MULTI"
                .to_owned();
            Refusal::ExecRefused { why }.into()
        }
        (Transaction::Execute, Some(queue)) => {
            encode_array_head(queue.requests.len(), out);
            // Whether the client wants the array decides for all of its elements.
            let is_wanted = session.replies_to_all();
            session.executing = Some(Executing { requests: queue.requests, is_wanted });
            return;
        }
    };
    session.answer(reply, out);
}
