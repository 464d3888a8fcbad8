//! Workers of a job that are killed at any time and restarted: the outputs equal those of one process.

use crate::machines::{Job, scored_lines, texts};
use crate::many_machines::assert_indexes_hold_what_is_kept;
use crate::model::{Draws, lines};
use std::os::unix::fs::MetadataExt;
use std::process::Child;

#[test]
fn workers_that_are_killed_while_pieces_are_told_of_change_nothing() {
    for victim in [0, 1] {
        let options = "--granularity paragraph --key t --keep best:at";
        let content = |seed: u64| (0..8).flat_map(|n| texts(8 * seed + n)).collect();
        let job = Job::new(3, "jsonl", options, content);
        let job = if victim == 1 { job } else { job.annotating() };
        job.run_with_kills(victim, 2, |child| wait_for_groups(&job, victim, child));
        job.assert_as_one_process();
    }
}

/// Waits until a file in a worker's folder has this many bytes; returns false if the worker exits before.
pub(crate) fn wait_for_bytes(
    job: &Job,
    rank: usize,
    name: &str,
    child: &mut Child,
    bytes: u64,
) -> bool {
    let path = job.sandbox.path(format!("job{rank}/{name}"));
    loop {
        if std::fs::metadata(&path).is_ok_and(|metadata| metadata.len() >= bytes) {
            return true;
        }
        if child.try_wait().unwrap().is_some() {
            return false;
        }
        std::thread::yield_now();
    }
}

/// Waits until a worker has begun to receive groups; returns false if it exits before.
fn wait_for_groups(job: &Job, rank: usize, child: &mut Child) -> bool {
    wait_for_bytes(job, rank, "groups", child, 1)
}

#[test]
fn workers_that_are_killed_while_groups_are_counted_or_told_change_nothing() {
    for victim in [0, 1, 2] {
        let options = "--key id --exactness bytes --keep best:at";
        let job = Job::new(3, "jsonl", options, |seed| scored_lines(seed, 3000, 4000));
        let job = if victim == 1 { job } else { job.annotating() };
        job.run_with_kills(victim, 2, |child| wait_for_groups(&job, victim, child));
        job.assert_as_one_process();
    }
}

/// This is like a kill after the folders' data was removed, and before the processes exited.
#[test]
fn workers_that_are_started_behind_the_end_find_it_and_change_nothing() {
    let content = |seed| [scored_lines(seed, 100, 70), b"{\"n\": 1}\n".into()].concat();
    let job = Job::new(2, "jsonl", "--key id --skip-bad=100", content);
    let job = Job { options: job.options.replace(" -q", ""), ..job };
    for ran in job.wait(job.start_all()) {
        assert_eq!(ran.code, Some(3), "{}", ran.stderr);
    }
    let state = |name: &String| {
        let found = std::fs::metadata(job.sandbox.path(name)).unwrap();
        (name.clone(), found.ino(), found.len(), found.modified().unwrap())
    };
    let all = || job.sandbox.files().iter().map(state).collect::<Vec<_>>();
    let before = all();
    for rank in [0, 1] {
        job.assert_left(rank);
        let ran = job.wait(vec![job.start(rank)]).remove(0);
        assert_eq!((ran.code, &ran.stdout[..]), (Some(3), &b""[..]), "{}", ran.stderr);
        assert!(ran.stderr.contains("had ended before this start"), "{}", ran.stderr);
    }
    assert_eq!(all(), before);
    // With another secret or changed outputs, the command is a new job, and the outputs are in its way.
    let mut other = job.command(1);
    other.env("UMBEL_JOB_TOKEN", "f".repeat(32));
    let other = other.spawn().unwrap();
    job.sandbox.write("drops0.jsonl", "of somebody else");
    for ran in job.wait(vec![other, job.start(0)]) {
        ran.refused(2, &["exists: --overwrite replaces it"]);
    }
    // The summary is an output of worker 0, but not of worker 1.
    std::fs::remove_file(job.sandbox.path("summary.json")).unwrap();
    assert_eq!(job.wait(vec![job.start(1)]).remove(0).code, Some(3));
}

#[test]
fn workers_that_are_killed_and_started_again_change_nothing() {
    let mut numbers = Draws(11);
    for round in 0..10 {
        let job = match round % 5 {
            0 => Job::new(3, "txt", "--keep first", |seed| lines(seed, 2000)),
            1 => {
                let options = "--key id --exactness bytes --keep last";
                Job::new(3, "jsonl", options, |seed| scored_lines(seed, 2000, 3000))
            }
            2 => {
                let options = "--granularity paragraph --key t --keep best:at:min";
                Job::new(3, "jsonl", options, texts)
            }
            3 => {
                let job = Job::new(3, "txt", "--reference old.umbi", |seed| lines(seed, 2000));
                job.sandbox.write("old.txt", lines(3, 1000));
                let args = "old.txt --save-index old.umbi --seed 7 --output old.kept -q";
                job.sandbox.run(args).kept();
                job
            }
            _ => {
                let options = "--key id --keep best:at --save-index kept{rank}.umbi";
                Job::new(3, "jsonl", options, |seed| scored_lines(seed, 2000, 3000))
            }
        };
        let mut children = job.start_all();
        // Two kills per round; one of them hits worker 0, the coordinator.
        for kill in 0..2 {
            let victim = if (round / 5 + kill) % 2 == 0 {
                0
            } else {
                1 + usize::from(numbers.below(2) == 1)
            };
            let bytes = numbers.below(6000);
            if wait_for_bytes(&job, victim, "journal", &mut children[victim], bytes) {
                children[victim].kill().unwrap();
            }
            let code = children[victim].wait().unwrap().code();
            if code != Some(0) {
                assert_eq!(code, None, "round {round}");
                children[victim] = job.start(victim);
            }
        }
        job.assert_ended_well(children);
        job.assert_as_one_process();
        if job.options.contains("--save-index") {
            assert_indexes_hold_what_is_kept(&job);
        }
    }
}
