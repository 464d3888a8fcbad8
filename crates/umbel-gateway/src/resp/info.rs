//! `INFO`: what a node says of itself.

use std::fmt::Write as _;
use std::sync::atomic::{AtomicU64, Ordering};

use umbel_engine::meta::MetaState;
use umbel_node::VERSION;
use umbel_resp::Arguments;

use super::cluster::{is_enabled, mode, own_id};
use super::keys::is_shown;
use super::server::{MODULE_VERSION, REDIS_VERSION};
use super::session::{Session, database_of};
use crate::limits::RESP_CONNECTIONS_MAX;

/// The sections, in their order.
const SECTIONS: [&str; 10] = [
    "Server",
    "Clients",
    "Memory",
    "Persistence",
    "Stats",
    "Replication",
    "Modules",
    "Cluster",
    "Keyspace",
    "Umbel",
];

/// The databases as the section about keys names them.
const DATABASES: [&str; 16] = [
    "db0", "db1", "db2", "db3", "db4", "db5", "db6", "db7", "db8", "db9", "db10", "db11", "db12",
    "db13", "db14", "db15",
];

/// Units of numbers of bytes for people, each 1,024 of the one before it.
const BYTE_UNITS: [&str; 7] = ["B", "K", "M", "G", "T", "P", "E"];

/// Seconds of a day.
const SECONDS_OF_DAY: u64 = 24 * 60 * 60;

/// Keys of a database.
#[derive(Clone, Copy, Default)]
struct Keys {
    count: usize,
    /// How many of them expire.
    expiring_count: u64,
    /// The time that these have left, in milliseconds.
    left_ms: u64,
}

/// The sections that are asked for; without any, all of them.
pub(super) fn text(session: &Session, asked: Arguments<'_>) -> String {
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
    let uptime_s = shared.started.elapsed().as_secs();
    match section {
        "Server" => vec![
            ("redis_version", text(REDIS_VERSION)),
            ("redis_mode", text(mode(session))),
            ("os", text(std::env::consts::OS)),
            ("arch_bits", text("64")),
            ("process_id", std::process::id().to_string()),
            ("run_id", own_id(session)),
            ("tcp_port", shared.address.1.to_string()),
            ("uptime_in_seconds", uptime_s.to_string()),
            ("uptime_in_days", (uptime_s / SECONDS_OF_DAY).to_string()),
            ("umbel_version", text(VERSION)),
        ],
        "Clients" => vec![
            ("connected_clients", shared.clients.count().to_string()),
            ("maxclients", RESP_CONNECTIONS_MAX.to_string()),
            // No command blocks its client until another one comes.
            ("blocked_clients", text("0")),
        ],
        "Memory" => {
            let used = shared.coordinator.memory_bytes();
            vec![
                ("used_memory", used.to_string()),
                ("used_memory_human", bytes_for_people(used)),
                ("maxmemory", text("0")),
                ("maxmemory_policy", text("noeviction")),
            ]
        }
        "Persistence" => vec![
            ("loading", text("0")),
            ("rdb_bgsave_in_progress", text("0")),
            ("aof_enabled", text("1")),
        ],
        "Stats" => {
            let of = |counter: &AtomicU64| counter.load(Ordering::Relaxed).to_string();
            vec![
                ("total_connections_received", shared.clients.total().to_string()),
                ("total_commands_processed", of(&shared.counts.commands)),
                ("rejected_connections", of(&shared.counts.rejected)),
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
        "Cluster" => vec![("cluster_enabled", u8::from(is_enabled(session)).to_string())],
        "Keyspace" => key_lines(&keys_of_databases(session)),
        _ => cluster_lines(session),
    }
}

/// A line for each database that has keys.
fn key_lines(databases: &[Keys; DATABASES.len()]) -> Vec<(&'static str, String)> {
    let databases = DATABASES.into_iter().zip(databases).filter(|(_, keys)| keys.count > 0);
    let line = |(name, keys): (&'static str, &Keys)| {
        let Keys { count, expiring_count, left_ms } = keys;
        let average_ms = left_ms / (*expiring_count).max(1);
        (name, format!("keys={count},expires={expiring_count},avg_ttl={average_ms}"))
    };
    databases.map(line).collect()
}

/// The filters that the caller may see, by database.
fn keys_of_databases(session: &Session) -> [Keys; DATABASES.len()] {
    let is_visible = session.caller.visible();
    let now_ms = session.shared.coordinator.believed_ms();
    let count = |state: &MetaState| {
        let mut databases = [Keys::default(); DATABASES.len()];
        let shown = state.filters().filter(|(_, record)| is_shown(record.state));
        for (_, record) in shown.filter(|(_, record)| is_visible(record.name.as_str())) {
            let database = usize::from(database_of(record.name.as_str()));
            if let Some(keys) = databases.get_mut(database) {
                keys.count += 1;
                if let Some(at_ms) = record.expires_ms {
                    keys.expiring_count += 1;
                    keys.left_ms = keys.left_ms.saturating_add(at_ms.saturating_sub(now_ms));
                }
            }
        }
        databases
    };
    session.shared.coordinator.read_meta(count).unwrap_or_default()
}

/// What this node is, and has, in its cluster.
fn cluster_lines(session: &Session) -> Vec<(&'static str, String)> {
    let coordinator = &session.shared.coordinator;
    let epoch = coordinator.read_meta(|state| state.epoch().0).unwrap_or(0);
    let shards = coordinator.own_shards();
    vec![
        ("node", coordinator.node().0.to_string()),
        ("epoch", epoch.to_string()),
        ("shards_held", shards.held.to_string()),
        ("shards_led", shards.led.to_string()),
        ("shards_degraded", shards.degraded.to_string()),
    ]
}

/// A number of bytes as Redis writes it: `512B`, `1.50K`.
fn bytes_for_people(bytes: u64) -> String {
    let power = bytes.max(1).ilog2() / 10;
    match BYTE_UNITS.get(power as usize) {
        Some(unit) if power > 0 => {
            let amount = bytes as f64 / (1_u64 << (10 * power)) as f64;
            format!("{amount:.2}{unit}")
        }
        _ => format!("{bytes}B"),
    }
}

#[cfg(test)]
mod tests {
    use super::super::resp_test::{Client, node, node_at};
    use super::*;
    use crate::test_node::Clock;

    #[test]
    fn bytes_are_short_for_people() {
        for (bytes, text) in [
            (0, "0B"),
            (1_023, "1023B"),
            (1_024, "1.00K"),
            (1_536, "1.50K"),
            (5 << 20, "5.00M"),
            (3 << 40, "3.00T"),
            (u64::MAX, "16.00E"),
        ] {
            assert_eq!(bytes_for_people(bytes), text);
        }
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn keys_are_counted_by_database() {
        let (_folder, node) = node_at(&Clock::stopped()).await;
        let mut client = Client::new(&node).await;
        client.call("INFO keyspace", "$12\r\n# Keyspace\r\n\r\n").await;
        for key in ["a", "b", "c"] {
            client.call(&format!("BF.ADD {key} x"), ":1\r\n").await;
        }
        client.call("EXPIRE b 1000", ":1\r\n").await;
        client.call("EXPIRE c 2000", ":1\r\n").await;
        client.call("SELECT 12", "+OK\r\n").await;
        client.call("BF.ADD a x", ":1\r\n").await;
        let text = "# Keyspace\r\ndb0:keys=3,expires=2,avg_ttl=1500000\r\n\
                    db12:keys=1,expires=0,avg_ttl=0\r\n";
        client.call("INFO keyspace", &format!("${}\r\n{text}\r\n", text.len())).await;
        node.shutdown().await;
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn a_node_reports_its_place_in_the_cluster() {
        let (_folder, node) = node().await;
        let mut client = Client::new(&node).await;
        // Both shards have made their slices, so that both have leaders.
        client.call("BF.RESERVE k 0.01 100", "+OK\r\n").await;
        let epoch = node.coordinator().read_meta(|state| state.epoch().0).unwrap();
        let text = format!(
            "# Umbel\r\nnode:1\r\nepoch:{epoch}\r\nshards_held:2\r\nshards_led:2\r\nshards_degraded:0\r\n"
        );
        client.call("INFO umbel", &format!("${}\r\n{text}\r\n", text.len())).await;
        node.shutdown().await;
    }

    /// `redis-cli --stat` reads these.
    #[tokio::test(flavor = "multi_thread")]
    async fn what_tools_read_is_there() {
        let (_folder, node) = node().await;
        let mut client = Client::new(&node).await;
        client.send(b"INFO clients memory stats\r\nPING\r\n").await;
        let mut names = Vec::new();
        loop {
            let line = client.line().await;
            if line == "+PONG" {
                break;
            }
            names.extend(line.split_once(':').map(|(name, _)| name.to_owned()));
        }
        let expected = [
            "connected_clients",
            "maxclients",
            "blocked_clients",
            "used_memory",
            "used_memory_human",
            "maxmemory",
            "maxmemory_policy",
            "total_connections_received",
            "total_commands_processed",
            "rejected_connections",
            "keyspace_hits",
            "keyspace_misses",
        ];
        assert_eq!(names, expected);
        node.shutdown().await;
    }
}
