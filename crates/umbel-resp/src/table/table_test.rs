//! The table is consistent, and agrees with the replies to `COMMAND`.

use std::collections::BTreeSet;

use super::*;
use crate::command::CommandQuery;
use crate::reply::{Protocol, Reply};
use crate::request::Request;

fn every() -> impl Iterator<Item = &'static CommandSpec> {
    all().iter().flat_map(|spec| [spec].into_iter().chain(spec.subcommands))
}

#[test]
fn names_are_lower_case_and_there_once() {
    let names: BTreeSet<&str> = every().map(|spec| spec.name).collect();
    assert_eq!(names.len(), every().count());
    assert!(names.iter().all(|name| *name == name.to_ascii_lowercase()));
    for command in all() {
        for spec in command.subcommands {
            let (before, _) = spec.name.split_once('|').expect("a bar");
            assert_eq!(before, command.name);
            assert_eq!(by_name(spec.name.as_bytes()).map(|found| found.name), Some(spec.name));
        }
    }
}

#[test]
fn flags_fit_what_a_command_does() {
    for spec in every() {
        let has = |category| spec.categories.contains(&category);
        assert_eq!(spec.is_write(), has("@write"), "{}", spec.name);
        assert_eq!(spec.flags.contains(&"readonly"), has("@read"), "{}", spec.name);
        assert!(spec.docs.summary.len() > 5, "{}", spec.name);
        // Clients check the arity themselves; a command with keys must require arguments.
        let least = spec.arity.unsigned_abs() as usize;
        assert!(spec.keys.is_none_or(|keys| keys.first < least), "{}", spec.name);
    }
}

#[test]
fn keys_are_found() {
    let request: Request = ["DEL", "a", "b", "c"].iter().collect();
    let arguments = Arguments::new(&request);
    let spec = find(arguments).unwrap();
    assert_eq!(spec.keys_of(arguments).collect::<Vec<_>>(), [b"a", b"b", b"c"]);
    let request: Request = ["BF.MADD", "a", "b", "c"].iter().collect();
    let arguments = Arguments::new(&request);
    assert_eq!(find(arguments).unwrap().keys_of(arguments).collect::<Vec<_>>(), [b"a"]);
    let request: Request = ["PING"].iter().collect();
    let arguments = Arguments::new(&request);
    assert_eq!(find(arguments).unwrap().keys_of(arguments).count(), 0);
}

fn answered(words: &[&str]) -> Reply {
    let request: Request = words.iter().collect();
    let arguments = Arguments::new(&request);
    match find(arguments).unwrap().parse(arguments) {
        Ok(Command::Commands(query)) => query.answer(),
        other => panic!("{other:?}"),
    }
}

fn text(reply: &Reply, protocol: Protocol) -> String {
    let mut bytes = Vec::new();
    reply.encode(protocol, &mut bytes);
    String::from_utf8(bytes).unwrap().replace("\r\n", "|")
}

#[test]
fn command_info_has_ten_elements() {
    let reply = answered(&["COMMAND", "INFO", "bf.add", "nothing"]);
    let expected = "*2|*10|$6|bf.add|:3|*3|+write|+denyoom|+module|:1|:1|:1|*2|+@write|+@bloom|*0|\
                    *1|*6|$5|flags|*2|+RW|+update|$12|begin_search|*4|$4|type|$5|index|$4|spec|*2|$5|index|:1|\
                    $9|find_keys|*4|$4|type|$5|range|$4|spec|*6|$7|lastkey|:0|$7|keystep|:1|$5|limit|:0|*0|$-1|";
    assert_eq!(text(&reply, Protocol::Two), expected);
    let removes = text(&answered(&["COMMAND", "INFO", "cf.del"]), Protocol::Two);
    assert!(removes.starts_with("*1|*10|$6|cf.del|:3|*3|+write|+module|+fast|:1|"), "{removes}");
    let reply = answered(&["COMMAND", "INFO", "ping", "client", "nothing"]);
    let expected = "*3|*10|$4|ping|:-1|~1|+fast|:0|:0|:0|~2|+@fast|+@connection|~0|~0|~0|\
                    *10|$6|client|:-2|~0|:0|:0|:0|~1|+@slow|~0|~0|*";
    let reply = text(&reply, Protocol::Three);
    assert!(reply.starts_with(expected) && reply.ends_with("|_|"), "{reply}");
    let Reply::Array(rows) = answered(&["COMMAND"]) else { panic!("a list") };
    assert_eq!(rows.len(), all().len());
    assert!(rows.iter().all(|row| matches!(row, Reply::Array(row) if row.len() == 10)));
}

/// The error for an unknown subcommand says that one should try `HELP`.
#[test]
fn commands_with_subcommands_explain_them() {
    for spec in all().iter().filter(|spec| !spec.subcommands.is_empty()) {
        let Reply::Array(lines) = answered(&[spec.name, "help"]) else { panic!("{}", spec.name) };
        assert_eq!(lines.len(), 1 + 2 * spec.subcommands.len(), "{}", spec.name);
        let last = Reply::Status("    Print this help.".into());
        assert_eq!(lines.last(), Some(&last), "{}", spec.name);
    }
}

#[test]
fn commands_are_listed_counted_and_explained() {
    let Reply::Array(listed) = answered(&["command", "list"]) else { panic!("a list") };
    assert_eq!(listed.len(), every().count());
    let filtered =
        |by, value| text(&answered(&["COMMAND", "LIST", "FILTERBY", by, value]), Protocol::Two);
    assert_eq!(filtered("PATTERN", "BF.M*"), "*2|$7|bf.madd|$10|bf.mexists|");
    assert_eq!(
        filtered("ACLCAT", "transaction"),
        "*5|$5|multi|$4|exec|$7|discard|$5|watch|$7|unwatch|"
    );
    let categories = text(&answered(&["ACL", "CAT"]), Protocol::Two);
    assert!(categories.contains("|$5|bloom|") && categories.contains("|$3|set|"), "{categories}");
    assert_eq!(
        answered(&["ACL", "CAT", "SET"]),
        answered(&["COMMAND", "LIST", "FILTERBY", "ACLCAT", "set"])
    );
    assert_eq!(filtered("MODULE", "x"), "*0|");
    assert_eq!(CommandQuery::Count.answer(), answered(&["COMMAND", "COUNT"]));
    assert_eq!(filtered("ACLCAT", "set"), "*4|$4|sadd|$9|sismember|$10|smismember|$5|scard|");
    let docs = text(&answered(&["COMMAND", "DOCS", "bf.card", "what"]), Protocol::Three);
    let expected = "%1|$7|bf.card|%5|$7|summary|$41|Returns the cardinality of a Bloom filter|";
    assert!(docs.starts_with(expected), "{docs}");
    let keys = answered(&["COMMAND", "GETKEYS", "EXISTS", "a", "b"]);
    assert_eq!(text(&keys, Protocol::Two), "*2|$1|a|$1|b|");
}
