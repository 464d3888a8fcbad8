//! Every structure, size and rate as one table: `target/bench/kernel.csv`, and Markdown on stdout.
//!
//! `cargo bench --bench tables -- [--quick] [--all] [--only NAME,…]`

use std::collections::BTreeMap;
use std::process::ExitCode;

use fastbloom::{AtomicBloomFilter, BloomFilter};
use umbel_filter::{
    Blocked, Classic, Counting, Cuckoo, DLeft, Lattice, Partitioned, Quotient, Scalable,
    SharedBlocked, StoredSingleShot, VariableCounting,
};
use umbel_kernel_benchmark::limit::{Lines, random_read, random_write};
use umbel_kernel_benchmark::measure::{Contestant, Facts, Sample, THREADS_MAX};
use umbel_kernel_benchmark::ours::blocked_lines;
use umbel_kernel_benchmark::peers;
use umbel_kernel_benchmark::static_files::StaticFilter;
use umbel_kernel_benchmark::structure::Case;
use umbel_kernel_benchmark::table::{LIMIT, Row, csv, markdown, median, save};
use umbel_kernel_benchmark::windows::{RingOfFilters, WindowOfSlices};
use umbel_kernel_benchmark::{bulk, limit};
use xorf::{BinaryFuse8, BinaryFuse16};

/// Sizes: in the second-level cache, beyond all caches, and beyond what pages of 4 KiB cover.
const ITEMS: [u64; 3] = [100_000, 10_000_000, 100_000_000];
const ITEMS_QUICK: [u64; 2] = [100_000, 1_000_000];

/// Target rates; the last one only with `--all`.
const RATES: [f64; 2] = [0.01, 0.001];
const RATES_ALL: [f64; 3] = [0.01, 0.001, 0.0001];

/// Random accesses a limit is measured with: at 10 ns each, a tenth of a second.
const LIMIT_ACCESSES: u64 = 10_000_000;

const FILE: &str = "kernel.csv";

fn contestants() -> Vec<Contestant> {
    vec![
        Contestant::of::<Blocked>(),
        Contestant::of::<SharedBlocked>(),
        Contestant::of::<Classic>(),
        Contestant::of::<Partitioned>(),
        Contestant::of::<Counting>(),
        Contestant::of::<Cuckoo>(),
        Contestant::of::<DLeft>(),
        Contestant::of::<VariableCounting>(),
        Contestant::of::<Lattice>(),
        Contestant::of::<Quotient>(),
        Contestant::of::<Scalable>(),
        Contestant::of::<StoredSingleShot>(),
        Contestant::of::<StaticFilter<0>>(),
        Contestant::of::<StaticFilter<8>>(),
        Contestant::of::<StaticFilter<16>>(),
        Contestant::of::<WindowOfSlices>(),
        Contestant::of::<RingOfFilters>(),
        Contestant::of::<BloomFilter>(),
        Contestant::of::<AtomicBloomFilter>(),
        Contestant::of::<sbbf_rs_safe::Filter>(),
        Contestant::of::<BinaryFuse8>(),
        Contestant::of::<BinaryFuse16>(),
        Contestant::of::<peers::Cuckoo>(),
        Contestant::of::<qfilter::Filter>(),
    ]
}

struct Options {
    is_quick: bool,
    is_all: bool,
    only: Option<Vec<String>>,
}

impl Options {
    /// Cargo adds `--bench`, which says nothing.
    fn parse(mut arguments: impl Iterator<Item = String>) -> Result<Self, String> {
        let mut options = Self { is_quick: false, is_all: false, only: None };
        while let Some(argument) = arguments.next() {
            match argument.as_str() {
                "--bench" => {}
                "--quick" => options.is_quick = true,
                "--all" => options.is_all = true,
                "--only" => {
                    let names = arguments.next().ok_or("--only: which structures?")?;
                    options.only = Some(names.split(',').map(str::to_owned).collect());
                }
                other => return Err(format!("{other}: expected --quick, --all or --only NAME,…")),
            }
        }
        Ok(options)
    }

    fn cases(&self) -> impl Iterator<Item = Case> {
        let sizes = if self.is_quick { &ITEMS_QUICK[..] } else { &ITEMS[..] };
        let rates = if self.is_all { &RATES_ALL[..] } else { &RATES[..] };
        sizes.iter().flat_map(move |&items| rates.iter().map(move |&rate| Case { items, rate }))
    }

    fn is_wanted(&self, contestant: &Contestant, case: Case) -> bool {
        let is_named =
            self.only.as_ref().is_none_or(|names| names.iter().any(|name| name == contestant.name));
        is_named && (contestant.suits)(case)
    }
}

fn main() -> ExitCode {
    let options = match Options::parse(std::env::args().skip(1)) {
        Ok(options) => options,
        Err(error) => {
            eprintln!("{error}");
            return ExitCode::FAILURE;
        }
    };
    let mut all = Vec::new();
    let mut false_negatives = 0;
    for case in options.cases() {
        let (rows, denied) = measure(&options, case);
        println!("{}", markdown(&rows));
        all.extend(rows);
        false_negatives += denied;
        // After each case, so that a run that is stopped leaves what it has.
        save(FILE, &csv(&all)).expect("target/bench can be written");
    }
    for rate in RATES {
        let rows = bulk::rows(rate);
        println!("{}", markdown(&rows));
        all.extend(rows);
    }
    save(FILE, &csv(&all)).expect("target/bench can be written");
    if false_negatives == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// All rounds of a case: its rows, and the number of inserted keys that somebody denied.
fn measure(options: &Options, case: Case) -> (Vec<Row>, u64) {
    let contestants: Vec<Contestant> =
        contestants().into_iter().filter(|it| options.is_wanted(it, case)).collect();
    let mut limits = Times::default();
    let mut times: Vec<Times> = contestants.iter().map(|_| Times::default()).collect();
    let mut facts: Vec<Option<Facts>> = vec![None; contestants.len()];
    for round in 0..round_count(case) {
        limits.add(&measure_limit(case));
        for (place, contestant) in contestants.iter().enumerate() {
            let (samples, found) = (contestant.round)(case, round == 0);
            times[place].add(&samples);
            facts[place] = facts[place].or(found);
        }
    }
    let mut rows: Vec<Row> =
        limits.medians().map(|sample| Row::new(LIMIT, case, sample, None)).collect();
    for row in &mut rows {
        row.bits_per_item =
            Some((8 * limit::LINE_BYTES * blocked_lines(case)) as f64 / case.items as f64);
    }
    let mut false_negatives = 0;
    for ((contestant, times), facts) in contestants.iter().zip(times).zip(facts) {
        rows.extend(times.medians().map(|it| Row::new(contestant.name, case, it, facts)));
        let denied = facts.map_or(0, |facts| facts.false_negatives);
        if denied > 0 {
            let Case { items, rate } = case;
            let name = contestant.name;
            eprintln!("{name} denies {denied} of {items} inserted keys at rate {rate}");
        }
        false_negatives += denied;
    }
    (rows, false_negatives)
}

/// Rounds of a case: as many as fit into some minutes.
fn round_count(case: Case) -> u32 {
    match case.items {
        0..=1_000_000 => 5,
        1_000_001..=10_000_000 => 3,
        _ => 2,
    }
}

fn measure_limit(case: Case) -> Vec<Sample> {
    let lines = Lines::new(blocked_lines(case));
    let sample = |operation, threads, nanoseconds| Sample { operation, threads, nanoseconds };
    (1..=THREADS_MAX)
        .flat_map(|threads| {
            let read = random_read(&lines, threads, LIMIT_ACCESSES);
            let write = random_write(&lines, threads, LIMIT_ACCESSES);
            [sample("random_line_read", threads, read), sample("random_line_write", threads, write)]
        })
        .collect()
}

/// Times of all rounds, by operation and threads.
#[derive(Default)]
struct Times(BTreeMap<(&'static str, u64), Vec<f64>>);

impl Times {
    fn add(&mut self, samples: &[Sample]) {
        for sample in samples {
            self.0.entry((sample.operation, sample.threads)).or_default().push(sample.nanoseconds);
        }
    }

    fn medians(self) -> impl Iterator<Item = Sample> {
        self.0.into_iter().map(|((operation, threads), values)| Sample {
            operation,
            threads,
            nanoseconds: median(values),
        })
    }
}
