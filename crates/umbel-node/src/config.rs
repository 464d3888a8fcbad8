//! Settings of a node: plain data, checked once at the start.
//!
//! The meaning of a setting is described only here: rustdoc, the help of the flags, and the commented
//! file that `umbel serve --print-config` prints all use this text.

mod address;
mod cluster_answers;
mod console;
mod error;
mod setting;
mod transactions;

pub use address::{addresses_meet, host_of, reached_at};
pub(crate) use address::{join as join_address, split as split_address};
pub use cluster_answers::ClusterAnswers;
pub use console::ConsoleMode;
pub use error::ConfigError;
pub use setting::{Setting, SettingKind, SettingValue};
pub use transactions::Transactions;

use address::Address;
use umbel_engine::limits::{
    NODE_COUNT_MAX, REPLICA_COUNT_MAX, REPLICATED_BYTES_MAX, REQUEST_ITEMS_MAX, SHARD_COUNT_MAX,
};
use umbel_engine::meta::{CORE_COUNT_MAX, shards_for_cores};
use umbel_engine::placement::Zone;
use umbel_filter::Kind;
use umbel_raft::MOVE_BYTES_PER_SECOND_MIN;

use crate::limits::CLIENT_MESSAGE_BYTES_MAX;

crate::settings! {
    /// What a node must be told. Every field has a default; a file or the environment sets those
    /// that differ.
    ///
    /// ```
    /// let config = umbel_node::Config::default();
    /// assert_eq!((config.shards, config.replicas), (0, 3));
    /// assert_eq!(config.advertised(), "127.0.0.1:7300");
    /// assert!(config.validate().is_ok());
    /// ```
    pub struct Config {
        /// Where to listen, HOST:PORT. Clients, other nodes, probes and metrics share this port; 0
        /// lets the system choose.
        /// Addresses that other hosts reach need TLS (`tls_cert`) or `insecure`.
        listen: String = "127.0.0.1:7300".to_owned(),
        /// Where other nodes and clients reach this node, HOST:PORT; by default the address of `listen`.
        /// Needed if `listen` is 0.0.0.0 or ::.
        advertise: Option<String> = None,
        /// Data folder, created if it does not exist. It holds the node's identity, log and snapshots;
        /// only one process may use it.
        /// With `dev` and no named folder, `umbel serve` uses a temporary one and removes it at exit.
        data: String = "umbel-data".to_owned(),
        /// Advertised addresses of all nodes that form a new cluster together, this node's included,
        /// HOST:PORT each; the same list on every node.
        /// Not used once the data folder belongs to a cluster, but must still name this node.
        initial_cluster: Vec<String> = Vec::new(),
        /// Address of any node of the cluster that this node joins, HOST:PORT.
        /// Not used once the data folder belongs to a cluster.
        join: Option<String> = None,
        /// File with a token that `umbel cluster token --join` printed, for a node without a certificate.
        /// The token authenticates the node and the cluster to each other. The cluster issues a certificate,
        /// which the node keeps in the folder `tls` of the data folder, and renews.
        /// Not used once that certificate exists, nor with `tls_cert`.
        join_token_file: Option<String> = None,
        /// A cluster of this node alone, to try things out: one shard with one replica, unless
        /// `shards` and `replicas` say otherwise.
        dev: bool = false,
        /// Shards of a new cluster, 1 to 1024: plan several for each node to come. With 0 it begins with two
        /// replicas for each core, and splits shards by itself as cores and filters grow.
        shards: u32 = 0,
        /// Replicas of every shard of a new cluster, 1 to 9. With 3 one node may fail, with 5 two; a
        /// cluster with fewer nodes has fewer replicas.
        replicas: u32 = 3,
        /// Name of the rack, room or zone that this node fails together with: 1 to 64 letters, digits, `-`, `_`
        /// and `.`. Replicas of a shard are kept in different zones, and so are voters of the meta group, while
        /// there are enough zones. A node without a zone counts as a zone of its own.
        zone: Option<String> = None,
        /// Whether an insert is synced to disk before it is acknowledged. Otherwise a power failure may lose
        /// acknowledged inserts.
        fsync: bool = true,
        /// Milliseconds between the heartbeats that a node sends to each other node, 10 to 60000.
        /// All nodes of a cluster should have the same value, and the same `suspect_ms`.
        heartbeat_ms: u64 = 100,
        /// Milliseconds without a heartbeat after which a node is suspected, and other nodes take over what it
        /// leads: at least three times `heartbeat_ms`, at most 600000.
        suspect_ms: u64 = 400,
        /// Allows listening without TLS on addresses that other machines can reach: anybody who reaches the
        /// port can read and change everything.
        insecure: bool = false,
        /// File with this node's certificate, in PEM, which authenticates it to nodes and clients. With it the
        /// port speaks TLS, and callers with neither certificate nor token may use probes only.
        /// `umbel cluster certs` creates such files. Replaced files take effect within 2 s.
        tls_cert: Option<String> = None,
        /// File with the key of `tls_cert`, in PEM.
        tls_key: Option<String> = None,
        /// File with the certificates, in PEM, of the authorities that sign those of nodes and clients.
        tls_ca: Option<String> = None,
        /// File with a key of 32 bytes, or 64 hexadecimal digits (`openssl rand -hex 32`), that encrypts keys
        /// of hashes and hashes of tokens in this node's data folder; only its owner may read it. Once started
        /// with a key, the folder always needs it. Each node may have its own.
        key_file: Option<String> = None,
        /// File with the key of an authority in `tls_ca`, in PEM, for nodes that sign the certificates of nodes
        /// that join by a token. Anybody who controls such a node can create nodes and clients of any name.
        tls_ca_key: Option<String> = None,
        /// Accepts a caller as a node only if its certificate names the node, as those of nodes that joined by
        /// a token do; `umbel cluster certs node --identity` creates such certificates by hand. Set it when all
        /// nodes have them.
        require_node_identity: bool = false,
        /// Also accepts connections without TLS, whose callers may do everything, and calls nodes that do not
        /// speak TLS yet without it: for the time in which a running cluster moves to TLS. Needs `insecure` for
        /// the same addresses as a node without TLS.
        tls_optional: bool = false,
        /// Where to listen for the Redis protocol, HOST:PORT; by default nowhere. The rules of `listen` for TLS
        /// and `insecure` apply.
        /// With `dev` and no named address, `umbel serve` uses 127.0.0.1:6379 if that is free.
        resp_listen: Option<String> = None,
        /// Where clients reach the address of `resp_listen`, HOST:PORT, if not there: behind NAT, or where a container's
        /// port has another number outside. Clients in cluster mode connect to what answers of `CLUSTER` name; by
        /// default the host of `resp_listen`, or of `advertise` if that is 0.0.0.0 or ::, and its port.
        resp_announce: Option<String> = None,
        /// Answers to `CLUSTER` of the Redis protocol, the same on all nodes: `single`, one node that has all slots, as
        /// clients in cluster mode need; `spread`, all nodes that are reachable and not drained, each with a part of
        /// the slots, so that such clients use all of them; `off`, the error of a server without cluster support, for
        /// clients that take every server that answers for a cluster, like StackExchange.Redis.
        resp_cluster: String = "single".to_owned(),
        /// Transactions (`MULTI`, `EXEC`) of the Redis protocol: `ordered` executes the commands in their order, and
        /// those of other clients may come between them; `strict` refuses `EXEC` if more than one of its commands
        /// concerns more than the connection, for programs that rely on nothing coming between.
        resp_multi: String = "ordered".to_owned(),
        /// Kind of the filters that `BF.RESERVE`, `BF.ADD`, `BF.MADD` and `BF.INSERT` create: `scalable`, which
        /// grow; `redisbloom`, equal to RedisBloom's bit by bit, each in one shard and with a public hash;
        /// `blocked` or `classic`, which do not grow. With NONSCALING `blocked` replaces `scalable`.
        resp_default_kind: String = "scalable".to_owned(),
        /// Pages at `/console` that show the cluster in a browser and can operate it: `off`, no console;
        /// `read-only`, no actions; `proven`, actions for callers with a token or a certificate, according to
        /// their rights; `full`, actions also for everybody who reaches the port if nothing is authenticated.
        /// With principals the pages show what the caller who signs in may see.
        console: String = "proven".to_owned(),
        /// Host names under which the console is reached besides this node's own, its address and `localhost`,
        /// such as that of a proxy. It answers under no others, so that no website can make a browser query it; nor does
        /// `/metrics` of a node that listens on its own machine without TLS.
        console_hosts: Vec<String> = Vec::new(),
        /// Longest time that a client may wait for a response, in milliseconds, 100 to 3600000; a
        /// request with a longer deadline gets this one.
        request_timeout_ms_max: u64 = 60_000,
        /// Bytes of client requests in progress on this node, all together, at least 17825792 (the largest
        /// request); more are refused as overload. 0 for an eighth of the memory that the node may have: the
        /// limit of its control group, or the machine's memory.
        request_bytes_max: u64 = 0,
        /// Bytes of memory that this node may use; 0 for the limit of its control group, or the machine's
        /// memory. Filters may take four fifths of the smallest node's on each node, unless `umbel access quota
        /// --all --memory` sets another quota.
        memory_limit_bytes: u64 = 0,
        /// Cores that this node may use, 1 to 4096, which the number of shards depends on; 0 for those that its
        /// process has.
        cores: u32 = 0,
        /// Items of inserts that may wait at the leader of one shard, 65536 to 67108864; more are
        /// refused as overload. An item takes 16 bytes.
        queue_items_max: u64 = 1 << 20,
        /// Bytes of log after which shards write snapshots, so that the log can be truncated: at least
        /// 16777216. A larger value means fewer snapshots and longer starts.
        log_bytes_max: u64 = 256 << 20,
        /// Bytes of snapshots that the node sends per second to replicas that are added to shards, because nodes
        /// join or are drained, or for balance: at least 1048576; 0 for no limit. By default the two moves that
        /// run at once leave a node about half of a network of 1 Gbit/s. While a voter of the shard is not
        /// reachable, there is no limit.
        move_bytes_per_second_max: u64 = 32 << 20,
        /// Milliseconds between two checks whether copies of replicated filters have changes to
        /// exchange, 10 to 600000; a requested exchange begins at once.
        sweep_interval_ms: u64 = 250,
        /// Bytes of memory for the log of changes that a copy of a replicated filter keeps for other copies,
        /// 8 per change, 0 to 1073741824. A node that is further behind gets the whole filter.
        delta_log_bytes_max: u64 = 64 << 20,
        /// Bytes of deltas that the node sends per second, at least 65536; 0 for no limit.
        exchange_bytes_per_second_max: u64 = 0,
        /// Seconds in which every copy of a replicated filter is compared once, bit by bit, with the copy of
        /// one partner (of the next one the next time), and every shard's replicas with each other, 1 to
        /// 31536000; 0 for never. What one of them has lost is repaired.
        scrub_interval_s: u64 = 86_400,
        /// Bytes of free disk space below which inserts are refused; queries continue.
        disk_reserve_bytes: u64 = 256 << 20,
    }
}

/// Cores of a node that does not say how many it has.
const CORES_UNTOLD: u32 = 1;

/// Kinds of filters that plain commands of the Redis protocol may create.
const RESP_KINDS: [Kind; 4] = [Kind::Scalable, Kind::RedisBloom, Kind::Blocked, Kind::Classic];

/// Longest interval of heartbeats, in milliseconds: a minute without a leader is an outage.
const HEARTBEAT_MS_MAX: u64 = 60_000;

/// Shortest interval of heartbeats, in milliseconds: timers are not precise below it.
const HEARTBEAT_MS_MIN: u64 = 10;

/// A suspicion takes at least this many heartbeats, so that two late ones do not cause it.
const HEARTBEATS_PER_SUSPICION_MIN: u64 = 3;

/// Longest suspicion, in milliseconds.
const SUSPECT_MS_MAX: u64 = 600_000;

/// Lowest and highest possible time limit of requests, in milliseconds.
const REQUEST_TIMEOUT_MS: [u64; 2] = [100, 3_600_000];

/// Longest queue of a shard, in items: 1 GiB of hashes.
const QUEUE_ITEMS_MAX: u64 = 1 << 26;

/// Shortest log, in bytes: room for the largest entries of a few shards.
const LOG_BYTES_MIN: u64 = 16 << 20;

/// Shortest and longest interval of sweeps, in milliseconds: timers are not precise below it, and above
/// it copies would hardly be exchanged.
const SWEEP_INTERVAL_MS: [u64; 2] = [10, 600_000];

/// Most bytes of a delta log: as much as the largest replicated filter.
const DELTA_LOG_BYTES_MAX: u64 = REPLICATED_BYTES_MAX;

/// Longest interval of comparisons, in seconds: a year is almost never.
const SCRUB_INTERVAL_S_MAX: u64 = 365 * 86_400;

/// Lowest limit of delta bytes per second: one frame then takes a few seconds.
const EXCHANGE_BYTES_PER_SECOND_MIN: u64 = 64 << 10;

/// The lowest value of a setting that is this limit, or 0 for none.
const fn least_but_none(value: u64, least: u64) -> u64 {
    if value == 0 { 0 } else { least }
}

impl Config {
    /// The defaults of a cluster of one node, to try things out.
    ///
    /// ```
    /// let config = umbel_node::Config::development();
    /// assert_eq!((config.dev, config.shards, config.replicas), (true, 1, 1));
    /// ```
    #[must_use]
    pub fn development() -> Self {
        Self { dev: true, shards: 1, replicas: 1, ..Self::default() }
    }

    /// The address at which others reach the node: the advertised one, otherwise the one that it
    /// listens on.
    #[must_use]
    pub fn advertised(&self) -> &str {
        self.advertise.as_deref().unwrap_or(&self.listen)
    }

    /// Shards of a new cluster of so many nodes like this one. Without a setting, every core has two replicas,
    /// or up to four: the number is a power of two, so that clusters whose shards were split are as well.
    ///
    /// ```
    /// use umbel_node::Config;
    ///
    /// let config = Config { cores: 8, replicas: 3, ..Config::default() };
    /// // 16 shards of three replicas are two for each of 24 cores.
    /// assert_eq!((config.shards_at_first(1), config.shards_at_first(3)), (16, 16));
    /// assert_eq!(Config { shards: 5, ..config }.shards_at_first(3), 5);
    /// ```
    #[must_use]
    pub fn shards_at_first(&self, node_count: usize) -> u32 {
        if self.shards != 0 {
            return self.shards;
        }
        let cores = u64::from(if self.cores == 0 { CORES_UNTOLD } else { self.cores });
        let replica_count = node_count.min(self.replicas as usize);
        let shards = shards_for_cores(cores.saturating_mul(node_count as u64), replica_count);
        let within = |shards: u32| shards.min(SHARD_COUNT_MAX).next_power_of_two();
        u32::try_from(shards).map_or(SHARD_COUNT_MAX, within)
    }

    /// Checks all settings and their combination, without looking at the disk.
    ///
    /// # Errors
    /// The first invalid setting.
    pub fn validate(&self) -> Result<(), ConfigError> {
        self.validate_tls()?;
        self.validate_addresses()?;
        self.validate_origin()?;
        self.validate_numbers()?;
        if self.default_kind().is_none() {
            return Err(ConfigError::DefaultKind { kind: self.resp_default_kind.clone() });
        }
        if self.cluster_answers().is_none() {
            return Err(ConfigError::ClusterAnswers { mode: self.resp_cluster.clone() });
        }
        if self.transactions().is_none() {
            return Err(ConfigError::Transactions { mode: self.resp_multi.clone() });
        }
        if let Some(zone) = &self.zone {
            Zone::new(zone.as_str())?;
        }
        if self.console_mode().is_none() {
            return Err(ConfigError::ConsoleMode { mode: self.console.clone() });
        }
        if let Some(host) = self.console_hosts.iter().find(|host| !address::is_host_name(host)) {
            return Err(ConfigError::ConsoleHost { host: host.clone() });
        }
        if self.data.is_empty() {
            return Err(ConfigError::NoData);
        }
        Ok(())
    }

    fn validate_tls(&self) -> Result<(), ConfigError> {
        let files =
            [("tls_cert", &self.tls_cert), ("tls_key", &self.tls_key), ("tls_ca", &self.tls_ca)];
        let is_strict = self.tls_cert.is_some() && !self.tls_optional;
        let strict = [
            ("tls_ca_key", self.tls_ca_key.is_some()),
            ("require_node_identity", self.require_node_identity),
        ];
        if let Some((setting, _)) = strict.into_iter().find(|(_, is_set)| *is_set && !is_strict) {
            return Err(ConfigError::NeedsTls { setting });
        }
        if files.iter().all(|(_, file)| file.is_none()) {
            return if self.tls_optional { Err(ConfigError::OptionalWithoutTls) } else { Ok(()) };
        }
        match files.iter().find(|(_, file)| file.is_none()) {
            Some((missing, _)) => Err(ConfigError::TlsIncomplete { missing }),
            None => Ok(()),
        }
    }

    fn validate_addresses(&self) -> Result<(), ConfigError> {
        let listen = Address::parse("listen", &self.listen)?;
        self.check_protected("listen", &self.listen)?;
        if let Some(address) = &self.resp_listen {
            self.check_protected("resp_listen", address)?;
            if addresses_meet(address, &self.listen) {
                let (listen, resp_listen) = (self.listen.clone(), address.clone());
                return Err(ConfigError::AddressesMeet { listen, resp_listen });
            }
        }
        let advertised = [("advertise", &self.advertise), ("resp_announce", &self.resp_announce)];
        for (setting, text) in advertised {
            let Some(text) = text else { continue };
            if Address::reachable(setting, text)?.is_unspecified() {
                return Err(ConfigError::AdvertisesAll { setting, address: text.clone() });
            }
        }
        if self.advertise.is_none() && listen.is_unspecified() {
            return Err(ConfigError::NoAdvertise { address: self.listen.clone() });
        }
        Ok(())
    }

    /// Refuses an address that other machines can reach without any protection.
    fn check_protected(&self, setting: &'static str, address: &str) -> Result<(), ConfigError> {
        let takes_plain = self.tls_cert.is_none() || self.tls_optional;
        if !Address::parse(setting, address)?.is_loopback() && takes_plain && !self.insecure {
            return Err(ConfigError::Insecure { setting, address: address.to_owned() });
        }
        Ok(())
    }

    /// The kind of filters that plain commands of the Redis protocol create.
    pub fn default_kind(&self) -> Option<Kind> {
        RESP_KINDS.into_iter().find(|kind| kind.to_string() == self.resp_default_kind)
    }

    /// The host and port at which clients reach the Redis protocol, if that is not where the node listens for it.
    pub fn resp_announced(&self) -> Option<(&str, u16)> {
        self.resp_announce.as_deref().and_then(address::split)
    }

    /// Host and port at which clients reach the Redis protocol of this node: those of `resp_announce`, or else those
    /// of the listener at the address `local`, see [`reached_at`].
    pub fn resp_reached_at(&self, local: &str, advertised: &str) -> (String, u16) {
        match self.resp_announced() {
            Some((host, port)) => (host.to_owned(), port),
            None => reached_at(local, advertised),
        }
    }

    /// How `CLUSTER` of the Redis protocol is answered; None if there is no such way.
    pub fn cluster_answers(&self) -> Option<ClusterAnswers> {
        ClusterAnswers::of(&self.resp_cluster)
    }

    /// What `EXEC` of the Redis protocol does; None if there is no such thing.
    pub fn transactions(&self) -> Option<Transactions> {
        Transactions::of(&self.resp_multi)
    }

    /// The zone in which the node fails together with others; None if it fails alone.
    pub(crate) fn zone(&self) -> Option<Zone> {
        self.zone.as_deref().and_then(|zone| Zone::new(zone).ok())
    }

    /// The mode of the console; None if there is no such mode.
    pub fn console_mode(&self) -> Option<ConsoleMode> {
        ConsoleMode::of(&self.console)
    }

    /// Checks which cluster the node belongs to.
    fn validate_origin(&self) -> Result<(), ConfigError> {
        let origins = [
            ("dev", self.dev),
            ("initial_cluster", !self.initial_cluster.is_empty()),
            ("join", self.join.is_some()),
        ];
        let mut given = origins.iter().filter(|(_, is_given)| *is_given).map(|(name, _)| *name);
        if let (Some(one), Some(other)) = (given.next(), given.next()) {
            return Err(ConfigError::Both { one, other });
        }
        match &self.join {
            Some(join) => {
                Address::reachable("join", join)?;
            }
            None if self.join_token_file.is_some() => return Err(ConfigError::TokenWithoutJoin),
            None => {}
        }
        let count = self.initial_cluster.len();
        if count > NODE_COUNT_MAX {
            return Err(ConfigError::TooManyNodes { count });
        }
        let mut sorted: Vec<&String> = self.initial_cluster.iter().collect();
        sorted.sort_unstable();
        if let Some(pair) = sorted.windows(2).find(|pair| pair[0] == pair[1]) {
            return Err(ConfigError::Twice { address: pair[0].clone() });
        }
        for address in &self.initial_cluster {
            Address::reachable("initial_cluster", address)?;
        }
        let own = self.advertised();
        if count > 0 && !self.initial_cluster.iter().any(|address| address == own) {
            let named = self.initial_cluster.clone();
            return Err(ConfigError::NotInitial { own: own.to_owned(), named });
        }
        Ok(())
    }

    fn validate_numbers(&self) -> Result<(), ConfigError> {
        let suspect_ms_least = self.heartbeat_ms.saturating_mul(HEARTBEATS_PER_SUSPICION_MIN);
        let [timeout_ms_least, timeout_ms_most] = REQUEST_TIMEOUT_MS;
        let ranges = [
            ("shards", self.shards.into(), 0, SHARD_COUNT_MAX.into()),
            ("cores", self.cores.into(), 0, CORE_COUNT_MAX.into()),
            ("replicas", self.replicas.into(), 1, REPLICA_COUNT_MAX.into()),
            ("heartbeat_ms", self.heartbeat_ms, HEARTBEAT_MS_MIN, HEARTBEAT_MS_MAX),
            ("suspect_ms", self.suspect_ms, suspect_ms_least, SUSPECT_MS_MAX),
            (
                "request_timeout_ms_max",
                self.request_timeout_ms_max,
                timeout_ms_least,
                timeout_ms_most,
            ),
            (
                "request_bytes_max",
                self.request_bytes_max,
                least_but_none(self.request_bytes_max, CLIENT_MESSAGE_BYTES_MAX as u64),
                i64::MAX as u64,
            ),
            ("memory_limit_bytes", self.memory_limit_bytes, 0, i64::MAX as u64),
            ("queue_items_max", self.queue_items_max, REQUEST_ITEMS_MAX as u64, QUEUE_ITEMS_MAX),
            // Settings files contain signed numbers.
            ("log_bytes_max", self.log_bytes_max, LOG_BYTES_MIN, i64::MAX as u64),
            (
                "move_bytes_per_second_max",
                self.move_bytes_per_second_max,
                least_but_none(self.move_bytes_per_second_max, MOVE_BYTES_PER_SECOND_MIN),
                i64::MAX as u64,
            ),
            (
                "sweep_interval_ms",
                self.sweep_interval_ms,
                SWEEP_INTERVAL_MS[0],
                SWEEP_INTERVAL_MS[1],
            ),
            ("delta_log_bytes_max", self.delta_log_bytes_max, 0, DELTA_LOG_BYTES_MAX),
            (
                "exchange_bytes_per_second_max",
                self.exchange_bytes_per_second_max,
                least_but_none(self.exchange_bytes_per_second_max, EXCHANGE_BYTES_PER_SECOND_MIN),
                i64::MAX as u64,
            ),
            ("scrub_interval_s", self.scrub_interval_s, 0, SCRUB_INTERVAL_S_MAX),
            ("disk_reserve_bytes", self.disk_reserve_bytes, 0, i64::MAX as u64),
        ];
        for (setting, value, least, most) in ranges {
            if !(least..=most).contains(&value) {
                return Err(ConfigError::Range { setting, value, least, most });
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod config_test;
