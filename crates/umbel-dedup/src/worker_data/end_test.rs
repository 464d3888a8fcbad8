//! What remains of a job's folder: of processes that were killed while they removed it, and of jobs that have ended.

use super::ended::{EndRecord, ended_before};
use super::fixture_test::Fixture;
use super::remove_old;
use std::time::{Duration, UNIX_EPOCH};
use umbel_dedup_engine::{Exactness, Keep};
use umbel_jobs::Workshop as _;

/// Any of the files may have been removed before, except for the journal, which is removed last.
#[test]
fn a_folder_that_is_half_removed_behind_the_end_is_removed_at_the_next_start() {
    let files = ["runs", "drops", "groups", "asked", "lock"];
    for removed in 0..=files.len() {
        let fixture = Fixture::new();
        let folder = fixture.path("job0");
        let shop = fixture.open_first();
        shop.append_record(b"on the way").unwrap();
        assert!(!shop.has_ended());
        shop.append_end_record(b"the end").unwrap();
        drop(shop);
        files[..removed].iter().for_each(|name| std::fs::remove_file(folder.join(name)).unwrap());
        // The input is not needed any more.
        std::fs::remove_dir_all(fixture.path("in0")).unwrap();
        let shop = fixture.open_first();
        assert!(shop.has_ended());
        assert_eq!(shop.journal_records().unwrap(), [&b"on the way"[..], b"the end"]);
        shop.end(false);
        assert!(!folder.exists(), "behind {removed} files");
    }
}

/// A worker that failed without journaling the end starts anew: nothing in its folder is used.
#[test]
fn a_folder_that_is_half_removed_without_an_end_is_a_new_one() {
    let fixture = Fixture::new();
    let folder = fixture.path("job0");
    let shop = fixture.open_first();
    shop.append_record(b"on the way").unwrap();
    drop(shop);
    std::fs::write(folder.join("runs"), b"what was read").unwrap();
    std::fs::remove_file(folder.join("journal")).unwrap();
    let shop = fixture.open_first();
    assert!(shop.journal_records().unwrap().is_empty() && !shop.has_ended());
    assert_eq!(std::fs::read(folder.join("runs")).unwrap(), b"");
    shop.end(false);
    assert!(!folder.exists());
}

#[test]
fn a_job_has_ended_for_the_command_with_its_inputs_and_outputs_and_no_other() {
    let fixture = Fixture::new();
    let folder = fixture.path("job0");
    let bench = fixture.bench(0, &folder);
    let outputs = ["out0.txt", "out0.txt.json"].map(|name| fixture.path(name));
    outputs.iter().for_each(|path| std::fs::write(path, "written").unwrap());
    let record = EndRecord::new(&bench, 2, outputs.into_iter()).unwrap();
    bench.folder.leave(&record.encode().unwrap()).unwrap();
    let ended = |input: u16, output: &str| {
        let inputs = vec![fixture.input(input)];
        let spec = fixture.spec(inputs, Exactness::Fingerprint, Keep::First, output);
        ended_before(&spec, &bench.member, &folder).unwrap()
    };
    assert_eq!(ended(0, "out0.txt"), Some(2));
    assert_eq!(ended(1, "out0.txt"), None);
    assert_eq!(ended(0, "out1.txt"), None);
}

#[test]
fn what_ended_a_day_ago_goes_from_the_scratch_directory_and_nothing_else() {
    let fixture = Fixture::new();
    let scratch = fixture.path("scratch");
    let old = Duration::from_secs(3 * 24 * 3600);
    let make = |name: &str, files: &[&str], age: Duration| {
        std::fs::create_dir_all(scratch.join(name)).unwrap();
        for file in files {
            let file = std::fs::File::create(scratch.join(name).join(file)).unwrap();
            file.set_modified(UNIX_EPOCH + 2 * old - age).unwrap();
        }
    };
    make(".umbel-job-1-0", &["ended"], old);
    make(".umbel-job-2-0", &["ended"], Duration::from_secs(3600));
    make(".umbel-job-3-0", &["ended", "journal"], old);
    make(".umbel-job-4-0", &["journal", "lock"], old);
    make(".umbel-job-5-0", &["ended"], old);
    make("of-others", &["ended"], old);
    // Other users may write to the scratch directory, too.
    std::os::unix::fs::symlink(scratch.join("of-others"), scratch.join(".umbel-job-6-0")).unwrap();
    remove_old(&scratch, &scratch.join(".umbel-job-5-0"), 2 * old);
    let entries = std::fs::read_dir(&scratch).unwrap();
    let mut left: Vec<_> =
        entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    left.sort();
    let stay = [2, 3, 4, 5, 6].map(|job| format!(".umbel-job-{job}-0"));
    assert_eq!(left, [&stay[..], &["of-others".to_owned()]].concat());
    assert!(scratch.join("of-others/ended").exists());
}
