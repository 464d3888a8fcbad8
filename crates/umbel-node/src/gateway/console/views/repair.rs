//! Comparison and repair: what this node's comparisons came to, the worst first.

use std::collections::BTreeMap;

use umbel_engine::meta::MetaState;
use umbel_engine::{FilterId, NodeId, ShardId};

use crate::comparisons::{Comparison, Ending};
use crate::coordinator::Coordinator;
use crate::failure::CallFailure;
use crate::gateway::caller::Caller;
use crate::gateway::console::json::{self, Value};

/// Rows that are shown, the worst.
const ROWS_MAX: usize = 200;

/// Longest text of a failure that is shown.
const TEXT_CHARS_MAX: usize = 500;

/// Whose bits are compared with each other.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Compares {
    /// The replicas of a slice in a shard that this node leads.
    Slice(ShardId),
    /// This node's copy with a partner's.
    Copies(NodeId),
}

/// What was compared, and what came of it last.
struct Row {
    filter: String,
    compares: Compares,
    last: Option<Comparison>,
}

impl Row {
    /// The worst first, and of equal ones the oldest; what was not compared yet comes before what was fine.
    fn rank(&self) -> (u8, Option<Ending>, u64, &str, Compares) {
        let (class, ending, at_ms) = match &self.last {
            Some(last) if last.ending < Ending::Equal => (0, Some(last.ending), last.at_ms),
            None => (1, None, 0),
            Some(last) => (2, Some(last.ending), last.at_ms),
        };
        (class, ending, at_ms, &self.filter, self.compares)
    }
}

/// All of it counted, and the worst kept.
#[derive(Default)]
struct Tally {
    count: u64,
    bad_count: u64,
    mended_count: u64,
    pending_count: u64,
    worst: Vec<Row>,
}

impl Tally {
    fn add(&mut self, row: Row) {
        self.count += 1;
        match row.last.as_ref().map(|last| last.ending) {
            None => self.pending_count += 1,
            Some(Ending::Mended) => self.mended_count += 1,
            Some(Ending::Equal) => {}
            Some(Ending::Left | Ending::Failed | Ending::Partial) => self.bad_count += 1,
        }
        self.worst.push(row);
    }

    /// Lets go of all rows but the worst.
    fn cut(&mut self) {
        self.worst.sort_unstable_by(|one, other| one.rank().cmp(&other.rank()));
        self.worst.truncate(ROWS_MAX);
    }

    fn told(&self, interval_s: Option<u64>) -> Value {
        json::object([
            ("interval_s", interval_s.into()),
            ("count", self.count.into()),
            ("bad_count", self.bad_count.into()),
            ("mended_count", self.mended_count.into()),
            ("pending_count", self.pending_count.into()),
            ("rows", json::list(self.worst.iter().map(row_told))),
        ])
    }
}

/// Takes a sample of the filters that the caller may read.
///
/// # Errors
/// If this node belongs to no cluster.
pub(super) async fn sample(
    coordinator: &Coordinator,
    caller: &Caller,
) -> Result<Value, CallFailure> {
    let local = coordinator.local()?;
    let may_read = caller.readable();
    let names: BTreeMap<FilterId, String> = coordinator.read_meta(|state: &MetaState| {
        let all = state.filters().map(|(filter, record)| (filter, record.name.as_str()));
        let read = all.filter(|(_, name)| may_read(name));
        read.map(|(filter, name)| (filter, name.to_owned())).collect()
    })?;
    let row = |filter: FilterId, compares, last| {
        Some(Row { filter: names.get(&filter)?.clone(), compares, last })
    };
    let mut tally = Tally::default();
    let copies = local.copies().last_comparisons().into_iter();
    copies
        .filter_map(|((filter, partner), last)| row(filter, Compares::Copies(partner), last))
        .for_each(|row| tally.add(row));
    for shard in local.shards() {
        let slices = shard.last_comparisons().into_iter();
        slices
            .filter_map(|(filter, last)| row(filter, Compares::Slice(shard.shard()), last))
            .for_each(|row| tally.add(row));
        // A node may lead a thousand shards of ten thousand filters each.
        tally.cut();
        tokio::task::yield_now().await;
    }
    tally.cut();
    let interval = local.scrub_interval();
    Ok(tally.told(interval.map(|interval| interval.as_secs())))
}

fn row_told(row: &Row) -> Value {
    let (shard, partner) = match row.compares {
        Compares::Slice(shard) => (Some(shard.0), None),
        Compares::Copies(partner) => (None, Some(partner.0)),
    };
    let last = row.last.as_ref().map(|last| {
        json::object([
            ("at_ms", last.at_ms.into()),
            ("ending", last.ending.name().into()),
            ("lost_count", last.lost_count.into()),
            ("surplus_count", last.surplus_count.into()),
            ("why", last.why.chars().take(TEXT_CHARS_MAX).collect::<String>().into()),
        ])
    });
    json::object([
        ("filter", (&*row.filter).into()),
        ("shard", shard.into()),
        ("partner", partner.into()),
        ("last", last.into()),
    ])
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(compares: Compares, last: Option<(Ending, u64)>) -> Row {
        let last = last.map(|(ending, at_ms)| Comparison {
            at_ms,
            ending,
            lost_count: 0,
            surplus_count: 0,
            why: String::new(),
        });
        Row { filter: "seen".to_owned(), compares, last }
    }

    #[test]
    fn the_worst_come_first_and_what_was_never_compared_before_what_is_equal() {
        let slice = |shard| Compares::Slice(ShardId(shard));
        let mut tally = Tally::default();
        for (compares, last) in [
            (slice(0), Some((Ending::Equal, 5))),
            (slice(1), None),
            (Compares::Copies(NodeId(2)), Some((Ending::Mended, 9))),
            (slice(3), Some((Ending::Failed, 8))),
            (slice(4), Some((Ending::Left, 9))),
            (slice(5), Some((Ending::Equal, 4))),
        ] {
            tally.add(row(compares, last));
        }
        tally.cut();
        let told = tally.told(Some(60));
        let counts = ["interval_s", "count", "bad_count", "mended_count", "pending_count"];
        assert_eq!(counts.map(|name| told[name].as_u64().unwrap()), [60, 6, 2, 1, 1]);
        let order: Vec<_> =
            told["rows"].as_array().unwrap().iter().map(|row| &row["shard"]).collect();
        let shards = [Some(4), Some(3), None, Some(1), Some(5), Some(0)].map(Value::from);
        assert_eq!(order, shards.iter().collect::<Vec<_>>());
    }

    #[test]
    fn all_are_counted_and_the_worst_are_shown() {
        let mut tally = Tally::default();
        for shard in 0..1000 {
            let ending = if shard < 500 { Ending::Equal } else { Ending::Failed };
            tally.add(row(Compares::Slice(ShardId(shard)), Some((ending, 1))));
        }
        tally.cut();
        assert_eq!((tally.count, tally.bad_count, tally.worst.len()), (1000, 500, ROWS_MAX));
        assert!(tally.worst.iter().all(|row| row.compares >= Compares::Slice(ShardId(500))));
    }
}
