//! The replies to `COMMAND` and its subcommands, derived from the table of commands.

use std::collections::BTreeSet;

use crate::arguments::{Arguments, is_word};
use crate::command::{CommandQuery, ListFilter};
use crate::glob;
use crate::reply::Reply;
use crate::table::{self, CommandSpec, KeyRange};

/// The module that commands in the group `module` belong to.
const MODULE: &str = "bf";

impl CommandQuery<'_> {
    /// The reply.
    ///
    /// ```
    /// use umbel_resp::{CommandQuery, Reply, table};
    /// let count = i64::try_from(table::all().len())?;
    /// assert_eq!(CommandQuery::Count.answer(), Reply::Integer(count));
    /// # Ok::<(), std::num::TryFromIntError>(())
    /// ```
    #[must_use]
    pub fn answer(self) -> Reply {
        match self {
            Self::All => Reply::Array(table::all().iter().map(row).collect()),
            Self::Count => Reply::number(table::all().len()),
            Self::List(filter) => {
                let every = |spec: &'static CommandSpec| [spec].into_iter().chain(spec.subcommands);
                let shown =
                    table::all().iter().flat_map(every).filter(|spec| is_shown(spec, filter));
                Reply::Array(shown.map(|spec| Reply::bulk(spec.name)).collect())
            }
            Self::Info(names) if names.is_empty() => Self::All.answer(),
            Self::Info(names) => {
                let one = |name| table::by_name(name).map_or(Reply::Null, row);
                Reply::Array(names.iter().map(one).collect())
            }
            Self::Docs(names) => Reply::Map(docs(names)),
            Self::GetKeys(spec, arguments) => {
                Reply::Array(spec.keys_of(arguments).map(Reply::bulk).collect())
            }
            Self::Categories(None) => Reply::Array(categories().map(Reply::bulk).collect()),
            Self::Categories(Some(name)) => {
                let name = name.to_ascii_lowercase();
                CommandQuery::List(Some(ListFilter::Category(&name))).answer()
            }
            Self::Help(spec) => help(spec),
        }
    }
}

/// The categories of commands, without `@`, sorted.
fn categories() -> impl Iterator<Item = &'static str> {
    let every = |spec: &'static CommandSpec| [spec].into_iter().chain(spec.subcommands);
    let names =
        table::all().iter().flat_map(every).flat_map(|spec| spec.categories.iter().copied());
    let names: BTreeSet<&str> = names.map(|name| name.trim_start_matches('@')).collect();
    names.into_iter()
}

/// Whether commands have this category, given without `@`, in any case.
pub(crate) fn is_category(name: &[u8]) -> bool {
    categories().any(|known| is_word(name, known))
}

fn is_shown(spec: &CommandSpec, filter: Option<ListFilter<'_>>) -> bool {
    match filter {
        None => true,
        Some(ListFilter::Pattern(pattern)) => {
            glob::matches(&pattern.to_ascii_lowercase(), spec.name.as_bytes())
        }
        Some(ListFilter::Category(name)) => {
            let is_it = |category: &&str| category.as_bytes().get(1..) == Some(name);
            spec.categories.iter().any(is_it)
        }
        Some(ListFilter::Module(name)) => spec.docs.group == "module" && name == MODULE.as_bytes(),
    }
}

/// The subcommands with what they do, in the form of Redis.
fn help(spec: &'static CommandSpec) -> Reply {
    let name = spec.name.to_ascii_uppercase();
    let head = format!("{name} <subcommand> [<arg> [value] [opt] ...]. Subcommands are:");
    let lines = spec.subcommands.iter().flat_map(|spec| {
        [spec.last_name().to_ascii_uppercase(), format!("    {}", spec.docs.summary)]
    });
    let lines = std::iter::once(head).chain(lines);
    Reply::Array(lines.map(|line| Reply::Status(line.into())).collect())
}

fn statuses(names: &[&'static str]) -> Reply {
    Reply::Set(names.iter().map(|&name| Reply::Status(name.into())).collect())
}

/// The ten elements of a command: name, arity, flags, first, last and step of its keys, categories, tips,
/// key specifications, subcommands.
fn row(spec: &'static CommandSpec) -> Reply {
    let keys = spec.keys.unwrap_or(KeyRange { first: 0, last: 0, step: 0 });
    Reply::Array(vec![
        Reply::bulk(spec.name),
        Reply::Integer(spec.arity.into()),
        statuses(spec.flags),
        Reply::number(keys.first),
        Reply::number(keys.last),
        Reply::number(keys.step),
        statuses(spec.categories),
        Reply::Set(Vec::new()),
        Reply::Set(spec.keys.map(|keys| key_specification(spec, keys)).into_iter().collect()),
        // As in Redis: their rows have an order, but that there are none is a set.
        match spec.subcommands {
            [] => Reply::Set(Vec::new()),
            subcommands => Reply::Array(subcommands.iter().map(row).collect()),
        },
    ])
}

fn key_specification(spec: &CommandSpec, keys: KeyRange) -> Reply {
    let flags: &[&str] = if spec.is_write() { &["RW", "update"] } else { &["RO", "access"] };
    let last = if keys.last > 0 { 0 } else { keys.last };
    let search = vec![Reply::entry("index", Reply::number(keys.first))];
    let range = vec![
        Reply::entry("lastkey", Reply::number(last)),
        Reply::entry("keystep", Reply::number(keys.step)),
        Reply::entry("limit", Reply::Integer(0)),
    ];
    let found = |kind, spec| {
        Reply::Map(vec![
            Reply::entry("type", Reply::bulk(kind)),
            Reply::entry("spec", Reply::Map(spec)),
        ])
    };
    Reply::Map(vec![
        Reply::entry("flags", statuses(flags)),
        Reply::entry("begin_search", found("index", search)),
        Reply::entry("find_keys", found("range", range)),
    ])
}

fn docs(names: Arguments<'_>) -> Vec<(Reply, Reply)> {
    let one = |spec: &'static CommandSpec| (Reply::bulk(spec.name), described(spec));
    if names.is_empty() {
        table::all().iter().map(one).collect()
    } else {
        names.iter().filter_map(table::by_name).map(one).collect()
    }
}

fn described(spec: &'static CommandSpec) -> Reply {
    let docs = spec.docs;
    let mut pairs = vec![
        Reply::entry("summary", Reply::bulk(docs.summary)),
        Reply::entry("since", Reply::bulk(docs.since)),
        Reply::entry("group", Reply::bulk(docs.group)),
        Reply::entry("complexity", Reply::bulk(docs.complexity)),
    ];
    if docs.group == "module" {
        pairs.push(Reply::entry("module", Reply::bulk(MODULE)));
    }
    if !spec.subcommands.is_empty() {
        let subcommands = spec.subcommands.iter();
        let subcommands = subcommands.map(|spec| (Reply::bulk(spec.name), described(spec)));
        pairs.push(Reply::entry("subcommands", Reply::Map(subcommands.collect())));
    }
    Reply::Map(pairs)
}
