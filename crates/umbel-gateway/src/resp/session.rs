//! The session of one connection of the Redis protocol: its caller, and what it has chosen.

use std::sync::Arc;

use tokio::sync::OwnedSemaphorePermit;
use tokio::time::Instant;
use umbel_coordinator::CaughtUp;
use umbel_engine::meta::{FilterName, FilterVerb, MetaState, PrincipalName};
use umbel_node::failure::CallFailure;
use umbel_ports::PeerIdentity;
use umbel_resp::table::{self, CommandSpec};
use umbel_resp::{
    Arguments, Credentials, Protocol, ProtocolError, Refusal, Reply, ReplyMode, Request,
};

use super::answers::refusal;
use super::needs::{need_of, second_need_of};
use super::shared::{Client, Shared};
use super::waiting::Waiting;
use crate::audit::{self, AuditLine, Called, Outcome};
use crate::caller::{Caller, Need};
use crate::credential::Credential;
use crate::limits::{
    RESP_TRANSACTION_BYTES_MAX, RESP_TRANSACTION_COMMANDS_MAX, RESP_WRONG_PASSWORDS_MAX,
};

/// The user of clients that name none.
pub(super) const DEFAULT_USER: &str = "default";

/// A connection's state.
pub(super) struct Session {
    pub(super) shared: Arc<Shared>,
    pub(super) client: Arc<Client>,
    identity: PeerIdentity,
    /// Name and password that the client has presented.
    shown: Option<(Option<String>, String)>,
    /// Wrong passwords that the client has presented.
    wrong_password_count: u32,
    /// The caller as last identified.
    pub(super) caller: Caller,
    pub(super) protocol: Protocol,
    pub(super) database: u8,
    /// Whether reads take what is final from any replica.
    pub(super) reads_anywhere: bool,
    /// Commands that wait for `EXEC`.
    pub(super) queue: Option<Queue>,
    /// Commands whose `EXEC` has come; they are carried out before anything else.
    pub(super) executing: Option<Executing>,
    replies: Replies,
    /// The connection ends: nothing more is read from it.
    pub(super) is_ending: bool,
    /// Permit for a payload, until that has been sent.
    pub(super) payload: Option<OwnedSemaphorePermit>,
    /// Whether a command waits for those of others.
    pub(super) waiting: Arc<Waiting>,
}

/// Commands of a transaction.
#[derive(Default)]
pub(super) struct Queue {
    pub(super) requests: Vec<Request>,
    /// Bytes of memory that they take.
    pub(super) byte_count: usize,
    /// A command could not be queued.
    pub(super) is_broken: bool,
}

/// Commands of a transaction to carry out.
pub(super) struct Executing {
    pub(super) requests: Vec<Request>,
    /// Whether the client wants the array of answers.
    pub(super) is_wanted: bool,
}

impl Queue {
    /// Queues one more command.
    pub(super) fn push(&mut self, request: &Request) -> Result<(), Refusal> {
        let byte_count = self.byte_count + request.held_bytes();
        if self.requests.len() >= RESP_TRANSACTION_COMMANDS_MAX
            || byte_count > RESP_TRANSACTION_BYTES_MAX
        {
            let (commands, bytes) = (RESP_TRANSACTION_COMMANDS_MAX, RESP_TRANSACTION_BYTES_MAX);
            return Err(Refusal::TransactionTooLarge { commands, bytes });
        }
        self.byte_count = byte_count;
        self.requests.push(request.clone());
        Ok(())
    }

    /// Whether nothing of other clients can come between the commands: at most one of them concerns more than the
    /// connection.
    pub(super) fn is_isolated(&self) -> bool {
        let is_of_connection = |request: &&Request| {
            table::find(Arguments::new(request)).is_ok_and(|spec| {
                matches!(spec.docs.group, "connection" | "transactions")
                    // Commands of clients in cluster mode: what they change is the connection, too.
                    || matches!(spec.name, "readonly" | "readwrite" | "asking")
            })
        };
        let own_count = self.requests.iter().filter(is_of_connection).count();
        self.requests.len() - own_count <= 1
    }
}

/// Why a key names no filter.
pub(super) enum NoFilter {
    /// No filter can have this name.
    NoName,
    /// The caller lacks the right.
    Denied,
}

impl From<NoFilter> for Refusal {
    fn from(why: NoFilter) -> Self {
        match why {
            NoFilter::NoName => Self::Other(
                "ERR a filter's name has 1 to 1024 bytes of UTF-8 without control characters"
                    .into(),
            ),
            NoFilter::Denied => Self::NoKeyPermission,
        }
    }
}

impl Session {
    pub(super) async fn new(
        shared: Arc<Shared>,
        client: Arc<Client>,
        identity: PeerIdentity,
    ) -> Self {
        let caller = look(&shared, &client, &identity, None).await;
        Self {
            shared,
            client,
            identity,
            shown: None,
            wrong_password_count: 0,
            caller,
            protocol: Protocol::default(),
            database: 0,
            reads_anywhere: false,
            queue: None,
            executing: None,
            replies: Replies::On,
            is_ending: false,
            payload: None,
            waiting: Arc::default(),
        }
    }

    /// Identifies the caller again: principals are added and revoked.
    pub(super) async fn look_again(&mut self) {
        self.caller = look(&self.shared, &self.client, &self.identity, self.shown.as_ref()).await;
    }

    /// Whether the caller has proved its identity, or need not.
    pub(super) fn is_known(&self) -> bool {
        self.caller.is_somebody()
    }

    /// The user's name, as clients know it.
    pub(super) fn user(&self) -> String {
        let name = self.caller.principal_name();
        name.map_or_else(|| DEFAULT_USER.to_owned(), |name| name.as_str().to_owned())
    }

    /// Refuses every caller while this node does not know who may do what: the client tries again.
    fn check_known_callers(&self, need: Need) -> Result<(), Refusal> {
        if self.caller.is_unknown() {
            Err(Refusal::Other(format!("LOADING {}", self.caller.refusal(need)).into()))
        } else {
            Ok(())
        }
    }

    /// Refuses `HELLO` of a caller that has not proved its identity.
    pub(super) fn check_greeting(&self) -> Result<(), Refusal> {
        self.check_known_callers(Need::Somebody)?;
        if self.is_known() {
            return Ok(());
        }
        let refusal = Refusal::HelloNoAuth;
        audit::denied(&self.caller, None, &refusal.to_string());
        Err(refusal)
    }

    /// The answer to bytes that are no request. Those that are too many for a stranger may not be too many for this
    /// caller, if this node does not know who may do what.
    pub(super) fn no_request(&self, error: ProtocolError) -> Refusal {
        let is_of_strangers =
            matches!(error, ProtocolError::StrangerCount | ProtocolError::StrangerLength);
        match self.check_known_callers(Need::Somebody) {
            Err(loading) if is_of_strangers => loading,
            _ => Refusal::Other(format!("ERR {error}").into()),
        }
    }

    /// Whether the caller may send a command, whatever filter it is about; returns what the command requires.
    pub(super) fn permit(&self, spec: &'static CommandSpec) -> Result<Need, Refusal> {
        let need = need_of(spec.name);
        if need == Need::Nothing {
            return Ok(need);
        }
        self.check_known_callers(need)?;
        if !self.caller.is_somebody() {
            return Err(Refusal::NoAuth);
        }
        let may = |need| self.caller.may(need);
        if !may(need) || !second_need_of(spec.name).is_none_or(may) {
            return Err(Refusal::NoPermission { user: self.user(), command: spec.name });
        }
        Ok(need)
    }

    /// The same for a command that is answered now: a denial is written to the audit log.
    pub(super) fn check(&self, spec: &'static CommandSpec) -> Result<Need, Refusal> {
        self.permit(spec).inspect_err(|refusal| {
            if matches!(refusal, Refusal::NoPermission { .. } | Refusal::NoAuth) {
                audit::denied(&self.caller, None, &refusal.to_string());
            }
        })
    }

    /// The same for a command that is carried out: takes it from the caller's rates.
    pub(super) fn admit(&self, spec: &'static CommandSpec) -> Result<(), Refusal> {
        let need = self.check(spec)?;
        // Whoever leaves, or gives up what it has proved, is let do so.
        if need == Need::Nothing && !matches!(spec.name, "auth" | "hello") {
            return Ok(());
        }
        self.caller.take([1, 0, 0]).map_err(|failure| refusal(&failure))
    }

    /// Begins the line of the audit log about a command that is carried out; None if the command is not audited.
    pub(super) fn audit_line(&self, spec: &CommandSpec) -> Option<AuditLine> {
        matches!(need_of(spec.name), Need::Cluster(_)).then(|| AuditLine::begin(&self.caller))
    }

    /// Notes for the audit log which command comes next.
    pub(super) fn note_command(&mut self, request: &Request) {
        let spec = table::find(Arguments::new(request)).ok();
        self.caller.call_next(spec.map(|spec| Called::Command(spec.name)));
    }

    /// The filter that a key names, if the caller has the verb on it.
    pub(super) fn filter(&self, verb: FilterVerb, key: &[u8]) -> Result<FilterName, NoFilter> {
        self.filter_of(self.database, verb, key)
    }

    /// The same in the given database.
    pub(super) fn filter_of(
        &self,
        database: u8,
        verb: FilterVerb,
        key: &[u8],
    ) -> Result<FilterName, NoFilter> {
        let name = name_of(database, key).ok_or(NoFilter::NoName)?;
        self.caller.filter(verb, "key", name).map_err(|failure| match failure {
            CallFailure::Invalid { .. } => NoFilter::NoName,
            _ => NoFilter::Denied,
        })
    }

    /// The key of a filter in the connection's database; None if it is in another one.
    pub(super) fn key_of<'a>(&self, filter: &'a str) -> Option<&'a str> {
        match self.database {
            0 => (database_of(filter) == 0).then_some(filter),
            number => filter.strip_prefix(&prefix(number)),
        }
    }

    /// Waits until the other nodes' copies are as the catalogue requires, if a filter that was changed has copies: a node
    /// whose catalogue is behind answers as before the change. Nodes that do not confirm it soon cannot be named in a
    /// reply.
    pub(super) async fn confirm(
        &self,
        has_copies: bool,
        deadline: Instant,
    ) -> Result<(), CallFailure> {
        let copies = self.shared.coordinator.copies();
        copies.unconfirmed_soon(has_copies, deadline).await.map(drop)
    }

    /// `AUTH`, also as part of `HELLO`. After some wrong passwords, the connection ends.
    pub(super) async fn authenticate(
        &mut self,
        credentials: Credentials<'_>,
    ) -> Result<(), Refusal> {
        let proved = self.prove(credentials).await;
        if proved == Err(Refusal::WrongPassword) {
            self.wrong_password_count += 1;
            self.is_ending |= self.wrong_password_count >= RESP_WRONG_PASSWORDS_MAX;
            // Only a name that the client has called one: a part of a password may look like one, too.
            let user = credentials.user.and_then(|user| std::str::from_utf8(user).ok());
            let tried = user.filter(|&user| user != DEFAULT_USER).and_then(PrincipalName::new);
            audit::wrong_password(&self.caller, tried.as_ref());
        }
        proved
    }

    async fn prove(&mut self, credentials: Credentials<'_>) -> Result<(), Refusal> {
        let bare = look(&self.shared, &self.client, &self.identity, None).await;
        let is_guarded = self.shared.coordinator.read_meta(MetaState::is_guarded).unwrap_or(true);
        if !is_guarded && bare.is_somebody() {
            return match credentials.user {
                None => Err(Refusal::NoPasswordSet),
                Some(user) if user == DEFAULT_USER.as_bytes() => Ok(()),
                Some(_) => Err(Refusal::WrongPassword),
            };
        }
        let text = |bytes: &[u8]| std::str::from_utf8(bytes).map(ToOwned::to_owned);
        let user = credentials.user.filter(|&user| user != DEFAULT_USER.as_bytes()).map(text);
        let (Ok(user), Ok(password)) = (user.transpose(), text(credentials.password)) else {
            return Err(Refusal::WrongPassword);
        };
        let shown = Some((user, password));
        let mut caller = look(&self.shared, &self.client, &self.identity, shown.as_ref()).await;
        if caller.may_be_new() {
            caller = match self.shared.coordinator.callers().catch_up_for_stranger().await {
                CaughtUp::Done => {
                    look(&self.shared, &self.client, &self.identity, shown.as_ref()).await
                }
                // The majority, and therefore another node, may know this caller.
                CaughtUp::NoMajority => {
                    Caller::without_grants(&self.identity, &self.shared.coordinator)
                }
                CaughtUp::NotAsked => caller,
            };
        }
        if caller.is_unknown() {
            let why = caller.refusal(Need::Somebody);
            return Err(Refusal::Other(format!("LOADING {why}").into()));
        }
        if !caller.is_somebody() {
            return Err(Refusal::WrongPassword);
        }
        // A client that was known before has paid for the command.
        if !self.caller.is_somebody() {
            caller.take([1, 0, 0]).map_err(|failure| refusal(&failure))?;
        }
        (self.shown, self.caller) = (shown, caller);
        let user = self.user();
        self.client.change(|details| details.user = user);
        Ok(())
    }

    /// `RESET`: back to the initial state.
    pub(super) async fn reset(&mut self) {
        (self.shown, self.protocol, self.database) = (None, Protocol::default(), 0);
        (self.reads_anywhere, self.queue, self.replies) = (false, None, Replies::On);
        self.look_again().await;
        let user = self.user();
        self.client.change(|details| {
            (details.database, details.protocol, details.user) = (0, Protocol::default(), user);
            details.name.clear();
        });
    }

    pub(super) fn set_replies(&mut self, mode: ReplyMode) {
        self.replies = match (mode, self.replies) {
            (ReplyMode::On, _) => Replies::On,
            (ReplyMode::Off, _) | (ReplyMode::Skip, Replies::Off) => Replies::Off,
            (ReplyMode::Skip, _) => Replies::SkipNext,
        };
    }

    /// Whether every answer is sent.
    pub(super) fn replies_to_all(&self) -> bool {
        self.replies == Replies::On
    }

    /// Encodes an answer.
    pub(super) fn answer(&self, reply: impl Into<Reply>, out: &mut Vec<u8>) {
        reply.into().encode(self.protocol, out);
    }

    /// Turns all answers on, until [`resume_replies`](Self::resume_replies).
    pub(super) fn suspend_replies(&mut self) -> Replies {
        std::mem::replace(&mut self.replies, Replies::On)
    }

    /// Restores the mode from before, unless the client has changed it since.
    pub(super) fn resume_replies(&mut self, before: Replies) {
        if self.replies == Replies::On {
            self.replies = before;
        }
    }

    /// Removes a command's answer, which begins at `begin`, if the client does not want it.
    pub(super) fn drop_unwanted_answer(&mut self, begin: usize, out: &mut Vec<u8>) {
        self.replies = match self.replies {
            Replies::On => return,
            Replies::Off => Replies::Off,
            Replies::SkipNext => Replies::Skipping,
            Replies::Skipping => Replies::On,
        };
        out.truncate(begin);
    }
}

/// What became of a command, for the audit log.
pub(super) fn outcome_of(answer: &Result<Reply, Refusal>) -> Outcome {
    match answer {
        Ok(_) => Outcome::Granted,
        Err(
            refusal @ (Refusal::NoPermission { .. } | Refusal::NoKeyPermission | Refusal::NoAuth),
        ) => Outcome::Refused(refusal.to_string()),
        Err(refusal) => Outcome::Failed(refusal.to_string()),
    }
}

/// Which answers are sent to the client.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Replies {
    On,
    Off,
    /// Neither that of this command, which set the mode, nor that of the next one.
    SkipNext,
    /// Not that of this command.
    Skipping,
}

/// The name of the filter that a key of a database would be; None if no filter can have it.
pub(super) fn name_of(database: u8, key: &[u8]) -> Option<String> {
    let text = std::str::from_utf8(key).ok().filter(|text| !text.is_empty())?;
    Some(match database {
        0 => text.to_owned(),
        number => format!("{}{text}", prefix(number)),
    })
}

/// The database of a filter, by its name.
pub(super) fn database_of(filter: &str) -> u8 {
    let number = filter.strip_prefix("db").and_then(|behind| behind.split_once(':'));
    let number = number.and_then(|(number, _)| number.parse().ok());
    // `+1` and `01` parse, too.
    let is_prefix = |number: &u8| (1..16).contains(number) && filter.starts_with(&prefix(*number));
    number.filter(is_prefix).unwrap_or(0)
}

/// The prefix of the names of a database's filters.
fn prefix(database: u8) -> String {
    format!("db{database}:")
}

/// Identifies the caller of a connection that has presented this.
async fn look(
    shared: &Shared,
    client: &Client,
    identity: &PeerIdentity,
    shown: Option<&(Option<String>, String)>,
) -> Caller {
    let (coordinator, from) = (&shared.coordinator, Some(client.from.clone()));
    if Need::Somebody.asks_for_grants(identity) && !coordinator.callers().has_caught_up().await {
        return Caller::without_grants(identity, coordinator).at(from);
    }
    let credential = match shown {
        None => Credential::None,
        Some((user, password)) => Credential::of_password(user.as_deref(), password),
    };
    Caller::identify(identity, credential, coordinator, shared.needs_member).at(from)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn databases_are_known_by_prefixes() {
        for (filter, database) in [
            ("db1:k", 1),
            ("db15:", 15),
            ("db3:db4:k", 3),
            ("db0:k", 0),
            ("db16:k", 0),
            ("db01:k", 0),
            ("db+1:k", 0),
            ("db256:k", 0),
            ("db1", 0),
            ("xdb1:k", 0),
        ] {
            assert_eq!(database_of(filter), database, "{filter}");
        }
    }

    /// Their bytes are none, and what tells them apart takes memory.
    #[test]
    fn empty_arguments_are_counted() {
        let most = 1 << 20;
        let request: Request = std::iter::once("PING").chain((1..most).map(|_| "")).collect();
        let mut queue = Queue::default();
        let queued = (0..100).take_while(|_| queue.push(&request).is_ok()).count();
        assert_eq!(queued, RESP_TRANSACTION_BYTES_MAX / (4 * most) - 1);
        assert!(queue.byte_count <= RESP_TRANSACTION_BYTES_MAX);
    }
}
