//! What others do to the files of a worker between its last output and its commit.

use super::super::error::{DedupError, chain_text};
use super::super::observer::Unwatched;
use super::super::spec::JobSpec;
use super::super::turns::lock;
use super::bench::{Bench, Membership};
use super::fixture_test::Fixture;
use super::journal_records::{JournalRecord, JournaledAside, JournaledOutput};
use super::writing::commit;
use std::fs::OpenOptions;
use std::io::Write as _;
use std::path::PathBuf;
use std::sync::Arc;
use umbel_dedup_engine::job::Written;
use umbel_dedup_engine::{Exactness, Keep};

/// Others write for as long as they need, and a restarted worker finds its outputs written.
#[test]
fn a_line_that_is_appended_before_the_commit_is_found_by_it() {
    let fixture = Fixture::new();
    let bench = fixture.bench(0, &fixture.path("job0"));
    let written = Written::default();
    bench.append_record(&JournalRecord::Written(written.clone())).unwrap();
    lock(&bench.journal_state).written = Some(written);
    let mut input = OpenOptions::new().append(true).open(fixture.path("in0/b.jsonl")).unwrap();
    input.write_all(b"{\"id\": 1}\n").unwrap();
    let error = commit(&bench).unwrap_err().to_string();
    assert!(error.contains("in0/b.jsonl: the file was changed"), "{error}");
    assert!(!lock(&bench.journal_state).committing);
    drop(bench);
    let spec =
        fixture.spec(vec![fixture.input(0)], Exactness::Fingerprint, Keep::First, "out0.txt");
    let member = Membership { worker: 0, job: 77, spec_digest: [3; 16] };
    let again = Bench::open(spec, member, &fixture.path("job0"), Arc::new(Unwatched));
    let error = again.err().map(|error| chain_text(&error)).unwrap();
    assert!(error.contains("in0/b.jsonl: the input has changed since the job began"), "{error}");
}

/// From the commit on, an output may stand in place of the input.
#[test]
fn a_worker_that_has_begun_its_commit_looks_at_no_input() {
    let fixture = Fixture::new();
    let bench = fixture.bench(0, &fixture.path("job0"));
    commit(&bench).unwrap();
    std::fs::write(fixture.path("in0/b.jsonl"), "{\"id\": 1}\n").unwrap();
    commit(&bench).unwrap();
    drop(bench);
    commit(&fixture.bench(0, &fixture.path("job0"))).unwrap();
}

/// The folders above an output directory are created with it; those of other outputs must exist.
#[test]
fn an_output_without_a_folder_is_wrong_usage_before_anything_is_read() {
    let fixture = Fixture::new();
    let open = |output: &str, name: &str, change: fn(&mut JobSpec, PathBuf)| {
        let inputs = vec![fixture.input(0)];
        let mut spec = fixture.spec(inputs, Exactness::Fingerprint, Keep::First, output);
        change(&mut spec, fixture.path(name));
        let member = Membership { worker: 0, job: 77, spec_digest: [3; 16] };
        Bench::open(spec, member, &fixture.path("job0"), Arc::new(Unwatched)).err()
    };
    let changes: [fn(&mut JobSpec, PathBuf); 2] =
        [|spec, path| spec.summary = Some(path), |spec, path| spec.bad = Some(path)];
    for change in changes {
        for (output, name) in [("out0.txt", "new/list"), ("new/0", "new/list"), ("a/", "b/list")] {
            let error = open(output, name, change).unwrap();
            assert!(matches!(error, DedupError::Usage(_)), "{output} {name}: {error}");
            assert!(error.to_string().contains("there is no folder"), "{error}");
        }
    }
    assert!(!fixture.path("job0").exists());
    let error = open("new/0/", "new/list", |spec, path| spec.summary = Some(path));
    assert!(error.is_none(), "{error:?}");
    assert!(fixture.path("new/0").is_dir(), "a worker that keeps no file makes none later");
}

/// A cleaner may remove what has a temporary name.
#[test]
fn an_older_file_is_not_taken_for_an_output_that_is_gone() {
    let fixture = Fixture::new();
    let bench = fixture.bench(0, &fixture.path("job0"));
    let (path, aside) = (fixture.path("out0.txt"), fixture.path(".out0.txt.aside"));
    let output = |bytes| {
        let aside = JournaledAside::File { path: aside.clone(), bytes };
        JournaledOutput { source: None, path: path.clone(), aside }
    };
    // Written twice: the last record is valid.
    lock(&bench.journal_state).outputs.extend([output(7), output(4)]);
    std::fs::write(&path, "old").unwrap();
    let error = commit(&bench).unwrap_err().to_string();
    assert!(error.contains("out0.txt: has 3 bytes, and this job has written 4"), "{error}");
    std::fs::remove_file(&path).unwrap();
    let error = commit(&bench).unwrap_err().to_string();
    assert!(error.contains("out0.txt: cannot rename into place"), "{error}");
    std::fs::write(&aside, "mine").unwrap();
    commit(&bench).unwrap();
    commit(&bench).unwrap();
    assert_eq!(fixture.read("out0.txt"), "mine");
}
