//! The job of a cluster as a message, `DedupSpec`: the command fills it, and every node checks it and turns it
//! into its own specification.
//!
//! A node refuses a message with a field that its release does not know, because ignoring the field would run
//! another job. What depends on the node (memory, scratch folder, roots, credentials) is not in the message.

mod choices;
mod options;
mod received;
#[cfg(test)]
mod sent_job_test;
mod together;
#[cfg(test)]
mod wrong_fields_test;

use super::filter_address::FilterAddress;
use super::online::check_own;
use super::spec::{BySize, JobSpec, OutputTarget, SaveIndex};
use choices::{
    BINARY, EMPTY, FILTER, FORMAT, KEEP, MISSING_KEY, NORMALISER, SCOPE, exactness_sent,
    granularity_sent,
};
use prost::Message as _;
use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use umbel_client::proto;
use umbel_dedup_engine::IndexBits;
use umbel_engine::limits::JOB_SPEC_BYTES_MAX;
use umbel_engine::meta::ClusterVersion;
use umbel_files::UsageError;

/// The cluster version since which jobs are messages: nodes of earlier builds read only words. A field or value
/// that is added to the message needs a later version of its own.
pub const JOB_MESSAGES_SINCE: ClusterVersion = ClusterVersion(5);

/// Why bytes are not the message of a job that this release can run. Nothing was changed.
#[derive(Debug, thiserror::Error)]
pub enum SentJobError {
    /// The message is too long: name fewer inputs, or patterns for them.
    #[error("a job of {bytes} bytes, at most {max} are allowed", max = JOB_SPEC_BYTES_MAX)]
    TooLong {
        /// Its length.
        bytes: usize,
    },
    /// No message. Submit the job with `umbel dedup --cluster`.
    #[error("no message of a job")]
    Malformed(#[source] prost::DecodeError),
    /// The message has fields of a later release, or says something twice or at more length than needed.
    #[error(
        "the job has fields that this node's release does not know, or is not encoded canonically (each field once, \
         defaults left out, lists of numbers packed): bring the command and all nodes to one release"
    )]
    UnknownFields,
    /// A field has a value that it cannot have: correct it.
    #[error("{field}: expected {expected}, got {got}")]
    Field {
        /// The field of `DedupSpec`.
        field: &'static str,
        /// The possible values.
        expected: String,
        /// The value, shortened.
        got: String,
    },
}

fn wrong(field: &'static str, expected: impl Into<String>, got: impl Into<String>) -> SentJobError {
    SentJobError::Field { field, expected: expected.into(), got: got.into() }
}

/// A job that a command submits to a cluster.
#[derive(Debug)]
pub struct SentJob {
    /// The specification. Of a decoded one, the node must set what is its own: seed, memory, scratch folder,
    /// roots, and how filters are reached.
    pub spec: JobSpec,
    /// Nodes that read other inputs than those of the specification, and these inputs.
    pub own_inputs: Vec<(u64, String)>,
    /// Whether the user has given the seed. Otherwise the seed of the first reference counts.
    pub names_seed: bool,
}

impl SentJob {
    /// The encoded message.
    ///
    /// # Errors
    ///
    /// If the specification says what no job of a cluster can do, or a path is not UTF-8.
    pub fn encode(&self) -> Result<Vec<u8>, UsageError> {
        Ok(self.message()?.encode_to_vec())
    }

    /// Decodes and checks a message. Memory is proportional to the bytes, which are limited.
    ///
    /// # Errors
    ///
    /// [`SentJobError`]; an error of a field names it, and what was expected.
    pub fn decode(bytes: &[u8]) -> Result<Self, SentJobError> {
        if bytes.len() > JOB_SPEC_BYTES_MAX {
            return Err(SentJobError::TooLong { bytes: bytes.len() });
        }
        let message = proto::DedupSpec::decode(bytes).map_err(SentJobError::Malformed)?;
        // Decoding drops fields that are not known.
        if message.encoded_len() != bytes.len() {
            return Err(SentJobError::UnknownFields);
        }
        received::job(message)
    }

    fn message(&self) -> Result<proto::DedupSpec, UsageError> {
        let spec = &self.spec;
        check_sendable(spec)?;
        let (granularity, keys) = granularity_sent(&spec.granularity);
        let (exactness, false_positive_rate) = exactness_sent(spec.exactness);
        let output = match &spec.output {
            OutputTarget::Stdout => None,
            OutputTarget::File(path) => Some(text(path)?),
            OutputTarget::Directory(path) => Some(directory(path)?),
        };
        let path = |path: &Option<PathBuf>| path.as_deref().map(text).transpose();
        let names = &spec.names;
        Ok(proto::DedupSpec {
            inputs: spec.inputs.iter().map(|input| sent_input(input)).collect::<Result<_, _>>()?,
            own_inputs: self.own_inputs.iter().map(own_input).collect(),
            include: names.include.iter().map(|pattern| pattern.text().to_owned()).collect(),
            exclude: names.exclude.iter().map(|pattern| pattern.text().to_owned()).collect(),
            format: FORMAT.sent(spec.format.given),
            delimiter: spec.format.delimiter.map(u32::from),
            is_headless: spec.format.is_headless,
            binary: BINARY.sent(spec.binary),
            skip_bad: spec.skip_bad,
            granularity,
            names_granularity: spec.names_granularity,
            keys,
            normalise: spec.normalise.iter().map(|step| NORMALISER.sent(*step)).collect(),
            scope: SCOPE.sent(spec.scope),
            missing_key: MISSING_KEY.sent(spec.missing_key),
            empty: EMPTY.sent(spec.empty),
            paragraph_bytes_min: spec.paragraph_bytes_min,
            exactness,
            false_positive_rate,
            keep: KEEP.sent(spec.keep),
            best: spec.best.as_ref().map(|best| proto::DedupBest {
                field: best.field.clone(),
                is_smallest: best.smallest,
            }),
            output,
            annotates: spec.annotates,
            overwrite: spec.overwrite,
            duplicates: path(&spec.duplicates)?,
            groups: path(&spec.groups)?,
            bad: path(&spec.bad)?,
            reports_files: spec.reports_files,
            references: spec.references.iter().map(|path| text(path)).collect::<Result<_, _>>()?,
            reference_filters: spec.online.iter().map(filter_name).collect(),
            add_to: spec.add_to.as_ref().map(filter_name),
            save_index: spec.save_index.as_ref().map(save_index).transpose()?,
            filter: FILTER.sent(spec.filter),
            names_seed: self.names_seed,
        })
    }
}

/// An input for the message, which has no other bytes than text.
fn sent_input(input: &OsStr) -> Result<String, UsageError> {
    input.to_str().map(str::to_owned).ok_or_else(|| {
        UsageError(format!(
            "{}: what nodes are told must be UTF-8: name the directory, whose files may have any name",
            input.display()
        ))
    })
}

fn own_input((node, input): &(u64, String)) -> proto::DedupOwnInput {
    proto::DedupOwnInput { node: *node, input: input.clone() }
}

fn filter_name(address: &FilterAddress) -> String {
    address.filter().to_owned()
}

fn save_index(index: &SaveIndex) -> Result<proto::DedupSaveIndex, UsageError> {
    let bits = index.bits.map(IndexBits::get);
    Ok(proto::DedupSaveIndex { path: text(&index.path)?, bits })
}

/// A directory's path with a slash at its end: it may be no directory yet at the nodes.
fn directory(path: &Path) -> Result<String, UsageError> {
    let mut text = text(path)?;
    if !text.ends_with('/') {
        text.push('/');
    }
    Ok(text)
}

fn text(path: &Path) -> Result<String, UsageError> {
    let text = path.to_str().map(str::to_owned);
    text.ok_or_else(|| UsageError(format!("{}: what nodes are told must be UTF-8", path.display())))
}

/// Refuses what no job of a cluster can do. Lists every field of a specification, so that a new one is either
/// sent or refused.
fn check_sendable(spec: &JobSpec) -> Result<(), UsageError> {
    let JobSpec {
        workers,
        in_place,
        by_size,
        // In the message.
        inputs: _,
        names: _,
        granularity: _,
        paragraph_bytes_min: _,
        normalise: _,
        scope: _,
        missing_key: _,
        empty: _,
        names_granularity: _,
        format,
        output: _,
        annotates: _,
        duplicates: _,
        groups: _,
        bad: _,
        references: _,
        online: _,
        add_to: _,
        save_index: _,
        reports_files: _,
        exactness: _,
        keep: _,
        best: _,
        filter: _,
        skip_bad: _,
        binary: _,
        overwrite: _,
        // Written where the command runs.
        summary: _,
        page: _,
        // In the request, beside the message.
        seed: _,
        // The node's own.
        rank: _,
        roots: _,
        reach: _,
        memory_bytes: _,
        scratch: _,
        stores: _,
    } = spec;
    let refused = [
        (workers.is_some(), "--workers: a cluster has as many workers as nodes"),
        (*in_place, "--in-place: one process replaces files, not a node among many"),
        (*by_size != BySize::default(), "a node among many does not know the sizes of groups"),
        (!FORMAT.has(format.given), "a dialect of tables is given by --delimiter and --no-header"),
    ];
    match refused.into_iter().find(|(is_asked, _)| *is_asked) {
        Some((_, text)) => Err(UsageError(text.into())),
        None => check_own(spec),
    }
}
