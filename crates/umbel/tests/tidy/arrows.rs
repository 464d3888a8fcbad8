//! The allowed dependencies of each crate.

use serde_json::Value;

/// The Umbel crates on which each crate may depend, from the bottom layer to the top.
const ARROWS: [(&str, &[&str]); 31] = [
    ("base2histogram", &[]),
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
    ("umbel-engine", &["umbel-codec", "umbel-filter", "umbel-step"]),
    (
        "umbel-replicated-engine",
        &[
            "umbel-bits",
            "umbel-codec",
            "umbel-engine",
            "umbel-filter",
            "umbel-reconcile-engine",
            "umbel-sketch",
            "umbel-step",
        ],
    ),
    (
        "umbel-reconcile",
        &[
            "umbel-bits",
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
    ("umbel-ports", &["umbel-tls"]),
    (
        "umbel-jobs",
        &[
            "umbel-dedup-engine",
            "umbel-engine",
            "umbel-filter",
            "umbel-ports",
            "umbel-proto",
            "umbel-step",
            "umbel-tls",
        ],
    ),
    ("umbel-storage", &["umbel-codec", "umbel-engine", "umbel-ports", "umbel-step"]),
    (
        "umbel-raft",
        &[
            "umbel-engine",
            "umbel-filter",
            "umbel-ports",
            "umbel-proto",
            "umbel-step",
            "umbel-storage",
        ],
    ),
    (
        "umbel-node",
        &[
            "umbel-codec",
            "umbel-dedup-engine",
            "umbel-engine",
            "umbel-filter",
            "umbel-jobs",
            "umbel-ports",
            "umbel-proto",
            "umbel-raft",
            "umbel-replicated-engine",
            "umbel-step",
            "umbel-storage",
            "umbel-tls",
        ],
    ),
    (
        "umbel-coordinator",
        &[
            "umbel-codec",
            "umbel-engine",
            "umbel-filter",
            "umbel-node",
            "umbel-ports",
            "umbel-proto",
            "umbel-replicated-engine",
            "umbel-step",
        ],
    ),
    (
        "umbel-gateway",
        &[
            "umbel-codec",
            "umbel-coordinator",
            "umbel-engine",
            "umbel-filter",
            "umbel-node",
            "umbel-ports",
            "umbel-proto",
            "umbel-rdb",
            "umbel-replicated-engine",
            "umbel-resp",
            "umbel-step",
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
            "umbel-jobs",
            "umbel-objects",
            "umbel-ports",
            "umbel-records",
            "umbel-step",
        ],
    ),
    // The binary may depend on all of them.
    ("umbel", &[]),
    // Beside the binary, with the same rights; no crate depends on them.
    ("simulations", &[]),
    ("umbel-service-benchmark", &[]),
];

/// Programs, which may depend on everything.
const PROGRAMS: [&str; 3] = ["umbel", "simulations", "umbel-service-benchmark"];

/// Crates on which only programs may depend: runtimes, clocks, random numbers, the terminal, untyped
/// errors. Every crate may have them as development dependencies.
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

/// Crates above the algorithms that may depend on some of these: for a runtime; for unique names; the
/// ports for entropy; and stores for marks and pauses that no two processes share.
const ALLOWED: [(&str, &str); 16] = [
    ("umbel-client", "tokio"),
    ("umbel-coordinator", "tokio"),
    ("umbel-dedup", "glob"),
    ("umbel-dedup", "tempfile"),
    ("umbel-dedup", "tokio"),
    ("umbel-files", "tempfile"),
    ("umbel-gateway", "tokio"),
    ("umbel-jobs", "tokio"),
    ("umbel-node", "tokio"),
    ("umbel-objects", "rand"),
    ("umbel-objects", "tempfile"),
    ("umbel-ports", "rand"),
    ("umbel-ports", "tokio"),
    ("umbel-raft", "tokio"),
    ("umbel-storage", "tokio"),
    ("umbel-tls", "tokio"),
];

/// Crates on which only these of ours may depend.
const USERS: [(&str, &[&str]); 4] = [
    ("bincode", &["umbel-ports"]),
    ("openraft", &["umbel-raft", "umbel-storage"]),
    ("quick-xml", &["umbel-objects"]),
    ("ureq", &["umbel-objects"]),
];

/// Checks the dependencies in the output of `cargo metadata`.
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
            // A crate that depends on itself does so for its tests, with a feature; cargo allows nothing
            // else.
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
            let users = USERS.iter().find(|(used, _)| *used == target);
            if let Some((_, users)) = users.filter(|(_, users)| !users.contains(&name)) {
                broken.push(format!("{name} -> {target}: only {users:?} may use {target}"));
            }
        }
    }
    broken
}
