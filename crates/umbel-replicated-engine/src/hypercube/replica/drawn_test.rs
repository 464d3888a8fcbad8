//! Gossip in dialogues: who sends what to whom in each step of a sweep, and what every node has then.
//!
//! ```text
//! nodes 5, log 100        a cube of five nodes, each with room for so many changes in its log
//! insert 1 3.a 7.b        items as position.rest, at node 1
//! exchange 2>1            node 1 asks node 2, and gets what it lacks
//! sweep                   all steps of the cube
//! sweep without 2         the same while node 2 is not reachable
//! show
//! ```
//!
//! The filter is a single-shot one of 16 positions. Node n has rank n − 1. To write what the commands bring
//! about into the files of `testdata`, and then to read it:
//!
//! ```text
//! UMBEL_WRITE_DRAWN=1 cargo test -p umbel-replicated-engine drawn
//! ```

use std::fmt::Write;

use umbel_filter::{AnyFilter, Contains, HashRange, ItemHash, SingleShotShape, StoredSingleShot};

use super::Replica;
use super::fixture::{Sent, answer, options};
use crate::hypercube::delta::DeltaContent;
use crate::hypercube::topology::{Cube, CubeRank};
use umbel_engine::NodeId;

/// The player of the files.
#[path = "../../../../umbel-engine/src/drawn_test.rs"]
mod dialogue;

const POSITION_COUNT: u64 = 16;

/// Bits of a hash below its position.
const REST_BITS: u32 = 60;

fn number(text: &str) -> u64 {
    text.parse().unwrap_or_else(|_| panic!("`{text}`: expected a number"))
}

/// The index of the copy of a node.
fn at(node: &str) -> usize {
    number(node) as usize - 1
}

fn node(at: usize) -> NodeId {
    NodeId(at as u64 + 1)
}

/// The hash of an item, from `3.a`.
fn hash(label: &str) -> ItemHash {
    let (position, rest) = label.split_once('.').expect("position.rest");
    let rest = u64::from(rest.as_bytes()[0]);
    ItemHash::new(number(position) << REST_BITS | rest << 52, rest)
}

fn copy(at: usize, cube: Cube, log_entries: usize) -> Replica {
    let shape = SingleShotShape::new(HashRange::WHOLE, POSITION_COUNT).unwrap();
    let empty = AnyFilter::SingleShot(StoredSingleShot::new(shape));
    let mut copy = Replica::new(options(node(at).0, log_entries), empty).unwrap();
    let partners = cube.partners(CubeRank(at as u32));
    let partners: Vec<NodeId> = partners.iter().map(|rank| node(rank.0 as usize)).collect();
    copy.set_partners(&partners);
    copy
}

/// What a copy has: a sign for every position, and how many changes of each node.
fn line_of(copy: &Replica) -> String {
    let is_set = |at: u64| copy.filter().contains(ItemHash::new(at << REST_BITS, 0));
    let signs = (0..POSITION_COUNT).map(|at| if is_set(at) { '#' } else { '.' });
    let counts = copy.version().iter().map(|(node, count)| format!(" {count} of {node}"));
    let mut line = format!("{} {}", copy.options().node, signs.collect::<String>());
    line.extend(counts);
    let pending = copy.inserted() - copy.version_of(copy.options().node);
    if pending > 0 {
        write!(line, ", {pending} pending").unwrap();
    }
    line
}

/// The copies of all nodes, in the order of their ranks.
#[derive(Default)]
struct Nodes {
    copies: Vec<Replica>,
}

impl Nodes {
    fn play(&mut self, line: &str) -> String {
        let words: Vec<&str> = line.split_whitespace().collect();
        match words[..] {
            ["nodes", count, "log", entries] => {
                let cube = Cube::new(number(count.trim_end_matches(',')) as usize).unwrap();
                let copies = 0..cube.node_count() as usize;
                self.copies = copies.map(|at| copy(at, cube, number(entries) as usize)).collect();
                String::new()
            }
            ["insert", node, ref labels @ ..] => self.insert(at(node), labels),
            ["exchange", pair] => {
                let (from, to) = pair.split_once('>').expect("from>to");
                let (from, to) = (at(from), at(to));
                let sent = answer(&mut self.copies, from, to);
                self.deliver(from, to, &sent)
            }
            ["sweep"] => self.sweep(None),
            ["sweep", "without", node] => self.sweep(Some(at(node))),
            ["show"] => self.copies.iter().map(|copy| line_of(copy) + "\n").collect(),
            _ => panic!("`{line}`: unknown command"),
        }
    }

    /// Inserts the items that are absent, as a node does.
    fn insert(&mut self, at: usize, labels: &[&str]) -> String {
        let copy = &mut self.copies[at];
        let hashes = labels.iter().map(|label| hash(label));
        let absent: Vec<ItemHash> = hashes.filter(|&hash| !copy.filter().contains(hash)).collect();
        copy.insert(&absent, &mut Vec::new()).unwrap();
        line_of(copy)
    }

    fn deliver(&mut self, from: usize, to: usize, sent: &Sent) -> String {
        let bytes: usize = sent.frames.iter().map(Vec::len).sum();
        let what = match sent.content {
            DeltaContent::Changes if bytes == 0 => "nothing".to_owned(),
            DeltaContent::Changes => format!("changes in {bytes} bytes"),
            DeltaContent::Whole => format!("the whole filter in {bytes} bytes"),
        };
        let new = self.copies[to].merge(node(from), sent).unwrap();
        format!("{}>{} {what}, {new} new", node(from).0, node(to).0)
    }

    /// A sweep in lock step: in each step, all questions are answered before any answer is merged.
    fn sweep(&mut self, without: Option<usize>) -> String {
        let cube = Cube::new(self.copies.len()).unwrap();
        let is_up = |at: usize| Some(at) != without;
        for at in (0..self.copies.len()).filter(|&at| is_up(at)) {
            self.copies[at].begin_sweep();
        }
        let mut text = String::new();
        for step in cube.steps() {
            writeln!(text, "{step}").unwrap();
            let mut answers = Vec::new();
            for to in (0..self.copies.len()).filter(|&to| is_up(to)) {
                let pairing = cube.pairing(CubeRank(to as u32), step);
                let Some(pairing) = pairing.filter(|pairing| pairing.receives) else { continue };
                let from = pairing.partner.0 as usize;
                if is_up(from) {
                    answers.push((from, to, answer(&mut self.copies, from, to)));
                }
            }
            for (from, to, sent) in answers {
                writeln!(text, "  {}", self.deliver(from, to, &sent)).unwrap();
            }
        }
        text
    }
}

#[test]
fn drawn_sweeps_bring_what_is_drawn() {
    for file in ["cube.txt", "beyond.txt", "absent.txt", "short_log.txt"] {
        let mut nodes = Nodes::default();
        dialogue::check(&format!("hypercube/{file}"), |line| nodes.play(line));
    }
}
