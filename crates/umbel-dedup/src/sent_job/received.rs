//! Turns the message of a job into a specification: every field is checked by itself.

use super::choices::{BINARY, EMPTY, FILTER, FORMAT, KEEP, MISSING_KEY, NORMALISER, SCOPE};
use super::together::check_together;
use super::{SentJob, SentJobError, wrong};
use crate::addresses::is_directory;
use crate::best::BestField;
use crate::filter_address::FilterAddress;
use crate::format_rule::FormatRule;
use crate::memory::MEMORY_BYTES_MIN;
use crate::name_filter::{NameFilter, NamePattern};
use crate::spec::{JobSpec, OutputTarget, SaveIndex};
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use umbel_client::proto;
use umbel_dedup_engine::{Exactness, IndexBits};
use umbel_files::PATH_BYTES_MAX;
use umbel_records::{Format, Granularity, Normaliser};

/// Most characters of a text that an error quotes: a text may be as long as the message.
const QUOTED_CHARS_MAX: usize = 64;

/// Most inputs, and most inputs of single nodes: each is searched for when a node opens the job. So many paths of
/// a usual length fill a message.
const INPUTS_MAX: usize = 16_384;

/// Most patterns for names to read, and most for names to leave out: each is matched with the name of every file.
const PATTERNS_MAX: usize = 1024;

/// Most keys: each is searched for in every record.
const KEYS_MAX: usize = 1024;

/// Most normalisations: each writes every item anew. There are eight, and most do nothing the second time.
const NORMALISE_STEPS_MAX: usize = 64;

/// Most indexes, and most filters, that hold what is known: each stays open, or is asked for every kept item.
const REFERENCES_MAX: usize = 1024;

type Result<T> = std::result::Result<T, SentJobError>;

fn quoted(text: &str) -> String {
    format!("{:?}", text.chars().take(QUOTED_CHARS_MAX).collect::<String>())
}

/// The job that a message describes.
pub(super) fn job(message: proto::DedupSpec) -> Result<SentJob> {
    check_counts(&message)?;
    let job = filled(message)?;
    check_together(&job.spec)?;
    Ok(job)
}

/// Refuses more of something than any job needs, before any of it is read.
fn check_counts(message: &proto::DedupSpec) -> Result<()> {
    if message.inputs.is_empty() && message.own_inputs.is_empty() {
        return Err(wrong("inputs", "at least one, or own_inputs", "none"));
    }
    let counts = [
        ("inputs", message.inputs.len(), INPUTS_MAX),
        ("own_inputs", message.own_inputs.len(), INPUTS_MAX),
        ("include", message.include.len(), PATTERNS_MAX),
        ("exclude", message.exclude.len(), PATTERNS_MAX),
        ("keys", message.keys.len(), KEYS_MAX),
        ("normalise", message.normalise.len(), NORMALISE_STEPS_MAX),
        ("references", message.references.len(), REFERENCES_MAX),
        ("reference_filters", message.reference_filters.len(), REFERENCES_MAX),
    ];
    match counts.into_iter().find(|(_, count, max)| count > max) {
        Some((field, count, max)) => Err(wrong(field, format!("at most {max}"), count.to_string())),
        None => Ok(()),
    }
}

/// The job with all fields. Lists every field of the message, so that a new one is not ignored.
fn filled(message: proto::DedupSpec) -> Result<SentJob> {
    let proto::DedupSpec {
        inputs,
        own_inputs,
        include,
        exclude,
        format,
        delimiter,
        is_headless,
        binary,
        skip_bad,
        granularity,
        names_granularity,
        keys,
        normalise,
        scope,
        missing_key,
        empty,
        paragraph_bytes_min,
        exactness,
        false_positive_rate,
        keep,
        best,
        output,
        annotates,
        overwrite,
        duplicates,
        groups,
        bad,
        reports_files,
        references,
        reference_filters,
        add_to,
        save_index,
        filter,
        names_seed,
    } = message;
    let rule = format_rule(format, delimiter, is_headless)?;
    let granularity = granularity_of(granularity, keys)?;
    let inputs = inputs_of(inputs)?;
    let spec = JobSpec {
        names: names(&include, &exclude)?,
        paragraph_bytes_min,
        normalise: steps(&normalise)?,
        scope: SCOPE.received(scope)?,
        missing_key: MISSING_KEY.received(missing_key)?,
        empty: EMPTY.received(empty)?,
        names_granularity,
        output: output_of(output),
        annotates,
        duplicates: duplicates.map(PathBuf::from),
        groups: groups.map(PathBuf::from),
        bad: bad.map(PathBuf::from),
        references: references.into_iter().map(PathBuf::from).collect(),
        online: filters("reference_filters", reference_filters)?,
        add_to: filters("add_to", add_to)?.pop(),
        save_index: save_index.map(save_index_of).transpose()?,
        reports_files,
        exactness: exactness_of(exactness, false_positive_rate)?,
        keep: KEEP.received(keep)?,
        best: best.map(best_of).transpose()?,
        filter: FILTER.received(filter)?,
        skip_bad,
        binary: BINARY.received(binary)?,
        overwrite,
        ..JobSpec::reading(inputs, rule, granularity, PathBuf::new(), MEMORY_BYTES_MIN)
    };
    Ok(SentJob { spec, own_inputs: own_inputs_of(own_inputs)?, names_seed })
}

fn inputs_of(sent: Vec<String>) -> Result<Vec<OsString>> {
    sent.iter().try_for_each(|input| check_path("inputs", input))?;
    Ok(sent.into_iter().map(OsString::from).collect())
}

/// Refuses what no node can read: standard input, objects, and paths below a folder that each node would choose.
fn check_path(field: &'static str, text: &str) -> Result<()> {
    let bytes = text.len();
    if bytes > PATH_BYTES_MAX {
        let expected = format!("paths of at most {PATH_BYTES_MAX} bytes");
        return Err(wrong(field, expected, format!("{bytes} bytes")));
    }
    if Path::new(text).is_absolute() {
        Ok(())
    } else {
        Err(wrong(field, "absolute paths of files", quoted(text)))
    }
}

fn steps(numbers: &[i32]) -> Result<Vec<Normaliser>> {
    numbers.iter().map(|step| NORMALISER.received(*step)).collect()
}

fn names(include: &[String], exclude: &[String]) -> Result<NameFilter> {
    let (include, exclude) = (patterns("include", include)?, patterns("exclude", exclude)?);
    Ok(NameFilter { include, exclude })
}

fn own_inputs_of(sent: Vec<proto::DedupOwnInput>) -> Result<Vec<(u64, String)>> {
    let own = |proto::DedupOwnInput { node, input }| {
        if input.is_empty() {
            Err(wrong("own_inputs", "an input for each node", format!("none for {node}")))
        } else {
            check_path("own_inputs", &input).map(|()| (node, input))
        }
    };
    sent.into_iter().map(own).collect()
}

fn patterns(field: &'static str, texts: &[String]) -> Result<Vec<NamePattern>> {
    let pattern = |text: &String| {
        NamePattern::parse(text)
            .map_err(|error| wrong(field, format!("a pattern ({error})"), quoted(text)))
    };
    texts.iter().map(pattern).collect()
}

fn format_rule(format: i32, delimiter: Option<u32>, is_headless: bool) -> Result<FormatRule> {
    let given = FORMAT.received(format)?;
    let delimiter = delimiter.map(delimiter_of).transpose()?;
    let has_table = match given {
        None | Some(Format::CSV) => true,
        Some(Format::TSV) => delimiter.is_none_or(|byte| byte == b'\t'),
        Some(_) => false,
    };
    match (has_table, delimiter, is_headless) {
        (true, ..) | (false, None, false) => Ok(FormatRule { given, delimiter, is_headless }),
        (false, Some(byte), _) => {
            let expected = "none, or a table as the format (and a tab for TSV)";
            Err(wrong("delimiter", expected, byte.to_string()))
        }
        (false, None, true) => Err(wrong("is_headless", "false, or a table as the format", "true")),
    }
}

fn delimiter_of(number: u32) -> Result<u8> {
    let byte = u8::try_from(number).ok().filter(u8::is_ascii);
    byte.filter(|byte| !matches!(byte, b'"' | b'\n' | b'\r')).ok_or_else(|| {
        wrong("delimiter", "a byte of ASCII that is no quote and no line end", number.to_string())
    })
}

fn granularity_of(number: i32, mut keys: Vec<String>) -> Result<Granularity> {
    let count = keys.len();
    let wrong_keys = |expected: &str| Err(wrong("keys", expected, count.to_string()));
    match proto::DedupGranularity::try_from(number) {
        Ok(proto::DedupGranularity::Unspecified) | Err(_) => {
            Err(wrong("granularity", "LINE, KEY, RECORD, PARAGRAPH or FILE", number.to_string()))
        }
        Ok(proto::DedupGranularity::Key) if count == 0 => wrong_keys("at least one with KEY"),
        Ok(proto::DedupGranularity::Key) => Ok(Granularity::Key(keys)),
        Ok(proto::DedupGranularity::Paragraph) => match keys.pop() {
            Some(key) if count == 1 => Ok(Granularity::Paragraph(key)),
            _ => wrong_keys("one with PARAGRAPH"),
        },
        Ok(_) if count > 0 => wrong_keys("none without KEY and PARAGRAPH"),
        Ok(proto::DedupGranularity::Line) => Ok(Granularity::Line),
        Ok(proto::DedupGranularity::Record) => Ok(Granularity::Record),
        Ok(proto::DedupGranularity::File) => Ok(Granularity::File),
    }
}

fn exactness_of(got: i32, rate: f64) -> Result<Exactness> {
    let exactness = match proto::DedupExactness::try_from(got) {
        Ok(proto::DedupExactness::Approximate) if rate > 0.0 && rate < 1.0 => {
            return Ok(Exactness::Approximate { false_positive_rate: rate });
        }
        Ok(proto::DedupExactness::Approximate) => {
            return Err(wrong(
                "false_positive_rate",
                "a rate above 0 and below 1",
                rate.to_string(),
            ));
        }
        Ok(proto::DedupExactness::Fingerprint) => Exactness::Fingerprint,
        Ok(proto::DedupExactness::Bytes) => Exactness::Bytes,
        Ok(proto::DedupExactness::Unspecified) | Err(_) => {
            return Err(wrong("exactness", "APPROXIMATE, FINGERPRINT or BYTES", got.to_string()));
        }
    };
    if rate == 0.0 {
        Ok(exactness)
    } else {
        Err(wrong("false_positive_rate", "none without APPROXIMATE", rate.to_string()))
    }
}

fn best_of(sent: proto::DedupBest) -> Result<BestField> {
    let proto::DedupBest { field, is_smallest } = sent;
    if field.is_empty() {
        Err(wrong("best.field", "a field or column", "none"))
    } else {
        Ok(BestField { field, smallest: is_smallest })
    }
}

/// Whether an output is a directory depends on the node, where it may exist, unless it ends in a slash. Whether
/// the message is valid must not depend on it.
fn output_of(path: Option<String>) -> OutputTarget {
    match path.map(PathBuf::from) {
        None => OutputTarget::Stdout,
        Some(path) if is_directory(&path) => OutputTarget::Directory(path),
        Some(path) => OutputTarget::File(path),
    }
}

/// Filters of the cluster itself: a message cannot name others.
fn filters(
    field: &'static str,
    names: impl IntoIterator<Item = String>,
) -> Result<Vec<FilterAddress>> {
    let filter = |name| FilterAddress::own(name).ok_or_else(|| wrong(field, "a name", "none"));
    names.into_iter().map(filter).collect()
}

fn save_index_of(sent: proto::DedupSaveIndex) -> Result<SaveIndex> {
    let bits = |number| {
        let bits = IndexBits::new(number);
        bits.ok_or_else(|| wrong("save_index.bits", "64, 96 or 128", number.to_string()))
    };
    Ok(SaveIndex { path: PathBuf::from(sent.path), bits: sent.bits.map(bits).transpose()? })
}
