//! What people see of a job while it runs: progress bars on a terminal, silence in a pipe.

use crate::say::say_line;
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use std::io::IsTerminal;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;
use umbel_dedup::{Observer, Unit};

/// How often a wait shows that it goes on.
const WAITING_TICK: Duration = Duration::from_millis(120);

/// Bars and lines on standard error.
pub(in crate::commands) struct Terminal {
    is_quiet: bool,
    has_bars: bool,
    bar: Mutex<Option<ProgressBar>>,
}

impl Terminal {
    /// Lines, unless nobody wants to see more than warnings; and bars, if standard error is a terminal.
    pub(in crate::commands) fn new(is_quiet: bool) -> Self {
        let has_bars = !is_quiet && std::io::stderr().is_terminal();
        Self { is_quiet, has_bars, bar: Mutex::default() }
    }
}

fn bar(phase: &'static str, total: u64, unit: Unit) -> ProgressBar {
    let template = match unit {
        Unit::Bytes | Unit::BytesWritten => {
            "{prefix:10} {bar:32} {bytes:>10} / {total_bytes:10} {binary_bytes_per_sec:>12} {eta:>4}"
        }
        Unit::Cells => "{prefix:10} {bar:32} {pos:>10} / {len:10} ranges",
    };
    let style = ProgressStyle::with_template(template).expect("a valid template");
    let bar = ProgressBar::with_draw_target(Some(total), ProgressDrawTarget::stderr());
    bar.set_style(style.progress_chars("=> "));
    bar.set_prefix(phase);
    bar
}

impl Observer for Terminal {
    fn progress(&self, phase: &'static str, done: u64, total: u64, unit: Unit) {
        if !self.has_bars {
            return;
        }
        let mut shown = self.bar.lock().unwrap_or_else(PoisonError::into_inner);
        let bar = shown.get_or_insert_with(|| bar(phase, total, unit));
        // Threads may come here in another order than they have counted in.
        bar.set_position(done.max(bar.position()));
        if unit == Unit::BytesWritten && done > 0 && done >= total {
            let style = ProgressStyle::with_template(
                "{prefix:10} {spinner} waits until the disk has it, {elapsed}",
            );
            bar.set_style(style.expect("a valid template"));
            bar.enable_steady_tick(WAITING_TICK);
        }
    }

    fn end_phase(&self) {
        let shown = self.bar.lock().unwrap_or_else(PoisonError::into_inner).take();
        shown.iter().for_each(ProgressBar::finish_and_clear);
    }

    fn notice(&self, text: &str) {
        if !self.is_quiet {
            say_line(text);
        }
    }

    fn warn(&self, text: &str) {
        say_line(text);
    }
}
