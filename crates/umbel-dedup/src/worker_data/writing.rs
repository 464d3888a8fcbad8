//! The outputs of a worker: written under temporary names, journaled, and renamed at the commit.
//!
//! A temporary name is determined by job and worker, so a restarted process finds what an earlier one has written.

use super::super::addresses::is_object;
use super::super::bad::{BadCounts, BadLine};
use super::super::chunk_facts::{ChunkFacts, FactTotals};
use super::super::lost_rest::check_rest;
use super::super::object_inputs::{OPENING_THREADS, ObjectStores, each_of};
use super::super::observer::Unit;
use super::super::output::{OutputFiles, OutputTimes, directory, stream};
use super::super::outputs::{BAD_LIST_NAME, replaces_bad_list, write_bad, write_bad_lines};
use super::super::progress::Bar;
use super::super::report::records_before;
use super::super::save_index;
use super::super::sink::{Complete, Kept, Sink};
use super::super::spec::OutputTarget;
use super::super::spill::ScratchFile;
use super::super::turns::lock;
use super::super::unchanged::check_unchanged;
use super::bench::{Bench, ReadState};
use super::filters;
use super::folder::sync_folder;
use super::group_reports::{self, Annotating};
use super::journal_records::{JournalRecord, JournalState, JournaledAside, JournaledOutput};
use super::placing::{aside, check_others, folder_for, put_in_place};
use super::repeats;
use super::report;
use super::times::Part;
use super::uploads;
use crate::clock::{Stopwatch, rss_bytes_max};
use crate::error::{Context, Result, bail};
use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::Mutex;
use std::time::Duration;
use umbel_dedup_engine::job::{WriteOrder, Written};
use umbel_files::folder_of;
use umbel_files::{Likeness, OutputFolder, Roots};
use umbel_records::Compression;

/// Outputs of a directory that are journaled in one record, because each record costs a sync.
const JOURNALED_OUTPUTS: usize = 64;

/// A sink for an output of this worker, whether or not its name exists: that is checked when it is put in place.
fn sink(
    bench: &Bench,
    path: &Path,
    compression: Compression,
    like: Option<Likeness>,
) -> Result<Sink> {
    bench.check_wanted()?;
    match uploads::begin(bench, path)? {
        Some(upload) => Sink::object(path, compression, upload),
        None => {
            let folder = folder_for(bench, path)?;
            let create = |path: &Path, mode| folder.create_again(aside(&bench.member, path), mode);
            if bench.spec.roots.is_none() {
                return Sink::file_aside(path, compression, like, true, create);
            }
            // A node does not write to its devices on behalf of others.
            let cannot = || format!("{}: cannot create", path.display());
            if folder.is_occupied(path).with_context(cannot)? {
                bail!("{}: neither a regular file nor a new one", path.display());
            }
            Sink::new_file(path, compression, like, true, create)
        }
    }
}

/// The permissions and owner that an output takes over from the file that it replaces.
fn likeness(bench: &Bench, path: &Path) -> Result<Option<Likeness>> {
    match bench.spec.roots {
        Some(_) if !is_object(path) => Ok(folder_for(bench, path)?.likeness(path)),
        _ => Ok(std::fs::metadata(path).ok().and_then(|metadata| Likeness::of(&metadata))),
    }
}

fn journaled_output(source: Option<usize>, complete: Complete) -> Result<Option<JournaledOutput>> {
    let Some((kept, path)) = complete.keep() else { return Ok(None) };
    let aside = match kept {
        Kept::Upload(upload) => JournaledAside::Upload(upload),
        Kept::File(aside) => {
            let cannot = || format!("{}: cannot read", aside.display());
            let bytes = std::fs::metadata(&aside).with_context(cannot)?.len();
            JournaledAside::File { path: aside, bytes }
        }
    };
    let source = source.map(|source| u32::try_from(source).expect("fewer sources than chunks"));
    Ok(Some(JournaledOutput { source, path, aside }))
}

/// The outputs that an earlier process has journaled and that still exist with the journaled length.
fn whole(bench: &Bench) -> Result<Vec<JournaledOutput>> {
    let journal_state = lock(&bench.journal_state).outputs.clone();
    let is_whole = |index: usize| match &journal_state[index].aside {
        JournaledAside::File { path, bytes } => {
            Ok(std::fs::metadata(path).is_ok_and(|metadata| metadata.len() == *bytes))
        }
        JournaledAside::Upload(_) => uploads::is_whole(&bench.spec, &journal_state[index]),
    };
    let are_whole = each_of(OPENING_THREADS, journal_state.len(), is_whole)?;
    let whole = journal_state.into_iter().zip(are_whole).filter(|(_, is_whole)| *is_whole);
    Ok(whole.map(|(output, _)| output).collect())
}

/// The files of an output directory, which are journaled as they are completed.
struct WorkerOutputFiles<'a> {
    bench: &'a Bench,
    done: BTreeSet<usize>,
    pending: Mutex<Vec<JournaledOutput>>,
}

impl WorkerOutputFiles<'_> {
    fn record(&self, pending: &mut Vec<JournaledOutput>) -> Result<()> {
        let outputs = std::mem::take(pending);
        // Temporary names must be durable before they are journaled.
        let folders: BTreeSet<&Path> =
            outputs.iter().filter_map(|o| o.aside.file()?.parent()).collect();
        folders.into_iter().try_for_each(sync_folder)?;
        lock(&self.bench.journal_state).outputs.extend(outputs.iter().cloned());
        self.bench.append_record(&JournalRecord::Outputs(outputs))
    }

    /// Journals the remaining outputs.
    fn complete(self) -> Result<()> {
        let mut pending = lock(&self.pending);
        self.record(&mut pending)
    }
}

impl OutputFiles for WorkerOutputFiles<'_> {
    fn has(&self, source: usize) -> bool {
        self.done.contains(&source)
    }

    fn sink(&self, source: usize, path: &Path, compression: Compression) -> Result<Sink> {
        sink(self.bench, path, compression, self.bench.sources[source].likeness())
    }

    fn add(&self, source: usize, complete: Complete) -> Result<()> {
        let mut pending = lock(&self.pending);
        // Records that nobody got must not enter an index or a filter.
        pending.extend(journaled_output(Some(source), complete.read_to_its_end()?)?);
        if pending.len() >= JOURNALED_OUTPUTS { self.record(&mut pending) } else { Ok(()) }
    }
}

/// Writes all outputs that an earlier process has not written.
pub(super) fn write(bench: &Bench, order: &WriteOrder) -> Result<Written> {
    let _alone = lock(&bench.outputs);
    if let Some(written) = &lock(&bench.journal_state).written {
        return Ok(written.clone());
    }
    uploads::abort_unfinished(&mut lock(&bench.journal_state), &bench.spec.stores);
    let state = bench.read_state()?;
    check_rest(&bench.job(state.reading), &state.facts)?;
    filters::query(bench, &state)?;
    let watch = Stopwatch::start();
    let times = Mutex::new(OutputTimes::default());
    if bench.spec.annotates {
        write_annotations(bench, &state, order)?;
    } else {
        write_records(bench, &state, &times)?;
    }
    if let Some(path) = &bench.spec.duplicates {
        write_one(bench, path, |sink| report::write(bench, &state, order, sink))?;
    }
    if let Some(path) = &bench.spec.groups {
        write_one(bench, path, |sink| group_reports::write_list(bench, &state, order, sink))?;
    }
    if let Some(index) = &bench.spec.save_index {
        let scratch = ScratchFile::new(bench.folder.path());
        let (facts, base) = (&state.facts[..], state.reading.chunk_base);
        let entries = |cell| {
            bench.check_wanted()?;
            Ok(state.cells.entries(cell)?.entries)
        };
        let job = bench.job(state.reading);
        let write =
            |sink| save_index::write(&job, (facts, base), &entries, index.bits, &scratch, sink);
        // Never compressed, because later jobs read it block by block.
        write_packed(bench, &index.path, Compression::Plain, write)?;
    }
    write_bad_list(bench, &state)?;
    let mut part_times = lock(&bench.times);
    (part_times.output, part_times.output_threads) = (watch.elapsed(), *lock(&times));
    drop(part_times);
    let written = written(bench, &state, order)?;
    // Before any worker is told to commit, because then none does.
    check_unchanged(&bench.sources)?;
    check_others(bench)?;
    bench.append_record(&JournalRecord::Written(written.clone()))?;
    lock(&bench.journal_state).written = Some(written.clone());
    Ok(written)
}

/// The output files of the directory, with those that an earlier process has written.
fn output_files(bench: &Bench) -> Result<WorkerOutputFiles<'_>> {
    let sources = whole(bench)?.into_iter().filter_map(|output| output.source);
    let done = sources.map(|source| source as usize).collect();
    Ok(WorkerOutputFiles { bench, done, pending: Mutex::default() })
}

fn write_records(bench: &Bench, state: &ReadState, times: &Mutex<OutputTimes>) -> Result<()> {
    let job = bench.job(state.reading);
    let bytes = bench.chunks.iter().map(|chunk| chunk.bytes).sum();
    let bar = Bar::new(&*bench.observer, "write", bytes, Unit::BytesWritten);
    match &bench.spec.output {
        OutputTarget::Directory(root) => {
            let output_files = output_files(bench)?;
            directory(&job, &state.facts, root, &output_files, times, &bar)?;
            output_files.complete()
        }
        OutputTarget::File(path) => {
            write_one(bench, path, |sink| stream(&job, &state.facts, sink, times, &bar))
        }
        OutputTarget::Stdout => {
            bail!("standard output cannot wait for the commit; name an --output")
        }
    }
}

fn write_annotations(bench: &Bench, state: &ReadState, order: &WriteOrder) -> Result<()> {
    let annotating = || Annotating::new(bench, state, order);
    match &bench.spec.output {
        OutputTarget::Directory(_) => {
            let output_files = output_files(bench)?;
            annotating()?.directory(&output_files)?;
            output_files.complete()
        }
        OutputTarget::File(path) => write_one(bench, path, |sink| annotating()?.stream(sink)),
        OutputTarget::Stdout => {
            bail!("standard output cannot wait for the commit; name a file for --annotate")
        }
    }
}

/// Writes one output under its temporary name, compressed as its name says, unless it is written already.
pub(super) fn write_one(
    bench: &Bench,
    path: &Path,
    write: impl FnOnce(Sink) -> Result<Complete>,
) -> Result<()> {
    write_packed(bench, path, Compression::of_name(path), write)
}

fn write_packed(
    bench: &Bench,
    path: &Path,
    compression: Compression,
    write: impl FnOnce(Sink) -> Result<Complete>,
) -> Result<()> {
    let is_journaled = lock(&bench.journal_state).outputs.iter().any(|output| output.path == path);
    if is_journaled && whole(bench)?.iter().any(|output| output.path == path) {
        return Ok(());
    }
    let like = likeness(bench, path)?;
    let complete = write(sink(bench, path, compression, like)?)?;
    let Some(output) = journaled_output(None, complete)? else { return Ok(()) };
    if let Some(aside) = output.aside.file() {
        sync_folder(folder_of(aside))?;
    }
    lock(&bench.journal_state).outputs.push(output.clone());
    bench.append_record(&JournalRecord::Outputs(vec![output]))
}

fn write_bad_list(bench: &Bench, state: &ReadState) -> Result<()> {
    let before = records_before(&bench.chunks, &state.facts);
    let total = BadCounts::of(state.facts.iter().map(|facts| &facts.bad)).total();
    if total == 0 && !replaces_bad_list(&bench.spec)? {
        return Ok(());
    }
    let chunks = bench.chunks.iter().zip(&state.facts).zip(before);
    let lines = chunks.flat_map(|((chunk, facts), before)| {
        let source = &bench.sources[chunk.source];
        facts.bad.records().iter().map(move |bad| BadLine::new(bad.again(), source, before))
    });
    let path = match (&bench.spec.bad, &bench.spec.output) {
        (Some(path), _) => path.clone(),
        (None, OutputTarget::Directory(root)) => root.join(BAD_LIST_NAME),
        (None, _) => {
            write_bad(&bench.spec, &*bench.observer, None, total, lines)?;
            return Ok(());
        }
    };
    write_one(bench, &path, |sink| write_bad_lines(sink, lines))
}

/// The report to the coordinator.
fn written(bench: &Bench, state: &ReadState, order: &WriteOrder) -> Result<Written> {
    let items = FactTotals::of(&state.facts).items;
    let gone: u64 = state.facts.iter().map(|facts| facts.dropped.count()).sum();
    let gone_otherwise = |facts: &ChunkFacts| facts.id_count - facts.items - facts.exempt;
    // Bad records, and those without a key, are also marked as dropped.
    let dropped = gone - state.facts.iter().map(gone_otherwise).sum::<u64>();
    let repeats =
        bench.spec.reports_files.then(|| repeats::totals(bench, state, order)).transpose()?;
    let part = Part { repeats, ..part(bench, state)? };
    let detail = serde_json::to_vec(&part).context("part of the summary")?;
    Ok(Written { kept: items - dropped, dropped, detail })
}

fn part(bench: &Bench, state: &ReadState) -> Result<Part> {
    let seconds = |time: Duration| (time.as_secs_f64() * 1e4).round() / 1e4;
    let times = lock(&bench.times);
    let (local, output) = (times.local_threads, times.output_threads);
    let since_read = bench.clocks.0.elapsed().saturating_sub(times.read_at);
    let exchange = since_read.saturating_sub(times.query).saturating_sub(times.output);
    let asked =
        lock(&bench.journal_state).asked.clone().map(|asked| asked.filters).unwrap_or_default();
    let phases = [
        ("open", times.open),
        ("local", times.local),
        ("exchange", exchange),
        ("ask", times.query),
        ("output", times.output),
    ];
    let asks = !asked.is_empty();
    let phases = phases.into_iter().filter(|(name, _)| *name != "ask" || asks);
    let threads = [
        ("read", local.read),
        ("hash", local.hash),
        ("partition", local.partition),
        ("pick", output.pick),
        ("write", output.write),
    ];
    let row = |(name, time): (&str, Duration)| (name.to_owned(), seconds(time));
    let totals = FactTotals::of(&state.facts);
    let bad = BadCounts::of(state.facts.iter().map(|facts| &facts.bad));
    let bad_by_cause = bad.by_cause().iter().map(|(cause, count)| (cause.to_string(), *count));
    let groups =
        bench.spec.reports_kept().then(|| group_reports::totals(bench, state)).transpose()?;
    Ok(Part {
        inputs: bench.spec.input_names(),
        bad_by_cause: bad_by_cause.collect(),
        exempt: totals.exempt,
        left_out: totals.left_out,
        early_drops: totals.early_drops,
        reference_drops: lock(&bench.decided_cells).reference_drops
            + asked.iter().map(|asked| asked.dropped).sum::<u64>(),
        asked,
        resumed: lock(&bench.journal_state).resumed,
        threads: bench.threads,
        rss_bytes_max: rss_bytes_max(),
        scratch_bytes_max: bench.scratch_bytes(),
        cpu_s: bench.clocks.1.seconds(),
        phase_wall_s: phases.map(row).collect(),
        thread_s: threads.into_iter().map(row).collect(),
        chunk_base: state.reading.chunk_base,
        groups,
        repeats: None,
    })
}

/// Renames all outputs to their names; leaves an output as it is that has its name already.
pub(super) fn commit(bench: &Bench) -> Result<()> {
    let _alone = lock(&bench.outputs);
    let mut journal_state = lock(&bench.journal_state);
    if !journal_state.committing {
        // Others may have written for long since this was checked. From here on, an output may have replaced its input.
        check_unchanged(&bench.sources)?;
        bench.append_record(&JournalRecord::Committing)?;
        journal_state.committing = true;
    }
    // An output may have been written twice, with equal content; the last record is valid.
    let last: BTreeMap<&Path, &JournaledOutput> =
        journal_state.outputs.iter().map(|output| (&*output.path, output)).collect();
    uploads::commit(&bench.spec, &last.values().copied().collect::<Vec<_>>())?;
    let mut folders: BTreeMap<&Path, OutputFolder> = BTreeMap::new();
    // In the order in which they were written first.
    for JournaledOutput { path, .. } in &journal_state.outputs {
        let JournaledAside::File { path: aside, bytes } = &last[&**path].aside else { continue };
        let folder = match folders.entry(folder_of(path)) {
            Entry::Occupied(open) => open.into_mut(),
            Entry::Vacant(new) => new.insert(folder_for(bench, path)?),
        };
        put_in_place(bench, folder, (aside, *bytes), path)?;
    }
    folders.into_iter().try_for_each(|(path, folder)| {
        folder.sync().with_context(|| format!("{}: cannot sync", path.display()))
    })
}

/// Removes outputs that will never be committed.
pub(super) fn forget(
    journal_state: &mut JournalState,
    stores: &ObjectStores,
    roots: Option<&Roots>,
) {
    if journal_state.committing {
        return;
    }
    uploads::abort_all(journal_state, stores);
    for aside in journal_state.outputs.iter().filter_map(|output| output.aside.file()) {
        let folder = OutputFolder::of(roots, aside);
        let _ = folder.map(|folder| folder.remove(aside));
    }
}
