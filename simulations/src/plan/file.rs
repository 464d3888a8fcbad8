//! Reads plans from files and writes them.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use serde::Deserialize;

use super::line_format::to_lines;
use super::{Misfit, PLAN_FORMAT, Plan};

/// Why a plan could not be read or written.
#[derive(Debug, thiserror::Error)]
pub(crate) enum PlanError {
    /// The file could not be read.
    #[error("cannot read the plan {}", path.display())]
    Read {
        /// Which file.
        path: PathBuf,
        /// The system's error.
        #[source]
        source: io::Error,
    },
    /// The file could not be written.
    #[error("cannot write the plan {}", path.display())]
    Write {
        /// Which file.
        path: PathBuf,
        /// The system's error.
        #[source]
        source: io::Error,
    },
    /// The file contains no plan that this build can run.
    #[error("the plan {} cannot be run", path.display())]
    InFile {
        /// Which file.
        path: PathBuf,
        /// Why not.
        #[source]
        source: Box<PlanError>,
    },
    /// The text is no JSON object, or has no version.
    #[error("expected a JSON object with \"plan\": {PLAN_FORMAT}")]
    NoPlan(#[source] serde_json::Error),
    /// A plan of another version.
    #[error("plan {found}, this build reads plan {PLAN_FORMAT}")]
    OtherVersion {
        /// The version in the text.
        found: serde_json::Value,
    },
    /// A field is missing, unknown or of another type.
    #[error("plan {PLAN_FORMAT} is not written like that: {0}")]
    Fields(serde_json::Error),
    /// A fault that has no such field.
    #[error("faults[{index}].fault: expected no field besides \"do\" for {class:?}, got {field:?}")]
    UnknownField {
        /// Which fault, from 0.
        index: usize,
        /// Its class.
        class: &'static str,
        /// The field.
        field: String,
    },
    /// Something is out of range or does not exist.
    #[error(transparent)]
    Misfit(#[from] Misfit),
}

/// The version alone, so that plans of other versions can be read so far.
#[derive(Deserialize)]
struct VersionOnly {
    plan: serde_json::Value,
}

/// The fields of the faults alone.
#[derive(Deserialize)]
struct FaultFields {
    faults: Vec<FaultField>,
}

#[derive(Deserialize)]
struct FaultField {
    fault: serde_json::Map<String, serde_json::Value>,
}

impl Plan {
    /// Reads a plan and checks it.
    ///
    /// # Errors
    /// If it is of another version, has missing or unknown fields, or does not pass [`Self::check`].
    pub(crate) fn from_json(text: &str) -> Result<Self, PlanError> {
        let version: VersionOnly = serde_json::from_str(text).map_err(PlanError::NoPlan)?;
        if version.plan != PLAN_FORMAT {
            return Err(PlanError::OtherVersion { found: version.plan });
        }
        let plan: Self = serde_json::from_str(text).map_err(PlanError::Fields)?;
        let fields: FaultFields = serde_json::from_str(text).map_err(PlanError::Fields)?;
        // Serde accepts unknown fields of tagged variants that have no field.
        for (index, (fault, written)) in plan.faults.iter().zip(&fields.faults).enumerate() {
            if fault.fault.has_no_field()
                && let Some(field) = written.fault.keys().find(|field| *field != "do")
            {
                let class = fault.fault.class();
                return Err(PlanError::UnknownField { index, class, field: field.clone() });
            }
        }
        plan.check()?;
        Ok(plan)
    }

    /// The plan as JSON, with one operation or fault per line.
    pub(crate) fn to_json(&self) -> String {
        to_lines(self).expect("a plan has nothing that JSON lacks")
    }

    /// Reads a plan from a file and checks it.
    ///
    /// # Errors
    /// If the file cannot be read, or as [`Self::from_json`].
    pub(crate) fn read(path: &Path) -> Result<Self, PlanError> {
        let text = fs::read_to_string(path)
            .map_err(|source| PlanError::Read { path: path.to_owned(), source })?;
        Self::from_json(&text)
            .map_err(|error| PlanError::InFile { path: path.to_owned(), source: Box::new(error) })
    }

    /// Writes the plan to a file, which is replaced if it exists.
    ///
    /// # Errors
    /// If the file cannot be written.
    pub(crate) fn write(&self, path: &Path) -> Result<(), PlanError> {
        fs::write(path, self.to_json())
            .map_err(|source| PlanError::Write { path: path.to_owned(), source })
    }
}

#[cfg(test)]
#[path = "file_test.rs"]
mod file_test;
