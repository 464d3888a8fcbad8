//! Why settings are refused.

use umbel_engine::limits::NODE_COUNT_MAX;
use umbel_engine::placement::ZoneError;

/// A setting is wrong. Nothing was started; the message names the setting and what it may be.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum ConfigError {
    /// An address is not of the form `host:port`. Write it so.
    #[error(
        "{setting} = \"{address}\": expected HOST:PORT, like 127.0.0.1:7300, node-1:7300 or [::1]:7300"
    )]
    Address {
        /// Name of the setting.
        setting: &'static str,
        /// Its value.
        address: String,
    },
    /// Other nodes cannot reach port 0. Name the port.
    #[error("{setting} = \"{address}\": the port must not be 0, because others connect to it")]
    PortZero {
        /// Name of the setting.
        setting: &'static str,
        /// Its value.
        address: String,
    },
    /// Other machines could reach the node, and nothing would protect it. Listen on a loopback
    /// address, or allow it where the network is private.
    #[error(
        "{setting} = \"{address}\": other machines could connect without TLS; name certificates (tls_cert, \
         tls_key, tls_ca; `umbel cluster certs` makes them), listen on 127.0.0.1, or say insecure = true \
         (--insecure) if the network is private"
    )]
    Insecure {
        /// Name of the setting.
        setting: &'static str,
        /// The address.
        address: String,
    },
    /// TLS needs three files, and one of them is not named. Name it, or none.
    #[error("TLS needs tls_cert, tls_key and tls_ca, and {missing} is not set")]
    TlsIncomplete {
        /// Name of the setting.
        missing: &'static str,
    },
    /// Without certificates there is nothing optional. Name them, or leave it out.
    #[error("tls_optional without tls_cert: name certificates, or leave it out")]
    OptionalWithoutTls,
    /// A setting counts with TLS alone. Name certificates, or leave it out.
    #[error(
        "{setting} without tls_cert, or with tls_optional, protects nothing: name certificates, or leave it out"
    )]
    NeedsTls {
        /// Name of the setting.
        setting: &'static str,
    },
    /// A token is for joining. Name a node of the cluster.
    #[error("join_token_file without join: name a node of the cluster that the token is for")]
    TokenWithoutJoin,
    /// Nobody can connect to "all addresses". Say which address others shall use.
    #[error(
        "listen = \"{address}\" means all addresses, so advertise must say which one others use, \
         like advertise = \"node-1:7300\""
    )]
    NoAdvertise {
        /// The address.
        address: String,
    },
    /// The advertised address stands for all addresses, so nobody can connect to it.
    #[error("advertise = \"{address}\" means all addresses: name one that others can connect to")]
    AdvertisesAll {
        /// The address.
        address: String,
    },
    /// Two settings contradict each other. Take one away.
    #[error("{one} and {other} exclude each other: give one of them")]
    Both {
        /// Name of a setting.
        one: &'static str,
        /// Name of the other.
        other: &'static str,
    },
    /// The founders' list lacks the node itself. All founders need the same list.
    #[error(
        "initial_cluster names {}, but not this node, which is \"{own}\" to others: add it, or set \
         advertise to the name in the list", named.join(", ")
    )]
    NotInitial {
        /// The own advertised address.
        own: String,
        /// The list.
        named: Vec<String>,
    },
    /// The founders' list names a node twice. Take one away.
    #[error("initial_cluster names \"{address}\" twice")]
    Twice {
        /// The address.
        address: String,
    },
    /// The founders' list is too long. Start with fewer nodes.
    #[error("initial_cluster names {count} nodes, at most {NODE_COUNT_MAX}")]
    TooManyNodes {
        /// Length of the list.
        count: usize,
    },
    /// A number is out of its range. Choose one within.
    #[error("{setting} = {value}: expected {least} to {most}")]
    Range {
        /// Name of the setting.
        setting: &'static str,
        /// Its value.
        value: u64,
        /// The least that it may be.
        least: u64,
        /// The most that it may be.
        most: u64,
    },
    /// Plain commands of the Redis protocol make no filters of this kind. Name one that they make.
    #[error("resp_default_kind = \"{kind}\": expected scalable, redisbloom, blocked or classic")]
    DefaultKind {
        /// Its name.
        kind: String,
    },
    /// The console has no such mode. Name one of those that it has.
    #[error("console = \"{mode}\": expected off, read-only, proven or full")]
    ConsoleMode {
        /// What was named.
        mode: String,
    },
    /// The console is reached under names of hosts. Name one without scheme and port.
    #[error("console_hosts names \"{host}\": expected the name of a host, without scheme and port")]
    ConsoleHost {
        /// What was named.
        host: String,
    },
    /// The zone has no name that zones can have. Name it otherwise.
    #[error("zone: {0}")]
    Zone(#[from] ZoneError),
    /// The data folder has no name. Name one.
    #[error("data is empty: name a folder")]
    NoData,
}
