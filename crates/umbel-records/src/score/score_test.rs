//! Scores, compared with exact arithmetic: the order, its exact zones, and the conversion back.

use super::*;
use proptest::prelude::*;
use std::cmp::Ordering;

/// The slow reference for the order: compares two numbers exactly by value.
fn exact(a: Number, b: Number) -> Ordering {
    match (a, b) {
        (Number::Integer(a), Number::Integer(b)) => a.cmp(&b),
        (Number::Float(a), Number::Float(b)) => a.partial_cmp(&b).unwrap(),
        (Number::Integer(a), Number::Float(b)) => integer_to_float(a, b),
        (Number::Float(a), Number::Integer(b)) => integer_to_float(b, a).reverse(),
    }
}

fn integer_to_float(integer: i128, float: f64) -> Ordering {
    if float.abs() >= 2f64.powi(100) {
        return if float > 0.0 { Ordering::Less } else { Ordering::Greater };
    }
    #[expect(clippy::cast_possible_truncation, reason = "below 2^100")]
    let whole = float.trunc() as i128;
    integer.cmp(&whole).then((0.0).partial_cmp(&(float - float.trunc())).unwrap())
}

#[derive(Clone, Copy, PartialEq, Debug)]
enum Number {
    Integer(i128),
    Float(f64),
}

impl Number {
    fn score(self) -> Score {
        match self {
            Self::Integer(value) => Score::of_integer(value),
            Self::Float(value) => Score::of_float(value).unwrap(),
        }
    }

    /// Whether the number has an image of its own.
    fn is_fine(self) -> bool {
        match self {
            Self::Integer(value) => value.unsigned_abs() < INTEGERS_END.into(),
            Self::Float(value) => {
                let bits = value.abs().to_bits();
                bits == 0 || (FINE_FROM..bits_of_power(62)).contains(&bits)
            }
        }
    }
}

fn numbers() -> impl Strategy<Value = Number> {
    let near = |power: u32| (-3i128..=3).prop_map(move |offset| (1i128 << power) + offset);
    let integer = prop_oneof![
        any::<i64>().prop_map(i128::from),
        any::<u64>().prop_map(i128::from),
        (0u32..66).prop_flat_map(near),
        -20i128..20,
    ];
    let signed =
        (integer, any::<bool>()).prop_map(|(value, minus)| if minus { -value } else { value });
    let any_bits =
        any::<u64>().prop_map(f64::from_bits).prop_filter("NaN", |value| !value.is_nan());
    prop_oneof![
        signed.clone().prop_map(Number::Integer),
        signed.prop_map(|value| Number::Float(value as f64)),
        (-40i32..40).prop_map(|quarters| Number::Float(f64::from(quarters) / 4.0)),
        any_bits.prop_map(Number::Float),
        prop::num::f64::SUBNORMAL.prop_map(Number::Float),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 4000, ..ProptestConfig::default() })]

    #[test]
    fn images_order_as_numbers_do(a in numbers(), b in numbers()) {
        let (order, images) = (exact(a, b), a.score().cmp(&b.score()));
        // The order never contradicts the numbers; images of different numbers are equal only at the
        // coarse ends.
        prop_assert!(images == order || images == Ordering::Equal, "{:?} {:?}", a, b);
        if a.is_fine() && b.is_fine() {
            prop_assert_eq!(images, order, "{:?} {:?}", a, b);
        }
    }

    #[test]
    fn the_value_comes_back(number in numbers()) {
        let score = number.score();
        prop_assert_eq!(Score::from_image(score.image()), score);
        let value = match score.value() {
            ScoreValue::Integer(value) => Number::Integer(value.into()),
            ScoreValue::Float(value) => Number::Float(value),
        };
        prop_assert_eq!(value.score(), score);
        if number.is_fine() {
            prop_assert_eq!(exact(value, number), Ordering::Equal);
        }
    }

    #[test]
    fn text_is_read_as_the_number_it_shows(number in numbers()) {
        let text = match number {
            Number::Integer(value) => value.to_string(),
            Number::Float(value) if value.is_finite() => format!("{value:e}"),
            Number::Float(_) => return Ok(()),
        };
        prop_assert_eq!(Score::of_text(text.as_bytes()), Some(number.score()));
    }
}

#[test]
fn zones_meet_without_overlap() {
    let edges = [
        Number::Float(0.0),
        Number::Float(f64::from_bits(FINE_FROM - 16)),
        Number::Float(f64::from_bits(FINE_FROM)),
        Number::Float(f64::from_bits(bits_of_power(53) - 1)),
        Number::Integer(1 << 53),
        Number::Integer((1 << 62) - 1),
        Number::Integer(1 << 62),
        Number::Integer(u64::MAX.into()),
        Number::Integer(i128::MAX),
        Number::Float(f64::MAX),
        Number::Float(f64::INFINITY),
    ];
    assert!(edges.is_sorted_by(|a, b| a.score() < b.score()));
    assert_eq!(edges[2].score().image() - edges[1].score().image(), 1);
    assert_eq!(edges[4].score().image() - edges[3].score().image(), 1);
    assert_eq!(edges[6].score().image() - edges[5].score().image(), 1);
    let ends = [f64::NEG_INFINITY, f64::INFINITY].map(|end| Score::of_float(end).unwrap().image());
    assert!(ends[0] > 0 && ends[1] < u64::MAX);
    assert_eq!(Score::of_float(-0.0), Score::of_float(0.0));
    assert_eq!(Score::of_float(f64::NAN), None);
}

#[test]
fn only_decimals_are_numbers() {
    let score = |text: &str| Score::of_text(text.as_bytes());
    for text in ["", " ", "inf", "NaN", "0x10", "1_000", "1,5", "--1", "e", ".", "1 2", "½"] {
        assert_eq!(score(text), None, "{text}");
    }
    assert_eq!(score(" +12\r"), Some(Score::of_integer(12)));
    assert_eq!(score(".5"), Score::of_float(0.5));
    assert_eq!(score(&"9".repeat(400)), Score::of_float(f64::INFINITY));
    let thirty_nine_digits = "1".repeat(39);
    assert!(score(&thirty_nine_digits) > score(&"1".repeat(38)));
}

#[test]
fn fields_are_found_and_anything_but_a_number_is_none() {
    let mut extractor = ScoreExtractor::new(Format::JsonLines, "a.b").unwrap();
    let mut score = |record: &str| extractor.score(record.as_bytes());
    assert_eq!(score("{\"a\": {\"b\": -1.5e3}}\n"), Some(Score::of_integer(-1500)));
    assert_eq!(score(r#"{"a": {"b": 1}, "a": {"b": 2}}"#), Some(Score::of_integer(2)));
    for record in [
        r#"{"a": {"b": null}}"#,
        r#"{"a": {"b": "3"}}"#,
        r#"{"a": {"b": [3]}}"#,
        r#"{"a": {"b": true}}"#,
        r#"{"a": 3}"#,
        r#"{"a": {"b": 3}"#,
        "",
    ] {
        assert_eq!(score(record), None, "{record}");
    }
    let text = ScoreExtractor::new(Format::Text, "a");
    assert_eq!(text.err(), Some(ScoreError::FieldOfText));
    assert!(ScoreExtractor::new(Format::JsonLines, "a..b").is_err());
}
