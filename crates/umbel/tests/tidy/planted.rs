//! Tests of the checks of tidy.rs with planted violations.

use super::*;
use serde_json::Value;

/// The number of violations that a check finds in a text.
fn count(check: fn(&Source) -> Vec<String>, path: &str, text: &str) -> usize {
    check(&Source::new(path, text)).len()
}

#[test]
fn the_walk_finds_this_file() {
    assert!(sources().iter().any(|source| source.path == "crates/umbel/tests/tidy.rs"));
}

#[test]
fn comments_and_literals_are_not_code() {
    let text = "let a = \"x\\\"y\"; // one\n/* two /* three */ */ let b = r#\"\"z\"#;\n\
                let c: &'static str = f('\\'', '\u{e9}', b'\"', '\"'); fn r<'a>(_: &'a str) {}";
    let source = Source::new("a.rs", text);
    let code: String = source.code.split_whitespace().collect::<Vec<_>>().join(" ");
    assert_eq!(
        code,
        "let a = ; let b = ; let c: &'static str = f( , , b , ); fn r<'a>(_: &'a str) {}"
    );
    let comments: Vec<&str> = source.comments.split_whitespace().collect();
    assert_eq!(comments, ["//", "one", "/*", "two", "/*", "three", "*/", "*/"]);
}

#[test]
fn a_missing_purpose_is_found() {
    assert_eq!(count(check_module_doc, "a.rs", "// plain\n"), 1);
    assert_eq!(count(check_module_doc, "a.rs", "//! Purpose.\n"), 0);
}

#[test]
fn long_files_are_found() {
    let code = "f();\n".repeat(CODE_LINES_MAX);
    assert_eq!(count(check_lengths, "a.rs", &code), 0);
    assert_eq!(count(check_lengths, "a.rs", &format!("{code}\"\n\";\n")), 1);
    assert_eq!(count(check_lengths, "a.rs", &format!("{code}\n// why\n/* b\n*/\n")), 0);
    let tests = "#[cfg(test)]\n// why\n#[expect(lint)]\nmod tests {\n    f();\n}\n";
    assert_eq!(count(check_lengths, "a.rs", &format!("{code}{tests}")), 0);
    assert_eq!(count(check_lengths, "a.rs", &format!("f();\n{tests}f();\n")), 1);
    assert_eq!(count(check_lengths, "a.rs", &"\n".repeat(FILE_LINES_MAX + 1)), 1);
}

#[test]
fn leftovers_are_found() {
    assert_eq!(count(check_leftovers, "a.rs", "fn f() { todo!() }\ndbg!(1);"), 2);
    assert_eq!(count(check_leftovers, "a.rs", "f(); // TODO: all\n/* FIXME */"), 2);
    assert_eq!(count(check_leftovers, "a.rs", "// todo!()\nlet dbg = \"TODO\";"), 0);
}

#[test]
fn unsafe_code_is_found() {
    assert_eq!(count(check_unsafe, "a.rs", "unsafe { f() }"), 1);
    assert_eq!(count(check_unsafe, "a.rs", "#![forbid(unsafe_code)] // unsafe"), 0);
    for (path, broken) in [("wide.rs", 0), ("wide/x86.rs", 0), ("wider.rs", 1), ("a/wide.rs", 1)] {
        let path = format!("crates/umbel-filter/src/bits/{path}");
        assert_eq!(count(check_unsafe, &path, "unsafe { f() }"), broken, "{path}");
    }
}

#[test]
fn empty_names_are_found() {
    assert_eq!(count(check_name, "crates/a/src/test_utils.rs", ""), 1);
    assert_eq!(count(check_name, "crates/a/src/common/b.rs", ""), 1);
    assert_eq!(count(check_name, "crates/a/src/commonly.rs", ""), 0);
}

#[test]
fn impure_code_is_found() {
    let path = "crates/umbel-engine/src/a.rs";
    for text in [
        "use std::fs::File;",
        "use std::{\n    io,\n    net::TcpStream,\n};",
        "std :: thread::scope(f);",
        "let t: Instant = g();",
        "let x = rand::random();",
    ] {
        assert_eq!(count(check_purity, path, text), 1, "{text}");
        assert_eq!(count(check_purity, "crates/umbel/src/a.rs", text), 0, "{text}");
        let tested = format!("#[cfg(test)]\nmod tests {{\n    {text}\n}}\n");
        assert_eq!(count(check_purity, path, &tested), 0, "{text}");
        assert_eq!(count(check_purity, "crates/umbel-engine/tests/a.rs", text), 0, "{text}");
    }
    let pure = "operand::f(); use std::{io::{self, net}, fmt}; // std::fs\nlet s = \"rand::\";";
    assert_eq!(count(check_purity, path, pure), 0);
}

#[test]
fn arrows_against_the_layers_are_found() {
    let found = |name: &str, target: &str, kind: Value| {
        let dependencies = serde_json::json!([{ "name": target, "kind": kind }]);
        let package = serde_json::json!({ "name": name, "dependencies": dependencies });
        check_arrows(&serde_json::json!({ "packages": [package] })).len()
    };
    assert_eq!(found("umbel-engine", "umbel-codec", Value::Null), 0);
    assert_eq!(found("umbel-codec", "umbel-engine", Value::Null), 1);
    assert_eq!(found("umbel-filter", "umbel", "dev".into()), 1);
    assert_eq!(found("umbel-codec", "tokio", "build".into()), 1);
    assert_eq!(found("umbel-codec", "tempfile", "dev".into()), 0);
    assert_eq!(found("umbel", "tempfile", Value::Null), 0);
    assert_eq!(found("umbel-new", "serde", Value::Null), 1);
    assert_eq!(found("umbel-storage", "openraft", Value::Null), 0);
    assert_eq!(found("umbel-node", "openraft", Value::Null), 1);
    assert_eq!(found("umbel-jobs", "openraft", Value::Null), 1);
}
