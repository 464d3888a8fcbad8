//! JSON numbers in canonical form.
//!
//! * Written without fraction and exponent: the integer, in decimal and exact whatever its size.
//! * Otherwise: the nearest f64, printed as ECMAScript does (RFC 8785, 3.2.2.3), which is the
//!   shortest text that reads back as the same f64, without `.0`.
//!
//! So `1`, `1.0` and `10e-1` are equal, and `-0`, `-0.0` and `0` are. `9007199254740993` differs
//! from `9007199254740992` although f64 does not hold both; with `.0` behind them they are equal.
//! From 1e21 on ECMAScript prints exponents: `1e21` differs from the same integer written in
//! digits.

/// A number as written in the text. Its grammar was checked.
#[derive(Debug, Clone, Copy)]
pub(crate) struct NumberText<'a> {
    pub(crate) raw: &'a [u8],
    /// Whether it has neither fraction nor exponent.
    pub(crate) is_integer: bool,
}

impl NumberText<'_> {
    /// Appends the number in canonical form.
    pub(crate) fn write_canonical(&self, target: &mut Vec<u8>) {
        match self.raw {
            b"-0" => target.push(b'0'),
            raw if self.is_integer => target.extend_from_slice(raw),
            _ => {
                let mut digits = ryu_js::Buffer::new();
                target.extend_from_slice(digits.format_finite(self.nearest()).as_bytes());
            }
        }
    }

    fn nearest(&self) -> f64 {
        let text = str::from_utf8(self.raw).expect("numbers are ASCII");
        text.parse().expect("Rust reads all JSON numbers")
    }
}

/// Whether a number with fraction or exponent is in the range of f64.
pub(super) fn is_finite(number: NumberText<'_>) -> bool {
    // Without an exponent, a number needs 309 digits to overflow: only longer ones are checked.
    let is_small = number.raw.len() < 300 && !number.raw.iter().any(|byte| byte | 0x20 == b'e');
    is_small || number.nearest().is_finite()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::num::f64::{NORMAL, SUBNORMAL};
    use proptest::prelude::*;

    fn printed(value: f64) -> String {
        let raw = format!("{value:e}");
        let mut out = Vec::new();
        NumberText { raw: raw.as_bytes(), is_integer: false }.write_canonical(&mut out);
        String::from_utf8(out).unwrap()
    }

    /// RFC 8785, appendix B.
    #[test]
    fn numbers_are_printed_as_rfc_8785_says() {
        for (bits, expected) in [
            (0x0000_0000_0000_0000, "0"),
            (0x8000_0000_0000_0000, "0"),
            (0x0000_0000_0000_0001, "5e-324"),
            (0x8000_0000_0000_0001, "-5e-324"),
            (0x7fef_ffff_ffff_ffff, "1.7976931348623157e+308"),
            (0xffef_ffff_ffff_ffff, "-1.7976931348623157e+308"),
            (0x4340_0000_0000_0000, "9007199254740992"),
            (0xc340_0000_0000_0000, "-9007199254740992"),
            (0x4430_0000_0000_0000, "295147905179352830000"),
            (0x44b5_2d02_c7e1_4af5, "9.999999999999997e+22"),
            (0x44b5_2d02_c7e1_4af6, "1e+23"),
            (0x44b5_2d02_c7e1_4af7, "1.0000000000000001e+23"),
            (0x444b_1ae4_d6e2_ef4e, "999999999999999700000"),
            (0x444b_1ae4_d6e2_ef4f, "999999999999999900000"),
            (0x444b_1ae4_d6e2_ef50, "1e+21"),
            (0x3eb0_c6f7_a0b5_ed8c, "9.999999999999997e-7"),
            (0x3eb0_c6f7_a0b5_ed8d, "0.000001"),
            (0x41b3_de43_5555_5553, "333333333.3333332"),
            (0x41b3_de43_5555_5554, "333333333.33333325"),
            (0x41b3_de43_5555_5555, "333333333.3333333"),
            (0x41b3_de43_5555_5556, "333333333.3333334"),
            (0x41b3_de43_5555_5557, "333333333.33333343"),
            (0xbecb_f647_612f_3696, "-0.0000033333333333333333"),
            (0x4314_3ff3_c1cb_0959, "1424953923781206.2"),
        ] {
            assert_eq!(printed(f64::from_bits(bits)), expected);
        }
    }

    proptest! {
        #[test]
        fn printed_numbers_read_back(value in NORMAL | SUBNORMAL) {
            prop_assert_eq!(printed(value).parse::<f64>().unwrap(), value);
        }

        #[test]
        fn small_integers_look_like_integers(value in -(1i64 << 53)..1 << 53) {
            let float = value as f64;
            prop_assert_eq!(printed(float), value.to_string());
        }
    }
}
