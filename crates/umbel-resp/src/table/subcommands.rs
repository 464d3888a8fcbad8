//! The subcommands of the table's entries.

use super::CommandSpec;
use super::build::{ADMIN, ANYTIME, Names, OUTSIDE, SLOW, SLOW_ADMIN, help, plain};
use crate::command::connection;

/// The flags and categories of most subcommands of `CLUSTER`.
const ABOUT_CLUSTER: (Names, Names) = (&["loading", "stale"], &["@slow"]);

pub(super) static CLIENT: [CommandSpec; 11] = [
    plain("client|setname", 3, (OUTSIDE, SLOW), connection::set_name)
        .about("Sets the connection name.")
        .since("2.6.9", "connection"),
    plain("client|getname", 2, (OUTSIDE, SLOW), connection::get_name)
        .about("Returns the name of the connection.")
        .since("2.6.9", "connection"),
    plain("client|setinfo", 4, (OUTSIDE, SLOW), connection::set_info)
        .about("Sets information specific to the client or connection.")
        .since("7.2.0", "connection"),
    plain("client|id", 2, (OUTSIDE, SLOW), connection::id)
        .about("Returns the unique client ID of the connection.")
        .since("5.0.0", "connection"),
    plain("client|info", 2, (OUTSIDE, SLOW), connection::client_info)
        .about("Returns information about the connection.")
        .since("6.2.0", "connection"),
    plain(
        "client|list",
        -2,
        (ADMIN, &["@admin", "@slow", "@dangerous", "@connection"]),
        connection::client_list,
    )
    .about("Lists open connections.")
    .since("2.4.0", "connection"),
    plain("client|reply", 3, (OUTSIDE, SLOW), connection::replies)
        .about("Instructs the server whether to reply to commands.")
        .since("3.2.0", "connection"),
    plain("client|no-evict", 3, (OUTSIDE, SLOW), connection::switch)
        .about("Has no effect: no filter is ever evicted.")
        .since("7.0.0", "connection"),
    plain("client|no-touch", 3, (OUTSIDE, SLOW), connection::switch)
        .about("Has no effect: no filter is ever evicted.")
        .since("7.2.0", "connection"),
    plain("client|capa", -3, (OUTSIDE, SLOW), connection::nothing_done)
        .about("Has no effect: no reply depends on what a client can do.")
        .since("8.0.0", "connection"),
    help("client|help", "5.0.0", "connection"),
];

pub(super) static COMMAND: [CommandSpec; 6] = [
    plain("command|count", 2, (ANYTIME, SLOW), connection::command_count)
        .about("Returns a count of commands.")
        .since("2.8.13", "server"),
    plain("command|list", -2, (ANYTIME, SLOW), connection::command_list)
        .about("Returns a list of command names.")
        .since("7.0.0", "server"),
    plain("command|info", -2, (ANYTIME, SLOW), connection::command_info)
        .about("Returns information about one, multiple or all commands.")
        .since("2.8.13", "server"),
    plain("command|docs", -2, (ANYTIME, SLOW), connection::command_docs)
        .about("Returns documentary information about one, multiple or all commands.")
        .since("7.0.0", "server"),
    plain("command|getkeys", -3, (ANYTIME, SLOW), connection::command_keys)
        .about("Extracts the key names from an arbitrary command.")
        .since("2.8.13", "server"),
    help("command|help", "5.0.0", "server"),
];

pub(super) static CONFIG: [CommandSpec; 4] = [
    plain("config|get", -3, (ADMIN, SLOW_ADMIN), connection::config_get)
        .about("Returns the effective values of configuration parameters.")
        .since("2.0.0", "server"),
    plain("config|set", -4, (ADMIN, SLOW_ADMIN), connection::config_set)
        .about("Refuses: every parameter is read-only.")
        .since("2.0.0", "server"),
    plain("config|resetstat", 2, (ADMIN, SLOW_ADMIN), connection::reset_counters)
        .about("Resets the counters of commands, hits and misses.")
        .since("2.0.0", "server"),
    help("config|help", "5.0.0", "server"),
];

pub(super) static MODULE: [CommandSpec; 2] = [
    plain("module|list", 2, (&["admin", "noscript"], SLOW_ADMIN), connection::module_list)
        .about("Returns all loaded modules.")
        .since("4.0.0", "server"),
    help("module|help", "5.0.0", "server"),
];

pub(super) static ACL: [CommandSpec; 4] = [
    plain("acl|whoami", 2, (OUTSIDE, &["@slow"]), connection::who_am_i)
        .about("Returns the authenticated username of the current connection.")
        .since("6.0.0", "server"),
    plain("acl|cat", -2, (OUTSIDE, &["@slow"]), connection::categories)
        .about("Lists the categories, or the commands inside a category.")
        .since("6.0.0", "server"),
    plain("acl|users", 2, (ADMIN, SLOW_ADMIN), connection::users)
        .about("Lists all users.")
        .since("6.0.0", "server"),
    help("acl|help", "6.0.0", "server"),
];

pub(super) static CLUSTER: [CommandSpec; 9] = [
    plain("cluster|slots", 2, ABOUT_CLUSTER, connection::cluster_slots)
        .about("Returns the mapping of cluster slots to nodes.")
        .since("3.0.0", "cluster"),
    plain("cluster|shards", 2, ABOUT_CLUSTER, connection::cluster_shards)
        .about("Returns the mapping of cluster slots to shards.")
        .since("7.0.0", "cluster"),
    plain("cluster|nodes", 2, ABOUT_CLUSTER, connection::cluster_nodes)
        .about("Returns the cluster configuration for a node.")
        .since("3.0.0", "cluster"),
    plain("cluster|myid", 2, ABOUT_CLUSTER, connection::cluster_my_id)
        .about("Returns the ID of a node.")
        .since("3.0.0", "cluster"),
    plain("cluster|keyslot", 3, ABOUT_CLUSTER, connection::cluster_key_slot)
        .about("Returns the hash slot for a key.")
        .since("3.0.0", "cluster"),
    plain("cluster|info", 2, ABOUT_CLUSTER, connection::cluster_info)
        .about("Returns information about the state of a node.")
        .since("3.0.0", "cluster"),
    plain("cluster|links", 2, (&["stale"], &["@slow"]), connection::cluster_links)
        .about("Returns a list of all TCP links to and from peer nodes.")
        .since("7.0.0", "cluster"),
    plain("cluster|myshardid", 2, ABOUT_CLUSTER, connection::cluster_my_shard_id)
        .about("Returns the shard ID of a node.")
        .since("7.2.0", "cluster"),
    help("cluster|help", "5.0.0", "cluster"),
];
