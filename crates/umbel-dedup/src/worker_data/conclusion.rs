//! The end of a job over many machines, at its coordinator: combines the parts of all workers into the
//! summary.

use super::super::bad::BadCounts;
use super::super::chunk_facts::FactTotals;
use super::super::commit::Commit;
use super::super::destinations::upload_to;
use super::super::exchange::Outcome;
use super::super::groups::{GroupFacts, GroupTotals};
use super::super::local_pass::LocalTimes;
use super::super::online::FilterAnswers;
use super::super::output::OutputTimes;
use super::super::sink::{Sink, path_aside};
use super::super::summary::{DroppedItems, Facts, Summary};
use super::bench::Bench;
use super::catalogue::Catalogues;
use super::journal_records::JournaledReading;
use super::part_names::ReportedNames;
use super::repeats;
use super::times::Part;
use crate::error::{Context, Result};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;
use umbel_dedup_engine::job::JobResult;
use umbel_files::Likeness;
use umbel_files::PartialFile;
use umbel_records::Compression;

/// Writes the summary and, if one is wanted, the page, durably; returns the summary in one line.
pub(super) fn conclude(
    bench: &Bench,
    result: &JobResult,
    draw: impl FnOnce(&Value) -> String,
) -> Result<Vec<u8>> {
    let parts: Vec<Part> = result
        .written
        .iter()
        .enumerate()
        .map(|(worker, written)| {
            serde_json::from_slice(&written.detail)
                .with_context(|| format!("the part of worker {worker} in the summary"))
        })
        .collect::<Result<_>>()?;
    let summary = summary(bench, result, &parts)?;
    if let Some(path) = &bench.spec.page {
        write_last(bench, path, &draw(summary.value()))?;
    }
    if let Some(path) = &bench.spec.summary {
        write_last(bench, path, &summary.json()?)?;
    }
    summary.line()
}

/// Writes an output of the coordinator durably; a restarted process may write it again.
fn write_last(bench: &Bench, path: &Path, text: &str) -> Result<()> {
    let member = &bench.member;
    let writer = format!("umbel-{:016x}-{}", member.job, member.worker);
    let compression = Compression::of_name(path);
    // An object with the job's mark was written by an earlier process of this job.
    let mut sink = match upload_to(&bench.spec, path)? {
        Some(upload) => Sink::object(path, compression, upload.with_mark(writer))?,
        None => {
            let like = std::fs::metadata(path).ok().and_then(|there| Likeness::of(&there));
            let create = |path: &Path, mode| PartialFile::again(path_aside(path, &writer), mode);
            Sink::file_aside(path, compression, like, true, create)?
        }
    };
    sink.write(text.as_bytes())?;
    // The worker's own end follows, which an interrupt may still come before.
    Commit { outputs: vec![sink.complete()?], goes_on: true, ..Commit::default() }.carry_out()
}

/// The files of all workers, if the job names records or files.
fn catalogues(result: &JobResult, parts: &[Part]) -> Result<Option<Catalogues>> {
    if parts.iter().all(|part| part.groups.is_none()) {
        return Ok(None);
    }
    let chunk_bases: Vec<u32> = parts.iter().map(|part| part.chunk_base).collect();
    let catalogues: Vec<Vec<u8>> =
        result.counts.iter().map(|counts| counts.catalogue.clone()).collect();
    Catalogues::decode(&chunk_bases, &catalogues).map(Some)
}

/// The groups of all workers, for the summary.
fn groups(catalogues: &Catalogues, parts: &[Part]) -> Result<(Value, Value)> {
    let mut all = GroupFacts::default();
    parts.iter().filter_map(|part| part.groups.as_ref()).for_each(|totals| all.add_totals(totals));
    let totals = parts.iter().filter_map(|part| part.groups.as_ref());
    let totals = totals.flat_map(GroupTotals::parts).collect();
    all.json(&ReportedNames::new(catalogues, totals))
}

/// The responses of filters to all workers: sums of counts, the name that the first worker uses, and the
/// largest rate.
fn asked(parts: &[Part]) -> Vec<FilterAnswers> {
    let mut sums: Vec<FilterAnswers> =
        parts.first().map(|part| part.asked.clone()).unwrap_or_default();
    for part in parts.iter().skip(1) {
        for (sum, asked) in sums.iter_mut().zip(&part.asked) {
            sum.rate = sum.rate.max(asked.rate);
            sum.asked = sum.asked.saturating_add(asked.asked);
            sum.dropped = sum.dropped.saturating_add(asked.dropped);
        }
    }
    sums
}

fn summary(bench: &Bench, result: &JobResult, parts: &[Part]) -> Result<Summary> {
    let shape = result.plan.shape;
    let reading = JournaledReading {
        workers: shape.workers,
        cells_per_owner: shape.cells_per_owner,
        chunk_base: 0,
    };
    let job = bench.job(reading);
    let exchange =
        Outcome { plan: result.plan, report: result.report, exchange_time: Duration::ZERO };
    let sum = |part: fn(&Part) -> u64| parts.iter().map(part).fold(0, u64::saturating_add);
    let known = sum(|part| part.reference_drops);
    let dropped = result.written.iter().map(|written| written.dropped);
    let dropped = dropped.fold(0, u64::saturating_add);
    let catalogues = catalogues(result, parts)?;
    let files = match &catalogues {
        Some(catalogues) => repeats::sections(catalogues, result, parts)?,
        None => None,
    };
    let facts = Facts {
        job: &job,
        totals: FactTotals {
            items: result.counts.iter().map(|counts| counts.items).sum(),
            records: result.counts.iter().map(|counts| counts.records).sum(),
            exempt: sum(|part| part.exempt),
            left_out: sum(|part| part.left_out),
            early_drops: sum(|part| part.early_drops),
        },
        dropped: DroppedItems { input: dropped.saturating_sub(known), reference: known },
        exchange: &exchange,
        written: None,
        asked: &asked(parts),
        bad: &BadCounts::default(),
        groups: catalogues.as_ref().map(|names| groups(names, parts)).transpose()?,
        files,
        phases: &[],
        wall: bench.clocks.0.elapsed(),
        cpu_s: parts.iter().map(|part| part.cpu_s).sum(),
        local_times: LocalTimes::default(),
        output_times: OutputTimes::default(),
        scratch_bytes: 0,
    };
    let mut summary = Summary::new(&facts);
    let inputs: Vec<&String> = parts.iter().flat_map(|part| &part.inputs).collect();
    summary.set("/spec/inputs", json!(inputs));
    let causes = added(parts.iter().map(|part| &part.bad_by_cause), |sum, part| sum + part);
    summary.set("/bad/total", causes.values().sum::<u64>());
    summary.set("/bad/by_cause", json!(causes));
    let each = |part: fn(&Part) -> u64| Value::from(parts.iter().map(part).collect::<Vec<u64>>());
    summary.set("/run/rss_bytes_max", each(|part| part.rss_bytes_max));
    summary.set("/run/scratch_bytes_max", each(|part| part.scratch_bytes_max));
    summary.set("/run/threads", sum(|part| part.threads as u64));
    summary.set("/run/resumed", sum(|part| part.resumed));
    summary.set("/run/attempts", result.attempts);
    // Workers do each phase at the same time: its time is that of the slowest one.
    summary.set(
        "/run/phase_wall_s",
        json!(added(parts.iter().map(|part| &part.phase_wall_s), f64::max)),
    );
    let thread_s = added(parts.iter().map(|part| &part.thread_s), |sum, part| sum + part);
    summary.set("/run/thread_s", json!(thread_s));
    Ok(summary)
}

/// Adds up tables of workers.
fn added<'a, Number: Copy + 'a>(
    tables: impl Iterator<Item = &'a BTreeMap<String, Number>>,
    add: fn(Number, Number) -> Number,
) -> BTreeMap<String, Number> {
    let mut all: BTreeMap<String, Number> = BTreeMap::new();
    for (name, number) in tables.flatten() {
        all.entry(name.clone()).and_modify(|sum| *sum = add(*sum, *number)).or_insert(*number);
    }
    all
}
