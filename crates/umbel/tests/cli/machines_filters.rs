//! Filters of a cluster in a job of several processes: they are queried once, and changed when all
//! outputs are in place, despite kills.

use crate::machines::{Job, TOKEN, scored_lines};
use crate::model::{Draws, lines};
use crate::sandbox::Ran;
use crate::serve::Server;
use std::process::{Child, Command, Output};

/// A job, and a cluster with two equal filters; the single process uses the second one.
struct Beside {
    job: Job,
    server: Server,
}

impl Beside {
    /// In options, `FILTER` stands for a filter with the items of `old` that would be kept.
    fn new(mut job: Job, old: &[u8]) -> Self {
        let server = Server::start(&job.sandbox);
        job.sandbox.write("old.in", old);
        for name in ["seen", "seen_by_one"] {
            let create = format!("filter create {name} --capacity 1e5 --rate 1e-7");
            server.run(&job.sandbox, &create).kept();
            let what = if job.suffix == "jsonl" { "--key id --format jsonl" } else { "" };
            let filter = format!("umbel://{}/{name}", server.address);
            let args = format!("old.in {what} --add-to {filter} --output old.{name} -q");
            job.sandbox.run(&args).kept();
        }
        job.options = job.options.replace("FILTER", &format!("umbel://{}/seen", server.address));
        Self { job, server }
    }

    fn lines(workers: usize, options: &str) -> Self {
        Self::new(Job::new(workers, "txt", options, |seed| lines(seed, 700)), &lines(3, 900))
    }

    /// How many kept items of all workers the filter has.
    fn added(&self, name: &str) -> u64 {
        let inputs: Vec<String> = (0..self.job.workers).map(|rank| format!("in{rank}")).collect();
        let what = if self.job.suffix == "jsonl" { "--key id" } else { "" };
        let filter = format!("umbel://{}/{name}", self.server.address);
        let outputs = "--output /dev/null --summary left.json --overwrite -q";
        let args = format!("{} {what} --reference {filter} {outputs}", inputs.join(" "));
        self.job.sandbox.run(&args).kept();
        let summary = self.job.summary("left.json");
        assert_eq!(summary["references"]["online"][0]["asked"], summary["dropped"]["reference"]);
        summary["dropped"]["reference"].as_u64().unwrap()
    }

    /// Asserts that the outputs equal those of one process, and that all kept items were added if they
    /// should be.
    fn assert_as_one_process(&self) {
        self.job.assert_as_one_process();
        if self.job.options.contains("--add-to") {
            assert_eq!(self.added("seen"), self.added("seen_by_one"));
        }
    }

    /// Inserts the items that the last of two workers will keep, like another job that runs at the same
    /// time.
    fn insert_kept_of_last(&self) {
        let filter = format!("umbel://{}/seen", self.server.address);
        for args in [
            "in0 --save-index of0.umbi --output other0 -q".to_owned(),
            format!("in1 --reference of0.umbi --add-to {filter} --output other1 -q"),
        ] {
            // Temporary files of workers are no error here, since the job continues.
            let output = self.job.sandbox.command(&args).output().unwrap();
            assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        }
    }

    fn journal_says(&self, rank: usize, word: &str) -> bool {
        let path = self.job.sandbox.path(format!("job{rank}/journal"));
        let journal = std::fs::read(path).unwrap_or_default();
        journal.windows(word.len()).any(|window| window == word.as_bytes())
    }

    /// Waits until a worker has noted this in its journal; returns false if it exits before.
    fn wait_for_note(&self, rank: usize, child: &mut Child, word: &str) -> bool {
        loop {
            if self.journal_says(rank, word) {
                return true;
            }
            if child.try_wait().unwrap().is_some() {
                return false;
            }
            std::thread::yield_now();
        }
    }

    /// The command of a worker with this output only.
    fn command(&self, rank: usize, output: &str) -> Command {
        let Job { peers, options, .. } = &self.job;
        let output = output.replace("{rank}", &rank.to_string());
        let at = format!("--rank {rank} --peers {peers} --job-dir job{rank}");
        let mut command =
            self.job.sandbox.command(&format!("in{rank} {at} --output {output} {options}"));
        command.env("UMBEL_JOB_TOKEN", TOKEN);
        command
    }

    /// Runs all workers with these outputs.
    fn ends(&self, output: &str) -> Vec<Output> {
        let start = |rank| self.command(rank, output).spawn().unwrap();
        let children: Vec<Child> = (0..self.job.workers).map(start).collect();
        children.into_iter().map(|child| child.wait_with_output().unwrap()).collect()
    }

    /// Runs all workers with these outputs, and checks that no temporary files are left.
    fn run(&self, output: &str) -> Vec<Ran> {
        self.ends(output).into_iter().map(|output| self.job.sandbox.ended(output)).collect()
    }

    /// Starts each worker alone until it has opened its folder, and kills it.
    fn open_folders(&self, output: &str) {
        for rank in 0..self.job.workers {
            let mut child = self.command(rank, output).spawn().unwrap();
            assert!(self.wait_for_note(rank, &mut child, "Opened"));
            child.kill().unwrap();
            child.wait().unwrap();
        }
    }
}

#[test]
fn outputs_beside_filters_are_those_of_one_process() {
    for (workers, options) in [
        (2, "--reference FILTER"),
        (3, "--add-to FILTER --keep last"),
        (3, "--reference FILTER --add-to FILTER"),
        (4, "--reference FILTER --reference FILTER --exactness approximate --filter single-shot"),
        (2, "--add-to FILTER --exactness bytes"),
    ] {
        let beside = Beside::lines(workers, options);
        beside.job.assert_ended_well(beside.job.start_all());
        beside.assert_as_one_process();
        let known = &beside.job.summary("summary.json")["dropped"]["reference"];
        assert_eq!(known.as_u64().unwrap() > 200, options.contains("--reference"), "{options}");
    }
}

#[test]
fn keys_that_filters_hold_are_told_with_their_scores_and_not_in_indexes() {
    let options =
        "--key id --keep best:at --reference FILTER --add-to FILTER --save-index kept{rank}.umbi";
    let job = Job::new(3, "jsonl", options, |seed| scored_lines(seed, 600, 701));
    let beside = Beside::new(job, &scored_lines(77, 200, 300));
    beside.job.assert_ended_well(beside.job.start_all());
    beside.assert_as_one_process();
    let summary = beside.job.summary("summary.json");
    assert!(summary["dropped"]["reference"].as_u64().unwrap() > 50);
    let indexes: Vec<String> = (0..3).map(|rank| format!("--reference kept{rank}.umbi")).collect();
    let args = format!("in0 in1 in2 --key id {} --seed 7 -q", indexes.join(" "));
    beside.job.sandbox.run(&format!("{args} --summary again.json --output again")).kept();
    let again = beside.job.summary("again.json");
    assert_eq!(again["distinct"], summary["dropped"]["reference"]);
}

#[test]
fn a_worker_that_is_killed_after_it_has_asked_does_not_ask_again() {
    for victim in [0, 2] {
        let beside = Beside::lines(3, "--reference FILTER --add-to FILTER");
        beside.job.run_with_kills(victim, 1, |child| beside.wait_for_note(victim, child, "Asked"));
        beside.assert_as_one_process();
    }
}

/// The job fails after the queries and before the outputs, and its items are inserted in another way
/// meanwhile.
#[test]
fn what_came_into_the_filter_after_it_was_asked_is_kept() {
    let beside = Beside::lines(2, "--reference FILTER");
    let Beside { job, .. } = &beside;
    let folders = [0, 1].map(|rank| job.sandbox.path(format!("gone{rank}")));
    let make = || folders.iter().for_each(|folder| std::fs::create_dir_all(folder).unwrap());
    make();
    beside.open_folders("gone{rank}/kept.txt");
    std::fs::remove_dir(&folders[1]).unwrap();
    for output in beside.ends("gone{rank}/kept.txt") {
        let said = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(1), "{said}");
        let words = ["worker 1", "gone1: cannot open", "nothing is lost"];
        assert!(words.iter().all(|words| said.contains(words)), "{said}");
    }
    assert!(beside.journal_says(1, "Asked") && !beside.journal_says(1, "Outputs"));
    // The other worker may or may not have queried: when one fails, the others stop immediately.
    beside.insert_kept_of_last();
    make();
    for ran in beside.run("gone{rank}/kept.txt") {
        ran.kept();
    }
    let filter = format!("umbel://{}/seen_by_one", beside.server.address);
    job.sandbox.run(&format!("in0 in1 --output one.txt -q --reference {filter}")).kept();
    let kept = |rank| job.sandbox.read(format!("gone{rank}/kept.txt"));
    assert!([kept(0), kept(1)].concat() == job.sandbox.read("one.txt"));
}

#[test]
fn workers_that_are_killed_while_they_add_go_on() {
    let mut numbers = Draws(5);
    for victim in [0, 1] {
        let options = "--key id --reference FILTER --add-to FILTER --keep last";
        let job = Job::new(3, "jsonl", options, |seed| scored_lines(seed, 3000, 9000));
        let beside = Beside::new(job, &scored_lines(77, 300, 900));
        beside.job.run_with_kills(victim, 2, |child| {
            let is_adding = beside.wait_for_note(victim, child, "Committing");
            (0..numbers.below(2000)).for_each(|_| std::thread::yield_now());
            is_adding
        });
        beside.assert_as_one_process();
    }
}

/// With its outputs in place but without the filter, the job is unfinished; it ends once there is a
/// filter again.
#[test]
fn a_filter_that_is_gone_is_named_and_the_job_goes_on_when_it_is_back() {
    let beside = Beside::lines(2, "--add-to FILTER");
    let Beside { job, server } = &beside;
    beside.open_folders("out{rank}.txt");
    server.run(&job.sandbox, "filter drop seen").kept();
    for ran in beside.run("out{rank}.txt") {
        ran.refused(1, &["/seen", "not all kept items were added", "nothing is lost"]);
    }
    assert!(job.sandbox.exists("out0.txt") && job.sandbox.exists("out1.txt"));
    assert!(job.sandbox.exists("job0") && job.sandbox.exists("job1"));
    server.run(&job.sandbox, "filter create seen --capacity 1e5 --rate 1e-7").kept();
    for ran in beside.run("out{rank}.txt") {
        ran.kept();
    }
    let kept = ["out0.txt", "out1.txt"].map(|name| job.sandbox.read(name)).concat();
    assert!(job.sandbox.run("in0 in1 -q").kept() == kept);
    assert_eq!(beside.added("seen"), kept.iter().filter(|byte| **byte == b'\n').count() as u64);
    // A filter that is missing at the start is detected before inputs are read.
    let gone = format!(
        "in0 --output none --rank 0 --peers h:1,h:2 --reference umbel://{}/gone",
        server.address
    );
    let mut command = job.sandbox.command(&gone);
    let output = command.env("UMBEL_JOB_TOKEN", TOKEN).output().unwrap();
    job.sandbox.ended(output).refused(1, &["/gone"]);
}

#[test]
fn outputs_that_match_the_inputs_do_not_count_as_such() {
    let beside = Beside::lines(2, "--add-to FILTER");
    let Beside { job, server } = &beside;
    // The output of each worker is among its inputs.
    beside.open_folders("in{rank}/kept.txt");
    server.run(&job.sandbox, "filter drop seen").kept();
    for ran in beside.run("in{rank}/kept.txt") {
        ran.refused(1, &["not all kept items were added"]);
    }
    assert!(job.sandbox.exists("in0/kept.txt") && job.sandbox.exists("in1/kept.txt"));
    server.run(&job.sandbox, "filter create seen --capacity 1e5 --rate 1e-7").kept();
    for ran in beside.run("in{rank}/kept.txt") {
        ran.kept();
    }
}

#[test]
fn workers_that_ask_other_filters_are_refused() {
    let cases = [
        ("--reference FILTER", "--add-to FILTER", "--reference (filters), --add-to"),
        ("--add-to FILTER", "", "--add-to"),
    ];
    for (ours, theirs, named) in cases {
        let beside = Beside::lines(2, ours);
        let mut first = beside.job.start(0);
        let filter = format!("umbel://{}/seen", beside.server.address);
        let options = beside.job.options.replace(&ours.replace("FILTER", &filter), "");
        let Beside { job, server: _server } = beside;
        let other = Job { options: options + " " + &theirs.replace("FILTER", &filter), ..job };
        let ran = other.wait(vec![other.start(1)]).remove(0);
        ran.refused(1, &["was told another job", &format!("what differs: {named};")]);
        first.kill().unwrap();
        first.wait().unwrap();
    }
}

#[test]
fn what_filters_do_not_hold_is_refused_at_once() {
    let beside = Beside::lines(2, "");
    let seen = format!("umbel://{}/seen", beside.server.address);
    let at = format!("in0 --rank 0 --peers {} --output none --job-dir none-job", beside.job.peers);
    for (args, said) in [
        (format!("--reference {seen} --exactness bytes"), "--exactness bytes"),
        (format!("--reference {seen} --scope dir"), "--scope dir"),
        (format!("--add-to {seen} --granularity file"), "--granularity file"),
        ("--add-to umbel:///seen".to_owned(), "names no node"),
    ] {
        let mut command = beside.job.sandbox.command(&format!("{at} {args}"));
        let output = command.env("UMBEL_JOB_TOKEN", TOKEN).output().unwrap();
        beside.job.sandbox.ended(output).refused(2, &[said]);
        assert!(!beside.job.sandbox.exists("none-job"));
    }
}
