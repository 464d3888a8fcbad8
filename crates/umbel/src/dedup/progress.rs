//! Progress bars on a terminal, silence in a pipe.

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use std::io::IsTerminal;

/// The bar of one phase; perhaps invisible.
pub(crate) struct Bar(Option<ProgressBar>);

/// What a bar counts.
#[derive(Clone, Copy)]
pub(crate) enum Unit {
    /// Stored bytes.
    Bytes,
    /// Hash ranges.
    Cells,
}

impl Bar {
    /// A bar on standard error, if that is a terminal and the user wants to see it.
    pub(crate) fn new(phase: &'static str, length: u64, unit: Unit, quiet: bool) -> Self {
        if quiet || !std::io::stderr().is_terminal() {
            return Self(None);
        }
        let template = match unit {
            Unit::Bytes => {
                "{prefix:10} {bar:32} {bytes:>10} / {total_bytes:10} {binary_bytes_per_sec:>12} {eta:>4}"
            }
            Unit::Cells => "{prefix:10} {bar:32} {pos:>10} / {len:10} ranges",
        };
        let style = ProgressStyle::with_template(template).expect("a valid template");
        let bar = ProgressBar::with_draw_target(Some(length), ProgressDrawTarget::stderr());
        bar.set_style(style.progress_chars("=> "));
        bar.set_prefix(phase);
        Self(Some(bar))
    }

    /// Moves on.
    pub(crate) fn add(&self, amount: u64) {
        if let Some(bar) = &self.0 {
            bar.inc(amount);
        }
    }
}

impl Drop for Bar {
    fn drop(&mut self) {
        if let Some(bar) = &self.0 {
            bar.finish_and_clear();
        }
    }
}
