//! `umbel reconcile` with a sketch in place of a set or of both.

use super::{ReconcileArgs, usage, write_report};
use crate::exit::Exit;
use crate::reconcile::{Endpoint, Form, compare_sketches, compare_with_set};
use crate::say::say;
use anyhow::Result;

impl ReconcileArgs {
    /// Compares with a sketch, or two.
    pub(super) fn offline(&self, form: &Form, a: &Endpoint, b: &Endpoint) -> Result<Exit> {
        if self.pull || self.push || self.two_way {
            return Err(usage(
                "a sketch takes and gives nothing: only the difference can be shown",
            ));
        }
        let limits = self.limits();
        let compared = match (a.sketch(), b.sketch(), a.path().or(b.path())) {
            (Some(a), Some(b), _) => compare_sketches(a, b, &limits)?,
            (None, Some(sketch), Some(path)) => {
                compare_with_set(path, form, sketch, &limits, false)?
            }
            (Some(sketch), None, Some(path)) => {
                compare_with_set(path, form, sketch, &limits, true)?
            }
            _ => return Err(usage("what is compared with a sketch must be of this machine")),
        };
        if !self.quiet {
            compared.show(&mut std::io::stdout().lock())?;
        }
        write_report(self.report.as_deref(), &compared.json())?;
        say(compared.text());
        Ok(if compared.is_equal() { Exit::Done } else { Exit::Failed })
    }
}
