//! Why an object could not be read or written, and what to do about it. The caller adds the object's name.

use std::fmt;

/// Characters of a server's message that are shown.
const SHOWN_CHARS_MAX: usize = 200;

/// An address that no object can have. Give another one.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("{0}")]
pub struct AddressError(pub(crate) String);

/// The environment describes no valid store. No request was sent.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// A variable has an invalid value; the text names it. Correct it.
    #[error("{0}")]
    Variable(String),
    /// There are no trusted certificates. Install the system's certificates, or name a file of them.
    #[error("no certificates to trust: install the system's, or name a file in AWS_CA_BUNDLE")]
    NoCertificates(#[source] Option<rustls_native_certs::Error>),
}

/// Why a request to an object store failed, after all retries.
#[derive(Debug, thiserror::Error)]
pub enum ObjectError {
    /// The object is no longer the one that was opened. Run the job again when no other program writes it.
    #[error("the object was changed while it was read; run the job again")]
    Changed,
    /// Another writer created the object first. It was not changed: move it away, or replace it.
    #[error(
        "an object stands there now: something else has put it there since the job began; move it away, or \
         --overwrite replaces it"
    )]
    Exists,
    /// The server refused the request, and a retry would be refused too.
    #[error("{0}")]
    Refused(ServerRefusal),
    /// The process is ending. No further object is committed.
    #[error("interrupted")]
    Interrupted,
    /// A part cannot be stored until it is sent. Make room on the scratch disk, or name another one.
    #[error("scratch file in {directory}: {error}; --scratch names another directory")]
    Scratch {
        /// The scratch directory.
        directory: String,
        /// The operating system's error.
        error: std::io::Error,
    },
    /// All tries failed: because of the network, or because the store is overloaded. Try again later.
    #[error("no answer from the object store after {tries} tries: {last}")]
    Unreachable {
        /// Tries since the last byte that was received.
        tries: u32,
        /// Why the last try failed.
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
    /// TLS failed: the server has no certificate that is trusted.
    #[error("the object store cannot be trusted: {0}; AWS_CA_BUNDLE names a file of certificates")]
    Untrusted(String),
    /// The server's response is not one of S3.
    #[error("the object store's answer cannot be understood: {0}")]
    Malformed(String),
}

impl ObjectError {
    /// An error for a response that violates the protocol.
    pub(crate) fn malformed(detail: impl Into<String>) -> Self {
        Self::Malformed(detail.into())
    }

    /// The HTTP status, if the server refused the request.
    pub(crate) fn status(&self) -> Option<u16> {
        match self {
            Self::Refused(refusal) => Some(refusal.status),
            _ => None,
        }
    }
}

/// The content of a server's refusal.
#[derive(Debug, Default)]
pub struct ServerRefusal {
    /// HTTP status.
    pub(crate) status: u16,
    /// S3's error code, such as `AccessDenied`; empty if there was none.
    pub(crate) code: String,
    /// The server's message.
    pub(crate) message: String,
    /// The bucket's region, if requests went to another one.
    pub(crate) region: Option<String>,
    /// Whether the request was not signed.
    pub(crate) is_anonymous: bool,
}

impl fmt::Display for ServerRefusal {
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

/// A server's message on one line of bounded length.
fn shown(words: &str) -> String {
    let printable = words.chars().map(|c| if c.is_control() { ' ' } else { c });
    printable.take(SHOWN_CHARS_MAX).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn refusals_say_what_to_do() {
        let refusal = |status, code: &str| ServerRefusal {
            status,
            code: code.into(),
            ..ServerRefusal::default()
        };
        let text = refusal(404, "NoSuchBucket").to_string();
        assert_eq!(text, "there is no such bucket (HTTP 404, NoSuchBucket)");
        let anonymous = ServerRefusal { is_anonymous: true, ..refusal(403, "AccessDenied") };
        assert!(anonymous.to_string().contains("set AWS_ACCESS_KEY_ID"), "{anonymous}");
        let elsewhere = ServerRefusal { region: Some("eu-west-1".into()), ..refusal(301, "x") };
        assert_eq!(
            elsewhere.to_string(),
            "the bucket is in region eu-west-1: set AWS_REGION=eu-west-1"
        );
        let long = ServerRefusal { message: "a\nb".repeat(500), ..refusal(400, "Bad") }.to_string();
        assert!(long.len() < 300 && !long.contains('\n'), "{long}");
    }
}
