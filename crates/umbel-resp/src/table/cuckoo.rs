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

/// What the commands that add several items do, in RedisBloom's words.
const ADDS_MANY: &str =
    "Adds one or more items to a Cuckoo Filter. A filter will be created if it does not exist";
const ADDS_NEW: &str = "Adds one or more items to a Cuckoo Filter if the items did not exist \
    previously. A filter will be created if it does not exist";

pub(super) const ADD: CommandSpec = bloom("cf.add", 3, (FILTER_WRITE, WRITE), cuckoo::add)
    .about("Adds an item to a Cuckoo Filter")
    .costs(PARTS);

pub(super) const ADD_NEW: CommandSpec =
    bloom("cf.addnx", 3, (FILTER_WRITE, WRITE), cuckoo::add_new)
        .about("Adds an item to a Cuckoo Filter if the item did not exist previously.")
        .costs(PARTS);

pub(super) const INSERT: CommandSpec =
    bloom("cf.insert", -4, (FILTER_WRITE, WRITE), cuckoo::insert)
        .about(ADDS_MANY)
        .costs(PARTS_OF_EACH);

pub(super) const INSERT_NEW: CommandSpec =
    bloom("cf.insertnx", -4, (FILTER_WRITE, WRITE), cuckoo::insert_new)
        .about(ADDS_NEW)
        .costs(PARTS_OF_EACH);

pub(super) const EXISTS: CommandSpec = bloom("cf.exists", 3, (FILTER_READ, READ), cuckoo::exists)
    .about("Checks whether an item exists in a Cuckoo Filter")
    .costs(LOOKED_AT);

pub(super) const EXIST_MANY: CommandSpec =
    bloom("cf.mexists", -3, (FILTER_READ, READ), cuckoo::exist_many)
        .about("Checks whether one or more items exist in a Cuckoo Filter")
        .costs(LOOKED_AT);

pub(super) const COUNT: CommandSpec = bloom("cf.count", 3, (FILTER_READ, READ), cuckoo::count)
    .about("Return the number of times an item might be in a Cuckoo Filter")
    .costs(LOOKED_AT);

pub(super) const REMOVE: CommandSpec = bloom(
    "cf.del",
    3,
    // It needs no memory: a node without any carries it out, as RedisBloom does.
    (&["write", "module", "fast"], WRITE),
    cuckoo::remove,
)
.about("Deletes an item from a Cuckoo Filter")
.costs(LOOKED_AT);

pub(super) const RESERVE: CommandSpec =
    bloom("cf.reserve", -3, (FILTER_WRITE, WRITE), cuckoo::reserve)
        .about("Creates a new Cuckoo Filter");

pub(super) const INFO: CommandSpec = bloom("cf.info", 2, (FILTER_READ, READ), cuckoo::info)
    .about("Returns information about a Cuckoo Filter");

pub(super) const DEBUG: CommandSpec = bloom("cf.debug", 2, (FILTER_READ, READ), cuckoo::debug)
    .about("Returns information about a Cuckoo Filter in one line");

pub(super) const COMPACT: CommandSpec =
    bloom("cf.compact", 2, (FILTER_READ, READ), cuckoo::compact)
        .about("Has no effect: a cuckoo filter has one part.");

pub(super) const NEXT: CommandSpec =
    bloom("cf.scandump", 3, (FILTER_READ, READ), dump::next_of_cuckoo)
        .about("Begins an incremental save of the cuckoo filter")
        .costs(DUMPED);

pub(super) const LOAD: CommandSpec =
    bloom("cf.loadchunk", 4, (FILTER_WRITE, WRITE), dump::load_cuckoo)
        .about("Restores a filter previously saved using SCANDUMP")
        .costs(DUMPED);
