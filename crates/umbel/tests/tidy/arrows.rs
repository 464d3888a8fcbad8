//! Which crate may depend on which.

use serde_json::Value;

/// Which Umbel crates a crate may depend on, from the bottom layer to the top.
const ARROWS: [(&str, &[&str]); 23] = [
    ("umbel-bits", &[]),
    ("umbel-sketch", &[]),
    ("umbel-filter", &["umbel-bits"]),
    ("umbel-codec", &["umbel-bits", "umbel-filter"]),
    ("umbel-static", &["umbel-codec", "umbel-filter"]),
    ("umbel-rdb", &[]),
    ("umbel-resp", &[]),
    ("umbel-records", &[]),
    ("umbel-files", &[]),
    ("umbel-objects", &["umbel-files", "umbel-filter", "umbel-records"]),
    ("umbel-step", &[]),
    ("umbel-dedup-engine", &["umbel-bits", "umbel-codec", "umbel-filter", "umbel-step"]),
    (
        "umbel-reconcile-engine",
        &["umbel-bits", "umbel-codec", "umbel-filter", "umbel-sketch", "umbel-step"],
    ),
    (
        "umbel-engine",
        &[
            "umbel-bits",
            "umbel-codec",
            "umbel-filter",
            "umbel-reconcile-engine",
            "umbel-sketch",
            "umbel-step",
        ],
    ),
    (
        "umbel-reconcile",
        &[
            "umbel-files",
            "umbel-filter",
            "umbel-reconcile-engine",
            "umbel-records",
            "umbel-step",
            "umbel-tls",
        ],
    ),
    ("umbel-proto", &[]),
    ("umbel-tls", &[]),
    ("umbel-client", &["umbel-filter", "umbel-proto", "umbel-tls"]),
    (
        "umbel-node",
        &[
            "umbel-codec",
            "umbel-dedup-engine",
            "umbel-engine",
            "umbel-filter",
            "umbel-proto",
            "umbel-rdb",
            "umbel-resp",
            "umbel-step",
            "umbel-tls",
        ],
    ),
    (
        "umbel-dedup",
        &[
            "umbel-client",
            "umbel-dedup-engine",
            "umbel-engine",
            "umbel-files",
            "umbel-filter",
            "umbel-objects",
            "umbel-records",
            "umbel-step",
        ],
    ),
    // The binary may use all of them.
    ("umbel", &[]),
    // Beside the binary, with the same rights; nobody depends on them.
    ("simulations", &[]),
    ("umbel-service-benchmark", &[]),
];

/// Programs, which may use everything.
const PROGRAMS: [&str; 3] = ["umbel", "simulations", "umbel-service-benchmark"];

/// Crates that only programs may use: runtimes, clocks, dice, the terminal, untyped errors.
/// As development dependencies they are free.
const BINARY_ONLY: [&str; 14] = [
    "anyhow",
    "async-std",
    "chrono",
    "clap",
    "ctrlc",
    "fastrand",
    "getrandom",
    "glob",
    "indicatif",
    "mio",
    "rand",
    "rayon",
    "tempfile",
    "tokio",
];

/// What lies above the algorithms and may use some of these: a runtime; names that nobody else has;
/// the node entropy, which enters it through a port; and stores marks and pauses that no two processes share.
const ALLOWED: [(&str, &str); 10] = [
    ("umbel-client", "tokio"),
    ("umbel-dedup", "glob"),
    ("umbel-dedup", "tempfile"),
    ("umbel-dedup", "tokio"),
    ("umbel-files", "tempfile"),
    ("umbel-node", "rand"),
    ("umbel-node", "tokio"),
    ("umbel-objects", "rand"),
    ("umbel-objects", "tempfile"),
    ("umbel-tls", "tokio"),
];

/// The one crate that may know openraft and bincode.
const NODE_ONLY: [&str; 2] = ["bincode", "openraft"];

/// Layer arrows, given what `cargo metadata` prints.
pub(super) fn check_arrows(metadata: &Value) -> Vec<String> {
    let mut broken = Vec::new();
    for package in metadata["packages"].as_array().expect("cargo lists packages") {
        let name = package["name"].as_str().expect("a package has a name");
        let Some((_, allowed)) = ARROWS.iter().find(|(known, _)| *known == name) else {
            broken.push(format!("{name}: unknown crate: add it to ARROWS in tests/tidy/arrows.rs"));
            continue;
        };
        for dependency in package["dependencies"].as_array().expect("cargo lists dependencies") {
            let target = dependency["name"].as_str().expect("a dependency has a name");
            // A crate that names itself does so for its tests, with a feature: cargo allows nothing else.
            let is_own = (target == "umbel" || target.starts_with("umbel-")) && target != name;
            let is_top = PROGRAMS.contains(&name);
            if is_own && !is_top && !allowed.contains(&target) {
                broken.push(format!(
                    "{name} -> {target}: against the layers, {name} may use {allowed:?}"
                ));
            }
            let is_for_tests = dependency["kind"] == "dev";
            let is_allowed = is_top || ALLOWED.contains(&(name, target));
            if BINARY_ONLY.contains(&target) && !is_allowed && !is_for_tests {
                broken.push(format!("{name} -> {target}: only programs may use {target}"));
            }
            if NODE_ONLY.contains(&target) && name != "umbel-node" {
                broken.push(format!("{name} -> {target}: only umbel-node may use {target}"));
            }
        }
    }
    broken
}
