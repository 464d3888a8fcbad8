//! `umbel filter`: named filters of a cluster.

mod bulk;
mod count;
mod items;
mod transfer;

use crate::commands::cluster::connect::{ClusterArgs, block_on};
use crate::commands::cluster::show::{Rows, facts, print};
use crate::dedup::parse_bytes;
use crate::exit::{Exit, UsageError};
use crate::say::say_line;
use anyhow::Result;
use bulk::{Each, Tally, Verb};
use clap::{Args, Subcommand, ValueEnum};
use count::parse_count;
use items::ItemArgs;
use serde_json::{Value, json};
use std::path::PathBuf;
use umbel_client::proto::SliceInfo;
use umbel_client::{Client, FilterSummary, Hashing, InfoResponse, Kind, NewFilter, ReadLevel};

/// Probability of a false "present" if nobody says.
const DEFAULT_RATE: f64 = 0.01;

/// Arguments of `umbel filter`.
#[derive(Args)]
#[command(
    after_help = "Exit codes: 0 done, 1 failed, 2 wrong usage. `contains` differs: 2 if it failed, and with \
    one ITEM 0 if it is present, 1 if absent."
)]
pub(crate) struct FilterArgs {
    #[command(flatten)]
    cluster: ClusterArgs,
    #[command(subcommand)]
    verb: FilterVerb,
}

#[derive(Subcommand)]
enum FilterVerb {
    /// Create a filter
    Create(CreateArgs),
    /// Insert items and say how many were new; of equal items exactly one is, not always the first
    Insert(ChangeArgs),
    /// Ask whether items were inserted
    Contains(ContainsArgs),
    /// Take items out of a counting filter: only ones that were inserted, or others go missing
    Remove(ChangeArgs),
    /// Describe a filter: shape, load, error rate
    Info {
        /// Its name
        name: String,
    },
    /// List filters by name
    List {
        /// Only names that begin with this
        #[arg(default_value = "")]
        prefix: String,
    },
    /// Copy a filter into a file
    Export {
        /// Its name
        name: String,
        /// The file
        #[arg(long, value_name = "FILE")]
        out: PathBuf,
        /// Replace the file if it exists
        #[arg(long)]
        overwrite: bool,
    },
    /// Make a filter from an exported file; it appears once all of it is verified
    Import {
        /// Its name, which must be free
        name: String,
        /// The file
        #[arg(long, value_name = "FILE")]
        file: PathBuf,
    },
    /// OR filters into another one; all must have been created with --like
    Merge {
        /// The filter that takes
        target: String,
        /// The filters that give; they stay as they are
        #[arg(required = true, value_name = "SOURCE")]
        sources: Vec<String>,
    },
    /// Empty a filter
    Clear {
        /// Its name
        name: String,
    },
    /// Drop a filter
    Drop {
        /// Its name
        name: String,
    },
}

#[derive(Args)]
struct CreateArgs {
    /// Its name: 1 to 1,024 bytes of UTF-8 without control characters
    name: String,
    /// Different items planned for, like 1000000, 1e6, 10M, 1G (powers of 1,000)
    #[arg(long, value_name = "COUNT", value_parser = parse_count, required_unless_present = "like")]
    capacity: Option<u64>,
    /// Chance that an absent item is called present at that number [default: 0.01]
    #[arg(long, value_name = "RATE", value_parser = parse_rate)]
    rate: Option<f64>,
    /// Size of one copy in place of a rate, like 64M or 2G (powers of 1,024)
    #[arg(long, value_name = "SIZE", value_parser = parse_memory, conflicts_with = "rate")]
    memory: Option<u64>,
    /// What kind of filter
    #[arg(long, value_enum, default_value_t = KindArg::Blocked)]
    kind: KindArg,
    /// Hash with a public seed, faster: only for items that no adversary chooses
    #[arg(long)]
    public_hash: bool,
    /// Take shape and key of this filter, so that the two can be merged
    #[arg(long, value_name = "NAME", conflicts_with_all = ["capacity", "rate", "memory", "kind", "public_hash"])]
    like: Option<String>,
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum KindArg {
    /// One cache line an item
    Blocked,
    /// The least memory that can be changed in place
    Classic,
    /// One part of the block a probe
    Partitioned,
    /// The smallest, mostly for reading
    SingleShot,
    /// Items can be removed
    Counting,
    /// Grows with the items
    Scalable,
}

#[derive(Args)]
struct ChangeArgs {
    /// The filter
    name: String,
    #[command(flatten)]
    items: ItemArgs,
    /// Print the answer of each item, a tab and the item
    #[arg(long)]
    each: bool,
}

#[derive(Args)]
struct ContainsArgs {
    /// The filter
    name: String,
    #[command(flatten)]
    items: ItemArgs,
    /// Print the answer of each item, a tab and the item (the default)
    #[arg(long, conflicts_with = "count")]
    each: bool,
    /// Print only how many are present and absent
    #[arg(long)]
    count: bool,
    /// Which replica may answer
    #[arg(long, value_enum, default_value_t = LevelArg::Linearizable)]
    level: LevelArg,
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum LevelArg {
    /// The shard's leader, which sees all acknowledged inserts
    Linearizable,
    /// Any replica may say "present"; only an "absent" asks the leader
    AnyReplica,
}

/// Runs the command.
///
/// # Errors
///
/// As the call of the cluster; `contains` reports its failures itself, because its exit codes differ.
pub(crate) fn run(args: &FilterArgs) -> Result<Exit> {
    match (&args.verb, block_on(args.run())) {
        (FilterVerb::Contains(_), Err(error)) => {
            say_line(format_args!("{error:#}"));
            Ok(Exit::Usage)
        }
        (_, outcome) => outcome,
    }
}

impl FilterArgs {
    async fn run(&self) -> Result<Exit> {
        let json = self.cluster.json;
        if let FilterVerb::Import { name, file } = &self.verb {
            // A damaged file is found before anybody is asked.
            return transfer::import(&self.cluster, name, file).await;
        }
        let client = self.cluster.client()?;
        match &self.verb {
            FilterVerb::Create(args) => {
                let summary = client.create(&args.name, &args.settings()).await?;
                print_summary(json, &summary)?;
            }
            FilterVerb::Insert(args) => return args.run(&client, Verb::Insert, json).await,
            FilterVerb::Remove(args) => return args.run(&client, Verb::Remove, json).await,
            FilterVerb::Contains(args) => return args.run(&client, json).await,
            FilterVerb::Info { name } => {
                let info = client.info(name).await?;
                print(json, &info_json(&info), || info_text(&info))?;
            }
            FilterVerb::List { prefix } => list(&client, prefix, json).await?,
            FilterVerb::Export { name, out, overwrite } => {
                transfer::export(&client, name, out, *overwrite, json).await?;
            }
            FilterVerb::Import { .. } => unreachable!("it was done above"),
            FilterVerb::Merge { target, sources } => {
                let count = client
                    .merge(target, &sources.iter().map(String::as_str).collect::<Vec<_>>())
                    .await?;
                print(json, &json!({ "new_positions": count }), || {
                    facts(&[("new positions", count.to_string())])
                })?;
            }
            FilterVerb::Clear { name } => {
                let generation = client.clear(name).await?;
                print(json, &json!({ "generation": generation }), || {
                    facts(&[("generation", generation.to_string())])
                })?;
            }
            FilterVerb::Drop { name } => {
                client.drop_filter(name).await?;
                print(json, &json!({ "dropped": name }), String::new)?;
            }
        }
        Ok(Exit::Done)
    }
}

impl CreateArgs {
    fn settings(&self) -> NewFilter {
        if let Some(like) = &self.like {
            return NewFilter::like(like);
        }
        let capacity = self.capacity.unwrap_or(0);
        let sized = match self.memory {
            Some(memory_bytes) => NewFilter::for_memory(capacity, memory_bytes),
            None => NewFilter::for_rate(capacity, self.rate.unwrap_or(DEFAULT_RATE)),
        };
        let kind = match self.kind {
            KindArg::Blocked => Kind::Blocked,
            KindArg::Classic => Kind::Classic,
            KindArg::Partitioned => Kind::Partitioned,
            KindArg::SingleShot => Kind::SingleShot,
            KindArg::Counting => Kind::Counting,
            KindArg::Scalable => Kind::Scalable,
        };
        let hashing = if self.public_hash { Hashing::Public } else { Hashing::Keyed };
        NewFilter { kind, hashing, ..sized }
    }
}

impl ChangeArgs {
    async fn run(&self, client: &Client, verb: Verb, json: bool) -> Result<Exit> {
        let each = each(self.each, json);
        let tally = bulk::run(&client.filter(&self.name), verb, &self.items, each).await?;
        if each == Each::Silent {
            print_tally(verb, tally, json)?;
        }
        Ok(Exit::Done)
    }
}

impl ContainsArgs {
    async fn run(&self, client: &Client, json: bool) -> Result<Exit> {
        let level = match self.level {
            LevelArg::Linearizable => ReadLevel::Linearizable,
            LevelArg::AnyReplica => ReadLevel::AnyReplica,
        };
        let (verb, each) = (Verb::Contains(level), each(!self.count, json));
        let tally = bulk::run(&client.filter(&self.name), verb, &self.items, each).await?;
        if each == Each::Silent {
            print_tally(verb, tally, json)?;
        }
        // As grep: 1 is no failure here.
        Ok(if self.items.is_single() && tally.ones == 0 { Exit::Failed } else { Exit::Done })
    }
}

fn each(is_wanted: bool, json: bool) -> Each {
    match (is_wanted, json) {
        (false, _) => Each::Silent,
        (true, false) => Each::Lines,
        (true, true) => Each::Json,
    }
}

fn print_tally(verb: Verb, tally: Tally, json: bool) -> Result<()> {
    let [one, zero] = verb.words();
    print(json, &json!({ one: tally.ones, zero: tally.zeros }), || {
        facts(&[(one, tally.ones.to_string()), (zero, tally.zeros.to_string())])
    })
}

async fn list(client: &Client, prefix: &str, json: bool) -> Result<()> {
    let filters = client.list(prefix).await?;
    let value = Value::Array(filters.iter().map(summary_json).collect());
    print(json, &json!({ "filters": value }), || {
        let heading = &["name", "kind", "capacity", "rate", "bytes", "hashing", "state"];
        let mut rows = Rows::new(heading, &[2, 3, 4]);
        for filter in &filters {
            rows.push(vec![
                filter.name.clone(),
                kind_name(filter).to_owned(),
                filter.capacity.to_string(),
                rate_text(filter.false_positive_rate),
                filter.memory_bytes.to_string(),
                hashing_name(filter).to_owned(),
                filter.state.clone(),
            ]);
        }
        rows.text()
    })
}

/// Prints what the catalogue says of a filter.
///
/// # Errors
///
/// If standard output cannot be written.
fn print_summary(json: bool, filter: &FilterSummary) -> Result<()> {
    print(json, &summary_json(filter), || facts(&summary_facts(filter)))
}

fn summary_facts(filter: &FilterSummary) -> Vec<(&'static str, String)> {
    vec![
        ("name", filter.name.clone()),
        ("kind", kind_name(filter).to_owned()),
        ("capacity", filter.capacity.to_string()),
        ("rate", rate_text(filter.false_positive_rate)),
        ("bytes", filter.memory_bytes.to_string()),
        ("hashing", hashing_name(filter).to_owned()),
        ("generation", filter.generation.to_string()),
        ("state", filter.state.clone()),
    ]
}

fn summary_json(filter: &FilterSummary) -> Value {
    json!({
        "name": filter.name,
        "filter_id": filter.filter_id,
        "kind": kind_name(filter),
        "capacity": filter.capacity,
        "false_positive_rate": filter.false_positive_rate,
        "memory_bytes": filter.memory_bytes,
        "hashing": hashing_name(filter),
        // Too long for the numbers of many readers of JSON.
        "key_id": format!("{:#018x}", filter.key_id),
        "generation": filter.generation,
        "state": filter.state,
    })
}

fn info_text(info: &InfoResponse) -> String {
    let mut lines = info.filter.as_ref().map(summary_facts).unwrap_or_default();
    lines.extend([
        ("items, estimated", info.item_count.map_or("full".to_owned(), |n| format!("{n:.0}"))),
        ("answered new", info.new_count.to_string()),
        ("rate now", rate_text(info.false_positive_rate_now)),
        ("ones", info.one_count.to_string()),
        ("positions", info.position_count.to_string()),
        ("bytes now", info.memory_bytes.to_string()),
        ("shards", info.slices.len().to_string()),
    ]);
    facts(&lines)
}

fn info_json(info: &InfoResponse) -> Value {
    let slice = |slice: &SliceInfo| {
        json!({
            "shard": slice.shard,
            "leader": slice.leader,
            "positions": slice.position_count,
            "ones": slice.one_count,
            "new": slice.new_count,
            "memory_bytes": slice.memory_bytes,
        })
    };
    json!({
        "filter": info.filter.as_ref().map(summary_json),
        "positions": info.position_count,
        "ones": info.one_count,
        "items_estimated": info.item_count,
        "false_positive_rate_now": info.false_positive_rate_now,
        "new": info.new_count,
        "memory_bytes": info.memory_bytes,
        "slices": info.slices.iter().map(slice).collect::<Vec<_>>(),
    })
}

fn kind_name(filter: &FilterSummary) -> &'static str {
    match filter.kind() {
        Kind::Unspecified => "unknown",
        Kind::Blocked => "blocked",
        Kind::Classic => "classic",
        Kind::SingleShot => "single-shot",
        Kind::Counting => "counting",
        Kind::Scalable => "scalable",
        Kind::Partitioned => "partitioned",
    }
}

fn hashing_name(filter: &FilterSummary) -> &'static str {
    match filter.hashing() {
        Hashing::Unspecified => "unknown",
        Hashing::Keyed => "keyed",
        Hashing::Public => "public",
    }
}

/// Three digits say enough of a rate.
fn rate_text(rate: f64) -> String {
    if rate == 0.0 || rate >= 1e-4 { format!("{rate:.6}") } else { format!("{rate:.3e}") }
}

fn parse_rate(text: &str) -> Result<f64, String> {
    let rate = text.parse::<f64>().ok().filter(|rate| *rate > 0.0 && *rate < 1.0);
    rate.ok_or_else(|| format!("`{text}` is not a rate above 0 and below 1, like 0.01"))
}

fn parse_memory(text: &str) -> Result<u64, UsageError> {
    match parse_bytes(text) {
        Ok(0) => Err(UsageError("0 bytes hold nothing: write 64M or 2G".into())),
        Ok(bytes) => Ok(bytes),
        Err(error) => Err(UsageError(error.to_string())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        args: FilterArgs,
    }

    fn settings(line: &str) -> Result<NewFilter, clap::Error> {
        let line = Line::try_parse_from(["filter", "create"].into_iter().chain(line.split(' ')))?;
        match line.args.verb {
            FilterVerb::Create(args) => Ok(args.settings()),
            _ => panic!("another verb"),
        }
    }

    #[test]
    fn a_filter_has_a_capacity_and_a_rate_or_a_size() {
        let plain = settings("seen --capacity 1e9").unwrap();
        assert_eq!((plain.capacity, plain.false_positive_rate), (1_000_000_000, 0.01));
        assert_eq!((plain.kind, plain.hashing), (Kind::Blocked, Hashing::Keyed));
        let sized = settings("seen --capacity 10M --memory 64M --kind classic").unwrap();
        assert_eq!((sized.memory_bytes, sized.false_positive_rate), (64 << 20, 0.0));
        assert_eq!(sized.kind, Kind::Classic);
        let public = settings("seen --capacity 1 --rate 1e-6 --public-hash").unwrap();
        assert_eq!((public.hashing, public.false_positive_rate), (Hashing::Public, 1e-6));
        assert_eq!(settings("b --like a").unwrap(), NewFilter::like("a"));
        for line in [
            "seen",
            "seen --capacity many",
            "seen --capacity 1 --rate 0",
            "seen --capacity 1 --rate 1",
            "seen --capacity 1 --rate NaN",
            "seen --capacity 1 --rate 0.1 --memory 1M",
            "seen --capacity 1 --memory 0",
            "seen --capacity 1 --kind cuckoo",
            "seen --like a --capacity 1",
            "seen --like a --kind blocked",
        ] {
            assert!(settings(line).is_err(), "{line}");
        }
    }

    #[test]
    fn rates_are_shown_with_the_digits_that_matter() {
        assert_eq!([0.0, 0.01, 1e-6].map(rate_text), ["0.000000", "0.010000", "1.000e-6"]);
    }
}
