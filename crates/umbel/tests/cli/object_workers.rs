//! Workers on several machines with objects as outputs: killed at any request, they continue, and write
//! nothing twice.

use crate::machines::{TOKEN, peers};
use crate::model::{lines, unlike_lines};
use crate::object_outputs::{Files, files_below, job, names};
use crate::object_store::{Asked, BUCKET, Fault};
use crate::objects::Twice;
use crate::packed::gzip;
use crate::sandbox::Ran;
use std::process::Child;

/// Two workers with objects as outputs, and the outputs.
struct Workers {
    twice: Twice,
    peers: String,
}

impl Workers {
    fn new() -> Self {
        let long = unlike_lines(1, 12_000);
        let twice = Twice::new(&[
            ("0/long.txt", long.clone()),
            ("0/short.txt", b"x\nx\ny\n".to_vec()),
            ("1/long.txt.gz", gzip(&[&long[..90_000], &lines(2, 3000)].concat())),
            ("1/empty.txt", Vec::new()),
        ]);
        Self { twice, peers: peers(2) }
    }

    fn start(&self, rank: usize) -> Child {
        let args = format!(
            "local/{rank}/ --rank {rank} --peers {} --job-dir job{rank} -o s3://{BUCKET}/out{rank}/ --duplicates \
             s3://{BUCKET}/d{rank} --summary s3://{BUCKET}/s0 --memory 64M -q",
            self.peers
        );
        let mut command = self.twice.store.known_to(self.twice.sandbox.command(&args));
        command.env("UMBEL_JOB_TOKEN", TOKEN).spawn().unwrap()
    }

    /// Kills the worker whose request to the store hangs; returns its rank, and the request's method and
    /// key.
    fn kill_hung(&self, workers: &mut [Child; 2]) -> (usize, String, String) {
        let (method, key) = self.twice.store.await_hung();
        let victim = usize::from(key.starts_with("out1") || key == "d1");
        workers[victim].kill().unwrap();
        workers[victim].wait().unwrap();
        (victim, method, key)
    }

    #[track_caller]
    fn assert_end(&self, workers: [Child; 2]) {
        for output in workers.map(|worker| worker.wait_with_output().unwrap()) {
            self.twice.sandbox.ended(output).kept();
        }
        let files = self.twice.sandbox.files();
        let others: Vec<_> = files.iter().filter(|name| !name.starts_with("local/")).collect();
        assert_eq!(others, ["job0/ended", "job1/ended"]);
    }

    fn outputs(&self) -> Files {
        let mut outputs = self.twice.store.below("out");
        outputs.extend(self.twice.store.below("d"));
        outputs
    }
}

#[test]
fn workers_write_objects_as_they_write_files() {
    let workers = Workers::new();
    workers.assert_end([workers.start(0), workers.start(1)]);
    assert_eq!(workers.twice.store.open_uploads(), 0);
    let outputs = workers.outputs();
    // This is like a kill after the end: they find that the job has ended, and their outputs.
    assert!(!workers.twice.store.asked().is_empty());
    workers.assert_end([workers.start(0), workers.start(1)]);
    assert!(workers.outputs() == outputs);
    let asked = workers.twice.store.asked();
    let is_look = |asked: &Asked| asked.method == "GET" && asked.range == "bytes=0-0";
    assert!(!asked.is_empty() && asked.iter().all(is_look), "{asked:?}");
    workers.twice.run("local/0/ local/1/ -o all/ -q").kept();
    let of_one = files_below(&workers.twice, "all/");
    let expected = |name: &str| of_one.iter().find(|(known, _)| known == name).unwrap().1.clone();
    assert_eq!(
        names(&outputs),
        ["0/long.txt", "0/short.txt", "1/empty.txt", "1/long.txt.gz", "0", "1"]
    );
    for (name, bytes) in &outputs[..4] {
        assert!(*bytes == expected(name), "{name}");
    }
    assert!(workers.twice.store.below("s0").len() == 1);
}

#[test]
fn workers_that_are_killed_while_they_ask_the_store_go_on() {
    let workers = Workers::new();
    workers.assert_end([workers.start(0), workers.start(1)]);
    let (expected, requests) = (workers.outputs(), workers.twice.store.asked().len());
    assert!(requests > 30, "{requests}");
    for request in 0..requests {
        let workers = Workers::new();
        workers.twice.store.set_fault(request, Fault::Hung);
        let mut children = [workers.start(0), workers.start(1)];
        let (victim, method, key) = workers.kill_hung(&mut children);
        children[victim] = workers.start(victim);
        workers.assert_end(children);
        assert!(workers.outputs() == expected, "{request} of {requests}: {method} {key}");
        // An upload that was started as a trial or by another thread, and is not in the journal yet,
        // remains open.
        let open = workers.twice.store.open_uploads();
        assert!(open <= 1, "{request}: {method} {key}: {open}");
    }
}

/// Kills a single worker at its first request of this kind for this key, and then aborts all of its
/// uploads.
fn killed_and_robbed(is_it: impl Fn(&Asked) -> bool) -> (Ran, Files, Files) {
    let start = |twice: &Twice, peers: &str| {
        let args = format!(
            "local/ --rank 0 --peers {peers} --job-dir job -o s3://{BUCKET}/out/ --duplicates s3://{BUCKET}/d -q"
        );
        let mut command = twice.store.known_to(twice.sandbox.command(&args));
        command.env("UMBEL_JOB_TOKEN", TOKEN).spawn().unwrap()
    };
    let (twice, own) = (job(), peers(1));
    twice.sandbox.ended(start(&twice, &own).wait_with_output().unwrap()).kept();
    let (expected, asked) = (twice.store.below("out/"), twice.store.asked());
    let twice = job();
    twice.store.set_fault(asked.iter().position(is_it).unwrap(), Fault::Hung);
    let mut child = start(&twice, &own);
    twice.store.await_hung();
    child.kill().unwrap();
    child.wait().unwrap();
    twice.store.drop_uploads();
    let ran = twice.sandbox.ended(start(&twice, &own).wait_with_output().unwrap());
    assert_eq!(twice.store.open_uploads(), 0);
    (ran, twice.store.below("out/"), expected)
}

#[test]
fn a_worker_that_meets_another_writer_goes_on_once_that_is_gone() {
    let run = |twice: &Twice, peers: &str| {
        let args = format!("local/ --rank 0 --peers {peers} --job-dir job -o s3://{BUCKET}/all -q");
        let mut command = twice.store.known_to(twice.sandbox.command(&args));
        twice.sandbox.ended(command.env("UMBEL_JOB_TOKEN", TOKEN).output().unwrap())
    };
    let (twice, own) = (job(), peers(1));
    run(&twice, &own).kept();
    let (expected, asked) = (twice.store.below("all"), twice.store.asked());
    let finish = asked.iter().position(is_finish).unwrap();
    let twice = job();
    twice.store.set_fault(finish, Fault::Race("all".to_owned()));
    run(&twice, &own).refused(1, &["s3://bucket/all: cannot complete", "stands there now"]);
    assert_eq!(twice.store.below("all")[0].1, b"another writer's");
    twice.store.remove("all");
    run(&twice, &own).kept();
    assert!(twice.store.below("all") == expected);
    assert_eq!(twice.store.open_uploads(), 0);
}

#[test]
fn what_a_rule_of_the_bucket_ends_is_written_again() {
    let (ran, found, expected) =
        killed_and_robbed(|asked| asked.method == "PUT" && asked.key == "d");
    ran.kept();
    assert!(found == expected && found.len() == 3);
}

#[test]
fn what_a_rule_of_the_bucket_ends_in_the_commit_is_said() {
    let (ran, ..) = killed_and_robbed(is_finish);
    ran.refused(1, &["s3://bucket/", "cannot complete", "the upload is gone", "new --job-dir"]);
}

/// Whether a request completes an upload.
fn is_finish(asked: &Asked) -> bool {
    asked.method == "POST" && asked.query.starts_with("uploadId=")
}

#[test]
fn finished_outputs_of_a_killed_worker_are_not_written_again() {
    let workers = Workers::new();
    let children = [workers.start(0), workers.start(1)];
    workers.assert_end(children);
    let asked = workers.twice.store.asked();
    let first = asked.iter().position(is_finish).unwrap();
    let workers = Workers::new();
    workers.twice.store.set_fault(first, Fault::Hung);
    let mut children = [workers.start(0), workers.start(1)];
    let (victim, ..) = workers.kill_hung(&mut children);
    workers.twice.store.asked();
    children[victim] = workers.start(victim);
    workers.assert_end(children);
    let asked = workers.twice.store.asked();
    assert!(asked.iter().all(|asked| asked.method != "PUT" || asked.key == "s0"), "{asked:?}");
    assert_eq!(workers.twice.store.open_uploads(), 0);
}
