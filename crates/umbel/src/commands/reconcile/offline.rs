//! `umbel reconcile` with a sketch in place of one or both sets.

use super::report::{a_and_b, seconds};
use super::{ReconcileArgs, usage};
use crate::clock::{ProcessorTime, Stopwatch};
use crate::exit::Exit;
use crate::printer::Printer;
use crate::stderr::eprint_text;
use anyhow::Result;
use serde_json::{Value, json};
use umbel_reconcile::{Compared, Endpoint, Form, compare_sketches, compare_with_set};

impl ReconcileArgs {
    /// Compares a set with a sketch, or two sketches.
    pub(super) fn offline(&self, form: &Form, a: &Endpoint, b: &Endpoint) -> Result<(Exit, Value)> {
        if self.pull || self.push || self.two_way {
            return Err(usage(
                "a sketch takes and gives nothing: only the difference can be shown",
            ));
        }
        let limits = self.limits();
        let (stopwatch, processor) = (Stopwatch::start(), ProcessorTime::start());
        let is_b = a.sketch().is_some() && b.sketch().is_none();
        let compared = match (a.sketch(), b.sketch(), a.path().or(b.path())) {
            (Some(a), Some(b), _) => compare_sketches(a, b, &limits)?,
            (None, Some(sketch), Some(path)) | (Some(sketch), None, Some(path)) => {
                compare_with_set(path, form, sketch, &limits)?
            }
            _ => return Err(usage("what is compared with a sketch must be of this machine")),
        };
        let comparison = Comparison { compared, stopwatch, processor, is_b };
        if !self.quiet {
            comparison.show()?;
        }
        let json = comparison.json();
        eprint_text(comparison.text());
        Ok((if comparison.compared.is_equal() { Exit::Done } else { Exit::No }, json))
    }
}

/// The result of a comparison, and its costs.
struct Comparison {
    compared: Compared,
    stopwatch: Stopwatch,
    processor: ProcessorTime,
    /// Whether the local set is the B of the command.
    is_b: bool,
}

impl Comparison {
    /// Prints the difference to standard output, sorted by the text of the items.
    ///
    /// # Errors
    ///
    /// If it cannot be written; a reader that closes it is no error.
    fn show(&self) -> Result<()> {
        let mut out = Printer::new();
        let (here_sign, there_sign) = if self.is_b { ("+ ", "- ") } else { ("- ", "+ ") };
        let here = self.compared.here_lines.iter().map(|line| (line, here_sign));
        let there = self.compared.there_lines.iter().map(|line| (line, there_sign));
        let mut lines: Vec<(&Vec<u8>, &str)> = here.chain(there).collect();
        lines.sort_unstable();
        for (line, sign) in lines {
            out.write(&[sign.as_bytes(), line, b"\n"].concat())?;
        }
        out.flush()
    }

    fn only_counts(&self) -> (u64, u64) {
        let difference = &self.compared.difference;
        let (here, there) = (difference.only_here.len(), difference.only_there.len());
        a_and_b(self.is_b, here as u64, there as u64)
    }

    /// The report as JSON.
    fn json(&self) -> Value {
        let difference = &self.compared.difference;
        let (items_a, items_b) = a_and_b(self.is_b, difference.here_count, difference.there_count);
        let (only_a, only_b) = self.only_counts();
        json!({
            "verified": difference.verified,
            "verified_symbols": true,
            "items": { "a": items_a, "b": items_b },
            "difference": { "only_a": only_a, "only_b": only_b },
            "plan": "sketch file",
            "coded_symbols": difference.coded_count,
            "bytes_sent": 0,
            "bytes_received": self.compared.read_bytes,
            "wall_seconds": seconds(self.stopwatch.elapsed()),
            "cpu_seconds": self.processor.seconds(),
        })
    }

    /// The report in one or two lines for people.
    fn text(&self) -> String {
        let (only_a, only_b) = self.only_counts();
        let mut text = format!(
            "{only_a} only in A, {only_b} only in B; {} bytes read ({} coded symbols), {:.2} s\n",
            self.compared.read_bytes,
            self.compared.difference.coded_count,
            self.stopwatch.elapsed().as_secs_f64(),
        );
        if !self.compared.difference.verified {
            text.push_str(
                "verified: false; only counts and symbols could be, not all items are known here\n",
            );
        }
        text
    }
}
