//! The entries of the table.

use super::build::{
    ALL_KEYS, ANYTIME, ANYTIME_FAST, FAST, KEY_READ, KEY_READ_OF, KEY_WRITE, KEY_WRITE_OF,
    OF_FILTERS, OF_TRANSACTION, ON, ONE_KEY, SLOW, STRANGERS, container, keyed, plain,
};
use super::subcommands::{ACL, CLIENT, CLUSTER, COMMAND, CONFIG, MODULE};
use super::{CommandSpec, bloom, cuckoo, diagnostics, keyspace as names, set, umbel};
use crate::command::{connection, expiry, keyspace};

pub(super) static COMMANDS: [CommandSpec; 94] = [
    bloom::ADD,
    bloom::EXISTS,
    bloom::ADD_MANY,
    bloom::EXIST_MANY,
    bloom::INSERT,
    bloom::RESERVE,
    bloom::INFO,
    bloom::DEBUG,
    bloom::CARDINALITY,
    bloom::NEXT,
    bloom::LOAD,
    cuckoo::ADD,
    cuckoo::ADD_NEW,
    cuckoo::INSERT,
    cuckoo::INSERT_NEW,
    cuckoo::EXISTS,
    cuckoo::EXIST_MANY,
    cuckoo::COUNT,
    cuckoo::REMOVE,
    cuckoo::RESERVE,
    cuckoo::INFO,
    cuckoo::DEBUG,
    cuckoo::COMPACT,
    cuckoo::NEXT,
    cuckoo::LOAD,
    set::ADD,
    set::IS_MEMBER,
    set::ARE_MEMBERS,
    set::CARDINALITY,
    names::RENAME,
    names::RENAME_TO_FREE,
    names::COPY,
    names::DUMP,
    names::RESTORE,
    plain("ping", -1, (&["fast"], FAST), connection::ping)
        .about("Returns the server's liveliness response.")
        .since("1.0.0", "connection"),
    plain("echo", 2, (ANYTIME_FAST, FAST), connection::echo)
        .about("Returns the given string.")
        .since("1.0.0", "connection"),
    plain("hello", -1, (STRANGERS, FAST), connection::hello)
        .about("Handshakes with the server.")
        .since("6.0.0", "connection"),
    plain("auth", -2, (STRANGERS, FAST), connection::auth)
        .about("Authenticates the connection.")
        .since("1.0.0", "connection"),
    plain("select", 2, (ANYTIME_FAST, FAST), connection::select)
        .about("Changes the selected database.")
        .since("1.0.0", "connection"),
    plain("quit", -1, (STRANGERS, FAST), connection::quit)
        .about("Closes the connection.")
        .since("1.0.0", "connection"),
    plain("reset", 1, (STRANGERS, FAST), connection::reset)
        .about("Resets the connection.")
        .since("6.2.0", "connection"),
    plain("readonly", 1, (ANYTIME_FAST, FAST), connection::read_only)
        .about("Lets any replica answer that an item is present.")
        .since("3.0.0", "cluster"),
    plain("readwrite", 1, (ANYTIME_FAST, FAST), connection::read_write)
        .about("Has every answer confirmed by a majority.")
        .since("3.0.0", "cluster"),
    plain("asking", 1, (&["fast"], FAST), connection::asking)
        .about("Has no effect: no key is ever elsewhere.")
        .since("3.0.0", "cluster"),
    container("client", &CLIENT)
        .about("A container for client connection commands.")
        .since("2.4.0", "connection"),
    CommandSpec {
        arity: -1,
        flags: ANYTIME,
        categories: SLOW,
        parse: connection::commands,
        ..container("command", &COMMAND)
            .about("Returns detailed information about all commands.")
            .since("2.8.13", "server")
    },
    plain("info", -1, (ANYTIME, &["@slow", "@dangerous"]), connection::info)
        .about("Returns information and statistics about the server.")
        .since("1.0.0", "server"),
    container("config", &CONFIG)
        .about("A container for server configuration commands.")
        .since("2.0.0", "server"),
    plain("time", 1, (ANYTIME_FAST, &["@fast"]), connection::time)
        .about("Returns the server time.")
        .since("2.6.0", "server"),
    plain(
        "role",
        1,
        (&["noscript", "loading", "stale", "fast"], &["@admin", "@fast", "@dangerous"]),
        connection::role,
    )
    .about("Returns the replication role.")
    .since("2.8.12", "server"),
    plain("wait", 3, (&["noscript"], SLOW), connection::wait)
        .about("Returns how many more replicas have every acknowledged write.")
        .since("3.0.0", "generic"),
    plain("waitaof", 4, (&["noscript"], SLOW), connection::wait_for_disks)
        .about("Returns that every acknowledged write is on disk here and on more replicas.")
        .since("7.2.0", "generic"),
    diagnostics::OBJECT,
    diagnostics::SLOW_LOG,
    diagnostics::LATENCY,
    container("memory", &names::MEMORY)
        .about("A container for memory diagnostics.")
        .since("4.0.0", "server"),
    container("module", &MODULE).about("A container for module commands.").since("4.0.0", "server"),
    container("acl", &ACL)
        .about("A container for Access List Control commands.")
        .since("6.0.0", "server"),
    keyed(
        "del",
        (-2, ALL_KEYS),
        (&["write"], &["@keyspace", "@write", "@slow"]),
        keyspace::drop_keys,
    )
    .about("Deletes one or more keys.")
    .costs(ON),
    keyed("unlink", (-2, ALL_KEYS), (KEY_WRITE, KEY_WRITE_OF), keyspace::drop_keys)
        .about("Deletes one or more keys.")
        .costs(ON),
    keyed("exists", (-2, ALL_KEYS), (KEY_READ, KEY_READ_OF), keyspace::count_keys)
        .about("Determines whether one or more keys exist.")
        .costs(ON),
    keyed("touch", (-2, ALL_KEYS), (KEY_READ, KEY_READ_OF), keyspace::count_keys)
        .about("Returns the number of existing keys out of those specified.")
        .costs(ON),
    keyed("type", (2, ONE_KEY), (KEY_READ, KEY_READ_OF), keyspace::type_of)
        .about("Determines the type of value stored at a key."),
    keyed(
        "keys",
        (2, None),
        (&["readonly"], &["@keyspace", "@read", "@slow", "@dangerous"]),
        keyspace::list,
    )
    .about("Returns all key names that match a pattern.")
    .costs(OF_FILTERS),
    keyed("scan", (-2, None), (&["readonly"], &["@keyspace", "@read", "@slow"]), keyspace::scan)
        .about("Iterates over the key names in the database.")
        .costs(OF_FILTERS),
    keyed("dbsize", (1, None), (KEY_READ, KEY_READ_OF), keyspace::size)
        .about("Returns the number of keys in the database.")
        .costs(OF_FILTERS),
    keyed(
        "flushdb",
        (-1, None),
        (&["write"], &["@keyspace", "@write", "@slow", "@dangerous"]),
        keyspace::drop_database,
    )
    .about("Removes all keys from the current database.")
    .costs(OF_FILTERS),
    keyed(
        "flushall",
        (-1, None),
        (&["write"], &["@keyspace", "@write", "@slow", "@dangerous"]),
        keyspace::drop_databases,
    )
    .about("Removes all keys from all databases.")
    .costs(OF_FILTERS),
    keyed("expire", (-3, ONE_KEY), (KEY_WRITE, KEY_WRITE_OF), expiry::expire)
        .about("Sets the expiration time of a key in seconds."),
    keyed("pexpire", (-3, ONE_KEY), (KEY_WRITE, KEY_WRITE_OF), expiry::expire_ms)
        .about("Sets the expiration time of a key in milliseconds."),
    keyed("expireat", (-3, ONE_KEY), (KEY_WRITE, KEY_WRITE_OF), expiry::expire_at)
        .about("Sets the expiration time of a key to a Unix timestamp."),
    keyed("pexpireat", (-3, ONE_KEY), (KEY_WRITE, KEY_WRITE_OF), expiry::expire_at_ms)
        .about("Sets the expiration time of a key to a Unix milliseconds timestamp."),
    keyed("persist", (2, ONE_KEY), (KEY_WRITE, KEY_WRITE_OF), expiry::persist)
        .about("Removes the expiration time of a key."),
    keyed("ttl", (2, ONE_KEY), (KEY_READ, KEY_READ_OF), expiry::left)
        .about("Returns the expiration time in seconds of a key."),
    keyed("pttl", (2, ONE_KEY), (KEY_READ, KEY_READ_OF), expiry::left_ms)
        .about("Returns the expiration time in milliseconds of a key."),
    keyed("expiretime", (2, ONE_KEY), (KEY_READ, KEY_READ_OF), expiry::moment)
        .about("Returns the expiration time of a key as a Unix timestamp."),
    keyed("pexpiretime", (2, ONE_KEY), (KEY_READ, KEY_READ_OF), expiry::moment_ms)
        .about("Returns the expiration time of a key as a Unix milliseconds timestamp."),
    plain("multi", 1, OF_TRANSACTION, connection::multi)
        .about("Starts a transaction.")
        .since("1.2.0", "transactions"),
    plain(
        "exec",
        1,
        (&["noscript", "loading", "stale", "skip_slowlog"], &["@slow", "@transaction"]),
        connection::exec,
    )
    .about("Executes all commands in a transaction.")
    .since("1.2.0", "transactions"),
    plain("discard", 1, OF_TRANSACTION, connection::discard)
        .about("Discards a transaction.")
        .since("2.0.0", "transactions"),
    plain("watch", -2, OF_TRANSACTION, connection::watch)
        .about("Refuses: a transaction does not depend on keys.")
        .since("2.2.0", "transactions")
        .on(ALL_KEYS),
    plain("unwatch", 1, OF_TRANSACTION, connection::nothing_done)
        .about("Has no effect: no key is watched.")
        .since("2.2.0", "transactions"),
    container("cluster", &CLUSTER)
        .about("A container for Redis Cluster commands.")
        .since("3.0.0", "cluster"),
    umbel::SESSION,
    umbel::REQUEST,
    umbel::CREATE,
    umbel::INFO,
    umbel::WHERE,
    umbel::INSERT_AT,
    umbel::MERGE,
    umbel::INTERSECT,
    umbel::ESTIMATE,
    umbel::RESET,
    umbel::ROTATE,
];
