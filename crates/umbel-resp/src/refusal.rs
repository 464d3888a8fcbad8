//! Every error text of the dialect `redisbloom`, as it is on the wire behind the `-`. Several have no
//! `ERR` in front and must stay so: clients compare them.

use std::borrow::Cow;

use thiserror::Error;

use crate::reply::Reply;

/// Bytes of a command's name and arguments that the text about an unknown command shows. As in Redis.
const SHOWN_BYTES_MAX: usize = 128;

/// Why a command was not carried out. Nothing was changed, unless the variant says so.
#[derive(Clone, PartialEq, Eq, Debug, Error)]
pub enum Refusal {
    /// No command has this name. Send another one.
    #[error("ERR unknown command '{name}', with args beginning with: {arguments}")]
    UnknownCommand {
        /// As it came, cut.
        name: String,
        /// Each in quotes and with a blank behind it, cut together.
        arguments: String,
    },
    /// The command has no such subcommand.
    #[error("ERR unknown subcommand '{name}'. Try {command} HELP.")]
    UnknownSubcommand {
        /// As it came, cut.
        name: String,
        /// Of which command, in capitals.
        command: String,
    },
    /// Too few or too many arguments.
    #[error("ERR wrong number of arguments for '{command}' command")]
    Arity {
        /// In lower case; with a bar before the name of a subcommand.
        command: &'static str,
    },
    /// More than a command may have of something. Send several commands.
    #[error("ERR at most {most} {what}")]
    TooMany {
        /// Of what.
        what: &'static str,
        /// How many.
        most: usize,
    },
    /// A word stands where none of this kind may.
    #[error("ERR syntax error")]
    Syntax,
    /// No integer, or one out of its range.
    #[error("ERR value is not an integer or out of range")]
    NotInteger,
    /// EXPIRE: the time is beyond what there is.
    #[error("ERR invalid expire time in '{command}' command")]
    ExpireTime {
        /// In lower case.
        command: &'static str,
    },
    /// EXPIRE: an option that there is not.
    #[error("ERR Unsupported option {option}")]
    UnsupportedOption {
        /// As it came.
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
    /// RESTORE: the time without use is below 0.
    #[error("ERR Invalid IDLETIME value, must be >= 0")]
    RestoreIdle,
    /// RESTORE: how often it is used is none of its numbers.
    #[error("ERR Invalid FREQ value, must be >= 0 and <= 255")]
    RestoreFrequency,
    /// RESTORE: there is a key of this name. Name another one, or say REPLACE.
    #[error("BUSYKEY Target key name already exists.")]
    BusyKey,
    /// RESTORE: the payload was cut or damaged, or comes from a server that is too new.
    #[error("ERR DUMP payload version or checksum are wrong")]
    DumpPayload,
    /// RESTORE: the payload is whole, but holds no filter that is read here.
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
    /// BF.RESERVE: nothing follows EXPANSION.
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
    /// BF.INSERT, CF.INSERT: no option of this name.
    #[error("Unknown argument received")]
    InsertOption,
    /// CF.RESERVE: the value of an option is no number.
    #[error("Couldn't parse {option}")]
    CuckooOption {
        /// In capitals.
        option: &'static str,
    },
    /// CF.RESERVE: the value of an option is out of its range.
    #[error("{option}: value must be in the range [{least}, {most}]")]
    CuckooOptionRange {
        /// In capitals.
        option: &'static str,
        /// The least value.
        least: i64,
        /// The largest.
        most: i64,
    },
    /// CF.RESERVE, CF.INSERT: the capacity is out of its range.
    #[error("Capacity must be in the range [{least}, 1073741824]")]
    CuckooCapacity {
        /// The least one, as RedisBloom names it.
        least: &'static str,
    },
    /// CF.ADD: the filter has no room for the item. Remove some, or make a larger one.
    #[error("Filter is full")]
    CuckooFull,
    /// CF.COMPACT: there is no cuckoo filter of this name.
    #[error("Cuckoo filter was not found")]
    NothingToCompact,
    /// CF.DEL: there is no cuckoo filter of this name.
    #[error("Not found")]
    NoCuckoo,
    /// BF.SCANDUMP: the iterator is no number.
    #[error("Second argument must be numeric")]
    DumpIterator,
    /// BF.LOADCHUNK: the iterator is no number.
    #[error("ERR Second argument must be numeric")]
    LoadIterator,
    /// CF.SCANDUMP, CF.LOADCHUNK: the iterator is no number.
    #[error("Invalid position")]
    CuckooIterator,
    /// BF.LOADCHUNK, CF.LOADCHUNK: no piece of a copy, or not the next one; or the filter is there.
    #[error("ERR received bad data")]
    BadData,
    /// BF.INFO: no field of this name.
    #[error("Invalid information value")]
    InfoField,
    /// There is no filter of this name.
    #[error("ERR not found")]
    NotFound,
    /// There is a filter of this name.
    #[error("ERR item exists")]
    ItemExists,
    /// The filter is larger than the cluster, or a quota, has room for.
    #[error("ERR Insufficient memory to create filter")]
    NoMemoryToCreate,
    /// A filter takes no more items.
    #[error("ERR non scaling filter is full")]
    Full,
    /// What was asked is nothing that this kind of filter does.
    #[error("WRONGTYPE Operation against a key holding the wrong kind of value")]
    WrongType,
    /// The client must say who it is.
    #[error("NOAUTH Authentication required.")]
    NoAuth,
    /// HELLO: the client must say who it is.
    #[error(
        "NOAUTH HELLO must be called with the client already authenticated, otherwise the HELLO <proto> \
         AUTH <user> <pass> option can be used to authenticate the client and select the RESP protocol \
         version at the same time"
    )]
    HelloNoAuth,
    /// HELLO: no such version.
    #[error("NOPROTO unsupported protocol version")]
    NoProtocol,
    /// HELLO: the version is no number.
    #[error("ERR Protocol version is not an integer or out of range")]
    BadProtocol,
    /// HELLO: an option that is none, or lacks its values.
    #[error("ERR Syntax error in HELLO option '{option}'")]
    HelloOption {
        /// As it came, cut.
        option: String,
    },
    /// AUTH: nobody has this name and password.
    #[error("WRONGPASS invalid username-password pair or user is disabled.")]
    WrongPassword,
    /// AUTH: a password where nobody needs one.
    #[error(
        "ERR AUTH <password> called without any password configured for the default user. Are you sure \
         your configuration is correct?"
    )]
    NoPasswordSet,
    /// The user may not run the command at all.
    #[error("NOPERM User {user} has no permissions to run the '{command}' command")]
    NoPermission {
        /// Who asked.
        user: String,
        /// In lower case.
        command: &'static str,
    },
    /// The user may not do this with the key.
    #[error("NOPERM No permissions to access a key")]
    NoKeyPermission,
    /// CLIENT SETNAME: what is no name.
    #[error("ERR Client names cannot contain spaces, newlines or special characters.")]
    ClientName,
    /// CLIENT SETINFO: no attribute of this name.
    #[error("ERR Unrecognized option '{option}'")]
    ClientAttribute {
        /// As it came, cut.
        option: String,
    },
    /// CLIENT SETINFO: what is no value.
    #[error("ERR {attribute} cannot contain spaces, newlines or special characters.")]
    ClientAttributeValue {
        /// The attribute's name as it came, cut.
        attribute: String,
    },
    /// CONFIG SET: what a node is set to stands in its file and its arguments.
    #[error(
        "ERR CONFIG SET failed (possibly related to argument '{parameter}') - can't set immutable config"
    )]
    ImmutableConfig {
        /// As it came, cut.
        parameter: String,
    },
    /// SELECT: there is no such database.
    #[error("ERR DB index is out of range")]
    DatabaseRange,
    /// There is no filter to be renamed.
    #[error("ERR no such key")]
    NoSuchKey,
    /// A filter is no copy of itself.
    #[error("ERR source and destination objects are the same")]
    SameKey,
    /// SCAN: the cursor is none.
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
    /// EXEC behind a command that could not be queued.
    #[error("EXECABORT Transaction discarded because of previous errors.")]
    ExecAbort,
    /// More commands are queued, or larger ones, than a transaction may have.
    #[error("ERR transaction too large: at most {commands} commands and {bytes} bytes are queued")]
    TransactionTooLarge {
        /// How many commands.
        commands: usize,
        /// How many bytes of arguments.
        bytes: usize,
    },
    /// COMMAND GETKEYS: not a command with these arguments.
    #[error("ERR Invalid command specified")]
    InvalidCommand,
    /// COMMAND GETKEYS: the command has no keys.
    #[error("ERR The command has no key arguments")]
    NoKeys,
    /// UMBEL.REQUEST: what is no name of a request.
    #[error("ERR a request is SESSION:SEQUENCE [BELOW SEQUENCE] COMMAND, with numbers from 0 on")]
    RequestName,
    /// UMBEL.REQUEST: the command is none that a request may name.
    #[error("ERR a request is one of BF.ADD, BF.MADD, BF.INSERT and SADD, not '{command}'")]
    RequestCommand {
        /// In lower case.
        command: &'static str,
    },
    /// UMBEL.CREATE: an option that is none, is there twice, or lacks its value.
    #[error(
        "ERR a filter is KIND blocked|classic|partitioned|counting|cuckoo|quotient|scalable|redisbloom|aging|stable CAPACITY n ERROR \
         p|BYTES n [REPLICATED], or CAPACITY n ERROR p WINDOW ms|MANUAL [SLICES n, which divides ms] [TIME EVENT \
         [LATE REJECT|DROP|OLDEST]] [REFRESH] [REPLICATED], or LIKE name"
    )]
    CreateOption,
    /// UMBEL.ESTIMATE: what is no number about two filters.
    #[error("ERR an estimate is UNION, INTERSECTION or JACCARD")]
    EstimateOption,
    /// The commands of other connections take all the room that requests have. Send again later.
    #[error(
        "TRYAGAIN requests of clients take all the room that they have on this node: send again"
    )]
    NoRoom,
    /// Another reason, with its code in front.
    #[error("{0}")]
    Other(Cow<'static, str>),
}

impl From<Refusal> for Reply {
    fn from(refusal: Refusal) -> Self {
        match refusal {
            Refusal::Other(text) => Self::Error(text),
            refusal => Self::Error(refusal.to_string().into()),
        }
    }
}

/// Bytes as error texts show them, cut.
pub(crate) fn shown(bytes: &[u8]) -> String {
    let cut = bytes.get(..SHOWN_BYTES_MAX).unwrap_or(bytes);
    String::from_utf8_lossy(cut).into_owned()
}

/// What is said of a command that there is not.
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
