//! Exchanges in diagrams: files in `testdata` show what each worker reads and what every verdict lists.
//!
//! ```text
//! workers 2, keep first
//! read 0: 3.1.a 7.0.b          items as position.bits.rest: of 16 positions, of 4 values of two refinement bits
//! read 1: 3.1.a
//! ---
//! candidates 0: 3.1.a          what the owners answer, by sender, items in hash order
//! ...
//! ```
//!
//! The test computes the part below the line and compares it.

use super::entry::{Entry, Keep, RecordId, WorkerId};
use super::frame::{Frame, FrameKind, FrameLink};
use super::payload::VerdictList;
use super::plan::{Exactness, JobShape, Mode, Plan};
use super::worker::{ExchangeInput, ExchangeOutput, Worker};
use super::{ExchangeCoordinator, FilterChoice, Mailbox};
use std::collections::BTreeMap;
use std::fmt::Write;
use umbel_filter::ItemHash;

/// The hash of an item that the diagram gives as position, bits and rest.
fn hash(label: &str) -> ItemHash {
    let [position, bits, rest] = label.split('.').collect::<Vec<_>>()[..] else {
        panic!("`{label}`: expected position.bits.rest")
    };
    let (position, bits): (u64, u64) = (position.parse().unwrap(), bits.parse().unwrap());
    let rest = u64::from(rest.as_bytes()[0]);
    ItemHash::new(position << 60 | rest, bits << 62 | rest)
}

/// An exchange in a diagram: its plan and what each worker reads.
struct Drawing {
    plan: Plan,
    read: Vec<Vec<String>>,
}

impl Drawing {
    fn parse(text: &str) -> Self {
        let mut lines = text.lines();
        let head = lines.next().unwrap();
        let (workers, keep) = head.strip_prefix("workers ").unwrap().split_once(", keep ").unwrap();
        let keep = if keep == "first" { Keep::First } else { Keep::Last };
        let workers = workers.parse().unwrap();
        let shape = JobShape {
            workers,
            cells_per_owner: 1,
            exactness: Exactness::Fingerprint,
            keep,
            report_kept: false,
            item_bytes_mean: 0.0,
        };
        let plan = ExchangeCoordinator::plan_without_sample(shape, 1, None, FilterChoice::FullHash);
        let plan = Plan { mode: Mode::Filter, position_count: 16, refine_bits: 2, ..plan };
        let items = |line: &str| {
            let (_, items) = line.split_once(": ").unwrap_or((line, ""));
            items.split_whitespace().map(str::to_owned).collect()
        };
        let read: Vec<Vec<String>> = lines.map(items).collect();
        assert_eq!(read.len(), workers as usize, "one line a worker");
        Self { plan, read }
    }

    /// A worker's distinct items in a cell, in hash order.
    fn list(&self, worker: usize, cell: u32) -> Vec<&str> {
        let cells = self.plan.shape.cells();
        let mut list: Vec<&str> = self.read[worker].iter().map(String::as_str).collect();
        list.retain(|label| cells.cell_of(hash(label).hi()) == cell);
        list.sort_by_key(|label| hash(label));
        list.dedup();
        list
    }

    /// Runs the exchange, and returns its lines by kind, in order.
    fn play(&self) -> String {
        let mut answers: BTreeMap<(u8, usize), Vec<&str>> = BTreeMap::new();
        let mut undecided: BTreeMap<(usize, u32), Vec<&str>> = BTreeMap::new();
        let mut dropped = vec![Vec::new(); self.read.len()];
        let mut mailbox = self.start();
        while let Some((from, output)) = mailbox.pop() {
            let (receiver, frame) = match output {
                ExchangeOutput::Send { to, frame } => (to, frame),
                ExchangeOutput::Decided { drops, .. } => {
                    dropped[from.index()]
                        .extend(drops.record_ids.iter().map(|record_id| record_id.item() as usize));
                    continue;
                }
                other => panic!("unexpected {other:?}"),
            };
            let link = FrameLink { job: 1, sender: from.0, receiver: receiver.0, attempt: 0 };
            let to = receiver.index();
            let decoded = Frame::decode(&frame, link).unwrap();
            if decoded.kind.is_verdict() {
                let asked = match decoded.kind {
                    FrameKind::PositionsVerdict => self.list(to, decoded.cell),
                    _ => undecided[&(to, decoded.cell)].clone(),
                };
                let verdict = VerdictList::decode(&decoded, None).unwrap();
                let listed: Vec<&str> =
                    verdict.indexes.iter().map(|&i| asked[i as usize]).collect();
                answers.entry((decoded.kind as u8, to)).or_default().extend(&listed);
                undecided.insert((to, decoded.cell), listed);
            }
            mailbox.step(receiver, ExchangeInput::Frame { from, bytes: frame }).unwrap();
        }
        self.draw(&answers, dropped)
    }

    /// Workers that have received their plan and their cells.
    fn start(&self) -> Mailbox {
        let shape = self.plan.shape;
        let ids = (0..self.read.len() as u16).map(WorkerId);
        let workers = ids.clone().map(|id| Worker::new(id, shape, 1).unwrap());
        let mut mailbox = Mailbox::new(workers.collect());
        for worker in ids {
            mailbox.step(worker, ExchangeInput::Plan(self.plan)).unwrap();
            for cell in 0..shape.cells().get() {
                let entry = |(item, label): (usize, &String)| Entry {
                    hash: hash(label),
                    record_id: RecordId::new(worker.0.into(), item as u64),
                };
                let entries = self.read[worker.index()].iter().enumerate().map(entry);
                let own = entries.filter(|entry| shape.cells().cell_of(entry.hash.hi()) == cell);
                let entries = own.collect();
                mailbox
                    .step(worker, ExchangeInput::Cell { cell, entries, ranks: Vec::new() })
                    .unwrap();
            }
        }
        mailbox
    }

    fn draw(&self, answers: &BTreeMap<(u8, usize), Vec<&str>>, dropped: Vec<Vec<usize>>) -> String {
        let mut text = String::new();
        let names = [
            (FrameKind::PositionsVerdict, "candidates"),
            (FrameKind::RefineVerdict, "survivors"),
            (FrameKind::ResiduesVerdict, "equal"),
        ];
        for (kind, name) in names {
            for ((_, worker), items) in answers.range((kind as u8, 0)..(kind as u8 + 1, 0)) {
                let line = format!("{name} {worker}: {}", items.join(" "));
                writeln!(text, "{}", line.trim_end()).unwrap();
            }
        }
        for (worker, mut items) in dropped.into_iter().enumerate() {
            items.sort_unstable();
            let label = |&item: &usize| format!("{} (number {item})", self.read[worker][item]);
            let labels: Vec<String> = items.iter().map(label).collect();
            if !labels.is_empty() {
                writeln!(text, "drops {worker}: {}", labels.join(", ")).unwrap();
            }
        }
        text
    }
}

fn check(file: &str, text: &str) {
    let (input, expected) = text.split_once("---\n").expect("a line of three dashes");
    let drawn = Drawing::parse(input).play();
    assert!(drawn == expected, "{file} should end in:\n{drawn}");
}

#[test]
fn drawn_exchanges_end_as_drawn() {
    check("three_workers.txt", include_str!("../testdata/three_workers.txt"));
    check("one_position.txt", include_str!("../testdata/one_position.txt"));
    check("everybody.txt", include_str!("../testdata/everybody.txt"));
    check("nobody.txt", include_str!("../testdata/nobody.txt"));
}
