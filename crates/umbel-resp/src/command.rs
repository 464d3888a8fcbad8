//! Commands with their arguments understood: what a node carries out.

use crate::arguments::Arguments;
use crate::reply::Protocol;
use crate::table::CommandSpec;

pub use self::cuckoo::{CuckooCommand, CuckooInsert};
pub use self::dump::DumpCommand;
pub use self::payload::PayloadCommand;
pub use self::umbel::{
    LateItems, NewFilter, NewSize, NewWindow, SetEstimate, UmbelCommand, WindowEnd,
};

pub(crate) mod bloom;
pub(crate) mod connection;
pub(crate) mod cuckoo;
pub(crate) mod dump;
pub(crate) mod expiry;
pub(crate) mod keyspace;
pub(crate) mod payload;
pub(crate) mod set;
pub(crate) mod umbel;

#[cfg(test)]
mod command_test;

/// A command. What it borrows are arguments of the request that it was read from.
#[derive(Clone, Debug)]
pub enum Command<'a> {
    /// `BF.RESERVE`: makes a filter, which must not be there.
    Reserve {
        /// Its name.
        key: &'a [u8],
        /// What it shall be.
        new: NewBloom,
    },
    /// `BF.ADD`, `BF.MADD`, `BF.INSERT`, `SADD`: inserts items.
    Insert(Insert<'a>),
    /// `BF.EXISTS`, `BF.MEXISTS`, `SISMEMBER`, `SMISMEMBER`: asks about items.
    Contains(Items<'a>),
    /// `BF.CARD`, `SCARD`: how many items were new.
    Cardinality {
        /// Of which filter.
        key: &'a [u8],
    },
    /// `BF.INFO`: describes a filter.
    BloomInfo {
        /// Which one.
        key: &'a [u8],
        /// The only field that is wanted.
        field: Option<InfoField>,
    },
    /// `BF.DEBUG`: describes each part of a filter of RedisBloom's.
    BloomDebug {
        /// Which one.
        key: &'a [u8],
    },
    /// What is about cuckoo filters alone.
    Cuckoo(CuckooCommand<'a>),
    /// What copies a filter out, or in.
    Dump(DumpCommand<'a>),
    /// What copies a filter out, or in, as one value.
    Payload(PayloadCommand<'a>),
    /// What is about keys, whatever their kind.
    Keys(KeysCommand<'a>),
    /// What is about the time at which a key goes.
    Expiry(ExpiryCommand<'a>),
    /// What is about the connection, or the server.
    Connection(ConnectionCommand<'a>),
    /// `COMMAND`: what is about the table of commands.
    Commands(CommandQuery<'a>),
    /// `MULTI`, `EXEC`, `DISCARD`.
    Transaction(Transaction),
    /// `CLUSTER`.
    Cluster(ClusterQuery<'a>),
    /// Umbel's own words, but for sessions and requests.
    Umbel(UmbelCommand<'a>),
    /// `UMBEL.SESSION`: opens a session, whose requests may be repeated.
    Session,
}

/// What a plain command makes a filter with. Clients name numbers for the server's default kind.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct NewBloom {
    /// Probability that an absent item is called present; above 0, at most 0.25.
    pub error_rate: f64,
    /// Items that it is made for, or its first part; from 1 to 2^30.
    pub capacity: u64,
    /// How much larger each further part is; 0 if there shall be none.
    pub expansion: u32,
}

impl Default for NewBloom {
    fn default() -> Self {
        Self { error_rate: 0.01, capacity: 100, expansion: 2 }
    }
}

/// Items of a filter, and the form of the answer.
#[derive(Clone, Copy, Debug)]
pub struct Items<'a> {
    /// The filter's name.
    pub key: &'a [u8],
    /// At least one.
    pub items: Arguments<'a>,
    /// What the answer looks like.
    pub form: AnswerForm,
}

/// What is told of items, each of which has an answer of yes or no.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum AnswerForm {
    /// The answer of the only one, of the protocol's kind.
    One,
    /// Those of all, however many there are.
    List,
    /// How many are yes, as a number: of one item 1 or 0.
    Count,
    /// 1 or 0 of each, as numbers.
    Numbers,
}

impl AnswerForm {
    /// Whether the answer is a list.
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

/// Items that shall be in a filter.
#[derive(Clone, Copy, Debug)]
pub struct Insert<'a> {
    /// Which ones.
    pub items: Items<'a>,
    /// With what the filter is made if it is not there; None if it shall not be made.
    pub new: Option<NewBloom>,
    /// The client's name for the request.
    pub request: Option<RequestName>,
}

/// `UMBEL.REQUEST`: a client's name for a request, under which it may come again.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RequestName {
    /// The session's number.
    pub session: u64,
    /// The request's number in it.
    pub sequence: u64,
    /// The answers to requests with lower numbers have been received.
    pub acknowledged_below: u64,
}

/// A field of `BF.INFO`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum InfoField {
    /// Items that the filter is made for.
    Capacity,
    /// Bytes of memory.
    Size,
    /// Number of its parts.
    Filters,
    /// Items that were new.
    Items,
    /// How much larger each further part is.
    Expansion,
}

/// A command about keys.
#[derive(Clone, Copy, Debug)]
pub enum KeysCommand<'a> {
    /// `DEL`, `UNLINK`: drops filters, and answers how many there were.
    Drop(Arguments<'a>),
    /// `EXISTS`, `TOUCH`: how many of these there are; one that is named twice counts twice.
    Count(Arguments<'a>),
    /// `TYPE`.
    Type(&'a [u8]),
    /// `KEYS`: the names that a pattern means.
    List(&'a [u8]),
    /// `SCAN`: the same in pieces.
    Scan(Scan<'a>),
    /// `DBSIZE`: how many there are.
    Size,
    /// `MEMORY USAGE`: the bytes that a filter takes.
    Memory(&'a [u8]),
    /// `RENAME`, `RENAMENX`: gives a filter another name.
    Rename {
        /// Which one.
        key: &'a [u8],
        /// The new name.
        new_key: &'a [u8],
        /// Whether a filter of that name is dropped, and the answer is not a number.
        replaces: bool,
    },
    /// `COPY`: makes a filter that has what another one has.
    Copy {
        /// Which one.
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
        /// Of every database, and not of the connection's alone.
        of_all_databases: bool,
    },
}

/// A command about the time at which a key goes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ExpiryCommand<'a> {
    /// `EXPIRE`, `PEXPIRE`, `EXPIREAT`, `PEXPIREAT`.
    Set {
        /// Which one.
        key: &'a [u8],
        /// When.
        expiry: Expiry,
        /// Under which condition.
        condition: Condition,
    },
    /// `TTL`, `PTTL`, `EXPIRETIME`, `PEXPIRETIME`.
    Ask {
        /// Which one.
        key: &'a [u8],
        /// What is told in.
        unit: TimeUnit,
        /// Whether the moment is asked for, and not what is left until then.
        is_moment: bool,
    },
    /// `PERSIST`: takes the time away.
    Persist(&'a [u8]),
}

/// When a key goes, in milliseconds; below 0 is the past.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Expiry {
    /// From now on.
    InMs(i64),
    /// Since 1970.
    AtMs(i64),
}

/// Under which condition a time is set. No time counts as one that never comes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Condition {
    /// Under none.
    Always,
    /// `NX`: the key has none.
    IfNone,
    /// `XX`: the key has one.
    IfSome,
    /// `GT`: it is later than the key's.
    IfLater,
    /// `LT`: it is earlier than the key's.
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
    /// Where to go on; 0 at the start.
    pub cursor: u64,
    /// Which names are wanted.
    pub pattern: Option<&'a [u8]>,
    /// About how many names are looked at; from 1.
    pub count: u64,
    /// The type that is wanted.
    pub of_type: Option<&'a [u8]>,
}

/// A command about the connection, or the server.
#[derive(Clone, Copy, Debug)]
pub enum ConnectionCommand<'a> {
    /// `PING`, with what shall come back.
    Ping(Option<&'a [u8]>),
    /// `ECHO`.
    Echo(&'a [u8]),
    /// `QUIT`.
    Quit,
    /// `RESET`: as at the start.
    Reset,
    /// `HELLO`.
    Hello(Hello<'a>),
    /// `AUTH`.
    Auth(Credentials<'a>),
    /// `SELECT`: one of the databases 0 to 15.
    Select(u8),
    /// `READONLY`: any replica may say that an item is present.
    ReadOnly,
    /// `READWRITE`: the opposite.
    ReadWrite,
    /// What connections are called, and which there are.
    Client(ClientCommand<'a>),
    /// `CLIENT REPLY`.
    Replies(ReplyMode),
    /// `CLIENT NO-EVICT`, `CLIENT NO-TOUCH`: nothing is evicted, so there is nothing to do. `ASKING`, of clients of
    /// clusters: no slot is elsewhere.
    NoEffect,
    /// `INFO`, with the sections that are wanted; none for the usual ones.
    Info(Arguments<'a>),
    /// `CONFIG GET`, with patterns of names.
    ConfigGet(Arguments<'a>),
    /// `TIME`.
    Time,
    /// `ROLE`.
    Role,
    /// `WAIT`: how many more replicas have what was written.
    Wait,
    /// `MODULE LIST`.
    ModuleList,
    /// `ACL WHOAMI`.
    WhoAmI,
}

/// A command about connections, this one and others.
#[derive(Clone, Copy, Debug)]
pub enum ClientCommand<'a> {
    /// `CLIENT SETNAME`; empty to have none.
    SetName(&'a [u8]),
    /// `CLIENT GETNAME`.
    GetName,
    /// `CLIENT ID`.
    Id,
    /// `CLIENT INFO`.
    Info,
    /// `CLIENT LIST`.
    List,
    /// `CLIENT SETINFO`.
    SetInfo(ClientAttribute, &'a [u8]),
}

/// Who a client says it is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Credentials<'a> {
    /// Its name, if it names one.
    pub user: Option<&'a [u8]>,
    /// What proves it.
    pub password: &'a [u8],
}

/// Arguments of `HELLO`.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Hello<'a> {
    /// The version that is wanted.
    pub protocol: Option<Protocol>,
    /// Who the client is.
    pub credentials: Option<Credentials<'a>>,
    /// What it is called.
    pub name: Option<&'a [u8]>,
}

/// What a client says of its library.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ClientAttribute {
    /// `LIB-NAME`.
    LibraryName,
    /// `LIB-VER`.
    LibraryVersion,
}

/// Whether answers are sent.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ReplyMode {
    /// They are.
    On,
    /// None is.
    Off,
    /// Neither this one nor that of the next command.
    Skip,
}

/// A question about the table of commands.
#[derive(Clone, Copy, Debug)]
pub enum CommandQuery<'a> {
    /// `COMMAND`: all of them.
    All,
    /// `COMMAND COUNT`.
    Count,
    /// `COMMAND LIST`, of those that a pattern or a category means.
    List(Option<ListFilter<'a>>),
    /// `COMMAND INFO`; of all without names.
    Info(Arguments<'a>),
    /// `COMMAND DOCS`; of all without names.
    Docs(Arguments<'a>),
    /// `COMMAND GETKEYS`: the keys of a command.
    GetKeys(&'static CommandSpec, Arguments<'a>),
}

/// Which commands `COMMAND LIST` shows.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ListFilter<'a> {
    /// Those whose names a pattern means.
    Pattern(&'a [u8]),
    /// Those of a category, without `@`.
    Category(&'a [u8]),
    /// Those of a module.
    Module(&'a [u8]),
}

/// A command about transactions.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Transaction {
    /// `MULTI`.
    Begin,
    /// `EXEC`.
    Execute,
    /// `DISCARD`.
    Discard,
}

/// A question about the cluster.
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
    /// `CLUSTER KEYSLOT`.
    KeySlot(&'a [u8]),
    /// `CLUSTER INFO`.
    Info,
}
