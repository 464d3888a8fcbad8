//! `--plan`: prints the estimates of what a job will need.

use crate::units::{count, size};
use std::fmt::Write as _;
use umbel_dedup::{JobPlan, JobSpec};
use umbel_dedup_engine::{Mode, ReferenceShape};

/// The estimates as text.
pub(super) fn text(spec: &JobSpec, plan: &JobPlan) -> String {
    let mut text = String::new();
    let mut row = |name: &str, value: String| {
        let _ = writeln!(text, "{name:<12} {value}");
    };
    let JobPlan { records, workers, .. } = *plan;
    let bytes = |bytes: u64| size(bytes as f64);
    row(
        "input",
        format!(
            "{} file(s), {} stored, about {} of content",
            plan.files,
            bytes(plan.stored_bytes),
            bytes(plan.content_bytes)
        ),
    );
    row("records", format!("about {}", count(records as f64)));
    let (threads, cells) = (plan.threads, plan.cells);
    row("workers", format!("{workers} on {threads} threads, {cells} hash ranges"));
    let [allowed, held, spilt] =
        [spec.memory_bytes, plan.resident_bytes, plan.scratch_bytes].map(bytes);
    row("memory", format!("{allowed} allowed, about {held} for entries"));
    row("scratch", format!("about {spilt} in {}", spec.scratch.display()));
    if let Some(ReferenceShape { entries, bits }) = plan.references {
        row("references", format!("{} hashes of {} bits", count(entries as f64), bits.get()));
    }
    let compare = if plan.compares_bytes { ", read again and compare" } else { "" };
    row("phases", format!("read and hash, exchange and settle{compare}, read again and write"));
    if !plan.exchange.is_empty() {
        row("exchange", "shared entries -> how, expected bits an entry and bytes in all,".into());
        row("", format!("of which one part in {workers} stays on its own machine"));
    }
    for (delta, cost) in &plan.exchange {
        let how = match cost.mode {
            Mode::FullHash | Mode::Local => "whole hashes".to_owned(),
            Mode::Filter if cost.refine_bits == 0 => "filter".to_owned(),
            Mode::Filter => format!("filter + {} refinement bits", cost.refine_bits),
        };
        let (percent, bits) = (100.0 * delta, cost.bits_per_entry);
        let bytes = size(bits * records as f64 / 8.0);
        row("", format!("{percent:>5.1} % -> {how}, {bits:.1} bits an entry, {bytes}"));
    }
    if !plan.group_bits.is_empty() {
        row("groups", "shared entries -> on many machines so much more, to count them".into());
    }
    for (delta, bits) in &plan.group_bits {
        let (percent, bytes) = (100.0 * delta, size(bits * records as f64 / 8.0));
        row("", format!("{percent:>5.1} % -> {bits:.2} bits an entry, {bytes}"));
    }
    text
}
