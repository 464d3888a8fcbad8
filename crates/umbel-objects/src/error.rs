//! Why an object could not be read or written, in words that say what to do. The caller knows its name.

use std::fmt;

/// Characters of a server's words that are shown.
const SHOWN_CHARS_MAX: usize = 200;

/// A name that cannot be one of objects. Give another one.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("{0}")]
pub struct AddressError(pub(crate) String);

/// The environment describes no store. Nothing was asked of any.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// A variable makes no sense; the text names it. Set it anew.
    #[error("{0}")]
    Variable(String),
    /// Nothing vouches for servers. Install the system's certificates, or name a file of them.
    #[error("no certificates to trust: install the system's, or name a file in AWS_CA_BUNDLE")]
    NoCertificates(#[source] Option<rustls_native_certs::Error>),
}

/// Why a request to an object store failed for good.
#[derive(Debug, thiserror::Error)]
pub enum ObjectError {
    /// The object is another one than when the job began. Run the job again, once nobody writes there.
    #[error("the object was changed while it was read; run the job again")]
    Changed,
    /// Another writer was there first. Nothing of it was touched: move it away, or replace it.
    #[error(
        "an object stands there now: something else has put it there since the job began; move it away, or \
         --overwrite replaces it"
    )]
    Exists,
    /// The server refuses, and would refuse again.
    #[error("{0}")]
    Refused(Refusal),
    /// The process is being ended. Nothing more goes under a name.
    #[error("interrupted")]
    Interrupted,
    /// A part cannot be kept until it is sent. Make room on the scratch disk, or name another one.
    #[error("scratch file in {directory}: {error}; --scratch names another directory")]
    Scratch {
        /// Where it is.
        directory: String,
        /// What the system said.
        error: std::io::Error,
    },
    /// No answer after all tries: the network, or a store that is overloaded. Try again later.
    #[error("no answer from the object store after {tries} tries: {last}")]
    Unreachable {
        /// How often it was tried since the last byte came.
        tries: u32,
        /// What the last try met.
        last: String,
    },
    /// The output is longer than an object can be. Write a directory of outputs instead of one.
    #[error(
        "the output is longer than {bytes} bytes, the most that an object can hold; write a directory of outputs"
    )]
    TooLong {
        /// Bytes of the longest object.
        bytes: u64,
    },
    /// The server does not show a certificate that is trusted.
    #[error("the object store cannot be trusted: {0}; AWS_CA_BUNDLE names a file of certificates")]
    Untrusted(String),
    /// The server speaks something else than S3.
    #[error("the object store's answer cannot be understood: {0}")]
    Malformed(String),
}

impl ObjectError {
    /// Of an answer that breaks the rules of the protocol.
    pub(crate) fn malformed(detail: impl Into<String>) -> Self {
        Self::Malformed(detail.into())
    }

    /// The HTTP status of a refusal.
    pub(crate) fn status(&self) -> Option<u16> {
        match self {
            Self::Refused(refusal) => Some(refusal.status),
            _ => None,
        }
    }
}

/// What a server says when it refuses.
#[derive(Debug, Default)]
pub struct Refusal {
    /// HTTP status.
    pub(crate) status: u16,
    /// S3's name of the cause, like `AccessDenied`; empty if it said none.
    pub(crate) code: String,
    /// The server's words.
    pub(crate) message: String,
    /// The region that the bucket is in, if it is another one.
    pub(crate) region: Option<String>,
    /// Whether the request was not signed.
    pub(crate) is_anonymous: bool,
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(region) = &self.region {
            let region = shown(region);
            return write!(f, "the bucket is in region {region}: set AWS_REGION={region}");
        }
        match (self.status, &self.code[..]) {
            (404, "NoSuchBucket") => f.write_str("there is no such bucket")?,
            (404, "NoSuchUpload") => {
                f.write_str(
                    "the upload is gone: something has ended it, perhaps a lifecycle rule; run the job again, as a \
                     worker from a new --job-dir",
                )?;
            }
            (404, "NoSuchKey" | "") => f.write_str("there is no such object")?,
            (401 | 403, _) if self.is_anonymous => f.write_str(
                "access denied without credentials: set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY",
            )?,
            (401 | 403, "ExpiredToken") => f.write_str("the credentials have expired")?,
            (401 | 403, _) => f.write_str("access denied with these credentials")?,
            (301 | 302 | 307, _) => {
                f.write_str("the bucket is elsewhere: set AWS_REGION to its region")?;
            }
            _ => f.write_str("the object store refused")?,
        }
        write!(f, " (HTTP {}", self.status)?;
        for words in [&self.code, &self.message].into_iter().filter(|words| !words.is_empty()) {
            write!(f, ", {}", shown(words))?;
        }
        f.write_str(")")
    }
}

/// A server's words on one line of bounded length.
fn shown(words: &str) -> String {
    let printable = words.chars().map(|c| if c.is_control() { ' ' } else { c });
    printable.take(SHOWN_CHARS_MAX).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn refusals_say_what_to_do() {
        let refusal =
            |status, code: &str| Refusal { status, code: code.into(), ..Refusal::default() };
        let text = refusal(404, "NoSuchBucket").to_string();
        assert_eq!(text, "there is no such bucket (HTTP 404, NoSuchBucket)");
        let anonymous = Refusal { is_anonymous: true, ..refusal(403, "AccessDenied") };
        assert!(anonymous.to_string().contains("set AWS_ACCESS_KEY_ID"), "{anonymous}");
        let elsewhere = Refusal { region: Some("eu-west-1".into()), ..refusal(301, "x") };
        assert_eq!(
            elsewhere.to_string(),
            "the bucket is in region eu-west-1: set AWS_REGION=eu-west-1"
        );
        let long = Refusal { message: "a\nb".repeat(500), ..refusal(400, "Bad") }.to_string();
        assert!(long.len() < 300 && !long.contains('\n'), "{long}");
    }
}
