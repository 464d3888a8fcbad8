//! A job in several processes, as on several machines, and the same job in one process.

use crate::model::Draws;
use crate::report_pages::assert_agree;
use crate::sandbox::{Ran, Sandbox};
use std::io::Read as _;
use std::process::{Child, Command};
use umbel_ports::testing::free_port;

/// The secret of all jobs.
pub(crate) const TOKEN: &str = "0123456789abcdef0123456789abcdef";

/// Free addresses on this machine.
pub(crate) fn peers(count: usize) -> String {
    let addresses = std::iter::repeat_with(|| format!("127.0.0.1:{}", free_port()));
    addresses.take(count).collect::<Vec<_>>().join(",")
}

/// A job over the folders `in0`, `in1` and so on, or the files `all/*/0-*`, `all/*/1-*` and so on.
pub(crate) struct Job {
    pub(crate) sandbox: Sandbox,
    pub(crate) shares_folders: bool,
    pub(crate) workers: usize,
    pub(crate) peers: String,
    pub(crate) options: String,
    pub(crate) suffix: &'static str,
    pub(crate) annotates: bool,
    /// Whether the page is the only output besides the kept records.
    pub(crate) tells_pages_alone: bool,
}

impl Job {
    /// A job with three input files per worker, made by `content`.
    pub(crate) fn new(
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
        Self {
            sandbox,
            shares_folders: false,
            workers,
            peers: peers(workers),
            options,
            suffix,
            annotates: false,
            tells_pages_alone: false,
        }
    }

    /// The same job, with annotated records of which none is dropped.
    pub(crate) fn annotating(self) -> Self {
        Self { annotates: true, ..self }
    }

    /// The same job, with folders that contain files of all workers.
    pub(crate) fn in_shared_folders(self) -> Self {
        for worker in 0..self.workers {
            for file in 0..3 {
                let text = self.sandbox.read(format!("in{worker}/{file}.{}", self.suffix));
                self.sandbox.write(format!("all/{}/{worker}-{file}", file % 2), text);
            }
        }
        Self { shares_folders: true, ..self }
    }

    /// The flags for outputs of a worker, or of the single process.
    fn outputs(&self, who: &str) -> String {
        let records = if self.annotates { "--annotate" } else { "--output" };
        let records = format!("{records} out{who}.{}", self.suffix);
        if self.tells_pages_alone {
            return records;
        }
        format!("{records} --duplicates drops{who}.jsonl --groups groups{who}.jsonl")
    }

    fn input(&self, rank: usize) -> String {
        if self.shares_folders { format!("all/*/{rank}-*") } else { format!("in{rank}") }
    }

    /// The command of a worker.
    pub(crate) fn command(&self, rank: usize) -> Command {
        let Self { peers, options, .. } = self;
        let args = format!(
            "{} --rank {rank} --peers {peers} --job-dir job{rank} {} --summary summary.json --report page.html {}",
            self.input(rank),
            self.outputs(&rank.to_string()),
            options.replace("{rank}", &rank.to_string())
        );
        let mut command = self.sandbox.command(&args);
        command.env("UMBEL_JOB_TOKEN", TOKEN);
        command
    }

    /// Starts a worker.
    pub(crate) fn start(&self, rank: usize) -> Child {
        self.command(rank).spawn().unwrap()
    }

    /// Starts all workers.
    pub(crate) fn start_all(&self) -> Vec<Child> {
        (0..self.workers).map(|rank| self.start(rank)).collect()
    }

    /// Waits for these processes.
    pub(crate) fn wait(&self, children: Vec<Child>) -> Vec<Ran> {
        let outputs: Vec<_> =
            children.into_iter().map(|child| child.wait_with_output().unwrap()).collect();
        outputs.into_iter().map(|output| self.sandbox.ended(output)).collect()
    }

    /// The outputs of all workers, in order of rank.
    fn concatenated(&self, name: &str, suffix: &str) -> Vec<u8> {
        let read = |rank| self.sandbox.read(format!("{name}{rank}.{suffix}"));
        (0..self.workers).flat_map(read).collect()
    }

    /// A summary in the sandbox, parsed.
    pub(crate) fn summary(&self, name: &str) -> serde_json::Value {
        serde_json::from_slice(&self.sandbox.read(name)).unwrap()
    }

    /// Runs all workers, and asserts that their outputs equal those of one process.
    pub(crate) fn run_as_one_process(&self) {
        self.assert_ended_well(self.start_all());
        self.assert_as_one_process();
    }

    /// Waits for these processes, and asserts that they succeeded.
    pub(crate) fn assert_ended_well(&self, children: Vec<Child>) {
        let ran = self.wait(children);
        let said: Vec<&str> = ran.iter().map(|ran| &ran.stderr[..]).collect();
        assert!(said.iter().all(|said| said.is_empty()), "{said:?}");
        ran.into_iter().for_each(|ran| {
            ran.kept();
        });
    }

    /// Runs all workers, and asserts that they succeed. This many times it waits for the given event,
    /// kills the worker if it has not exited, and starts it again.
    pub(crate) fn run_with_kills(
        &self,
        victim: usize,
        kills: usize,
        mut wait: impl FnMut(&mut Child) -> bool,
    ) {
        let mut children = self.start_all();
        for _ in 0..kills {
            if wait(&mut children[victim]) {
                children[victim].kill().unwrap();
            }
            let code = children[victim].wait().unwrap().code();
            if code != Some(0) {
                let mut said = String::new();
                let stderr = children[victim].stderr.take();
                stderr.map(|mut stderr| stderr.read_to_string(&mut said)).transpose().unwrap();
                assert_eq!(code, None, "worker {victim} was not killed: {said}");
            }
            // Even if the job was finished before the kill: the restarted worker finds that, and
            // succeeds.
            children[victim] = self.start(victim);
        }
        self.assert_ended_well(children);
    }

    /// Asserts that a worker's folder has only the note that its job has ended.
    pub(crate) fn assert_left(&self, rank: usize) {
        let folder = std::fs::read_dir(self.sandbox.path(format!("job{rank}"))).unwrap();
        let left: Vec<_> = folder.map(|entry| entry.unwrap().file_name()).collect();
        assert_eq!(left, ["ended"], "job{rank}");
    }

    /// Asserts that the outputs equal those of one process.
    pub(crate) fn assert_as_one_process(&self) {
        let inputs: Vec<String> = (0..self.workers).map(|rank| self.input(rank)).collect();
        let options = self.options.replace("--worker-timeout 2m", "").replace("{rank}", "one");
        // The single process uses another filter, so that the workers do not find its items.
        let options = options.replace("/seen", "/seen_by_one");
        let outputs = self.outputs("one");
        let inputs = inputs.join(" ");
        let args = format!("{inputs} {outputs} --summary one.json --report one.html {options}");
        self.sandbox.run(&args).kept();
        for (name, suffix) in [("out", self.suffix), ("drops", "jsonl"), ("groups", "jsonl")] {
            if self.sandbox.exists(&format!("{name}one.{suffix}")) {
                let mut all = self.concatenated(name, suffix);
                if name != "out" || self.annotates {
                    all = without_workers(&all).into_bytes();
                }
                let one = self.sandbox.read(format!("{name}one.{suffix}"));
                assert!(all == one, "{name} of {} with {options}", self.workers);
            }
        }
        let (mut many, mut one) = (self.summary("summary.json"), self.summary("one.json"));
        assert_agree(&many, &self.sandbox.text("page.html"), &self.options);
        for summary in [&mut many, &mut one] {
            without_filter_names(&mut summary["references"]);
        }
        for list in ["/most_repeated", "/files/named"] {
            let named = many.pointer_mut(list).and_then(|rows| rows.as_array_mut());
            named.into_iter().flatten().for_each(take_workers);
        }
        let workers = many["overlap"]["workers"].take();
        let names = many["overlap"]["names"].as_array().unwrap();
        assert_eq!(workers.as_array().map_or(0, Vec::len), names.len());
        for field in [
            "records",
            "items",
            "distinct",
            "collisions",
            "dropped",
            "groups",
            "most_repeated",
            "files",
            "overlap",
            "references",
            "bad",
            "level",
        ] {
            assert_eq!(many[field], one[field], "{field}");
        }
        assert_eq!(many["keep"], one["keep"]);
        assert_eq!(many["run"]["rss_bytes_max"].as_array().unwrap().len(), self.workers);
        for rank in 0..self.workers {
            self.assert_left(rank);
        }
    }
}

/// Removes the names of filters from the references of a summary, since filters with equal content have
/// different names.
fn without_filter_names(references: &mut serde_json::Value) {
    let Some(online) = references.get_mut("online").and_then(|rows| rows.as_array_mut()) else {
        return;
    };
    if online.is_empty() {
        return;
    }
    for filter in online {
        let row = filter.as_object_mut().unwrap();
        assert!(row.remove("filter").unwrap().as_str().unwrap().contains("/seen"));
        assert!(row.remove("false_positive_rate").unwrap().as_f64().unwrap() < 1e-6);
    }
    references["expected_wrong_drops"] = serde_json::Value::Null;
}

/// Removes the numbers of workers from a line; each must match the file beside it.
fn take_workers(line: &mut serde_json::Value) {
    let Some(fields) = line.as_object_mut() else { return };
    for (worker, file) in [("worker", "file"), ("kept_worker", "kept_file")] {
        if let Some(worker) = fields.remove(worker) {
            let names = [format!("in{worker}/"), format!("/{worker}-")];
            let file = fields[file].as_str().unwrap();
            assert!(names.iter().any(|name| file.contains(name)), "{file} of {worker}");
        }
    }
    fields.values_mut().for_each(take_workers);
}

/// The lines of a report without the numbers of workers, otherwise unchanged.
pub(crate) fn without_workers(text: &[u8]) -> String {
    let text = std::str::from_utf8(text).unwrap();
    for line in text.lines() {
        take_workers(&mut serde_json::from_str(line).unwrap());
    }
    let mut rest = text;
    let mut without = String::new();
    while let Some(at) = rest.find("worker\":") {
        let (before, behind) = rest.split_at(at);
        without.push_str(before.strip_suffix("kept_").unwrap_or(before).strip_suffix('"').unwrap());
        rest = behind.split_once(',').unwrap().1;
    }
    without + rest
}

/// Records with one of 97 keys.
pub(crate) fn json_lines(seed: u64) -> Vec<u8> {
    scored_lines(seed, 200, 97)
}

/// Records with this many keys, and a number, which many of them share and every seventh lacks.
pub(crate) fn scored_lines(seed: u64, count: u64, keys: u64) -> Vec<u8> {
    let mut numbers = Draws(seed);
    let line = |number: u64| {
        let at = match number % 7 {
            0 => "null".to_owned(),
            _ => (number / 7 % 40).to_string(),
        };
        format!("{{\"at\": {at}, \"id\": {}}}\n", number % keys)
    };
    (0..count).flat_map(|_| line(numbers.below(1 << 40)).into_bytes()).collect()
}

/// Records with a number, and a text of several lines or none.
pub(crate) fn texts(seed: u64) -> Vec<u8> {
    let mut numbers = Draws(seed);
    let mut text = |_| {
        let lines: Vec<String> =
            (0..numbers.below(6)).map(|_| format!("piece {}", numbers.below(900))).collect();
        let (at, lines) = (numbers.below(30), lines.join("\\n"));
        format!("{{\"at\": {at}, \"t\" : \"{lines}\"}}\n").into_bytes()
    };
    (0..300).flat_map(&mut text).collect()
}
