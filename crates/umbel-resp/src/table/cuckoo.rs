//! The entries of `CF.*`.

use super::CommandSpec;
use super::build::{DUMPED, FILTER_READ, FILTER_WRITE, Names, bloom};
use crate::command::{cuckoo, dump};

const WRITE: Names = &["@write", "@cuckoo"];
const READ: Names = &["@read", "@fast", "@cuckoo"];

/// RedisBloom's complexity, in terms of a filter's parts; here a filter has one.
const PARTS: &str = "O(k + i), where k is the number of sub-filters and i is maxIterations";
const PARTS_OF_EACH: &str = "O(n * (k + i)), where n is the number of items, k is the number of sub-filters and i is maxIterations";
const LOOKED_AT: &str = "O(k), where k is the number of sub-filters";

pub(super) const ADD: CommandSpec = bloom(
    "cf.add",
    3,
    (FILTER_WRITE, WRITE),
    ("Adds an item to a Cuckoo Filter", PARTS),
    cuckoo::add,
);

pub(super) const ADD_NEW: CommandSpec = bloom(
    "cf.addnx",
    3,
    (FILTER_WRITE, WRITE),
    ("Adds an item to a Cuckoo Filter if the item did not exist previously.", PARTS),
    cuckoo::add_new,
);

pub(super) const INSERT: CommandSpec = bloom(
    "cf.insert",
    -4,
    (FILTER_WRITE, WRITE),
    (
        "Adds one or more items to a Cuckoo Filter. A filter will be created if it does not exist",
        PARTS_OF_EACH,
    ),
    cuckoo::insert,
);

pub(super) const INSERT_NEW: CommandSpec = bloom(
    "cf.insertnx",
    -4,
    (FILTER_WRITE, WRITE),
    (
        "Adds one or more items to a Cuckoo Filter if the items did not exist previously. A filter will be \
         created if it does not exist",
        PARTS_OF_EACH,
    ),
    cuckoo::insert_new,
);

pub(super) const EXISTS: CommandSpec = bloom(
    "cf.exists",
    3,
    (FILTER_READ, READ),
    ("Checks whether an item exists in a Cuckoo Filter", LOOKED_AT),
    cuckoo::exists,
);

pub(super) const EXIST_MANY: CommandSpec = bloom(
    "cf.mexists",
    -3,
    (FILTER_READ, READ),
    ("Checks whether one or more items exist in a Cuckoo Filter", LOOKED_AT),
    cuckoo::exist_many,
);

pub(super) const COUNT: CommandSpec = bloom(
    "cf.count",
    3,
    (FILTER_READ, READ),
    ("Return the number of times an item might be in a Cuckoo Filter", LOOKED_AT),
    cuckoo::count,
);

pub(super) const REMOVE: CommandSpec = bloom(
    "cf.del",
    3,
    // It needs no memory: a node without any carries it out, as RedisBloom does.
    (&["write", "module", "fast"], WRITE),
    ("Deletes an item from a Cuckoo Filter", LOOKED_AT),
    cuckoo::remove,
);

pub(super) const RESERVE: CommandSpec = bloom(
    "cf.reserve",
    -3,
    (FILTER_WRITE, WRITE),
    ("Creates a new Cuckoo Filter", "O(1)"),
    cuckoo::reserve,
);

pub(super) const INFO: CommandSpec = bloom(
    "cf.info",
    2,
    (FILTER_READ, READ),
    ("Returns information about a Cuckoo Filter", "O(1)"),
    cuckoo::info,
);

pub(super) const DEBUG: CommandSpec = bloom(
    "cf.debug",
    2,
    (FILTER_READ, READ),
    ("Returns information about a Cuckoo Filter in one line", "O(1)"),
    cuckoo::debug,
);

pub(super) const COMPACT: CommandSpec = bloom(
    "cf.compact",
    2,
    (FILTER_READ, READ),
    ("Has no effect: a cuckoo filter has one part.", "O(1)"),
    cuckoo::compact,
);

pub(super) const NEXT: CommandSpec = bloom(
    "cf.scandump",
    3,
    (FILTER_READ, READ),
    ("Begins an incremental save of the cuckoo filter", DUMPED),
    dump::next_of_cuckoo,
);

pub(super) const LOAD: CommandSpec = bloom(
    "cf.loadchunk",
    4,
    (FILTER_WRITE, WRITE),
    ("Restores a filter previously saved using SCANDUMP", DUMPED),
    dump::load_cuckoo,
);
