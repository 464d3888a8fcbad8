//! Circles of imports: files of a room that use each other, directly or through others, and folders whose
//! files do, also through files of the room's root.
//!
//! An import is a `use` of a private path that begins with `crate::` or `super::`, outside of test code.
//! Whatever a file imports through a re-export of another file counts as an import of that file, so a
//! circle may appear larger than it is, but never smaller.

use super::{Source, assert_none, sources};
use std::collections::{BTreeMap, BTreeSet};

/// Most files in a circle: a type, and those of its parts that have their own files.
const CIRCLE_FILES_MAX: usize = 4;

/// The checked sources.
const ROOMS: [&str; 26] = [
    "crates/umbel-bits/src",
    "crates/umbel-client/src",
    "crates/umbel-codec/src",
    "crates/umbel-coordinator/src",
    "crates/umbel-dedup/src",
    "crates/umbel-dedup-engine/src",
    "crates/umbel-engine/src",
    "crates/umbel-files/src",
    "crates/umbel-filter/src",
    "crates/umbel-gateway/src",
    "crates/umbel-jobs/src",
    "crates/umbel-node/src",
    "crates/umbel-objects/src",
    "crates/umbel-ports/src",
    "crates/umbel-raft/src",
    "crates/umbel-reconcile/src",
    "crates/umbel-reconcile-engine/src",
    "crates/umbel-records/src",
    "crates/umbel-replicated-engine/src",
    "crates/umbel-sketch/src",
    "crates/umbel-static/src",
    "crates/umbel-step/src",
    "crates/umbel-storage/src",
    "crates/umbel-tls/src",
    "crates/umbel/src",
    "simulations/src",
];

/// Modules, and the modules that each of them imports.
type Graph = BTreeMap<Vec<String>, BTreeSet<Vec<String>>>;

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
fn graph(room: &str, sources: &[Source]) -> Graph {
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

/// The imports between the root modules of a room, each of them with all modules below it.
fn root_graph(files: &Graph) -> Graph {
    let root_of = |module: &Vec<String>| module.iter().take(1).cloned().collect::<Vec<_>>();
    let mut graph = Graph::new();
    for (module, targets) in files {
        let root = root_of(module);
        let others: Vec<_> = targets.iter().map(root_of).filter(|other| *other != root).collect();
        graph.entry(root).or_default().extend(others);
    }
    graph
}

/// The circles of two or more modules.
fn circles(graph: &Graph) -> BTreeSet<BTreeSet<&Vec<String>>> {
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
    let circle_of = |(module, seen): (&&Vec<String>, &BTreeSet<Vec<String>>)| {
        let others =
            all.keys().filter(|other| seen.contains(**other) && all[*other].contains(*module));
        others.copied().collect::<BTreeSet<_>>()
    };
    all.iter().map(circle_of).filter(|circle| circle.len() > 1).collect()
}

/// Reports the circles of a room in which more than `most` modules count.
fn check_circles(
    room: &str,
    graph: &Graph,
    (kind, most): (&str, usize),
    counts: impl Fn(&[String]) -> bool,
) -> Vec<String> {
    let circles = circles(graph).into_iter().filter_map(|circle| {
        let count = circle.iter().filter(|module| counts(module)).count();
        let names: Vec<String> = circle.iter().map(|module| module.join("/")).collect();
        (count > most).then(|| {
            format!(
                "{room}: a circle of {count} {kind}, at most {most}: {}: move what they share to a leaf file",
                names.join(", ")
            )
        })
    });
    circles.collect()
}

/// Reports the circles of files of a room that are too long.
fn check_files(room: &str, files: &Graph) -> Vec<String> {
    check_circles(room, files, ("files", CIRCLE_FILES_MAX), |_| true)
}

/// Reports the circles of folders of a room, also those through files of its root. A folder is a module of the root
/// that has modules below it.
fn check_folders(room: &str, files: &Graph) -> Vec<String> {
    let folders: BTreeSet<&[String]> =
        files.keys().filter(|module| module.len() > 1).map(|module| &module[..1]).collect();
    check_circles(room, &root_graph(files), ("folders", 1), |module| folders.contains(module))
}

#[test]
fn no_circle_has_many_files() {
    let sources = sources();
    let mut broken = Vec::new();
    for room in ROOMS {
        let graph = graph(room, sources);
        assert!(graph.len() > 2, "{room}: no sources were found");
        broken.extend(check_files(room, &graph));
    }
    assert_none(&broken);
}

#[test]
fn no_folders_form_a_circle() {
    let sources = sources();
    let mut broken = Vec::new();
    for room in ROOMS {
        broken.extend(check_folders(room, &graph(room, sources)));
    }
    assert_none(&broken);
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
    let check = |sources: &[Source]| check_files("r", &graph("r", sources));
    assert_eq!(check(&ring(CIRCLE_FILES_MAX)), Vec::<String>::new());
    let broken = check(&ring(CIRCLE_FILES_MAX + 1));
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
    assert_eq!(check(&sources), Vec::<String>::new());
    let graph = graph("r", &sources);
    let of = |name: &str| graph[&vec![name.to_owned()]].iter().cloned().collect::<Vec<_>>();
    assert_eq!(of("a"), [vec!["b"]]);
    assert_eq!(of("d"), [vec!["e"]]);
    assert!(of("e").is_empty());
}

#[test]
fn circles_of_folders_are_found() {
    let sources = [
        ("r/a.rs", "//! A.\n"),
        ("r/a/x.rs", "//! X.\nuse crate::b::B;\n"),
        ("r/b.rs", "//! B.\n"),
        ("r/b/y.rs", "//! Y.\nuse super::B;\nuse crate::c::C;\n"),
        ("r/c.rs", "//! C.\n"),
        ("r/c/z.rs", "//! Z.\nuse crate::a::A;\n"),
        ("r/d.rs", "//! D.\nuse crate::a::x::X;\n"),
        ("r/d/w.rs", "//! W.\n"),
        // Two folders, one of which uses the other through a file of the root.
        ("r/e.rs", "//! E.\nuse crate::between::Between;\n"),
        ("r/e/v.rs", "//! V.\n"),
        ("r/between.rs", "//! A file, and no folder.\nuse crate::f::F;\n"),
        ("r/f.rs", "//! F.\n"),
        ("r/f/u.rs", "//! U.\nuse crate::e::E;\n"),
        // A folder and a file.
        ("r/g.rs", "//! G.\nuse crate::leaf::Leaf;\n"),
        ("r/g/t.rs", "//! T.\n"),
        ("r/leaf.rs", "//! Another file.\nuse crate::g::G;\n"),
    ];
    let sources = sources.map(|(path, text)| Source::new(path, text));
    let files = graph("r", &sources);
    assert_eq!(check_files("r", &files), Vec::<String>::new());
    let message = |count: usize, names: &str| {
        format!(
            "r: a circle of {count} folders, at most 1: {names}: move what they share to a leaf file"
        )
    };
    let broken = check_folders("r", &files);
    assert_eq!(broken, [message(3, "a, b, c"), message(2, "between, e, f")]);
}
