//! Examples of items: which are equal, which differ, which records are rejected.
//!
//! `json/twin_test.rs` has random tests against serde_json.

use super::*;
use crate::JSON_DEPTH_MAX;

fn extractor(format: Format, granularity: Granularity) -> ItemExtractor {
    ItemExtractor::new(format, granularity).unwrap()
}

fn key(paths: &[&str]) -> Granularity {
    Granularity::Key(paths.iter().map(|path| (*path).to_owned()).collect())
}

fn key_item(paths: &[&str], record: &str) -> Result<Vec<u8>, RecordItemError> {
    let mut extractor = extractor(Format::JsonLines, key(paths));
    extractor.item(record.as_bytes()).map(<[u8]>::to_vec)
}

fn record_item(record: &[u8]) -> Result<Vec<u8>, RecordItemError> {
    let mut extractor = extractor(Format::JsonLines, Granularity::Record);
    extractor.item(record).map(<[u8]>::to_vec)
}

#[test]
fn a_zero_byte_ends_a_record_where_the_format_says_so() {
    for granularity in [Granularity::Line, Granularity::Record] {
        let mut item = extractor(Format::ZeroTerminated, granularity);
        assert_eq!(item.item(b"a\n\0").unwrap(), b"a\n");
        assert_eq!(item.item(b"\0\0").unwrap(), b"\0", "one terminator, not two");
        assert_eq!(item.item(b"a\n").unwrap(), b"a\n", "the last one, without its end");
    }
    let key = ItemExtractor::new(Format::ZeroTerminated, key(&["a"]));
    assert!(matches!(key, Err(ExtractorError::KeyOfText)));
}

#[test]
fn lines_are_taken_as_they_are() {
    let lines = [
        extractor(Format::Text, Granularity::Line),
        extractor(Format::Text, Granularity::Record),
        extractor(Format::JsonLines, Granularity::Line),
    ];
    for mut extractor in lines {
        assert_eq!(extractor.item(b"{not json\xff\r\n").unwrap(), b"{not json\xff\r");
        assert_eq!(extractor.item(b"\n").unwrap(), b"");
        assert_eq!(extractor.item(b"\n\n").unwrap(), b"\n", "one terminator, not two");
        assert_eq!(extractor.item(b"").unwrap(), b"");
    }
}

#[test]
fn requests_without_sense_are_refused() {
    let refused = |format, granularity| ItemExtractor::new(format, granularity).unwrap_err();
    assert_eq!(refused(Format::Text, key(&["a"])), ExtractorError::KeyOfText);
    assert_eq!(refused(Format::JsonLines, key(&[])), ExtractorError::NoKeyPath);
}

#[test]
fn keys_have_the_layout_of_the_module_doc() {
    let record = "{\"s\":\"x\\u0041\",\"n\":null,\"t\":true,\"f\":false,\"d\":-1.50,\
                  \"a\":[1, 2],\"o\":{\"b\":1,\"a\":2}}\n";
    for (path, expected) in [
        ("s", &b"s\x02xA"[..]),
        ("n", b"n\0"),
        ("t", b"t\0"),
        ("f", b"f\0"),
        ("d", b"d\x04-1.5"),
        ("a", b"a\x05[1,2]"),
        ("o", b"o\x0d{\"a\":2,\"b\":1}"),
    ] {
        assert_eq!(key_item(&[path], record).unwrap(), expected, "{path}");
    }
    assert_eq!(key_item(&["t", "s", "t"], record).unwrap(), b"t\0s\x02xAt\0");
    let long = key_item(&["s"], &format!("{{\"s\":\"{}\"}}", "x".repeat(300))).unwrap();
    assert_eq!(long[..3], [b's', 0xac, 0x02]);
    assert_eq!(long.len(), 303);
}

#[test]
fn values_that_look_alike_differ() {
    let of = |value: &str| key_item(&["k"], &format!("{{\"k\":{value}}}")).unwrap();
    let values = ["null", "\"\"", "\"null\"", "0", "\"0\"", "false", "[]", "{}", "\"[]\"", "[0]"];
    for (index, value) in values.iter().enumerate() {
        for other in &values[..index] {
            assert_ne!(of(value), of(other));
        }
    }
    let pair = |a: &str, b: &str| key_item(&["a", "b"], &format!(r#"{{"a":"{a}","b":"{b}"}}"#));
    assert_ne!(pair("a", "bc").unwrap(), pair("ab", "c").unwrap());
}

#[test]
fn numbers_are_equal_by_value() {
    let of = |number: &str| record_item(number.as_bytes()).unwrap();
    for equal in ["1", "1.0", "1e0", "10E-1", "0.1e+1", "1.00000000000000000000001"] {
        assert_eq!(of(equal), b"1");
    }
    for zero in ["0", "-0", "0.0", "-0.0", "0e9", "-0E-999", "1e-999"] {
        assert_eq!(of(zero), b"0");
    }
    assert_ne!(of("9007199254740993"), of("9007199254740992"));
    assert_eq!(of("9007199254740993.0"), of("9007199254740992"));
    assert_eq!(of("100000000000000000000"), of("1e20"));
    // Documented: from 1e21 on the canonical float has an exponent.
    assert_ne!(of("1000000000000000000000"), of("1e21"));
    let digits = "7".repeat(5000);
    assert_eq!(of(&digits), digits.as_bytes());
}

#[test]
fn faults_are_reported_with_their_place() {
    for (record, cause, message) in [
        (&b"\n"[..], "invalid_json", "at byte 1 of the record: expected a value, found the end"),
        (b"", "invalid_json", "at byte 0 of the record: expected a value, found the end"),
        (
            b"\xef\xbb\xbf\xef\xbb\xbf1",
            "invalid_json",
            "byte 3 of the record: expected a value, found",
        ),
        (b"{} {}", "invalid_json", "at byte 3 of the record: expected the end of the record"),
        (b"{\"a\" 1}", "invalid_json", "at byte 5 of the record: expected `:`"),
        (b"{\"a\":1 2}", "invalid_json", "at byte 7 of the record: expected `,` or `}`"),
        (b"[1,]", "invalid_json", "at byte 3 of the record: expected a value"),
        (b"[01]", "invalid_json", "at byte 2 of the record: expected `,` or `]`"),
        (b"[1.]", "invalid_json", "at byte 3 of the record: expected a digit"),
        (b"NaN", "invalid_json", "at byte 0 of the record: expected a value"),
        (b"\"a\tb\"", "invalid_json", "at byte 2 of the record: control character in a string"),
        (b"\"a\n", "invalid_json", "at byte 2 of the record: control character in a string"),
        (b"\"\\x\"", "invalid_json", "at byte 1 of the record: unknown escape in a string"),
        (b"\"\\u12g4\"", "invalid_json", "byte 1 of the record: expected four hexadecimal digits"),
        (b"\"abc", "invalid_json", "at byte 4 of the record: the string does not end"),
        (b"\"a\xff\"", "invalid_utf8", "at byte 2 of the record"),
        (b"\"\xed\xa0\x80\"", "invalid_utf8", "at byte 1 of the record"),
        (b"[\"\\ud800\"]", "lone_surrogate", "at byte 2 of the record"),
        (b"[\"\\udc00\\ud800\"]", "lone_surrogate", "at byte 2 of the record"),
        (b"[-1e309]", "number_out_of_range", "at byte 1 of the record"),
    ] {
        let error = record_item(record).unwrap_err();
        assert_eq!(error.cause(), cause, "{error}");
        assert!(error.to_string().contains(message), "{error}");
    }
}

#[test]
fn fields_that_are_not_wanted_are_checked_too() {
    for (record, cause) in [
        (r#"{"k":1,"x":[1,}"#, "invalid_json"),
        (r#"{"k":1,"x":"\ud800"}"#, "lone_surrogate"),
        (r#"{"k":1,"x":1e999}"#, "number_out_of_range"),
        (r#"{"k":1} x"#, "invalid_json"),
        (r#"{"x":1}"#, "missing_key"),
        (r#"["k"]"#, "missing_key"),
        ("7", "missing_key"),
    ] {
        assert_eq!(key_item(&["k"], record).unwrap_err().cause(), cause, "{record}");
    }
    let error = key_item(&["k", "a.b", "c"], r#"{"k":1,"a":{}}"#).unwrap_err();
    assert_eq!(error.to_string(), "no field `a.b` in the record");
}

#[test]
fn depth_is_limited_and_not_by_the_stack() {
    let nested = |depth: usize| "[".repeat(depth) + &"]".repeat(depth);
    let objects = |depth: usize| "{\"a\":".repeat(depth) + "1" + &"}".repeat(depth);
    for make in [nested, objects] {
        let fits = make(JSON_DEPTH_MAX);
        assert_eq!(record_item(fits.as_bytes()).unwrap(), fits.as_bytes());
        for too_deep in [make(JSON_DEPTH_MAX + 1), make(200_000)] {
            let error = record_item(too_deep.as_bytes()).unwrap_err();
            assert_eq!(error.cause(), "nested_too_deep");
            let keyed = key_item(&["a.a.a", "x"], &too_deep).unwrap_err();
            assert_eq!(keyed, error, "the same in both ways");
        }
    }
    let path = ["a"; JSON_DEPTH_MAX].join(".");
    assert_eq!(key_item(&[&path], &objects(JSON_DEPTH_MAX)).unwrap(), b"d\x011");
}

#[test]
fn an_extractor_goes_on_after_an_error() {
    let mut extractor = extractor(Format::JsonLines, Granularity::Record);
    let expected = br#"{"a":{"c":1,"d":2},"b":0}"#;
    for _ in 0..3 {
        assert!(extractor.item(br#"{"b":{"d":1,"c":{"y":1,"x":}}}"#).is_err());
        assert_eq!(extractor.item(br#"{"b":0,"a":{"d":2,"c":1}}"#).unwrap(), expected);
    }
}
