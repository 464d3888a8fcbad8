//! Checks of `deploy/`: its settings exist, its configuration template is the one that the binary prints, and, where there is
//! Docker, three nodes run in containers as the Compose file says.

#![allow(clippy::unwrap_used, reason = "a failed test is what should come of it")]

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

mod containers;

/// Variables that are not settings of the server.
const OTHER_VARIABLES: [&str; 3] = ["UMBEL_CLUSTER", "UMBEL_CONFIG", "UMBEL_JOB_TOKEN"];

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../deploy")
}

fn printed() -> String {
    let output = Command::new(env!("CARGO_BIN_EXE_umbel"))
        .args(["serve", "--print-config"])
        .env_clear()
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

fn files(folder: &Path, found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            files(&path, found);
        } else {
            found.push(path);
        }
    }
}

#[test]
fn the_pattern_of_a_file_is_what_the_binary_prints() {
    let pattern = fs::read_to_string(folder().join("umbel.toml")).unwrap();
    let hint = "run: cargo run -- serve --print-config > deploy/umbel.toml";
    assert_eq!(pattern, printed(), "{hint}");
}

#[test]
fn every_variable_is_a_setting() {
    let printed = printed();
    let names = printed.lines().filter_map(|line| line.split_once(" = "));
    let names = names.map(|(name, _)| name.trim_start_matches('#').to_ascii_uppercase());
    let known: BTreeSet<String> = names.map(|name| format!("UMBEL_{name}")).collect();
    assert!(known.contains("UMBEL_LISTEN"), "{known:?}");
    let mut paths = Vec::new();
    files(&folder(), &mut paths);
    let mut variable_count = 0;
    for path in paths.iter().filter(|path| !path.ends_with("umbel.toml")) {
        let text = fs::read_to_string(path).unwrap();
        let words = text.split(|c: char| c != '_' && !c.is_ascii_alphanumeric());
        for word in words.filter(|word| word.len() > "UMBEL_".len() && word.starts_with("UMBEL_")) {
            let is_known = known.contains(word) || OTHER_VARIABLES.contains(&word);
            assert!(is_known, "{}: {word} is no setting", path.display());
            variable_count += 1;
        }
    }
    assert!(variable_count >= 10, "{variable_count} variables in {}", folder().display());
}

/// The unit's user is not the one that makes the files.
#[test]
fn files_of_the_unit_are_made_for_its_group() {
    let unit = fs::read_to_string(folder().join("systemd/umbel.service")).unwrap();
    let security = fs::read_to_string(folder().join("../docs/security.md")).unwrap();
    let [group] = values(&unit, "Group=")[..] else { panic!("the unit names one group") };
    let made = unit.lines().map(|line| line.trim_start_matches('#')).chain(security.lines());
    let made = made.filter(|line| line.contains("/etc/umbel/") && !line.contains("umbel serve"));
    let made: Vec<&str> = made.filter(|line| line.contains("install -m")).collect();
    assert!(made.iter().any(|line| line.contains("/etc/umbel/wrapping.key")), "{made:?}");
    assert!(made.iter().all(|line| line.contains(&format!("-m 0640 -g {group} "))), "{made:?}");
}

/// The rest of each line that begins with a word.
fn values<'a>(text: &'a str, word: &str) -> Vec<&'a str> {
    text.lines().filter_map(|line| Some(line.trim().strip_prefix(word)?.trim())).collect()
}

#[test]
fn every_rule_has_its_section_and_its_tests() {
    let rules = fs::read_to_string(folder().join("monitoring/alerts.yaml")).unwrap();
    let tests = fs::read_to_string(folder().join("monitoring/alerts_test.yaml")).unwrap();
    let runbook = fs::read_to_string(folder().join("../docs/runbook.md")).unwrap();
    let alerts = values(&rules, "- alert:");
    assert!(alerts.len() >= 10, "{alerts:?}");
    let sections = values(&runbook, "## ");
    assert_eq!(sections, alerts, "sections of docs/runbook.md in the order of the rules");
    let named: Vec<String> = alerts
        .iter()
        .map(|alert| format!("docs/runbook.md#{}", alert.to_ascii_lowercase()))
        .collect();
    assert_eq!(values(&rules, "runbook:"), named);
    assert_eq!(values(&rules, "summary:").len(), alerts.len());
    let severities = values(&rules, "severity:");
    assert_eq!(severities.len(), alerts.len());
    assert!(severities.iter().all(|severity| ["page", "ticket"].contains(severity)));
    for section in runbook.split("\n## ").skip(1) {
        let (name, _) = section.split_once('\n').unwrap();
        for part in ["**See**:", "**Do**:"] {
            assert!(section.contains(part), "{name} has no {part}");
        }
        let severity = if section.contains("\n*Page.*") { "page" } else { "ticket" };
        let at = alerts.iter().position(|alert| *alert == name).unwrap();
        assert_eq!(severities[at], severity, "{name}");
        let fires = |word: &str| tests.matches(&format!("{word}alertname: {name}")).count();
        assert!(fires("\n        ") > 0 && fires(", ") > 0, "{name} is to fire and to be silent");
    }
}

#[test]
fn every_panel_says_what_it_shows() {
    let text = fs::read_to_string(folder().join("monitoring/grafana-dashboard.json")).unwrap();
    let dashboard: serde_json::Value = serde_json::from_str(&text).unwrap();
    let panels = dashboard["panels"].as_array().unwrap();
    let numbers: BTreeSet<u64> = panels.iter().map(|panel| panel["id"].as_u64().unwrap()).collect();
    assert_eq!(numbers.len(), panels.len());
    for panel in panels.iter().filter(|panel| panel["type"] != "row") {
        let (title, said) = (&panel["title"], panel["description"].as_str());
        assert!(said.is_some_and(|said| !said.is_empty()), "{title}");
        let place = &panel["gridPos"];
        let end = place["x"].as_u64().unwrap() + place["w"].as_u64().unwrap();
        assert!(end <= 24, "{title} is wider than the page");
    }
}

/// A text of the workspace's manifest between two marks.
fn between<'a>(text: &'a str, before: &str, after: &str) -> &'a str {
    text.split_once(before).unwrap().1.split_once(after).unwrap().0
}

#[test]
fn an_image_is_built_from_the_sources_alone_by_a_compiler_that_is_new_enough() {
    let manifest = fs::read_to_string(folder().join("../Cargo.toml")).unwrap();
    let ignored = fs::read_to_string(folder().join("Dockerfile.dockerignore")).unwrap();
    let patterns: Vec<&str> = ignored.lines().filter(|line| !line.starts_with('#')).collect();
    let (first, allowed) = patterns.split_first().unwrap();
    assert_eq!(*first, "*");
    let members = between(&manifest, "members = [", "]").split('"').skip(1).step_by(2);
    for member in members.chain(["Cargo.toml", "Cargo.lock", "proto", ".cargo"]) {
        let is_allowed = |pattern: &&str| {
            pattern.strip_prefix('!').is_some_and(|path| Path::new(member).starts_with(path))
        };
        assert!(allowed.iter().any(is_allowed), "{member} is not in the image's build");
    }
    let minor = |text: &str| text.split('.').nth(1).unwrap().parse::<u32>().unwrap();
    let least = minor(between(&manifest, "rust-version = \"", "\""));
    let dockerfile = fs::read_to_string(folder().join("Dockerfile")).unwrap();
    assert!(minor(between(&dockerfile, "FROM rust:", "-alpine")) >= least);
}

#[test]
fn kubernetes_runs_the_image_of_this_release() {
    let version = env!("CARGO_PKG_VERSION");
    for (file, line) in [
        ("Dockerfile", format!(" -t umbel:{version} .")),
        ("kubernetes/nodes/kustomization.yaml", format!("    newTag: {version}\n")),
        ("kubernetes/nodes/statefulset.yaml", format!(" image: umbel:{version}\n")),
        ("dedup/kubernetes.yaml", format!(" image: umbel:{version}\n")),
    ] {
        let text = fs::read_to_string(folder().join(file)).unwrap();
        assert!(text.contains(&line), "{file} does not name {version}");
    }
}
