//! Crates that simulations build without debug assertions have none.
//!
//! Such an assertion would hold for tests alone, and simulations, which reach more states, would not look.

use std::fs;

use super::{Source, assert_none, sources, workspace_root};

const PROFILE: &str = "\n[profile.sim.package]\n";

const ASSERTIONS: [&str; 4] =
    ["debug_assert", "debug_assert_eq", "debug_assert_ne", "debug_assertions"];

/// The crates that a manifest's profile for simulations builds without debug assertions.
fn unasserted(manifest: &str) -> Vec<&str> {
    let (_, section) = manifest.split_once(PROFILE).expect("the profile names crates");
    let lines = section.lines().take_while(|line| !line.starts_with('['));
    let names = lines.filter(|line| line.contains("debug-assertions = false"));
    names.filter_map(|line| Some(line.split_once(" = ")?.0)).collect()
}

fn check_assertions(unasserted: &[&str], source: &Source) -> Vec<String> {
    let is_of = |name: &str| {
        let folder =
            if name.starts_with("umbel-") { format!("crates/{name}") } else { name.into() };
        source.path.starts_with(&format!("{folder}/src/"))
    };
    let Some(name) = unasserted.iter().find(|name| is_of(name)) else { return Vec::new() };
    let tokens = source.tokens();
    // What follows a dot is a method of another crate.
    let asserts = |pair: &&[(usize, &str)]| pair[0].1 != "." && ASSERTIONS.contains(&pair[1].1);
    let broken = tokens.windows(2).filter(asserts).map(|pair| {
        let remedy = format!("or take {name} out of [profile.sim.package] in Cargo.toml");
        format!(
            "{}:{}: simulations would not check it: use assert!, {remedy}",
            source.path, pair[1].0
        )
    });
    broken.collect()
}

#[test]
fn simulations_check_every_assertion() {
    let manifest = fs::read_to_string(workspace_root().join("Cargo.toml"));
    let manifest = manifest.expect("the manifest can be read");
    let unasserted = unasserted(&manifest);
    assert!(unasserted.contains(&"umbel-engine"), "the profile is read: {unasserted:?}");
    let check = |source| check_assertions(&unasserted, source);
    assert_none(&sources().iter().flat_map(check).collect::<Vec<_>>());
}

#[test]
fn assertions_that_simulations_leave_out_are_found() {
    let manifest = "[a]\n[profile.sim.package]\numbel-a = { debug-assertions = false }\n\
                    umbel-b = { opt-level = 1 }\nsimulations = { debug-assertions = false }\n\n[b]\n\
                    umbel-c = { debug-assertions = false }\n";
    let unasserted = unasserted(manifest);
    assert_eq!(unasserted, ["umbel-a", "simulations"]);
    let count =
        |path: &str, text: &str| check_assertions(&unasserted, &Source::new(path, text)).len();
    let text = "f();\ndebug_assert_eq!(a, b);\nif cfg!(debug_assertions) {}\n";
    assert_eq!(count("crates/umbel-a/src/b.rs", text), 2);
    assert_eq!(count("simulations/src/b.rs", text), 2);
    assert_eq!(count("crates/umbel-a/tests/b.rs", text), 0);
    assert_eq!(count("crates/umbel-ab/src/b.rs", text), 0);
    assert_eq!(count("crates/umbel-a/src/b.rs", "assert!(a); // debug_assert!\n"), 0);
    let method = "Cli::command().debug_assert();\n";
    assert_eq!(count("simulations/src/b.rs", method), 0, "a method of another crate");
}
