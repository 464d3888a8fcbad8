//! Commands about the connection and the server.

use umbel_engine::ShardId;
use umbel_engine::meta::MetaState;
use umbel_engine::placement::ShardRecord;
use umbel_resp::limits::BULK_BYTES_MAX;
use umbel_resp::number::natural;
use umbel_resp::{
    Arguments, ClientAttribute, ClientChoice, ClientCommand, ConnectionCommand, Hello, Protocol,
    Refusal, Reply, glob,
};

use super::answers::refusal;
use super::cluster::{is_enabled, mode};
use super::info;
use super::session::{DEFAULT_USER, Session};
use crate::limits::RESP_CONNECTIONS_MAX;

/// The release of Redis whose behaviour the connection follows.
pub(super) const REDIS_VERSION: &str = "7.4.0";

/// The release of the module whose commands are supported.
pub(super) const MODULE_VERSION: i64 = 80_000;

pub(super) async fn answer(
    session: &mut Session,
    command: ConnectionCommand<'_>,
) -> Result<Reply, Refusal> {
    Ok(match command {
        ConnectionCommand::Ping(None) => Reply::Status("PONG".into()),
        ConnectionCommand::Ping(Some(text)) | ConnectionCommand::Echo(text) => Reply::bulk(text),
        ConnectionCommand::Quit => {
            session.is_ending = true;
            Reply::OK
        }
        ConnectionCommand::Reset => {
            session.reset().await;
            Reply::Status("RESET".into())
        }
        ConnectionCommand::Hello(hello) => return greet(session, hello).await,
        ConnectionCommand::Auth(credentials) => {
            session.authenticate(credentials).await?;
            Reply::OK
        }
        ConnectionCommand::Select(database) => {
            session.database = database;
            session.client.change(|details| details.database = database);
            Reply::OK
        }
        ConnectionCommand::ReadOnly => {
            session.reads_anywhere = true;
            Reply::OK
        }
        ConnectionCommand::ReadWrite => {
            session.reads_anywhere = false;
            Reply::OK
        }
        ConnectionCommand::Asking if !is_enabled(session) => return Err(Refusal::NoCluster),
        ConnectionCommand::Asking | ConnectionCommand::NoEffect => Reply::OK,
        ConnectionCommand::Client(command) => client(session, command),
        ConnectionCommand::Replies(mode) => {
            session.set_replies(mode);
            Reply::OK
        }
        ConnectionCommand::Info(sections) => Reply::Verbatim(info::text(session, sections)),
        ConnectionCommand::ConfigGet(patterns) => settings(patterns),
        ConnectionCommand::ResetCounters => {
            session.shared.counts.reset();
            Reply::OK
        }
        ConnectionCommand::Time => {
            let now_ms = session.shared.coordinator.seed().wall_ms();
            let parts = [now_ms / 1000, now_ms % 1000 * 1000];
            Reply::Array(parts.map(|part| Reply::bulk(part.to_string())).into())
        }
        ConnectionCommand::Role => {
            let parts = [Reply::bulk("master"), Reply::Integer(0), Reply::Array(Vec::new())];
            Reply::Array(parts.into())
        }
        ConnectionCommand::Wait => Reply::number(other_replicas_of_majority(session)),
        ConnectionCommand::WaitForDisks => {
            let others = Reply::number(other_replicas_of_majority(session));
            Reply::Array(vec![Reply::Integer(1), others])
        }
        ConnectionCommand::NothingCounted => Reply::Integer(0),
        ConnectionCommand::NothingListed => Reply::Array(Vec::new()),
        ConnectionCommand::ModuleList => Reply::Array(vec![module()]),
        ConnectionCommand::WhoAmI => Reply::bulk(session.user()),
        ConnectionCommand::Users => return users(session),
    })
}

/// The names of all principals; Redis's user where there are none.
fn users(session: &Session) -> Result<Reply, Refusal> {
    let names = session.shared.coordinator.read_meta(|state: &MetaState| {
        state.principals().map(|(name, _)| Reply::bulk(name.as_str())).collect::<Vec<_>>()
    });
    let names = names.map_err(|failure| refusal(&failure))?;
    Ok(Reply::Array(if names.is_empty() { vec![Reply::bulk(DEFAULT_USER)] } else { names }))
}

/// What `CLIENT` shows of connections, and sets for this one.
fn client(session: &Session, command: ClientCommand<'_>) -> Reply {
    match command {
        ClientCommand::SetName(name) => {
            session.client.change(|details| details.name = name.to_vec());
            Reply::OK
        }
        ClientCommand::GetName => match session.client.details().name {
            name if name.is_empty() => Reply::Null,
            name => Reply::Bulk(name),
        },
        ClientCommand::Id => Reply::number(session.client.id),
        ClientCommand::Info => Reply::Verbatim(session.client.line(&session.shared.address)),
        ClientCommand::List(choice) => {
            let all = &session.shared.clients;
            let clients = match choice {
                ClientChoice::All => all.all(),
                ClientChoice::Nobody => Vec::new(),
                ClientChoice::Ids(ids) => {
                    ids.iter().filter_map(|id| all.get(natural(id)?)).collect()
                }
            };
            let lines = clients.iter().map(|client| client.line(&session.shared.address));
            Reply::Verbatim(lines.collect())
        }
        ClientCommand::SetInfo(attribute, value) => {
            session.client.change(|details| match attribute {
                ClientAttribute::LibraryName => details.library = value.to_vec(),
                ClientAttribute::LibraryVersion => details.version = value.to_vec(),
            });
            Reply::OK
        }
    }
}

fn module() -> Reply {
    Reply::Map(vec![
        Reply::entry("name", Reply::bulk("bf")),
        Reply::entry("ver", Reply::Integer(MODULE_VERSION)),
        Reply::entry("path", Reply::bulk("")),
        Reply::entry("args", Reply::Array(Vec::new())),
    ])
}

async fn greet(session: &mut Session, hello: Hello<'_>) -> Result<Reply, Refusal> {
    if let Some(credentials) = hello.credentials {
        session.authenticate(credentials).await?;
    }
    session.check_greeting()?;
    if let Some(protocol) = hello.protocol {
        session.protocol = protocol;
    }
    let protocol = session.protocol;
    session.client.change(|details| {
        details.protocol = protocol;
        if let Some(name) = hello.name {
            details.name = name.to_vec();
        }
    });
    Ok(Reply::Map(vec![
        Reply::entry("server", Reply::bulk("redis")),
        Reply::entry("version", Reply::bulk(REDIS_VERSION)),
        Reply::entry("proto", Reply::Integer(if protocol == Protocol::Three { 3 } else { 2 })),
        Reply::entry("id", Reply::number(session.client.id)),
        Reply::entry("mode", Reply::bulk(mode(session))),
        Reply::entry("role", Reply::bulk("master")),
        Reply::entry("modules", Reply::Array(vec![module()])),
    ]))
}

/// Replicas besides the leader that have every acknowledged insert, at least.
fn other_replicas_of_majority(session: &Session) -> u64 {
    let members = session.shared.coordinator.read_meta(|state| {
        state.shard(ShardId(0)).map(ShardRecord::members).map_or(0, |members| members.len())
    });
    members.unwrap_or(0) as u64 / 2
}

/// The server's settings that clients read.
const SETTINGS: [(&str, &str); 14] = [
    ("appendonly", "yes"),
    ("bf-error-rate", "0.01"),
    ("bf-expansion-factor", "2"),
    ("bf-initial-size", "100"),
    ("cf-bucket-size", "2"),
    ("cf-expansion-factor", "1"),
    ("cf-initial-size", "1024"),
    ("cf-max-expansions", "32"),
    ("cf-max-iterations", "20"),
    ("databases", "16"),
    ("maxmemory", "0"),
    ("maxmemory-policy", "noeviction"),
    ("save", ""),
    ("timeout", "0"),
];

fn settings(patterns: Arguments<'_>) -> Reply {
    let (clients, bytes) = (RESP_CONNECTIONS_MAX.to_string(), BULK_BYTES_MAX.to_string());
    let limits = [("maxclients", &*clients), ("proto-max-bulk-len", &*bytes)];
    let known = SETTINGS.into_iter().chain(limits);
    let is_asked = |name: &str| {
        let mut patterns = patterns.iter().map(<[u8]>::to_ascii_lowercase);
        patterns.any(|pattern| glob::matches(&pattern, name.as_bytes()))
    };
    let asked = known.filter(|(name, _)| is_asked(name));
    Reply::Map(asked.map(|(name, value)| (Reply::bulk(name), Reply::bulk(value))).collect())
}
