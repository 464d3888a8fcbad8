//! Circles of imports: files of a room that use each other, directly or through others.
//!
//! An import is a `use` of a private path that begins with `crate::` or `super::`, outside of test code.
//! Whatever a file imports through a re-export of another file counts as an import of that file, so a
//! circle may appear larger than it is, but never smaller.

use super::{Source, assert_none, sources};
use std::collections::{BTreeMap, BTreeSet};

/// Most files in a circle: a type, and those of its parts that have their own files.
const CIRCLE_FILES_MAX: usize = 4;

/// The checked sources, each with the number of files in its largest circle; numbers above four may only
/// decrease.
const ROOMS: [(&str, usize); 26] = [
    ("crates/umbel-bits/src", CIRCLE_FILES_MAX),
    ("crates/umbel-client/src", 8),
    ("crates/umbel-codec/src", CIRCLE_FILES_MAX),
    ("crates/umbel-coordinator/src", CIRCLE_FILES_MAX),
    ("crates/umbel-dedup/src", CIRCLE_FILES_MAX),
    ("crates/umbel-dedup-engine/src", CIRCLE_FILES_MAX),
    ("crates/umbel-engine/src", 8),
    ("crates/umbel-files/src", CIRCLE_FILES_MAX),
    ("crates/umbel-filter/src", CIRCLE_FILES_MAX),
    ("crates/umbel-gateway/src", CIRCLE_FILES_MAX),
    ("crates/umbel-jobs/src", CIRCLE_FILES_MAX),
    ("crates/umbel-node/src", CIRCLE_FILES_MAX),
    ("crates/umbel-objects/src", CIRCLE_FILES_MAX),
    ("crates/umbel-ports/src", CIRCLE_FILES_MAX),
    ("crates/umbel-raft/src", CIRCLE_FILES_MAX),
    ("crates/umbel-reconcile/src", CIRCLE_FILES_MAX),
    ("crates/umbel-reconcile-engine/src", CIRCLE_FILES_MAX),
    ("crates/umbel-records/src", CIRCLE_FILES_MAX),
    ("crates/umbel-replicated-engine/src", CIRCLE_FILES_MAX),
    ("crates/umbel-sketch/src", CIRCLE_FILES_MAX),
    ("crates/umbel-static/src", CIRCLE_FILES_MAX),
    ("crates/umbel-step/src", CIRCLE_FILES_MAX),
    ("crates/umbel-storage/src", CIRCLE_FILES_MAX),
    ("crates/umbel-tls/src", CIRCLE_FILES_MAX),
    ("crates/umbel/src", CIRCLE_FILES_MAX),
    ("simulations/src", 5),
];

/// The module path of a file below a room; empty for the root.
fn module_of(room: &str, path: &str) -> Option<Vec<String>> {
    let relative = path.strip_prefix(room)?.strip_prefix('/')?.strip_suffix(".rs")?;
    let parts = relative.split('/').map(str::to_owned);
    Some(if relative == "lib" { Vec::new() } else { parts.collect() })
}

/// The paths that the code of a file imports outside of tests, as words without groups and aliases.
fn imports(source: &Source) -> Vec<Vec<String>> {
    let untested = source.untested_line_count();
    let code: String = source.code.lines().take(untested).flat_map(|line| [line, " "]).collect();
    let mut found = Vec::new();
    for statement in code.split(';') {
        let statement = statement.trim_start();
        let tail = statement.rsplit('}').next().filter(|_| !statement.starts_with("use "));
        if let Some(path) = tail.unwrap_or(statement).trim_start().strip_prefix("use ") {
            expand(path, &[], &mut found);
        }
    }
    found
}

/// Splits a path with groups into paths without.
fn expand(path: &str, above: &[String], found: &mut Vec<Vec<String>>) {
    let path = path.trim();
    let words = |text: &str| -> Vec<String> {
        let plain = text.split(" as ").next().unwrap_or_default();
        let words = plain.split("::").map(str::trim).filter(|word| !word.is_empty());
        above.iter().cloned().chain(words.map(str::to_owned)).collect()
    };
    let Some((before, group)) = path.split_once('{') else {
        found.push(words(path));
        return;
    };
    let group = group.trim_end().strip_suffix('}').unwrap_or(group);
    let (mut depth, mut begin) = (0, 0);
    for (at, character) in group.char_indices().chain([(group.len(), ',')]) {
        match character {
            '{' => depth += 1,
            '}' => depth -= 1,
            ',' if depth == 0 => {
                if !group[begin..at].trim().is_empty() {
                    expand(&group[begin..at], &words(before), found);
                }
                begin = (at + 1).min(group.len());
            }
            _ => {}
        }
    }
}

/// The imports of each module of a room.
fn graph(room: &str, sources: &[Source]) -> BTreeMap<Vec<String>, BTreeSet<Vec<String>>> {
    let files = sources.iter().filter(|source| !source.is_test_file());
    let files: BTreeMap<Vec<String>, &Source> =
        files.filter_map(|source| Some((module_of(room, &source.path)?, source))).collect();
    let resolve = |from: &[String], path: &[String]| -> Option<Vec<String>> {
        let ups = path.iter().take_while(|word| *word == "super").count();
        let (mut module, rest) = match path.first()?.as_str() {
            "crate" => (Vec::new(), &path[1..]),
            "super" => (from[..from.len().checked_sub(ups)?].to_vec(), &path[ups..]),
            "self" => (from.to_vec(), &path[1..]),
            child => {
                let child = [from, &[child.to_owned()]].concat();
                files.contains_key(&child).then_some((from.to_vec(), path))?
            }
        };
        for word in rest {
            module.push(word.clone());
            if !files.contains_key(&module) {
                module.pop();
                break;
            }
        }
        (module != from).then_some(module)
    };
    let of = |(module, source): (&Vec<String>, &&Source)| {
        let targets = imports(source).into_iter().filter_map(|path| resolve(module, &path));
        (module.clone(), targets.collect())
    };
    files.iter().map(of).collect()
}

/// Reports the circles of a room that have more files than `files_max`.
fn check_circles(room: &str, files_max: usize, sources: &[Source]) -> Vec<String> {
    let graph = graph(room, sources);
    let reached = |from: &Vec<String>| {
        let (mut seen, mut open) = (BTreeSet::new(), vec![from]);
        while let Some(module) = open.pop() {
            for next in graph.get(module).into_iter().flatten() {
                if seen.insert(next.clone()) {
                    open.push(next);
                }
            }
        }
        seen
    };
    let all: BTreeMap<&Vec<String>, BTreeSet<Vec<String>>> =
        graph.keys().map(|module| (module, reached(module))).collect();
    let circles: BTreeSet<BTreeSet<&Vec<String>>> = all
        .iter()
        .map(|(module, seen)| {
            all.keys()
                .filter(|other| seen.contains(**other) && all[*other].contains(*module))
                .copied()
                .collect()
        })
        .collect();
    let long = circles.iter().filter(|circle| circle.len() > files_max);
    long.map(|circle| {
        let names: Vec<String> = circle.iter().map(|module| module.join("/")).collect();
        format!(
            "{room}: a circle of {} files, at most {files_max}: {}: move what they share to a leaf file",
            circle.len(),
            names.join(", ")
        )
    })
    .collect()
}

#[test]
fn no_circle_has_many_files() {
    let sources = sources();
    for (room, _) in ROOMS {
        assert!(graph(room, &sources).len() > 2, "{room}: no sources were found");
    }
    let broken = |&(room, files_max)| check_circles(room, files_max, &sources);
    assert_none(&ROOMS.iter().flat_map(broken).collect::<Vec<_>>());
    for (room, files_max) in ROOMS {
        let is_exact = files_max == CIRCLE_FILES_MAX
            || !check_circles(room, files_max - 1, &sources).is_empty();
        assert!(is_exact, "{room}: no circle has {files_max} files any more: lower its number");
    }
}

#[test]
fn long_circles_are_found() {
    let ring = |count: usize| -> Vec<Source> {
        let file = |at: usize| {
            let text = format!(
                "//! A file.\n\nuse crate::{{error::Error, f{}::{{self, Thing}}}};\n",
                (at + 1) % count
            );
            Source::new(&format!("r/f{at}.rs"), &text)
        };
        (0..count).map(file).chain([Source::new("r/error.rs", "//! Errors.\n")]).collect()
    };
    assert_eq!(check_circles("r", CIRCLE_FILES_MAX, &ring(CIRCLE_FILES_MAX)), Vec::<String>::new());
    let broken = check_circles("r", CIRCLE_FILES_MAX, &ring(CIRCLE_FILES_MAX + 1));
    assert_eq!(broken.len(), 1);
    assert!(broken[0].contains("f0, f1, f2, f3, f4:"), "{broken:?}");
    // Tests and comments contain no imports, and `super` is the parent.
    let sources = [
        ("r/a.rs", "//! A.\nuse super::b::B;\n"),
        ("r/b.rs", "//! B.\nuse super::b::c::C;\n"),
        ("r/b/c.rs", "//! C.\n// use super::super::d::D;\nuse super::super::d::D;\n"),
        ("r/d.rs", "//! D.\nfn f() {}\nuse super::e::E;\n"),
        ("r/e.rs", "//! E.\n#[cfg(test)]\nmod tests {\n    use super::super::a::A;\n}\n"),
    ];
    let sources = sources.map(|(path, text)| Source::new(path, text));
    assert_eq!(check_circles("r", CIRCLE_FILES_MAX, &sources), Vec::<String>::new());
    let graph = graph("r", &sources);
    let of = |name: &str| graph[&vec![name.to_owned()]].iter().cloned().collect::<Vec<_>>();
    assert_eq!(of("a"), [vec!["b"]]);
    assert_eq!(of("d"), [vec!["e"]]);
    assert!(of("e").is_empty());
}
