//! Signature version 4 of AWS, for requests without a body or with a body whose hash is known.
//!
//! ```text
//! canonical request = method, path, query, headers, names of headers, hash of the body      one a line
//! string to sign    = "AWS4-HMAC-SHA256", time, scope, SHA-256 of the canonical request
//! signature         = HMAC by a key made of the secret, day, region, service and "aws4_request"
//! ```
//!
//! <https://docs.aws.amazon.com/AmazonS3/latest/API/sig-v4-header-based-auth.html>; the tests contain its
//! examples.

use crate::settings::Credentials;
use ring::{digest, hmac};
use std::fmt::Write as _;
use umbel_filter::Hex;

/// SHA-256 of the empty string: the body of a request that has none.
pub(crate) const NO_BODY_SHA256: &str =
    "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855";

/// The SHA-256 of some bytes in hexadecimal digits.
pub(crate) fn sha256_hex(bytes: &[u8]) -> String {
    Hex(digest::digest(&digest::SHA256, bytes).as_ref()).to_string()
}

/// The parts of a request that are signed.
pub(crate) struct Signable<'a> {
    pub(crate) method: &'a str,
    pub(crate) host: &'a str,
    /// Path, encoded as it is sent.
    pub(crate) path: &'a str,
    /// Query, encoded as it is sent, sorted by the bytes of its names.
    pub(crate) query: &'a str,
    /// Headers other than host, token and time, sorted, with names in lower case.
    pub(crate) headers: &'a [(&'a str, String)],
    /// SHA-256 of the body in hexadecimal digits.
    pub(crate) body_sha256: &'a str,
    /// Seconds since 1970.
    pub(crate) unix_seconds: u64,
    pub(crate) region: &'a str,
}

/// The headers that signing adds to a request.
pub(crate) fn signed_headers(
    request: &Signable<'_>,
    credentials: &Credentials,
) -> Vec<(&'static str, String)> {
    let Signable { method, path, query, region, body_sha256, .. } = request;
    let time = timestamp(request.unix_seconds);
    let mut added =
        vec![("x-amz-content-sha256", (*body_sha256).to_owned()), ("x-amz-date", time.clone())];
    if let Some(token) = &credentials.session_token {
        added.push(("x-amz-security-token", token.clone()));
    }
    let mut headers: Vec<(&str, &str)> = vec![("host", request.host)];
    headers.extend(request.headers.iter().map(|(name, value)| (*name, &value[..])));
    headers.extend(added.iter().map(|(name, value)| (*name, &value[..])));
    headers.sort_unstable();
    let names: Vec<&str> = headers.iter().map(|(name, _)| *name).collect();
    let names = names.join(";");
    let lines = headers.iter().fold(String::new(), |mut text, (name, value)| {
        let _ = writeln!(text, "{name}:{}", value.trim());
        text
    });
    let canonical = format!("{method}\n{path}\n{query}\n{lines}\n{names}\n{body_sha256}");
    let day = &time[..8];
    let scope = format!("{day}/{region}/s3/aws4_request");
    let hash = sha256_hex(canonical.as_bytes());
    let text = format!("AWS4-HMAC-SHA256\n{time}\n{scope}\n{hash}");
    let key = format!("AWS4{}", credentials.secret_access_key).into_bytes();
    let key = [day, region, "s3", "aws4_request"].iter().fold(key, |key, part| mac(&key, part));
    let signature = Hex(&mac(&key, &text)).to_string();
    let id = &credentials.access_key_id;
    let value = format!(
        "AWS4-HMAC-SHA256 Credential={id}/{scope},SignedHeaders={names},Signature={signature}"
    );
    added.push(("authorization", value));
    added
}

fn mac(key: &[u8], text: &str) -> Vec<u8> {
    let key = hmac::Key::new(hmac::HMAC_SHA256, key);
    hmac::sign(&key, text.as_bytes()).as_ref().to_vec()
}

/// A part of a path or query, encoded as the signature requires: all characters but letters, digits and
/// `-._~`.
pub(crate) fn percent_encoded(text: &str, keeps_slash: bool) -> String {
    text.bytes().fold(String::new(), |mut encoded, byte| {
        let is_kept = byte.is_ascii_alphanumeric() || b"-._~".contains(&byte);
        if is_kept || (keeps_slash && byte == b'/') {
            encoded.push(char::from(byte));
        } else {
            let _ = write!(encoded, "%{byte:02X}");
        }
        encoded
    })
}

/// A time as `20130524T000000Z`.
fn timestamp(unix_seconds: u64) -> String {
    let (days, second) = (unix_seconds / 86_400, unix_seconds % 86_400);
    // Years begin on March 1st of the year 0 and come in cycles of 400 years, so that leap days come last.
    let days = days + 719_468;
    let (era, day) = (days / 146_097, days % 146_097);
    let year = (day - day / 1460 + day / 36_524 - day / 146_096) / 365;
    let day = day - (365 * year + year / 4 - year / 100);
    let shifted = (5 * day + 2) / 153;
    let day = day - (153 * shifted + 2) / 5 + 1;
    let month = if shifted < 10 { shifted + 3 } else { shifted - 9 };
    let year = era * 400 + year + u64::from(month <= 2);
    let (hour, minute, second) = (second / 3600, second / 60 % 60, second % 60);
    format!("{year:04}{month:02}{day:02}T{hour:02}{minute:02}{second:02}Z")
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Those of the documentation.
    fn credentials() -> Credentials {
        Credentials {
            access_key_id: "AKIAIOSFODNN7EXAMPLE".into(),
            secret_access_key: "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY".into(),
            session_token: None,
        }
    }

    /// The example of the documentation: GET of an object with a range.
    #[test]
    fn the_documented_signature_comes_out() {
        let request = Signable {
            method: "GET",
            host: "examplebucket.s3.amazonaws.com",
            path: "/test.txt",
            query: "",
            headers: &[("range", "bytes=0-9".to_owned())],
            body_sha256: NO_BODY_SHA256,
            unix_seconds: 1_369_353_600,
            region: "us-east-1",
        };
        let headers = signed_headers(&request, &credentials());
        let (_, value) = headers.iter().find(|(name, _)| *name == "authorization").unwrap();
        assert_eq!(
            value,
            "AWS4-HMAC-SHA256 Credential=AKIAIOSFODNN7EXAMPLE/20130524/us-east-1/s3/aws4_request,\
             SignedHeaders=host;range;x-amz-content-sha256;x-amz-date,\
             Signature=f0e8bdb87c964420e857bd35b5d6ed310bd44f0170aba48dd91039c6036bdb41"
        );
    }

    /// The example of the documentation: PUT of an object, signed with its body.
    #[test]
    fn bodies_are_signed_by_their_hashes() {
        let hash = sha256_hex(b"Welcome to Amazon S3.");
        let request = Signable {
            method: "PUT",
            host: "examplebucket.s3.amazonaws.com",
            path: "/test%24file.text",
            query: "",
            headers: &[
                ("date", "Fri, 24 May 2013 00:00:00 GMT".to_owned()),
                ("x-amz-storage-class", "REDUCED_REDUNDANCY".to_owned()),
            ],
            body_sha256: &hash,
            unix_seconds: 1_369_353_600,
            region: "us-east-1",
        };
        let headers = signed_headers(&request, &credentials());
        let (_, value) = headers.iter().find(|(name, _)| *name == "authorization").unwrap();
        let signature = "98ad721746da40c64f1a55b78f14c238d841ea1380cd77a1b5971af0ece108bd";
        assert!(value.ends_with(signature), "{value}");
    }

    #[test]
    fn times_are_written_as_days_of_the_calendar() {
        for (seconds, text) in [
            (0, "19700101T000000Z"),
            (951_782_399, "20000228T235959Z"),
            (951_782_400, "20000229T000000Z"),
            (1_709_251_199, "20240229T235959Z"),
            (4_107_542_400, "21000301T000000Z"),
        ] {
            assert_eq!(timestamp(seconds), text);
        }
    }

    #[test]
    fn names_are_encoded_byte_by_byte() {
        assert_eq!(percent_encoded("a/b c+é~.", true), "a/b%20c%2B%C3%A9~.");
        assert_eq!(percent_encoded("a/b", false), "a%2Fb");
    }
}
