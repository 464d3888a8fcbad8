//! Constructors and constants for entries of the table.

use super::{CommandDocs, CommandSpec, KeyRange, Parser};
use crate::arguments::Arguments;
use crate::command::{Command, connection};
use crate::refusal::Refusal;

/// A list of flags or categories.
pub(super) type Names = &'static [&'static str];

/// One key: the first argument.
pub(super) const ONE_KEY: Option<KeyRange> = Some(KeyRange { first: 1, last: 1, step: 1 });

/// All arguments are keys.
pub(super) const ALL_KEYS: Option<KeyRange> = Some(KeyRange { first: 1, last: -1, step: 1 });

pub(super) const O1: &str = "O(1)";

pub(super) const ON: &str = "O(N) where N is the number of arguments";

pub(super) const DUMPED: &str = "O(n), where n is the capacity";

pub(super) const FILTER_WRITE: Names = &["write", "denyoom", "module"];
pub(super) const FILTER_READ: Names = &["readonly", "module", "fast"];
pub(super) const ANYTIME: Names = &["loading", "stale"];
pub(super) const ANYTIME_FAST: Names = &["loading", "stale", "fast"];
pub(super) const OUTSIDE: Names = &["noscript", "loading", "stale"];
pub(super) const STRANGERS: Names =
    &["noscript", "loading", "stale", "fast", "no_auth", "allow_busy"];
pub(super) const ADMIN: Names = &["admin", "noscript", "loading", "stale"];

pub(super) const FAST: Names = &["@fast", "@connection"];
pub(super) const SLOW: Names = &["@slow", "@connection"];
pub(super) const SLOW_ADMIN: Names = &["@admin", "@slow", "@dangerous"];
pub(super) const KEY_WRITE: Names = &["write", "fast"];
pub(super) const KEY_READ: Names = &["readonly", "fast"];
pub(super) const KEY_WRITE_OF: Names = &["@keyspace", "@write", "@fast"];
pub(super) const KEY_READ_OF: Names = &["@keyspace", "@read", "@fast"];
pub(super) const BLOOM_WRITE: Names = &["@write", "@bloom"];
pub(super) const BLOOM_READ: Names = &["@read", "@bloom"];

/// A command on filters, of RedisBloom's kind.
pub(super) const fn bloom(
    name: &'static str,
    arity: i32,
    (flags, categories): (Names, Names),
    (summary, complexity): (&'static str, &'static str),
    parse: Parser,
) -> CommandSpec {
    let docs = CommandDocs { summary, since: "1.0.0", group: "module", complexity };
    CommandSpec { name, arity, flags, keys: ONE_KEY, categories, docs, subcommands: &[], parse }
}

/// A command without keys.
pub(super) const fn plain(
    name: &'static str,
    arity: i32,
    (flags, categories): (Names, Names),
    (summary, since, group): (&'static str, &'static str, &'static str),
    parse: Parser,
) -> CommandSpec {
    let docs = CommandDocs { summary, since, group, complexity: O1 };
    CommandSpec { name, arity, flags, keys: None, categories, docs, subcommands: &[], parse }
}

/// A command on keys of any kind.
pub(super) const fn keyed(
    name: &'static str,
    (arity, keys): (i32, Option<KeyRange>),
    (flags, categories): (Names, Names),
    (summary, complexity): (&'static str, &'static str),
    parse: Parser,
) -> CommandSpec {
    let docs = CommandDocs { summary, since: "1.0.0", group: "generic", complexity };
    CommandSpec { name, arity, flags, keys, categories, docs, subcommands: &[], parse }
}

/// A command that only has subcommands.
pub(super) const fn container(
    name: &'static str,
    subcommands: &'static [CommandSpec],
    (summary, since, group): (&'static str, &'static str, &'static str),
) -> CommandSpec {
    let docs = CommandDocs { summary, since, group, complexity: "Depends on subcommand." };
    let (flags, categories): (Names, Names) = (&[], &["@slow"]);
    CommandSpec { name, arity: -2, flags, keys: None, categories, docs, subcommands, parse: alone }
}

/// The subcommand that lists its siblings, to which the error for an unknown subcommand points.
pub(super) const fn help(
    name: &'static str,
    since: &'static str,
    group: &'static str,
) -> CommandSpec {
    let docs = ("Print this help.", since, group);
    plain(name, 2, (ANYTIME, &["@slow"]), docs, connection::help)
}

/// Never called: without a subcommand, the arity is wrong.
pub(super) fn alone(_arguments: Arguments<'_>) -> Result<Command<'_>, Refusal> {
    Err(Refusal::Syntax)
}
