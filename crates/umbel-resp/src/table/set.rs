//! The entries of the commands on sets that filters support.

use super::CommandSpec;
use super::build::{KEY_READ, Names, ON, ONE_KEY, keyed};
use crate::command::set;

const WRITE: Names = &["write", "denyoom", "fast"];
const WRITE_OF: Names = &["@write", "@set", "@fast"];
const READ_OF: Names = &["@read", "@set", "@fast"];

pub(super) const ADD: CommandSpec = keyed("sadd", (-3, ONE_KEY), (WRITE, WRITE_OF), set::add)
    .about("Adds items to a filter, which is made if it is not there, and counts the new ones.")
    .costs(ON)
    .since("1.0.0", "set");

pub(super) const IS_MEMBER: CommandSpec =
    keyed("sismember", (3, ONE_KEY), (KEY_READ, READ_OF), set::is_member)
        .about("Determines whether an item is in a filter, at its rate of false positives.")
        .since("1.0.0", "set");

pub(super) const ARE_MEMBERS: CommandSpec =
    keyed("smismember", (-3, ONE_KEY), (KEY_READ, READ_OF), set::are_members)
        .about("Determines whether items are in a filter, at its rate of false positives.")
        .costs(ON)
        .since("6.2.0", "set");

pub(super) const CARDINALITY: CommandSpec =
    keyed("scard", (2, ONE_KEY), (KEY_READ, READ_OF), set::cardinality)
        .about("Returns the number of items of a filter that were new.")
        .since("1.0.0", "set");
