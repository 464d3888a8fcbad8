//! The entries of `BF.*`.

use super::CommandSpec;
use super::build::{BLOOM_READ, BLOOM_WRITE, DUMPED, FILTER_READ, FILTER_WRITE, Names, bloom};
use crate::command::{bloom, dump};

const QUICK_READ: Names = &["@read", "@fast", "@bloom"];

/// What both commands that add several items do, in RedisBloom's words.
const ADDS_MANY: &str =
    "Adds one or more items to a Bloom Filter. A filter will be created if it does not exist";
const HASHED: &str = "O(k), where k is the number of hash functions";
const HASHED_EACH: &str =
    "O(k * n), where k is the number of hash functions and n is the number of items";

pub(super) const ADD: CommandSpec = bloom("bf.add", 3, (FILTER_WRITE, BLOOM_WRITE), bloom::add)
    .about("Adds an item to a Bloom Filter")
    .costs(HASHED);

pub(super) const EXISTS: CommandSpec =
    bloom("bf.exists", 3, (FILTER_READ, BLOOM_READ), bloom::exists)
        .about("Checks whether an item exists in a Bloom Filter")
        .costs(HASHED);

pub(super) const ADD_MANY: CommandSpec =
    bloom("bf.madd", -3, (FILTER_WRITE, BLOOM_WRITE), bloom::add_many)
        .about(ADDS_MANY)
        .costs(HASHED_EACH);

pub(super) const EXIST_MANY: CommandSpec =
    bloom("bf.mexists", -3, (FILTER_READ, BLOOM_READ), bloom::exist_many)
        .about("Checks whether one or more items exist in a Bloom Filter")
        .costs(HASHED_EACH);

pub(super) const INSERT: CommandSpec =
    bloom("bf.insert", -4, (FILTER_WRITE, BLOOM_WRITE), bloom::insert)
        .about(ADDS_MANY)
        .costs(HASHED_EACH);

pub(super) const RESERVE: CommandSpec =
    bloom("bf.reserve", -4, (FILTER_WRITE, &["@write", "@fast", "@bloom"]), bloom::reserve)
        .about("Creates a new Bloom Filter");

pub(super) const INFO: CommandSpec = bloom("bf.info", -2, (FILTER_READ, QUICK_READ), bloom::info)
    .about("Returns information about a Bloom Filter");

pub(super) const DEBUG: CommandSpec = bloom("bf.debug", 2, (FILTER_READ, QUICK_READ), bloom::debug)
    .about("Returns the numbers of each part of a filter of RedisBloom's.")
    .costs("O(n), where n is the number of parts");

pub(super) const CARDINALITY: CommandSpec =
    bloom("bf.card", 2, (FILTER_READ, QUICK_READ), bloom::cardinality)
        .about("Returns the cardinality of a Bloom filter");

pub(super) const NEXT: CommandSpec = bloom("bf.scandump", 3, (FILTER_READ, BLOOM_READ), dump::next)
    .about("Begins an incremental save of the bloom filter")
    .costs(DUMPED);

pub(super) const LOAD: CommandSpec =
    bloom("bf.loadchunk", 4, (FILTER_WRITE, BLOOM_WRITE), dump::load)
        .about("Restores a filter previously saved using SCANDUMP")
        .costs(DUMPED);
