//! The entries of Umbel's own commands.

use super::build::{
    ALL_KEYS, BLOOM_READ, BLOOM_WRITE, FILTER_READ, FILTER_WRITE, O1, ON, bloom, plain,
};
use super::{CommandSpec, KeyRange};
use crate::command::umbel;

/// The complexity of commands that involve every shard.
const OF_SHARDS: &str = "O(N) where N is the number of shards";

pub(super) const SESSION: CommandSpec = plain(
    "umbel.session",
    1,
    (&["fast"], &["@fast", "@bloom"]),
    ("Opens a session, whose requests may be repeated.", "0.1.0", "module"),
    umbel::session,
);

pub(super) const REQUEST: CommandSpec = CommandSpec {
    // The key is that of the nested command, which begins two or four arguments later.
    keys: None,
    ..bloom(
        "umbel.request",
        -4,
        (FILTER_WRITE, BLOOM_WRITE),
        (
            "Runs an insert under a name of the client, so that it may be repeated.",
            "As the command inside.",
        ),
        umbel::request,
    )
};

pub(super) const CREATE: CommandSpec = bloom(
    "umbel.create",
    -4,
    (FILTER_WRITE, BLOOM_WRITE),
    ("Creates a filter of any kind.", O1),
    umbel::create,
);

pub(super) const INFO: CommandSpec = bloom(
    "umbel.info",
    2,
    (FILTER_READ, BLOOM_READ),
    ("Returns every number about a filter.", OF_SHARDS),
    umbel::info,
);

pub(super) const WHERE: CommandSpec = bloom(
    "umbel.where",
    3,
    (FILTER_READ, BLOOM_READ),
    ("Returns which shard keeps an item, and which nodes have it.", O1),
    umbel::find_place,
);

pub(super) const INSERT_AT: CommandSpec = bloom(
    "umbel.addat",
    -4,
    (FILTER_WRITE, BLOOM_WRITE),
    ("Adds items that came at a time, in milliseconds since 1970, to a window.", ON),
    umbel::insert_at,
);

pub(super) const MERGE: CommandSpec = CommandSpec {
    keys: ALL_KEYS,
    ..bloom(
        "umbel.merge",
        -3,
        (FILTER_WRITE, BLOOM_WRITE),
        ("Adds what other filters have to a filter of their shape and key.", OF_SHARDS),
        umbel::merge,
    )
};

pub(super) const INTERSECT: CommandSpec = CommandSpec {
    keys: ALL_KEYS,
    ..bloom(
        "umbel.intersect",
        -3,
        (FILTER_WRITE, BLOOM_WRITE),
        ("Adds what other filters have in common to a filter of their shape and key.", OF_SHARDS),
        umbel::intersect,
    )
};

pub(super) const ESTIMATE: CommandSpec = CommandSpec {
    keys: Some(KeyRange { first: 2, last: 3, step: 1 }),
    ..bloom(
        "umbel.estimate",
        4,
        (FILTER_READ, BLOOM_READ),
        ("Returns about how many items two filters have together or in common.", OF_SHARDS),
        umbel::estimate,
    )
};

pub(super) const RESET: CommandSpec = bloom(
    "umbel.reset",
    2,
    (FILTER_WRITE, BLOOM_WRITE),
    ("Empties a filter, in all its shards at once.", OF_SHARDS),
    umbel::reset,
);

pub(super) const ROTATE: CommandSpec = bloom(
    "umbel.rotate",
    2,
    (FILTER_WRITE, BLOOM_WRITE),
    ("Ends the slice at hand of a window that goes by hand, in all its shards at once.", OF_SHARDS),
    umbel::rotate,
);
