//! The entries of Umbel's own commands.

use super::build::{
    ALL_KEYS, BLOOM_READ, BLOOM_WRITE, FILTER_READ, FILTER_WRITE, ON, bloom, plain,
};
use super::{CommandSpec, KeyRange};
use crate::command::{create, umbel};

/// The complexity of commands that involve every shard.
const OF_SHARDS: &str = "O(N) where N is the number of shards";

pub(super) const SESSION: CommandSpec =
    plain("umbel.session", 1, (&["fast"], &["@fast", "@bloom"]), umbel::session)
        .about("Opens a session, whose requests may be repeated.")
        .since("0.1.0", "module");

pub(super) const REQUEST: CommandSpec =
    bloom("umbel.request", -4, (FILTER_WRITE, BLOOM_WRITE), umbel::request)
        .about("Runs an insert under a name of the client, so that it may be repeated.")
        .costs("As the command inside.")
        // The key is that of the nested command, which begins two or four arguments later.
        .on(None);

pub(super) const CREATE: CommandSpec =
    bloom("umbel.create", -4, (FILTER_WRITE, BLOOM_WRITE), create::create)
        .about("Creates a filter of any kind.");

pub(super) const INFO: CommandSpec = bloom("umbel.info", 2, (FILTER_READ, BLOOM_READ), umbel::info)
    .about("Returns every number about a filter.")
    .costs(OF_SHARDS);

pub(super) const WHERE: CommandSpec =
    bloom("umbel.where", 3, (FILTER_READ, BLOOM_READ), umbel::find_place)
        .about("Returns which shard keeps an item, and which nodes have it.");

pub(super) const INSERT_AT: CommandSpec =
    bloom("umbel.addat", -4, (FILTER_WRITE, BLOOM_WRITE), umbel::insert_at)
        .about("Adds items that came at a time, in milliseconds since 1970, to a window.")
        .costs(ON);

pub(super) const MERGE: CommandSpec =
    bloom("umbel.merge", -3, (FILTER_WRITE, BLOOM_WRITE), umbel::merge)
        .about("Adds what other filters have to a filter of their shape and key.")
        .costs(OF_SHARDS)
        .on(ALL_KEYS);

pub(super) const INTERSECT: CommandSpec =
    bloom("umbel.intersect", -3, (FILTER_WRITE, BLOOM_WRITE), umbel::intersect)
        .about("Adds what other filters have in common to a filter of their shape and key.")
        .costs(OF_SHARDS)
        .on(ALL_KEYS);

pub(super) const ESTIMATE: CommandSpec =
    bloom("umbel.estimate", 4, (FILTER_READ, BLOOM_READ), umbel::estimate)
        .about("Returns about how many items two filters have together or in common.")
        .costs(OF_SHARDS)
        .on(Some(KeyRange { first: 2, last: 3, step: 1 }));

pub(super) const RESET: CommandSpec =
    bloom("umbel.reset", 2, (FILTER_WRITE, BLOOM_WRITE), umbel::reset)
        .about("Empties a filter, in all its shards at once.")
        .costs(OF_SHARDS);

pub(super) const ROTATE: CommandSpec =
    bloom("umbel.rotate", 2, (FILTER_WRITE, BLOOM_WRITE), umbel::rotate)
        .about("Ends the slice at hand of a window that goes by hand, in all its shards at once.")
        .costs(OF_SHARDS);
