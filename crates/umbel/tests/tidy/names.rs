//! Names of public types: each has one meaning in all crates.

use std::collections::BTreeMap;

use super::{Source, assert_none, sources};

/// The names of the public types that a file of a library defines outside of its tests, with their lines.
fn public_types(source: &Source) -> Vec<(usize, &str)> {
    let is_library = source.path.starts_with("crates/")
        && !source.path.starts_with("crates/umbel/")
        && source.path.contains("/src/");
    if !is_library || source.is_test_file() {
        return Vec::new();
    }
    let untested_line_count = source.untested_line_count();
    let tokens = source.tokens();
    let defined = tokens.windows(3).filter_map(|tokens| match tokens {
        // A macro's `$name` is no name.
        [(_, "pub"), (_, "struct" | "enum" | "trait" | "type"), (number, name)] if *name != "$" => {
            Some((*number, *name))
        }
        _ => None,
    });
    defined.filter(|(number, _)| *number <= untested_line_count).collect()
}

/// The places of each name that several public types have.
fn check_public_types(sources: &[Source]) -> Vec<String> {
    let mut places: BTreeMap<&str, Vec<String>> = BTreeMap::new();
    for source in sources {
        for (number, name) in public_types(source) {
            places.entry(name).or_default().push(format!("{}:{number}", source.path));
        }
    }
    let several = places.into_iter().filter(|(_, places)| places.len() > 1);
    let broken = |(name, places): (&str, Vec<String>)| {
        format!(
            "{}: two public types are named {name}: name one by what it is of",
            places.join(", ")
        )
    };
    several.map(broken).collect()
}

#[test]
fn public_types_have_names_of_their_own() {
    assert_none(&check_public_types(sources()));
}

#[test]
fn a_name_of_two_public_types_is_found() {
    let source = |path: &str, text: &str| Source::new(path, text);
    let one = || source("crates/umbel-a/src/one.rs", "pub struct Job;\npub(crate) enum Plan {}\n");
    let count = |path: &str, text: &str| check_public_types(&[one(), source(path, text)]).len();
    assert_eq!(count("crates/umbel-b/src/two.rs", "/// A job.\npub enum Job {}\n"), 1);
    assert_eq!(count("crates/umbel-a/src/two.rs", "pub trait Job {}\n"), 1);
    assert_eq!(count("crates/umbel-b/src/two.rs", "pub(super) struct Job;\npub enum Plan {}\n"), 0);
    assert_eq!(count("crates/umbel-b/src/two_test.rs", "pub struct Job;\n"), 0);
    assert_eq!(count("crates/umbel/src/two.rs", "pub struct Job;\n"), 0);
    assert_eq!(
        count("crates/umbel-b/src/two.rs", "#[cfg(test)]\nmod tests {\npub struct Job;\n}\n"),
        0
    );
}
