//! Tables that exchange with each other, compared with lists of all inserts.

use std::collections::BTreeSet;

use proptest::collection::vec;
use proptest::prelude::*;

use super::*;
use crate::limits::SAMPLE_HASHES_MAX;

const NODES: usize = 4;
const ALL: usize = usize::MAX;

/// SplitMix64 of a number: a hash that no adversary chose.
fn hash_of(item: u64) -> ItemHash {
    let mut z = item.wrapping_add(1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    ItemHash::new(item, z ^ (z >> 31))
}

fn hashes(items: std::ops::Range<u64>) -> Vec<ItemHash> {
    items.map(hash_of).collect()
}

fn id(node: usize) -> NodeId {
    NodeId(node as u64 + 1)
}

/// Tables, the items inserted on each node, and answers that may arrive at any time.
struct Nodes {
    tables: Vec<SampleTable>,
    inserted: Vec<Vec<u64>>,
    answers: Vec<(usize, Vec<NodeSample>)>,
}

#[derive(Clone, Debug)]
enum Event {
    Insert {
        node: usize,
        first: u64,
        count: u64,
    },
    Ask {
        node: usize,
        partner: usize,
        bytes_max: usize,
    },
    /// An answer arrives, for the first time or again.
    Arrive {
        answer: prop::sample::Index,
    },
    /// A node restarts from its disk.
    Restart {
        node: usize,
    },
}

fn event() -> impl Strategy<Value = Event> {
    let insert = (0..NODES, 0_u64..3_000, 0_u64..900)
        .prop_map(|(node, first, count)| Event::Insert { node, first, count });
    let ask = (0..NODES, 0..NODES, prop_oneof![Just(ALL), Just(0), Just(5_000)])
        .prop_map(|(node, partner, bytes_max)| Event::Ask { node, partner, bytes_max });
    let arrive = any::<prop::sample::Index>().prop_map(|answer| Event::Arrive { answer });
    prop_oneof![
        4 => insert,
        6 => ask,
        8 => arrive,
        1 => (0..NODES).prop_map(|node| Event::Restart { node }),
    ]
}

impl Nodes {
    fn new() -> Self {
        Self {
            tables: (0..NODES).map(|node| SampleTable::new(id(node))).collect(),
            inserted: vec![Vec::new(); NODES],
            answers: Vec::new(),
        }
    }

    fn step(&mut self, event: &Event) {
        match *event {
            Event::Insert { node, first, count } => {
                let batch = hashes(first..first + count);
                self.tables[node].insert(&batch);
                self.inserted[node].extend(batch.iter().map(|hash| hash.lo()));
            }
            Event::Ask { node, partner, bytes_max } => {
                let answer =
                    self.tables[partner].newer_than(&self.tables[node].counts(), bytes_max);
                self.answers.push((node, answer));
            }
            Event::Arrive { answer } if !self.answers.is_empty() => {
                let (node, answer) = answer.get(&self.answers);
                for sample in answer {
                    self.tables[*node].take(sample).unwrap();
                }
            }
            Event::Arrive { .. } => {}
            Event::Restart { node } => {
                let bytes = self.tables[node].to_bytes();
                self.tables[node] = SampleTable::from_bytes(&bytes).unwrap();
            }
        }
    }

    /// The law: a sample at count c is that of the first c inserts.
    fn check(&self) -> Result<(), TestCaseError> {
        for table in &self.tables {
            for (node, count, sample) in table.samples() {
                let first = self.inserted[node.0 as usize - 1].iter().take(count as usize);
                let all: BTreeSet<u64> = first.copied().collect();
                let least: Vec<u64> = all.into_iter().take(SAMPLE_HASHES_MAX).collect();
                prop_assert_eq!(sample.hashes(), least);
            }
        }
        Ok(())
    }

    fn ask(&mut self, node: usize, partner: usize) -> usize {
        let answer = self.tables[partner].newer_than(&self.tables[node].counts(), ALL);
        for sample in &answer {
            assert_eq!(self.tables[node].take(sample), Ok(true));
        }
        answer.iter().map(NodeSample::wire_bytes).sum()
    }

    /// Rounds in which every node asks the next one, until no node receives news.
    fn run_until_quiet(&mut self) {
        let ask = |nodes: &mut Self, node| nodes.ask(node, (node + 1) % NODES);
        while (0..NODES).map(|node| ask(self, node)).sum::<usize>() > 0 {}
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn samples_are_those_of_the_first_inserts(events in vec(event(), 1..60)) {
        let mut nodes = Nodes::new();
        for event in &events {
            nodes.step(event);
        }
        nodes.check()?;
        nodes.run_until_quiet();
        nodes.check()?;
        // All tables are equal then, and the union is what a single node would have sampled.
        for (node, table) in nodes.tables.iter().enumerate() {
            prop_assert!(table.samples().eq(nodes.tables[0].samples()));
            prop_assert_eq!(table.estimates(), nodes.tables[0].estimates());
            prop_assert_eq!(table.own_count(), nodes.inserted[node].len() as u64);
        }
        let one: DistinctSample = nodes.inserted.iter().flatten().copied().collect();
        prop_assert_eq!(nodes.tables[0].estimates().union, one.count());
    }

    /// A batch is equivalent to single inserts.
    #[test]
    fn batches_leave_no_trace(cuts in vec(0_usize..3_000, 0..5)) {
        let items = hashes(0..3_000);
        let mut whole = SampleTable::new(id(0));
        whole.insert(&items);
        let mut cuts = cuts;
        cuts.extend([0, items.len()]);
        cuts.sort_unstable();
        let mut cut = SampleTable::new(id(0));
        for pair in cuts.windows(2) {
            cut.insert(&items[pair[0]..pair[1]]);
        }
        prop_assert_eq!(cut, whole);
    }

    /// No message of a peer can do more than fill entries.
    #[test]
    fn any_sample_is_taken_or_refused(
        counts in vec((0_u64..3, any::<u64>(), any::<u64>(), vec(any::<u64>(), 0..5)), 0..8),
    ) {
        let mut table = SampleTable::new(NodeId(1));
        table.insert(&hashes(0..10));
        for (node, since, count, hashes) in counts {
            let hashes = hashes.into_iter().collect();
            let sample = NodeSample { node: NodeId(node), since, count, hashes };
            let before = table.clone();
            let taken = table.take(&sample);
            prop_assert_eq!(taken.is_err(), since >= count);
            prop_assert_eq!(taken == Ok(true), table != before);
            // A second time it is not news.
            prop_assert!(table.take(&sample) != Ok(true));
            table.insert(&[hash_of(node)]);
            prop_assert_eq!(SampleTable::from_bytes(&table.to_bytes()), Ok(table.clone()));
        }
    }
}

#[test]
fn a_hash_travels_once() {
    let mut nodes = Nodes::new();
    let (mut bytes, mut answer_count) = (0, 0);
    let item_count = 200_000;
    for first in (0..item_count).step_by(200) {
        nodes.tables[0].insert(&hashes(first..first + 200));
        let answer = nodes.ask(1, 0);
        answer_count += usize::from(answer > 0);
        bytes += answer;
    }
    // k·(1 + ln(n/k)) = 6,425 hashes in 1,000 answers; that many whole samples would take 8 MB.
    let hash_count = (bytes - answer_count * 24) / 8;
    assert!((6_100..6_750).contains(&hash_count), "{hash_count} hashes");
    assert!(nodes.tables[1].samples().eq(nodes.tables[0].samples()));
    // Repeated inserts are not news, although they are counted.
    nodes.tables[0].insert(&hashes(0..10_000));
    assert_eq!((nodes.ask(1, 0), nodes.tables[0].own_count()), (0, item_count + 10_000));
}

#[test]
fn the_cluster_is_estimated_from_any_node() {
    // Node n inserts 50,000 items, the last 10,000 of which are the first of node n + 1.
    let mut nodes = Nodes::new();
    for (node, first) in (0..NODES).zip((0..).step_by(40_000)) {
        nodes.tables[node].insert(&hashes(first..first + 50_000));
    }
    nodes.run_until_quiet();
    let estimates = nodes.tables[2].estimates();
    let near = |what: &str, got: DistinctCount, truth: f64| {
        let off = (got.count - truth).abs() / got.standard_error;
        assert!(off <= 4.0, "{what}: {got:?}, expected {truth}");
    };
    near("union", estimates.union, 170_000.0);
    assert_eq!(estimates.nodes.iter().map(|(node, _)| node.0).collect::<Vec<_>>(), [1, 2, 3, 4]);
    for (node, count) in estimates.nodes {
        near(&node.to_string(), count, 50_000.0);
    }
    let pairs: Vec<(u64, u64)> =
        estimates.overlaps.iter().map(|pair| (pair.one.0, pair.other.0)).collect();
    assert_eq!(pairs, [(1, 2), (1, 3), (1, 4), (2, 3), (2, 4), (3, 4)]);
    for pair in estimates.overlaps {
        let truth = if pair.one.0 + 1 == pair.other.0 { 10_000.0 } else { 0.0 };
        near(&format!("{} and {}", pair.one, pair.other), pair.items, truth);
        assert_eq!(nodes.tables[0].overlap(pair.other, pair.one), pair.items);
    }
}

#[test]
fn a_long_answer_is_sent_in_parts() {
    let mut nodes = Nodes::new();
    for node in 0..NODES {
        nodes.tables[node].insert(&hashes(0..10));
    }
    nodes.run_until_quiet();
    let mut late = SampleTable::new(NodeId(9));
    // A sample takes 24 + 80 bytes: two fit into 300 bytes, and one is sent even if none fits.
    for (bytes_max, expected) in [(300, 2), (0, 1), (300, 1), (300, 0)] {
        let answer = nodes.tables[0].newer_than(&late.counts(), bytes_max);
        assert_eq!(answer.len(), expected);
        for sample in &answer {
            assert_eq!(late.take(sample), Ok(true));
        }
    }
    assert!(late.samples().eq(nodes.tables[0].samples()));
}

#[test]
fn a_lost_table_comes_back_and_counts_on() {
    let mut nodes = Nodes::new();
    nodes.tables[0].insert(&hashes(0..5_000));
    nodes.run_until_quiet();
    let count_of_first = nodes.tables[1].counts().of(id(0));
    nodes.tables[0] = SampleTable::new(id(0));
    // It inserts before it learns of the loss; the others take that insert for one that they have.
    nodes.tables[0].insert(&hashes(5_000..5_001));
    assert_eq!(nodes.ask(1, 0), 0);
    nodes.ask(0, 1);
    assert_eq!(nodes.tables[0].own_count(), count_of_first + 1);
    nodes.run_until_quiet();
    let everything: DistinctSample = hashes(0..5_001).iter().map(|hash| hash.lo()).collect();
    for table in &nodes.tables {
        assert_eq!(table.estimates().union, everything.count());
    }
}

#[test]
fn what_begins_beyond_is_left_and_asked_for_again() {
    let (mut one, mut two) = (SampleTable::new(id(0)), SampleTable::new(id(1)));
    one.insert(&hashes(0..100));
    let asked = one.counts();
    one.insert(&hashes(100..200));
    let beyond = one.newer_than(&asked, ALL);
    assert_eq!((beyond[0].since, beyond[0].count, beyond[0].hashes.len()), (100, 200, 100));
    assert_eq!(two.take(&beyond[0]), Ok(false));
    for sample in one.newer_than(&two.counts(), ALL) {
        assert_eq!(two.take(&sample), Ok(true));
    }
    assert!(two.samples().eq(one.samples()));
    two.clear();
    assert_eq!(two, SampleTable::new(id(1)));
}

#[test]
fn no_more_nodes_are_taken_than_a_cluster_has() {
    let mut table = SampleTable::new(NodeId(0));
    let sample = |node| {
        let hashes = [node].into_iter().collect();
        NodeSample { node: NodeId(node), since: 0, count: 1, hashes }
    };
    let last = VERSION_NODES_MAX as u64;
    for node in 1..last {
        assert_eq!(table.take(&sample(node)), Ok(true));
    }
    let error = table.take(&sample(last)).unwrap_err();
    assert_eq!(error.to_string(), "a sample of node 8192, beside those of 8192, at most 8192");
    // Room is reserved for the own sample.
    table.insert(&[hash_of(0)]);
    assert_eq!(SampleTable::from_bytes(&table.to_bytes()).as_ref(), Ok(&table));
    assert!(table.estimates().overlaps.is_empty());
}
