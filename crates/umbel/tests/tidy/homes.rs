//! Code that only some files may contain, outside of tests: what ARCHITECTURE.md claims of one place.

use super::{Source, assert_none, assert_tidy, sources};

/// Code with a home.
struct Home {
    /// Sequences of tokens: words, and single other characters.
    codes: &'static [&'static [&'static str]],
    /// Where they are looked for: beginnings of paths.
    rooms: &'static [&'static str],
    /// The files that may contain them: beginnings of paths.
    files: &'static [&'static str],
    /// What to do otherwise.
    advice: &'static str,
}

const HOMES: [Home; 5] = [
    Home {
        codes: &[&["bincode"]],
        rooms: &[""],
        files: &["crates/umbel-ports/src/encoding.rs"],
        advice: "encode and decode with umbel-ports/src/encoding.rs, whose version byte tells what it is",
    },
    Home {
        codes: &[
            &["EntryPayload"],
            &["LogId"],
            &["SnapshotMeta"],
            &["StoredMembership"],
            &["Vote", ":", ":"],
        ],
        rooms: &[
            "crates/umbel-coordinator/src/",
            "crates/umbel-gateway/src/",
            "crates/umbel-node/src/",
        ],
        files: &[],
        advice: "leave openraft's types to umbel-storage and umbel-raft",
    },
    // Network, disk, entropy and wall clock are ports of a node; all other time is tokio's.
    Home {
        codes: &[
            &["SystemTime"],
            &["std", ":", ":", "fs"],
            &["std", ":", ":", "time", ":", ":", "Instant"],
            &["tokio", ":", ":", "fs"],
            &["tokio", ":", ":", "net"],
            &["rand", ":", ":"],
        ],
        rooms: &[
            "crates/umbel-coordinator/src/",
            "crates/umbel-gateway/src/",
            "crates/umbel-jobs/src/",
            "crates/umbel-node/src/",
            "crates/umbel-raft/src/",
            "crates/umbel-storage/src/",
        ],
        // The file with the token is read before there is a node.
        files: &["crates/umbel-node/src/enrolment.rs"],
        advice: "use the traits of umbel-ports, which simulations replace",
    },
    Home {
        codes: &[&["Status", ":", ":"]],
        rooms: &["crates/umbel-gateway/src/"],
        files: &["crates/umbel-gateway/src/errors.rs"],
        advice: "make the status in errors.rs, which says what clients receive for what",
    },
    // The filters' sizes, which all nodes must compute alike, and their rates.
    Home {
        codes: &[&["ln"], &["ln_1p"], &["exp"], &["exp_m1"]],
        rooms: &[
            "crates/umbel-client/src/",
            "crates/umbel-codec/src/",
            "crates/umbel-coordinator/src/",
            "crates/umbel-engine/src/",
            "crates/umbel-filter/src/",
            "crates/umbel-gateway/src/",
            "crates/umbel-node/src/",
            "crates/umbel-raft/src/",
            "crates/umbel-replicated-engine/src/",
            "crates/umbel-storage/src/",
        ],
        files: &[
            "crates/umbel-filter/src/sizing",
            // RedisBloom's own formula.
            "crates/umbel-filter/src/redis_bloom/links.rs",
            // The rate of one time slice of a window, and of all of them.
            "crates/umbel-engine/src/shard/slice_plan.rs",
            "crates/umbel-node/src/cube/load.rs",
        ],
        advice: "compute sizes and rates in umbel-filter/src/sizing",
    },
];

/// The lines of a file's code, without its tests, that contain what has this home.
fn lines_with(home: &Home, source: &Source) -> Vec<usize> {
    if source.is_test_file() {
        return Vec::new();
    }
    let tokens = source.tokens();
    let untested_line_count = source.untested_line_count();
    let begins = |at: usize, code: &[&str]| {
        let found = tokens[at..].iter().map(|(_, token)| *token);
        found.take(code.len()).eq(code.iter().copied())
    };
    let is_here = |at: &usize| home.codes.iter().any(|code| begins(*at, code));
    let lines = (0..tokens.len()).filter(is_here).map(|at| tokens[at].0);
    lines.filter(|number| *number <= untested_line_count).collect()
}

fn is_below(source: &Source, beginnings: &[&str]) -> bool {
    beginnings.iter().any(|beginning| source.path.starts_with(beginning))
}

fn check_homes(source: &Source) -> Vec<String> {
    let is_guest = |home: &&Home| is_below(source, home.rooms) && !is_below(source, home.files);
    let broken = |home: &Home| {
        let line = |number: usize| format!("{}:{number}: {}", source.path, home.advice);
        lines_with(home, source).into_iter().map(line).collect::<Vec<_>>()
    };
    HOMES.iter().filter(is_guest).flat_map(broken).collect()
}

#[test]
fn code_is_at_home() {
    assert_tidy(check_homes);
}

/// An exception that nobody needs any more would hide the next violation.
#[test]
fn homes_are_lived_in() {
    let sources = sources();
    let mut empty = Vec::new();
    for home in &HOMES {
        for file in home.files {
            let is_used = |source: &Source| {
                is_below(source, &[*file]) && !lines_with(home, source).is_empty()
            };
            if !sources.iter().any(is_used) {
                empty.push(format!("{file}: nothing of {:?} is left: remove it", home.codes));
            }
        }
    }
    assert_none(&empty);
}

#[test]
fn code_away_from_home_is_found() {
    let count = |path: &str, text: &str| check_homes(&Source::new(path, text)).len();
    let encodes = "use bincode::config;\nfn f() { bincode::g() }\n";
    assert_eq!(count("crates/umbel-raft/src/a.rs", encodes), 2);
    assert_eq!(count("crates/umbel-ports/src/encoding.rs", encodes), 0);
    assert_eq!(count("crates/umbel-raft/src/a.rs", "// bincode\nlet a = \"bincode\";\n"), 0);
    let tested = format!("#[cfg(test)]\nmod tests {{\n{encodes}}}\n");
    assert_eq!(count("crates/umbel-raft/src/a.rs", &tested), 0);
    assert_eq!(count("crates/umbel-raft/src/a_test.rs", encodes), 0);
    let refuses = "fn f() -> Status { Status::cancelled(StatusCode::OK) }\n";
    assert_eq!(count("crates/umbel-gateway/src/gate.rs", refuses), 1);
    assert_eq!(count("crates/umbel-node/src/a.rs", refuses), 0);
    let names = "fn f(entry: EntryPayload) { read(rand::random()) }\n";
    assert_eq!(count("crates/umbel-node/src/a.rs", names), 2);
    assert_eq!(count("crates/umbel-client/src/a.rs", names), 0);
    let computes = "let a = (-b).ln_1p() + b\n    .exp();\nlet exponent = a.exp2();\n";
    assert_eq!(count("crates/umbel-filter/src/plan.rs", computes), 2);
    assert_eq!(count("crates/umbel-filter/src/sizing/blocked.rs", computes), 0);
    assert_eq!(count("crates/umbel-bits/src/rice.rs", computes), 0);
}
