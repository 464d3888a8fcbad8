//! Groups of equal records: how many there are, how large, and which are the largest.
//!
//! A group is a kept record and the records dropped for it. Drops are sorted by the kept record, so one pass that counts
//! equal neighbours finds every group, whatever its size.

use super::json_lines::JsonLines;
use super::report::{Name, Names};
use super::sink::{Complete, Sink};
use super::sorted_rows::SortedRows;
use crate::error::Result;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use std::cmp::Reverse;
use std::collections::BinaryHeap;
use umbel_dedup_engine::{RecordId, RecordPart};

/// Number of the largest groups that the summary names.
const MOST_REPEATED_MAX: usize = 20;

/// Calls `take` for every group, in the order of the kept records, with the kept record and the size.
pub(crate) fn for_each_group(
    by_kept: &SortedRows<2>,
    mut take: impl FnMut(RecordId, u64) -> Result<()>,
) -> Result<()> {
    let mut rows = by_kept.read()?;
    let mut open: Option<(u64, u64)> = None;
    while let Some([kept, _]) = rows.next()? {
        match &mut open {
            Some((same, size)) if *same == kept => *size += 1,
            _ => {
                if let Some((kept, size)) = open.replace((kept, 2)) {
                    take(RecordId::from_bits(kept), size)?;
                }
            }
        }
    }
    open.map_or(Ok(()), |(kept, size)| take(RecordId::from_bits(kept), size))
}

/// The totals of one worker's groups, for the summary of all workers.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub(crate) struct GroupTotals {
    by_power: Vec<u64>,
    records_by_power: Vec<u64>,
    largest: u64,
    /// Size and kept record of the largest groups.
    most_repeated: Vec<(u64, u64)>,
    /// If records have parts: record and part that each kept record above stands for.
    parts: Vec<(u64, u64)>,
}

impl GroupTotals {
    /// Adds record and part of each kept record.
    ///
    /// # Errors
    ///
    /// As `part_of`.
    pub(crate) fn with_parts(
        mut self,
        part_of: impl Fn(RecordId) -> Result<RecordPart>,
    ) -> Result<Self> {
        let part = |&(_, kept): &(u64, u64)| {
            part_of(RecordId::from_bits(kept)).map(|RecordPart { record, part }| (record, part))
        };
        self.parts = self.most_repeated.iter().map(part).collect::<Result<_>>()?;
        Ok(self)
    }

    /// The kept records with their parts, if these were added.
    pub(crate) fn parts(&self) -> impl Iterator<Item = (RecordId, RecordPart)> + '_ {
        let kept = self.most_repeated.iter().map(|&(_, kept)| RecordId::from_bits(kept));
        kept.zip(self.parts.iter().map(|&(record, part)| RecordPart { record, part }))
    }
}

/// Counts groups for the summary.
#[derive(Clone, Default)]
pub(crate) struct GroupFacts {
    /// Groups by the whole part of the binary logarithm of their size.
    by_power: Vec<u64>,
    /// Records in these groups.
    records_by_power: Vec<u64>,
    largest: u64,
    /// The largest groups; among equal sizes the first in input order. The smallest of them is on top of the heap.
    most_repeated: BinaryHeap<Reverse<(u64, Reverse<RecordId>)>>,
}

impl GroupFacts {
    /// Counts the next group in the order of the kept records.
    pub(crate) fn add(&mut self, kept: RecordId, size: u64) {
        let power = size.ilog2() as usize;
        self.count(power, 1, size);
        self.largest = self.largest.max(size);
        self.name(kept, size);
    }

    /// The sections `groups` and `most_repeated` of the summary.
    pub(crate) fn json(&self, names: &dyn Names) -> Result<(Value, Value)> {
        let powers = self.by_power.iter().enumerate().filter(|(_, groups)| **groups > 0);
        let row = |(power, groups): (usize, &u64)| {
            let (from, to) = (1u64 << power, (1u64 << power) * 2 - 1);
            let records = self.records_by_power[power];
            json!({ "size_min": from, "size_max": to, "groups": groups, "records": records })
        };
        let count: u64 = self.by_power.iter().sum();
        let histogram: Vec<Value> = powers.map(row).collect();
        let mut most = self.most_repeated.clone().into_vec();
        most.sort_unstable();
        let named = most.into_iter().map(|Reverse((size, Reverse(kept)))| {
            let mut named = serde_json::to_value(names.name(kept)?)?;
            named["size"] = size.into();
            Ok(named)
        });
        let most_repeated: Vec<Value> = named.collect::<Result<_>>()?;
        let groups = json!({ "count": count, "largest": self.largest, "histogram": histogram });
        Ok((groups, most_repeated.into()))
    }

    /// The totals.
    pub(crate) fn totals(&self) -> GroupTotals {
        let row = |Reverse((size, Reverse(kept))): &Reverse<(u64, Reverse<RecordId>)>| {
            (*size, kept.to_bits())
        };
        let mut most_repeated: Vec<(u64, u64)> = self.most_repeated.iter().map(row).collect();
        most_repeated.sort_unstable();
        let (by_power, largest) = (self.by_power.clone(), self.largest);
        let records_by_power = self.records_by_power.clone();
        GroupTotals { by_power, records_by_power, largest, most_repeated, parts: Vec::new() }
    }

    /// Adds the totals of another worker.
    pub(crate) fn add_totals(&mut self, totals: &GroupTotals) {
        let rows = totals.by_power.iter().zip(&totals.records_by_power);
        for (power, (groups, records)) in rows.enumerate().take(u64::BITS as usize) {
            self.count(power, *groups, *records);
        }
        self.largest = self.largest.max(totals.largest);
        for &(size, kept) in &totals.most_repeated {
            self.name(RecordId::from_bits(kept), size);
        }
    }

    /// Counts groups of a power, and the records in them.
    fn count(&mut self, power: usize, groups: u64, records: u64) {
        if power >= self.by_power.len() {
            self.by_power.resize(power + 1, 0);
            self.records_by_power.resize(power + 1, 0);
        }
        self.by_power[power] = self.by_power[power].saturating_add(groups);
        self.records_by_power[power] = self.records_by_power[power].saturating_add(records);
    }

    /// Names a group if it is one of the largest.
    fn name(&mut self, kept: RecordId, size: u64) {
        self.most_repeated.push(Reverse((size, Reverse(kept))));
        if self.most_repeated.len() > MOST_REPEATED_MAX {
            self.most_repeated.pop();
        }
    }
}

/// One line of the list of groups.
#[derive(Serialize)]
struct Line<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    kept_worker: Option<u16>,
    kept_file: &'a str,
    kept_record: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    kept_part: Option<u64>,
    size: u64,
}

/// Writes the list of groups.
pub(crate) struct GroupList<'a> {
    names: &'a dyn Names,
    lines: JsonLines,
}

impl<'a> GroupList<'a> {
    /// A list without lines.
    pub(crate) fn new(names: &'a dyn Names, sink: Sink) -> Self {
        Self { names, lines: JsonLines::new(sink) }
    }

    /// Adds the next group in the order of the kept records.
    pub(crate) fn add(&mut self, kept: RecordId, size: u64) -> Result<()> {
        let name = self.names.name(kept)?;
        let Name { worker, file: kept_file, record: kept_record, part: kept_part } = name;
        self.lines.add(&Line { kept_worker: worker, kept_file, kept_record, kept_part, size })
    }

    /// Writes the buffered lines.
    pub(crate) fn complete(self) -> Result<Complete> {
        self.lines.complete()
    }
}

#[cfg(test)]
mod tests {
    use super::super::sorted_rows::RowSorter;
    use super::super::spill::ScratchFile;
    use super::*;
    use std::sync::Arc;

    #[test]
    fn groups_are_counted_and_the_first_of_equal_sizes_are_named() {
        let scratch = Arc::new(ScratchFile::new(&std::env::temp_dir()));
        let mut sorter = RowSorter::<2>::new(0, &scratch);
        // Record r is kept for r mod 7 others; for none if that is 0.
        for kept in 0..70 {
            (0..kept % 7).for_each(|other| sorter.push([kept, 1000 * other]).unwrap());
        }
        let mut facts = GroupFacts::default();
        let mut groups = Vec::new();
        let take = |kept: RecordId, size| {
            facts.add(kept, size);
            groups.push((kept.to_bits(), size));
            Ok(())
        };
        for_each_group(&sorter.finish().unwrap(), take).unwrap();
        let expected: Vec<_> = (0..70).filter(|r| r % 7 > 0).map(|r| (r, r % 7 + 1)).collect();
        assert_eq!(groups, expected);
        assert_eq!((facts.largest, &facts.by_power[..]), (7, &[0, 20, 40][..]));
        let mut most = facts.most_repeated.into_vec();
        most.sort_unstable();
        let most: Vec<_> =
            most.into_iter().map(|Reverse((s, Reverse(p)))| (s, p.to_bits())).collect();
        let of = |size: u64| (0..10).map(move |at| (size, 7 * at + size - 1));
        assert_eq!(most, of(7).chain(of(6)).collect::<Vec<_>>());
    }
}
