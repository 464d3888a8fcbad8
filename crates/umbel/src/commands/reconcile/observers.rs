//! Shows the progress of a session.

use crate::stderr::eprint_line;
use indicatif::{ProgressBar, ProgressStyle};
use std::fmt::Arguments;
use std::io::IsTerminal;
use std::time::Duration;
use umbel_reconcile::SessionObserver;

/// Time between two frames of the spinner.
const TICK: Duration = Duration::from_millis(100);

/// For the responder: lines on standard error.
pub(super) struct Notices;

impl SessionObserver for Notices {
    fn notice(&self, text: Arguments<'_>) {
        eprint_line(text);
    }
}

/// For the initiator: lines, and a spinner with the phase if standard error is a terminal.
pub(super) struct Terminal {
    spinner: ProgressBar,
}

impl Terminal {
    /// Shows the spinner.
    pub(super) fn start() -> Self {
        let spinner = if std::io::stderr().is_terminal() {
            ProgressBar::new_spinner()
        } else {
            ProgressBar::hidden()
        };
        // The elapsed time of a phase shows whether it is stuck.
        let style = ProgressStyle::with_template("{spinner} {msg}, {elapsed}");
        spinner.set_style(style.expect("a valid template"));
        if !spinner.is_hidden() {
            spinner.enable_steady_tick(TICK);
        }
        Self { spinner }
    }
}

impl SessionObserver for Terminal {
    fn notice(&self, text: Arguments<'_>) {
        // Otherwise the line would follow the spinner in its own.
        self.spinner.suspend(|| eprint_line(text));
    }

    fn phase(&self, name: &'static str) {
        self.spinner.reset_elapsed();
        self.spinner.set_message(name);
    }

    fn contents(&self, done_count: usize, all_count: usize) {
        self.spinner.set_message(format!("contents of files: {done_count} of {all_count}"));
    }

    fn end_phases(&self) {
        self.spinner.finish_and_clear();
    }
}
