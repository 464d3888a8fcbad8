//! The entries of commands that rename filters, copy them as a whole, or report their memory.

use super::build::{Names, ONE_KEY, help, keyed};
use super::{CommandSpec, KeyRange};
use crate::command::{keyspace, payload};

/// The first two arguments.
const TWO_KEYS: Option<KeyRange> = Some(KeyRange { first: 1, last: 2, step: 1 });

const SLOW: Names = &["@keyspace", "@write", "@slow"];
const OF_ITS_SIZE: &str = "O(N) where N is the memory of the filter.";
const FAST: Names = &["@keyspace", "@write", "@fast"];

/// The argument after a subcommand.
pub(super) const SECOND_KEY: Option<KeyRange> = Some(KeyRange { first: 2, last: 2, step: 1 });

/// The subcommands of `MEMORY`.
pub(super) static MEMORY: [CommandSpec; 2] = [
    keyed("memory|usage", (-3, SECOND_KEY), (&["readonly"], &["@read", "@slow"]), keyspace::memory)
        .about("Estimates the memory usage of a key."),
    help("memory|help", "4.0.0", "server"),
];

pub(super) const RENAME: CommandSpec =
    keyed("rename", (3, TWO_KEYS), (&["write"], SLOW), keyspace::rename)
        .about("Renames a key and overwrites the destination.");

pub(super) const RENAME_TO_FREE: CommandSpec =
    keyed("renamenx", (3, TWO_KEYS), (&["write", "fast"], FAST), keyspace::rename_to_free)
        .about("Renames a key only when the target key name doesn't exist.");

pub(super) const COPY: CommandSpec =
    keyed("copy", (-3, TWO_KEYS), (&["write", "denyoom"], SLOW), keyspace::copy)
        .about("Copies the value of a key to a new key.")
        .costs(OF_ITS_SIZE);

pub(super) const DUMP: CommandSpec =
    keyed("dump", (2, ONE_KEY), (&["readonly"], &["@keyspace", "@read", "@slow"]), payload::dump)
        .about("Returns a serialized representation of the value stored at a key.")
        .costs(OF_ITS_SIZE);

pub(super) const RESTORE: CommandSpec = keyed(
    "restore",
    (-4, ONE_KEY),
    (&["write", "denyoom"], &["@keyspace", "@write", "@slow", "@dangerous"]),
    payload::restore,
)
.about("Creates a key from the serialized representation of a value.")
.costs(OF_ITS_SIZE);
