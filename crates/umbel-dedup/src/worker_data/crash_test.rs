//! Whole jobs of several workers, driven by the test, with a crash after every step: the outputs equal those of one process,
//! and durable steps are not repeated.

use super::super::error::chain_text;
use super::super::observer::Unwatched;
use super::bench::Membership;
use super::fixture_test::{Fixture, WORKERS, wait};
use super::group_count_test;
use super::workshop::FileWorkshop;
use serde_json::Value;
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use umbel_dedup_engine::job::{
    Counts, JobResult, JobRules, ReadOrder, WriteOrder, Written, shape_for,
};
use umbel_dedup_engine::{
    CoordinatorInput, CoordinatorOutput, Exactness, ExchangeCoordinator, ExchangeInput,
    ExchangeOutput, ExchangeReport, FilterChoice, JobShape, Keep, Mailbox, Plan, Suspect, Worker,
    WorkerId,
};
use umbel_jobs::{Attempt, Workshop as _};
use umbel_step::Outbox;

/// The state of a job that the test drives.
struct Transport<'a> {
    fixture: &'a Fixture,
    rules: JobRules,
    directory: bool,
    shops: Vec<FileWorkshop>,
    /// What each worker has sent and found, from the counters.
    reports: Vec<ExchangeReport>,
    steps: u32,
    crash_at: u32,
}

impl Transport<'_> {
    /// The end of a step: at the step `crash_at`, all processes crash and are restarted.
    fn step(&mut self) {
        self.steps += 1;
        if self.steps == self.crash_at {
            self.shops.clear();
            let JobRules { exactness, keep, .. } = self.rules;
            self.shops = (0..WORKERS)
                .map(|worker| self.fixture.open(worker, exactness, keep, self.directory))
                .collect();
        }
    }

    fn read(&mut self) -> (JobShape, Vec<u32>, Vec<Counts>) {
        let forecasts: Vec<_> = self.shops.iter().map(|shop| shop.forecast().unwrap()).collect();
        let mut shape = shape_for(self.rules, &forecasts);
        shape.cells_per_owner = 2;
        let mut bases = vec![0];
        for forecast in &forecasts {
            bases.push(bases.last().unwrap() + forecast.chunks);
        }
        bases.pop();
        self.step();
        let mut counts = Vec::new();
        for (worker, &chunk_base) in bases.iter().enumerate() {
            let order = ReadOrder { shape, chunk_base };
            counts.push(wait(self.shops[worker].read(order)).unwrap());
            self.step();
        }
        (shape, bases, counts)
    }

    fn plan(&self, shape: JobShape, bases: &[u32], counts: &[Counts]) -> Plan {
        let mut coordinator = ExchangeCoordinator::new(shape, FilterChoice::Auto).unwrap();
        let mut outbox = Outbox::new();
        for (worker, counts) in (0u16..).zip(counts) {
            let chunks = self.shops[usize::from(worker)].forecast().unwrap().chunks;
            let counted = CoordinatorInput::Counted {
                worker: WorkerId(worker),
                items: counts.items,
                chunks_end: bases[usize::from(worker)] + chunks,
                chunk_items_max: counts.chunk_items_max,
            };
            coordinator.step(counted, &mut outbox).unwrap();
        }
        match outbox.take()[..] {
            [CoordinatorOutput::Plan(plan)] => plan,
            ref other => panic!("{other:?}"),
        }
    }

    /// Begins an attempt at each worker.
    fn attempts(&self) -> Vec<Arc<dyn Attempt>> {
        self.shops.iter().map(|shop| shop.begin_attempt().unwrap().attempt).collect()
    }

    /// Exchanges a cell, and seals it.
    fn exchange(&mut self, plan: Plan, cell: u32) {
        let workers = (0..WORKERS).map(|id| Worker::new(WorkerId(id), plan.shape, 77).unwrap());
        let mut mailbox = Mailbox::new(workers.collect());
        let mut suspects: BTreeMap<WorkerId, Vec<Suspect>> = BTreeMap::new();
        let attempts = self.attempts();
        for (id, attempt) in (0..WORKERS).zip(&attempts) {
            let (entries, ranks) = attempt.entries(cell).unwrap();
            mailbox.step(WorkerId(id), ExchangeInput::Plan(plan)).unwrap();
            mailbox.step(WorkerId(id), ExchangeInput::Cell { cell, entries, ranks }).unwrap();
        }
        loop {
            match mailbox.carry().unwrap() {
                Some((id, ExchangeOutput::Decided { cell, drops })) => {
                    attempts[id.index()].decide(cell, drops).unwrap();
                }
                Some((id, ExchangeOutput::Compare { suspects: found, .. })) => {
                    suspects.insert(id, found);
                }
                Some((_, other)) => panic!("{other:?}"),
                None if suspects.is_empty() => break,
                None => {
                    for (id, found) in std::mem::take(&mut suspects) {
                        let attempt = &attempts[id.index()];
                        attempt.suspect(cell, &found).unwrap();
                        let items = wait(attempt.fetch()).unwrap()(cell).unwrap();
                        mailbox.step(id, ExchangeInput::Items { cell, items }).unwrap();
                    }
                }
            }
        }
        let workers = mailbox.workers();
        for ((attempt, worker), report) in attempts.iter().zip(workers).zip(&mut self.reports) {
            *report += worker.report();
            attempt.seal(report).unwrap();
        }
    }

    /// Runs the job; true if the crash has happened.
    fn run(mut self) -> bool {
        let (shape, bases, counts) = self.read();
        let plan = self.plan(shape, &bases, &counts);
        for cell in 0..shape.cells().get() {
            let is_sealed =
                |shop: &FileWorkshop| shop.begin_attempt().unwrap().sealed.contains(cell);
            assert!(!self.shops.iter().any(is_sealed));
            self.exchange(plan, cell);
            self.step();
            assert!(self.shops.iter().all(is_sealed), "cell {cell}");
        }
        // A crash after the seals: groups are counted again, and none is recorded twice.
        let mut weights = Vec::new();
        for _ in 0..2 {
            let counted = group_count_test::carry(&self.attempts(), &bases);
            assert!(weights.is_empty() || weights == counted);
            weights = counted;
            self.step();
        }
        let order = WriteOrder {
            chunk_bases: bases,
            catalogues: counts.iter().map(|counts| counts.catalogue.clone()).collect(),
            weights: weights.clone(),
        };
        let mut written: Vec<Written> = Vec::new();
        for worker in 0..usize::from(WORKERS) {
            written.push(wait(self.shops[worker].write(order.clone())).unwrap());
            let again = wait(self.shops[worker].write(order.clone())).unwrap();
            assert_eq!(again, written[worker]);
            self.step();
            // A restarted coordinator exchanges the undecided cells: none.
            wait(self.attempts()[worker].fetch()).map(drop).unwrap();
        }
        for _ in 0..2 {
            for worker in 0..usize::from(WORKERS) {
                wait(self.shops[worker].commit()).unwrap();
                self.step();
            }
        }
        let mut report = ExchangeReport::default();
        for (shop, expected) in self.shops.iter().zip(&self.reports) {
            assert_eq!(shop.begin_attempt().unwrap().report, *expected);
            // As if all cells had been exchanged twice: the summary must still count each drop once.
            report += *expected;
            report += *expected;
        }
        let result = JobResult { plan, report, counts, weights, written, attempts: 1 };
        wait(self.shops[0].conclude(&result)).unwrap();
        self.step();
        self.shops.iter().for_each(|shop| shop.end(false));
        self.steps >= self.crash_at
    }
}

fn transport(fixture: &Fixture, rules: JobRules, directory: bool, crash_at: u32) -> Transport<'_> {
    let JobRules { exactness, keep, .. } = rules;
    let shops =
        (0..WORKERS).map(|worker| fixture.open(worker, exactness, keep, directory)).collect();
    let reports = vec![ExchangeReport::default(); WORKERS.into()];
    Transport { fixture, rules, directory, shops, reports, steps: 0, crash_at }
}

fn rules(exactness: Exactness, keep: Keep) -> JobRules {
    let choice = FilterChoice::Auto;
    JobRules {
        exactness,
        keep,
        report_kept: true,
        report_sizes: true,
        names_parts: false,
        choice,
        bad_max: 0,
        adds: false,
    }
}

#[test]
fn workers_keep_what_one_process_keeps() {
    let approximate = Exactness::Approximate { false_positive_rate: 1e-3 };
    for exactness in [Exactness::Fingerprint, Exactness::Bytes, approximate] {
        for keep in [Keep::First, Keep::Last, Keep::Best] {
            let fixture = Fixture::new();
            let expected = fixture.expected(exactness, keep);
            transport(&fixture, rules(exactness, keep), false, u32::MAX).run();
            let kept: String = (0..WORKERS).map(|w| fixture.read(&format!("out{w}.txt"))).collect();
            assert_eq!(kept, expected, "{exactness:?} {keep:?}");
            let dropped = |report: &str| -> Vec<(String, u64, String, u64, Value)> {
                let lines = fixture.read(report);
                lines.lines().map(|line| named(&serde_json::from_str(line).unwrap())).collect()
            };
            let drops: Vec<_> =
                (0..WORKERS).flat_map(|w| dropped(&format!("out{w}.txt.drops"))).collect();
            assert_eq!(drops, dropped("all.txt.drops"), "{exactness:?} {keep:?}");
            let groups = |report: &str| -> Vec<(String, u64, u64)> {
                let lines = fixture.read(report);
                lines.lines().map(|line| group(&serde_json::from_str(line).unwrap())).collect()
            };
            let listed: Vec<_> =
                (0..WORKERS).flat_map(|w| groups(&format!("out{w}.txt.groups"))).collect();
            assert_eq!(listed, groups("all.txt.groups"), "{exactness:?} {keep:?}");
        }
    }
}

fn group(line: &Value) -> (String, u64, u64) {
    let file = line["kept_file"].as_str().unwrap().to_owned();
    if let Some(worker) = line["kept_worker"].as_u64() {
        assert!(file.contains(&format!("/in{worker}/")));
    }
    (file, line["kept_record"].as_u64().unwrap(), line["size"].as_u64().unwrap())
}

fn named(line: &Value) -> (String, u64, String, u64, Value) {
    let text = |field: &str| line[field].as_str().unwrap().to_owned();
    let number = |field: &str| line[field].as_u64().unwrap();
    if let Some(worker) = line["kept_worker"].as_u64() {
        assert!(text("kept_file").contains(&format!("/in{worker}/")));
    }
    let (file, kept_file, score) = (text("file"), text("kept_file"), line["score"].clone());
    (file, number("record"), kept_file, number("kept_record"), score)
}

#[test]
fn a_crash_after_any_step_changes_nothing() {
    for (directory, exactness, keep) in
        [(false, Exactness::Bytes, Keep::Last), (true, Exactness::Fingerprint, Keep::Best)]
    {
        // Only every other step for each kind of output, because a run takes long where disks are slow to
        // sync.
        let mut crash_at = 1 + u32::from(directory);
        loop {
            let fixture = Fixture::new();
            let expected = fixture.expected(exactness, keep);
            let job = transport(&fixture, rules(exactness, keep), directory, crash_at);
            let crashed = job.run();
            let names: Vec<String> = if directory {
                let names = |w| ["a", "b", "c"].map(|file| format!("out{w}/{file}.jsonl"));
                (0..WORKERS).flat_map(names).collect()
            } else {
                (0..WORKERS).map(|w| format!("out{w}.txt")).collect()
            };
            let kept: String = names.iter().map(|name| fixture.read(name)).collect();
            assert_eq!(kept, expected, "crash after step {crash_at}");
            let summary = if directory { "out0.json" } else { "out0.txt.json" };
            let summary: Value = serde_json::from_str(&fixture.read(summary)).unwrap();
            let resumed = if crashed { u64::from(WORKERS) } else { 0 };
            // The workers reported before the crash, if it comes after the outputs were written.
            assert!(
                summary["run"]["resumed"] == resumed
                    || summary["run"]["resumed"].as_u64() < Some(3)
            );
            assert_eq!(summary["distinct"], expected.lines().count());
            assert_as_one_process(&fixture, summary);
            assert_left_clean(&fixture.path(""));
            if !crashed {
                break;
            }
            crash_at += 2;
        }
        assert!(crash_at > 20, "{crash_at} steps");
    }
}

/// Checks that the sections about files equal those of one process.
fn assert_as_one_process(fixture: &Fixture, mut summary: Value) {
    for file in summary["files"]["named"].as_array_mut().unwrap() {
        let worker = file.as_object_mut().unwrap().remove("worker").unwrap();
        assert!(file["file"].as_str().unwrap().contains(&format!("/in{worker}/")));
    }
    let workers = summary["overlap"]["workers"].take();
    assert_eq!(workers, serde_json::json!([0, 0, 0, 1, 1, 1, 2, 2, 2]));
    let one: Value = serde_json::from_str(&fixture.read("all.txt.json")).unwrap();
    assert_eq!((&summary["files"], &summary["overlap"]), (&one["files"], &one["overlap"]));
    assert!(one["files"]["all"]["repeats_of_others"].as_u64().unwrap() > 100);
}

fn assert_left_clean(root: &Path) {
    for entry in std::fs::read_dir(root).unwrap() {
        let name = entry.unwrap().file_name().into_string().unwrap();
        assert!(!name.starts_with('.') && !name.starts_with("job"), "{name} is left");
    }
}

#[test]
fn a_folder_is_refused_to_other_jobs_and_after_its_input_has_changed() {
    let fixture = Fixture::new();
    drop(fixture.open(0, Exactness::Fingerprint, Keep::First, false));
    let open = |job: u64| {
        let spec =
            fixture.spec(vec![fixture.input(0)], Exactness::Fingerprint, Keep::First, "out0.txt");
        let member = Membership { worker: 0, job, spec_digest: [3; 16] };
        let folder = fixture.path("job0");
        FileWorkshop::open(spec, member, &folder, Arc::new(Unwatched), |_| unreachable!())
            .err()
            .map(|error| chain_text(&error))
    };
    assert_eq!(open(77), None);
    assert!(open(78).unwrap().contains("belongs to worker 0 of another job"));
    std::fs::write(fixture.path("in0/b.jsonl"), "{\"id\": 1}\n").unwrap();
    let error = open(77).unwrap();
    assert!(error.contains("in0/b.jsonl: the input has changed since the job began"), "{error}");
    std::fs::remove_file(fixture.path("in0/b.jsonl")).unwrap();
    let error = open(77).unwrap();
    assert!(
        error.contains("in0/c.jsonl: the input has changed since the job began (not in"),
        "{error}"
    );
}
