//! Errors of certificate and key files.

use std::path::PathBuf;

use rustls::server::VerifierBuilderError;
use thiserror::Error;

/// Certificates or keys that cannot be used. If older ones were loaded before, they stay in use.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum TlsError {
    /// A file cannot be read. Correct the path or the permissions.
    #[error("{}: cannot read it: {source}", file.display())]
    Read {
        /// The file.
        file: PathBuf,
        /// The system's error.
        source: std::io::Error,
    },
    /// A file is longer than certificates can be. Name the right one.
    #[error("{}: {byte_count} bytes, more than the {most} that certificates or keys may have", file.display())]
    TooLong {
        /// The file.
        file: PathBuf,
        /// Its length.
        byte_count: u64,
        /// The limit.
        most: u64,
    },
    /// A file is damaged. Copy it again.
    #[error("{}: damaged PEM: {why}", file.display())]
    Pem {
        /// The file.
        file: PathBuf,
        /// What is wrong.
        why: String,
    },
    /// A file does not hold what it should. Name the right one.
    #[error("{}: no {expected} in it; expected PEM, \"-----BEGIN {begin}-----\"", file.display())]
    Missing {
        /// The file.
        file: PathBuf,
        /// What it should hold.
        expected: &'static str,
        /// The label of its PEM header.
        begin: &'static str,
    },
    /// A certificate cannot be parsed or used. Issue another one.
    #[error("{}: not a certificate that can be used: {why}", file.display())]
    Certificate {
        /// The file.
        file: PathBuf,
        /// What is wrong.
        why: String,
    },
    /// A certificate has expired. Issue another one.
    #[error("{}: the certificate expired on {on}: make another one", file.display())]
    Expired {
        /// The file.
        file: PathBuf,
        /// The end of its validity.
        on: String,
    },
    /// A certificate is not valid yet. Wait, or correct the clock.
    #[error("{}: the certificate is valid from {from} on: is this machine's clock right?", file.display())]
    NotYetValid {
        /// The file.
        file: PathBuf,
        /// The beginning of its validity.
        from: String,
    },
    /// The certificate names a client, so that no client or node would accept the server that presents it. Name the
    /// node's own, or make one.
    #[error(
        "{}: the certificate is the client {name}'s, and a server needs a node's: `umbel cluster certs node` makes one",
        file.display()
    )]
    OfClient {
        /// The file.
        file: PathBuf,
        /// The client's name.
        name: String,
    },
    /// The key belongs to another certificate. Name files that were made together.
    #[error("{} is not the key of the certificate {}", key.display(), certificate.display())]
    KeyMismatch {
        /// The key's file.
        key: PathBuf,
        /// The certificate's file.
        certificate: PathBuf,
    },
    /// The key cannot be used. Make another one.
    #[error("{}: not a key that can be used: {why}", file.display())]
    Key {
        /// The file.
        file: PathBuf,
        /// What is wrong.
        why: String,
    },
    /// The authority's certificates cannot be used. Name the right file.
    #[error("{}: its certificates cannot be used as an authority's: {source}", file.display())]
    Authority {
        /// The file.
        file: PathBuf,
        /// What is wrong.
        source: VerifierBuilderError,
    },
    /// The library refuses the configuration. This is a bug; please report it.
    #[error("TLS cannot be set up: {0}")]
    Library(#[from] rustls::Error),
}
