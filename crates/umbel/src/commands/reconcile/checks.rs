//! Checks arguments before anything is compared.

use super::{ReconcileArgs, usage};
use anyhow::Result;
use std::path::{Path, PathBuf};
use umbel_files::{FileRoles, place_of, refuse_standard_input, refuse_standard_output};
use umbel_reconcile::{Endpoint, Form};

/// The absolute path of a directory without links; also of one that does not exist yet.
fn resolved(directory: &Path) -> PathBuf {
    std::fs::canonicalize(directory).unwrap_or_else(|_| place_of(directory))
}

impl ReconcileArgs {
    /// Refuses outputs that would overwrite a set or a sketch given as input, or belong to a set that is a directory.
    pub(super) fn check_roles(&self, form: &Form) -> Result<()> {
        let mut roles = FileRoles::default();
        let mut directories = Vec::new();
        for set in &self.sets {
            let endpoint = Endpoint::parse(set)?;
            if let Some(path) = endpoint.path().or(endpoint.sketch_path()) {
                roles.add_input(&path.display().to_string(), path);
            }
            if *form == Form::Tree {
                directories.extend(endpoint.path().map(Path::to_owned));
            }
        }
        let outputs = [
            ("--sketch", &self.sketch),
            ("--resume", &self.resume),
            ("--report", &self.report),
            ("--report-html", &self.report_html),
        ];
        for (flag, path) in outputs {
            let Some(path) = path.as_deref() else { continue };
            match flag {
                "--sketch" => refuse_standard_input("--sketch -", path)?,
                "--resume" => refuse_standard_output(flag, path)?,
                _ => {}
            }
            roles.add_output(flag, path)?;
            let is_around = |set: &&PathBuf| place_of(path).starts_with(resolved(set));
            // A sketch is none of what is written here, and no directory has one.
            let is_file = flag != "--sketch" && path != Path::new("-");
            if let Some(set) = directories.iter().find(is_around).filter(|_| is_file) {
                return Err(usage(format!(
                    "{flag} {} would be a file of the set {}, which it is about: name one outside",
                    path.display(),
                    set.display()
                )));
            }
        }
        self.check_standard_output()
    }

    /// Refuses to change a directory that is inside of the other set, or around it: both sets would change with it, so
    /// they could not become equal.
    pub(super) fn check_apart(&self, form: &Form, a: &Path, b: &Path) -> Result<()> {
        if *form != Form::Tree || !(self.pull || self.push || self.two_way) {
            return Ok(());
        }
        let (at_a, at_b) = (resolved(a), resolved(b));
        let (inner, outer) = match (at_a.starts_with(&at_b), at_b.starts_with(&at_a)) {
            (true, false) => (a, b),
            (false, true) => (b, a),
            // Apart, or the same.
            _ => return Ok(()),
        };
        Err(usage(format!(
            "{} is inside of {}: a change of one would change the other too: name two directories of which neither is in the \
             other",
            inner.display(),
            outer.display()
        )))
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

    /// Refuses `--on-conflict` where no record can be in conflict.
    pub(super) fn check_on_conflict(&self) -> Result<()> {
        let answers = self.stdio || self.listen.is_some();
        if self.on_conflict.is_some() && !self.two_way && !answers {
            return Err(usage("--on-conflict goes with --two-way, --stdio or --listen"));
        }
        Ok(())
    }

    /// Refuses `--writable` on the side that begins, whose changes have flags of their own.
    pub(super) fn check_permission(&self) -> Result<()> {
        if self.writable && !self.stdio && self.listen.is_none() {
            return Err(usage(
                "--writable goes with --stdio or --listen, and lets whoever connects change the set; what changes here is said by \
                 --pull, --push or --two-way",
            ));
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
