//! JSON Lines: which part of a record is compared; the bytes of kept records do not change.

use crate::packed::gzip;
use crate::sandbox::Sandbox;

/// The kept records of these lines in `a.jsonl`, with one and with several workers.
#[track_caller]
fn kept(lines: &str, options: &str) -> String {
    let sandbox = Sandbox::with(&[("a.jsonl", lines)]);
    let one = sandbox.run(&format!("a.jsonl {options} --workers 1")).kept_text();
    let many = sandbox.run(&format!("a.jsonl {options} --workers 3 --exactness bytes")).kept_text();
    assert_eq!(one, many);
    one
}

#[test]
fn a_nested_field_is_compared_and_nothing_else() {
    let lines = "{\"user\":{\"id\":1},\"n\":1}\n\
                 {\"user\":{\"id\":2},\"n\":1}\n\
                 { \"n\" : 9, \"user\" : {\"x\":0, \"id\" : 1} }\n";
    let expected = "{\"user\":{\"id\":1},\"n\":1}\n{\"user\":{\"id\":2},\"n\":1}\n";
    assert_eq!(kept(lines, "--key user.id"), expected);
}

#[test]
fn an_element_of_an_array_is_a_field() {
    let lines = "{\"t\":[\"a\",1]}\n{\"t\":[\"a\",2]}\n{\"t\":[\"b\",1]}\n";
    assert_eq!(kept(lines, "--key t.0"), "{\"t\":[\"a\",1]}\n{\"t\":[\"b\",1]}\n");
}

#[test]
fn two_keys_are_compared_together() {
    let lines = "{\"a\":1,\"b\":1}\n{\"a\":1,\"b\":2}\n{\"b\":1,\"a\":1,\"c\":0}\n";
    assert_eq!(kept(lines, "--key a --key b"), "{\"a\":1,\"b\":1}\n{\"a\":1,\"b\":2}\n");
    let shifted = "{\"a\":\"x\",\"b\":\"yz\"}\n{\"a\":\"xy\",\"b\":\"z\"}\n";
    assert_eq!(kept(shifted, "--key a --key b"), shifted);
}

#[test]
fn numbers_are_compared_by_value_and_strings_are_none() {
    let lines = "{\"k\":1}\n{\"k\":1.0}\n{\"k\":\"1\"}\n{\"k\":1e0}\n{\"k\":10e-1}\n{\"k\":true}\n";
    let expected = "{\"k\":1}\n{\"k\":\"1\"}\n{\"k\":true}\n";
    assert_eq!(kept(lines, "--key k"), expected);
    assert_eq!(kept(lines, "--granularity record"), expected);
}

#[test]
fn large_integers_are_not_rounded() {
    let lines = "{\"k\":9007199254740992}\n{\"k\":9007199254740993}\n";
    assert_eq!(kept(lines, "--key k"), lines);
}

#[test]
fn escapes_and_letters_are_equal() {
    assert_eq!(kept("{\"k\":\"A\"}\n{\"k\":\"\\u0041\"}\n", "--key k"), "{\"k\":\"A\"}\n");
}

#[test]
fn null_and_the_empty_string_differ() {
    let lines = "{\"k\":null}\n{\"k\":\"\"}\n{\"k\":[]}\n{\"k\":{}}\n";
    assert_eq!(kept(lines, "--key k"), lines);
}

#[test]
fn whole_records_are_compared_without_white_space_and_order_of_fields() {
    let lines = "{\"b\":2,\"a\":1}\n{ \"a\" : 1.0 , \"b\" : 2 }\r\n{\"a\":1,\"b\":3}\n";
    let expected = "{\"b\":2,\"a\":1}\n{\"a\":1,\"b\":3}\n";
    assert_eq!(kept(lines, "--granularity record"), expected);
    let last = "{ \"a\" : 1.0 , \"b\" : 2 }\r\n{\"a\":1,\"b\":3}\n";
    assert_eq!(kept(lines, "--granularity record --keep last"), last);
}

#[test]
fn order_in_arrays_counts() {
    assert_eq!(kept("[1,2]\n[2,1]\n[ 1, 2 ]\n", "--granularity record"), "[1,2]\n[2,1]\n");
}

#[test]
fn lines_are_compared_as_bytes_and_never_parsed() {
    let lines = "{\"a\":1}\n{\"a\": 1}\nno json\n\n{\"a\":1}\nno json\n";
    let expected = "{\"a\":1}\n{\"a\": 1}\nno json\n\n";
    assert_eq!(kept(lines, "--granularity line"), expected);
    assert_eq!(kept(lines, ""), expected);
}

#[test]
fn the_format_can_be_told() {
    let content = "{\"k\":1,\"x\":1}\n{\"k\":1,\"x\":2}\n";
    let sandbox = Sandbox::with(&[("a.txt", content), ("a.jsonl", "not\njson\nnot\n")]);
    let first = "{\"k\":1,\"x\":1}\n";
    assert_eq!(sandbox.run("a.txt --format jsonl --key k").kept_text(), first);
    let piped = sandbox.run_piped("- --format jsonl --key k", content.as_bytes());
    assert_eq!(piped.kept_text(), first);
    let text = sandbox.run("a.jsonl --format text --granularity record");
    assert_eq!(text.kept_text(), "not\njson\n");
}

#[test]
fn names_tell_json_lines_also_when_packed() {
    let content = b"{\"k\":1,\"x\":1}\n{\"k\":1,\"x\":2}\n";
    let sandbox = Sandbox::with(&[("a.jsonl.gz", &gzip(content)[..]), ("b.ndjson", content)]);
    let kept = sandbox.run("a.jsonl.gz b.ndjson --key k").kept_text();
    assert_eq!(kept, "{\"k\":1,\"x\":1}\n");
}

#[test]
fn a_last_record_without_line_end_is_compared_like_others() {
    assert_eq!(
        kept("{\"k\":2}\n{\"k\":1}\n{\"k\":2,\"x\":0}", "--key k"),
        "{\"k\":2}\n{\"k\":1}\n"
    );
}

#[test]
fn byte_order_marks_and_blank_lines_are_no_errors() {
    let bom = "\u{feff}";
    let text = format!("{bom}{{\"id\":1}}\n\n{{\"id\":2}}\n{bom}{{\"id\":1}}\n \t\r\n");
    let sandbox = Sandbox::with(&[("a.jsonl", &text)]);
    let kept = format!("{bom}{{\"id\":1}}\n\n{{\"id\":2}}\n \t\r\n");
    for options in ["--key id", "--granularity record", "--granularity record --workers 2"] {
        assert_eq!(sandbox.run(&format!("a.jsonl {options}")).kept_text(), kept, "{options}");
    }
    sandbox.write("p.jsonl", format!("{bom}{{\"t\":\"x\\ny\"}}\n\n{{\"t\":\"x\"}}\n"));
    let pieces = sandbox.run("p.jsonl --granularity paragraph --key t").kept_text();
    assert_eq!(pieces, format!("{bom}{{\"t\":\"x\\ny\"}}\n\n{{\"t\":\"\"}}\n"));
    for lines in ["", "\n", " \r\n{\"id\":1}\n\u{feff}\n"] {
        let blank = format!("{bom}{lines}");
        sandbox.write("blank.jsonl", &blank);
        assert_eq!(sandbox.run("blank.jsonl --key id").kept_text(), blank);
    }
    // Lines that are neither blank nor JSON are bad as before.
    sandbox.write("b.jsonl", format!("{{}}\n{bom}{bom}\n"));
    sandbox.run("b.jsonl --granularity record").refused(1, &["b.jsonl", "record 2"]);
}
