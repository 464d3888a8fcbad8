//! What people see of a session while it runs.

use crate::stderr::eprint_line;
use indicatif::{ProgressBar, ProgressStyle};
use std::fmt::Arguments;
use std::io::IsTerminal;
use std::time::Duration;
use umbel_reconcile::Observer;

/// Time between two pictures of the spinner.
const TICK: Duration = Duration::from_millis(100);

/// Lines on standard error alone, for a side that answers.
pub(super) struct Notices;

impl Observer for Notices {
    fn notice(&self, text: Arguments<'_>) {
        eprint_line(text);
    }
}

/// Lines, and a spinner with the phase if standard error is a terminal, for the side that begins.
pub(super) struct Terminal {
    spinner: ProgressBar,
}

impl Terminal {
    /// Shows the spinner.
    pub(super) fn start() -> Self {
        let spinner = match std::io::stderr().is_terminal() {
            true => ProgressBar::new_spinner(),
            false => ProgressBar::hidden(),
        };
        // How long a phase takes says whether it stands still.
        let style = ProgressStyle::with_template("{spinner} {msg}, {elapsed}");
        spinner.set_style(style.expect("a valid template"));
        if !spinner.is_hidden() {
            spinner.enable_steady_tick(TICK);
        }
        Self { spinner }
    }
}

impl Observer for Terminal {
    fn notice(&self, text: Arguments<'_>) {
        eprint_line(text);
    }

    fn phase(&self, name: &'static str) {
        self.spinner.reset_elapsed();
        self.spinner.set_message(name);
    }

    fn end_phases(&self) {
        self.spinner.finish_and_clear();
    }
}
