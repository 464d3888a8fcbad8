//! Examples of normalisers, and laws that hold for any bytes.

use proptest::prelude::*;

use super::*;

#[track_caller]
fn check(names: &str, pairs: &[(&str, &str)]) {
    for (item, expected) in pairs {
        let normal = apply(names, item.as_bytes());
        assert_eq!(String::from_utf8(normal).unwrap(), *expected, "{names} of {item:?}");
    }
}

fn apply(names: &str, item: &[u8]) -> Vec<u8> {
    let steps = names.split(',').map(|name| name.parse().unwrap()).collect();
    Normalisers::new(steps).apply(item).to_vec()
}

#[test]
fn white_space_and_line_ends() {
    check("trim", &[(" \t\u{3000}a b\u{a0}\r\n", "a b"), ("", ""), (" \n", ""), ("a", "a")]);
    check("squeeze", &[("  a \t\n\u{2003}b  ", " a b "), ("", "")]);
    check("squeeze,trim", &[("  a \t\n b  ", "a b")]);
    check(
        "crlf",
        &[("a\r\nb\rc\r", "a\nb\rc"), ("\r\r\n\r\r", "\r\n\r"), ("\r", ""), ("\n\r\n", "\n\n")],
    );
}

#[test]
fn letters() {
    check("lower", &[("ÀÉ ΟΔΟΣ STRASSE ß İ", "àé οδος strasse ß i\u{307}"), ("a1", "a1")]);
    check("nfc", &[("e\u{301} ﬁ \u{212b}", "é ﬁ Å"), ("é", "é")]);
    check("nfkc", &[("e\u{301} ﬁ ①Ｐ", "é fi 1P"), ("\u{1100}\u{1161}", "가")]);
}

#[test]
fn punctuation() {
    check("punct", &[("Don't — \"stop\", 1+1=2 €5 ~x~ ¿qué? 。", "Dont  stop 112 €5 x qué ")]);
}

#[test]
fn urls() {
    check(
        "url",
        &[
            ("HTTP://User:Pw@Example.COM:80/A?B=C#frag", "http://User:Pw@example.com/A?B=C"),
            ("https://a.b:443", "https://a.b"),
            ("https://a.b:80/", "https://a.b:80/"),
            ("http://a.b:/x", "http://a.b/x"),
            ("HTTP://[FE80::1]:80/x", "http://[fe80::1]/x"),
            ("Svn+SSH://H:22/x#y", "svn+ssh://h:22/x"),
            ("http://a.b?Q#", "http://a.b?Q"),
            ("http://a.b#X", "http://a.b"),
            ("http://É.Com/É", "http://É.com/É"),
        ],
    );
    let no_urls = [
        "",
        "Example.COM",
        "HTTP:X",
        "HTTP:/X",
        "http://",
        "FILE:///X#y",
        "://A",
        "1http://A",
        "HTTP://A B/#x",
        "HTTP://A:80x/",
        "HTTP://A:B:80/",
        "mailto:A@B#x",
        " http://A#x",
    ];
    check("url", &no_urls.map(|item| (item, item)));
    check("trim,url", &[(" http://A#x", "http://a")]);
}

#[test]
fn bytes_that_are_no_text_stay() {
    assert_eq!(apply("lower", b"\xffA\xc3"), b"\xffa\xc3");
    assert_eq!(apply("trim", b" \xff "), b"\xff");
    assert_eq!(apply("trim", b"\xc3 \xff"), b"\xc3 \xff");
    assert_eq!(apply("squeeze", b" \xff \xff"), b" \xff \xff");
    assert_eq!(apply("punct", b"\xff!\xfe"), b"\xff\xfe");
    assert_eq!(apply("nfc", b"\xffe\xcc\x81"), b"\xff\xc3\xa9");
    assert_eq!(apply("url", b"HTTP://\xff"), b"http://\xff");
}

proptest! {
    #[test]
    fn a_normal_form_is_its_own(
        text in "[a-cA-C .,\\r\\n\\t:/#@é\u{301}ﬁΣ]{0,20}",
        tail in proptest::collection::vec(any::<u8>(), 0..4),
        normaliser in proptest::sample::select(Normaliser::ALL.to_vec()),
    ) {
        let item = [text.as_bytes(), &tail].concat();
        let once = apply(normaliser.name(), &item);
        // A second `\r` at the end does not belong to a line end.
        prop_assume!(normaliser != Normaliser::Crlf || !once.contains(&b'\r'));
        prop_assert_eq!(apply(normaliser.name(), &once), once.clone());
    }

    #[test]
    fn what_is_no_text_comes_through(bytes in proptest::collection::vec(any::<u8>(), 0..40)) {
        for normaliser in Normaliser::ALL {
            let invalid = |bytes: &[u8]| -> Vec<u8> {
                bytes.utf8_chunks().flat_map(|chunk| chunk.invalid().to_vec()).collect()
            };
            // Punctuation that is removed may have separated two halves of a character.
            if !matches!(normaliser, Normaliser::Url | Normaliser::Punct) {
                prop_assert_eq!(invalid(&apply(normaliser.name(), &bytes)), invalid(&bytes));
            }
        }
    }
}
