//! What `COMMAND` and its subcommands answer: everything comes from the table.

use crate::arguments::Arguments;
use crate::command::{CommandQuery, ListFilter};
use crate::glob;
use crate::reply::Reply;
use crate::table::{self, CommandSpec, KeyRange};

/// Name and module of what stands in the group `module`.
const MODULE: &str = "bf";

impl CommandQuery<'_> {
    /// The answer.
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
            Self::Count => Reply::Integer(i64::try_from(table::all().len()).unwrap_or(i64::MAX)),
            Self::List(filter) => {
                let every = |spec: &'static CommandSpec| [spec].into_iter().chain(spec.subcommands);
                let shown =
                    table::all().iter().flat_map(every).filter(|spec| is_shown(spec, filter));
                Reply::Array(shown.map(|spec| Reply::bulk(spec.name)).collect())
            }
            Self::Info(names) if names.is_empty() => Self::All.answer(),
            Self::Info(names) => {
                let one = |name| table::by_name(name).map_or(Reply::NullArray, row);
                Reply::Array(names.iter().map(one).collect())
            }
            Self::Docs(names) => Reply::Map(docs(names)),
            Self::GetKeys(spec, arguments) => {
                Reply::Array(spec.keys_of(arguments).map(Reply::bulk).collect())
            }
        }
    }
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

fn statuses(names: &[&'static str]) -> Reply {
    Reply::Set(names.iter().map(|&name| Reply::Status(name.into())).collect())
}

fn number(value: impl TryInto<i64>) -> Reply {
    Reply::Integer(value.try_into().unwrap_or(i64::MAX))
}

/// Ten elements: name, arity, flags, first, last and step of the keys, categories, tips, key
/// specifications, subcommands.
fn row(spec: &'static CommandSpec) -> Reply {
    let keys = spec.keys.unwrap_or(KeyRange { first: 0, last: 0, step: 0 });
    Reply::Array(vec![
        Reply::bulk(spec.name),
        Reply::Integer(spec.arity.into()),
        statuses(spec.flags),
        number(keys.first),
        number(keys.last),
        number(keys.step),
        statuses(spec.categories),
        Reply::Array(Vec::new()),
        Reply::Array(spec.keys.map(|keys| key_specification(spec, keys)).into_iter().collect()),
        Reply::Array(spec.subcommands.iter().map(row).collect()),
    ])
}

fn pair(key: &'static str, value: Reply) -> (Reply, Reply) {
    (Reply::bulk(key), value)
}

fn key_specification(spec: &CommandSpec, keys: KeyRange) -> Reply {
    let flags: &[&str] = if spec.is_write() { &["RW", "UPDATE"] } else { &["RO", "ACCESS"] };
    let last = if keys.last > 0 { 0 } else { keys.last };
    let search = vec![pair("index", number(keys.first))];
    let range = vec![
        pair("lastkey", number(last)),
        pair("keystep", number(keys.step)),
        pair("limit", Reply::Integer(0)),
    ];
    let found = |kind, spec| {
        Reply::Map(vec![pair("type", Reply::bulk(kind)), pair("spec", Reply::Map(spec))])
    };
    Reply::Map(vec![
        pair("flags", statuses(flags)),
        pair("begin_search", found("index", search)),
        pair("find_keys", found("range", range)),
    ])
}

fn docs(names: Arguments<'_>) -> Vec<(Reply, Reply)> {
    let one = |spec: &'static CommandSpec| (Reply::bulk(spec.name), described(spec));
    match names.is_empty() {
        true => table::all().iter().map(one).collect(),
        false => names.iter().filter_map(table::by_name).map(one).collect(),
    }
}

fn described(spec: &'static CommandSpec) -> Reply {
    let docs = spec.docs;
    let mut pairs = vec![
        pair("summary", Reply::bulk(docs.summary)),
        pair("since", Reply::bulk(docs.since)),
        pair("group", Reply::bulk(docs.group)),
        pair("complexity", Reply::bulk(docs.complexity)),
    ];
    if docs.group == "module" {
        pairs.push(pair("module", Reply::bulk(MODULE)));
    }
    if !spec.subcommands.is_empty() {
        let subcommands = spec.subcommands.iter();
        let subcommands = subcommands.map(|spec| (Reply::bulk(spec.name), described(spec)));
        pairs.push(pair("subcommands", Reply::Map(subcommands.collect())));
    }
    Reply::Map(pairs)
}
