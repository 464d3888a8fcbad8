//! Tests of the message of a job.

use super::*;
use crate::best::BestField;
use crate::format_rule::FormatRule;
use crate::name_filter::{NameFilter, NamePattern};
use crate::scope::Scope;
use crate::spec::{BinaryFiles, EmptyItems, Groups, MissingKey};
use proptest::collection::vec;
use proptest::option;
use proptest::prelude::*;
use proptest::sample::select;
use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;
use umbel_dedup_engine::{Exactness, FilterChoice, Keep};
use umbel_records::{Format, Granularity, Normaliser};

/// A job with the defaults of the command.
pub(super) fn plain() -> SentJob {
    let inputs = vec!["/d/*.txt".into()];
    let (scratch, memory_bytes) = (PathBuf::new(), crate::MEMORY_BYTES_MIN);
    let rule = FormatRule::default();
    let mut spec = JobSpec::reading(inputs, rule, Granularity::Line, scratch, memory_bytes);
    spec.names_granularity = false;
    spec.output = OutputTarget::Directory("/o/".into());
    SentJob { spec, own_inputs: Vec::new(), names_seed: false }
}

fn texts() -> impl Strategy<Value = Vec<String>> {
    vec(select(vec!["/a", "/b/*.x", "/ü \"\n", "--key", "{", "/c/"]).prop_map(str::to_owned), 1..4)
}

fn inputs() -> impl Strategy<Value = Vec<OsString>> {
    vec(select(vec!["/a", "/b/*.x", "/ü \"\n", "/c/"]).prop_map(OsString::from), 1..4)
}

fn path() -> impl Strategy<Value = Option<PathBuf>> {
    option::of(select(vec!["/o/a", "/ö/b c"]).prop_map(PathBuf::from))
}

fn pattern() -> impl Strategy<Value = NamePattern> {
    select(vec!["*.txt", "cache/**", "[a-c]?"]).prop_map(|text| NamePattern::parse(text).unwrap())
}

fn filter() -> impl Strategy<Value = FilterAddress> {
    select(vec!["f", "a/ü"]).prop_map(|name| FilterAddress::own(name.to_owned()).unwrap())
}

/// The format, and the granularity that it allows.
fn cut() -> impl Strategy<Value = (FormatRule, Granularity)> {
    let tables = select(vec![None, Some(Format::CSV)]);
    let delimiter = option::of(select(vec![b';', b'\t', 0]));
    let dialects = (tables, delimiter, any::<bool>())
        .prop_map(|(given, delimiter, is_headless)| FormatRule { given, delimiter, is_headless });
    let others = select(vec![
        Format::Text,
        Format::ZeroTerminated,
        Format::JsonLines,
        Format::TSV,
        Format::Parquet,
    ]);
    let rule = prop_oneof![dialects, others.prop_map(FormatRule::from)];
    let granularity = prop_oneof![
        select(vec![Granularity::Line, Granularity::Record, Granularity::File]),
        texts().prop_map(Granularity::Key),
        Just(Granularity::Paragraph("text".to_owned())),
    ];
    (rule, granularity).prop_map(|(rule, granularity)| match granularity {
        Granularity::Key(_) | Granularity::Paragraph(_)
            if rule.given == Some(Format::ZeroTerminated) =>
        {
            (rule, Granularity::Record)
        }
        granularity => (rule, granularity),
    })
}

fn exactness() -> impl Strategy<Value = Exactness> {
    let rate = 1e-9f64..0.999;
    prop_oneof![
        rate.prop_map(|false_positive_rate| Exactness::Approximate { false_positive_rate }),
        Just(Exactness::Fingerprint),
        Just(Exactness::Bytes),
    ]
}

fn keep() -> impl Strategy<Value = (Keep, Option<BestField>)> {
    let best = any::<bool>().prop_map(|smallest| BestField { field: "x:min".into(), smallest });
    prop_oneof![
        Just((Keep::First, None)),
        Just((Keep::Last, None)),
        best.prop_map(|best| (Keep::Best, Some(best))),
    ]
}

fn save_index() -> impl Strategy<Value = Option<SaveIndex>> {
    let bits = option::of(select(vec![64, 96, 128]));
    let index = bits.prop_map(|bits| SaveIndex {
        path: "/i.umbi".into(),
        bits: bits.map(|bits| IndexBits::new(bits).unwrap()),
    });
    option::of(index)
}

prop_compose! {
    /// What is read, and how.
    fn read()(
        inputs in inputs(),
        (format, granularity) in cut(),
        include in vec(pattern(), 0..3),
        exclude in vec(pattern(), 0..3),
        names_granularity in any::<bool>(),
        normalise in vec(select(Normaliser::ALL.to_vec()), 0..9),
        scope in select(vec![Scope::Global, Scope::Directory, Scope::File]),
        missing_key in select(vec![MissingKey::Fail, MissingKey::Keep, MissingKey::Drop]),
        empty in select(vec![EmptyItems::Compare, EmptyItems::Keep]),
        bytes_min in any::<u64>(),
        skip_bad in option::of(any::<u64>()),
    ) -> JobSpec {
        let is_keyed = matches!(granularity, Granularity::Key(_) | Granularity::Paragraph(_));
        let has_parts = matches!(granularity, Granularity::Paragraph(_));
        let defaults = plain().spec;
        JobSpec {
            inputs,
            format,
            granularity,
            names: NameFilter { include, exclude },
            names_granularity,
            normalise,
            scope,
            missing_key: if is_keyed { missing_key } else { MissingKey::Fail },
            empty,
            paragraph_bytes_min: if has_parts { bytes_min } else { 0 },
            skip_bad,
            ..defaults
        }
    }
}

prop_compose! {
    /// The same with what is written.
    fn drawn()(
        spec in read(),
        output in select(vec!["/none/", "/none/file", ""]),
        [annotates, overwrite, reports_files, names_seed] in any::<[bool; 4]>(),
        (duplicates, groups, bad) in (path(), path(), path()),
        (references, online) in (option::of(texts()), vec(filter(), 0..3)),
        add_to in option::of(filter()),
        save_index in save_index(),
        (exactness, (keep, best)) in (exactness(), keep()),
        filter in select(vec![FilterChoice::Auto, FilterChoice::SingleShot, FilterChoice::FullHash]),
        binary in select(vec![BinaryFiles::Refuse, BinaryFiles::Skip, BinaryFiles::Copy, BinaryFiles::Text]),
        own_inputs in vec((any::<u64>(), select(vec!["/x", "/*"]).prop_map(str::to_owned)), 0..3),
    ) -> SentJob {
        let output = match output {
            "" => OutputTarget::Stdout,
            "/none/" => OutputTarget::Directory(output.into()),
            _ => OutputTarget::File(output.into()),
        };
        let has_copies = binary == BinaryFiles::Copy && !matches!(output, OutputTarget::Directory(_));
        let references = references.unwrap_or_default().into_iter().map(PathBuf::from);
        let has_files = exactness != Exactness::Bytes && !annotates;
        let references: Vec<PathBuf> = references.filter(|_| has_files).collect();
        let has_filters = spec.granularity != Granularity::File;
        let online: Vec<_> = online.into_iter().filter(|_| has_files && has_filters).collect();
        let add_to = add_to.filter(|_| has_filters);
        let has_others = !references.is_empty() || !online.is_empty();
        let has_others = has_others || add_to.is_some() || save_index.is_some();
        let spec = JobSpec {
            output,
            annotates,
            overwrite,
            reports_files,
            duplicates,
            groups,
            bad: bad.filter(|_| spec.skip_bad.is_some()),
            references,
            online,
            add_to,
            scope: if has_others { Scope::Global } else { spec.scope },
            save_index,
            exactness,
            keep,
            best,
            filter,
            binary: if has_copies { BinaryFiles::Refuse } else { binary },
            ..spec
        };
        SentJob { spec, own_inputs, names_seed }
    }
}

proptest! {
    #[test]
    fn a_job_is_what_its_message_says(job in drawn()) {
        let bytes = job.encode().unwrap();
        let decoded = SentJob::decode(&bytes).unwrap();
        prop_assert_eq!(format!("{decoded:?}"), format!("{job:?}"));
        prop_assert_eq!(decoded.encode().unwrap(), bytes);
    }

    #[test]
    fn any_bytes_are_a_job_or_an_error(bytes in vec(any::<u8>(), 0..200)) {
        let _ = SentJob::decode(&bytes);
    }

    #[test]
    fn a_damaged_message_is_another_job_or_an_error(
        job in drawn(), at in any::<prop::sample::Index>(), byte in any::<u8>(),
    ) {
        let mut bytes = job.encode().unwrap();
        let at = at.index(bytes.len());
        bytes[at] = byte;
        if let Ok(decoded) = SentJob::decode(&bytes) {
            prop_assert!(SentJob::decode(&decoded.encode().unwrap()).is_ok());
        }
    }
}

/// The bytes of a message that stay as they are: they are in the ledgers of clusters.
#[test]
fn messages_keep_their_bytes() {
    let mut job = plain();
    let expected = [
        &b"\x0a\x08/d/*.txt\x40\x01\x50\x01\x70\x01\x80\x01\x01\x88\x01\x01\x98\x01\x02"[..],
        b"\xa8\x01\x01\xba\x01\x03/o/\x90\x02\x01",
    ];
    assert_eq!(job.encode().unwrap(), expected.concat());
    job.own_inputs = vec![(2, "/x".to_owned())];
    job.names_seed = true;
    let spec = &mut job.spec;
    spec.granularity = Granularity::Key(vec!["url".into()]);
    spec.normalise = vec![Normaliser::Trim, Normaliser::Url];
    spec.exactness = Exactness::Approximate { false_positive_rate: 0.5 };
    (spec.keep, spec.best) = (Keep::Best, Some(BestField { field: "at".into(), smallest: true }));
    spec.save_index = Some(SaveIndex { path: "/i".into(), bits: IndexBits::new(96) });
    spec.online = vec![FilterAddress::own("f".into()).unwrap()];
    spec.skip_bad = Some(0);
    let expected = [
        &b"\x0a\x08/d/*.txt\x12\x06\x08\x02\x12\x02/x\x40\x01\x48\x00\x50\x02\x62\x03url"[..],
        b"\x6a\x02\x01\x08\x70\x01\x80\x01\x01\x88\x01\x01\x98\x01\x01",
        b"\xa1\x01\x00\x00\x00\x00\x00\x00\xe0\x3f\xa8\x01\x03\xb2\x01\x06\x0a\x02at\x10\x01",
        b"\xba\x01\x03/o/\xfa\x01\x01f\x8a\x02\x06\x0a\x02/i\x10\x60\x90\x02\x01\x98\x02\x01",
    ];
    assert_eq!(job.encode().unwrap(), expected.concat());
}

#[test]
fn fields_of_a_later_release_are_refused() {
    let bytes = plain().encode().unwrap();
    // Field 36, a number.
    let more = [&bytes[..], b"\xa0\x02\x01"].concat();
    let error = SentJob::decode(&more).unwrap_err();
    assert!(matches!(error, SentJobError::UnknownFields), "{error}");
    // The same list of numbers, packed and one by one: they have the same meaning, and other bytes.
    let mut message = plain().message().unwrap();
    message.normalise = vec![1, 2, 3];
    let packed = message.encode_to_vec();
    assert!(SentJob::decode(&packed).is_ok());
    let text = SentJob::decode(&[&bytes[..], b"\x68\x01\x68\x02\x68\x03"].concat())
        .unwrap_err()
        .to_string();
    assert!(text.contains("or is not encoded canonically"), "{text}");
    assert!(matches!(SentJob::decode(&bytes[1..]), Err(SentJobError::Malformed(_))));
    let long = vec![0; JOB_SPEC_BYTES_MAX + 1];
    let error = SentJob::decode(&long).unwrap_err().to_string();
    assert_eq!(error, "a job of 262145 bytes, at most 262144 are allowed");
}

/// What makes a job one that cannot be sent.
type Change = fn(&mut JobSpec);

#[test]
fn what_no_cluster_does_is_not_sent() {
    let refused = |change: fn(&mut JobSpec)| {
        let mut job = plain();
        change(&mut job.spec);
        job.encode().unwrap_err().to_string()
    };
    let cases: [(Change, &str); 6] = [
        (|spec| spec.workers = Some(2), "--workers"),
        (|spec| spec.in_place = true, "--in-place"),
        (|spec| spec.by_size.groups = Groups::Repeated, "sizes of groups"),
        (
            |spec| spec.format = Format::Table { delimiter: b';', has_header: true }.into(),
            "--delimiter",
        ),
        (|spec| spec.online = vec!["umbel://a/f".parse().unwrap()], "umbel:///f"),
        (
            |spec| spec.inputs.push(OsString::from_vec(b"/d/bad\xff".to_vec())),
            "/d/bad\u{fffd}: what nodes are told must be UTF-8: name the directory",
        ),
    ];
    for (change, expected) in cases {
        let error = refused(change);
        assert!(error.contains(expected), "{error}");
    }
}

/// Words of other releases begin with a brace.
#[test]
fn no_message_begins_like_words() {
    assert!(matches!(SentJob::decode(b"{\"release\":"), Err(SentJobError::Malformed(_))));
}

/// Otherwise a command could send what nodes without the directory refuse.
#[test]
fn a_directory_ends_in_a_slash_in_the_message() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().to_str().unwrap();
    let mut job = plain();
    job.spec.output = OutputTarget::Directory(path.into());
    job.spec.binary = BinaryFiles::Copy;
    let mut message = job.message().unwrap();
    assert_eq!(message.output, Some(format!("{path}/")));
    assert!(SentJob::decode(&message.encode_to_vec()).is_ok());
    message.output = Some(path.to_owned());
    let error = SentJob::decode(&message.encode_to_vec()).unwrap_err().to_string();
    assert!(error.starts_with("binary: expected COPY only with an output that ends"), "{error}");
}

/// A node of an earlier build refuses a job with a field that it does not know only when it opens the job.
#[test]
fn a_new_field_or_value_comes_with_a_version_of_the_cluster() {
    let proto = include_str!("../../../../proto/umbel/v1/dedup.proto");
    let is_numbered = |line: &&str| line.ends_with(';') && line.contains(" = ");
    let numbered = proto.lines().map(str::trim).filter(is_numbered).count();
    let advice = "JOB_MESSAGES_SINCE does not suffice for what is new: have described_since return the highest version \
                  that a set field needs, and correct the number here";
    assert_eq!(numbered, 91, "{advice}");
}

#[test]
fn options_show_every_field_of_the_message() {
    let mut job = plain();
    job.own_inputs = vec![(2, "/x".to_owned())];
    let spec = &mut job.spec;
    (spec.keep, spec.best) = (Keep::Best, Some(BestField { field: "at".into(), smallest: true }));
    spec.format = FormatRule { given: Some(Format::CSV), delimiter: Some(b';'), is_headless: true };
    spec.save_index = Some(SaveIndex { path: "/i".into(), bits: IndexBits::new(96) });
    spec.online = vec![FilterAddress::own("f".into()).unwrap()];
    (spec.skip_bad, spec.binary) = (Some(9), BinaryFiles::Skip);
    let options = job.options();
    for (name, expected) in [
        ("inputs", serde_json::json!(["/d/*.txt"])),
        ("own_inputs", serde_json::json!([{ "node": 2, "input": "/x" }])),
        ("keep", "best:at:min".into()),
        ("exactness", "fingerprint".into()),
        ("format", "csv".into()),
        ("delimiter", ";".into()),
        ("is_headless", true.into()),
        ("save_index", serde_json::json!({ "path": "/i", "bits": 96 })),
        ("reference_filters", serde_json::json!(["f"])),
        ("skip_bad", 9.into()),
        ("binary", "skip".into()),
        ("groups", serde_json::Value::Null),
    ] {
        assert_eq!(options[name], expected, "{name}");
    }
    let proto = include_str!("../../../../proto/umbel/v1/dedup.proto");
    let (_, message) = proto.split_once("message DedupSpec {").unwrap();
    let (message, _) = message.split_once('}').unwrap();
    let fields =
        message.lines().filter_map(|line| line.split_once(" = ")?.0.split(' ').next_back());
    for field in fields {
        let name = match field {
            "keys" => "key",
            // In the name of the keep rule.
            "best" => "keep",
            field => field,
        };
        assert!(options.get(name).is_some(), "{field}");
    }
}
