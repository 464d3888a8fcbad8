//! Values in canonical form: tag, length, value, as in keys of JSON Lines.

use std::io::Write as _;

use parquet::data_type::{ByteArray, FixedLenByteArray, Int96};

use super::calendar::{write_clock, write_day, write_moment};
use super::form::Form;
use super::score::ScoredValue;
use crate::key_group::{write_group, write_length};

/// Longest decimal that is written in digits, in bytes: 32, a decimal of 76 digits. Longer ones are
/// written in hexadecimal, since the conversion takes quadratic time.
const DECIMAL_BYTES_MAX: usize = 32;

/// Most digits behind the decimal point; with more, a decimal is written with an exponent.
const DECIMAL_SCALE_MAX: usize = 100;

/// Number of decimal digits that every 64-bit float preserves.
const FLOAT_DIGITS: usize = 15;

/// A value as the crate returns it.
pub(super) trait CanonicalValue: ScoredValue + Sized {
    /// Appends tag, length and value.
    fn write(&self, form: Form, item: &mut Vec<u8>);

    /// The value with these bytes; `None` if the type is not text of any length.
    fn of_text(_: Vec<u8>) -> Option<Self> {
        None
    }
}

/// Appends the group of a null.
pub(super) fn write_null(item: &mut Vec<u8>) {
    item.extend_from_slice(b"n\0");
}

/// Appends a group whose value `write` appends.
fn group(tag: u8, item: &mut Vec<u8>, write: impl FnOnce(&mut Vec<u8>)) {
    item.push(tag);
    let start = item.len();
    item.push(0);
    write(item);
    let length = item.len() - start - 1;
    match u8::try_from(length) {
        Ok(short) if short < 0x80 => item[start] = short,
        _ => {
            let mut prefix = Vec::new();
            write_length(length, &mut prefix);
            item.splice(start..=start, prefix);
        }
    }
}

fn write_float(value: f64, item: &mut Vec<u8>) {
    let mut digits = ryu_js::Buffer::new();
    write_group(b'd', digits.format(value).as_bytes(), item);
}

fn write_integer(value: i64, form: Form, item: &mut Vec<u8>) {
    let wide = i128::from(value);
    match form {
        Form::Decimal { scale } => {
            write_decimal(value < 0, value.unsigned_abs().to_string(), scale, item);
        }
        Form::Day => group(b's', item, |item| write_day(value, item)),
        Form::Clock { unit_nanos, is_utc } => group(b's', item, |item| {
            write_clock(wide * i128::from(unit_nanos), item);
            write_zone(is_utc, item);
        }),
        Form::Moment { unit_nanos, is_utc } => group(b's', item, |item| {
            write_moment(wide * i128::from(unit_nanos), item);
            write_zone(is_utc, item);
        }),
        _ => group(b'd', item, |item| write!(item, "{value}").expect("a vector takes all")),
    }
}

fn write_zone(is_utc: bool, item: &mut Vec<u8>) {
    if is_utc {
        item.push(b'Z');
    }
}

/// Appends ±`digits` · 10^−`scale`.
fn write_decimal(is_negative: bool, mut digits: String, scale: i32, item: &mut Vec<u8>) {
    let mut scale = usize::try_from(scale).unwrap_or(0);
    while scale > 0 && digits.ends_with('0') {
        digits.pop();
        scale -= 1;
    }
    if digits.is_empty() || digits == "0" {
        return write_group(b'd', b"0", item);
    }
    let is_short = digits.len() <= FLOAT_DIGITS;
    let mut text = String::from(if is_negative { "-" } else { "" });
    if scale > DECIMAL_SCALE_MAX {
        text.push_str(&digits);
        text.push_str("e-");
        text.push_str(&scale.to_string());
    } else if scale > 0 {
        let padding = (scale + 1).saturating_sub(digits.len());
        let digits = "0".repeat(padding) + &digits;
        let (whole, fraction) = digits.split_at(digits.len() - scale);
        text.extend([whole, ".", fraction]);
    } else {
        text.push_str(&digits);
    }
    // If a float has the same value, it is written as floats in JSON are, so that the two are equal.
    match text.parse::<f64>() {
        Ok(value) if is_short && scale > 0 && scale <= DECIMAL_SCALE_MAX => {
            write_float(value, item);
        }
        _ => write_group(b'd', text.as_bytes(), item),
    }
}

/// A decimal in two's complement, big-endian.
fn write_decimal_bytes(bytes: &[u8], scale: i32, item: &mut Vec<u8>) {
    let is_negative = bytes.first().is_some_and(|byte| byte & 0x80 != 0);
    let sign = if is_negative { 0xff } else { 0 };
    let start = bytes.iter().position(|&byte| byte != sign).unwrap_or(bytes.len());
    let bytes = &bytes[start..];
    if bytes.len() > DECIMAL_BYTES_MAX {
        return group(b'd', item, |item| {
            item.extend_from_slice(if is_negative { b"-0x" } else { b"0x" });
            bytes.iter().for_each(|byte| write!(item, "{byte:02x}").expect("a vector takes all"));
            write!(item, "e-{scale}").expect("a vector takes all");
        });
    }
    let mut magnitude = bytes.to_vec();
    if is_negative {
        // Two's complement: invert and add one. The bytes removed from the front were all ones.
        let mut carry = true;
        for byte in magnitude.iter_mut().rev() {
            let (sum, over) = (!*byte).overflowing_add(u8::from(carry));
            (*byte, carry) = (sum, over);
        }
        if carry {
            magnitude.insert(0, 1);
        }
    }
    write_decimal(is_negative, digits(magnitude), scale, item);
}

/// A big-endian number in decimal digits.
fn digits(mut number: Vec<u8>) -> String {
    let mut digits = Vec::new();
    while number.iter().any(|&byte| byte != 0) {
        let mut rest = 0u16;
        for byte in &mut number {
            let value = rest << 8 | u16::from(*byte);
            *byte = u8::try_from(value / 10).expect("the rest is below 10");
            rest = value % 10;
        }
        digits.push(char::from(b'0' + u8::try_from(rest).expect("below 10")));
    }
    digits.iter().rev().collect()
}

/// The exact value of a 16-bit IEEE 754 float.
pub(super) fn half_to_float(bits: u16) -> f64 {
    let sign = if bits >> 15 == 1 { -1.0 } else { 1.0 };
    let exponent = i32::from(bits >> 10 & 0x1f);
    let fraction = f64::from(bits & 0x3ff) / 1024.0;
    match exponent {
        0 => sign * fraction * 2f64.powi(-14),
        31 if fraction == 0.0 => sign * f64::INFINITY,
        31 => f64::NAN,
        _ => sign * (1.0 + fraction) * 2f64.powi(exponent - 15),
    }
}

impl CanonicalValue for bool {
    fn write(&self, _: Form, item: &mut Vec<u8>) {
        item.extend_from_slice(if *self { b"t\0" } else { b"f\0" });
    }
}

impl CanonicalValue for i32 {
    fn write(&self, form: Form, item: &mut Vec<u8>) {
        let value = match form {
            Form::Integer { is_signed: false } => i64::from(self.cast_unsigned()),
            _ => i64::from(*self),
        };
        write_integer(value, form, item);
    }
}

impl CanonicalValue for i64 {
    fn write(&self, form: Form, item: &mut Vec<u8>) {
        match form {
            Form::Integer { is_signed: false } => {
                write_group(b'd', self.cast_unsigned().to_string().as_bytes(), item);
            }
            _ => write_integer(*self, form, item),
        }
    }
}

impl CanonicalValue for f32 {
    fn write(&self, _: Form, item: &mut Vec<u8>) {
        write_float(f64::from(*self), item);
    }
}

impl CanonicalValue for f64 {
    fn write(&self, _: Form, item: &mut Vec<u8>) {
        write_float(*self, item);
    }
}

/// The moment of an `INT96`, in nanoseconds since 1970: nanoseconds of the day in 64 bits, then the
/// Julian day.
pub(super) fn nanos_since_epoch(value: &Int96) -> i128 {
    const EPOCH: i128 = 2_440_588;
    const DAY: i128 = 86_400_000_000_000;
    let &[low, high, day] = value.data() else { unreachable!("an INT96 has three words") };
    let nanos = (u64::from(high) << 32 | u64::from(low)).cast_signed();
    let days = i128::from(day.cast_signed()) - EPOCH;
    days * DAY + i128::from(nanos)
}

impl CanonicalValue for Int96 {
    fn write(&self, _: Form, item: &mut Vec<u8>) {
        group(b's', item, |item| {
            write_moment(nanos_since_epoch(self), item);
            write_zone(true, item);
        });
    }
}

impl CanonicalValue for ByteArray {
    fn write(&self, form: Form, item: &mut Vec<u8>) {
        let bytes = self.data();
        match (form, bytes) {
            (Form::Decimal { scale }, _) => write_decimal_bytes(bytes, scale, item),
            (Form::Half, &[low, high]) => {
                write_float(half_to_float(u16::from_le_bytes([low, high])), item);
            }
            (Form::Uuid, _) => group(b's', item, |item| {
                for (index, byte) in bytes.iter().enumerate() {
                    if matches!(index, 4 | 6 | 8 | 10) {
                        item.push(b'-');
                    }
                    write!(item, "{byte:02x}").expect("a vector takes all");
                }
            }),
            _ => write_group(b's', bytes, item),
        }
    }

    fn of_text(bytes: Vec<u8>) -> Option<Self> {
        Some(Self::from(bytes))
    }
}

impl CanonicalValue for FixedLenByteArray {
    fn write(&self, form: Form, item: &mut Vec<u8>) {
        ByteArray::write(self, form, item);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn item(value: &impl CanonicalValue, form: Form) -> String {
        let mut item = Vec::new();
        value.write(form, &mut item);
        String::from_utf8(item).unwrap()
    }

    fn decimal(value: i64, scale: i32) -> String {
        item(&value, Form::Decimal { scale })[2..].to_owned()
    }

    #[test]
    fn numbers_are_written_as_in_json_items() {
        let signed = Form::Integer { is_signed: true };
        assert_eq!(item(&-7i32, signed), "d\u{2}-7");
        assert_eq!(item(&-1i32, Form::Integer { is_signed: false }), "d\u{a}4294967295");
        assert_eq!(item(&-1i64, Form::Integer { is_signed: false }), "d\u{14}18446744073709551615");
        assert_eq!(item(&1.0f64, Form::Float), "d\u{1}1");
        assert_eq!(item(&-0.0f64, Form::Float), "d\u{1}0");
        assert_eq!(item(&0.5f32, Form::Float), "d\u{3}0.5");
        assert_eq!(item(&f64::NAN, Form::Float), "d\u{3}NaN");
        assert_eq!(item(&f64::INFINITY, Form::Float), "d\u{8}Infinity");
        assert_eq!(item(&ByteArray::from(vec![0x00, 0x3e]), Form::Half), "d\u{3}1.5");
    }

    #[test]
    fn decimals_are_exact() {
        assert_eq!(decimal(150, 2), "1.5");
        assert_eq!(decimal(-5, 1), "-0.5");
        assert_eq!(decimal(500, 2), "5");
        assert_eq!(decimal(0, 9), "0");
        assert_eq!(decimal(1, 7), "1e-7");
        assert_eq!(decimal(9_007_199_254_740_993, 3), "9007199254740.993");
        assert_eq!(decimal(i64::MIN, 0), "-9223372036854775808");
        assert_eq!(decimal(7, 200), "7e-200");
    }

    #[test]
    fn moments_bytes_and_uuids() {
        let form = Form::Moment { unit_nanos: 1_000_000, is_utc: true };
        assert_eq!(item(&1500i64, form), "s\u{16}1970-01-01T00:00:01.5Z");
        let mut noon = Int96::new();
        noon.set_data(0x48a7_8000, 0x274a, 2_440_588); // 43,200 s
        assert_eq!(item(&noon, form), "s\u{14}1970-01-01T12:00:00Z");
        let uuid: Vec<u8> = (0..16).collect();
        let expected = "s$00010203-0405-0607-0809-0a0b0c0d0e0f";
        assert_eq!(item(&ByteArray::from(uuid), Form::Uuid), expected);
        let long = ByteArray::from(vec![b'x'; 300]);
        let mut target = Vec::new();
        long.write(Form::Bytes, &mut target);
        assert_eq!(target[..4], [b's', 0xac, 2, b'x']);
    }

    proptest! {
        #[test]
        fn decimals_of_bytes_equal_those_of_integers(value: i64, scale in 0..20i32, padding in 0..20usize) {
            let sign = if value < 0 { 0xff } else { 0 };
            let bytes = [vec![sign; padding], value.to_be_bytes().to_vec()].concat();
            let of_bytes = item(&ByteArray::from(bytes), Form::Decimal { scale });
            prop_assert_eq!(of_bytes, item(&value, Form::Decimal { scale }));
        }

        #[test]
        fn decimals_read_back(value in -999_999_999i64..999_999_999, scale in 0..12i32) {
            let back: f64 = decimal(value, scale).parse().unwrap();
            let expected: f64 = format!("{value}e-{scale}").parse().unwrap();
            prop_assert_eq!(back, expected);
        }
    }
}
