//! Sends many items to one filter: several batches in flight, answers in the order of the items, bounded
//! memory.

use super::items::{Input, ReadBatch};
use super::levels::{ack_name, read_name};
use crate::printer::{Printer, item_member};
use anyhow::{Context, Error, Result};
use bytes::Bytes;
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use serde_json::json;
use std::collections::{BTreeSet, VecDeque};
use std::io::IsTerminal;
use std::time::SystemTime;
use tokio::task::JoinHandle;
use umbel_client::{AckLevel, ClientError, Filter, PackedBatch, ReadLevel};

/// Most batches that are sent and not yet answered. More would only queue at the nodes.
const BATCHES_IN_FLIGHT_MAX: usize = 4;

/// The operation on the items.
#[derive(Clone, Copy)]
pub(crate) enum Verb {
    /// Insert them, with their time if they have one: 1 means new, 0 present.
    Insert(AckLevel, Option<SystemTime>),
    /// Query them: 1 means present, 0 absent.
    Contains(ReadLevel),
    /// Remove them: 1 means removed, 0 absent.
    Remove,
}

impl Verb {
    /// The words for 1 and 0.
    pub(crate) fn words(self) -> [&'static str; 2] {
        match self {
            Self::Insert(..) => ["new", "present"],
            Self::Contains(_) => ["present", "absent"],
            Self::Remove => ["removed", "absent"],
        }
    }

    async fn send(self, filter: Filter, batch: PackedBatch) -> Result<Answer, ClientError> {
        Ok(match self {
            Self::Insert(level, at) => {
                let inserted = match at {
                    Some(time) => filter.insert_packed_of(batch, time).await?,
                    None => filter.insert_packed_at(batch, level).await?,
                };
                Answer { bits: inserted.as_bytes().clone(), level: ack_name(inserted.level()) }
            }
            Self::Contains(level) => {
                let answers = filter.contains_packed(batch, level).await?;
                Answer { bits: answers.as_bytes().clone(), level: read_name(answers.level()) }
            }
            Self::Remove => {
                let removed = filter.remove_packed(batch).await?;
                Answer { bits: removed.as_bytes().clone(), level: None }
            }
        })
    }
}

/// The answer to a batch.
struct Answer {
    /// One bit per item.
    bits: Bytes,
    /// The name of its level, if it has one.
    level: Option<&'static str>,
}

/// How the answers of single items are printed.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Each {
    /// Not at all.
    Silent,
    /// A line per item: answer, tab, item.
    Lines,
    /// A JSON object per item.
    Json,
}

/// Counts of the answers.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(crate) struct Counts {
    /// Answers of 1.
    pub(crate) ones: u64,
    /// Answers of 0.
    pub(crate) zeros: u64,
    /// Levels of the answers.
    pub(crate) levels: BTreeSet<&'static str>,
}

impl Counts {
    /// All answers.
    fn answered(&self) -> u64 {
        self.ones + self.zeros
    }
}

/// A batch that was sent.
struct InFlight {
    task: JoinHandle<Result<Answer, ClientError>>,
    item_count: usize,
    /// Its items, if they are to be printed.
    items: Option<PackedBatch>,
    input_bytes: u64,
}

impl InFlight {
    fn send(filter: &Filter, verb: Verb, each: Each, batch: ReadBatch) -> Self {
        let items = (each != Each::Silent).then(|| batch.items.clone());
        let item_count = batch.items.len();
        let task = tokio::spawn(verb.send(filter.clone(), batch.items));
        Self { task, item_count, items, input_bytes: batch.input_bytes }
    }
}

/// Sends all items to a filter, and prints their answers as `each` says. If there are none, the cluster is asked all the
/// same, so that a misspelt name is not taken for a filter. After a failure nothing more is
/// sent, but the answers to what was sent before are printed: their items may be in the filter, and a
/// second run would not call them new.
///
/// # Errors
///
/// The error of the first batch that failed, in the order of the items. If items cannot be read, or
/// standard output cannot be written.
pub(crate) async fn run(filter: &Filter, verb: Verb, input: Input, each: Each) -> Result<Counts> {
    let Input { mut batches, end, input_bytes } = input;
    let filter = filter.clone().sending_empty();
    let mut in_flight: VecDeque<InFlight> = VecDeque::new();
    let mut report = Report {
        verb,
        each,
        end,
        printer: Printer::new(),
        counts: Counts::default(),
        bar: bar(input_bytes, each),
    };
    let (mut failed, mut unread) = (None, None);
    let (mut is_ended, mut is_begun) = (false, false);
    while !(is_ended && in_flight.is_empty()) {
        tokio::select! {
            biased;
            outcome = front(&mut in_flight), if !in_flight.is_empty() => {
                let sent = in_flight.pop_front().expect("the front was awaited");
                if let Err(error) = report.take(&sent, outcome) {
                    failed.get_or_insert(error);
                    is_ended = true;
                }
                // All input so far is answered: with slow input, the answers must not wait in the buffer.
                if in_flight.is_empty() {
                    report.printer.flush()?;
                }
                let is_unread = report.printer.is_closed() && matches!(verb, Verb::Contains(_));
                if is_unread && failed.is_none() {
                    return Ok(report.counts);
                }
            }
            batch = batches.recv(), if !is_ended && in_flight.len() < BATCHES_IN_FLIGHT_MAX => {
                match batch.transpose() {
                    Ok(None) if is_begun => is_ended = true,
                    Ok(batch) => {
                        is_ended = batch.is_none();
                        is_begun = true;
                        let batch = batch.unwrap_or_else(ReadBatch::empty);
                        in_flight.push_back(InFlight::send(&filter, verb, each, batch));
                    }
                    Err(error) => {
                        unread = Some(error);
                        is_ended = true;
                    }
                }
            }
        }
    }
    report.printer.flush()?;
    if let Some(bar) = report.bar {
        bar.finish_and_clear();
    }
    match (failed, unread) {
        (Some(error), _) => Err(error),
        (None, Some(error)) => Err(after(error, report.counts.answered())),
        (None, None) => Ok(report.counts),
    }
}

/// An error with the number of items that were answered before it.
fn after(error: Error, answered: u64) -> Error {
    if answered == 0 { error } else { error.context(format!("after {answered} answered items")) }
}

/// Waits for the answer to the oldest batch.
async fn front(in_flight: &mut VecDeque<InFlight>) -> Result<Answer> {
    let Some(oldest) = in_flight.front_mut() else { return std::future::pending().await };
    Ok((&mut oldest.task).await.context("a task broke off")??)
}

/// What is shown while answers arrive.
struct Report {
    verb: Verb,
    each: Each,
    end: u8,
    printer: Printer,
    counts: Counts,
    bar: Option<ProgressBar>,
}

impl Report {
    fn take(&mut self, sent: &InFlight, outcome: Result<Answer>) -> Result<()> {
        let Answer { bits, level } =
            outcome.map_err(|error| after(error, self.counts.answered()))?;
        let ones: u64 = bits.iter().map(|byte| u64::from(byte.count_ones())).sum();
        self.counts.levels.extend(level);
        self.counts.ones += ones;
        self.counts.zeros += sent.item_count as u64 - ones;
        if let Some(bar) = &self.bar {
            bar.inc(if bar.length().is_some() { sent.input_bytes } else { sent.item_count as u64 });
        }
        let Some(items) = &sent.items else { return Ok(()) };
        for (at, item) in items.iter().enumerate() {
            self.print(item, bits[at / 8] >> (at % 8) & 1 == 1)?;
        }
        Ok(())
    }

    fn print(&mut self, item: &[u8], is_one: bool) -> Result<()> {
        let [one, zero] = self.verb.words();
        if self.each == Each::Json {
            let (name, text) = item_member(item);
            return self.printer.json(&json!({ name: text, one: is_one }));
        }
        let word = if is_one { one } else { zero };
        self.printer.write(word.as_bytes())?;
        self.printer.write(b"\t")?;
        self.printer.write(item)?;
        self.printer.write(&[self.end])
    }
}

/// A progress bar on standard error, if that is a terminal and no answers are printed to a terminal.
fn bar(input_bytes: Option<u64>, each: Each) -> Option<ProgressBar> {
    let is_shown = std::io::stderr().is_terminal()
        && (each == Each::Silent || !std::io::stdout().is_terminal());
    if !is_shown {
        return None;
    }
    let template = match input_bytes {
        Some(_) => "{bar:32} {bytes:>10} / {total_bytes:10} {binary_bytes_per_sec:>12} {eta:>4}",
        None => "{spinner} {human_pos} items {per_sec:>12}",
    };
    let style = ProgressStyle::with_template(template).expect("a valid template");
    let bar = ProgressBar::with_draw_target(input_bytes, ProgressDrawTarget::stderr());
    bar.set_style(style.progress_chars("=> "));
    Some(bar)
}
