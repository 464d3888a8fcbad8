//! A job in several processes, as on several machines: the outputs in order of rank equal those of one
//! process over all inputs, despite kills at any time.

use crate::machines::{Job, TOKEN, json_lines, peers, scored_lines, texts, without_workers};
use crate::machines_killed::wait_for_bytes;
use crate::model::{lines, unlike_lines};
use crate::sandbox::Sandbox;
use std::fs::Permissions;
use std::io::{BufRead, BufReader};
use std::os::unix::fs::PermissionsExt as _;

#[test]
fn outputs_of_workers_are_those_of_one_process() {
    let all: [(usize, &str); 7] = [
        (2, "--exactness fingerprint --keep first"),
        (2, "--exactness bytes --keep last"),
        (2, "--exactness approximate --keep first"),
        (4, "--exactness fingerprint --keep last --filter single-shot"),
        (4, "--exactness bytes --keep first"),
        (4, "--exactness approximate --keep last"),
        (8, "--exactness fingerprint --keep first"),
    ];
    for (workers, options) in all {
        let job = Job::new(workers, "txt", options, |seed| lines(seed, 700));
        job.run_as_one_process();
    }
    let job = Job::new(3, "jsonl", "--key id --keep last", json_lines);
    job.run_as_one_process();
}

#[test]
fn every_keep_rule_and_exactness_keeps_what_one_process_keeps() {
    for (workers, keep, exactness) in [
        (2, "best:at", "fingerprint"),
        (2, "best:at:min", "bytes"),
        (2, "best:at", "approximate"),
        (4, "best:at:min", "fingerprint --filter single-shot"),
        (4, "best:at", "fingerprint --filter wide"),
        (4, "best:at", "bytes"),
        (4, "best:at:min", "approximate"),
        (4, "first", "fingerprint"),
        (4, "last", "bytes"),
    ] {
        let options = format!("--key id --keep {keep} --exactness {exactness}");
        let job = Job::new(workers, "jsonl", &options, |seed| scored_lines(seed, 600, 701));
        job.run_as_one_process();
    }
}

#[test]
fn annotations_and_groups_are_those_of_one_process() {
    let all: [(usize, &str, &str); 8] = [
        (2, "txt", "--keep first"),
        (4, "txt", "--exactness bytes --keep last"),
        (4, "txt", "--exactness approximate --keep first --filter single-shot"),
        (4, "jsonl", "--key id --keep best:at"),
        (4, "jsonl", "--key id --exactness bytes --keep best:at:min"),
        (3, "jsonl", "--key id --scope dir"),
        (8, "txt", "--keep last"),
        (8, "jsonl", "--key id --keep best:at:min --exactness approximate"),
    ];
    for (workers, suffix, options) in all {
        let content = |seed| match suffix {
            "txt" => lines(seed, 500),
            _ => scored_lines(seed, 400, 701),
        };
        Job::new(workers, suffix, options, content).annotating().run_as_one_process();
    }
    // Some records lack the key: they are annotated so, and belong to no group.
    let options = "--key at --missing-key drop --keep last";
    let content = |seed| {
        let numbers = scored_lines(seed, 60, 50);
        [&numbers[..], b"{\"id\": 7}\n", &numbers].concat()
    };
    Job::new(3, "jsonl", options, content).annotating().run_as_one_process();
}

#[test]
fn workers_without_records_have_groups_of_none() {
    let content = |seed: u64| lines(seed % 4, 200);
    let job = Job::new(4, "txt", "--keep last", content);
    for worker in [0, 2] {
        for file in 0..3 {
            job.sandbox.write(format!("in{worker}/{file}.txt"), "");
        }
    }
    job.annotating().run_as_one_process();
}

#[test]
fn workers_that_annotate_and_workers_that_drop_are_no_job() {
    let job = Job::new(2, "txt", "--keep first", |seed| lines(seed, 20));
    let mut first = job.start(0);
    let other = job.annotating();
    other
        .wait(vec![other.start(1)])
        .remove(0)
        .refused(1, &["was told another job", "what differs: --annotate;"]);
    first.kill().unwrap();
    first.wait().unwrap();
}

/// Checks the indexes that the workers and the single process have saved.
pub(crate) fn assert_indexes_hold_what_is_kept(job: &Job) {
    let indexes = (0..job.workers).map(|rank| format!("--reference kept{rank}.umbi"));
    let indexes = indexes.collect::<Vec<_>>().join(" ");
    // No item is new to all of them together, and each item is in only one of them.
    let inputs: Vec<String> = (0..job.workers).map(|rank| format!("in{rank}")).collect();
    let what = if job.suffix == "jsonl" { "--key id" } else { "" };
    let args = format!("{} {indexes} {what} --seed 7 -q", inputs.join(" "));
    assert!(job.sandbox.run(&format!("{args} --summary again.json")).kept().is_empty());
    let count = |name: &str| -> u64 {
        let summary = job.summary(name);
        let files = summary["references"]["files"].as_array().unwrap();
        files.iter().map(|file| file["items"].as_u64().unwrap()).sum()
    };
    let args = format!("in0 --reference keptone.umbi {what} -q --summary again_one.json");
    job.sandbox.run(&args).kept();
    assert_eq!(count("again.json"), count("again_one.json"));
    assert_eq!(job.summary("summary.json")["distinct"], count("again.json"));
}

#[test]
fn indexes_of_all_workers_hold_what_the_index_of_one_process_holds() {
    for options in ["--keep last", "--exactness bytes --index-bits 64", "--exactness approximate"] {
        let options = &format!("{options} --save-index kept{{rank}}.umbi");
        let job = Job::new(3, "txt", options, |seed| lines(seed, 700));
        job.run_as_one_process();
        assert_indexes_hold_what_is_kept(&job);
    }
}

#[test]
fn what_earlier_jobs_have_kept_is_dropped_by_all_workers() {
    for (workers, bits, options) in [
        (2, 128, "--keep first"),
        (3, 96, "--exactness approximate --filter single-shot"),
        (4, 64, "--keep last --filter single-shot"),
        (4, 128, "--keep last --filter wide"),
    ] {
        let references = "--reference old.umbi --reference older.umbi";
        let job = Job::new(workers, "txt", &format!("{options} {references}"), |s| lines(s, 700));
        for (name, seed) in [("old", 1), ("older", 100)] {
            job.sandbox.write(format!("{name}.txt"), lines(seed, 500));
            let args = format!("{name}.txt --save-index {name}.umbi --index-bits {bits}");
            job.sandbox.run(&format!("{args} --seed 7 --output {name}.kept -q")).kept();
        }
        job.run_as_one_process();
        let known = job.summary("summary.json")["dropped"]["reference"].as_u64().unwrap();
        assert!(known > 400, "{known} of {options}");
    }
}

#[test]
fn workers_that_know_of_other_jobs_are_refused() {
    let job = Job::new(2, "txt", "--reference old.umbi", |seed| lines(seed, 100));
    for (name, seed) in [("old", 1), ("other", 2)] {
        job.sandbox.write(format!("{name}.txt"), lines(seed, 50));
        let args = format!("{name}.txt --save-index {name}.umbi --seed 7 --output {name}.kept -q");
        job.sandbox.run(&args).kept();
    }
    let first = job.start(0);
    let other = Job { options: job.options.replace("old.umbi", "other.umbi"), ..job };
    let second = other.start(1);
    for ran in other.wait(vec![first, second]) {
        ran.refused(1, &["worker 1", "its references are not those of worker 0"]);
    }
}

#[test]
fn folders_and_files_are_compared_among_themselves() {
    for (workers, options) in [
        (2, "--scope dir"),
        (3, "--scope dir --exactness bytes --keep last"),
        (2, "--scope file"),
        (3, "--scope file --exactness bytes"),
    ] {
        let job = Job::new(workers, "txt", options, |seed| lines(seed % 2, 300));
        job.run_as_one_process();
        let job = Job::new(workers, "txt", options, |seed| lines(seed % 2, 300));
        job.in_shared_folders().run_as_one_process();
    }
}

#[test]
fn pieces_of_records_are_dropped_by_all_workers() {
    for (workers, options) in [
        (2, "--keep first"),
        (3, "--keep last --exactness bytes --empty keep"),
        (3, "--keep best:at --paragraph-bytes-min 8"),
    ] {
        let options = format!("--granularity paragraph --key t {options}");
        let job = Job::new(workers, "jsonl", &options, texts);
        job.run_as_one_process();
        let parts = |report: &str| {
            let lines = job.sandbox.text(report);
            lines.lines().filter(|line| !line.contains("\"kept_part\":1,")).count()
        };
        assert!(parts("drops0.jsonl") > 50 && parts("drops1.jsonl") > 50);
        let named = &job.summary("summary.json")["most_repeated"];
        assert!(named[0]["part"].as_u64().is_some_and(|part| part > 0), "{named}");
    }
}

#[test]
fn annotations_of_pieces_are_those_of_one_process() {
    for (workers, options) in [
        (2, "--keep last"),
        (3, "--keep best:at --exactness bytes"),
        (4, "--paragraph-bytes-min 8 --filter single-shot"),
    ] {
        let options = format!("--granularity paragraph --key t {options}");
        let job = Job::new(workers, "jsonl", &options, texts).annotating();
        job.run_as_one_process();
    }
    // Records without the text or without pieces, and bad ones.
    let options = "--granularity paragraph --key t --missing-key drop --skip-bad=100";
    let content = |seed| {
        let odd = "{\"n\": 1}\n{\"t\": \"\"}\n{\"t\": 7}\n";
        [texts(seed), odd.into(), texts(seed + 1)].concat()
    };
    let job = Job::new(3, "jsonl", options, content).annotating();
    for ran in job.wait(job.start_all()) {
        assert_eq!(ran.code, Some(3), "{}", ran.stderr);
    }
    let all = (0..3).map(|rank| job.sandbox.text(&format!("out{rank}.jsonl"))).collect::<String>();
    let one = job.sandbox.run(&format!("in0 in1 in2 --annotate one.jsonl {options}"));
    assert_eq!(one.code, Some(3), "{}", one.stderr);
    assert!(without_workers(all.as_bytes()) == job.sandbox.text("one.jsonl"));
}

#[test]
fn workers_that_rank_by_other_fields_are_refused() {
    let job = Job::new(2, "jsonl", "--key id --keep best:at", json_lines);
    let mut first = job.start(0);
    let other = Job { options: job.options.replace("best:at", "best:at:min"), ..job };
    let ran = other.wait(vec![other.start(1)]).remove(0);
    let said = ["was told another job", "what differs: --keep;", "nothing was begun here"];
    ran.refused(1, &said);
    // The others are told whom they wait for in vain, and the corrected command begins.
    let mut said = String::new();
    BufReader::new(first.stderr.as_mut().unwrap()).read_line(&mut said).unwrap();
    assert!(said.contains("refused: worker 1 was told another job"), "{said}");
    assert!(!other.sandbox.exists("job1"));
    let job = Job { options: other.options.replace("best:at:min", "best:at"), ..other };
    for ran in job.wait(vec![first, job.start(1)]) {
        ran.kept();
    }
    job.assert_as_one_process();
}

/// Memory of a process in addition to its budget: code, stacks, and what the allocator keeps.
const BESIDE_BYTES: u64 = 64 << 20;

#[test]
fn memory_is_kept_by_every_worker() {
    let job = Job::new(2, "txt", "--keep first", |seed| unlike_lines(seed, 120_000).repeat(2));
    job.wait(job.start_all()).into_iter().for_each(|ran| {
        ran.kept();
    });
    let summary = job.summary("summary.json");
    assert_eq!((&summary["records"], &summary["distinct"]), (&1_440_000.into(), &720_000.into()));
    for bytes in summary["run"]["rss_bytes_max"].as_array().unwrap() {
        assert!(bytes.as_u64().unwrap() <= (64 << 20) + BESIDE_BYTES, "{bytes} bytes");
    }
    for bytes in summary["run"]["scratch_bytes_max"].as_array().unwrap() {
        assert!(bytes.as_u64().unwrap() > 360_000 * 24, "{bytes} bytes of scratch");
    }
}

#[test]
fn a_worker_that_cannot_read_its_input_ends_the_job_and_is_named() {
    let job = Job::new(2, "jsonl", "--key id", json_lines);
    job.sandbox.write("in1/1.jsonl", "{\"id\": 1}\n{\"at\": 2}\n");
    let ran = job.wait(job.start_all());
    for ran in ran {
        let worker = format!("worker 1 at {}", job.peers.split(',').nth(1).unwrap());
        ran.refused(1, &[&worker, "in1/1.jsonl: record 2 (byte 10): no field `id`"]);
    }
    assert!(!job.sandbox.files().iter().any(|name| name.starts_with("out")));
}

#[test]
fn a_worker_with_another_secret_is_named_and_the_others_go_on() {
    let job = Job::new(2, "txt", "--keep first", |seed| lines(seed, 100));
    let mut first = job.start(0);
    let mut stranger =
        job.command(1).env("UMBEL_JOB_TOKEN", TOKEN.replace('0', "f")).spawn().unwrap();
    let mut said = String::new();
    BufReader::new(first.stderr.as_mut().unwrap()).read_line(&mut said).unwrap();
    assert!(said.contains("was not let in: it has another secret"), "{said}");
    stranger.kill().unwrap();
    stranger.wait().unwrap();
    std::fs::remove_dir_all(job.sandbox.path("job1")).unwrap();
    for ran in job.wait(vec![first, job.start(1)]) {
        ran.kept();
    }
    job.assert_as_one_process();
}

#[test]
fn what_a_worker_cannot_do_is_refused_at_once() {
    let sandbox = Sandbox::with(&[("a.txt", "x\n"), ("open", TOKEN)]);
    sandbox.write_secret("short", "secret");
    std::fs::set_permissions(sandbox.path("open"), Permissions::from_mode(0o644)).unwrap();
    let at = "--rank 0 --peers 127.0.0.1:1,127.0.0.1:2";
    for (args, said) in [
        (format!("a.txt {at} --output o.txt"), "a secret of at least 32 bytes"),
        (
            format!("a.txt {at} --output o.txt --job-token-file short"),
            "short: a secret of 6 bytes: expected at least 32",
        ),
        (
            format!("a.txt {at} --output o.txt --job-token-file open"),
            "open: others than its owner may read or write the secret (mode 644)",
        ),
        (format!("a.txt {at} --output o.txt --workers 2"), "--workers"),
        ("a.txt --rank 0".to_owned(), "--peers"),
    ] {
        sandbox.run(&args).refused(2, &[said]);
    }
    sandbox.write_secret("token", TOKEN);
    for (args, said) in [
        (format!("a.txt {at}"), "needs an --output"),
        (format!("- {at} --output o.txt"), "not a file"),
        (format!("a.txt {at} --output a.txt"), "a.txt exists"),
        (format!("a.txt {at} --output o.txt --scope file --save-index i"), "--scope"),
        (format!("a.txt {at} --annotate - --groups g.jsonl"), "needs an --output"),
        (format!("a.txt {at} --output o.txt --groups -"), "name files for outputs"),
        (format!("a.txt {at} --output o.txt --duplicates -"), "name files for outputs"),
        ("a.txt --rank 2 --peers h:1,h:2 --output o.txt".to_owned(), "--rank 2"),
    ] {
        sandbox.run(&format!("{args} --job-token-file token")).refused(2, &[said]);
        assert_eq!(sandbox.files(), ["a.txt", "open", "short", "token"]);
    }
}

/// Its rest is nowhere else, on many machines as on one.
#[test]
fn workers_replace_no_file_whose_rest_cannot_be_read() {
    let table = format!("n,t\n1,a\n1,a\n2,\"open\n{}", "3,c\n".repeat(50));
    let other = "n,t\n1,a\n1,a\n";
    let sandbox = Sandbox::with(&[("in0/a.csv", &*table), ("in1/b.csv", other)]);
    let at = peers(2);
    let children = [0, 1].map(|rank| {
        let own = format!("--rank {rank} --peers {at} --job-dir job{rank} --bad bad{rank}");
        let args = format!("in{rank} --output in{rank} --overwrite --skip-bad {own} -q");
        sandbox.command(&args).env("UMBEL_JOB_TOKEN", TOKEN).spawn().unwrap()
    });
    // Both have ended before it is checked what they left.
    for output in children.map(|child| child.wait_with_output().unwrap()) {
        sandbox.ended(output).refused(1, &["in0/a.csv: record 3", "nothing was replaced"]);
    }
    assert_eq!([sandbox.text("in0/a.csv"), sandbox.text("in1/b.csv")], [&*table, other]);
}

#[test]
fn workers_without_bad_records_empty_old_lists() {
    let files = [("in0/a.jsonl", "{\"k\":1}\n"), ("in1/b.jsonl", "{\"k\":2}\n"), ("bad0", "old\n")];
    let sandbox = Sandbox::with(&files);
    let at = peers(2);
    let children = [0, 1].map(|rank| {
        let own = format!("--rank {rank} --peers {at} --job-dir job{rank} --bad bad{rank}");
        let args = format!("in{rank} --key k --output out{rank}/ --overwrite --skip-bad {own} -q");
        sandbox.command(&args).env("UMBEL_JOB_TOKEN", TOKEN).spawn().unwrap()
    });
    for output in children.map(|child| child.wait_with_output().unwrap()) {
        sandbox.ended(output).kept();
    }
    assert_eq!((sandbox.text("bad0"), sandbox.exists("bad1")), (String::new(), false));
}

#[test]
fn two_processes_cannot_be_one_worker_and_changed_inputs_are_named() {
    let job = Job::new(2, "txt", "--keep first", |seed| lines(seed, 100));
    // Worker 1 waits for the other one.
    let mut first = job.start(1);
    assert!(wait_for_bytes(&job, 1, "journal", &mut first, 1));
    let second = job.command(1).output().unwrap();
    let said = String::from_utf8(second.stderr).unwrap();
    assert_eq!(second.status.code(), Some(2), "{said}");
    assert!(said.contains("job1: another process works on this job"), "{said}");
    first.kill().unwrap();
    first.wait().unwrap();
    job.sandbox.write("in1/2.txt", "another\n");
    let third = job.command(1).output().unwrap();
    let said = String::from_utf8(third.stderr).unwrap();
    assert_eq!(third.status.code(), Some(1), "{said}");
    assert!(said.contains("in1/2.txt: the input has changed since the job began"), "{said}");
}
