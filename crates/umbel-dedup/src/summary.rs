//! The summary of a job, for programs.
//!
//! Field names are a public interface. Only `job`, `seed`, `plan`, `exchange` and `run` may differ between equal jobs.

use super::bad::BadCounts;
use super::chunk_facts::FactTotals;
use super::context::Job;
use super::exchange::Outcome;
use super::ledger_line::ledger_line;
use super::local_pass::LocalTimes;
use super::online::FilterAnswers;
use super::output::OutputTimes;
use super::spec::{EmptyItems, JobSpec, MissingKey, OutputTarget};
use crate::clock::rss_bytes_max;
use crate::error::{Context, Result};
use serde_json::{Value, json};
use std::time::Duration;
use umbel_dedup_engine::{Exactness, ExchangeReport, FrameKind, IndexBits, Mode, ReferenceShape};
use umbel_records::Granularity;

/// Numbers of dropped items.
#[derive(Clone, Copy, Debug)]
pub(crate) struct DroppedItems {
    /// Dropped as duplicates of items of the job.
    pub(crate) input: u64,
    /// Dropped because an index or a filter contains them.
    pub(crate) reference: u64,
}

impl DroppedItems {
    /// The numbers of a job in one process, which exchanges every cell once.
    pub(crate) fn of_one_process(
        early: u64,
        report: &ExchangeReport,
        asked: &[FilterAnswers],
    ) -> Self {
        let by_filters: u64 = asked.iter().map(|asked| asked.dropped).sum();
        Self {
            input: early + report.local_drops + report.cross_drops,
            reference: report.reference_drops + by_filters,
        }
    }
}

/// The facts that the summary is made from.
pub(crate) struct Facts<'a> {
    pub(crate) job: &'a Job<'a>,
    pub(crate) totals: FactTotals,
    /// Not taken from the counters of the exchange, in which cells that were exchanged twice count twice.
    pub(crate) dropped: DroppedItems,
    pub(crate) exchange: &'a Outcome,
    pub(crate) asked: &'a [FilterAnswers],
    pub(crate) bad: &'a BadCounts,
    /// The sections `groups` and `most_repeated`, if reports were wanted.
    pub(crate) groups: Option<(Value, Value)>,
    /// The sections `files` and `overlap`, if a page was wanted.
    pub(crate) files: Option<(Value, Value)>,
    /// How many records were written, if that depends on the sizes of groups.
    pub(crate) written: Option<u64>,
    pub(crate) phases: &'a [(&'static str, Duration)],
    pub(crate) wall: Duration,
    pub(crate) cpu_s: f64,
    pub(crate) local_times: LocalTimes,
    pub(crate) output_times: OutputTimes,
    pub(crate) scratch_bytes: u64,
}

/// The summary of a finished job.
pub struct Summary {
    value: Value,
}

impl Summary {
    /// Makes the summary.
    pub(crate) fn new(facts: &Facts<'_>) -> Self {
        let report = &facts.exchange.report;
        let DroppedItems { input: dropped, reference: known } = facts.dropped;
        let (groups, most_repeated) = facts.groups.clone().unwrap_or_default();
        let (files, overlap) = facts.files.clone().unwrap_or_default();
        let value = json!({
            "job": format!("{:#018x}", facts.job.id),
            "seed": format!("{:#018x}", facts.job.spec.seed),
            "spec": spec(facts.job.spec),
            "level": exactness_of_job(facts),
            "keep": facts.job.spec.keep_name(),
            "records": facts.totals.records,
            "items": facts.totals.items,
            "distinct": facts.totals.items.saturating_sub(dropped).saturating_sub(known),
            "exempt": facts.totals.exempt,
            "written": facts.written,
            "collisions": report.collisions,
            "dropped": { "input": dropped, "reference": known, "missing_key": facts.totals.left_out },
            "groups": groups,
            "most_repeated": most_repeated,
            "files": files,
            "overlap": overlap,
            "references": references(facts),
            "bad": { "total": facts.bad.total(), "by_cause": facts.bad.by_cause() },
            "plan": plan(facts),
            "exchange": exchange(facts),
            "run": run(facts),
        });
        Self { value }
    }

    /// Replaces a value.
    pub(crate) fn set(&mut self, pointer: &str, value: impl Into<Value>) {
        if let Some((parent, name)) = pointer.rsplit_once('/')
            && let Some(Value::Object(fields)) = self.value.pointer_mut(parent)
        {
            fields.insert(name.to_owned(), value.into());
        }
    }

    /// As JSON.
    pub(crate) fn json(&self) -> Result<String> {
        let mut text = serde_json::to_string_pretty(&self.value).context("summary")?;
        text.push('\n');
        Ok(text)
    }

    /// As JSON in one line for the ledger of a cluster, shortened if it is too long.
    pub(crate) fn line(&self) -> Result<Vec<u8>> {
        ledger_line(self.value.clone())
    }

    /// Its fields. Names are a public interface.
    pub fn value(&self) -> &Value {
        &self.value
    }
}

fn exactness_of_job(facts: &Facts<'_>) -> &'static str {
    let is_whole = |shape: ReferenceShape| shape.bits == IndexBits::Bits128;
    if !facts.asked.is_empty() || !facts.job.references.shape().is_none_or(is_whole) {
        return "approximate";
    }
    exactness_name(facts.job.shape.exactness)
}

/// The name of an exactness, without its rate. A public interface.
pub(crate) const fn exactness_name(exactness: Exactness) -> &'static str {
    match exactness {
        Exactness::Approximate { .. } => "approximate",
        Exactness::Fingerprint => "fingerprint",
        Exactness::Bytes => "bytes",
    }
}

/// The section about references; null without any.
fn references(facts: &Facts<'_>) -> Value {
    let references = facts.job.references;
    if references.shape().is_none() && facts.asked.is_empty() {
        return Value::Null;
    }
    let files = references.facts();
    let files: Vec<Value> = files
        .map(|(file, bits, items)| json!({ "file": file, "index_bits": bits, "items": items }))
        .collect();
    let wrongly = |asked: &FilterAnswers| asked.asked as f64 * asked.rate;
    let online = facts.asked.iter().map(|asked| {
        let FilterAnswers { name, rate, asked, dropped } = asked;
        json!({ "filter": name, "false_positive_rate": rate, "asked": asked, "dropped": dropped })
    });
    let online: Vec<Value> = online.collect();
    let wrong = references.expected_wrong_drops(facts.totals.items)
        + facts.asked.iter().map(wrongly).sum::<f64>();
    json!({ "files": files, "online": online, "expected_wrong_drops": wrong })
}

/// The options, with the memory of this process.
fn spec(spec: &JobSpec) -> Value {
    let mut value = options(spec);
    value["memory_bytes"] = spec.memory_bytes.into();
    value
}

/// The options of a job, as they are in its summary. Names are a public interface.
pub(crate) fn options(spec: &JobSpec) -> Value {
    let (granularity, keys) = match &spec.granularity {
        Granularity::Line => ("line", Vec::new()),
        Granularity::Record => ("record", Vec::new()),
        Granularity::Paragraph(field) => ("paragraph", vec![field.clone()]),
        Granularity::File => ("file", Vec::new()),
        Granularity::Key(paths) => ("key", paths.clone()),
    };
    let rate = match spec.exactness {
        Exactness::Approximate { false_positive_rate } => Some(false_positive_rate),
        _ => None,
    };
    let output = match &spec.output {
        OutputTarget::Stdout => Some("-".to_owned()),
        OutputTarget::Directory(_) if spec.in_place => None,
        OutputTarget::File(path) | OutputTarget::Directory(path) => {
            Some(path.display().to_string())
        }
    };
    json!({
        "inputs": spec.input_names(),
        "granularity": granularity,
        "key": keys,
        "paragraph_bytes_min": spec.paragraph_bytes_min,
        "normalise": spec.normalise.iter().map(|n| n.name()).collect::<Vec<_>>(),
        "scope": spec.scope.name(),
        "missing_key": match spec.missing_key {
            MissingKey::Fail => "fail",
            MissingKey::Keep => "keep",
            MissingKey::Drop => "drop",
        },
        "empty": match spec.empty {
            EmptyItems::Compare => "compare",
            EmptyItems::Keep => "keep",
        },
        "false_positive_rate": rate,
        "output": output,
        "annotates": spec.annotates,
    })
}

fn plan(facts: &Facts<'_>) -> Value {
    let plan = facts.exchange.plan;
    let report = &facts.exchange.report;
    let n = report.entries;
    let mode = match plan.mode {
        Mode::Local => "local",
        Mode::FullHash => "wide",
        Mode::Filter if plan.refine_bits > 0 => "refine",
        Mode::Filter => "one_pass",
    };
    json!({
        "mode": mode,
        "workers": plan.shape.workers,
        "segments": plan.shape.cells_per_owner,
        "n": n,
        "m": plan.position_count,
        "f": plan.position_count as f64 / n.max(1) as f64,
        "modulus_bits": if plan.mode == Mode::Filter { plan.modulus_bits() } else { 0 },
        "refine_bits": plan.refine_bits,
        "delta_estimate": (report.payload_bits(FrameKind::Sample) > 0).then_some(plan.delta_estimate),
        "delta": report.shared as f64 / n.max(1) as f64,
    })
}

fn exchange(facts: &Facts<'_>) -> Value {
    let report = &facts.exchange.report;
    let n = report.entries.max(1) as f64;
    let bits = |kind| report.payload_bits(kind) as f64 / n;
    let entropy = |kind| report.entropy_bits(kind) / n;
    json!({
        "bits_per_item": {
            "sample": bits(FrameKind::Sample),
            "filter": bits(FrameKind::Positions),
            "verdict1": bits(FrameKind::PositionsVerdict),
            "refine": bits(FrameKind::Refine),
            "verdict2": bits(FrameKind::RefineVerdict),
            "settle": bits(FrameKind::Residues),
            "verdict3": bits(FrameKind::ResiduesVerdict),
            "items": bits(FrameKind::Items),
            "verdict4": bits(FrameKind::ItemsVerdict),
            "claims": bits(FrameKind::Ask) + bits(FrameKind::Claims),
            "sizes": bits(FrameKind::Sizes),
            "headers": 8.0 * report.header_bytes as f64 / n,
        },
        "entropy_bits_per_item": {
            "filter": entropy(FrameKind::Positions),
            "verdict1": entropy(FrameKind::PositionsVerdict),
            "verdict2": entropy(FrameKind::RefineVerdict),
        },
        "predicted_bits_per_item": facts.exchange.plan.predicted_bits_per_entry,
        "local_duplicates": facts.totals.early_drops + report.local_drops,
        "candidates": report.candidates,
        "survivors": report.survivors,
        "network_bytes": report.network_bytes,
        "self_bytes": report.self_bytes,
        "frames": report.network_frames,
    })
}

fn run(facts: &Facts<'_>) -> Value {
    let seconds = |time: Duration| (time.as_secs_f64() * 1e4).round() / 1e4;
    let phases: serde_json::Map<String, Value> = facts
        .phases
        .iter()
        .map(|(name, time)| ((*name).to_owned(), seconds(*time).into()))
        .collect();
    let (local, output) = (facts.local_times, facts.output_times);
    json!({
        "wall_s": seconds(facts.wall),
        "cpu_s": (facts.cpu_s * 100.0).round() / 100.0,
        "threads": facts.job.threads,
        "rss_bytes_max": [rss_bytes_max()],
        "scratch_bytes_max": [facts.scratch_bytes],
        "resumed": 0,
        "phase_wall_s": phases,
        "thread_s": {
            "read": seconds(local.read),
            "hash": seconds(local.hash),
            "partition": seconds(local.partition),
            "settle": seconds(facts.exchange.exchange_time),
            "pick": seconds(output.pick),
            "write": seconds(output.write),
        },
    })
}
