//! The catalogue in dialogues: what each entry of the meta group's log changes in nodes, shard map and filters.
//!
//! ```text
//! form 3 nodes, 2 shards, 3 replicas
//! add node4:7070 77                     77 is the nonce that the node drew
//! drain 2
//! plan 0 1,3,4                          the replicas that shard 0 shall have
//! split 3                               to so many shards
//! create crawl 5                        with the key 5; or `create replicated crawl 5`
//! clear 4 1                             filter 4, whose generation 1 ends
//! drop 4
//! report created 4                      what the controller reports when all shards have done it
//! ```
//!
//! Below an entry are its reply, the lines of the state that it removes, and those that it adds.

use std::fmt::Write;

use super::testing::{create, create_replicated, form};
use super::{MetaCommand, MetaReply, MetaState, NodeRecord};
use crate::drawn_test::check;
use crate::ids::{FilterId, Generation, NodeId, ShardId};

fn number(text: &str) -> u64 {
    text.parse().unwrap_or_else(|_| panic!("`{text}`: expected a number"))
}

fn small(text: &str) -> u32 {
    number(text) as u32
}

fn filter_of(text: &str) -> FilterId {
    FilterId(number(text))
}

/// Nodes, from `1,3,4`.
fn nodes(text: &str) -> Vec<NodeId> {
    text.split(',').map(|node| NodeId(number(node))).collect()
}

fn text_of(nodes: &[NodeId]) -> String {
    nodes.iter().map(|node| node.0.to_string()).collect::<Vec<_>>().join(",")
}

fn command(line: &str) -> MetaCommand {
    let words: Vec<&str> = line.split_whitespace().collect();
    match words[..] {
        ["form", node_count, "nodes,", shard_count, "shards,", replica_count, "replicas"] => {
            form(number(node_count), small(shard_count), small(replica_count))
        }
        ["add", address, nonce] => {
            MetaCommand::AddNode { address: address.to_owned(), nonce: number(nonce) }
        }
        ["drain", node] => MetaCommand::Drain { node: NodeId(number(node)), drain: true },
        ["plan", shard, target] => {
            MetaCommand::PlanReplicas { shard: ShardId(small(shard)), target: nodes(target) }
        }
        ["split", shard_count] => MetaCommand::SplitShard { shard_count: small(shard_count) },
        ["create", "replicated", name, key] => create_replicated(name, number(key), false),
        ["create", name, key] => create(name, number(key), false),
        ["clear", filter, generation] => MetaCommand::ClearFilter {
            filter: filter_of(filter),
            generation: Generation(number(generation)),
        },
        ["drop", filter] => MetaCommand::DropFilter { filter: filter_of(filter) },
        ["report", ref report @ ..] => reported(report),
        _ => panic!("`{line}`: unknown command"),
    }
}

/// What the controller proposes once shards have done something.
fn reported(words: &[&str]) -> MetaCommand {
    match *words {
        ["formed", shard] => MetaCommand::ShardFormed { shard: ShardId(small(shard)) },
        ["replicas", shard, replicas] => {
            let (shard, replicas) = (ShardId(small(shard)), nodes(replicas));
            MetaCommand::ReplicasChanged { shard, replicas }
        }
        ["created", filter] => MetaCommand::FilterCreated { filter: filter_of(filter) },
        ["cleared", filter, generation] => MetaCommand::FilterCleared {
            filter: filter_of(filter),
            generation: Generation(number(generation)),
        },
        ["dropped", filter] => MetaCommand::FilterDropped { filter: filter_of(filter) },
        _ => panic!("`{words:?}`: unknown report"),
    }
}

/// The state in lines.
fn lines_of(state: &MetaState) -> Vec<String> {
    let mut lines = vec![state.epoch().to_string()];
    lines.extend(state.nodes().map(|(node, record)| match record {
        NodeRecord::Live { address, is_draining: true, .. } => {
            format!("{node} at {address}, draining")
        }
        NodeRecord::Live { address, .. } => format!("{node} at {address}"),
        NodeRecord::Removed => format!("{node} is removed"),
    }));
    lines.extend(state.shards().map(|(range, record)| {
        let mut line = format!("{} from {:#06x}", record.shard, range.start() >> 48);
        write!(line, " on {}", text_of(&record.replicas)).unwrap();
        if let Some(target) = &record.target {
            write!(line, ", moving to {}", text_of(target)).unwrap();
        }
        line + if record.is_formed { "" } else { ", to be formed" }
    }));
    lines.extend(state.filters().map(|(filter, record)| {
        let (name, distribution) = (record.name.as_str(), record.settings.distribution);
        format!("{filter} {name:?}, {distribution}, {}, {}", record.generation, record.state)
    }));
    lines
}

/// A catalogue and the index of its last entry.
#[derive(Default)]
struct Log {
    state: MetaState,
    index: u64,
}

impl Log {
    fn play(&mut self, line: &str) -> String {
        self.index += 1;
        let before = lines_of(&self.state);
        let reply = match self.state.apply(self.index, &command(line)) {
            MetaReply::Done => "done".to_owned(),
            MetaReply::Node(node) => node.to_string(),
            MetaReply::Filter(filter) => filter.to_string(),
            MetaReply::Refused(error) => format!("refused: {error}"),
            other => panic!("{other:?}"),
        };
        let after = lines_of(&self.state);
        let mut text = format!("entry {}: {reply}\n", self.index);
        for line in before.iter().filter(|line| !after.contains(line)) {
            writeln!(text, "- {line}").unwrap();
        }
        for line in after.iter().filter(|line| !before.contains(line)) {
            writeln!(text, "+ {line}").unwrap();
        }
        text
    }
}

#[test]
fn drawn_catalogues_change_as_drawn() {
    for file in ["filters", "replicas", "splits"] {
        let mut log = Log::default();
        check(&format!("meta/{file}.txt"), |line| log.play(line));
    }
}
