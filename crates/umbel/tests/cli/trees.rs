//! Random directory trees, compared with an oracle that follows the documentation: which files are read
//! and in which order, what is kept of each, its compression and permissions, and which files do not
//! change.
//!
//! `UMBEL_TREES=1000` runs a thousand trees; `UMBEL_TREE=SEED` repeats one.

use crate::packed::{bzip2, gzip, lz4, unpack, xz, zstd};
use crate::sandbox::Sandbox;
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;

/// Trees by default.
const TREES: u64 = 12;

/// A small random generator, of sufficient quality for trees.
struct Dice(u64);

impl Dice {
    fn below(&mut self, end: usize) -> usize {
        self.0 =
            self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        usize::try_from(self.0 >> 33).unwrap() % end
    }

    fn one_in(&mut self, count: usize) -> bool {
        self.below(count) == 0
    }

    fn of<T: Copy>(&mut self, things: &[T]) -> T {
        things[self.below(things.len())]
    }
}

/// The destination of the records.
#[derive(Clone, Copy, PartialEq, Debug)]
enum Output {
    Directory,
    Nested,
    InPlace,
    File,
}

/// A function that compresses a content.
type Pack = fn(&[u8]) -> Vec<u8>;

const PACKINGS: [Pack; 6] = [<[u8]>::to_vec, gzip, zstd, xz, bzip2, lz4];

const BINARIES: [&[u8]; 4] =
    [b"\x89PNG\r\n\x1a\n\nx\nx\n", b"a\0\n\0a\0\n\0", b"\x7fELF\n\n", b"PK\x03\x04\nx\n"];

/// Creates a directory and its content; adds paths of regular files to `files`.
fn grow(dice: &mut Dice, sandbox: &Sandbox, at: &Path, depth: usize, files: &mut Vec<PathBuf>) {
    fs::create_dir_all(sandbox.path(at)).unwrap();
    for number in 0..dice.below(6) {
        let name = at.join(
            dice.of(&["a", "b.txt", "c.log", ".hid", "d d"]).to_owned() + &number.to_string(),
        );
        match dice.below(14) {
            0 | 1 if depth < 3 => grow(dice, sandbox, &name, depth + 1, files),
            0 => symlink("nowhere", sandbox.path(&name)).unwrap(),
            1 => symlink(sandbox.path("d"), sandbox.path(&name)).unwrap(),
            2 if !files.is_empty() => {
                let other = files[dice.below(files.len())].clone();
                fs::hard_link(sandbox.path(other), sandbox.path(&name)).unwrap();
                files.push(name.clone());
            }
            3 if !files.is_empty() => {
                let other = &files[dice.below(files.len())];
                symlink(sandbox.path(other), sandbox.path(&name)).unwrap();
            }
            4 => sandbox.write(&name, dice.of(&BINARIES)),
            5 => sandbox.write(at.join(format!(".x{number}.umbel-{number}.partial")), b"torn\nx"),
            6 => sandbox.write(at.join(".umbel-reconcile-Zz/x"), b"staged\n"),
            7 => sandbox.write(at.join(format!(".y{number}.umbel-77d.partial")), b"torn\ny"),
            9 => symlink("nowhere", sandbox.path(&name)).unwrap(),
            8 => sandbox.write(at.join(".w.umbel-00ff00ff00ff00ff-1.partial"), b"torn\nw"),
            _ => {
                let mut content = Vec::new();
                for _ in 0..dice.below(9) {
                    let line =
                        dice.of(&["x", "y", "", "z\r", "gr\u{f6}\u{df}e", "w w", "\u{1}", "q"]);
                    content.extend(line.bytes());
                    if dice.one_in(3) {
                        content.extend(dice.below(20).to_string().bytes());
                    }
                    content.push(b'\n');
                }
                if dice.one_in(4) {
                    content.pop();
                }
                let packed = if dice.one_in(2) { content } else { dice.of(&PACKINGS)(&content) };
                sandbox.write(&name, packed);
                files.push(name.clone());
            }
        }
        if let Ok(metadata) = fs::symlink_metadata(sandbox.path(&name))
            && metadata.is_file()
        {
            let mode = dice.of(&[0o600, 0o640, 0o644, 0o666, 0o755, 0o604]);
            fs::set_permissions(sandbox.path(&name), fs::Permissions::from_mode(mode)).unwrap();
        }
    }
}

/// A file at some path: its type, permissions and bytes.
type Seen = (String, u32, Vec<u8>);

/// Everything below a directory except directories.
fn seen(root: &Path) -> BTreeMap<PathBuf, Seen> {
    let mut all = BTreeMap::new();
    let mut waiting = vec![root.to_owned()];
    while let Some(directory) = waiting.pop() {
        for entry in fs::read_dir(directory).unwrap() {
            let path = entry.unwrap().path();
            let metadata = fs::symlink_metadata(&path).unwrap();
            if metadata.is_dir() {
                waiting.push(path);
            } else if metadata.is_symlink() {
                let target = fs::read_link(&path).unwrap().display().to_string();
                all.insert(path, (format!("link to {target}"), 0, Vec::new()));
            } else {
                let bytes = fs::read(&path).unwrap();
                all.insert(path, ("file".to_owned(), metadata.mode() & 0o7777, bytes));
            }
        }
    }
    all
}

/// The files that are read according to the documentation, in order; false for those that cannot be read.
fn to_read(directory: &Path, but: &Path, files: &mut Vec<(PathBuf, bool)>) {
    let mut names: Vec<_> =
        fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    names.sort();
    for name in names {
        let (path, text) = (directory.join(&name), name.to_string_lossy());
        let is_unfinished = text.starts_with(".umbel-reconcile-")
            || text.starts_with('.') && text.contains(".umbel-") && text.ends_with(".partial");
        if is_unfinished || path == but {
            continue;
        }
        match fs::metadata(&path) {
            Err(_) => files.push((path, false)),
            Ok(metadata) if metadata.is_file() => files.push((path, true)),
            Ok(_) if path.is_symlink() => {}
            Ok(_) => to_read(&path, but, files),
        }
    }
}

/// The records of a content, with their line ends.
fn records(content: &[u8]) -> Vec<&[u8]> {
    content.split_inclusive(|byte| *byte == b'\n').collect()
}

fn item(record: &[u8]) -> &[u8] {
    record.strip_suffix(b"\n").unwrap_or(record)
}

/// The kept records of each content, compared with all or within each file.
fn kept(contents: &[Vec<u8>], last: bool, by_file: bool) -> Vec<Vec<u8>> {
    let places = contents.iter().enumerate().flat_map(|(file, content)| {
        records(content).into_iter().enumerate().map(move |(number, record)| (file, number, record))
    });
    let mut places: Vec<_> = places.collect();
    if last {
        places.reverse();
    }
    let mut first_of = BTreeSet::new();
    let mut stays: Vec<_> = places
        .into_iter()
        .filter(|(file, _, record)| first_of.insert((by_file.then_some(*file), item(record))))
        .collect();
    stays.sort_unstable_by_key(|(file, number, _)| (*file, *number));
    let mut kept = vec![Vec::new(); contents.len()];
    stays.iter().for_each(|(file, _, record)| kept[*file].extend_from_slice(record));
    kept
}

/// A random tree and a random command.
struct Case {
    sandbox: Sandbox,
    output: Output,
    copies: bool,
    last: bool,
    by_file: bool,
    workers: &'static str,
    root: PathBuf,
    target: PathBuf,
}

impl Case {
    fn new(seed: u64) -> Self {
        let mut dice = Dice(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15));
        let sandbox = Sandbox::new();
        grow(&mut dice, &sandbox, Path::new("d"), 0, &mut Vec::new());
        // Empty trees are tested elsewhere.
        sandbox.write("d/always", "x\nalways\nx\n");
        let output = dice.of(&[Output::Directory, Output::Nested, Output::InPlace, Output::File]);
        let copies = output != Output::File && dice.one_in(2);
        let (last, by_file) = (dice.one_in(3), dice.one_in(4));
        let root = sandbox.path("d");
        let target = match output {
            Output::Directory => sandbox.path("out"),
            Output::Nested => root.join("out"),
            Output::InPlace => root.clone(),
            Output::File => sandbox.path("out.txt"),
        };
        if output == Output::Nested && dice.one_in(2) {
            sandbox.write("d/out/always", "of an earlier run\n");
            sandbox.write("d/out/other", "of an earlier run\n");
            sandbox.write("d/out/.o.umbel-12.partial", "torn");
        }
        let workers = dice.of(&["1", "3"]);
        Self { sandbox, output, copies, last, by_file, workers, root, target }
    }

    fn command(&self) -> Command {
        let args = "d --overwrite --quiet --skip-bad --bad bad.jsonl --workers";
        let mut command = self.sandbox.command(&format!("{args} {}", self.workers));
        command.args([
            "--output",
            match self.output {
                Output::Directory => "out/",
                Output::Nested => "d/out/",
                Output::InPlace => "d",
                Output::File => "out.txt",
            },
        ]);
        command.args(["--binary", if self.copies { "copy" } else { "skip" }]);
        command.args(["--keep", if self.last { "last" } else { "first" }]);
        command.args(["--scope", if self.by_file { "file" } else { "global" }]);
        command
    }

    fn place(&self, path: &Path) -> PathBuf {
        self.target.join(path.strip_prefix(&self.root).unwrap())
    }
}

/// The expected result of a case.
struct Expected {
    files: BTreeMap<PathBuf, Seen>,
    /// The paths of text files.
    text: Vec<PathBuf>,
    bad: usize,
}

impl Expected {
    fn of(case: &Case, before: &BTreeMap<PathBuf, Seen>) -> Self {
        let Case { sandbox, output, target, root, copies, .. } = case;
        let mut found = Vec::new();
        let but = if *output == Output::Nested { target } else { Path::new("") };
        to_read(root, but, &mut found);
        let (good, bad): (Vec<_>, Vec<_>) = found.into_iter().partition(|(_, good)| *good);
        let is_binary = |path: &PathBuf| BINARIES.contains(&&fs::read(path).unwrap()[..]);
        let good = good.into_iter().map(|(path, _)| path);
        let (binary, text): (Vec<PathBuf>, Vec<PathBuf>) = good.partition(is_binary);
        let binary: Vec<PathBuf> = binary.into_iter().filter(|_| *copies).collect();
        let contents: Vec<Vec<u8>> =
            text.iter().map(|path| unpack(&fs::read(path).unwrap())).collect();
        let kept = kept(&contents, case.last, case.by_file);
        let mode = |path: &Path| fs::metadata(path).unwrap().mode() & 0o777;
        let mut files = before.clone();
        let mut written: Vec<PathBuf> = vec![target.clone()];
        if *output == Output::File {
            sandbox.write("new", "");
            let new = sandbox.path("new");
            files.insert(target.clone(), ("file".to_owned(), mode(&new), in_one(&kept)));
            fs::remove_file(new).unwrap();
        } else {
            let all = text.iter().chain(&binary).chain(bad.iter().map(|(path, _)| path));
            // The places where bad files would be are checked, too.
            written = all.map(|path| case.place(path)).chain([target.join("bad.jsonl")]).collect();
            for (path, content) in text.iter().zip(kept) {
                files.insert(case.place(path), ("file".to_owned(), mode(path), content));
            }
            // In place, a binary file does not change, even if it is a link.
            for path in binary.iter().filter(|_| *output != Output::InPlace) {
                let content = fs::read(path).unwrap();
                files.insert(case.place(path), ("file".to_owned(), mode(path), content));
            }
        }
        let folders: BTreeSet<&Path> = written.iter().filter_map(|path| path.parent()).collect();
        files.retain(|path, _| !(is_dead(path) && folders.contains(path.parent().unwrap())));
        Self { files, text, bad: bad.len() }
    }
}

/// All kept records in one file.
fn in_one(kept: &[Vec<u8>]) -> Vec<u8> {
    let mut all: Vec<u8> = Vec::new();
    for part in kept.iter().filter(|part| !part.is_empty()) {
        if all.last().is_some_and(|byte| *byte != b'\n') {
            all.push(b'\n');
        }
        all.extend(part);
    }
    all
}

/// Whether a file was left by a process that does not hold its lock any more.
fn is_dead(path: &Path) -> bool {
    let name = path.file_name().unwrap().to_string_lossy().into_owned();
    let writer = name.strip_suffix(".partial").and_then(|stem| stem.rsplit_once(".umbel-"));
    let is_number = |writer: &str| writer.bytes().all(|byte| byte.is_ascii_digit());
    name.starts_with('.') && writer.is_some_and(|(_, writer)| is_number(writer))
}

fn check(seed: u64) {
    let case = Case::new(seed);
    let sandbox = &case.sandbox;
    let before = seen(&sandbox.path(""));
    let expected = Expected::of(&case, &before);
    let mut command = case.command();
    let ran = command.output().unwrap();
    let stderr = String::from_utf8_lossy(&ran.stderr);
    let context = format!("UMBEL_TREE={seed}, {:?}: {command:?}: {stderr}", case.output);
    let code = if expected.bad == 0 { 0 } else { 3 };
    assert_eq!(ran.status.code(), Some(code), "{context}");
    let list = fs::read_to_string(sandbox.path("bad.jsonl")).unwrap_or_default();
    assert_eq!(list.lines().count(), expected.bad, "{context}");
    assert_eq!(list.matches("\"cause\":\"io\"").count(), expected.bad, "{context}");
    let _ = fs::remove_file(sandbox.path("bad.jsonl"));
    let after = seen(&sandbox.path(""));
    for path in expected.files.keys().chain(after.keys()) {
        let source = stored_for(path, &case.target, &case.root, &expected.text);
        let (wanted, found) = (expected.files.get(path), after.get(path));
        let same = match (wanted, found, source) {
            // Compressed like the input, with the expected content.
            (Some((kind, mode, content)), Some((kind_now, mode_now, bytes)), Some(source)) => {
                let was = resolved(&before, source);
                (kind, mode) == (kind_now, mode_now)
                    && unpack(bytes) == *content
                    && magic(bytes) == magic(&was)
            }
            (wanted, found, _) => wanted == found,
        };
        assert!(same, "{}\nexpected {wanted:?}\nfound {found:?}\n{context}", path.display());
    }
}

/// The text file from which an output was made.
fn stored_for<'a>(
    path: &Path,
    target: &Path,
    root: &Path,
    text: &'a [PathBuf],
) -> Option<&'a PathBuf> {
    let relative = path.strip_prefix(target).ok()?;
    text.iter().find(|source| source.strip_prefix(root).ok() == Some(relative))
}

/// The earlier bytes of a file, through a link.
fn resolved(before: &BTreeMap<PathBuf, Seen>, path: &Path) -> Vec<u8> {
    match before.get(path) {
        Some((kind, _, bytes)) => match kind.strip_prefix("link to ") {
            Some(target) => resolved(before, Path::new(target)),
            None => bytes.clone(),
        },
        None => Vec::new(),
    }
}

/// The first bytes, which identify the compression.
fn magic(bytes: &[u8]) -> &'static str {
    match bytes {
        [0x1f, 0x8b, ..] => "gzip",
        [0x28, 0xb5, 0x2f, 0xfd, ..] => "zstd",
        [0xfd, b'7', b'z', ..] => "xz",
        [b'B', b'Z', b'h', ..] => "bzip2",
        [0x04, 0x22, 0x4d, 0x18, ..] => "lz4",
        _ => "plain",
    }
}

#[test]
fn random_trees_come_out_as_the_documentation_says() {
    let number = |name: &str| std::env::var(name).ok().and_then(|text| text.parse::<u64>().ok());
    match number("UMBEL_TREE") {
        Some(seed) => check(seed),
        None => (0..number("UMBEL_TREES").unwrap_or(TREES)).for_each(check),
    }
}
