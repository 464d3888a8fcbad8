//! Reads plans from files and writes them.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value};

use super::line_format::to_lines;
use super::{
    AccessPlan, Fault, FaultPlan, FilterPlan, JobPlan, Misfit, Op, OpPlan, PLAN_FORMAT, Plan,
    Scenario, SetsPlan, WorldShape,
};

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
        found: Value,
    },
    /// A field is missing, unknown or of another type.
    #[error("{place}: {why}")]
    Field {
        /// Its place: a path of fields, such as `ops[3].op.items`; elements are counted from 0.
        place: String,
        /// What is wrong with it.
        why: serde_json::Error,
    },
    /// The same, in a place that is not known.
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
    plan: Value,
}

/// The fields of the faults alone.
#[derive(Deserialize)]
struct FaultFields {
    faults: Vec<FaultField>,
}

#[derive(Deserialize)]
struct FaultField {
    fault: Map<String, Value>,
}

/// A place in a plan, and what is wrong with the value there.
type Wrong = (String, serde_json::Error);

/// The error for a plan that could not be read. serde tells the line of a wrong value, and the end of the line for
/// operations and faults, so its place is looked for in each part.
fn field_error(text: &str, error: serde_json::Error) -> PlanError {
    let plan: Option<Value> = serde_json::from_str(text).ok();
    match plan.and_then(|plan| first_wrong(&plan)) {
        Some((place, why)) => PlanError::Field { place, why },
        None => PlanError::Fields(error),
    }
}

fn first_wrong(plan: &Value) -> Option<Wrong> {
    let part = |name: &str| plan.get(name);
    part("world")
        .and_then(|value| wrong::<WorldShape>("world", value))
        .or_else(|| wrong_in_list::<FilterPlan, Value>(plan, "filters", ""))
        .or_else(|| wrong_in_list::<OpPlan, Op>(plan, "ops", "op"))
        .or_else(|| wrong_in_list::<JobPlan, Value>(plan, "jobs", ""))
        .or_else(|| part("sets").and_then(|value| wrong::<SetsPlan>("sets", value)))
        .or_else(|| wrong_in_list::<Scenario, Value>(plan, "scenarios", ""))
        .or_else(|| part("access").and_then(|value| wrong::<AccessPlan>("access", value)))
        .or_else(|| wrong_in_list::<FaultPlan, Fault>(plan, "faults", "fault"))
        .or_else(|| wrong::<Plan>("", plan))
}

/// The first wrong value in a list of `T`s, whose field `part`, if they have one, is a `P`.
fn wrong_in_list<T: DeserializeOwned, P: DeserializeOwned>(
    plan: &Value,
    list: &str,
    part: &str,
) -> Option<Wrong> {
    let elements = plan.get(list)?.as_array()?;
    elements.iter().enumerate().find_map(|(index, element)| {
        let place = format!("{list}[{index}]");
        let inner = element.get(part);
        inner
            .and_then(|value| wrong::<P>(&format!("{place}.{part}"), value))
            .or_else(|| wrong::<T>(&place, element))
    })
}

fn wrong<T: DeserializeOwned>(place: &str, value: &Value) -> Option<Wrong> {
    let why = serde_json::from_value::<T>(value.clone()).err()?;
    let place = match wrong_field::<T>(value, &why.to_string()) {
        Some(field) if place.is_empty() => field,
        Some(field) => format!("{place}.{field}"),
        None if place.is_empty() => "the plan".to_owned(),
        None => place.to_owned(),
    };
    Some((place, why))
}

/// The field of a `T` that an error is about: without it there is another error, or none.
fn wrong_field<T: DeserializeOwned>(value: &Value, why: &str) -> Option<String> {
    let fields = value.as_object().filter(|_| !why.starts_with("missing field"))?;
    let is_about = |name: &&String| {
        let mut rest = fields.clone();
        rest.remove(*name);
        let error = serde_json::from_value::<T>(Value::Object(rest)).err();
        error.is_none_or(|error| error.to_string() != why)
    };
    // Without its class a fault or an operation has an error of its own.
    let is_class = |name: &&String| *name == "do";
    let field = fields.keys().filter(|name| !is_class(name)).find(is_about);
    let class = || fields.keys().find(is_class).filter(|_| why.starts_with("unknown variant"));
    field.or_else(class).cloned()
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
        let plan: Self = serde_json::from_str(text).map_err(|error| field_error(text, error))?;
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
