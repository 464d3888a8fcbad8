//! `umbel plan`: compares the costs of a partitioned and a replicated filter before it is created,
//! without a cluster.

use crate::amounts::parse_count;
use crate::commands::filter::create::{parse_memory, parse_rate};
use crate::exit::{Exit, UsageError};
use crate::printer::{Rows, facts, print};
use crate::units::{count, size};
use anyhow::Result;
use clap::Args;
use serde_json::{Value, json};
use umbel_engine::limits::{NODE_COUNT_MAX, REPLICATED_BYTES_MAX};
use umbel_engine::meta::Distribution;
use umbel_node::Config;
use umbel_replicated_engine::distribution::{
    DistributionAdvice, DistributionCost, DistributionError, DistributionInput, DistributionPlan,
};

/// Arguments of `umbel plan`.
#[derive(Args)]
#[command(after_help = "Examples:\n  \
      umbel plan --items 10M --rate 0.01 --nodes 3 --queries 1G\n  \
      umbel plan --items 10G --rate 0.001 --nodes 12 --queries 1T --memory-per-node 8G\n  \
      umbel plan --items 1M --rate 1e-6 --nodes 5 --queries 0 --json\n\n\
    docs/plan.md: what every line means and how it is calculated.\n\
    Exit codes: 0 done, 1 failed, 2 wrong usage.")]
pub(crate) struct PlanArgs {
    /// Different items that are inserted, like 1000000, 1e6, 10M, 1G (powers of 1,000)
    #[arg(long, value_name = "COUNT", value_parser = parse_count)]
    items: u64,
    /// Chance that an absent item is reported present when all are inserted
    #[arg(long, value_name = "RATE", value_parser = parse_rate)]
    rate: f64,
    /// Nodes of the cluster
    #[arg(long, value_name = "NODES")]
    nodes: usize,
    /// Queries in total, including inserts of items that are present already
    #[arg(long, value_name = "COUNT", value_parser = parse_count)]
    queries: u64,
    /// Bytes of an item, as clients send it
    #[arg(long, value_name = "BYTES", value_parser = parse_count, default_value = "32")]
    item_bytes: u64,
    /// Replicas of every shard
    #[arg(long, value_name = "REPLICAS", default_value_t = 3)]
    replicas: u32,
    /// New items on each node between two sweeps: its inserts a second by the seconds between them
    #[arg(long, value_name = "COUNT", value_parser = parse_count, default_value = "10000")]
    sweep_items: u64,
    /// Memory that a node has for the filter, like 64M or 2G (powers of 1,024)
    #[arg(long, value_name = "SIZE", value_parser = parse_memory)]
    memory_per_node: Option<u64>,
    /// Print a JSON object
    #[arg(long)]
    json: bool,
}

/// Runs the command.
///
/// # Errors
///
/// A [`UsageError`] if a number is out of its range; if standard output cannot be written.
pub(crate) fn run(args: &PlanArgs) -> Result<Exit> {
    let planned = args.plan()?;
    print(args.json, &planned.json(), || planned.text())?;
    Ok(Exit::Done)
}

impl PlanArgs {
    fn plan(&self) -> Result<Planned<'_>, UsageError> {
        if self.item_bytes == 0 {
            return Err(UsageError("an item of 0 bytes, expected at least 1".to_owned()));
        }
        let input = DistributionInput {
            replica_count: self.replicas,
            sweep_item_count: self.sweep_items,
            node_memory_bytes: self.memory_per_node,
            ..DistributionInput::new(self.items, self.rate, self.nodes, self.queries)
        };
        let usage =
            |error: DistributionError| UsageError(format!("{:#}", anyhow::Error::from(error)));
        let plan = DistributionPlan::new(&input).map_err(usage)?;
        Ok(Planned { args: self, plan, config: Config::default() })
    }
}

/// A plan and the arguments that it answers.
struct Planned<'a> {
    args: &'a PlanArgs,
    plan: DistributionPlan,
    /// The default configuration of a node.
    config: Config,
}

impl Planned<'_> {
    fn text(&self) -> String {
        let DistributionPlan { shape, partitioned, replicated, .. } = &self.plan;
        let mut rows = Rows::new(&["", "partitioned", "replicated"], &[]);
        let mut row = |name: &str, [partitioned, replicated]: [String; 2]| {
            rows.push(vec![name.to_owned(), partitioned, replicated]);
        };
        let both = |of: fn(&DistributionCost) -> String| [of(partitioned), of(replicated)];
        let log = size(self.config.delta_log_bytes_max as f64);
        let [share, copy] = both(|cost| size(cost.node_memory_bytes as f64));
        row("memory a node", [share, format!("{copy} and a log of up to {log}")]);
        let item = format!("{} bytes", self.args.item_bytes);
        row("client to node, an item", [item.clone(), item]);
        row("between nodes, an insert", both(|cost| each(cost.insert_bytes)));
        row("between nodes, a query", both(|cost| each(cost.query_bytes)));
        row("between nodes, in all", both(|cost| size(cost.total_bytes)));
        row("insert waits for", both(|cost| round_trips(cost.insert_round_trips)));
        row("query waits for", both(|cost| round_trips(cost.query_round_trips)));
        row("all nodes know after", ["the insert".to_owned(), self.all_know_after()]);
        let promises = [
            ("one `new` for an item", "yes", "no: two nodes may both say it"),
            ("absent means", "not inserted", "not yet heard of on this node"),
            ("network is cut", "the majority goes on", "every node goes on"),
        ];
        for (name, partitioned, replicated) in promises {
            row(name, [partitioned.to_owned(), replicated.to_owned()]);
        }
        let bits = shape.position_count() as f64 / self.args.items as f64;
        let bytes = size(shape.memory_bytes() as f64);
        let probes = shape.probe_count();
        let shards = match self.plan.shard_count_min {
            1 => String::new(),
            count => format!(", at least {count} shards"),
        };
        let filter = format!("{bytes}, {bits:.2} bits an item, {probes} probes{shards}");
        let way = self.plan.advice.distribution();
        let lines = [
            ("filter", filter),
            ("break-even", self.break_even()),
            ("recommended", format!("{way}: {}", self.reason())),
        ];
        rows.text() + &facts(&lines)
    }

    /// When all nodes know a replicated insert.
    fn all_know_after(&self) -> String {
        match self.plan.sweep_step_count {
            0 => "the insert".to_owned(),
            steps => {
                let interval_ms = self.config.sweep_interval_ms;
                format!("{steps} round trips, begun within {interval_ms} ms")
            }
        }
    }

    fn break_even(&self) -> String {
        match self.plan.break_even_query_count {
            None => "none: nothing travels on one node".to_owned(),
            Some(queries) if queries > 0.0 => {
                let each = queries / self.args.items as f64;
                format!("{} queries, {each:.2} an item inserted", count(queries))
            }
            Some(_) => "0 queries: replicated inserts move no more bytes".to_owned(),
        }
    }

    /// Why that distribution is recommended.
    fn reason(&self) -> String {
        let DistributionPlan { partitioned, replicated, .. } = &self.plan;
        let [apart, whole] = [partitioned, replicated].map(|cost| size(cost.total_bytes));
        let memory = size(self.args.memory_per_node.unwrap_or(u64::MAX) as f64);
        let why = match self.plan.advice {
            DistributionAdvice::OneNode => "nothing travels on one node".to_owned(),
            DistributionAdvice::PartitionedMovesLess => {
                format!("{apart} between nodes, replicated {whole}")
            }
            DistributionAdvice::ReplicatedMovesLess => {
                format!("{whole} between nodes, partitioned {apart}")
            }
            DistributionAdvice::CopyAboveLimit { copy_bytes } => format!(
                "a copy of {}, and replicated filters have at most {}",
                size(copy_bytes as f64),
                size(REPLICATED_BYTES_MAX as f64)
            ),
            DistributionAdvice::CopyAboveMemory { copy_bytes } => {
                format!("a copy of {}, and a node has {memory}", size(copy_bytes as f64))
            }
            DistributionAdvice::MoreNodes { node_count_min } => {
                let share = size(partitioned.node_memory_bytes as f64);
                let is_cluster = node_count_min <= NODE_COUNT_MAX as u64;
                let most = format!(", and a cluster has at most {NODE_COUNT_MAX}");
                let most = if is_cluster { String::new() } else { most };
                format!(
                    "on {node_count_min} nodes{most}: a share of {share} here, and a node has {memory}"
                )
            }
        };
        let shards = self.plan.shard_count_min;
        // Of nodes with one core, which is the fewest.
        let first_shards = u64::from(self.config.shards_at_first(self.args.nodes));
        let is_apart = self.plan.advice.distribution() == Distribution::Partitioned;
        let is_possible = match self.plan.advice {
            DistributionAdvice::MoreNodes { node_count_min } => {
                node_count_min <= NODE_COUNT_MAX as u64
            }
            _ => true,
        };
        let formed = if is_apart && is_possible && shards > first_shards {
            // Clusters begin with a power of two, and only once all shards have been split as often is none wider
            // than the others.
            let split_shards = shards.next_power_of_two();
            format!(
                ", in a cluster of at least {shards} shards: form it with --shards {shards} or more, or run `umbel \
                 cluster split --to {split_shards}`"
            )
        } else {
            String::new()
        };
        format!(
            "{why}{formed}; exactly one `new` for an item needs partitioned, whatever the bytes"
        )
    }

    fn json(&self) -> Value {
        let Self { args, plan, config } = self;
        let nodes_min = match plan.advice {
            DistributionAdvice::MoreNodes { node_count_min } => Some(node_count_min),
            _ => None,
        };
        let mut replicated = cost_json(&plan.replicated);
        replicated["delta_log_bytes_max"] = config.delta_log_bytes_max.into();
        replicated["sweep_items"] = plan.sweep_item_count.into();
        replicated["sweep_steps"] = plan.sweep_step_count.into();
        replicated["sweep_messages"] = plan.sweep_message_count.into();
        replicated["sweep_interval_ms"] = config.sweep_interval_ms.into();
        let mut partitioned = cost_json(&plan.partitioned);
        partitioned["replicas"] = plan.replica_count.into();
        partitioned["shards_min"] = plan.shard_count_min.into();
        json!({
            "items": args.items,
            "rate": args.rate,
            "nodes": args.nodes,
            "queries": args.queries,
            "client_item_bytes": args.item_bytes,
            "filter_bytes": plan.shape.memory_bytes(),
            "filter_probes": plan.shape.probe_count(),
            "partitioned": partitioned,
            "replicated": replicated,
            "break_even_queries": plan.break_even_query_count,
            "recommended": plan.advice.distribution().to_string(),
            "reason": self.reason(),
            "nodes_min": nodes_min,
        })
    }
}

fn cost_json(cost: &DistributionCost) -> Value {
    json!({
        "node_memory_bytes": cost.node_memory_bytes,
        "insert_bytes": cost.insert_bytes,
        "query_bytes": cost.query_bytes,
        "total_bytes": cost.total_bytes,
        "insert_round_trips": cost.insert_round_trips,
        "query_round_trips": cost.query_round_trips,
    })
}

/// Bytes per operation.
fn each(bytes: f64) -> String {
    if bytes > 0.0 { format!("{bytes:.1} bytes") } else { "nothing".to_owned() }
}

fn round_trips(trips: f64) -> String {
    if trips > 0.0 { format!("{trips:.2} round trips") } else { "nobody".to_owned() }
}
