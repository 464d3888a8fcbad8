//! Numbers of values, which decide the best of equal rows.
//!
//! | column | number |
//! |---|---|
//! | integers, signed and unsigned | the value |
//! | `FLOAT`, `DOUBLE`, `FLOAT16` | the value as 64-bit float; none for NaN |
//! | `DECIMAL` | the value: whole ones exactly, others as the nearest 64-bit float |
//! | `DATE` | days since 1970-01-01 |
//! | `TIME` | nanoseconds since midnight, whatever the unit |
//! | `TIMESTAMP`, `INT96` | nanoseconds since 1970-01-01T00:00, whatever the unit |

use parquet::data_type::{ByteArray, FixedLenByteArray, Int96};

use super::form::Form;
use super::value::{CanonicalValue, half_to_float, nanos_since_epoch};
use crate::Score;
use crate::key_group::read_group;

/// Most digits of a decimal by which rows are ranked: those of 32 bytes (Arrow's widest). Longer ones
/// have no decimal text.
pub(super) const DECIMAL_DIGITS_MAX: i32 = 76;

/// Powers of ten that a 64-bit float represents exactly.
const POWERS_OF_TEN: [f64; 23] = [
    1e0, 1e1, 1e2, 1e3, 1e4, 1e5, 1e6, 1e7, 1e8, 1e9, 1e10, 1e11, 1e12, 1e13, 1e14, 1e15, 1e16,
    1e17, 1e18, 1e19, 1e20, 1e21, 1e22,
];

/// Integers below this are exact as 64-bit floats.
const FLOAT_INTEGERS_END: u64 = 1 << 53;

/// A value as the crate returns it.
pub(super) trait ScoredValue {
    /// Its number; `None` if it has none.
    fn score(&self, form: Form) -> Option<Score>;
}

fn score_integer(value: i64, form: Form) -> Option<Score> {
    let wide = i128::from(value);
    match form {
        Form::Decimal { scale } => score_decimal(value, scale),
        Form::Clock { unit_nanos, .. } | Form::Moment { unit_nanos, .. } => {
            Some(Score::of_integer(wide * i128::from(unit_nanos)))
        }
        _ => Some(Score::of_integer(wide)),
    }
}

/// The score of a decimal that is stored as an integer.
fn score_decimal(value: i64, scale: i32) -> Option<Score> {
    let power = usize::try_from(scale).ok().and_then(|scale| POWERS_OF_TEN.get(scale));
    match power {
        // Both operands are exact, so their quotient is the nearest float.
        Some(power) if value.unsigned_abs() < FLOAT_INTEGERS_END => {
            Score::of_float(value as f64 / power)
        }
        _ => score_of_text(&value, Form::Decimal { scale }),
    }
}

/// By its canonical text, parsed like a number of a table.
fn score_of_text(value: &impl CanonicalValue, form: Form) -> Option<Score> {
    let mut group = Vec::new();
    value.write(form, &mut group);
    let (_, text) = read_group(&group)?;
    Score::of_text(text)
}

impl ScoredValue for bool {
    fn score(&self, _: Form) -> Option<Score> {
        None
    }
}

impl ScoredValue for i32 {
    fn score(&self, form: Form) -> Option<Score> {
        let value = match form {
            Form::Integer { is_signed: false } => i64::from(self.cast_unsigned()),
            _ => i64::from(*self),
        };
        score_integer(value, form)
    }
}

impl ScoredValue for i64 {
    fn score(&self, form: Form) -> Option<Score> {
        match form {
            Form::Integer { is_signed: false } => {
                Some(Score::of_integer(self.cast_unsigned().into()))
            }
            _ => score_integer(*self, form),
        }
    }
}

impl ScoredValue for f32 {
    fn score(&self, _: Form) -> Option<Score> {
        Score::of_float(f64::from(*self))
    }
}

impl ScoredValue for f64 {
    fn score(&self, _: Form) -> Option<Score> {
        Score::of_float(*self)
    }
}

impl ScoredValue for Int96 {
    fn score(&self, _: Form) -> Option<Score> {
        Some(Score::of_integer(nanos_since_epoch(self)))
    }
}

impl ScoredValue for ByteArray {
    fn score(&self, form: Form) -> Option<Score> {
        match (form, self.data()) {
            (Form::Decimal { .. }, _) => score_of_text(self, form),
            (Form::Half, &[low, high]) => {
                Score::of_float(half_to_float(u16::from_le_bytes([low, high])))
            }
            _ => None,
        }
    }
}

impl ScoredValue for FixedLenByteArray {
    fn score(&self, form: Form) -> Option<Score> {
        ByteArray::score(self, form)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const DAY_NANOS: i128 = 86_400_000_000_000;

    fn text(text: &str) -> Option<Score> {
        Score::of_text(text.as_bytes())
    }

    #[test]
    fn integers_of_any_width_have_their_value() {
        let (signed, unsigned) =
            (Form::Integer { is_signed: true }, Form::Integer { is_signed: false });
        assert_eq!((-7i32).score(signed), text("-7"));
        assert_eq!((-1i32).score(unsigned), text("4294967295"));
        assert_eq!((-1i64).score(unsigned), text("18446744073709551615"));
        assert_eq!(i64::MIN.score(signed), text("-9223372036854775808"));
        assert!(9_007_199_254_740_993i64.score(signed) > 9_007_199_254_740_992i64.score(signed));
    }

    #[test]
    fn floats_of_any_width_have_their_value_and_nan_has_none() {
        assert_eq!(0.5f32.score(Form::Float), text("0.5"));
        assert_eq!(f64::NAN.score(Form::Float), None);
        assert_eq!(ByteArray::from(vec![0x00, 0x3e]).score(Form::Half), text("1.5"));
        assert_eq!(ByteArray::from(vec![0x00, 0x7e]).score(Form::Half), None);
    }

    #[test]
    fn moments_are_counted_in_nanoseconds_whatever_their_unit() {
        let moment = |unit_nanos| Form::Moment { unit_nanos, is_utc: true };
        let expected = Some(Score::of_integer(1_500_000_000));
        assert_eq!(1500i64.score(moment(1_000_000)), expected);
        assert_eq!(1_500_000i64.score(moment(1000)), expected);
        assert_eq!(1_500_000_000i64.score(moment(1)), expected);
        assert_eq!(1500i32.score(Form::Clock { unit_nanos: 1_000_000, is_utc: false }), expected);
        let mut noon = Int96::new();
        noon.set_data(0x48a7_8000, 0x274a, 2_440_589); // 43,200 s of 1970-01-02
        let noon = noon.score(Form::Moment { unit_nanos: 1, is_utc: true });
        assert_eq!(noon, Some(Score::of_integer(DAY_NANOS * 3 / 2)));
        assert_eq!((-1i32).score(Form::Day), Some(Score::of_integer(-1)));
        // The years 2116 and 1824 still have nanosecond resolution; days are exact in any year.
        let nanos = moment(1);
        let late = 4_607_000_000_000_000_000i64;
        assert!((late + 1).score(nanos) > late.score(nanos));
        assert!((-late).score(nanos) > (-late - 1).score(nanos));
        assert!(i32::MAX.score(Form::Day) > (i32::MAX - 1).score(Form::Day));
    }

    #[test]
    fn what_has_no_place_on_a_scale_has_no_number() {
        assert_eq!(true.score(Form::Truth), None);
        assert_eq!(ByteArray::from("7").score(Form::Bytes), None);
        // Decimals of more digits than the limit have no text.
        let long = ByteArray::from(vec![1; 40]);
        assert_eq!(long.score(Form::Decimal { scale: 0 }), None);
    }

    proptest! {
        #[test]
        fn decimals_have_the_number_that_their_text_has(value: i64, shift in 0..64u32, scale in 0..30i32) {
            let value = value >> shift;
            let expected = text(&format!("{value}e-{scale}"));
            let form = Form::Decimal { scale };
            // A whole number is exact; `of_text` would round a text with an exponent.
            let divisor = 10i128.pow(scale.unsigned_abs());
            let whole = (i128::from(value) % divisor == 0)
                .then(|| Score::of_integer(i128::from(value) / divisor));
            prop_assert_eq!(value.score(form), whole.or(expected));
            let bytes = ByteArray::from(value.to_be_bytes().to_vec());
            prop_assert_eq!(bytes.score(form), value.score(form));
        }
    }
}
