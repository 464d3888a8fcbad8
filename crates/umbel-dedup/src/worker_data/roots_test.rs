//! Outputs and references of a job that is restricted to some folders, while another user replaces entries in
//! them.

use super::super::references::References;
use super::bench::Bench;
use super::fixture_test::Fixture;
use super::writing::{commit, write_one};
use crate::error::{Result, chain_text};
use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::Command;
use umbel_files::Roots;

/// A worker that may use `root` but not `outside`.
struct Kept {
    fixture: Fixture,
    bench: Bench,
}

impl Kept {
    fn new() -> Self {
        let fixture = Fixture::new();
        fs::create_dir_all(fixture.path("root/out")).unwrap();
        fs::create_dir(fixture.path("outside")).unwrap();
        let mut bench = fixture.bench(0, &fixture.path("job0"));
        let root = fs::canonicalize(fixture.path("root")).unwrap();
        bench.spec.roots = Some(Roots::new(vec![root]));
        Self { fixture, bench }
    }

    fn path(&self, below: &str) -> PathBuf {
        self.fixture.path(below)
    }

    fn write(&self, below: &str) -> Result<()> {
        write_one(&self.bench, &self.path(below), |mut sink| {
            sink.write(b"kept")?;
            sink.complete()
        })
    }

    /// Replaces the output folder by a link to a folder outside.
    fn swap(&self) {
        fs::rename(self.path("root/out"), self.path("root/moved")).unwrap();
        symlink(self.path("outside"), self.path("root/out")).unwrap();
    }

    fn swap_back(&self) {
        fs::remove_file(self.path("root/out")).unwrap();
        fs::rename(self.path("root/moved"), self.path("root/out")).unwrap();
    }
}

fn names(folder: &Path) -> Vec<String> {
    let entries = fs::read_dir(folder).unwrap();
    entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect()
}

#[test]
fn nothing_is_written_outside_of_the_roots_whenever_a_folder_is_swapped() {
    let kept = Kept::new();
    kept.swap();
    let error = chain_text(&kept.write("root/out/a").unwrap_err());
    assert!(error.contains("may not be written by jobs here"), "{error}");
    kept.swap_back();
    kept.write("root/out/a").unwrap();
    assert_eq!(names(&kept.path("root/out")).len(), 1, "aside");
    // Outside, there is a file with the same temporary name.
    let aside = names(&kept.path("root/out")).remove(0);
    fs::write(kept.path("outside").join(&aside), "theirs").unwrap();
    kept.swap();
    let error = chain_text(&commit(&kept.bench).unwrap_err());
    assert!(error.contains("may not be written by jobs here"), "{error}");
    assert_eq!(names(&kept.path("outside")), [aside]);
    kept.swap_back();
    commit(&kept.bench).unwrap();
    assert_eq!(names(&kept.path("root/out")), ["a"]);
    assert_eq!(fs::read_to_string(kept.path("root/out/a")).unwrap(), "kept");
}

#[test]
fn a_link_is_replaced_and_a_pipe_is_refused() {
    let kept = Kept::new();
    fs::write(kept.path("outside/theirs"), "theirs").unwrap();
    symlink(kept.path("outside/theirs"), kept.path("root/out/a")).unwrap();
    let pipe = kept.path("root/out/pipe");
    assert!(Command::new("mkfifo").arg(&pipe).status().unwrap().success());
    let error = kept.write("root/out/pipe").unwrap_err().to_string();
    assert!(error.ends_with("neither a regular file nor a new one"), "{error}");
    let mut kept = kept;
    kept.bench.spec.overwrite = true;
    kept.write("root/out/a").unwrap();
    commit(&kept.bench).unwrap();
    assert_eq!(fs::read_to_string(kept.path("root/out/a")).unwrap(), "kept");
    assert!(kept.path("root/out/a").symlink_metadata().unwrap().is_file());
    assert_eq!(fs::read_to_string(kept.path("outside/theirs")).unwrap(), "theirs");
}

#[test]
fn references_are_opened_below_the_roots() {
    let mut kept = Kept::new();
    fs::write(kept.path("outside/index"), "no index").unwrap();
    symlink(kept.path("outside/index"), kept.path("root/index")).unwrap();
    for index in ["outside/index", "root/index"] {
        kept.bench.spec.references = vec![kept.path(index)];
        let error = chain_text(&References::open(&kept.bench.spec).err().unwrap());
        assert!(error.contains("may not be read by jobs here"), "{index}: {error}");
    }
    fs::write(kept.path("root/own"), "no index").unwrap();
    kept.bench.spec.references = vec![kept.path("root/own")];
    let error = chain_text(&References::open(&kept.bench.spec).err().unwrap());
    assert!(error.contains("not an index: 8 bytes"), "{error}");
}
