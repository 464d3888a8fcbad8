//! Names of places where records have parts: this worker's by where its records start, those of others by what their
//! workers told when groups were counted.

use super::super::report::{Name, Names};
use super::super::sorted_rows::{RowReader, RowSorter, SortedRows};
use super::super::spill::ScratchFile;
use super::bench::{Bench, ReadState};
use super::catalogue::Catalogues;
use super::claims::{drops_by_kept, sort_bytes};
use super::group_reports::all_groups;
use crate::error::{Context, Result, bail};
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::sync::Arc;
use umbel_dedup_engine::job::WriteOrder;
use umbel_dedup_engine::{Place, RecordPart};

/// For each place that was dropped for another worker's: which part of which record was kept, in the order of the
/// former. Nothing where records have no parts.
pub(super) struct KeptElsewhere(Option<SortedRows<3>>);

impl KeptElsewhere {
    /// Joins what was dropped with what others told of their groups.
    pub(super) fn gather(bench: &Bench, state: &ReadState) -> Result<Self> {
        if !bench.spec.has_parts() {
            return Ok(Self(None));
        }
        let scratch = Arc::new(ScratchFile::new(bench.folder.path()));
        let drops = drops_by_kept(bench, state)?;
        let mut drops = drops.read()?;
        let mut next = drops.next()?;
        let mut sorter = RowSorter::new(sort_bytes(bench, state), &scratch);
        let mut groups = all_groups(bench)?;
        while let Some(group) = groups.next()? {
            let kept = group.kept.to_bits();
            while let Some([_, dropped]) = next.filter(|[of, _]| *of == kept) {
                if let Some(RecordPart { record, part }) = group.part {
                    sorter.push([dropped, record, part])?;
                }
                next = drops.next()?;
            }
        }
        if next.is_some() {
            bail!("a record was dropped for one whose group nobody has counted: a bug of umbel");
        }
        Ok(Self(Some(sorter.finish()?)))
    }
}

/// The names of all places that a worker's outputs name.
pub(super) struct PlaceNames<'a> {
    bench: &'a Bench,
    state: &'a ReadState,
    catalogues: Catalogues,
    elsewhere: Option<RefCell<RowReader<'a, 3>>>,
}

impl<'a> PlaceNames<'a> {
    /// Begins with the first place that was dropped.
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

    /// The names of this worker's own places.
    pub(super) fn of_own(
        bench: &'a Bench,
        state: &'a ReadState,
        order: &WriteOrder,
    ) -> Result<Self> {
        let catalogues = Catalogues::decode(&order.chunk_bases, &order.catalogues)?;
        Ok(Self { bench, state, catalogues, elsewhere: None })
    }

    fn is_own(&self, place: Place) -> bool {
        self.bench.own_place(self.state, place).is_ok()
    }
}

impl Names for PlaceNames<'_> {
    fn name(&self, place: Place) -> Result<Name<'_>> {
        if !self.bench.spec.has_parts() {
            return self.catalogues.name(place);
        }
        let part = self.bench.own_part(self.state, place)?;
        self.catalogues.name_of_part(place, part)
    }

    fn name_of_kept(&self, dropped: Place, kept: Place) -> Result<Name<'_>> {
        let Some(elsewhere) = self.elsewhere.as_ref().filter(|_| !self.is_own(kept)) else {
            return self.name(kept);
        };
        let mut elsewhere = elsewhere.borrow_mut();
        while let Some([of, record, part]) = elsewhere.next()? {
            // Those in between were dropped for others in outputs that are written already.
            if of == dropped.to_bits() {
                return self.catalogues.name_of_part(kept, RecordPart { record, part });
            }
        }
        bail!("nobody told which part was kept for a dropped one: a bug of umbel")
    }
}

/// The names of places that workers told with their parts.
pub(super) struct ToldNames<'a> {
    catalogues: &'a Catalogues,
    parts: BTreeMap<Place, RecordPart>,
}

impl<'a> ToldNames<'a> {
    /// Places whose parts were not told have none.
    pub(super) fn new(catalogues: &'a Catalogues, parts: BTreeMap<Place, RecordPart>) -> Self {
        Self { catalogues, parts }
    }
}

impl Names for ToldNames<'_> {
    fn name(&self, place: Place) -> Result<Name<'_>> {
        match self.parts.get(&place) {
            Some(part) => self.catalogues.name_of_part(place, *part),
            None => self.catalogues.name(place),
        }
        .context("a kept record that a worker told of")
    }
}
