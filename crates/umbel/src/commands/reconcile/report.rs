//! The report of a session: its result and its costs, for people and programs.

use super::page::page_of;
use crate::clock::{ProcessorTime, Stopwatch};
use crate::printer::Printer;
use crate::stderr::eprint_line;
use anyhow::Result;
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::path::Path;
use std::time::Duration;
use umbel_dedup::PageOutput;
use umbel_reconcile::{Ended, ItemSet, Shown};
use umbel_reconcile_engine::Item;

/// Measures the time of a command from its start.
pub(crate) struct Report {
    stopwatch: Stopwatch,
    processor: ProcessorTime,
}

impl Report {
    /// Starts to measure.
    pub(crate) fn start() -> Self {
        Self { stopwatch: Stopwatch::start(), processor: ProcessorTime::start() }
    }

    /// The report as JSON. `is_b`: whether this side is the B of the command. `changed`: how many records
    /// or files the sides have in different versions, if that is known and items have keys.
    pub(crate) fn json(&self, ended: &Ended, is_b: bool, changed: Option<u64>) -> Value {
        let outcome = &ended.outcome;
        let bytes = outcome.bytes;
        let (only_a, only_b) = a_and_b(is_b, outcome.only_here_count, outcome.only_there_count);
        let (items_a, items_b) = a_and_b(is_b, outcome.here_count, outcome.there_count);
        let wire = ended.wire_bytes();
        let total = outcome.sent_bytes + outcome.received_bytes;
        let ratio = match outcome.lower_bound_bytes {
            0 => Value::Null,
            bound => json!(total as f64 / bound as f64),
        };
        json!({
            "verified": outcome.verified,
            "items": { "a": items_a, "b": items_b },
            "difference": { "only_a": only_a, "only_b": only_b, "changed": changed },
            "applied": {
                "added": ended.change.added.len(),
                "replaced": ended.change.replaced.len(),
                "removed": ended.change.removed.len(),
                "conflicts": ended.change.conflict_count,
            },
            "plan": outcome.plan,
            "attempts": outcome.attempt_count,
            "rounds": outcome.round_count,
            "estimated_difference": outcome.estimated_count,
            "bytes_sent": wire.sent,
            "bytes_received": wire.received,
            "bytes_by_phase": {
                "hello": bytes.hello,
                "estimator": bytes.estimator,
                "filter": bytes.filter,
                "sketch": bytes.sketch,
                "list": bytes.list,
                "request": bytes.request,
                "items": bytes.items,
                "control": bytes.control,
                "contents": ended.behind.sent + ended.behind.received,
                "resume": ended.framing.sent + ended.framing.received,
            },
            "resumed": { "times": ended.resumed_count, "bytes_again": ended.again_bytes },
            "predicted_bytes": outcome.predicted_bytes,
            "lower_bound_bytes": outcome.lower_bound_bytes,
            "ratio": ratio,
            "wall_seconds": seconds(self.stopwatch.elapsed()),
            "cpu_seconds": self.processor.seconds(),
        })
    }

    /// The report in a few lines for people.
    pub(crate) fn text(&self, ended: &Ended, is_b: bool, changed: Option<u64>) -> String {
        let Ended { outcome, change, .. } = ended;
        let (only_a, only_b) = a_and_b(is_b, outcome.only_here_count, outcome.only_there_count);
        // A changed item counts as only in A in one version and as only in B in the other.
        let versions = match changed {
            None | Some(0) => String::new(),
            Some(count) => format!(" ({count} in two versions)"),
        };
        let (rounds, wire) = (outcome.round_count, ended.wire_bytes());
        let mut text = format!(
            "{only_a} only in A, {only_b} only in B{versions}; {} bytes sent, {} received in {rounds} {}, {:.2} s\n",
            wire.sent,
            wire.received,
            if rounds == 1 { "round" } else { "rounds" },
            self.stopwatch.elapsed().as_secs_f64(),
        );
        let (added, replaced) = (change.added.len(), change.replaced.len());
        let (removed, conflicts) = (change.removed.len(), change.conflict_count);
        if !change.is_empty() || conflicts > 0 {
            let noun = if conflicts == 1 { "conflict" } else { "conflicts" };
            text.push_str(&format!(
                "here: {added} added, {replaced} replaced, {removed} removed, {conflicts} {noun}\n"
            ));
        }
        text
    }
}

/// The files of a report. They are opened before the session, so that one that cannot be written is known
/// before a set is changed.
pub(super) struct ReportOutputs {
    json: Option<PageOutput>,
    page: Option<PageOutput>,
}

impl ReportOutputs {
    /// Opens those that are wanted.
    ///
    /// # Errors
    ///
    /// If one cannot be written; the error names the path.
    pub(super) fn open(json: Option<&Path>, page: Option<&Path>) -> Result<Self> {
        let open = |path: Option<&Path>, stands| {
            path.map(|path| PageOutput::opened(path, true, stands)).transpose()
        };
        Ok(Self {
            json: open(json, "the comparison is done and stands, but not its --report")?,
            page: open(page, "the comparison is done and stands, but not its --report-html")?,
        })
    }

    /// Writes the report to all of them.
    ///
    /// # Errors
    ///
    /// If one cannot be written; the error says that the comparison stands.
    pub(super) fn write(self, report: &Value) -> Result<()> {
        if let Some(json) = self.json {
            let mut text = serde_json::to_string_pretty(report)?;
            text.push('\n');
            json.write(&text)?;
        }
        if let Some(page) = self.page {
            page.write(&page_of(report))?;
        }
        Ok(())
    }
}

/// What a report says of A and of B, in this order. `is_b`: whether this side is B.
pub(super) const fn a_and_b(is_b: bool, here: u64, there: u64) -> (u64, u64) {
    if is_b { (there, here) } else { (here, there) }
}

/// Seconds as a report shows them: to the millisecond.
pub(super) fn seconds(duration: Duration) -> f64 {
    (duration.as_secs_f64() * 1000.0).round() / 1000.0
}

/// Counts the records or files that the sides have in different versions, in a difference that was listed
/// but not applied; None if items have no keys.
///
/// # Errors
///
/// If the set cannot be read.
pub(crate) fn count_changed(set: &dyn ItemSet, ended: &Ended) -> Result<Option<u64>> {
    let theirs = ended.only_there.iter().filter_map(|item| set.key(item.item.as_ref()?));
    let theirs: BTreeSet<&[u8]> = theirs.collect();
    let ours = set.items(&ended.only_here)?;
    let keys: Vec<&[u8]> = ours.iter().filter_map(|item| set.key(item)).collect();
    if keys.is_empty() && theirs.is_empty() {
        return Ok(None);
    }
    Ok(Some(keys.iter().filter(|key| theirs.contains(*key)).count() as u64))
}

/// Prints the difference to standard output, sorted by its text: `- ` before items only in A, `+ ` before
/// items only in B, `~ ` before the path of a changed file, `> ` before a file that has another name in B.
///
/// # Errors
///
/// If the set cannot be read, or the output cannot be written; a reader that closes it is no error.
pub(crate) fn show_difference(set: &dyn ItemSet, ended: &Ended, is_b: bool) -> Result<()> {
    let mut out = Printer::new();
    let ours = set.items(&ended.only_here)?;
    let theirs: Vec<Item> = ended.only_there.iter().filter_map(|item| item.item.clone()).collect();
    let line = |shown: Shown| match shown {
        Shown::OnlyHere(text) if is_b => (text, "+ ", None),
        Shown::OnlyHere(text) => (text, "- ", None),
        Shown::OnlyThere(text) if is_b => (text, "- ", None),
        Shown::OnlyThere(text) => (text, "+ ", None),
        Shown::Changed(text) => (text, "~ ", None),
        Shown::Renamed { here, there } if is_b => (there, "> ", Some(here)),
        Shown::Renamed { here, there } => (here, "> ", Some(there)),
    };
    let mut lines: Vec<_> = set.show(&ours, &theirs)?.into_iter().map(line).collect();
    lines.sort_unstable();
    for (text, sign, other) in lines {
        let mut whole = [sign.as_bytes(), &text].concat();
        if let Some(other) = other {
            whole.extend(b" => ");
            whole.extend(other);
        }
        whole.push(b'\n');
        out.write(&whole)?;
    }
    if ended.unlisted_count() > 0 {
        let side = if is_b { "B" } else { "A" };
        eprint_line(format_args!(
            "{} items that only {side} has are not shown, for hashes collided: run it again to see them",
            ended.unlisted_count()
        ));
    }
    out.flush()
}
