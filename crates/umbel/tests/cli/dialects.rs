//! `--delimiter` and `--no-header`: tables of other dialects, compared with rows from a naive model.

use crate::model::Draws;
use crate::sandbox::Sandbox;
use std::collections::BTreeSet;
use std::fmt::Write as _;

/// Rows of three fields: the middle one repeats, and fields contain unusual characters.
fn rows(seed: u64) -> Vec<[String; 3]> {
    let oddities = ["", "a", ",", ";", "|", "\t", "two\nlines", "\"", "1;2", "é"];
    let mut draws = Draws(seed);
    let mut oddity =
        |number: u64| format!("{}{number}", oddities[usize::try_from(draws.below(10)).unwrap()]);
    (0..200).map(|row| [oddity(row), oddity(row % 7), oddity(row % 3)]).collect()
}

/// The rows as a table; fields are quoted where necessary.
fn table<'a>(rows: impl Iterator<Item = &'a [String; 3]>, delimiter: char) -> String {
    let mut table = String::new();
    for row in rows {
        let field = |text: &String| {
            if text.contains(['"', '\n', delimiter]) {
                format!("\"{}\"", text.replace('"', "\"\""))
            } else {
                text.clone()
            }
        };
        let fields: Vec<String> = row.iter().map(field).collect();
        writeln!(table, "{}", fields.join(&delimiter.to_string())).unwrap();
    }
    table
}

/// The first row of each middle field.
fn firsts(rows: &[[String; 3]]) -> Vec<[String; 3]> {
    let mut seen = BTreeSet::new();
    rows.iter().filter(|row| seen.insert(row[1].clone())).cloned().collect()
}

#[test]
fn any_delimiter_with_and_without_a_header() {
    let all = rows(3);
    for (delimiter, option) in
        [(';', ";"), ('|', "|"), ('\t', "\\t"), (',', ","), (':', ":"), ('a', "a")]
    {
        let header = ["id".to_owned(), "m".to_owned(), "c".to_owned()];
        let with_header =
            |rows: &[[String; 3]]| table(std::iter::once(&header).chain(rows), delimiter);
        let (headed, headless) = (with_header(&all), table(all.iter(), delimiter));
        let (first, bare) = (with_header(&firsts(&all)), table(firsts(&all).iter(), delimiter));
        let sandbox = Sandbox::with(&[("h.csv", &headed), ("n.csv", &headless), ("t", &headless)]);
        let run = |args: &str| sandbox.run(&format!("{args} --delimiter {option}")).kept_text();
        assert_eq!(run("h.csv --key m"), first, "{option}");
        assert_eq!(run("n.csv --no-header --key 2"), bare, "{option}");
        assert_eq!(run("t --no-header --key 2 --workers 3"), bare, "{option}");
        assert_eq!(run("n.csv t --format csv --no-header --key 2"), bare, "{option}");
        let piped = format!("--no-header --key 2 --delimiter {option}");
        assert_eq!(sandbox.run_piped(&piped, headless.as_bytes()).kept_text(), bare, "{option}");
    }
}

#[test]
fn the_first_record_is_one_like_any_other_and_a_mark_is_none() {
    let sandbox = Sandbox::with(&[
        ("a.csv", "\u{feff}\"1\",x\n1,y\n2,x\n"),
        ("b.tsv", "1\tz\n3\tz\n"),
        ("c.csv", "\u{feff}1,w\n4,w\n"),
        ("empty.csv", ""),
    ]);
    let run = |args: &str| sandbox.run(args).kept_text();
    assert_eq!(run("a.csv --no-header --key 1"), "\u{feff}\"1\",x\n2,x\n");
    assert_eq!(run("a.csv --no-header --key 1 --keep last"), "1,y\n2,x\n");
    assert_eq!(run("a.csv --no-header --granularity record"), "\u{feff}\"1\",x\n1,y\n2,x\n");
    assert_eq!(run("a.csv c.csv empty.csv --no-header --key 1"), "\u{feff}\"1\",x\n2,x\n4,w\n");
    assert_eq!(run("empty.csv --no-header --key 1"), "");
    // Behind a blank line, where nothing closes the quote.
    sandbox.write("quote.csv", "\n\u{feff}\"a,b\n1,2\n1,3\n");
    assert_eq!(run("quote.csv --no-header --key 1"), "\u{feff}\"a,b\n1,2\n");
    assert_eq!(run("b.tsv --no-header --key 2"), "1\tz\n");
    assert_eq!(run("b.tsv --no-header --key 2 --keep best:1"), "3\tz\n");
    run("a.csv b.tsv --no-header --key 1 --output out/");
    assert_eq!(sandbox.text("out/b.tsv"), "3\tz\n");
    assert_eq!(
        run("a.csv --no-header --key 2 --granularity paragraph"),
        "\u{feff}\"1\",x\n1,y\n2,\"\"\n"
    );
}

#[test]
fn json_lines_are_told_by_name_as_ever() {
    let sandbox = Sandbox::with(&[("a.jsonl", "{\"1\":\"x\"}\n"), ("b.txt", "x;1\ny;2\n")]);
    sandbox.run("a.jsonl b.txt --delimiter ; --no-header --key 1 --output out/").kept();
    assert_eq!(
        (sandbox.text("out/a.jsonl"), sandbox.text("out/b.txt")),
        ("{\"1\":\"x\"}\n".into(), "y;2\n".into())
    );
    let said = ["b.txt is a table and a.jsonl is none", "--output DIR/"];
    sandbox.run("a.jsonl b.txt --no-header --key 1").refused(2, &said);
}

#[test]
fn what_makes_no_sense_is_refused_and_named() {
    let sandbox = Sandbox::with(&[("a.csv", "1;2\n1;3\n"), ("b.csv", "1;2;3\n")]);
    for (args, said) in [
        ("--delimiter é", ["--delimiter", "one character"]),
        ("--delimiter ;;", ["--delimiter", "one character"]),
        ("--delimiter \"", ["--delimiter", "quote"]),
        ("--delimiter ; --format jsonl", ["--delimiter", "--format jsonl"]),
        ("--delimiter ; --format tsv", ["--delimiter", "--format tsv"]),
        ("--no-header --format text", ["--no-header", "--format text"]),
        ("--no-header -z", ["--no-header", "-z"]),
        ("--no-header --delimiter ; --key id", ["no column `id`", "from 1 to 2"]),
        ("--no-header --delimiter ; --key 0", ["no column `0`", "from 1 to 2"]),
        ("--no-header --delimiter ; --key 3", ["no column `3`", "from 1 to 2"]),
        ("--no-header --delimiter ; --keep best:9", ["no column `9`", "best:9"]),
        ("b.csv --no-header --delimiter ; --key 1", ["a.csv and b.csv", "2 and 3 columns"]),
    ] {
        sandbox.run(&format!("a.csv {args}")).refused(2, &said);
    }
    let mut empty = sandbox.command("a.csv --key 1");
    sandbox.ended(empty.args(["--delimiter", ""]).output().unwrap()).refused(2, &["--delimiter"]);
    sandbox.run("b.csv --no-header --key 1 --delimiter ;").kept();
    sandbox.write("b.csv", "1;2;3\n1;2\n");
    sandbox
        .run("b.csv --no-header --key 1 --delimiter ;")
        .refused(1, &["b.csv: record 2", "as in the first row"]);
}
