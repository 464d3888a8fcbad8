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

const O1: &str = "O(1)";

pub(super) const ON: &str = "O(N) where N is the number of arguments";

pub(super) const OF_FILTERS: &str = "O(N) where N is the number of filters";

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

/// The flags and categories of a command that is part of no transaction but about one.
pub(super) const OF_TRANSACTION: (Names, Names) =
    (&["noscript", "loading", "stale", "fast", "allow_busy"], &["@fast", "@transaction"]);

/// A command on filters, of RedisBloom's kind.
pub(super) const fn bloom(
    name: &'static str,
    arity: i32,
    kinds: (Names, Names),
    parse: Parser,
) -> CommandSpec {
    keyed(name, (arity, ONE_KEY), kinds, parse).since("1.0.0", "module")
}

/// A command without keys.
pub(super) const fn plain(
    name: &'static str,
    arity: i32,
    kinds: (Names, Names),
    parse: Parser,
) -> CommandSpec {
    keyed(name, (arity, None), kinds, parse)
}

/// A command on keys of any kind.
pub(super) const fn keyed(
    name: &'static str,
    (arity, keys): (i32, Option<KeyRange>),
    (flags, categories): (Names, Names),
    parse: Parser,
) -> CommandSpec {
    let docs = CommandDocs { summary: "", since: "1.0.0", group: "generic", complexity: O1 };
    CommandSpec { name, arity, flags, keys, categories, docs, subcommands: &[], parse }
}

/// A command that only has subcommands.
pub(super) const fn container(
    name: &'static str,
    subcommands: &'static [CommandSpec],
) -> CommandSpec {
    let spec = plain(name, -2, (&[], &["@slow"]), alone).costs("Depends on subcommand.");
    CommandSpec { subcommands, ..spec }
}

/// The subcommand that lists its siblings, to which the error for an unknown subcommand points.
pub(super) const fn help(
    name: &'static str,
    release: &'static str,
    group: &'static str,
) -> CommandSpec {
    plain(name, 2, (ANYTIME, &["@slow"]), connection::help)
        .about("Print this help.")
        .since(release, group)
}

/// What the constructors leave open.
impl CommandSpec {
    /// With what it does, in one sentence.
    pub(super) const fn about(mut self, summary: &'static str) -> Self {
        self.docs.summary = summary;
        self
    }

    /// With the release that introduced it, and its group.
    pub(super) const fn since(mut self, release: &'static str, group: &'static str) -> Self {
        self.docs.since = release;
        self.docs.group = group;
        self
    }

    /// With its time complexity, which is otherwise constant.
    pub(super) const fn costs(mut self, complexity: &'static str) -> Self {
        self.docs.complexity = complexity;
        self
    }

    /// With other keys than those of its kind.
    pub(super) const fn on(mut self, keys: Option<KeyRange>) -> Self {
        self.keys = keys;
        self
    }
}

/// Never called: without a subcommand, the arity is wrong.
pub(super) fn alone(_arguments: Arguments<'_>) -> Result<Command<'_>, Refusal> {
    Err(Refusal::Syntax)
}
