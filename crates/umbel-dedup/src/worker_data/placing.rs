//! The temporary names of a worker's outputs, and how these get their own.
//!
//! Workers may share a disk, and then two outputs may have one name there. Without `--overwrite` no output replaces
//! another: the second one waits until a person has moved the first away. With it, [`check_others`] finds them before any
//! output has its name.

use super::super::sink::path_aside;
use super::bench::{Bench, Membership};
use super::journal_records::JournaledOutput;
use crate::error::{Context, Result, bail};
use crate::turns::lock;
use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsStr;
use std::io;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};
use umbel_files::{OutputFolder, folder_of};

/// What comes before the worker's number in the temporary name of an output.
fn mark(job: u64) -> String {
    format!("umbel-{job:016x}-")
}

/// The temporary name of an output of this worker.
pub(super) fn aside(member: &Membership, path: &Path) -> PathBuf {
    path_aside(path, &format!("{}{}", mark(member.job), member.worker))
}

/// The name of the output whose temporary name this is, and its worker, if it is an output of this job.
fn output_of(aside: &OsStr, job: u64) -> Option<(&OsStr, u16)> {
    let stem = aside.as_bytes().strip_prefix(b".")?.strip_suffix(b".partial")?;
    let mark = format!(".{}", mark(job));
    let at = stem.windows(mark.len()).rposition(|window| window == mark.as_bytes())?;
    let worker = std::str::from_utf8(&stem[at + mark.len()..]).ok()?;
    Some((OsStr::from_bytes(&stem[..at]), worker.parse().ok()?))
}

/// The folder that an output goes to.
pub(super) fn folder_for(bench: &Bench, path: &Path) -> Result<OutputFolder> {
    let opened = OutputFolder::of(bench.spec.roots.as_ref(), path);
    opened.with_context(|| format!("{}: cannot open", folder_of(path).display()))
}

/// Rejects outputs that would replace those of another worker, or would be replaced by them. Every worker looks when all of
/// its outputs are written and none of the job has its name, so the later of two finds the other.
pub(super) fn check_others(bench: &Bench) -> Result<()> {
    if !bench.spec.overwrite {
        return Ok(());
    }
    let outputs = lock(&bench.journal_state).outputs.clone();
    let mut folders: BTreeMap<&Path, BTreeSet<&OsStr>> = BTreeMap::new();
    for JournaledOutput { path, aside, .. } in &outputs {
        if let (Some(_), Some(name)) = (aside.file(), path.file_name()) {
            folders.entry(folder_of(path)).or_default().insert(name);
        }
    }
    let Membership { job, worker, .. } = bench.member;
    for (folder, own) in folders {
        let names = folder_for(bench, &folder.join("any"))?.names();
        for aside in names.with_context(|| format!("{}: cannot read", folder.display()))? {
            if let Some((name, other)) = output_of(&aside, job)
                && other != worker
                && own.contains(name)
            {
                bail!(
                    "{}: worker {other} writes an output of this name there, too ({}), and with --overwrite one would \
                     replace the other: run the job again with an output of its own for each worker, or start all workers \
                     again without --overwrite, and move away what is in the way of each",
                    folder.join(name).display(),
                    aside.display()
                );
            }
        }
    }
    Ok(())
}

/// Renames an output of this many bytes to its name, unless that was done before.
pub(super) fn put_in_place(
    bench: &Bench,
    folder: &OutputFolder,
    (aside, bytes): (&Path, u64),
    path: &Path,
) -> Result<()> {
    let cannot = || format!("{}: cannot rename into place", path.display());
    if !bench.spec.overwrite && folder.has(aside).with_context(cannot)? {
        match folder.rename_new(aside, path) {
            // A link is replaced itself where it leads to no file.
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
                if folder.is_taken(path).with_context(cannot)? {
                    bail!(
                        "{} exists: something else, perhaps another worker, has put it there since the job began; move \
                         it away and start this worker again",
                        path.display()
                    );
                }
            }
            renamed => return renamed.with_context(cannot),
        }
    }
    match folder.rename(aside, path) {
        // An earlier commit has renamed it, or somebody has removed it, and what has its name is older.
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            match folder.bytes(path).with_context(cannot)? {
                Some(found) if found == bytes => Ok(()),
                Some(found) => bail!(
                    "{}: has {found} bytes, and this job has written {bytes}, to {}, which somebody has removed: the \
                     output is lost or was changed; run the job again in a new --job-dir",
                    path.display(),
                    aside.display()
                ),
                None => Err(error).with_context(cannot),
            }
        }
        renamed => renamed.with_context(cannot),
    }
}

#[cfg(test)]
mod tests {
    use super::super::fixture_test::Fixture;
    use super::super::journal_records::JournaledAside;
    use super::*;

    #[test]
    fn a_temporary_name_tells_whose_output_it_is() {
        let member = |worker| Membership { worker, job: 0x4d, spec_digest: [0; 16] };
        for name in ["a.txt", "b.umbel-000000000000004d-3", "c"] {
            let aside = aside(&member(12), &Path::new("out").join(name));
            let aside = aside.file_name().unwrap();
            assert_eq!(output_of(aside, 0x4d), Some((OsStr::new(name), 12)));
            assert_eq!(output_of(aside, 0x4e), None);
        }
        for other in [".a.txt.umbel-4711.partial", "a.txt", ".x.umbel-000000000000004d-1"] {
            assert_eq!(output_of(OsStr::new(other), 0x4d), None, "{other}");
        }
    }

    /// On a disk that workers share.
    #[test]
    fn an_output_that_another_worker_has_too_is_found_before_it_is_replaced() {
        let fixture = Fixture::new();
        let mut bench = fixture.bench(0, &fixture.path("job0"));
        let (path, other) =
            (fixture.path("out.txt"), Membership { worker: 2, ..bench.member.clone() });
        let own = aside(&bench.member, &path);
        let output = JournaledAside::File { path: own.clone(), bytes: 3 };
        let output = JournaledOutput { source: None, path: path.clone(), aside: output };
        lock(&bench.journal_state).outputs.push(output);
        bench.spec.overwrite = true;
        std::fs::write(&own, "own").unwrap();
        std::fs::write(aside(&other, &fixture.path("other.txt")), "theirs").unwrap();
        check_others(&bench).unwrap();
        std::fs::write(aside(&other, &path), "theirs").unwrap();
        let error = check_others(&bench).unwrap_err();
        let said = error.to_string();
        assert!(
            said.contains("out.txt: worker 2 writes an output of this name there, too"),
            "{said}"
        );
        assert!(!error.is_final(), "the workers can be started again without --overwrite");
        // Without it, what the other one has put there stays.
        bench.spec.overwrite = false;
        check_others(&bench).unwrap();
        std::fs::write(&path, "theirs").unwrap();
        let folder = folder_for(&bench, &path).unwrap();
        let error = put_in_place(&bench, &folder, (&own, 3), &path).unwrap_err().to_string();
        assert!(
            error.contains("out.txt exists: something else, perhaps another worker"),
            "{error}"
        );
        assert_eq!((fixture.read("out.txt"), own.exists()), ("theirs".to_owned(), true));
        std::fs::remove_file(&path).unwrap();
        put_in_place(&bench, &folder, (&own, 3), &path).unwrap();
        put_in_place(&bench, &folder, (&own, 3), &path).unwrap();
        assert_eq!((fixture.read("out.txt"), own.exists()), ("own".to_owned(), false));
    }
}
