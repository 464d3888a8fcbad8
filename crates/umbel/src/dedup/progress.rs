//! Progress bars on a terminal, silence in a pipe.

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use std::io::IsTerminal;
use std::time::Duration;

/// How often a wait shows that it goes on.
const WAITING_TICK: Duration = Duration::from_millis(120);

/// The bar of one phase; perhaps invisible.
pub(crate) struct Bar {
    bar: Option<ProgressBar>,
    unit: Unit,
}

/// What a bar counts.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Unit {
    /// Stored bytes.
    Bytes,
    /// Stored bytes whose records are written; once all are, the disks are waited for.
    BytesWritten,
    /// Hash ranges.
    Cells,
}

impl Bar {
    /// A bar on standard error, if that is a terminal and the user wants to see it.
    pub(crate) fn new(phase: &'static str, length: u64, unit: Unit, quiet: bool) -> Self {
        if quiet || !std::io::stderr().is_terminal() {
            return Self { bar: None, unit };
        }
        let template = match unit {
            Unit::Bytes | Unit::BytesWritten => {
                "{prefix:10} {bar:32} {bytes:>10} / {total_bytes:10} {binary_bytes_per_sec:>12} {eta:>4}"
            }
            Unit::Cells => "{prefix:10} {bar:32} {pos:>10} / {len:10} ranges",
        };
        let style = ProgressStyle::with_template(template).expect("a valid template");
        let bar = ProgressBar::with_draw_target(Some(length), ProgressDrawTarget::stderr());
        bar.set_style(style.progress_chars("=> "));
        bar.set_prefix(phase);
        Self { bar: Some(bar), unit }
    }

    /// Moves on.
    pub(crate) fn add(&self, amount: u64) {
        let Some(bar) = &self.bar else { return };
        bar.inc(amount);
        if self.unit == Unit::BytesWritten && Some(bar.position()) >= bar.length() {
            let style = ProgressStyle::with_template(
                "{prefix:10} {spinner} waits until the disk has it, {elapsed}",
            );
            bar.set_style(style.expect("a valid template"));
            bar.enable_steady_tick(WAITING_TICK);
        }
    }
}

impl Drop for Bar {
    fn drop(&mut self) {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
    }
}
