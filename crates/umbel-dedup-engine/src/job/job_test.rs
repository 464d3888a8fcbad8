//! A whole job in a loop: a coordinator and its workers, whose connections break and who are killed at any step.
//!
//! Cells are not exchanged here but drawn: a worker may settle a cell of an attempt that all workers have begun. What
//! is durable (marks, sealed cells) survives a kill, everything else is lost.

use super::super::coordinator::FilterChoice;
use super::super::entry::{Keep, WorkerId};
use super::super::plan::Level;
use super::super::report::ExchangeReport;
use super::acts_test::{Act, act};
use super::*;
use proptest::prelude::*;
use std::collections::VecDeque;
use umbel_step::Outbox;

const RULES: JobRules = JobRules {
    level: Level::Fingerprint,
    keep: Keep::First,
    report_kept: true,
    report_sizes: true,
    names_parts: false,
    choice: FilterChoice::Auto,
    bad_max: 0,
    adds: true,
};

/// What one worker has on its disk, and what it is about to finish.
struct Place {
    worker: JobWorker,
    marks: Vec<WorkerMark>,
    sealed: Option<CellSet>,
    connected: bool,
    /// Orders on their way.
    orders: VecDeque<Order>,
    /// Words on their way.
    words: VecDeque<Word>,
    tasks: VecDeque<WorkerOutput>,
    exchanging: Option<u32>,
    tallying: Option<u32>,
    ended: Option<Option<String>>,
}

struct World {
    rules: JobRules,
    forecasts: Vec<Forecast>,
    coordinator: JobCoordinator,
    marks: Vec<CoordinatorMark>,
    places: Vec<Place>,
    outcome: Option<Result<Box<JobResult>, JobFailure>>,
    concluded: u32,
}

impl World {
    fn new(forecasts: &[Forecast]) -> Self {
        let workers = u32::try_from(forecasts.len()).unwrap();
        let place = |forecast: &Forecast| Place {
            worker: JobWorker::new(*forecast, &[]).adding(RULES.adds),
            marks: Vec::new(),
            sealed: None,
            connected: false,
            orders: VecDeque::new(),
            words: VecDeque::new(),
            tasks: VecDeque::new(),
            exchanging: None,
            tallying: None,
            ended: None,
        };
        Self {
            rules: RULES,
            forecasts: forecasts.to_vec(),
            coordinator: JobCoordinator::new(RULES, workers, &[]).unwrap(),
            marks: Vec::new(),
            places: forecasts.iter().map(place).collect(),
            outcome: None,
            concluded: 0,
        }
    }

    fn coordinate(&mut self, input: JobInput) {
        let mut outbox = Outbox::new();
        self.coordinator.step(input, &mut outbox);
        for output in outbox.take() {
            match output {
                JobOutput::Mark(mark) => self.marks.push(mark),
                JobOutput::Tell(worker, order) => {
                    if order == Order::Commit {
                        // Nothing may stand under its name before everything is durable.
                        assert!(self.places.iter().all(Place::worker_has_written));
                    }
                    self.places[worker.index()].orders.push_back(order);
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
        let place = &mut self.places[at];
        place.worker.step(event, &mut outbox);
        for output in outbox.take() {
            match output {
                WorkerOutput::Mark(mark) => place.marks.push(mark),
                WorkerOutput::Tell(word) if place.connected => place.words.push_back(word),
                WorkerOutput::Tell(_) => {}
                WorkerOutput::Stop { .. } => {
                    (place.exchanging, place.tallying) = (None, None);
                    place.tasks.push_back(output);
                }
                WorkerOutput::End { ref failure, .. } => place.ended = Some(failure.clone()),
                _ => place.tasks.push_back(output),
            }
        }
    }

    fn connect(&mut self, at: usize) {
        if !self.places[at].connected && self.places[at].ended.is_none() {
            self.places[at].connected = true;
            self.work(at, WorkerEvent::Connected);
        }
    }

    /// Both ends notice at once; what was on its way is lost.
    fn disconnect(&mut self, at: usize) {
        let place = &mut self.places[at];
        if std::mem::replace(&mut place.connected, false) {
            place.orders.clear();
            place.words.clear();
            self.coordinate(JobInput::Lost(worker_id(at)));
        }
    }

    fn kill_worker(&mut self, at: usize) {
        self.disconnect(at);
        let place = &mut self.places[at];
        place.worker = JobWorker::new(self.forecasts[at], &place.marks).adding(RULES.adds);
        place.tasks.clear();
        (place.exchanging, place.tallying) = (None, None);
        place.ended = None;
    }

    fn kill_coordinator(&mut self) {
        for place in &mut self.places {
            place.connected = false;
            place.orders.clear();
            place.words.clear();
        }
        let workers = u32::try_from(self.places.len()).unwrap();
        self.coordinator = JobCoordinator::new(self.rules, workers, &self.marks).unwrap();
    }

    fn deliver_order(&mut self, at: usize) {
        if let Some(order) = self.places[at].orders.pop_front() {
            self.work(at, WorkerEvent::Order(order));
        }
    }

    fn deliver_word(&mut self, at: usize) {
        if let Some(word) = self.places[at].words.pop_front() {
            self.coordinate(JobInput::Word(worker_id(at), word));
        }
    }

    /// A worker finishes the first thing that it was asked for.
    fn finish_task(&mut self, at: usize) {
        let place = &mut self.places[at];
        let Some(task) = place.tasks.pop_front() else { return };
        let event = match task {
            WorkerOutput::Read(order) => {
                let is_read = place.marks.iter().any(|mark| matches!(mark, WorkerMark::Read(_)));
                assert!(!is_read, "what is read is not read again");
                place.sealed.get_or_insert(CellSet::new(order.shape.cells().get()));
                WorkerEvent::Read(Counts { items: 9, records: 10, ..Counts::default() })
            }
            WorkerOutput::Stop { attempt } => {
                let settled = place.sealed.clone().expect("who stops has read");
                WorkerEvent::Stopped { attempt, settled }
            }
            WorkerOutput::Sample { attempt, .. } => {
                WorkerEvent::Sampled { attempt, entries: 9, candidates: 1 }
            }
            WorkerOutput::Exchange { attempt, .. } => {
                place.exchanging = Some(attempt);
                return;
            }
            WorkerOutput::Tally { attempt, ref order } => {
                assert_eq!(order.chunk_bases.len(), self.places.len());
                self.places[at].tallying = Some(attempt);
                return;
            }
            WorkerOutput::Write(order) => {
                assert!(self.places.iter().all(Place::worker_has_tallied));
                let weights: Vec<_> = (0..self.places.len()).map(weights_of).collect();
                assert_eq!(order.weights, weights);
                let place = &self.places[at];
                assert!(!place.worker_has_written(), "what is written is not written again");
                WorkerEvent::Written(Written { kept: 9, ..Written::default() })
            }
            WorkerOutput::Commit => WorkerEvent::Committed,
            WorkerOutput::Add => {
                // Nobody finds in the filter what stands under no name yet.
                assert!(self.places.iter().all(Place::worker_has_committed));
                assert!(!self.places[at].worker.is_done(), "what is added is not added again");
                WorkerEvent::Added
            }
            other => unreachable!("{other:?}"),
        };
        self.work(at, event);
    }

    /// A worker settles a cell, if all workers are in one attempt.
    fn settle(&mut self, at: usize, cell: u32) {
        let attempt = self.places[at].exchanging;
        if attempt.is_none() || self.places.iter().any(|place| place.exchanging < attempt) {
            return;
        }
        let place = &mut self.places[at];
        let sealed = place.sealed.as_mut().expect("who exchanges has read");
        sealed.insert(cell);
        self.finish_exchange(at);
    }

    fn finish_exchange(&mut self, at: usize) {
        let place = &self.places[at];
        let is_full = place.sealed.as_ref().is_some_and(CellSet::is_full);
        if let Some(attempt) = place.exchanging.filter(|_| is_full) {
            let report = ExchangeReport::default();
            self.work(at, WorkerEvent::Exchanged { attempt, report });
        }
    }

    /// A worker has counted its groups, if all workers do so in one attempt: it needs an answer of each.
    fn finish_tally(&mut self, at: usize) {
        let attempt = self.places[at].tallying;
        if let Some(attempt) = attempt
            && self.places.iter().all(|place| place.tallying == Some(attempt))
        {
            let tallied = Tallied { weights: weights_of(at), ..Tallied::default() };
            self.work(at, WorkerEvent::Tallied { attempt, tallied });
        }
    }

    fn go_on(&mut self, at: usize, cell: u32) {
        self.connect(at);
        self.deliver_order(at);
        self.finish_task(at);
        self.settle(at, cell);
        self.finish_exchange(at);
        self.finish_tally(at);
        self.deliver_word(at);
    }

    /// No more faults: everything that can happen does, until nothing can.
    fn run_out(&mut self) {
        for _ in 0..10_000 {
            if self.places.iter().all(|place| place.ended.is_some()) {
                return;
            }
            for at in 0..self.places.len() {
                let cells = self.places[at].worker.read_order().map(|o| o.shape.cells().get());
                (0..cells.unwrap_or(1)).for_each(|cell| self.go_on(at, cell));
            }
        }
        panic!("the job stands still");
    }
}

impl Place {
    fn worker_has_tallied(&self) -> bool {
        self.marks.iter().any(|mark| matches!(mark, WorkerMark::Tallied(_)))
    }

    fn worker_has_written(&self) -> bool {
        self.marks.iter().any(|mark| matches!(mark, WorkerMark::Written(_)))
    }

    fn worker_has_committed(&self) -> bool {
        self.marks.contains(&WorkerMark::Committed)
    }
}

/// What a worker tells all others of its tally.
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
                Act::Word(at) => world.deliver_word(at % workers),
            }
            if world.outcome.as_ref().is_some_and(Result::is_err) {
                // Sixteen attempts without a cell are more than a job bears.
                let failure = world.outcome.unwrap().unwrap_err();
                let is_fruitless = matches!(failure, JobFailure::Fruitless { .. });
                prop_assert!(is_fruitless, "{failure}");
                return Ok(());
            }
        }
        world.run_out();
        for place in &world.places {
            prop_assert_eq!(&place.ended, &Some(None));
            let count = |is: fn(&&WorkerMark) -> bool| place.marks.iter().filter(is).count();
            prop_assert_eq!(count(|mark| matches!(mark, WorkerMark::Read(_))), 1);
            prop_assert_eq!(count(|mark| matches!(mark, WorkerMark::Tallied(_))), 1);
            prop_assert_eq!(count(|mark| matches!(mark, WorkerMark::Written(_))), 1);
            prop_assert_eq!(count(|mark| matches!(mark, WorkerMark::Added)), 1);
            prop_assert!(place.worker.is_done());
            prop_assert!(place.sealed.as_ref().unwrap().is_full());
        }
        prop_assert_eq!(world.concluded, 1);
    }
}

/// A world whose workers have all joined.
fn joined(workers: usize) -> World {
    let mut world = World::new(&forecasts(workers, 10));
    for at in 0..workers {
        world.connect(at);
        world.deliver_word(at);
    }
    world
}

#[test]
fn chunks_are_numbered_through_all_workers() {
    let world = joined(3);
    let CoordinatorMark::Shaped { chunk_bases, shape } = &world.marks[0] else { panic!() };
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
    let abort = world.places[0].orders.back().unwrap();
    assert!(matches!(abort, Order::Abort { resumable: true, .. }));
}

#[test]
fn bad_records_are_counted_over_all_workers() {
    let mut world = joined(2);
    for at in 0..2 {
        let counts = Counts { records: 5, bad: at, ..Counts::default() };
        let word = Word::ReadDone(counts);
        world.coordinate(JobInput::Word(WorkerId(u16::try_from(at).unwrap()), word));
    }
    let failure = world.outcome.take().unwrap().unwrap_err();
    let text = "1 bad records, at most 0 may be left out (worker 0: 0, worker 1: 1)";
    assert_eq!(failure.to_string(), text);
}

#[test]
fn a_cancelled_job_aborts_everywhere_and_whoever_comes_later_hears_of_it() {
    let mut world = joined(2);
    world.disconnect(1);
    world.coordinate(JobInput::Cancel);
    assert_eq!(world.outcome.take().unwrap().unwrap_err(), JobFailure::Cancelled);
    world.connect(1);
    world.deliver_word(1);
    world.deliver_order(1);
    assert_eq!(world.places[1].ended, Some(Some("cancelled".to_owned())));
}

#[test]
fn scratch_of_another_run_is_refused() {
    let mut world = joined(1);
    let CoordinatorMark::Shaped { shape, .. } = world.marks[0] else { panic!() };
    let order = ReadOrder { shape, chunk_base: 77 };
    world.places[0].marks = vec![WorkerMark::Reading(order)];
    world.kill_worker(0);
    world.connect(0);
    world.deliver_word(0);
    let failure = world.outcome.take().unwrap().unwrap_err();
    assert!(matches!(failure, JobFailure::Nonsense { worker: WorkerId(0), .. }), "{failure}");
}

#[test]
fn a_worker_cannot_count_the_attempts_to_their_end() {
    let mut world = World::new(&forecasts(1, 10));
    let (forecast, stage) = (world.forecasts[0], Box::default());
    let join = Word::Join { forecast, stage, attempt: u32::MAX };
    world.coordinate(JobInput::Word(WorkerId(0), join));
    let failure = world.outcome.take().unwrap().unwrap_err();
    assert_eq!(failure.to_string(), "worker 0: it tells of more attempts than any job makes");
}

#[test]
fn attempts_that_settle_nothing_end_the_job() {
    let mut world = joined(2);
    for at in 0..2 {
        world.deliver_order(at);
        world.finish_task(at);
        world.deliver_word(at);
    }
    for _ in 0..100 {
        for at in 0..2 {
            while !world.places[at].orders.is_empty() {
                world.deliver_order(at);
                world.finish_task(at);
            }
            while !world.places[at].words.is_empty() {
                world.deliver_word(at);
            }
        }
        if world.outcome.is_some() {
            break;
        }
        let attempt = world.places[0].worker.attempt();
        let cause = "connection reset".to_owned();
        let word = Word::Trouble { attempt, peer: WorkerId(1), cause };
        world.coordinate(JobInput::Word(WorkerId(0), word));
    }
    let failure = world.outcome.take().unwrap().unwrap_err();
    let text = failure.to_string();
    assert!(text.contains("worker 0 lost worker 1: connection reset"), "{text}");
}
