//! Checks arguments before anything is compared.

use super::{ReconcileArgs, usage};
use anyhow::Result;
use std::path::Path;
use umbel_files::FileRoles;
use umbel_reconcile::Endpoint;

impl ReconcileArgs {
    /// Refuses outputs that would overwrite a set or a sketch given as input.
    pub(super) fn check_roles(&self) -> Result<()> {
        let mut roles = FileRoles::default();
        for set in &self.sets {
            let endpoint = Endpoint::parse(set)?;
            if let Some(path) = endpoint.path().or(endpoint.sketch_path()) {
                roles.add_input(&path.display().to_string(), path);
            }
        }
        let outputs = [
            ("--sketch", &self.sketch),
            ("--resume", &self.resume),
            ("--report", &self.report),
            ("--report-html", &self.report_html),
        ];
        for (flag, path) in outputs {
            path.as_ref().map_or(Ok(()), |path| roles.add_output(flag, path))?;
        }
        self.check_standard_output()
    }

    /// Refuses a report on standard output if the difference is printed there.
    fn check_standard_output(&self) -> Result<()> {
        let changes = self.pull || self.push || self.two_way;
        let answers = self.stdio || self.listen.is_some();
        if self.quiet || changes || answers {
            return Ok(());
        }
        for (flag, path) in [("--report", &self.report), ("--report-html", &self.report_html)] {
            if path.as_deref() == Some(Path::new("-")) {
                return Err(usage(format!(
                    "{flag} -: the difference goes to standard output: name a file, or add --quiet"
                )));
            }
        }
        Ok(())
    }

    /// Refuses `--delete` without a change that could delete items.
    pub(super) fn check_delete(&self) -> Result<()> {
        let answers = self.stdio || self.listen.is_some();
        match (self.delete, answers) {
            (true, true) if !self.writable => {
                Err(usage("--delete lets whoever connects remove items: it goes with --writable"))
            }
            (true, false) if self.two_way => Err(usage(
                "--two-way --delete would remove from each what only it has, and bring it to the other: with --pull or \
                 --push, one side becomes as the other is",
            )),
            (true, false) if !self.pull && !self.push => Err(usage(
                "--delete goes with --pull or --push: it says that what only the taking side has goes",
            )),
            _ => Ok(()),
        }
    }
}
