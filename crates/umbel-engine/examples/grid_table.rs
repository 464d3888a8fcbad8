//! Hundreds of workers, all cells at once: bytes, messages, connections and memory, directly and over the grid.
//!
//! `grid_table RECORDS WORKERS...` prints a Markdown table with two rows for each number of workers; 0.6 % of the
//! records stand with two workers. Everything goes in rounds: each worker takes all messages that came, then sends all
//! it has to say, frames for one next hop bundled. That is the best that bundling can do.

#[allow(dead_code, reason = "the tables share the drawn job, and this one needs a part of it")]
mod drawn_job;

use drawn_job::Job;
use std::process::ExitCode;
use umbel_engine::Outbox;
use umbel_engine::dedup::{
    ExchangeReport, Grid, Input, Output, Relay, RelayOutput, Route, Worker, WorkerId,
};

/// Share of records that stand with two workers each.
const DELTA: f64 = 0.006;

/// A job whose cells are all exchanged at once.
struct Rounds {
    workers: Vec<Worker>,
    relays: Vec<Relay>,
    /// By receiver: neighbour and message, in order of sending.
    inboxes: Vec<Vec<(WorkerId, Vec<u8>)>>,
    messages: u64,
    wire_bytes: u64,
    held_bytes_max: u64,
    rounds: u32,
}

impl Rounds {
    fn new(job: &Job, workers: Vec<Worker>, route: Route) -> Self {
        let count = job.shape.workers;
        let ids = (0..u16::try_from(count).expect("few workers")).map(WorkerId);
        Self {
            workers,
            relays: ids.map(|id| Relay::new(id, count, route)).collect(),
            inboxes: vec![Vec::new(); count as usize],
            messages: 0,
            wire_bytes: 0,
            held_bytes_max: 0,
            rounds: 0,
        }
    }

    /// Gives a worker an input and its relay what the worker says to that.
    fn step(&mut self, me: usize, input: Input) {
        let (mut orders, mut sends) = (Outbox::new(), Outbox::new());
        self.workers[me].step(input, &mut orders).expect("our own input");
        for order in orders.take() {
            if let Output::Send { to, frame } = order {
                self.relays[me].send(to, frame, &mut sends);
            }
        }
        self.carry(me, &mut sends);
    }

    fn carry(&mut self, me: usize, sends: &mut Outbox<RelayOutput>) {
        let from = WorkerId(u16::try_from(me).expect("few workers"));
        for send in sends.take() {
            match send {
                RelayOutput::Send { to, message } => {
                    self.messages += 1;
                    self.wire_bytes += message.len() as u64;
                    self.inboxes[to.index()].push((from, message));
                }
                RelayOutput::Deliver { from, frame } => {
                    self.step(me, Input::Frame { from, bytes: frame });
                }
            }
        }
    }

    /// Notes what the worker holds, then lets it send all that waits.
    fn flush(&mut self, me: usize) {
        let held = self.workers[me].held_bytes() + self.relays[me].held_bytes();
        self.held_bytes_max = self.held_bytes_max.max(held);
        let mut sends = Outbox::new();
        self.relays[me].flush(&mut sends);
        self.carry(me, &mut sends);
    }

    fn run(&mut self, job: &Job) {
        for cell in 0..job.shape.cells().get() {
            for (me, entries) in job.cell(cell).into_iter().enumerate() {
                self.step(me, Input::Cell { cell, entries, ranks: Vec::new() });
            }
        }
        (0..self.workers.len()).for_each(|me| self.flush(me));
        while self.inboxes.iter().any(|inbox| !inbox.is_empty()) {
            self.rounds += 1;
            let inboxes = vec![Vec::new(); self.workers.len()];
            let came = std::mem::replace(&mut self.inboxes, inboxes);
            for (me, inbox) in came.into_iter().enumerate() {
                for (neighbour, message) in inbox {
                    let mut sends = Outbox::new();
                    self.relays[me].hear(neighbour, &message, &mut sends).expect("our message");
                    self.carry(me, &mut sends);
                }
                self.flush(me);
            }
        }
        assert!(self.workers.iter().all(Worker::is_idle), "every cell is decided");
    }
}

fn row(workers: u32, records: u64, route: Route) -> String {
    let job = Job::new(workers, records, DELTA);
    let plan = job.plan(&mut ExchangeReport::default());
    let mut rounds = Rounds::new(&job, job.workers(Some(plan)), route);
    rounds.run(&job);
    let mut report = ExchangeReport::default();
    rounds.workers.iter().for_each(|worker| report += worker.report());
    let n = report.entries as f64;
    let grid = Grid::new(workers, route);
    let connections = grid.neighbours(WorkerId(0)).count();
    let others = 1.0 - 1.0 / f64::from(workers);
    let model = job.model_bits(&plan, &report) / 8.0 * others * (1.0 + grid.relayed_share());
    let relayed: u64 = rounds.relays.iter().map(|relay| relay.relayed().1).sum();
    format!(
        "| {workers} | {n:.0e} | {route:?} | {connections} | {} | {:.1} | {:.0} | {:.2} | {:.2} | {model:.2} | {:.2} | {:.2} | {} |",
        report.network_frames,
        rounds.messages as f64 / f64::from(workers),
        rounds.wire_bytes as f64 / rounds.messages as f64,
        rounds.wire_bytes as f64 / n,
        relayed as f64 / n,
        8.0 * report.header_bytes as f64 / n,
        rounds.held_bytes_max as f64 / f64::from(1 << 20),
        rounds.rounds,
    )
}

fn main() -> ExitCode {
    let numbers: Result<Vec<u32>, _> = std::env::args().skip(1).map(|arg| arg.parse()).collect();
    let Ok([records, workers @ ..]) = numbers.as_deref() else {
        eprintln!("usage: grid_table RECORDS WORKERS...");
        return ExitCode::from(2);
    };
    println!(
        "| workers | records | route | connections | frames | messages a worker | bytes a message | wire bytes a record | of them relayed | model | header bits | MiB held | rounds |"
    );
    println!("|--:|--:|---|--:|--:|--:|--:|--:|--:|--:|--:|--:|--:|");
    for &workers in workers {
        for route in [Route::Direct, Route::Grid] {
            println!("{}", row(workers, u64::from(*records), route));
        }
    }
    ExitCode::SUCCESS
}
