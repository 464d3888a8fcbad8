//! Network bytes per record, compared with other ways to bring equal records together.
//!
//! `shuffle_table RECORDS WORKERS...` prints a Markdown table with a row for each number of workers and each share of
//! duplicates. A share x of the records are extra copies, each of a record that another worker has: δ, the share of
//! records with a copy elsewhere, is 2·x. Every row is measured twice, with the best filter and with full hashes; *plan*
//! is the one that is chosen.

mod drawn_job;

use drawn_job::{Job, plan_name, print_table};
use std::process::ExitCode;
use std::time::{Duration, Instant};
use umbel_dedup_engine::{ExchangeReport, FilterChoice, FrameKind, Mode, Plan};

/// Shares of records that are extra copies.
const COPIES: [f64; 6] = [0.0, 0.006, 0.042, 0.17, 0.3, 0.5];

/// Bytes per record of plain shuffles: a 64-bit hash; a 128-bit hash; hash and record id, packed; hexadecimal digest and
/// record id.
const PLAIN_BYTES: [f64; 4] = [8.0, 16.0, 14.0, 40.0];

/// A measured exchange.
struct Measured {
    plan: Plan,
    report: ExchangeReport,
    model_bits: f64,
    time: Duration,
}

impl Measured {
    #[expect(clippy::disallowed_methods, reason = "a stopwatch, in a benchmark")]
    fn new(job: &Job) -> Self {
        let mut time = Duration::ZERO;
        let (plan, report) = job.run(|work| {
            let start = Instant::now();
            work();
            time += start.elapsed();
        });
        let model_bits = job.model_bits(&plan, &report);
        Self { plan, report, model_bits, time }
    }

    fn network_bytes(&self) -> f64 {
        self.report.network_bytes as f64 / self.report.entries as f64
    }

    /// Entropy of positions and of the verdicts of filter passes, in bits per record.
    fn entropy_bits(&self) -> f64 {
        let kinds = [FrameKind::Positions, FrameKind::PositionsVerdict, FrameKind::RefineVerdict];
        kinds.into_iter().map(|kind| self.report.entropy_bits(kind)).sum::<f64>()
            / self.report.entries as f64
    }

    fn million_records_a_second(&self) -> f64 {
        self.report.entries as f64 / self.time.as_secs_f64() / 1e6
    }
}

fn row(workers: u32, records: u64, copies: f64) -> String {
    let mut job = Job::new(workers, records, 2.0 * copies);
    let chosen = Measured::new(&job);
    let takes_filter = chosen.plan.mode == Mode::Filter;
    job.choice = if takes_filter { FilterChoice::FullHash } else { FilterChoice::SingleShot };
    let other = Measured::new(&job);
    let (filter, whole) = if takes_filter { (&chosen, &other) } else { (&other, &chosen) };
    let others = 1.0 - 1.0 / f64::from(workers);
    let plain = PLAIN_BYTES.map(|bytes| format!("{:.1}", bytes * others)).join(" | ");
    format!(
        "| {workers} | {:.0e} | {:.1} % | {} | {:.2} | {:.2} | {:.2} | {:.2} | {:.2} | {:.2} | {plain} | {:.1} | {:.1} |",
        chosen.report.entries as f64,
        100.0 * copies,
        plan_name(&chosen.plan, chosen.report.entries as f64),
        chosen.network_bytes(),
        chosen.model_bits / 8.0 * others,
        filter.entropy_bits() / 8.0 * others,
        filter.network_bytes(),
        whole.network_bytes(),
        chosen.network_bytes() / whole.network_bytes(),
        filter.million_records_a_second(),
        whole.million_records_a_second(),
    )
}

fn main() -> ExitCode {
    let heading = [
        "| workers | records | copies | plan | bytes | model | entropy | filter | whole | ÷ whole | u64 | u128 | 14 B | 40 B | M/s filter | M/s whole |",
        "|--:|--:|--:|---|--:|--:|--:|--:|--:|--:|--:|--:|--:|--:|--:|--:|",
    ];
    print_table("shuffle_table RECORDS WORKERS...", heading, |workers, records| {
        COPIES.map(|copies| row(workers, records, copies))
    })
}
