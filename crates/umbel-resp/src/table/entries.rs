//! The entries of the table.

use super::{CommandDocs, CommandSpec, KeyRange, Parser};
use crate::command::{bloom, connection, keyspace, umbel};
use crate::refusal::Refusal;

type Names = &'static [&'static str];

/// One key, the first argument.
const ONE_KEY: Option<KeyRange> = Some(KeyRange { first: 1, last: 1, step: 1 });

/// All arguments are keys.
const ALL_KEYS: Option<KeyRange> = Some(KeyRange { first: 1, last: -1, step: 1 });

const O1: &str = "O(1)";

const ON: &str = "O(N) where N is the number of arguments";

const FILTER_WRITE: Names = &["write", "denyoom", "module"];
const FILTER_READ: Names = &["readonly", "module", "fast"];
const ANYTIME: Names = &["loading", "stale"];
const ANYTIME_FAST: Names = &["loading", "stale", "fast"];
const OUTSIDE: Names = &["noscript", "loading", "stale"];
const STRANGERS: Names = &["noscript", "loading", "stale", "fast", "no_auth", "allow_busy"];
const ADMIN: Names = &["admin", "noscript", "loading", "stale"];

const FAST: Names = &["@fast", "@connection"];
const SLOW: Names = &["@slow", "@connection"];
const SLOW_ADMIN: Names = &["@admin", "@slow", "@dangerous"];
const BLOOM_WRITE: Names = &["@write", "@bloom"];
const BLOOM_READ: Names = &["@read", "@bloom"];

/// A command of the filters.
const fn bloom(
    name: &'static str,
    arity: i32,
    (flags, categories): (Names, Names),
    (summary, complexity): (&'static str, &'static str),
    parse: Parser,
) -> CommandSpec {
    let docs = CommandDocs { summary, since: "1.0.0", group: "module", complexity };
    CommandSpec { name, arity, flags, keys: ONE_KEY, categories, docs, subcommands: &[], parse }
}

/// A command without keys.
const fn plain(
    name: &'static str,
    arity: i32,
    (flags, categories): (Names, Names),
    (summary, since, group): (&'static str, &'static str, &'static str),
    parse: Parser,
) -> CommandSpec {
    let docs = CommandDocs { summary, since, group, complexity: O1 };
    CommandSpec { name, arity, flags, keys: None, categories, docs, subcommands: &[], parse }
}

/// A command on keys of whatever kind.
const fn keyed(
    name: &'static str,
    (arity, keys): (i32, Option<KeyRange>),
    (flags, categories): (Names, Names),
    (summary, complexity): (&'static str, &'static str),
    parse: Parser,
) -> CommandSpec {
    let docs = CommandDocs { summary, since: "1.0.0", group: "generic", complexity };
    CommandSpec { name, arity, flags, keys, categories, docs, subcommands: &[], parse }
}

/// A command that has subcommands, and does nothing alone.
const fn container(
    name: &'static str,
    subcommands: &'static [CommandSpec],
    (summary, since, group): (&'static str, &'static str, &'static str),
) -> CommandSpec {
    let docs = CommandDocs { summary, since, group, complexity: "Depends on subcommand." };
    let (flags, categories): (Names, Names) = (&[], &["@slow"]);
    CommandSpec { name, arity: -2, flags, keys: None, categories, docs, subcommands, parse: alone }
}

/// Never called: without a subcommand the number of arguments is wrong.
fn alone(_arguments: crate::Arguments<'_>) -> Result<crate::Command<'_>, Refusal> {
    Err(Refusal::Syntax)
}

pub(super) static COMMANDS: [CommandSpec; 43] = [
    bloom(
        "bf.add",
        3,
        (FILTER_WRITE, BLOOM_WRITE),
        ("Adds an item to a Bloom Filter", "O(k), where k is the number of hash functions"),
        bloom::add,
    ),
    bloom(
        "bf.exists",
        3,
        (FILTER_READ, BLOOM_READ),
        (
            "Checks whether an item exists in a Bloom Filter",
            "O(k), where k is the number of hash functions",
        ),
        bloom::exists,
    ),
    bloom(
        "bf.madd",
        -3,
        (FILTER_WRITE, BLOOM_WRITE),
        (
            "Adds one or more items to a Bloom Filter. A filter will be created if it does not exist",
            "O(k * n), where k is the number of hash functions and n is the number of items",
        ),
        bloom::add_many,
    ),
    bloom(
        "bf.mexists",
        -3,
        (FILTER_READ, BLOOM_READ),
        (
            "Checks whether one or more items exist in a Bloom Filter",
            "O(k * n), where k is the number of hash functions and n is the number of items",
        ),
        bloom::exist_many,
    ),
    bloom(
        "bf.insert",
        -4,
        (FILTER_WRITE, BLOOM_WRITE),
        (
            "Adds one or more items to a Bloom Filter. A filter will be created if it does not exist",
            "O(k * n), where k is the number of hash functions and n is the number of items",
        ),
        bloom::insert,
    ),
    bloom(
        "bf.reserve",
        -4,
        (FILTER_WRITE, &["@write", "@fast", "@bloom"]),
        ("Creates a new Bloom Filter", O1),
        bloom::reserve,
    ),
    bloom(
        "bf.info",
        -2,
        (FILTER_READ, &["@read", "@fast", "@bloom"]),
        ("Returns information about a Bloom Filter", O1),
        bloom::info,
    ),
    bloom(
        "bf.card",
        2,
        (FILTER_READ, &["@read", "@fast", "@bloom"]),
        ("Returns the cardinality of a Bloom filter", O1),
        bloom::cardinality,
    ),
    plain(
        "ping",
        -1,
        (&["fast"], FAST),
        ("Returns the server's liveliness response.", "1.0.0", "connection"),
        connection::ping,
    ),
    plain(
        "echo",
        2,
        (ANYTIME_FAST, FAST),
        ("Returns the given string.", "1.0.0", "connection"),
        connection::echo,
    ),
    plain(
        "hello",
        -1,
        (STRANGERS, FAST),
        ("Handshakes with the server.", "6.0.0", "connection"),
        connection::hello,
    ),
    plain(
        "auth",
        -2,
        (STRANGERS, FAST),
        ("Authenticates the connection.", "1.0.0", "connection"),
        connection::auth,
    ),
    plain(
        "select",
        2,
        (ANYTIME_FAST, FAST),
        ("Changes the selected database.", "1.0.0", "connection"),
        connection::select,
    ),
    plain(
        "quit",
        -1,
        (STRANGERS, FAST),
        ("Closes the connection.", "1.0.0", "connection"),
        connection::quit,
    ),
    plain(
        "reset",
        1,
        (STRANGERS, FAST),
        ("Resets the connection.", "6.2.0", "connection"),
        connection::reset,
    ),
    plain(
        "readonly",
        1,
        (ANYTIME_FAST, FAST),
        ("Lets any replica answer that an item is present.", "3.0.0", "cluster"),
        connection::read_only,
    ),
    plain(
        "readwrite",
        1,
        (ANYTIME_FAST, FAST),
        ("Has every answer confirmed by a majority.", "3.0.0", "cluster"),
        connection::read_write,
    ),
    plain(
        "asking",
        1,
        (&["fast"], FAST),
        ("Has no effect: no key is ever elsewhere.", "3.0.0", "cluster"),
        connection::asking,
    ),
    container(
        "client",
        &CLIENT,
        ("A container for client connection commands.", "2.4.0", "connection"),
    ),
    CommandSpec {
        arity: -1,
        flags: ANYTIME,
        categories: SLOW,
        parse: connection::commands,
        ..container(
            "command",
            &COMMAND,
            ("Returns detailed information about all commands.", "2.8.13", "server"),
        )
    },
    plain(
        "info",
        -1,
        (ANYTIME, &["@slow", "@dangerous"]),
        ("Returns information and statistics about the server.", "1.0.0", "server"),
        connection::info,
    ),
    container(
        "config",
        &CONFIG,
        ("A container for server configuration commands.", "2.0.0", "server"),
    ),
    plain(
        "time",
        1,
        (ANYTIME_FAST, &["@fast"]),
        ("Returns the server time.", "2.6.0", "server"),
        connection::time,
    ),
    plain(
        "role",
        1,
        (&["noscript", "loading", "stale", "fast"], &["@admin", "@fast", "@dangerous"]),
        ("Returns the replication role.", "2.8.12", "server"),
        connection::role,
    ),
    plain(
        "wait",
        3,
        (&["noscript"], SLOW),
        ("Returns how many more replicas have every acknowledged write.", "3.0.0", "generic"),
        connection::wait,
    ),
    container("module", &MODULE, ("A container for module commands.", "4.0.0", "server")),
    container("acl", &ACL, ("A container for Access List Control commands.", "6.0.0", "server")),
    keyed(
        "del",
        (-2, ALL_KEYS),
        (&["write"], &["@keyspace", "@write", "@slow"]),
        ("Deletes one or more keys.", ON),
        keyspace::drop_keys,
    ),
    keyed(
        "unlink",
        (-2, ALL_KEYS),
        (&["write", "fast"], &["@keyspace", "@write", "@fast"]),
        ("Deletes one or more keys.", ON),
        keyspace::drop_keys,
    ),
    keyed(
        "exists",
        (-2, ALL_KEYS),
        (&["readonly", "fast"], &["@keyspace", "@read", "@fast"]),
        ("Determines whether one or more keys exist.", ON),
        keyspace::count_keys,
    ),
    keyed(
        "touch",
        (-2, ALL_KEYS),
        (&["readonly", "fast"], &["@keyspace", "@read", "@fast"]),
        ("Returns the number of existing keys out of those specified.", ON),
        keyspace::count_keys,
    ),
    keyed(
        "type",
        (2, ONE_KEY),
        (&["readonly", "fast"], &["@keyspace", "@read", "@fast"]),
        ("Determines the type of value stored at a key.", O1),
        keyspace::type_of,
    ),
    keyed(
        "keys",
        (2, None),
        (&["readonly"], &["@keyspace", "@read", "@slow", "@dangerous"]),
        ("Returns all key names that match a pattern.", "O(N) where N is the number of filters"),
        keyspace::list,
    ),
    keyed(
        "scan",
        (-2, None),
        (&["readonly"], &["@keyspace", "@read", "@slow"]),
        ("Iterates over the key names in the database.", "O(N) where N is the number of filters"),
        keyspace::scan,
    ),
    keyed(
        "dbsize",
        (1, None),
        (&["readonly", "fast"], &["@keyspace", "@read", "@fast"]),
        ("Returns the number of keys in the database.", "O(N) where N is the number of filters"),
        keyspace::size,
    ),
    plain(
        "multi",
        1,
        (&["noscript", "loading", "stale", "fast", "allow_busy"], &["@fast", "@transaction"]),
        ("Starts a transaction.", "1.2.0", "transactions"),
        connection::multi,
    ),
    plain(
        "exec",
        1,
        (&["noscript", "loading", "stale", "skip_slowlog"], &["@slow", "@transaction"]),
        ("Executes all commands in a transaction.", "1.2.0", "transactions"),
        connection::exec,
    ),
    plain(
        "discard",
        1,
        (&["noscript", "loading", "stale", "fast", "allow_busy"], &["@fast", "@transaction"]),
        ("Discards a transaction.", "2.0.0", "transactions"),
        connection::discard,
    ),
    container("cluster", &CLUSTER, ("A container for Redis Cluster commands.", "3.0.0", "cluster")),
    plain(
        "umbel.session",
        1,
        (&["fast"], &["@fast", "@bloom"]),
        ("Opens a session, whose requests may be repeated.", "0.1.0", "module"),
        umbel::session,
    ),
    CommandSpec {
        // The key of the command inside: it stands two or four arguments behind.
        keys: None,
        ..bloom(
            "umbel.request",
            -4,
            (FILTER_WRITE, BLOOM_WRITE),
            (
                "Runs an insert under a name of the client, so that it may be repeated.",
                "As the command inside.",
            ),
            umbel::request,
        )
    },
    bloom(
        "umbel.create",
        -4,
        (FILTER_WRITE, BLOOM_WRITE),
        ("Creates a filter of any kind.", O1),
        umbel::create,
    ),
    bloom(
        "umbel.info",
        2,
        (FILTER_READ, BLOOM_READ),
        ("Returns every number about a filter.", "O(N) where N is the number of shards"),
        umbel::info,
    ),
];

static CLIENT: [CommandSpec; 9] = [
    plain(
        "client|setname",
        3,
        (OUTSIDE, SLOW),
        ("Sets the connection name.", "2.6.9", "connection"),
        connection::set_name,
    ),
    plain(
        "client|getname",
        2,
        (OUTSIDE, SLOW),
        ("Returns the name of the connection.", "2.6.9", "connection"),
        connection::get_name,
    ),
    plain(
        "client|setinfo",
        4,
        (OUTSIDE, SLOW),
        ("Sets information specific to the client or connection.", "7.2.0", "connection"),
        connection::set_info,
    ),
    plain(
        "client|id",
        2,
        (OUTSIDE, SLOW),
        ("Returns the unique client ID of the connection.", "5.0.0", "connection"),
        connection::id,
    ),
    plain(
        "client|info",
        2,
        (OUTSIDE, SLOW),
        ("Returns information about the connection.", "6.2.0", "connection"),
        connection::client_info,
    ),
    plain(
        "client|list",
        -2,
        (ADMIN, &["@admin", "@slow", "@dangerous", "@connection"]),
        ("Lists open connections.", "2.4.0", "connection"),
        connection::client_list,
    ),
    plain(
        "client|reply",
        3,
        (OUTSIDE, SLOW),
        ("Instructs the server whether to reply to commands.", "3.2.0", "connection"),
        connection::replies,
    ),
    plain(
        "client|no-evict",
        3,
        (OUTSIDE, SLOW),
        ("Has no effect: no filter is ever evicted.", "7.0.0", "connection"),
        connection::switch,
    ),
    plain(
        "client|no-touch",
        3,
        (OUTSIDE, SLOW),
        ("Has no effect: no filter is ever evicted.", "7.2.0", "connection"),
        connection::switch,
    ),
];

static COMMAND: [CommandSpec; 5] = [
    plain(
        "command|count",
        2,
        (ANYTIME, SLOW),
        ("Returns a count of commands.", "2.8.13", "server"),
        connection::command_count,
    ),
    plain(
        "command|list",
        -2,
        (ANYTIME, SLOW),
        ("Returns a list of command names.", "7.0.0", "server"),
        connection::command_list,
    ),
    plain(
        "command|info",
        -2,
        (ANYTIME, SLOW),
        ("Returns information about one, multiple or all commands.", "2.8.13", "server"),
        connection::command_info,
    ),
    plain(
        "command|docs",
        -2,
        (ANYTIME, SLOW),
        ("Returns documentary information about one, multiple or all commands.", "7.0.0", "server"),
        connection::command_docs,
    ),
    plain(
        "command|getkeys",
        -3,
        (ANYTIME, SLOW),
        ("Extracts the key names from an arbitrary command.", "2.8.13", "server"),
        connection::command_keys,
    ),
];

static CONFIG: [CommandSpec; 1] = [plain(
    "config|get",
    -3,
    (ADMIN, SLOW_ADMIN),
    ("Returns the effective values of configuration parameters.", "2.0.0", "server"),
    connection::config_get,
)];

static MODULE: [CommandSpec; 1] = [plain(
    "module|list",
    2,
    (&["admin", "noscript"], SLOW_ADMIN),
    ("Returns all loaded modules.", "4.0.0", "server"),
    connection::module_list,
)];

static ACL: [CommandSpec; 1] = [plain(
    "acl|whoami",
    2,
    (OUTSIDE, &["@slow"]),
    ("Returns the authenticated username of the current connection.", "6.0.0", "server"),
    connection::who_am_i,
)];

static CLUSTER: [CommandSpec; 6] = [
    plain(
        "cluster|slots",
        2,
        (&["loading", "stale"], &["@slow"]),
        ("Returns the mapping of cluster slots to nodes.", "3.0.0", "cluster"),
        connection::cluster_slots,
    ),
    plain(
        "cluster|shards",
        2,
        (&["loading", "stale"], &["@slow"]),
        ("Returns the mapping of cluster slots to shards.", "7.0.0", "cluster"),
        connection::cluster_shards,
    ),
    plain(
        "cluster|nodes",
        2,
        (&["loading", "stale"], &["@slow"]),
        ("Returns the cluster configuration for a node.", "3.0.0", "cluster"),
        connection::cluster_nodes,
    ),
    plain(
        "cluster|myid",
        2,
        (&["loading", "stale"], &["@slow"]),
        ("Returns the ID of a node.", "3.0.0", "cluster"),
        connection::cluster_my_id,
    ),
    plain(
        "cluster|keyslot",
        3,
        (&["loading", "stale"], &["@slow"]),
        ("Returns the hash slot for a key.", "3.0.0", "cluster"),
        connection::cluster_key_slot,
    ),
    plain(
        "cluster|info",
        2,
        (&["loading", "stale"], &["@slow"]),
        ("Returns information about the state of a node.", "3.0.0", "cluster"),
        connection::cluster_info,
    ),
];
