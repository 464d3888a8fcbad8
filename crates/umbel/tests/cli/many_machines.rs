//! One job in several processes, as if each had a machine of its own: the outputs in the order of ranks are those of
//! one process over all inputs, whoever is killed whenever.

use crate::model::{Draws, lines, unlike_lines};
use crate::sandbox::{Ran, Sandbox};
use std::net::TcpListener;
use std::process::{Child, Command};

const TOKEN: &str = "0123456789abcdef0123456789abcdef";

/// Addresses on this machine that nobody listens on.
fn peers(count: usize) -> String {
    let listeners: Vec<TcpListener> =
        (0..count).map(|_| TcpListener::bind("127.0.0.1:0").unwrap()).collect();
    let addresses = listeners.iter().map(|listener| listener.local_addr().unwrap().to_string());
    addresses.collect::<Vec<_>>().join(",")
}

/// One job over the folders `in0`, `in1` and so on.
struct Job {
    sandbox: Sandbox,
    workers: usize,
    peers: String,
    options: String,
    suffix: &'static str,
}

impl Job {
    fn new(
        workers: usize,
        suffix: &'static str,
        options: &str,
        content: impl Fn(u64) -> Vec<u8>,
    ) -> Self {
        let sandbox = Sandbox::new();
        for worker in 0..workers {
            for (file, seed) in (0u64..3).enumerate() {
                let name = format!("in{worker}/{file}.{suffix}");
                sandbox.write(name, content(3 * worker as u64 + seed));
            }
        }
        let options = format!("{options} --seed 7 --memory 64M --worker-timeout 2m -q");
        Self { sandbox, workers, peers: peers(workers), options, suffix }
    }

    fn command(&self, rank: usize) -> Command {
        let Self { peers, options, suffix, .. } = self;
        let args = format!(
            "in{rank} --rank {rank} --peers {peers} --job-dir job{rank} --output out{rank}.{suffix} \
             --duplicates drops{rank}.jsonl --summary summary.json {options}"
        );
        let mut command = self.sandbox.command(&args);
        command.env("UMBEL_JOB_TOKEN", TOKEN);
        command
    }

    fn start(&self, rank: usize) -> Child {
        self.command(rank).spawn().unwrap()
    }

    fn start_all(&self) -> Vec<Child> {
        (0..self.workers).map(|rank| self.start(rank)).collect()
    }

    fn wait(&self, children: Vec<Child>) -> Vec<Ran> {
        let outputs: Vec<_> =
            children.into_iter().map(|child| child.wait_with_output().unwrap()).collect();
        outputs.into_iter().map(|output| self.sandbox.ended(output)).collect()
    }

    /// The outputs of all workers, in their order.
    fn concatenated(&self, name: &str, suffix: &str) -> Vec<u8> {
        let read = |rank| self.sandbox.read(format!("{name}{rank}.{suffix}"));
        (0..self.workers).flat_map(read).collect()
    }

    /// Checks that the outputs are those of one process.
    fn assert_as_one_process(&self) {
        let inputs: Vec<String> = (0..self.workers).map(|rank| format!("in{rank}")).collect();
        let Self { suffix, .. } = self;
        let options = self.options.replace("--worker-timeout 2m", "");
        let args = format!(
            "{} --output one.{suffix} --duplicates drops.jsonl --summary one.json {options}",
            inputs.join(" ")
        );
        self.sandbox.run(&args).kept();
        assert_eq!(self.concatenated("out", suffix), self.sandbox.read(format!("one.{suffix}")));
        let named = |text: &[u8]| -> Vec<serde_json::Value> {
            let lines = text.split(|byte| *byte == b'\n').filter(|line| !line.is_empty());
            lines
                .map(|line| {
                    let mut line: serde_json::Value = serde_json::from_slice(line).unwrap();
                    let fields = line.as_object_mut().unwrap();
                    for (worker, file) in [("worker", "file"), ("kept_worker", "kept_file")] {
                        if let Some(worker) = fields.remove(worker) {
                            let folder = format!("in{worker}/");
                            assert!(fields[file].as_str().unwrap().starts_with(&folder));
                        }
                    }
                    line
                })
                .collect()
        };
        let drops = named(&self.concatenated("drops", "jsonl"));
        assert_eq!(drops, named(&self.sandbox.read("drops.jsonl")));
        let summary = |name: &str| -> serde_json::Value {
            serde_json::from_slice(&self.sandbox.read(name)).unwrap()
        };
        let (many, one) = (summary("summary.json"), summary("one.json"));
        for field in
            ["records", "items", "distinct", "collisions", "dropped", "bad", "level", "keep"]
        {
            assert_eq!(many[field], one[field], "{field}");
        }
        assert_eq!(many["run"]["rss_bytes_max"].as_array().unwrap().len(), self.workers);
        for rank in 0..self.workers {
            assert!(!self.sandbox.exists(&format!("job{rank}")), "job{rank} is left");
        }
    }
}

fn json_lines(seed: u64) -> Vec<u8> {
    let mut numbers = Draws(seed);
    let line = |number: u64| format!("{{\"at\": {number}, \"id\": {}}}\n", number % 97);
    (0..200).flat_map(|_| line(numbers.below(10_000)).into_bytes()).collect()
}

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
        job.wait(job.start_all()).into_iter().for_each(|ran| {
            ran.kept();
        });
        job.assert_as_one_process();
    }
    let job = Job::new(3, "jsonl", "--key id --keep last", json_lines);
    job.wait(job.start_all()).into_iter().for_each(|ran| {
        ran.kept();
    });
    job.assert_as_one_process();
}

/// Waits until a worker's journal has so many bytes; false if the worker ends before.
fn wait_for_journal(job: &Job, rank: usize, child: &mut Child, bytes: u64) -> bool {
    let path = job.sandbox.path(format!("job{rank}/journal"));
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

#[test]
fn workers_that_are_killed_and_started_again_change_nothing() {
    let mut numbers = Draws(11);
    for round in 0..6 {
        let options = ["--keep first", "--exactness bytes --keep last"][round % 2];
        let job = Job::new(3, "txt", options, |seed| lines(seed, 2000));
        let mut children = job.start_all();
        // Worker 0, which coordinates, in every third round; two kills a round.
        for kill in 0..2 {
            let victim =
                if (round + kill) % 3 == 0 { 0 } else { 1 + usize::from(numbers.below(2) == 1) };
            let bytes = numbers.below(6000);
            if wait_for_journal(&job, victim, &mut children[victim], bytes) {
                children[victim].kill().unwrap();
            }
            let code = children[victim].wait().unwrap().code();
            if code != Some(0) {
                assert_eq!(code, None, "round {round}");
                children[victim] = job.start(victim);
            }
        }
        job.wait(children).into_iter().for_each(|ran| {
            ran.kept();
        });
        job.assert_as_one_process();
    }
}

/// Memory that a process takes beside what it may use: its code, stacks, what the allocator keeps.
const BESIDE_BYTES: u64 = 64 << 20;

#[test]
fn memory_is_kept_by_every_worker() {
    let job = Job::new(2, "txt", "--keep first", |seed| unlike_lines(seed, 120_000).repeat(2));
    job.wait(job.start_all()).into_iter().for_each(|ran| {
        ran.kept();
    });
    let summary: serde_json::Value =
        serde_json::from_slice(&job.sandbox.read("summary.json")).unwrap();
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
fn what_a_worker_cannot_do_is_refused_at_once() {
    let sandbox = Sandbox::with(&[("a.txt", "x\n"), ("short", "secret")]);
    let at = "--rank 0 --peers 127.0.0.1:1,127.0.0.1:2";
    for (args, said) in [
        (format!("a.txt {at} --output o.txt"), "a secret of at least 16 bytes"),
        (format!("a.txt {at} --output o.txt --job-token-file short"), "at least 16 bytes"),
        (format!("a.txt {at} --output o.txt --workers 2"), "--workers"),
        ("a.txt --rank 0".to_owned(), "--peers"),
    ] {
        sandbox.run(&args).refused(2, &[said]);
    }
    sandbox.write("token", TOKEN);
    for (args, said) in [
        (format!("a.txt {at}"), "needs an --output"),
        (format!("- {at} --output o.txt"), "not a file"),
        (format!("a.txt {at} --output a.txt"), "a.txt exists"),
        (format!("a.txt {at} --output o.txt --scope file"), "--scope"),
        (format!("a.txt {at} --output o.txt --groups g.jsonl"), "--groups"),
        ("a.txt --rank 2 --peers h:1,h:2 --output o.txt".to_owned(), "--rank 2"),
    ] {
        sandbox.run(&format!("{args} --job-token-file token")).refused(2, &[said]);
        assert_eq!(sandbox.files(), ["a.txt", "short", "token"]);
    }
}

#[test]
fn two_processes_cannot_be_one_worker_and_changed_inputs_are_named() {
    let job = Job::new(2, "txt", "--keep first", |seed| lines(seed, 100));
    // Alone, worker 1 waits for the other one.
    let mut first = job.start(1);
    assert!(wait_for_journal(&job, 1, &mut first, 1));
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
