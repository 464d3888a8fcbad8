//! `--count`, `--repeated` and `--unique-only`: outputs that depend on how often a record occurs.

use super::{GranularityArg, OUTPUT};
use crate::exit::UsageError;
use clap::Args;
use umbel_dedup::{BySize, Groups};

/// Arguments that choose by the size of a group of equal records.
#[derive(Args)]
pub(super) struct BySizeArgs {
    /// Put before each record how often it occurred
    #[arg(long, conflicts_with = "in_place", help_heading = OUTPUT)]
    count: bool,
    /// Only records that occur repeatedly, one of each
    #[arg(long, conflicts_with = "unique_only", help_heading = OUTPUT)]
    repeated: bool,
    /// Only records that occur once
    #[arg(long, help_heading = OUTPUT)]
    unique_only: bool,
}

/// Other options of a job, some of which exclude a choice by size.
pub(super) struct OtherOptions {
    /// What is compared.
    pub(super) compared: GranularityArg,
    /// Whether it is one worker of many, or a cluster's job.
    pub(super) has_others: bool,
    /// Whether it annotates records.
    pub(super) annotates: bool,
    /// The first option that would report kept records to other jobs.
    pub(super) kept_flag: Option<&'static str>,
}

impl BySizeArgs {
    /// The choice that the flags make.
    ///
    /// # Errors
    ///
    /// If another option excludes it, with the reason.
    pub(super) fn choice(&self, beside: &OtherOptions) -> Result<BySize, UsageError> {
        let groups = match (self.repeated, self.unique_only) {
            (true, _) => Groups::Repeated,
            (false, true) => Groups::Unique,
            (false, false) => Groups::All,
        };
        let flag = match groups {
            Groups::Repeated => "--repeated",
            Groups::Unique => "--unique-only",
            Groups::All if self.count => "--count",
            Groups::All => return Ok(BySize::default()),
        };
        let refuse = |text: &str| Err(UsageError(format!("{flag}: {text}")));
        if beside.has_others {
            return refuse(
                "a worker among many writes before it knows how often all others have a record; --groups FILE lists \
                 that, or start one process",
            );
        }
        if beside.annotates {
            return refuse(
                "--annotate says of every record how often it is there; leave one of the two out",
            );
        }
        if beside.compared == GranularityArg::Paragraph {
            return refuse("chooses whole records, and paragraphs are parts of them");
        }
        if beside.compared == GranularityArg::File && self.count {
            return Err(UsageError(
                "--count: whole files are no lines to count in front of; --groups FILE lists it"
                    .into(),
            ));
        }
        if let (Some(other), true) = (beside.kept_flag, groups != Groups::All) {
            return refuse(&format!(
                "{other} would tell of records that are not written; leave one of the two out"
            ));
        }
        Ok(BySize { groups, counts: self.count })
    }
}
