//! The entries of commands that give filters other names, or copy them.

use super::build::{Names, O1, keyed};
use super::{CommandSpec, KeyRange};
use crate::command::keyspace;

/// The first two arguments.
const TWO_KEYS: Option<KeyRange> = Some(KeyRange { first: 1, last: 2, step: 1 });

const SLOW: Names = &["@keyspace", "@write", "@slow"];
const FAST: Names = &["@keyspace", "@write", "@fast"];

pub(super) const RENAME: CommandSpec = keyed(
    "rename",
    (3, TWO_KEYS),
    (&["write"], SLOW),
    ("Renames a key and overwrites the destination.", O1),
    keyspace::rename,
);

pub(super) const RENAME_TO_FREE: CommandSpec = keyed(
    "renamenx",
    (3, TWO_KEYS),
    (&["write", "fast"], FAST),
    ("Renames a key only when the target key name doesn't exist.", O1),
    keyspace::rename_to_free,
);

pub(super) const COPY: CommandSpec = keyed(
    "copy",
    (-3, TWO_KEYS),
    (&["write", "denyoom"], SLOW),
    ("Copies the value of a key to a new key.", "O(N) where N is the memory of the filter."),
    keyspace::copy,
);
