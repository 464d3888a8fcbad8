//! Comparison with serde_json, the slow reference.
//!
//! Both accept the same texts and find the same fields, and canonical forms are equal if and only if
//! the values are, however they are written.

use std::collections::BTreeMap;

use proptest::collection::{btree_map, vec};
use proptest::prelude::*;
use serde_json::Value;

use crate::{Format, Granularity, ItemExtractor, KeyPath, RecordItemError};

/// A JSON value whose equality is simple.
#[derive(Debug, Clone, PartialEq)]
enum Json {
    Null,
    Bool(bool),
    /// `units` / 10^`decimals`, without trailing zeros in the fraction.
    Number {
        units: i64,
        decimals: u8,
    },
    String(String),
    Array(Vec<Json>),
    Object(BTreeMap<String, Json>),
}

fn number(mut units: i64, mut decimals: u8) -> Json {
    while decimals > 0 && units % 10 == 0 {
        units /= 10;
        decimals -= 1;
    }
    Json::Number { units, decimals }
}

/// Values from a small domain, so that two of them are often equal.
fn json() -> impl Strategy<Value = Json> {
    let name = prop_oneof![Just(""), Just("a"), Just("b"), Just("0"), Just("1"), Just("é\n😂")];
    let leaf = prop_oneof![
        Just(Json::Null),
        any::<bool>().prop_map(Json::Bool),
        (-30..30i64, 0..3u8).prop_map(|(units, decimals)| number(units, decimals)),
        any::<i64>().prop_map(|units| number(units, 0)),
        "[a\"\\\\/\u{0}\n\u{7f}é\u{ffff}😂]{0,3}".prop_map(Json::String),
    ];
    leaf.prop_recursive(4, 24, 4, move |inner| {
        prop_oneof![
            vec(inner.clone(), 0..4).prop_map(Json::Array),
            btree_map(name.clone().prop_map(String::from), inner, 0..4).prop_map(Json::Object),
        ]
    })
}

/// The decisions of a writer, taken from a list that repeats.
struct Choices<'a> {
    list: std::iter::Cycle<std::slice::Iter<'a, u8>>,
}

impl Choices<'_> {
    fn below(&mut self, count: u8) -> u8 {
        self.list.next().map_or(0, |choice| choice % count)
    }
}

/// Writes a value in one of many ways.
fn render(value: &Json, choices: &mut Choices<'_>, out: &mut String) {
    space(choices, out);
    match value {
        Json::Null => out.push_str("null"),
        Json::Bool(value) => out.push_str(if *value { "true" } else { "false" }),
        Json::Number { units, decimals } => render_number(*units, *decimals, choices, out),
        Json::String(value) => render_string(value, choices, out),
        Json::Array(elements) => {
            out.push('[');
            for (index, element) in elements.iter().enumerate() {
                out.push_str(if index > 0 { "," } else { "" });
                render(element, choices, out);
            }
            space(choices, out);
            out.push(']');
        }
        Json::Object(fields) => render_object(fields, choices, out),
    }
    space(choices, out);
}

fn space(choices: &mut Choices<'_>, out: &mut String) {
    out.push_str(["", "", "", " ", "\t\r\n "][usize::from(choices.below(5))]);
}

fn render_number(units: i64, decimals: u8, choices: &mut Choices<'_>, out: &mut String) {
    // Beyond 2^53, only digits are exact.
    let style = if units.unsigned_abs() > 1 << 53 { 0 } else { choices.below(4) };
    match (style, decimals) {
        (0 | 1, 0) if units == 0 && style == 1 => out.push_str("-0"),
        (0 | 1, 0) => out.push_str(&units.to_string()),
        (2, _) => out.push_str(&format!("{units}E-{decimals:02}")),
        (3, _) if units != 0 => out.push_str(&format!("{units}00.00e-{}", decimals + 2)),
        _ => {
            let sign = if units < 0 { "-" } else { "" };
            let scale = 10u64.pow(u32::from(decimals));
            let (whole, part) = (units.unsigned_abs() / scale, units.unsigned_abs() % scale);
            out.push_str(&format!("{sign}{whole}.{part:0width$}0", width = usize::from(decimals)));
        }
    }
}

fn render_string(value: &str, choices: &mut Choices<'_>, out: &mut String) {
    out.push('"');
    for char in value.chars() {
        let short = match char {
            '"' => "\\\"",
            '\\' => "\\\\",
            '/' => "\\/",
            '\n' => "\\n",
            _ => "",
        };
        let must_escape = matches!(char, '"' | '\\' | '\0'..='\x1f');
        match choices.below(3) {
            0 if !must_escape => out.push(char),
            1 if !short.is_empty() => out.push_str(short),
            _ => {
                for unit in char.encode_utf16(&mut [0; 2]) {
                    out.push_str(&format!("\\u{unit:04x}"));
                }
            }
        }
    }
    out.push('"');
}

fn render_object(fields: &BTreeMap<String, Json>, choices: &mut Choices<'_>, out: &mut String) {
    let mut fields: Vec<(&String, &Json)> = fields.iter().collect();
    if !fields.is_empty() {
        let middle = usize::from(choices.below(4)) % fields.len();
        fields.rotate_left(middle);
    }
    if let (1, Some(&(name, _))) = (choices.below(4), fields.last()) {
        // An earlier field of the same name does not count.
        fields.insert(0, (name, &Json::Null));
    }
    out.push('{');
    for (index, (name, value)) in fields.into_iter().enumerate() {
        out.push_str(if index > 0 { "," } else { "" });
        space(choices, out);
        render_string(name, choices, out);
        space(choices, out);
        out.push(':');
        render(value, choices, out);
    }
    space(choices, out);
    out.push('}');
}

fn text(value: &Json, choices: &[u8]) -> String {
    let mut out = String::new();
    render(value, &mut Choices { list: choices.iter().cycle() }, &mut out);
    out
}

fn extractor(paths: &[&str]) -> ItemExtractor {
    let granularity = match paths {
        [] => Granularity::Record,
        _ => Granularity::Key(paths.iter().map(|path| (*path).to_owned()).collect()),
    };
    ItemExtractor::new(Format::JsonLines, granularity).unwrap()
}

fn record_item(record: &str) -> Vec<u8> {
    extractor(&[]).item(record.as_bytes()).unwrap().to_vec()
}

/// Fragments of JSON, concatenated at random.
fn json_like() -> impl Strategy<Value = String> {
    const PIECES: &[&str] = &[
        "{", "}", "[", "]", ",", ":", "\"a\"", "\"", "\\", "\\u00e", "\\ud800", "\\udc00", "1",
        "0", "-", ".", "e", "E+", "true", "nul", "l", " ", "\n", "\u{1}", "é", "\"\":1", "[]",
        "{}", "1e400", "\u{feff}", "\\n", "\"k\":",
    ];
    vec(proptest::sample::select(PIECES), 0..9).prop_map(|pieces| pieces.concat())
}

fn is_accepted(record: &str) -> bool {
    let whole = extractor(&[]).item(record.as_bytes()).map(<[u8]>::len);
    let keyed = extractor(&["k"]).item(record.as_bytes()).map(<[u8]>::len);
    match (&whole, &keyed) {
        (Ok(_), Ok(_) | Err(RecordItemError::MissingKey { .. })) => true,
        (Err(one), Err(other)) => {
            assert_eq!(one, other, "both ways find the same fault");
            false
        }
        _ => panic!("{record:?}: {whole:?} but {keyed:?}"),
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    #[test]
    fn the_same_texts_are_json(record in json_like()) {
        // serde_json leaves the byte order mark to its caller.
        let unmarked = record.strip_prefix('\u{feff}').unwrap_or(&record);
        prop_assert_eq!(is_accepted(&record), serde_json::from_str::<Value>(unmarked).is_ok());
    }

    #[test]
    fn a_changed_byte_is_seen_alike(
        value in json(), choices in vec(any::<u8>(), 1..20),
        at in any::<prop::sample::Index>(), byte in 0..0x80u8
    ) {
        let mut record = text(&value, &choices).into_bytes();
        let at = at.index(record.len());
        record[at] = byte;
        if let Ok(record) = str::from_utf8(&record) {
            let twin = serde_json::from_str::<Value>(record);
            prop_assert_eq!(is_accepted(record), twin.is_ok(), "{}", record);
        }
    }

    #[test]
    fn items_are_equal_if_and_only_if_the_values_are(
        a in json(), b in json(), one in vec(any::<u8>(), 1..20), other in vec(any::<u8>(), 1..20)
    ) {
        let (text_a, other_a, text_b) = (text(&a, &one), text(&a, &other), text(&b, &other));
        prop_assert_eq!(record_item(&text_a), record_item(&other_a), "{} {}", text_a, other_a);
        prop_assert_eq!(record_item(&text_a) == record_item(&text_b), a == b);
        let key = |value: &str| {
            let record = format!("{{\"x\":[],\"k\":{value}}}");
            extractor(&["k"]).item(record.as_bytes()).unwrap().to_vec()
        };
        prop_assert_eq!(key(&text_a), key(&other_a));
        prop_assert_eq!(key(&text_a) == key(&text_b), a == b);
    }

    #[test]
    fn the_canonical_form_is_the_same_value_and_stays(
        value in json(), choices in vec(any::<u8>(), 1..20)
    ) {
        let text = text(&value, &choices);
        let item = record_item(&text);
        let twin = |text: &str| serde_json::from_str::<Value>(text).unwrap();
        let item = String::from_utf8(item).unwrap();
        prop_assert_eq!(twin(&item), twin(&record_item_of_twin(&twin(&text))));
        prop_assert_eq!(record_item(&item), item.as_bytes());
    }

    #[test]
    fn the_same_fields_are_found(
        value in json(), choices in vec(any::<u8>(), 1..20), fields in vec("[ab01]", 1..4)
    ) {
        let text = text(&value, &choices);
        let path: KeyPath = fields.join(".").parse().unwrap();
        let record: Value = serde_json::from_str(&text).unwrap();
        let found = record.pointer(&format!("/{}", fields.join("/")));
        let mut keyed = extractor(&[&path.to_string()]);
        match (keyed.item(text.as_bytes()), found) {
            (Ok(item), Some(value)) => {
                let record = format!("{{\"k\":{value}}}");
                let mut twin = extractor(&["k"]);
                prop_assert_eq!(item, twin.item(record.as_bytes()).unwrap());
            }
            (Err(RecordItemError::MissingKey { path: missing }), None) => {
                prop_assert_eq!(missing, path);
            }
            (item, found) => panic!("{item:?} but {found:?} in {text}"),
        }
    }
}

/// The canonical form of what serde_json writes for a value.
fn record_item_of_twin(value: &Value) -> String {
    String::from_utf8(record_item(&value.to_string())).unwrap()
}
