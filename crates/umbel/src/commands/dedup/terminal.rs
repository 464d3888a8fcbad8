//! Progress of a running job: bars if standard error is a terminal, nothing otherwise.

use crate::clock::Stopwatch;
use crate::stderr::eprint_line;
use indicatif::style::ProgressTracker;
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressState, ProgressStyle};
use std::fmt;
use std::io::IsTerminal;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;
use umbel_dedup::{Observer, Unit};

/// How often a waiting bar is redrawn.
const WAITING_TICK: Duration = Duration::from_millis(120);

/// A bar that has not moved for this time shows for how long.
const STILL_MIN: Duration = Duration::from_secs(3);

/// Shows behind a bar for how long it has not moved, because the job waits for other machines, a slow
/// disk or an object store.
#[derive(Clone)]
struct Still {
    position: u64,
    since: Stopwatch,
}

impl Still {
    fn note(&mut self, position: u64) {
        if self.position != position {
            *self = Self { position, since: Stopwatch::start() };
        }
    }

    fn text(still: Duration) -> String {
        if still >= STILL_MIN {
            format!("nothing for {} s", still.as_secs())
        } else {
            String::new()
        }
    }
}

impl ProgressTracker for Still {
    fn clone_box(&self) -> Box<dyn ProgressTracker> {
        Box::new(self.clone())
    }

    fn tick(&mut self, state: &ProgressState, _now: std::time::Instant) {
        self.note(state.pos());
    }

    fn reset(&mut self, state: &ProgressState, _now: std::time::Instant) {
        self.note(state.pos());
    }

    fn write(&self, _state: &ProgressState, text: &mut dyn fmt::Write) {
        // Writing to a bar's line does not fail.
        let _ = text.write_str(&Self::text(self.since.elapsed()));
    }
}

/// Bars and lines on standard error.
pub(in crate::commands) struct Terminal {
    is_quiet: bool,
    has_bars: bool,
    bar: Mutex<Option<ProgressBar>>,
}

impl Terminal {
    /// Shows lines unless `is_quiet`, and bars if standard error is a terminal too; warnings are always
    /// shown.
    pub(in crate::commands) fn new(is_quiet: bool) -> Self {
        let has_bars = !is_quiet && std::io::stderr().is_terminal();
        Self { is_quiet, has_bars, bar: Mutex::default() }
    }
}

fn bar(phase: &'static str, total: u64, unit: Unit) -> ProgressBar {
    let template = match unit {
        Unit::Bytes | Unit::BytesWritten => {
            "{prefix:10} {bar:32} {bytes:>10} / {total_bytes:10} {binary_bytes_per_sec:>12} {eta:>4} {still}"
        }
        Unit::Cells => "{prefix:10} {bar:32} {pos:>10} / {len:10} ranges {still}",
    };
    let style = ProgressStyle::with_template(template).expect("a valid template");
    let bar = ProgressBar::with_draw_target(Some(total), ProgressDrawTarget::stderr());
    let still = Still { position: 0, since: Stopwatch::start() };
    bar.set_style(style.progress_chars("=> ").with_key("still", still));
    bar.set_prefix(phase);
    // Redrawn also while there is no progress.
    bar.enable_steady_tick(WAITING_TICK);
    bar
}

impl Observer for Terminal {
    fn progress(&self, phase: &'static str, done: u64, total: u64, unit: Unit) {
        if !self.has_bars {
            return;
        }
        let mut shown = self.bar.lock().unwrap_or_else(PoisonError::into_inner);
        let bar = shown.get_or_insert_with(|| bar(phase, total, unit));
        // Threads may report their counts out of order.
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
            eprint_line(text);
        }
    }

    fn warn(&self, text: &str) {
        eprint_line(text);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bar_says_since_when_it_stands_still() {
        assert_eq!(Still::text(Duration::from_millis(2_900)), "");
        assert_eq!(Still::text(Duration::from_secs(65)), "nothing for 65 s");
        let mut still = Still { position: 0, since: Stopwatch::start() };
        still.note(5);
        assert_eq!(still.position, 5);
    }
}
