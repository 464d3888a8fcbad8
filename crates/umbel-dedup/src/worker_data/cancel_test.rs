//! A job leaves nothing behind if it is cancelled, at whichever check.

use super::super::error::DedupError;
use super::super::observer::Observer;
use super::super::run::run;
use super::fixture_test::Fixture;
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};
use umbel_dedup_engine::{Exactness, Keep};

/// Cancels the job at the check with this number, from 0.
struct EndsAt {
    question: u32,
    asked: AtomicU32,
}

impl Observer for EndsAt {
    fn warn(&self, text: &str) {
        panic!("{text}");
    }

    fn is_cancelled(&self) -> bool {
        self.asked.fetch_add(1, Ordering::Relaxed) >= self.question
    }
}

fn files(folder: &Path, found: &mut BTreeSet<PathBuf>) {
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            files(&path, found);
        } else {
            found.insert(path);
        }
    }
}

#[test]
fn a_job_that_is_cancelled_leaves_nothing() {
    let fixture = Fixture::new();
    let root = fixture.path("");
    let all = || {
        let mut found = BTreeSet::new();
        files(&root, &mut found);
        found
    };
    let before = all();
    for exactness in [Exactness::Fingerprint, Exactness::Bytes] {
        let inputs =
            (0..3).map(|worker| fixture.path(&format!("in{worker}")).display().to_string());
        let inputs: Vec<String> = inputs.collect();
        for output in ["all.txt", "out/"] {
            let mut question = 0;
            loop {
                let spec = fixture.spec(inputs.clone(), exactness, Keep::Last, output);
                let observer = EndsAt { question, asked: AtomicU32::new(0) };
                match run(&spec, &observer) {
                    Ok(_) => break,
                    Err(error) => {
                        let is_cancelled = matches!(error.innermost(), DedupError::Cancelled);
                        assert!(is_cancelled, "{error}");
                    }
                }
                assert_eq!(all(), before, "question {question}");
                question += 1;
            }
            // Nine files are read and written, with cells in between.
            assert!(question > 18, "{question} questions");
            assert!(all().len() > before.len());
            for path in all().difference(&before) {
                std::fs::remove_file(path).unwrap();
            }
        }
    }
}
