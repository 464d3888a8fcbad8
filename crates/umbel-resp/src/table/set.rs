//! The entries of the commands on sets that filters support.

use super::build::{KEY_READ, Names, ON, ONE_KEY, keyed};
use super::{CommandDocs, CommandSpec};
use crate::command::set;

const WRITE: Names = &["write", "denyoom", "fast"];
const WRITE_OF: Names = &["@write", "@set", "@fast"];
const READ_OF: Names = &["@read", "@set", "@fast"];

pub(super) const ADD: CommandSpec = of_set(
    "1.0.0",
    &keyed(
        "sadd",
        (-3, ONE_KEY),
        (WRITE, WRITE_OF),
        ("Adds items to a filter, which is made if it is not there, and counts the new ones.", ON),
        set::add,
    ),
);

pub(super) const IS_MEMBER: CommandSpec = of_set(
    "1.0.0",
    &keyed(
        "sismember",
        (3, ONE_KEY),
        (KEY_READ, READ_OF),
        ("Determines whether an item is in a filter, at its rate of false positives.", "O(1)"),
        set::is_member,
    ),
);

pub(super) const ARE_MEMBERS: CommandSpec = of_set(
    "6.2.0",
    &keyed(
        "smismember",
        (-3, ONE_KEY),
        (KEY_READ, READ_OF),
        ("Determines whether items are in a filter, at its rate of false positives.", ON),
        set::are_members,
    ),
);

pub(super) const CARDINALITY: CommandSpec = of_set(
    "1.0.0",
    &keyed(
        "scard",
        (2, ONE_KEY),
        (KEY_READ, READ_OF),
        ("Returns the number of items of a filter that were new.", "O(1)"),
        set::cardinality,
    ),
);

/// Puts a command into the group `set`, with the release of Redis that introduced it.
const fn of_set(since: &'static str, spec: &CommandSpec) -> CommandSpec {
    let docs = CommandDocs { since, group: "set", ..spec.docs };
    CommandSpec { docs, ..*spec }
}
