//! Parses the arguments of commands on the connection and the server.

use super::keyspace::check_pattern;
use super::{
    ClientAttribute, ClientChoice, ClientCommand, ClusterQuery, Command, CommandQuery,
    ConnectionCommand, Credentials, Hello, ListFilter, Parsed, ReplyMode, Transaction,
};
use crate::arguments::{Arguments, is_word};
use crate::describe::is_category;
use crate::limits::{CLIENT_TEXT_BYTES_MAX, QUERY_NAMES_MAX};
use crate::number::integer;
use crate::refusal::{Refusal, shown};
use crate::reply::Protocol;
use crate::table;

/// Number of databases that a connection can select, 0 to 15, as in Redis.
const DATABASE_COUNT: i64 = 16;

fn done(command: ConnectionCommand<'_>) -> Parsed<'_> {
    Ok(Command::Connection(command))
}

/// Parsers of commands that mean the same whatever arguments they have.
macro_rules! without_arguments {
    ($($parser:ident => $command:expr),* $(,)?) => {$(
        pub(crate) fn $parser(_arguments: Arguments<'_>) -> Parsed<'_> {
            Ok($command)
        }
    )*};
}

without_arguments! {
    quit => Command::Connection(ConnectionCommand::Quit),
    reset => Command::Connection(ConnectionCommand::Reset),
    read_only => Command::Connection(ConnectionCommand::ReadOnly),
    read_write => Command::Connection(ConnectionCommand::ReadWrite),
    asking => Command::Connection(ConnectionCommand::Asking),
    get_name => Command::Connection(ConnectionCommand::Client(ClientCommand::GetName)),
    id => Command::Connection(ConnectionCommand::Client(ClientCommand::Id)),
    client_info => Command::Connection(ConnectionCommand::Client(ClientCommand::Info)),
    reset_counters => Command::Connection(ConnectionCommand::ResetCounters),
    time => Command::Connection(ConnectionCommand::Time),
    role => Command::Connection(ConnectionCommand::Role),
    module_list => Command::Connection(ConnectionCommand::ModuleList),
    who_am_i => Command::Connection(ConnectionCommand::WhoAmI),
    users => Command::Connection(ConnectionCommand::Users),
    nothing_listed => Command::Connection(ConnectionCommand::NothingListed),
    nothing_counted => Command::Connection(ConnectionCommand::NothingCounted),
    nothing_done => Command::Connection(ConnectionCommand::NoEffect),
    multi => Command::Transaction(Transaction::Begin),
    exec => Command::Transaction(Transaction::Execute),
    discard => Command::Transaction(Transaction::Discard),
    commands => Command::Commands(CommandQuery::All),
    command_count => Command::Commands(CommandQuery::Count),
    cluster_slots => Command::Cluster(ClusterQuery::Slots),
    cluster_shards => Command::Cluster(ClusterQuery::Shards),
    cluster_nodes => Command::Cluster(ClusterQuery::Nodes),
    cluster_my_id => Command::Cluster(ClusterQuery::MyId),
    cluster_my_shard_id => Command::Cluster(ClusterQuery::MyShardId),
    cluster_info => Command::Cluster(ClusterQuery::Info),
    cluster_links => Command::Cluster(ClusterQuery::Links),
}

pub(crate) fn ping(arguments: Arguments<'_>) -> Parsed<'_> {
    match arguments.len() {
        1 | 2 => done(ConnectionCommand::Ping(arguments.get(1))),
        _ => Err(Refusal::Arity { command: "ping" }),
    }
}

pub(crate) fn echo(arguments: Arguments<'_>) -> Parsed<'_> {
    done(ConnectionCommand::Echo(arguments.at(1)))
}

pub(crate) fn select(arguments: Arguments<'_>) -> Parsed<'_> {
    done(ConnectionCommand::Select(database(arguments.at(1))?))
}

/// Parses the number of a database.
pub(super) fn database(argument: &[u8]) -> Result<u8, Refusal> {
    let number = integer(argument).ok_or(Refusal::NotInteger)?;
    let number = i32::try_from(number).map_err(|_| Refusal::NotInt32)?;
    let number = u8::try_from(number).ok().filter(|&number| i64::from(number) < DATABASE_COUNT);
    number.ok_or(Refusal::DatabaseRange)
}

pub(crate) fn hello(arguments: Arguments<'_>) -> Parsed<'_> {
    let mut hello = Hello::default();
    let Some(version) = arguments.get(1) else {
        return done(ConnectionCommand::Hello(hello));
    };
    hello.protocol = Some(match integer(version).ok_or(Refusal::BadProtocol)? {
        2 => Protocol::Two,
        3 => Protocol::Three,
        _ => return Err(Refusal::NoProtocol),
    });
    let mut at = 2;
    while let Some(option) = arguments.get(at) {
        let wrong = || Refusal::HelloOption { option: shown(option) };
        let value = |offset: usize| arguments.get(at + offset).ok_or_else(wrong);
        at += if is_word(option, "AUTH") {
            hello.credentials = Some(Credentials { user: Some(value(1)?), password: value(2)? });
            3
        } else if is_word(option, "SETNAME") {
            hello.name = Some(client_name(value(1)?)?);
            2
        } else {
            return Err(wrong());
        };
    }
    done(ConnectionCommand::Hello(hello))
}

pub(crate) fn auth(arguments: Arguments<'_>) -> Parsed<'_> {
    let credentials = match arguments.len() {
        2 => Credentials { user: None, password: arguments.at(1) },
        3 => Credentials { user: Some(arguments.at(1)), password: arguments.at(2) },
        _ => return Err(Refusal::Syntax),
    };
    done(ConnectionCommand::Auth(credentials))
}

fn client(command: ClientCommand<'_>) -> Parsed<'_> {
    done(ConnectionCommand::Client(command))
}

/// Whether a text prints as one word and is short enough to be stored.
fn is_plain(text: &[u8]) -> bool {
    text.len() <= CLIENT_TEXT_BYTES_MAX && text.iter().all(|byte| (b'!'..=b'~').contains(byte))
}

/// The names in a query, after the command's own name.
fn names(arguments: Arguments<'_>, first: usize) -> Result<Arguments<'_>, Refusal> {
    arguments.from(first).at_most(QUERY_NAMES_MAX, "names")
}

fn client_name(name: &[u8]) -> Result<&[u8], Refusal> {
    if is_plain(name) { Ok(name) } else { Err(Refusal::ClientName) }
}

pub(crate) fn set_name(arguments: Arguments<'_>) -> Parsed<'_> {
    client(ClientCommand::SetName(client_name(arguments.at(2))?))
}

pub(crate) fn client_list(arguments: Arguments<'_>) -> Parsed<'_> {
    let (option, count) = (arguments.at(2), arguments.len());
    let choice = if count == 2 {
        ClientChoice::All
    } else if count == 4 && is_word(option, "TYPE") {
        clients_of_type(arguments.at(3))?
    } else if count > 3 && is_word(option, "ID") {
        let ids = arguments.from(3).at_most(QUERY_NAMES_MAX, "ids")?;
        if ids.iter().any(|id| integer(id).is_none()) {
            return Err(Refusal::ClientId);
        }
        ClientChoice::Ids(ids)
    } else {
        return Err(Refusal::Syntax);
    };
    client(ClientCommand::List(choice))
}

/// The connections of a type of Redis's. Here no connection is a replica's or a master's, or subscribes.
fn clients_of_type(name: &[u8]) -> Result<ClientChoice<'_>, Refusal> {
    let others = ["slave", "replica", "pubsub", "master"];
    if is_word(name, "normal") {
        Ok(ClientChoice::All)
    } else if others.iter().any(|other| is_word(name, other)) {
        Ok(ClientChoice::Nobody)
    } else {
        Err(Refusal::ClientType { name: shown(name) })
    }
}

pub(crate) fn set_info(arguments: Arguments<'_>) -> Parsed<'_> {
    let (name, value) = (arguments.at(2), arguments.at(3));
    let attribute = if is_word(name, "LIB-NAME") {
        ClientAttribute::LibraryName
    } else if is_word(name, "LIB-VER") {
        ClientAttribute::LibraryVersion
    } else {
        return Err(Refusal::ClientAttribute { option: shown(name) });
    };
    if !is_plain(value) {
        return Err(Refusal::ClientAttributeValue { attribute: shown(name) });
    }
    client(ClientCommand::SetInfo(attribute, value))
}

pub(crate) fn replies(arguments: Arguments<'_>) -> Parsed<'_> {
    let modes = [("ON", ReplyMode::On), ("OFF", ReplyMode::Off), ("SKIP", ReplyMode::Skip)];
    let mode = modes.into_iter().find(|(word, _)| is_word(arguments.at(2), word));
    done(ConnectionCommand::Replies(mode.ok_or(Refusal::Syntax)?.1))
}

pub(crate) fn switch(arguments: Arguments<'_>) -> Parsed<'_> {
    let word = arguments.at(2);
    if is_word(word, "ON") || is_word(word, "OFF") {
        done(ConnectionCommand::NoEffect)
    } else {
        Err(Refusal::Syntax)
    }
}

pub(crate) fn info(arguments: Arguments<'_>) -> Parsed<'_> {
    done(ConnectionCommand::Info(names(arguments, 1)?))
}

pub(crate) fn config_get(arguments: Arguments<'_>) -> Parsed<'_> {
    let patterns = names(arguments, 2)?;
    patterns.iter().try_for_each(check_pattern)?;
    done(ConnectionCommand::ConfigGet(patterns))
}

/// No parameter can be set over a connection: the error names the first one.
pub(crate) fn config_set(arguments: Arguments<'_>) -> Parsed<'_> {
    if arguments.len().is_multiple_of(2) {
        Err(Refusal::ImmutableConfig { parameter: shown(arguments.at(2)) })
    } else {
        Err(Refusal::Arity { command: "config|set" })
    }
}

pub(crate) fn wait(arguments: Arguments<'_>) -> Parsed<'_> {
    integer(arguments.at(1)).ok_or(Refusal::NotInteger)?;
    check_timeout(arguments.at(2))?;
    done(ConnectionCommand::Wait)
}

pub(crate) fn wait_for_disks(arguments: Arguments<'_>) -> Parsed<'_> {
    if !(0..=1).contains(&integer(arguments.at(1)).ok_or(Refusal::NotInteger)?) {
        return Err(Refusal::LocalCount);
    }
    // Here a number that is none has the same text.
    if integer(arguments.at(2)).is_none_or(|count| count < 0) {
        return Err(Refusal::ReplicaCount);
    }
    check_timeout(arguments.at(3))?;
    done(ConnectionCommand::WaitForDisks)
}

/// Refuses what is no number of milliseconds to wait for.
fn check_timeout(timeout: &[u8]) -> Result<(), Refusal> {
    match integer(timeout).ok_or(Refusal::BadTimeout)? {
        ..0 => Err(Refusal::NegativeTimeout),
        _ => Ok(()),
    }
}

pub(crate) fn categories(arguments: Arguments<'_>) -> Parsed<'_> {
    let category = arguments.get(2);
    if arguments.len() > 3 {
        return Err(Refusal::Arity { command: "acl|cat" });
    }
    if let Some(name) = category.filter(|&name| !is_category(name)) {
        return Err(Refusal::UnknownCategory { name: shown(name) });
    }
    Ok(Command::Commands(CommandQuery::Categories(category)))
}

pub(crate) fn watch(_arguments: Arguments<'_>) -> Parsed<'_> {
    Err(Refusal::NoWatch)
}

pub(crate) fn slow_log(arguments: Arguments<'_>) -> Parsed<'_> {
    match (arguments.get(2).map(integer), arguments.len()) {
        (None, _) | (Some(Some(-1..)), 3) => done(ConnectionCommand::NothingListed),
        (Some(_), 3) => Err(Refusal::SlowLogCount),
        _ => Err(Refusal::Arity { command: "slowlog|get" }),
    }
}

pub(crate) fn command_list(arguments: Arguments<'_>) -> Parsed<'_> {
    let filter = match arguments.len() {
        2 => None,
        5 if is_word(arguments.at(2), "FILTERBY") => {
            let (by, value) = (arguments.at(3), arguments.at(4));
            Some(if is_word(by, "PATTERN") {
                check_pattern(value)?;
                ListFilter::Pattern(value)
            } else if is_word(by, "ACLCAT") {
                ListFilter::Category(value)
            } else if is_word(by, "MODULE") {
                ListFilter::Module(value)
            } else {
                return Err(Refusal::Syntax);
            })
        }
        _ => return Err(Refusal::Syntax),
    };
    Ok(Command::Commands(CommandQuery::List(filter)))
}

pub(crate) fn command_info(arguments: Arguments<'_>) -> Parsed<'_> {
    Ok(Command::Commands(CommandQuery::Info(names(arguments, 2)?)))
}

pub(crate) fn command_docs(arguments: Arguments<'_>) -> Parsed<'_> {
    Ok(Command::Commands(CommandQuery::Docs(names(arguments, 2)?)))
}

pub(crate) fn command_keys(arguments: Arguments<'_>) -> Parsed<'_> {
    let inner = arguments.from(2);
    let spec = table::find(inner).map_err(|refusal| match refusal {
        Refusal::Arity { .. } => {
            Refusal::Other("ERR Invalid number of arguments specified for command".into())
        }
        _ => Refusal::InvalidCommand,
    })?;
    if spec.keys.is_none() {
        return Err(Refusal::NoKeys);
    }
    Ok(Command::Commands(CommandQuery::GetKeys(spec, inner)))
}

pub(crate) fn help(arguments: Arguments<'_>) -> Parsed<'_> {
    let spec = table::by_name(arguments.at(0)).ok_or(Refusal::Syntax)?;
    Ok(Command::Commands(CommandQuery::Help(spec)))
}

pub(crate) fn cluster_key_slot(arguments: Arguments<'_>) -> Parsed<'_> {
    Ok(Command::Cluster(ClusterQuery::KeySlot(arguments.at(2))))
}
