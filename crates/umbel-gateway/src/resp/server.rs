//! Commands about the connection and the server.

use std::fmt::Write as _;
use std::sync::atomic::Ordering;

use umbel_engine::ShardId;
use umbel_engine::meta::MetaState;
use umbel_engine::placement::ShardRecord;
use umbel_node::VERSION;
use umbel_resp::{
    Arguments, ClientAttribute, ClientCommand, ConnectionCommand, Hello, Protocol, Refusal, Reply,
    glob,
};

use super::cluster::cluster_id;
use super::keys::is_shown;
use super::session::Session;
use crate::limits::RESP_CONNECTIONS_MAX;

/// The release of Redis whose behaviour the connection follows.
const REDIS_VERSION: &str = "7.4.0";

/// The release of the module whose commands are supported.
const MODULE_VERSION: i64 = 80_000;

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
        ConnectionCommand::NoEffect => Reply::OK,
        ConnectionCommand::Client(command) => client(session, command),
        ConnectionCommand::Replies(mode) => {
            session.set_replies(mode);
            Reply::OK
        }
        ConnectionCommand::Info(sections) => Reply::Verbatim(info(session, sections)),
        ConnectionCommand::ConfigGet(patterns) => settings(patterns),
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
        ConnectionCommand::ModuleList => Reply::Array(vec![module()]),
        ConnectionCommand::WhoAmI => Reply::bulk(session.user()),
    })
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
        ClientCommand::List => {
            let clients = session.shared.clients.all();
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
        Reply::entry("mode", Reply::bulk("standalone")),
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
const SETTINGS: [(&str, &str); 9] = [
    ("appendonly", "yes"),
    ("bf-error-rate", "0.01"),
    ("bf-expansion-factor", "2"),
    ("bf-initial-size", "100"),
    ("databases", "16"),
    ("maxmemory", "0"),
    ("maxmemory-policy", "noeviction"),
    ("save", ""),
    ("timeout", "0"),
];

fn settings(patterns: Arguments<'_>) -> Reply {
    let clients = RESP_CONNECTIONS_MAX.to_string();
    let known = SETTINGS.into_iter().chain([("maxclients", &*clients)]);
    let is_asked = |name: &str| {
        let mut patterns = patterns.iter().map(<[u8]>::to_ascii_lowercase);
        patterns.any(|pattern| glob::matches(&pattern, name.as_bytes()))
    };
    let asked = known.filter(|(name, _)| is_asked(name));
    Reply::Map(asked.map(|(name, value)| (Reply::bulk(name), Reply::bulk(value))).collect())
}

/// The sections of `INFO`, in their order.
const SECTIONS: [&str; 9] = [
    "Server",
    "Clients",
    "Memory",
    "Persistence",
    "Stats",
    "Replication",
    "Modules",
    "Cluster",
    "Keyspace",
];

fn info(session: &Session, asked: Arguments<'_>) -> String {
    let is_all = |name: &[u8]| {
        ["all", "default", "everything"].iter().any(|all| name.eq_ignore_ascii_case(all.as_bytes()))
    };
    let mut text = String::new();
    for section in SECTIONS {
        let is_it = |name: &[u8]| name.eq_ignore_ascii_case(section.as_bytes()) || is_all(name);
        if asked.is_empty() || asked.iter().any(is_it) {
            let lines = section_lines(session, section);
            let gap = if text.is_empty() { "" } else { "\r\n" };
            let _ = write!(text, "{gap}# {section}\r\n");
            for (name, value) in lines {
                let _ = write!(text, "{name}:{value}\r\n");
            }
        }
    }
    text
}

fn section_lines(session: &Session, section: &str) -> Vec<(&'static str, String)> {
    let shared = &session.shared;
    let text = ToOwned::to_owned;
    match section {
        "Server" => vec![
            ("redis_version", text(REDIS_VERSION)),
            ("redis_mode", text("standalone")),
            ("os", text(std::env::consts::OS)),
            ("arch_bits", text("64")),
            ("process_id", std::process::id().to_string()),
            ("run_id", cluster_id(session)),
            ("tcp_port", shared.address.1.to_string()),
            ("uptime_in_seconds", shared.started.elapsed().as_secs().to_string()),
            ("umbel_version", text(VERSION)),
        ],
        "Clients" => vec![
            ("connected_clients", shared.clients.count().to_string()),
            ("maxclients", RESP_CONNECTIONS_MAX.to_string()),
        ],
        "Memory" => {
            let used = shared.coordinator.memory_bytes();
            vec![("used_memory", used.to_string()), ("maxmemory", text("0"))]
        }
        "Persistence" => vec![
            ("loading", text("0")),
            ("rdb_bgsave_in_progress", text("0")),
            ("aof_enabled", text("1")),
        ],
        "Stats" => {
            let of = |counter: &std::sync::atomic::AtomicU64| {
                counter.load(Ordering::Relaxed).to_string()
            };
            vec![
                ("total_connections_received", shared.clients.total().to_string()),
                ("total_commands_processed", of(&shared.counts.commands)),
                ("keyspace_hits", of(&shared.counts.hits)),
                ("keyspace_misses", of(&shared.counts.misses)),
            ]
        }
        "Replication" => vec![("role", text("master")), ("connected_slaves", text("0"))],
        "Modules" => {
            let module = format!(
                "name=bf,ver={MODULE_VERSION},api=1,filters=0,usedby=[],using=[],options=[]"
            );
            vec![("module", module)]
        }
        "Cluster" => vec![("cluster_enabled", text("0"))],
        _ => match key_count(session) {
            0 => Vec::new(),
            count => vec![("db0", format!("keys={count},expires=0,avg_ttl=0"))],
        },
    }
}

/// Filters that the caller may see, in all databases.
fn key_count(session: &Session) -> usize {
    let is_visible = session.caller.visible();
    let count = session.shared.coordinator.read_meta(|state: &MetaState| {
        let filters = state.filters().filter(|(_, record)| is_shown(record.state));
        filters.filter(|(_, record)| is_visible(record.name.as_str())).count()
    });
    count.unwrap_or(0)
}
