//! A node's report on itself: its state, and the results of its comparisons.

use std::collections::BTreeSet;
use std::time::Duration;

use umbel_engine::meta::{FilterVerb, MetaState, Rights};
use umbel_engine::{FilterId, GroupId, NodeId};
use umbel_ports::encoding::{decode, encode};
use umbel_raft::peer::CallKind;

use super::Local;
use crate::VERSION;
use crate::calls::{
    ComparedRow, Compares, ComparisonsReport, NodeStanding, ReportAnswer, ReportRequest,
};
use crate::comparisons::{Comparison, Ending};

/// Most comparisons in a report; the worst are chosen.
const ROWS_MAX: usize = 200;

/// Comparisons that are collected before the worst are picked and other tasks may run: some
/// milliseconds of work.
const ROWS_HELD_MAX: usize = 4096;

/// Most characters of a failure's text in a report.
const TEXT_CHARS_MAX: usize = 500;

impl ComparedRow {
    /// Sort key: failures come first, worst first and then oldest; then what was not compared yet; then
    /// successes.
    pub fn rank(&self) -> (u8, Option<Ending>, u64, FilterId, Compares) {
        let (class, ending, at_ms) = match &self.last {
            Some(last) if last.ending < Ending::Equal => (0, Some(last.ending), last.at_ms),
            None => (1, None, 0),
            Some(last) => (2, Some(last.ending), last.at_ms),
        };
        (class, ending, at_ms, self.filter, self.compares)
    }
}

impl ComparisonsReport {
    fn add(&mut self, row: ComparedRow) {
        self.count += 1;
        match row.last.as_ref().map(|last| last.ending) {
            None => self.pending_count += 1,
            Some(Ending::Mended) => self.mended_count += 1,
            Some(Ending::Equal) => {}
            Some(Ending::Left | Ending::Failed | Ending::Partial) => self.bad_count += 1,
        }
        self.worst.push(row);
    }

    /// Drops all rows but the worst.
    fn cut(&mut self) {
        self.worst.sort_unstable_by_key(ComparedRow::rank);
        self.worst.truncate(ROWS_MAX);
    }
}

impl Local {
    /// A node's report on itself; None if it does not answer in time.
    pub async fn report_of(
        &self,
        node: NodeId,
        request: ReportRequest,
        timeout: Duration,
    ) -> Option<ReportAnswer> {
        if node == self.node() {
            return Some(self.report(request).await);
        }
        let body = encode(&request);
        let called = self.member.call(node, CallKind::Report, GroupId::META, body, timeout).await;
        decode(&called.ok()?).ok()
    }

    /// Responds to a report request.
    pub(crate) async fn report(&self, request: ReportRequest) -> ReportAnswer {
        match request {
            ReportRequest::Standing => ReportAnswer::Standing(self.standing()),
            ReportRequest::Comparisons { reader } => {
                ReportAnswer::Comparisons(self.comparisons(reader.as_deref()).await)
            }
        }
    }

    fn standing(&self) -> NodeStanding {
        NodeStanding {
            version: VERSION.to_owned(),
            free_bytes: self.space.free_bytes(),
            is_disk_short: self.space.shortage().is_some(),
            sweeps: self.copies.sweeps(),
            step: self.copies.step().map(|step| step.to_string()),
        }
    }

    /// The results of this node's comparisons, for the filters that a principal may read.
    async fn comparisons(&self, reader: Option<&str>) -> ComparisonsReport {
        let readable = self.read_meta(|state| readable(state, reader));
        let row = |filter: FilterId, compares, last: Option<Comparison>| {
            let last = last.map(|last| {
                let why = last.why.chars().take(TEXT_CHARS_MAX).collect();
                Comparison { why, ..last }
            });
            readable.contains(&filter).then_some(ComparedRow { filter, compares, last })
        };
        let interval_s = self.scrub_interval().map(|interval| interval.as_secs());
        let mut report = ComparisonsReport { interval_s, ..Default::default() };
        let copies = self.copies.last_comparisons().into_iter();
        copies
            .filter_map(|((filter, partner), last)| row(filter, Compares::Copies(partner), last))
            .for_each(|row| report.add(row));
        for shard in self.shards() {
            let slices = shard.last_comparisons().into_iter();
            slices
                .filter_map(|(filter, last)| row(filter, Compares::Slice(shard.shard()), last))
                .for_each(|row| report.add(row));
            // A node may lead a thousand shards with ten thousand filters each, and may be busy as
            // well: then each yield takes a while.
            if report.worst.len() >= ROWS_HELD_MAX {
                report.cut();
                tokio::task::yield_now().await;
            }
        }
        report.cut();
        report
    }
}

/// The filters that a principal may read; all filters for None.
fn readable(state: &MetaState, reader: Option<&str>) -> BTreeSet<FilterId> {
    let none = Rights::default();
    let rights =
        reader.map(|name| state.principal(name).map_or(&none, |principal| &principal.rights));
    let may = |name: &str| rights.is_none_or(|rights| rights.may(FilterVerb::Read, name));
    let read = state.filters().filter(|(_, record)| may(record.name.as_str()));
    read.map(|(filter, _)| filter).collect()
}

#[cfg(test)]
mod tests {
    use umbel_engine::{NodeId, ShardId};

    use super::*;

    fn row(compares: Compares, last: Option<(Ending, u64)>) -> ComparedRow {
        let last = last.map(|(ending, at_ms)| Comparison {
            at_ms,
            ending,
            lost_count: 0,
            surplus_count: 0,
            why: String::new(),
        });
        ComparedRow { filter: FilterId(1), compares, last }
    }

    #[test]
    fn the_worst_come_first_and_what_was_never_compared_before_what_is_equal() {
        let slice = |shard| Compares::Slice(ShardId(shard));
        let partner = Compares::Copies(NodeId(2));
        let mut report = ComparisonsReport::default();
        for (compares, last) in [
            (slice(0), Some((Ending::Equal, 5))),
            (slice(1), None),
            (partner, Some((Ending::Mended, 9))),
            (slice(3), Some((Ending::Failed, 8))),
            (slice(4), Some((Ending::Left, 9))),
            (slice(5), Some((Ending::Equal, 4))),
        ] {
            report.add(row(compares, last));
        }
        report.cut();
        let counts = (report.count, report.bad_count, report.mended_count, report.pending_count);
        assert_eq!(counts, (6, 2, 1, 1));
        let order: Vec<_> = report.worst.iter().map(|row| row.compares).collect();
        assert_eq!(order, [slice(4), slice(3), partner, slice(1), slice(5), slice(0)]);
    }

    #[test]
    fn all_comparisons_are_counted_and_the_worst_reported() {
        let mut report = ComparisonsReport::default();
        for shard in 0..1000 {
            let ending = if shard < 500 { Ending::Equal } else { Ending::Failed };
            report.add(row(Compares::Slice(ShardId(shard)), Some((ending, 1))));
        }
        report.cut();
        assert_eq!((report.count, report.bad_count, report.worst.len()), (1000, 500, ROWS_MAX));
        assert!(report.worst.iter().all(|row| row.compares >= Compares::Slice(ShardId(500))));
    }
}
