//! A whole job in a loop: a coordinator and its workers, whose connections break and which are killed at any
//! step.
//!
//! Cells are not really exchanged: a worker may decide a cell of an attempt that all workers have begun. What
//! is durable (journals, sealed cells) survives a kill, everything else is lost.

use super::super::coordinator::FilterChoice;
use super::super::entry::{Keep, WorkerId};
use super::super::plan::Exactness;
use super::super::report::ExchangeReport;
use super::acts_test::{Act, act};
use super::*;
use proptest::prelude::*;
use std::collections::VecDeque;
use umbel_step::Outbox;

mod failures;

const RULES: JobRules = JobRules {
    exactness: Exactness::Fingerprint,
    keep: Keep::First,
    report_kept: true,
    report_sizes: true,
    names_parts: false,
    choice: FilterChoice::Auto,
    bad_max: 0,
    adds: true,
};

/// One worker: what is durable, its connection, and its unfinished tasks.
struct Host {
    worker: JobWorker,
    journal: Vec<WorkerJournalRecord>,
    sealed: Option<CellSet>,
    connected: bool,
    /// Orders that were sent and not received.
    orders: VecDeque<Order>,
    /// Messages that were sent and not received.
    messages: VecDeque<WorkerMessage>,
    tasks: VecDeque<WorkerOutput>,
    exchanging: Option<u32>,
    counting_groups: Option<u32>,
    ended: Option<Option<String>>,
}

struct World {
    rules: JobRules,
    forecasts: Vec<Forecast>,
    coordinator: JobCoordinator,
    journal: Vec<CoordinatorJournalRecord>,
    hosts: Vec<Host>,
    outcome: Option<Result<Box<JobResult>, JobFailure>>,
    concluded: u32,
}

impl World {
    fn new(forecasts: &[Forecast]) -> Self {
        let workers = u32::try_from(forecasts.len()).unwrap();
        let host = |forecast: &Forecast| Host {
            worker: JobWorker::new(*forecast, &[]).adding(RULES.adds),
            journal: Vec::new(),
            sealed: None,
            connected: false,
            orders: VecDeque::new(),
            messages: VecDeque::new(),
            tasks: VecDeque::new(),
            exchanging: None,
            counting_groups: None,
            ended: None,
        };
        Self {
            rules: RULES,
            forecasts: forecasts.to_vec(),
            coordinator: JobCoordinator::new(RULES, workers, &[]).unwrap(),
            journal: Vec::new(),
            hosts: forecasts.iter().map(host).collect(),
            outcome: None,
            concluded: 0,
        }
    }

    fn coordinate(&mut self, input: JobInput) {
        let mut outbox = Outbox::new();
        self.coordinator.step(input, &mut outbox);
        for output in outbox.take() {
            match output {
                JobOutput::Journal(record) => self.journal.push(record),
                JobOutput::Send(worker, order) => {
                    if order == Order::Commit {
                        // No output may have its name before all outputs are durable.
                        assert!(self.hosts.iter().all(Host::worker_has_written));
                    }
                    self.hosts[worker.index()].orders.push_back(order);
                }
                JobOutput::Event(_) => {}
                JobOutput::Finished(result) => {
                    self.concluded += 1;
                    self.outcome = Some(Ok(result));
                }
                JobOutput::Failed(failure) => self.outcome = Some(Err(failure)),
            }
        }
    }

    fn work(&mut self, at: usize, event: WorkerEvent) {
        let mut outbox = Outbox::new();
        let host = &mut self.hosts[at];
        host.worker.step(event, &mut outbox);
        for output in outbox.take() {
            match output {
                WorkerOutput::Journal(record) => host.journal.push(record),
                WorkerOutput::Send(message) if host.connected => host.messages.push_back(message),
                WorkerOutput::Send(_) => {}
                WorkerOutput::Stop { .. } => {
                    (host.exchanging, host.counting_groups) = (None, None);
                    host.tasks.push_back(output);
                }
                WorkerOutput::End { ref failure, .. } => host.ended = Some(failure.clone()),
                _ => host.tasks.push_back(output),
            }
        }
    }

    fn connect(&mut self, at: usize) {
        if !self.hosts[at].connected && self.hosts[at].ended.is_none() {
            self.hosts[at].connected = true;
            self.work(at, WorkerEvent::Connected);
        }
    }

    /// Both ends notice at once; messages in transit are lost.
    fn disconnect(&mut self, at: usize) {
        let host = &mut self.hosts[at];
        if std::mem::replace(&mut host.connected, false) {
            host.orders.clear();
            host.messages.clear();
            self.coordinate(JobInput::Lost(worker_id(at)));
        }
    }

    fn kill_worker(&mut self, at: usize) {
        self.disconnect(at);
        let host = &mut self.hosts[at];
        host.worker = JobWorker::new(self.forecasts[at], &host.journal).adding(RULES.adds);
        host.tasks.clear();
        (host.exchanging, host.counting_groups) = (None, None);
        host.ended = None;
    }

    fn kill_coordinator(&mut self) {
        for host in &mut self.hosts {
            host.connected = false;
            host.orders.clear();
            host.messages.clear();
        }
        let workers = u32::try_from(self.hosts.len()).unwrap();
        self.coordinator = JobCoordinator::new(self.rules, workers, &self.journal).unwrap();
    }

    fn deliver_order(&mut self, at: usize) {
        if let Some(order) = self.hosts[at].orders.pop_front() {
            self.work(at, WorkerEvent::Order(order));
        }
    }

    fn deliver_message(&mut self, at: usize) {
        if let Some(message) = self.hosts[at].messages.pop_front() {
            self.coordinate(JobInput::Message(worker_id(at), message));
        }
    }

    /// A worker finishes its oldest task.
    fn finish_task(&mut self, at: usize) {
        let host = &mut self.hosts[at];
        let Some(task) = host.tasks.pop_front() else { return };
        let event = match task {
            WorkerOutput::Read(order) => {
                let is_read =
                    |record: &WorkerJournalRecord| matches!(record, WorkerJournalRecord::Read(_));
                assert!(!host.journal.iter().any(is_read), "what is read is not read again");
                host.sealed.get_or_insert(CellSet::new(order.shape.cells().get()));
                WorkerEvent::Read(Counts { items: 9, records: 10, ..Counts::default() })
            }
            WorkerOutput::Stop { attempt } => {
                let decided = host.sealed.clone().expect("who stops has read");
                WorkerEvent::Stopped { attempt, decided }
            }
            WorkerOutput::Sample { attempt, .. } => {
                WorkerEvent::Sampled { attempt, entries: 9, candidates: 1 }
            }
            WorkerOutput::Exchange { attempt, .. } => {
                host.exchanging = Some(attempt);
                return;
            }
            WorkerOutput::CountGroups { attempt, ref order } => {
                assert_eq!(order.chunk_bases.len(), self.hosts.len());
                self.hosts[at].counting_groups = Some(attempt);
                return;
            }
            WorkerOutput::Write(order) => {
                assert!(self.hosts.iter().all(Host::worker_has_counted_groups));
                let weights: Vec<_> = (0..self.hosts.len()).map(weights_of).collect();
                assert_eq!(order.weights, weights);
                let host = &self.hosts[at];
                assert!(!host.worker_has_written(), "what is written is not written again");
                WorkerEvent::Written(Written { kept: 9, ..Written::default() })
            }
            WorkerOutput::Commit => WorkerEvent::Committed,
            WorkerOutput::Add => {
                // The filter contains nothing before all outputs have their names.
                assert!(self.hosts.iter().all(Host::worker_has_committed));
                assert!(!self.hosts[at].worker.is_done(), "what is added is not added again");
                WorkerEvent::Added
            }
            other => unreachable!("{other:?}"),
        };
        self.work(at, event);
    }

    /// A worker decides a cell, if all workers are in one attempt.
    fn decide(&mut self, at: usize, cell: u32) {
        let attempt = self.hosts[at].exchanging;
        if attempt.is_none() || self.hosts.iter().any(|host| host.exchanging < attempt) {
            return;
        }
        let host = &mut self.hosts[at];
        let sealed = host.sealed.as_mut().expect("who exchanges has read");
        sealed.insert(cell);
        self.finish_exchange(at);
    }

    fn finish_exchange(&mut self, at: usize) {
        let host = &self.hosts[at];
        let is_full = host.sealed.as_ref().is_some_and(CellSet::is_full);
        if let Some(attempt) = host.exchanging.filter(|_| is_full) {
            let report = ExchangeReport::default();
            self.work(at, WorkerEvent::Exchanged { attempt, report });
        }
    }

    /// A worker has counted its groups, if all workers count in one attempt: it needs the claims of each.
    fn finish_group_count(&mut self, at: usize) {
        let attempt = self.hosts[at].counting_groups;
        if let Some(attempt) = attempt
            && self.hosts.iter().all(|host| host.counting_groups == Some(attempt))
        {
            let group_count =
                GroupCountResult { weights: weights_of(at), ..GroupCountResult::default() };
            self.work(at, WorkerEvent::GroupsCounted { attempt, group_count });
        }
    }

    fn go_on(&mut self, at: usize, cell: u32) {
        self.connect(at);
        self.deliver_order(at);
        self.finish_task(at);
        self.decide(at, cell);
        self.finish_exchange(at);
        self.finish_group_count(at);
        self.deliver_message(at);
    }

    /// Runs without faults until nothing more can happen.
    fn run_out(&mut self) {
        for _ in 0..10_000 {
            if self.hosts.iter().all(|host| host.ended.is_some()) {
                return;
            }
            for at in 0..self.hosts.len() {
                let cells = self.hosts[at].worker.read_order().map(|o| o.shape.cells().get());
                (0..cells.unwrap_or(1)).for_each(|cell| self.go_on(at, cell));
            }
        }
        panic!("the job stands still");
    }
}

impl Host {
    fn worker_has_counted_groups(&self) -> bool {
        self.journal.iter().any(|record| matches!(record, WorkerJournalRecord::GroupsCounted(_)))
    }

    fn worker_has_written(&self) -> bool {
        self.journal.iter().any(|record| matches!(record, WorkerJournalRecord::Written(_)))
    }

    fn worker_has_committed(&self) -> bool {
        self.journal.contains(&WorkerJournalRecord::Committed)
    }
}

/// The weights that a worker sends to all others.
fn weights_of(at: usize) -> Vec<u8> {
    vec![u8::try_from(at).unwrap(); 2]
}

fn worker_id(at: usize) -> WorkerId {
    WorkerId(u16::try_from(at).unwrap())
}

fn forecasts(workers: usize, records: u64) -> Vec<Forecast> {
    let one = Forecast { records, chunks: 2, memory_bytes: 1 << 30, ..Forecast::default() };
    vec![one; workers]
}

proptest! {
    #[test]
    fn whatever_breaks_the_job_ends_with_one_result(
        workers in 1usize..5,
        records in prop_oneof![Just(10u64), Just(600_000)],
        acts in proptest::collection::vec(act(), 0..400),
    ) {
        let mut world = World::new(&forecasts(workers, records));
        for act in acts {
            match act {
                Act::GoOn(at, cell) => world.go_on(at % workers, cell),
                Act::Disconnect(at) => world.disconnect(at % workers),
                Act::KillWorker(at) => world.kill_worker(at % workers),
                Act::KillCoordinator => world.kill_coordinator(),
                Act::Order(at) => world.deliver_order(at % workers),
                Act::Message(at) => world.deliver_message(at % workers),
            }
            if world.outcome.as_ref().is_some_and(Result::is_err) {
                // A job fails after sixteen attempts without progress.
                let failure = world.outcome.unwrap().unwrap_err();
                let is_fruitless = matches!(failure, JobFailure::Fruitless { .. });
                prop_assert!(is_fruitless, "{failure}");
                return Ok(());
            }
        }
        world.run_out();
        for host in &world.hosts {
            prop_assert_eq!(&host.ended, &Some(None));
            let count = |is: fn(&&WorkerJournalRecord) -> bool| host.journal.iter().filter(is).count();
            prop_assert_eq!(count(|record| matches!(record, WorkerJournalRecord::Read(_))), 1);
            prop_assert_eq!(count(|record| matches!(record, WorkerJournalRecord::GroupsCounted(_))), 1);
            prop_assert_eq!(count(|record| matches!(record, WorkerJournalRecord::Written(_))), 1);
            prop_assert_eq!(count(|record| matches!(record, WorkerJournalRecord::Added)), 1);
            prop_assert!(host.worker.is_done());
            prop_assert!(host.sealed.as_ref().unwrap().is_full());
        }
        prop_assert_eq!(world.concluded, 1);
    }
}

/// A world whose workers have all joined.
fn joined(workers: usize) -> World {
    let mut world = World::new(&forecasts(workers, 10));
    for at in 0..workers {
        world.connect(at);
        world.deliver_message(at);
    }
    world
}

#[test]
fn chunks_are_numbered_through_all_workers() {
    let world = joined(3);
    let CoordinatorJournalRecord::Shaped { chunk_bases, shape } = &world.journal[0] else {
        panic!()
    };
    assert_eq!((&chunk_bases[..], shape.workers), (&[0, 2, 4][..], 3));
}

#[test]
fn a_worker_that_stays_away_is_named_with_what_is_missing() {
    let mut world = joined(2);
    world.disconnect(1);
    world.coordinate(JobInput::GaveUp(WorkerId(1)));
    let failure = world.outcome.take().unwrap().unwrap_err();
    assert_eq!(failure.to_string(), "worker 1 is away; missing from it: its input");
    assert!(failure.is_resumable());
    let abort = world.hosts[0].orders.back().unwrap();
    assert!(matches!(abort, Order::Abort { resumable: true, .. }));
}

#[test]
fn bad_records_are_counted_over_all_workers() {
    let mut world = joined(2);
    for at in 0..2 {
        let counts = Counts { records: 5, bad: at, ..Counts::default() };
        let message = WorkerMessage::ReadDone(counts);
        world.coordinate(JobInput::Message(WorkerId(u16::try_from(at).unwrap()), message));
    }
    let failure = world.outcome.take().unwrap().unwrap_err();
    let text = "1 bad records, at most 0 may be left out (worker 0: 0, worker 1: 1)";
    assert_eq!(failure.to_string(), text);
}

#[test]
fn a_cancelled_job_aborts_everywhere_and_later_workers_learn_of_it() {
    let mut world = joined(2);
    world.disconnect(1);
    world.coordinate(JobInput::Cancel);
    assert_eq!(world.outcome.take().unwrap().unwrap_err(), JobFailure::Cancelled);
    world.connect(1);
    world.deliver_message(1);
    world.deliver_order(1);
    assert_eq!(world.hosts[1].ended, Some(Some("cancelled".to_owned())));
}
