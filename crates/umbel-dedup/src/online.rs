//! Filters of a cluster beside a job: what they hold of the kept items is dropped, and what stays is told to one.
//!
//! Items travel as bytes, in batches: the cluster hashes them under a key of its own. Both ways read the input once
//! more, for items are not kept in memory.

use super::best::Ranker;
use super::chunk_facts::ChunkFacts;
use super::content::{Found, open_content};
use super::context::Job;
use super::drop_rows::{DropRow, DropRows, DropWriter};
use super::filter_address::{FilterAddress, SCHEME};
use super::observer::Unit;
use super::output::check_digest;
use super::progress::Bar;
use super::scope::Scope;
use super::spec::JobSpec;
use super::turns::{lock, run_tasks};
use crate::error::{Context, Result, bail, refuse};
use serde::{Deserialize, Serialize};
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use tokio::runtime::Runtime;
use umbel_client::{Filter, PackedBatch, ReadLevel};
use umbel_dedup_engine::{Level, Place, Rank};
use umbel_files::UsageError;
use umbel_records::Granularity;

/// Items of a batch: a request of some hundred kilobytes, which no node holds up for long.
const BATCH_ITEMS_MAX: usize = 4096;

/// A batch is sent once its items have this many bytes together, which bounds memory where items are long.
const BATCH_BYTES_CUT: usize = 4 << 20;

/// Refuses filters of other clusters beside a job of a cluster: whoever reaches a node could have it connect wherever
/// it can.
///
/// # Errors
///
/// Names the first one.
pub fn check_own(spec: &JobSpec) -> Result<(), UsageError> {
    let foreign = spec.online.iter().chain(&spec.add_to).find(|filter| filter.nodes.is_some());
    let Some(foreign) = foreign else { return Ok(()) };
    let filter = foreign.filter();
    Err(UsageError(format!(
        "{foreign}: a node connects to no address that a job names: write {SCHEME}/{filter} for a filter of the cluster \
         that does the job, or start workers with --peers"
    )))
}

/// A filter that has answered.
struct OnlineFilter {
    name: String,
    filter: Filter,
    rate: f64,
}

/// What came of asking a filter.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub(crate) struct Asked {
    /// Its address.
    pub(crate) name: String,
    /// Its rate of false answers before it was asked.
    pub(crate) rate: f64,
    /// Kept items that it was asked for.
    pub(crate) asked: u64,
    /// How many of them it holds; they were dropped.
    pub(crate) dropped: u64,
}

/// An item that would stay, by its place in its chunk.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct KeptItem {
    /// Where it is.
    pub(crate) place: u64,
    /// How its record ranks, where the best stays and drops are reported.
    pub(crate) rank: Rank,
}

/// Hears for every batch that was asked of a chunk which of its items the filter holds; perhaps none. An error ends the
/// asking.
pub(crate) type TellKnown<'a> = dyn Fn(usize, &[KeptItem]) -> Result<()> + Sync + 'a;

/// The filters of a job.
pub(crate) struct Online {
    runtime: Runtime,
    references: Vec<OnlineFilter>,
    add_to: Option<OnlineFilter>,
}

impl Online {
    /// Whether a job can have filters beside it, if it has any.
    ///
    /// # Errors
    ///
    /// A [`UsageError`] at level `bytes`, and for what is no item of a filter.
    pub(crate) fn check(spec: &JobSpec) -> Result<()> {
        if spec.online.is_empty() && spec.add_to.is_none() {
            return Ok(());
        }
        if spec.level == Level::Bytes && !spec.online.is_empty() {
            refuse!(
                "--exactness bytes compares items, and a filter holds none: leave one of the two out"
            );
        }
        if spec.granularity == Granularity::File {
            refuse!("--granularity file: whole files are no items of a filter of a cluster");
        }
        if spec.scope != Scope::Global {
            let (scope, text) = (spec.scope.name(), "a filter of a cluster knows no scopes");
            refuse!("--scope {scope}: {text}");
        }
        Ok(())
    }

    /// Asks the filters of a job how they are; `None` if there are none.
    ///
    /// # Errors
    ///
    /// A [`UsageError`] if an address is none, and as [`Online::check`]; else names the filter that does not answer.
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

    /// Drops the kept items that the references hold, and puts them beside the other drops.
    ///
    /// # Errors
    ///
    /// If a filter does not answer, or an input has changed.
    pub(crate) fn drop_known(
        &self,
        job: &Job<'_>,
        facts: &[ChunkFacts],
        dropped: Option<&DropRows>,
    ) -> Result<Vec<Asked>> {
        let writer = Mutex::new(dropped.map(DropRows::writer));
        let tell = |chunk: usize, known: &[KeptItem]| {
            let mut writer = lock(&writer);
            let Some(writer) = &mut *writer else { return Ok(()) };
            let chunk = u32::try_from(chunk).expect("chunk numbers have 24 bits");
            known.iter().try_for_each(|&KeptItem { place, rank }| {
                let place = Place::new(chunk, place);
                writer.append(DropRow { place, kept: place, rank })
            })
        };
        let asked = self.ask(job, facts, &tell)?;
        let writer = writer.into_inner().expect("no thread has panicked");
        writer.map_or(Ok(()), DropWriter::finish)?;
        Ok(asked)
    }

    /// Marks the kept items that the references hold as dropped, and tells of them.
    ///
    /// # Errors
    ///
    /// If a filter does not answer, or an input has changed; as `tell`.
    pub(crate) fn ask(
        &self,
        job: &Job<'_>,
        facts: &[ChunkFacts],
        tell: &TellKnown<'_>,
    ) -> Result<Vec<Asked>> {
        // One after the other: what one holds is not asked of the next.
        let ask = |reference| self.ask_one(job, facts, tell, reference);
        self.references.iter().map(ask).collect()
    }

    fn ask_one(
        &self,
        job: &Job<'_>,
        facts: &[ChunkFacts],
        tell: &TellKnown<'_>,
        reference: &OnlineFilter,
    ) -> Result<Asked> {
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
                known.iter().for_each(|item| facts[chunk].dropped.set(item.place));
                tell(chunk, &known)
            })
        };
        run_tasks(job.threads, job.chunks.len(), || Ok(()), work, Ok)?;
        let (asked, dropped) = (asked.into_inner(), present.into_inner());
        Ok(Asked { name: name.clone(), rate: *rate, asked, dropped })
    }

    /// Inserts the kept items where the job shall add them. Doing so again changes nothing. `go_on` is asked before each
    /// batch.
    ///
    /// # Errors
    ///
    /// If the filter does not answer, or an input has changed; as `go_on`.
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
            format!("{name}: not all kept items were added; the outputs are complete, and `umbel filter insert` adds them")
        })
    }
}

/// Hands out the items of a chunk's kept places, batch by batch, each with the items that it is of.
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
    let is_kept = |place| place < facts.places && !facts.dropped.get(place);
    let mut batch = PackedBatch::new();
    let mut items = Vec::new();
    // A damaged end was reported by the first reading; the digest tells whether the same was seen again.
    while let Ok(true) = content.read() {
        content.hand_out(&is_kept, &mut |spot, found| {
            let place = spot.place;
            let Found::Item(item, rank) = found else { return Ok(true) };
            if !is_kept(place) {
                return Ok(true);
            }
            if let Err(error) = batch.push(item) {
                bail!("{}: item {}: {error}", source.name, place + 1);
            }
            items.push(KeptItem { place, rank });
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
