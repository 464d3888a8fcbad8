//! The options on which all workers of a job must agree, and checks for options that a job over many machines
//! cannot have.

use super::filter_address::FilterAddress;
use super::inputs::is_dash;
use super::online::Online;
use super::spec::JobSpec;
use super::spec_conflicts::{Conflict, conflicts};
use crate::error::{Result, refuse};
use umbel_dedup_engine::job::JobRules;
use umbel_dedup_engine::{Exactness, FilterChoice};
use umbel_filter::ItemHasher;
use umbel_records::Granularity;

/// The options for the job's coordinator.
pub fn rules(spec: &JobSpec) -> JobRules {
    JobRules {
        exactness: spec.exactness,
        keep: spec.keep,
        report_kept: spec.reports_kept(),
        report_sizes: spec.annotates,
        names_parts: spec.has_parts() && spec.reports_kept(),
        choice: spec.filter,
        bad_max: spec.skip_bad.unwrap_or(0),
        adds: spec.add_to.is_some(),
    }
}

/// The digest of all options that workers must agree on.
pub fn spec_digest(spec: &JobSpec) -> [u8; 16] {
    let options = agreed(spec);
    let options = options.iter().map(|(name, value)| format!("{name} {value}; "));
    let agreed = format!("{} {}", env!("CARGO_PKG_VERSION"), options.collect::<String>());
    digest_of(&agreed)
}

/// The digest of a text.
pub(crate) fn digest_of(text: &str) -> [u8; 16] {
    let hash = ItemHasher::Xxh3 { seed: 0 }.hash(text.as_bytes());
    let mut digest = [0; 16];
    digest[..8].copy_from_slice(&hash.hi().to_le_bytes());
    digest[8..].copy_from_slice(&hash.lo().to_le_bytes());
    digest
}

/// The options that all workers of a job must agree on: the name of each, and its value as text.
pub fn agreed(spec: &JobSpec) -> Vec<(&'static str, String)> {
    let exactness = match spec.exactness {
        Exactness::Approximate { false_positive_rate } => {
            format!("approximate {false_positive_rate:e}")
        }
        Exactness::Fingerprint => "fingerprint".to_owned(),
        Exactness::Bytes => "bytes".to_owned(),
    };
    // Without the nodes' addresses: different machines may reach the same cluster at different addresses.
    let asked: Vec<&str> = spec.online.iter().map(FilterAddress::filter).collect();
    let added_to = spec.add_to.as_ref().map(FilterAddress::filter);
    let (what, keys) = match &spec.granularity {
        Granularity::Line => ("line", String::new()),
        Granularity::Record => ("record", String::new()),
        Granularity::File => ("file", String::new()),
        Granularity::Key(fields) => ("key", format!("{fields:?}")),
        Granularity::Paragraph(field) => ("paragraph", field.clone()),
    };
    vec![
        ("--granularity", format!("{what} {}", spec.names_granularity)),
        ("--key", keys),
        ("--scope", format!("{:?}", spec.scope)),
        ("--normalise", format!("{:?}", spec.normalise)),
        ("--missing-key", format!("{:?}", spec.missing_key)),
        ("--empty", format!("{:?}", spec.empty)),
        ("--paragraph-bytes-min", spec.paragraph_bytes_min.to_string()),
        ("--format", format!("{:?}", spec.format)),
        ("--exactness", exactness),
        ("--keep", format!("{:?} {:?}", spec.keep, spec.best)),
        ("--filter", filter_name(spec.filter).to_owned()),
        ("--duplicates or --groups", spec.reports_kept().to_string()),
        ("--annotate", spec.annotates.to_string()),
        ("--report", spec.reports_files.to_string()),
        ("--skip-bad", format!("{:?}", spec.skip_bad)),
        ("--seed", format!("{:#x}", spec.seed)),
        ("--reference (filters)", format!("{asked:?}")),
        ("--add-to", format!("{added_to:?}")),
    ]
}

/// The text of a choice in the digest. It does not change if a variant is renamed.
const fn filter_name(choice: FilterChoice) -> &'static str {
    match choice {
        FilterChoice::Auto => "Auto",
        FilterChoice::SingleShot => "SingleShot",
        FilterChoice::FullHash => "Wide",
    }
}

/// Rejects options that would need data which workers do not send each other.
///
/// # Errors
///
/// A usage error that names the option.
pub fn check_possible(spec: &JobSpec) -> Result<()> {
    let index = spec.save_index.as_ref().map(|index| &index.path);
    let named = [&spec.duplicates, &spec.groups, &spec.bad, &spec.summary, &spec.page];
    let named = named.into_iter().flatten();
    if named.chain(index).any(|path| is_dash(path)) {
        refuse!("standard output cannot wait for all workers: name files for outputs");
    }
    if conflicts(spec).contains(&Conflict::ScopeWithIndex) {
        refuse!(
            "--scope names directories and files by their whole paths on many machines, and indexes do not: leave one \
             of the two out"
        );
    }
    Online::check(spec)
}
