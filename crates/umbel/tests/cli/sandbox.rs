//! A directory for each test, in which the binary is run.
//!
//! After every run it is checked that neither unfinished outputs nor scratch files are left.

use std::fs;
use std::io::{self, ErrorKind, Write};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use tempfile::TempDir;

/// The folder of scratch files, below the sandbox.
const SCRATCH: &str = ".scratch";

/// A working directory that is removed when the test ends.
pub(crate) struct Sandbox {
    root: TempDir,
}

/// The result of a run.
pub(crate) struct Ran {
    /// `None` if it was killed by a signal.
    pub(crate) code: Option<i32>,
    pub(crate) stdout: Vec<u8>,
    pub(crate) stderr: String,
}

impl Sandbox {
    pub(crate) fn new() -> Self {
        let root = tempfile::tempdir().unwrap();
        fs::create_dir(root.path().join(SCRATCH)).unwrap();
        Self { root }
    }

    /// A sandbox with these files.
    pub(crate) fn with<Bytes: AsRef<[u8]>>(files: &[(&str, Bytes)]) -> Self {
        let sandbox = Self::new();
        files.iter().for_each(|(name, bytes)| sandbox.write(name, bytes));
        sandbox
    }

    pub(crate) fn path(&self, name: impl AsRef<Path>) -> PathBuf {
        self.root.path().join(name)
    }

    pub(crate) fn write(&self, name: impl AsRef<Path>, bytes: impl AsRef<[u8]>) {
        let path = self.path(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, bytes).unwrap();
    }

    /// Writes a file that only its owner may read.
    pub(crate) fn write_secret(&self, name: &str, text: &str) {
        self.write(name, text);
        fs::set_permissions(self.path(name), fs::Permissions::from_mode(0o600)).unwrap();
    }

    pub(crate) fn read(&self, name: impl AsRef<Path>) -> Vec<u8> {
        let path = self.path(name);
        fs::read(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
    }

    pub(crate) fn text(&self, name: &str) -> String {
        String::from_utf8(self.read(name)).unwrap()
    }

    pub(crate) fn exists(&self, name: &str) -> bool {
        self.path(name).exists()
    }

    /// All files by their relative paths, sorted.
    pub(crate) fn files(&self) -> Vec<String> {
        let mut files = Vec::new();
        walk(self.root.path(), &mut files);
        let relative = |path: &PathBuf| path.strip_prefix(self.root.path()).unwrap().to_owned();
        let mut names: Vec<String> =
            files.iter().map(|path| relative(path).display().to_string()).collect();
        names.sort();
        names
    }

    /// A command `umbel dedup` in the sandbox, with these arguments, separated by blanks.
    pub(crate) fn command(&self, args: &str) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_umbel"));
        command.arg("dedup").args(args.split_whitespace());
        command.current_dir(self.root.path()).env("TMPDIR", self.path(SCRATCH));
        command.env_remove("RUST_BACKTRACE");
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        command
    }

    pub(crate) fn run(&self, args: &str) -> Ran {
        let output = self.command(args).output().unwrap();
        self.ended(output)
    }

    /// Runs with these bytes as standard input, from a pipe.
    pub(crate) fn run_piped(&self, args: &str, stdin: &[u8]) -> Ran {
        self.run_piping(args, stdin).0
    }

    /// Like [`Sandbox::run_piped`]; returns in addition whether all bytes could be written.
    pub(crate) fn run_piping(&self, args: &str, stdin: &[u8]) -> (Ran, io::Result<()>) {
        let mut child = self.command(args).stdin(Stdio::piped()).spawn().unwrap();
        let mut pipe = child.stdin.take().unwrap();
        std::thread::scope(|scope| {
            let writing = scope.spawn(move || pipe.write_all(stdin));
            let output = child.wait_with_output().unwrap();
            (self.ended(output), writing.join().unwrap())
        })
    }

    /// The result of a run, after a check for left files. No other command that writes may run in the sandbox; a node
    /// may, since its unfinished files have other names.
    pub(crate) fn ended(&self, output: Output) -> Ran {
        let ran = Ran {
            code: output.status.code(),
            stdout: output.stdout,
            stderr: String::from_utf8(output.stderr).unwrap(),
        };
        let left = |name: &String| name.contains(".partial") || name.starts_with(SCRATCH);
        let left: Vec<String> = self.files().into_iter().filter(left).collect();
        assert!(left.is_empty(), "left behind: {left:?}; {}", ran.stderr);
        ran
    }
}

/// A node or a command that runs beside may remove what was listed before it is read.
fn walk(directory: &Path, files: &mut Vec<PathBuf>) {
    let entries = match fs::read_dir(directory) {
        Err(error) if error.kind() == ErrorKind::NotFound => return,
        entries => entries.unwrap(),
    };
    for entry in entries {
        let entry = entry.unwrap();
        let Ok(file_type) = entry.file_type() else { continue };
        if file_type.is_dir() {
            walk(&entry.path(), files);
        } else {
            files.push(entry.path());
        }
    }
}

impl Ran {
    /// The standard output; asserts that the run ended with this code.
    #[track_caller]
    pub(crate) fn ended_with(self, code: i32) -> Vec<u8> {
        assert_eq!(self.code, Some(code), "stderr: {}", self.stderr);
        self.stdout
    }

    /// The standard output; asserts that the run succeeded.
    #[track_caller]
    pub(crate) fn kept(self) -> Vec<u8> {
        self.ended_with(0)
    }

    /// The standard output as text; asserts that the run succeeded.
    #[track_caller]
    pub(crate) fn kept_text(self) -> String {
        String::from_utf8(self.kept()).unwrap()
    }

    /// Asserts that the run failed with this code, printed all of these words, and no record.
    #[track_caller]
    pub(crate) fn refused(self, code: i32, said: &[&str]) {
        let stderr = &self.stderr;
        assert_eq!(self.code, Some(code), "stderr: {stderr}");
        for words in said {
            assert!(stderr.contains(words), "`{words}` is not in: {stderr}");
        }
        assert!(stderr.ends_with('\n') && !stderr.contains("panicked"), "{stderr}");
        let stdout = &self.stdout[..self.stdout.len().min(80)];
        assert!(stdout.is_empty(), "stdout: {}...", String::from_utf8_lossy(stdout));
    }
}
