//! Why settings are refused.

use umbel_engine::limits::NODE_COUNT_MAX;
use umbel_engine::placement::ZoneError;

/// A setting is invalid. Nothing was started; the message names the setting and its possible values.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum ConfigError {
    /// An address is not of the form `host:port`. Correct it.
    #[error(
        "{setting} = \"{address}\": expected HOST:PORT, like 127.0.0.1:7300, node-1:7300 or [::1]:7300"
    )]
    Address {
        /// Name of the setting.
        setting: &'static str,
        /// Its value.
        address: String,
    },
    /// Other nodes cannot connect to port 0. Set the port.
    #[error("{setting} = \"{address}\": the port must not be 0, because others connect to it")]
    PortZero {
        /// Name of the setting.
        setting: &'static str,
        /// Its value.
        address: String,
    },
    /// Other machines could reach the node without any protection. Listen on a loopback address, or
    /// allow it if the network is private.
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
    /// Both protocols cannot have one port. Name another one for one of them.
    #[error(
        "listen = \"{listen}\" (--listen) and resp_listen = \"{resp_listen}\" (--resp) meet at one port, and each protocol \
         needs its own: name another port for one of them"
    )]
    AddressesMeet {
        /// The address of gRPC.
        listen: String,
        /// That of the Redis protocol.
        resp_listen: String,
    },
    /// TLS needs three files, and one of them is not set. Set all three or none.
    #[error("TLS needs tls_cert, tls_key and tls_ca, and {missing} is not set")]
    TlsIncomplete {
        /// Name of the missing setting.
        missing: &'static str,
    },
    /// Without certificates, TLS cannot be optional. Set them, or remove this setting.
    #[error("tls_optional without tls_cert: name certificates, or leave it out")]
    OptionalWithoutTls,
    /// A setting has an effect only with TLS. Set certificates, or remove it.
    #[error(
        "{setting} without tls_cert, or with tls_optional, protects nothing: name certificates, or leave it out"
    )]
    NeedsTls {
        /// Name of the setting.
        setting: &'static str,
    },
    /// A token is for joining. Set the address of a node of the cluster.
    #[error("join_token_file without join: name a node of the cluster that the token is for")]
    TokenWithoutJoin,
    /// Other nodes cannot connect to "all addresses". Set the address that they should use.
    #[error(
        "listen = \"{address}\" means all addresses, so advertise must say which one others use, \
         like advertise = \"node-1:7300\""
    )]
    NoAdvertise {
        /// The address.
        address: String,
    },
    /// The advertised address means all addresses, so others cannot connect to it. Set one that they can.
    #[error("{setting} = \"{address}\" means all addresses: name one that others can connect to")]
    AdvertisesAll {
        /// Name of the setting.
        setting: &'static str,
        /// The address.
        address: String,
    },
    /// Two settings contradict each other. Remove one of them.
    #[error("{one} and {other} exclude each other: give one of them")]
    Both {
        /// Name of a setting.
        one: &'static str,
        /// Name of the other.
        other: &'static str,
    },
    /// The data folder belongs to no cluster, and no setting says where the node belongs. Set one.
    #[error("the node belongs to no cluster: name --initial-cluster, --join or --dev")]
    NoOrigin,
    /// The node would wait for itself. Set the address of a node of the cluster.
    #[error(
        "join = \"{address}\" is this node itself: name a node of the cluster that it is to join; the first node of a \
         cluster has initial_cluster or dev in place of join"
    )]
    JoinsItself {
        /// This node's advertised address.
        address: String,
    },
    /// The list of founders lacks this node. All founders need the same list.
    #[error(
        "initial_cluster names {}, but not this node, which is \"{own}\" to others: add it, or set \
         advertise to the name in the list", named.join(", ")
    )]
    NotInitial {
        /// This node's advertised address.
        own: String,
        /// The list.
        named: Vec<String>,
    },
    /// The list of founders names a node twice. Remove one of the entries.
    #[error("initial_cluster names \"{address}\" twice")]
    Twice {
        /// The address.
        address: String,
    },
    /// The list of founders is too long. Start with fewer nodes.
    #[error("initial_cluster names {count} nodes, at most {NODE_COUNT_MAX}")]
    TooManyNodes {
        /// Length of the list.
        count: usize,
    },
    /// A number is out of its range. Choose one within the range.
    #[error("{setting} = {value}: expected {least} to {most}")]
    Range {
        /// Name of the setting.
        setting: &'static str,
        /// Its value.
        value: u64,
        /// The smallest possible value.
        least: u64,
        /// The largest possible value.
        most: u64,
    },
    /// Plain commands of the Redis protocol do not create filters of this kind. Choose a kind that they
    /// create.
    #[error("resp_default_kind = \"{kind}\": expected scalable, redisbloom, blocked or classic")]
    DefaultKind {
        /// Name of the kind.
        kind: String,
    },
    /// `CLUSTER` of the Redis protocol is not answered in this way. Choose an existing one.
    #[error("resp_cluster = \"{mode}\": expected single, spread or off")]
    ClusterAnswers {
        /// The given way.
        mode: String,
    },
    /// `EXEC` of the Redis protocol does not execute transactions in this way. Choose an existing one.
    #[error("resp_multi = \"{mode}\": expected ordered or strict")]
    Transactions {
        /// The given way.
        mode: String,
    },
    /// The console has no such mode. Choose an existing one.
    #[error("console = \"{mode}\": expected off, read-only, proven or full")]
    ConsoleMode {
        /// The given mode.
        mode: String,
    },
    /// The console is reached under host names. Give one without scheme and port.
    #[error("console_hosts names \"{host}\": expected the name of a host, without scheme and port")]
    ConsoleHost {
        /// The given name.
        host: String,
    },
    /// Zones cannot have this name. Choose another one.
    #[error("zone: {0}")]
    Zone(#[from] ZoneError),
    /// The data folder is empty. Set one.
    #[error("data is empty: name a folder")]
    NoData,
}
