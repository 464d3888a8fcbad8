//! The entries of commands with which tools look at a server.

use super::CommandSpec;
use super::build::{ANYTIME, Names, O1, SLOW_ADMIN, container, help, keyed, plain};
use super::keyspace::SECOND_KEY;
use crate::command::{connection, keyspace};

const LOOKING: Names = &["admin", "loading", "stale"];

pub(super) const OBJECT: CommandSpec = container(
    "object",
    &OBJECTS,
    ("A container for object introspection commands.", "2.2.3", "generic"),
);

pub(super) const SLOW_LOG: CommandSpec =
    container("slowlog", &SLOW_LOGS, ("A container for slow log commands.", "2.2.12", "server"));

pub(super) const LATENCY: CommandSpec = container(
    "latency",
    &LATENCIES,
    ("A container for latency diagnostics commands.", "2.8.13", "server"),
);

static OBJECTS: [CommandSpec; 2] = [
    keyed(
        "object|encoding",
        (3, SECOND_KEY),
        (&["readonly"], &["@keyspace", "@read", "@slow"]),
        ("Returns the internal encoding of a key, which is raw.", O1),
        keyspace::encoding,
    ),
    help("object|help", "6.2.0", "generic"),
];

static SLOW_LOGS: [CommandSpec; 4] = [
    plain(
        "slowlog|get",
        -2,
        (LOOKING, SLOW_ADMIN),
        ("Returns no entries: slow commands are not recorded.", "2.2.12", "server"),
        connection::slow_log,
    ),
    plain(
        "slowlog|len",
        2,
        (LOOKING, SLOW_ADMIN),
        ("Returns 0, the number of entries.", "2.2.12", "server"),
        connection::nothing_counted,
    ),
    plain(
        "slowlog|reset",
        2,
        (LOOKING, SLOW_ADMIN),
        ("Has no effect: there are no entries.", "2.2.12", "server"),
        connection::nothing_done,
    ),
    help("slowlog|help", "6.2.0", "server"),
];

static LATENCIES: [CommandSpec; 3] = [
    plain(
        "latency|latest",
        2,
        (ANYTIME, SLOW_ADMIN),
        ("Returns no samples: spikes are not recorded.", "2.8.13", "server"),
        connection::nothing_listed,
    ),
    plain(
        "latency|reset",
        -2,
        (ANYTIME, SLOW_ADMIN),
        ("Returns 0, the number of events that were reset.", "2.8.13", "server"),
        connection::nothing_counted,
    ),
    help("latency|help", "2.8.13", "server"),
];
