//! The fixture of tests: the inputs of three workers, and jobs over them.

use super::super::best::BestField;
use super::super::object_inputs::ObjectStores;
use super::super::observer::Unwatched;
use super::super::reach::Reach;
use super::super::run::run;
use super::super::spec::{BinaryFiles, BySize, EmptyItems, JobSpec, MissingKey, OutputTarget};
use super::super::{format_rule::FormatRule, name_filter::NameFilter, scope::Scope};
use super::bench::{Bench, Membership};
use super::workshop::FileWorkshop;
use serde_json::Value;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use tempfile::TempDir;
use umbel_dedup_engine::{Exactness, FilterChoice, Keep};
use umbel_records::Granularity;

pub(super) const WORKERS: u16 = 3;

/// Waits for slow work of a workshop.
pub(super) fn wait<T>(work: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(work)
}

/// A directory with three workers' inputs.
pub(super) struct Fixture {
    root: TempDir,
}

impl Fixture {
    pub(super) fn new() -> Self {
        let root = tempfile::tempdir().unwrap();
        let fixture = Self { root };
        let mut number = 7u32;
        for worker in 0..WORKERS {
            for (file, lines) in [("a.jsonl", 300), ("b.jsonl", 20), ("c.jsonl", 1)] {
                let mut text = String::new();
                for _ in 0..lines {
                    number = number.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
                    let (id, score) = (number >> 23, number >> 9 & 7);
                    text.push_str(&format!("{{\"id\": {id}, \"score\": {score}}}\n"));
                }
                let path = fixture.path(&format!("in{worker}/{file}"));
                std::fs::create_dir_all(path.parent().unwrap()).unwrap();
                std::fs::write(path, text).unwrap();
            }
        }
        fixture
    }

    pub(super) fn path(&self, name: &str) -> PathBuf {
        self.root.path().join(name)
    }

    pub(super) fn read(&self, name: &str) -> String {
        std::fs::read_to_string(self.path(name)).expect(name)
    }

    pub(super) fn spec(
        &self,
        inputs: Vec<String>,
        exactness: Exactness,
        keep: Keep,
        output: &str,
    ) -> JobSpec {
        JobSpec {
            names: NameFilter::default(),
            in_place: false,
            by_size: BySize::default(),
            inputs: inputs.into_iter().map(Into::into).collect(),
            workers: Some(2),
            granularity: Granularity::Key(vec!["id".into()]),
            paragraph_bytes_min: 0,
            names_granularity: false,
            normalise: Vec::new(),
            scope: Scope::Global,
            rank: None,
            missing_key: MissingKey::Fail,
            empty: EmptyItems::Compare,
            format: FormatRule::default(),
            output: if output.ends_with('/') {
                OutputTarget::Directory(self.path(output))
            } else {
                OutputTarget::File(self.path(output))
            },
            annotates: false,
            groups: Some(self.path(&format!("{}.groups", output.trim_end_matches('/')))),
            best: (keep == Keep::Best)
                .then(|| BestField { field: "score".into(), smallest: false }),
            duplicates: Some(self.path(&format!("{}.drops", output.trim_end_matches('/')))),
            bad: None,
            references: Vec::new(),
            online: Vec::new(),
            add_to: None,
            roots: None,
            reach: Reach { own_cluster: None, connect: Arc::new(|_| unreachable!()) },
            save_index: None,
            summary: Some(self.path(&format!("{}.json", output.trim_end_matches('/')))),
            page: None,
            reports_files: true,
            exactness,
            keep,
            filter: FilterChoice::Auto,
            seed: 9,
            memory_bytes: 64 << 20,
            scratch: self.root.path().to_owned(),
            skip_bad: None,
            binary: BinaryFiles::Refuse,
            overwrite: false,
            stores: ObjectStores::new(64 << 20),
        }
    }

    pub(super) fn input(&self, worker: u16) -> String {
        self.path(&format!("in{worker}")).display().to_string()
    }

    /// Kept records of one process over all inputs.
    pub(super) fn expected(&self, exactness: Exactness, keep: Keep) -> String {
        let inputs = (0..WORKERS).map(|worker| self.input(worker)).collect();
        run(&self.spec(inputs, exactness, keep, "all.txt"), &Unwatched).unwrap();
        self.read("all.txt")
    }

    pub(super) fn bench(&self, worker: u16, folder: &Path) -> Bench {
        let (inputs, output) = (vec![self.input(worker)], format!("out{worker}.txt"));
        let spec = self.spec(inputs, Exactness::Fingerprint, Keep::First, &output);
        let member = Membership { worker, job: 77, spec_digest: [3; 16] };
        Bench::open(spec, member, folder, Arc::new(Unwatched)).unwrap()
    }

    /// The workshop of worker 0.
    pub(super) fn open_first(&self) -> FileWorkshop {
        self.open(0, Exactness::Fingerprint, Keep::First, false)
    }

    pub(super) fn open(
        &self,
        worker: u16,
        exactness: Exactness,
        keep: Keep,
        directory: bool,
    ) -> FileWorkshop {
        let output = if directory { format!("out{worker}/") } else { format!("out{worker}.txt") };
        let spec = self.spec(vec![self.input(worker)], exactness, keep, &output);
        let member = Membership { worker, job: 77, spec_digest: [3; 16] };
        let folder = self.path(&format!("job{worker}"));
        let draw = |_: &Value| unreachable!("no page is wanted");
        FileWorkshop::open(spec, member, &folder, Arc::new(Unwatched), draw).unwrap()
    }
}
