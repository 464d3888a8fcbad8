//! The entries of commands with which tools look at a server.

use super::CommandSpec;
use super::build::{ANYTIME, Names, SLOW_ADMIN, container, help, keyed, plain};
use super::keyspace::SECOND_KEY;
use crate::command::{connection, keyspace};

const LOOKING: Names = &["admin", "loading", "stale"];

pub(super) const OBJECT: CommandSpec = container("object", &OBJECTS)
    .about("A container for object introspection commands.")
    .since("2.2.3", "generic");

pub(super) const SLOW_LOG: CommandSpec = container("slowlog", &SLOW_LOGS)
    .about("A container for slow log commands.")
    .since("2.2.12", "server");

pub(super) const LATENCY: CommandSpec = container("latency", &LATENCIES)
    .about("A container for latency diagnostics commands.")
    .since("2.8.13", "server");

static OBJECTS: [CommandSpec; 2] = [
    keyed(
        "object|encoding",
        (3, SECOND_KEY),
        (&["readonly"], &["@keyspace", "@read", "@slow"]),
        keyspace::encoding,
    )
    .about("Returns the internal encoding of a key, which is raw."),
    help("object|help", "6.2.0", "generic"),
];

static SLOW_LOGS: [CommandSpec; 4] = [
    plain("slowlog|get", -2, (LOOKING, SLOW_ADMIN), connection::slow_log)
        .about("Returns no entries: slow commands are not recorded.")
        .since("2.2.12", "server"),
    plain("slowlog|len", 2, (LOOKING, SLOW_ADMIN), connection::nothing_counted)
        .about("Returns 0, the number of entries.")
        .since("2.2.12", "server"),
    plain("slowlog|reset", 2, (LOOKING, SLOW_ADMIN), connection::nothing_done)
        .about("Has no effect: there are no entries.")
        .since("2.2.12", "server"),
    help("slowlog|help", "6.2.0", "server"),
];

static LATENCIES: [CommandSpec; 3] = [
    plain("latency|latest", 2, (ANYTIME, SLOW_ADMIN), connection::nothing_listed)
        .about("Returns no samples: spikes are not recorded.")
        .since("2.8.13", "server"),
    plain("latency|reset", -2, (ANYTIME, SLOW_ADMIN), connection::nothing_counted)
        .about("Returns 0, the number of events that were reset.")
        .since("2.8.13", "server"),
    help("latency|help", "2.8.13", "server"),
];
