//! The project's style as a test: dependencies of crates, circles of imports, purity, lengths of files,
//! leftovers, names of files and public types, code with one home, assertions that simulations leave out.
//!
//! The message of a violation names the file, the line or number, and what to do. The checks read every
//! Rust file under `benchmarks`, `crates`, `fuzz` and `simulations`; a small lexer separates code,
//! comments and literals, so that words in a comment or a string do not violate a rule about code.
//!
//! **Test code** is recognised by text alone: everything in `tests/`, `benches/` and `examples/`, files
//! named `tests.rs` or `*_test.rs`, and in other files everything from a `#[cfg(test)]` at the start of a
//! line that is followed by `mod name {`, which must be the file's last item.

use std::ffi::OsStr;
use std::fs;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

use arrows::check_arrows;

#[path = "tidy/arrows.rs"]
mod arrows;

/// Most code lines of a file, without comments, blank lines and the test module at its end.
const CODE_LINES_MAX: usize = 400;

/// Most lines of a file.
const FILE_LINES_MAX: usize = 600;

/// Crates of algorithms, which get all their inputs as arguments.
const PURE: [&str; 12] = [
    "umbel-bits",
    "umbel-sketch",
    "umbel-filter",
    "umbel-codec",
    "umbel-static",
    "umbel-rdb",
    "umbel-resp",
    "umbel-step",
    "umbel-dedup-engine",
    "umbel-reconcile-engine",
    "umbel-engine",
    "umbel-replicated-engine",
];

/// Modules of `std` that pure crates must not use.
const IMPURE_MODULES: [&str; 3] = ["fs", "net", "thread"];

/// Modules with `unsafe` code: vector instructions, prefetch, huge pages, and carry-less products, behind
/// safe functions that have scalar twins. The benchmarks have one module each, for the available memory
/// and for servers that die with the benchmark.
const UNSAFE_MODULES: [&str; 4] = [
    "crates/umbel-filter/src/bits/wide",
    "crates/umbel-sketch/src/gf2/clmul",
    "benchmarks/kernel/src/limit",
    "benchmarks/service/src/processes",
];

/// Macros that mark unfinished work.
const UNFINISHED_MACROS: [&str; 3] = ["dbg", "todo", "unimplemented"];

/// Words in comments that mark unfinished work.
const UNFINISHED_WORDS: [&str; 2] = ["FIXME", "TODO"];

/// Parts of a file or folder name that say nothing about its content.
const EMPTY_NAMES: [&str; 7] =
    ["common", "helper", "helpers", "manager", "managers", "util", "utils"];

/// The kind of text that a byte of a Rust file belongs to.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Class {
    Code,
    Comment,
    Literal,
}

/// A Rust file, with views of equal length in which omitted bytes are blanks.
struct Source {
    /// The path from the workspace root, with forward slashes.
    path: String,
    text: String,
    /// The text without comments and literals.
    code: String,
    /// The comments only.
    comments: String,
    /// The text without comments.
    content: String,
    /// The tokens of the code: their line numbers, and where in it they are.
    token_places: Vec<(usize, Range<usize>)>,
}

impl Source {
    fn new(path: &str, text: &str) -> Self {
        let classes = classify(text.as_bytes());
        let view = |keep: &[Class]| -> String {
            let kept = |(at, c)| if c == '\n' || keep.contains(&classes[at]) { c } else { ' ' };
            text.char_indices().map(kept).collect()
        };
        let code = view(&[Class::Code]);
        Self {
            path: path.to_owned(),
            text: text.to_owned(),
            token_places: token_places(&code),
            code,
            comments: view(&[Class::Comment]),
            content: view(&[Class::Code, Class::Literal]),
        }
    }

    /// The number of lines before the test module at the end, or of all lines.
    fn untested_line_count(&self) -> usize {
        let lines: Vec<&str> = self.code.lines().collect();
        let begins_tests = |at: &usize| {
            let item = lines[at + 1..]
                .iter()
                .find(|line| !line.starts_with("#[") && !line.trim().is_empty());
            lines[*at].trim_end() == "#[cfg(test)]"
                && item.is_some_and(|line| line.contains("mod ") && line.contains('{'))
        };
        (0..lines.len()).find(begins_tests).unwrap_or(lines.len())
    }

    fn is_test_file(&self) -> bool {
        let folders = ["/tests/", "/benches/", "/examples/"];
        folders.iter().any(|folder| self.path.contains(folder))
            || self.path.ends_with("/tests.rs")
            || self.path.ends_with("_test.rs")
    }

    /// The words and single other characters of the code, each with its line number.
    fn tokens(&self) -> Vec<(usize, &str)> {
        let token = |(number, place): &(usize, Range<usize>)| (*number, &self.code[place.clone()]);
        self.token_places.iter().map(token).collect()
    }
}

fn token_places(code: &str) -> Vec<(usize, Range<usize>)> {
    let is_word = |c: char| c == '_' || c.is_alphanumeric();
    let mut places = Vec::new();
    let mut line_begin = 0;
    for (number, line) in (1..).zip(code.split_inclusive('\n')) {
        let mut rest = line.trim_start();
        while let Some(first) = rest.chars().next() {
            let begin = line_begin + line.len() - rest.len();
            let word_bytes = rest.find(|c| !is_word(c)).unwrap_or(rest.len());
            let token_bytes = word_bytes.max(first.len_utf8());
            places.push((number, begin..begin + token_bytes));
            rest = rest[token_bytes..].trim_start();
        }
        line_begin += line.len();
    }
    places
}

/// The class of every byte.
fn classify(text: &[u8]) -> Vec<Class> {
    let mut classes = Vec::with_capacity(text.len());
    while classes.len() < text.len() {
        let at = classes.len();
        let follows_word = at > 0 && (text[at - 1] == b'_' || text[at - 1].is_ascii_alphanumeric());
        let (piece_bytes, class) = next_piece(&text[at..], follows_word);
        classes.resize((at + piece_bytes).min(text.len()), class);
    }
    classes
}

/// Length and class of the first piece of the text.
fn next_piece(text: &[u8], follows_word: bool) -> (usize, Class) {
    if text.starts_with(b"//") {
        let line_bytes = text.iter().position(|&byte| byte == b'\n').unwrap_or(text.len());
        return (line_bytes, Class::Comment);
    }
    if text.starts_with(b"/*") {
        return (block_comment_bytes(text), Class::Comment);
    }
    if text[0] == b'"' {
        return (string_bytes(text), Class::Literal);
    }
    if text[0] == b'\'' {
        return char_bytes(text).map_or((1, Class::Code), |bytes| (bytes, Class::Literal));
    }
    match raw_string_bytes(text) {
        Some(bytes) if !follows_word => (bytes, Class::Literal),
        _ => (1, Class::Code),
    }
}

/// Block comments nest.
fn block_comment_bytes(text: &[u8]) -> usize {
    let (mut at, mut depth) = (2, 1);
    while depth > 0 && at < text.len() {
        match &text[at..] {
            [b'/', b'*', ..] => (at, depth) = (at + 2, depth + 1),
            [b'*', b'/', ..] => (at, depth) = (at + 2, depth - 1),
            _ => at += 1,
        }
    }
    at
}

fn string_bytes(text: &[u8]) -> usize {
    let mut at = 1;
    while at < text.len() && text[at] != b'"' {
        at += if text[at] == b'\\' { 2 } else { 1 };
    }
    at + 1
}

/// The length of `r"…"`, `br#"…"#` and so on; None if the text begins with something else.
fn raw_string_bytes(text: &[u8]) -> Option<usize> {
    let prefix_bytes = usize::from(matches!(text[0], b'b' | b'c'));
    let after_r = text[prefix_bytes..].strip_prefix(b"r")?;
    let hash_count = after_r.iter().take_while(|&&byte| byte == b'#').count();
    let body = after_r[hash_count..].strip_prefix(b"\"")?;
    let close = [b"\"".as_slice(), &b"#".repeat(hash_count)].concat();
    let body_bytes = body.windows(close.len()).position(|window| window == close);
    Some(text.len() - body.len() + body_bytes? + close.len())
}

/// The length of a character literal; None for a lifetime.
fn char_bytes(text: &[u8]) -> Option<usize> {
    let is_close = |&byte: &u8| byte == b'\'';
    if text.get(1) == Some(&b'\\') {
        return Some(4 + text.get(3..)?.iter().position(is_close)?);
    }
    // One character has at most four bytes, and all but its first have the form 10xxxxxx.
    let close = 2 + text.get(2..6.min(text.len()))?.iter().position(is_close)?;
    let is_one = text[2..close].iter().all(|byte| byte & 0b1100_0000 == 0b1000_0000);
    is_one.then_some(close + 1)
}

fn check_module_doc(source: &Source) -> Vec<String> {
    if source.text.starts_with("//!") {
        return Vec::new();
    }
    vec![format!("{}:1: begin the file with //! and what it is for", source.path)]
}

fn check_lengths(source: &Source) -> Vec<String> {
    let path = &source.path;
    let untested_line_count = source.untested_line_count();
    let is_code = |line: &&str| !line.trim().is_empty();
    let code_lines = source.content.lines().take(untested_line_count).filter(is_code).count();
    let file_lines = source.text.lines().count();
    let mut broken = Vec::new();
    if code_lines > CODE_LINES_MAX {
        broken.push(format!(
            "{path}: {code_lines} code lines, at most {CODE_LINES_MAX}: split the file by subject"
        ));
    }
    if file_lines > FILE_LINES_MAX {
        broken.push(format!(
            "{path}: {file_lines} lines, at most {FILE_LINES_MAX}: move tests to a file of their own"
        ));
    }
    let mut test_lines = (1..).zip(source.code.lines()).skip(untested_line_count);
    if test_lines.any(|(_, line)| line.trim_end() == "}")
        && let Some((number, _)) = test_lines.find(|(_, line)| is_code(line))
    {
        broken.push(format!("{path}:{number}: code after the tests: move the tests to the end"));
    }
    broken
}

fn check_leftovers(source: &Source) -> Vec<String> {
    let path = &source.path;
    let mut broken = Vec::new();
    for pair in source.tokens().windows(2) {
        let (number, word) = pair[0];
        if UNFINISHED_MACROS.contains(&word) && pair[1].1 == "!" {
            broken.push(format!("{path}:{number}: {word}! is left over: finish or remove it"));
        }
    }
    for (number, line) in (1..).zip(source.comments.lines()) {
        for word in UNFINISHED_WORDS.iter().filter(|word| line.contains(**word)) {
            broken.push(format!("{path}:{number}: {word} is left over: do it or open an issue"));
        }
    }
    broken
}

fn check_unsafe(source: &Source) -> Vec<String> {
    let is_in = |module: &&str| {
        source.path.strip_prefix(*module).is_some_and(|rest| rest == ".rs" || rest.starts_with('/'))
    };
    if UNSAFE_MODULES.iter().any(is_in) {
        return Vec::new();
    }
    let is_unsafe = |&(number, word)| {
        (word == "unsafe")
            .then(|| format!("{}:{number}: unsafe code: write it in safe Rust", source.path))
    };
    source.tokens().iter().filter_map(is_unsafe).collect()
}

fn check_name(source: &Source) -> Vec<String> {
    let words = source.path.trim_end_matches(".rs").split(['/', '_', '-']);
    let empty = words.filter(|word| EMPTY_NAMES.contains(word));
    empty
        .map(|word| format!("{}: \"{word}\" says nothing: name what is inside", source.path))
        .collect()
}

fn check_purity(source: &Source) -> Vec<String> {
    let in_pure_crate =
        PURE.iter().any(|name| source.path.starts_with(&format!("crates/{name}/src/")));
    if !in_pure_crate || source.is_test_file() {
        return Vec::new();
    }
    let tokens = source.tokens();
    let untested_line_count = source.untested_line_count();
    let mut broken = Vec::new();
    for (at, &(number, word)) in tokens.iter().enumerate() {
        let follows = |expected: &[&str]| {
            let found = tokens[at + 1..].iter().map(|(_, token)| *token);
            found.take(expected.len()).eq(expected.iter().copied())
        };
        let found = match word {
            "Instant" | "SystemTime" => word.to_owned(),
            "rand" if follows(&[":", ":"]) => "rand::".to_owned(),
            "std" if follows(&[":", ":", "{"]) => match impure_in_group(&tokens[at + 4..]) {
                Some(module) => format!("std::{module}"),
                None => continue,
            },
            "std" => match IMPURE_MODULES.iter().find(|module| follows(&[":", ":", module])) {
                Some(module) => format!("std::{module}"),
                None => continue,
            },
            _ => continue,
        };
        if number <= untested_line_count {
            broken.push(format!(
                "{}:{number}: {found} in a pure crate: let the caller do it and pass the result",
                source.path
            ));
        }
    }
    broken
}

/// The first impure module in `use std::{…}`, given the tokens after the brace.
fn impure_in_group<'a>(tokens: &[(usize, &'a str)]) -> Option<&'a str> {
    let mut depth = 1;
    let mut begins_path = true;
    for &(_, token) in tokens {
        if depth == 1 && begins_path && IMPURE_MODULES.contains(&token) {
            return Some(token);
        }
        begins_path = token == ",";
        match token {
            "{" => depth += 1,
            "}" if depth == 1 => return None,
            "}" => depth -= 1,
            _ => {}
        }
    }
    None
}

fn workspace_root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().expect("the root is there")
}

/// Every Rust file below a folder, sorted by name.
fn rust_files(folder: &Path, found: &mut Vec<PathBuf>) {
    let Ok(entries) = fs::read_dir(folder) else {
        return; // fuzz and simulations come later
    };
    let mut paths: Vec<PathBuf> =
        entries.map(|entry| entry.expect("the folder can be read").path()).collect();
    paths.sort();
    for path in paths {
        let is_hidden = path.file_name().is_some_and(|name| name.as_encoded_bytes()[0] == b'.');
        if path.is_dir() && !is_hidden && path.file_name() != Some(OsStr::new("target")) {
            rust_files(&path, found);
        } else if path.extension() == Some(OsStr::new("rs")) {
            found.push(path);
        }
    }
}

/// All Rust files, read once for all tests of this process: it takes longer than what a test does with them.
fn sources() -> &'static [Source] {
    static SOURCES: OnceLock<Vec<Source>> = OnceLock::new();
    SOURCES.get_or_init(|| {
        let root = workspace_root();
        let mut paths = Vec::new();
        for folder in ["benchmarks", "crates", "fuzz", "simulations"] {
            rust_files(&root.join(folder), &mut paths);
        }
        let read = |path: &PathBuf| {
            let relative = path.strip_prefix(&root).expect("it was found below the root");
            let text = fs::read_to_string(path).expect("source is UTF-8");
            Source::new(&relative.to_string_lossy().replace('\\', "/"), &text)
        };
        paths.iter().map(read).collect()
    })
}

fn assert_none(broken: &[String]) {
    assert!(broken.is_empty(), "{} broken:\n{}\n", broken.len(), broken.join("\n"));
}

fn assert_tidy(check: fn(&Source) -> Vec<String>) {
    let broken: Vec<String> = sources().iter().flat_map(check).collect();
    assert_none(&broken);
}

#[test]
fn layers_point_down() {
    let output = Command::new(env!("CARGO"))
        .args(["metadata", "--offline", "--no-deps", "--format-version", "1"])
        .current_dir(workspace_root())
        .output()
        .expect("cargo runs");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let metadata = serde_json::from_slice(&output.stdout).expect("cargo prints JSON");
    assert_none(&check_arrows(&metadata));
}

#[test]
fn algorithms_are_pure() {
    assert_tidy(check_purity);
}

#[test]
fn files_begin_with_their_purpose() {
    assert_tidy(check_module_doc);
}

#[test]
fn files_are_short() {
    assert_tidy(check_lengths);
}

#[test]
fn nothing_is_left_over() {
    assert_tidy(check_leftovers);
}

#[test]
fn names_say_what_is_inside() {
    assert_tidy(check_name);
}

#[test]
fn code_is_safe() {
    assert_tidy(check_unsafe);
}

#[path = "tidy/circles.rs"]
mod circles;

#[path = "tidy/homes.rs"]
mod homes;
#[path = "tidy/names.rs"]
mod names;
#[path = "tidy/planted.rs"]
mod planted;
#[path = "tidy/simulated.rs"]
mod simulated;
