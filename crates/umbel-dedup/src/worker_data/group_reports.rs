//! Outputs of a worker about groups: the list of its own groups, the annotations of its records, totals for the summary.

use super::super::annotate::Annotations;
use super::super::groups::{GroupFacts, GroupList, GroupTotals};
use super::super::output::OutputFiles;
use super::super::sink::{Complete, Sink};
use super::super::sorted_rows::{RowSorter, SortedRows};
use super::super::spec::OutputTarget;
use super::super::spill::ScratchFile;
use super::super::turns::lock;
use super::bench::{Bench, ReadState};
use super::claims::{drops_by_kept, sort_bytes};
use super::group_file::GroupReader;
use super::part_names::{KeptElsewhere, RecordNames};
use crate::error::{Context, Result, bail};
use std::sync::Arc;
use umbel_dedup_engine::job::WriteOrder;
use umbel_dedup_engine::{KeptGroup, WorkerId};

/// The groups that this worker knows, in the order of kept records: those of one owner, or all.
fn groups(bench: &Bench, of: Option<WorkerId>) -> Result<GroupReader<'_>> {
    let good_bytes = lock(&bench.journal_state).group_bytes.context("groups were not counted")?;
    GroupReader::new(&bench.groups, good_bytes, of)
}

fn own(bench: &Bench) -> Option<WorkerId> {
    Some(WorkerId(bench.member.worker))
}

/// Writes the list of the groups whose kept record is this worker's.
pub(super) fn write_list(
    bench: &Bench,
    state: &ReadState,
    order: &WriteOrder,
    sink: Sink,
) -> Result<Complete> {
    let names = RecordNames::of_own(bench, state, order)?;
    let mut list = GroupList::new(&names, sink);
    let mut groups = groups(bench, own(bench))?;
    while let Some(group) = groups.next()? {
        list.add(group.kept, group.size)?;
    }
    list.complete()
}

/// The totals of this worker's groups for the summary.
pub(super) fn totals(bench: &Bench, state: &ReadState) -> Result<GroupTotals> {
    let mut facts = GroupFacts::default();
    let mut groups = groups(bench, own(bench))?;
    while let Some(group) = groups.next()? {
        facts.add(group.kept, group.size);
    }
    let totals = facts.totals();
    if !bench.spec.has_parts() {
        return Ok(totals);
    }
    totals.with_parts(|kept| bench.own_part(state, kept))
}

/// Writes the annotations of this worker's records: into one file per source, or all into one sink.
pub(super) struct Annotating<'a> {
    bench: &'a Bench,
    state: &'a ReadState,
    order: &'a WriteOrder,
    members: SortedRows<3>,
    elsewhere: KeptElsewhere,
}

impl<'a> Annotating<'a> {
    /// Finds the group of each record.
    pub(super) fn new(
        bench: &'a Bench,
        state: &'a ReadState,
        order: &'a WriteOrder,
    ) -> Result<Self> {
        let members = members(bench, state)?;
        let elsewhere = KeptElsewhere::gather(bench, state)?;
        Ok(Self { bench, state, order, members, elsewhere })
    }

    /// Writes them into one sink.
    pub(super) fn stream(&self, sink: Sink) -> Result<Complete> {
        self.annotations(|annotations| annotations.stream(sink))
    }

    /// Writes one file per source.
    pub(super) fn directory(&self, output_files: &dyn OutputFiles) -> Result<()> {
        let OutputTarget::Directory(root) = &self.bench.spec.output else {
            bail!("annotations of each input need a directory")
        };
        self.annotations(|annotations| annotations.directory(root, output_files))
    }

    fn annotations<T>(&self, write: impl FnOnce(&Annotations<'_>) -> Result<T>) -> Result<T> {
        let Self { bench, state, order, members, elsewhere } = self;
        let names = &RecordNames::new(bench, state, order, elsewhere)?;
        let job = bench.job(state.reading);
        let first_chunk = state.reading.chunk_base;
        write(&Annotations { job: &job, facts: &state.facts, names, first_chunk, members })
    }
}

/// This worker's records that are in groups, each with the kept record and the size, in input order.
fn members(bench: &Bench, state: &ReadState) -> Result<SortedRows<3>> {
    let of_kept = |group: &KeptGroup| {
        let kept = group.kept.to_bits();
        bench.own_record(state, group.kept).is_ok().then_some([kept, kept, group.size])
    };
    let of_dropped = |group: &KeptGroup, dropped| Some([dropped, group.kept.to_bits(), group.size]);
    group_rows(bench, state, of_kept, of_dropped)
}

/// A row of each kept record that this worker knows, and of each of its records that were dropped for one, sorted.
pub(super) fn group_rows(
    bench: &Bench,
    state: &ReadState,
    of_kept: impl Fn(&KeptGroup) -> Option<[u64; 3]>,
    of_dropped: impl Fn(&KeptGroup, u64) -> Option<[u64; 3]>,
) -> Result<SortedRows<3>> {
    let scratch = Arc::new(ScratchFile::new(bench.folder.path()));
    let mut rows = RowSorter::new(sort_bytes(bench, state), &scratch);
    let drops = drops_by_kept(bench, state)?;
    let mut drops = drops.read()?;
    let mut next = drops.next()?;
    let mut groups = groups(bench, None)?;
    while let Some(group) = groups.next()? {
        if let Some(row) = of_kept(&group) {
            rows.push(row)?;
        }
        while let Some([_, dropped]) = next.filter(|[of, _]| *of == group.kept.to_bits()) {
            if let Some(row) = of_dropped(&group, dropped) {
                rows.push(row)?;
            }
            next = drops.next()?;
        }
    }
    if next.is_some() {
        bail!("a record was dropped for one whose group nobody has counted: a bug of umbel");
    }
    rows.finish()
}
