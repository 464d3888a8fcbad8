//! The entries of `BF.*`.

use super::CommandSpec;
use super::build::{BLOOM_READ, BLOOM_WRITE, DUMPED, FILTER_READ, FILTER_WRITE, O1, bloom};
use crate::command::{bloom, dump};

pub(super) const ADD: CommandSpec = bloom(
    "bf.add",
    3,
    (FILTER_WRITE, BLOOM_WRITE),
    ("Adds an item to a Bloom Filter", "O(k), where k is the number of hash functions"),
    bloom::add,
);

pub(super) const EXISTS: CommandSpec = bloom(
    "bf.exists",
    3,
    (FILTER_READ, BLOOM_READ),
    (
        "Checks whether an item exists in a Bloom Filter",
        "O(k), where k is the number of hash functions",
    ),
    bloom::exists,
);

pub(super) const ADD_MANY: CommandSpec = bloom(
    "bf.madd",
    -3,
    (FILTER_WRITE, BLOOM_WRITE),
    (
        "Adds one or more items to a Bloom Filter. A filter will be created if it does not exist",
        "O(k * n), where k is the number of hash functions and n is the number of items",
    ),
    bloom::add_many,
);

pub(super) const EXIST_MANY: CommandSpec = bloom(
    "bf.mexists",
    -3,
    (FILTER_READ, BLOOM_READ),
    (
        "Checks whether one or more items exist in a Bloom Filter",
        "O(k * n), where k is the number of hash functions and n is the number of items",
    ),
    bloom::exist_many,
);

pub(super) const INSERT: CommandSpec = bloom(
    "bf.insert",
    -4,
    (FILTER_WRITE, BLOOM_WRITE),
    (
        "Adds one or more items to a Bloom Filter. A filter will be created if it does not exist",
        "O(k * n), where k is the number of hash functions and n is the number of items",
    ),
    bloom::insert,
);

pub(super) const RESERVE: CommandSpec = bloom(
    "bf.reserve",
    -4,
    (FILTER_WRITE, &["@write", "@fast", "@bloom"]),
    ("Creates a new Bloom Filter", O1),
    bloom::reserve,
);

pub(super) const INFO: CommandSpec = bloom(
    "bf.info",
    -2,
    (FILTER_READ, &["@read", "@fast", "@bloom"]),
    ("Returns information about a Bloom Filter", O1),
    bloom::info,
);

pub(super) const DEBUG: CommandSpec = bloom(
    "bf.debug",
    2,
    (FILTER_READ, &["@read", "@fast", "@bloom"]),
    (
        "Returns the numbers of each part of a filter of RedisBloom's.",
        "O(n), where n is the number of parts",
    ),
    bloom::debug,
);

pub(super) const CARDINALITY: CommandSpec = bloom(
    "bf.card",
    2,
    (FILTER_READ, &["@read", "@fast", "@bloom"]),
    ("Returns the cardinality of a Bloom filter", O1),
    bloom::cardinality,
);

pub(super) const NEXT: CommandSpec = bloom(
    "bf.scandump",
    3,
    (FILTER_READ, BLOOM_READ),
    ("Begins an incremental save of the bloom filter", DUMPED),
    dump::next,
);

pub(super) const LOAD: CommandSpec = bloom(
    "bf.loadchunk",
    4,
    (FILTER_WRITE, BLOOM_WRITE),
    ("Restores a filter previously saved using SCANDUMP", DUMPED),
    dump::load,
);
