//! A cluster's filters as references of a job, and as the target of its kept items.
//!
//! Kept items that a filter contains are dropped; the remaining ones may be added to a filter. Items are sent as bytes, in
//! batches, because the cluster hashes them under its own key. Each direction reads the input once more, since items are
//! not kept in memory.

use super::best::Ranker;
use super::chunk_facts::ChunkFacts;
use super::content::{Found, open_content};
use super::context::Job;
use super::drop_rows::{DropRow, DropRows, DropWriter};
use super::filter_address::{FilterAddress, SCHEME};
use super::observer::Unit;
use super::output::check_digest;
use super::progress::Bar;
use super::spec::JobSpec;
use super::spec_conflicts::{Conflict, conflicts};
use super::turns::{lock, run_tasks};
use crate::error::{Context, Result, bail, refuse};
use serde::{Deserialize, Serialize};
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use tokio::runtime::Runtime;
use umbel_client::{Filter, PackedBatch, ReadLevel};
use umbel_dedup_engine::{Rank, RecordId};
use umbel_files::UsageError;

/// Most items of a batch: a request of a few hundred kilobytes, which a node answers quickly.
const BATCH_ITEMS_MAX: usize = 4096;

/// A batch is complete once its items have this many bytes, which bounds memory if items are long.
const BATCH_BYTES_CUT: usize = 4 << 20;

/// Refuses filters of other clusters in a job of a cluster: otherwise a client could make a node connect to any address.
///
/// # Errors
///
/// Names the first such filter.
pub(crate) fn check_own(spec: &JobSpec) -> Result<(), UsageError> {
    let foreign = spec.online.iter().chain(&spec.add_to).find(|filter| filter.nodes.is_some());
    let Some(foreign) = foreign else { return Ok(()) };
    let filter = foreign.filter();
    Err(UsageError(format!(
        "{foreign}: a node connects to no address that a job names: write {SCHEME}/{filter} for a filter of the cluster \
         that does the job, or start workers with --peers"
    )))
}

/// A filter and the client that is connected to its cluster.
struct OnlineFilter {
    name: String,
    filter: Filter,
    rate: f64,
}

/// Counts of a filter's responses.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub(crate) struct FilterAnswers {
    /// Its address.
    pub(crate) name: String,
    /// Its rate of false positives before the queries.
    pub(crate) rate: f64,
    /// Kept items that it was queried for.
    pub(crate) asked: u64,
    /// How many of them it contains; they were dropped.
    pub(crate) dropped: u64,
}

/// A kept item.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct KeptItem {
    /// Its number in its chunk.
    pub(crate) number: u64,
    /// Its record's rank, if the job keeps the best and reports drops.
    pub(crate) rank: Rank,
}

/// Called for every batch of a chunk with the items that the filter contains, possibly none. An error ends
/// the queries.
pub(crate) type ReportKnown<'a> = dyn Fn(usize, &[KeptItem]) -> Result<()> + Sync + 'a;

/// The filters of a job.
pub(crate) struct Online {
    runtime: Runtime,
    references: Vec<OnlineFilter>,
    add_to: Option<OnlineFilter>,
}

impl Online {
    /// Checks that the job can use a cluster's filters, if it names any.
    ///
    /// # Errors
    ///
    /// A [`UsageError`] at exactness `bytes`, and if items of the job are not items of a filter.
    pub(crate) fn check(spec: &JobSpec) -> Result<()> {
        for conflict in conflicts(spec) {
            match conflict {
                Conflict::BytesWithFilter => refuse!(
                    "--exactness bytes compares items, and a filter holds none: leave one of the two out"
                ),
                Conflict::FilesWithFilter => {
                    refuse!("--granularity file: whole files are no items of a filter of a cluster")
                }
                Conflict::ScopeWithFilter => {
                    let (scope, text) =
                        (spec.scope.name(), "a filter of a cluster knows no scopes");
                    refuse!("--scope {scope}: {text}")
                }
                // On one machine they go together.
                Conflict::ScopeWithIndex => {}
            }
        }
        Ok(())
    }

    /// Connects to the filters of a job; `None` if there are none.
    ///
    /// # Errors
    ///
    /// A [`UsageError`] for a malformed address, and as [`Online::check`]; any other error names the filter
    /// that does not respond.
    pub(crate) fn connect(spec: &JobSpec) -> Result<Option<Self>> {
        Self::check(spec)?;
        if spec.online.is_empty() && spec.add_to.is_none() {
            return Ok(None);
        }
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .enable_all()
            .build()
            .context("cannot start threads")?;
        let open = |address: &FilterAddress| -> Result<OnlineFilter> {
            let name = address.to_string();
            let nodes = address.nodes.as_ref().or(spec.reach.own_cluster.as_ref()).ok_or_else(|| {
                let text = "names no node, and no cluster does this job: expected umbel://HOST[:PORT][,..]/FILTER";
                UsageError(format!("{name} {text}"))
            })?;
            let client = (spec.reach.connect)(nodes)
                .map_err(|error| UsageError(format!("{name}: {error}")))?;
            let info = runtime.block_on(client.info(address.filter()));
            let rate = info.with_context(|| name.clone())?.false_positive_rate_now;
            Ok(OnlineFilter { name, filter: client.filter(address.filter()), rate })
        };
        let references = spec.online.iter().map(open).collect::<Result<_>>()?;
        let add_to = spec.add_to.as_ref().map(open).transpose()?;
        Ok(Some(Self { runtime, references, add_to }))
    }

    /// Drops the kept items that the filters contain, and adds them to the other drops.
    ///
    /// # Errors
    ///
    /// A filter does not respond, or an input has changed.
    pub(crate) fn drop_known(
        &self,
        job: &Job<'_>,
        facts: &[ChunkFacts],
        dropped: Option<&DropRows>,
    ) -> Result<Vec<FilterAnswers>> {
        let writer = Mutex::new(dropped.map(DropRows::writer));
        let report_known = |chunk: usize, known: &[KeptItem]| {
            let mut writer = lock(&writer);
            let Some(writer) = &mut *writer else { return Ok(()) };
            let chunk = u32::try_from(chunk).expect("chunk numbers have 24 bits");
            known.iter().try_for_each(|&KeptItem { number, rank }| {
                let record_id = RecordId::new(chunk, number);
                writer.append(DropRow { record_id, kept: record_id, rank })
            })
        };
        let asked = self.query(job, facts, &report_known)?;
        let writer = writer.into_inner().expect("no thread has panicked");
        writer.map_or(Ok(()), DropWriter::finish)?;
        Ok(asked)
    }

    /// Marks the kept items that the filters contain as dropped, and reports them to `report_known`.
    ///
    /// # Errors
    ///
    /// A filter does not respond, or an input has changed; errors of `report_known`.
    pub(crate) fn query(
        &self,
        job: &Job<'_>,
        facts: &[ChunkFacts],
        report_known: &ReportKnown<'_>,
    ) -> Result<Vec<FilterAnswers>> {
        // One filter after the other: items that one contains are not sent to the next.
        let query = |reference| self.query_filter(job, facts, report_known, reference);
        self.references.iter().map(query).collect()
    }

    fn query_filter(
        &self,
        job: &Job<'_>,
        facts: &[ChunkFacts],
        report_known: &ReportKnown<'_>,
        reference: &OnlineFilter,
    ) -> Result<FilterAnswers> {
        let OnlineFilter { name, filter, rate } = reference;
        let (asked, present) = (AtomicU64::new(0), AtomicU64::new(0));
        let bar = Bar::new(job.observer, "ask", job.input_bytes(), Unit::Bytes);
        let is_ranked = job.shape.ranks_entries() && job.spec.reports_kept();
        let work = |(): &mut (), chunk: usize| {
            bar.add(job.chunks[chunk].bytes)?;
            let source = &job.sources[job.chunks[chunk].source];
            let ranker = if is_ranked { job.ranker(source)? } else { None };
            in_batches(job, facts, chunk, ranker, &mut |batch, items| {
                let answers = filter.contains_packed(batch, ReadLevel::Unspecified);
                let answers = self.runtime.block_on(answers).with_context(|| name.clone())?;
                asked.fetch_add(items.len() as u64, Ordering::Relaxed);
                let known = items.iter().zip(answers.iter()).filter(|(_, is_known)| *is_known);
                let known: Vec<KeptItem> = known.map(|(item, _)| *item).collect();
                present.fetch_add(known.len() as u64, Ordering::Relaxed);
                known.iter().for_each(|item| facts[chunk].dropped.set(item.number));
                report_known(chunk, &known)
            })
        };
        run_tasks(job.threads, job.chunks.len(), || Ok(()), work, Ok)?;
        let (asked, dropped) = (asked.into_inner(), present.into_inner());
        Ok(FilterAnswers { name: name.clone(), rate: *rate, asked, dropped })
    }

    /// Inserts the kept items into the filter that the job adds to; idempotent. Calls `go_on` before each
    /// batch.
    ///
    /// # Errors
    ///
    /// The filter does not respond, or an input has changed; errors of `go_on`.
    pub(crate) fn add(
        &self,
        job: &Job<'_>,
        facts: &[ChunkFacts],
        go_on: &(dyn Fn() -> Result<()> + Sync),
    ) -> Result<()> {
        let Some(OnlineFilter { name, filter, .. }) = &self.add_to else { return Ok(()) };
        let bar = Bar::new(job.observer, "add", job.input_bytes(), Unit::Bytes);
        let work = |(): &mut (), chunk: usize| {
            bar.add(job.chunks[chunk].bytes)?;
            in_batches(job, facts, chunk, None, &mut |batch, _| {
                go_on()?;
                self.runtime.block_on(filter.insert_packed(batch))?;
                Ok(())
            })
        };
        run_tasks(job.threads, job.chunks.len(), || Ok(()), work, Ok).with_context(|| {
            format!(
                "{name}: not all kept items were added; the outputs are complete, and a job over them with --add-to, \
                 without --reference, adds them"
            )
        })
    }
}

/// Calls `take` with the kept items of a chunk, batch by batch.
fn in_batches(
    job: &Job<'_>,
    facts: &[ChunkFacts],
    index: usize,
    ranker: Option<Ranker>,
    take: &mut dyn FnMut(PackedBatch, &[KeptItem]) -> Result<()>,
) -> Result<()> {
    let (chunk, facts) = (job.chunks[index], &facts[index]);
    let source = &job.sources[chunk.source];
    let mut content = open_content(source, chunk, job.spec, job.hasher_of(source), ranker)?;
    let is_kept = |number| number < facts.id_count && !facts.dropped.get(number);
    let mut batch = PackedBatch::new();
    let mut items = Vec::new();
    // A damaged end was reported by the first reading; the digest shows whether the content is the same.
    while let Ok(true) = content.read() {
        content.hand_out(&is_kept, &mut |position, found| {
            let number = position.number;
            let Found::Item(item, rank) = found else { return Ok(true) };
            if !is_kept(number) {
                return Ok(true);
            }
            if let Err(error) = batch.push(item) {
                bail!("{}: item {}: {error}", source.name, number + 1);
            }
            items.push(KeptItem { number, rank });
            if batch.len() >= BATCH_ITEMS_MAX || batch.data_bytes() >= BATCH_BYTES_CUT {
                take(batch.take(), &items)?;
                items.clear();
            }
            Ok(true)
        })?;
    }
    if !items.is_empty() {
        take(batch, &items)?;
    }
    check_digest(source, content.digest(), facts)
}
