//! Names of records in a worker's outputs, if records have parts. The parts of its own records come from the
//! bits at which its records start, those of other workers' kept records from their answers when groups were
//! counted.

use super::super::report::{Name, Names};
use super::super::sorted_rows::{RowReader, SortedRows};
use super::bench::{Bench, ReadState};
use super::catalogue::Catalogues;
use super::group_reports::group_rows;
use crate::error::{Context, Result, bail};
use std::cell::RefCell;
use std::collections::BTreeMap;
use umbel_dedup_engine::job::WriteOrder;
use umbel_dedup_engine::{KeptGroup, RecordId, RecordPart};

/// For each record that was dropped for another worker's record: record and part of the kept one, in the
/// order of the dropped ones. `None` if records have no parts.
pub(super) struct KeptElsewhere(Option<SortedRows<3>>);

impl KeptElsewhere {
    /// Joins the drops with the groups of other workers.
    pub(super) fn gather(bench: &Bench, state: &ReadState) -> Result<Self> {
        if !bench.spec.has_parts() {
            return Ok(Self(None));
        }
        let of_dropped = |group: &KeptGroup, dropped| {
            group.part.map(|RecordPart { record, part }| [dropped, record, part])
        };
        group_rows(bench, state, |_| None, of_dropped).map(|rows| Self(Some(rows)))
    }
}

/// The names of all records in a worker's outputs.
pub(super) struct RecordNames<'a> {
    bench: &'a Bench,
    state: &'a ReadState,
    catalogues: Catalogues,
    elsewhere: Option<RefCell<RowReader<'a, 3>>>,
}

impl<'a> RecordNames<'a> {
    /// All names; kept records must be queried in the order of the dropped ones.
    pub(super) fn new(
        bench: &'a Bench,
        state: &'a ReadState,
        order: &WriteOrder,
        elsewhere: &'a KeptElsewhere,
    ) -> Result<Self> {
        let catalogues = Catalogues::decode(&order.chunk_bases, &order.catalogues)?;
        let elsewhere = elsewhere.0.as_ref().map(SortedRows::read).transpose()?;
        Ok(Self { bench, state, catalogues, elsewhere: elsewhere.map(RefCell::new) })
    }

    /// The names of this worker's own records alone.
    pub(super) fn of_own(
        bench: &'a Bench,
        state: &'a ReadState,
        order: &WriteOrder,
    ) -> Result<Self> {
        let catalogues = Catalogues::decode(&order.chunk_bases, &order.catalogues)?;
        Ok(Self { bench, state, catalogues, elsewhere: None })
    }

    fn is_own(&self, record_id: RecordId) -> bool {
        self.bench.own_record(self.state, record_id).is_ok()
    }
}

impl Names for RecordNames<'_> {
    fn name(&self, record_id: RecordId) -> Result<Name<'_>> {
        if !self.bench.spec.has_parts() {
            return self.catalogues.name(record_id);
        }
        let part = self.bench.own_part(self.state, record_id)?;
        self.catalogues.name_of_part(record_id, part)
    }

    fn name_of_kept(&self, dropped: RecordId, kept: RecordId) -> Result<Name<'_>> {
        let Some(elsewhere) = self.elsewhere.as_ref().filter(|_| !self.is_own(kept)) else {
            return self.name(kept);
        };
        let mut elsewhere = elsewhere.borrow_mut();
        while let Some([of, record, part]) = elsewhere.next()? {
            // Rows before it belong to outputs that an earlier process has written.
            if of == dropped.to_bits() {
                return self.catalogues.name_of_part(kept, RecordPart { record, part });
            }
        }
        bail!("nobody told which part was kept for a dropped one: a bug of umbel")
    }
}

/// The names of records whose parts workers have reported.
pub(super) struct ReportedNames<'a> {
    catalogues: &'a Catalogues,
    parts: BTreeMap<RecordId, RecordPart>,
}

impl<'a> ReportedNames<'a> {
    /// Record ids that are not in `parts` have no part.
    pub(super) fn new(catalogues: &'a Catalogues, parts: BTreeMap<RecordId, RecordPart>) -> Self {
        Self { catalogues, parts }
    }
}

impl Names for ReportedNames<'_> {
    fn name(&self, record_id: RecordId) -> Result<Name<'_>> {
        match self.parts.get(&record_id) {
            Some(part) => self.catalogues.name_of_part(record_id, *part),
            None => self.catalogues.name(record_id),
        }
        .context("a kept record that a worker told of")
    }
}
