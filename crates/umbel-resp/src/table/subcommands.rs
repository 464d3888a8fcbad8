//! The subcommands of the table's entries.

use super::CommandSpec;
use super::build::{ADMIN, ANYTIME, OUTSIDE, SLOW, SLOW_ADMIN, help, plain};
use crate::command::connection;

pub(super) static CLIENT: [CommandSpec; 11] = [
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
    plain(
        "client|capa",
        -3,
        (OUTSIDE, SLOW),
        ("Has no effect: no reply depends on what a client can do.", "8.0.0", "connection"),
        connection::nothing_done,
    ),
    help("client|help", "5.0.0", "connection"),
];

pub(super) static COMMAND: [CommandSpec; 6] = [
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
    help("command|help", "5.0.0", "server"),
];

pub(super) static CONFIG: [CommandSpec; 4] = [
    plain(
        "config|get",
        -3,
        (ADMIN, SLOW_ADMIN),
        ("Returns the effective values of configuration parameters.", "2.0.0", "server"),
        connection::config_get,
    ),
    plain(
        "config|set",
        -4,
        (ADMIN, SLOW_ADMIN),
        ("Refuses: every parameter is read-only.", "2.0.0", "server"),
        connection::config_set,
    ),
    plain(
        "config|resetstat",
        2,
        (ADMIN, SLOW_ADMIN),
        ("Resets the counters of commands, hits and misses.", "2.0.0", "server"),
        connection::reset_counters,
    ),
    help("config|help", "5.0.0", "server"),
];

pub(super) static MODULE: [CommandSpec; 2] = [
    plain(
        "module|list",
        2,
        (&["admin", "noscript"], SLOW_ADMIN),
        ("Returns all loaded modules.", "4.0.0", "server"),
        connection::module_list,
    ),
    help("module|help", "5.0.0", "server"),
];

pub(super) static ACL: [CommandSpec; 4] = [
    plain(
        "acl|whoami",
        2,
        (OUTSIDE, &["@slow"]),
        ("Returns the authenticated username of the current connection.", "6.0.0", "server"),
        connection::who_am_i,
    ),
    plain(
        "acl|cat",
        -2,
        (OUTSIDE, &["@slow"]),
        ("Lists the categories, or the commands inside a category.", "6.0.0", "server"),
        connection::categories,
    ),
    plain(
        "acl|users",
        2,
        (ADMIN, SLOW_ADMIN),
        ("Lists all users.", "6.0.0", "server"),
        connection::users,
    ),
    help("acl|help", "6.0.0", "server"),
];

pub(super) static CLUSTER: [CommandSpec; 9] = [
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
    plain(
        "cluster|links",
        2,
        (&["stale"], &["@slow"]),
        ("Returns a list of all TCP links to and from peer nodes.", "7.0.0", "cluster"),
        connection::cluster_links,
    ),
    plain(
        "cluster|myshardid",
        2,
        (&["loading", "stale"], &["@slow"]),
        ("Returns the shard ID of a node.", "7.2.0", "cluster"),
        connection::cluster_my_shard_id,
    ),
    help("cluster|help", "5.0.0", "cluster"),
];
