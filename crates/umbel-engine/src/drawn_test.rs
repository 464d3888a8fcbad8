//! Dialogues in text files: one command a line, and below it, indented, what it brings about.
//!
//! ```text
//! # What the reader sees here.
//! 0: insert 1 3.a
//!     proposed: 1 of 1
//!     new: 3.a
//! ```
//!
//! A test plays the commands and compares; tests of other crates that have such files include this one. To write
//! what they bring about into the files, and then to read it:
//!
//! ```text
//! UMBEL_WRITE_DRAWN=1 cargo test -p umbel-engine drawn
//! ```

use std::path::Path;

/// The variable under which a test writes the answers into its files, in place of comparing them.
const WRITE: &str = "UMBEL_WRITE_DRAWN";

/// What an answer begins with.
const INDENT: &str = "    ";

/// Plays the commands of a file in `testdata`, and compares what they bring about with the lines below them.
pub(crate) fn check(file: &str, mut play: impl FnMut(&str) -> String) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("testdata").join(file);
    let expected = std::fs::read_to_string(&path).unwrap();
    let mut drawn = String::new();
    for line in expected.lines().filter(|line| !line.starts_with(INDENT)) {
        drawn += &format!("{line}\n");
        if !line.is_empty() && !line.starts_with('#') {
            play(line).lines().for_each(|answer| drawn += &format!("{INDENT}{answer}\n"));
        }
    }
    if std::env::var_os(WRITE).is_some() {
        std::fs::write(&path, &drawn).unwrap();
        return;
    }
    assert!(drawn == expected, "{file}, which {WRITE}=1 writes, should be:\n{drawn}");
}
