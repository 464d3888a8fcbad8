//! Parsed commands, which a node carries out.

use crate::arguments::Arguments;
use crate::refusal::Refusal;
use crate::reply::Protocol;
use crate::table::CommandSpec;

pub use self::cuckoo::{CuckooCommand, CuckooInsert};
pub use self::dump::DumpCommand;
pub use self::payload::{PayloadCommand, RestoreTime};
pub use self::umbel::{
    CreateFilter, LatePolicy, NewSize, NewWindow, SetEstimate, UmbelCommand, WindowEnd,
};

pub(crate) mod bloom;
pub(crate) mod connection;
pub(crate) mod create;
pub(crate) mod cuckoo;
pub(crate) mod dump;
pub(crate) mod expiry;
pub(crate) mod keyspace;
pub(crate) mod payload;
pub(crate) mod set;
pub(crate) mod umbel;

#[cfg(test)]
mod command_test;

/// What a parser of a command's arguments returns.
type Parsed<'a> = Result<Command<'a>, Refusal>;

/// A command. It borrows arguments of the request that it was parsed from.
#[derive(Clone, Debug)]
pub enum Command<'a> {
    /// `BF.RESERVE`: creates a filter, which must not exist.
    Reserve {
        /// Its name.
        key: &'a [u8],
        /// Its settings.
        new: NewBloom,
    },
    /// `BF.ADD`, `BF.MADD`, `BF.INSERT`, `SADD`: inserts items.
    Insert(InsertItems<'a>),
    /// `BF.EXISTS`, `BF.MEXISTS`, `SISMEMBER`, `SMISMEMBER`: queries items.
    Contains(Items<'a>),
    /// `BF.CARD`, `SCARD`: how many items were new.
    Cardinality {
        /// The filter.
        key: &'a [u8],
    },
    /// `BF.INFO`: describes a filter.
    BloomInfo {
        /// The filter.
        key: &'a [u8],
        /// The only requested field; None for all.
        field: Option<InfoField>,
    },
    /// `BF.DEBUG`: describes each part of a filter of kind redisbloom.
    BloomDebug {
        /// The filter.
        key: &'a [u8],
    },
    /// A command for cuckoo and quotient filters only.
    Cuckoo(CuckooCommand<'a>),
    /// A command that exports or imports a filter in pieces.
    Dump(DumpCommand<'a>),
    /// A command that exports or imports a filter as one value.
    Payload(PayloadCommand<'a>),
    /// A command on keys of any kind.
    Keys(KeysCommand<'a>),
    /// A command on the expiry of a key.
    Expiry(ExpiryCommand<'a>),
    /// A command on the connection or the server.
    Connection(ConnectionCommand<'a>),
    /// `COMMAND`: queries the table of commands.
    Commands(CommandQuery<'a>),
    /// `MULTI`, `EXEC`, `DISCARD`.
    Transaction(Transaction),
    /// `CLUSTER`.
    Cluster(ClusterQuery<'a>),
    /// Umbel's own commands, except for sessions and requests.
    Umbel(UmbelCommand<'a>),
    /// `UMBEL.SESSION`: opens a session, whose requests may be retried.
    Session,
}

/// The settings of a filter that a command creates. Clients give numbers for the server's default kind.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct NewBloom {
    /// Probability that an absent item is reported as present; above 0, at most 0.25.
    pub error_rate: f64,
    /// Planned number of items of the filter or its first part; from 1 to 2^30.
    pub capacity: u64,
    /// How many times larger each further part is; 0 if there are to be no further parts.
    pub expansion: u32,
}

impl Default for NewBloom {
    fn default() -> Self {
        Self { error_rate: 0.01, capacity: 100, expansion: 2 }
    }
}

/// Items of a filter, and the form of the reply.
#[derive(Clone, Copy, Debug)]
pub struct Items<'a> {
    /// The filter's name.
    pub key: &'a [u8],
    /// The items; at least one.
    pub items: Arguments<'a>,
    /// The form of the reply.
    pub form: AnswerForm,
}

impl<'a> Items<'a> {
    /// All arguments behind the key, as most commands have them.
    fn of(arguments: Arguments<'a>, form: AnswerForm) -> Self {
        Self { key: arguments.at(1), items: arguments.from(2), form }
    }
}

/// The form of a reply about items, each of which has a yes or no.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum AnswerForm {
    /// The answer for the only item, as the protocol's version encodes a boolean.
    One,
    /// The answers for all items, as a list of booleans.
    List,
    /// How many are yes, as an integer: 1 or 0 for one item.
    Count,
    /// 1 or 0 for each item, as a list of integers.
    Numbers,
}

impl AnswerForm {
    /// Whether the reply is a list.
    ///
    /// ```
    /// use umbel_resp::AnswerForm;
    /// assert!(AnswerForm::List.is_list() && !AnswerForm::Count.is_list());
    /// ```
    #[must_use]
    pub const fn is_list(self) -> bool {
        matches!(self, Self::List | Self::Numbers)
    }
}

/// Items to insert into a filter.
#[derive(Clone, Copy, Debug)]
pub struct InsertItems<'a> {
    /// The items and their filter.
    pub items: Items<'a>,
    /// The settings with which the filter is created if it does not exist; None if it must not be
    /// created.
    pub new: Option<NewBloom>,
    /// The request id that the client has given, if any.
    pub request: Option<RequestName>,
}

/// `UMBEL.REQUEST`: a client's id for a request, with which it may be retried.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RequestName {
    /// The session's number.
    pub session: u64,
    /// The request's number in the session.
    pub sequence: u64,
    /// The client has received the answers to requests with lower numbers.
    pub acknowledged_below: u64,
}

/// A field of `BF.INFO`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum InfoField {
    /// Planned number of items.
    Capacity,
    /// Bytes of memory.
    Size,
    /// Number of the filter's parts.
    Filters,
    /// Items that were new.
    Items,
    /// How many times larger each further part is.
    Expansion,
}

/// A command on keys.
#[derive(Clone, Copy, Debug)]
pub enum KeysCommand<'a> {
    /// `DEL`, `UNLINK`: drops filters; the reply is how many existed.
    Drop(Arguments<'a>),
    /// `EXISTS`, `TOUCH`: how many of these keys exist; a key that is named twice counts twice.
    Count(Arguments<'a>),
    /// `TYPE`.
    Type(&'a [u8]),
    /// `KEYS`: the names that match a pattern.
    List(&'a [u8]),
    /// `SCAN`: the same page by page.
    Scan(Scan<'a>),
    /// `DBSIZE`: the number of keys.
    Size,
    /// `OBJECT ENCODING`: whether a key exists.
    Encoding(&'a [u8]),
    /// `MEMORY USAGE`: the bytes of a filter.
    Memory(&'a [u8]),
    /// `RENAME`, `RENAMENX`: renames a filter.
    Rename {
        /// The filter.
        key: &'a [u8],
        /// The new name.
        new_key: &'a [u8],
        /// Whether a filter of the new name is dropped, and the reply is OK instead of a number.
        replaces: bool,
    },
    /// `COPY`: creates a filter with the contents of another one.
    Copy {
        /// The filter to copy.
        key: &'a [u8],
        /// The name of the copy.
        new_key: &'a [u8],
        /// The copy's database; None for that of the connection.
        database: Option<u8>,
        /// Whether a filter of that name is replaced.
        replaces: bool,
    },
    /// `FLUSHDB`, `FLUSHALL`: drops all filters.
    DropAll {
        /// Whether it drops those of all databases, instead of only the connection's.
        of_all_databases: bool,
    },
}

/// A command on the expiry of a key.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ExpiryCommand<'a> {
    /// `EXPIRE`, `PEXPIRE`, `EXPIREAT`, `PEXPIREAT`.
    Set {
        /// The command in lower case, for its refusal.
        command: &'static str,
        /// The key.
        key: &'a [u8],
        /// The new expiry.
        expiry: Expiry,
        /// The condition for it.
        condition: Condition,
    },
    /// `TTL`, `PTTL`, `EXPIRETIME`, `PEXPIRETIME`.
    Ask {
        /// The key.
        key: &'a [u8],
        /// The unit of the reply.
        unit: TimeUnit,
        /// Whether the reply is the time of expiry instead of the remaining time.
        is_moment: bool,
    },
    /// `PERSIST`: removes the expiry.
    Persist(&'a [u8]),
}

/// The expiry of a key, in milliseconds; a negative number lies in the past.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Expiry {
    /// Relative to now.
    InMs(i64),
    /// Since the Unix epoch.
    AtMs(i64),
}

/// The condition under which an expiry is set. A key without one counts as expiring infinitely late.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Condition {
    /// No condition.
    Always,
    /// `NX`: the key has no expiry.
    IfNone,
    /// `XX`: the key has an expiry.
    IfSome,
    /// `GT`: the new expiry is later than the key's.
    IfLater,
    /// `LT`: the new expiry is earlier than the key's.
    IfEarlier,
    /// `XX GT`.
    IfSomeAndLater,
    /// `XX LT`.
    IfSomeAndEarlier,
}

/// The unit of a time.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum TimeUnit {
    /// Seconds.
    Seconds,
    /// Milliseconds.
    Milliseconds,
}

/// Arguments of `SCAN`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Scan<'a> {
    /// The cursor of the page; 0 for the first one.
    pub cursor: u64,
    /// The pattern that names must match.
    pub pattern: Option<&'a [u8]>,
    /// About how many names are examined; at least 1.
    pub count: u64,
    /// The type that keys must have.
    pub of_type: Option<&'a [u8]>,
}

/// A command on the connection or the server.
#[derive(Clone, Copy, Debug)]
pub enum ConnectionCommand<'a> {
    /// `PING`, with the text to return.
    Ping(Option<&'a [u8]>),
    /// `ECHO`.
    Echo(&'a [u8]),
    /// `QUIT`.
    Quit,
    /// `RESET`: returns the connection to its initial state.
    Reset,
    /// `HELLO`.
    Hello(Hello<'a>),
    /// `AUTH`.
    Auth(Credentials<'a>),
    /// `SELECT`: one of the databases 0 to 15.
    Select(u8),
    /// `READONLY`: any replica may report that an item is present.
    ReadOnly,
    /// `READWRITE`: undoes `READONLY`.
    ReadWrite,
    /// A command on names and lists of connections.
    Client(ClientCommand<'a>),
    /// `CLIENT REPLY`.
    Replies(ReplyMode),
    /// `ASKING`, which clients of Redis clusters send. It has no effect, because no slot is elsewhere.
    Asking,
    /// Commands without effect: `CLIENT NO-EVICT` and `CLIENT NO-TOUCH`, because nothing is ever evicted; `CLIENT CAPA`;
    /// `UNWATCH`, because nothing is watched; and `SLOWLOG RESET`.
    NoEffect,
    /// `INFO`, with the requested sections; without any, the default ones.
    Info(Arguments<'a>),
    /// `CONFIG GET`, with patterns of parameter names.
    ConfigGet(Arguments<'a>),
    /// `CONFIG RESETSTAT`: resets the counters that `INFO` shows.
    ResetCounters,
    /// `TIME`.
    Time,
    /// `ROLE`.
    Role,
    /// `WAIT`: how many further replicas have what was written.
    Wait,
    /// `WAITAOF`: whether what was written is on this server's disk, and on those of how many further replicas.
    WaitForDisks,
    /// `SLOWLOG LEN`, `LATENCY RESET`: there are 0.
    NothingCounted,
    /// `SLOWLOG GET`, `LATENCY LATEST`: an empty list.
    NothingListed,
    /// `MODULE LIST`.
    ModuleList,
    /// `ACL WHOAMI`.
    WhoAmI,
    /// `ACL USERS`: the names of all principals.
    Users,
}

/// A command on this connection and others.
#[derive(Clone, Copy, Debug)]
pub enum ClientCommand<'a> {
    /// `CLIENT SETNAME`; an empty name removes it.
    SetName(&'a [u8]),
    /// `CLIENT GETNAME`.
    GetName,
    /// `CLIENT ID`.
    Id,
    /// `CLIENT INFO`.
    Info,
    /// `CLIENT LIST`.
    List(ClientChoice<'a>),
    /// `CLIENT SETINFO`.
    SetInfo(ClientAttribute, &'a [u8]),
}

/// The connections that `CLIENT LIST` lists.
#[derive(Clone, Copy, Debug)]
pub enum ClientChoice<'a> {
    /// All of them, which are of the type `normal`.
    All,
    /// None, because no connection is of another type.
    Nobody,
    /// Those of these ids; each is a number.
    Ids(Arguments<'a>),
}

/// The credentials that a client presents.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Credentials<'a> {
    /// The user's name, if given.
    pub user: Option<&'a [u8]>,
    /// The password.
    pub password: &'a [u8],
}

/// Arguments of `HELLO`.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Hello<'a> {
    /// The requested version of the protocol.
    pub protocol: Option<Protocol>,
    /// The client's credentials.
    pub credentials: Option<Credentials<'a>>,
    /// The connection's name.
    pub name: Option<&'a [u8]>,
}

/// What a client can report of its library.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ClientAttribute {
    /// `LIB-NAME`.
    LibraryName,
    /// `LIB-VER`.
    LibraryVersion,
}

/// Whether replies are sent.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ReplyMode {
    /// They are sent.
    On,
    /// None is sent.
    Off,
    /// Neither the reply to this command nor that to the next one is sent.
    Skip,
}

/// A query of the table of commands.
#[derive(Clone, Copy, Debug)]
pub enum CommandQuery<'a> {
    /// `COMMAND`: all of them.
    All,
    /// `COMMAND COUNT`.
    Count,
    /// `COMMAND LIST`, of the commands that the filter selects.
    List(Option<ListFilter<'a>>),
    /// `COMMAND INFO`; without names, of all commands.
    Info(Arguments<'a>),
    /// `COMMAND DOCS`; without names, of all commands.
    Docs(Arguments<'a>),
    /// `COMMAND GETKEYS`: the keys of a command.
    GetKeys(&'static CommandSpec, Arguments<'a>),
    /// `ACL CAT`: the categories, without `@`; or the commands of one, which exists.
    Categories(Option<&'a [u8]>),
    /// `HELP` of a command with subcommands.
    Help(&'static CommandSpec),
}

/// The commands that `COMMAND LIST` lists.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ListFilter<'a> {
    /// Those whose names match a pattern.
    Pattern(&'a [u8]),
    /// Those of a category, given without `@`.
    Category(&'a [u8]),
    /// Those of a module.
    Module(&'a [u8]),
}

/// A command on transactions.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Transaction {
    /// `MULTI`.
    Begin,
    /// `EXEC`.
    Execute,
    /// `DISCARD`.
    Discard,
}

/// A query of the cluster.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ClusterQuery<'a> {
    /// `CLUSTER SLOTS`.
    Slots,
    /// `CLUSTER SHARDS`.
    Shards,
    /// `CLUSTER NODES`.
    Nodes,
    /// `CLUSTER MYID`.
    MyId,
    /// `CLUSTER MYSHARDID`: a node is a shard of its own for clients of a Redis cluster.
    MyShardId,
    /// `CLUSTER KEYSLOT`.
    KeySlot(&'a [u8]),
    /// `CLUSTER INFO`.
    Info,
    /// `CLUSTER LINKS`: connections between nodes by the protocol of a Redis cluster.
    Links,
}
