//! `umbel filter`: the named filters of a cluster.

mod bulk;
mod changes;
mod contains_any;
pub(crate) mod create;
mod earlier;
mod items;
mod levels;
mod outlook;
mod overlap;
mod redis;
mod replicated;
mod show;
mod transfer;
mod window;

use crate::commands::cluster::connect::{ClusterArgs, block_on};
use crate::exit::{Exit, refuse, text_of};
use crate::printer::{facts, print};
use crate::stderr::eprint_line;
use anyhow::{Error, Result, anyhow};
use bulk::{Counts, Each, Verb};
use clap::{Args, Subcommand};
use contains_any::ContainsAnyArgs;
use create::CreateArgs;
use items::{Input, ItemArgs};
use levels::{AckArg, LevelArg};
use serde_json::{Map, json};
use std::time::SystemTime;
use umbel_client::{AckLevel, Client, ClientError, ReadLevel};

/// Arguments of `umbel filter`.
#[derive(Args)]
#[command(after_help = "Examples:\n  \
      umbel filter create seen --capacity 10M --rate 0.001\n  \
      zcat urls.gz | umbel filter insert seen --each\n  \
      umbel filter contains seen alice && echo \"seen before\"\n\n\
    docs/cluster.md has every detail, docs/filters.md which kind when.\n\
    Exit codes: 0 done, 1 failed, 2 wrong usage, 130 interrupted. `contains` and `contains-any` are like grep: 2 if they \
    failed, and with one ITEM 0 if it is present, 1 if absent.")]
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
    /// Insert items and report how many were new; of equal items exactly one is, not always the first
    Insert(InsertArgs),
    /// Ask whether items were inserted
    Contains(ContainsArgs),
    /// Find for each item the first of several filters that has it
    ContainsAny(ContainsAnyArgs),
    /// Remove items from a counting, cuckoo or quotient filter: only inserted ones, or others are lost
    Remove(ItemsArgs),
    /// Describe a filter: shape, load, error rate; of a replicated one also each node's copy
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
    /// Copy a filter to a file, or one of kind redisbloom to a RedisBloom server
    Export(transfer::ExportArgs),
    /// Create a filter from an exported file, or from a RedisBloom key; it appears once all of it is verified
    Import(transfer::ImportArgs),
    /// OR filters into another one, or add their counts if they are counting or quotient filters; all must
    /// have been created with --like; flush replicated ones first
    Merge {
        /// The filter to merge into
        target: String,
        /// The filters to merge; they are not changed
        #[arg(required = true, value_name = "SOURCE")]
        sources: Vec<String>,
    },
    /// OR the intersection of SOURCES into another filter; all must have been created with --like; flush
    /// replicated ones first
    Intersect {
        /// The filter that receives the intersection; it keeps what it has
        target: String,
        /// The filters to intersect, at least two; they are not changed
        #[arg(required = true, num_args = 2.., value_name = "SOURCE")]
        sources: Vec<String>,
    },
    /// Estimate how many items two filters have in common; the second was made --like the first
    #[command(visible_alias = "estimate")]
    Overlap {
        /// One filter
        first: String,
        /// The other filter
        second: String,
    },
    /// Exchange changes between all copies of a replicated filter now; fails if a node is missing
    Flush {
        /// Its name
        name: String,
    },
    /// Drop a filter automatically after a time, or never
    Expire {
        /// Its name
        name: String,
        /// Time from now, like 90s, 10m, 24h or 7d; or never
        #[arg(value_name = "TIME|never", value_parser = window::parse_expiry)]
        after: window::ExpiryArg,
    },
    /// Empty a filter
    Clear {
        /// Its name
        name: String,
    },
    /// End the current slice of a filter that was created with --window manual
    Rotate {
        /// Its name
        name: String,
    },
    /// Rename a filter; once that is done, its former name is refused
    Rename {
        /// Its name
        name: String,
        /// Its new name
        new_name: String,
        /// Replace and drop the filter that has this name; callers are answered by the old one, then by the
        /// new one
        #[arg(long)]
        replace: bool,
    },
    /// Drop a filter
    Drop {
        /// Its name
        name: String,
    },
}

#[derive(Args)]
struct ItemsArgs {
    /// The filter
    name: String,
    #[command(flatten)]
    items: ItemArgs,
    /// Print each item's result, a tab and the item
    #[arg(long)]
    each: bool,
}

#[derive(Args)]
struct InsertArgs {
    #[command(flatten)]
    items: ItemsArgs,
    #[command(flatten)]
    source: redis::SourceArgs,
    /// Where items are durable when they are acknowledged: on the node that answers (local), also on one
    /// more (partner; both for replicated filters), or on a majority [default: majority if partitioned,
    /// local if replicated]
    #[arg(long, value_enum, value_name = "LEVEL", hide_possible_values = true)]
    ack: Option<AckArg>,
    /// The items' time, for a window with --event-time: milliseconds since 1970, like $(date +%s%3N)
    #[arg(long, value_name = "MS", value_parser = window::parse_ms, conflicts_with = "ack")]
    at: Option<SystemTime>,
}

#[derive(Args)]
struct ContainsArgs {
    /// The filter
    name: String,
    #[command(flatten)]
    items: ItemArgs,
    /// Print each item's result, a tab and the item (the default)
    #[arg(long, conflicts_with = "count")]
    each: bool,
    /// Print only how many are present and absent
    #[arg(long)]
    count: bool,
    /// Consistency of results: linearizable or any-replica for partitioned filters, local or majority for
    /// replicated ones [default: linearizable if partitioned, local if replicated]
    #[arg(long, value_enum, value_name = "LEVEL", hide_possible_values = true)]
    level: Option<LevelArg>,
}

/// Runs the command.
///
/// # Errors
///
/// If arguments are wrong, input cannot be read, or a call to the cluster fails. Errors of `contains` and
/// `contains-any` are printed here, because these exit with 2 then: 1 says that items are absent.
pub(crate) fn run(args: &FilterArgs) -> Result<Exit> {
    match (&args.verb, block_on(args.run())) {
        (FilterVerb::Contains(_) | FilterVerb::ContainsAny(_), Err(error)) => {
            eprint_line(text_of(&error));
            Ok(Exit::Unanswered)
        }
        (_, outcome) => outcome,
    }
}

impl FilterArgs {
    async fn run(&self) -> Result<Exit> {
        let json = self.cluster.json;
        let connect = || self.cluster.client();
        match &self.verb {
            FilterVerb::Create(args) => args.run(&connect()?, json).await?,
            FilterVerb::Insert(args) => return args.run(&connect()?, json).await,
            FilterVerb::Remove(args) => {
                return args.run(&connect()?, Verb::Remove, args.items.input()?, json).await;
            }
            FilterVerb::Contains(args) => return args.run(&connect()?, json).await,
            FilterVerb::ContainsAny(args) => return args.run(&connect()?, json).await,
            FilterVerb::Info { name } => {
                let info = connect()?.info(name).await?;
                print(json, &show::info_json(&info), || show::info_text(&info))?;
            }
            FilterVerb::List { prefix } => show::list(&connect()?, prefix, json).await?,
            FilterVerb::Export(args) => transfer::export(&connect()?, args, json).await?,
            // Connects itself: a damaged file is found before the cluster is called.
            FilterVerb::Import(args) => return transfer::import(&self.cluster, args).await,
            FilterVerb::Merge { target, sources } => {
                let merged = connect()?.merge(target, &names(sources)).await;
                print_merged(merged.map_err(maybe_merged)?, json)?;
            }
            FilterVerb::Intersect { target, sources } => {
                print_merged(connect()?.intersect(target, &names(sources)).await?, json)?;
            }
            FilterVerb::Expire { name, after } => {
                let expires_ms = connect()?.expire(name, after.0).await?;
                print(json, &json!({ "expires_ms": expires_ms }), || {
                    facts(&[("expires", window::moment_text(expires_ms))])
                })?;
            }
            FilterVerb::Overlap { first, second } => {
                overlap::run(&connect()?, first, second, json).await?;
            }
            FilterVerb::Flush { name } => return replicated::flush(&connect()?, name, json).await,
            FilterVerb::Clear { name } => changes::clear(&connect()?, name, json).await?,
            FilterVerb::Rotate { name } => changes::rotate(&connect()?, name, json).await?,
            FilterVerb::Rename { name, new_name, replace } => {
                changes::rename(&connect()?, (name, new_name), *replace, json).await?;
            }
            FilterVerb::Drop { name } => changes::drop_filter(&connect()?, name, json).await?,
        }
        Ok(Exit::Done)
    }
}

impl InsertArgs {
    async fn run(&self, client: &Client, json: bool) -> Result<Exit> {
        let level = self.ack.map_or(AckLevel::Unspecified, AckArg::level);
        let items = &self.items.items;
        if self.source.is_named() && items.is_null() && !self.items.each {
            refuse!("--null with --from says how lines of --each end: leave it out, or add --each");
        }
        let input = match self.source.input(items.end())? {
            Some(input) => input,
            None => items.input()?,
        };
        self.items.run(client, Verb::Insert(level, self.at), input, json).await
    }
}

impl ItemsArgs {
    async fn run(&self, client: &Client, verb: Verb, input: Input, json: bool) -> Result<Exit> {
        let each = each(self.each, json);
        let counts = bulk::run(&client.filter(&self.name), verb, input, each).await?;
        if each == Each::Silent {
            print_counts(verb, &counts, json)?;
        }
        Ok(Exit::Done)
    }
}

impl ContainsArgs {
    async fn run(&self, client: &Client, json: bool) -> Result<Exit> {
        let level = self.level.map_or(ReadLevel::Unspecified, LevelArg::level);
        let (verb, each) = (Verb::Contains(level), each(!self.count, json));
        let counts = bulk::run(&client.filter(&self.name), verb, self.items.input()?, each).await?;
        let is_absent = self.items.is_single() && counts.ones == 0;
        if each == Each::Silent {
            print_counts(verb, &counts, json)?;
        }
        // As with grep, code 1 means "absent" and not a failure.
        Ok(if is_absent { Exit::No } else { Exit::Done })
    }
}

fn names(names: &[String]) -> Vec<&str> {
    names.iter().map(String::as_str).collect()
}

/// The error of a merge, with what to do if it may have been done.
fn maybe_merged(error: ClientError) -> Error {
    match error {
        ClientError::ChangeUnknown(failure) => anyhow!(
            "outcome unknown: {failure}; merging again does no harm, except that filters of the kinds counting and quotient \
             add up the counts of what was done once more"
        ),
        error => error.into(),
    }
}

fn print_merged(new_positions: u64, json: bool) -> Result<()> {
    print(json, &json!({ "new_positions": new_positions }), || {
        facts(&[("new positions", new_positions.to_string())])
    })
}

fn each(is_wanted: bool, json: bool) -> Each {
    match (is_wanted, json) {
        (false, _) => Each::Silent,
        (true, false) => Each::Lines,
        (true, true) => Each::Json,
    }
}

fn print_counts(verb: Verb, counts: &Counts, json: bool) -> Result<()> {
    let [one, zero] = verb.words();
    // All answers have the same level, unless the filter was created anew meanwhile.
    let level = counts.levels.iter().copied().collect::<Vec<_>>().join(",");
    let mut value = Map::from_iter([(one.to_owned(), counts.ones.into())]);
    value.insert(zero.to_owned(), counts.zeros.into());
    let mut lines = vec![(one, counts.ones.to_string()), (zero, counts.zeros.to_string())];
    if !level.is_empty() {
        value.insert("level".to_owned(), level.clone().into());
        lines.push(("level", level));
    }
    print(json, &value.into(), || facts(&lines))
}
