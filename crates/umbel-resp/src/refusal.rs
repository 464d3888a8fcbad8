//! Every error text of the dialect `redisbloom`, as it is on the wire after the `-`. Some have no `ERR`
//! in front and must stay so: clients compare them.

use std::borrow::Cow;

use thiserror::Error;

use crate::reply::Reply;

/// Most bytes of an unknown command's name, and of its arguments, that the error text shows. As in Redis.
const SHOWN_BYTES_MAX: usize = 128;

/// What UMBEL.CREATE takes, at the end of errors about its options.
const CREATE_USAGE: &str = "a filter is KIND blocked|classic|partitioned|single-shot|counting|cuckoo|quotient|scalable|redisbloom|aging|stable CAPACITY n ERROR \
     p|BYTES n [REPLICATED], or KIND redisbloom CAPACITY n ERROR p FIXED|EXPANSION n, or CAPACITY n ERROR p WINDOW \
     ms|MANUAL [SLICES n, which divides ms] [TIME EVENT [LATE REJECT|DROP|OLDEST]] [REFRESH] [REPLICATED], or LIKE name";

/// Why a command was not carried out. Nothing was changed, unless the variant says so.
#[derive(Clone, PartialEq, Eq, Debug, Error)]
pub enum Refusal {
    /// No command has this name. Send another one.
    #[error("ERR unknown command '{name}', with args beginning with: {arguments}")]
    UnknownCommand {
        /// The name as received, truncated.
        name: String,
        /// The arguments, each in quotes and followed by a blank, truncated together.
        arguments: String,
    },
    /// The command has no such subcommand.
    #[error("ERR unknown subcommand '{name}'. Try {command} HELP.")]
    UnknownSubcommand {
        /// The name as received, truncated.
        name: String,
        /// The command, in capitals.
        command: String,
    },
    /// Too few or too many arguments.
    #[error("ERR wrong number of arguments for '{command}' command")]
    Arity {
        /// The command in lower case; a subcommand after a `|`.
        command: &'static str,
    },
    /// More of something than a command may have. Send several commands.
    #[error("ERR at most {most} {what}")]
    TooMany {
        /// What there is too much of.
        what: &'static str,
        /// The limit.
        most: usize,
    },
    /// A word that is not allowed in its place.
    #[error("ERR syntax error")]
    Syntax,
    /// No integer, or one out of its range.
    #[error("ERR value is not an integer or out of range")]
    NotInteger,
    /// EXPIRE: the time is out of range.
    #[error("ERR invalid expire time in '{command}' command")]
    ExpireTime {
        /// The command in lower case.
        command: &'static str,
    },
    /// WAITAOF: more than this server, or less than nothing.
    #[error("ERR value is out of range, value must between 0 and 1")]
    LocalCount,
    /// WAITAOF: the number of replicas is no number, or below 0.
    #[error("ERR value is out of range, must be positive")]
    ReplicaCount,
    /// SLOWLOG GET: the number of entries is no number, or below -1.
    #[error("ERR count should be greater than or equal to -1")]
    SlowLogCount,
    /// WAIT, WAITAOF: the time is no number.
    #[error("ERR timeout is not an integer or out of range")]
    BadTimeout,
    /// WAIT, WAITAOF: the time is below 0.
    #[error("ERR timeout is negative")]
    NegativeTimeout,
    /// EXPIRE: an unknown option.
    #[error("ERR Unsupported option {option}")]
    UnsupportedOption {
        /// The option as received.
        option: String,
    },
    /// EXPIRE: NX with another condition.
    #[error("ERR NX and XX, GT or LT options at the same time are not compatible")]
    NxAndOthers,
    /// EXPIRE: GT with LT.
    #[error("ERR GT and LT options at the same time are not compatible")]
    GtAndLt,
    /// RESTORE: the time is below 0.
    #[error("ERR Invalid TTL value, must be >= 0")]
    RestoreTime,
    /// RESTORE: the idle time is below 0.
    #[error("ERR Invalid IDLETIME value, must be >= 0")]
    RestoreIdle,
    /// RESTORE: the frequency is out of range.
    #[error("ERR Invalid FREQ value, must be >= 0 and <= 255")]
    RestoreFrequency,
    /// RESTORE: the key exists. Give another name, or REPLACE.
    #[error("BUSYKEY Target key name already exists.")]
    BusyKey,
    /// RESTORE: the payload is truncated or damaged, or from a server that is too new.
    #[error("ERR DUMP payload version or checksum are wrong")]
    DumpPayload,
    /// RESTORE: the payload is intact, but does not hold a supported filter.
    #[error("ERR Bad data format")]
    DumpFormat,
    /// BF.RESERVE: the error rate is no number.
    #[error("ERR bad error rate")]
    BadErrorRate,
    /// BF.RESERVE: the error rate is out of its range.
    #[error("ERR error rate must be in the range (0.000000, 1.000000)")]
    ErrorRateRange,
    /// BF.RESERVE: the capacity is no number.
    #[error("ERR bad capacity")]
    BadCapacity,
    /// BF.RESERVE: the capacity is out of its range.
    #[error("ERR capacity must be in the range [1, 1073741824]")]
    CapacityRange,
    /// BF.RESERVE: EXPANSION without a value.
    #[error("ERR no expansion")]
    NoExpansion,
    /// BF.RESERVE: the expansion is no number.
    #[error("ERR bad expansion")]
    BadExpansion,
    /// BF.RESERVE: the expansion is out of its range.
    #[error("ERR expansion must be in the range [0, 32768]")]
    ExpansionRange,
    /// BF.RESERVE: NONSCALING with an expansion.
    #[error("Nonscaling filters cannot expand")]
    NonScalingExpands,
    /// BF.INSERT: the error rate is no number, or out of its range.
    #[error("Bad error rate")]
    InsertErrorRate,
    /// BF.INSERT: the expansion is no number, or out of its range.
    #[error("Bad expansion")]
    InsertExpansion,
    /// BF.INSERT: the capacity is no number, or out of its range. CF.RESERVE, CF.INSERT: it is no number.
    #[error("Bad capacity")]
    InsertCapacity,
    /// BF.INSERT, CF.INSERT: an unknown option.
    #[error("Unknown argument received")]
    InsertOption,
    /// CF.RESERVE: the value of an option is no number.
    #[error("Couldn't parse {option}")]
    CuckooOption {
        /// The option in capitals.
        option: &'static str,
    },
    /// CF.RESERVE: the value of an option is out of its range.
    #[error("{option}: value must be in the range [{least}, {most}]")]
    CuckooOptionRange {
        /// The option in capitals.
        option: &'static str,
        /// The least value.
        least: i64,
        /// The largest value.
        most: i64,
    },
    /// CF.RESERVE, CF.INSERT: the capacity is out of its range.
    #[error("Capacity must be in the range [{least}, 1073741824]")]
    CuckooCapacity {
        /// The least value, in RedisBloom's words.
        least: &'static str,
    },
    /// CF.ADD: the filter has no room for the item. Remove items, or create a larger filter.
    #[error("Filter is full")]
    CuckooFull,
    /// CF.COMPACT: no cuckoo filter of this name exists.
    #[error("Cuckoo filter was not found")]
    NothingToCompact,
    /// CF.DEL: no cuckoo filter of this name exists.
    #[error("Not found")]
    NoCuckoo,
    /// BF.SCANDUMP: the iterator is no number.
    #[error("Second argument must be numeric")]
    DumpIterator,
    /// BF.LOADCHUNK: the iterator is no number.
    #[error("ERR Second argument must be numeric")]
    LoadIterator,
    /// CF.SCANDUMP, CF.LOADCHUNK: the iterator is no number. CF.LOADCHUNK: it is 0.
    #[error("Invalid position")]
    CuckooIterator,
    /// CF.LOADCHUNK: not the first piece of a copy of a cuckoo filter.
    #[error("Invalid header")]
    CuckooHeader,
    /// CF.LOADCHUNK: not a piece of a copy, or not the next one.
    #[error("Couldn't load chunk!")]
    CuckooChunk,
    /// BF.LOADCHUNK: not a piece of a copy, or not the next one; or the filter exists.
    #[error("ERR received bad data")]
    BadData,
    /// BF.INFO: an unknown field.
    #[error("Invalid information value")]
    InfoField,
    /// No filter of this name exists.
    #[error("ERR not found")]
    NotFound,
    /// A filter of this name exists.
    #[error("ERR item exists")]
    ItemExists,
    /// The filter is larger than the cluster, or a quota, has room for.
    #[error("ERR Insufficient memory to create filter")]
    NoMemoryToCreate,
    /// The filter accepts no more items.
    #[error("ERR non scaling filter is full")]
    Full,
    /// This kind of filter does not support the operation.
    #[error("WRONGTYPE Operation against a key holding the wrong kind of value")]
    WrongType,
    /// The client must authenticate.
    #[error("NOAUTH Authentication required.")]
    NoAuth,
    /// HELLO: the client must authenticate.
    #[error(
        "NOAUTH HELLO must be called with the client already authenticated, otherwise the HELLO <proto> \
         AUTH <user> <pass> option can be used to authenticate the client and select the RESP protocol \
         version at the same time"
    )]
    HelloNoAuth,
    /// HELLO: an unsupported version.
    #[error("NOPROTO unsupported protocol version")]
    NoProtocol,
    /// HELLO: the version is no number.
    #[error("ERR Protocol version is not an integer or out of range")]
    BadProtocol,
    /// HELLO: an unknown option, or one without its values.
    #[error("ERR Syntax error in HELLO option '{option}'")]
    HelloOption {
        /// The option as received, truncated.
        option: String,
    },
    /// AUTH: no user with this name and password.
    #[error("WRONGPASS invalid username-password pair or user is disabled.")]
    WrongPassword,
    /// AUTH: a password although no user needs one.
    #[error(
        "ERR AUTH <password> called without any password configured for the default user. Are you sure \
         your configuration is correct?"
    )]
    NoPasswordSet,
    /// The user may not run the command.
    #[error("NOPERM User {user} has no permissions to run the '{command}' command")]
    NoPermission {
        /// The user.
        user: String,
        /// The command in lower case.
        command: &'static str,
    },
    /// The user may not do this with this key.
    #[error("NOPERM No permissions to access a key")]
    NoKeyPermission,
    /// CLIENT SETNAME: an invalid name.
    #[error("ERR Client names cannot contain spaces, newlines or special characters.")]
    ClientName,
    /// CLIENT SETINFO: an unknown attribute.
    #[error("ERR Unrecognized option '{option}'")]
    ClientAttribute {
        /// The attribute as received, truncated.
        option: String,
    },
    /// CLIENT SETINFO: an invalid value.
    #[error("ERR {attribute} cannot contain spaces, newlines or special characters.")]
    ClientAttributeValue {
        /// The attribute as received, truncated.
        attribute: String,
    },
    /// CLIENT LIST: an unknown type.
    #[error("ERR Unknown client type '{name}'")]
    ClientType {
        /// The type as received, truncated.
        name: String,
    },
    /// CLIENT LIST: an id is no number.
    #[error("ERR Invalid client ID")]
    ClientId,
    /// CONFIG SET: a node's settings come from its file, environment and arguments only.
    #[error(
        "ERR CONFIG SET failed (possibly related to argument '{parameter}') - can't set immutable config"
    )]
    ImmutableConfig {
        /// The parameter as received, truncated.
        parameter: String,
    },
    /// An integer that is too large for what it counts.
    #[error("ERR value is out of range, value must between {} and {}", i32::MIN, i32::MAX)]
    NotInt32,
    /// SELECT: no such database.
    #[error("ERR DB index is out of range")]
    DatabaseRange,
    /// CLUSTER: the server is not part of a Redis cluster. Connect to it as to a single server.
    #[error("ERR This instance has cluster support disabled")]
    NoCluster,
    /// RENAME: no filter of this name exists.
    #[error("ERR no such key")]
    NoSuchKey,
    /// COPY: a filter cannot be copied onto itself.
    #[error("ERR source and destination objects are the same")]
    SameKey,
    /// SCAN: an invalid cursor.
    #[error("ERR invalid cursor")]
    Cursor,
    /// MULTI within MULTI.
    #[error("ERR MULTI calls can not be nested")]
    NestedMulti,
    /// EXEC without MULTI.
    #[error("ERR EXEC without MULTI")]
    ExecWithoutMulti,
    /// DISCARD without MULTI.
    #[error("ERR DISCARD without MULTI")]
    DiscardWithoutMulti,
    /// WATCH: a transaction runs whatever others have changed.
    #[error("ERR WATCH is not supported")]
    NoWatch,
    /// EXEC after a command that could not be queued.
    #[error("EXECABORT Transaction discarded because of previous errors.")]
    ExecAbort,
    /// `EXEC` itself was refused: the transaction is over, and nothing of it was done. The text says whether it can be
    /// sent again, and what to change.
    #[error("EXECABORT Transaction discarded because of: {why}")]
    ExecRefused {
        /// The refusal's text.
        why: String,
    },
    /// A transaction with too many or too large commands.
    #[error("ERR transaction too large: at most {commands} commands and {bytes} bytes are queued")]
    TransactionTooLarge {
        /// Most commands.
        commands: usize,
        /// Most bytes of arguments.
        bytes: usize,
    },
    /// ACL CAT: an unknown category.
    #[error("ERR Unknown category '{name}'")]
    UnknownCategory {
        /// The category as received, truncated.
        name: String,
    },
    /// COMMAND GETKEYS: no command with these arguments.
    #[error("ERR Invalid command specified")]
    InvalidCommand,
    /// COMMAND GETKEYS: the command has no keys.
    #[error("ERR The command has no key arguments")]
    NoKeys,
    /// UMBEL.*: an argument, or the value of an option, that is none that the command knows.
    #[error("ERR {argument} '{value}': expected {expected}")]
    BadValue {
        /// The option, or what the argument is.
        argument: &'static str,
        /// The value as received, truncated.
        value: String,
        /// What could be in its place.
        expected: &'static str,
    },
    /// UMBEL.REQUEST: a command that cannot have a request id.
    #[error(
        "ERR a request is one of BF.ADD, BF.MADD, BF.INSERT, SADD and UMBEL.MERGE, not '{command}'"
    )]
    RequestCommand {
        /// The command in lower case.
        command: &'static str,
    },
    /// UMBEL.CREATE: an unknown option.
    #[error("ERR UMBEL.CREATE has no option '{option}': {usage}", usage = CREATE_USAGE)]
    CreateUnknown {
        /// The option as received, truncated.
        option: String,
    },
    /// UMBEL.CREATE: an option is the last word, and its value is missing.
    #[error("ERR {option} has no value: {usage}", usage = CREATE_USAGE)]
    CreateValueMissing {
        /// The option in capitals.
        option: &'static str,
    },
    /// UMBEL.CREATE: an option is there twice. Give it once.
    #[error("ERR {option} is given twice, expected once")]
    CreateTwice {
        /// The option in capitals.
        option: &'static str,
    },
    /// UMBEL.CREATE: two options exclude each other. Leave one out.
    #[error("ERR {option} and {other} exclude each other: {usage}", usage = CREATE_USAGE)]
    CreateConflict {
        /// One of them, in capitals.
        option: &'static str,
        /// The other one.
        other: &'static str,
    },
    /// UMBEL.CREATE: an option needs another one that is not there.
    #[error("ERR {option} needs {other}: {usage}", usage = CREATE_USAGE)]
    CreateNeeds {
        /// The option in capitals.
        option: &'static str,
        /// What it needs.
        other: &'static str,
    },
    /// UMBEL.CREATE: an option without which there is no filter is not there.
    #[error("ERR {option} is missing: {usage}", usage = CREATE_USAGE)]
    CreateMissing {
        /// The option in capitals, or several of which one is needed.
        option: &'static str,
    },
    /// UMBEL.CREATE: slices that would not be of equal length. Change one of the two numbers.
    #[error(
        "ERR SLICES '{slice_count}': expected a number that divides the {window_ms} ms of WINDOW evenly \
         (24 if SLICES is not given)"
    )]
    UnevenSlices {
        /// Length of the window.
        window_ms: u64,
        /// Number of slices, given or by default.
        slice_count: u32,
    },
    /// UMBEL.MERGE: a limit of the rate of false positives.
    #[error("ERR a merge has no FPRMAX: look at false_positive_rate_now of UMBEL.INFO after it")]
    NoRateLimit,
    /// The requests of other connections use all the memory that requests may use. Retry later.
    #[error(
        "TRYAGAIN requests of clients take all the room that they have on this node: send again"
    )]
    NoRoom,
    /// Another error, with its code in front.
    #[error("{0}")]
    Other(Cow<'static, str>),
}

impl Refusal {
    /// The error for an argument that is none that the command knows.
    pub(crate) fn bad_value(argument: &'static str, value: &[u8], expected: &'static str) -> Self {
        Self::BadValue { argument, value: shown(value), expected }
    }
}

impl From<Refusal> for Reply {
    fn from(refusal: Refusal) -> Self {
        match refusal {
            Refusal::Other(text) => Self::Error(text),
            refusal => Self::Error(refusal.to_string().into()),
        }
    }
}

/// Bytes for an error text, truncated.
pub(crate) fn shown(bytes: &[u8]) -> String {
    let cut = bytes.get(..SHOWN_BYTES_MAX).unwrap_or(bytes);
    String::from_utf8_lossy(cut).into_owned()
}

/// The error for an unknown command.
pub(crate) fn unknown_command(
    name: &[u8],
    arguments: impl Iterator<Item = impl AsRef<[u8]>>,
) -> Refusal {
    let mut message = String::new();
    for argument in arguments {
        let Some(room @ 1..) = SHOWN_BYTES_MAX.checked_sub(message.len()) else { break };
        let argument = argument.as_ref();
        let cut = argument.get(..room).unwrap_or(argument);
        message.push('\'');
        message.push_str(&String::from_utf8_lossy(cut));
        message.push_str("' ");
    }
    Refusal::UnknownCommand { name: shown(name), arguments: message }
}
