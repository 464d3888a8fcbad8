//! The cost of the exchange on the wire, measured on its frames and compared with the cost model.
//!
//! `exchange_table ENTRIES WORKERS...` prints a Markdown table with a row for each number of workers and each share of
//! duplicates.

mod drawn_job;

use drawn_job::{Job, plan_name, print_table};
use std::process::ExitCode;
use umbel_dedup_engine::FrameKind;

/// Shares of entries that two workers each have.
const DELTAS: [f64; 5] = [0.0, 0.006, 0.042, 0.17, 0.5];

fn row(job: &Job) -> String {
    let (plan, report) = job.run(|work| work());
    let n = report.entries as f64;
    let payload: u64 = FrameKind::ALL.into_iter().map(|kind| report.payload_bits(kind)).sum();
    let sample = report.payload_bits(FrameKind::Sample) as f64 / n;
    let total = payload as f64 / n;
    let forward = report.payload_bits(FrameKind::Positions) as f64;
    let model = job.model_bits(&plan, &report);
    let entropy = report.entropy_bits(FrameKind::Positions);
    let over = if entropy > 0.0 { format!("{:.3}", forward / entropy) } else { "–".into() };
    let mode = plan_name(&plan, n);
    format!(
        "| {} | {:.1e} | {:.1} % | {mode} | {:.2} | {over} | {total:.2} | {model:.2} | {:+.1} % | {:.2} | {:.2} |",
        job.shape.workers,
        n,
        100.0 * job.delta,
        forward / n,
        100.0 * ((total - sample) / model - 1.0),
        8.0 * report.header_bytes as f64 / n,
        report.network_bytes as f64 / n,
    )
}

fn main() -> ExitCode {
    let heading = [
        "| workers | entries | δ | plan | forward bits | × entropy | all bits | model | off | headers | network bytes |",
        "|--:|--:|--:|---|--:|--:|--:|--:|--:|--:|--:|",
    ];
    print_table("exchange_table ENTRIES WORKERS...", heading, |workers, entries| {
        DELTAS.map(|delta| row(&Job::new(workers, entries, delta)))
    })
}
