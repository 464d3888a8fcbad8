//! Requests as a whole, split at every byte, and beyond the limits.

use proptest::collection::vec;
use proptest::prelude::*;

use super::*;

/// The result of decoding bytes in pieces of this length.
fn decode(bytes: &[u8], piece: usize, is_known: bool) -> (Vec<Request>, Option<ProtocolError>) {
    let mut decoder = Decoder::new(is_known);
    let mut found = Vec::new();
    for mut rest in bytes.chunks(piece) {
        loop {
            match decoder.decode(&mut rest) {
                Ok(Some(request)) => found.push(request),
                Ok(None) => break,
                Err(error) => {
                    assert_eq!(
                        (decoder.decode(&mut rest), decoder.pending_bytes()),
                        (Err(error), 0)
                    );
                    return (found, Some(error));
                }
            }
        }
        assert!(rest.is_empty());
    }
    (found, None)
}

fn request(words: &[&str]) -> Request {
    words.iter().collect()
}

fn error_of(bytes: &[u8], is_known: bool) -> String {
    let found = [1, 7, bytes.len()].map(|piece| decode(bytes, piece, is_known));
    assert_eq!(found[0], found[2]);
    assert_eq!(found[1], found[2]);
    found[0].1.expect("an error").to_string()
}

#[test]
fn arrays_and_lines_are_read() {
    let bytes = b"*2\r\n$3\r\nfoo\r\n$0\r\n\r\n  \r\nset \"a\\x41\\n b\" 'it\\'s' c\"d\"\n*0\r\n*-1\r\nPING\r\n";
    let expected =
        vec![request(&["foo", ""]), request(&["set", "aA\n b", "it's", "cd"]), request(&["PING"])];
    assert_eq!(decode(bytes, bytes.len(), true), (expected.clone(), None));
    for piece in 1..bytes.len() {
        assert_eq!(decode(bytes, piece, true), (expected.clone(), None), "pieces of {piece}");
    }
}

#[test]
fn what_is_no_request_is_named() {
    let of = |bytes: &[u8]| error_of(bytes, true);
    assert_eq!(of(b"*a\r\n"), "Protocol error: invalid multibulk length");
    assert_eq!(of(b"*1048577\r\n"), "Protocol error: invalid multibulk length");
    assert_eq!(of(b"*1\r\n:5\r\n"), "Protocol error: expected '$', got ':'");
    assert_eq!(of(b"*1\r\n*1\r\n"), "Protocol error: expected '$', got '*'");
    assert_eq!(of(b"*1\r\n\r\n"), "Protocol error: expected '$', got ' '");
    for wrong in ["-1", "x", "07", ""] {
        let bytes = format!("*1\r\n${wrong}\r\n");
        assert_eq!(of(bytes.as_bytes()), "Protocol error: invalid bulk length", "{wrong}");
    }
    let long = "Protocol error: invalid bulk length: 524289, expected at most 524288";
    assert_eq!(of(b"*1\r\n$524289\r\n"), long);
    for wrong in ["a \"b\r\n", "a \"b\"c\r\n", "'b\n"] {
        assert_eq!(of(wrong.as_bytes()), "Protocol error: unbalanced quotes in request");
    }
}

#[test]
fn lines_have_an_end() {
    let long = |head: &[u8]| [head, &vec![b'1'; LINE_BYTES_MAX + 1]].concat();
    assert_eq!(error_of(&long(b""), true), "Protocol error: too big inline request");
    assert_eq!(error_of(&long(b"*"), true), "Protocol error: too big mbulk count string");
    assert_eq!(error_of(&long(b"*1\r\n$"), true), "Protocol error: too big bulk count string");
    let longest = [&vec![b'a'; LINE_BYTES_MAX][..], b"\n"].concat();
    assert_eq!(decode(&longest, 1000, true).0[0].byte_count(), LINE_BYTES_MAX);
}

#[test]
fn strangers_may_send_less() {
    let many = b"*11\r\n";
    assert_eq!(error_of(many, false), "Protocol error: unauthenticated multibulk length");
    assert_eq!(decode(many, 1, true), (vec![], None));
    let large = b"*1\r\n$16385\r\n";
    assert_eq!(error_of(large, false), "Protocol error: unauthenticated bulk length");
    assert_eq!(decode(large, 1, true), (vec![], None));
}

#[test]
fn a_request_has_a_most() {
    let bulk = [b"$524288\r\n".as_slice(), &vec![b'x'; BULK_BYTES_MAX], b"\r\n"].concat();
    let mut decoder = Decoder::new(true);
    assert_eq!(decoder.decode(&mut &b"*1000\r\n"[..]), Ok(None));
    let outcome = (0..200).find_map(|_| decoder.decode(&mut &bulk[..]).err());
    assert_eq!(outcome, Some(ProtocolError::RequestTooBig));
}

#[test]
fn what_is_announced_takes_no_memory() {
    let mut decoder = Decoder::new(true);
    assert_eq!(decoder.decode(&mut &b"*1048576\r\n$524288\r\nab"[..]), Ok(None));
    assert_eq!(decoder.pending_bytes(), 2);
}

proptest! {
    #[test]
    fn requests_come_as_they_were_sent(
        sent in vec(vec(vec(any::<u8>(), 0..20), 1..8), 0..6),
        piece in 1_usize..40,
    ) {
        let sent: Vec<Request> = sent.iter().map(|request| request.iter().collect()).collect();
        let mut bytes = Vec::new();
        sent.iter().for_each(|request| request.encode(&mut bytes));
        prop_assert_eq!(decode(&bytes, piece, true), (sent, None));
    }

    #[test]
    fn any_bytes_mean_the_same_in_pieces(
        bytes in "[*$0-3\r\n\"' a\\\\x-]{0,60}",
        piece in 1_usize..20,
        is_known: bool,
    ) {
        let bytes = bytes.as_bytes();
        let whole = decode(bytes, bytes.len().max(1), is_known);
        prop_assert_eq!(decode(bytes, piece, is_known), whole);
    }
}
